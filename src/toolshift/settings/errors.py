"""Errors that are meant for the person at the keyboard: printed as a message, never as a traceback."""

from __future__ import annotations

from collections.abc import Sequence


class UserError(Exception):
    """Something the user can mend; the message says what was found, what was expected and what to do.

    ``exit_code`` is the exit status of a script that ends with it.
    """

    exit_code = 1
    user_facing = True


class ConfigError(UserError):
    """The configuration is refused. Holds every problem that was found, not only the first."""

    exit_code = 2

    def __init__(self, problems: Sequence[str] | str) -> None:
        self.problems = (problems,) if isinstance(problems, str) else tuple(problems)
        super().__init__("\n".join(self.problems))

    def __reduce__(self) -> tuple[type[ConfigError], tuple[tuple[str, ...]]]:
        """Launchers with worker processes pickle the error; keep the list of problems."""
        return type(self), (self.problems,)


def is_user_facing(error: BaseException) -> bool:
    """True for ``UserError`` and for an error of any class that sets ``user_facing = True``."""
    return bool(getattr(error, "user_facing", False))


def exit_code_of(error: BaseException) -> int:
    """Exit status for an error: its own ``exit_code`` where it has one, otherwise 1."""
    code = getattr(error, "exit_code", 1)
    return code if isinstance(code, int) and code > 0 else 1

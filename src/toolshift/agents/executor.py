"""Dispatch (Algorithm 1 line 7): carry out a valid call by Python functions, recorded results or not at all.

A call is checked against an allow-list and a confirmation before anything happens, and ends in a time-out. What goes
wrong comes back as a `Refusal` with a reason, never as an exception: the loop goes on and every intent is counted.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from toolshift.agents.outcomes import AgentError, WhyError
from toolshift.agents.tools import Tool
from toolshift.data.lines import read_lines
from toolshift.models.ntilc.arguments import canonical
from toolshift.models.ntilc.signature import shortened
from toolshift.runs.locks import exclusive

Arguments = Mapping[str, Any]
Confirm = Callable[[Tool, Arguments], bool]
_DETAIL = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What a tool returned, as text. dry: nothing was called."""

    result: str
    dry: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why a call was not carried out, or how it broke down."""

    reason: WhyError
    detail: str = ""


class Executor(Protocol):
    """Carries out a call. It may raise what it likes: `Dispatcher` turns that into ``tool_error``."""

    def execute(self, tool: Tool, arguments: Arguments) -> Done | Refusal:
        """Call a tool with arguments that fit its schema."""
        ...


@dataclass(frozen=True)
class DryRun:
    """Calls nothing and says what would be called."""

    def execute(self, tool: Tool, arguments: Arguments) -> Done:
        """The call as text."""
        return Done(result=f"(dry run) {tool.name}({canonical(dict(arguments))})", dry=True)


@dataclass(frozen=True)
class Functions:
    """Python functions by tool name, called with keyword arguments. Their result is kept as text, or as JSON."""

    functions: Mapping[str, Callable[..., Any]]

    def execute(self, tool: Tool, arguments: Arguments) -> Done | Refusal:
        """Call the function of a tool."""
        function = self.functions.get(tool.name)
        if function is None:
            return Refusal(reason="no_function", detail=f"no function is given for {tool.name}")
        return Done(result=as_text(function(**arguments)))


@dataclass(frozen=True)
class Cached:
    """Recorded results: JSON Lines ``{"tool", "arguments", "result"}``, or ``"error"`` for a call that failed.

    A call is looked up by tool and canonical arguments. behind: asked for what is not recorded, which is then
    recorded; without it such a call is ``not_recorded``.

    Raises:
        AgentError: for a line that is no record, or another result of a call that was recorded before.
    """

    path: Path
    behind: Executor | None = None
    _known: dict[tuple[str, str], Done | Refusal] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.path.exists():
            self._known.update(_recorded(self.path))
        elif self.behind is None:
            raise AgentError(f"{self.path}: no recorded results there; give the file, or another executor")

    def execute(self, tool: Tool, arguments: Arguments) -> Done | Refusal:
        """The recorded result, or that of the executor behind."""
        key = tool.name, canonical(dict(arguments))
        if key in self._known:
            return self._known[key]
        if self.behind is None:
            return Refusal(reason="not_recorded", detail=f"{self.path.name} has no result of this call")
        try:
            found = self.behind.execute(tool, arguments)
        except Exception as error:
            found = _broken(error)
        if isinstance(found, Done) and found.dry:
            return found
        if isinstance(found, Done) or found.reason == "tool_error":
            self._record(tool, arguments, found)
        return self._known.setdefault(key, found)

    def _record(self, tool: Tool, arguments: Arguments, found: Done | Refusal) -> None:
        outcome = {"result": found.result} if isinstance(found, Done) else {"error": found.detail}
        line = json.dumps({"tool": tool.name, "arguments": dict(arguments), **outcome}, ensure_ascii=False)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with exclusive(self.path.with_name(f".{self.path.name}.lock")), self.path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")


def _recorded(path: Path) -> dict[tuple[str, str], Done | Refusal]:
    known: dict[tuple[str, str], Done | Refusal] = {}
    for line in read_lines(path):
        row = line.value
        if (
            not isinstance(row, dict)
            or not isinstance(row.get("tool"), str)
            or ("result" not in row and "error" not in row)
        ):
            raise AgentError(
                f'{path}:{line.number}: expected {{"tool": NAME, "arguments": {{...}}, "result": ...}} or "error"'
            )
        key = row["tool"], canonical(row.get("arguments") or {})
        error = row.get("error")
        found = Refusal(reason="tool_error", detail=str(error)) if error else Done(result=as_text(row.get("result")))
        if known.setdefault(key, found) != found:
            raise AgentError(f"{path}:{line.number}: another result of {key[0]} with {key[1]} stands above; remove one")
    return known


@dataclass(frozen=True, kw_only=True)
class Dispatcher:
    """An executor behind its guards. allow: names of tools that may be called; None for all. confirm: asked before
    each call; None for never. timeout_s: seconds until a call counts as lost; its thread is left behind, since Python
    cannot end one, and no result of it is used."""

    executor: Executor
    allow: frozenset[str] | None = None
    confirm: Confirm | None = None
    timeout_s: float = 30.0

    def __post_init__(self) -> None:
        if self.timeout_s <= 0:
            raise AgentError(f"timeout_s must be above 0, got {self.timeout_s}")

    def dispatch(self, tool: Tool, arguments: Arguments) -> Done | Refusal:
        """Carry out a call."""
        if self.allow is not None and tool.name not in self.allow:
            return Refusal(reason="not_allowed", detail=f"{tool.name} is not among the allowed tools")
        if self.confirm is not None and not self.confirm(tool, arguments):
            return Refusal(reason="not_confirmed", detail=f"{tool.name} was not confirmed")
        found: list[Done | Refusal] = []

        def call() -> None:
            try:
                found.append(self.executor.execute(tool, arguments))
            except Exception as error:
                found.append(_broken(error))

        thread = threading.Thread(target=call, name=f"tool {tool.name}", daemon=True)
        thread.start()
        thread.join(self.timeout_s)
        if not found:
            return Refusal(reason="timeout", detail=f"no result after {self.timeout_s:g} s")
        return found[0]


def _broken(error: Exception) -> Refusal:
    return Refusal(reason="tool_error", detail=shortened(f"{type(error).__name__}: {error}", limit=_DETAIL))


def as_text(value: object) -> str:
    """A result as text: a text as it is, anything else as JSON where that is possible."""
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False, sort_keys=True)
    except (TypeError, ValueError):
        return str(value)

"""What a dialect makes of a tool, and the accounts that say what became of every row."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from toolshift.data.catalog import EndpointDoc
from toolshift.data.errors import AdapterError
from toolshift.data.tally import Tally


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolDoc:
    """One tool as its document describes it. where: file and place, for messages."""

    name: str
    description: str = ""
    domain: str = ""
    operations: tuple[EndpointDoc, ...]
    where: str


class Dialect(Protocol):
    """A module of `toolshift.data.importers.dialects`."""

    def claims(self, value: object) -> bool:
        """Whether a value is a tool (or a whole document) of this dialect. At most one dialect claims a value."""
        ...

    def read(self, value: Any, *, where: str, tally: Tally) -> Iterator[ToolDoc]:
        """The tools of a claimed value; what cannot be used is counted."""
        ...


class ToolTally(Tally):
    """Row accounts whose error tells how to go on without the row."""

    def drop(self, section: str, reason: str, *, where: str, rows: int = 1) -> None:
        """Count rows that cannot be used; see ``Tally.drop``."""
        if self.strict:
            raise AdapterError(
                f"{where}: {reason.replace('_', ' ')} ({section}). Repair or remove it, or import without strict to "
                "leave such parts out and have them counted."
            )
        super().drop(section, reason, where=where, rows=rows)

    def lines(self) -> tuple[str, ...]:
        """One line per reason: what was left out, how often, and where first."""
        return tuple(
            f"{section}: {self._dropped[section][reason]} left out: {reason.replace('_', ' ')} (first: {where})"
            for (section, reason), where in sorted(self._first.items())
        )

"""Row accounting of an adapter: every raw row ends as a record or under a named reason."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping

from toolshift.data.errors import AdapterError
from toolshift.data.records import Section

_LOG = logging.getLogger(__name__)


class Tally:
    """Counts rows by section and reason; with ``strict`` the first drop is an error that names its place.

    A section is settled row by row: ``keep`` and ``drop`` both count the row as read, so that
    ``rows_read == records + dropped`` holds by construction.
    """

    def __init__(self, *, strict: bool = False) -> None:
        self.strict = strict
        self.notes: Counter[str] = Counter()
        self._kept: Counter[str] = Counter()
        self._dropped: dict[str, Counter[str]] = {}
        self._first: dict[tuple[str, str], str] = {}

    def open(self, *, sections: Iterable[str], notes: Iterable[str] = ()) -> None:
        """Make sections and notes appear in the report, as 0, even when nothing of the kind is met."""
        for section in sections:
            self._kept[section] += 0
        for name in notes:
            self.notes[name] += 0

    def keep(self, section: str, rows: int = 1) -> None:
        """Count rows that became, or were merged into, a record."""
        self._kept[section] += rows

    def drop(self, section: str, reason: str, *, where: str, rows: int = 1) -> None:
        """Count rows that cannot become a record.

        Raises:
            AdapterError: under ``strict``, naming the place and the reason.
        """
        if self.strict:
            raise AdapterError(
                f"{where}: {reason.replace('_', ' ')} ({section}). Repair or remove it, or set data.strict=false to "
                "drop such rows and have them counted in report.json."
            )
        self.exclude(section, reason, where=where, rows=rows)

    def exclude(self, section: str, reason: str, *, where: str, rows: int = 1) -> None:
        """Count sound rows that are left out by design: reported like a drop, but never an error under ``strict``."""
        self._dropped.setdefault(section, Counter())[reason] += rows
        self._first.setdefault((section, reason), where)

    def note(self, name: str, count: int = 1) -> None:
        """Count an event that loses nothing (a merge, an alias, an ambiguity)."""
        self.notes[name] += count

    def sections(self) -> Mapping[str, Section]:
        """Return one ``Section`` per kind of row, sorted by name, reasons sorted."""
        result: dict[str, Section] = {}
        for name in sorted(set(self._kept) | set(self._dropped)):
            dropped = dict(sorted(self._dropped.get(name, Counter()).items()))
            kept = self._kept[name]
            result[name] = Section(rows_read=kept + sum(dropped.values()), records=kept, dropped=dropped)
        return result

    def log(self) -> None:
        """Log each drop reason once, with its count and its first place."""
        for (section, reason), where in sorted(self._first.items()):
            _LOG.warning("%s: dropped %d rows: %s (first: %s)", section, self._dropped[section][reason], reason, where)

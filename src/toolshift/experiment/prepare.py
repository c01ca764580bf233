"""The entry behind ``scripts/prepare.py``: raw files to records, and an account of every row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from toolshift.data.records import Report
from toolshift.data.store import LoadedRecords
from toolshift.experiment.data import open_records
from toolshift.experiment.main import log_to_stderr, say
from toolshift.settings.launch import Launch


def prepare(launch: Launch) -> int:
    """Read (or rebuild) the record store and print what is in it. Returns the exit status."""
    log_to_stderr()
    loaded = open_records(launch.settings)
    print(f"{loaded.records.dataset} ({launch.settings.data.source})\n")
    print(account(loaded.records.report))
    for path in written_files(loaded):
        say(f"{'wrote' if loaded.rebuilt else 'found'} {path}")
    say(f"{loaded.seconds:.1f} s, fingerprint {loaded.fingerprint[:12]}")
    return 0


def account(report: Report) -> str:
    """Three tables: rows by kind with rows_read = records + dropped, drops by reason, and what the records hold."""
    rows = [[name, s.rows_read, s.records, sum(s.dropped.values())] for name, s in sorted(report.sections.items())]
    rows.append(["all", report.rows_read, report.records, sum(report.dropped.values())])
    totals = ("tasks", "capabilities", "endpoints", "gold_pairs", "domains", "ordered_tasks")
    tables = [
        _table(rows, headers=("rows of", "read", "records", "dropped")),
        _counts(report.dropped, headers=("dropped because", "rows")) if report.dropped else "no row was dropped",
        _counts({name: getattr(report, name) for name in totals}, headers=("records", "count")),
        _counts(report.notes, headers=("noted, nothing lost", "count")),
    ]
    return "\n\n".join(table for table in tables if table)


def written_files(loaded: LoadedRecords) -> list[Path]:
    """The files of the record store, the public report first."""
    return [loaded.folder.parent / "report.json", *sorted(loaded.folder.iterdir())]


def _counts(counts: Mapping[str, int], *, headers: Sequence[str]) -> str:
    return _table([[name, count] for name, count in counts.items()], headers=headers) if counts else ""


def _table(rows: Sequence[Sequence[object]], *, headers: Sequence[str]) -> str:
    from tabulate import tabulate

    return tabulate(rows, headers=headers, tablefmt="simple", intfmt=",")

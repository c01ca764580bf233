"""The entry behind ``scripts/prepare.py``: raw files to records, and an account of every row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from toolshift.data.errors import AdapterError
from toolshift.data.records import Report
from toolshift.data.store import LoadedRecords
from toolshift.experiment.data import open_dataset, open_records
from toolshift.experiment.main import log_to_stderr, say
from toolshift.runs.environment import peak_rss_mb
from toolshift.settings.launch import Launch
from toolshift.settings.options import conf_folder, groups, load_dataset
from toolshift.settings.schema import Settings

ALL, OWN = "all", "jsonl"
"""``dataset=all`` reads every dataset; the user's own only where there is one."""


def prepare(launch: Launch) -> int:
    """Read (or rebuild) the record store and print what is in it; of every dataset under ``dataset=all``.

    Returns the exit status: 1 if a dataset could not be read, which does not keep the others from being read.
    """
    log_to_stderr()
    settings = launch.settings
    if settings.dataset.name != ALL:
        _show(open_records(settings), source=settings.data.source)
        return 0
    read, failed = _every(settings)
    print(summary(read))
    for name, reason in failed.items():
        say(f"not read: {name}: {reason}")
    return 1 if failed else 0


def _every(settings: Settings) -> tuple[list[LoadedRecords], dict[str, str]]:
    """(records of every dataset that could be read, reason by name for those that could not)."""
    read: list[LoadedRecords] = []
    failed: dict[str, str] = {}
    for name in groups(conf_folder())["dataset"]:
        if name == ALL or (name == OWN and settings.data.source == "real" and not _has_own(settings)):
            continue
        try:
            loaded = open_dataset(settings, load_dataset(name))
        except AdapterError as error:
            failed[name] = str(error).split("\n")[0]
            continue
        _show(loaded, source=settings.data.source)
        print()
        read.append(loaded)
    return read, failed


def _has_own(settings: Settings) -> bool:
    return (Path(settings.data.root or "") / OWN).is_dir()


def _show(loaded: LoadedRecords, *, source: str) -> None:
    print(f"{loaded.records.dataset} ({source})\n")
    if loaded.records.unscorable:
        print(f"no score may be reported: {loaded.records.unscorable}\n")
    print(account(loaded.records.report))
    for path in written_files(loaded):
        say(f"{'wrote' if loaded.rebuilt else 'found'} {path}")
    say(f"{loaded.seconds:.1f} s, peak memory {peak_rss_mb():.0f} MiB, fingerprint {loaded.fingerprint[:12]}")


def summary(read: Sequence[LoadedRecords]) -> str:
    """One row per dataset."""
    totals = ("tasks", "capabilities", "endpoints", "gold_pairs", "domains", "ordered_tasks")
    rows = [
        [
            one.records.dataset,
            one.records.report.rows_read,
            sum(one.records.report.dropped.values()),
            *(getattr(one.records.report, name) for name in totals),
            len(one.records.apart),
            "no" if one.records.unscorable else "yes",
            f"{one.seconds:.1f}",
        ]
        for one in read
    ]
    return _table(rows, headers=("dataset", "rows read", "dropped", *totals, "apart", "may be scored", "seconds"))


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

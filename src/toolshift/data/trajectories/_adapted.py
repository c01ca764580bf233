"""Sources whose adapter keeps the order of calls: its records are filtered, nothing is parsed again."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from toolshift.data.errors import AdapterError
from toolshift.data.records import Records, Task
from toolshift.data.trajectories.collecting import Collector


def collect_tasks(
    root: Path,
    *,
    into: Collector,
    records: Records | None,
    origin: str,
    keep: Callable[[Task], bool],
    collapse: bool = False,
) -> None:
    """Hand the tasks of a source to the collector; those without an order of calls are counted as dropped.

    Raises:
        AdapterError: if the records hold no task of the source.
    """
    adapter = f"toolshift.data.adapters.{into.dataset}"
    known: Records = records or import_module(adapter).read(root, strict=into.tally.strict)
    into.open(origin)
    met = 0
    for task in known.tasks:
        if not keep(task):
            continue
        met += 1
        if task.ordered and task.calls:
            into.add_task(task, origin=origin, collapse=collapse)
        else:
            into.tally.exclude(f"{origin}:trajectories", "unordered", where=task.source)
    if not met:
        raise AdapterError(f"{origin}: the records of {into.dataset} hold no such task; are its files below {root}?")

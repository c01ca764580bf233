"""API-Bank level 3, training part: the plans of ``lv3-api-train.json`` as the adapter puts them together."""

from __future__ import annotations

from pathlib import Path

from toolshift.data.records import Records
from toolshift.data.trajectories._adapted import collect_tasks
from toolshift.data.trajectories.collecting import Collector

DATASET = "apibank"
_PART = "level-3-train"


def collect(root: Path, *, into: Collector, records: Records | None) -> None:
    """Take the tasks of the part that are not tasks of the test part as well; see ``Source``."""
    collect_tasks(
        root,
        into=into,
        records=records,
        origin="apibank/level3_train",
        keep=lambda task: task.split == _PART,
        collapse=True,
    )

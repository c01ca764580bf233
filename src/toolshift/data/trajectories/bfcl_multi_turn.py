"""BFCL multi-turn: all turns of the user as one text, the calls of all turns in order."""

from __future__ import annotations

from pathlib import Path

from toolshift.data.records import Records
from toolshift.data.trajectories._adapted import collect_tasks
from toolshift.data.trajectories.collecting import Collector

DATASET = "bfcl"
_PART = "multi_turn"


def collect(root: Path, *, into: Collector, records: Records | None) -> None:
    """Take the tasks of multi-turn categories; see ``Source``."""
    collect_tasks(
        root,
        into=into,
        records=records,
        origin="bfcl/multi_turn",
        keep=lambda task: any(part.startswith(_PART) for part in task.split.split("+")),
    )

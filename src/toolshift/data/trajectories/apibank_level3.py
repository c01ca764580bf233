"""API-Bank level 3, test part: a request and its calls, the search for tools left out.

Without de-duplication a call that repeats the one right before it is dropped, as in the authors' extractor (spec
skillgraph.md section 7).
"""

from __future__ import annotations

from pathlib import Path

from toolshift.data.records import Records
from toolshift.data.trajectories._adapted import collect_tasks
from toolshift.data.trajectories.collecting import Collector

DATASET = "apibank"
_PART = "level-3"


def collect(root: Path, *, into: Collector, records: Records | None) -> None:
    """Take the tasks of the part; see ``Source``."""
    collect_tasks(
        root,
        into=into,
        records=records,
        origin="apibank/level3",
        keep=lambda task: _PART in task.split.split("+"),
        collapse=True,
    )

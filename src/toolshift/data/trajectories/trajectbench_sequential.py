"""TRAJECT-Bench: queries with the chain of tools that answers them."""

from __future__ import annotations

from pathlib import Path

from toolshift.data.records import Records
from toolshift.data.trajectories._adapted import collect_tasks
from toolshift.data.trajectories.collecting import Collector

DATASET = "trajectbench"


def collect(root: Path, *, into: Collector, records: Records | None) -> None:
    """Take all tasks; see ``Source``."""
    collect_tasks(root, into=into, records=records, origin="trajectbench/sequential", keep=lambda _: True)

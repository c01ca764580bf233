"""Ordered calls of tools, from many releases, as ``Task`` records over one library.

``read_trajectories`` is the only entry; one module per source lies beside it and is found by its name
(``toolbench_answers`` reads the source ``toolbench/answers``). ``docs/skillgraph_data.md`` says what each one reads.
"""

from __future__ import annotations

from toolshift.data.trajectories.base import AUTHORS, PAPER, Rules, Trajectories
from toolshift.data.trajectories.reading import read_trajectories, source_names

__all__ = ["AUTHORS", "PAPER", "Rules", "Trajectories", "read_trajectories", "source_names"]

"""Judged answers of ToolEval: ``pass_rate_results/<method>/*.json``, with a vote of several judgements per query.

A trajectory succeeds where more than half of its judgements are ``Solved``. Its calls stand in one text, a line
``Step N: {...}`` each, in Python's notation and cut where long. Functions are listed by name, without documentation.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from toolshift.data.records import Records
from toolshift.data.rows import BadRow, required
from toolshift.data.trajectories import _toolbench as shared
from toolshift.data.trajectories.base import Run
from toolshift.data.trajectories.collecting import Collector, query_of
from toolshift.data.trajectories.toolbench_tooleval import call_of

DATASET = "toolbench"
_STEP = re.compile(r"^Step (\d+): ", re.MULTILINE)
_SOLVED = "Solved"


def collect(root: Path, *, into: Collector, records: Records | None) -> None:
    """Read every result file; see ``Source``."""
    for path in shared.json_files(root, "pass_rate_results/*/*.json"):
        where = shared.relative(path, root)
        origin = f"{DATASET}/{path.parent.name}"
        into.open(origin)
        for key, row in shared.rows_of(path, origin=origin, where=where, into=into):
            try:
                into.add(_run(row, key, origin=origin, where=where))
            except BadRow as reason:
                into.drop(origin, str(reason), where=f"{where}#{key}")


def _run(row: Mapping[str, Any], key: str, *, origin: str, where: str) -> Run:
    split = where.rpartition("/")[2].removesuffix(".json")
    return Run(
        origin=origin,
        task_id=f"{origin}/{split}/{key}",
        text=query_of(shared.text_field(row, "query")),
        calls=tuple(call_of(step) for step in steps(required(row, "answer_steps", str))),
        marked=solved(required(row, "is_solved", dict)),
        split=split,
        source=f"{where}#{key}",
        listed=tuple(n for n in required(row, "tool_names", list) if isinstance(n, str)),
    )


def steps(text: str) -> Iterator[str]:
    """What follows ``Step 1: ``, ``Step 2: `` and so on; a line of another number is part of the step before."""
    starts = []
    for match in _STEP.finditer(text):
        if int(match[1]) == len(starts) + 1:
            starts.append(match)
    ends = [match.start() for match in starts[1:]] + [len(text)]
    for match, end in zip(starts, ends, strict=True):
        yield text[match.end() : end].strip()


def solved(votes: Mapping[str, object]) -> bool:
    """Whether more than half of the judgements are ``Solved``; they come as ``AnswerStatus.Solved``."""
    return 2 * sum(str(vote).rpartition(".")[2] == _SOLVED for vote in votes.values()) > len(votes)

"""Training and test part of trajectories, several of which answer one query.

Trajectories of one query, or of one sequence of calls, on both sides of a split let a method look its answer up.
Connected components stay together (validity.md section 10); the split by id, which the authors make, is there to show
what that costs.
"""

from __future__ import annotations

import random
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from toolshift.data.records import Task
from toolshift.protocols.purge import normalise

By = Literal["text", "calls", "id"]
WAYS: tuple[By, ...] = ("text", "calls", "id")
Bucket = tuple[int, int | None]
"""Shortest and longest number of calls, both included; None: no longest."""
BUCKETS: tuple[Bucket, ...] = ((1, 3), (4, 6), (7, None))
"""The authors' strata (spec skillgraph.md section 1)."""
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Rows of both sides, ascending, and what belongs together.

    train, test: disjoint, together 0..n-1. group: (n,) code of each row's component, by first appearance. Rows of one
    group are not independent: a bootstrap has to draw groups.
    """

    train: Ints
    test: Ints
    group: Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenPairs:
    """Adjacent pairs of different tools in test trajectories, repeats counted, and how many of them training shows."""

    seen: int
    pairs: int

    @property
    def share(self) -> float:
        """Share of seen pairs, nan without any pair."""
        return self.seen / self.pairs if self.pairs else float("nan")


def split_trajectories(
    tasks: Sequence[Task],
    *,
    by: By = "text",
    test_share: float = 0.2,
    seed: int = 42,
    buckets: Sequence[Bucket] = BUCKETS,
) -> Split:
    """Split n trajectories, stratified by length bucket.

    ``id`` is the authors' way: in each bucket, ``random.Random(seed)`` shuffles the rows in the order given and the
    first ``int(test_share * size)`` of them are tested. ``text`` keeps together what has the same query up to case,
    punctuation and white space; ``calls`` also what has the same sequence of calls, and whatever these two relations
    connect. Components come in an order shuffled by ``seed``, and one changes sides where that brings the test part
    nearer to its number of rows per bucket, until none does; so the parts agree with ``id`` up to the size of
    components, and one of more than twice the size of the test part is always trained on.

    Raises:
        ValueError: if ``by`` or the share is unknown, buckets leave out a length, or there is no trajectory.
    """
    if by not in WAYS:
        raise ValueError(f"by={by!r}: expected one of {', '.join(WAYS)}")
    if not 0 < test_share < 1:
        raise ValueError(f"test_share={test_share}: expected a share between 0 and 1, both excluded")
    if not tasks:
        raise ValueError("there is no trajectory to split")
    strata = _strata([len(task.calls) for task in tasks], buckets)
    group = np.arange(len(tasks), dtype=np.int64) if by == "id" else components([_keys(task, by) for task in tasks])
    if by == "id":
        tested = _by_id(strata, len(buckets), test_share=test_share, seed=seed)
    else:
        tested = _by_component(group, strata, len(buckets), test_share=test_share, seed=seed)
    mask = np.zeros(len(tasks), bool)
    mask[tested] = True
    return Split(train=np.flatnonzero(~mask), test=np.flatnonzero(mask), group=group)


def seen_pairs(tasks: Sequence[Task], split: Split) -> SeenPairs:
    """How many adjacent pairs (a, b), a not b, of test trajectories are adjacent in this order in training."""
    known = {pair for row in split.train for pair in _pairs(tasks[row].calls)}
    tested = [pair in known for row in split.test for pair in _pairs(tasks[row].calls)]
    return SeenPairs(seen=sum(tested), pairs=len(tested))


def components(keys: Sequence[Iterable[Hashable]]) -> Ints:
    """(n,) component of each row, where rows that share a key are connected; codes by first appearance."""
    parent = list(range(len(keys)))

    def root(row: int) -> int:
        while parent[row] != row:
            parent[row] = parent[parent[row]]
            row = parent[row]
        return row

    first: dict[Hashable, int] = {}
    for row, own in enumerate(keys):
        for key in own:
            a, b = sorted((root(row), root(first.setdefault(key, row))))
            parent[b] = a  # the root of a component is its first row
    codes: dict[int, int] = {}
    return np.array([codes.setdefault(root(row), len(codes)) for row in range(len(keys))], np.int64)


def _keys(task: Task, by: By) -> Iterator[Hashable]:
    # A text without any letter or digit has no words; it is only equal to itself.
    words = normalise(task.text)
    yield ("text", words or task.text)
    if by == "calls":
        yield ("calls", task.calls)


def _pairs(calls: Sequence[str]) -> Iterator[tuple[str, str]]:
    return ((a, b) for a, b in pairwise(calls) if a != b)


def _strata(lengths: Sequence[int], buckets: Sequence[Bucket]) -> Ints:
    """(n,) bucket of each length, the first that holds it."""
    found = np.full(len(lengths), -1, np.int64)
    values = np.asarray(lengths)
    for place, (shortest, longest) in reversed(list(enumerate(buckets))):
        found[(values >= shortest) & (values <= (values.max() if longest is None else longest))] = place
    if (found < 0).any():
        raise ValueError(f"no bucket of {list(buckets)} holds a trajectory of {values[found < 0][0]} calls")
    return found


def _by_id(strata: Ints, n_buckets: int, *, test_share: float, seed: int) -> list[int]:
    tested: list[int] = []
    for bucket in range(n_buckets):
        rows = np.flatnonzero(strata == bucket).tolist()
        random.Random(seed).shuffle(rows)
        tested += rows[: int(test_share * len(rows))]
    return tested


def _by_component(group: Ints, strata: Ints, n_buckets: int, *, test_share: float, seed: int) -> list[int]:
    n_groups = int(group.max()) + 1
    sizes = np.zeros((n_groups, n_buckets), np.int64)
    np.add.at(sizes, (group, strata), 1)
    missing = [int(test_share * size) for size in sizes.sum(axis=0).tolist()]
    order = list(range(n_groups))
    random.Random(seed).shuffle(order)
    chosen = np.zeros(n_groups, bool)
    rows = sizes.tolist()
    moved = True
    while moved:  # each move brings the part strictly nearer, so this ends
        moved = False
        for code in order:
            sign = -1 if chosen[code] else 1
            left = [want - sign * size for want, size in zip(missing, rows[code], strict=True)]
            if sum(map(abs, left)) < sum(map(abs, missing)):
                missing, chosen[code], moved = left, not chosen[code], True
    return np.flatnonzero(chosen[group]).tolist()

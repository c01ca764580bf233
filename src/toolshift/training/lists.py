"""Training lists: one list per task and epoch, taken in turn from the views that have one for the task.

Over as many epochs as there are views every negative role is seen once. Which list comes when follows from a keyed
hash of (seed, task, epoch), so neither process count nor task order matters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from toolshift.runs.seeds import keyed_hash, seed_of
from toolshift.views.corpus import Corpus, Rows
from toolshift.views.manifest import Manifest
from toolshift.views.roles import packed_rows


@dataclass(frozen=True, kw_only=True)
class Batch:
    """b lists with p candidates in all.

    tasks: (b,) task rows. offsets: (b+1,). capability: (p,) rows. positive: (p,).
    """

    tasks: Rows
    offsets: Rows
    capability: Rows
    positive: NDArray[np.bool_]

    @property
    def owner(self) -> Rows:
        """(p,) position of the list of every candidate."""
        return np.repeat(np.arange(self.tasks.size), np.diff(self.offsets))


@dataclass(frozen=True, kw_only=True)
class TrainingLists:
    """All lists of the training tasks, packed; l lists.

    tasks: (t,) distinct task rows, ascending. first, count: (t,) the lists of task i are ``first[i]..+count[i]``.
    offsets: (l+1,). capability, positive: (N,).
    """

    tasks: Rows
    first: Rows
    count: Rows
    offsets: Rows
    capability: Rows
    positive: NDArray[np.bool_]
    task_hash: NDArray[np.uint64]

    @staticmethod
    def of(manifests: Mapping[str, Manifest], corpus: Corpus, *, max_tasks: int | None) -> TrainingLists:
        """Collect the lists of all views; at most ``max_tasks`` tasks, those with the smallest id hash."""
        names = sorted(manifests)
        owner = np.concatenate([manifests[v].tasks for v in names])
        lengths = np.concatenate([manifests[v].lengths for v in names])
        capability = np.concatenate([manifests[v].capability for v in names])
        positive = np.concatenate([manifests[v].positive for v in names])
        start = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        kept = _smallest(np.unique(owner), corpus, max_tasks)
        order = np.argsort(owner, kind="stable")
        order = order[np.isin(owner[order], kept)]
        index, _ = packed_rows(start, order)
        tasks, first, count = np.unique(owner[order], return_index=True, return_counts=True)
        return TrainingLists(
            tasks=tasks,
            first=first,
            count=count,
            offsets=np.concatenate([[0], np.cumsum(lengths[order])]).astype(np.int64),
            capability=capability[index],
            positive=positive[index],
            task_hash=corpus.task_hash[tasks],
        )

    def epoch(self, number: int, *, seed: int, batch_tasks: int) -> Iterator[Batch]:
        """Batches of one epoch in a keyed order, one list per task."""
        turn = keyed_hash(seed_of("turn", seed), self.task_hash, self.task_hash) % self.count.astype(np.uint64)
        chosen = self.first + (turn.astype(np.int64) + number) % self.count
        order = np.argsort(keyed_hash(seed_of("order", seed, number), self.task_hash, self.task_hash), kind="stable")
        for begin in range(0, order.size, batch_tasks):
            yield self._batch(order[begin : begin + batch_tasks], chosen)

    def everything(self) -> Batch:
        """All lists at once; ``tasks`` then repeats a task once per list."""
        return Batch(
            tasks=np.repeat(self.tasks, self.count),
            offsets=self.offsets,
            capability=self.capability,
            positive=self.positive,
        )

    def _batch(self, place: Rows, chosen: Rows) -> Batch:
        lists = chosen[place]
        index, _ = packed_rows(self.offsets, lists)
        lengths = np.diff(self.offsets)[lists]
        return Batch(
            tasks=self.tasks[place],
            offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
            capability=self.capability[index],
            positive=self.positive[index],
        )


def _smallest(tasks: Rows, corpus: Corpus, count: int | None) -> Rows:
    if count is None or tasks.size <= count:
        return tasks
    return np.sort(tasks[np.argsort(corpus.task_hash[tasks], kind="stable")[:count]])

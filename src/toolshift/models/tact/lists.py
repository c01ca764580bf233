"""Training lists with roles: per source task the union of its candidates over all views.

The draws of a role are the same in every view, so the union holds each negative once; a loss picks the roles that it
may see.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from toolshift.models.features import Pairs
from toolshift.runs.seeds import keyed_hash, seed_of
from toolshift.views.corpus import Corpus, Rows
from toolshift.views.manifest import ROLES, Manifest
from toolshift.views.roles import packed_rows

POSITIVE, ORDINARY, SEMANTIC, CONTEXTUAL = range(len(ROLES))
Mask = NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class RoleBatch:
    """Some of the lists. index: (p,) positions of their candidates among all pairs. offsets: (b+1,) inside ``index``.
    role: (p,)."""

    index: Rows
    offsets: Rows
    role: NDArray[np.int8]

    @property
    def positive(self) -> Mask:
        """(p,) gold candidates."""
        return self.role == POSITIVE

    @property
    def owner(self) -> Rows:
        """(p,) list of each candidate."""
        return np.repeat(np.arange(self.offsets.size - 1), np.diff(self.offsets))

    def without(self, role: int) -> RoleBatch:
        """The lists without the candidates of a role."""
        keep = self.role != role
        lengths = np.bincount(self.owner[keep], minlength=self.offsets.size - 1)
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        return RoleBatch(index=self.index[keep], offsets=offsets, role=self.role[keep])

    def weights(self, *roles: int) -> NDArray[np.float64]:
        """(p,) 1 for negatives of the roles, 0 for all others."""
        return np.isin(self.role, roles).astype(np.float64)

    def balanced(self, *roles: int) -> NDArray[np.float64]:
        """(p,) weights of the negatives of a list that sum to the same for every role it has, and to its number of
        negatives over all of them."""
        owner, weights = self.owner, np.zeros(self.role.size)
        counts = np.stack([np.bincount(owner[self.role == r], minlength=self.offsets.size - 1) for r in roles])
        present, total = (counts > 0).sum(axis=0), counts.sum(axis=0)
        for role, count in zip(roles, counts, strict=True):
            mine = self.role == role
            of = owner[mine]
            weights[mine] = total[of] / (present[of] * count[of])
        return weights

    def against(self, role: int) -> tuple[Rows, Rows]:
        """All (positive, negative of the role) positions of the batch that share a list."""
        negatives = np.flatnonzero(self.role == role)
        positives = np.flatnonzero(self.positive)
        of_positive = self.owner[positives]
        starts = np.searchsorted(of_positive, np.arange(self.offsets.size))
        place, _ = packed_rows(starts, self.owner[negatives])
        return positives[place], np.repeat(negatives, np.diff(starts)[self.owner[negatives]])


@dataclass(frozen=True, kw_only=True)
class RoleLists:
    """l lists, N pairs. tasks: (l,) ascending task rows. offsets: (l+1,). pairs: N. role: (N,) codes of ``ROLES``."""

    tasks: Rows
    offsets: Rows
    pairs: Pairs
    role: NDArray[np.int8]
    task_hash: NDArray[np.uint64]

    @staticmethod
    def of(manifests: Mapping[str, Manifest], corpus: Corpus, *, max_tasks: int | None) -> RoleLists:
        """Unite the lists of all views; at most ``max_tasks`` tasks, those with the smallest id hash. A candidate that
        stands in lists under several roles has the hardest one: contextual, semantic, ordinary."""
        names = sorted(manifests)
        key = np.concatenate([corpus.pair_key(manifests[v].task_of, manifests[v].capability) for v in names])
        role = np.concatenate([manifests[v].role for v in names])
        order = np.lexsort((-role, key))
        first = np.append(True, np.diff(key[order]) != 0) if key.size else np.zeros(0, bool)
        key, role = key[order][first], role[order][first]
        task = key // corpus.n_capabilities
        kept = np.isin(task, _smallest(np.unique(task), corpus, max_tasks))
        key, role, task = key[kept], role[kept], task[kept]
        tasks, counts = np.unique(task, return_counts=True)
        return RoleLists(
            tasks=tasks,
            offsets=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
            pairs=Pairs(task=task, capability=key % corpus.n_capabilities),
            role=role,
            task_hash=corpus.task_hash[tasks],
        )

    @cached_property
    def whole(self) -> RoleBatch:
        """All lists as one batch."""
        return RoleBatch(index=np.arange(self.role.size), offsets=self.offsets, role=self.role)

    def epoch(self, number: int, *, seed: int, batch_tasks: int) -> Iterator[RoleBatch]:
        """Batches of one epoch in a keyed order."""
        order = np.argsort(keyed_hash(seed_of("tact", seed, number), self.task_hash, self.task_hash), kind="stable")
        for begin in range(0, order.size, batch_tasks):
            lists = order[begin : begin + batch_tasks]
            index, _ = packed_rows(self.offsets, lists)
            lengths = np.diff(self.offsets)[lists]
            offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
            yield RoleBatch(index=index, offsets=offsets, role=self.role[index])


def _smallest(tasks: Rows, corpus: Corpus, count: int | None) -> Rows:
    if count is None or tasks.size <= count:
        return tasks
    return tasks[np.argsort(corpus.task_hash[tasks], kind="stable")[:count]]

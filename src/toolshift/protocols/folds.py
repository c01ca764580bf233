"""Fold tables: the role of every task for every held-out target, as data.

A protocol says what is held out; what is then taken away from the sources is the same for every protocol: first what a
purge names, then duplicates across datasets, then what exceeds the cap.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from toolshift.protocols.leakage import Leakage
from toolshift.protocols.partition import Partition
from toolshift.protocols.purge import near_query, shares, shares_gold
from toolshift.runs.seeds import keyed_hash, seed_of
from toolshift.views.corpus import Corpus, Labels, Rows

Purge = Literal["none", "gold", "near"]
Dedup = Literal["none", "exact", "near"]
TASK_ROLES = ("train", "test", "purged_gold", "purged_near", "duplicate_task", "duplicate_tool", "capped", "unused")
"""duplicate_task, duplicate_tool: dropped by ``dedup``; capped: beyond the cap of its context; unused: of no side."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRules:
    """What is taken away from the sources of every target.

    purge: ``gold``: source tasks that need a capability that a target task needs; ``near`` also those that ask nearly
    what a target task asks. dedup: source tasks of another dataset that repeat a target task, or whose gold repeats a
    capability of the target's dataset (exact: equal words; near: also a cosine of ``near_cosine``). max_tasks: tasks
    per source context by keyed hash, None for all.
    """

    purge: Purge = "none"
    near_cosine: float = 0.95
    dedup: Dedup = "none"
    max_tasks: int | None = None
    seed: int = 0

    @property
    def cut(self) -> str:
        """What was taken away, as tables name it: the purge, and ``+dedup=...`` where it is used."""
        return self.purge if self.dedup == "none" else f"{self.purge}+dedup={self.dedup}"


class UndeclaredRole(ValueError):
    """A loader was asked for a role that the fold table does not have."""

    user_facing = True


@dataclass(frozen=True, kw_only=True)
class FoldTable:
    """Roles of n tasks for g targets.

    targets: (g,) names, sorted. contexts: (n,) rows of ``context_names``. role: (g, n) codes of ``TASK_ROLES``.
    """

    protocol: str
    rules: SourceRules
    targets: tuple[str, ...]
    context_names: tuple[str, ...]
    contexts: Rows
    role: NDArray[np.int8]

    def rows(self, target: str, *, role: str) -> Rows:
        """Task rows that have ``role`` for ``target``.

        Raises:
            UndeclaredRole: if the role is not one of ``TASK_ROLES`` or the target is not held out here.
        """
        if role not in TASK_ROLES:
            raise UndeclaredRole(f"role {role!r} is not declared; the fold table has {', '.join(TASK_ROLES)}")
        if target not in self.targets:
            raise UndeclaredRole(f"{target!r} is not a target of {self.protocol}; targets: {', '.join(self.targets)}")
        return np.flatnonzero(self.role[self.targets.index(target)] == TASK_ROLES.index(role))

    def held_out_contexts(self, target: str) -> tuple[str, ...]:
        """Contexts of the target's tasks: what no fit may have seen."""
        tested = self.contexts[self.rows(target, role="test")]
        return tuple(self.context_names[c] for c in np.unique(tested[tested >= 0]))

    def counts(self) -> Mapping[str, Mapping[str, int]]:
        """target -> role -> number of tasks."""
        return {
            target: {name: int((self.role[i] == code).sum()) for code, name in enumerate(TASK_ROLES)}
            for i, target in enumerate(self.targets)
        }

    def table(self, corpus: Corpus) -> pa.Table:
        """Long form: target, task_id, context (null for a task without one), role."""
        g, n = self.role.shape
        context = np.tile(self.contexts, g).astype(np.int32)
        return pa.table(
            {
                "target": pa.DictionaryArray.from_arrays(
                    pa.array(np.repeat(np.arange(g), n).astype(np.int32)), pa.array(list(self.targets), pa.string())
                ),
                "task_id": pa.DictionaryArray.from_arrays(
                    pa.array(np.tile(np.arange(n), g).astype(np.int32)), pa.array(list(corpus.task_ids), pa.string())
                ),
                "context": pa.DictionaryArray.from_arrays(
                    pa.array(context, mask=context < 0), pa.array(list(self.context_names), pa.string())
                ),
                "role": pa.DictionaryArray.from_arrays(pa.array(self.role.ravel()), pa.array(list(TASK_ROLES))),
            }
        )


def fold_table(
    partition: Partition,
    corpus: Corpus,
    labels: Labels,
    *,
    rules: SourceRules,
    task_vectors: NDArray[np.float32],
    capability_vectors: NDArray[np.float32],
) -> FoldTable:
    """Roles of all tasks for all targets. task_vectors: (n, d), capability_vectors: (m, d) unit rows, read by the rules
    that compare by cosine only."""
    role = np.zeros((len(partition.targets), corpus.n_tasks), np.int8)
    leaks = Leakage(corpus, task_vectors, capability_vectors, at_least=rules.near_cosine)
    for i in range(len(partition.targets)):
        held_out = partition.target_of == i
        target = np.flatnonzero(held_out)
        if rules.dedup != "none":
            found = leaks.of(target, level="near" if rules.dedup == "near" else "normalised")
            role[i, shares(labels, found.source_capabilities)] = TASK_ROLES.index("duplicate_tool")
            role[i, found.source_tasks] = TASK_ROLES.index("duplicate_task")
        if rules.purge == "near":
            near = near_query(corpus.task_texts, task_vectors, target=target, at_least=rules.near_cosine)
            role[i, near] = TASK_ROLES.index("purged_near")
        if rules.purge != "none":
            role[i, shares_gold(labels, target=target)] = TASK_ROLES.index("purged_gold")
        role[i, ~partition.may_train] = TASK_ROLES.index("unused")
        role[i, held_out] = TASK_ROLES.index("test")
        role[i, _beyond_cap(role[i] == 0, partition.contexts, corpus, rules=rules)] = TASK_ROLES.index("capped")
    return FoldTable(
        protocol=partition.protocol,
        rules=rules,
        targets=partition.targets,
        context_names=partition.context_names,
        contexts=partition.contexts,
        role=role,
    )


def _beyond_cap(train: NDArray[np.bool_], contexts: Rows, corpus: Corpus, *, rules: SourceRules) -> NDArray[np.bool_]:
    """(n,) source tasks that do not belong to the ``max_tasks`` smallest keyed hashes of their context; tasks without a
    context share one cap."""
    beyond = np.zeros(train.size, bool)
    if rules.max_tasks is None:
        return beyond
    rows = np.flatnonzero(train)
    hashes = keyed_hash(seed_of("source cap", rules.seed), corpus.task_hash[rows], corpus.task_hash[rows])
    order = np.lexsort((hashes, contexts[rows]))
    ordered = contexts[rows][order]
    first = np.flatnonzero(np.diff(ordered, prepend=ordered[:1] - 1))
    place = np.arange(ordered.size) - np.repeat(first, np.diff(np.append(first, ordered.size)))
    beyond[rows[order[place >= rules.max_tasks]]] = True
    return beyond

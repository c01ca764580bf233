"""SkillGraph as a row of the ranking tables [R]: the paper ranks no given candidates, it chooses a set by a walk.

What carries over is Stage 1's score of the next tool, alpha * w_loc(cur, t) + (1 - alpha) * cos(q, t)
(skillgraph.md section 5). A list has no current tool, and a score may not depend on the list, so the walk's current
tool is replaced by the tools that the query itself proposes: the ``pool`` capabilities of the task's library nearest
to it, each weighted by its cosine. Candidate tasks of the ranking tables have no call order; transitions are then
joint use, which both directions share. Strength alpha and pool size are chosen on the sources.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from toolshift.models.base import BadParameter, Limits, Scorer, Scores, Source
from toolshift.models.features import FeatureBank, Pairs
from toolshift.text.lexical import dense_top

MOST = 50
"""The largest pool."""
REVERSED = 0.5
"""What a transition that is known in the other direction alone counts (skillgraph.md section 5 [C])."""


@dataclass(frozen=True, kw_only=True)
class SkillGraph:
    """alpha: share of the graph in the score, 0 to 1; pool: capabilities that the query proposes.

    Raises:
        BadParameter: if one is out of range.
    """

    fit_per_seed: ClassVar[bool] = False

    alpha: float = 0.3
    pool: int = 10

    def __post_init__(self) -> None:
        if not 0 <= self.alpha <= 1 or not 1 <= self.pool <= MOST:
            raise BadParameter(f"skillgraph: alpha={self.alpha} in 0 to 1, pool={self.pool} in 1 to {MOST}")

    def epochs(self, source: Source, *, bank: FeatureBank, seed: int, limits: Limits) -> Iterator[Scorer]:
        """Counting is all there is to fit, so one epoch; every source task counts, whatever ``limits.max_tasks`` is."""
        del bank, seed, limits
        transition = source.remember("skillgraph transitions", lambda: joint_use(source.fold.labels.gold))
        yield FittedSkillGraph(
            alpha=self.alpha, pool=self.pool, transition=transition, contexts_seen=tuple(source.contexts)
        )


@dataclass(frozen=True, kw_only=True)
class FittedSkillGraph:
    """transition: (m, m) CSR, w(a, b) over capabilities."""

    alpha: float
    pool: int
    transition: sparse.csr_matrix
    contexts_seen: tuple[str, ...]

    @property
    def record(self) -> Mapping[str, Any]:
        """Strength, pool and size of the graph."""
        return {"alpha": self.alpha, "pool": self.pool, "edges": int(self.transition.nnz)}

    def state(self) -> Mapping[str, NDArray[Any]]:
        """The graph as CSR arrays, and the two parameters."""
        matrix = self.transition
        return {
            "data": matrix.data,
            "indices": matrix.indices.astype(np.int64),
            "indptr": matrix.indptr.astype(np.int64),
            "parameters": np.array([self.alpha, self.pool], np.float64),
        }

    def score(self, pairs: Pairs, *, bank: FeatureBank, seed: int) -> Scores:
        """(p,) (1 - alpha) * cosine + alpha * the best weighted link from a proposed capability."""
        del seed
        cosine = bank.cosine(pairs)
        if self.alpha == 0 or not self.transition.nnz:
            return cosine
        return (1 - self.alpha) * cosine + self.alpha * self.link(pairs, bank=bank)

    def link(self, pairs: Pairs, *, bank: FeatureBank) -> Scores:
        """(p,) max over the proposed a != t of cos(q, a) * w_loc(a, t), at least 0."""
        proposed = bank.shared(proposals)[:, : self.pool]
        forward, backward = self.transition, self.transition.T.tocsr()
        best = np.zeros(len(pairs), np.float64)
        for place in range(proposed.shape[1]):
            source = proposed[pairs.task, place]
            other = source != pairs.capability
            known = np.asarray(forward[source, pairs.capability]).ravel()
            known = np.where(known > 0, known, REVERSED * np.asarray(backward[source, pairs.capability]).ravel())
            at = np.flatnonzero(other & (known > 0))
            if at.size:
                weight = self._similarity(pairs.task[at], source[at], bank=bank)
                best[at] = np.maximum(best[at], np.maximum(weight, 0.0) * known[at])
        return best

    @staticmethod
    def _similarity(task: NDArray[np.int64], capability: NDArray[np.int64], *, bank: FeatureBank) -> Scores:
        """(k,) cosines of pairs in any order, repeats included; `bank.cosine` keeps each pair once."""
        keys, back = np.unique(bank.corpus.pair_key(task, capability), return_inverse=True)
        m = bank.corpus.n_capabilities
        return bank.cosine(Pairs(task=keys // m, capability=keys % m))[back]


def joint_use(gold: sparse.csr_matrix) -> sparse.csr_matrix:
    """(m, m) share of the tasks using a second tool next to a that use b; no tool follows itself.

    gold: (n, m) boolean, empty outside the tasks that may be counted.
    """
    used = gold.astype(np.float64)
    counts = sparse.csr_matrix(used.T @ used)
    counts.setdiag(0)
    counts.eliminate_zeros()
    total = np.asarray(counts.sum(axis=1)).ravel()
    scale = sparse.diags_array(np.divide(1.0, total, out=np.zeros_like(total), where=total > 0))
    shares = sparse.csr_matrix(scale @ counts)
    shares.sort_indices()
    return shares


def proposals(bank: FeatureBank) -> NDArray[np.int64]:
    """(n, MOST or fewer) capability rows of each task's own library, nearest first; a smaller library repeats its
    last one."""
    corpus = bank.corpus
    width = min(MOST, max(part.n_capabilities for part in corpus.parts))
    found = np.zeros((corpus.n_tasks, width), np.int64)
    for part in corpus.parts:
        k = min(width, part.n_capabilities)
        top, _ = dense_top(bank.task_vectors[part.tasks], bank.capability_vectors[part.capabilities], k=k)
        found[part.tasks] = np.pad(top + part.capabilities.start, ((0, 0), (0, width - k)), mode="edge")
    return found

"""Choosing the options of GS-Hybrid on training queries (skillgraph.md section 5)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

from numpy.typing import ArrayLike

from toolshift.measures.sequences import sequence_measures
from toolshift.models.skillgraph.asking import RetrievalOptions, asked
from toolshift.models.skillgraph.graph import TransitionGraph
from toolshift.models.skillgraph.planner import candidates_of, planned, pool_size
from toolshift.models.skillgraph.sets import Vectors


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrievalTrial:
    """One setting on the tuning queries. objective = set_f1 + 0.5 lcs_ratio + 0.3 ordered_precision, all means."""

    c: int
    alpha: float
    gamma: float
    set_f1: float
    lcs_ratio: float
    ordered_precision: float

    @property
    def objective(self) -> float:
        """What the authors' code maximises."""
        return self.set_f1 + 0.5 * self.lcs_ratio + 0.3 * self.ordered_precision


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrievalTuning:
    """The options with the best setting, and all trials in grid order; of equal objectives the first wins."""

    options: RetrievalOptions
    trials: tuple[RetrievalTrial, ...]


def tune_retrieval(
    *,
    ids: Sequence[str],
    queries: Vectors,
    gold: ArrayLike,
    tools: Vectors,
    graph: TransitionGraph,
    k: ArrayLike,
    options: RetrievalOptions | None = None,
    c: Sequence[int] = (2, 3, 4),
    alpha: Sequence[float] = (0.3, 0.4, 0.5, 0.6, 0.7),
    gamma: Sequence[float] = (0.0, 0.05, 0.1, 0.15, 0.2),
) -> RetrievalTuning:
    """Choose c, alpha and gamma of GS-Hybrid on training queries, by the planner's own sequence (section 5).

    ids (q,), queries (q, d), gold (q, l) filled with -1 and k (q,) are of the tuning queries, at most 500 in the paper
    (`sample_rows`); they must be training trajectories of the graph.

    Raises:
        ValueError: if an id is not among the contributors of the graph, there is no query or a grid is empty.
    """
    check_training(ids, graph=graph)
    if not len(ids) or not (c and alpha and gamma):
        raise ValueError("tuning needs at least one training query and one value of c, alpha and gamma each")
    ask = asked(queries, tools, graph=graph, k=k, options=options or RetrievalOptions())
    ask = replace(ask, near=ask.nearest(int(pool_size(ask.planned_k, c=max(c)).max())))
    trials, settings = [], []
    for pool in c:
        ask = replace(ask, options=replace(ask.options, c=pool))
        candidates = candidates_of(ask)
        for share, bonus in product(alpha, gamma):
            settings.append(replace(ask.options, alpha=share, gamma=bonus))
            found = sequence_measures(planned(candidates, replace(ask, options=settings[-1])).items, gold)
            means = {n: float(getattr(found, n).mean()) for n in ("set_f1", "lcs_ratio", "ordered_precision")}
            trials.append(RetrievalTrial(c=pool, alpha=share, gamma=bonus, **means))
    best = max(range(len(trials)), key=lambda i: (trials[i].objective, -i))
    return RetrievalTuning(options=settings[best], trials=tuple(trials))


def check_training(ids: Sequence[str], *, graph: TransitionGraph) -> None:
    """Check that records to be learned from are training records of the graph.

    Raises:
        ValueError: if one is not; the message names it.
    """
    outside = sorted(set(ids) - set(graph.contributors))
    if outside:
        raise ValueError(
            f"{len(outside)} of {len(ids)} tuning queries are no training trajectories of the graph, "
            f"the first is {outside[0]!r}; tune on the training part of the split only"
        )

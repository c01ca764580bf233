"""Ranking measures with binary relevance (spec/metrics_and_statistics.md section 1).

Each function gets the ranks of the relevant candidates and the cut-off, and returns the value of each list, (n,).
Values are expectations under a random order of tied candidates where the ranks hold tie groups.
"""

from __future__ import annotations

import numpy as np

from toolshift.measures.ranks import Floats, Ints, RelevantRanks
from toolshift.measures.registry import measure


@measure("MRR", cutoff="optional", aliases=("RR",))
def reciprocal_rank(ranks: RelevantRanks, k: int | None) -> Floats:
    """1 / rank of the first relevant candidate; 0 when it stands beyond k."""
    return ranks.first_hit(_reciprocal, cutoff=k)


@measure("HR", cutoff="required", aliases=("success", "Success"))
def hit_rate(ranks: RelevantRanks, k: int | None) -> Floats:
    """1 if some relevant candidate stands within rank k (success@k, not recall)."""
    return np.minimum(ranks.first_hit(_one, cutoff=_given(k)), 1.0)


@measure("NDCG", cutoff="required")
def normalised_discounted_gain(ranks: RelevantRanks, k: int | None) -> Floats:
    """DCG@k / ideal DCG@k with discount 1/log2(rank + 1); the ideal holds min(k, n_gold) relevant candidates."""
    discount = 1.0 / np.log2(np.arange(2, _given(k) + 2))
    ideal = np.cumsum(discount)[np.minimum(ranks.n_gold, _given(k)) - 1]
    return ranks.total(ranks.mean_weight(discount)) / ideal


@measure("P", cutoff="required")
def precision(ranks: RelevantRanks, k: int | None) -> Floats:
    """Relevant candidates within rank k, divided by k, also for lists shorter than k."""
    return ranks.total(ranks.mean_weight(np.ones(_given(k)))) / _given(k)


@measure("R", cutoff="required")
def recall(ranks: RelevantRanks, k: int | None) -> Floats:
    """Share of the relevant candidates that stand within rank k."""
    return ranks.total(ranks.mean_weight(np.ones(_given(k)))) / ranks.n_gold


@measure("MAP", cutoff="none", aliases=("AP",))
def average_precision(ranks: RelevantRanks, k: int | None) -> Floats:
    """Mean over the relevant candidates of the precision at their ranks.

    A relevant candidate at rank p of its group has, in expectation, (r-1)(p-a)/(g-1) relevant ones before it inside
    the group; the mean of (before + 1 + that) / p over p = a..a+g-1 has a closed form with harmonic numbers.
    """
    harmonic = np.concatenate([[0.0], np.cumsum(1.0 / np.arange(1, int(ranks.n_candidates.max()) + 1))])
    span = harmonic[ranks.start + ranks.size - 1] - harmonic[ranks.start - 1]
    inside = (ranks.relevant - 1) / np.maximum(ranks.size - 1, 1)
    expected = ((ranks.before() + 1) * span + inside * (ranks.size - ranks.start * span)) / ranks.size
    return ranks.total(expected) / ranks.n_gold


def _reciprocal(rank: Ints) -> Floats:
    return 1.0 / rank


def _one(rank: Ints) -> Floats:
    return np.ones(rank.shape)


def _given(k: int | None) -> int:
    if k is None:
        raise ValueError("this measure needs a cut-off")
    return k

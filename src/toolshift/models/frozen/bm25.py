"""BM25 over public capability texts with the statistics of the whole library (baselines.md section 1)."""

from __future__ import annotations

from dataclasses import dataclass

from toolshift.models.base import FrozenRanker, Scores
from toolshift.models.features import FeatureBank, Pairs


@dataclass(frozen=True, kw_only=True)
class Bm25Ranker(FrozenRanker):
    """Okapi BM25 with the non-negative idf ln(1 + (N - n + .5)/(n + .5))."""

    k1: float = 1.5
    b: float = 0.75

    def score(self, pairs: Pairs, *, bank: FeatureBank, seed: int) -> Scores:
        """(p,) BM25 scores, 0 without a common word."""
        return bank.bm25(pairs, k1=self.k1, b=self.b)

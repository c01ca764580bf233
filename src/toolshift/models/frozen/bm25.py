"""BM25 over public capability texts with the statistics of the whole library (baselines.md section 1)."""

from __future__ import annotations

from dataclasses import dataclass

from toolshift.models.base import BadParameter, FrozenRanker, Scores
from toolshift.models.features import FeatureBank, Pairs


@dataclass(frozen=True, kw_only=True)
class Bm25Ranker(FrozenRanker):
    """Okapi BM25 with the non-negative idf ln(1 + (N - n + .5)/(n + .5))."""

    k1: float = 1.5
    b: float = 0.75

    def __post_init__(self) -> None:
        if self.k1 < 0 or not 0 <= self.b <= 1:
            raise BadParameter(f"bm25 needs k1 of at least 0 and b between 0 and 1, got k1={self.k1}, b={self.b}")

    def score(self, pairs: Pairs, *, bank: FeatureBank, seed: int) -> Scores:
        """(p,) BM25 scores, 0 without a common word."""
        return bank.bm25(pairs, k1=self.k1, b=self.b)

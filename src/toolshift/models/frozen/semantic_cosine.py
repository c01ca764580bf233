"""Semantic Cosine: the frozen anchor <x_t, x_c> on the public texts (baselines.md section 1 [T])."""

from __future__ import annotations

from dataclasses import dataclass

from toolshift.models.base import FrozenRanker, Scores
from toolshift.models.features import FeatureBank, Pairs


@dataclass(frozen=True, kw_only=True)
class SemanticCosine(FrozenRanker):
    """Cosine of the public task and capability texts."""

    def score(self, pairs: Pairs, *, bank: FeatureBank, seed: int) -> Scores:
        """(p,) cosines."""
        return bank.cosine(pairs)

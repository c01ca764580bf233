"""Semantic Cosine: the frozen anchor <x_t, x_c> on the public texts (baselines.md section 1 [T])."""

from __future__ import annotations

from dataclasses import dataclass

from toolshift.models.base import FrozenRanker, Scores
from toolshift.models.features import FeatureBank, Pairs, known_space


@dataclass(frozen=True, kw_only=True)
class SemanticCosine(FrozenRanker):
    """Cosine of the public task and capability texts, in ``raw`` or ``aligned`` coordinates (tact.md section 6)."""

    space: str = "raw"

    def __post_init__(self) -> None:
        known_space(self.space, model="semantic_cosine")

    def score(self, pairs: Pairs, *, bank: FeatureBank, seed: int) -> Scores:
        """(p,) cosines."""
        return bank.cosine(pairs, space=self.space)

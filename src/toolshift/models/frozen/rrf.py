"""Reciprocal rank fusion (Cormack 2009): sum over lists of 1/(k + rank), a list without the candidate adds 0.

Ranks are taken over the whole library, not over the candidate list: the score of a pair is then the same in every
view, as the one scorer interface asks (tact.md section 1).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from toolshift.models.base import BadParameter, FrozenRanker, Scores
from toolshift.models.features import LIBRARY_RANKINGS, FeatureBank, Pairs


@dataclass(frozen=True, kw_only=True)
class ReciprocalRankFusion(FrozenRanker):
    """Fusion of the dense and the lexical list of the library."""

    k: float = 60.0
    over: Sequence[str] = ("semantic_cosine", "bm25")

    def __post_init__(self) -> None:
        unknown = sorted(set(self.over) - set(LIBRARY_RANKINGS))
        if unknown or not self.over or self.k < 0:
            raise BadParameter(
                f"rrf fuses some of {', '.join(LIBRARY_RANKINGS)} with k of at least 0, "
                f"got over={list(self.over)}, k={self.k}"
            )

    def score(self, pairs: Pairs, *, bank: FeatureBank, seed: int) -> Scores:
        """(p,) fused reciprocal ranks."""
        return sum(1.0 / (self.k + bank.library_rank(pairs, by=name)) for name in self.over)  # type: ignore[return-value]

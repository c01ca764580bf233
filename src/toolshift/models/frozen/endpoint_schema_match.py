"""Endpoint Schema Match: best endpoint by operation, argument-name and argument-type evidence (baselines.md [T, R])."""

from __future__ import annotations

from dataclasses import dataclass

from toolshift.models.base import FrozenRanker, Scores
from toolshift.models.features import FeatureBank, Pairs


@dataclass(frozen=True, kw_only=True)
class EndpointSchemaMatch(FrozenRanker):
    """Training-free; no labels and no context ids. The aggregation inside an endpoint is our reconstruction."""

    pool: int = 4
    operation: bool = True

    def score(self, pairs: Pairs, *, bank: FeatureBank, seed: int) -> Scores:
        """(p,) best evidence over the operation-retrieved pool."""
        return bank.schema_match(pairs, pool=self.pool, operation=self.operation)

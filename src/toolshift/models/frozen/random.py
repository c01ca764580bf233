"""Random: a keyed hash of (seed, task, capability), so it does not depend on list order (baselines.md section 1)."""

from __future__ import annotations

from dataclasses import dataclass

from toolshift.models.base import FrozenRanker, Scores
from toolshift.models.features import FeatureBank, Pairs
from toolshift.runs.seeds import keyed_hash, seed_of, uniform


@dataclass(frozen=True, kw_only=True)
class RandomRanker(FrozenRanker):
    """Uniform pseudo-random scores; the closed-form expectation is printed beside it."""

    def score(self, pairs: Pairs, *, bank: FeatureBank, seed: int) -> Scores:
        """(p,) uniform numbers in [0, 1)."""
        corpus = bank.corpus
        salt = seed_of("random", seed)
        return uniform(keyed_hash(salt, corpus.task_hash[pairs.task], corpus.capability_hash[pairs.capability]))

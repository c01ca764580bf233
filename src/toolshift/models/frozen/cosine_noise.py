"""Placebo row: cosine plus keyed noise, its scale chosen on source data (validity.md section 2).

Where the negatives are those that cosine likes best, moving away from cosine helps even at random. This row shows by
how much; a method has to exceed it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from toolshift.models.base import BadParameter, Scorer, Scores, Source, SourceMeasure
from toolshift.models.features import FeatureBank, Pairs
from toolshift.runs.seeds import keyed_hash, normal, seed_of


@dataclass(frozen=True, kw_only=True)
class CosineNoise:
    """s = cos + scale * N(0, 1); the scale with the best source value, ties to the smaller one.

    max_source_tasks: source tasks per view that the choice looks at, by hash; the choice is made once per target.
    """

    scales: Sequence[float] = (0.0, 0.05, 0.1, 0.2)
    max_source_tasks: int | None = 2000
    fit_per_seed: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not self.scales or min(self.scales) < 0:
            raise BadParameter(f"cosine_noise needs scales of at least 0, got {list(self.scales)}")

    def fit(self, source: Source, *, bank: FeatureBank, measure: SourceMeasure, seed: int) -> Scorer:
        """Try every scale on the source lists of all views."""

        def value(scale: float) -> float:
            def score(pairs: Pairs) -> Scores:
                return noisy_cosine(pairs, bank=bank, scale=scale, seed=seed)

            return measure(source, score, max_tasks=self.max_source_tasks)

        values = {scale: value(scale) for scale in sorted(self.scales)}
        best = max(values, key=lambda scale: (round(values[scale], 12), -scale))
        return FittedNoise(scale=best, values=values, contexts_seen=source.contexts)


@dataclass(frozen=True, kw_only=True)
class FittedNoise:
    """The placebo with its chosen scale."""

    scale: float
    values: Mapping[float, float]
    contexts_seen: tuple[str, ...]

    @property
    def record(self) -> Mapping[str, Any]:
        """Grid, source values and choice."""
        return {"scale": self.scale, "source_value": {str(k): v for k, v in self.values.items()}}

    def score(self, pairs: Pairs, *, bank: FeatureBank, seed: int) -> Scores:
        """(p,) noisy cosines."""
        return noisy_cosine(pairs, bank=bank, scale=self.scale, seed=seed)


def noisy_cosine(pairs: Pairs, *, bank: FeatureBank, scale: float, seed: int) -> Scores:
    """(p,) cosine plus ``scale`` times a standard normal keyed by (seed, task, capability)."""
    cosine = bank.cosine(pairs)
    if scale == 0.0:
        return cosine
    corpus = bank.corpus
    salt = seed_of("cosine_noise", seed)
    hashes = keyed_hash(salt, corpus.task_hash[pairs.task], corpus.capability_hash[pairs.capability])
    return cosine + scale * normal(hashes)

"""The best linear blend of cheap signals: what a structured method must beat for its structure to count.

Signals (validity.md section 6): cosine, BM25, schema match, best single endpoint cosine, ln(1 + source records). The
matched F joins when TACT lands, and the endpoint cosine is over the whole task until requirements exist.
Weights are a conditional logit on source lists; the L2 strength is chosen by nested selection.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from toolshift.models.base import Limits, Scorer, Scores, Source
from toolshift.models.features import FeatureBank, Pairs
from toolshift.models.transfer.conditional_logit import fit_conditional_logit
from toolshift.training.lists import Batch, TrainingLists

SIGNALS = ("cosine", "bm25", "schema_match", "best_endpoint_cosine", "log_source_records")


@dataclass(frozen=True, kw_only=True)
class Blend:
    """Linear in ``SIGNALS``; ``l2`` is the strength of the penalty."""

    l2: float = 0.01

    def epochs(self, source: Source, *, bank: FeatureBank, seed: int, limits: Limits) -> Iterator[Scorer]:
        """One closed-form fit."""
        for (fitted,) in Blend.together([self], source, bank=bank, seed=seed, limits=limits):
            yield fitted

    @staticmethod
    def alike(models: Sequence[Blend]) -> bool:
        """All of them have the same signals."""
        del models
        return True

    @staticmethod
    def together(
        models: Sequence[Blend], source: Source, *, bank: FeatureBank, seed: int, limits: Limits
    ) -> Iterator[tuple[Scorer, ...]]:
        """One closed-form fit of each model on the same signals, which are computed once."""
        del seed
        lists = TrainingLists.of(source.manifests, bank.corpus, max_tasks=limits.max_tasks).everything()
        task = lists.tasks[lists.owner]
        values = signals(Pairs(task=task, capability=lists.capability), bank=bank)
        others = source.fold.source_records[lists.capability] - own_records(source, lists)
        values = np.column_stack([values, np.log1p(others)])
        mean, scale = values.mean(axis=0), values.std(axis=0) + 1e-9
        values = (values - mean) / scale
        weights = [fit_conditional_logit(values, lists, l2=model.l2) / scale for model in models]
        records = source.fold.source_records
        yield tuple(FittedBlend(weights=w, source_records=records, contexts_seen=source.contexts) for w in weights)


@dataclass(frozen=True, kw_only=True)
class FittedBlend:
    """weights: (len(SIGNALS),) on raw signals. source_records: (m,) gold records of the sources."""

    weights: NDArray[np.float64]
    source_records: NDArray[np.int64]
    contexts_seen: tuple[str, ...]

    @property
    def record(self) -> Mapping[str, Any]:
        """Weights by signal."""
        return {"weights": dict(zip(SIGNALS, self.weights.tolist(), strict=True))}

    def state(self) -> Mapping[str, NDArray[Any]]:
        """Weights and source records."""
        return {"weights": self.weights, "source_records": self.source_records}

    def score(self, pairs: Pairs, *, bank: FeatureBank, seed: int) -> Scores:
        """(p,) weighted sum of the signals."""
        del seed
        popularity = np.log1p(self.source_records[pairs.capability])
        return np.column_stack([signals(pairs, bank=bank), popularity]) @ self.weights


def own_records(source: Source, lists: Batch) -> NDArray[np.int64]:
    """(p,) gold records of a candidate in the context of the list's task. They must not count as its evidence: at test
    time no target record does. A task without a context is a context of its own."""
    context = source.context_of[lists.tasks[lists.owner]]
    counted = source.fold.gold_by_domain[context, lists.capability]
    return np.where(context >= 0, counted, lists.positive)


def signals(pairs: Pairs, *, bank: FeatureBank) -> NDArray[np.float64]:
    """(p, 4) the label-free signals, in the order of ``SIGNALS``."""
    return np.column_stack(
        [
            bank.cosine(pairs),
            bank.bm25(pairs, k1=1.5, b=0.75),
            bank.schema_match(pairs, pool=4, operation=True),
            bank.best_endpoint_cosine(pairs),
        ]
    )

"""The best linear blend of cheap signals: what a structured method must beat for its structure to count.

Signals (validity.md section 6): cosine, BM25, schema match, TACT's matched F as it is before any training, best single
cosine of a requirement and an endpoint, ln(1 + source records); `best_endpoint_cosine` compares endpoints with the
whole task instead.
Weights are a conditional logit on source lists; the L2 strength is chosen by nested selection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from toolshift.models.base import BadParameter, Limits, Scorer, Scores, SideBySide, Source
from toolshift.models.features import FeatureBank, Pairs, known_space
from toolshift.models.tact.signals import best_requirement_endpoint_cosine, untrained_match
from toolshift.models.transfer.conditional_logit import fit_conditional_logit
from toolshift.training.lists import Batch, TrainingLists

SIGNALS = (
    "cosine",
    "bm25",
    "schema_match",
    "matched_f",
    "best_requirement_endpoint_cosine",
    "best_endpoint_cosine",
    "log_source_records",
)
POPULARITY = "log_source_records"


@dataclass(frozen=True, kw_only=True)
class Blend(SideBySide):
    """Linear in ``signals``, some of ``SIGNALS``; ``l2`` is the strength of the penalty. space: coordinates of the
    signal ``cosine``; endpoints are compared in raw ones.

    Raises:
        BadParameter: for an unknown or repeated signal, or none.
    """

    l2: float = 0.01
    signals: Sequence[str] = SIGNALS
    space: str = "raw"

    def __post_init__(self) -> None:
        known_space(self.space, model="blend")
        if not self.signals or not set(self.signals) <= set(SIGNALS) or len(set(self.signals)) < len(self.signals):
            raise BadParameter(f"blend: signals={list(self.signals)}; expected some of {', '.join(SIGNALS)}")

    @staticmethod
    def alike(models: Sequence[Blend]) -> bool:
        """Whether the models have the same signals in the same coordinates."""
        return len({(tuple(model.signals), model.space) for model in models}) == 1

    @staticmethod
    def together(
        models: Sequence[Blend], source: Source, *, bank: FeatureBank, seed: int, limits: Limits
    ) -> Iterator[tuple[Scorer, ...]]:
        """One closed-form fit of each model on the same signals, which are computed once."""
        del seed
        lists = TrainingLists.of(source.manifests, bank.corpus, max_tasks=limits.max_tasks).everything()
        pairs = Pairs(task=lists.tasks[lists.owner], capability=lists.capability)
        others = source.fold.source_records[lists.capability] - own_records(source, lists)
        names, space = tuple(models[0].signals), models[0].space
        values = signals(pairs, names, bank=bank, records=others, space=space)
        mean, scale = values.mean(axis=0), values.std(axis=0) + 1e-9
        values = (values - mean) / scale
        weights = [fit_conditional_logit(values, lists, l2=model.l2) / scale for model in models]
        records = source.fold.source_records
        yield tuple(
            FittedBlend(signals=names, space=space, weights=w, source_records=records, contexts_seen=source.contexts)
            for w in weights
        )


@dataclass(frozen=True, kw_only=True)
class FittedBlend:
    """weights: (len(signals),) on raw signals. source_records: (m,) gold records of the sources."""

    signals: tuple[str, ...]
    space: str
    weights: NDArray[np.float64]
    source_records: NDArray[np.int64]
    contexts_seen: tuple[str, ...]

    @property
    def record(self) -> Mapping[str, Any]:
        """Weights by signal."""
        return {"weights": dict(zip(self.signals, self.weights.tolist(), strict=True))}

    def state(self) -> Mapping[str, NDArray[Any]]:
        """Weights and source records."""
        return {"weights": self.weights, "source_records": self.source_records}

    def score(self, pairs: Pairs, *, bank: FeatureBank, seed: int) -> Scores:
        """(p,) weighted sum of the signals."""
        del seed
        records = self.source_records[pairs.capability]
        return signals(pairs, self.signals, bank=bank, records=records, space=self.space) @ self.weights


def own_records(source: Source, lists: Batch) -> NDArray[np.int64]:
    """(p,) gold records of a candidate in the context of the list's task. They must not count as its evidence: at test
    time no target record does. A task without a context is a context of its own."""
    context = source.context_of[lists.tasks[lists.owner]]
    counted = source.gold_by_context[context, lists.capability]
    return np.where(context >= 0, counted, lists.positive)


def signals(
    pairs: Pairs, names: Sequence[str], *, bank: FeatureBank, records: NDArray[np.int64], space: str = "raw"
) -> NDArray[np.float64]:
    """(p, len(names)) values of the named signals. records: (p,) source records that count for each pair."""
    compute: Mapping[str, Callable[[], NDArray[np.float64]]] = {
        "cosine": lambda: bank.cosine(pairs, space=space),
        "bm25": lambda: bank.bm25(pairs, k1=1.5, b=0.75),
        "schema_match": lambda: bank.schema_match(pairs, pool=4, operation=True),
        "best_endpoint_cosine": lambda: bank.best_endpoint_cosine(pairs),
        "matched_f": lambda: untrained_match(pairs, bank=bank),
        "best_requirement_endpoint_cosine": lambda: best_requirement_endpoint_cosine(pairs, bank=bank),
        POPULARITY: lambda: np.log1p(records),
    }
    return np.column_stack([compute[name]() for name in names])

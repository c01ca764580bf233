"""The one ranking interface. A scorer sees pairs of rows and label-free features, never a view, a role or a label."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from toolshift.models.features import FeatureBank, Pairs
from toolshift.views.manifest import Manifest
from toolshift.views.roles import Fold

Scores = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Source:
    """Everything a model may learn from for one target: the fold of its source tasks and the lists built from it.

    contexts: names of the source contexts. context_of: (n,) context row of every task of the corpus, -1 outside.
    """

    target: str
    fold: Fold
    contexts: tuple[str, ...]
    context_of: NDArray[np.int64]
    build: Callable[[Fold], Mapping[str, Manifest]]

    @cached_property
    def manifests(self) -> Mapping[str, Manifest]:
        """Training lists of every view, built from this fold's own records when first asked for."""
        return self.build(self.fold)


class SourceMeasure(Protocol):
    """Values a scorer on the source lists the way selection does."""

    def __call__(self, source: Source, score: Callable[[Pairs], Scores], *, max_tasks: int | None = None) -> float:
        """Higher is better; at most ``max_tasks`` source tasks per view are looked at."""
        ...


class Scorer(Protocol):
    """A fitted model."""

    @property
    def contexts_seen(self) -> tuple[str, ...]:
        """Names of all contexts whose labels any fitted part has seen."""
        ...

    @property
    def record(self) -> Mapping[str, Any]:
        """What was chosen on the sources, for the selection record."""
        ...

    def score(self, pairs: Pairs, *, bank: FeatureBank, seed: int) -> Scores:
        """(p,) one real score per pair, higher is better; pointwise, so equal in every view."""
        ...


class Ranker(Protocol):
    """A model as configured.

    needs_source: whether ``fit`` reads the sources. fit_per_seed: whether the fit itself depends on the seed; if not,
    one fit serves all seeds.
    """

    needs_source: ClassVar[bool]
    fit_per_seed: ClassVar[bool]

    def fit(self, source: Source, *, bank: FeatureBank, measure: SourceMeasure, seed: int) -> Scorer:
        """Fit on the sources; ``measure`` values scores of the source lists the way selection does."""
        ...


@dataclass(frozen=True, kw_only=True)
class FrozenRanker:
    """Base of rows without any fitted part: ``fit`` returns the row itself and nothing was seen."""

    needs_source: ClassVar[bool] = False
    fit_per_seed: ClassVar[bool] = False

    def fit(self, source: Source, *, bank: FeatureBank, measure: SourceMeasure, seed: int) -> Scorer:
        """Nothing to fit."""
        del source, bank, measure, seed
        return self

    @property
    def contexts_seen(self) -> tuple[str, ...]:
        """No label was read."""
        return ()

    @property
    def record(self) -> Mapping[str, Any]:
        """Nothing was chosen."""
        return {}

    def score(self, pairs: Pairs, *, bank: FeatureBank, seed: int) -> Scores:
        """(p,) scores; every frozen row defines its own."""
        raise NotImplementedError

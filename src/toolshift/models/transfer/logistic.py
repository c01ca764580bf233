"""Logistic Ranker: pointwise logistic regression on compact features of the two vectors (baselines.md section 2).

[T] names cosine, embedding distance, element-wise interactions and norms. [R] the features below. The norms before
normalisation that the spec lists are left out: cached vectors have unit length, so they would be constant.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from toolshift.models.base import Limits, Scorer, Scores, SideBySide, Source
from toolshift.models.features import FeatureBank, Pairs, known_space
from toolshift.training.lists import TrainingLists

COMPACT = ("cosine", "distance", "mean product", "largest product", "deviation of products")
_CHUNK = 65_536


@dataclass(frozen=True, kw_only=True)
class Logistic(SideBySide):
    """L2-regularised with inverse strength ``C``; components: PCA axes of x_t * x_c."""

    C: float = 1.0
    components: int = 8
    space: str = "raw"

    def __post_init__(self) -> None:
        known_space(self.space, model="logistic")

    @staticmethod
    def alike(models: Sequence[Logistic]) -> bool:
        """Whether the models have their features in common."""
        return len({(model.components, model.space) for model in models}) == 1

    @staticmethod
    def together(
        models: Sequence[Logistic], source: Source, *, bank: FeatureBank, seed: int, limits: Limits
    ) -> Iterator[tuple[Scorer, ...]]:
        """One fit of each model on the same features, which are computed once."""
        from sklearn.linear_model import LogisticRegression

        lists = TrainingLists.of(source.manifests, bank.corpus, max_tasks=limits.max_tasks).everything()
        task = lists.tasks[lists.owner]
        keys, first = np.unique(bank.corpus.pair_key(task, lists.capability), return_index=True)
        pairs = Pairs(task=keys // bank.corpus.n_capabilities, capability=keys % bank.corpus.n_capabilities)
        space = models[0].space
        axes = principal_axes(pairs, bank=bank, count=models[0].components, space=space)
        x, y = compact_features(pairs, bank=bank, axes=axes, space=space), lists.positive[first]
        mean, scale = x.mean(axis=0), x.std(axis=0) + 1e-9
        x = (x - mean) / scale
        fits = [LogisticRegression(C=model.C, max_iter=2000).fit(x, y) for model in models]
        weights = [np.asarray(fit.coef_[0] / scale, np.float64) for fit in fits]
        yield tuple(FittedLogistic(weights=w, axes=axes, space=space, contexts_seen=source.contexts) for w in weights)


@dataclass(frozen=True, kw_only=True)
class FittedLogistic:
    """weights: (5 + k,) on raw features; axes: (k, d)."""

    weights: NDArray[np.float64]
    axes: NDArray[np.float64]
    space: str
    contexts_seen: tuple[str, ...]

    @property
    def record(self) -> Mapping[str, Any]:
        """Weights of the named features and of the axes."""
        return {"weights": self.weights.tolist(), "features": [*COMPACT, f"{len(self.axes)} principal axes"]}

    def state(self) -> Mapping[str, NDArray[Any]]:
        """Weights and axes."""
        return {"weights": self.weights, "axes": self.axes}

    def score(self, pairs: Pairs, *, bank: FeatureBank, seed: int) -> Scores:
        """(p,) log-odds without the intercept, which ranks nothing."""
        del seed
        return compact_features(pairs, bank=bank, axes=self.axes, space=self.space) @ self.weights


def compact_features(
    pairs: Pairs, *, bank: FeatureBank, axes: NDArray[np.float64], space: str = "raw"
) -> NDArray[np.float64]:
    """(p, 5 + k) features of the vectors of a pair, computed in chunks."""
    tasks, capabilities = bank.vectors(space)
    result = np.empty((len(pairs), len(COMPACT) + len(axes)))
    for start in range(0, len(pairs), _CHUNK):
        part = pairs.take(slice(start, start + _CHUNK))
        left, right = tasks[part.task], capabilities[part.capability]
        product = left * right
        rows = result[start : start + _CHUNK]
        rows[:, 0] = product.sum(axis=1, dtype=np.float64)
        rows[:, 1] = np.sqrt(np.maximum(2.0 - 2.0 * rows[:, 0], 0.0))
        rows[:, 2], rows[:, 3], rows[:, 4] = product.mean(axis=1), product.max(axis=1), product.std(axis=1)
        rows[:, 5:] = product @ axes.T
    return result


def principal_axes(pairs: Pairs, *, bank: FeatureBank, count: int, space: str = "raw") -> NDArray[np.float64]:
    """(count, d) leading eigenvectors of the covariance of x_t * x_c over the pairs; signs made canonical."""
    tasks, capabilities = bank.vectors(space)
    dim = tasks.shape[1]
    total, second, n = np.zeros(dim), np.zeros((dim, dim)), len(pairs)
    for start in range(0, n, _CHUNK):
        part = pairs.take(slice(start, start + _CHUNK))
        product = (tasks[part.task] * capabilities[part.capability]).astype(np.float64)
        total += product.sum(axis=0)
        second += product.T @ product
    mean = total / n
    _, vectors = np.linalg.eigh(second / n - np.outer(mean, mean))
    axes = vectors[:, ::-1][:, :count].T
    sign = np.sign(axes[np.arange(len(axes)), np.abs(axes).argmax(axis=1)])
    return axes * sign[:, None]

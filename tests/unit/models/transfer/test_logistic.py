"""Compact features and principal axes by hand and against scikit-learn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from toolshift.models.base import Limits
from toolshift.models.features import Pairs
from toolshift.models.transfer import logistic
from toolshift.models.transfer.logistic import COMPACT, FittedLogistic, Logistic, compact_features, principal_axes

ALL = Limits(epochs=3, max_tasks=None)


def test_features_by_hand(grid: Any, make: Any) -> None:
    """x_t * x_c = (.48, .48, 0) for the first pair and (0, .8, 0) for the second."""
    bank = make.bank(grid, {"task t0": (0.6, 0.8), "apple": (0.8, 0.6), "berry": (0.0, 1.0)})
    pairs = Pairs(task=np.array([0, 0]), capability=np.array([0, 1]))
    axes = np.array([[0.0, 1.0, 0.0], [0.6, -0.8, 0.0]])
    expected = [
        [0.96, np.sqrt(0.08), 0.32, 0.48, np.sqrt(0.0512), 0.48, 0.48 * -0.2],
        [0.80, np.sqrt(0.40), 0.8 / 3, 0.8, np.sqrt(0.64 / 3 - (0.8 / 3) ** 2), 0.8, -0.64],
    ]
    np.testing.assert_allclose(compact_features(pairs, bank=bank, axes=axes), expected, atol=1e-6)
    assert len(COMPACT) == 5


def test_equal_vectors_have_distance_zero_and_not_nan(grid: Any, make: Any) -> None:
    bank = make.bank(grid, {"task t0": (0.3, 0.7), "apple": (0.3, 0.7)})
    one = Pairs(task=np.array([0]), capability=np.array([0]))
    features = compact_features(one, bank=bank, axes=np.zeros((0, 3)))
    assert features[0, 1] == pytest.approx(0.0, abs=1e-3)


def products(bank: Any, pairs: Pairs) -> Any:
    return bank.task_vectors[pairs.task].astype(np.float64) * bank.capability_vectors[pairs.capability]


def test_axes_are_those_of_pca_with_canonical_signs(fixed_world: Any, make: Any) -> None:
    from sklearn.decomposition import PCA

    bank, pairs = fixed_world.bank(), make.all_pairs(fixed_world.corpus)
    axes = principal_axes(pairs, bank=bank, count=5)
    reference = PCA(n_components=5, svd_solver="full").fit(products(bank, pairs)).components_
    np.testing.assert_allclose(np.abs(np.sum(axes * reference, axis=1)), 1.0, atol=1e-6)
    np.testing.assert_allclose(axes @ axes.T, np.eye(5), atol=1e-9)
    largest = axes[np.arange(5), np.abs(axes).argmax(axis=1)]
    assert (largest > 0).all()


def test_chunks_change_nothing(fixed_world: Any, make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    bank, pairs = fixed_world.bank(), make.all_pairs(fixed_world.corpus)
    axes = principal_axes(pairs, bank=bank, count=3)
    features = compact_features(pairs, bank=bank, axes=axes)
    monkeypatch.setattr(logistic, "_CHUNK", 7)
    np.testing.assert_allclose(principal_axes(pairs, bank=bank, count=3), axes, atol=1e-9)
    np.testing.assert_allclose(compact_features(pairs, bank=bank, axes=axes), features, atol=1e-12)


def test_the_fit_is_a_logistic_regression_on_distinct_pairs(fixed_world: Any, worlds: Any, make: Any) -> None:
    """Score differences are those of scikit-learn's decision function on standardised features."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    source, bank = make.source(fixed_world, worlds.Rules(length=8, hard=4), target="D1"), fixed_world.bank()
    (fitted,) = Logistic(C=0.5, components=4).epochs(source, bank=bank, seed=7, limits=ALL)
    labelled = {
        (int(t), int(c)): bool(y)
        for m in source.manifests.values()
        for t, c, y in zip(m.task_of, m.capability, m.positive, strict=True)
    }
    task, capability = np.array(sorted(labelled)).T
    pairs = Pairs(task=task, capability=capability)
    assert len(pairs) < sum(m.capability.size for m in source.manifests.values())
    axes = principal_axes(pairs, bank=bank, count=4)
    x = StandardScaler().fit_transform(compact_features(pairs, bank=bank, axes=axes))
    model = LogisticRegression(C=0.5, max_iter=2000).fit(x, [labelled[k] for k in sorted(labelled)])
    expected, scores = model.decision_function(x), fitted.score(pairs, bank=bank, seed=0)
    np.testing.assert_allclose(scores - scores.mean(), expected - expected.mean(), atol=1e-4)
    assert fitted.contexts_seen == source.contexts
    np.testing.assert_array_equal(fitted.state()["axes"], axes)


def test_the_cap_and_the_strength_reach_the_fit(fixed_world: Any, worlds: Any, make: Any) -> None:
    source, bank = make.source(fixed_world, worlds.Rules(length=8, hard=4), target="D1"), fixed_world.bank()

    def weights(strength: float, limits: Limits = ALL) -> Any:
        (fitted,) = Logistic(C=strength).epochs(source, bank=bank, seed=0, limits=limits)
        return fitted.state()["weights"]

    assert np.linalg.norm(weights(1e-3)) < np.linalg.norm(weights(1.0))
    assert not np.array_equal(weights(1.0, Limits(epochs=1, max_tasks=6)), weights(1.0))


def test_the_seed_is_not_used(fixed_world: Any, make: Any) -> None:
    bank, pairs = fixed_world.bank(), make.all_pairs(fixed_world.corpus)
    fitted = FittedLogistic(
        weights=np.arange(7.0), axes=np.eye(2, bank.task_vectors.shape[1]), space="raw", contexts_seen=()
    )
    np.testing.assert_array_equal(fitted.score(pairs, bank=bank, seed=1), fitted.score(pairs, bank=bank, seed=2))
    assert fitted.record["weights"] == list(range(7))


def test_fits_together_are_the_fits_alone(fixed_world: Any, worlds: Any, make: Any) -> None:
    source, bank = make.source(fixed_world, worlds.Rules(length=8, hard=4), target="D1"), fixed_world.bank()
    models = [Logistic(C=c, components=3) for c in (0.01, 1.0)]
    assert Logistic.alike(models)
    assert not Logistic.alike([*models, Logistic(components=4)])
    (together,) = Logistic.together(models, source, bank=bank, seed=0, limits=ALL)
    for model, fitted in zip(models, together, strict=True):
        (alone,) = model.epochs(source, bank=bank, seed=0, limits=ALL)
        assert isinstance(fitted, FittedLogistic) and isinstance(alone, FittedLogistic)
        np.testing.assert_array_equal(fitted.weights, alone.weights)
    assert not np.array_equal(together[0].state()["weights"], together[1].state()["weights"])

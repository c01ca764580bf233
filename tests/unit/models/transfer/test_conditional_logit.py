"""The listwise loss, its gradient and its optimum."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from toolshift.models.transfer.conditional_logit import fit_conditional_logit, listwise_loss
from toolshift.training.lists import Batch


def batch_of(*labels: Sequence[int]) -> Batch:
    """One list per argument, 1 for a positive."""
    flat = np.array([x for one in labels for x in one], bool)
    return Batch(
        tasks=np.arange(len(labels)),
        offsets=np.concatenate([[0], np.cumsum([len(one) for one in labels])]).astype(np.int64),
        capability=np.arange(flat.size),
        positive=flat,
    )


def naive(scores: NDArray[np.float64], batch: Batch) -> float:
    """The formula of the module, word by word."""
    total = 0.0
    for a, b in zip(batch.offsets[:-1], batch.offsets[1:], strict=True):
        weight, gold = np.exp(scores[a:b]), batch.positive[a:b]
        rest = weight[~gold].sum()
        total += float(np.mean([-np.log(w / (w + rest)) for w in weight[gold]]))
    return total / batch.tasks.size


def test_loss_by_hand() -> None:
    """List 1: positive 1 against 0, 0. List 2: positives 0 and ln 3 against ln 2, each against the negative alone."""
    batch = batch_of([1, 0, 0], [1, 0, 1])
    scores = np.array([1.0, 0.0, 0.0, 0.0, np.log(2), np.log(3)])
    first = -np.log(np.e / (np.e + 2))
    second = (-np.log(1 / 3) - np.log(3 / 5)) / 2
    assert listwise_loss(scores, batch)[0] == pytest.approx((first + second) / 2)


def test_gradient_by_hand() -> None:
    loss, slope = listwise_loss(np.zeros(3), batch_of([1, 0, 0]))
    assert loss == pytest.approx(np.log(3))
    np.testing.assert_allclose(slope, [-2 / 3, 1 / 3, 1 / 3])


labels = st.lists(st.integers(0, 1), min_size=2, max_size=6).map(lambda tail: [1, 0, *tail])


@given(lists=st.lists(labels, min_size=1, max_size=4), seed=st.integers(0, 99))
def test_loss_against_the_formula_and_gradient_against_finite_differences(lists: list[list[int]], seed: int) -> None:
    batch = batch_of(*lists)
    scores = np.random.default_rng(seed).normal(0, 2, batch.positive.size)
    loss, slope = listwise_loss(scores, batch)
    assert loss == pytest.approx(naive(scores, batch))
    step = 1e-6 * np.eye(scores.size)
    numeric = [(naive(scores + s, batch) - naive(scores - s, batch)) / 2e-6 for s in step]
    np.testing.assert_allclose(slope, numeric, atol=1e-7)
    # A constant added to a list changes nothing, so the gradient sums to zero in every list.
    np.testing.assert_allclose(np.add.reduceat(slope, batch.offsets[:-1]), 0.0, atol=1e-12)


def test_large_scores_stay_finite() -> None:
    batch = batch_of([1, 0, 1], [0, 1])
    loss, slope = listwise_loss(np.array([1e4, 0.0, -1e4, 1e4, -1e4]), batch)
    assert loss == pytest.approx((1e4 / 2 + 2e4) / 2)
    np.testing.assert_allclose(slope, [0, 1 / 4, -1 / 4, 1 / 2, -1 / 2])


def test_known_optimum() -> None:
    """Three lists want the feature, one does not: the logit of 3/4 is ln 3."""
    batch = batch_of(*[[1, 0]] * 4)
    features = np.array([1, 0, 1, 0, 1, 0, 0, 1.0])[:, None]
    assert fit_conditional_logit(features, batch, l2=0.0)[0] == pytest.approx(np.log(3), abs=1e-6)


def case(seed: int = 0) -> tuple[NDArray[np.float64], Batch]:
    rng = np.random.default_rng(seed)
    batch = batch_of(*[[1, 0, 0, 1, 0] if i % 2 else [0, 1, 0] for i in range(20)])
    return rng.normal(size=(batch.positive.size, 3)), batch


@pytest.mark.parametrize("l2", [1.0, 0.01, 1e-4])
def test_the_optimum_is_that_of_another_solver_on_the_formula(l2: float) -> None:
    from scipy.optimize import minimize

    features, batch = case()

    def objective(weights: NDArray[np.float64]) -> float:
        return naive(features @ weights, batch) + 0.5 * l2 * float(weights @ weights)

    options = {"xatol": 1e-9, "fatol": 1e-14, "maxiter": 5000, "maxfev": 5000}
    found: Any = minimize(objective, np.zeros(3), method="Nelder-Mead", options=options)
    np.testing.assert_allclose(fit_conditional_logit(features, batch, l2=l2), found.x, atol=1e-5)


def test_a_stronger_penalty_gives_smaller_weights() -> None:
    features, batch = case()
    norms = [float(np.linalg.norm(fit_conditional_logit(features, batch, l2=s))) for s in (1e-4, 0.1, 10.0)]
    assert norms == sorted(norms, reverse=True)
    assert norms[-1] < 0.1 < norms[0]


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_no_optimum_is_an_error() -> None:
    features, batch = case()
    features[0] = np.nan
    with pytest.raises(ValueError, match="did not converge"):
        fit_conditional_logit(features, batch, l2=0.1)

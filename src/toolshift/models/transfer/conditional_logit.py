"""Listwise logistic fit of a linear score: the multi-positive conditional logit, convex, solved exactly.

Loss per list: -mean over positives p of ln( e^{s_p} / (e^{s_p} + sum over negatives n of e^{s_n}) ), the listwise loss
of tact.md section 2 at temperature 1, plus an L2 penalty on the weights.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from toolshift.training.lists import Batch

Floats = NDArray[np.float64]

STATIONARY = 1e-4
"""Largest slope that counts as none; features are standardised, so weights are off by about this over the penalty."""


def fit_conditional_logit(features: Floats, batch: Batch, *, l2: float) -> Floats:
    """Weights (f,) for standardised features (p, f) of the candidates of a batch of lists.

    Raises:
        ValueError: if the solver does not reach a stationary point.
    """
    from scipy.optimize import minimize

    def objective(weights: Floats) -> tuple[float, Floats]:
        loss, slope = listwise_loss(features @ weights, batch)
        return loss + 0.5 * l2 * float(weights @ weights), features.T @ slope + l2 * weights

    start = np.zeros(features.shape[1])
    options = {"maxiter": 500, "ftol": 1e-14, "gtol": 1e-8}
    found = cast("Any", minimize(objective, start, jac=True, method="L-BFGS-B", options=options))
    # Not the solver's own flag: at the optimum the last bits may end a line search, which it calls a failure.
    steepest = float(np.abs(objective(found.x)[1]).max())
    if not steepest <= STATIONARY:
        raise ValueError(f"the conditional logit did not converge (slope {steepest:.1e}): {found.message}")
    return np.asarray(found.x, np.float64)


def listwise_loss(scores: Floats, batch: Batch) -> tuple[float, Floats]:
    """Mean loss over lists and its gradient (p,) with respect to the scores.

    Written in score differences, ln(1 + e^{ln sum_n e^{s_n} - s_p}), so that no score is too large.
    """
    starts, owner = batch.offsets[:-1], batch.owner
    negative = np.where(batch.positive, -np.inf, scores)
    top = np.maximum.reduceat(negative, starts)
    top = np.where(np.isfinite(top), top, 0.0)  # a list without a negative costs nothing
    weight = np.exp(negative - top[owner])
    total = np.add.reduceat(weight, starts)
    with np.errstate(divide="ignore"):
        against = top + np.log(total)
    at = np.flatnonzero(batch.positive)
    of = owner[at]
    scale = 1.0 / (np.bincount(of, minlength=starts.size)[of] * starts.size)
    gap = against[of] - scores[at]
    loss = float((np.logaddexp(0.0, gap) * scale).sum())
    pull = scale * expit(gap)
    slope = weight * (np.bincount(of, weights=pull, minlength=starts.size) / np.maximum(total, 1e-300))[owner]
    slope[at] = -pull
    return loss, slope

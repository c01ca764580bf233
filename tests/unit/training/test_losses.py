"""The listwise and the contrastive loss against their formulas written out."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolshift.models.transfer.conditional_logit import listwise_loss
from toolshift.training.lists import Batch
from toolshift.training.losses import contrastive, listwise

torch = pytest.importorskip("torch")


def by_hand(scores: Any, offsets: Any, positive: Any, temperature: float, weights: Any) -> float:
    costs = []
    for start, stop in pairwise(offsets):
        at = range(start, stop)
        good = [scores[i] / temperature for i in at if positive[i]]
        bad = sum(weights[i] * math.exp(scores[i] / temperature) for i in at if not positive[i])
        if good:
            costs.append(sum(-math.log(math.exp(g) / (math.exp(g) + bad)) for g in good) / len(good))
    return sum(costs) / len(costs) if costs else 0.0


def test_two_lists_by_hand() -> None:
    """-ln(e^2/(e^2+e^1)) and -ln(e^0/(e^0+e^1)) for the two positives of one list; -ln(1/3) for the other list."""
    scores = torch.tensor([2.0, 0.0, 1.0, 5.0, 5.0, 5.0], dtype=torch.float64)
    offsets, positive = np.array([0, 3, 6]), np.array([True, True, False, False, True, False])
    first = (math.log(1 + math.exp(-1)) + math.log(1 + math.e)) / 2
    found = listwise(scores, offsets, positive=positive, temperature=1.0)
    assert float(found) == pytest.approx((first + math.log(3)) / 2, rel=1e-12)


@st.composite
def lists(draw: st.DrawFn) -> tuple[Any, ...]:
    lengths = draw(st.lists(st.integers(0, 5), min_size=1, max_size=4))
    size = sum(lengths)
    real = st.floats(-3, 3)
    scores = draw(st.lists(real, min_size=size, max_size=size))
    positive = draw(st.lists(st.booleans(), min_size=size, max_size=size))
    weights = draw(st.lists(st.sampled_from([0.0, 0.5, 1.0, 3.0]), min_size=size, max_size=size))
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return np.array(scores), offsets, np.array(positive, bool), np.array(weights)


@given(case=lists(), temperature=st.sampled_from([0.5, 1.0, 2.0]))
def test_any_lists_by_hand(case: Any, temperature: float) -> None:
    scores, offsets, positive, weights = case
    given_scores = torch.tensor(np.stack([scores, -scores]), requires_grad=True)
    found = listwise(given_scores, offsets, positive=positive, temperature=temperature, weights=weights)
    expected = [by_hand(s, offsets, positive, temperature, weights) for s in (scores, -scores)]
    np.testing.assert_allclose(found.detach().numpy(), expected, rtol=1e-9, atol=1e-12)
    found.sum().backward()
    assert bool(torch.isfinite(given_scores.grad).all())


@given(case=lists())
def test_it_is_the_loss_of_the_conditional_logit(case: Any) -> None:
    scores, offsets, positive, _ = case
    has_positive = np.array([positive[a:b].any() for a, b in pairwise(offsets)])
    if not has_positive.all():
        return
    batch = Batch(tasks=np.arange(offsets.size - 1), offsets=offsets, capability=offsets[:0], positive=positive)
    expected, slope = listwise_loss(scores, batch)
    values = torch.tensor(scores, requires_grad=True)
    found = listwise(values, offsets, positive=positive, temperature=1.0)
    found.backward()
    assert found.item() == pytest.approx(expected, rel=1e-9, abs=1e-12)
    np.testing.assert_allclose(values.grad.numpy(), slope, rtol=1e-7, atol=1e-12)


def test_huge_scores_are_finite() -> None:
    scores = torch.tensor([-1e4, 1e4, 3.0], requires_grad=True)
    found = listwise(scores, np.array([0, 3]), positive=np.array([True, False, False]), temperature=0.05)
    found.backward()
    assert found.item() == pytest.approx(2e4 / 0.05, rel=1e-5)
    assert bool(torch.isfinite(scores.grad).all())


def test_half_precision_is_raised() -> None:
    scores = torch.tensor([1.0, 0.0], dtype=torch.bfloat16)
    found = listwise(scores, np.array([0, 2]), positive=np.array([True, False]), temperature=1.0)
    assert found.dtype == torch.float32
    assert float(found) == pytest.approx(math.log(1 + math.exp(-1)), rel=1e-6)


LOGITS = [[1.0, 2.0, 0.5], [0.0, 3.0, 1.0], [2.0, 1.0, 0.0]]
SAME = [[True, False, True], [False, True, False], [True, False, True]]


@pytest.mark.parametrize(("same_item", "extra"), [("masked", 0.0), ("zero_logit", 1.0)])
def test_a_repeated_partner_is_no_negative(same_item: str, extra: float) -> None:
    """Rows 0 and 2 have the same partner. Removed: no term; logit 0: a term of e^0."""
    e = math.exp
    rows = [
        -math.log(e(1) / (e(1) + e(2) + extra)),
        -math.log(e(3) / (e(0) + e(3) + e(1))),
        -math.log(e(0) / (e(1) + e(0) + extra)),
    ]
    found = contrastive(torch.tensor(LOGITS), same=torch.tensor(SAME), same_item=same_item)
    assert float(found) == pytest.approx(sum(rows) / 3, rel=1e-6)


def test_excluded_pairs_are_no_negatives_either() -> None:
    excluded = torch.tensor([[False, True, False], [False, True, False], [False, False, False]])
    e = math.exp
    rows = [0.0, -math.log(e(3) / (e(0) + e(3) + e(1))), -math.log(e(0) / (e(1) + e(0)))]
    found = contrastive(torch.tensor(LOGITS), same=torch.tensor(SAME), excluded=excluded)
    assert float(found) == pytest.approx(sum(rows) / 3, rel=1e-6)


def test_an_unknown_treatment_is_refused() -> None:
    with pytest.raises(ValueError, match="same_item='kept'; expected masked or zero_logit"):
        contrastive(torch.zeros(2, 2), same=torch.eye(2, dtype=torch.bool), same_item="kept")

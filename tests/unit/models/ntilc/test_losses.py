"""The identities of spec/ntilc.md section 7, and the losses by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolshift.models.ntilc.losses import circle, contrastive, functional_margin, prototype_cross_entropy

torch = pytest.importorskip("torch")

GAMMA, MARGIN = 32.0, 0.25


def double_sum(s: Any, positive: Any, negative: Any) -> float:
    """log(1 + sum_j sum_i exp(gamma (alpha_n (s_n - m) - alpha_p (s_p - 1 + m)))) of one query, in float64."""
    total = 0.0
    for n in s[negative]:
        for p in s[positive]:
            alpha_n, alpha_p = max(n + MARGIN, 0.0), max(1 + MARGIN - p, 0.0)
            total += math.exp(GAMMA * (alpha_n * (n - MARGIN) - alpha_p * (p - (1 - MARGIN))))
    return math.log1p(total)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 4), st.integers(1, 6))
def test_the_factorised_circle_loss_is_the_double_sum(seed: int, positives: int, negatives: int) -> None:
    rng = np.random.default_rng(seed)
    s = rng.uniform(-1, 1, (3, positives + negatives + 1))
    kind = rng.permuted(np.tile([1] * positives + [2] * negatives + [0], (3, 1)), axis=1)  # 0: neither
    found = circle(torch.from_numpy(s), positive=torch.from_numpy(kind == 1), negative=torch.from_numpy(kind == 2))
    expected = np.mean([double_sum(row, k == 1, k == 2) for row, k in zip(s, kind, strict=True)])
    assert found.item() == pytest.approx(expected, rel=1e-6, abs=1e-6)


def test_no_gradient_goes_through_the_alphas() -> None:
    """dL/ds_p = -gamma alpha_p sigma(.) softmax weight, dL/ds_n = gamma alpha_n sigma(.) softmax weight."""
    s = torch.tensor([[0.6, 0.4, 0.5, -0.1, 0.9]], dtype=torch.float64, requires_grad=True)
    positive = torch.tensor([[True, True, False, False, False]])
    negative = torch.tensor([[False, False, True, True, False]])
    circle(s, positive=positive, negative=negative).backward()
    p, n = np.array([0.6, 0.4]), np.array([0.5, -0.1])
    alpha_p, alpha_n = 1.25 - p, n + 0.25
    a, b = -GAMMA * alpha_p * (p - 0.75), GAMMA * alpha_n * (n - 0.25)
    total = np.log(np.exp(a).sum()) + np.log(np.exp(b).sum())
    sigma = 1 / (1 + math.exp(-total))
    of_p = -GAMMA * alpha_p * sigma * np.exp(a) / np.exp(a).sum()
    of_n = GAMMA * alpha_n * sigma * np.exp(b) / np.exp(b).sum()
    assert s.grad is not None
    assert s.grad[0].numpy() == pytest.approx(np.array([*of_p, *of_n, 0.0]), rel=1e-9)


def test_alphas_are_cut_at_zero() -> None:
    """A negative below -0.25 has alpha 0: it still counts 1 in the sum and has no gradient."""
    s = torch.tensor([[0.5, -0.9]], dtype=torch.float64, requires_grad=True)
    mask = torch.tensor([[True, False]])
    loss = circle(s, positive=mask, negative=~mask)
    assert loss.item() == pytest.approx(math.log1p(math.exp(-GAMMA * 0.75 * (0.5 - 0.75))))
    loss.backward()
    assert s.grad is not None
    assert s.grad[0, 1].item() == 0.0


@pytest.mark.parametrize("missing", ["positive", "negative"])
def test_a_query_without_a_side_costs_nothing(missing: str) -> None:
    s = torch.tensor([[0.5, 0.3]], requires_grad=True)
    both = {"positive": torch.tensor([[True, False]]), "negative": torch.tensor([[False, True]])}
    both[missing] = torch.zeros(1, 2, dtype=torch.bool)
    loss = circle(s, **both)
    loss.backward()
    assert loss.item() == 0.0
    assert s.grad is not None
    assert s.grad.abs().max().item() == 0.0


def test_the_functional_margin_by_hand() -> None:
    """Cosines 0.8 and 0.0, w = 0.9, m0 = 0.5: rho = 0.3 and 0, the loss is 0.3 squared."""
    found = functional_margin(
        torch.tensor([[1.0, 0.8, 0.0]]),
        torch.tensor([[0.0, 0.9, 0.9]]),
        allowed=torch.tensor([[False, True, True]]),
        m0=0.5,
    )
    assert found.loss.item() == pytest.approx(0.09, rel=1e-6)
    assert found.active.tolist() == [True]
    assert (found.pairs.item(), found.rho.item(), found.w.item()) == pytest.approx((1, 0.3, 0.9))


def test_rows_without_an_active_pair_count_as_zero_or_not_at_all() -> None:
    cosine = torch.tensor([[0.8, 0.9], [0.1, 0.2]])
    w = torch.tensor([[0.5, 1.0], [1.0, 1.0]])
    allowed = torch.ones(2, 2, dtype=torch.bool)
    one = (0.5 * 0.1**2 + 1.0 * 0.2**2) / 1.5  # m0 = 0.3
    every = functional_margin(cosine, w, allowed=allowed)
    assert every.loss.item() == pytest.approx(one / 2, rel=1e-5)
    assert functional_margin(cosine, w, allowed=allowed, average="active").loss.item() == pytest.approx(one, rel=1e-5)
    weight = torch.tensor([0.25, 0.75])
    weighted = functional_margin(cosine, w, allowed=allowed, weight=weight).loss.item()
    assert weighted == pytest.approx(one / 4, rel=1e-5)
    with pytest.raises(ValueError, match="expected one of all, active"):
        functional_margin(cosine, w, allowed=allowed, average="some")


def test_tools_with_one_signature_do_not_repel() -> None:
    cosine = torch.tensor([[0.99]], requires_grad=True)
    found = functional_margin(cosine, torch.zeros(1, 1), allowed=torch.ones(1, 1, dtype=torch.bool))
    found.loss.backward()
    assert cosine.grad is not None
    assert (found.loss.item(), found.active.item(), cosine.grad.item()) == (0.0, False, 0.0)


def test_contrastive_and_prototypes_by_hand() -> None:
    """T = 0.5; the second positive is in no denominator."""
    s = torch.tensor([[0.6, 0.2, 0.4]], dtype=torch.float64)
    positive = torch.tensor([[True, True, False]])
    e = [math.exp(v / 0.5) for v in (0.6, 0.2, 0.4)]
    expected = -(math.log(e[0] / (e[0] + e[2])) + math.log(e[1] / (e[1] + e[2]))) / 2
    found = contrastive(s, positive=positive, negative=~positive, temperature=0.5)
    assert found.item() == pytest.approx(expected)
    queries = torch.tensor([[1.0, 0.0]])
    prototypes = torch.tensor([[3.0, 4.0], [0.0, 2.0]])  # cosines 0.6 and 0
    found = prototype_cross_entropy(queries, prototypes, positive=torch.tensor([[True, False]]), temperature=0.5)
    assert found.item() == pytest.approx(-math.log(math.exp(1.2) / (math.exp(1.2) + 1.0)))

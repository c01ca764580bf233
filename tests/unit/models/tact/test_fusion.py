"""The two gates: bounded, started at sigmoid(1), trained on roles of equal weight, everything before frozen."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.special import expit

from toolshift.models.features import Pairs
from toolshift.models.tact.fusion import FittedFusion, FusionSettings, fit_fusion, gate_inputs
from toolshift.models.tact.path import Correction, Trace

SETTINGS = FusionSettings(gates="function", temperature=0.05, learning_rate=0.05)


def correction(reliability: Any, bounded: Any) -> Correction:
    reliability, bounded = np.asarray(reliability, float), np.asarray(bounded, float)
    return Correction(signal=bounded, reliability=reliability, bounded=bounded, gate=np.ones(bounded.size))


def trace(**change: Any) -> Trace:
    nothing: Any = None
    index = np.arange(2)
    given: dict[str, Any] = {
        "pairs": Pairs(task=index, capability=index),
        "bank": nothing,
        "anchor": np.array([0.5, 0.3]),
        "relation": np.array([0.1, 0.0]),
        "functional": correction([0.4, 0.0], [0.08, 0.0]),
        "contextual": correction([0.2, 0.9], [-0.05, 0.1]),
    }
    return Trace(**{**given, **change})


def test_gates_by_hand() -> None:
    """s1 = .6 and .3."""
    fusion = FittedFusion(functional=np.array([1.0, 2.0, -1.0]), contextual=np.array([0.5, 0.0, 1.0, -2.0]))
    found = fusion.apply(trace())
    first = expit([1.0 + 1.2 - 0.4, 1.0 + 0.6])
    second = expit([0.5 + 0.4 - 0.4, 0.5 - 1.8])
    assert found.functional is not None
    assert found.contextual is not None
    np.testing.assert_allclose(found.functional.gate, first)
    np.testing.assert_allclose(found.contextual.gate, second)
    np.testing.assert_allclose(found.score, [0.6 + first[0] * 0.08 - second[0] * 0.05, 0.3 + second[1] * 0.1])


@pytest.mark.parametrize("missing", ["functional", "contextual"])
def test_a_stage_that_is_off_has_reliability_zero_and_no_gate(missing: str) -> None:
    some = trace(**{missing: None})
    column = {"functional": 2, "contextual": 3}[missing]
    assert not gate_inputs(some)[:, column].any()
    found = FittedFusion(functional=np.ones(3), contextual=np.ones(4)).apply(some)
    assert getattr(found, missing) is None
    assert np.isfinite(found.score).all()


def corrected(stages: Any, source: Any, bank: Any) -> Any:
    """(fold, training pairs with both corrections)."""
    path = stages.fit(stages.model(), source, bank=bank, stages=("relation", "functional", "contextual"))
    fold = stages.model().begin(source, bank=bank, seed=42, limits=stages.fold(source).limits).fold
    return fold, fold.trace(path)


def test_the_start_is_sigmoid_of_one(stages: Any, shared_source: Any, shared_bank: Any) -> None:
    fold, before = corrected(stages, shared_source, shared_bank)
    ((start,),) = fit_fusion([replace(SETTINGS, learning_rate=0.0)], fold, before, epochs=1, batch_tasks=8)
    assert start.functional.tolist() == [1, 0, 0]
    assert start.contextual.tolist() == [1, 0, 0, 0]
    gated = start.apply(before)
    np.testing.assert_allclose(gated.functional.gate, expit(1.0))


def test_scalar_gates_are_two_numbers(stages: Any, shared_source: Any, shared_bank: Any) -> None:
    fold, before = corrected(stages, shared_source, shared_bank)
    settings = [replace(SETTINGS, gates=g) for g in ("scalar", "function")]
    (scalar,), (function,) = (list(fit_fusion([s], fold, before, epochs=3, batch_tasks=8))[-1] for s in settings)
    assert not scalar.functional[1:].any()
    assert not scalar.contextual[1:].any()
    assert scalar.functional[0] != 1.0
    assert scalar.contextual[0] != 1.0
    assert function.functional[1:].all()
    assert np.ptp(function.apply(before).functional.gate) > 0


def test_gates_only_scale(stages: Any, shared_source: Any, shared_bank: Any) -> None:
    fold, before = corrected(stages, shared_source, shared_bank)
    ((fusion,),) = fit_fusion([SETTINGS], fold, before, epochs=1, batch_tasks=8)
    found = fusion.apply(before)
    for name in ("functional", "contextual"):
        one, other = getattr(before, name), getattr(found, name)
        np.testing.assert_array_equal(one.bounded, other.bounded)
        assert ((other.gate > 0) & (other.gate < 1)).all()
    np.testing.assert_array_equal(found.related, before.related)


def test_training_pairs_are_corrected_by_cross_fitted_evidence(
    stages: Any, shared_source: Any, shared_bank: Any
) -> None:
    """Not by what a scorer would say of them, whose profiles know their own context."""
    path = stages.fit(
        stages.model(beta_relation=0.0, beta_functional=0.0), shared_source, bank=shared_bank, epochs=6,
        stages=("relation", "functional", "contextual"),
    )  # fmt: skip
    fold = stages.fold(shared_source, bank=shared_bank)
    (stage,) = path.stages
    assert stage.name == "contextual"
    trained = fold.trace(fold.anchored.then(stage)).contextual
    scored = path.trace(fold.lists.pairs, bank=shared_bank).contextual
    assert trained is not None
    assert scored is not None
    expected = stage.correction(fold.cross_fitted(stage.settings.profiles, count=stage.settings.cross_fit))
    np.testing.assert_array_equal(trained.signal, expected.signal)
    assert (trained.signal != scored.signal).any()


def test_a_loss_that_is_not_finite_names_stage_and_epoch(stages: Any, shared_source: Any, shared_bank: Any) -> None:
    fold, before = corrected(stages, shared_source, shared_bank)
    bad = replace(before, anchor=np.full(before.anchor.size, np.nan))
    with pytest.raises(FloatingPointError, match="TACT, stage fusion, epoch 1: the loss is not finite"):
        list(fit_fusion([SETTINGS], fold, bad, epochs=2, batch_tasks=8))

"""Contextual validation: correction by hand, no evidence, controls, and what each objective may teach."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit

from toolshift.models.features import FeatureBank
from toolshift.models.tact.contextual import (
    CONFIDENCE,
    ContextualSettings,
    FittedContextual,
    PairEvidence,
    fit_contextual,
)
from toolshift.models.tact.fold import TactFold
from toolshift.models.tact.lists import CONTEXTUAL, POSITIVE
from toolshift.models.tact.path import Trace, anchored
from toolshift.models.tact.profiles import Profiles, ProfileSettings

PROFILES = ProfileSettings(count=3, kind="kmeans", temperature=0.1, prior=5.0, support=5.0, space="raw", lookup="id")
SETTINGS = ContextualSettings(
    strength=0.2,
    neutral=1.0,
    least_support=0.0,
    least_nearness=0.0,
    signal="profiles",
    learning_rate=0.05,
    profiles=PROFILES,
    cross_fit=3,
)


def some_evidence(**change: Any) -> PairEvidence:
    """Three pairs, two prototypes; the last pair has no records."""
    given: dict[str, Any] = {
        "product": np.array([[0.2, 0.1], [-0.3, 0.0], [0.0, 0.0]]),
        "confidence": np.array([[1, 0.5, 0.7, 0.4, 0.6, 0.3], [1, 0.2, 0.5, 0.2, 0.1, 0.3], [1, 0, 0, 0, 0.6, 0.3]]),
        "known": np.array([True, True, False]),
        "support": np.array([0.5, 0.2, 0.0]),
        "nearness": np.array([0.6, 0.1, 0.6]),
    }
    return PairEvidence(**{**given, **change})


def stage_of(**change: Any) -> FittedContextual:
    nothing: Any = None
    given: dict[str, Any] = {
        "settings": SETTINGS,
        "profiles": nothing,
        "eta": np.array([1.0, 2.0]),
        "q": np.array([2.0, 0, 0, 0, 0, 0, 1.0]),
        "scale": 0.5,
    }
    return FittedContextual(**{**given, **change})


def fitted(fold: TactFold, *settings: ContextualSettings, epochs: int = 3) -> list[tuple[FittedContextual, ...]]:
    return list(fit_contextual(settings or [SETTINGS], fold, fold.start, epochs=epochs, batch_tasks=8))


def other_trace(trace: Trace, anchor: Any) -> Trace:
    return replace(trace, anchor=anchor, memo={})


# -------------------------------------------------------------------------------------------------------------- by hand


def test_the_correction_by_hand() -> None:
    """C = .2 + 2 * .1 = .4 and -.3; q = sigmoid(2 + |C|); D = .2 (2q - 1) tanh(C / .5)."""
    found = stage_of().correction(some_evidence())
    np.testing.assert_allclose(found.signal, [0.4, -0.3, 0.0])
    q = expit([2.4, 2.3])
    np.testing.assert_allclose(found.reliability, [*(2 * q - 1), 0.0])
    np.testing.assert_allclose(found.bounded[:2], 0.2 * (2 * q - 1) * np.tanh([0.8, -0.6]))
    assert found.bounded[2] == 0.0
    assert found.gate.tolist() == [1.0] * 3
    assert found.bounded[0] > 0 > found.bounded[1]


def test_prototypes_of_a_fold_take_the_numbers_of_the_whole() -> None:
    numbered = some_evidence().numbered(np.array([3, 1]), count=4)
    np.testing.assert_array_equal(numbered.product, [[0, 0.1, 0, 0.2], [0, 0, 0, -0.3], [0, 0, 0, 0]])
    beyond = some_evidence().numbered(np.array([0, 1]), count=1)
    np.testing.assert_array_equal(beyond.product, [[0.2], [-0.3], [0.0]])


def test_a_confidence_below_one_half_abstains() -> None:
    found = stage_of(q=np.array([-2.0, 0, 0, 0, 0, 0, 0])).correction(some_evidence())
    assert found.reliability.tolist() == found.bounded.tolist() == [0.0] * 3


@pytest.mark.parametrize(
    ("settings", "moved"), [({"least_support": 0.3}, [0]), ({"least_nearness": 0.2}, [0]), ({}, [0, 1])]
)
def test_hard_conditions(settings: dict[str, float], moved: list[int]) -> None:
    found = stage_of(settings=replace(SETTINGS, **settings)).correction(some_evidence())
    assert np.flatnonzero(found.bounded).tolist() == moved


@pytest.mark.parametrize("strength", [0.3, -0.3])
def test_controls_are_signed_and_ignore_the_conditions(strength: float) -> None:
    for signal, expected in (("presence", [1, 1, 0]), ("popularity", [0.5, 0.2, 0])):
        settings = replace(SETTINGS, signal=signal, strength=strength)
        found = stage_of(settings=settings).correction(some_evidence())
        np.testing.assert_allclose(found.bounded, strength * np.array(expected))


@given(seed=st.integers(0, 10**6), scale=st.sampled_from([1e-9, 0.1, 10.0]))
def test_bounded_and_exactly_nothing_without_records(seed: int, scale: float) -> None:
    """Even where rounding leaves something of C."""
    rng = np.random.default_rng(seed)
    known = rng.random(20) < 0.6
    evidence = PairEvidence(
        product=rng.standard_normal((20, 2)),
        confidence=rng.random((20, 6)),
        known=known,
        support=rng.random(20),
        nearness=rng.random(20),
    )
    found = stage_of(scale=scale, q=rng.standard_normal(7)).correction(evidence)
    assert (np.abs(found.bounded) <= 0.2).all()
    assert (found.bounded[~known] == 0).all()
    assert (found.signal[~known] == 0).all()
    moved = found.bounded != 0
    assert (np.sign(found.bounded[moved]) == np.sign(found.signal[moved])).all()


@given(seed=st.integers(0, 10**6), start=st.integers(0, 39), size=st.integers(1, 15))
def test_any_part_of_the_pairs_has_the_same_bits(seed: int, start: int, size: int) -> None:
    rng = np.random.default_rng(seed)
    made = {"product": (40, 16), "confidence": (40, 6), "known": (40,), "support": (40,), "nearness": (40,)}
    values = {name: rng.random(shape) - 0.3 * (name == "product") for name, shape in made.items()}
    values["known"] = values["known"] < 0.7
    part = {name: value[start : start + size] for name, value in values.items()}
    stage = stage_of(eta=rng.random(16) + 0.5, q=rng.standard_normal(7) + 0.5)
    whole, alone = stage.correction(PairEvidence(**values)), stage.correction(PairEvidence(**part))
    np.testing.assert_array_equal(whole.bounded[start : start + size], alone.bounded)
    np.testing.assert_array_equal(whole.reliability[start : start + size], alone.reliability)


def test_evidence_of_any_part_of_the_pairs_has_the_same_bits(stages: Any, shared_source: Any) -> None:
    fold = stages.fold(shared_source)
    pairs = stages.pairs()
    for lookup in ("id", "similarity"):
        settings: Any = replace(PROFILES, lookup=lookup)
        whole = PairEvidence.of(pairs, fold.profiles(settings), bank=fold.bank)
        for index in ([0], [7, 500], list(range(100, 117)), [5]):
            alone = PairEvidence.of(pairs.take(np.array(index)), fold.profiles(settings), bank=fold.bank)
            for name in ("product", "confidence", "support", "nearness"):
                np.testing.assert_array_equal(getattr(whole, name)[index], getattr(alone, name))


def test_evidence_belongs_to_its_profiles_not_to_their_address(stages: Any, shared_source: Any) -> None:
    """Profiles that are thrown away after use may be followed by others at the same address."""
    fold = stages.fold(shared_source)
    stage, whole = fitted(fold, epochs=1)[-1][0], fold.profiles(PROFILES)
    trace = anchored(stages.pairs(), bank=fold.bank, space="raw")
    for fraction in np.linspace(1.0, 0.0, 12):
        thin = replace(stage, profiles=whole.thinned(whole.counts * fraction, whole.contexts))
        fresh = anchored(stages.pairs(), bank=fold.bank, space="raw")
        np.testing.assert_array_equal(thin.apply(trace).score, thin.apply(fresh).score)
        del thin, fresh


def test_without_any_record_the_score_is_the_functional_estimate(stages: Any, shared_source: Any) -> None:
    """Bit for bit: the same checkpoint with all association records removed."""
    fold = stages.fold(shared_source)
    stage = replace(fitted(fold, epochs=1)[-1][0], q=np.array([3.0, 0, 0, 0, 0, 0, 0]))
    trace = anchored(stages.pairs(), bank=fold.bank, space="raw")
    assert (stage.apply(trace).score != trace.score).any()
    gone = stage.profiles.thinned(np.zeros_like(stage.profiles.counts), np.zeros_like(stage.profiles.contexts))
    found = replace(stage, profiles=gone).apply(trace)
    np.testing.assert_array_equal(found.score, trace.functional_estimate)
    assert np.isfinite(found.score).all()


# -------------------------------------------------------------------------------------------------------------- the fit


def test_the_start_of_training(stages: Any, shared_source: Any) -> None:
    """eta = 1, q = 0, so everything abstains; tau_C is the deviation of the cross-fitted C of pairs with records."""
    fold = stages.fold(shared_source)
    (start,) = fitted(fold, replace(SETTINGS, learning_rate=0.0))[0]
    np.testing.assert_allclose(start.eta, 1.0, atol=1e-6)
    assert not start.q.any()
    evidence = fold.cross_fitted(PROFILES, count=3)
    assert start.scale == pytest.approx(evidence.product.sum(axis=1)[evidence.known].std(), rel=1e-5)
    np.testing.assert_array_equal(start.apply(fold.start).score, fold.start.score)


def test_q_is_taught_by_its_own_loss_alone(stages: Any, shared_source: Any) -> None:
    """With C as it is, neither the scores before, nor strength and neutrality, which only enter the ranking losses,
    reach the confidence weights."""
    fold = stages.fold(shared_source)

    def q(setting: ContextualSettings, before: Trace) -> Any:
        # One step per epoch: eta has not moved when q takes its first step, so that C is the same in all of them.
        stage = next(fit_contextual([setting], fold, before, epochs=1, batch_tasks=1000))[0]
        return stage.q

    plain = q(SETTINGS, fold.start)
    assert plain.any()
    rng = np.random.default_rng(0)
    for setting, before in (
        (replace(SETTINGS, strength=0.4), fold.start),
        (replace(SETTINGS, neutral=50.0), fold.start),
        (SETTINGS, other_trace(fold.start, rng.random(len(fold.start.pairs)))),
    ):
        np.testing.assert_array_equal(q(setting, before), plain)


def test_eta_is_taught_by_the_ranking_losses(stages: Any, shared_source: Any) -> None:
    fold = stages.fold(shared_source)
    plain = fitted(fold, epochs=6)[-1][0].eta
    neutral = fitted(fold, replace(SETTINGS, neutral=50.0), epochs=6)[-1][0].eta
    assert (np.abs(plain - 1.0) > 1e-3).any()
    assert (plain != neutral).any()
    assert (plain > 0).all()


def test_only_evidence_without_the_own_context_is_trained_on(
    stages: Any, shared_source: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    fold = stages.fold(shared_source)
    asked: list[Any] = []
    of = PairEvidence.of

    def counted(pairs: Any, profiles: Profiles, *, bank: FeatureBank) -> PairEvidence:
        asked.append((np.unique(fold.source.context_of[pairs.task]).tolist(), profiles.counts.sum()))
        return of(pairs, profiles, bank=bank)

    monkeypatch.setattr(PairEvidence, "of", staticmethod(counted))
    fitted(fold, epochs=1)
    assert len(asked) == 3
    total = fold.records.gold.nnz
    for contexts, records in asked:
        own = np.isin(fold.records.context, contexts)
        assert records == pytest.approx(total - fold.records.gold[np.flatnonzero(own)].nnz)


def test_side_by_side_is_one_by_one_up_to_rounding(stages: Any, shared_source: Any) -> None:
    fold = stages.fold(shared_source)
    settings = [SETTINGS, replace(SETTINGS, strength=0.1, neutral=10.0), replace(SETTINGS, least_support=0.3)]
    together = fitted(fold, *settings)[-1]
    for setting, stage in zip(settings, together, strict=True):
        (alone,) = fitted(fold, setting)[-1]
        assert stage.settings == setting
        for name, value in alone.state().items():
            np.testing.assert_allclose(stage.state()[name], value, atol=2e-4)


@pytest.mark.parametrize("signal", ["presence", "popularity"])
def test_a_control_is_not_trained(stages: Any, shared_source: Any, signal: Any) -> None:
    fold = stages.fold(shared_source)
    settings = [replace(SETTINGS, signal=signal, strength=s) for s in (-0.4, 0.4)]
    ((down, up),) = fitted(fold, *settings, epochs=5)
    trace = anchored(stages.pairs(), bank=fold.bank, space="raw")
    moves = [stage.apply(trace).score - trace.score for stage in (down, up)]
    np.testing.assert_allclose(moves[0], -moves[1], atol=1e-12)
    known = np.isin(trace.pairs.capability, fold.profiles(PROFILES).capabilities)
    assert (moves[1][known] > 0).all()
    assert (moves[1][~known] == 0).all()
    if signal == "presence":
        np.testing.assert_allclose(moves[1][known], 0.4)


def test_without_contextual_negatives_only_positives_teach(stages: Any, shared_source: Any) -> None:
    """Lists without a hard candidate: nothing breaks."""
    natural = stages.with_lists(shared_source, {"natural": shared_source.manifests["natural"]})
    fold = stages.fold(natural)
    assert not (fold.lists.role == CONTEXTUAL).any()
    assert (fold.lists.role == POSITIVE).any()
    (stage,) = fitted(fold)[-1]
    assert all(np.isfinite(v).all() for v in stage.state().values())
    assert np.isfinite(stage.apply(fold.start).score).all()


def test_one_source_context_gives_no_correction_in_training(stages: Any) -> None:
    source = stages.source().without(("D2", "D3"))
    fold = stages.fold(source)
    (stage,) = fitted(fold)[-1]
    assert not stage.q.any()
    assert all(np.isfinite(v).all() for v in stage.state().values())
    trace = anchored(stages.pairs(), bank=fold.bank, space="raw")
    np.testing.assert_array_equal(stage.apply(trace).score, trace.score)


def test_a_loss_that_is_not_finite_names_stage_and_epoch(stages: Any, shared_source: Any) -> None:
    fold = stages.fold(shared_source)
    bad = other_trace(fold.start, np.where(np.arange(len(fold.start.pairs)) % 5 == 0, np.nan, fold.start.anchor))
    with pytest.raises(FloatingPointError, match="TACT, stage contextual, epoch 1: the loss is not finite"):
        list(fit_contextual([SETTINGS], fold, bad, epochs=2, batch_tasks=8))


def test_the_record_names_what_the_confidence_weighs(stages: Any, shared_source: Any) -> None:
    (stage,) = fitted(stages.fold(shared_source), epochs=1)[-1]
    assert tuple(stage.record["confidence"]) == CONFIDENCE
    assert stage.record["capabilities_with_records"] == stage.profiles.capabilities.size > 0

"""Functional validation: composition, match, reference and correction by hand; invariants; the fit."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolshift.models.features import FeatureBank, Pairs
from toolshift.models.tact.evidence import ROW
from toolshift.models.tact.fold import TactFold
from toolshift.models.tact.functional import (
    FEATURES,
    FittedFunctional,
    Form,
    FunctionalSettings,
    Grids,
    _Training,
    composed,
    fit_functional,
    reference_line,
)
from toolshift.models.tact.lists import CONTEXTUAL, SEMANTIC
from toolshift.models.tact.path import Trace
from toolshift.models.tact.signals import best_requirement_endpoint_cosine, untrained_match

torch = pytest.importorskip("torch")

SETTINGS = FunctionalSettings(
    strength=0.2, kappa=0.3, set_weight=0.5, temperature=0.05, learning_rate=0.05, form=Form()
)
STAGE = FittedFunctional(
    settings=SETTINGS,
    argument=0.5,
    kind=0.25,
    v=np.array([0.3, -0.2, 0.4, 0.5, -0.6, 0.1, 0.2]),
    intercept=0.1,
    slope=0.3,
    scale=0.2,
)
seeds = st.integers(0, 10**6)


def one_row(**cells: Any) -> Any:
    """One pair; grids are given by their upper left corner."""
    row = np.zeros(1, ROW)
    for name, value in cells.items():
        value = np.asarray(value)
        if value.ndim == 2:
            row[name][0, : value.shape[0], : value.shape[1]] = value
        elif value.ndim == 1:
            row[name][0, : value.size] = value
        else:
            row[name] = value
    return row


def cell_values(row: Any, *, form: Form | None = None, argument: float = 0.5, kind: float = 0.25) -> Any:
    form = form or Form()
    grids = Grids.of(row, form=form, device="cpu")
    return composed(grids, torch.tensor([argument]), torch.tensor([kind]), form=form)[0, 0].numpy()


def trace_of(rows: Any, related: Any) -> Trace:
    index = np.arange(len(rows))
    bank: Any = None
    related = np.asarray(related, np.float64)
    memo = {"evidence": rows}
    return Trace(pairs=Pairs(task=index, capability=index), bank=bank, anchor=related, relation=0 * related, memo=memo)


# ---------------------------------------------------------------------------------------------------------- composition

PAIR = {
    "operation": [[0.8, 0.4], [0.2, 0.9]],
    "argument": [[0.5, 0.0], [1.0, 0.0]],
    "type": [[1.0, 0.0], [0.0, 0.0]],
    "has_argument": [True, False],
    "has_type": [True, False],
    "requirements": 2,
    "endpoints": 2,
}


def test_composition_by_hand() -> None:
    """(o + a/2 + y/4) / 1.75 where both channels are there, the operation alone where none is."""
    found = cell_values(one_row(**PAIR))
    expected = [[(0.8 + 0.25 + 0.25) / 1.75, 0.4], [(0.2 + 0.5 + 0.0) / 1.75, 0.9]]
    np.testing.assert_allclose(found[:2, :2], expected, rtol=1e-6)
    only_argument = {**PAIR, "has_type": [False, False], "type": [[0.0, 0.0], [0.0, 0.0]]}
    np.testing.assert_allclose(cell_values(one_row(**only_argument))[0, 0], (0.8 + 0.25) / 1.5, rtol=1e-6)


def test_cross_endpoint_takes_the_best_of_each_channel_from_anywhere() -> None:
    found = cell_values(one_row(**PAIR), form=Form(composition="cross_endpoint"))
    np.testing.assert_allclose(found[0, :2], [(0.8 + 0.25 + 0.25) / 1.75] * 2, rtol=1e-6)
    np.testing.assert_allclose(found[1, :2], [(0.9 + 0.5 + 0.0) / 1.75] * 2, rtol=1e-6)


def test_an_empty_argument_list_is_no_evidence_or_full_evidence() -> None:
    """Only for endpoints that exist; the type channel stays masked."""
    found = cell_values(one_row(**PAIR), form=Form(empty_arguments="satisfied"))
    np.testing.assert_allclose(found[:2, 1], [(0.4 + 0.5) / 1.5, (0.9 + 0.5) / 1.5], rtol=1e-6)
    np.testing.assert_allclose(found[:2, 0], cell_values(one_row(**PAIR))[:2, 0], rtol=1e-6)
    assert not found[:2, 2:].any()


def test_the_match_by_hand() -> None:
    """Cells 1.3/1.75 = .743, .4 / .4, .9: the diagonal, (.443 + .6) / 2. Second best: .9 alone, .443 less."""
    value, reliability, cells = STAGE.matched(one_row(**PAIR))
    gain = 1.3 / 1.75 - 0.3
    assert value[0] == pytest.approx((gain + 0.6) / 2, abs=1e-5)
    assert np.flatnonzero(cells[0]).tolist() == [0, 5]
    features = [1.0, 0.5, 0.5, 1.0, gain, 0.5, 0.5]
    assert reliability[0] == pytest.approx(1 / (1 + np.exp(-STAGE.v @ features)), abs=1e-5)
    assert len(FEATURES) == len(features)


def test_the_denominator() -> None:
    """Three requirements, one endpoint, one match of gain .5: divided by 1, or by 3."""
    row = one_row(operation=[[0.8], [0.1], [0.1]], requirements=3, endpoints=1)
    assert STAGE.matched(row)[0][0] == pytest.approx(0.5, abs=1e-6)
    other = replace(STAGE, settings=replace(SETTINGS, form=Form(denominator="requirements")))
    assert other.matched(row)[0][0] == pytest.approx(0.5 / 3, abs=1e-6)


# ------------------------------------------------------------------------------------------------------------ reference


def test_the_reference_line_by_hand() -> None:
    """Through (0, 1), (1, 2), (2, 6): slope 2.5, intercept .5; residuals .5, -1, .5."""
    c0, c1, tau = reference_line(np.array([1.0, 2.0, 6.0]), np.array([0.0, 1.0, 2.0]), slope=True)
    assert (c0, c1) == (pytest.approx(0.5), pytest.approx(2.5))
    assert tau == pytest.approx(np.sqrt(1.5 / 3))
    c0, c1, tau = reference_line(np.array([1.0, 2.0, 6.0]), np.array([0.0, 1.0, 2.0]), slope=False)
    assert (c0, c1, tau) == (pytest.approx(3.0), 0.0, pytest.approx(np.sqrt(14 / 3)))


@given(seed=seeds, size=st.integers(3, 40))
def test_the_reference_line_is_that_of_a_library(seed: int, size: int) -> None:
    rng = np.random.default_rng(seed)
    x, y = rng.random(size), rng.random(size)
    slope, intercept = np.polyfit(x, y, 1)
    c0, c1, tau = reference_line(y, x, slope=True)
    assert (c0, c1) == (pytest.approx(intercept, abs=1e-8), pytest.approx(slope, abs=1e-8))
    assert tau == pytest.approx(np.std(y - slope * x - intercept), abs=1e-9)


@pytest.mark.parametrize("value", [0.0, 0.4])
@pytest.mark.parametrize("spread", [True, False])
def test_constant_scores_or_matches_give_a_finite_line(value: float, spread: bool) -> None:
    s1 = np.linspace(0, 1, 5) if spread else np.full(5, 0.7)
    c0, c1, tau = reference_line(np.full(5, value), s1, slope=True)
    assert c0 == pytest.approx(value)
    assert c1 == pytest.approx(0.0)
    assert 0 < tau < 1e-5
    assert reference_line(np.zeros(0), np.zeros(0), slope=True) == (0.0, 0.0, 1.0)


def test_an_average_match_is_not_corrected() -> None:
    row = one_row(**PAIR)
    value = STAGE.matched(row)[0][0]
    at_line = (value - STAGE.intercept) / STAGE.slope
    found = STAGE.apply(trace_of(np.repeat(row, 3), [at_line, at_line - 0.1, at_line + 0.1])).functional
    assert found is not None
    assert found.bounded[0] == pytest.approx(0.0, abs=1e-12)
    assert found.bounded[1] > 0 > found.bounded[2]


# ----------------------------------------------------------------------------------------------------------- invariants


@given(seed=seeds)
def test_bounded_and_nothing_without_evidence(stages: Any, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = stages.evidence(rng, 30)
    trace = trace_of(rows, rng.random(30) * 2 - 1)
    for stage in (STAGE, replace(STAGE, intercept=-50.0), replace(STAGE, scale=1e-6)):
        found = stage.apply(trace)
        assert found.functional is not None
        assert (np.abs(found.functional.bounded) <= SETTINGS.strength).all()
        assert (np.abs(found.functional_estimate - trace.related) <= SETTINGS.strength + 1e-12).all()
        nothing = (rows["requirements"] == 0) | (rows["endpoints"] == 0)
        assert (found.functional.bounded[nothing] == 0).all()
        assert (found.functional_estimate[nothing] == trace.related[nothing]).all()
        assert found.functional.bounded[~nothing].any() or nothing.all()
        assert np.isfinite(found.score).all()


@given(seed=seeds, form=st.sampled_from([Form(), Form(composition="cross_endpoint")]))
def test_a_field_whose_mask_is_zero_changes_nothing(stages: Any, seed: int, form: Form) -> None:
    rng = np.random.default_rng(seed)
    rows = stages.evidence(rng, 12)
    other = rows.copy()
    for name, mask in (("argument", "has_argument"), ("type", "has_type")):
        noise = rng.random((12, 4, 4))
        other[name] = np.where(rows[mask][:, None, :], rows[name], noise)
    stage = replace(STAGE, settings=replace(SETTINGS, form=form))
    for one, same in zip(stage.matched(rows), stage.matched(other), strict=True):
        np.testing.assert_array_equal(one, same)


@given(seed=seeds, rows=st.integers(1, 4), columns=st.integers(1, 4), data=st.data())
def test_order_of_requirements_and_endpoints_does_not_matter(
    stages: Any, seed: int, rows: int, columns: int, data: Any
) -> None:
    evidence = stages.evidence(np.random.default_rng(seed), 6, requirements=rows, endpoints=columns)
    first = np.array(data.draw(st.permutations(range(rows))), np.int64)
    second = np.array(data.draw(st.permutations(range(columns))), np.int64)
    moved = evidence.copy()
    for name in ("operation", "argument", "type"):
        moved[name][:, :rows, :columns] = evidence[name][:, first][:, :, second]
    for name in ("has_argument", "has_type"):
        moved[name][:, :columns] = evidence[name][:, second]
    for form in (Form(), Form(empty_arguments="satisfied"), Form(composition="cross_endpoint")):
        stage = replace(STAGE, settings=replace(SETTINGS, form=form))
        (value, reliability, _), (other, others, _) = stage.matched(evidence), stage.matched(moved)
        np.testing.assert_allclose(value, other, atol=1e-6)
        np.testing.assert_allclose(reliability, others, atol=1e-6)


@given(seed=seeds, start=st.integers(0, 59), size=st.integers(1, 20))
def test_any_part_of_the_pairs_has_the_same_bits(stages: Any, seed: int, start: int, size: int) -> None:
    rows = stages.evidence(np.random.default_rng(seed), 60)
    part = slice(start, start + size)
    for whole, alone in zip(STAGE.matched(rows), STAGE.matched(rows[part]), strict=True):
        np.testing.assert_array_equal(whole[part], alone)


def test_chunks_do_not_matter(stages: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = stages.evidence(np.random.default_rng(5), 23)
    whole = STAGE.matched(rows)
    monkeypatch.setattr("toolshift.models.tact.functional._CHUNK_PAIRS", 4)
    for one, other in zip(whole, STAGE.matched(rows), strict=True):
        np.testing.assert_array_equal(one, other)


@given(seed=seeds)
def test_more_evidence_is_never_a_worse_match(stages: Any, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = stages.evidence(rng, 10)
    better = rows.copy()
    better["operation"] = np.minimum(1.0, rows["operation"] * 1.3)
    assert (STAGE.matched(better)[0] >= STAGE.matched(rows)[0] - 1e-6).all()


# -------------------------------------------------------------------------------------------------------------- the fit


def fitted(fold: TactFold, *settings: FunctionalSettings, epochs: int = 3) -> list[tuple[FittedFunctional, ...]]:
    return list(fit_functional(settings or [SETTINGS], fold, fold.start, epochs=epochs, batch_tasks=8))


def test_the_start_of_training(stages: Any, shared_source: Any) -> None:
    """w_a = .5, w_y = .25, v = 0; reference and scale are statistics of the untrained match, without contextual."""
    fold = stages.fold(shared_source)
    (start,) = fitted(fold, replace(SETTINGS, learning_rate=0.0))[0]
    assert (start.argument, start.kind) == (pytest.approx(0.5), pytest.approx(0.25))
    assert not start.v.any()
    counted = fold.lists.role != CONTEXTUAL
    value = untrained_match(fold.lists.pairs, bank=fold.bank)
    expected = reference_line(value[counted], fold.start.anchor[counted], slope=True)
    np.testing.assert_allclose([start.intercept, start.slope, start.scale], expected, atol=1e-5)
    constant = replace(SETTINGS, learning_rate=0.0, form=Form(reference="constant"))
    (other,) = fitted(fold, constant)[0]
    assert other.slope == 0.0
    assert other.intercept == pytest.approx(value[counted].mean(), abs=1e-5)


def test_reference_and_scale_belong_to_the_fitted_weights(stages: Any, shared_source: Any) -> None:
    fold = stages.fold(shared_source)
    counted = fold.lists.role != CONTEXTUAL
    for (stage,) in fitted(fold):
        value = stage.matched(fold.start.evidence)[0]
        expected = reference_line(value[counted], fold.start.anchor[counted], slope=True)
        np.testing.assert_allclose([stage.intercept, stage.slope, stage.scale], expected, atol=1e-5)


def test_training_moves_everything(stages: Any, shared_source: Any) -> None:
    (stage,) = fitted(stages.fold(shared_source), epochs=6)[-1]
    assert abs(stage.argument - 0.5) > 0.01
    assert abs(stage.kind - 0.25) > 0.01
    assert (np.abs(stage.v) > 1e-3).all()
    assert stage.argument > 0
    assert stage.kind > 0


def test_the_set_objective_is_of_semantic_false_friends(stages: Any, shared_source: Any) -> None:
    """Without semantic negatives its weight changes nothing; with them it does."""
    fold = stages.fold(shared_source)
    none, much = (fitted(fold, replace(SETTINGS, set_weight=w))[-1][0] for w in (0.0, 5.0))
    assert not stages.equal(none, much)
    natural = stages.with_lists(shared_source, {"natural": shared_source.manifests["natural"]})
    none, much = (fitted(stages.fold(natural), replace(SETTINGS, set_weight=w))[-1][0] for w in (0.0, 5.0))
    assert stages.equal(none, much)


def test_a_friend_of_one_positive_counts_against_all_of_them(stages: Any, shared_source: Any) -> None:
    """The set objective of whole lists, pair by pair (spec 3.7)."""
    fold = stages.fold(shared_source)
    state = _Training([SETTINGS], fold, fold.start)
    batch = fold.lists.whole.without(CONTEXTUAL)
    index = torch.from_numpy(batch.index)
    value, s1 = state.match(state.grids.take(index)).value, state.related[index]
    known = state.grids.endpoints[index].numpy() > 0
    costs, f, s = [], value[0].detach().numpy(), s1.numpy()
    for start, stop in itertools.pairwise(batch.offsets.tolist()):
        rows = range(start, stop)
        positives = [i for i in rows if batch.positive[i]]
        for n in (i for i in rows if batch.role[i] == SEMANTIC and known[i]):
            if any(abs(s[p] - s[n]) <= 0.05 for p in positives):
                costs += [np.logaddexp(0, (0.1 - (f[p] - f[n])) / 0.1) for p in positives if known[p]]
    assert costs
    found = state._set_loss(value, s1, batch, index)
    np.testing.assert_allclose(found.detach().numpy(), [np.mean(costs)], rtol=1e-5)


def test_side_by_side_is_one_by_one_up_to_rounding(stages: Any, shared_source: Any) -> None:
    fold = stages.fold(shared_source)
    settings = [SETTINGS, replace(SETTINGS, strength=0.1), replace(SETTINGS, kappa=0.2, set_weight=0.0)]
    together = fitted(fold, *settings)[-1]
    for setting, stage in zip(settings, together, strict=True):
        (alone,) = fitted(fold, setting)[-1]
        assert stage.settings == setting
        for name, value in alone.state().items():
            np.testing.assert_allclose(stage.state()[name], value, atol=2e-4)
    assert not stages.equal(together[0], together[1])


@pytest.mark.parametrize(
    "form",
    [
        Form(composition="cross_endpoint"),
        Form(empty_arguments="satisfied"),
        Form(reference="constant"),
    ],  # every task of this world has a single requirement, so that the denominator is the same
)
def test_every_form_is_another_fit(stages: Any, shared_source: Any, form: Form) -> None:
    fold = stages.fold(shared_source)
    (plain,), (other,) = fitted(fold, epochs=1)[-1], fitted(fold, replace(SETTINGS, form=form), epochs=1)[-1]
    assert not np.array_equal(plain.apply(fold.start).score, other.apply(fold.start).score)
    assert np.isfinite(other.apply(fold.start).score).all()


def test_contextual_negatives_are_not_seen(stages: Any, shared_source: Any) -> None:
    """With and without them: the same bits."""
    from toolshift.views.manifest import Manifest

    def without(manifest: Manifest) -> Manifest:
        return manifest.filter(manifest.role != CONTEXTUAL)

    cut = stages.with_lists(shared_source, {v: without(m) for v, m in shared_source.manifests.items()})
    folds = stages.fold(shared_source), stages.fold(cut)
    assert (folds[0].lists.role == CONTEXTUAL).any()
    assert not (folds[1].lists.role == CONTEXTUAL).any()
    np.testing.assert_array_equal(folds[0].lists.tasks, folds[1].lists.tasks)
    one, other = (fitted(fold)[-1][0] for fold in folds)
    assert stages.equal(one, other)


def test_all_zero_evidence_and_constant_scores_fit_to_something_finite(stages: Any, shared_source: Any) -> None:
    fold = stages.fold(shared_source)
    rows = np.zeros(len(fold.lists.pairs), ROW)
    for endpoints in (0, 2):
        rows["requirements"], rows["endpoints"] = 2, endpoints
        before = trace_of(rows, np.full(len(rows), 0.4))
        (stage,) = list(fit_functional([SETTINGS], fold, before, epochs=2, batch_tasks=8))[-1]
        assert all(np.isfinite(v).all() for v in stage.state().values())
        np.testing.assert_allclose(stage.apply(before).score, before.related, atol=1e-6)


def test_a_score_that_is_not_finite_names_the_stage(stages: Any, shared_source: Any) -> None:
    fold = stages.fold(shared_source)
    bad = np.where(np.arange(fold.start.anchor.size) == 3, np.nan, fold.start.anchor)
    with pytest.raises(FloatingPointError, match="TACT, stage functional"):
        list(fit_functional([SETTINGS], fold, replace(fold.start, anchor=bad, memo={}), epochs=2, batch_tasks=8))


def test_evidence_that_is_not_a_number_names_the_stage() -> None:
    row = one_row(**PAIR)
    row["operation"][0, 0, 0] = np.nan
    with pytest.raises(FloatingPointError, match="TACT, stage functional"):
        STAGE.apply(trace_of(row, [0.1]))


# -------------------------------------------------------------------------------------------------------------- signals


def test_signals_by_hand(worlds: Any, make: Any) -> None:
    """One requirement; endpoints of cosine .9 and .4 without arguments: F = .9 - .3. A bare tool: 0, and its cosine."""
    from toolshift.views.corpus import build_corpus

    tools = [worlds.Tool("bare", "A", ()), worlds.Tool("x", "A", (worlds.Api("op a"), worlds.Api("op b")))]
    corpus = build_corpus(worlds.records(tools, [worlds.Ask("t", "A", "get rain", (("x",),))]))[0]
    vectors = {"get rain": [1, 0], "op a": [0.9, 0.19**0.5], "op b": [0.4, 0.84**0.5], "bare": [0.6, 0.8], "x": [0, 1]}
    bank, pairs = make.bank(corpus, vectors), make.all_pairs(corpus)
    np.testing.assert_allclose(untrained_match(pairs, bank=bank), [0.0, 0.6], atol=1e-5)
    np.testing.assert_allclose(best_requirement_endpoint_cosine(pairs, bank=bank), [0.6, 0.9], atol=1e-5)


def test_the_match_tells_valid_from_invalid_false_friends_in_the_sample(tmp_path: Path) -> None:
    """AUC over the judgements of the default world, without any training; spelling alone measures likeness."""
    from toolshift.data.adapters.toolbench import read
    from toolshift.data.sample import Spec, read_truth, write_sample
    from toolshift.text.hashing import Hashing
    from toolshift.views.corpus import build_corpus

    root = write_sample(tmp_path, Spec(world="default", size="tiny")).root
    corpus, _ = build_corpus(read(root, strict=True))
    task = {name: i for i, name in enumerate(corpus.task_ids)}
    tool = {name: i for i, name in enumerate(corpus.capability_ids)}
    judged: dict[tuple[int, int], bool] = {}
    for row in read_truth(root).judgements.to_pylist():
        key = task[row["task_id"]], tool[row["capability_id"]]
        judged[key] = judged.get(key, False) or row["functional"]
    encoder = Hashing(dim=128)

    class Memory:
        def __init__(self) -> None:
            self.known: dict[str, Any] = {}

        def ensure(self, texts: Any) -> None:
            new = sorted(set(texts) - set(self.known))
            self.known |= dict(zip(new, encoder.encode(new), strict=True))

        def rows(self, texts: Any) -> Any:
            self.ensure(texts)
            return np.stack([self.known[text] for text in texts]) if len(texts) else encoder.encode([])

    cache: Any = Memory()
    never: Any = None
    bank = FeatureBank(
        corpus=corpus,
        cache=cache,
        task_vectors=cache.rows(corpus.task_texts),
        capability_vectors=cache.rows(corpus.capability_texts),
        bm25_index=never,
    )
    keys = [key for key in sorted(judged) if key[0] % 4 == 0]
    pairs = Pairs(task=np.array([t for t, _ in keys]), capability=np.array([c for _, c in keys]))
    valid = np.array([judged[k] for k in keys])
    match, cosine = untrained_match(pairs, bank=bank), bank.cosine(pairs)
    assert min(valid.sum(), (~valid).sum()) > 30
    assert auc(match, valid) > 0.55
    assert auc(match, valid) > auc(cosine, valid)


def auc(values: Any, valid: Any) -> float:
    """Probability that a valid pair stands above an invalid one, ties half."""
    gap = values[valid][:, None] - values[~valid][None, :]
    return float((gap > 0).mean() + 0.5 * (gap == 0).mean())

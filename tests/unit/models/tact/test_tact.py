"""TACT as a whole: fall-backs to the bit, bounds, isolation, determinism, shared fits, bad input."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolshift.models.base import BadParameter, Limits, Source, Staged
from toolshift.models.features import FeatureBank, UnknownSpace
from toolshift.models.frozen.semantic_cosine import SemanticCosine
from toolshift.models.steps import Stepwise
from toolshift.models.tact.path import Path
from toolshift.models.tact.tact import Tact
from toolshift.selection.nested import Budget
from toolshift.selection.staged import StagedChoice, refit_stages, select_stages

TARGET = "D1"
OFF = {"beta_relation": 0.0, "beta_functional": 0.0, "beta_contextual": 0.0}
STRENGTHS = {"beta_relation": 0.1, "beta_functional": 0.2, "beta_contextual": 0.2}
BUDGET = Budget(name="b", folds=3, settings=None, max_tasks=25, validation_tasks=8, epochs=2, every_seed=False)
GRID: Mapping[str, Any] = {name: (0.0, strength) for name, strength in STRENGTHS.items()}


def scores(path: Path, stages: Any, bank: FeatureBank) -> Any:
    return path.score(stages.pairs(), bank=bank, seed=0)


def names(path: Path) -> list[str]:
    return [stage.name for stage in path.stages]


# ----------------------------------------------------------------------------------------------------------- fall-backs


def test_all_strengths_zero_is_semantic_cosine_bit_for_bit(stages: Any, shared_source: Any, shared_bank: Any) -> None:
    path = stages.fit(stages.model(**OFF), shared_source, bank=shared_bank)
    assert path.stages == ()
    expected = SemanticCosine().score(stages.pairs(), bank=stages.world.bank(), seed=0)
    np.testing.assert_array_equal(scores(path, stages, shared_bank), expected)
    assert path.state() == {}


@pytest.mark.parametrize("off", sorted(OFF))
def test_a_stage_of_strength_zero_is_the_path_before_it(
    stages: Any, shared_source: Any, shared_bank: Any, off: str
) -> None:
    """Neither in the path nor felt by it: as if the stage had never been asked for."""
    stage = off.removeprefix("beta_")
    kept = [name for name in Tact.stages if name != stage]
    without = stages.fit(stages.model(**{off: 0.0}), shared_source, bank=shared_bank)
    skipped = stages.fit(stages.model(), shared_source, bank=shared_bank, stages=kept)
    assert stage not in names(without)
    assert names(without) == [name for name in names(skipped) if name != stage]
    np.testing.assert_array_equal(scores(without, stages, shared_bank), scores(skipped, stages, shared_bank))


def test_a_stage_that_is_off_yields_the_path_itself(stages: Any, shared_source: Any, shared_bank: Any) -> None:
    fit = stages.model().begin(shared_source, bank=shared_bank, seed=42, limits=Limits(epochs=2, max_tasks=None))
    found = list(fit.epochs("relation", [{"beta_relation": 0.0}, {"beta_relation": 0.1}], epochs=3))
    assert len(found) == 3
    assert all(off is fit.scorer for off, _ in found)
    assert len({id(on) for _, on in found}) == 3
    assert list(fit.epochs("relation", [{"beta_relation": 0.0}], epochs=3)) == [(fit.scorer,)]


def test_gates_without_a_correction_are_no_stage(stages: Any, shared_source: Any, shared_bank: Any) -> None:
    path = stages.fit(stages.model(beta_functional=0.0, beta_contextual=0.0), shared_source, bank=shared_bank)
    assert names(path) == ["relation"]


# --------------------------------------------------------------------------------------------------------- whole scorer


def test_the_stages_stand_in_their_order(whole: Path) -> None:
    assert names(whole) == ["relation", "functional", "contextual", "fusion"]
    assert set(whole.record) == set(names(whole))
    assert whole.contexts_seen == ("D0", "D2", "D3")
    assert all(np.isfinite(value).all() for value in whole.state().values())


def test_bounds_of_every_step(stages: Any, whole: Path, shared_bank: Any) -> None:
    trace = whole.trace(stages.pairs(), bank=shared_bank)
    assert np.abs(trace.related - trace.anchor).max() <= 0.1
    assert np.abs(trace.functional_estimate - trace.related).max() <= 0.2
    assert np.abs(trace.score - trace.functional_estimate).max() <= 0.2
    for before, after in ((trace.anchor, trace.related), (trace.related, trace.functional_estimate)):
        assert (before != after).any()
    assert trace.contextual is not None
    known = np.isin(trace.pairs.capability, np.flatnonzero(stages.source().fold.source_records))
    np.testing.assert_array_equal(trace.score[~known], trace.functional_estimate[~known])
    assert (trace.score != trace.functional_estimate).any()


@settings(max_examples=40)
@given(data=st.data())
def test_a_score_has_the_same_bits_in_every_view(stages: Any, whole: Path, shared_bank: Any, data: Any) -> None:
    """Pointwise: any part of the pairs, under a bank that has scored nothing else, alone or among others."""
    pairs = stages.pairs()
    everything = whole.score(pairs, bank=shared_bank, seed=0)
    index = np.array(sorted(data.draw(st.sets(st.integers(0, len(pairs) - 1), min_size=1, max_size=9))))
    np.testing.assert_array_equal(whole.score(pairs.take(index), bank=shared_bank, seed=1), everything[index])


def test_a_score_has_the_same_bits_under_a_fresh_bank(stages: Any, whole: Path, shared_bank: Any) -> None:
    pairs = stages.pairs()
    everything = whole.score(pairs, bank=shared_bank, seed=0)
    for index in ([3], [0, 17, 400], list(range(200, 263))):
        alone = whole.score(pairs.take(np.array(index)), bank=stages.world.bank(), seed=0)
        np.testing.assert_array_equal(alone, everything[index])


def test_the_lists_of_every_view_agree(stages: Any, whole: Path, shared_source: Source, shared_bank: Any) -> None:
    from toolshift.models.features import Pairs

    seen: dict[tuple[int, int], float] = {}
    shared = 0
    for manifest in shared_source.manifests.values():
        pairs = Pairs(task=manifest.task_of, capability=manifest.capability)
        values = whole.score(pairs, bank=shared_bank, seed=0)
        for t, c, value in zip(pairs.task.tolist(), pairs.capability.tolist(), values.tolist(), strict=True):
            shared += (t, c) in seen
            assert seen.setdefault((t, c), value) == value
    assert shared > 100


def test_the_steps_add_up_to_the_score(stages: Any, whole: Path, shared_bank: Any) -> None:
    pairs = stages.pairs()
    trace, steps = whole.trace(pairs, bank=shared_bank), whole.steps(pairs, bank=shared_bank)
    assert isinstance(whole, Stepwise)
    assert [step.stage for step in steps] == [n for n in names(whole) if n in ("relation", "functional", "contextual")]
    np.testing.assert_allclose(trace.anchor + sum(step.added for step in steps), trace.score, atol=1e-12)
    for step in steps:
        assert np.abs(step.added).max() > 0
        assert (np.abs(step.added) <= np.abs(step.correction)).all()
        np.testing.assert_allclose(step.without + step.added, trace.score, atol=1e-12)
    np.testing.assert_array_equal(steps[-1].without, trace.functional_estimate)


def test_the_anchor_alone_has_no_step(stages: Any, shared_source: Any, shared_bank: Any) -> None:
    path = stages.fit(stages.model(), shared_source, bank=shared_bank, stages=())
    assert path.steps(stages.pairs(), bank=shared_bank) == ()


def test_a_copied_endpoint_changes_no_score(worlds: Any, stages: Any) -> None:
    records = worlds.fixed()
    first = records.library.endpoints[0]
    copy = replace(first, endpoint_id=f"{first.endpoint_id} again")
    endpoints = tuple(sorted([*records.library.endpoints, copy], key=lambda e: e.endpoint_id))
    copied = replace(records, library=replace(records.library, endpoints=endpoints))
    found = []
    for some in (records, copied):
        world = worlds.of(some, top=12)
        bank = world.bank()
        path = stages.fit(stages.model(), stages.source(world=world), bank=bank, epochs=1)
        found.append(path.score(stages.pairs(world), bank=bank, seed=0))
    np.testing.assert_array_equal(*found)


def test_no_score_of_a_known_list_depends_on_what_was_scored_before(
    stages: Any, shared_source: Any, shared_bank: Any
) -> None:
    """The path keeps the trace of the last pairs; other pairs of the same number must not get it."""
    path = stages.fit(stages.model(), shared_source, bank=shared_bank, epochs=1)
    pairs = stages.pairs()
    one, other = pairs.take(slice(0, 20)), pairs.take(slice(20, 40))
    first = path.score(one, bank=shared_bank, seed=0)
    second = path.score(other, bank=shared_bank, seed=0)
    np.testing.assert_array_equal(path.score(one, bank=shared_bank, seed=0), first)
    assert (first != second).any()


def test_one_source_under_two_banks(stages: Any, shared_source: Any) -> None:
    """What a source remembers belongs to the bank it was made with: a second encoder must not get the first one's."""
    source = stages.source()
    bank, other = stages.world.bank(), stages.world.bank()
    order = np.random.default_rng(0).permutation(bank.task_vectors.shape[1])
    other.task_vectors = other.task_vectors[:, order]
    found = [stages.fit(stages.model(**OFF), source, bank=b) for b in (bank, other)]
    fresh = stages.fit(stages.model(beta_contextual=0.0), stages.source(), bank=other)
    second = stages.fit(stages.model(beta_contextual=0.0), source, bank=other)
    assert stages.equal(second, fresh)
    assert found[0] is not found[1]


# ----------------------------------------------------------------------------------------------------------- parameters

WRONG = [
    {"composition": "best"},
    {"denominator": "larger"},
    {"empty_arguments": "none"},
    {"reference": "curve"},
    {"prototype_kind": "means"},
    {"lookup": "name"},
    {"context_signal": "noise"},
    {"gates": "yes"},
    {"temperature": 0.0},
    {"routing_temperature": -0.1},
    {"prototypes": 0},
    {"relation_rank": 0},
    {"beta_relation": -0.1},
    {"beta_functional": -0.1},
    {"beta_contextual": -0.1},
    {"batch_tasks": 0},
    {"max_epochs": 0},
    {"cross_fit": 0},
    {"prior": -1.0},
    {"support": -1.0},
    {"set_weight": -0.5},
    {"neutral_weight": -1.0},
    {"relation_penalty": -0.1},
]


@pytest.mark.parametrize("wrong", WRONG, ids=lambda w: next(iter(w)))
def test_a_wrong_value_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(BadParameter, match="tact: "):
        Tact(**wrong)
    with pytest.raises(BadParameter):
        Tact().with_setting(wrong)


@pytest.mark.parametrize("name", ["space", "anchor_space"])
def test_an_unknown_space_is_refused(name: str) -> None:
    with pytest.raises(UnknownSpace, match=rf"tact \({name}\): space='flat'"):
        Tact(**{name: "flat"})


@pytest.mark.parametrize("signal", ["presence", "popularity"])
def test_a_control_may_be_negative(signal: str) -> None:
    assert Tact(context_signal=signal, beta_contextual=-0.4).beta_contextual == -0.4


def test_what_counts_against_a_budget() -> None:
    model = Tact()
    assert isinstance(model, Staged)
    assert model.is_trained("relation", {"beta_relation": 0.1})
    assert not model.is_trained("relation", {"beta_relation": 0.0})
    assert not model.is_trained("functional", {"beta_functional": 0.0})
    assert model.is_trained("contextual", {"beta_contextual": 0.1})
    assert not model.is_trained("contextual", {"beta_contextual": 0.1, "context_signal": "presence"})
    assert model.is_trained("fusion", {})
    assert not model.is_trained("fusion", {"gates": "none"})


def test_every_parameter_belongs_to_one_stage_at_most() -> None:
    keys = [key for some in Tact.stages.values() for key in some]
    assert len(keys) == len(set(keys))
    assert set(keys) <= set(Tact.__dataclass_fields__)


def test_limits_are_obeyed(stages: Any, shared_source: Any, shared_bank: Any) -> None:
    model = stages.model(max_epochs=2)
    fit = model.begin(shared_source, bank=shared_bank, seed=42, limits=Limits(epochs=9, max_tasks=7, batch_tasks=3))
    assert fit.fold.lists.tasks.size == 7
    assert len(list(fit.epochs("relation", [{}], epochs=9))) == 2


# --------------------------------------------------------------------------------------------------------------- memory


def test_shared_fits_change_nothing(stages: Any) -> None:
    """An ablation after the full model on one object of sources, and alone on a fresh one: the same bits."""
    shared, bank = stages.source(), stages.world.bank()
    stages.fit(stages.model(), shared, bank=bank)
    for off in sorted(OFF):
        model = stages.model(**{off: 0.0})
        after = stages.fit(model, shared, bank=bank)
        alone = stages.fit(model, stages.source(), bank=stages.world.bank())
        assert stages.equal(after, alone), off
        np.testing.assert_array_equal(scores(after, stages, bank), scores(alone, stages, bank))


def test_rows_share_the_fits_they_have_in_common(stages: Any, shared_source: Any, shared_bank: Any) -> None:
    one = stages.fit(stages.model(), shared_source, bank=shared_bank)
    other = stages.fit(stages.model(beta_contextual=0.0), shared_source, bank=shared_bank)
    assert one.stages[:2] == other.stages[:2]
    assert one.stages[1] is other.stages[1]


def test_two_runs_give_the_same_bits(stages: Any, whole: Path, shared_bank: Any) -> None:
    again = stages.fit(stages.model(), stages.source(), bank=stages.world.bank(), epochs=3)
    assert stages.equal(whole, again)
    np.testing.assert_array_equal(scores(whole, stages, shared_bank), scores(again, stages, shared_bank))
    other = stages.fit(stages.model(), stages.source(), bank=stages.world.bank(), epochs=3, seed=43)
    assert not stages.equal(whole, other)


# ------------------------------------------------------------------------------------------------------------ isolation


def trained(world: Any, source: Source, stages: Any) -> Mapping[str, Any]:
    """All that is left of selection and refit, and the scores of one fixed list of pairs."""
    bank, model = world.bank(), stages.model()
    choice = select_stages(model, source, grid=GRID, bank=bank, budget=BUDGET, seed=42)
    fitted: Any = refit_stages(model, source, bank=bank, choice=choice, budget=BUDGET, seed=42)
    full = stages.fit(model, source, bank=bank)
    return {
        "manifests": {v: world.readable(m) for v, m in source.manifests.items()},
        "choice": choice.record,
        "states": [{key: value.tolist() for key, value in f.state().items()} for f in (fitted, full)],
        "scores": [f.score(stages.pairs(world), bank=bank, seed=42).tolist() for f in (fitted, full)],
        "seen": fitted.contexts_seen,
    }


@pytest.fixture(scope="module")
def as_labelled(worlds: Any, stages: Any) -> Mapping[str, Any]:
    world = worlds.of(worlds.fixed(), top=12)
    return trained(world, stages.source(world=world), stages)


@pytest.mark.parametrize("how", ["permuted", "replaced"])
def test_other_labels_of_the_target_change_nothing(worlds: Any, stages: Any, as_labelled: Any, how: str) -> None:
    world = worlds.of(worlds.relabelled(worlds.fixed(), TARGET, how=how), top=12)
    assert trained(world, stages.source(world=world), stages) == as_labelled
    assert TARGET not in as_labelled["seen"]


def test_other_labels_of_a_source_change_the_fit(worlds: Any, stages: Any, as_labelled: Any) -> None:
    """Or the test above would see nothing."""
    world = worlds.of(worlds.relabelled(worlds.fixed(), "D2", how="permuted"), top=12)
    found = trained(world, stages.source(world=world), stages)
    assert found["choice"]["stages"] != as_labelled["choice"]["stages"]
    for full, other in zip(found["states"][1].items(), as_labelled["states"][1].items(), strict=True):
        assert full[0] == other[0]
    assert found["states"][1] != as_labelled["states"][1]
    assert found["scores"] != as_labelled["scores"]


def test_selection_repeats(stages: Any, as_labelled: Any, worlds: Any) -> None:
    world = worlds.of(worlds.fixed(), top=12)
    assert trained(world, stages.source(world=world), stages) == as_labelled


@pytest.mark.parametrize("how", ["permuted", "replaced"])
def test_a_fit_without_a_context_does_not_know_its_labels(worlds: Any, stages: Any, how: str) -> None:
    states = []
    for some in (worlds.fixed(), worlds.relabelled(worlds.fixed(), "D2", how=how)):
        world = worlds.of(some, top=12)
        path = stages.fit(stages.model(), stages.source(world=world).without(("D2",)), bank=world.bank())
        assert path.contexts_seen == ("D0", "D3")
        states.append({key: value.tolist() for key, value in path.state().items()})
    assert states[0] == states[1]
    assert states[0]


def test_cross_fitted_evidence_does_not_know_the_own_context(worlds: Any, stages: Any) -> None:
    """The look-up over the whole path: what a task of D2 is trained on has none of D2's records."""
    source = stages.source()
    path = stages.fit(stages.model(cross_fit=3), source, bank=stages.world.bank(), epochs=1)
    fit: Any = stages.model().begin(source, bank=stages.world.bank(), seed=42, limits=Limits(epochs=1, max_tasks=None))
    found = fit.fold.cross_fitted(path.stages[2].settings.profiles, count=3)
    own = source.gold_by_context[source.context_of[fit.fold.lists.pairs.task], fit.fold.lists.pairs.capability]
    others = source.fold.source_records[fit.fold.lists.pairs.capability] - own
    np.testing.assert_array_equal(found.known, others > 0)
    assert (own > 0).any()


def test_the_grid_of_a_control(stages: Any, shared_source: Any, shared_bank: Any) -> None:
    """The better of presence and popularity, signed; nothing is trained for it."""
    grid = {**OFF_GRID, "context_signal": ("presence", "popularity"), "beta_contextual": (0.0, -0.4, 0.4)}
    model = stages.model(gates="none")
    choice = select_stages(model, shared_source, grid=grid, bank=shared_bank, budget=BUDGET, seed=42)
    contextual = next(stage for stage in choice.stages if stage.stage == "contextual")
    assert len(contextual.grid) == 6
    path = refit_stages(model, shared_source, bank=shared_bank, choice=choice, budget=BUDGET, seed=42)
    assert isinstance(choice, StagedChoice)
    assert np.isfinite(path.score(stages.pairs(), bank=shared_bank, seed=0)).all()


OFF_GRID: Mapping[str, Any] = {"beta_relation": (0.0,), "beta_functional": (0.0,)}


# ------------------------------------------------------------------------------------------------------------ bad input


@pytest.fixture
def poor(worlds: Any) -> Any:
    """Tools without endpoints or arguments, tasks without a verb, equal tools."""
    Tool, Api, Ask = worlds.Tool, worlds.Api, worlds.Ask
    tools = [Tool("bare", "A", (), "same words"), Tool("bare2", "A", (), "same words")]
    tools += [Tool("plain", "A", (Api("get rain"),), "rain"), Tool("unit", "B", (Api("get snow", ("unit",)),), "snow")]
    tools += [Tool("full", "B", (Api("get hail", ("city", "date")),), "hail"), Tool("far", "C", (), "wind")]
    golds = {"A0": "bare", "A1": "plain", "B0": "unit", "B1": "full", "C0": "far", "C1": "bare"}
    texts = ["!!!", "rain", "get snow", "get hail in Oslo", "wind", "same words"]
    asks = [
        Ask(name, name[0], text, ((gold,),), ("plain", "full", "unit"))
        for (name, gold), text in zip(golds.items(), texts, strict=True)
    ]
    return worlds.of(worlds.records(tools, asks))


@pytest.mark.parametrize("lookup", ["id", "similarity", "both"])
@pytest.mark.parametrize("space", ["raw", "aligned"])
@pytest.mark.parametrize("kind", ["kmeans", "contexts"])
def test_poor_data_gives_finite_scores(poor: Any, stages: Any, kind: str, space: str, lookup: str) -> None:
    source = stages.make.source(poor, stages.worlds.Rules(universe="library"), target="C")
    model = stages.model(lookup=lookup, space=space, prototype_kind=kind)
    path = stages.fit(model, source, bank=poor.bank(), epochs=3)
    values = path.score(stages.pairs(poor), bank=poor.bank(), seed=0)
    assert np.isfinite(values).all()
    assert all(np.isfinite(value).all() for value in path.state().values())


@pytest.mark.parametrize("lookup", ["id", "similarity"])
def test_one_source_context(stages: Any, lookup: str) -> None:
    source, bank = stages.source().without(("D2", "D3")), stages.world.bank()
    path = stages.fit(stages.model(lookup=lookup), source, bank=bank)
    assert path.contexts_seen == ("D0",)
    trace = path.trace(stages.pairs(), bank=bank)
    assert np.isfinite(trace.score).all()
    np.testing.assert_array_equal(trace.score, trace.functional_estimate)


def test_lists_without_a_hard_candidate(stages: Any, shared_source: Any, shared_bank: Any) -> None:
    natural = stages.with_lists(shared_source, {"natural": shared_source.manifests["natural"]})
    path = stages.fit(stages.model(), natural, bank=shared_bank)
    assert np.isfinite(scores(path, stages, shared_bank)).all()


def test_constant_scores(stages: Any, shared_source: Any) -> None:
    """Every text has the same vector."""
    bank = stages.world.bank()
    one = np.zeros_like(bank.task_vectors)
    one[:, 0] = 1.0
    bank.task_vectors, bank.capability_vectors = one, one[: bank.capability_vectors.shape[0]]

    class Same:
        encoder = bank.cache.encoder

        def rows(self, texts: Any) -> Any:
            return np.tile(one[:1], (len(texts), 1))

        def ensure(self, texts: Any) -> None:
            del texts

    same: Any = Same()
    bank.cache = same
    path = stages.fit(stages.model(), shared_source, bank=bank, epochs=3)
    assert np.isfinite(scores(path, stages, bank)).all()


def test_no_list_at_all_leaves_the_anchor(stages: Any, shared_source: Any, shared_bank: Any) -> None:
    empty = {view: m.restrict(np.zeros(m.tasks.size, bool)) for view, m in shared_source.manifests.items()}
    path = stages.fit(stages.model(), stages.with_lists(shared_source, empty), bank=shared_bank)
    assert path.stages == ()


# ------------------------------------------------------------------------------------------------- what is not a number


def without_a_task(bank: FeatureBank) -> FeatureBank:
    """The vector of the first task is lost."""
    bank.task_vectors = bank.task_vectors.copy()
    bank.task_vectors[0] = np.nan
    return bank


def without_an_endpoint(bank: FeatureBank) -> FeatureBank:
    """The vector of the first endpoint is lost."""
    cache: Any = bank.cache
    rows, lost = cache.rows, bank.corpus.endpoints[0].text
    cache.rows = lambda texts: rows(texts) * np.where([t == lost for t in texts], np.nan, 1.0)[:, None]
    return bank


def test_a_task_vector_that_is_not_a_number_names_the_anchor(stages: Any, whole: Path) -> None:
    bank = without_a_task(stages.world.bank())
    with pytest.raises(FloatingPointError, match=r"TACT, stage anchor: 28 of 1120 scores are not finite"):
        whole.score(stages.pairs(), bank=bank, seed=0)


@pytest.mark.filterwarnings("ignore:invalid value")
def test_an_endpoint_that_is_not_a_number_names_the_functional_stage(stages: Any, whole: Path) -> None:
    with pytest.raises(FloatingPointError, match="TACT, stage functional"):
        whole.score(stages.pairs(), bank=without_an_endpoint(stages.world.bank()), seed=0)


@pytest.mark.parametrize(
    ("place", "change", "stage"),
    [
        (0, {"weights": np.full(6, np.nan, np.float32)}, "relation"),
        (1, {"intercept": np.nan}, "functional"),
        (2, {"scale": np.nan}, "contextual"),
        (3, {"functional": np.full(3, np.nan)}, "functional"),
        (3, {"contextual": np.full(4, np.nan)}, "contextual, fusion"),
    ],
)
def test_a_parameter_that_is_not_a_number_names_its_stage(
    stages: Any, whole: Path, shared_bank: Any, place: int, change: dict[str, Any], stage: str
) -> None:
    path = Path(space="raw", contexts_seen=())
    for number, fitted in enumerate(whole.stages):
        some: Any = fitted
        path = path.then(replace(some, **change) if number == place else some)
    with pytest.raises(FloatingPointError, match=f"TACT, stage {stage}"):
        path.score(stages.pairs(), bank=shared_bank, seed=0)


def test_a_fit_on_a_vector_that_is_not_a_number_names_the_stage(stages: Any) -> None:
    bank = without_a_task(stages.world.bank())
    with pytest.raises(FloatingPointError, match="TACT, stage relation, epoch 1"):
        stages.fit(stages.model(), stages.source(), bank=bank)

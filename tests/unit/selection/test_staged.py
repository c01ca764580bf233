"""Stage-wise selection: one stage after another, the rule of choice, the refit; with models written out by hand."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import pytest

from toolshift.models.base import Limits, Source, Staged
from toolshift.models.features import Pairs
from toolshift.selection import staged
from toolshift.selection.nested import CONVERGED_WITHIN, Budget, SelectionError, inner_folds
from toolshift.selection.staged import StagedChoice, affordable, refit_stages, select_stages, stage_grids

CONTEXTS = ("D0", "D2", "D3")
DOMAINS = ("D0", "D1", "D2", "D3")
BANK: Any = object()  # the fakes below read no feature
ONE = Pairs(task=np.zeros(1, np.int64), capability=np.zeros(1, np.int64))


def budget(**change: Any) -> Budget:
    given = {"folds": 3, "settings": None, "max_tasks": 9, "validation_tasks": 7, "epochs": 3, "every_seed": False}
    return Budget(name="test", **{**given, **change})


@dataclass(frozen=True, eq=False)
class FakeScorer:
    """What was fitted, stage by stage, and what it is worth."""

    steps: tuple[str, ...]
    worth: float
    contexts_seen: tuple[str, ...]
    record: Mapping[str, Any] = field(default_factory=dict)

    def score(self, pairs: Pairs, *, bank: Any, seed: int) -> Any:
        return np.full(len(pairs), self.worth)


@dataclass
class Log:
    """Every stage fit: (stage, settings, steps before it, contexts, seed, epochs)."""

    fits: list[tuple[str, list[Any], tuple[str, ...], tuple[str, ...], int, int]] = field(default_factory=list)
    valued: list[tuple[tuple[str, ...], int | None]] = field(default_factory=list)


@dataclass(frozen=True)
class FakeFit:
    """``gains``: stage -> value -> gains after each epoch, or context held out -> gains; 0 is a stage that is off."""

    model: FakeStaged
    scorer: FakeScorer
    seed: int

    def epochs(self, stage: str, settings: Sequence[Mapping[str, Any]], *, epochs: int) -> Iterator[tuple[Any, ...]]:
        (key,) = self.model.stages[stage][:1]
        seen = self.scorer.contexts_seen
        asked = [s.get(key, self.model.default) for s in settings]
        self.model.log.fits.append((stage, asked, self.scorer.steps, seen, self.seed, epochs))
        (held_out, *_) = [*(c for c in CONTEXTS if c not in seen), "all"]
        last = [self.scorer] * len(settings)
        for epoch in range(epochs):
            for place, value in enumerate(asked):
                gains = self.model.gains[stage].get(value, [])
                gains = gains.get(held_out, [0.0]) if isinstance(gains, Mapping) else gains
                if value and epoch < len(gains):
                    step = f"{stage}={value}@{epoch + 1}"
                    last[place] = FakeScorer((*self.scorer.steps, step), self.scorer.worth + gains[epoch], seen)
            yield tuple(last)

    def extended(self, scorer: Any) -> FakeFit:
        return replace(self, scorer=scorer)


@dataclass(frozen=True)
class FakeStaged:
    """Two stages; the parameter of each is its strength."""

    gains: Mapping[str, Mapping[Any, Any]]
    log: Log = field(default_factory=Log)
    leak: bool = False
    default: float = 0.0
    stages: ClassVar[Mapping[str, Sequence[str]]] = {"first": ("a",), "second": ("b", "form")}

    def begin(self, source: Source, *, bank: Any, seed: int, limits: Limits) -> FakeFit:
        seen = CONTEXTS if self.leak else source.contexts
        return FakeFit(self, FakeScorer((), 0.5, seen), seed)

    def is_trained(self, stage: str, setting: Mapping[str, Any]) -> bool:
        return bool(setting.get(self.stages[stage][0]))


@pytest.fixture
def source(fixed_world: Any, worlds: Any) -> Source:
    """D1 held out; three source contexts."""
    corpus = fixed_world.corpus
    rows = np.flatnonzero(corpus.task_domain != corpus.domains.index("D1"))
    context_of = np.full(corpus.n_tasks, -1, np.int64)
    context_of[rows] = corpus.task_domain[rows]
    return Source(
        target="D1",
        held_out=("D1",),
        fold=fixed_world.fold(worlds.Rules(length=8, hard=4), rows=rows),
        contexts=CONTEXTS,
        context_names=DOMAINS,
        context_of=context_of,
        build=fixed_world.manifests,
    )


@pytest.fixture(autouse=True)
def valued(monkeypatch: pytest.MonkeyPatch) -> list[tuple[tuple[str, ...], int | None, float]]:
    """The value of a scorer is what it is worth; returns (contexts, cap, value) of every valuation."""
    asked: list[tuple[tuple[str, ...], int | None, float]] = []

    def value(held_out: Source, score: Any, *, max_tasks: int | None = None) -> float:
        found = float(score(ONE)[0])
        asked.append((held_out.contexts, max_tasks, found))
        return found

    monkeypatch.setattr(staged, "source_value", value)
    return asked


def run(model: FakeStaged, source: Source, *, grid: Mapping[str, Sequence[Any]] | None = None, **change: Any) -> Any:
    grid = grid or {"a": list(model.gains["first"]), "b": list(model.gains["second"])}
    return select_stages(model, source, grid=grid, bank=BANK, budget=budget(**change), seed=42)


SIMPLE = {"first": {0: [], 1: [0.1, 0.2], 2: [0.15, 0.1]}, "second": {0: [], 5: [0.0, 0.05], 6: [-0.1]}}


def test_the_fake_is_a_staged_model() -> None:
    assert isinstance(FakeStaged(SIMPLE), Staged)


# ------------------------------------------------------------------------------------------------------------- the grid


def test_a_grid_is_cut_by_stage() -> None:
    found = stage_grids(FakeStaged(SIMPLE), {"b": [0, 1], "a": [0], "form": ["x", "y"]})
    assert list(found) == ["first", "second"]
    assert found["first"] == [{"a": 0}]
    assert found["second"] == [{"b": b, "form": f} for b in (0, 1) for f in ("x", "y")]


def test_a_stage_without_a_grid_has_the_configured_setting() -> None:
    assert stage_grids(FakeStaged(SIMPLE), {"a": [0, 1]})["second"] == [{}]


def test_a_key_of_no_stage_is_refused(source: Source) -> None:
    with pytest.raises(SelectionError, match="grid key 'c' belongs to no stage; expected one of a, b, form"):
        run(FakeStaged(SIMPLE), source, grid={"a": [0], "c": [1], "z": [1]})


@pytest.mark.parametrize(
    ("count", "kept"),
    [(None, [0, 1, 2, 3, 4]), (9, [0, 1, 2, 3, 4]), (3, [0, 1, 4]), (2, [0, 4]), (1, [0, 4]), (4, [0, 1, 3, 4])],
)
def test_a_capped_grid_keeps_the_stage_switched_off(count: int | None, kept: list[int]) -> None:
    """The free setting counts as one; of four costly ones as many as are left, the ends first, never none, and the
    strongest where there is room for one."""
    found = affordable(FakeStaged(SIMPLE), "first", [{"a": i} for i in range(5)], count=count)
    assert [s["a"] for s in found] == kept


def test_a_grid_of_nothing_costly_is_kept_whole() -> None:
    settings = [{"b": 0, "form": f} for f in "xyz"]
    assert affordable(FakeStaged(SIMPLE), "second", settings, count=1) == settings


# ----------------------------------------------------------------------------------------------------------- the choice


def test_stages_are_chosen_one_after_another(source: Source) -> None:
    """First a = 1 (.2 in its second epoch beats .15), then b = 5 on top of a = 1 after two epochs."""
    model = FakeStaged(SIMPLE)
    choice = run(model, source)
    assert [(s.stage, dict(s.setting), s.epochs) for s in choice.stages] == [
        ("first", {"a": 1}, 2),
        ("second", {"b": 5}, 2),
    ]
    assert [fit[0] for fit in model.log.fits] == ["first"] * 3 + ["second"] * 3
    assert all(fit[2] == ("first=1@2",) for fit in model.log.fits[3:])
    assert choice.folds == inner_folds(CONTEXTS, 3)
    assert all(len(fit[3]) == 2 and fit[4] == 42 and fit[5] == 3 for fit in model.log.fits)


def test_every_fold_goes_on_with_what_was_chosen_over_all_folds(source: Source) -> None:
    """Setting 1 is best in one fold, setting 2 on average; the median best epoch of 2 is the second."""
    by_fold = {1: {"D0": [0.3], "D2": [0.0], "D3": [0.0]}}
    by_fold[2] = {"D0": [0.2, 0.1, 0.1], "D2": [0.1, 0.2, 0.1], "D3": [0.1, 0.15, 0.2]}
    model = FakeStaged({"first": {0: [], **by_fold}, "second": {0: []}})
    choice = run(model, source)
    assert dict(choice.stages[0].setting) == {"a": 2}
    assert choice.stages[0].epochs == 2
    assert {fit[2] for fit in model.log.fits if fit[0] == "second"} == {("first=2@2",)}


def test_a_fold_with_fewer_epochs_goes_on_with_its_last(source: Source) -> None:
    by_fold = {"D0": [0.1, 0.2, 0.3], "D2": [0.1, 0.2, 0.3], "D3": [0.4]}
    model = FakeStaged({"first": {0: [], 1: by_fold}, "second": {0: []}})
    assert run(model, source).stages[0].epochs == 3
    before = {fit[3]: fit[2] for fit in model.log.fits if fit[0] == "second"}
    assert before[("D0", "D2")] == ("first=1@1",)
    assert before[("D0", "D3")] == before[("D2", "D3")] == ("first=1@3",)


def test_ties_go_to_the_smaller_strength_and_the_earlier_epoch(source: Source) -> None:
    model = FakeStaged({"first": {0: [], 1: [0.0, 0.0]}, "second": {0: [], 1: [0.1, 0.1 + 1e-12], 2: [0.1 + 1e-12]}})
    choice = run(model, source)
    assert [(dict(s.setting), s.epochs) for s in choice.stages] == [({"a": 0}, 1), ({"b": 1}, 1)]


def test_a_stage_that_only_harms_is_switched_off(source: Source) -> None:
    model = FakeStaged({"first": {0: [], 1: [-0.1, -0.2]}, "second": {0: [], 1: [-0.3]}})
    choice = run(model, source)
    assert choice.record["choice"] == {"a": 0, "b": 0}
    final = refit_stages(model, source, bank=BANK, choice=choice, budget=budget(), seed=42)
    assert isinstance(final, FakeScorer)
    assert final.steps == ()
    assert final.worth == 0.5


def test_what_a_stage_leaves_as_it_is_is_valued_once(source: Source, valued: Any) -> None:
    """Three folds: the start, and two epochs of the one setting that trains."""
    run(FakeStaged({"first": {0: [], 1: [0.1, 0.2]}, "second": {0: []}}), source)
    assert len(valued) == 3 * 3
    assert {cap for _, cap, _ in valued} == {7}
    assert sorted({contexts for contexts, _, _ in valued}) == [("D0",), ("D2",), ("D3",)]


def test_the_target_is_never_looked_at(source: Source, valued: Any) -> None:
    model = FakeStaged(SIMPLE)
    run(model, source)
    assert all("D1" not in contexts for contexts, _, _ in valued)
    assert all("D1" not in fit[3] for fit in model.log.fits)


def test_a_scorer_that_saw_the_fold_is_refused(source: Source) -> None:
    with pytest.raises(AssertionError, match=r"inner fold contexts \['D\d'\] were seen while fitting"):
        run(FakeStaged(SIMPLE, leak=True), source)


def test_one_context_cannot_be_held_out(source: Source) -> None:
    with pytest.raises(SelectionError, match="at least two source contexts"):
        run(FakeStaged(SIMPLE), source.without(("D2", "D3")))


def test_no_lists_no_choice(source: Source) -> None:
    def nothing(fold: Any) -> Any:
        manifests = source.build(fold)
        return {view: m.restrict(np.zeros(m.tasks.size, bool)) for view, m in manifests.items()}

    with pytest.raises(SelectionError, match="target D1: no inner fold has lists on both sides"):
        run(FakeStaged(SIMPLE), replace(source, build=nothing))


def test_a_stage_that_yields_nothing_is_refused(source: Source) -> None:
    with pytest.raises(SelectionError, match="stage first yielded no scorer"):
        run(FakeStaged(SIMPLE), source, epochs=0)


# ----------------------------------------------------------------------------------------------------- refit and record


def test_the_refit_is_on_all_sources_for_the_chosen_epochs(source: Source) -> None:
    model = FakeStaged(SIMPLE)
    choice = run(model, source)
    model.log.fits.clear()
    final = refit_stages(model, source, bank=BANK, choice=choice, budget=budget(), seed=43)
    assert isinstance(final, FakeScorer)
    assert model.log.fits == [
        ("first", [1], (), CONTEXTS, 43, 2),
        ("second", [5], ("first=1@2",), CONTEXTS, 43, 2),
    ]
    assert final.steps == ("first=1@2", "second=5@2")
    assert final.contexts_seen == CONTEXTS


def test_the_record_says_everything(source: Source) -> None:
    choice = run(FakeStaged(SIMPLE), source)
    record = json.loads(json.dumps(choice.record))
    assert record["choice"] == {"a": 1, "b": 5}
    assert record["epochs"] == {"first": 2, "second": 2}
    assert record["selection_seed"] == 42
    assert record["inner_folds"] == [list(f) for f in choice.folds]
    first = record["stages"][0]
    assert first["grid"] == [{"a": 0}, {"a": 1}, {"a": 2}]
    assert [per_fold[0] for per_fold in first["values"]] == [[0.5, 0.5, 0.5], [0.6, 0.7, 0.7], [0.65, 0.6, 0.6]]
    assert all(len(per_fold) == 3 for per_fold in first["values"])


@pytest.mark.parametrize("gain", [CONVERGED_WITHIN / 2, CONVERGED_WITHIN * 2])
def test_a_gain_in_the_last_epoch_is_not_converged(source: Source, gain: float) -> None:
    model = FakeStaged({"first": {0: [], 1: [0.1, 0.2, 0.2 + gain]}, "second": {0: []}})
    choice = run(model, source)
    assert isinstance(choice, StagedChoice)
    assert choice.stages[0].last_gain == pytest.approx(gain)
    assert choice.record["converged"] == (gain < CONVERGED_WITHIN)


def test_the_same_choice_twice(source: Source) -> None:
    assert run(FakeStaged(SIMPLE), source).record == run(FakeStaged(SIMPLE), source).record

"""Inner folds, the rule of choice, the refit: with models whose values are written out by hand."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolshift.models.base import Limits, Source
from toolshift.models.features import Pairs
from toolshift.selection import nested
from toolshift.selection.nested import (
    CONVERGED_WITHIN,
    Budget,
    Choice,
    SelectionError,
    grid_settings,
    inner_folds,
    refit,
    select,
    spread,
)

CONTEXTS = ("D0", "D2", "D3")
DOMAINS = ("D0", "D1", "D2", "D3")
BANK: Any = object()  # the fakes below read no feature


def budget(**change: Any) -> Budget:
    given = {"folds": 3, "settings": None, "max_tasks": 9, "validation_tasks": 7, "epochs": 3, "every_seed": False}
    return Budget(name="test", **{**given, **change})


@dataclass(frozen=True)
class FakeScorer:
    """A scorer that carries what it is worth."""

    value: float
    contexts_seen: tuple[str, ...]
    setting: Mapping[str, Any] = field(default_factory=dict)
    epoch: int = 0
    record: Mapping[str, Any] = field(default_factory=dict)

    def score(self, pairs: Pairs, *, bank: Any, seed: int) -> Any:
        return np.full(len(pairs), self.value)


@dataclass
class Script:
    """Values per setting, then per held-out context, then per epoch; records every fit."""

    values: Mapping[Any, Mapping[str, Sequence[float]]]
    leak: bool = False
    fits: list[tuple[Any, tuple[str, ...], int, Limits]] = field(default_factory=list)

    def build(self, setting: Mapping[str, Any]) -> ScriptedModel:
        return ScriptedModel(self, setting)


@dataclass
class ScriptedModel:
    script: Script
    setting: Mapping[str, Any]

    def epochs(self, source: Source, *, bank: Any, seed: int, limits: Limits) -> Iterator[FakeScorer]:
        key = self.setting["h"]
        self.script.fits.append((key, source.contexts, seed, limits))
        (held_out, *_) = [*(c for c in CONTEXTS if c not in source.contexts), "all"]
        values = self.script.values[key].get(held_out, [0.0] * limits.epochs)
        seen = CONTEXTS if self.script.leak else source.contexts
        for epoch, value in enumerate(values[: limits.epochs]):
            yield FakeScorer(value=value, contexts_seen=seen, setting=self.setting, epoch=epoch)


@pytest.fixture
def source(fixed_world: Any, worlds: Any) -> Source:
    """D1 held out; three source contexts."""
    corpus = fixed_world.corpus
    rows = np.flatnonzero(corpus.task_domain != corpus.domains.index("D1"))
    context_of = np.full(corpus.n_tasks, -1, np.int64)
    context_of[rows] = corpus.task_domain[rows]
    fold = fixed_world.fold(worlds.Rules(length=8, hard=4), rows=rows)
    return Source(
        target="D1",
        held_out=("D1",),
        fold=fold,
        contexts=CONTEXTS,
        context_names=DOMAINS,
        context_of=context_of,
        build=fixed_world.manifests,
    )


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> list[tuple[tuple[str, ...], int | None]]:
    """The value of a scorer is the number it carries; returns (contexts, cap) of every valuation."""
    asked: list[tuple[tuple[str, ...], int | None]] = []

    def value(held_out: Source, score: Any, *, max_tasks: int | None = None) -> float:
        asked.append((held_out.contexts, max_tasks))
        one = Pairs(task=np.zeros(1, np.int64), capability=np.zeros(1, np.int64))
        return float(score(one)[0])

    monkeypatch.setattr(nested, "source_value", value)
    return asked


def run(script: Script, source: Source, **change: Any) -> Choice:
    grid = [{"h": h} for h in script.values]
    return select(script.build, source, grid=grid, bank=BANK, budget=budget(**change), seed=42)


def same(*values: float) -> dict[str, Sequence[float]]:
    """The same values in every fold."""
    return dict.fromkeys(CONTEXTS, values)


# --- inner folds ----------------------------------------------------------------------------------------------------

names = st.lists(st.text(min_size=1, max_size=4), min_size=2, max_size=12, unique=True)


@given(contexts=names, count=st.integers(2, 14), data=st.data())
def test_every_context_is_held_out_once_whatever_the_order(contexts: list[str], count: int, data: Any) -> None:
    folds = inner_folds(contexts, count)
    assert sorted(c for fold in folds for c in fold) == sorted(contexts)
    assert len(folds) == min(count, len(contexts))
    sizes = [len(fold) for fold in folds]
    assert max(sizes) - min(sizes) <= 1
    assert inner_folds(data.draw(st.permutations(contexts)), count) == folds


def test_the_deal_is_frozen() -> None:
    """SHA-256 begins with ca (a), 3e (b), 2e (c), 18 (d), 3f (e): dealt in the order d, c, b, e, a."""
    assert inner_folds(["a", "b", "c", "d", "e"], 2) == (("a", "b", "d"), ("c", "e"))
    assert inner_folds(["a", "b", "c"], 9) == (("c",), ("b",), ("a",))


@pytest.mark.parametrize("contexts", [[], ["only"]])
def test_one_context_cannot_be_held_out(contexts: list[str]) -> None:
    with pytest.raises(SelectionError, match=r"at least two source contexts, got \[.*\]; use a protocol with more"):
        inner_folds(contexts, 3)


# --- the grid -------------------------------------------------------------------------------------------------------


def test_the_first_key_is_the_slowest() -> None:
    assert grid_settings({"b": [0, 1], "a": ["x", "y"]}) == [
        {"b": 0, "a": "x"},
        {"b": 0, "a": "y"},
        {"b": 1, "a": "x"},
        {"b": 1, "a": "y"},
    ]
    assert grid_settings({}) == [{}]


@pytest.mark.parametrize(
    ("size", "count", "places"),
    [
        (5, 3, [0, 2, 4]),
        (5, 2, [0, 4]),
        (5, 1, [0]),
        (9, 4, [0, 3, 5, 8]),
        (3, 3, [0, 1, 2]),
        (2, 3, [0, 1]),
        (4, None, [0, 1, 2, 3]),
    ],
)
def test_a_capped_grid_is_spread_over_the_whole(size: int, count: int | None, places: list[int]) -> None:
    assert spread([{"h": i} for i in range(size)], count) == [{"h": i} for i in places]


@given(size=st.integers(1, 40), count=st.integers(2, 40))
def test_spread_keeps_the_ends_and_the_order(size: int, count: int) -> None:
    kept = [s["h"] for s in spread([{"h": i} for i in range(size)], count)]
    assert kept == sorted(set(kept))
    assert len(kept) == min(size, count)
    assert (kept[0], kept[-1]) == (0, size - 1)
    gaps = np.diff(kept)
    assert gaps.size == 0 or gaps.max() - gaps.min() <= 1


# --- the choice -----------------------------------------------------------------------------------------------------


def test_the_best_mean_over_folds_wins(source: Source, scripted: Any) -> None:
    """Setting 1 is best in one fold (.9), setting 2 on average: (.5 + .6 + .7) / 3 > (.9 + .4 + .4) / 3."""
    script = Script(
        {
            1: {"D0": [0.9], "D2": [0.4], "D3": [0.4]},
            2: {"D0": [0.5], "D2": [0.6], "D3": [0.7]},
        }
    )
    choice = run(script, source)
    assert choice.setting == {"h": 2}
    by_fold = dict(zip(choice.folds, choice.values[1], strict=True))
    assert by_fold == {("D0",): (0.5,), ("D2",): (0.6,), ("D3",): (0.7,)}
    assert choice.grid == ({"h": 1}, {"h": 2})


@pytest.mark.parametrize("gap", [0.0, 1e-11])
def test_ties_go_to_the_smaller_strength(source: Source, scripted: Any, gap: float) -> None:
    assert run(Script({1: same(0.5), 2: same(0.5 + gap), 3: same(0.4)}), source).setting == {"h": 1}


def test_a_real_gain_is_no_tie(source: Source, scripted: Any) -> None:
    assert run(Script({1: same(0.5), 2: same(0.5 + 1e-7)}), source).setting == {"h": 2}


@pytest.mark.parametrize(
    ("values", "epochs"),
    [
        ((0.3, 0.5, 0.5), 2),  # equal: the earlier one
        ((0.5, 0.5 + 1e-11, 0.2), 1),
        ((0.1, 0.2, 0.3), 3),
        ((0.3, 0.2, 0.1), 1),
    ],
)
def test_ties_go_to_the_earlier_epoch(source: Source, scripted: Any, values: tuple[float, ...], epochs: int) -> None:
    assert run(Script({1: same(*values)}), source).epochs == epochs


@pytest.mark.parametrize(("best", "epochs"), [((1, 3, 2), 2), ((3, 3, 1), 3), ((1, 1, 3), 1)])
def test_the_refit_runs_for_the_median_best_epoch(
    source: Source, scripted: Any, best: tuple[int, ...], epochs: int
) -> None:
    values = {c: [float(e + 1 == b) for e in range(3)] for c, b in zip(CONTEXTS, best, strict=True)}
    assert run(Script({1: values}), source).epochs == epochs


def test_of_two_middle_epochs_the_lower_is_taken(source: Source, scripted: Any) -> None:
    """Two folds with best epochs 1 and 3: 1, and not 2, which nobody chose."""
    ((first, *_), *_) = folds = inner_folds(CONTEXTS, 2)
    assert len(folds) == 2
    values = {c: [0.0, 0.0, 1.0] for c in CONTEXTS} | {first: [1.0, 0.0, 0.0]}
    assert run(Script({1: values}), source, folds=2).epochs == 1


def test_a_setting_is_valued_at_its_best_epoch(source: Source, scripted: Any) -> None:
    assert run(Script({1: same(0.6, 0.6, 0.6), 2: same(0.1, 0.7, 0.2)}), source).setting == {"h": 2}


def test_every_fit_is_without_the_fold_and_within_the_budget(source: Source, scripted: Any) -> None:
    script = Script({1: same(0.1), 2: same(0.2)})
    choice = run(script, source)
    without = [tuple(c for c in CONTEXTS if c not in fold) for fold in choice.folds]
    limits = Limits(epochs=3, max_tasks=9)
    assert script.fits == [(h, contexts, 42, limits) for contexts in without for h in (1, 2)]
    assert scripted == [(fold, 7) for fold in choice.folds for _ in (1, 2)]


def test_the_caps_on_a_step_and_the_device_reach_the_fit(source: Source, scripted: Any) -> None:
    script = Script({1: same(0.1)})
    run(script, source, batch_tasks=4, device="meta")
    assert {limits for *_, limits in script.fits} == {Limits(epochs=3, max_tasks=9, batch_tasks=4, device="meta")}


def test_models_that_can_be_are_fitted_together(source: Source, scripted: Any) -> None:
    """One call per fold; each model's values stay its own."""
    script = Script({h: same(h / 10, h / 5) for h in (1, 2, 3)})
    calls: list[int] = []

    class Together(ScriptedModel):
        @staticmethod
        def alike(models: Sequence[Any]) -> bool:
            return True

        @staticmethod
        def together(models: Sequence[Any], source: Source, **rest: Any) -> Iterator[tuple[Any, ...]]:
            calls.append(len(models))
            yield from zip(*(model.epochs(source, **rest) for model in models), strict=True)

    grid = [{"h": h} for h in (1, 2, 3)]
    choice = select(lambda s: Together(script, s), source, grid=grid, bank=BANK, budget=budget(), seed=42)
    assert calls == [3] * len(choice.folds)
    assert choice.values == tuple(((h / 10, h / 5),) * 3 for h in (1, 2, 3))
    assert choice == run(Script({h: same(h / 10, h / 5) for h in (1, 2, 3)}), source)


def test_only_models_that_are_alike_share_a_fit(source: Source, scripted: Any) -> None:
    """Odd and even settings are of two kinds; every value still lands at its own setting."""
    script = Script({h: same(h / 10) for h in (1, 2, 3, 4)})
    calls: list[list[int]] = []

    class Together(ScriptedModel):
        @staticmethod
        def alike(models: Sequence[Any]) -> bool:
            return len({model.setting["h"] % 2 for model in models}) == 1

        @staticmethod
        def together(models: Sequence[Any], source: Source, **rest: Any) -> Iterator[tuple[Any, ...]]:
            calls.append([model.setting["h"] for model in models])
            yield from zip(*(model.epochs(source, **rest) for model in models), strict=True)

    grid = [{"h": h} for h in (1, 2, 3, 4)]
    choice = select(lambda s: Together(script, s), source, grid=grid, bank=BANK, budget=budget(), seed=42)
    assert calls == [[1, 3], [2, 4]] * len(choice.folds)
    assert choice.values == tuple(((h / 10,),) * 3 for h in (1, 2, 3, 4))


def test_epochs_are_capped(source: Source, scripted: Any) -> None:
    choice = run(Script({1: same(0.1, 0.2, 0.9)}), source, epochs=2)
    assert choice.epochs == 2
    assert choice.values == (((0.1, 0.2),) * 3,)


def test_a_capped_grid_searches_its_ends(source: Source, scripted: Any) -> None:
    script = Script({h: same(float(h == 2)) for h in (1, 2, 3)})
    choice = run(script, source, settings=2)
    assert choice.grid == ({"h": 1}, {"h": 3})
    assert choice.setting == {"h": 1}


def test_a_scorer_that_saw_the_fold_is_refused(source: Source, scripted: Any) -> None:
    with pytest.raises(AssertionError, match=r"inner fold contexts \['D\d'\] were seen while fitting"):
        run(Script({1: same(0.1)}, leak=True), source)


def test_a_model_without_a_scorer_is_an_error(source: Source, scripted: Any) -> None:
    with pytest.raises(SelectionError, match="target D1: the model yielded no scorer"):
        run(Script({1: same()}), source)


def test_scores_that_are_not_numbers_are_an_error(source: Source) -> None:
    with pytest.raises(ValueError, match="finite"):
        run(Script({1: same(float("nan"))}), source)


def test_folds_without_lists_on_both_sides_are_left_out(fixed_world: Any, source: Source, scripted: Any) -> None:
    """Lists of D0 and D2 alone: holding out D3 leaves nothing to value."""
    corpus = fixed_world.corpus
    listed = np.isin(corpus.task_domain, [corpus.domains.index(d) for d in ("D0", "D2")])

    def build(fold: Any) -> Any:
        return {v: m.restrict(listed[m.tasks]) for v, m in fixed_world.manifests(fold).items()}

    part = Source(
        target="D1",
        held_out=("D1",),
        fold=source.fold,
        contexts=CONTEXTS,
        context_names=DOMAINS,
        context_of=source.context_of,
        build=build,
    )
    choice = run(Script({1: same(0.5)}), part)
    assert sorted(choice.folds) == [("D0",), ("D2",)]
    assert len(choice.values[0]) == 2

    def nothing(fold: Any) -> Any:
        return {v: m.restrict(np.zeros(m.tasks.size, bool)) for v, m in fixed_world.manifests(fold).items()}

    empty = Source(
        target="D1",
        held_out=("D1",),
        fold=source.fold,
        contexts=CONTEXTS,
        context_names=DOMAINS,
        context_of=source.context_of,
        build=nothing,
    )
    with pytest.raises(SelectionError, match="target D1: no inner fold has lists on both sides"):
        run(Script({1: same(0.5)}), empty)


# --- the record and the refit ---------------------------------------------------------------------------------------


def choice_of(*values: Sequence[float], epochs: int = 1) -> Choice:
    """One setting; the arguments are the folds."""
    folds = tuple((f"c{i}",) for i in range(len(values)))
    return Choice(
        setting={"h": 2}, epochs=epochs, grid=({"h": 2},), folds=folds, values=(tuple(map(tuple, values)),), seed=42
    )


@pytest.mark.parametrize(
    ("values", "gain"),
    [
        ([(0.1, 0.3), (0.2, 0.2)], 0.1),
        ([(0.1, 0.3), (0.2,)], 0.1),
        ([(0.5,), (0.2,)], 0.0),
        ([(0.5, 0.2)], -0.3),
    ],
)
def test_last_gain_by_hand(values: list[tuple[float, ...]], gain: float) -> None:
    assert choice_of(*values).last_gain == pytest.approx(gain)


def test_the_gain_is_that_of_the_chosen_setting() -> None:
    choice = Choice(
        setting={"h": 2}, epochs=2, grid=({"h": 1}, {"h": 2}), folds=(("c",),), seed=1,
        values=(((0.0, 0.9),), ((0.5, 0.5),)),
    )  # fmt: skip
    assert choice.last_gain == 0.0


@pytest.mark.parametrize(("gain", "converged"), [(0.0019, True), (0.0021, False), (-1.0, True)])
def test_converged(gain: float, *, converged: bool) -> None:
    assert CONVERGED_WITHIN == 0.002
    assert choice_of((0.5, 0.5 + gain)).record["converged"] is converged


def test_the_record_is_plain_and_complete() -> None:
    record = choice_of((0.5, 0.25), (0.5, 0.75), epochs=2).record
    assert json.loads(json.dumps(record)) == {
        "converged": True,
        "last_gain": 0.0,
        "choice": {"h": 2},
        "epochs": 2,
        "grid": [{"h": 2}],
        "inner_folds": [["c0"], ["c1"]],
        "values": [[[0.5, 0.25], [0.5, 0.75]]],
        "selection_seed": 42,
    }


def test_the_refit_sees_all_sources_with_the_chosen_setting(source: Source) -> None:
    script = Script({2: {"all": [0.1, 0.2, 0.3]}})
    choice = choice_of((0.5, 0.6), epochs=2)
    fitted: Any = refit(script.build, source, bank=BANK, choice=choice, budget=budget(), seed=43)
    assert script.fits == [(2, CONTEXTS, 43, Limits(epochs=2, max_tasks=9))]
    assert (fitted.setting, fitted.epoch, fitted.contexts_seen) == ({"h": 2}, 1, CONTEXTS)
    with pytest.raises(SelectionError, match="yielded no scorer"):
        refit(Script({2: {"all": []}}).build, source, bank=BANK, choice=choice, budget=budget(), seed=43)

"""Fits of a plan: how often is selected, with which settings, and what may not have been seen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest

from toolshift.experiment import fit
from toolshift.experiment.fit import budget_of, build, fits
from toolshift.experiment.plan import PlannedRun, plan_runs
from toolshift.models.base import Source
from toolshift.models.features import Pairs
from toolshift.models.transfer.logistic import Logistic
from toolshift.selection.nested import Budget
from toolshift.settings.compose import load_settings
from toolshift.settings.schema import ModelSettings

BANK: Any = object()
LOG: list[tuple[str, Any]] = []


@pytest.fixture(autouse=True)
def _empty_log() -> None:
    LOG.clear()


@dataclass(frozen=True)
class Scored:
    contexts_seen: tuple[str, ...]
    record: Any = None
    strength: float = 0.0

    def score(self, pairs: Pairs, *, bank: Any, seed: int) -> Any:
        """Better with strength: the gold of the fixed lists below is capability 0."""
        return np.where(pairs.capability == 0, self.strength, 0.5)


@dataclass(frozen=True, kw_only=True)
class FakeTrainable:
    strength: float = -1.0
    other: str = "default"

    def epochs(self, source: Source, *, bank: Any, seed: int, limits: Any) -> Iterator[Scored]:
        LOG.append((f"{self.strength} {self.other}", (source.contexts, seed, limits.epochs, limits.max_tasks)))
        yield Scored(contexts_seen=source.contexts, strength=self.strength)


@dataclass(frozen=True, kw_only=True)
class FakeRanker:
    fit_per_seed: ClassVar[bool] = False
    sees: tuple[str, ...] = ()

    def fit(self, source: Source, *, bank: Any, measure: Any, seed: int) -> Scored:
        LOG.append(("fit", seed))
        return Scored(contexts_seen=self.sees)


class PerSeed(FakeRanker):
    fit_per_seed: ClassVar[bool] = True


CLASSES = {"fake:Trainable": FakeTrainable, "fake:Ranker": FakeRanker, "fake:PerSeed": PerSeed}


@pytest.fixture(autouse=True)
def _fakes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fit, "resolve", CLASSES.__getitem__)


def plan_of(model: ModelSettings, *overrides: str) -> PlannedRun:
    settings = load_settings("train", ["experiment=lodo", "debug=tiny", "model=random", *overrides])
    run = plan_runs(settings, overridden_keys=(), fingerprints={})[0]
    return replace(run, model=model)


def trainable(*strengths: float, stochastic: bool = True) -> ModelSettings:
    return ModelSettings(
        name="fake",
        target="fake:Trainable",
        params={"strength": 9.0, "other": "given"},
        grid={"strength": strengths},
        stochastic=stochastic,
    )


def ranker(name: str, *, sees: Sequence[str] = ()) -> ModelSettings:
    return ModelSettings(name=name, target=f"fake:{name}", params={"sees": tuple(sees)}, grid={}, stochastic=True)


@pytest.fixture
def source(fixed_world: Any, worlds: Any) -> Source:
    """D1 held out. Every list of every view is narrowed to what the fake scorer can tell apart."""
    corpus = fixed_world.corpus
    rows = np.flatnonzero(corpus.task_domain != corpus.domains.index("D1"))
    context_of = np.full(corpus.n_tasks, -1, np.int64)
    context_of[rows] = corpus.task_domain[rows]

    def manifests(fold: Any) -> Any:
        manifest = fixed_world.manifests(fold)["natural"]
        return {"natural": replace(manifest, capability=np.where(manifest.positive, 0, 1 + manifest.capability % 5))}

    return Source(
        target="D1",
        fold=fixed_world.fold(worlds.Rules(length=8, hard=4), rows=rows),
        held_out=("D1",),
        contexts=("D0", "D2", "D3"),
        context_names=corpus.domains,
        context_of=context_of,
        build=manifests,
    )


def test_the_budget_is_the_configured_one() -> None:
    assert budget_of(plan_of(trainable(1.0))) == Budget(
        name="fast",
        folds=3,
        settings=2,
        max_tasks=2000,
        validation_tasks=50,
        epochs=2,
        batch_tasks=32,
        every_seed=False,
        device="cpu",
    )
    full = budget_of(plan_of(trainable(1.0), "selection.budget=full"))
    assert (full.name, full.settings, full.max_tasks, full.every_seed) == ("full", None, None, True)
    assert full.limits().batch_tasks is None


def test_a_setting_stands_in_place_of_the_parameters() -> None:
    plan = plan_of(trainable(1.0))
    assert build(plan) == FakeTrainable(strength=9.0, other="given")
    assert build(plan, {"strength": 2.0}) == FakeTrainable(strength=2.0, other="given")


def test_the_shipped_grids_fit_their_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    settings = load_settings("train", ["experiment=lodo", "model=logistic"])
    plan = next(p for p in plan_runs(settings, overridden_keys=(), fingerprints={}) if p.model.name == "logistic")
    assert build(plan, {"C": 7.0}) == Logistic(C=7.0, components=8)


def test_fast_selects_once_and_refits_for_every_seed(source: Source) -> None:
    plan = plan_of(trainable(0.0, 1.0), "seeds=[42,43]")
    first, second = fits(plan, source, bank=BANK)
    assert [first.seed, second.seed] == [42, 43]
    assert first.choice == second.choice
    assert first.choice["choice"] == {"strength": 1.0}
    assert first.choice["selection_seed"] == 42
    searched, refits = LOG[:6], LOG[6:]
    assert [name for name, _ in searched] == ["0.0 given", "1.0 given"] * 3
    assert {seed for _, (_, seed, *_) in searched} == {42}
    assert all(len(contexts) == 2 for _, (contexts, *_) in searched)
    assert refits == [("1.0 given", (("D0", "D2", "D3"), seed, 1, 2000)) for seed in (42, 43)]
    assert all(isinstance(f.scorer, Scored) and f.scorer.strength == 1.0 for f in (first, second))


def test_full_selects_for_every_seed(source: Source) -> None:
    plan = plan_of(trainable(0.0, 1.0), "seeds=[42,43]", "selection.budget=full")
    found = list(fits(plan, source, bank=BANK))
    assert [f.choice["selection_seed"] for f in found] == [42, 43]
    assert len(LOG) == 2 * (2 * 3 + 1)


def test_a_row_that_is_not_stochastic_is_fitted_once(source: Source) -> None:
    plan = plan_of(trainable(0.0, stochastic=False), "seeds=[42,43]")
    assert [f.seed for f in fits(plan, source, bank=BANK)] == [42]


def test_a_frozen_row_is_fitted_once_for_all_seeds_unless_it_asks(source: Source) -> None:
    once = list(fits(plan_of(ranker("Ranker"), "seeds=[42,43]"), source, bank=BANK))
    assert LOG == [("fit", 42)]
    assert once[0].scorer is once[1].scorer
    assert [dict(f.choice) for f in once] == [{}, {}]
    LOG.clear()
    list(fits(plan_of(ranker("PerSeed"), "seeds=[42,43]"), source, bank=BANK))
    assert LOG == [("fit", 42), ("fit", 43)]


def test_a_fit_that_saw_the_target_is_refused(source: Source) -> None:
    with pytest.raises(AssertionError, match="Ranker: the held-out context D1 was seen while fitting"):
        list(fits(plan_of(ranker("Ranker", sees=["D0", "D1"])), source, bank=BANK))
    leaking = replace(source, contexts=("D0", "D1", "D2"))
    with pytest.raises(AssertionError, match="D1"):
        list(fits(plan_of(trainable(1.0)), leaking, bank=BANK))

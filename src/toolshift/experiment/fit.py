"""Fits of one model for one target: a frozen row as it is, a model with a grid through nested selection."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from toolshift.experiment.plan import PlannedRun
from toolshift.experiment.workspace import resolve
from toolshift.models.base import Ranker, Scorer, Setting, Source, Staged, Trainable
from toolshift.models.features import FeatureBank
from toolshift.selection.nested import Budget, Choice, grid_settings, refit, select
from toolshift.selection.staged import StagedChoice, refit_stages, select_stages
from toolshift.selection.value import source_value


@dataclass(frozen=True, kw_only=True)
class Fit:
    """A fitted model for one target and seed; ``choice`` is empty where nothing was selected."""

    seed: int
    scorer: Scorer
    choice: Mapping[str, Any]


def build(plan: PlannedRun, setting: Setting | None = None) -> Any:
    """The model of a plan, a `Ranker` or a `Trainable`, with a setting of its grid in place of its parameters."""
    return resolve(plan.model.target)(**{**plan.model.params, **(setting or {})})


def budget_of(plan: PlannedRun) -> Budget:
    """The configured selection budget."""
    selection = plan.settings.selection
    chosen = selection.budgets[selection.budget]
    return Budget(
        name=selection.budget,
        folds=chosen.folds,
        settings=chosen.settings,
        max_tasks=chosen.max_tasks,
        validation_tasks=chosen.validation_tasks,
        epochs=chosen.epochs,
        every_seed=chosen.every_seed,
        batch_tasks=chosen.batch_tasks,
        device=plan.settings.runtime.device,
    )


def fits(plan: PlannedRun, source: Source, *, bank: FeatureBank) -> Iterator[Fit]:
    """One fit per seed of the plan.

    Raises:
        AssertionError: if a fitted part has seen the held-out context.
    """
    for fit in _selected(plan, source, bank=bank) if plan.model.grid else _frozen(plan, source, bank=bank):
        seen = sorted(set(source.held_out) & set(fit.scorer.contexts_seen))
        if seen:
            raise AssertionError(f"{plan.model.name}: the held-out context {seen[0]} was seen while fitting")
        yield fit


def _frozen(plan: PlannedRun, source: Source, *, bank: FeatureBank) -> Iterator[Fit]:
    ranker: Ranker = build(plan)
    scorer: Scorer | None = None
    for seed in plan.seeds:
        if scorer is None or ranker.fit_per_seed:
            scorer = ranker.fit(source, bank=bank, measure=source_value, seed=seed)
        yield Fit(seed=seed, scorer=scorer, choice={})


def _selected(plan: PlannedRun, source: Source, *, bank: FeatureBank) -> Iterator[Fit]:
    model = build(plan)
    return _by_stage(model, plan, source, bank=bank) if isinstance(model, Staged) else _nested(plan, source, bank=bank)


def _by_stage(model: Staged, plan: PlannedRun, source: Source, *, bank: FeatureBank) -> Iterator[Fit]:
    budget = budget_of(plan)
    choice: StagedChoice | None = None
    for seed in plan.seeds:
        if choice is None or budget.every_seed:
            choice = select_stages(model, source, grid=plan.model.grid, bank=bank, budget=budget, seed=seed)
        scorer = refit_stages(model, source, bank=bank, choice=choice, budget=budget, seed=seed)
        yield Fit(seed=seed, scorer=scorer, choice=choice.record)


def _nested(plan: PlannedRun, source: Source, *, bank: FeatureBank) -> Iterator[Fit]:
    budget, grid = budget_of(plan), grid_settings(plan.model.grid)

    def model(setting: Setting) -> Trainable:
        return build(plan, setting)

    choice: Choice | None = None
    for seed in plan.seeds:
        if choice is None or budget.every_seed:
            choice = select(model, source, grid=grid, bank=bank, budget=budget, seed=seed)
        scorer = refit(model, source, bank=bank, choice=choice, budget=budget, seed=seed)
        yield Fit(seed=seed, scorer=scorer, choice=choice.record)

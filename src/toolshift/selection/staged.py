"""Stage-wise nested selection (tact.md section 5): the settings of a stage with the earlier ones fixed, not the full
product.

Inner folds are those of ``toolshift.selection.nested``. In every fold the path continues with the setting and the epoch
that were chosen over all folds, as the refit on all sources will.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from toolshift.models.base import Scorer, Setting, Source, Staged, StagedFit
from toolshift.models.features import FeatureBank, Pairs
from toolshift.selection.nested import (
    CONVERGED_WITHIN,
    Budget,
    SelectionError,
    best_setting,
    grid_settings,
    inner_folds,
    spread,
)
from toolshift.selection.value import source_value

Values = list[list[float]]


@dataclass(frozen=True, kw_only=True)
class StageChoice:
    """What was selected for one stage. values: per setting and inner fold the source value after each epoch."""

    stage: str
    setting: Setting
    epochs: int
    grid: tuple[Setting, ...]
    values: tuple[tuple[tuple[float, ...], ...], ...]

    @property
    def last_gain(self) -> float:
        """Mean gain of the chosen setting in the last epoch, over inner folds."""
        values = self.values[self.grid.index(self.setting)]
        return float(np.mean([v[-1] - v[-2] if len(v) > 1 else 0.0 for v in values]))

    @property
    def record(self) -> Mapping[str, Any]:
        """One stage of the selection record."""
        return {
            "stage": self.stage,
            "choice": dict(self.setting),
            "epochs": self.epochs,
            "grid": [dict(s) for s in self.grid],
            "values": [[list(v) for v in fold] for fold in self.values],
            "last_gain": self.last_gain,
        }


@dataclass(frozen=True, kw_only=True)
class StagedChoice:
    """What was selected for one target. folds: contexts held out inside the sources."""

    stages: tuple[StageChoice, ...]
    folds: tuple[tuple[str, ...], ...]
    seed: int

    @property
    def record(self) -> Mapping[str, Any]:
        """The content of the selection record; ``choice`` has the settings of all stages."""
        return {
            "converged": all(stage.last_gain <= CONVERGED_WITHIN for stage in self.stages),
            "choice": {key: value for stage in self.stages for key, value in stage.setting.items()},
            "epochs": {stage.stage: stage.epochs for stage in self.stages},
            "stages": [dict(stage.record) for stage in self.stages],
            "inner_folds": [list(fold) for fold in self.folds],
            "selection_seed": self.seed,
        }


def stage_grids(model: Staged, grid: Mapping[str, Sequence[Any]]) -> dict[str, list[Setting]]:
    """The settings of every stage, from the keys of the grid that belong to it.

    Raises:
        SelectionError: for a key that belongs to no stage.
    """
    unknown = sorted(set(grid) - {key for keys in model.stages.values() for key in keys})
    if unknown:
        known = ", ".join(key for keys in model.stages.values() for key in keys)
        raise SelectionError(f"grid key {unknown[0]!r} belongs to no stage; expected one of {known}")
    return {
        stage: grid_settings({key: values for key, values in grid.items() if key in keys})
        for stage, keys in model.stages.items()
    }


def affordable(model: Staged, stage: str, settings: Sequence[Setting], *, count: int | None) -> list[Setting]:
    """At most ``count`` settings spread over the grid of a stage; those that take no training count as one together."""
    free = [setting for setting in settings if not model.is_trained(stage, setting)]
    costly = [setting for setting in settings if model.is_trained(stage, setting)]
    if count is not None:
        room = max(count - min(len(free), 1), 1)
        # Beside strength 0, the largest strength tells more than the smallest.
        costly = costly[-1:] if room == 1 else spread(costly, room)
    return [setting for setting in settings if setting in free or setting in costly]


def select_stages(
    model: Staged, source: Source, *, grid: Mapping[str, Sequence[Any]], bank: FeatureBank, budget: Budget, seed: int
) -> StagedChoice:
    """Choose setting and epochs of every stage on the sources alone. Ties (values equal to 1e-9) go to the earlier
    setting of the grid, that is to the smaller strength, and to the earlier epoch.

    Raises:
        SelectionError: if no inner fold has both something to learn from and something to be valued on.
    """
    folds = inner_folds(source.contexts, budget.folds)
    parts = [(fold, source.without(fold), source.validation(fold)) for fold in folds]
    parts = [part for part in parts if part[1].has_lists and part[2].has_lists]
    if not parts:
        raise SelectionError(f"target {source.target}: no inner fold has lists on both sides; grid not searched")
    limits = budget.limits()
    fits = [model.begin(train, bank=bank, seed=seed, limits=limits) for _, train, _ in parts]
    held_out = [validation for _, _, validation in parts]
    found: list[StageChoice] = []
    for stage, settings in stage_grids(model, grid).items():
        settings = affordable(model, stage, settings, count=budget.settings)
        tried = [
            _tried(fit, stage, settings, validation, bank=bank, budget=budget, seed=seed)
            for fit, validation in zip(fits, held_out, strict=True)
        ]
        choice = _choice(stage, settings, [values for _, values in tried])
        place = settings.index(choice.setting)
        fits = [
            fit.extended(scorers[place][min(choice.epochs, len(scorers[place])) - 1])
            for fit, (scorers, _) in zip(fits, tried, strict=True)
        ]
        found.append(choice)
    return StagedChoice(stages=tuple(found), folds=tuple(fold for fold, _, _ in parts), seed=seed)


def refit_stages(
    model: Staged, source: Source, *, bank: FeatureBank, choice: StagedChoice, budget: Budget, seed: int
) -> Scorer:
    """Fit every stage on all sources with its chosen setting for the chosen number of epochs."""
    fit = model.begin(source, bank=bank, seed=seed, limits=budget.limits())
    for stage in choice.stages:
        last = deque(fit.epochs(stage.stage, [stage.setting], epochs=stage.epochs), maxlen=1)
        if last:
            fit = fit.extended(last[0][0])
    return fit.scorer


def _tried(
    fit: StagedFit,
    stage: str,
    settings: Sequence[Setting],
    held_out: Source,
    *,
    bank: FeatureBank,
    budget: Budget,
    seed: int,
) -> tuple[list[list[Scorer]], Values]:
    """Per setting the scorers after every epoch and their values on the held-out contexts. A scorer is told from others
    by identity.

    Raises:
        AssertionError: if a scorer saw a context that it is about to be valued on.
        SelectionError: if the stage yields no scorer.
    """
    scorers: list[list[Scorer]] = [[] for _ in settings]
    values: Values = [[] for _ in settings]
    for after in fit.epochs(stage, settings, epochs=budget.epochs):
        for place, scorer in enumerate(after):
            # By object: what a stage leaves as it is, and what rows of a table share, is valued once.
            value = held_out.remember(
                ("value", scorer, budget.validation_tasks, seed),
                lambda scorer=scorer: _value(scorer, held_out, bank=bank, budget=budget, seed=seed),
            )
            scorers[place].append(scorer)
            values[place].append(value)
    if not all(values):
        raise SelectionError(f"target {held_out.target}: stage {stage} yielded no scorer")
    return scorers, values


def _value(scorer: Scorer, held_out: Source, *, bank: FeatureBank, budget: Budget, seed: int) -> float:
    overlap = set(scorer.contexts_seen) & set(held_out.contexts)
    if overlap:
        raise AssertionError(f"inner fold contexts {sorted(overlap)} were seen while fitting")

    def score(pairs: Pairs) -> Any:
        return scorer.score(pairs, bank=bank, seed=seed)

    return source_value(held_out, score, max_tasks=budget.validation_tasks)


def _choice(stage: str, settings: Sequence[Setting], by_fold: Sequence[Values]) -> StageChoice:
    """The best setting with its epochs."""
    values = list(zip(*by_fold, strict=True))
    winner, epochs = best_setting(values)
    return StageChoice(
        stage=stage,
        setting=settings[winner],
        epochs=epochs,
        grid=tuple(settings),
        values=tuple(tuple(tuple(v) for v in per_fold) for per_fold in values),
    )

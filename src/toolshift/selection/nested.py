"""Nested source-only selection (tact.md section 5): whole source contexts are held out inside the sources.

For every inner fold the model is fitted on the other source contexts, with lists and statistics rebuilt without the
fold, and valued on the fold's tasks. The setting with the best mean value is refitted once on all sources for the
median best epoch. The target is never looked at.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import median_low
from typing import Any

import numpy as np

from toolshift.models.base import Limits, Scorer, Setting, Source, Stackable, Trainable
from toolshift.models.features import FeatureBank, Pairs
from toolshift.selection.value import source_value

CONVERGED_WITHIN = 0.002
"""A larger gain in the last allowed epoch marks a row as not converged."""


class SelectionError(ValueError):
    """Nothing can be selected for a target."""

    user_facing = True


@dataclass(frozen=True, kw_only=True)
class Budget:
    """How much work selection may do.

    folds: inner folds. settings: at most so many settings, spread over the grid. max_tasks: source tasks per fit by
    hash. validation_tasks: tasks per view and inner fold that a setting is valued on, by hash. epochs: at most.
    batch_tasks: tasks in a gradient step, at most. every_seed: select for every seed, or once per target with the first
    seed. device: where torch models are fitted; on a GPU in mixed precision, so results differ in the last digits.
    """

    name: str
    folds: int
    settings: int | None
    max_tasks: int | None
    validation_tasks: int | None
    epochs: int
    every_seed: bool
    batch_tasks: int | None = None
    device: str = "cpu"

    def limits(self, *, epochs: int | None = None) -> Limits:
        """Caps on one fit; ``epochs`` in place of the most that are allowed."""
        return Limits(
            epochs=epochs or self.epochs, max_tasks=self.max_tasks, batch_tasks=self.batch_tasks, device=self.device
        )


@dataclass(frozen=True, kw_only=True)
class Choice:
    """What was selected for one target: the setting, the epochs of the refit, and every value that led there.

    values: per setting and inner fold the source value after each epoch.
    """

    setting: Setting
    epochs: int
    grid: tuple[Setting, ...]
    folds: tuple[tuple[str, ...], ...]
    values: tuple[tuple[tuple[float, ...], ...], ...]
    seed: int

    @property
    def last_gain(self) -> float:
        """Mean gain of the chosen setting in the last epoch, over inner folds; 0 for a single epoch."""
        values = self.values[self.grid.index(self.setting)]
        return float(np.mean([v[-1] - v[-2] if len(v) > 1 else 0.0 for v in values]))

    @property
    def record(self) -> Mapping[str, Any]:
        """The content of the selection record."""
        return {
            "converged": self.last_gain <= CONVERGED_WITHIN,
            "last_gain": self.last_gain,
            "choice": dict(self.setting),
            "epochs": self.epochs,
            "grid": [dict(s) for s in self.grid],
            "inner_folds": [list(f) for f in self.folds],
            "values": [[list(v) for v in fold] for fold in self.values],
            "selection_seed": self.seed,
        }


def inner_folds(contexts: Sequence[str], count: int) -> tuple[tuple[str, ...], ...]:
    """Whole contexts dealt into at most ``count`` folds in the order of the hash of their names.

    Raises:
        SelectionError: if there are fewer than two contexts, so that nothing can be held out.
    """
    if len(contexts) < 2:
        raise SelectionError(
            f"selection needs at least two source contexts, got {list(contexts)}; use a protocol with more sources, "
            "a weaker purge, or a frozen model"
        )
    order = sorted(contexts, key=lambda name: hashlib.sha256(name.encode()).hexdigest())
    count = min(count, len(order))
    return tuple(tuple(sorted(order[i::count])) for i in range(count))


def grid_settings(grid: Mapping[str, Sequence[Any]]) -> list[Setting]:
    """Every combination of a grid's values, the first key slowest; values are listed smallest strength first."""
    return [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]


Factory = Callable[[Setting], Trainable]


def select(
    build: Factory,
    source: Source,
    *,
    grid: Sequence[Setting],
    bank: FeatureBank,
    budget: Budget,
    seed: int,
) -> Choice:
    """Choose a setting and a number of epochs on the sources alone. ``build`` makes the model of a setting.

    Ties (values equal to 1e-9) go to the earlier setting of the grid, that is to the smaller strength, and to the
    earlier epoch.

    Raises:
        SelectionError: if no inner fold has both something to learn from and something to be valued on, or the model
            yields no scorer.
    """
    grid = spread(grid, budget.settings)
    folds = inner_folds(source.contexts, budget.folds)
    parts = [(source.without(fold), source.validation(fold)) for fold in folds]
    usable = [i for i, (train, held_out) in enumerate(parts) if train.has_lists and held_out.has_lists]
    if not usable:
        raise SelectionError(f"target {source.target}: no inner fold has lists on both sides; grid not searched")
    models = [build(setting) for setting in grid]
    by_fold = [_fold_values(models, *parts[i], bank=bank, budget=budget, seed=seed) for i in usable]
    values = [list(per_fold) for per_fold in zip(*by_fold, strict=True)]
    winner, epochs = best_setting(values)
    return Choice(
        setting=grid[winner],
        epochs=epochs,
        grid=tuple(grid),
        folds=tuple(folds[i] for i in usable),
        values=tuple(tuple(tuple(v) for v in per_fold) for per_fold in values),
        seed=seed,
    )


def best_setting(values: Sequence[Sequence[Sequence[float]]]) -> tuple[int, int]:
    """(place of the best setting, its epochs), from the value per setting, inner fold and epoch.

    The epochs of a setting are the median over folds of the best one, as the refit will train. Settings are compared
    at that epoch, and not each fold at its own: the best of many epochs would favour settings that are trained over
    those that are not. Values equal to 1e-9 are a tie, which goes to the earlier setting and epoch.
    """
    epoch = [median_low([int(np.argmax(np.round(v, 9))) for v in folds]) for folds in values]
    score = [np.mean([v[min(e, len(v) - 1)] for v in folds]) for folds, e in zip(values, epoch, strict=True)]
    winner = int(np.argmax(np.round(score, 9)))
    return winner, epoch[winner] + 1


def refit(build: Factory, source: Source, *, bank: FeatureBank, choice: Choice, budget: Budget, seed: int) -> Scorer:
    """Fit the chosen setting on all sources for the chosen number of epochs.

    Raises:
        SelectionError: if the model yields no scorer.
    """
    limits = budget.limits(epochs=choice.epochs)
    fits = deque(build(choice.setting).epochs(source, bank=bank, seed=seed, limits=limits), maxlen=1)
    if not fits:
        raise SelectionError(f"target {source.target}: the model yielded no scorer")
    return fits[0]


def spread(grid: Sequence[Setting], count: int | None) -> list[Setting]:
    """At most ``count`` settings, evenly over the grid, the first and the last included."""
    if count is None or len(grid) <= count:
        return list(grid)
    if count == 1:
        return [grid[0]]
    places = sorted({round(i * (len(grid) - 1) / (count - 1)) for i in range(count)})
    return [grid[i] for i in places]


def _fold_values(
    models: Sequence[Trainable],
    train: Source,
    held_out: Source,
    *,
    bank: FeatureBank,
    budget: Budget,
    seed: int,
) -> list[list[float]]:
    """Per model the value on the held-out contexts after every epoch.

    Raises:
        AssertionError: if a scorer saw a context that it is about to be valued on.
        SelectionError: if a model yields no scorer.
    """
    values: list[list[float]] = [[] for _ in models]
    for place, scorer in _scorers(models, train, bank=bank, budget=budget, seed=seed):
        overlap = set(scorer.contexts_seen) & set(held_out.contexts)
        if overlap:
            raise AssertionError(f"inner fold contexts {sorted(overlap)} were seen while fitting")

        def score(pairs: Pairs, scorer: Scorer = scorer) -> Any:
            return scorer.score(pairs, bank=bank, seed=seed)

        values[place].append(source_value(held_out, score, max_tasks=budget.validation_tasks))
    if not all(values):
        raise SelectionError(f"target {train.target}: the model yielded no scorer")
    return values


def _scorers(
    models: Sequence[Trainable], train: Source, *, bank: FeatureBank, budget: Budget, seed: int
) -> Iterator[tuple[int, Scorer]]:
    """(place of the model, its scorer after one more epoch): side by side where models can be, else in turn."""
    for places in _alike(models):
        group: list[Any] = [models[place] for place in places]
        if len(group) > 1:
            for scorers in group[0].together(group, train, bank=bank, seed=seed, limits=budget.limits()):
                yield from zip(places, scorers, strict=True)
        else:
            for scorer in group[0].epochs(train, bank=bank, seed=seed, limits=budget.limits()):
                yield places[0], scorer


def _alike(models: Sequence[Trainable]) -> list[list[int]]:
    """Places of models that can be fitted together, in the order of the first of each group."""
    groups: list[list[int]] = []
    for place, model in enumerate(models):
        for group in groups:
            first = models[group[0]]
            if isinstance(first, Stackable) and type(first) is type(model) and first.alike([first, model]):
                group.append(place)
                break
        else:
            groups.append([place])
    return groups

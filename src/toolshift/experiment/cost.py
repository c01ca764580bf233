"""What a command will cost, said before it starts: fits, tasks, epochs and an estimated time.

The estimate comes from one small fit of each model on the first target, never from a table of speeds, so that it holds
on any machine. It leaves out lists and validation, and fits that share their work; read it as an order of magnitude.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from toolshift.experiment.fit import budget_of, build
from toolshift.experiment.plan import PlannedRun
from toolshift.models.base import Limits, Source, Staged
from toolshift.models.features import FeatureBank
from toolshift.selection.nested import Budget, grid_settings, spread
from toolshift.selection.staged import affordable, stage_grids

TRIAL_TASKS = 256
WORTH_A_TRIAL = 100_000
"""Task-epochs under which no model here takes a minute; shorter runs start at once."""


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Work of one run. tasks: source tasks of a fit, at most. seconds: estimated on this machine by one process."""

    model: str
    targets: int
    fits: int
    tasks: int
    epochs: int
    seconds: float | None = None

    @property
    def task_epochs(self) -> int:
        """Tasks seen over all fits and epochs, at most."""
        return self.fits * self.tasks * self.epochs

    def line(self, *, processes: int) -> str:
        """For the person who waits."""
        about = "" if self.seconds is None else f"; about {duration(self.seconds / processes)}"
        return (
            f"{self.model}: {self.targets} targets, {self.fits} fits of at most {self.tasks} tasks and "
            f"{self.epochs} epochs{about}"
        )


def counted(plan: PlannedRun, *, targets: int, source_tasks: int) -> Cost | None:
    """The work of a run with a grid, without a time; None where nothing is selected."""
    if not plan.model.grid:
        return None
    budget = budget_of(plan)
    settings, refits = _fits(plan, budget)
    selections = len(plan.seeds) if budget.every_seed else 1
    return Cost(
        model=plan.model.name,
        targets=targets,
        fits=targets * (selections * settings * budget.folds + refits * len(plan.seeds)),
        tasks=min(source_tasks, budget.max_tasks or source_tasks),
        epochs=_epochs(plan, budget),
    )


def estimated(cost: Cost, plan: PlannedRun, source: Source, *, bank: FeatureBank) -> Cost:
    """The cost with a time, from a trial fit of ``TRIAL_TASKS`` tasks; as it was where the trial fails."""
    budget = budget_of(plan)

    def trial(tasks: int) -> float:
        limits = Limits(epochs=1, max_tasks=tasks, batch_tasks=budget.batch_tasks, device=budget.device)
        started = time.perf_counter()
        fits = _try(plan, source, bank=bank, limits=limits)
        return (time.perf_counter() - started) / fits

    try:
        trial(8)  # imports, and lists that are built once
        seconds = trial(TRIAL_TASKS)
    except Exception:  # whatever is wrong with this fit, the run itself will meet it and report it
        return cost
    tasks = min(TRIAL_TASKS, cost.tasks)
    return replace(cost, seconds=seconds / tasks * cost.task_epochs)


def announce(plans: Sequence[PlannedRun], source: Source, *, targets: int, bank: FeatureBank) -> list[Cost]:
    """Costs of all runs with a grid; with times if together they may take longer than a minute."""
    found = [(plan, counted(plan, targets=targets, source_tasks=source.tasks.size)) for plan in plans]
    known = [(plan, cost) for plan, cost in found if cost is not None]
    if sum(cost.task_epochs for _, cost in known) < WORTH_A_TRIAL or not source.has_lists:
        return []
    return [estimated(cost, plan, source, bank=bank) for plan, cost in known]


def duration(seconds: float) -> str:
    """A rounded time in words.

    >>> duration(42.3), duration(95), duration(7300)
    ('42 s', '2 min', '2.0 h')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _fits(plan: PlannedRun, budget: Budget) -> tuple[int, int]:
    """Fits per inner fold, and per refit; one for each stage of a staged model that is trained."""
    model = build(plan)
    if not isinstance(model, Staged):
        return len(spread(grid_settings(plan.model.grid), budget.settings)), 1
    trained = [
        sum(model.is_trained(stage, s) for s in affordable(model, stage, settings, count=budget.settings))
        for stage, settings in stage_grids(model, plan.model.grid).items()
    ]
    *before, last = trained
    trained = [*before, last if any(before) else 0]  # nothing to gate, or to add to, without an earlier stage
    return sum(trained), sum(count > 0 for count in trained)


def _try(plan: PlannedRun, source: Source, *, bank: FeatureBank, limits: Limits) -> int:
    """Fit the model once, a staged one with the last setting of every stage, and return the number of fits."""
    model = build(plan)
    if not isinstance(model, Staged):
        first = grid_settings(plan.model.grid)[0]
        for _ in build(plan, first).epochs(source, bank=bank, seed=plan.seeds[0], limits=limits):
            pass
        return 1
    fit, fits = model.begin(source, bank=bank, seed=plan.seeds[0], limits=limits), 0
    for stage, settings in stage_grids(model, plan.model.grid).items():
        for after in fit.epochs(stage, settings[-1:], epochs=limits.epochs):
            fit, fits = fit.extended(after[0]), fits + model.is_trained(stage, settings[-1])
    return max(fits, 1)


def _epochs(plan: PlannedRun, budget: Budget) -> int:
    """A row without a seed is a closed-form fit: it passes over its tasks once."""
    if not plan.model.stochastic:
        return 1
    return min(budget.epochs, plan.model.params.get("max_epochs", budget.epochs))

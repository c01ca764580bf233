"""Counts of fits by hand, when a trial is worth it, and a trial that fails."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from toolshift.experiment import cost
from toolshift.experiment.cost import Cost, announce, counted, duration, estimated
from toolshift.experiment.plan import PlannedRun, plan_runs
from toolshift.models.base import Limits
from toolshift.settings.compose import load_settings


def plan_of(model: str, *overrides: str) -> PlannedRun:
    settings = load_settings("train", ["experiment=lodo", f"model={model}", *overrides])
    return next(p for p in plan_runs(settings, overridden_keys=(), fingerprints={}) if p.model.name == model)


def test_fast_selects_once_per_target_and_refits_per_seed() -> None:
    """49 targets x (3 folds x 3 settings + 3 refits)."""
    found = counted(plan_of("pointwise_mlp"), targets=49, source_tasks=6000)
    assert found == Cost(model="pointwise_mlp", targets=49, fits=588, tasks=2000, epochs=5)
    assert found is not None and found.task_epochs == 588 * 2000 * 5


def test_full_selects_for_every_seed_on_all_tasks() -> None:
    """2 targets x (3 seeds x 5 folds x 3 settings + 3 refits)."""
    found = counted(plan_of("pointwise_mlp", "selection.budget=full"), targets=2, source_tasks=6000)
    assert found == Cost(model="pointwise_mlp", targets=2, fits=96, tasks=6000, epochs=30)


def test_a_closed_form_fit_has_one_seed_and_one_epoch() -> None:
    assert counted(plan_of("blend"), targets=10, source_tasks=50) == Cost(
        model="blend", targets=10, fits=100, tasks=50, epochs=1
    )


def test_a_frozen_row_costs_no_fit() -> None:
    assert counted(plan_of("bm25"), targets=10, source_tasks=50) is None


@dataclass(frozen=True)
class Slow:
    """Takes a hundredth of a second a task, on a clock of its own."""

    clock: list[float]
    fails: bool = False

    def epochs(self, source: Any, *, bank: Any, seed: int, limits: Limits) -> Iterator[object]:
        if self.fails:
            raise ValueError("no lists")
        assert limits.max_tasks is not None and limits.epochs == 1
        self.clock[0] += limits.max_tasks / 100
        yield object()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr(cost.time, "perf_counter", lambda: now[0])
    return now


def test_the_time_of_a_trial_is_scaled_up(monkeypatch: pytest.MonkeyPatch, clock: list[float]) -> None:
    monkeypatch.setattr(cost, "build", lambda *_: Slow(clock))
    plan = plan_of("pointwise_mlp")
    asked = Cost(model="pointwise_mlp", targets=1, fits=2, tasks=1000, epochs=3)
    found = estimated(asked, plan, source=Any, bank=Any)  # type: ignore[arg-type]
    assert found.seconds == pytest.approx(60.0)
    assert found.line(processes=2).endswith("2 fits of at most 1000 tasks and 3 epochs; about 30 s")


def test_a_trial_that_fails_leaves_the_count(monkeypatch: pytest.MonkeyPatch, clock: list[float]) -> None:
    monkeypatch.setattr(cost, "build", lambda *_: Slow(clock, fails=True))
    asked = Cost(model="pointwise_mlp", targets=1, fits=2, tasks=1000, epochs=3)
    found = estimated(asked, plan_of("pointwise_mlp"), source=Any, bank=Any)  # type: ignore[arg-type]
    assert found == asked
    assert "about" not in found.line(processes=1)


@dataclass(frozen=True)
class Sources:
    """As much of a source as is counted."""

    tasks: Any
    has_lists: bool = True


@pytest.mark.parametrize(("targets", "said"), [(1, 0), (49, 1)])
def test_only_long_runs_are_announced(
    monkeypatch: pytest.MonkeyPatch, clock: list[float], targets: int, said: int
) -> None:
    import numpy as np

    monkeypatch.setattr(cost, "build", lambda *_: Slow(clock))
    plans: Sequence[PlannedRun] = [plan_of("pointwise_mlp"), plan_of("bm25")]
    source: Any = Sources(tasks=np.arange(500))
    assert len(announce(plans, source, targets=targets, bank=Any)) == said  # type: ignore[arg-type]


def test_durations_are_rounded() -> None:
    assert [duration(s) for s in (42.3, 95.0, 7300.0)] == ["42 s", "2 min", "2.0 h"]

"""The selection group and the grids of models: what is accepted, and what each mistake is told."""

from __future__ import annotations

from dataclasses import fields

import pytest

from toolshift.experiment.plan import run_identity
from toolshift.settings.compose import load_settings
from toolshift.settings.errors import ConfigError
from toolshift.settings.options import conf_folder, load_model, model_names
from toolshift.settings.schema import BudgetSettings

BASE = ("experiment=lodo", "model=logistic")


def problems_of(*overrides: str) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        load_settings("train", [*BASE, *overrides])
    return caught.value.problems


def test_fast_is_the_default_and_full_lifts_every_cap() -> None:
    """Issue: 3 inner folds, 3 configurations, at most 2,000 source tasks by hash, 5 epochs, chosen with one seed."""
    selection = load_settings("train", BASE).selection
    assert (selection.name, selection.budget) == ("nested", "fast")
    fast, full = selection.budgets["fast"], selection.budgets["full"]
    assert (fast.folds, fast.settings, fast.max_tasks, fast.epochs, fast.every_seed) == (3, 3, 2000, 5, False)
    assert (full.folds, full.settings, full.max_tasks, full.validation_tasks) == (5, None, None, None)
    assert (full.epochs, full.every_seed) == (30, True)


def test_an_unknown_budget_is_named_with_the_nearest() -> None:
    (problem,) = problems_of("selection.budget=fats")
    assert problem.startswith("selection.budget: 'fats' is not a budget; did you mean 'fast'?")


@pytest.mark.parametrize(
    ("key", "value", "low"),
    [
        ("folds", 1, 2),
        ("epochs", 0, 1),
        ("settings", 0, 1),
        ("max_tasks", 0, 1),
        ("validation_tasks", -3, 1),
    ],
)
def test_a_cap_out_of_range(key: str, value: int, low: int) -> None:
    (problem,) = problems_of(f"selection.budgets.fast.{key}={value}")
    assert problem == f"selection.budgets.fast.{key}: must be at least {low}, got {value}"


@pytest.mark.parametrize("key", ["folds", "epochs", "every_seed"])
def test_a_cap_that_may_not_be_lifted(key: str) -> None:
    (problem,) = problems_of(f"selection.budgets.fast.{key}=null")
    assert problem.startswith(f"selection.budgets.fast.{key}: expected ")


@pytest.mark.parametrize("key", ["settings", "max_tasks", "validation_tasks"])
def test_a_cap_that_may_be_lifted(key: str) -> None:
    settings = load_settings("train", [*BASE, f"selection.budgets.fast.{key}=null"])
    assert getattr(settings.selection.budgets["fast"], key) is None


def test_every_cap_can_be_set_from_the_command_line() -> None:
    given = {"folds": 2, "settings": 1, "max_tasks": 50, "validation_tasks": 20, "epochs": 1, "batch_tasks": 8}
    given["every_seed"] = True
    assert set(given) == {field.name for field in fields(BudgetSettings)}
    settings = load_settings("train", [*BASE, *(f"selection.budgets.fast.{k}={v}" for k, v in given.items())])
    assert settings.selection.budgets["fast"] == BudgetSettings(**given)


def test_a_missing_cap_is_named() -> None:
    assert "selection.budgets.fast.epochs: this key is missing" in problems_of("~selection.budgets.fast.epochs")


def test_other_selection_is_another_run() -> None:
    """What was chosen depends on the caps, so a finished run of other caps must not be taken for this one."""

    def identity(*overrides: str) -> object:
        settings = load_settings("train", [*BASE, *overrides])
        return run_identity(settings, settings.models["logistic"], fingerprints={})

    assert identity() == identity("selection.budget=fast")
    assert identity() != identity("selection.budget=full")
    assert identity() != identity("selection.budgets.fast.epochs=6")
    assert identity() != identity("models.logistic.grid.C=[1.0]")


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("+models.logistic.grid.D=[1.0]", "models.logistic.grid.D: logistic has no such parameter"),
        ("models.logistic.grid.C=[1.0,1.0]", "models.logistic.grid.C: a value appears twice in [1.0, 1.0]"),
        ("models.logistic.grid.C=[]", "models.logistic.grid.C: the list is empty"),
        ("models.logistic.grid.C=[strong]", "models.logistic.grid.C: expected a number, got 'strong'"),
    ],
)
def test_a_bad_grid(override: str, message: str) -> None:
    (problem,) = problems_of(override)
    assert problem.startswith(message)


def test_shipped_grids_start_with_the_simplest_fit() -> None:
    """Ties go to the earlier setting, so the strongest penalty stands first."""
    grids = {name: load_model(name).grid for name in model_names(conf_folder())}
    assert {name for name, grid in grids.items() if grid} >= {"blend", "logistic", "pointwise_mlp"}
    assert grids["logistic"]["C"] == tuple(sorted(grids["logistic"]["C"]))  # inverse strength
    for name, key in (("blend", "l2"), ("pointwise_mlp", "weight_decay")):
        assert grids[name][key] == tuple(sorted(grids[name][key], reverse=True))

"""What every stand-in owes the table: equal scores in all views and orders, and no label of the target."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from toolshift.models.features import Pairs
from toolshift.models.generative.ports import PortsStandin
from toolshift.models.generative.reinvoke import ReInvokeStandin
from toolshift.models.generative.tooldreamer import ToolDreamerStandin
from toolshift.selection.nested import Budget, refit, select
from toolshift.selection.value import source_value
from toolshift.settings.options import conf_folder, load_model, model_names

TARGET = "D1"
BUDGET = Budget(name="b", folds=3, settings=None, max_tasks=25, validation_tasks=8, epochs=2, every_seed=False)
FROZEN = {"reinvoke_standin": ReInvokeStandin(), "tooldreamer_standin": ToolDreamerStandin()}


def ports_scorer(world: Any, source: Any) -> tuple[Any, Mapping[str, Any]]:
    def build(setting: Mapping[str, Any]) -> PortsStandin:
        return PortsStandin(learning_rate=0.01, batch_tasks=8, **setting)

    bank = world.bank()
    choice = select(build, source, grid=[{"gamma": 0.5}, {"gamma": 0.1}], bank=bank, budget=BUDGET, seed=42)
    return refit(build, source, bank=bank, choice=choice, budget=BUDGET, seed=42), choice.record


def scorer_of(name: str, world: Any, source: Any) -> Any:
    if name == "ports_standin":
        return ports_scorer(world, source)[0]
    return FROZEN[name].fit(source, bank=world.bank(), measure=source_value, seed=1)


each_row = pytest.mark.parametrize("name", [*FROZEN, "ports_standin"])


@each_row
def test_scores_are_equal_in_every_view_and_order(fixed_world: Any, worlds: Any, make: Any, name: str) -> None:
    rules = worlds.Rules(length=8, hard=4)
    scorer = scorer_of(name, fixed_world, make.source(fixed_world, rules, target=TARGET))
    whole = scorer.score(make.all_pairs(fixed_world.corpus), bank=fixed_world.bank(), seed=1)
    table = whole.reshape(fixed_world.corpus.n_tasks, -1)
    assert table.dtype == np.float64
    assert np.isfinite(table).all()
    assert np.ptp(table, axis=1).min() > 0
    for view, manifest in fixed_world.manifests(fixed_world.fold(rules)).items():
        pairs = Pairs(task=manifest.task_of, capability=manifest.capability)
        found = scorer.score(pairs, bank=fixed_world.bank(), seed=1)  # a new bank: nothing is remembered
        np.testing.assert_allclose(found, table[pairs.task, pairs.capability], atol=1e-6, err_msg=view)
        backwards = pairs.take(np.arange(len(pairs))[::-1])
        np.testing.assert_allclose(scorer.score(backwards, bank=fixed_world.bank(), seed=1), found[::-1], atol=1e-6)


@each_row
@pytest.mark.parametrize("how", ["permuted", "replaced"])
def test_other_labels_of_the_target_change_nothing(worlds: Any, make: Any, name: str, how: str) -> None:
    records, rules = worlds.fixed(), worlds.Rules(length=8, hard=4)
    found = []
    for some in (records, worlds.relabelled(records, TARGET, how=how)):
        world = worlds.of(some, top=12)
        scorer = scorer_of(name, world, make.source(world, rules, target=TARGET))
        found.append(scorer.score(make.all_pairs(world.corpus), bank=world.bank(), seed=1))
        assert TARGET not in scorer.contexts_seen
    np.testing.assert_array_equal(found[0], found[1])


def test_other_labels_of_a_source_change_the_trained_one(worlds: Any, make: Any) -> None:
    """Or the test above would see nothing."""
    records, rules = worlds.fixed(), worlds.Rules(length=8, hard=4)
    found = []
    for some in (records, worlds.relabelled(records, "D2", how="permuted")):
        world = worlds.of(some, top=12)
        scorer, choice = ports_scorer(world, make.source(world, rules, target=TARGET))
        found.append((choice["values"], scorer.score(make.all_pairs(world.corpus), bank=world.bank(), seed=1).tolist()))
    assert found[0][0] != found[1][0]
    assert found[0][1] != found[1][1]


def test_repeated_training_is_the_same(fixed_world: Any, worlds: Any, make: Any) -> None:
    source = make.source(fixed_world, worlds.Rules(length=8, hard=4), target=TARGET)
    one, other = (ports_scorer(fixed_world, source) for _ in range(2))
    assert one[1] == other[1]
    np.testing.assert_array_equal(one[0].state()["task"], other[0].state()["task"])


def test_names_tell_a_stand_in_from_the_method() -> None:
    """A class that needs no language model has a name that ends in _standin, and the other way round."""
    rows = {name: load_model(name).target for name in model_names(conf_folder())}
    generative = {name: target for name, target in rows.items() if ".generative." in target}
    assert {name for name, target in generative.items() if target.endswith("Standin")} == {
        "reinvoke_standin",
        "tooldreamer_standin",
        "ports_standin",
    }
    assert all(name.endswith("_standin") == target.endswith("Standin") for name, target in rows.items())


@pytest.mark.parametrize("name", [*FROZEN, "ports_standin"])
def test_the_config_builds_the_row(name: str) -> None:
    classes: dict[str, Callable[..., Any]] = {
        "reinvoke_standin": ReInvokeStandin,
        "tooldreamer_standin": ToolDreamerStandin,
        "ports_standin": PortsStandin,
    }
    settings = load_model(name)
    built = classes[name](**settings.params)
    assert built == built.__class__(**settings.params)
    assert bool(settings.grid) == hasattr(built, "epochs")


def test_the_authors_settings_of_ports() -> None:
    given = load_model("ports").params
    expected = {
        "gamma": 0.5,
        "beta": 0.5,
        "lambda_or": 0.3,
        "w": 1.0,
        "negatives": 3,
        "learning_rate": 1e-5,
        "weight_decay": 0.01,
        "batch_tasks": 2,
        "schedule_epochs": 5,
        "warm_up": 0.1,
        "clip": 1.0,
        "max_samples": 1000,
    }
    assert {key: given[key] for key in expected} == expected
    assert load_model("reinvoke").params["queries"] == 10
    assert load_model("reinvoke").params["temperature"] == 0.7
    assert load_model("tooldreamer").params["k"] == 60

"""Selection, refit and scores over the whole trained path: no label of the target, none of a held-out context."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from toolshift.models.base import Limits, Source, Trainable
from toolshift.models.skillgraph.ranker import SkillGraph
from toolshift.models.transfer.aread import AreadAdapted
from toolshift.models.transfer.blend import Blend
from toolshift.models.transfer.logistic import Logistic
from toolshift.models.transfer.multipool import MultiPool
from toolshift.models.transfer.pointwise_mlp import PointwiseMlp
from toolshift.models.transfer.unisrec import UniSRec
from toolshift.models.transfer.zesrec import ZesRec
from toolshift.selection.nested import Budget, refit, select

TARGET = "D1"
BUDGET = Budget(name="b", folds=3, settings=None, max_tasks=25, validation_tasks=8, epochs=2, every_seed=False)


def mlp(**setting: Any) -> PointwiseMlp:
    return PointwiseMlp(hidden=(16, 8), batch_tasks=16, learning_rate=0.01, **setting)


def multipool(**setting: Any) -> MultiPool:
    return MultiPool(hidden=(16, 8), batch_tasks=16, learning_rate=0.01, **setting)


def zesrec(**setting: Any) -> ZesRec:
    return ZesRec(widths=(16, 8), batch_tasks=16, learning_rate=0.01, **setting)


def unisrec(**setting: Any) -> UniSRec:
    return UniSRec(experts=3, width=8, batch_tasks=16, learning_rate=0.01, **setting)


def aread(**setting: Any) -> AreadAdapted:
    return AreadAdapted(hidden=(16, 8), experts=3, expert_width=4, mask_after=1, batch_tasks=16, **setting)


MODELS: Mapping[str, tuple[Callable[..., Trainable], list[dict[str, float]]]] = {
    "skillgraph": (SkillGraph, [{"alpha": 0.2}, {"alpha": 0.5}]),
    "blend": (Blend, [{"l2": 1.0}, {"l2": 0.001}]),
    "logistic": (Logistic, [{"C": 0.01}, {"C": 10.0}]),
    "multipool": (multipool, [{"weight_decay": 10.0}, {"weight_decay": 0.0}]),
    "zesrec": (zesrec, [{"lambda_v": 1.0}, {"lambda_v": 0.01}]),
    "unisrec": (unisrec, [{"retained": 0.5}, {"retained": 1.0}]),
    "aread_adapted": (aread, [{"beta": 0.0}, {"beta": 1.0}]),
    "pointwise_mlp": (mlp, [{"weight_decay": 0.1}, {"weight_decay": 0.0}]),
}
each_model = pytest.mark.parametrize("name", sorted(MODELS))


def trained(world: Any, source: Source, make: Any, name: str) -> Mapping[str, Any]:
    """All that is left of selection and refit, and the scores of one fixed list of pairs."""
    kind, grid = MODELS[name]
    bank = world.bank()

    def build(setting: Mapping[str, Any]) -> Trainable:
        return kind(**setting)

    choice = select(build, source, grid=grid, bank=bank, budget=BUDGET, seed=42)
    fitted: Any = refit(build, source, bank=bank, choice=choice, budget=BUDGET, seed=42)
    return {
        "choice": choice.record,
        "record": dict(fitted.record),
        "state": {key: value.tolist() for key, value in fitted.state().items()},
        "scores": fitted.score(make.all_pairs(world.corpus), bank=bank, seed=42).tolist(),
        "seen": fitted.contexts_seen,
    }


@each_model
@pytest.mark.parametrize("how", ["permuted", "replaced"])
def test_other_labels_of_the_target_change_nothing(worlds: Any, make: Any, name: str, how: str) -> None:
    records, rules = worlds.fixed(), worlds.Rules(length=8, hard=4)
    found = []
    for some in (records, worlds.relabelled(records, TARGET, how=how)):
        world = worlds.of(some, top=12)
        found.append(trained(world, make.source(world, rules, target=TARGET), make, name))
    assert found[0] == found[1]
    assert np.ptp(found[0]["scores"]) > 0
    assert TARGET not in found[0]["seen"]


@each_model
def test_other_labels_of_a_source_change_the_fit(worlds: Any, make: Any, name: str) -> None:
    """Or the test above would see nothing. Which tools are used together is the same under a permutation of tasks."""
    records, rules = worlds.fixed(), worlds.Rules(length=8, hard=4)
    how = "replaced" if name == "skillgraph" else "permuted"
    found = []
    for some in (records, worlds.relabelled(records, "D2", how=how)):
        world = worlds.of(some, top=12)
        found.append(trained(world, make.source(world, rules, target=TARGET), make, name))
    assert found[0]["choice"]["values"] != found[1]["choice"]["values"]
    assert found[0]["state"] != found[1]["state"]
    assert found[0]["scores"] != found[1]["scores"]


@each_model
@pytest.mark.parametrize("how", ["permuted", "replaced"])
def test_a_fit_without_a_context_does_not_know_its_labels(worlds: Any, make: Any, name: str, how: str) -> None:
    records, rules = worlds.fixed(), worlds.Rules(length=8, hard=4)
    kind, grid = MODELS[name]
    states, held_out = [], []
    for some in (records, worlds.relabelled(records, "D2", how=how)):
        world = worlds.of(some, top=12)
        source = make.source(world, rules, target=TARGET)
        limits = Limits(epochs=2, max_tasks=None)
        *_, fitted = kind(**grid[0]).epochs(source.without(("D2",)), bank=world.bank(), seed=42, limits=limits)
        stored: Any = fitted
        states.append({key: value.tolist() for key, value in stored.state().items()})
        assert fitted.contexts_seen == ("D0", "D3")
        held_out.append({v: world.readable(m) for v, m in source.validation(("D2",)).manifests.items()})
    assert states[0] == states[1]
    assert held_out[0] != held_out[1]


@each_model
def test_repeated_training_is_the_same(fixed_world: Any, worlds: Any, make: Any, name: str) -> None:
    source = make.source(fixed_world, worlds.Rules(length=8, hard=4), target=TARGET)
    assert trained(fixed_world, source, make, name) == trained(fixed_world, source, make, name)

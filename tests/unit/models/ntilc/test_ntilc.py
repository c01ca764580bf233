"""NTILC as a row: what it may see, that it repeats, that a capability scores its best endpoint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from toolshift.models.base import BadParameter, Limits, Source
from toolshift.models.features import Pairs, UnknownSpace
from toolshift.models.ntilc.encoder import head_of, scaled, z_of
from toolshift.models.ntilc.ntilc import Ntilc, best_cosines, gold_tools, tool_table, vectors_of
from toolshift.models.ntilc.training import NoActivePairs
from toolshift.selection.nested import Budget, refit, select

pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("one_thread")

TARGET = "D1"
BUDGET = Budget(name="b", folds=2, settings=None, max_tasks=25, validation_tasks=8, epochs=2, every_seed=False)
GRID = [{"lambda2": 0.5}, {"lambda2": 2.0}]


def row(**setting: Any) -> Ntilc:
    sizes = {"hidden": 16, "width": 8, "batch_tasks": 16, "neighbours": 3, "m0": 0.7, "learning_rate": 0.01}
    return Ntilc(**{**sizes, **setting})


def fitted(world: Any, source: Source, model: Ntilc, *, epochs: int = 2, seed: int = 42) -> Any:
    *_, last = model.epochs(source, bank=world.bank(), seed=seed, limits=Limits(epochs=epochs, max_tasks=None))
    return last


def trained(world: Any, source: Source, make: Any) -> Mapping[str, Any]:
    """All that is left of selection and refit, and the scores of one fixed list of pairs."""
    bank = world.bank()
    build = lambda setting: row(**setting)  # noqa: E731
    choice = select(build, source, grid=GRID, bank=bank, budget=BUDGET, seed=42)
    last: Any = refit(build, source, bank=bank, choice=choice, budget=BUDGET, seed=42)
    return {
        "choice": choice.record,
        "record": dict(last.record),
        "state": {key: value.tolist() for key, value in last.state().items()},
        "scores": last.score(make.all_pairs(world.corpus), bank=bank, seed=42).tolist(),
        "seen": last.contexts_seen,
    }


@pytest.mark.parametrize("how", ["permuted", "replaced"])
def test_other_labels_of_the_target_change_nothing(worlds: Any, make: Any, how: str) -> None:
    records, rules = worlds.fixed(), worlds.Rules(length=8, hard=4)
    found = []
    for some in (records, worlds.relabelled(records, TARGET, how=how)):
        world = worlds.of(some, top=12)
        found.append(trained(world, make.source(world, rules, target=TARGET), make))
    assert found[0] == found[1]
    assert np.ptp(found[0]["scores"]) > 0
    assert TARGET not in found[0]["seen"]


def test_other_labels_of_a_source_change_the_fit(worlds: Any, make: Any) -> None:
    """Or the test above would see nothing."""
    records, rules = worlds.fixed(), worlds.Rules(length=8, hard=4)
    found = []
    for some in (records, worlds.relabelled(records, "D2", how="permuted")):
        world = worlds.of(some, top=12)
        found.append(trained(world, make.source(world, rules, target=TARGET), make))
    assert found[0]["choice"]["values"] != found[1]["choice"]["values"]
    assert found[0]["scores"] != found[1]["scores"]


@pytest.mark.parametrize("how", ["permuted", "replaced"])
def test_a_fit_without_a_context_does_not_know_its_labels(worlds: Any, make: Any, how: str) -> None:
    records, rules = worlds.fixed(), worlds.Rules(length=8, hard=4)
    states = []
    for some in (records, worlds.relabelled(records, "D2", how=how)):
        world = worlds.of(some, top=12)
        last = fitted(world, make.source(world, rules, target=TARGET).without(("D2",)), row())
        states.append({key: value.tolist() for key, value in last.state().items()})
        assert last.contexts_seen == ("D0", "D3")
    assert states[0] == states[1]


def test_neighbours_come_from_the_training_lists(fixed_world: Any, worlds: Any, make: Any) -> None:
    bank = fixed_world.bank()
    source = make.source(fixed_world, worlds.Rules(length=8, hard=4), target=TARGET)
    one = row().trainer(source, bank=bank, seed=1, limits=Limits(epochs=1, max_tasks=None))
    listed = np.unique(np.concatenate([m.capability for m in source.manifests.values()]))
    owner = np.repeat(np.arange(bank.corpus.n_capabilities), np.diff(tool_table(bank).offsets))
    gold = np.unique(source.fold.labels.gold.indices)
    assert set(owner[one.pool]) <= set(listed) | set(gold)
    one.epoch(0)
    assert one.table is not None
    assert set(one.table[one.table >= 0]) <= set(one.pool)


def test_scores_are_equal_in_every_view_and_order(fixed_world: Any, worlds: Any, make: Any) -> None:
    rules = worlds.Rules(length=8, hard=4)
    source = make.source(fixed_world, rules, target=TARGET)
    last = fitted(fixed_world, source, row())
    whole = last.score(make.all_pairs(fixed_world.corpus), bank=fixed_world.bank(), seed=1)
    table = whole.reshape(fixed_world.corpus.n_tasks, -1)
    assert np.abs(table).max() <= 1 + 1e-6
    for view, manifest in fixed_world.manifests(fixed_world.fold(rules)).items():
        pairs = Pairs(task=manifest.task_of, capability=manifest.capability)
        found = last.score(pairs, bank=fixed_world.bank(), seed=2)
        np.testing.assert_allclose(found, table[pairs.task, pairs.capability], atol=1e-6, err_msg=view)
        backwards = pairs.take(np.arange(len(pairs))[::-1])
        np.testing.assert_allclose(last.score(backwards, bank=fixed_world.bank(), seed=1), found[::-1], atol=1e-6)


def test_a_capability_scores_its_best_endpoint(fixed_world: Any, worlds: Any, make: Any, monkeypatch: Any) -> None:
    bank = fixed_world.bank()
    last = fitted(fixed_world, make.source(fixed_world, worlds.Rules(length=8, hard=4), target=TARGET), row())
    tools, (tasks, vectors) = bank.shared(tool_table), vectors_of(bank, "raw")
    net = head_of(last.weights)
    z_task, z_tool = (
        z_of(net, lambda r, v=v: scaled(v[r], device="cpu"), np.arange(len(v)), chunk=99) for v in (tasks, vectors)
    )
    cosine = (z_task @ z_tool.T).astype(np.float64)
    expected = np.maximum.reduceat(cosine, tools.offsets[:-1], axis=1)
    pairs = make.all_pairs(fixed_world.corpus)
    np.testing.assert_allclose(last.score(pairs, bank=bank, seed=1), expected.ravel(), atol=1e-6)
    monkeypatch.setattr("toolshift.models.ntilc.ntilc._CHUNK_TOOLS", 5)
    np.testing.assert_allclose(last.score(pairs, bank=bank, seed=1), expected.ravel(), atol=1e-6)


def test_best_cosines_by_hand() -> None:
    z_tool = np.array([[1, 0], [0, 1], [0.6, 0.8]], np.float32)
    z_task = np.array([[1, 0], [0, 1]], np.float32)
    found = best_cosines(z_task, z_tool, task=np.array([0, 0, 1]), first=np.array([1, 0, 0]), count=np.array([2, 1, 3]))
    assert found.tolist() == pytest.approx([0.6, 1.0, 1.0])


def test_gold_tools_by_hand(worlds: Any) -> None:
    """Gold endpoints where they are named, all endpoints of a gold tool where not, the tool itself without any."""
    tools = [
        worlds.Tool("a", "A", (worlds.Api("x"), worlds.Api("y"))),
        worlds.Tool("b", "A", ()),
        worlds.Tool("c", "", (worlds.Api("u"), worlds.Api("v"))),
    ]
    asks = [worlds.Ask("t0", "A", "text", (("a", "y"), ("c",))), worlds.Ask("t1", "A", "text", (("b",),))]
    world = worlds.of(worlds.records(tools, asks), top=2)
    bank = world.bank()
    table = tool_table(bank)
    assert table.offsets.tolist() == [0, 2, 3, 5]
    assert table.texts == ("a | x | domain: A", "a | y | domain: A", "b | domain: A", "c | u", "c | v")
    found = gold_tools(np.array([0, 1]), world.labels, corpus=bank.corpus, tools=table)
    assert found == [[1, 3, 4], [2]]


def test_circle_only_is_lambda2_of_zero(fixed_world: Any, worlds: Any, make: Any) -> None:
    source = make.source(fixed_world, worlds.Rules(length=8, hard=4), target=TARGET)
    circle, both = (fitted(fixed_world, source, row(lambda2=v)) for v in (0.0, 2.0))
    assert circle.curve[0].loss == pytest.approx(circle.curve[0].alignment)
    assert circle.curve[0].steps == both.curve[0].steps
    assert both.curve[0].loss > both.curve[0].alignment
    assert any(not np.array_equal(circle.weights[n], both.weights[n]) for n in circle.weights)
    again = fitted(fixed_world, source, row(lambda2=2.0))
    assert all(np.array_equal(again.weights[n], both.weights[n]) for n in both.weights)
    assert set(both.record["curve"][0]) == {"alignment", "fm", "active_share", "mean_rho", "mean_w"}


def test_a_row_whose_margin_does_nothing_fails(fixed_world: Any, worlds: Any, make: Any) -> None:
    source = make.source(fixed_world, worlds.Rules(length=8, hard=4), target=TARGET)
    with pytest.raises(NoActivePairs, match="active share 0 in all 2 epochs"):
        fitted(fixed_world, source, row(m0=1e-6))
    fitted(fixed_world, source, row(m0=1e-6, lambda2=0.0))


@pytest.mark.parametrize("setting", [{"compat": "code"}, {"loss": "contrastive"}, {"space": "aligned"}])
def test_options_change_the_scores(fixed_world: Any, worlds: Any, make: Any, setting: Any) -> None:
    source = make.source(fixed_world, worlds.Rules(length=8, hard=4), target=TARGET)
    pairs = make.all_pairs(fixed_world.corpus)
    one, other = (fitted(fixed_world, source, row(**some)) for some in ({}, setting))
    bank = fixed_world.bank()
    scores = [some.score(pairs, bank=bank, seed=0) for some in (one, other)]
    assert np.isfinite(scores[1]).all()
    assert not np.allclose(*scores)


def test_bad_parameters_are_refused() -> None:
    with pytest.raises(UnknownSpace):
        row(space="polar")
    with pytest.raises(BadParameter, match="compat='jaccard'"):
        row(compat="jaccard")
    with pytest.raises(BadParameter, match="needs a vector per tool"):
        row(loss="prototype")
    with pytest.raises(BadParameter, match="m0"):
        row(m0=-1.0)


def test_it_memorises_its_sources(fixed_world: Any, worlds: Any, make: Any) -> None:
    source = make.source(fixed_world, worlds.Rules(length=8, hard=4), target=TARGET)
    last = fitted(fixed_world, source, Ntilc(learning_rate=3e-3, dropout=0.0, batch_tasks=16, m0=0.5), epochs=40)
    manifest = source.manifests["natural"]
    pairs = Pairs(task=manifest.task_of, capability=manifest.capability)
    scores = last.score(pairs, bank=fixed_world.bank(), seed=0)
    lists = np.split(np.arange(len(pairs)), manifest.offsets[1:-1])
    hits = [manifest.positive[rows[scores[rows].argmax()]] for rows in lists]
    assert np.mean(hits) > 0.9
    assert last.contexts_seen == ("D0", "D2", "D3")

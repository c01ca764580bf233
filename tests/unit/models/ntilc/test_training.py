"""Batches, masks, neighbours, early stopping, resuming and refusals of the training."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from toolshift.models.base import BadParameter
from toolshift.models.ntilc.encoder import NtilcError, z_of
from toolshift.models.ntilc.signature import Signatures
from toolshift.models.ntilc.training import (
    Examples,
    NoActivePairs,
    Objective,
    Schedule,
    Trainer,
    batches,
    masks,
    rate,
    share,
    total_steps,
    train,
)
from toolshift.runs.ranks import World
from toolshift.runs.seeds import id_hashes

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("one_thread")

FAST = Schedule(epochs=6, batch=8, learning_rate=0.01, neighbours=2, patience=None)


def examples(*gold: list[int]) -> Examples:
    return Examples.of(gold, hashes=id_hashes(map(str, range(len(gold)))))


def state(net: Any) -> dict[str, list[Any]]:
    return {name: value.tolist() for name, value in net.state_dict().items()}


def test_no_gold_tool_of_a_query_is_its_negative() -> None:
    """Query 0 has tools 1 and 4, query 1 has 2. Tool 5 reads like tool 1 (code 1), so it is no negative of query 0."""
    batch = examples([4, 1, 1], [2])
    columns = np.array([1, 2, 4, 5, 7])
    code = np.array([0, 1, 2, 3, 4, 1, 6, 7])
    positive, negative = masks(batch, columns, code=code)
    assert positive.tolist() == [[1, 0, 1, 0, 0], [0, 1, 0, 0, 0]]
    assert negative.tolist() == [[0, 1, 0, 0, 1], [1, 0, 1, 1, 1]]
    assert not (positive & negative).any()


def test_removed_tools_are_left_out_and_counted() -> None:
    found = examples([3, -1], [-1], [2])
    assert found.tool.tolist() == [3, 2]
    assert found.query.tolist() == [0, 2]
    assert (found.missing, found.unusable) == (2, 1)
    with pytest.raises(NtilcError, match="none of 2 queries has a gold tool"):
        examples([-1], [])


def test_every_tool_with_two_queries_is_validated() -> None:
    """Tool 0 has 10 queries, tool 1 two, tool 2 one: two, one and none are held out."""
    some = examples(*[[0]] * 10, *[[1]] * 2, [2])
    fit, held_out = some.split(0.2, seed=1)
    assert np.bincount(held_out.tool, minlength=3).tolist() == [2, 1, 0]
    assert np.bincount(fit.tool, minlength=3).tolist() == [8, 1, 1]
    assert not set(fit.query) & set(held_out.query)
    assert len(some.split(0.0, seed=1)[1]) == 0
    assert some.split(0.2, seed=2)[1].query.tolist() != held_out.query.tolist()


def test_batches_and_shares_divide_the_queries() -> None:
    some = examples(*[[0]] * 10)
    parts = list(batches(some, 0, seed=1, size=4))
    assert [p.size for p in parts] == [4, 4, 2]
    assert sorted(np.concatenate(parts)) == list(range(10))
    assert [p.tolist() for p in batches(some, 1, seed=1, size=4)] != [p.tolist() for p in parts]
    shares = [share(parts[0], World(rank=r, size=3)) for r in range(3)]
    assert sorted(np.concatenate(shares)) == sorted(parts[0])
    assert share(parts[2], World(rank=2, size=3)).size == 1  # all processes take the step together


def test_the_rate_rises_and_falls() -> None:
    schedule = Schedule(epochs=5, batch=10, warmup=0.1)
    total = total_steps(40, schedule)
    assert total == 20
    factor = rate(schedule, total=total)
    assert [factor(i) for i in (0, 1, 2, 11, 20)] == pytest.approx([0.5, 1.0, 1.0, 0.5, 0.0])
    assert rate(replace(schedule, linear=False), total=total)(19) == 1.0
    assert total_steps(40, replace(schedule, max_steps=7)) == 7


def trainer(toy: Any, **options: Any) -> Trainer:
    parts = {"objective": Objective(), "schedule": FAST, "compat": toy.compat, "inputs": toy.inputs, **options}
    return Trainer.begin(toy.net(), toy.examples, seed=1, **parts)


def test_neighbours_are_the_nearest_with_another_signature(build: Any) -> None:
    """By hand from the table of cosines; tool 1 has the signature of tool 0 and reads otherwise, 3 reads like 2."""
    toy = build.toy()
    items = [frozenset({f"arg:{0 if i == 1 else i}"}) for i in range(12)]
    code = np.array([0, 1, 2, 2, *range(4, 12)])
    one = trainer(toy, compat=Signatures.of_items(items), inputs=replace(toy.inputs, code=code))
    z = z_of(one.net, one.inputs.tools, np.arange(12), chunk=64)
    cosine = z @ z.T
    found = one.neighbours()
    for tool in range(12):
        allowed = [j for j in range(12) if j != tool and {tool, j} not in ({0, 1}, {2, 3})]
        assert found[tool].tolist() == sorted(allowed, key=lambda j: -cosine[tool, j])[:2]
    narrow = trainer(toy, pool=np.array([0, 5]), schedule=replace(FAST, neighbours=20)).neighbours()
    assert narrow.shape == (12, 20)
    assert (narrow[:, 11:] == -1).all()


def test_the_loss_of_a_batch_is_that_of_its_parts(build: Any) -> None:
    """Multi-gold queries: rows of one query share its weight; only tools that are not gold repel."""
    toy = build.toy()
    one = trainer(toy, objective=Objective(lambda1=0.5, lambda2=3.0, m0=0.7))
    one.net.eval()
    one.table = one.neighbours()
    batch = toy.examples.take(np.array([0, 3, 8]))
    assert np.diff(batch.offsets).tolist() == [2, 1, 2]
    columns, gold = one.columns(batch)
    loss, sums = one.loss(batch)
    z = z_of(one.net, one.inputs.tools, np.arange(12), chunk=64)
    per_query = []
    for q in range(3):
        own = batch.tool[batch.offsets[q] : batch.offsets[q + 1]]
        rows = []
        for g in own:
            others = [j for j in columns if j not in own]
            rho = np.array([max(0.7 - (1 - z[g] @ z[j]), 0) for j in others])  # w is 1 for all
            rows.append((rho**2).sum() / max((rho > 0).sum(), 1e-8))
        per_query.append(np.mean(rows))
    assert sums["fm"] == pytest.approx(np.mean(per_query), rel=1e-4)
    assert loss.item() == pytest.approx(0.5 * sums["alignment"] + 3.0 * sums["fm"], rel=1e-5)
    assert set(gold) == set(batch.tool)
    assert sums["w"] == pytest.approx(sums["pairs"])


@pytest.mark.parametrize(
    "objective",
    [
        Objective(),
        Objective(lambda2=0.0),
        Objective(loss="contrastive", lambda2=0.5),
        Objective(loss="prototype", lambda2=0.0),
        Objective(loss="circle_prototype", fm_form="prototype", fm_average="active", m0=0.9),
    ],
)
def test_queries_find_their_tools(build: Any, objective: Objective) -> None:
    toy = build.toy()
    net = toy.net(prototypes=12 if objective.has_prototypes else 0)
    options = {"inputs": toy.inputs, "compat": toy.compat, "objective": objective}
    fitted = train(net, toy.examples, schedule=replace(FAST, epochs=30), seed=3, **options)
    assert fitted.curve[fitted.best].validation_top1 >= 0.9
    assert fitted.curve[-1].loss < fitted.curve[0].loss
    one = Trainer.begin(net, toy.examples, schedule=FAST, seed=3, **options)
    assert one.top1(toy.examples) >= 0.9


def test_the_margin_sets_like_tools_apart(build: Any) -> None:
    toy = build.toy(near=0.1)
    apart = []
    for lambda2 in (0.0, 10.0):
        net = toy.net()
        objective = Objective(lambda1=0.05, lambda2=lambda2, m0=0.7)
        fit = {"inputs": toy.inputs, "compat": toy.compat, "objective": objective}
        fitted = train(net, toy.examples, schedule=replace(FAST, epochs=15, validation=0.0), **fit)
        z = z_of(net, toy.inputs.tools, np.arange(12), chunk=64)
        apart.append(float(np.mean([z[i] @ z[i + 1] for i in range(0, 12, 2)])))
        assert fitted.curve[0].active_share > 0
        assert 0 < fitted.curve[0].mean_rho <= 0.7
        assert fitted.curve[0].mean_w == pytest.approx(1.0)
    assert apart[1] < apart[0] - 0.05


def test_a_training_without_an_active_pair_fails(build: Any) -> None:
    toy = build.toy()
    same = Signatures.of_items([frozenset({"arg:x"})] * 12)
    fit = {"inputs": toy.inputs, "schedule": FAST}
    with pytest.raises(NoActivePairs, match=r"active share 0 in all 6 epochs.*Raise m0.*lambda2=0"):
        train(toy.net(), toy.examples, compat=same, **fit)
    circle_only = train(toy.net(), toy.examples, compat=same, objective=Objective(lambda2=0.0), **fit)
    assert {e.active_share for e in circle_only.curve} == {0.0}


def test_equal_seeds_give_equal_weights(build: Any) -> None:
    toy = build.toy()
    fit = {"inputs": toy.inputs, "compat": toy.compat, "schedule": replace(FAST, epochs=2)}
    found = [state(train(toy.net(), toy.examples, seed=seed, **fit).net) for seed in (5, 5, 6)]
    assert found[0] == found[1] != found[2]


def test_a_stopped_training_goes_on_as_if_it_had_not_been(build: Any, tmp_path: Path, monkeypatch: Any) -> None:
    toy = build.toy()
    fit = {"inputs": toy.inputs, "compat": toy.compat, "schedule": replace(FAST, epochs=4), "seed": 5}
    whole = train(toy.net(), toy.examples, **fit)
    original, calls = Trainer.epoch, []

    def stops(self: Trainer, number: int) -> Any:
        calls.append(number)
        if number == 2 and calls.count(2) == 1:
            raise KeyboardInterrupt
        return original(self, number)

    monkeypatch.setattr(Trainer, "epoch", stops)
    with pytest.raises(KeyboardInterrupt):
        train(toy.net(), toy.examples, folder=tmp_path, **fit)
    again = train(toy.net(), toy.examples, folder=tmp_path, **fit)
    assert calls == [0, 1, 2, 2, 3]
    assert state(again.net) == state(whole.net)
    assert again.curve == whole.curve
    with pytest.raises(NtilcError, match="other settings or data"):
        train(toy.net(), toy.examples, folder=tmp_path, **{**fit, "seed": 6})


def test_patience_and_steps_end_a_training(build: Any) -> None:
    toy = build.toy()
    fit = {"inputs": toy.inputs, "compat": toy.compat}
    still = replace(FAST, epochs=20, learning_rate=0.0, patience=2)
    fitted = train(toy.net(), toy.examples, schedule=still, **fit)
    assert (len(fitted.curve), fitted.best) == (3, 0)
    capped = train(toy.net(), toy.examples, schedule=replace(FAST, max_steps=7, validation=0.0), **fit)
    assert [e.steps for e in capped.curve] == [6, 1]
    assert capped.best == 1


def test_bad_settings_are_refused(build: Any) -> None:
    for bad in (
        {"loss": "triplet"},
        {"fm_form": "x"},
        {"lambda1": 0.0, "lambda2": 0.0},
        {"m0": 0.0},
        {"lambda2": -1.0},
    ):
        with pytest.raises(BadParameter, match="ntilc"):
            Objective(**bad)
    toy = build.toy()
    with pytest.raises(NtilcError, match="registry is empty"):
        trainer(toy, compat=Signatures.of_items([]))
    with pytest.raises(BadParameter, match="net with prototypes"):
        trainer(toy, objective=Objective(loss="prototype"))


SCRIPT = """
import json, os, sys
import numpy as np, torch
from toolshift.models.ntilc.encoder import FrozenInputs, network
from toolshift.models.ntilc.signature import Signatures
from toolshift.models.ntilc.training import Examples, Schedule, train
from toolshift.runs.seeds import id_hashes
from toolshift.text.encoder import unit_rows
torch.set_num_threads(1)
rng = np.random.default_rng(0)
tools = unit_rows(rng.standard_normal((6, 8)))
gold = [[i % 6] for i in range(25)]  # the last batch has one query: a process of its own gets it twice
queries = unit_rows(tools[[g[0] for g in gold]] + 0.1 * rng.standard_normal((25, 8)))
fitted = train(
    network(dim=8, seed=1, hidden=8, width=4),
    Examples.of(gold, hashes=id_hashes(map(str, range(25)))),
    inputs=FrozenInputs(query_vectors=queries, tool_vectors=tools, code=np.arange(6)),
    compat=Signatures.of_items([frozenset({str(i)}) for i in range(6)]),
    schedule=Schedule(epochs=2, batch=8, learning_rate=0.01, neighbours=1, validation=0.0, patience=None),
)
found = {"net": {n: v.tolist() for n, v in fitted.net.state_dict().items()}, "loss": [e.loss for e in fitted.curve]}
open(os.path.join(sys.argv[1], os.environ["RANK"] + ".json"), "w").write(json.dumps(found))
"""


@pytest.mark.slow
def test_two_processes_train_one_network(tmp_path: Path) -> None:
    script = tmp_path / "two.py"
    script.write_text(SCRIPT)
    path = os.pathsep.join(p for p in sys.path if p)
    env = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=2", "--master_port=0"]
    done = subprocess.run(
        [*command, "--standalone", str(script), str(tmp_path)], env=env, capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stderr[-2000:]
    first, second = ((tmp_path / f"{rank}.json").read_text() for rank in (0, 1))
    assert first == second

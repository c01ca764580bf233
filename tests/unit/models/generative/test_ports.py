"""PORTS: both losses and their gradients by hand, samples, schedule, and what each mechanism does."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from toolshift.llm.errors import NotAvailable
from toolshift.measures import evaluate_lists
from toolshift.models.base import BadParameter, Limits
from toolshift.models.features import Pairs, UnknownSpace
from toolshift.models.generative import ports
from toolshift.models.generative.ports import (
    CLAMP,
    Ports,
    PortsStandin,
    draw_samples,
    kl_loss,
    objective,
    odds_ratio_loss,
    project,
    rate_factor,
)
from toolshift.models.generative.preference import MissingModel
from toolshift.training.lists import Batch, TrainingLists

torch = pytest.importorskip("torch")
LIMITS = Limits(epochs=3, max_tasks=None)


def row(**changed: Any) -> PortsStandin:
    return PortsStandin(**{"learning_rate": 0.02, "batch_tasks": 8, **changed})


def tensor(*rows: list[float]) -> Any:
    return torch.tensor(rows, dtype=torch.float64)


def test_the_kl_loss_by_hand() -> None:
    q, pr = tensor([0.5, 0.25, 0.25]), tensor([0.2, 0.3, 0.5])
    expected = 0.5 * math.log(0.5 / 0.2) + 0.25 * math.log(0.25 / 0.3) + 0.25 * math.log(0.5)
    assert float(kl_loss(q.log(), pr.log())) == pytest.approx(expected)
    assert float(kl_loss(pr.log(), q.log())) != pytest.approx(expected)  # the preference is the target
    assert float(kl_loss(q.log(), q.log())) == 0.0


def test_the_odds_ratio_loss_by_hand() -> None:
    """Odds of .6, .3 and .1 are 3/2, 3/7 and 1/9: ratios 7/2 and 27/2; ln sigmoid(ln r) = ln(r / (1 + r))."""
    found = odds_ratio_loss(tensor([0.6, 0.3, 0.1]).log(), torch.ones(1, 3, dtype=torch.bool), w=0.8)
    assert float(found) == pytest.approx(-0.8 / 2 * (math.log(7 / 9) + math.log(27 / 29)))


def test_an_absent_negative_counts_for_nothing() -> None:
    valid = torch.tensor([[True, True, False]])
    found = odds_ratio_loss(tensor([0.6, 0.4, 0.0]).clamp(min=1e-30).log(), valid, w=1.0)
    assert float(found) == pytest.approx(-math.log(2.25 / 3.25))
    model = row(gamma=1.0, beta=1.0)
    sim, liked = tensor([0.3, 0.1, 9.0]), tensor([1.0, 0.2, 9.0])
    cut = objective(sim[:, :2], liked[:, :2], valid[:, :2], model=model)
    torch.testing.assert_close(objective(sim, liked, valid, model=model), cut)


def test_the_clamp_keeps_loss_and_gradient_finite() -> None:
    """At Pr = 1 the log odds are ln((1 - 1e-6) / 1e-6) and its mirror image."""
    valid = torch.ones(1, 2, dtype=torch.bool)
    sim = tensor([-1000.0, 1000.0]).requires_grad_()
    loss = objective(sim, tensor([0.0, 0.0]), valid, model=row(gamma=1.0, beta=1.0, lambda_or=1.0))
    loss.sum().backward()
    assert torch.isfinite(sim.grad).all()
    odds = math.log((1 - CLAMP) / CLAMP)
    found = odds_ratio_loss(tensor([0.0, -2000.0]), valid, w=1.0)
    assert float(found) == pytest.approx(math.log1p(math.exp(-2 * odds)), rel=1e-6)
    wrong = odds_ratio_loss(tensor([-2000.0, 0.0]), valid, w=1.0)
    assert float(wrong) == pytest.approx(2 * odds, rel=1e-6)


def test_the_objective_by_hand() -> None:
    """gamma = beta = 1/2: Pr and Q are softmaxes of twice the values."""
    sim, liked = tensor([0.5, 0.1, 0.0]), tensor([1.0, -0.5, -1.0])
    pr, q = (np.exp(2 * x.numpy()[0]) / np.exp(2 * x.numpy()[0]).sum() for x in (sim, liked))
    odds = np.log(pr / (1 - pr))
    ratios = odds[0] - odds[1:]
    expected = (q * np.log(q / pr)).sum() + 0.3 * -0.5 * np.log(1 / (1 + np.exp(-ratios))).sum()
    found = objective(sim, liked, torch.ones(1, 3, dtype=torch.bool), model=PortsStandin())
    assert float(found) == pytest.approx(expected)


def test_with_a_one_hot_preference_the_first_term_is_cross_entropy() -> None:
    sim, valid = tensor([0.4, 0.2, -0.3]), torch.ones(1, 3, dtype=torch.bool)
    found = objective(sim, tensor([100.0, 0.0, 0.0]), valid, model=row(gamma=1.0, beta=0.1, lambda_or=0.0))
    torch.testing.assert_close(found, torch.nn.functional.cross_entropy(sim, torch.tensor([0])).reshape(1))


def test_the_projection_starts_at_the_vector_itself() -> None:
    x = torch.nn.functional.normalize(torch.randn(4, 3, generator=torch.Generator().manual_seed(0)), dim=1)
    torch.testing.assert_close(project(x, torch.zeros(3, 3)), x)
    by_hand = project(torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0], [0.0, 0.0]]))
    torch.testing.assert_close(by_hand, torch.tensor([[0.5**0.5, 0.5**0.5]]))


def test_the_schedule() -> None:
    found = [rate_factor(step, steps=20, warm_up=0.1) for step in (0, 1, 2, 11, 20, 30)]
    np.testing.assert_allclose(found, [0.5, 1.0, 1.0, 0.5, 0.0, 0.0], atol=1e-12)
    assert rate_factor(0, steps=20, warm_up=0.0) == 1.0


def lists_batch() -> Batch:
    """Task 0: positives 0 and 1, negatives 2, 3, 4, 5. Task 1: positive 2, negative 0. Task 2: a positive alone."""
    rows = [(0, 1), (1, 1), (2, 0), (3, 0), (4, 0), (5, 0), (0, 0), (2, 1), (1, 1)]
    return Batch(
        tasks=np.array([0, 1, 2]),
        offsets=np.array([0, 6, 8, 9]),
        capability=np.array([c for c, _ in rows]),
        positive=np.array([p == 1 for _, p in rows]),
    )


def test_samples(fixed_world: Any) -> None:
    corpus = fixed_world.corpus
    seen = set()
    for epoch in range(30):
        found = draw_samples(lists_batch(), corpus, negatives=3, seed=1, epoch=epoch)
        assert found.task.tolist() == [0, 0, 1]
        assert found.tools[:, 0].tolist() == [0, 1, 2]
        assert found.valid.tolist() == [[True] * 4, [True] * 4, [True, True, False, False]]
        for drawn in found.tools[:2, 1:]:
            assert len(set(drawn)) == 3
            assert set(drawn) <= {2, 3, 4, 5}
        assert found.tools[2, 1] == 0
        seen.add((frozenset(found.tools[0, 1:].tolist()), frozenset(found.tools[1, 1:].tolist())))
    assert {one for one, _ in seen} == {other for _, other in seen}  # each of the four choices comes up for both
    assert len({one for one, _ in seen}) == 4
    assert any(one != other for one, other in seen)
    again = draw_samples(lists_batch(), corpus, negatives=3, seed=1, epoch=29)
    np.testing.assert_array_equal(again.tools, found.tools)


def test_more_negatives_than_there_are(fixed_world: Any) -> None:
    found = draw_samples(lists_batch(), fixed_world.corpus, negatives=6, seed=1, epoch=0)
    assert found.valid.sum(axis=1).tolist() == [5, 5, 2]
    assert sorted(found.tools[0, 1:5].tolist()) == [2, 3, 4, 5]


def test_the_proxy_preference(fixed_world: Any, worlds: Any, make: Any) -> None:
    source, bank = make.source(fixed_world, worlds.Rules(length=8, hard=4), target="D0"), fixed_world.bank()
    samples = draw_samples(lists_batch(), fixed_world.corpus, negatives=3, seed=1, epoch=0)
    found = row().preference(samples, source=source, bank=bank, device="cpu")
    match = bank.schema_match(make.all_pairs(fixed_world.corpus), pool=4, operation=True)
    match = match.reshape(fixed_world.corpus.n_tasks, -1)
    assert found[:, 0].tolist() == [1.0, 1.0, 1.0]
    np.testing.assert_allclose(found[:2, 1:], match[0, samples.tools[:2, 1:]] - 1.0)


def fitted(world: Any, worlds: Any, make: Any, model: Any, *, seed: int = 1) -> Any:
    source = make.source(world, worlds.Rules(length=8, hard=4), target="D0")
    *_, last = model.epochs(source, bank=world.bank(), seed=seed, limits=LIMITS)
    return last


def scores(world: Any, make: Any, scorer: Any) -> Any:
    return scorer.score(make.all_pairs(world.corpus), bank=world.bank(), seed=1)


def test_training_helps_on_its_own_lists(fixed_world: Any, worlds: Any, make: Any) -> None:
    source = make.source(fixed_world, worlds.Rules(length=8, hard=4), target="D0")
    *_, last = row(schedule_epochs=10).epochs(
        source, bank=fixed_world.bank(), seed=1, limits=replace(LIMITS, epochs=10)
    )
    batch = TrainingLists.of(source.manifests, fixed_world.corpus, max_tasks=None).everything()

    def best_is_gold(values: Any) -> float:
        table = values.reshape(fixed_world.corpus.n_tasks, -1)
        own = table[batch.tasks[batch.owner], batch.capability]
        ends = zip(batch.offsets[:-1], batch.offsets[1:], strict=True)
        return float(np.mean([batch.positive[a + int(np.argmax(own[a:b]))] for a, b in ends]))

    cosine = fixed_world.bank().cosine(make.all_pairs(fixed_world.corpus))
    assert best_is_gold(scores(fixed_world, make, last)) > best_is_gold(cosine) + 0.05
    assert last.record["training_loss"] > 0


def wide_bank(world: Any, worlds: Any) -> Any:
    class Wide(worlds.WordEncoder):
        dim = 256

    encoder, corpus = Wide(), world.corpus
    return replace(
        world.bank(),
        cache=worlds.MemoryCache(encoder),
        task_vectors=encoder.encode(corpus.task_texts),
        capability_vectors=encoder.encode(corpus.capability_texts),
    )


def test_two_hundred_tasks_can_be_memorised(worlds: Any, make: Any) -> None:
    """The overfitting check, with wider vectors than elsewhere: two 24 x 24 projections hold too little."""
    world = worlds.of(worlds.fixed(domains=5, tools=10, tasks=50), top=12)
    source, bank = make.source(world, worlds.Rules(length=12, hard=6), target="D4"), wide_bank(world, worlds)
    assert source.tasks.size == 200
    model = row(gamma=0.05, learning_rate=0.01, batch_tasks=64, schedule_epochs=60, weight_decay=0.0)
    *_, last = model.epochs(source, bank=bank, seed=1, limits=replace(LIMITS, epochs=60))
    for view, manifest in source.manifests.items():
        pairs = Pairs(task=manifest.task_of, capability=manifest.capability)
        values = last.score(pairs, bank=bank, seed=0)
        found = evaluate_lists(values, manifest.positive, offsets=manifest.offsets, measures=["NDCG@5"])
        assert found.values["NDCG@5"].mean() > 0.95, view


def test_an_untrained_projection_is_the_cosine(fixed_world: Any, make: Any) -> None:
    zero = {name: np.zeros((24, 24), np.float32) for name in ("task", "capability")}
    found = scores(fixed_world, make, ports.FittedPorts(weights=zero, loss=0.0, contexts_seen=()))
    np.testing.assert_allclose(found, fixed_world.bank().cosine(make.all_pairs(fixed_world.corpus)), atol=1e-6)


CHANGES: Mapping[str, Mapping[str, Any]] = {
    "odds ratio": {"lambda_or": 0.0},
    "inner weight": {"w": 0.5},
    "preference": {"beta": 1e6},  # all tools are liked alike
    "retrieval temperature": {"gamma": 5.0},
    "negatives": {"negatives": 1},
    "clip": {"clip": 1e-9},
    "warm-up": {"warm_up": 0.5},
    "schedule": {"schedule_epochs": 50},
    "weight decay": {"weight_decay": 5.0},
    "samples": {"max_samples": 5},
    "coordinates": {"space": "aligned"},
}


@pytest.mark.parametrize("name", CHANGES)
def test_without_a_mechanism_scores_change(fixed_world: Any, worlds: Any, make: Any, name: str) -> None:
    whole, without = (
        scores(fixed_world, make, fitted(fixed_world, worlds, make, row(**changed))) for changed in ({}, CHANGES[name])
    )
    assert np.abs(whole - without).max() > 1e-5


@pytest.mark.parametrize("name", ["residual", "kl"])
def test_without_the_residual_or_the_first_loss_scores_change(
    fixed_world: Any, worlds: Any, make: Any, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    whole = scores(fixed_world, make, fitted(fixed_world, worlds, make, row()))
    if name == "kl":
        monkeypatch.setattr(ports, "kl_loss", lambda log_q, log_pr: torch.zeros(len(log_q)))
        without = scores(fixed_world, make, fitted(fixed_world, worlds, make, row()))
    else:
        last = fitted(fixed_world, worlds, make, row())
        x = {side: np.eye(24, dtype=np.float32) for side in last.weights}  # (x + x W) - x: the projection alone
        without = scores(fixed_world, make, replace(last, weights={s: w - x[s] for s, w in last.weights.items()}))
    assert np.abs(whole - without).max() > 1e-3


def test_epochs_stop_with_the_schedule(fixed_world: Any, worlds: Any, make: Any) -> None:
    source, bank = make.source(fixed_world, worlds.Rules(length=8, hard=4), target="D0"), fixed_world.bank()
    found = list(row(schedule_epochs=2).epochs(source, bank=bank, seed=1, limits=LIMITS))
    assert len(found) == 2
    assert found[0].weights["task"].any()
    assert (found[0].weights["task"] != found[1].weights["task"]).any()  # a yielded scorer stays as it was


def test_fewer_epochs_are_the_first_ones(fixed_world: Any, worlds: Any, make: Any) -> None:
    """The refit stops earlier than the selection: the schedule must not depend on where it stops."""
    source, bank = make.source(fixed_world, worlds.Rules(length=8, hard=4), target="D0"), fixed_world.bank()
    first, *_ = row().epochs(source, bank=bank, seed=1, limits=LIMITS)
    (alone,) = row().epochs(source, bank=bank, seed=1, limits=replace(LIMITS, epochs=1))
    np.testing.assert_array_equal(alone.weights["task"], first.weights["task"])


@pytest.mark.parametrize(
    "bad", [{"gamma": 0.0}, {"beta": -1.0}, {"negatives": 0}, {"w": -1.0}, {"warm_up": 1.0}, {"clip": 0.0}]
)
def test_parameters_out_of_range(bad: dict[str, Any]) -> None:
    with pytest.raises(BadParameter, match=next(iter(bad))):
        PortsStandin(**bad)


def test_an_unknown_space() -> None:
    with pytest.raises(UnknownSpace):
        PortsStandin(space="polar")


def test_without_a_model_the_row_is_not_run(tmp_path: Any) -> None:
    with pytest.raises(NotAvailable, match=r"llm_path=PATH") as caught:
        Ports()
    assert caught.value.not_run
    for path in (tmp_path, tmp_path / "absent"):
        with pytest.raises(MissingModel, match=str(path)) as missing:
            Ports(llm_path=str(path))
        assert missing.value.user_facing
        assert not hasattr(missing.value, "not_run")
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(MissingModel, match="weights"):
        Ports(llm_path=str(tmp_path))

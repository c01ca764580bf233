"""The split first layer, training, determinism and memorising."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from toolshift.measures import evaluate_lists
from toolshift.models.base import Limits, Source
from toolshift.models.features import Pairs
from toolshift.models.transfer import pointwise_mlp
from toolshift.models.transfer.pointwise_mlp import FittedMlp, PointwiseMlp, initial_weights, logits
from toolshift.runs.seeds import seed_of
from toolshift.training.lists import TrainingLists

torch = pytest.importorskip("torch")
TWO = Limits(epochs=2, max_tasks=None)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def source(fixed_world: Any, worlds: Any, make: Any) -> Source:
    return make.source(fixed_world, worlds.Rules(length=8, hard=4), target="D1")


@pytest.fixture(scope="module")
def bank(fixed_world: Any) -> Any:
    return fixed_world.bank()


def small(**parameters: Any) -> PointwiseMlp:
    return PointwiseMlp(**{"hidden": (16, 8), "batch_tasks": 16, **parameters})


def last(model: PointwiseMlp, source: Source, bank: Any, *, seed: int = 42, limits: Limits = TWO) -> Any:
    *_, fitted = model.epochs(source, bank=bank, seed=seed, limits=limits)
    return fitted


def digest(fitted: Any) -> str:
    return hashlib.sha256(b"".join(v.tobytes() for _, v in sorted(fitted.state().items()))).hexdigest()


def plain_network(network: Any, dim: int) -> Any:
    """The network of the paper on the concatenated input, with the same weights."""
    layers = [torch.nn.Linear(4 * dim, 16), torch.nn.Linear(16, 8), torch.nn.Linear(8, 1)]
    first = torch.cat([network["task"], network["capability"], network["pair"]])
    weights = [(first, "bias_1"), (network["layer_2"], "bias_2"), (network["layer_3"], "bias_3")]
    for layer, (weight, bias) in zip(layers, weights, strict=True):
        layer.weight.data, layer.bias.data = weight.detach().T.clone(), network[bias].detach().clone()
    return torch.nn.Sequential(layers[0], torch.nn.ReLU(), layers[1], torch.nn.ReLU(), layers[2])


def test_the_split_first_layer_is_the_plain_network() -> None:
    generator = torch.Generator().manual_seed(0)
    dim = 6
    network = initial_weights(dim, hidden=(16, 8), generator=generator)
    x, c = torch.randn(3, dim, generator=generator), torch.randn(4, dim, generator=generator)
    task, capability = torch.tensor([0, 0, 1, 2, 2, 2]), torch.tensor([3, 0, 1, 1, 2, 3])
    plain = plain_network(network, dim)
    left, right = x[task], c[capability]
    expected = plain(torch.cat([left, right, left * right, (left - right).abs()], dim=1)).squeeze(1)
    found = logits(network, x, c, task=task, capability=capability)
    torch.testing.assert_close(found, expected)
    found.square().sum().backward()
    expected.square().sum().backward()
    whole = torch.cat([network["task"].grad, network["capability"].grad, network["pair"].grad])
    torch.testing.assert_close(whole, plain[0].weight.grad.T, rtol=1e-4, atol=1e-5)


def test_initial_weights_have_the_range_of_linear_layers() -> None:
    network = initial_weights(25, hidden=(256, 64), generator=torch.Generator().manual_seed(1))
    fan_in = {"task": 100, "capability": 100, "pair": 100, "bias_1": 100, "layer_2": 256, "bias_2": 256}
    for name, fan in fan_in.items():
        largest = float(network[name].detach().abs().max())
        assert 0.9 / fan**0.5 < largest <= 1.0 / fan**0.5
    assert {n: tuple(v.shape) for n, v in network.items()}["pair"] == (50, 256)


def test_equal_seeds_give_equal_bytes_and_others_do_not(source: Source, bank: Any) -> None:
    one, again, other = (last(small(), source, bank, seed=s) for s in (42, 42, 43))
    assert digest(one) == digest(again) != digest(other)


def test_several_threads_give_equal_bytes(source: Source, bank: Any) -> None:
    """The gradient of plain indexing adds up in no fixed order as soon as there are two threads."""
    torch.set_num_threads(2)
    model, limits = PointwiseMlp(batch_tasks=64), Limits(epochs=1, max_tasks=None)
    assert len({digest(last(model, source, bank, limits=limits)) for _ in range(3)}) == 1


def test_one_scorer_per_epoch_which_later_epochs_leave_alone(source: Source, bank: Any) -> None:
    fits = small().epochs(source, bank=bank, seed=42, limits=Limits(epochs=3, max_tasks=None))
    first = next(fits)
    before = digest(first)
    rest = list(fits)
    assert len(rest) == 2
    assert digest(first) == before != digest(rest[-1])
    assert first.contexts_seen == source.contexts == ("D0", "D2", "D3")


def test_fewer_epochs_are_the_first_of_more(source: Source, bank: Any) -> None:
    """The refit for the median best epoch is the fit that selection valued at this epoch, on more tasks."""
    longer = list(small().epochs(source, bank=bank, seed=42, limits=Limits(epochs=3, max_tasks=None)))
    assert digest(last(small(), source, bank)) == digest(longer[1])


@pytest.mark.parametrize("change", [{"weight_decay": 0.5}, {"dropout": 0.5}, {"learning_rate": 0.01}])
def test_every_parameter_reaches_the_fit(source: Source, bank: Any, change: dict[str, float]) -> None:
    assert digest(last(small(**change), source, bank)) != digest(last(small(), source, bank))


def test_models_trained_together_are_those_trained_alone(source: Source, bank: Any) -> None:
    models = [small(weight_decay=w, dropout=0.3) for w in (5.0, 0.1, 0.0)]
    assert PointwiseMlp.alike(models)
    pairs = Pairs(task=source.tasks[:4], capability=np.arange(4))
    *_, together = PointwiseMlp.together(models, source, bank=bank, seed=42, limits=TWO)
    for model, fitted in zip(models, together, strict=True):
        alone = last(model, source, bank)
        assert fitted.record["training_loss"] == pytest.approx(alone.record["training_loss"], rel=1e-5)
        scores = (one.score(pairs, bank=bank, seed=0) for one in (fitted, alone))
        np.testing.assert_allclose(*scores, rtol=1e-4, atol=1e-5)
    norms = [sum(float(np.square(v).sum()) for v in fitted.state().values()) for fitted in together]
    assert norms[0] < 0.97 * norms[1] < norms[1] < norms[2]


@pytest.mark.parametrize("change", [{"hidden": (16, 9)}, {"dropout": 0.5}, {"learning_rate": 0.1}])
def test_models_of_another_kind_are_not_trained_together(change: dict[str, Any]) -> None:
    assert not PointwiseMlp.alike([small(), small(**change)])
    assert PointwiseMlp.alike([small(hidden=[16, 8]), small(weight_decay=1.0)])


def test_the_decay_is_that_of_adamw(source: Source, bank: Any, fixed_world: Any) -> None:
    """One step of a single batch, against the optimiser that has decoupled decay built in."""
    limits = Limits(epochs=1, max_tasks=None)
    fitted = last(small(weight_decay=7.0, dropout=0.0, batch_tasks=999), source, bank, limits=limits)
    generator = torch.Generator().manual_seed(seed_of("pointwise_mlp", 42) % 2**62)
    network = initial_weights(bank.task_vectors.shape[1], hidden=(16, 8), generator=generator)
    optimiser = torch.optim.AdamW(list(network.values()), lr=1e-3, weight_decay=7.0)
    lists = TrainingLists.of(source.manifests, fixed_world.corpus, max_tasks=None)
    (batch,) = lists.epoch(0, seed=42, batch_tasks=999)
    outputs = logits(
        network,
        torch.from_numpy(bank.task_vectors[batch.tasks]),
        torch.from_numpy(bank.capability_vectors),
        task=torch.from_numpy(batch.owner),
        capability=torch.from_numpy(batch.capability),
    )
    weight = torch.tensor(float((~lists.positive).sum() / lists.positive.sum()))
    labels = torch.from_numpy(batch.positive.astype(np.float32))
    torch.nn.functional.binary_cross_entropy_with_logits(outputs, labels, pos_weight=weight).backward()
    optimiser.step()
    for name, value in network.items():
        np.testing.assert_allclose(fitted.state()[name], value.detach().numpy(), rtol=1e-4, atol=1e-6, err_msg=name)


def test_the_cap_on_a_step_makes_more_of_them(source: Source, bank: Any) -> None:
    capped = last(small(), source, bank, limits=Limits(epochs=2, max_tasks=None, batch_tasks=4))
    assert digest(capped) == digest(last(small(batch_tasks=4), source, bank))
    assert digest(last(small(), source, bank, limits=Limits(epochs=2, max_tasks=None, batch_tasks=99))) == digest(
        last(small(), source, bank)
    )


def test_the_cap_reaches_the_fit(source: Source, bank: Any) -> None:
    capped = last(small(), source, bank, limits=Limits(epochs=2, max_tasks=5))
    assert digest(capped) != digest(last(small(), source, bank))


def test_dropout_is_for_training_alone(source: Source, bank: Any, fixed_world: Any, make: Any) -> None:
    fitted, pairs = last(small(dropout=0.5), source, bank), make.all_pairs(fixed_world.corpus)
    scores = fitted.score(pairs, bank=bank, seed=1)
    network = {name: torch.from_numpy(value) for name, value in fitted.state().items()}
    expected = logits(
        network,
        torch.from_numpy(bank.task_vectors),
        torch.from_numpy(bank.capability_vectors),
        task=torch.from_numpy(pairs.task),
        capability=torch.from_numpy(pairs.capability),
    )
    np.testing.assert_allclose(scores, expected.numpy(), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(scores, fitted.score(pairs, bank=bank, seed=2))


def test_dropout_keeps_the_mean_and_drops_its_share() -> None:
    """Through one path of weight one: outputs are 0 or the value over (1 - p) for each of two layers."""
    network = {
        "task": torch.ones(1, 1), "capability": torch.zeros(1, 1), "pair": torch.zeros(2, 1), "bias_1": torch.zeros(1),
        "layer_2": torch.ones(1, 1), "bias_2": torch.zeros(1), "layer_3": torch.ones(1, 1), "bias_3": torch.zeros(1),
    }  # fmt: skip
    place = torch.zeros(20_000, dtype=torch.int64)
    x = torch.ones(1, 1)
    generator = torch.Generator().manual_seed(3)
    out = logits(network, x, x, task=place, capability=place, dropout=0.2, generator=generator)
    assert torch.isclose(out, torch.tensor(0.0)).logical_or(torch.isclose(out, torch.tensor(1 / 0.64))).all()
    assert float(out.mean()) == pytest.approx(1.0, abs=0.02)


def test_the_loss_is_weighted_cross_entropy(source: Source, bank: Any, fixed_world: Any) -> None:
    """With learning rate 0 the loss of the first epoch is that of the initial weights, written out here."""
    model = small(dropout=0.0, learning_rate=0.0, batch_tasks=99)
    fitted = last(model, source, bank, limits=Limits(epochs=1, max_tasks=None))
    lists = TrainingLists.of(source.manifests, fixed_world.corpus, max_tasks=None)
    (batch,) = lists.epoch(0, seed=42, batch_tasks=99)
    z = fitted.score(Pairs(task=batch.tasks[batch.owner], capability=batch.capability), bank=bank, seed=0)
    weight = (~lists.positive).sum() / lists.positive.sum()
    expected = np.where(batch.positive, weight * np.logaddexp(0, -z), np.logaddexp(0, z)).mean()
    assert fitted.record["training_loss"] == pytest.approx(expected, rel=1e-5)
    assert weight > 1.5


def test_chunks_change_nothing(
    source: Source, bank: Any, fixed_world: Any, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    fitted, pairs = last(small(), source, bank), make.all_pairs(fixed_world.corpus)
    whole = fitted.score(pairs, bank=bank, seed=0)
    monkeypatch.setattr(pointwise_mlp, "_CHUNK_PAIRS", 13)
    np.testing.assert_allclose(fitted.score(pairs, bank=bank, seed=0), whole, rtol=1e-5, atol=1e-6)


def test_a_loss_that_is_not_finite_is_an_error(source: Source, bank: Any) -> None:
    with pytest.raises(FloatingPointError, match=r"epoch \d: the loss is not finite; lower the learning rate"):
        last(small(learning_rate=1e30), source, bank, limits=Limits(epochs=3, max_tasks=None))


def test_two_hundred_tasks_can_be_memorised(worlds: Any, make: Any) -> None:
    """The overfitting check: a network that cannot learn its own training lists is not trained."""
    world = worlds.of(worlds.fixed(domains=5, tools=10, tasks=50), top=12)
    source, bank = make.source(world, worlds.Rules(length=12, hard=6), target="D4"), world.bank()
    assert source.tasks.size == 200
    model = PointwiseMlp(weight_decay=0.0, dropout=0.0, learning_rate=3e-3, batch_tasks=64)
    fitted = last(model, source, bank, limits=Limits(epochs=60, max_tasks=None))
    assert isinstance(fitted, FittedMlp)
    for view, manifest in source.manifests.items():
        pairs = Pairs(task=manifest.task_of, capability=manifest.capability)
        scores = fitted.score(pairs, bank=bank, seed=0)
        found = evaluate_lists(scores, manifest.positive, offsets=manifest.offsets, measures=["NDCG@5"])
        assert found.values["NDCG@5"].mean() > 0.95, view

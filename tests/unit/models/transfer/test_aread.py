"""Routing, gates, masks and the correction, by hand and by taking each away."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from toolshift.models.transfer._training import PairVectors, one_stack
from toolshift.models.transfer.aread import (
    AreadAdapted,
    Contexts,
    corrected,
    expert_masks,
    gates,
    mixed_contexts,
    routing,
    training_gates,
)
from toolshift.models.transfer.pointwise_mlp import AXIS

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("one_thread")


def small(**parameters: Any) -> AreadAdapted:
    sizes = {"hidden": (16, 8), "experts": 3, "expert_width": 4, "context_width": 5, "mask_after": 1}
    return AreadAdapted(**{**sizes, "batch_tasks": 16, "learning_rate": 0.01, **parameters})


def test_training_starts_at_the_cosine(training: Any) -> None:
    fitted = training.last(small(learning_rate=0.0), epochs=1)
    np.testing.assert_allclose(training.scores(fitted), training.bank.cosine(training.pairs), atol=1e-6)


def test_centroids_are_of_the_source_tasks_of_a_context() -> None:
    vectors = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, -1.0], [9.0, 9.0], [1.0, 0.0]], np.float32)
    found = Contexts.of_tasks(np.array([0, 1, 2, 4]), np.array([7, 7, 2, 7, -1]), vectors)
    assert found.codes.tolist() == [2, 7]
    np.testing.assert_allclose(found.centroids, [[0.0, -1.0], [0.5**0.5, 0.5**0.5]], rtol=1e-6)
    assert found.place.tolist() == [1, 1, 0, -1, -1]


def test_without_any_context_all_sources_are_one() -> None:
    vectors = np.array([[1.0, 0.0], [0.0, 1.0]], np.float32)
    found = Contexts.of_tasks(np.array([0, 1]), np.array([-1, -1]), vectors)
    assert found.codes.size == 0
    np.testing.assert_allclose(found.centroids, [[0.5**0.5, 0.5**0.5]], rtol=1e-6)
    assert found.place.tolist() == [-1, -1]


GATE = {
    "context": torch.tensor([[[1.0], [-1.0]]]),
    "gate": torch.tensor([[[2.0, 0.0, 0.0]]]),
    "gate_bias": torch.tensor([[0.0, 0.0, 1.0]]),
}


def softmax(*logits: float) -> Any:
    weights = np.exp(logits)
    return pytest.approx(weights / weights.sum(), rel=1e-5)


def test_routing_and_the_gate_of_a_mixture_by_hand() -> None:
    routed = routing(torch.tensor([[1.0, 0.0]]), torch.tensor([[0.3, 0.9], [0.1, 0.9]]), temperature=0.1)
    share = 1 / (1 + math.exp(-2.0))
    assert routed[0].numpy() == pytest.approx([share, 1 - share], rel=1e-5)
    h = 2 * share - 1
    assert gates(GATE, mixed_contexts(GATE, routed))[0, 0].numpy() == softmax(2 * h, 0.0, 1.0)


def test_a_mask_is_for_the_learned_embedding_alone() -> None:
    """Task 0 is gated by context 1, which may not use expert 2; task 1 by the even mixture of both contexts."""
    routed = torch.tensor([[0.5, 0.5], [0.5, 0.5]])
    active = torch.tensor([[[True, True, True], [True, True, False]]])
    found = training_gates(GATE, routed, own=torch.tensor([1, -1]), active=active)[0].numpy()
    two = np.exp([-2.0, 0.0])
    assert found[0] == pytest.approx([*(two / two.sum()), 0.0], rel=1e-5)
    assert found[1] == softmax(0.0, 0.0, 1.0)


def test_masks_by_hand() -> None:
    """Mean gates of context 0: half of (.6, .2, .2) and half of the mean of (.2, .6, .2) and (.0, .4, .6)."""
    mixture = np.array([[[0.2, 0.6, 0.2], [0.0, 0.4, 0.6], [1.0, 0.0, 0.0]]], np.float32)
    learned = np.array([[[0.6, 0.2, 0.2], [0.2, 0.3, 0.5], [1 / 3, 1 / 3, 1 / 3]]], np.float32)
    found = expert_masks(mixture, learned, place=np.array([0, 0, -1]), share=0.5)
    assert found[0].tolist() == [[True, True, False], [False, False, True], [True, True, True]]


def test_the_correction_by_hand(training: Any) -> None:
    """f_inv + beta * sum_e G_e f_e on the concatenated input, written out."""
    model = small(beta=0.7)
    fitted = training.last(model, epochs=4)
    w = {name: np.asarray(value, np.float64) for name, value in fitted.weights.items()}
    task, capability = 3, 11
    x, c = training.bank.task_vectors[task], training.bank.capability_vectors[capability]
    z = np.concatenate([x, c, x * c, np.abs(x - c)]).astype(np.float64)
    first = np.maximum(z @ np.concatenate([w["task"], w["capability"], w["pair"]]) + w["bias_1"], 0)
    second = np.maximum(first[:16] @ w["layer_2"] + w["bias_2"], 0)
    invariant = float(x @ c) + (second @ w["layer_3"])[0]
    logits = fitted.centroids @ x / 0.1
    routed = np.exp(logits - logits.max())
    gate = np.exp((routed / routed.sum()) @ w["context"] @ w["gate"] + w["gate_bias"])
    experts = (first[16:].reshape(3, 4) * w["expert"]).sum(axis=1)
    expected = invariant + 0.7 * (gate / gate.sum()) @ experts
    place = task * training.bank.corpus.n_capabilities + capability
    assert training.scores(fitted)[place] == pytest.approx(expected, rel=1e-4, abs=1e-5)
    assert abs(expected - invariant) > 1e-4


def test_at_beta_0_the_experts_say_nothing(training: Any) -> None:
    fitted = training.last(small(beta=0.0))
    louder = replace(fitted, weights={**fitted.weights, "expert": fitted.weights["expert"] + 1})
    np.testing.assert_array_equal(training.scores(fitted), training.scores(louder))
    with_beta = training.last(small(beta=0.5))
    louder = replace(with_beta, weights={**with_beta.weights, "expert": with_beta.weights["expert"] + 1})
    assert not np.allclose(training.scores(with_beta), training.scores(louder), atol=1e-3)


def test_masks_change_the_fit_after_their_epoch(training: Any) -> None:
    kept = [training.last(small(masks=True), epochs=e) for e in (1, 4)]
    free = [training.last(small(masks=False), epochs=e) for e in (1, 4)]
    assert training.digest(kept[0]) == training.digest(free[0])
    assert kept[0].active.all() and free[1].active.all()
    assert not kept[1].active.all() and kept[1].active.any(axis=1).all()
    assert np.abs(training.scores(kept[1]) - training.scores(free[1])).max() > 1e-4


def test_the_gate_changes_scores(training: Any) -> None:
    fitted = training.last(small(), epochs=4)
    flat = {**fitted.weights, "gate": fitted.weights["gate"] * 0, "gate_bias": fitted.weights["gate_bias"] * 0}
    change = training.scores(fitted) - training.scores(replace(fitted, weights=flat))
    assert np.abs(change).max() > 1e-4


def test_the_target_is_routed_over_source_contexts_alone(training: Any) -> None:
    fitted = training.last(small())
    assert fitted.centroids.shape == (3, 24)
    source, vectors = training.source, training.bank.task_vectors
    own = vectors[source.tasks[source.context_of[source.tasks] == 2]].mean(axis=0)
    np.testing.assert_allclose(fitted.centroids[1], own / np.linalg.norm(own), rtol=1e-4)


def test_one_source_context_gates_every_task_alike(training: Any) -> None:
    source = training.source.without(("D0", "D2"))
    alone = replace(training, source=source)
    fitted = alone.last(small())
    assert fitted.contexts_seen == ("D3",)
    network = one_stack(fitted.weights, device="cpu", axis=AXIS)
    routed = routing(torch.eye(24), torch.from_numpy(fitted.centroids), temperature=0.1)
    gate = gates(network, mixed_contexts(network, routed))[0]
    assert (gate == gate[0]).all()


def test_dropout_is_for_training_alone(training: Any) -> None:
    fitted = training.last(small(dropout=0.5))
    np.testing.assert_array_equal(training.scores(fitted), training.scores(fitted))
    network = one_stack(fitted.weights, device="cpu", axis=AXIS)
    bank, pairs = training.bank, training.pairs
    tasks, task = np.unique(pairs.task, return_inverse=True)
    vectors = PairVectors.of(tasks, task=task, capability=pairs.capability, bank=bank, space="raw", device="cpu")
    gate = torch.full((1, tasks.size, 3), 1 / 3)
    beta = torch.tensor([[1.0]])
    dropped = corrected(network, vectors, gate, beta, model=small(dropout=0.5), generator=torch.Generator())
    assert not torch.allclose(dropped, corrected(network, vectors, gate, beta, model=small(dropout=0.5)))

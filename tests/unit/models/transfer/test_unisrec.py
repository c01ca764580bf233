"""Whitening, gate, in-batch losses and word dropout, by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from toolshift.models.base import BadParameter
from toolshift.models.transfer._training import PairVectors
from toolshift.models.transfer.unisrec import (
    Draws,
    UniSRec,
    adapted,
    altered_vectors,
    batch_loss,
    dropout_factors,
    gates,
    initial_adaptors,
    same_items,
    shared_items,
    without_words,
)
from toolshift.training.lists import Batch

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("one_thread")


def small(**parameters: Any) -> UniSRec:
    return UniSRec(**{"experts": 3, "width": 8, "batch_tasks": 16, "learning_rate": 0.01, **parameters})


# Two experts on two coordinates.
NETWORK = {
    "task_shift": [[0.1, 0.0], [0.0, 0.2]],
    "task_expert": [[[1.0, 0.0], [0.0, 1.0]], [[0.0, 2.0], [1.0, 0.0]]],
    "task_gate": [[1.0, 0.0], [0.0, 0.0]],
    "task_noise": [[0.0, 0.0], [0.0, 5.0]],
}


def network() -> dict[str, Any]:
    return {name: torch.tensor(value) for name, value in NETWORK.items()}


def unit(*values: float) -> Any:
    return pytest.approx(np.array(values) / np.linalg.norm(values), rel=1e-5)


def test_whitening_and_gate_by_hand() -> None:
    """x = (0.6, 0.8): experts give (0.5, 0.8) and (0.6, 1.2); the gate is softmax(0.6, 0)."""
    x = torch.tensor([[0.6, 0.8]])
    g = 1 / (1 + math.exp(-0.6))
    found = adapted(network(), x, side="task")[0].numpy()
    assert found == unit(g * 0.5 + (1 - g) * 0.6, g * 0.8 + (1 - g) * 1.2)
    plain = adapted(network(), x, side="task", whitening=False)[0].numpy()
    assert plain == unit(g * 0.6 + (1 - g) * 0.8, g * 0.8 + (1 - g) * 1.2)
    equal = adapted(network(), x, side="task", gate=False)[0].numpy()
    assert equal == unit(0.5 + 0.6, 0.8 + 1.2)


def test_every_expert_has_its_own_dropout() -> None:
    """The first expert loses coordinate 1, the second coordinate 0, the others are doubled; shifts are not dropped."""
    keep = torch.tensor([[[2.0, 0.0]], [[0.0, 2.0]]])
    draws = Draws(keep=keep, noise=torch.zeros(1, 2))
    g = 1 / (1 + math.exp(-0.6))
    found = adapted(network(), torch.tensor([[0.6, 0.8]]), side="task", draws=draws)[0].numpy()
    assert found == unit(g * 1.1 + (1 - g) * 1.4, (1 - g) * 0.0)


def test_the_noise_of_the_gate_by_hand() -> None:
    x = torch.tensor([[0.6, 0.8]])
    noise = torch.tensor([[1.0, -0.5]])
    logits = [0.6 + math.log(2) + 0.01, -0.5 * (math.log(1 + math.exp(4.0)) + 0.01)]
    expected = 1 / (1 + math.exp(logits[1] - logits[0]))
    assert gates(network(), x, side="task", noise=noise)[0, 0].item() == pytest.approx(expected, rel=1e-5)
    assert gates(network(), x, side="task", noise=None)[0, 0].item() == pytest.approx(1 / (1 + math.exp(-0.6)))


def test_adaptors_start_equal_with_open_gates() -> None:
    start = initial_adaptors(384, width=300, experts=8, generator=torch.Generator().manual_seed(1))
    assert torch.equal(start["task_expert"], start["capability_expert"])
    assert start["task_expert"].std().item() == pytest.approx(0.02, rel=0.01)
    assert not any(start[f"{side}_{part}"].any() for side in ("task", "capability") for part in ("shift", "gate"))


def test_dropout_factors_keep_the_mean() -> None:
    values = dropout_factors((50, 4001), share=0.2, generator=torch.Generator().manual_seed(3))
    assert values.unique().tolist() == pytest.approx([0.0, 256 / 205])
    assert (values == 0).float().mean().item() == pytest.approx(51 / 256, abs=0.004)
    assert (dropout_factors((3, 5), share=0.0, generator=torch.Generator()) == 1).all()


def test_whose_items_are_the_same() -> None:
    """List 0 has items 5 and 7, list 1 has 5, list 2 has 9."""
    owner, item = np.array([0, 0, 1, 2]), np.array([5, 7, 5, 9])
    same, other = same_items(owner, item)
    assert same.tolist() == [[1, 0, 1, 0], [0, 1, 0, 0], [1, 0, 1, 0], [0, 0, 0, 1]]
    assert other.tolist() == [[0, 1, 0, 0], [1, 0, 1, 0], [0, 0, 0, 0], [0, 0, 0, 0]]
    assert shared_items(owner, item, count=4).tolist() == [
        [True, True, False, False],
        [True, True, False, False],
        [False, False, True, False],
        [False, False, False, False],
    ]


def parts_of_a_batch() -> tuple[Batch, PairVectors, list[Any]]:
    """Two lists over three capabilities; capability 0 is a positive of both."""
    batch = Batch(
        tasks=np.array([0, 1]),
        offsets=np.array([0, 3, 5]),
        capability=np.array([0, 1, 2, 0, 2]),
        positive=np.array([True, True, False, True, False]),
    )
    vectors = PairVectors(
        tasks=batch.tasks,
        capabilities=np.arange(3),
        x=torch.zeros(2, 2),
        c=torch.zeros(3, 2),
        task=torch.from_numpy(batch.owner),
        capability=torch.from_numpy(batch.capability),
    )
    u = torch.tensor([[1.0, 0.0], [0.6, 0.8]])
    v = torch.tensor([[0.8, 0.6], [0.0, 1.0], [-1.0, 0.0]])
    again = torch.tensor([[0.6, 0.8], [0.0, 1.0]])
    return batch, vectors, [u, v, again]


@pytest.mark.parametrize(("same_item", "extra"), [("masked", 0.0), ("zero_logit", 1.0)])
def test_the_loss_of_a_batch_by_hand(same_item: str, extra: float) -> None:
    """tau = 0.5. Cosines: task 0 has .8, 0, -1 and task 1 has .96, .8, -.6; altered tasks .6, 0 and 1, .8."""
    batch, vectors, outputs = parts_of_a_batch()
    e = lambda cosine: math.exp(cosine / 0.5)  # noqa: E731
    nce = lambda good, *bad: -math.log(e(good) / (e(good) + sum(bad)))  # noqa: E731
    listed = ((nce(0.8, e(-1)) + nce(0.0, e(-1))) / 2 + nce(0.96, e(-0.6))) / 2
    # Positives (0, 0), (0, 1), (1, 0). The row of (0, 0) has its own item again in (1, 0) and its list's other positive
    # in (0, 1); that of (0, 1) has two columns with capability 0, which its list also holds.
    item = (nce(0.8, extra) + nce(0.0) + nce(0.96, extra, e(0.8))) / 3
    assert listed > 0
    model = small(temperature=0.5, augment_weight=0.25, same_item=same_item)
    found = batch_loss(outputs[:2], batch, vectors, model=model).item()
    assert found == pytest.approx(listed + item, rel=1e-5)
    # Both tasks share capability 0, so neither is a negative of the other.
    task = (nce(0.6, extra) + nce(0.8, extra)) / 2
    assert batch_loss(outputs, batch, vectors, model=model).item() == pytest.approx(found + 0.25 * task, rel=1e-5)


def test_the_score_is_the_cosine_of_the_adapted_over_the_temperature(training: Any) -> None:
    fitted = training.last(small(temperature=0.1), epochs=3)
    weights = {name: torch.from_numpy(value) for name, value in fitted.state().items()}
    u = adapted(weights, torch.from_numpy(training.bank.task_vectors), side="task").numpy()
    v = adapted(weights, torch.from_numpy(training.bank.capability_vectors), side="capability").numpy()
    expected = (u @ v.T)[training.pairs.task, training.pairs.capability] / 0.1
    np.testing.assert_allclose(training.scores(fitted), expected, rtol=1e-4, atol=1e-5)
    assert np.abs(training.scores(fitted)).max() <= 10.0 + 1e-4


def test_retained_goes_from_the_start_to_the_trained_weights(training: Any) -> None:
    start, half, whole = (training.last(small(retained=r), epochs=3).state() for r in (0.0, 0.5, 1.0))
    assert not start["task_gate"].any()
    assert whole["task_gate"].any()
    for name, value in half.items():
        np.testing.assert_allclose(value, (start[name] + whole[name]) / 2, atol=1e-6)


@pytest.mark.parametrize("mechanism", ["shift", "gate"])
def test_a_fitted_mechanism_matters(training: Any, mechanism: str) -> None:
    from dataclasses import replace

    fitted = training.last(small(), epochs=6)
    names = [f"{side}_{mechanism}" for side in ("task", "capability")]
    bare = replace(fitted, weights={n: v * (n not in names) for n, v in fitted.weights.items()})
    assert np.abs(training.scores(fitted) - training.scores(bare)).max() > 1e-3


@pytest.mark.parametrize("space", ["raw", "aligned"])
def test_altered_vectors_without_dropout_are_the_tasks_own(training: Any, space: str) -> None:
    rows = training.source.tasks[::3]
    found = altered_vectors(rows, bank=training.bank, share=0.0, space=space)
    np.testing.assert_allclose(found, training.bank.vectors(space)[0][rows], atol=1e-5)
    other = altered_vectors(rows, bank=training.bank, share=0.5, space=space)
    assert not np.allclose(found, other, atol=0.1)
    np.testing.assert_allclose(np.linalg.norm(other, axis=1), 1.0, rtol=1e-5)


def test_dropped_words_follow_from_the_text() -> None:
    text = " ".join(f"w{i}" for i in range(2000))
    found = without_words(text, share=0.2)
    assert found == without_words(text, share=0.2)
    assert len(found.split()) / 2000 == pytest.approx(0.8, abs=0.03)
    assert without_words(text, share=0.0) == text
    assert without_words("only", share=1.0) == "only"
    assert without_words("", share=0.2) == ""


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"same_item": "kept"}, "unisrec: same_item='kept'; expected one of masked, zero_logit"),
        ({"retained": 1.5}, "unisrec: retained=1.5; expected 0 to 1.0"),
        ({"dropout": 1.0}, "unisrec: dropout=1.0; expected 0 to 0.99"),
    ],
)
def test_parameters_out_of_range_are_refused(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(BadParameter, match=said):
        small(**wrong)

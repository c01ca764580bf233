"""The two towers, and residuals that exist for capabilities with source records alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from toolshift.models.features import Pairs
from toolshift.models.transfer._training import one_stack
from toolshift.models.transfer.zesrec import ZesRec, initial_towers, residual_place, source_axes, tower
from toolshift.training.lists import TrainingLists

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("one_thread")


def small(**parameters: Any) -> ZesRec:
    return ZesRec(**{"widths": (16, 8), "batch_tasks": 16, "learning_rate": 0.01, **parameters})


def test_a_tower_by_hand() -> None:
    """Inputs (0.6, 0.8) * sqrt(2); relu keeps the first hidden unit alone."""
    network = {
        "task_layer_1": torch.tensor([[[1.0, -1.0], [0.5, -2.0]]]),
        "task_bias_1": torch.tensor([[0.1, 0.0]]),
        "task_layer_2": torch.tensor([[[2.0], [7.0]]]),
        "task_bias_2": torch.tensor([[-1.0]]),
    }
    hidden = (0.6 + 0.4) * 2**0.5 + 0.1
    found = tower(network, torch.tensor([[0.6, 0.8]]), side="task")
    assert found.tolist() == [[[pytest.approx(2 * hidden - 1, rel=1e-6)]]]


def test_towers_start_equal_and_the_score_is_their_scaled_product(training: Any) -> None:
    fitted = training.last(small(learning_rate=0.0), epochs=1)
    w = fitted.state()
    x, c = (np.asarray(v, np.float64) * 24**0.5 for v in (training.bank.task_vectors, training.bank.capability_vectors))
    u, v = (np.maximum(rows @ w["task_layer_1"], 0) @ w["task_layer_2"] for rows in (x, c))
    np.testing.assert_array_equal(w["task_layer_1"], w["capability_layer_1"])
    expected = np.einsum("ph,ph->p", u[training.pairs.task], v[training.pairs.capability]) / 8**0.5
    np.testing.assert_allclose(training.scores(fitted), expected, rtol=1e-3, atol=1e-4)


def test_towers_are_trained_apart(training: Any) -> None:
    w = training.last(small()).state()
    assert not np.allclose(w["task_layer_1"], w["capability_layer_1"], atol=1e-3)


@pytest.mark.parametrize("widths", [(16, 8), (12, 8), (20, 8)])
def test_towers_start_as_the_projection_on_the_axes(widths: tuple[int, int]) -> None:
    axes = np.linalg.qr(np.random.default_rng(0).standard_normal((24, 8)))[0].astype(np.float32)
    start = initial_towers(axes, widths=widths, generator=torch.Generator().manual_seed(0))
    x = torch.nn.functional.normalize(torch.randn(5, 24, generator=torch.Generator().manual_seed(1)), dim=1)
    found = tower(one_stack({n: v.numpy() for n, v in start.items()}, device="cpu"), x, side="task")[0]
    count = min(8, widths[0] // 2)
    expected = 24**0.5 * x @ torch.from_numpy(axes)[:, :count]
    # Units beyond the two per axis add something small.
    torch.testing.assert_close(found[:, :count], expected, rtol=0, atol=1e-5 if widths[0] <= 16 else 0.5)


def test_the_axes_are_those_of_the_sources(training: Any) -> None:
    """With all axes the projection loses nothing, and the score starts at the cosine times d / sqrt(h)."""
    lists = TrainingLists.of(training.source.manifests, training.bank.corpus, max_tasks=None)
    axes = source_axes(lists, bank=training.bank, count=3, space="raw")
    np.testing.assert_allclose(axes.T @ axes, np.eye(3), atol=1e-5)
    x, c = training.bank.task_vectors[lists.tasks], training.bank.capability_vectors[np.unique(lists.capability)]
    held = [sum(float(np.square(v @ a).sum(axis=1).mean()) for v in (x, c)) for a in (axes, np.eye(24)[:, :3])]
    assert held[0] > held[1]
    fitted = training.last(small(widths=(48, 24), learning_rate=0.0), epochs=1)
    expected = training.bank.cosine(training.pairs) * 24 / 24**0.5
    np.testing.assert_allclose(training.scores(fitted), expected, atol=1e-4)


def test_who_has_a_residual() -> None:
    place, has = residual_place(np.array([1, 3, 4, 9]), np.array([3, 4, 7]), device="cpu")
    assert place.tolist() == [3, 0, 1, 3]
    assert has.ravel().tolist() == [False, True, True, False]
    none, nobody = residual_place(np.array([1]), np.zeros(0, np.int64), device="cpu")
    assert none.tolist() == [0] and not nobody.any()


def test_removing_the_residuals_changes_scores_of_known_capabilities_alone(training: Any) -> None:
    fitted = training.last(small(), epochs=6)
    known = np.isin(training.pairs.capability, fitted.known)
    np.testing.assert_array_equal(fitted.known, np.flatnonzero(training.source.fold.source_records > 0))
    assert known.any() and not known.all()
    table = fitted.weights["residual"]
    bare = replace(fitted, weights={**fitted.weights, "residual": np.zeros_like(table)})
    change = np.abs(training.scores(fitted) - training.scores(bare))
    assert change[known].max() > 1e-3
    assert not change[~known].any()
    assert not table[-1].any()


def test_an_unseen_capability_takes_nothing_from_the_table(training: Any) -> None:
    """Whatever stands in the last row, which capabilities without a record point to."""
    fitted = training.last(small())
    table = fitted.weights["residual"].copy()
    table[-1] = 100.0
    other = replace(fitted, weights={**fitted.weights, "residual": table})
    np.testing.assert_array_equal(training.scores(fitted), training.scores(other))


def test_a_residual_stays_with_its_capability(training: Any) -> None:
    fitted = training.last(small())
    place = 2
    table = fitted.weights["residual"].copy()
    table[place] += 1.0
    other = replace(fitted, weights={**fitted.weights, "residual": table})
    changed = training.scores(fitted) != training.scores(other)
    assert set(training.pairs.capability[changed]) == {fitted.known[place]}


def test_the_pull_shrinks_the_residuals(training: Any) -> None:
    norms = [training.last(small(lambda_v=v), epochs=8).record["mean_residual_norm"] for v in (100.0, 1.0, 0.0)]
    assert norms[0] < 0.5 * norms[2]
    assert norms[0] < norms[1] < norms[2]


def test_without_residuals_there_are_none(training: Any) -> None:
    fitted = training.last(small(residual=False))
    assert fitted.record["residuals"] == 0
    assert fitted.known.size == 0
    one = Pairs(task=training.pairs.task[:1], capability=training.pairs.capability[:1])
    assert np.isfinite(training.scores(fitted, one)).all()

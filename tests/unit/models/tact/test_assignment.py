"""Exact partial assignment: all matchings, the optimum against a solver, its gradient, ties, bits."""

from __future__ import annotations

from itertools import pairwise, permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment

from toolshift.models.tact.assignment import CELLS, ENDPOINTS, REQUIREMENTS, assign, best_totals, matchings

torch = pytest.importorskip("torch")

SHAPES = [(4, 4, 209), (4, 3, 73), (3, 4, 73), (2, 4, 21), (1, 4, 5), (1, 1, 2)]


def inside(rows: int, columns: int) -> Any:
    """(16,) cells of the upper left corner."""
    grid = np.zeros((REQUIREMENTS, ENDPOINTS), bool)
    grid[:rows, :columns] = True
    return grid.ravel()


def lists_of_cells() -> list[list[tuple[int, int]]]:
    return [[divmod(cell, ENDPOINTS) for cell in np.flatnonzero(mask).tolist()] for mask in matchings()]


@pytest.mark.parametrize(("rows", "columns", "count"), SHAPES)
def test_number_of_matchings(rows: int, columns: int, count: int) -> None:
    assert (~matchings()[:, ~inside(rows, columns)].any(axis=1)).sum() == count


def test_every_matching_is_partial_and_injective_and_stands_once_in_order() -> None:
    cells = lists_of_cells()
    assert cells[0] == []
    for chosen in cells:
        assert len({i for i, _ in chosen}) == len({j for _, j in chosen}) == len(chosen)
    assert all(a < b for a, b in pairwise(cells))


def test_the_table_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="read-only"):
        matchings()[0, 0] = True


def test_equal_to_a_solver_with_a_null_option() -> None:
    """10,000 grids of every shape; each requirement may instead take a dummy endpoint that is worth 0."""
    rng = np.random.default_rng(0)
    size = 10_000
    gains = (rng.random((size, CELLS)) - rng.random((size, 1))).astype(np.float32)
    shapes = rng.integers(1, 5, (size, 2))
    present = np.stack([inside(*shape) for shape in shapes])
    found = assign(torch.from_numpy(np.where(present, gains, -8.0).astype(np.float32)))
    expected = np.empty(size)
    for n, (grid, (rows, columns)) in enumerate(zip(gains, shapes, strict=True)):
        table = np.zeros((rows, columns + rows))
        table[:, :columns] = grid.reshape(REQUIREMENTS, ENDPOINTS)[:rows, :columns]
        expected[n] = table[linear_sum_assignment(table, maximize=True)].sum()
    np.testing.assert_allclose(found.value.numpy(), expected, atol=4e-6)
    cells = found.cells.numpy().astype(bool)
    np.testing.assert_allclose((gains * cells).sum(axis=1), expected, atol=4e-6)
    assert not (cells & ~present).any()
    np.testing.assert_array_equal(found.matched.numpy(), cells.sum(axis=1))


def test_value_and_margin_against_all_matchings() -> None:
    rng = np.random.default_rng(1)
    gains = (rng.random((400, CELLS)) - 0.4).astype(np.float32)
    totals = np.sort(gains.astype(np.float64) @ matchings().T, axis=1)
    found = assign(torch.from_numpy(gains))
    np.testing.assert_allclose(found.value.numpy(), totals[:, -1], atol=4e-6)
    np.testing.assert_allclose(found.margin.numpy(), totals[:, -1] - totals[:, -2], atol=4e-6)
    assert found.value.min() >= 0
    assert found.margin.min() >= 0


@pytest.mark.parametrize("largest", [1.0, 4.0])
def test_values_alone_are_those_of_the_matchings(largest: float) -> None:
    """Weighted requirements can gain more than 1."""
    rng = np.random.default_rng(3)
    gains = torch.from_numpy(((rng.random((20_000, CELLS)) - 0.4) * largest / 0.6).astype(np.float32))
    found = assign(gains)
    np.testing.assert_allclose(best_totals(gains).numpy(), found.value.numpy(), atol=1e-5)
    np.testing.assert_array_equal(best_totals(gains[7_000:7_009]).numpy(), best_totals(gains).numpy()[7_000:7_009])
    assert best_totals(gains.reshape(2, 100, 100, CELLS)).shape == (2, 100, 100)
    assert best_totals(gains[:0]).shape == (0,)


@pytest.mark.parametrize("wrong", [torch.nan, torch.inf])
def test_values_alone_refuse_what_is_not_a_number(wrong: float) -> None:
    gains = torch.zeros(2, CELLS)
    gains[1, 3] = wrong
    with pytest.raises(FloatingPointError, match="TACT, stage functional"):
        best_totals(gains)


@pytest.mark.parametrize("size", [1, 8_191, 8_192, 8_193, 20_001])
def test_values_alone_are_the_float_sums_of_one_permutation(size: int) -> None:
    """To the bit, in blocks of any fill: (row 0 + row 1) + (row 2 + row 3) of the best of all 24."""
    gains = np.random.default_rng(6).normal(0.0, 0.3, (size, CELLS)).astype(np.float32)
    gains[::5, 2] = -np.inf
    kept = np.maximum(gains, 0).reshape(-1, REQUIREMENTS, ENDPOINTS)
    totals = [
        (kept[:, 0, a] + kept[:, 1, b]) + (kept[:, 2, c] + kept[:, 3, d]) for a, b, c, d in permutations(range(4))
    ]
    np.testing.assert_array_equal(best_totals(torch.from_numpy(gains)).numpy(), np.max(totals, axis=0))


def test_the_gradient_is_the_optimal_matching() -> None:
    gains = torch.from_numpy((np.random.default_rng(2).random((50, CELLS)) - 0.3).astype(np.float32))
    gains.requires_grad_()
    found = assign(gains)
    found.value.sum().backward()
    assert gains.grad is not None
    np.testing.assert_array_equal(gains.grad.numpy(), found.cells.numpy())
    assert found.cells.sum() > 50
    assert not found.cells.requires_grad


def test_a_small_step_changes_the_value_by_the_matching() -> None:
    """Finite differences, away from ties."""
    gains = np.full(CELLS, -1.0)
    gains[[0, 1, 4, 5]] = 0.5, 0.4, 0.45, 0.1  # 0.4 + 0.45 beats 0.5 + 0.1
    base = assign(torch.tensor(gains)).value.item()
    assert base == pytest.approx(0.85)
    for cell, slope in ((0, 0.0), (1, 1.0), (4, 1.0), (5, 0.0)):
        moved = gains.copy()
        moved[cell] += 1e-3
        assert (assign(torch.tensor(moved)).value.item() - base) / 1e-3 == pytest.approx(slope, abs=1e-6)


@pytest.mark.parametrize(
    ("gains", "expected"),
    [
        ({}, []),
        ({(0, 0): 0.0, (3, 3): 0.0}, []),  # what gains nothing is not taken
        ({(i, j): 0.1 for i in range(4) for j in range(4)}, [(0, 0), (1, 1), (2, 2), (3, 3)]),
        ({(0, 0): 0.3, (0, 1): 0.3, (1, 0): 0.3, (1, 1): 0.3}, [(0, 0), (1, 1)]),
        ({(0, 2): 0.5, (1, 2): 0.5}, [(0, 2)]),
        ({(0, 3): 0.25, (1, 0): 0.5, (0, 0): 0.75}, [(0, 0)]),  # 0.75 either way
    ],
)
def test_ties_go_to_the_smallest_list(gains: dict[tuple[int, int], float], expected: list[tuple[int, int]]) -> None:
    grid = np.full((REQUIREMENTS, ENDPOINTS), -1.0, np.float32)
    for cell, gain in gains.items():
        grid[cell] = gain
    cells = assign(torch.from_numpy(grid.ravel())).cells.numpy().reshape(REQUIREMENTS, ENDPOINTS)
    assert [(int(i), int(j)) for i, j in zip(*np.nonzero(cells), strict=True)] == expected


def test_noise_of_the_last_bits_breaks_no_tie() -> None:
    grid = np.full((REQUIREMENTS, ENDPOINTS), -1.0, np.float32)
    grid[:2, :2] = 0.3
    grid[0, 1] += np.float32(5e-8)
    cells = assign(torch.from_numpy(grid.ravel())).cells.numpy()
    assert np.flatnonzero(cells).tolist() == [0, 5]


def test_no_cell_at_all_is_worth_nothing() -> None:
    for absent in (-8.0, -torch.inf):
        found = assign(torch.full((3, CELLS), absent))
        assert found.value.tolist() == found.matched.tolist() == [0.0] * 3
        assert torch.isfinite(found.margin).all()


def test_not_a_number_names_the_stage() -> None:
    gains = torch.zeros(2, CELLS)
    gains[1, 3] = torch.nan
    with pytest.raises(FloatingPointError, match="TACT, stage functional: the evidence of some pair is not a number"):
        assign(gains)


@given(seed=st.integers(0, 10**6), axis=st.sampled_from([0, 1]), data=st.data())
def test_order_of_requirements_and_endpoints_does_not_matter(seed: int, axis: int, data: Any) -> None:
    grid = np.random.default_rng(seed).random((REQUIREMENTS, ENDPOINTS)).astype(np.float32) - np.float32(0.3)
    order = data.draw(st.permutations(range(4)))
    moved = np.take(grid, order, axis=axis)
    one, other = (assign(torch.from_numpy(np.ascontiguousarray(g).ravel())) for g in (grid, moved))
    assert one.value.item() == pytest.approx(other.value.item(), abs=1e-5)
    assert one.margin.item() == pytest.approx(other.margin.item(), abs=1e-5)
    assert one.matched.item() == other.matched.item()


@given(start=st.integers(0, 199), size=st.integers(1, 40))
def test_a_pair_is_assigned_the_same_bits_alone_and_among_others(start: int, size: int) -> None:
    gains = torch.from_numpy((np.random.default_rng(3).random((200, CELLS)) - 0.3).astype(np.float32))
    whole, part = assign(gains), assign(gains[start : start + size])
    for name in ("value", "margin", "matched", "cells"):
        assert torch.equal(getattr(whole, name)[start : start + size], getattr(part, name)), name


def test_leading_axes_are_kept() -> None:
    gains = torch.from_numpy((np.random.default_rng(4).random((3, 5, CELLS)) - 0.3).astype(np.float32))
    found = assign(gains)
    assert found.value.shape == found.margin.shape == found.matched.shape == (3, 5)
    assert torch.equal(found.value[1], assign(gains[1]).value)

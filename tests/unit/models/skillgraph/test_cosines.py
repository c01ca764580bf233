"""Exact cosines: the grid, the tie rule, and independence of the block."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolshift.models.features import exact_cosines, on_grid
from toolshift.models.skillgraph import cosines as module
from toolshift.models.skillgraph.cosines import Cosines
from toolshift.text.lexical import top_k


def units(rng: np.random.Generator, n: int, d: int) -> Any:
    rows = rng.standard_normal((n, d))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def world(seed: int, *, q: int = 9, n: int = 60, d: int = 5) -> tuple[Any, Any]:
    rng = np.random.Generator(np.random.Philox(seed))
    tools = units(rng, n, d)
    tools[rng.random(n) < 0.5] = tools[0]
    return units(rng, q, d), tools


@given(seed=st.integers(0, 2**32))
def test_a_table_has_the_bits_of_the_exact_cosines_on_the_grid(seed: int) -> None:
    queries, tools = world(seed)
    queries[0] = 0.0
    found = Cosines.of(queries, tools).table(slice(None))
    assert found.dtype == np.float32
    assert found.tobytes() == on_grid(exact_cosines(queries, tools)).tobytes()


@given(seed=st.integers(0, 2**32), k=st.integers(1, 60))
def test_the_nearest_are_those_of_a_full_sort(seed: int, k: int) -> None:
    cosines = Cosines.of(*world(seed))
    table = cosines.table(slice(None))
    near = cosines.nearest(k)
    order = np.stack([np.lexsort((np.arange(60), -row)) for row in table])[:, :k]
    np.testing.assert_array_equal(near.items, order)
    np.testing.assert_array_equal(near.similarity, np.take_along_axis(table, order, axis=1))


@given(
    rows=st.lists(st.lists(st.sampled_from([-1.0, -0.0, 0.0, 0.25, 0.5, 1.0]), min_size=7, max_size=7), min_size=1),
    k=st.integers(1, 7),
)
def test_best_equals_top_k_where_much_is_equal(rows: list[list[float]], k: int) -> None:
    table = np.array(rows, np.float32)
    for mine, other in zip(module._best(table, k=k), top_k(table, k=k), strict=True):
        np.testing.assert_array_equal(mine, other)


def test_equal_tools_throughout_come_in_library_order() -> None:
    tools = np.tile(np.array([[0.6, 0.8]], np.float32), (5000, 1))
    near = Cosines.of(tools[:3], tools).nearest(4)
    assert near.items.tolist() == [[0, 1, 2, 3]] * 3


def test_nan_is_refused() -> None:
    tools = np.eye(3, dtype=np.float32)
    tools[1, 1] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        Cosines.of(np.eye(3, dtype=np.float32), tools).nearest(2)


@pytest.mark.parametrize("block", [1, 2, 5, 128])
def test_blocks_change_nothing(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    cosines = Cosines.of(*world(1))
    rows = np.array([3, 8, 11, 40, 41, 59])
    whole, some = cosines.nearest(12), cosines.nearest(4, rows=rows)
    monkeypatch.setattr(module, "_QUERIES", block)
    monkeypatch.setattr(module, "_CELLS", 5 * block)
    for before, after in ((whole, cosines.nearest(12)), (some, cosines.nearest(4, rows=rows))):
        np.testing.assert_array_equal(before.items, after.items)
        np.testing.assert_array_equal(before.similarity, after.similarity)
    assert set(some.items.ravel().tolist()) <= set(rows.tolist())
    query, tool = np.divmod(np.arange(9 * 60), 60)
    np.testing.assert_array_equal(cosines.pairs(query, tool).reshape(9, 60), cosines.table(slice(None)))

"""Components and shortest paths by hand and against networkx."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from toolshift.models.skillgraph import bridges as module
from toolshift.models.skillgraph.bridges import shortest_paths, smallest_member
from toolshift.models.skillgraph.edges import EdgeTable


def matrix_of(pairs: Any, n: int, *, values: Any = None) -> sparse.csr_matrix:
    rows, columns = np.asarray(pairs, dtype=np.int64).reshape(-1, 2).T
    stored = np.ones(len(rows)) if values is None else np.asarray(values, np.float64)
    return sparse.csr_matrix((stored, (rows, columns)), shape=(n, n))


def lists(items: Any) -> list[list[int]]:
    return [[item for item in row if item >= 0] for row in items.tolist()]


def random_pairs(n: int, *, mean: float, seed: int) -> Any:
    rng = np.random.Generator(np.random.Philox(seed))
    dense = rng.random((n, n)) < mean / n
    np.fill_diagonal(dense, False)
    return np.argwhere(dense)


def check_all_pairs(pairs: Any, n: int) -> int:
    """Every pair against networkx; returns how many are connected."""
    network = nx.DiGraph()
    network.add_nodes_from(range(n))
    network.add_edges_from(pairs.tolist())
    source, target = (side.ravel() for side in np.nonzero(~np.eye(n, dtype=bool)))
    found, interior = shortest_paths(matrix_of(pairs, n), source, target)
    for a, b, exists, path in zip(source.tolist(), target.tolist(), found.tolist(), lists(interior), strict=True):
        assert exists == nx.has_path(network, a, b)
        if exists:
            assert [a, *path, b] == min(nx.all_shortest_paths(network, a, b))
    return int(found.sum())


def test_shortest_paths_take_the_lowest_rows() -> None:
    edges = matrix_of([(0, 3), (0, 2), (2, 5), (3, 5), (5, 0), (1, 4), (5, 6)], 7, values=[1, 1, 1, 1, 1, 1, 0])
    found, interior = shortest_paths(edges, np.array([0, 0, 0, 2, 5, 6]), np.array([5, 4, 6, 0, 2, 0]))
    assert found.tolist() == [True, False, True, True, True, False]
    assert lists(interior) == [[2], [], [2, 5], [5], [0], []]


def test_paths_into_out_of_and_beside_the_largest_component() -> None:
    """0, 1, 2 are a circle; 3 leads in, 4 out; 5, 6, 7 lie beside it and lead past it to 4."""
    edges = matrix_of([(0, 1), (1, 2), (2, 0), (3, 0), (2, 4), (5, 6), (6, 7), (7, 4), (3, 5)], 8)
    source, target = np.array([3, 5, 5, 4, 7, 3, 0]), np.array([4, 4, 0, 0, 5, 7, 3])
    found, interior = shortest_paths(edges, source, target)
    assert found.tolist() == [True, True, False, False, False, True, False]
    assert lists(interior) == [[0, 1, 2], [6, 7], [], [], [], [5, 6], []]


def test_no_pair_and_no_edge() -> None:
    none = np.zeros(0, dtype=np.int64)
    for n in (0, 3):
        found, interior = shortest_paths(matrix_of([], n), none, none)
        assert found.shape == (0,) and interior.shape == (0, 0)
    found, interior = shortest_paths(matrix_of([], 3), np.array([0, 1]), np.array([1, 2]))
    assert not found.any() and interior.shape == (2, 0)


@given(n=st.integers(2, 14), mean=st.sampled_from([0.3, 0.8, 1.2, 2.0, 5.0]), seed=st.integers(0, 2**32))
def test_paths_and_components_equal_those_of_networkx(n: int, mean: float, seed: int) -> None:
    pairs = random_pairs(n, mean=mean, seed=seed)
    check_all_pairs(pairs, n)
    network = nx.Graph(pairs.tolist())
    network.add_nodes_from(range(n))
    _, linked = EdgeTable.of(matrix_of(pairs, n)).square(np.arange(n)[None])
    label = smallest_member(np.arange(n)[None], linked | np.swapaxes(linked, 1, 2))[0]
    for part in nx.connected_components(network):
        assert set(label[list(part)].tolist()) == {min(part)}


@pytest.mark.parametrize("targets", [1, 7, 64, 65, 1024])
@pytest.mark.parametrize("mean", [0.9, 1.3])
def test_blocks_of_targets_change_nothing(targets: int, mean: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_TARGETS", targets)
    assert check_all_pairs(random_pairs(70, mean=mean, seed=3), 70) > 70


def test_a_long_chain() -> None:
    n = 300
    edges = matrix_of([(i, i + 1) for i in range(n - 1)], n)
    found, interior = shortest_paths(edges, np.array([0, n - 1, 100]), np.array([n - 1, 0, 102]))
    assert found.tolist() == [True, False, True]
    assert lists(interior) == [list(range(1, n - 1)), [], [101]]

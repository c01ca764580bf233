"""Stage 1 by hand, against the loop over networkx, and on bad input."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from toolshift.models.skillgraph.graph import TransitionGraph, build_graph, to_networkx
from toolshift.models.skillgraph.retrieval import (
    METHODS,
    BeamOptions,
    Cosines,
    RetrievalOptions,
    Sets,
    Texts,
    authors_length,
    nearest_tools,
    oracle_k,
    oracle_sets,
    resized,
    retrieve,
    sample_rows,
    tune_retrieval,
)
from toolshift.models.skillgraph.sequences import sequences_of
from toolshift.models.skillgraph.stage_bench import bench_stages, looped_set

Edges = Mapping[tuple[int, int], float]


def matrix_of(edges: Edges, n: int) -> sparse.csr_matrix:
    rows, columns = (np.array([pair[i] for pair in edges], dtype=np.int64) for i in (0, 1))
    return sparse.csr_matrix((np.array(list(edges.values())), (rows, columns)), shape=(n, n))


def graph_of(
    edges: Edges, n: int, *, position: Any = None, nodes: Any = None, transition: Any = None
) -> TransitionGraph:
    weight = matrix_of(edges, n)
    touched = np.zeros(n, dtype=bool)
    touched[[tool for pair in edges for tool in pair]] = True
    return TransitionGraph(
        counts=weight,
        transition=weight if transition is None else matrix_of(transition, n),
        weight=weight,
        position=np.full(n, 0.5) if position is None else np.asarray(position, np.float64),
        nodes=touched if nodes is None else np.asarray(nodes, dtype=bool),
        contributors=("a", "b"),
    )


def with_cosines(*rows: Any) -> dict[str, Any]:
    """Queries and tools of which query i has the cosine rows[i][t] with tool t; tools are orthogonal axes."""
    table = np.array(rows, np.float64)
    n = table.shape[1]
    rest = np.sqrt(1.0 - (table**2).sum(axis=1))
    assert (rest > 0).all()
    queries = np.concatenate([table, rest[:, None]], axis=1).astype(np.float32)
    return {"queries": queries, "tools": np.eye(n, n + 1, dtype=np.float32)}


def units(rng: np.random.Generator, n: int, d: int) -> Any:
    rows = rng.standard_normal((n, d))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def lists(items: Any) -> list[list[int]]:
    return [[item for item in row if item >= 0] for row in items.tolist()]


def test_cosine_order_with_ties_by_row() -> None:
    world = with_cosines([0.3, 0.5, 0.3, 0.1], [0.1, 0.2, 0.3, 0.4])
    sets = retrieve("semantic_only", **world, graph=graph_of({}, 4), k=[3, 2])
    assert lists(sets.items) == [[1, 0, 2], [3, 2]]
    np.testing.assert_allclose(sets.similarity, [[0.5, 0.3, 0.3], [0.4, 0.3, 0.0]], atol=2e-6)
    assert sets.size.tolist() == [3, 2]


def test_greedy_by_hand() -> None:
    """alpha .5, gamma .1, K=3, all positions 1/2. From 0 at p=1/2: tool 2 by its edge, .5*.6 + .5*.1 + .1 = .45, before
    tool 1, .5*.4 + .1 = .3. From 2 at p=1: tool 3 by half the reverse edge, .5*.4 + .5*.1 + .05 = .3, before tool 1,
    .5*.4 + .05 = .25."""
    world = with_cosines([0.5, 0.4, 0.1, 0.1, 0.05])
    graph = graph_of({(0, 2): 0.6, (3, 2): 0.8}, 5)
    sets = retrieve("hybrid_sem_graph", **world, graph=graph, k=[3])
    assert lists(sets.items) == [[0, 2, 3]]
    assert lists(retrieve("gs_hybrid", **world, graph=graph, k=[3]).items) == [[0, 2, 3]]
    plain = retrieve("hybrid_sem_graph", **world, graph=graph, k=[3], options=RetrievalOptions(alpha=0.0))
    assert lists(plain.items) == [[0, 1, 2]]


def test_the_forward_edge_counts_even_where_the_reverse_one_is_heavier() -> None:
    world = with_cosines([0.5, 0.3, 0.1])
    graph = graph_of({(0, 2): 0.1, (2, 0): 0.9}, 3)
    # .5*.1 + .5*.1 = .1 against .15; by half the reverse edge it would be .275.
    assert lists(retrieve("hybrid_sem_graph", **world, graph=graph, k=[2]).items) == [[0, 1]]


def test_the_position_bonus_takes_early_tools_first() -> None:
    world = with_cosines([0.5, 0.3, 0.3, 0.1, 0.1])
    graph = graph_of({}, 5, position=[0, 1.0, 0.5, 0.5, 0.5])
    first = retrieve("hybrid_sem_graph", **world, graph=graph, k=[3]).items
    assert lists(first) == [[0, 2, 1]]  # p = 1/2: |1 - .5| costs tool 1 half its bonus
    without = retrieve("hybrid_sem_graph", **world, graph=graph, k=[3], options=RetrievalOptions(gamma=0.0))
    assert lists(without.items) == [[0, 1, 2]]


def test_a_bridge_is_found_and_used() -> None:
    """Pool of K=2: tools 0..5. Components {0, 1} and {2, 3}; the only path between them goes through tool 6."""
    cosines = [0.5, 0.4, 0.35, 0.3, 0.2, 0.1, 0.0]
    world = with_cosines(cosines)
    graph = graph_of({(0, 1): 0.1, (2, 3): 0.1, (0, 6): 0.9, (6, 2): 0.9}, 7)
    assert lists(retrieve("hybrid_sem_graph", **world, graph=graph, k=[2]).items) == [[0, 6]]
    # Against the arrows there is no path.
    back = graph_of({(0, 1): 0.1, (2, 3): 0.1, (6, 0): 0.9, (2, 6): 0.9}, 7)
    assert lists(retrieve("hybrid_sem_graph", **world, graph=back, k=[2]).items) == [[0, 1]]


@st.composite
def random_worlds(draw: st.DrawFn) -> tuple[Any, Any, TransitionGraph, Any]:
    n, q = draw(st.integers(2, 14)), draw(st.integers(1, 4))
    rng = np.random.Generator(np.random.Philox(draw(st.integers(0, 2**32))))
    share = draw(st.sampled_from([0.0, 0.05, 0.15, 0.4]))
    dense = np.where(rng.random((n, n)) < share, np.round(rng.random((n, n)), 1), np.nan)
    np.fill_diagonal(dense, np.nan)
    edges = {(int(a), int(b)): float(dense[a, b]) for a, b in zip(*np.nonzero(~np.isnan(dense)), strict=True)}
    nodes = rng.random(n) < 0.8
    nodes[[tool for pair in edges for tool in pair]] = True
    graph = graph_of(edges, n, position=np.round(rng.random(n), 1), nodes=nodes)
    tools = units(rng, n, 3)
    tools[rng.random(n) < 0.3] = tools[0]  # equal texts
    return units(rng, q, 3), tools, graph, rng.integers(1, n + 3, size=q)


@given(
    world=random_worlds(),
    c=st.integers(1, 2),
    alpha=st.sampled_from([0.0, 0.5, 1.0]),
    mode=st.sampled_from(["paper", "authors"]),
)
def test_equals_the_loop_over_networkx(world: Any, c: int, alpha: float, mode: Any) -> None:
    queries, tools, graph, k = world
    options = RetrievalOptions(c=c, alpha=alpha, gamma=0.1, mode=mode, length=3)
    found = retrieve("hybrid_sem_graph", queries=queries, tools=tools, graph=graph, k=k, options=options)
    table = Cosines.of(queries, tools).table(slice(None)).astype(np.float64)
    allowed = range(len(tools)) if mode == "paper" else np.flatnonzero(graph.nodes).tolist()
    lengths = k.tolist() if mode == "paper" else [3] * len(k)
    network = to_networkx(graph)
    for row, (cosines, length) in enumerate(zip(table, lengths, strict=True)):
        cosine = {t: float(cosines[t]) for t in allowed}
        expected = looped_set(network, cosine, position=graph.position, k=length, options=options) if cosine else []
        assert lists(found.items)[row] == expected


@given(world=random_worlds(), method=st.sampled_from([m for m in METHODS if m != "bm25"]))
def test_a_query_gets_the_same_alone_and_among_others(world: Any, method: str) -> None:
    queries, tools, graph, k = world
    given_ = {"tools": tools, "graph": graph, "communities": np.arange(len(tools)) % 3}
    together = retrieve(method, queries=queries, k=k, **given_)
    for row in range(len(queries)):
        alone = retrieve(method, queries=queries[row : row + 1], k=k[row : row + 1], **given_)
        assert lists(alone.items)[0] == lists(together.items)[row]
    for items in lists(together.items):
        assert len(set(items)) == len(items)
    assert (together.size <= k).all()
    if method != "beam_search":
        np.testing.assert_array_equal(together.size, np.minimum(k, len(tools)))


@given(world=random_worlds(), method=st.sampled_from([m for m in METHODS if m != "bm25"]), width=st.integers(1, 16))
def test_shared_neighbours_change_nothing(world: Any, method: str, width: int) -> None:
    queries, tools, graph, k = world
    for mode in ("paper", "authors"):
        given_ = {"queries": queries, "tools": tools, "graph": graph}
        near = nearest_tools(width, **given_, mode=mode)
        asked = {**given_, "k": k, "communities": np.arange(len(tools)) % 3}
        options = RetrievalOptions(mode=mode, length=3)
        own, shared = (retrieve(method, **asked, options=options, near=found) for found in (None, near))
        np.testing.assert_array_equal(own.items, shared.items)
        np.testing.assert_array_equal(own.similarity, shared.similarity)


def test_given_neighbours_are_taken_and_must_be_of_the_queries() -> None:
    world = with_cosines([0.5, 0.4, 0.3])
    other = Sets(items=np.array([[2, 1]]), similarity=np.array([[0.3, 0.4]]))
    asked = {**world, "graph": graph_of({}, 3)}
    assert lists(retrieve("semantic_only", **asked, k=[2], near=other).items) == [[2, 1]]
    assert lists(retrieve("semantic_only", **asked, k=[3], near=other).items) == [[0, 1, 2]]
    with pytest.raises(ValueError, match="near is of 2 queries"):
        retrieve("semantic_only", **asked, k=[2], near=other.take([0, 0]))


def test_sets_are_handed_over_by_cosine_and_plans_are_not() -> None:
    world = with_cosines([0.5, 0.4, 0.3, 0.2, 0.1])
    graph = graph_of({(0, 4): 0.9, (4, 3): 0.9, (3, 1): 0.9}, 5)
    plan = retrieve("hybrid_sem_graph", **world, graph=graph, k=[4])
    sets = retrieve("gs_hybrid", **world, graph=graph, k=[4])
    assert lists(plan.items) == [[0, 4, 3, 1]]
    assert lists(sets.items) == [[0, 1, 3, 4]]
    np.testing.assert_array_equal(plan.by_cosine().items, sets.items)
    np.testing.assert_array_equal(plan.by_cosine().similarity, sets.similarity)


def test_authors_mode_returns_its_own_length_out_of_the_graph() -> None:
    world = with_cosines([0.5, 0.4, 0.3, 0.2, 0.1])
    graph = graph_of({(1, 2): 0.9, (2, 3): 0.9}, 5)
    options = RetrievalOptions(mode="authors", length=authors_length([1, 2, 3, 4, 9]))
    texts = Texts(queries=["x"], tools=["x y", "x", "z", "z z", "y"])
    asked = {"graph": graph, "k": [5], "options": options}
    assert lists(retrieve("gs_hybrid", **world, **asked).items) == [[1, 2, 3]]
    assert lists(retrieve("semantic_only", **world, **asked).items) == [[1, 2, 3]]
    assert retrieve("bm25", **world, **asked, texts=texts).size.tolist() == [5]
    with pytest.raises(ValueError, match="authors_length"):
        retrieve("gs_hybrid", **world, graph=graph, k=[5], options=RetrievalOptions(mode="authors"))


def test_lengths_and_budgets() -> None:
    assert [authors_length(x) for x in ([1], [2, 3, 3], [40, 50], [2, 3])] == [2, 3, 8, 2]
    assert oracle_k([1, 3, 5]).tolist() == [3, 3, 5]
    assert oracle_k([1, 2, 3], least=2).tolist() == [2, 2, 3]
    with pytest.raises(ValueError, match="no training trajectory"):
        authors_length([])


def test_bm25_over_words_and_over_whitespace_tokens() -> None:
    world = with_cosines([0.1, 0.5, 0.2])
    texts = Texts(queries=["get_rain, now"], tools=["rain rain", "get_rain, please", "snow"])
    asked = {"graph": graph_of({}, 3), "k": [2], "texts": texts}
    assert lists(retrieve("bm25", **world, **asked).items) == [[1, 0]]
    assert lists(retrieve("bm25", **world, **asked, options=RetrievalOptions(tokens="whitespace")).items) == [[1, 0]]
    # "rain" alone is a word of tool 0 but no whitespace token of tool 1, and the reverse for "get_rain,".
    other = replace(texts, queries=["rain,"])
    assert lists(retrieve("bm25", **world, **{**asked, "texts": other}).items) == [[0, 1]]
    spaced = retrieve("bm25", **world, **{**asked, "texts": other}, options=RetrievalOptions(tokens="whitespace"))
    assert lists(spaced.items) == [[0, 1]]  # no document has the token: all score 0, in library order
    np.testing.assert_allclose(spaced.similarity, [[0.1, 0.5]], atol=2e-6)


def test_beam_search_by_hand() -> None:
    """From 0: to 2 scores .4*.9 + .4*.1 + .2*1 = .6, to 1 .4*.1 + .4*.4 + 0 = .2 (community of 0). From 1 nowhere.
    From 2: to 3 .4*.5 + .4*.05 + .2*(1 - 1/2) = .32, mean .46; the path 0, 1 cannot go on and keeps .2."""
    world = with_cosines([0.5, 0.4, 0.1, 0.05])
    graph = graph_of({(0, 1): 0.1, (0, 2): 0.9, (2, 3): 0.5}, 4)
    asked = {**world, "graph": graph, "communities": np.array([7, 7, 8, 8])}
    one = RetrievalOptions(beam=BeamOptions(entries=1))
    assert lists(retrieve("beam_search", **asked, k=[3], options=one).items) == [[0, 2, 3]]
    assert lists(retrieve("beam_search", **asked, k=[2], options=one).items) == [[0, 2]]
    # With every tool as an entry the path 0, 2 (.6) beats 0, 2, 3 only where it cannot be extended.
    assert lists(retrieve("beam_search", **asked, k=[3]).items) == [[0, 2, 3]]
    stuck = {**asked, "graph": graph_of({(0, 1): 0.1, (0, 2): 0.9}, 4)}
    assert lists(retrieve("beam_search", **stuck, k=[4]).items) == [[0, 2]]
    # One successor per step, by weight; the other one is never seen.
    narrow = RetrievalOptions(beam=BeamOptions(entries=1, neighbours=1, transition_share=-1.0))
    assert lists(retrieve("beam_search", **asked, k=[2], options=narrow).items) == [[0, 2]]


def looped_beam(
    network: Any, cosine: Any, nodes: list[int], communities: Any, *, k: int, beam: BeamOptions
) -> list[int]:
    ranked = sorted(nodes, key=lambda t: (-cosine[t], t))
    paths = [([t], 0.0) for t in ranked[: beam.entries]]
    for _ in range(1, k):
        grown = []
        for path, total in paths:
            after = sorted(network[path[-1]], key=lambda t: (-network[path[-1]][t]["weight"], t))[: beam.neighbours]
            after = [t for t in after if t not in path]
            for t in after:
                same = sum(communities[t] >= 0 and communities[t] == communities[p] for p in path)
                step = 0.4 * network[path[-1]][t]["transition"] + 0.4 * cosine[t] + 0.2 * (1.0 - same / len(path))
                grown.append(([*path, t], total + step, len(path)))
        grown += [
            (p, s, len(p) - 1)
            for p, s in paths
            if not [
                t
                for t in sorted(network[p[-1]], key=lambda t: (-network[p[-1]][t]["weight"], t))[: beam.neighbours]
                if t not in p
            ]
        ]
        grown.sort(key=lambda g: -(g[1] / g[2]) if g[2] else np.inf)
        paths = [(p, s) for p, s, _ in grown[: beam.width]]
    return paths[0][0] if paths else []


@given(world=random_worlds(), width=st.integers(1, 4), neighbours=st.integers(1, 4))
def test_beam_search_equals_the_loop(world: Any, width: int, neighbours: int) -> None:
    queries, tools, graph, k = world
    beam = BeamOptions(entries=3, width=width, neighbours=neighbours)
    communities = np.arange(len(tools)) % 4 - 1
    found = retrieve(
        "beam_search", queries=queries, tools=tools, graph=graph, k=k, communities=communities,
        options=RetrievalOptions(beam=beam),
    )  # fmt: skip
    table = Cosines.of(queries, tools).table(slice(None)).astype(np.float64)
    network, nodes = to_networkx(graph), np.flatnonzero(graph.nodes).tolist()
    for row in range(len(queries)):
        expected = looped_beam(network, table[row].tolist(), nodes, communities.tolist(), k=int(k[row]), beam=beam)
        assert lists(found.items)[row] == expected


def test_max_transition_looks_back_at_every_chosen_tool() -> None:
    """After 0 and 2: tool 3 is linked to 0 (.5*.9 + .5*.05), tool 1 has the cosine only (.5*.4)."""
    world = with_cosines([0.5, 0.4, 0.1, 0.05])
    graph = graph_of({(0, 2): 1.0, (0, 3): 0.9}, 4)
    assert lists(retrieve("max_transition", **world, graph=graph, k=[3]).items) == [[0, 2, 3]]
    assert lists(retrieve("max_transition", **world, graph=graph, k=[9]).items) == [[0, 1, 2, 3]]


def test_resized_cuts_plans_and_fills_up_by_cosine() -> None:
    world = with_cosines([0.5, 0.4, 0.3, 0.2, 0.1], [0.1, 0.2, 0.3, 0.4, 0.5])
    sets = Sets(items=np.array([[0, 4, 3], [4, 2, -1]]), similarity=np.array([[0.5, 0.1, 0.2], [0.5, 0.3, 0.0]]))
    graph = graph_of({}, 5)
    assert lists(resized(sets, **world, graph=graph, k=[2, 2]).items) == [[0, 4], [4, 2]]
    assert lists(resized(sets, **world, graph=graph, k=[5, 4]).items) == [[0, 4, 3, 1, 2], [4, 2, 3, 1]]
    assert lists(resized(sets, **world, graph=graph, k=[9, 9]).items) == [[0, 4, 3, 1, 2], [4, 2, 3, 1, 0]]


def test_oracle_sets_hold_each_gold_tool_once() -> None:
    world = with_cosines([0.2, 0.5, 0.1], [0.1, 0.2, 0.3])
    sets = oracle_sets([[0, 1, 0], [2, -1, -1]], **world)
    assert lists(sets.items) == [[1, 0], [2]]
    np.testing.assert_allclose(sets.similarity, [[0.5, 0.2], [0.3, 0.0]], atol=2e-6)


@pytest.mark.parametrize("method", [m for m in METHODS if m != "bm25"])
@pytest.mark.parametrize("mode", ["paper", "authors"])
def test_an_empty_graph_and_a_small_library(method: str, mode: Any) -> None:
    world = with_cosines([0.5, 0.4], [0.1, 0.2])
    options = RetrievalOptions(mode=mode, length=3)
    asked = {"graph": graph_of({}, 2), "k": [3, 1], "options": options, "communities": np.array([-1, -1])}
    found = retrieve(method, **world, **asked)
    empty = mode == "authors" or method == "beam_search"
    assert lists(found.items) == ([[], []] if empty else [[0, 1], [1]])
    assert found.items.shape == found.similarity.shape


def test_no_query_is_no_error() -> None:
    world = with_cosines([0.5, 0.4])
    for method in ("gs_hybrid", "semantic_only", "beam_search", "max_transition"):
        found = retrieve(
            method, queries=world["queries"][:0], tools=world["tools"], graph=graph_of({(0, 1): 1.0}, 2),
            k=np.zeros(0, np.int64), communities=np.zeros(2, np.int64),
        )  # fmt: skip
        assert len(found.items) == 0


def test_bad_arguments_are_named() -> None:
    world = with_cosines([0.5, 0.4])
    graph = graph_of({}, 2)
    for changed, said in (
        ({"k": [0]}, "at least 1"),
        ({"k": [1, 2]}, "one number"),
        ({"graph": graph_of({}, 3)}, "graph is over 3 tools"),
        ({"tools": np.zeros((2, 9), np.float32)}, "queries and tools"),
    ):
        with pytest.raises(ValueError, match=said):
            retrieve("gs_hybrid", **{**world, "graph": graph, "k": [1], **changed})
    with pytest.raises(ValueError, match="unknown method 'dense'"):
        retrieve("dense", **world, graph=graph, k=[1])
    with pytest.raises(ValueError, match="needs the texts"):
        retrieve("bm25", **world, graph=graph, k=[1])
    with pytest.raises(ValueError, match="community of every tool"):
        retrieve("beam_search", **world, graph=graph, k=[1])
    for bad in ({"alpha": 1.5}, {"c": 0}, {"gamma": -1.0}, {"mode": "other"}, {"length": 0}):
        with pytest.raises(ValueError):
            RetrievalOptions(**bad)


def tuning_world() -> dict[str, Any]:
    """The graph says 0, 2; the cosine says 0, 1. Trajectories are 0, 2 throughout."""
    world = with_cosines(*[[0.5, 0.4, 0.3, 0.1, 0.05, 0.02]] * 4)
    calls = sequences_of([[0, 2]] * 4, n_tools=6)
    ids = [f"t{i}" for i in range(4)]
    return {**world, "ids": ids, "gold": calls.padded(), "graph": build_graph(calls, ids=ids), "k": [2] * 4}


def test_tuning_finds_the_setting_that_gets_the_gold() -> None:
    found = tune_retrieval(**tuning_world(), c=(2, 3), alpha=(0.0, 0.5), gamma=(0.0, 0.1))
    assert len(found.trials) == 8
    by_setting = {(t.c, t.alpha, t.gamma): t for t in found.trials}
    assert by_setting[2, 0.0, 0.0].objective == pytest.approx(0.5 + 0.5 * 0.5 + 0.0)
    assert by_setting[2, 0.5, 0.0].objective == pytest.approx(1.0 + 0.5 + 0.3)
    assert (found.options.c, found.options.alpha, found.options.gamma) == (2, 0.5, 0.0)


def test_tuning_refuses_other_than_training_queries() -> None:
    world = tuning_world()
    with pytest.raises(ValueError, match="'test1'"):
        tune_retrieval(**{**world, "ids": ["t0", "t1", "t2", "test1"]})
    with pytest.raises(ValueError, match="at least one"):
        tune_retrieval(**world, alpha=())


def test_sampled_rows_follow_the_ids() -> None:
    ids = [f"task{i}" for i in range(50)]
    rows = sample_rows(ids, count=10, name="tuning")
    assert len(set(rows.tolist())) == 10 and (np.diff(rows) > 0).all()
    back = sample_rows(ids[::-1], count=10, name="tuning")
    assert sorted(ids[::-1][i] for i in back) == sorted(ids[i] for i in rows)
    assert sample_rows(ids, count=10, name="other").tolist() != rows.tolist()
    assert sample_rows(ids, count=99, name="tuning").tolist() == list(range(50))


def test_the_bench_compares_equal_results() -> None:
    found = bench_stages(30, n_tools=120, n_loop=8, dim=16)
    assert found["equal_sets"] == found["equal_orders"] == 1.0
    assert found["n_loop"] == 8

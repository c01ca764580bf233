"""Hand-worked graphs in both forms, equality of an extended and a rebuilt graph, and files."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolshift.models.skillgraph import graph as module
from toolshift.models.skillgraph.graph import (
    BadGraphFile,
    LeakedTrajectory,
    TransitionGraph,
    build_graph,
    extended,
    from_parquet,
    identical,
    nearest_columns,
    options_of,
    to_networkx,
    to_parquet,
)
from toolshift.models.skillgraph.graph_bench import looped_edges
from toolshift.models.skillgraph.sequences import Sequences, sequences_of

N = 6
CALLS = st.lists(st.lists(st.integers(0, N - 1), max_size=6), max_size=12)
# Tools 0 and 1 are near (cosine 0.8), 1 and 2 less so (0.6), 0 and 2 hardly (0.28 with 2 on the far side), 3 is apart.
VECTORS = np.array([[1, 0, 0], [0.8, 0.6, 0], [0, 1, 0], [0, 0, 1], [0, 0, -1], [-1, 0, 0]], dtype=np.float32)


def names(n: int, start: int = 0) -> list[str]:
    return [f"q{i:03d}" for i in range(start, start + n)]


def built(calls: list[list[int]], *, form: str = "paper", n_tools: int = N, **options) -> TransitionGraph:
    chosen = replace(options_of(form), **options)  # type: ignore[arg-type]
    packed = sequences_of(calls, n_tools=n_tools)
    return build_graph(packed, ids=names(len(calls)), form=form, vectors=VECTORS, options=chosen)  # type: ignore[arg-type]


def weights_of(graph: TransitionGraph) -> dict[tuple[int, int], float]:
    edges = graph.edges()
    pairs = zip(edges.source.tolist(), edges.target.tolist(), strict=True)
    return dict(zip(pairs, edges.weight.tolist(), strict=True))


def test_paper_form_by_hand() -> None:
    # 0>1 three times (the repeat of 0 is dropped), 0>2 once; the cycle 1>0 once; 3 alone; 4, 5 never called.
    graph = built([[0, 1], [0, 0, 1], [0, 1, 0], [0, 2], [1, 0], [3]])
    assert weights_of(graph) == {(0, 1): 0.75, (0, 2): 0.25, (1, 0): 1.0}
    assert graph.counts[0, 1] == 3
    assert graph.nodes.tolist() == [True] * 4 + [False] * 2
    # 0: first four times, last once; 1: last three times, first once; 3: alone, so first.
    assert graph.position == pytest.approx([1 / 5, 3 / 4, 1.0, 0.0, 0.5, 0.5])
    assert graph.calls.tolist() == [5, 4, 1, 1, 0, 0]
    assert not graph.edges().semantic.any()


def test_authors_soft_counts_by_hand() -> None:
    # 0 1 2: 0>1, 1>2 by 1, 0>2 by half; 0 0 1: 0>1 by 1 and by half over the repeat; 2 0 2: 2>0, 0>2, never 2>2.
    graph = built([[0, 1, 2], [0, 0, 1], [2, 0, 2]], form="authors", min_count=0, min_weight=-1)
    counts = {(0, 1): 2.5, (0, 2): 1.5, (1, 2): 1.0, (2, 0): 1.0}
    assert {(a, b): graph.counts[a, b] for a, b in zip(*graph.counts.nonzero(), strict=True)} == counts
    assert graph.transition[0, 1] == 2.5 / 4
    # Open scale: places over L = 3, repeats counted: 0 at 0, 0, 1/3, 1/3; 1 at 1/3, 2/3; 2 at 2/3, 0, 2/3.
    assert graph.position[:3] == pytest.approx([1 / 6, 1 / 2, 4 / 9])


def test_authors_weights_by_hand() -> None:
    # Counts 0>1: 6, 0>2: 3, 1>3: 1 (pruned by count). Z = 10.
    calls = [[0, 1]] * 6 + [[0, 2]] * 3 + [[1, 3]]
    graph = built(calls, form="authors")
    first, second = (6 / 9) * math.log(0.6 / (0.9 * 0.6)), (3 / 9) * math.log(0.3 / (0.9 * 0.3))
    assert first > second >= 0.01
    found = weights_of(graph)
    # Scaled to 1 and 0; cosines 0>1 = 0.8, 0>2 = 0 (not positive, so no neighbour).
    assert found[0, 1] == pytest.approx(0.7 * 1 + 0.3 * 0.8)
    assert found[0, 2] == 0.0
    # Semantic edges among the tools that survive: 1>0 (0.8); 1 and 2 have cosine 0.6 in both directions.
    assert found[1, 0] == pytest.approx(0.3 * 0.8)
    assert found[1, 2] == found[2, 1] == pytest.approx(0.3 * 0.6)
    assert set(found) == {(0, 1), (0, 2), (1, 0), (1, 2), (2, 1)}
    edges = graph.edges()
    assert edges.semantic.tolist() == [False, False, True, True, True]
    # The denominator is taken before pruning; 1>3 is counted, but no edge, and 3 is no node.
    assert edges.transition.tolist() == pytest.approx([6 / 9, 3 / 9, 0, 0, 0])
    assert graph.counts[1, 3] == 1
    assert graph.nodes.tolist() == [True, True, True, False, False, False]


def test_the_least_weight_prunes() -> None:
    calls = [[0, 1]] * 6 + [[0, 2]] * 3 + [[1, 3]]
    weight = (3 / 9) * math.log(0.3 / (0.9 * 0.3))
    assert (0, 2) in weights_of(built(calls, form="authors", min_weight=weight - 1e-9))
    assert (0, 2) not in weights_of(built(calls, form="authors", min_weight=weight + 1e-9))


def test_one_statistical_edge_scales_to_zero() -> None:
    graph = built([[3, 4]] * 3 + [[0, 5]], form="authors")
    assert weights_of(graph) == {(3, 4): 0.0}
    assert graph.n_edges == 1 and graph.transition[3, 4] == 1.0


@given(CALLS, st.sampled_from(["paper", "authors"]))
def test_edges_equal_those_of_a_plain_loop(calls: list[list[int]], form: str) -> None:
    options = {"min_count": 1.0} if form == "authors" else {}
    graph = built(calls, form=form, **options)
    looped = looped_edges(calls, vectors=VECTORS, options=graph.options)
    found = weights_of(graph)
    assert found.keys() == looped.keys()
    assert found == pytest.approx(looped, abs=1e-12)
    assert all(a != b for a, b in found)
    if form == "paper":
        assert graph.nodes.tolist() == [any(tool in c for c in calls) for tool in range(N)]
    else:
        assert set(np.flatnonzero(graph.nodes)) == {tool for pair in looped for tool in pair}


@given(CALLS)
def test_positions_equal_those_of_a_plain_loop(calls: list[list[int]]) -> None:
    places: dict[int, list[float]] = {}
    for row in calls:
        for i, tool in enumerate(row):
            places.setdefault(tool, []).append(i / len(row))
    want = [float(np.mean(places[tool])) if tool in places else 0.5 for tool in range(N)]
    assert built(calls, form="authors").position == pytest.approx(want)


@settings(max_examples=60)
@given(CALLS, CALLS, st.sampled_from(["paper", "authors"]), st.randoms(use_true_random=False))
def test_extended_equals_rebuilt_bit_for_bit(first, second, form, random) -> None:
    options = replace(options_of(form), min_count=1.0)
    ids = names(len(first) + len(second))
    shuffled = list(zip(first + second, ids, strict=True))
    random.shuffle(shuffled)
    whole = build_graph(
        sequences_of([c for c, _ in shuffled], n_tools=N),
        ids=[name for _, name in shuffled], form=form, vectors=VECTORS, options=options,
    )  # fmt: skip
    part = build_graph(
        sequences_of(first, n_tools=N), ids=ids[: len(first)], form=form, vectors=VECTORS, options=options
    )
    grown = extended(part, sequences_of(second, n_tools=N), ids=ids[len(first) :], vectors=VECTORS)
    assert identical(grown, whole)


def test_identical_sees_every_part() -> None:
    graph = built([[0, 1], [1, 2]])
    assert identical(graph, built([[0, 1], [1, 2]]))
    assert not identical(graph, built([[0, 1], [1, 3]]))
    assert not identical(graph, replace(graph, contributors=("other", "q001")))
    assert not identical(graph, replace(graph, position=graph.position + 1e-16 * np.arange(N) * 4))


@pytest.mark.parametrize("form", ["paper", "authors"])
@pytest.mark.parametrize("calls", [[], [[]], [[0]], [[2, 2, 2]]])
def test_without_a_transition_there_is_no_edge(form: str, calls: list[list[int]]) -> None:
    graph = built(calls, form=form)
    assert graph.n_edges == graph.counts.nnz == 0
    assert len(graph.edges()) == 0
    called = {tool for row in calls for tool in row} if form == "paper" else set()
    assert set(np.flatnonzero(graph.nodes)) == called
    assert len(graph.contributors) == len(calls)
    assert to_networkx(graph).number_of_edges() == 0


def test_a_test_trajectory_stops_by_id() -> None:
    graph = built([[0, 1], [1, 2], [3]])
    graph.assert_disjoint(["other"])
    with pytest.raises(LeakedTrajectory, match=r"2 test trajectories .*: q000, q002;"):
        graph.assert_disjoint(["q002", "q000", "other"])
    assert LeakedTrajectory.user_facing


def test_a_trajectory_counts_once() -> None:
    packed = sequences_of([[0, 1], [1, 2]], n_tools=N)
    with pytest.raises(ValueError, match="'a' would be counted more than once"):
        build_graph(packed, ids=["a", "a"])
    with pytest.raises(ValueError, match="1 ids for 2 trajectories"):
        build_graph(packed, ids=["a"])
    graph = build_graph(packed, ids=["a", "b"])
    with pytest.raises(ValueError, match="'b' would be counted more than once"):
        extended(graph, packed.take([0]), ids=["b"])


def test_bad_input_is_refused() -> None:
    packed = sequences_of([[0, 1]], n_tools=N)
    with pytest.raises(ValueError, match="give the vectors"):
        build_graph(packed, ids=["a"], form="authors")
    with pytest.raises(ValueError, match=r"must be \(6, d\)"):
        build_graph(packed, ids=["a"], form="authors", vectors=VECTORS[:3])
    bad = VECTORS.copy()
    bad[4, 1] = np.nan
    with pytest.raises(ValueError, match="tool row 4 is not finite"):
        build_graph(packed, ids=["a"], form="authors", vectors=bad)
    with pytest.raises(ValueError, match="options are of the form 'authors'"):
        build_graph(packed, ids=["a"], options=options_of("authors"))
    with pytest.raises(ValueError, match="multiple of 1/1024"):
        replace(options_of("authors"), skip_weight=0.3)
    graph = build_graph(packed, ids=["a"])
    with pytest.raises(ValueError, match="over 6 tools, the new trajectories over 7"):
        extended(graph, sequences_of([], n_tools=7), ids=[])
    with pytest.raises(ValueError, match="without the places"):
        extended(replace(graph, places=module._NO_PLACES), packed, ids=["b"])


def test_neighbours_do_not_depend_on_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    vectors = rng.integers(-2, 3, size=(60, 4)).astype(np.float32)  # whole numbers: many ties, exact products
    active = np.arange(0, 60, 2)
    whole = module._neighbour_keys(vectors, active, k=5)
    monkeypatch.setattr(module, "_BLOCK", 70)
    assert [a.tolist() for a in module._neighbour_keys(vectors, active, k=5)] == [a.tolist() for a in whole]
    similarity = vectors[active] @ vectors[active].T
    np.fill_diagonal(similarity, -np.inf)
    want = [
        (int(active[i] * 60 + active[j]))
        for i in range(30)
        for j in sorted(np.argsort(-similarity[i], kind="stable")[:5])
        if similarity[i, j] > 0
    ]
    assert whole[0].tolist() == want


@given(st.integers(1, 40), st.integers(0, 45), st.integers(0, 2**31))
def test_nearest_columns_are_the_largest_and_first(n: int, k: int, seed: int) -> None:
    similarity = np.random.default_rng(seed).integers(0, 4, size=(5, n)).astype(np.float32)
    want = np.sort(np.argsort(-similarity, axis=1, kind="stable")[:, :k], axis=1)
    assert nearest_columns(similarity, k=k).tolist() == want.tolist()


def test_fewer_neighbours_than_a_high_cosine() -> None:
    calls = [[0, 1], [1, 2], [2, 3]] * 3
    near = {(a, b) for a, b in weights_of(built(calls, form="authors", neighbours=0))}
    assert near == {(0, 1), (1, 2), (2, 3)}
    # One neighbour each: 0 and 1 choose each other, 2 chooses 1; 1 does not choose 2, so 0 of it enters 1>2.
    one = weights_of(built(calls, form="authors", neighbours=1))
    assert one[1, 0] == pytest.approx(0.24) and one[2, 1] == pytest.approx(0.18)
    both = weights_of(built(calls, form="authors", neighbours=2))
    assert both[1, 2] - one[1, 2] == pytest.approx(0.18)


def test_networkx_has_every_attribute_in_sorted_order() -> None:
    graph = built([[0, 1]] * 6 + [[0, 2]] * 3 + [[1, 3]], form="authors")
    out = to_networkx(graph, tool_ids=list("abcdef"))
    assert list(out.nodes) == ["a", "b", "c"]
    assert list(out.edges) == [("a", "b"), ("a", "c"), ("b", "a"), ("b", "c"), ("c", "b")]
    assert out.nodes["a"] == {"position": 0.0, "calls": 9}
    assert out.edges["a", "c"]["weight"] == 0.0 and out.edges["a", "c"]["count"] == 3.0
    assert out.edges["c", "b"]["semantic"] is True
    assert list(to_networkx(graph).nodes) == [0, 1, 2]


@pytest.mark.parametrize("form", ["paper", "authors"])
@pytest.mark.parametrize("calls", [[], [[0, 1]] * 6 + [[0, 2]] * 3 + [[1, 3]]])
def test_files_give_the_graph_back_bit_for_bit(form: str, calls: list[list[int]], tmp_path: Path) -> None:
    graph, ids = built(calls, form=form), list("abcdef")
    paths = to_parquet(graph, tmp_path / "one", tool_ids=ids)
    read = from_parquet(tmp_path / "one", tool_ids=ids)
    assert identical(read, graph)
    again = to_parquet(read, tmp_path / "two", tool_ids=ids)
    assert [p.read_bytes() for p in again] == [p.read_bytes() for p in paths]
    more = sequences_of([[5, 4, 0]], n_tools=N)
    assert identical(
        extended(read, more, ids=["z"], vectors=VECTORS), extended(graph, more, ids=["z"], vectors=VECTORS)
    )


def test_unusable_files_are_named(tmp_path: Path) -> None:
    graph, ids = built([[0, 1], [1, 2]]), list("abcdef")
    with pytest.raises(ValueError, match="5 tool ids for a graph over 6 tools"):
        to_parquet(graph, tmp_path, tool_ids=ids[:5])
    with pytest.raises(BadGraphFile, match=r"graph\.json is missing"):
        from_parquet(tmp_path)
    to_parquet(graph, tmp_path, tool_ids=ids)
    with pytest.raises(BadGraphFile, match="other tools or another order"):
        from_parquet(tmp_path, tool_ids=ids[::-1])
    other = built([[0, 1]])
    to_parquet(other, tmp_path / "other", tool_ids=ids)
    (tmp_path / "other" / "edges.parquet").replace(tmp_path / "edges.parquet")
    with pytest.raises(BadGraphFile, match=r"edges\.parquet has 1 rows, graph\.json says 2"):
        from_parquet(tmp_path)
    (tmp_path / "places.parquet").unlink()
    (tmp_path / "edges.parquet").unlink()
    with pytest.raises(BadGraphFile, match=r"edges\.parquet is missing"):
        from_parquet(tmp_path)
    (tmp_path / "graph.json").write_text('{"format": 0}')
    with pytest.raises(BadGraphFile, match="format 0"):
        from_parquet(tmp_path)


def test_an_empty_library() -> None:
    nothing = Sequences(offsets=np.zeros(1, np.int64), items=np.zeros(0, np.int64), n_tools=0)
    assert build_graph(nothing, ids=[]).n_edges == 0

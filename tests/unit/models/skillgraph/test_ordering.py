"""Stage 2 by hand, against all permutations, and what no orderer may do."""

from __future__ import annotations

from itertools import pairwise, permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from toolshift.measures.sequences import sequence_measures
from toolshift.models.skillgraph.graph import TransitionGraph
from toolshift.models.skillgraph.ordering import (
    OrderOptions,
    best_permutations,
    on_sum_grid,
    order,
    ordered_by,
    random_floor,
    shuffled,
    tune_alpha,
)
from toolshift.models.skillgraph.retrieval import Sets, retrieve

METHODS = ("sem_sort", "hybrid_rerank", "opt_perm")


def graph_of(edges: dict[tuple[int, int], float], n: int) -> TransitionGraph:
    rows, columns = (np.array([pair[i] for pair in edges], dtype=np.int64) for i in (0, 1))
    weight = sparse.csr_matrix((np.array(list(edges.values()), np.float64), (rows, columns)), shape=(n, n))
    # Stage 1 looks at ``weight``: here it is empty, so that an orderer that read it would be caught.
    return TransitionGraph(
        counts=weight,
        transition=weight,
        weight=sparse.csr_matrix((n, n), dtype=np.float64),
        position=np.full(n, 0.5),
        nodes=np.ones(n, dtype=bool),
        contributors=("a", "b"),
    )


def sets_of(*rows: list[tuple[int, float]]) -> Sets:
    k = max(map(len, rows))
    padded = [[*row, *[(-1, 0.0)] * (k - len(row))] for row in rows]
    return Sets(
        items=np.array([[t for t, _ in row] for row in padded], dtype=np.int64).reshape(len(rows), k),
        similarity=np.array([[s for _, s in row] for row in padded], dtype=np.float64).reshape(len(rows), k),
    )


def lists(items: Any) -> list[list[int]]:
    return [[item for item in row if item >= 0] for row in items.tolist()]


@st.composite
def random_sets(draw: st.DrawFn, *, largest: int = 7) -> tuple[Sets, TransitionGraph]:
    """Coarse values, so that equal permutations are common."""
    rng = np.random.Generator(np.random.Philox(draw(st.integers(0, 2**32))))
    n = draw(st.integers(1, largest + 2))
    share = draw(st.sampled_from([0.0, 0.2, 0.7]))
    weights = np.where(rng.random((n, n)) < share, rng.integers(0, 4, (n, n)) / 3, 0.0)
    np.fill_diagonal(weights, 0.0)
    edges = {(int(a), int(b)): float(weights[a, b]) for a, b in zip(*np.nonzero(weights), strict=True)}
    rows = []
    for _ in range(draw(st.integers(1, 3))):
        items = rng.permutation(n)[: draw(st.integers(0, min(n, largest)))]
        rows.append([(int(t), float(rng.integers(0, 4)) / 10) for t in items])
    return sets_of(*rows), graph_of(edges, n)


def brute_force(items: list[int], value: Any) -> list[int]:
    """The first best permutation of tools that are given by cosine."""
    return list(max(permutations(items), key=value))


@given(case=random_sets(), alpha=st.sampled_from([0.0, 0.3, 0.4, 1.0]))
def test_hybrid_rerank_equals_all_permutations(case: Any, alpha: float) -> None:
    sets, graph = case
    weight = graph.transition.toarray()
    found = order("hybrid_rerank", sets, graph=graph, options=OrderOptions(alpha=alpha))
    for row, ranked in enumerate(lists(sets.by_cosine().items)):
        cosine = dict(zip(sets.items[row].tolist(), sets.similarity[row].tolist(), strict=True))

        def value(pi: Any, cosine: Any = cosine) -> float:
            own = sum(float(on_sum_grid(np.float64((1 - alpha) * cosine[t] / i))) for i, t in enumerate(pi, 1))
            return own + sum(float(on_sum_grid(np.float64(alpha * weight[a, b]))) for a, b in pairwise(pi))

        assert lists(found)[row] == brute_force(ranked, value)


@given(case=random_sets())
def test_opt_perm_equals_all_permutations(case: Any) -> None:
    sets, graph = case
    log = on_sum_grid(np.log(graph.transition.toarray() + 1e-9))
    found = order("opt_perm", sets, graph=graph)
    for row, ranked in enumerate(lists(sets.by_cosine().items)):
        assert lists(found)[row] == brute_force(ranked, lambda pi: sum(log[a, b] for a, b in pairwise(pi)))


@given(case=random_sets(largest=10), method=st.sampled_from(METHODS), exhaustive=st.sampled_from([0, 4, 8]))
def test_stage_2_never_changes_the_set(case: Any, method: str, exhaustive: int) -> None:
    sets, graph = case
    found = order(method, sets, graph=graph, options=OrderOptions(exhaustive=exhaustive))
    assert found.shape == sets.items.shape
    assert [sorted(row) for row in lists(found)] == [sorted(row) for row in lists(sets.items)]
    np.testing.assert_array_equal((found >= 0).sum(axis=1), sets.size)
    # The order in which Stage 1 hands the set over plays no part.
    np.testing.assert_array_equal(order(method, sets.by_cosine(), graph=graph), order(method, sets, graph=graph))


def test_by_hand() -> None:
    """0, 1, 2 by cosine; 2 -> 1 -> 0 is the chain of the graph."""
    sets = sets_of([(1, 0.3), (0, 0.4), (2, 0.2)])
    graph = graph_of({(2, 1): 0.9, (1, 0): 0.8}, 3)
    assert lists(order("sem_sort", sets, graph=graph)) == [[0, 1, 2]]
    assert lists(order("opt_perm", sets, graph=graph)) == [[2, 1, 0]]
    # Against the chain .4*1.7 + .6*(.2 + .15 + .4/3) = .97; by cosine .6*(.4 + .15 + .2/3) = .37.
    assert lists(order("hybrid_rerank", sets, graph=graph)) == [[2, 1, 0]]
    assert lists(order("hybrid_rerank", sets, graph=graph, options=OrderOptions(alpha=0.0))) == [[0, 1, 2]]


def test_equal_permutations_keep_the_cosine_order() -> None:
    sets = sets_of([(5, 0.3), (4, 0.3), (3, 0.1), (2, 0.1)])
    assert lists(order("opt_perm", sets, graph=graph_of({}, 6))) == [[4, 5, 2, 3]]
    # 3 -> 4 is worth the same wherever it stands: 5 would come first only after 4 by cosine.
    assert lists(order("opt_perm", sets, graph=graph_of({(3, 4): 0.5}, 6))) == [[5, 2, 3, 4]]


def test_best_permutation_of_ten_follows_a_hidden_chain() -> None:
    rng = np.random.Generator(np.random.Philox(3))
    hidden = np.stack([rng.permutation(10) for _ in range(5)])
    link = np.full((5, 10, 10), -20.0)
    for row, chain in enumerate(hidden):
        link[row, chain[:-1], chain[1:]] = -0.5
    np.testing.assert_array_equal(best_permutations(link, np.zeros((5, 10, 10))), hidden)


def test_larger_sets_are_ordered_greedily() -> None:
    """From the nearest tool along the heaviest transition; where there is none, by cosine. The chain 3 -> 0 that the
    best permutation would begin with is out of reach for a greedy step."""
    sets = sets_of([(0, 0.5), (1, 0.4), (2, 0.3), (3, 0.2)])
    graph = graph_of({(0, 2): 0.2, (2, 1): 0.1, (3, 0): 0.9}, 4)
    greedy, whole = OrderOptions(exhaustive=3), OrderOptions(exhaustive=4)
    assert lists(order("opt_perm", sets, graph=graph, options=greedy)) == [[0, 2, 1, 3]]
    assert lists(order("opt_perm", sets, graph=graph, options=whole)) == [[3, 0, 2, 1]]
    assert lists(order("hybrid_rerank", sets, graph=graph, options=OrderOptions(exhaustive=0))) == [[0, 2, 1, 3]]
    # From 0 at alpha = .1: to 2 .1*.2 + .9*.3/2 = .155, to 1 .9*.4/2 = .18.
    light = OrderOptions(exhaustive=0, alpha=0.1)
    assert lists(order("hybrid_rerank", sets, graph=graph, options=light)) == [[0, 1, 2, 3]]


def test_a_greedy_step_may_look_back_at_every_tool_placed() -> None:
    sets = sets_of([(0, 0.5), (1, 0.4), (2, 0.3), (3, 0.2)])
    graph = graph_of({(0, 2): 0.9, (0, 3): 0.8}, 4)
    last = OrderOptions(exhaustive=0, alpha=0.7)
    assert lists(order("hybrid_rerank", sets, graph=graph, options=last)) == [[0, 2, 1, 3]]
    either = OrderOptions(exhaustive=0, alpha=0.7, link="any")
    assert lists(order("hybrid_rerank", sets, graph=graph, options=either)) == [[0, 2, 3, 1]]


def test_semantic_set_with_hybrid_rerank() -> None:
    queries = np.array([[0.5, 0.4, 0.1, np.sqrt(0.58)]], np.float32)
    graph = graph_of({(1, 0): 1.0, (1, 2): 1.0}, 3)
    sets = retrieve("semantic_only", queries=queries, tools=np.eye(3, 4, dtype=np.float32), graph=graph, k=[2])
    assert lists(order("hybrid_rerank", sets, graph=graph)) == [[1, 0]]


def test_scores_reorder_and_ties_stay() -> None:
    sets = sets_of([(4, 0.9), (2, 0.5), (3, 0.1)], [(1, 0.9)])
    scores = np.array([[1.0, 2.0, 1.0], [-5.0, 9.0, 9.0]])
    assert ordered_by(scores, sets).tolist() == [[2, 4, 3], [1, -1, -1]]


def test_random_orders_belong_to_the_id_and_are_uniform() -> None:
    row = [(0, 0.5), (1, 0.4), (2, 0.3)]
    sets = sets_of(row, row, row[:2])
    ids = ["x", "y", "z"]
    seen = [lists(shuffled(sets, ids=ids, shuffle=s)) for s in range(300)]
    assert all(sorted(r[0]) == [0, 1, 2] and sorted(r[2]) == [0, 1] for r in seen)
    back = [lists(shuffled(sets.take([1, 0, 2]), ids=["y", "x", "z"], shuffle=s)) for s in range(300)]
    assert [r[0] for r in seen] == [r[1] for r in back]
    assert [r[0] for r in seen] != [r[1] for r in seen]
    counts = np.unique([str(r[0]) for r in seen], return_counts=True)[1]
    assert len(counts) == 6 and counts.min() > 25


def test_the_random_floor_is_near_one_half() -> None:
    row = [(t, 0.5 - t / 100) for t in range(4)]
    sets, n = sets_of(*[row] * 40), 40
    gold = np.tile(np.arange(4), (n, 1))
    ids = [f"q{i}" for i in range(n)]
    found = random_floor(sets, gold, ids=ids)
    assert found.ordered_precision.shape == (n,)
    assert abs(found.ordered_precision.mean() - 0.5) < 0.02 and abs(found.kendall_tau.mean()) < 0.04
    assert (found.set_f1 == 1.0).all() and (found.n_common == 4).all()
    one = random_floor(sets, gold, ids=ids, shuffles=1)
    exact = sequence_measures(shuffled(sets, ids=ids, shuffle=0), gold)
    np.testing.assert_array_equal(one.kendall_tau, exact.kendall_tau)
    with pytest.raises(ValueError, match="at least 1"):
        random_floor(sets, gold, ids=ids, shuffles=0)


def test_alpha_is_chosen_by_ordered_precision() -> None:
    """The cosine says 0, 1 and the graph 1, 0."""
    sets = sets_of([(0, 0.6), (1, 0.4)], [(0, 0.6), (1, 0.4)])
    graph = graph_of({(1, 0): 1.0}, 2)
    found = tune_alpha(sets, [[1, 0], [1, 0]], ids=["a", "b"], graph=graph)
    # 1, 0 wins where alpha + (1 - alpha) (.4 + .3) > (1 - alpha) (.6 + .2), that is from alpha = .1 on.
    assert found.alpha == 0.1
    assert dict(found.trials)[0.0] == 0.0 and dict(found.trials)[0.1] == 1.0
    assert tune_alpha(sets, [[0, 1], [0, 1]], ids=["a", "b"], graph=graph).alpha == 0.0
    with pytest.raises(ValueError, match="'c'"):
        tune_alpha(sets, [[1, 0], [1, 0]], ids=["a", "c"], graph=graph)


def test_bad_arguments_are_named() -> None:
    sets, graph = sets_of([(0, 0.5)]), graph_of({}, 1)
    with pytest.raises(ValueError, match="unknown method 'best'"):
        order("best", sets, graph=graph)
    with pytest.raises(ValueError, match="fitted reranker"):
        order("learned", sets, graph=graph)
    for bad in ({"alpha": -0.1}, {"exhaustive": 13}, {"link": "first"}):
        with pytest.raises(ValueError):
            OrderOptions(**bad)


def test_sets_of_no_tool_and_of_one() -> None:
    sets = sets_of([], [(3, 0.5)])
    for method in METHODS:
        assert lists(order(method, sets, graph=graph_of({}, 4))) == [[], [3]]
    nothing = Sets(items=np.zeros((2, 0), np.int64), similarity=np.zeros((2, 0)))
    for method in METHODS:
        assert order(method, nothing, graph=graph_of({}, 4)).shape == (2, 0)

"""Features by hand, the identities of the reranker, and that it learns an order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from toolshift.models.skillgraph.graph import TransitionGraph, build_graph
from toolshift.models.skillgraph.ordering import order
from toolshift.models.skillgraph.reranker import (
    GROUPS,
    LearnedReranker,
    NothingToLearn,
    RerankerOptions,
    TrainingPairs,
    _validation,
    fit_reranker,
    reranker_options,
    tool_features,
    training_pairs,
)
from toolshift.models.skillgraph.retrieval import Sets
from toolshift.models.skillgraph.sequences import Sequences, sequences_of

F8 = 7


def graph_of(edges: dict[tuple[int, int], float], n: int, *, position: Any) -> TransitionGraph:
    rows, columns = (np.array([pair[i] for pair in edges], dtype=np.int64) for i in (0, 1))
    weight = sparse.csr_matrix((np.array(list(edges.values()), np.float64), (rows, columns)), shape=(n, n))
    return TransitionGraph(
        counts=weight,
        transition=weight,
        weight=sparse.csr_matrix((n, n), dtype=np.float64),
        position=np.asarray(position, np.float64),
        nodes=np.ones(n, dtype=bool),
        contributors=(),
    )


def units(rng: np.random.Generator, n: int, d: int) -> Any:
    rows = rng.standard_normal((n, d))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def world(n: int = 300, *, tools: int = 12, seed: int = 0) -> dict[str, Any]:
    """Trajectories that always run in the order of the tool rows; the query says nothing of it."""
    rng = np.random.Generator(np.random.Philox(seed))
    calls = [np.sort(rng.permutation(tools)[: rng.integers(1, 5)]).tolist() for _ in range(n)]
    sequences = sequences_of(calls, n_tools=tools)
    ids = [f"t{i}" for i in range(n)]
    return {
        "sequences": sequences,
        "queries": units(rng, n, 8),
        "tools": units(rng, tools, 8),
        "graph": build_graph(sequences, ids=ids),
    }


def random_reranker(seed: int, *, antisymmetric: bool) -> LearnedReranker:
    rng = np.random.Generator(np.random.Philox(seed))
    shapes = {"layer_1": (8, 64), "bias_1": 64, "layer_2": (64, 32), "bias_2": 32, "layer_3": (32, 1), "bias_3": 1}
    weights = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    return LearnedReranker(weights=weights, antisymmetric=antisymmetric)


@st.composite
def random_sets(draw: st.DrawFn) -> tuple[Sets, TransitionGraph]:
    rng = np.random.Generator(np.random.Philox(draw(st.integers(0, 2**32))))
    n, q, k = 9, draw(st.integers(1, 4)), draw(st.integers(1, 6))
    weights = np.where(rng.random((n, n)) < 0.4, rng.random((n, n)), 0.0)
    edges = {(int(a), int(b)): float(weights[a, b]) for a, b in zip(*np.nonzero(weights), strict=True) if a != b}
    items = np.stack([rng.permutation(n)[:k] for _ in range(q)])
    items = np.where(np.arange(k) < rng.integers(0, k + 1, size=q)[:, None], items, -1)
    sets = Sets(items=items, similarity=np.where(items >= 0, rng.random((q, k)), 0.0))
    return sets.by_cosine(), graph_of(edges, n, position=rng.random(n))


def test_features_by_hand() -> None:
    graph = graph_of({(0, 1): 0.5, (0, 2): 0.25, (2, 0): 0.125, (1, 3): 1.0}, 4, position=[0.1, 0.9, 0.5, 0.5])
    sets = Sets(items=np.array([[1, 0, 2], [3, -1, -1]]), similarity=np.array([[0.8, 0.6, 0.2], [0.4, 0.0, 0.0]]))
    found = tool_features(sets, graph=graph)
    expected = [
        [0.8, 0.0, 0.0, 0.5, 0.0, 0.5, 0.9, 0.3],
        [0.6, 0.5, 0.75, 0.125, 0.5, 0.125, 0.1, 0.3],
        [0.2, 1.0, 0.125, 0.25, 0.125, 0.25, 0.5, 0.3],
    ]
    np.testing.assert_allclose(found[0], expected)
    # One tool: rank 0 / max(0, 1); a transition to a tool outside the set does not count.
    np.testing.assert_allclose(found[1], [[0.4, 0, 0, 0, 0, 0, 0.5, 0.1], [0] * 8, [0] * 8])
    other = tool_features(sets, graph=graph, position=np.full(4, 0.5))
    assert (other[0, :, 6] == 0.5).all()


def test_training_pairs_by_hand() -> None:
    rng = np.random.Generator(np.random.Philox(0))
    calls = sequences_of([[2, 0, 1], [3], [], [1, 1, 3], [0, 1, 0]], n_tools=4)
    graph = build_graph(calls, ids=list("abcde"))
    asked = {"queries": units(rng, 5, 6), "tools": units(rng, 4, 6), "graph": graph}
    pairs = training_pairs(calls, **asked)
    assert pairs.owner.tolist() == [0, 0, 0, 3, 4, 4]
    assert (pairs.difference[:, F8] == 0).all()
    np.testing.assert_array_equal(pairs.difference[4], -pairs.difference[5])  # 0 before 1 and 1 before 0
    deduplicated = training_pairs(calls.deduplicated(), **asked)
    assert deduplicated.owner.tolist() == [0, 0, 0, 3, 4]
    # Position is f7: the mean place of the first tool of each pair of the first trajectory, minus that of the second.
    place = graph.position
    expected = sorted([place[2] - place[0], place[2] - place[1], place[0] - place[1]])
    np.testing.assert_allclose(np.sort(pairs.difference[:3, 6]), expected)


@given(case=random_sets(), seed=st.integers(0, 9))
def test_f8_is_inert(case: Any, seed: int) -> None:
    sets, graph = case
    features = tool_features(sets, graph=graph)
    valid = sets.items >= 0
    both = valid[:, :, None] & valid[:, None, :]
    assert ((features[:, :, None, F8] - features[:, None, :, F8])[both] == 0).all()
    for antisymmetric in (False, True):
        whole = random_reranker(seed, antisymmetric=antisymmetric)
        without_f8 = LearnedReranker(weights=whole.weights, antisymmetric=antisymmetric, zeroed=(F8,))
        found = [r.probabilities(sets, graph=graph) for r in (whole, without_f8)]
        np.testing.assert_array_equal(found[0], found[1])


@given(case=random_sets(), seed=st.integers(0, 9))
def test_mirror_in_paper_mode(case: Any, seed: int) -> None:
    sets, graph = case
    p = random_reranker(seed, antisymmetric=True).probabilities(sets, graph=graph)
    valid = sets.items >= 0
    both = valid[:, :, None] & valid[:, None, :] & ~np.eye(sets.items.shape[1], dtype=bool)
    np.testing.assert_allclose((p + np.swapaxes(p, 1, 2))[both], 1.0, atol=1e-12)
    assert (p[~both] == 0).all()


def test_a_network_with_biases_has_no_mirror_by_itself() -> None:
    x = np.random.Generator(np.random.Philox(1)).standard_normal((20, 8))
    loose, tight = (random_reranker(0, antisymmetric=a) for a in (False, True))
    assert np.abs(loose.logits(x) + loose.logits(-x)).max() > 1.0
    np.testing.assert_allclose(tight.logits(x), -tight.logits(-x), atol=1e-12)
    np.testing.assert_allclose(tight.logits(x), (loose.logits(x) - loose.logits(-x)) / 2, atol=1e-12)


@given(case=random_sets(), seed=st.integers(0, 9), antisymmetric=st.booleans())
def test_it_never_changes_the_set_and_batches_nothing_in(case: Any, seed: int, antisymmetric: bool) -> None:
    sets, graph = case
    reranker = random_reranker(seed, antisymmetric=antisymmetric)
    found = order("learned", sets, graph=graph, learned=reranker)
    np.testing.assert_array_equal(np.sort(found, axis=1), np.sort(sets.items, axis=1))
    np.testing.assert_array_equal(found < 0, sets.items < 0)
    for row in range(len(found)):
        np.testing.assert_array_equal(
            order("learned", sets.take([row]), graph=graph, learned=reranker), found[row : row + 1]
        )


def test_equal_tools_keep_the_cosine_order() -> None:
    graph = graph_of({}, 4, position=[0.5] * 4)
    sets = Sets(items=np.array([[3, 1, 2, 0]]), similarity=np.zeros((1, 4)))
    flat = random_reranker(0, antisymmetric=True).without("semantic")
    assert flat.order(sets, graph=graph).tolist() == [[0, 1, 2, 3]]


@pytest.mark.parametrize("mode", ["paper", "authors"])
def test_it_learns_the_order_and_needs_the_position_for_it(mode: Any) -> None:
    known = world()
    ids = [f"t{i}" for i in range(len(known["sequences"]))]
    pairs = training_pairs(**known)
    options = reranker_options(mode)
    fitted = fit_reranker(pairs, ids=ids, options=RerankerOptions(
        antisymmetric=options.antisymmetric, split=options.split, batch=64, epochs=20
    ))  # fmt: skip
    fresh = {**world(120, seed=1), "graph": known["graph"], "tools": known["tools"]}
    gold, x = training_pairs(**fresh), training_pairs(**fresh).difference
    right = (fitted.logits(x) > 0).mean()
    assert len(gold) > 100 and right > 0.9
    # Without transitions and positions only the cosine is left, which says nothing of the order here.
    blind = (fitted.without("transition", "position").logits(x) > 0).mean()
    assert blind < 0.8
    record = fitted.record
    assert record["pairs"] == len(pairs) and 1 <= record["kept_epoch"] <= len(record["epochs"]) <= 20
    judged = [e["validation"] for e in record["epochs"]]
    assert judged[record["kept_epoch"] - 1] <= min(judged) + 1e-5 * len(judged)


def test_the_retrained_ablation_never_sees_the_group() -> None:
    known = world(100)
    ids = [f"t{i}" for i in range(100)]
    pairs = training_pairs(**known)
    columns = list(GROUPS["transition"])
    changed = pairs.difference.copy()
    changed[:, columns] = 7.0
    options = RerankerOptions(without=("transition",), batch=64, epochs=3)
    found = [
        fit_reranker(TrainingPairs(difference=d, owner=pairs.owner), ids=ids, options=options)
        for d in (pairs.difference, changed)
    ]
    for name, value in found[0].weights.items():
        np.testing.assert_array_equal(value, found[1].weights[name])
    assert found[0].zeroed == tuple(columns)
    np.testing.assert_array_equal(found[0].logits(pairs.difference), found[0].logits(changed))
    retrained, silenced = found[0], fit_reranker(pairs, ids=ids, options=RerankerOptions(batch=64, epochs=3))
    assert (retrained.logits(pairs.difference) != silenced.without("transition").logits(pairs.difference)).any()


def test_training_is_deterministic_and_follows_the_seed() -> None:
    import torch

    known = world(80)
    ids = [f"t{i}" for i in range(80)]
    pairs = training_pairs(**known)
    threads = torch.get_num_threads()
    torch.manual_seed(1)
    first = fit_reranker(pairs, ids=ids, options=RerankerOptions(batch=32, epochs=3))
    torch.manual_seed(2)
    second = fit_reranker(pairs, ids=ids, options=RerankerOptions(batch=32, epochs=3))
    other = fit_reranker(pairs, ids=ids, options=RerankerOptions(batch=32, epochs=3, seed=43))
    assert torch.get_num_threads() == threads
    for name, value in first.weights.items():
        np.testing.assert_array_equal(value, second.weights[name])
    assert (first.weights["layer_1"] != other.weights["layer_1"]).any()
    assert first.losses == second.losses


def test_the_network_of_training_is_that_of_inference() -> None:
    import torch

    from toolshift.models.skillgraph.reranker import _network

    reranker = random_reranker(3, antisymmetric=False)
    x = np.random.Generator(np.random.Philox(2)).standard_normal((50, 8))
    tensors = {name: torch.from_numpy(value).double() for name, value in reranker.weights.items()}
    np.testing.assert_allclose(reranker.logits(x), _network(tensors, torch.from_numpy(x)).numpy(), rtol=1e-10)


def test_splits() -> None:
    owner = np.repeat(np.arange(400), 3)
    pairs = TrainingPairs(difference=np.zeros((1200, 8)), owner=owner)
    ids = [f"t{i}" for i in range(400)]
    by_trajectory = _validation(pairs, ids=ids, options=reranker_options("paper"))
    assert 0.05 < by_trajectory.mean() < 0.15
    np.testing.assert_array_equal(by_trajectory[:1200], by_trajectory[1200:])  # a mirror is on the side of its pair
    assert all(len(set(by_trajectory[:1200][owner == t].tolist())) == 1 for t in range(400))
    grouped = _validation(pairs, ids=[f"g{i // 4}" for i in range(400)], options=reranker_options("paper"))
    assert all(len(set(grouped[:1200][owner // 4 == g].tolist())) == 1 for g in range(100))
    by_pair = _validation(pairs, ids=ids, options=reranker_options("authors"))
    assert by_pair.sum() == 240
    assert (by_pair[:1200] != by_pair[1200:]).any()


def test_nothing_to_learn_and_almost_nothing() -> None:
    rng = np.random.Generator(np.random.Philox(0))
    tools = units(rng, 3, 4)

    def fitted(calls: list[list[int]]) -> LearnedReranker:
        sequences: Sequences = sequences_of(calls, n_tools=3)
        ids = [f"t{i}" for i in range(len(calls))]
        graph = build_graph(sequences, ids=ids)
        pairs = training_pairs(sequences, queries=units(rng, len(calls), 4), tools=tools, graph=graph)
        return fit_reranker(pairs, ids=ids, options=RerankerOptions(epochs=40, patience=40))

    with pytest.raises(NothingToLearn, match="none of the 2 training trajectories"):
        fitted([[0], [1, 1]])
    one = fitted([[0, 1]])  # one trajectory cannot be split: the training loss decides
    assert one.n_pairs == 1 and one.losses[-1][1] == one.losses[-1][2] < one.losses[0][1]


def test_bad_options_are_named() -> None:
    for bad in ({"split": "query"}, {"without": ("f8",)}, {"epochs": 0}, {"validation": 1.0}, {"learning_rate": 0.0}):
        with pytest.raises(ValueError):
            RerankerOptions(**bad)

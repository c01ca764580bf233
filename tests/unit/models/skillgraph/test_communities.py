from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from scipy import sparse
from scipy.stats import spearmanr

from toolshift.models.skillgraph.communities import (
    agreement,
    community_table,
    cosine_correlations,
    edge_cosines,
    louvain,
    modularity,
    pair_case,
    projected,
    stability,
    summary_of,
    tool_case,
)
from toolshift.models.skillgraph.graph import TransitionGraph, build_graph, to_networkx
from toolshift.models.skillgraph.sequences import sequences_of

ALGORITHMS = ("python-louvain", "networkx")


def built(calls: list[list[int]], *, n_tools: int, **more) -> TransitionGraph:
    return build_graph(sequences_of(calls, n_tools=n_tools), ids=[str(i) for i in range(len(calls))], **more)


@pytest.fixture
def two_groups() -> TransitionGraph:
    """Two triangles, 0-1-2 and 3-4-5, with one call across; 6 is called alone, 7 never."""
    calls = [[0, 1, 2, 0], [1, 2, 0], [2, 0, 1], [3, 4, 5], [4, 5, 3], [5, 3, 4], [2, 3], [6]]
    return built(calls, n_tools=8)


def random_graph(seed: int, n: int = 60) -> TransitionGraph:
    rng = np.random.default_rng(seed)
    return built(rng.integers(0, n, size=(200, 3)).tolist(), n_tools=n)


def test_projections_by_hand() -> None:
    # 0>1 has 3/4, 1>0 all of its row; 0>2 has 1/4 and no way back.
    graph = built([[0, 1], [0, 1], [0, 1], [0, 2], [1, 0]], n_tools=3)
    assert projected(graph).toarray() == pytest.approx(np.array([[0, 0.875, 0.125], [0.875, 0, 0], [0.125, 0, 0]]))
    assert projected(graph, how="one_direction").toarray() == pytest.approx(
        np.array([[0, 1.0, 0.25], [1.0, 0, 0], [0.25, 0, 0]])
    )


def test_one_direction_is_the_plain_conversion_of_networkx() -> None:
    graph = random_graph(0)
    theirs = nx.to_scipy_sparse_array(to_networkx(graph).to_undirected(), nodelist=np.flatnonzero(graph.nodes).tolist())
    ours = projected(graph, how="one_direction")[graph.nodes][:, graph.nodes]
    assert abs(sparse.csr_matrix(theirs) - ours).max() == 0


@pytest.mark.parametrize("how", ["average", "one_direction"])
def test_modularity_equals_networkx(how) -> None:
    graph, rng = random_graph(1), np.random.default_rng(1)
    community = np.where(graph.nodes, rng.integers(0, 5, size=graph.n_tools), -1)
    weights = projected(graph, how=how)
    groups = [set(np.flatnonzero(community == c).tolist()) for c in range(5)]
    undirected = nx.from_scipy_sparse_array(weights).subgraph(np.flatnonzero(graph.nodes).tolist())
    assert modularity(weights, community) == pytest.approx(nx.community.modularity(undirected, groups))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_two_groups_are_found(two_groups: TransitionGraph, algorithm) -> None:
    found = louvain(two_groups, algorithm=algorithm)
    assert found.community.tolist() == [0, 0, 0, 1, 1, 1, 2, -1]
    assert found.sizes.tolist() == [3, 3, 1]
    assert 0.3 < found.modularity < 0.5


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_seed_gives_one_partition_whatever_the_order_of_trajectories(algorithm) -> None:
    rng = np.random.default_rng(5)
    calls = rng.integers(0, 60, size=(200, 3)).tolist()
    first = louvain(built(calls, n_tools=60), seed=3, algorithm=algorithm)
    for _ in range(3):
        rng.shuffle(calls)
        again = louvain(built(calls, n_tools=60), seed=3, algorithm=algorithm)
        assert again.community.tolist() == first.community.tolist()


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_without_weight_every_tool_is_alone(algorithm) -> None:
    found = louvain(built([[0], [2], []], n_tools=4), algorithm=algorithm)
    assert found.community.tolist() == [0, -1, 1, -1]
    assert found.modularity == 0.0
    empty = louvain(built([], n_tools=3), algorithm=algorithm)
    assert empty.sizes.tolist() == [] and empty.community.tolist() == [-1] * 3


def test_agreement_by_hand() -> None:
    # Community 0: a a b, community 1: c c, community 2: unlabelled only; a tool outside the graph does not count.
    community = np.array([0, 0, 0, 1, 1, 2, -1])
    found = agreement(community, ["a", "a", "b", "c", "c", None, "a"])
    assert found.purity[:2] == pytest.approx([2 / 3, 1.0]) and np.isnan(found.purity[2])
    assert found.purity_mean == pytest.approx(5 / 6)
    assert found.purity_weighted == pytest.approx(4 / 5)
    # H(U) over 2/5, 1/5, 2/5; H(V) over 3/5, 2/5; V is a function of U, so I = H(V).
    h_u = -(2 * 0.4 * np.log(0.4) + 0.2 * np.log(0.2))
    h_v = -(0.6 * np.log(0.6) + 0.4 * np.log(0.4))
    assert found.nmi == pytest.approx(2 * h_v / (h_u + h_v))
    assert found.n == 5
    nothing = agreement(community, [""] * 7)
    assert nothing.n == 0 and np.isnan([nothing.purity_mean, nothing.purity_weighted, nothing.nmi]).all()
    with pytest.raises(ValueError, match="2 labels for 7 tools"):
        agreement(community, ["a", "b"])


def test_table_summary_and_stability(two_groups: TransitionGraph) -> None:
    labels = {"category": ["x"] * 3 + ["y"] * 5, "parent": list("aabccddd")}
    table = community_table(two_groups, labels=labels, seeds=(0, 1, 2))
    assert len(table) == 2 * 2 * 3 * 2
    assert set(table.loc[table["labels"] == "category", "purity"]) == {1.0}
    parent = table[table["labels"] == "parent"]
    # Communities aab, ccd, d: purities 2/3, 2/3, 1.
    assert parent["purity"].to_numpy() == pytest.approx(np.full(12, 7 / 9))
    assert parent["purity_weighted"].to_numpy() == pytest.approx(np.full(12, 5 / 7))
    assert set(table["n_communities"]) == {3} and set(table["n_tools"]) == {7} and set(table["largest"]) == {3}
    summary = summary_of(table)
    row = summary[(summary["figure"] == "purity") & (summary["labels"] == "parent")].iloc[0]
    assert (row["mean"], row["low"], row["high"]) == pytest.approx((7 / 9,) * 3) and row["n_seeds"] == 3
    agreed = stability(two_groups, seeds=(0, 1, 2))
    assert agreed[["nmi_mean", "nmi_low", "ari_mean", "ari_low"]].to_numpy() == pytest.approx(np.ones((4, 4)))
    assert set(agreed["n_partitions"]) == {1}


def test_seeds_that_disagree_lower_the_stability() -> None:
    found = stability(random_graph(2), seeds=range(4), algorithms=("networkx",), projections=("average",)).iloc[0]
    assert found["n_partitions"] > 1
    assert found["ari_low"] <= found["ari_mean"] < 1.0 and found["nmi_low"] <= found["nmi_mean"] < 1.0
    with pytest.raises(ValueError, match="at least two seeds"):
        stability(random_graph(2), seeds=(4, 4))


def test_unknown_names_are_refused(two_groups: TransitionGraph) -> None:
    with pytest.raises(ValueError, match="unknown algorithm 'leiden'"):
        louvain(two_groups, algorithm="leiden")  # type: ignore[arg-type]


@pytest.fixture
def fused() -> tuple[TransitionGraph, np.ndarray]:
    rng = np.random.default_rng(7)
    vectors = rng.standard_normal((40, 3)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    calls = (rng.integers(0, 8, size=(150, 4)) + 8 * rng.integers(0, 5, size=(150, 1))).tolist()
    return built(calls, n_tools=40, form="authors", vectors=vectors), vectors


def test_correlations_keep_semantic_edges_apart(fused) -> None:
    graph, vectors = fused
    edges = graph.edges()
    assert 3 < edges.semantic.sum() < len(edges) - 3
    cosine = edge_cosines(edges, vectors)
    assert cosine == pytest.approx(np.diag(vectors[edges.source] @ vectors[edges.target].T), abs=1e-6)
    table = cosine_correlations(graph, vectors).set_index(["value", "edges"])
    statistical = ~edges.semantic
    want = spearmanr(edges.transition[statistical], cosine[statistical])
    row = table.loc[("transition", "statistical")]
    assert (row["rho"], row["p"]) == pytest.approx((want.statistic, want.pvalue)) and row["n"] == statistical.sum()
    # The weight of a semantic edge is its cosine, and its tp is 0: constant, so without a correlation.
    assert table.loc[("weight", "semantic"), "rho"] == pytest.approx(1.0, abs=1e-3)
    assert np.isnan(table.loc[("transition", "semantic"), "rho"])
    assert table["n"].unstack()["all"].tolist() == [len(edges)] * 2
    # The mechanical part: over all edges the correlation lies below that of statistical edges.
    assert table.loc[("transition", "all"), "rho"] < row["rho"]


def test_cases_by_hand(two_groups: TransitionGraph) -> None:
    partition = louvain(two_groups)
    case = tool_case(two_groups, partition, 2)
    assert (case.calls, case.community, case.community_size, case.in_graph) == (4, 0, 3, True)
    assert [(e.target, e.count, e.kind) for e in case.outgoing] == [(0, 2.0, "statistical"), (3, 1.0, "statistical")]
    assert [(e.source, e.transition) for e in case.incoming] == [(1, 1.0)]
    pair = pair_case(two_groups, partition, 2, 3)
    assert [(e.source, e.target, e.transition) for e in pair.edges] == [(2, 3, pytest.approx(1 / 3))]
    assert not pair.same_community and pair.second.community == 1
    assert pair_case(two_groups, partition, 7, 6).edges == ()
    assert not pair_case(two_groups, partition, 7, 7 - 1).same_community
    outside = tool_case(two_groups, partition, 7)
    assert (outside.in_graph, outside.community, outside.community_size, outside.position) == (False, -1, 0, 0.5)
    with pytest.raises(ValueError, match="tool row 8 is outside"):
        tool_case(two_groups, partition, 8)
    with pytest.raises(ValueError, match="needs two tools"):
        pair_case(two_groups, partition, 1, 1)


def test_cases_show_pruned_and_semantic_pairs(fused) -> None:
    graph, _ = fused
    partition, edges = louvain(graph), graph.edges()
    cases = [tool_case(graph, partition, tool) for tool in range(graph.n_tools)]
    shown = {(e.source, e.target): e for case in cases for e in case.outgoing}
    assert shown == {(e.source, e.target): e for case in cases for e in case.incoming}
    kinds = {pair: e.kind for pair, e in shown.items()}
    for a, b, semantic, weight in zip(edges.source, edges.target, edges.semantic, edges.weight, strict=True):
        assert kinds[a, b] == ("semantic" if semantic else "statistical") and shown[a, b].weight == weight
    counted = graph.counts.nnz
    assert sum(k == "pruned" for k in kinds.values()) == len(shown) - len(edges) > 0
    assert sum(e.count > 0 for e in shown.values()) == counted
    assert [e.weight for e in cases[0].outgoing] == sorted((e.weight for e in cases[0].outgoing), reverse=True)

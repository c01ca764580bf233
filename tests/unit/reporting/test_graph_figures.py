from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from toolshift.models.skillgraph.communities import agreement, louvain
from toolshift.models.skillgraph.graph import TransitionGraph, build_graph
from toolshift.models.skillgraph.sequences import sequences_of
from toolshift.reporting.graph_figures import (
    degree_table,
    size_purity_table,
    weight_table,
    write_community_figure,
    write_graph_figures,
)

CALLS = [[0, 1, 2], [0, 1], [0, 2], [3, 4], [3, 4], [5]]


def graph_of(calls: list[list[int]], n_tools: int = 7) -> TransitionGraph:
    return build_graph(sequences_of(calls, n_tools=n_tools), ids=[str(i) for i in range(len(calls))])


def test_tables_by_hand() -> None:
    graph = graph_of(CALLS)
    # Out: 0 has two edges, 1 and 3 one, 2, 4, 5 none; in: 2 has two, 1 and 4 one, 0, 3, 5 none. 6 is no node.
    assert degree_table(graph).to_numpy().tolist() == [
        ["out", 0, 3], ["out", 1, 2], ["out", 2, 1], ["in", 0, 3], ["in", 1, 2], ["in", 2, 1],
    ]  # fmt: skip
    weights = weight_table(graph)
    # 0>1 has 2/3, 0>2 has 1/3, 1>2 and 3>4 have 1.
    filled = weights[weights["edges"] > 0]
    assert filled["edges"].tolist() == [1, 1, 2] and set(weights["kind"]) == {"statistical"}
    assert ((filled["low"] <= [1 / 3, 2 / 3, 1.0]) & (filled["high"] >= [1 / 3, 2 / 3, 1.0])).all()


def test_community_table_and_mismatch() -> None:
    partition = louvain(graph_of(CALLS))
    found = agreement(partition.community, ["a", "a", "b", "c", "d", "e", "e"])
    table = size_purity_table(partition, {"category": found})
    assert table["size"].tolist() == [3, 2, 1]
    assert table["purity_category"].tolist() == pytest.approx([2 / 3, 1 / 2, 1.0])
    other = agreement(np.zeros(7, dtype=np.int64), ["a"] * 7)
    with pytest.raises(ValueError, match="has 1 communities, the partition 3"):
        size_purity_table(partition, {"category": other})


def test_equal_graphs_give_equal_files(tmp_path: Path) -> None:
    written = []
    for folder, calls in (("a", CALLS), ("b", CALLS[::-1])):
        graph = graph_of(calls)
        partition = louvain(graph)
        found = {name: agreement(partition.community, list("aabcdee")) for name in ("category $", "parent")}
        paths = write_graph_figures(graph, name="graph", folder=tmp_path / folder)
        paths += write_community_figure(partition, found, name="graph", folder=tmp_path / folder)
        written.append(paths)
    assert [p.name for p in written[0]] == [
        f"graph_{part}.{end}" for part in ("degrees", "weights", "communities") for end in ("pdf", "png", "csv")
    ]
    assert [p.read_bytes() for p in written[0]] == [p.read_bytes() for p in written[1]]
    assert b"CreationDate" not in written[0][0].read_bytes()
    assert pd.read_csv(written[0][2])["nodes"].sum() == 12


def test_nothing_to_draw_is_refused(tmp_path: Path) -> None:
    empty = graph_of([])
    with pytest.raises(ValueError, match="the graph has no edge"):
        write_graph_figures(empty, name="graph", folder=tmp_path)
    with pytest.raises(ValueError, match="there is no community"):
        write_community_figure(louvain(empty), {}, name="graph", folder=tmp_path)
    assert not list(tmp_path.iterdir())

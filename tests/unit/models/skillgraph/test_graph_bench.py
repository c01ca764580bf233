from __future__ import annotations

import pytest

from toolshift.models.skillgraph.graph_bench import bench_graph


@pytest.mark.parametrize("form", ["paper", "authors"])
def test_bench_compares_equal_edges(form) -> None:
    found = bench_graph(2_000, n_tools=240, dim=16, form=form)
    assert found["equal_edges"] == 1.0 and found["n_edges"] > 100
    assert found["max_difference"] < 1e-6
    assert found["speedup"] == pytest.approx(found["loop_s"] / found["ours_s"])

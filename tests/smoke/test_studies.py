"""Every study, tiny, from an empty folder: its files, the same again, and its tables rebuilt from the run folder."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

# What makes each of them small, and which of its tables are looked at. skillgraph_apibank has no sample.
SKILLGRAPH = (
    "study.params.community_seeds=2",
    "study.params.shuffles=3",
    "study.params.tuning_queries=20",
    "seeds=[42]",
)
STUDIES = {
    "skillgraph": (
        (
            *SKILLGRAPH,
            "study.params.modes=[paper]",
            "study.params.paper_splits=[text]",
            "study.params.fixed_k=[3]",
            "study.params.alphas=[0.0,1.0]",
        ),
        ("skillgraph", "skillgraph_fixed_k", "skillgraph_alpha", "skillgraph_buckets"),
    ),
    "skillgraph_ablation": (
        (*SKILLGRAPH, "study.params.modes=[authors]"),
        ("skillgraph_ablation",),
    ),
    "ntilc": (
        (
            "study.params.sample_datasets=[bfcl,metatool,toolbench]",
            "study.params.max_queries=80",
            "study.params.rows=[bm25,minilm_frozen,prototype_ce,ntilc_circle,ntilc]",
            "study.params.epochs=2",
            "seeds=[42]",
        ),
        ("ntilc",),
    ),
    "ntilc_ablation": (
        (
            "study.params.sample_datasets=[bfcl]",
            "study.params.max_queries=80",
            "study.params.rows=[ntilc,ntilc_prototype_fm]",
            "study.params.epochs=1",
            "seeds=[42]",
        ),
        ("ntilc_ablation",),
    ),
    "ntilc_registry": (
        (
            "study.params.queries=10",
            "study.params.latency_sizes=[5,600]",
            "study.params.repeats=2",
            "study.params.prompt_sizes=[10,50]",
        ),
        ("ntilc_registry",),
    ),
}
TIDY = (
    "table, protocol, universe, miner, purge, slice, view, model, measure, mean, std, task_mean, mean_ge20, n_seeds, "
    "n_targets, n_tasks, paper, reference, delta, ci_low, ci_high, p_value, p_adjusted, data, note"
)


def files(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in sorted(folder.iterdir()) if p.suffix in (".csv", ".md", ".tex")}


@pytest.mark.parametrize("name", sorted(STUDIES))
def test_a_study_from_nothing_again_and_from_its_folder(
    name: str, call: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    overrides, tables = STUDIES[name]
    command = (f"experiment={name}", "debug=tiny", "data.sample_size=tiny", *overrides)
    outcome = call(*command)
    assert outcome.code == 0, outcome.err
    (run,) = outcome.runs
    assert json.loads((run / "status.json").read_text())["state"] == "done"
    assert {"packages", "command", "seeds", "fingerprints", "wall_s"} <= set(json.loads((run / "run.json").read_text()))
    folder = tmp_path / "outputs" / "tables"
    for table in tables:
        with (folder / f"{table}.csv").open() as stream:
            rows = list(csv.DictReader(stream))
        assert set(TIDY.split(", ")) <= set(rows[0])
        assert {row["data"] for row in rows} == {"sample"}
        assert not any(row["paper"] for row in rows)
        assert "sample (synthetic)" in (folder / f"{table}.md").read_text()
    before = files(folder)
    for drawing in ("write_lines", "write_graph_figures", "write_community_figure"):  # once is enough
        monkeypatch.setattr(f"toolshift.experiment.skillgraph.{drawing}", lambda *_, **__: [])
    again = call(*command)
    assert again.code == 0, again.err
    assert files(folder) == before
    shutil.rmtree(folder)
    rebuilt = call(f"experiment={name}", script="make_tables")
    assert rebuilt.code == 0, rebuilt.err
    assert files(folder) == before

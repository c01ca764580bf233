"""The other scripts: prepare, status, export, bench."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

Call = Callable[..., Any]


def test_prepare_accounts_for_every_row(call: Call, tmp_path: Path) -> None:
    outcome = call("data.sample_size=tiny", script="prepare", cache=tmp_path)
    assert outcome.code == 0, outcome.err
    (path,) = tmp_path.rglob("records/toolbench/report.json")
    report = json.loads(path.read_text())
    for name in ("tasks", "capabilities", "endpoints", "gold_pairs", "domains"):
        assert f"{report[name]:,}" in outcome.out
    assert f"{report['rows_read']:,}" in outcome.out
    assert f"wrote {path}" in outcome.err
    assert f"found {path}" in call("data.sample_size=tiny", script="prepare", cache=tmp_path).err


def test_status_as_a_module(call: Call, tools: Any, tmp_path: Path) -> None:
    call(*tools.small, "model=random")

    def status(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "toolshift.runs.status", *arguments]
        environment = {"PYTHONPATH": str(tools.root / "src")}
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    listed = status()
    assert listed.returncode == 0, listed.stderr
    assert "2 runs: 2 done" in listed.stdout
    assert "no runs below" in status("--outputs", "elsewhere").stdout


@pytest.fixture
def exported(call: Call, tools: Any) -> Any:
    """A finished experiment whose second command only asks for the export."""
    first = call(*tools.small, "model=[random,bm25]", "evaluation.ties=hashed")
    assert first.code == 0, first.err
    assert not list(first.folder.glob("outputs/runs/*/*/trec"))
    again = call(*tools.small, "model=[random,bm25]", "evaluation.ties=hashed", "evaluation.export_trec=true")
    assert again.code == 0, again.err
    assert "3 already done, 0 to do" in again.err
    return again


def test_trec_eval_finds_the_published_values(exported: Any, call: Call, tools: Any) -> None:
    """Every list of every seed, tied ones too: our hashed values are what trec_eval computes from the files."""
    pytrec_eval = pytest.importorskip("pytrec_eval")
    tied = 0
    for model, seeds in (("random", (42, 43, 44)), ("bm25", (42,)), ("semantic_cosine", (42,))):
        run = exported.run_of(model)
        per_task = pq.read_table(run / "per_task.parquet").to_pandas()
        tied += int(per_task["tied"].sum())
        qrels = _qrels(run / "trec/natural.qrels")
        for seed in seeds:
            name = "natural.run" if seed == 42 else f"natural.seed={seed}.run"
            scores = _scores(run / "trec" / name, tag=f"{model}.seed={seed}")
            found = pytrec_eval.RelevanceEvaluator(qrels, {"recip_rank", "ndcg_cut.5", "success.3"}).evaluate(scores)
            mine = per_task[per_task["seed"] == seed].set_index("task_id")
            assert set(found) == set(mine.index) == set(qrels)
            theirs = pd.DataFrame(found).T.loc[mine.index]
            for measure, column in (("recip_rank", "MRR"), ("ndcg_cut_5", "NDCG@5"), ("success_3", "HR@3")):
                np.testing.assert_allclose(theirs[measure], mine[column], atol=1e-9, err_msg=f"{model} {column}")
    assert tied > 0, "no tie was put to the test"
    before = tools.digests(exported.folder / "outputs/runs", without=())
    call(*tools.small, "model=[random,bm25]", "evaluation.ties=hashed", "evaluation.export_trec=true")
    assert tools.digests(exported.folder / "outputs/runs", without=()) == before


def _qrels(path: Path) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for line in path.read_text().splitlines():
        query, zero, document, relevance = line.split(" ")
        assert zero == "0"
        found.setdefault(query, {})[document] = int(relevance)
    return found


def _scores(path: Path, *, tag: str) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for line in path.read_text().splitlines():
        query, fixed, document, rank, score, name = line.split(" ")
        assert (fixed, name) == ("Q0", tag)
        assert int(rank) == len(found.setdefault(query, {})) + 1
        found[query][document] = float(score)
    for scores in found.values():
        assert list(scores.values()) == sorted(set(scores.values()), reverse=True)
    return found


def test_bench_quickly(call: Call, tools: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from toolshift.experiment import bench

    monkeypatch.setenv("PYTHONPATH", str(tools.root / "src"))
    train, trained = bench._train, []

    def train_once(command: Sequence[str]) -> None:
        trained.append(command)
        if len(trained) == 1:
            train(command)

    monkeypatch.setattr(bench, "_train", train_once)
    outcome = call(*tools.small, "model=random", script="bench")
    content = json.loads((outcome.folder / "outputs/bench/bench.json").read_text())
    assert trained[0] == trained[1]
    names = [figure["name"] for figure in content["figures"]]
    assert len(names) == 7
    assert content["quick"] is True
    verdicts = {figure["verdict"] for figure in content["figures"]}
    assert verdicts <= {"pass", "FAIL", "not judged (quick)"}
    assert outcome.code == int("FAIL" in verdicts)
    for figure in content["figures"]:
        assert figure["name"] in outcome.out
        assert figure["value"] > 0
    assert content["figures"][0]["target"] == bench.MEASURES_RATIO

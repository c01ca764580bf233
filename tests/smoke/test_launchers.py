"""Sweeps whose jobs run side by side: the bytes of one after the other, one complete table, shared runs made once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from toolshift.runs.tracking import is_installed
from toolshift.settings.launchers import PACKAGES, _is_installed

MODELS = ("semantic_cosine", "bm25", "random")


@pytest.fixture(scope="module")
def sweep(tools: Any) -> Any:
    """``sweep(folder, launcher, *more)``: two jobs that share the reference row, from an empty folder."""

    def run(folder: Path, launcher: str, *more: str) -> Any:
        options = ("-m", *tools.small, "model=bm25,random", f"hydra/launcher={launcher}", *more)
        return tools.wait(tools.start(folder, *options), folder)

    return run


@pytest.fixture(scope="module")
def one_by_one(tools: Any, sweep: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    outcome = tools.once(tmp_path_factory, "basic", lambda folder: sweep(folder, "basic"))
    assert outcome.code == 0, outcome.err
    return outcome


def made(tools: Any, outcome: Any) -> Mapping[str, str]:
    """Digests of run folders, tables, figures, records and embeddings, without notes on modification times."""
    found = tools.digests(outcome.folder)
    return {name: digest for name, digest in found.items() if "/records/toolbench/raw/" not in name}


def runs_of(digests: Mapping[str, str]) -> Mapping[str, str]:
    """Without tables and figures."""
    return {name: d for name, d in digests.items() if not name.startswith(("outputs/tables/", "outputs/figures/"))}


@pytest.mark.skipif(not all(map(_is_installed, PACKAGES.values())), reason="not installed (extra launchers)")
@pytest.mark.parametrize("launcher", ["joblib", "submitit_local"])
def test_side_by_side_leaves_the_bytes_of_one_by_one(
    launcher: str, sweep: Any, one_by_one: Any, tools: Any, tmp_path: Path
) -> None:
    outcome = sweep(tmp_path, launcher)
    assert outcome.code == 0, outcome.err
    ours, theirs = made(tools, outcome), made(tools, one_by_one)
    assert {name.split("/")[1] for name in ours if name.startswith("outputs/")} == {"runs", "tables", "figures"}
    # The job that ends last writes the table, its own rows first: the order of rows is the one thing it decides.
    assert runs_of(ours) == runs_of(theirs)
    assert len(outcome.runs) == len(MODELS), "the shared reference was not shared"
    rows = (tmp_path / "outputs/tables/lodo.csv").read_text()
    assert sorted(rows.splitlines()) == sorted((one_by_one.folder / "outputs/tables/lodo.csv").read_text().splitlines())
    assert all(f",{model}," in rows for model in MODELS), "a job's rows are missing in the table that stays"
    assert len(list((tmp_path / "outputs/logs").glob("*_job[01].jsonl"))) == 2


@pytest.mark.skipif(not is_installed(), reason="wandb is not installed (extra tracking)")
def test_tracking_changes_no_byte_and_one_that_fails_neither(
    sweep: Any, one_by_one: Any, tools: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = sweep(tmp_path, "basic", "tracking=wandb")
    assert outcome.code == 0, outcome.err
    assert made(tools, outcome) == made(tools, one_by_one)
    assert len(list((tmp_path / "outputs/wandb").glob("offline-run-*"))) == len(MODELS)


def test_a_tracker_that_fails_costs_one_line(tools: Any, tmp_path: Path) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/wandb.py").write_text("raise ImportError('half installed')")
    options = (*tools.small, "model=bm25", "tracking=wandb", f"data.cache={tools.cache}")
    outcome = tools.wait(tools.start(tmp_path, *options, PYTHONPATH=str(tmp_path / "broken")), tmp_path)
    assert outcome.code == 0, outcome.err
    assert outcome.err.count("not recorded (ImportError: half installed)") == 1
    outcome.refuse_traceback()
    assert {json.loads((run / "status.json").read_text())["state"] for run in outcome.runs} == {"done"}


def test_the_log_of_a_command_tells_what_it_did(tools: Any, tmp_path: Path) -> None:
    """Also of a model that fails: with run, target and traceback, where the terminal has one line."""
    (tmp_path / "broken.py").write_text(
        "from toolshift.models.frozen.random import RandomRanker\n"
        "class Broken(RandomRanker):\n    def score(self, pairs, *, bank, seed):\n"
        "        raise ArithmeticError('odd')\n"
    )
    options = (*tools.small, "model=random", "models.random.target=broken:Broken", f"data.cache={tools.cache}")
    outcome = tools.wait(tools.start(tmp_path, *options, PYTHONPATH=str(tmp_path)), tmp_path)
    assert outcome.code == 1
    outcome.refuse_traceback()
    (path,) = (tmp_path / "outputs/logs").glob("*_train_*.jsonl")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert all({"time", "level", "logger", "message"} <= set(line) for line in lines)
    assert any("runs asked for" in line["message"] for line in lines)
    (failure,) = [line for line in lines if line["level"] == "error"]
    assert failure["run"] == outcome.run_of("random").name
    assert failure["model"] == "random"
    assert "ArithmeticError: odd" in failure["exception"]


def test_a_gpu_that_is_not_there_is_refused_before_data(tools: Any, tmp_path: Path) -> None:
    outcome = tools.wait(tools.start(tmp_path, *tools.small, "runtime=gpu", CUDA_VISIBLE_DEVICES=""), tmp_path)
    assert outcome.code == 1
    assert "error: runtime.device=cuda, but" in outcome.err
    outcome.refuse_traceback()
    assert not (tmp_path / "data").exists()

"""Several processes of one launch: the same bytes as one process, also after one of them was killed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

# A stochastic row at whose first score the two processes wait for each other, so that both have a share; with KILL
# rank 1 dies at its second score and rank 0 stands still until it is told to stop.
MEETING = """
import os, signal, time
from pathlib import Path
from toolshift.models.frozen.random import RandomRanker

calls = 0

class Meeting(RandomRanker):
    def score(self, pairs, *, bank, seed):
        global calls
        calls += 1
        if os.environ.get("WORLD_SIZE") == "2":
            here = Path(os.environ["MEET"])
            (here / os.environ["RANK"]).touch()
            until = time.monotonic() + 60
            while len(list(here.iterdir())) < 2 and time.monotonic() < until:
                time.sleep(0.02)
            if calls == 2 and os.environ.get("KILL"):
                if os.environ["RANK"] == "1":
                    os.kill(os.getpid(), signal.SIGKILL)
                time.sleep(60)
        return super().score(pairs, bank=bank, seed=seed)
"""
FROZEN = ("semantic_cosine", "candidate_only", "random")
ALL = "model=[semantic_cosine,candidate_only,logistic,blend,random]"


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    (folder / "meeting.py").write_text(MEETING)
    return folder


@pytest.fixture(scope="module")
def start(tools: Any, models: Path) -> Any:
    """``start(folder, n)``: the command with n processes under torchrun, or without it for n = 0."""
    command = [
        str(tools.root / "scripts" / "train.py"), *tools.tiny, "protocol.purge=gold", "view=[natural,mixed]",
        "evaluation.slices=[all]", "models.random.target=meeting:Meeting", f"data.cache={tools.cache}",
    ]  # fmt: skip

    def run(folder: Path, n: int, models_asked: str = ALL, **environment: str) -> subprocess.Popen[str]:
        meet = folder / "meet"
        meet.mkdir(parents=True, exist_ok=True)
        for note in meet.iterdir():
            note.unlink()
        torchrun = ["-m", "torch.distributed.run", f"--nproc_per_node={n}", "--master_port=0"] if n else []
        kept = {k: v for k, v in os.environ.items() if k not in ("TOOLSHIFT_DATA", "HYDRA_FULL_ERROR")}
        path = os.pathsep.join([str(models), str(tools.root / "src")])
        return subprocess.Popen(
            [sys.executable, *torchrun, *command, models_asked],
            cwd=folder,
            env={**kept, "OMP_NUM_THREADS": "1", "MEET": str(meet), "PYTHONPATH": path, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return run


@pytest.fixture(scope="module")
def serial(tools: Any, start: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The command as it is; beside its folder, in ``one``, the same under torchrun with one process."""

    def both(folder: Path) -> Any:
        folders = [folder / "alone", folder / "one"]
        started = [start(path, n) for n, path in enumerate(folders)]
        alone, one = (tools.wait(process, path) for process, path in zip(started, folders, strict=True))
        assert alone.code == one.code == 0, alone.err + one.err
        return alone

    return tools.once(tmp_path_factory, "one_process", both)


@pytest.fixture(scope="module")
def pair(tools: Any, start: Any, serial: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    outcome = tools.once(tmp_path_factory, "pair", lambda folder: tools.wait(start(folder, 2), folder))
    assert outcome.code == 0, outcome.err
    return outcome


def results(tools: Any, outcome: Any, models: tuple[str, ...]) -> Mapping[str, str]:
    """Digests of everything in the run folders of some models, without times."""
    return {
        f"{model}/{name}": digest for model in models for name, digest in tools.digests(outcome.run_of(model)).items()
    }


def test_two_processes_leave_the_bytes_of_one(serial: Any, pair: Any, tools: Any) -> None:
    ours, theirs = (results(tools, outcome, (*FROZEN, "logistic")) for outcome in (pair, serial))
    kinds = {name.split("/")[1] for name in ours}
    assert {
        "scores",
        "selection",
        "checkpoints",
        "manifests",
        "per_task.parquet",
        "metrics.csv",
        "folds.parquet",
    } <= kinds
    assert ours == theirs
    (shares,) = re.findall(r"units per rank \[(\d+), (\d+)\]", pair.err)
    assert sum(map(int, shares)) == 5 * 4
    assert min(map(int, shares)) > 0, "one process did everything"
    for run in pair.runs:
        assert json.loads((run / "run.json").read_text())["world_size"] == 2


def test_two_processes_print_the_same_tables(serial: Any, pair: Any, tools: Any) -> None:
    ours, theirs = (tools.digests(outcome.folder / "outputs/tables") for outcome in (pair, serial))
    assert "lodo.csv" in ours
    assert ours == theirs


def test_two_processes_fit_the_same_blend(serial: Any, pair: Any, tools: Any) -> None:
    ours, theirs = (results(tools, outcome, ("blend",)) for outcome in (pair, serial))
    assert any("checkpoints/" in name for name in ours)
    assert ours == theirs


def test_only_rank_0_speaks_to_the_person_and_nothing_of_the_launch_stays(serial: Any, pair: Any) -> None:
    assert pair.out == serial.out
    assert pair.err.count("runs asked for") == 1
    assert "[rank 1]" in pair.err
    assert not (pair.folder / "outputs/.ranks").exists()


def test_torchrun_with_one_process_is_the_serial_run(serial: Any, tools: Any) -> None:
    assert tools.results(serial.folder.parent / "one") == tools.results(serial.folder)


def test_a_killed_rank_is_made_up_for_by_the_same_command(serial: Any, start: Any, tools: Any, tmp_path: Path) -> None:
    asked = "model=[candidate_only,random]"
    killed = tools.wait(start(tmp_path, 2, asked, KILL="1"), tmp_path)
    assert killed.code != 0
    assert "SIGKILL" in killed.err
    run = killed.run_of("random")
    assert json.loads((run / "status.json").read_text())["state"] == "running"
    again = tools.wait(start(tmp_path, 2, asked), tmp_path)
    assert again.code == 0, again.err
    assert "reused from an interrupted run" in again.err
    assert results(tools, again, FROZEN) == results(tools, serial, FROZEN)
    assert not (tmp_path / "outputs/.ranks").exists(), "the folder of the killed launch is still there"

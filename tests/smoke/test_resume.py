"""Interrupted, killed, damaged and shared run folders: what is whole is kept, what is not is made again."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

# A stochastic row (three seeds) that stops its process at a given call: as Ctrl-C does, or as kill -9 does.
KILLER = """
import os, signal
from toolshift.models.frozen.random import RandomRanker

calls, stop_at = 0, int(os.environ.get("STOP_AT", 0))

class Killer(RandomRanker):
    def score(self, pairs, *, bank, seed):
        global calls
        calls += 1
        if calls == stop_at:
            if os.environ.get("KILL"):
                os.kill(os.getpid(), signal.SIGKILL)
            raise KeyboardInterrupt
        return super().score(pairs, bank=bank, seed=seed)
"""
TARGETS, SEEDS = 4, 3


@pytest.fixture(scope="module")
def killer_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    (folder / "killer.py").write_text(KILLER)
    return folder


@pytest.fixture
def killer(killer_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The module of the model, fresh; ``stop_at`` counts its calls from 1."""
    import importlib
    import sys

    monkeypatch.syspath_prepend(str(killer_folder))
    yield importlib.import_module("killer")
    sys.modules.pop("killer")


@pytest.fixture(scope="module")
def command(tools: Any) -> tuple[str, ...]:
    return (*tools.small, "model=random", "models.random.target=killer:Killer")


@pytest.fixture(scope="module")
def whole(
    tools: Any, command: tuple[str, ...], killer_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Mapping[str, str]:
    """Digests of everything that an uninterrupted command leaves behind."""
    options = (*command, f"data.cache={tools.cache}")
    outcome = tools.once(
        tmp_path_factory,
        "whole",
        lambda folder: tools.wait(tools.start(folder, *options, PYTHONPATH=str(killer_folder)), folder),
    )
    assert outcome.code == 0, outcome.err
    return tools.results(outcome.folder)


Call = Callable[..., Any]


def reused(err: str) -> int:
    found = re.search(r"random: scores of (\d+) targets reused", err)
    return int(found[1]) if found else 0


@pytest.mark.parametrize("stop_at", [1, 2, SEEDS + 1, TARGETS * SEEDS])
def test_an_interrupted_run_continues_to_the_same_bytes(
    stop_at: int, whole: Mapping[str, str], command: tuple[str, ...], killer: Any, call: Call, tools: Any
) -> None:
    killer.stop_at = stop_at
    stopped = call(*command)
    assert stopped.code == 130
    assert "interrupted; the same command continues where it stopped" in stopped.err
    run = stopped.run_of("random")
    assert json.loads((run / "status.json").read_text())["state"] == "running"
    killer.stop_at = 0
    again = call(*command)
    assert again.code == 0, again.err
    assert reused(again.err) == (stop_at - 1) // SEEDS
    assert json.loads((run / "run.json").read_text())["targets_reused"] == (stop_at - 1) // SEEDS
    assert tools.results(again.folder) == whole


def test_a_killed_process_loses_at_most_the_target_it_worked_on(
    whole: Mapping[str, str], command: tuple[str, ...], killer_folder: Path, killer: Any, call: Call, tools: Any,
    tmp_path: Path,
) -> None:  # fmt: skip
    environment = {"PYTHONPATH": str(killer_folder), "STOP_AT": str(2 * SEEDS + 2), "KILL": "1"}
    killed = tools.wait(tools.start(tmp_path, *command, f"data.cache={tools.cache}", **environment), tmp_path)
    assert killed.code == -signal.SIGKILL
    run = killed.run_of("random")
    # What else a kill may leave: half a file under its temporary name, half a parquet after a full disk.
    (run / "scores" / ".half.parquet.123.tmp").write_bytes(b"PAR1")
    again = call(*command)
    assert again.code == 0, again.err
    assert reused(again.err) == 2
    assert tools.results(tmp_path) == whole
    assert not list(run.rglob(".*.tmp"))


def test_damaged_scores_are_computed_again(
    whole: Mapping[str, str], command: tuple[str, ...], killer: Any, call: Call, tools: Any
) -> None:
    killer.stop_at = TARGETS * SEEDS
    run = call(*command).run_of("random")
    first, second, third = sorted(p for p in (run / "scores").iterdir())[:3]
    half = first / "seed=43.parquet"
    half.write_bytes(half.read_bytes()[:200])
    (run / "selection" / second.name / "seed=42.json").unlink()
    # The scores of another target: readable, but not of these lists.
    (third / "seed=44.parquet").write_bytes((second / "seed=44.parquet").read_bytes())
    killer.stop_at = 0
    again = call(*command)
    assert again.code == 0, again.err
    assert reused(again.err) == 0
    assert tools.results(again.folder) == whole


def test_scores_of_other_code_are_not_taken_over(
    command: tuple[str, ...], killer: Any, killer_folder: Path, call: Call
) -> None:
    killer.stop_at = TARGETS * SEEDS
    run = call(*command).run_of("random")
    file = killer_folder / "killer.py"
    before = file.read_text()
    try:
        file.write_text(before + "\n# edited\n")
        # Stopped once more before anything is written: what lies there must not look current afterwards.
        killer.stop_at = killer.calls + 1
        assert call(*command).code == 130
        assert not list(run.glob("scores/*/*"))
        killer.stop_at = 0
        assert reused(call(*command).err) == 0
    finally:
        file.write_text(before)


def test_damaged_run_folders_are_run_again(call: Call, tools: Any) -> None:
    done = call(*tools.small, "model=bm25")
    assert done.code == 0, done.err
    before = tools.results(done.folder)
    bm25, cosine = done.run_of("bm25"), done.run_of("semantic_cosine")

    (bm25 / "status.json").write_text('{"state": "do')
    assert call(*tools.small, "model=bm25", script="train").err.count("1 already done, 1 to do") == 1
    (bm25 / "per_task.parquet").unlink()
    (cosine / "status.json").write_text(json.dumps({"state": "running", "pid": 999_999_999, "at": ""}))
    (cosine / "run.json").unlink()
    again = call(*tools.small, "model=bm25")
    assert again.code == 0, again.err
    assert "0 already done, 2 to do" in again.err
    assert tools.results(again.folder) == before


def test_two_processes_in_one_run_folder(call: Call, tools: Any) -> None:
    from toolshift.runs.ledger import RunFolder

    done = call(*tools.small, "model=bm25")
    run = done.run_of("bm25")
    (run / "status.json").unlink()
    with RunFolder(run).lock():
        busy = call(*tools.small, "model=bm25")
    assert busy.code == 1
    assert "another process is working in" in busy.err
    assert run.name in busy.err
    busy.refuse_traceback()
    assert call(*tools.small, "model=bm25").code == 0


def test_a_run_finished_by_another_process_meanwhile_is_not_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between planning and locking, the other process is done: nothing is executed."""
    from toolshift.experiment import run as runs
    from toolshift.runs.ledger import RunFolder

    plan = SimpleNamespace(is_done=True, settings=None, folder=RunFolder(tmp_path / "run"))
    monkeypatch.setattr(runs, "_variant_key", lambda _: "one")
    monkeypatch.setattr(runs, "_execute_variant", lambda *_, **__: pytest.fail("executed"))
    assert runs.execute([plan], None, command="") == []  # type: ignore[list-item, arg-type]

"""The list of runs, whatever state their folders are in."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from toolshift.runs.status import main, render, run_lines

DEAD = 2**22 + 1  # above the largest process number of Linux


def put(outputs: Path, name: str, status: Any = None, *, experiment: str = "lodo") -> None:
    folder = outputs / "runs" / experiment / name
    folder.mkdir(parents=True)
    view, protocol = {"universe": "domain", "miner": "union"}, {"purge": "gold"}
    identity = {"model": {"name": "bm25"}, "view": view, "protocol": protocol}
    (folder / "identity.json").write_text(json.dumps(identity))
    if status is not None:
        (folder / "status.json").write_text(status if isinstance(status, str) else json.dumps(status))


@pytest.fixture
def outputs(tmp_path: Path) -> Path:
    put(tmp_path, "a", {"state": "done", "at": "2026-01-01T00:00:00+0000", "pid": DEAD})
    put(tmp_path, "b", {"state": "running", "at": "now", "pid": os.getpid()})
    put(tmp_path, "c", {"state": "running", "at": "now", "pid": DEAD})
    put(tmp_path, "d", {"state": "failed", "exception": "ValueError: first line\nsecond line", "pid": DEAD})
    put(tmp_path, "e", '{"state": "do')
    put(tmp_path, "f")
    put(tmp_path, "g", {"state": "running"}, experiment="other")
    put(tmp_path, "h", "[1]", experiment="other")
    return tmp_path


def test_states_and_notes(outputs: Path) -> None:
    lines = {line.run: line for line in run_lines(outputs)}
    states = {name: line.state for name, line in lines.items()}
    assert states == {
        "a": "done", "b": "running", "c": "stale", "d": "failed", "e": "failed", "f": "missing", "g": "stale",
        "h": "failed",
    }  # fmt: skip
    assert lines["b"].note == f"process {os.getpid()}"
    assert "the same command continues it" in lines["c"].note
    assert lines["d"].note == "ValueError: first line"
    assert lines["e"].note == "status.json is damaged"
    assert {line.variant for line in lines.values()} == {"domain/union/gold"}
    assert [line.experiment for line in run_lines(outputs)] == ["lodo"] * 6 + ["other"] * 2


def test_unreadable_identities_are_listed_too(outputs: Path) -> None:
    (outputs / "runs/lodo/a/identity.json").write_text("[]")
    (outputs / "runs/lodo/b/identity.json").unlink()
    lines = {line.run: line for line in run_lines(outputs)}
    assert lines["a"].model == lines["b"].model == "?"
    assert lines["a"].state == "done"


def test_the_list_is_printed(outputs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--outputs", str(outputs)]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("8 runs: 1 done, 1 running, 2 stale, 3 failed, 1 missing\n")
    assert shown.strip() == render(run_lines(outputs)).strip()
    assert main(["--outputs", str(outputs / "nothing")]) == 0
    assert "no runs below" in capsys.readouterr().out


def test_it_opens_no_other_stage(tmp_path: Path) -> None:
    code = (
        "import sys, runpy; sys.argv = ['status']\n"
        "try: runpy.run_module('toolshift.runs.status', run_name='__main__')\n"
        "except SystemExit: pass\n"
        "print(sorted(m for m in sys.modules if m.startswith('toolshift.') and not m.startswith('toolshift.runs')))\n"
        "print('pandas' in sys.modules or 'torch' in sys.modules)"
    )
    source = str(Path(__file__).resolve().parents[3] / "src")
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={"PYTHONPATH": source},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[-2:] == ["[]", "False"]

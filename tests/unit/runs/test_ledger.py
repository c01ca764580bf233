"""Run folders: states, identity, lock."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from toolshift.runs.files import read_json
from toolshift.runs.ledger import HASH_LENGTH, RunBusy, RunConflict, RunFolder, ledger

IDENTITY = {"model": {"name": "bm25"}, "seeds": (1, 2)}


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder.of(tmp_path, "lodo", IDENTITY)


def begin(folder: RunFolder, identity: Any = IDENTITY) -> None:
    folder.begin(identity=identity, config_yaml="model: bm25\n")


def test_a_folder_is_named_by_what_was_asked(tmp_path: Path, folder: RunFolder) -> None:
    assert folder.path.parent == tmp_path / "runs" / "lodo"
    assert len(folder.path.name) == HASH_LENGTH
    same = {"seeds": [1, 2], "model": {"name": "bm25"}}  # another order, a list for a tuple
    assert RunFolder.of(tmp_path, "lodo", same) == folder
    assert RunFolder.of(tmp_path, "lodo", {**IDENTITY, "seeds": (2, 1)}) != folder
    assert not folder.path.exists()


def test_states_of_a_run(folder: RunFolder) -> None:
    assert folder.state == "missing"
    begin(folder)
    assert folder.state == "running"
    assert (folder.path / "config.yaml").read_text() == "model: bm25\n"
    assert read_json(folder.path / "identity.json") == {"model": {"name": "bm25"}, "seeds": [1, 2]}
    folder.fail(ValueError("too hot"), trace="line 1\nline 2")
    assert folder.state == "failed"
    status = read_json(folder.path / "status.json")
    assert status["exception"] == "ValueError: too hot"
    assert status["traceback"] == "line 1\nline 2"
    begin(folder)  # a failed run is begun again
    assert folder.state == "running"
    folder.finish()
    assert folder.state == "done"
    status = read_json(folder.path / "status.json")
    assert set(status) == {"state", "at", "pid"}
    assert status["pid"] == os.getpid()


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '"done"', '{"state": "finished"}', '{"state": ["done"]}'])
def test_a_damaged_status_is_never_done(folder: RunFolder, content: str) -> None:
    begin(folder)
    folder.finish()
    (folder.path / "status.json").write_text(content)
    assert folder.state == "failed"
    begin(folder)
    assert folder.state == "running"


def test_a_folder_of_another_configuration_is_refused(folder: RunFolder) -> None:
    begin(folder)
    folder.finish()
    with pytest.raises(RunConflict, match="belongs to another configuration; delete or move it"):
        begin(folder, {**IDENTITY, "seeds": (3,)})
    assert folder.state == "done"
    assert read_json(folder.path / "identity.json")["seeds"] == [1, 2]


def test_a_damaged_identity_is_an_error_that_names_it(folder: RunFolder) -> None:
    begin(folder)
    (folder.path / "identity.json").write_text("{")
    with pytest.raises(ValueError, match=r"identity\.json is not valid JSON"):
        begin(folder)


HOLD = """
import sys
from pathlib import Path
from toolshift.runs.ledger import RunFolder
with RunFolder(Path(sys.argv[1])).lock():
    print("held", flush=True)
    sys.stdin.readline()
"""


def test_one_process_at_a_time(folder: RunFolder) -> None:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    command = [sys.executable, "-c", HOLD, str(folder.path)]
    with subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(RunBusy, match="another process is working in"), folder.lock():
            pytest.fail("entered")
        other.kill()  # a killed process leaves no lock behind
        other.wait()
    with folder.lock():
        assert folder.state == "missing"


def test_the_lock_is_given_back_after_an_error(folder: RunFolder) -> None:
    with pytest.raises(KeyError), folder.lock():
        raise KeyError
    with folder.lock():
        pass


def test_the_ledger_lists_every_run(tmp_path: Path) -> None:
    assert ledger(tmp_path) == []
    done, failed, missing = (RunFolder.of(tmp_path, e, {"n": n}) for e, n in [("lodo", 1), ("audit", 2), ("lodo", 3)])
    for run in (done, failed):
        begin(run)
    done.finish()
    failed.fail(ValueError("x"), trace="")
    missing.path.mkdir(parents=True)
    (tmp_path / "runs" / "lodo" / "notes.txt").write_text("no run")
    found = {(name, run, state) for name, run, state in ledger(tmp_path)}
    assert found == {("lodo", done, "done"), ("audit", failed, "failed"), ("lodo", missing, "missing")}
    names = [(name, run.path.name) for name, run, _ in ledger(tmp_path)]
    assert names == sorted(names)

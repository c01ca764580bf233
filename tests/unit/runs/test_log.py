"""The JSON log: what a line holds, what survives, and that a log which cannot be written harms nothing."""

from __future__ import annotations

import json
import logging
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from toolshift.runs import log as logs
from toolshift.runs.log import CONSOLE, JsonLog, about, command_log

COMMAND = "python scripts/train.py experiment=lodo"


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    logger = logging.getLogger("toolshift")
    level, handlers, propagate = logger.level, list(logger.handlers), logger.propagate
    # What pytest captures goes to its other processes as UTF-8, which half a surrogate pair below is not.
    logger.propagate, logger.handlers[:] = False, []
    yield
    logger.setLevel(level)
    logger.propagate, logger.handlers[:] = propagate, handlers


def lines(outputs: Path) -> list[dict[str, Any]]:
    (path,) = (outputs / "logs").iterdir()
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_a_line_says_when_who_and_what_it_is_about(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    with command_log(tmp_path, command=COMMAND, job=2):
        with about(run="abc", target="Music"), about(seed=42):
            logging.getLogger("toolshift.text").warning("%d of %d\nlines", 3, 4)
        logging.getLogger("toolshift").info("after")
        logging.getLogger("other").warning("not ours")
    first, inside, after, last = lines(tmp_path)
    assert {k: inside[k] for k in inside if k != "time"} == {
        "level": "warning", "logger": "toolshift.text", "message": "3 of 4\nlines",
        "rank": 1, "job": 2, "run": "abc", "target": "Music", "seed": 42,
    }  # fmt: skip
    assert inside["time"][10] == "T"
    assert "run" not in after
    assert first["message"] == f"started: {COMMAND}"
    assert last["message"].startswith("ended after")
    (path,) = (tmp_path / "logs").iterdir()
    assert path.name.endswith("_rank1_job2.jsonl")
    assert "_train_" in path.name


def test_half_a_surrogate_pair_costs_no_line(tmp_path: Path) -> None:
    """Written past the logger: what pytest captures must be UTF-8."""
    handler = JsonLog(tmp_path / "x.jsonl", always={})
    handler.emit(logging.LogRecord("toolshift", logging.INFO, "f", 1, "lines \ud800", None, None))
    handler.close()
    assert "\\ud800" in (tmp_path / "x.jsonl").read_text(encoding="utf-8")


def test_an_error_is_kept_with_its_traceback_and_goes_on(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), command_log(tmp_path, command=COMMAND):
        raise KeyboardInterrupt
    last = lines(tmp_path)[-1]
    assert last["level"] == "error"
    assert "by KeyboardInterrupt" in last["message"]
    assert last["exception"].startswith("Traceback")


def test_nothing_is_logged_after_the_block(tmp_path: Path) -> None:
    with command_log(tmp_path, command=COMMAND):
        pass
    before = lines(tmp_path)
    logging.getLogger(CONSOLE).error("later")
    assert lines(tmp_path) == before
    assert not any(isinstance(h, JsonLog) for h in logging.getLogger("toolshift").handlers)


def test_lines_outlive_a_killed_process(tmp_path: Path) -> None:
    code = (
        "import logging, os, signal\nfrom pathlib import Path\nfrom toolshift.runs.log import command_log\n"
        f"with command_log(Path({str(tmp_path)!r}), command={COMMAND!r}):\n"
        "    logging.getLogger('toolshift').info('the last word')\n    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    env = {"PYTHONPATH": str(Path(logs.__file__).parents[2])}
    done = subprocess.run([sys.executable, "-c", code], env=env, check=False)
    assert done.returncode == -signal.SIGKILL
    assert [line["message"] for line in lines(tmp_path)][1:] == ["the last word"]


def test_a_folder_that_cannot_be_made_costs_one_warning(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "logs").write_text("a file")
    done = False
    with command_log(tmp_path, command=COMMAND):
        logging.getLogger("toolshift").info("x")
        done = True
    assert done
    assert capfd.readouterr().err.count("warning: no log in") == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full, a disk that is always full")
def test_a_full_disk_costs_one_warning(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "full.jsonl").symlink_to("/dev/full")
    monkeypatch.setattr(logs, "_file_name", lambda *_: "full.jsonl")
    with command_log(tmp_path, command=COMMAND):
        for _ in range(3):
            logging.getLogger("toolshift").info("x")
    err = capfd.readouterr().err
    assert err.count("warning: no log in") >= 1
    assert "Traceback" not in err
    assert err.count("No space left") <= 2  # the line, and closing with what is still held

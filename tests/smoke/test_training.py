"""The trained rows as whole commands: killed, swept, failing and short of what they need."""

from __future__ import annotations

import errno
import json
import random
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

Call = Callable[..., Any]
TRAINED = ("model=[blend,pointwise_mlp]", "selection.budgets.fast.epochs=1", "seeds=[42,43]")


@pytest.fixture(scope="module")
def whole(tools: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Mapping[str, str], float]:
    """(digests of an uninterrupted command, how long it took)."""

    def make(folder: Path) -> Any:
        asked = (*tools.small, *TRAINED, f"data.cache={tools.cache}")
        warm = (*tools.small, "model=blend", f"data.cache={tools.cache}")  # sample, records and embeddings
        tools.wait(tools.start(folder / "warm", *warm), folder)
        started = time.monotonic()
        outcome = tools.wait(tools.start(folder / "run", *asked), folder / "run")
        (folder / "seconds").write_text(str(time.monotonic() - started))
        return outcome

    outcome = tools.once(tmp_path_factory, "trained", make)
    assert outcome.code == 0, outcome.err
    return tools.results(outcome.folder), float((outcome.folder.parent / "seconds").read_text())


def test_five_kills_at_random_moments_change_no_byte(
    whole: tuple[Mapping[str, str], float], tools: Any, tmp_path: Path
) -> None:
    expected, seconds = whole
    asked = (*tools.small, *TRAINED, f"data.cache={tools.cache}")
    draw, killed = random.Random(20261130), 0
    for moment in sorted(draw.uniform(0.1, 0.9) for _ in range(5)):
        process = tools.start(tmp_path, *asked)
        try:
            process.communicate(timeout=seconds * moment)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.communicate()
            killed += 1
    assert killed, "no process lived long enough to be killed"
    again = tools.wait(tools.start(tmp_path, *asked), tmp_path)
    assert again.code == 0, again.err
    assert tools.results(tmp_path) == expected
    assert not list(tmp_path.rglob(".*.tmp"))


def test_an_interrupted_sweep_does_only_what_is_missing(call: Call, tools: Any) -> None:
    """The first job is done, the second is not: repeating the sweep leaves the first alone."""
    small = (*tools.small, "selection.budgets.fast.epochs=1", "seeds=[42]")
    assert call(*small, "model=logistic").code == 0
    done = {p: p.stat().st_mtime_ns for p in Path("outputs/runs").rglob("*.parquet")}
    assert done
    swept = call("-m", *small, "model=logistic,blend")
    assert swept.code == 0, swept.err
    assert {p: p.stat().st_mtime_ns for p in done} == done
    assert re.findall(r"(\d+) runs asked for, (\d+) already done, (\d+) to do", swept.err) == [
        ("2", "2", "0"),
        ("2", "1", "1"),
    ]
    again = call("-m", *small, "model=logistic,blend")
    assert re.findall(r"(\d+) already done, (\d+) to do", again.err) == [("2", "0"), ("2", "0")]


def test_a_loss_that_is_not_finite_fails_its_row_alone(call: Call, tools: Any) -> None:
    wrong = "models.pointwise_mlp.params.learning_rate=1e30"
    outcome = call(*tools.small, "model=[bm25,pointwise_mlp]", wrong, "seeds=[42]")
    assert outcome.code == 1
    assert re.search(r"pointwise_mlp failed on \S+: FloatingPointError: epoch \d: the loss is not finite", outcome.err)
    assert "lower the learning rate" in outcome.err
    states = {
        m: json.loads((outcome.run_of(m) / "status.json").read_text())["state"] for m in ("bm25", "pointwise_mlp")
    }
    assert states == {"bm25": "done", "pointwise_mlp": "failed"}
    assert "bm25" in outcome.out
    assert "Missing run: pointwise_mlp" in outcome.out
    outcome.refuse_traceback()


def test_a_full_disk_leaves_nothing_half_written(call: Call, tools: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from toolshift.selection import records

    real, calls = records.write_binary, 0

    def full(path: Path, fill: Any) -> Path:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        return real(path, fill)

    small = (*tools.small, "model=logistic")
    with monkeypatch.context() as patched:
        patched.setattr(records, "write_binary", full)
        outcome = call(*small)
    assert outcome.code == 1
    assert "No space left on device" in outcome.err
    run = outcome.run_of("logistic")
    assert json.loads((run / "status.json").read_text())["state"] == "failed"
    assert not list(run.rglob(".*.tmp"))
    again = call(*small)
    assert again.code == 0, again.err
    assert "scores of 2 targets reused" in again.err
    shutil.rmtree("outputs")
    assert call(*small).code == 0
    fresh = json.loads((outcome.run_of("logistic") / "run.json").read_text())
    assert fresh["targets_reused"] == 0


def test_a_checkpoint_of_other_lists_is_not_taken_over(call: Call, tools: Any) -> None:
    """An unfinished run whose lists have changed since starts anew."""
    small = (*tools.small, "model=logistic")
    assert call(*small).code == 0
    (run,) = [r for r in Path("outputs/runs/lodo").iterdir() if list(r.glob("checkpoints/*"))]
    (run / "run.json").unlink()
    for record in run.glob("selection/*/*.json"):
        content = json.loads(record.read_text())
        record.write_text(json.dumps({**content, "data": "of other lists"}))
    again = call(*small)
    assert again.code == 0, again.err
    assert "reused" not in again.err
    assert json.loads((run / "run.json").read_text())["targets_reused"] == 0

"""Tracking: what is told of a run, each execution once, and every way to fail costs one warning and nothing else."""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import time
from pathlib import Path

import pytest

from toolshift.runs import tracking
from toolshift.runs.tracking import Tracking, is_installed, read_run, track

METRICS = """\
protocol,target,view,model,seed,measure,value,n_tasks,scored
p,A,natural,bm25,1,MRR,0.25,4,True
p,A,natural,bm25,2,MRR,0.75,4,True
p,B,natural,bm25,1,MRR,1.0,2,True
p,B,natural,bm25,2,MRR,1.0,2,True
p,C,natural,bm25,1,MRR,,0,False
"""
RECORD = {"model": "bm25", "variant": {"universe": "domain", "purge": "gold"}, "wall_s": 1.5, "peak_rss_mb": 90.0}
# Stands in for the package in the tracker's process; notes what it is told, and fails as BREAK says.
FAKE = """
import json, os, sys, threading, time
from pathlib import Path
how = os.environ.get("BREAK", "")
if how == "import": raise ImportError("no module for you")
if how == "hang": time.sleep(600)
def note(**what):
    with (Path(os.environ["NOTES"])).open("a") as stream: stream.write(json.dumps(what) + "\\n")
class Settings:
    def __init__(self, **_): pass
class Run:
    def __init__(self, id): self.id, self.summary = id, self
    def update(self, summary): note(summary=summary)
    def finish(self):
        note(finish=self.id)
        if how == "die": os._exit(7)
        if how == "exit": sys.exit(3)
        if how == "thread":
            def late(): time.sleep(0.1); raise OSError("network is gone")
            threading.Thread(target=late).start()
def init(**options):
    options.pop("settings")
    note(init=options)
    if how == "init": raise RuntimeError("api key is missing")
    return Run(options["id"])
"""


@pytest.fixture
def outputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two finished runs, and a fake tracker in place of the package."""
    for name in ("one", "two"):
        folder = tmp_path / "outputs/runs/lodo" / name
        folder.mkdir(parents=True)
        (folder / "run.json").write_text(json.dumps({**RECORD, "name": name}))
        (folder / "identity.json").write_text(json.dumps({"model": {"name": "bm25"}}))
        (folder / "metrics.csv").write_text(METRICS)
    (tmp_path / "fake").mkdir()
    (tmp_path / "fake/wandb.py").write_text(FAKE)
    source = str(Path(tracking.__file__).parents[2])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path / "fake"), source]))
    monkeypatch.setenv("NOTES", str(tmp_path / "notes"))
    return tmp_path / "outputs"


def to(outputs: Path) -> Tracking:
    return Tracking(outputs=outputs, mode="offline", project="p", entity=None, group="lodo", tags=("a",))


def folders(outputs: Path) -> list[Path]:
    return sorted((outputs / "runs/lodo").iterdir())


def notes(outputs: Path) -> list[dict[str, dict[str, object]]]:
    path = outputs.parent / "notes"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_the_summary_is_a_mean_over_seeds_then_targets(outputs: Path) -> None:
    run = read_run(folders(outputs)[0], tables=[Path("outputs/tables/lodo.csv")])
    assert run.name == "bm25 domain/gold"
    assert run.config == {"model": {"name": "bm25"}}
    assert {k: v for k, v in run.summary.items() if k.startswith("MRR")} == {
        "MRR/natural/A": 0.5, "MRR/natural/B": 1.0, "MRR/natural/mean": 0.75,
    }  # fmt: skip
    assert (run.summary["wall_s"], run.summary["peak_rss_mb"]) == (1.5, 90.0)
    assert run.summary["tables"] == ["outputs/tables/lodo.csv"]


def test_one_tracker_run_per_run_started_and_finished(outputs: Path) -> None:
    assert track(folders(outputs), to=to(outputs)) == 2
    told = notes(outputs)
    assert [next(iter(note)) for note in told] == ["init", "summary", "finish"] * 2
    init = told[0]["init"]
    assert init["mode"] == "offline"
    assert (init["project"], init["entity"], init["group"], init["tags"]) == ("p", None, "lodo", ["a"])
    assert init["dir"] == str(outputs)
    assert told[0]["init"]["id"] == told[2]["finish"]
    assert not list((outputs / "wandb").glob(".request*"))


def test_each_execution_is_tracked_once(outputs: Path) -> None:
    assert track(folders(outputs)[:1], to=to(outputs)) == 1
    assert track(folders(outputs), to=to(outputs)) == 1
    assert track(folders(outputs), to=to(outputs)) == 0
    first = folders(outputs)[0] / "run.json"
    first.write_text(json.dumps({**RECORD, "wall_s": 2.0}))
    assert track(folders(outputs), to=to(outputs)) == 1


def test_a_folder_without_results_is_passed_over(outputs: Path) -> None:
    (folders(outputs)[0] / "run.json").unlink()
    assert track(folders(outputs), to=to(outputs)) == 1


def logged(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """Each record once: two handlers keep it where the package's logger did not propagate when the test began."""
    return list({id(record): record for record in caplog.records}.values())


@pytest.mark.parametrize(
    ("how", "taken", "reason"),
    [
        ("import", 0, "no module for you"),
        ("init", 0, "api key is missing"),
        ("die", 0, "exit status 7"),
        ("exit", 0, "exit status 3"),
        ("hang", 0, "did not end within"),
        ("thread", 2, ""),
    ],
)
def test_whatever_happens_is_one_warning(
    how: str, taken: int, reason: str, outputs: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(logging.getLogger("toolshift"), "propagate", True)
    monkeypatch.setenv("BREAK", how)
    start = time.monotonic()
    assert track(folders(outputs), to=to(outputs), patience_s=3 if how == "hang" else 60) == taken
    assert time.monotonic() - start < 60
    warnings = [record.getMessage() for record in logged(caplog) if record.levelno >= logging.WARNING]
    assert len(warnings) == bool(reason)
    if reason:
        assert reason in warnings[0]
        assert "2 of 2 runs not recorded" in warnings[0]
        assert "\n" not in warnings[0]
    monkeypatch.delenv("BREAK")
    assert track(folders(outputs), to=to(outputs)) == 2 - taken, "what was missed is not made up for"


def test_damaged_run_files_and_a_full_disk_are_one_warning(
    outputs: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("toolshift"), "propagate", True)
    (folders(outputs)[0] / "metrics.csv").write_text("measure,view\nMRR,natural\n")
    assert track(folders(outputs), to=to(outputs)) == 0
    assert len(logged(caplog)) == 1
    caplog.clear()
    (folders(outputs)[0] / "metrics.csv").write_text(METRICS)
    (outputs / "wandb").write_text("a file where the folder should be")
    assert track(folders(outputs), to=to(outputs)) == 0
    assert len(logged(caplog)) == 1


def test_a_missing_package_is_seen_without_importing_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert not is_installed()


@pytest.mark.skipif(not is_installed(), reason="wandb is not installed (extra tracking)")
def test_the_real_package_writes_offline_files(outputs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(tracking.__file__).parents[2]))
    # An address that refuses at once: a connection would fail, and offline there is none.
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("HOME", str(outputs.parent / "home"))
    assert track(folders(outputs)[:1], to=to(outputs)) == 1
    (run,) = (outputs / "wandb").glob("offline-run-*")
    assert list(run.glob("run-one-*.wandb"))
    assert not (outputs.parent / "home/.netrc").exists()

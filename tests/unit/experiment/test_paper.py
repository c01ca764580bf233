"""``make paper``: what every table has and lacks, what the missing part costs, which family is drawn."""

from __future__ import annotations

import dataclasses
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from toolshift.experiment.families import Family, families
from toolshift.experiment.finished import DoneRun, done_runs
from toolshift.experiment.paper import choose, duration, estimate, lines, needs
from toolshift.experiment.plan import plan_runs
from toolshift.experiment.tables import missing_paper_rows
from toolshift.runs.files import write_json
from toolshift.runs.ledger import RunFolder
from toolshift.settings.compose import load_settings
from toolshift.settings.launch import Launch, overridden_keys

ROOT = Path(__file__).resolve().parents[3]
BASE = ("experiment=lodo", "view.universe=domain", "view.miner=union")


@pytest.fixture
def finish(tmp_path: Path) -> Callable[..., None]:
    """Leave what the ledger needs of the runs of a command."""

    def finish(*overrides: str, wall_s: float | None, hour: int = 1) -> None:
        given = [*BASE, f"paths.outputs={tmp_path}", *overrides]
        settings = load_settings("train", given)
        for run in plan_runs(settings, overridden_keys=overridden_keys(given), fingerprints={}):
            view, purge = run.settings.view, run.settings.protocol.purge
            variant = {"universe": view.universe, "miner": view.miner, "purge": purge}
            record = {"model": run.model.name, "family": run.family, "data": settings.data.source, "variant": variant}
            write_json(run.folder.path / "identity.json", dict(run.identity))
            write_json(run.folder.path / "run.json", {**record, **({} if wall_s is None else {"wall_s": wall_s})})
            write_json(run.folder.path / "status.json", {"state": "done", "at": f"2026-01-01T{hour:02d}:00:00+0000"})

    return finish


def launch_of(*overrides: str) -> Launch:
    return Launch(
        settings=load_settings("train", overrides), overrides=overrides, overridden_keys=overridden_keys(overrides),
        command="",
    )  # fmt: skip


def run(model: str, purge: str, wall_s: float | None, *, family: str = "f", miner: str = "union") -> DoneRun:
    return DoneRun(
        folder=RunFolder(Path("x")), model=model, family=family, universe="domain", miner=miner, purge=purge,
        data="sample", wall_s=wall_s,
    )  # fmt: skip


def family_of(source: str, debug: str, name: str) -> Family:
    identity = {"data": {"source": source}, "debug": {"name": debug}}
    return Family(name=name, runs=(), identity=identity, at=datetime(2026, 1, 1, tzinfo=UTC))


def test_estimates_rest_on_the_runs_that_are_most_alike() -> None:
    family = family_of("sample", "none", "f")
    known = [
        run("blend", "none", 10.0), run("blend", "gold", 30.0), run("blend", "none", 100.0, miner="dense"),
        run("blend", "none", 900.0, family="g"), run("bm25", "none", 5.0), run("blend", "none", None),
    ]  # fmt: skip
    wanted = ("domain", "union", "near")
    assert estimate("blend", wanted, family=family, known=known) == (20.0, "2 finished of the same lists")
    dense = ("library", "union", "none")
    assert estimate("blend", dense, family=family, known=known) == (30.0, "3 finished of other variants")
    assert estimate("blend", wanted, family=None, known=known[3:4]) == (900.0, "1 finished made with other settings")
    assert estimate("logistic", wanted, family=family, known=known) == (None, "unknown: never run here")
    assert estimate("blend", wanted, family=family, known=known[-1:]) == (None, "unknown: never run here")


def test_runs_there_and_missing_each_with_command_and_cost(finish: Callable[..., None], tmp_path: Path) -> None:
    finish("model=[bm25,blend]", "protocol.purge=none", wall_s=120.0)
    given = (*BASE, "model=[bm25,blend,logistic]", f"paths.outputs={tmp_path}")
    launch = launch_of(*given)
    (family,) = families(tmp_path, "lodo")
    found = needs(launch.settings, family, launch=launch, known=done_runs(tmp_path, "lodo"))
    assert [(n.model, n.run is not None) for n in found] == [
        ("semantic_cosine", True), ("bm25", True), ("blend", True), ("logistic", False),
        ("semantic_cosine", False), ("bm25", False), ("blend", False), ("logistic", False),
    ]  # fmt: skip
    text = list(lines(found))
    assert text[0] == "there    semantic_cosine (universe=domain miner=union purge=none), took 2 min"
    at = text.index(
        "missing  blend (universe=domain miner=union purge=gold); cost about 2 min, from 1 finished of the same lists"
    )
    assert text[at + 1].split() == [
        "python", "scripts/train.py", "experiment=lodo", f"paths.outputs={tmp_path}", "view.universe=domain",
        "view.miner=union", "protocol.purge=gold", "protocol.dedup=none", "model=blend",
    ]  # fmt: skip
    assert "missing  logistic (universe=domain miner=union purge=gold); cost unknown: never run here" in text
    assert text[-1] == "3 runs there, 5 missing: about 6 min for 3 of them, unknown for 2"


def test_the_command_of_a_missing_run_makes_it_in_the_same_family(finish: Callable[..., None], tmp_path: Path) -> None:
    made = ("debug=tiny", "data.sample_size=tiny", "view.length=10", "evaluation.measures=[MRR,NDCG@5]", "seeds=[1]")
    finish("model=bm25", "protocol.purge=none", *made, wall_s=1.0)
    launch = launch_of(*BASE, f"paths.outputs={tmp_path}", "model=[bm25,random]")
    (family,) = families(tmp_path, "lodo")
    found = needs(launch.settings, family, launch=launch, known=[])
    (command,) = (n.command for n in found if n.run is None and n.model == "random" and "purge=none" in n.variant)
    again = shlex.split(command)[2:]
    (asked,) = (
        run
        for run in plan_runs(load_settings("train", again), overridden_keys=overridden_keys(again), fingerprints={})
        if run.model.name == "random"
    )
    assert asked.family == family.name


def test_an_older_run_that_tells_no_time_is_there_all_the_same(finish: Callable[..., None], tmp_path: Path) -> None:
    finish("model=bm25", "protocol.purge=none", wall_s=None)
    launch = launch_of(*BASE, "model=bm25", "protocol.purge=none", f"paths.outputs={tmp_path}")
    (family,) = families(tmp_path, "lodo")
    text = list(lines(needs(launch.settings, family, launch=launch, known=done_runs(tmp_path, "lodo"))))
    assert text[-2:] == ["there    bm25 (universe=domain miner=union purge=none)", "2 runs there, 0 missing"]


def test_real_data_is_drawn_before_the_sample_and_whole_runs_before_limited_ones() -> None:
    launch = launch_of("experiment=lodo")
    found = [
        family_of("sample", "tiny", "newest"), family_of("sample", "none", "whole"), family_of("real", "tiny", "quick"),
        family_of("real", "none", "real"), family_of("real", "none", "older"),
    ]  # fmt: skip

    def chosen(*families: Family) -> str:
        family = choose(families, launch.settings, launch=launch)
        assert family is not None
        return family.name

    assert chosen(*found) == "real"
    assert chosen(*found[:3]) == "quick"
    assert chosen(*found[:2]) == "whole"
    assert choose([], launch.settings, launch=launch) is None


def test_rows_of_the_paper_without_a_run_are_named_for_real_data_alone() -> None:
    sample = load_settings("train", ["experiment=lodo"])
    real = dataclasses.replace(sample, data=dataclasses.replace(sample.data, source="real", root="x"))
    there = [dataclasses.replace(run("semantic_cosine", "none", 1.0, miner="dense"), universe="library")]
    assert missing_paper_rows(sample, there) == []
    assert missing_paper_rows(real, [run("semantic_cosine", "none", 1.0)]) == [], "not the variant of the paper"
    found = missing_paper_rows(real, there)
    where = "(universe library, miner dense, purge none), a row of the paper: "
    assert found[0].startswith(
        f"endpoint_schema_match {where}python scripts/train.py experiment=lodo data=real data.root=PATH model=endpoint"
    )
    assert any(line.startswith(f"tact {where}python scripts/train.py") for line in found)
    whole = [dataclasses.replace(there[0], model=line.split()[0]) for line in found]
    assert missing_paper_rows(real, [*there, *whole]) == []


def test_durations() -> None:
    assert [duration(s) for s in (4.4, 89.0, 90.0, 3600.0, 5400.0)] == ["4 s", "89 s", "2 min", "60 min", "1.5 h"]


def test_nothing_heavy_is_imported_and_no_run_is_started(tmp_path: Path) -> None:
    """As a process: the listing of an empty folder, then the modules that came with it."""
    code = (
        "import runpy, sys\n"
        f"sys.argv = ['make_tables.py', 'paper', 'experiment=lodo']\n"
        "try:\n"
        f"    runpy.run_path({str(ROOT / 'scripts' / 'make_tables.py')!r}, run_name='__main__')\n"
        "except SystemExit as end:\n"
        "    heavy = [m for m in ('torch', 'sentence_transformers', 'sklearn', 'faiss', 'wandb') if m in sys.modules]\n"
        "    print('CODE', end.code, 'HEAVY', heavy)\n"
    )
    path = os.pathsep.join(p for p in (str(ROOT / "src"), os.environ.get("PYTHONPATH", "")) if p)
    ended = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env={**os.environ, "PYTHONPATH": path}, capture_output=True,
        text=True, timeout=120, check=True,
    )  # fmt: skip
    assert "CODE 1 HEAVY []" in ended.stdout, ended.stderr
    assert "table lodo (data: sample): no finished run" in ended.stderr
    assert "cost unknown: never run here" in ended.stderr
    assert ended.stderr.rstrip().endswith("wrote nothing")
    assert not (tmp_path / "outputs" / "runs").exists()
    assert not (tmp_path / "data").exists()

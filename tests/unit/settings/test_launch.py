"""The command line as a user meets it: a real process, its exit status, its messages and its time."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from toolshift.settings.launchers import PACKAGES, _is_installed

ROOT = Path(__file__).resolve().parents[3]
LAUNCHERS = ("joblib", "submitit_local")
needs_launchers = pytest.mark.skipif(
    not all(map(_is_installed, PACKAGES.values())), reason="the launchers are not installed (extra launchers)"
)
# Processor time, which other work on the machine does not change.
SECONDS_ALLOWED = 2.0
HEAVY = ("numpy", "torch", "pandas", "sklearn", "scipy", "sentence_transformers")

SCRIPT = f"""
import atexit, json, os, signal, sys, time

HEAVY = {HEAVY!r}
atexit.register(lambda: print("HEAVY", [name for name in HEAVY if name in sys.modules]))

from toolshift.settings.axes import expand_axes
from toolshift.settings.compose import difference_from_defaults
from toolshift.settings.errors import UserError
from toolshift.settings.launch import Launch, launch


class Flagged(ValueError):
    user_facing = True


def entry(job: Launch) -> int:
    settings = job.settings
    seen = dict(models=list(settings.models), overrides=job.overrides, keys=job.overridden_keys, command=job.command)
    seen["purge"] = [variant.protocol.purge for variant in expand_axes(settings, job.overridden_keys)]
    seen["changed"] = len(difference_from_defaults(settings))
    seen["job"], seen["process"] = job.job, os.getpid()
    print("JOB", json.dumps(seen), flush=True)
    if settings.view.seed == 1:
        raise UserError("weights are missing: put them into FOLDER")
    if settings.view.seed == 2:
        raise Flagged("a flagged problem")
    if settings.view.seed == 3:
        raise ZeroDivisionError("a defect of the program")
    if settings.view.seed == 4:
        raise KeyboardInterrupt
    if settings.view.seed == 6:
        os.kill(os.getpid(), signal.SIGKILL)
    if settings.view.seed == 7:
        time.sleep(1)
    return 3 if settings.view.seed == 5 else 0


if __name__ == "__main__":
    launch(entry, config="train")
"""


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str
    cpu_seconds: float
    folder: Path

    @property
    def jobs(self) -> list[dict[str, Any]]:
        return [json.loads(line[4:]) for line in self.out.splitlines() if line.startswith("JOB ")]

    @property
    def all_jobs(self) -> list[dict[str, Any]]:
        """Also those whose output a launcher put into files."""
        files = self.folder.glob("outputs/hydra/sweep/*/.submitit/*/*_log.out")
        lines = [line for file in files for line in file.read_text().splitlines() if line.startswith("JOB ")]
        return self.jobs + [json.loads(line[4:]) for line in lines]

    @property
    def job_err(self) -> str:
        return "".join(f.read_text() for f in self.folder.glob("outputs/hydra/sweep/*/.submitit/*/*_log.err"))

    @property
    def logs(self) -> list[Path]:
        return sorted(self.folder.glob("outputs/logs/*.jsonl"))


Run = Callable[..., Outcome]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    environment = {key: value for key, value in os.environ.items() if key not in ("TOOLSHIFT_DATA", "HYDRA_FULL_ERROR")}
    environment["PYTHONPATH"] = str(ROOT / "src")

    def call(*arguments: str) -> Outcome:
        folder = tmp_path_factory.mktemp("launch")
        (folder / "script.py").write_text(SCRIPT)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(
            [sys.executable, "script.py", *arguments],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu_seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return Outcome(done.returncode, done.stdout, done.stderr, cpu_seconds, folder)

    call()  # bytecode of Hydra on a fresh machine
    return call


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["protocol.purg=gold"], "protocol.purg: no such key or group; did you mean 'protocol.purge'?"),
        (["purge=gold"], "did you mean 'protocol.purge'?"),
        (["modle=bm25"], "modle: no such key or group; did you mean 'model'?"),
        (["model=bm52"], "model=bm52: there is no conf/model/bm52.yaml; did you mean 'bm25'?"),
        (["model=[random,bm52]"], "did you mean 'bm25'?"),
        (["experiment=lodoo"], "did you mean 'lodo'?"),
        (["+key=1"], "key: no such key or group; did you mean"),
        (["+view.lenght=10"], "did you mean 'view.length'?"),
        (["++view.lenght=10"], "did you mean 'view.length'?"),
        (["view.universe=domian"], "did you mean 'domain'?"),
        (["view.length=abc"], "view.length: expected a whole number, got 'abc'"),
        (["models.bm25.params.k3=1"], "did you mean 'models.bm25.params.k1'?"),
        (["data=real"], "give data.root=PATH or set the variable TOOLSHIFT_DATA"),
        (["view.length=1"], "a list needs at least 2 candidates"),
        (["view.hard=20"], "below view.length=20"),
        (["reference=bm52"], "did you mean 'bm25'?"),
        (["evaluation.measures=[NDGC@5]"], "did you mean 'NDCG@5'?"),
        (["-m", "model=bm25,bm52"], "model=bm52: there is no conf/model/bm52.yaml"),
        (["-m", "model=bm25,rrf", "view.length=20,1"], "a list needs at least 2 candidates"),
        (["-m", "view.seed=interval(0,1)"], "no interval()"),
        (
            ["experiment=lodo", "protocol.purge=gold", "compare={protocol.purge:[none,gold]}"],
            "protocol.purge: is both fixed and in compare",
        ),
        (["hydra.sweep.dirr=x"], "hydra.sweep.dirr"),
        (["hydra/launcher=joblib"], "a launcher starts the jobs of a sweep; add -m"),
        (["-m", "hydra/launcher=basic,joblib"], "one launcher starts all jobs of a sweep"),
        (["-m", "hydra/launcher=joblib", "hydra.launcher.n_job=2"], "hydra.launcher.n_job"),
        (["hydra/launcher=nonsense"], "hydra/launcher/nonsense"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_refusals_are_quick_clean_and_helpful(run: Run, arguments: Sequence[str], expected: str) -> None:
    outcome = run(*arguments)
    assert outcome.code == 2, outcome.err
    assert expected in outcome.err
    assert "Traceback" not in outcome.err
    assert not outcome.jobs
    assert "HEAVY []" in outcome.out
    assert outcome.cpu_seconds < SECONDS_ALLOWED


def test_a_run_gets_resolved_settings_and_its_command(run: Run) -> None:
    outcome = run("experiment=lodo", "debug=tiny", "protocol.purge=gold")
    assert outcome.code == 0, outcome.err
    (job,) = outcome.jobs
    assert job["overrides"] == ["experiment=lodo", "debug=tiny", "protocol.purge=gold"]
    assert job["keys"] == ["debug", "experiment", "protocol.purge"]
    assert job["command"] == "python script.py experiment=lodo debug=tiny protocol.purge=gold"
    assert job["purge"] == ["gold"]
    assert job["changed"] > 0
    assert outcome.err == ""


def test_a_sweep_calls_the_entry_once_per_job(run: Run) -> None:
    outcome = run("-m", "model=bm25,random", "experiment=lodo")
    assert outcome.code == 0, outcome.err
    assert [job["models"] for job in outcome.jobs] == [["semantic_cosine", "bm25"], ["semantic_cosine", "random"]]
    assert [job["purge"] for job in outcome.jobs] == [["none", "gold"]] * 2
    assert outcome.jobs[0]["command"] == "python script.py model=bm25 experiment=lodo"


@pytest.mark.parametrize(
    ("seed", "code", "message", "has_traceback"),
    [
        (1, 1, "error: weights are missing: put them into FOLDER", False),
        (2, 1, "error: a flagged problem", False),
        (3, 1, "ZeroDivisionError: a defect of the program", True),
        (4, 130, "interrupted", False),
        (5, 3, "", False),
    ],
)
def test_how_a_failing_entry_ends(run: Run, seed: int, code: int, message: str, *, has_traceback: bool) -> None:
    outcome = run(f"view.seed={seed}")
    assert outcome.code == code
    assert message in outcome.err
    assert ("Traceback" in outcome.err) is has_traceback


def test_a_sweep_goes_on_after_a_failure_and_still_fails(run: Run) -> None:
    outcome = run("-m", "view.seed=1,0")
    assert outcome.code == 1
    assert len(outcome.jobs) == 2
    assert "weights are missing" in outcome.err
    assert "Traceback" not in outcome.err


def test_a_sweep_stops_where_asked(run: Run) -> None:
    outcome = run("-m", "view.seed=0,1,2", "runtime.on_error=stop")
    assert outcome.code == 1
    assert len(outcome.jobs) == 2
    assert "skipped after a failure (runtime.on_error=stop): view.seed=2" in outcome.err


def test_hydras_own_flags_still_work(run: Run) -> None:
    shown = run("--cfg", "job", "--package", "protocol", "protocol.purge=gold")
    assert shown.code == 0
    assert "purge: gold" in shown.out
    assert not shown.jobs
    assert run("--help").code == 0


def test_jobs_are_numbered_and_a_single_command_is_none(run: Run) -> None:
    assert [job["job"] for job in run("-m", "view.seed=0,8").jobs] == [0, 1]
    assert run().jobs[0]["job"] is None


@needs_launchers
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_jobs_side_by_side(run: Run, launcher: str) -> None:
    """One job fails: the other one runs, in a process of its own, and the command ends as it does one by one."""
    outcome = run("-m", "view.seed=5,0", "hydra/launcher=" + launcher)
    assert outcome.code == 3, outcome.err
    assert "failed with exit status 3: view.seed=5" in outcome.err
    assert "Traceback" not in outcome.err
    assert "is validated against ConfigStore" not in outcome.err + outcome.job_err
    found = sorted(outcome.all_jobs, key=lambda job: job["job"])
    assert [job["job"] for job in found] == [0, 1]
    assert [job["command"] for job in found] == [f"python script.py view.seed={seed}" for seed in (5, 0)]
    logged = sorted(path.name.rpartition("_")[2] for path in outcome.logs)
    assert logged == ["job0.jsonl", "job1.jsonl"]


@needs_launchers
def test_side_by_side_means_processes_and_on_error_stop_reaches_them(run: Run) -> None:
    both = run("-m", "view.seed=0,7", "hydra/launcher=joblib", "hydra.launcher.n_jobs=2")
    assert both.code == 0, both.err
    one_by_one = run(
        "-m", "view.seed=5,0,8", "hydra/launcher=joblib", "hydra.launcher.n_jobs=1", "runtime.on_error=stop"
    )
    assert one_by_one.code == 3
    assert [job["job"] for job in one_by_one.jobs] == [0]
    assert one_by_one.err.count("skipped after a failure (runtime.on_error=stop)") == 2


@needs_launchers
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_job_whose_process_is_killed(run: Run, launcher: str) -> None:
    outcome = run("-m", "view.seed=6,0", "hydra/launcher=" + launcher)
    assert outcome.code == 1
    assert "the process of a job ended without an answer" in outcome.err
    assert "the same command continues" in outcome.err
    assert "Traceback" not in outcome.err


def test_a_launcher_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    from toolshift.settings import launchers
    from toolshift.settings.compose import parse_overrides

    chosen = parse_overrides(["hydra/launcher=submitit_slurm"])
    monkeypatch.setattr(launchers.importlib.util, "find_spec", lambda _: None)
    (problem,) = launchers.launcher_problems(chosen, multirun=True)
    assert problem.endswith("add the extra `launchers`: pip install -e '.[launchers]'")
    assert launchers.launcher_problems(parse_overrides(["hydra/launcher=basic"]), multirun=True) == []
    assert launchers.launcher_problems(parse_overrides(["view.seed=1"]), multirun=False) == []


@needs_launchers
def test_slurm_is_asked_for_where_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    from toolshift.settings import launchers
    from toolshift.settings.compose import parse_overrides

    chosen = parse_overrides(["hydra/launcher=submitit_slurm"])
    monkeypatch.setattr(launchers.shutil, "which", lambda _: None)
    (problem,) = launchers.launcher_problems(chosen, multirun=True)
    assert "no srun on this machine" in problem
    monkeypatch.setattr(launchers.shutil, "which", lambda _: "/usr/bin/srun")
    assert launchers.launcher_problems(chosen, multirun=True) == []


@needs_launchers
def test_launchers_and_torchrun_do_not_mix() -> None:
    from toolshift.settings.compose import parse_overrides
    from toolshift.settings.launchers import launcher_problems

    chosen = parse_overrides(["hydra/launcher=joblib"])
    assert launcher_problems(chosen, multirun=True, environment={"WORLD_SIZE": "1"}) == []
    (problem,) = launcher_problems(chosen, multirun=True, environment={"WORLD_SIZE": "2"})
    assert "torchrun starts processes too" in problem


@needs_launchers
def test_every_launcher_file_is_a_valid_launcher(run: Run) -> None:
    """Hydra checks them against the schemas that the plugins bring; none starts a job here."""
    for name in ("joblib", "submitit_local", "submitit_slurm"):
        shown = run("--cfg", "hydra", "--package", "hydra.launcher", "hydra/launcher=" + name)
        assert shown.code == 0, shown.err
        assert "_target_: hydra_plugins." in shown.out

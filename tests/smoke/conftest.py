"""Whole commands: the scripts as a user calls them, inside this process (quick) or as processes of their own."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import pickle
import runpy
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# What two runs of the same thing may differ in: times, process numbers, memory.
TIMED = ("run.json", "status.json")
# What a command says about itself, and what launchers and trackers keep.
LOGS = (".jsonl",)
TINY = ("experiment=lodo", "debug=tiny", "data.sample_size=tiny", "view.universe=domain", "view.miner=union")
# One view, one variant, whole lists: what most tests need.
SMALL = (*TINY, "protocol.purge=none", "view=natural", "evaluation.slices=[all]")


@dataclass(frozen=True)
class Outcome:
    """How a command ended. ``folder``: the working directory it ran in."""

    code: int
    out: str
    err: str
    folder: Path

    @property
    def runs(self) -> list[Path]:
        return sorted(p for p in self.folder.glob("outputs/runs/*/*") if p.is_dir())

    def run_of(self, model: str) -> Path:
        """The run folder of a model; there must be exactly one."""
        (found,) = (r for r in self.runs if json.loads((r / "identity.json").read_text())["model"]["name"] == model)
        return found

    def refuse_traceback(self) -> None:
        assert "Traceback" not in self.err, self.err


def digests(folder: Path, *, without: Sequence[str] = TIMED) -> Mapping[str, str]:
    """Relative path -> SHA-256 of every file below a folder but logs, the named and the hidden ones."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
        and path.name not in without
        and not path.name.startswith(".")
        and path.suffix not in LOGS
        and not {"hydra", "wandb"} & set(path.relative_to(folder).parts)
    }


def results(folder: Path) -> Mapping[str, str]:
    """Digests of what a command computed: run folders and tables, without times."""
    return {name: digest for name, digest in digests(folder / "outputs").items() if not name.startswith("figures/")}


@pytest.fixture(scope="session")
def shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sample, records and embeddings are made once for all tests that do not test making them."""
    return tmp_path_factory.mktemp("cache")


def once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], Outcome]) -> Outcome:
    """``make(folder)``, done by one of the parallel test processes and read by the others."""
    base = factory.getbasetemp()
    root = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder, note = root / name, root / f"{name}.pickle"
    with (root / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not note.exists():
            note.write_bytes(pickle.dumps(astuple(make(folder))))
    return Outcome(*pickle.loads(note.read_bytes()))


@dataclass(frozen=True)
class Tools:
    """Helpers handed to tests, which import nothing from each other."""

    cache: Path
    tiny = TINY
    small = SMALL
    root = ROOT
    digests = staticmethod(digests)
    results = staticmethod(results)
    once = staticmethod(once)

    def start(self, folder: Path, *arguments: str, script: str = "train", **environment: str) -> subprocess.Popen[str]:
        """A script as a process of its own in ``folder``; reads no real data and no cache but those given."""
        kept = {k: v for k, v in os.environ.items() if k not in ("TOOLSHIFT_DATA", "HYDRA_FULL_ERROR")}
        path = os.pathsep.join(p for p in (environment.pop("PYTHONPATH", ""), str(ROOT / "src")) if p)
        folder.mkdir(parents=True, exist_ok=True)
        return subprocess.Popen(
            [sys.executable, str(ROOT / "scripts" / f"{script}.py"), *arguments],
            cwd=folder,
            env={**kept, "OMP_NUM_THREADS": "1", **environment, "PYTHONPATH": path},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    @staticmethod
    def wait(process: subprocess.Popen[str], folder: Path) -> Outcome:
        out, err = process.communicate(timeout=240)
        return Outcome(process.returncode, out, err, folder)


@pytest.fixture(scope="session")
def tools(shared_cache: Path) -> Tools:
    return Tools(shared_cache)


Call = Callable[..., Outcome]


@pytest.fixture
def call(
    tools: Tools, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Iterator[Call]:
    """``call(*overrides, script="train")`` runs a script in this process with ``tmp_path`` as working directory."""
    monkeypatch.delenv("TOOLSHIFT_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    # Figures are drawn by the tests that start a process of their own; here they would take most of the time.
    monkeypatch.setattr("toolshift.experiment.tables.write_forest", lambda *_, **__: [])

    def run(*arguments: str, script: str = "train", cache: Path | None = None) -> Outcome:
        path = str(ROOT / "scripts" / f"{script}.py")
        monkeypatch.setattr(sys, "argv", [path, *arguments, f"data.cache={cache or tools.cache}"])
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(path, run_name="__main__")
        captured = capfd.readouterr()
        return Outcome(int(ended.value.code or 0), captured.out, captured.err, tmp_path)

    yield run

"""What a run records about its environment."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from toolshift.runs import environment as module
from toolshift.runs.environment import PACKAGES, environment, git_state


def test_versions_and_command_are_recorded() -> None:
    found = environment(command="train.py experiment=lodo")
    assert found["command"] == "train.py experiment=lodo"
    assert found["python"] == platform.python_version()
    assert set(found["packages"]) == set(PACKAGES)
    assert found["packages"]["numpy"] == importlib.metadata.version("numpy")
    json.dumps(found)


def test_a_package_that_is_not_there_has_no_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PACKAGES", ("numpy", "no-such-package"))
    assert environment(command="")["packages"]["no-such-package"] == ""


def test_no_host_name_and_no_path_is_recorded() -> None:
    text = json.dumps(environment(command="c"))
    assert not platform.node() or f'{platform.node()}"' not in text
    assert str(Path(__file__).resolve().parents[3]) not in text


def git(folder: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


def test_git_state(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    (tmp_path / "a").write_text("1")
    git(tmp_path, "add", "a")
    git(tmp_path, "commit", "-qm", "first")
    clean = git_state(tmp_path)
    assert len(clean["commit"]) == 40
    assert clean["dirty"] is False
    (tmp_path / "untracked").write_text("2")
    assert git_state(tmp_path) == clean
    (tmp_path / "a").write_text("2")
    assert git_state(tmp_path) == {"commit": clean["commit"], "dirty": True}


def test_outside_a_checkout_there_is_no_git_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert git_state(tmp_path) == {}


def test_without_git_there_is_no_git_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert git_state(tmp_path) == {}


def test_peak_memory_is_in_mebibytes() -> None:
    script = "from toolshift.runs.environment import peak_rss_mb; x = b'x' * (300 * 2**20); print(peak_rss_mb())"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, check=True)
    assert 300 < float(done.stdout) < 600

"""What a number was computed with: versions, git state, command, machine kind, time and memory."""

from __future__ import annotations

import importlib.metadata
import platform
import resource
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

PACKAGES = (
    "toolshift",
    "numpy",
    "scipy",
    "pandas",
    "pyarrow",
    "torch",
    "sentence-transformers",
    "transformers",
    "bm25s",
    "scikit-learn",
    "hydra-core",
    "omegaconf",
)


def environment(*, command: str) -> Mapping[str, Any]:
    """Versions, git state and command of the running process."""
    return {
        "command": command,
        "python": platform.python_version(),
        "platform": f"{platform.system()}-{platform.machine()}",
        "packages": {name: _version(name) for name in PACKAGES},
        "git": git_state(Path(__file__).resolve().parent),
    }


def git_state(folder: Path) -> Mapping[str, Any]:
    """Commit and whether tracked files differ from it; empty outside a checkout or without git."""
    commit = _git(folder, "rev-parse", "HEAD")
    return {} if commit is None else {"commit": commit, "dirty": bool(_git(folder, "status", "--porcelain", "-uno"))}


def peak_rss_mb() -> float:
    """Largest resident memory of this process so far, in MiB."""
    status = Path("/proc/self/status")
    if status.exists():  # getrusage would count what the parent held when this process was forked from it
        fields = dict(line.split(":", 1) for line in status.read_text(encoding="ascii", errors="replace").splitlines())
        if "VmHWM" in fields:
            return round(int(fields["VmHWM"].split()[0]) / 1024, 1)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak / (1024 * 1024 if sys.platform == "darwin" else 1024), 1)


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None

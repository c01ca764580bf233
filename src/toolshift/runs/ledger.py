"""The ledger: one folder per run, named by the hash of what was asked; its ``status.json`` is the truth.

A run is one model under one variant. Running the same command again skips what is done and redoes the rest.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from toolshift.runs.files import read_json, stable_hash, write_json, write_text
from toolshift.runs.locks import exclusive

State = Literal["missing", "running", "done", "failed"]
HASH_LENGTH = 16


class RunBusy(RuntimeError):
    """Another process works in the same run folder."""

    user_facing = True


class RunConflict(RuntimeError):
    """A run folder holds something else than its name says."""

    user_facing = True


@dataclass(frozen=True)
class RunFolder:
    """``outputs/runs/<experiment>/<run hash>/``."""

    path: Path

    @staticmethod
    def of(outputs: Path, experiment: str, identity: Mapping[str, Any]) -> RunFolder:
        """The folder of a run: ``identity`` is its resolved config (no paths, no runtime) and data fingerprints."""
        return RunFolder(outputs / "runs" / experiment / stable_hash(identity)[:HASH_LENGTH])

    @property
    def state(self) -> State:
        """State on disk. A ``running`` run whose process is gone is reported as running and redone by a rerun."""
        path = self.path / "status.json"
        if not path.exists():
            return "missing"
        try:
            state = read_json(path)["state"]
        except (ValueError, KeyError, TypeError):
            return "failed"
        return state if state in ("running", "done", "failed") else "failed"

    def begin(self, *, identity: Mapping[str, Any], config_yaml: str) -> None:
        """Mark the run as running and leave its resolved config.

        Raises:
            RunConflict: if the folder was made from another config (a truncated hash collision, or a moved folder).
        """
        known = self.path / "identity.json"
        if known.exists() and stable_hash(read_json(known)) != stable_hash(identity):
            raise RunConflict(f"{self.path} belongs to another configuration; delete or move it, then run again")
        write_json(known, identity)
        write_text(self.path / "config.yaml", config_yaml)
        self._set("running")

    def finish(self) -> None:
        """Mark the run as done; written last, so a done run is whole."""
        self._set("done")

    def fail(self, error: BaseException, *, trace: str) -> None:
        """Mark the run as failed and keep the exception."""
        self._set("failed", exception=f"{type(error).__name__}: {error}", traceback=trace)

    @contextmanager
    def lock(self, *, wait: bool = False) -> Iterator[None]:
        """Hold the folder for this process. wait: until another live process has left it.

        Raises:
            RunBusy: if another live process holds it and ``wait`` is false.
        """
        with ExitStack() as held:
            try:
                held.enter_context(exclusive(self.path / ".lock", wait=wait))
            except BlockingIOError as error:
                raise RunBusy(f"another process is working in {self.path}; wait for it or stop it") from error
            yield

    def _set(self, state: State, **details: str) -> None:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S%z")
        write_json(self.path / "status.json", {"state": state, "at": stamp, "pid": os.getpid(), **details})


def ledger(outputs: Path) -> list[tuple[str, RunFolder, State]]:
    """(experiment, folder, state) of every run below ``outputs``, sorted."""
    root = outputs / "runs"
    folders = sorted(p for p in root.glob("*/*") if p.is_dir()) if root.exists() else []
    return [(p.parent.name, RunFolder(p), RunFolder(p).state) for p in folders]

"""List runs: ``python -m toolshift.runs.status [--outputs outputs]``. Opens no data set and no score file."""

from __future__ import annotations

import argparse
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolshift.runs.files import read_json
from toolshift.runs.ledger import RunFolder, State, ledger

STATES = ("done", "running", "stale", "failed", "missing")
_WIDEST = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLine:
    """One run as it is listed. state: as in the ledger, or ``stale``: said to be running by a process that is gone."""

    state: str
    experiment: str
    run: str
    model: str
    variant: str
    at: str
    note: str


def run_lines(outputs: Path) -> list[RunLine]:
    """Every run below ``outputs``, by experiment and folder name."""
    return [_line(experiment, folder, state) for experiment, folder, state in ledger(outputs)]


def render(lines: Sequence[RunLine]) -> str:
    """Counts by state, then a table of all runs."""
    from tabulate import tabulate

    count = Counter(line.state for line in lines)
    totals = ", ".join(f"{count[state]} {state}" for state in STATES if count[state])
    columns = ("state", "experiment", "run", "model", "variant", "at", "note")
    rows = [[getattr(line, name) for name in columns] for line in lines]
    return f"{len(lines)} runs: {totals}\n\n{tabulate(rows, headers=columns, disable_numparse=True)}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the list; returns the exit status, 0 also where runs have failed."""
    parser = argparse.ArgumentParser(prog="python -m toolshift.runs.status", description="List runs and their state.")
    parser.add_argument("--outputs", type=Path, default=Path("outputs"), help="folder that holds runs/")
    outputs = parser.parse_args(arguments).outputs
    lines = run_lines(outputs)
    print(render(lines) if lines else f"no runs below {outputs / 'runs'}")
    return 0


def _line(experiment: str, folder: RunFolder, state: State) -> RunLine:
    status, identity = _mapping(folder.path / "status.json"), _mapping(folder.path / "identity.json")
    stale = state == "running" and not _alive(status.get("pid"))
    return RunLine(
        state="stale" if stale else state,
        experiment=experiment,
        run=folder.path.name,
        model=str(_at(identity, "model", "name")),
        variant=_variant(identity),
        at=str(status.get("at", "")),
        note=_note(state, status, stale=stale),
    )


def _variant(identity: Mapping[str, Any]) -> str:
    keys = (("view", "universe"), ("view", "miner"), ("protocol", "purge"))
    dedup = str(_at(identity, "protocol", "dedup"))
    name = "/".join(str(_at(identity, *key)) for key in keys)
    return name if dedup in ("?", "none") else f"{name}+dedup={dedup}"


def _note(state: State, status: Mapping[str, Any], *, stale: bool) -> str:
    if stale:
        return "its process is gone; the same command continues it"
    if state == "running":
        return f"process {status.get('pid')}"
    if state == "missing":
        return "no status.json; the same command runs it"
    if state == "failed":
        lines = str(status.get("exception") or "status.json is damaged").splitlines()
        return lines[0][:_WIDEST]
    return ""


def _alive(pid: object) -> bool:
    """Whether a process of this machine has the number; another process may have got it since."""
    if not isinstance(pid, int) or pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True  # it exists and belongs to somebody else
    return True


def _mapping(path: Path) -> Mapping[str, Any]:
    """The JSON object in a file; empty where there is none."""
    try:
        content = read_json(path)
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _at(content: Any, *keys: str) -> Any:
    for key in keys:
        content = content.get(key, "?") if isinstance(content, dict) else "?"
    return content


if __name__ == "__main__":
    raise SystemExit(main())

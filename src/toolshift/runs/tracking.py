"""A copy of finished runs for an experiment tracker, made in a process of its own.

The tracker's threads, exit handlers, network and memory thus never touch the process that computes: whatever happens
in there costs one warning. Runs are whole before they are tracked; a run that could not be tracked is tracked by the
same command later. Tables never read from a tracker.
"""

from __future__ import annotations

import csv
import importlib.util
import json
import logging
import math
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from toolshift.runs.files import read_json, stable_hash, write_json
from toolshift.runs.locks import exclusive

log = logging.getLogger("toolshift")

FOLDER = "wandb"
# What one command may wait for the tracker: to start, and for each run.
START_S, RUN_S = 120.0, 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Tracking:
    """Where copies go. outputs: the folder that holds ``runs/``; files of the tracker lie in its ``wandb/``."""

    outputs: Path
    mode: str
    project: str
    entity: str | None
    group: str | None
    tags: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackedRun:
    """One run as a tracker sees it. key: equal for the same execution of the same run, hence safe to send twice."""

    key: str
    name: str
    config: Mapping[str, Any]
    summary: Mapping[str, Any]


def is_installed() -> bool:
    """Whether the tracker's package can be found; nothing of it is imported."""
    return importlib.util.find_spec("wandb") is not None


def track(
    folders: Sequence[Path], *, to: Tracking, tables: Sequence[Path] = (), patience_s: float | None = None
) -> int:
    """Hand finished runs to the tracker, each execution once; returns how many were taken now. Never raises.

    folders: run folders; one that is not whole is passed over. tables: paths of the tables they stand in.
    patience_s: after how long the tracker is ended; None: by the number of runs.
    """
    try:
        runs = [read_run(folder, tables=tables) for folder in folders if (folder / "run.json").is_file()]
        with exclusive(to.outputs / FOLDER / ".lock"):  # jobs of a sweep share runs
            new = [run for run in runs if not _note(to.outputs, run.key).exists()]
            if not new:
                return 0
            taken, problem = _in_own_process(new, to=to, patience_s=patience_s or START_S + RUN_S * len(new))
            for run in new:
                if run.key in taken:
                    write_json(_note(to.outputs, run.key), {"name": run.name, "mode": to.mode})
    except Exception as error:
        # Whatever it is: the runs are done, and a tracker is no reason to say otherwise.
        taken, new, problem = set[str](), [], f"{type(error).__name__}: {error}"
    if problem:
        missed = f"{len(new) - len(taken)} of {len(new)} runs" if new else "runs"
        log.warning("tracking: %s not recorded (%s); results are not affected", missed, problem)
    return len(taken)


def read_run(folder: Path, *, tables: Sequence[Path] = ()) -> TrackedRun:
    """What a tracker is told about a finished run: its resolved config, and numbers from its own files.

    The summary holds ``<measure>/<view>/<target>`` (mean over seeds), ``<measure>/<view>/mean`` over targets, time,
    memory and the tables' paths.
    """
    record, identity = read_json(folder / "run.json"), read_json(folder / "identity.json")
    kept = ("wall_s", "peak_rss_mb", "device", "world_size", "git", "fingerprints")
    summary = {key: record[key] for key in kept if key in record}
    summary |= {"run_folder": str(folder), "tables": [str(path) for path in tables]}
    variant = "/".join(str(value) for value in record["variant"].values())
    return TrackedRun(
        key=f"{folder.name}-{stable_hash(record)[:8]}",
        name=f"{record['model']} {variant}",
        config=identity,
        summary={**summary, **_metrics(folder / "metrics.csv")},
    )


def _metrics(path: Path) -> dict[str, float]:
    values: dict[tuple[str, str], dict[str, list[float]]] = {}
    with path.open(encoding="utf-8", newline="") as stream:
        for row in csv.DictReader(stream):
            if row["value"]:
                cell = values.setdefault((row["measure"], row["view"]), {})
                cell.setdefault(row["target"], []).append(float(row["value"]))
    found: dict[str, float] = {}
    for (measure, view), targets in sorted(values.items()):
        means = {target: math.fsum(v) / len(v) for target, v in sorted(targets.items())}
        found |= {f"{measure}/{view}/{target}": mean for target, mean in means.items()}
        found[f"{measure}/{view}/mean"] = math.fsum(means.values()) / len(means)
    return found


def _note(outputs: Path, key: str) -> Path:
    return outputs / FOLDER / "tracked" / f"{key}.json"


def _in_own_process(runs: Sequence[TrackedRun], *, to: Tracking, patience_s: float) -> tuple[set[str], str]:
    """(keys of the runs that were taken, what went wrong or nothing)."""
    request = to.outputs / FOLDER / f".request-{os.getpid()}.json"
    write_json(request, {"to": {**asdict(to), "outputs": str(to.outputs)}, "runs": [asdict(run) for run in runs]})
    command = [sys.executable, "-m", "toolshift.runs.tracking", str(request)]
    child = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
        env={"WANDB_CACHE_DIR": str(to.outputs.absolute() / FOLDER / "cache"), **os.environ, "WANDB_SILENT": "true"},
        start_new_session=True,
    )  # fmt: skip
    late = False
    try:
        out, err = child.communicate(timeout=patience_s)
    except subprocess.TimeoutExpired:
        late = True
        _end(child)
        out, err = child.communicate()
    finally:
        _end(child)  # also what it left behind, and also after Ctrl-C
        request.unlink(missing_ok=True)
    taken = {line.removeprefix(_TAKEN) for line in out.splitlines() if line.startswith(_TAKEN)}
    if late:
        return taken, f"it did not end within {patience_s:.0f} s"
    return taken, "" if len(taken) == len(runs) else _last_line(err) or f"exit status {child.returncode}"


_TAKEN = "taken "


def _end(child: subprocess.Popen[str]) -> None:
    """End the child and everything it started; they are a process group of their own."""
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""


def main(arguments: Sequence[str]) -> int:
    """The tracker's process: ``python -m toolshift.runs.tracking REQUEST.json``. Prints the key of each run taken."""
    request = json.loads(Path(arguments[0]).read_text(encoding="utf-8"))
    for run in request["runs"]:
        _send(run, to=request["to"])
        print(f"{_TAKEN}{run['key']}", flush=True)
    return 0


def _send(run: Mapping[str, Any], *, to: Mapping[str, Any]) -> None:
    import wandb

    live = wandb.init(
        dir=to["outputs"],
        mode=to["mode"],
        project=to["project"],
        entity=to["entity"],
        group=to["group"],
        tags=to["tags"],
        id=run["key"],
        name=run["name"],
        config=run["config"],
        # Console, code and what is known of the machine stay here: the run folder has what a number needs.
        settings=wandb.Settings(
            console="off",
            save_code=False,
            disable_git=True,
            x_disable_stats=True,
            x_disable_meta=True,
            x_disable_machine_info=True,
        ),
    )
    live.summary.update(run["summary"])
    live.finish()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

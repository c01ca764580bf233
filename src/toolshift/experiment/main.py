"""The entry behind ``scripts/train.py``: plan, skip what is done, run the rest, rebuild the table, say what was
written."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from toolshift.experiment.data import open_records
from toolshift.experiment.plan import PlannedRun, plan_runs
from toolshift.experiment.run import execute
from toolshift.experiment.tables import build_tables, done_runs
from toolshift.experiment.workspace import Workspace, build_encoder, limit_tasks
from toolshift.runs.environment import peak_rss_mb
from toolshift.settings.launch import Launch

log = logging.getLogger("toolshift")


def train(launch: Launch) -> int:
    """Run one experiment. Returns the exit status: 1 if a run failed."""
    start = time.monotonic()
    _log_to_stderr()
    settings = launch.settings
    encoder = build_encoder(settings)
    loaded = open_records(settings)
    report = loaded.records.report
    _say(
        f"{settings.dataset.name} ({settings.data.source}): {report.tasks} tasks, {report.capabilities} capabilities, "
        f"{report.endpoints} endpoints, {report.gold_pairs} gold pairs, {report.domains} domains; "
        f"{sum(report.dropped.values())} of {report.rows_read} rows dropped {report.dropped or ''}"
    )
    prints = {"records": loaded.fingerprint, "encoder": encoder.fingerprint}
    runs = plan_runs(settings, overridden_keys=launch.overridden_keys, fingerprints=prints)
    pending = [run for run in runs if run.folder.state != "done"]
    _say(f"{len(runs)} runs asked for, {len(runs) - len(pending)} already done, {len(pending)} to do")
    failed: list[PlannedRun] = []
    if pending:
        records = limit_tasks(loaded.records, settings.debug.max_tasks)
        workspace = Workspace(settings=settings, records=records, fingerprint=loaded.fingerprint, encoder=encoder)
        failed = execute(pending, workspace, command=launch.command)
    code = _report(runs, failed, outputs=Path(settings.paths.outputs), launch=launch)
    _say(f"{time.monotonic() - start:.1f} s, peak memory {peak_rss_mb():.0f} MiB")
    return code


def _report(runs: Sequence[PlannedRun], failed: Sequence[PlannedRun], *, outputs: Path, launch: Launch) -> int:
    for run in failed:
        print(f"failed: {run.model.name} in {run.folder.path}; see status.json there", file=sys.stderr)
    done = done_runs(outputs, launch.settings.name, family=runs[0].family)
    if not any(run.model == launch.settings.reference for run in done):
        print("no table: the reference has no finished run", file=sys.stderr)
        return 1
    written = build_tables(launch.settings, done)
    print(written.markdown)
    _say("wrote " + ", ".join(str(p) for p in written.paths))
    _say("runs in " + str(runs[0].folder.path.parent))
    return 1 if failed else 0


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _log_to_stderr() -> None:
    logger = logging.getLogger("toolshift")
    if not logger.handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
        logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False

"""The entry behind ``scripts/train.py``: plan, skip what is done, run the rest, rebuild the table, say what was
written."""

from __future__ import annotations

import logging
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from toolshift.data.store import LoadedRecords
from toolshift.experiment.data import open_records, refuse_unscorable
from toolshift.experiment.export import export_trec
from toolshift.experiment.families import table_runs
from toolshift.experiment.fit import build
from toolshift.experiment.plan import PlannedRun, plan_runs, variant_name
from toolshift.experiment.resume import made_by_this_code
from toolshift.experiment.run import assist, execute, is_hole
from toolshift.experiment.tables import build_tables, done_runs
from toolshift.experiment.workspace import Workspace, build_encoder, limit_tasks
from toolshift.runs.devices import claim
from toolshift.runs.environment import peak_rss_mb
from toolshift.runs.files import read_json
from toolshift.runs.locks import exclusive
from toolshift.runs.log import CONSOLE
from toolshift.runs.ranks import Crew, adapt, join
from toolshift.runs.tracking import Tracking, is_installed, track
from toolshift.settings.compose import difference_from_defaults
from toolshift.settings.errors import UserError
from toolshift.settings.launch import Launch
from toolshift.settings.options import load_table_spec
from toolshift.settings.schema import Settings
from toolshift.text.encoder import Encoder

log = logging.getLogger("toolshift")

_ESCAPED = re.compile(r"\\([\\`*_|<>])")
_CELL = re.compile(r"(?:\\.|[^|\\])*\|")


def train(launch: Launch) -> int:
    """Run one experiment. Returns the exit status: 1 if a run failed.

    Under torchrun every process calls this: rank 0 does all that is said here, the others compute units for it.
    """
    start = time.monotonic()
    settings = launch.settings
    with join(Path(settings.paths.outputs)) as crew:
        log_to_stderr(rank=crew.world.rank)
        adapt(crew.world, device=settings.runtime.device)
        claim(settings.runtime.device, job=launch.job)
        if not crew.is_writer:
            return _assist(launch, crew)
        runs, failed = _run(launch, crew)
    if settings.evaluation.export_trec:
        _export([run for run in runs if run.is_done])
    code = _report(runs, failed, outputs=Path(settings.paths.outputs), launch=launch)
    say(f"{time.monotonic() - start:.1f} s, peak memory {peak_rss_mb():.0f} MiB")
    return code


def _run(launch: Launch, crew: Crew) -> tuple[list[PlannedRun], list[PlannedRun]]:
    """(all runs of the command, those that failed now), after doing what is missing."""
    settings = launch.settings
    load_table_spec(settings.name)  # an experiment without a table is refused before its runs, not after them
    for line in changes(settings):
        say(line)
    runs, loaded, encoder = _plan(launch)
    say(describe(loaded, source=settings.data.source))
    pending = [run for run in runs if not run.is_done]
    say(f"{len(runs)} runs asked for, {len(runs) - len(pending)} already done, {len(pending)} to do")
    stale = [run for run in runs if run.is_done and not made_by_this_code(run.folder.path, run.model.target)]
    if stale:
        where = stale[0].folder.path.parent
        say(f"  {len(stale)} of the finished runs were made by other code; delete {where} to redo them")
    if not pending:
        return runs, []
    _build_all(pending)
    workspace = _workspace(loaded, encoder=encoder, settings=settings)
    # Jobs of a sweep share runs, the reference above all: one computes them, the others wait.
    return runs, execute(pending, workspace, command=launch.command, crew=crew, wait=launch.job is not None)


def _build_all(plans: Sequence[PlannedRun]) -> None:
    """Build every model once before any work: what a row lacks (a key, a model's folder) is said now, and where all
    rows lack it the command stops.

    Raises:
        UserError: if no row but the reference can be run.
    """
    holes: dict[str, Exception] = {}
    for plan in plans:
        try:
            build(plan)
        except Exception as error:  # anything but a hole fails its own run, with its trace
            if is_hole(error):
                holes[plan.model.name] = error
    asked = {plan.model.name for plan in plans} - {plans[0].settings.reference}
    for name, error in holes.items():
        say(f"{name}: will not be run: {error}")
    if holes and asked <= set(holes):
        raise UserError("none of the rows asked for can be run")


def execute_missing(
    settings: Settings, *, overridden_keys: Sequence[str], command: str
) -> tuple[list[PlannedRun], list[PlannedRun]]:
    """(all runs of ``settings``, those that failed now), after doing what is missing; no table is written."""
    launch = Launch(settings=settings, overrides=(), overridden_keys=tuple(overridden_keys), command=command)
    runs, loaded, encoder = _plan(launch)
    pending = [run for run in runs if not run.is_done]
    if not pending:
        return runs, []
    return runs, execute(pending, _workspace(loaded, encoder=encoder, settings=settings), command=command)


def _assist(launch: Launch, crew: Crew) -> int:
    """Compute units for rank 0, which makes records and embeddings and writes every table."""
    if crew.wait("variant-0") is not None:
        runs, loaded, encoder = _plan(launch)
        assist(runs, _workspace(loaded, encoder=encoder, settings=launch.settings), crew=crew)
    return 0


def _plan(launch: Launch) -> tuple[list[PlannedRun], LoadedRecords, Encoder]:
    if launch.settings.dataset.name == "all":
        raise UserError("dataset=all is for scripts/prepare.py; an experiment over several names protocol.datasets=A+B")
    encoder = build_encoder(launch.settings)
    loaded = open_records(launch.settings)
    refuse_unscorable(loaded)
    prints = {"records": loaded.fingerprint, "encoder": encoder.fingerprint}
    runs = plan_runs(launch.settings, overridden_keys=launch.overridden_keys, fingerprints=prints)
    return runs, loaded, encoder


def _workspace(loaded: LoadedRecords, *, encoder: Encoder, settings: Settings) -> Workspace:
    records = limit_tasks(loaded.records, settings.debug.max_tasks)
    return Workspace(settings=settings, records=records, fingerprint=loaded.fingerprint, encoder=encoder)


def changes(settings: Settings) -> list[str]:
    """What differs from the defaults, a line a key; of an exchanged option only its name."""
    found = difference_from_defaults(settings)
    exchanged = {d.key.removesuffix("name") for d in found if d.key.endswith(".name")}
    shown = [d for d in found if d.key.endswith(".name") or not any(map(d.key.startswith, exchanged))]
    return ["changed from the defaults:", *(f"  {d}" for d in shown)] if shown else []


def describe(loaded: LoadedRecords, *, source: str) -> str:
    """One line: what the records hold and what was dropped on the way."""
    report = loaded.records.report
    return (
        f"{loaded.records.dataset} ({source}): {report.tasks} tasks, {report.capabilities} capabilities, "
        f"{report.endpoints} endpoints, {report.gold_pairs} gold pairs, {report.domains} domains; "
        f"{sum(report.dropped.values())} of {report.rows_read} rows dropped {report.dropped or ''}"
    ).rstrip()


def for_terminal(markdown: str) -> str:
    """Markdown as a person reads it in a terminal: no backslash escapes, columns still aligned."""
    lines = markdown.split("\n")
    return "\n".join(_CELL.sub(_plain_cell, x) if x.startswith("|") else _ESCAPED.sub(r"\1", x) for x in lines)


def _plain_cell(cell: re.Match[str]) -> str:
    text, count = _ESCAPED.subn(r"\1", cell[0][:-1])
    return text + " " * count + "|"


def _export(runs: Sequence[PlannedRun]) -> None:
    written = [export_trec(run.folder.path) for run in runs]
    say(f"TREC files of {len(runs)} runs, {sum(map(bool, written))} written now, in <run>/trec")


def _report(runs: Sequence[PlannedRun], failed: Sequence[PlannedRun], *, outputs: Path, launch: Launch) -> int:
    for run in failed:
        say(f"failed: {run.model.name} ({variant_name(run.settings)}): {_exception(run)}; see {run.folder.path}")
    with exclusive(outputs / "tables" / ".lock"):
        # From the list of runs to the last file: of jobs that end together, the last one then writes all their rows.
        done = table_runs(done_runs(outputs, launch.settings.name, family=runs[0].family), launch.settings)
        if not any(run.model == launch.settings.reference for run in done):
            say("no table: the reference has no finished run")
            return 1
        written = build_tables(launch.settings, done, fixed=launch.overridden_keys, reuse=True)
    track_runs(launch.settings, runs, tables=written.paths)
    print(for_terminal(written.markdown))
    say("wrote " + ", ".join(str(p) for p in written.paths))
    say("runs in " + str(runs[0].folder.path.parent))
    return 1 if failed else 0


def track_runs(settings: Settings, runs: Sequence[PlannedRun], *, tables: Sequence[Path]) -> None:
    """Hand the finished runs to the experiment tracker, if one is asked for."""
    tracking = settings.tracking
    if tracking.name == "none":
        return
    if not is_installed():
        log.warning("tracking=wandb: wandb is not installed (extra `tracking`); nothing is tracked")
        return
    to = Tracking(
        outputs=Path(settings.paths.outputs),
        mode=tracking.mode,
        project=tracking.project,
        entity=tracking.entity,
        group=tracking.group,
        tags=tracking.tags,
    )
    taken = track([run.folder.path for run in runs if run.is_done], to=to, tables=tables)
    say(f"{taken} runs tracked ({tracking.mode}), files in {to.outputs / 'wandb'}")


def _exception(run: PlannedRun) -> str:
    return str(read_json(run.folder.path / "status.json").get("exception", "no reason recorded"))


def say(line: str) -> None:
    """A line for the person who waits, apart from the result on standard output."""
    print(line, file=sys.stderr, flush=True)
    logging.getLogger(CONSOLE).info("%s", line)


class _StandardError(logging.Handler):
    """Writes to the standard error of the moment, which may be another one in the next call of this process."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.name != CONSOLE:
            print(self.format(record), file=sys.stderr, flush=True)


def log_to_stderr(*, rank: int = 0) -> None:
    """Show the package's log, once however often it is called; lines of a rank above 0 name it."""
    logger = logging.getLogger("toolshift")
    if not any(isinstance(handler, _StandardError) for handler in logger.handlers):
        handler = _StandardError()
        label = f"[rank {rank}] " if rank else ""
        handler.setFormatter(logging.Formatter(f"%(asctime)s {label}%(message)s", "%H:%M:%S"))
        logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False

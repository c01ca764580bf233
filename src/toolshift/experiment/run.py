"""Execute planned runs: fit per target, score every pair once, write what the architecture promises."""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import count, groupby, product
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from toolshift.evaluation.activity import stage_changes, write_stage_changes
from toolshift.evaluation.artefacts import artefact_rows
from toolshift.evaluation.per_task import (
    LIST_SLICES,
    ViewLists,
    distinct_pairs,
    in_slice,
    per_task_values,
    positions,
)
from toolshift.evaluation.seal import open_target
from toolshift.experiment.cost import announce
from toolshift.experiment.fit import Fit, build, fits
from toolshift.experiment.plan import PlannedRun, variant_name
from toolshift.experiment.resume import code_fingerprint, prepare_folder, stored_scores
from toolshift.experiment.units import Outcome, Unit, UnitFailed, Units
from toolshift.experiment.workspace import Variant, Workspace
from toolshift.models.base import Source
from toolshift.models.features import Pairs
from toolshift.models.steps import Stepwise
from toolshift.protocols.leakage import Leakage
from toolshift.runs.environment import environment, peak_rss_mb
from toolshift.runs.files import folder_name, sha256_file, stable_hash, write_json, write_text
from toolshift.runs.ledger import RunBusy
from toolshift.runs.log import about
from toolshift.runs.ranks import Crew, RankError
from toolshift.selection.records import summarise_selection, write_selection
from toolshift.views.corpus import Corpus
from toolshift.views.manifest import manifest_table, pair_columns, write_table

log = logging.getLogger("toolshift")

PER_TASK_COLUMNS = ("protocol", "target", "view", "task_id", "model", "seed", "n_candidates", "n_gold", "tied")


class NonFiniteScore(ValueError):
    """A model returned NaN or infinity."""

    user_facing = True


@dataclass(kw_only=True)
class ActiveRun:
    """A planned run while it is being executed; ``scores``: seed -> (p,) over all distinct pairs of the variant.

    data: fingerprint of lists, records and encoder. resumable: whether scores that lie in the folder may be read back.
    reused: targets for which they were.
    """

    plan: PlannedRun
    scores: Mapping[int, NDArray[np.float64]]
    data: str = ""
    resumable: bool = False
    reused: int = 0
    started: float = field(default_factory=time.monotonic)
    error: Exception | None = None

    @property
    def name(self) -> str:
        """Name of the run's folder."""
        return self.plan.folder.path.name


@dataclass(frozen=True, kw_only=True)
class Board:
    """What is scored in one variant: the distinct pairs over all targets and views, and where lists find them.

    place: per view (N,) positions of the candidates among the pairs. target: (p,) position of each pair's target.
    """

    variant: Variant
    corpus: Corpus
    pairs: Pairs
    target: NDArray[np.int64]
    place: tuple[NDArray[np.int64], ...]

    @staticmethod
    def of(variant: Variant, corpus: Corpus) -> Board:
        """Collect the pairs of all lists."""
        pairs = distinct_pairs(variant.lists, corpus)
        target = np.zeros(corpus.n_tasks, np.int64)
        for one in variant.lists:
            target[one.manifest.tasks] = one.target
        place = tuple(positions(one.manifest, pairs, corpus) for one in variant.lists)
        return Board(variant=variant, corpus=corpus, pairs=pairs, target=target[pairs.task], place=place)

    def columns(self, target: int) -> tuple[pa.Table, NDArray[np.int64]]:
        """(view, task_id, capability_id) rows of a target's lists, and the position of each row among the pairs."""
        tables, places = [], []
        for one, place in zip(self.variant.lists, self.place, strict=True):
            rows = np.repeat(one.target == target, one.manifest.lengths)
            table = pair_columns(self.corpus, task=one.manifest.task_of[rows], capability=one.manifest.capability[rows])
            tables.append(table.add_column(0, "view", pa.array([one.manifest.view] * table.num_rows, pa.string())))
            places.append(place[rows])
        return pa.concat_tables(tables), np.concatenate(places)


@dataclass(frozen=True, kw_only=True)
class Place:
    """What the runs have in common on one target. here: (q,) positions of its pairs. columns: see `Board.columns`."""

    source: Source
    here: NDArray[np.int64]
    columns: tuple[pa.Table, NDArray[np.int64]]


def execute(
    runs: Sequence[PlannedRun], workspace: Workspace, *, command: str, crew: Crew | None = None, wait: bool = False
) -> list[PlannedRun]:
    """Execute runs variant by variant and return those that failed.

    A failing model does not end the others unless ``runtime.on_error`` is ``stop``. crew: the processes of the launch,
    of which this one is the writer; the others call `assist`. wait: leave a run that another launch works on to the
    end, then wait for it.

    Raises:
        RunBusy: if another launch works in one of the run folders, unless ``wait`` is true.
    """
    crew, number = crew or Crew(), count()
    failed: list[PlannedRun] = []

    def work(group: Sequence[PlannedRun], *, leave_busy: bool) -> list[PlannedRun]:
        with ExitStack() as locks:
            # By name: launches that wait for each other's runs never do so in a circle.
            order = sorted(group, key=lambda plan: plan.folder.path)
            busy = {plan.folder for plan in order if not _hold(plan, locks, wait=wait, leave_busy=leave_busy)}
            # Another process may have finished some of them since the command was planned.
            pending = [plan for plan in group if plan.folder not in busy and not plan.is_done]
            if pending:
                name = _note_of(next(number))
                failed.extend(_execute_variant(pending, workspace, command=command, crew=crew, name=name))
        return [plan for plan in group if plan.folder in busy]

    groups = [list(group) for _, group in groupby(runs, key=_variant_key)]
    later = [work(group, leave_busy=wait) for group in groups]
    if any(later):
        log.info("waiting for %d runs that another process is computing", sum(map(len, later)))
    for group in filter(None, later):
        work(group, leave_busy=False)
    return failed


def _hold(plan: PlannedRun, locks: ExitStack, *, wait: bool, leave_busy: bool) -> bool:
    """Lock the folder of a run; false if another process has it and it is to be left to that one for now."""
    try:
        locks.enter_context(plan.folder.lock(wait=wait and not leave_busy))
    except RunBusy:
        if leave_busy:
            return False
        raise
    return True


def assist(runs: Sequence[PlannedRun], workspace: Workspace, *, crew: Crew) -> None:
    """Compute units of the variants that the writer announces, until it ends the launch.

    Raises:
        RankError: if the writer announces a run that is not among ``runs``.
    """
    known = {plan.folder.path.name: plan for plan in runs}
    for number in count():
        name = _note_of(number)
        note = crew.wait(name)
        if note is None:
            return
        if not note or crew.read(f"{name}/closed") is not None:
            continue  # the others were done before this process could help
        if not set(note) <= set(known):
            raise RankError(
                f"rank {crew.world.rank}: the processes read different data or settings; run the command again"
            )
        plans = [known[run] for run in note]
        variant = workspace.variant(plans[0].settings)
        board = Board.of(variant, workspace.corpus)
        active = [_begun(plan, size=len(board.pairs), **note[plan.folder.path.name]) for plan in plans]
        _share_out(active, board, workspace, crew=crew, name=name)


def _execute_variant(
    plans: Sequence[PlannedRun], workspace: Workspace, *, command: str, crew: Crew, name: str
) -> list[PlannedRun]:
    variant = workspace.variant(plans[0].settings)
    board = Board.of(variant, workspace.corpus)
    active = [_begin(plan, size=len(board.pairs)) for plan in plans]
    _write_inputs(active, variant, workspace)
    working = [run for run in active if run.error is None]
    _say_cost(working, board, workspace, processes=crew.world.size)
    crew.post(name, {run.name: {"data": run.data, "resumable": run.resumable} for run in working})
    if working:
        _share_out(working, board, workspace, crew=crew, name=name)
    for run in working:
        if run.error is None:
            _close(run, board, workspace, command=command, world_size=crew.world.size)
    return [run.plan for run in active if run.error is not None and not is_hole(run.error)]


def is_hole(error: Exception) -> bool:
    """Whether a row could not be run for want of something outside, a language model say: a hole in the table, which is
    printed as `not run`, and no failure."""
    return bool(getattr(error, "not_run", False))


def _say_cost(active: Sequence[ActiveRun], board: Board, workspace: Workspace, *, processes: int) -> None:
    """Before a long run: how many fits, and about how long."""
    if not any(run.plan.model.grid for run in active):
        return
    targets = np.unique(board.target)
    source = source_of_target(board.variant.folds.targets[targets[0]], board.variant, workspace)
    for cost in announce([run.plan for run in active], source, targets=targets.size, bank=workspace.bank):
        log.info("cost of %s", cost.line(processes=processes))
    source.forget()


def _share_out(active: Sequence[ActiveRun], board: Board, workspace: Workspace, *, crew: Crew, name: str) -> None:
    """Compute the units of a variant together with the other processes; the writer then has the scores of all."""
    runs, settings = {run.name: run for run in active}, active[0].plan.settings
    targets, stop = np.unique(board.target).tolist(), settings.runtime.on_error == "stop"
    units = Units(crew=crew, name=name, runs=tuple(runs), targets=targets, stop=stop)

    held: dict[int, Place] = {}

    def place(number: int) -> Place:
        """That of one target at a time."""
        if number not in held:
            for before in held.values():
                before.source.forget()
            held.clear()
            source = source_of_target(board.variant.folds.targets[number], board.variant, workspace)
            here = np.flatnonzero(board.target == number)
            held[number] = Place(source=source, here=here, columns=board.columns(number))
        return held[number]

    def attempt(unit: Unit) -> Outcome:
        run, rank, target = runs[unit.run], crew.world.rank, board.variant.folds.targets[unit.target]
        try:
            with about(run=run.name, model=run.plan.model.name, target=target):
                reused = _attempt(run, place(unit.target), board=board, workspace=workspace)
            run.reused += reused
        except Exception as error:
            where = f"failed on {target}"
            if crew.is_writer:
                _fail(run, error, where=where)
            return Outcome(rank=rank, error=f"{type(error).__name__}: {error}", trace=traceback.format_exc())
        return Outcome(rank=rank, reused=reused)

    units.work(attempt, what=_variant_key(active[0].plan))
    if crew.is_writer and crew.world.size > 1:
        crew.post(f"{name}/closed", {})
        log.info("%s: units per rank %s", _variant_key(active[0].plan), units.shares())
        for unit in units:
            _collect(runs[unit.run], units.outcome(unit), place(unit.target), board=board, workspace=workspace)


def _collect(run: ActiveRun, outcome: Outcome | None, place: Place, *, board: Board, workspace: Workspace) -> None:
    """Take over what another process left: scores as an interrupted run leaves them, or a failure."""
    if run.error is not None or outcome is None or outcome.rank == 0:
        return
    target = place.source.target
    if outcome.error:
        where = f"failed on {target} (rank {outcome.rank})"
        _fail(run, UnitFailed(outcome.error), where=where, trace=outcome.trace)
        return
    try:
        if not _restore(run, target, columns=place.columns):
            log.warning("%s: what rank %d left of %s does not read back", run.plan.model.name, outcome.rank, target)
            _attempt(run, place, board=board, workspace=workspace)
        run.reused += outcome.reused
    except Exception as error:
        _fail(run, error, where=f"failed on {target}")


def _variant_key(plan: PlannedRun) -> str:
    return variant_name(plan.settings)


def _note_of(number: int) -> str:
    return f"variant-{number}"


def _begin(plan: PlannedRun, *, size: int) -> ActiveRun:
    from omegaconf import OmegaConf

    plan.folder.begin(identity=plan.identity, config_yaml=OmegaConf.to_yaml(OmegaConf.create(dict(plan.identity))))
    run = _begun(plan, size=size)
    try:
        run.resumable = prepare_folder(plan.folder.path, code=code_fingerprint(plan.model.target))
        build(plan)  # parameters that the model refuses are found before the first target
    except Exception as error:
        _fail(run, error, where="could not be built")
    return run


def _begun(plan: PlannedRun, *, size: int, data: str = "", resumable: bool = False) -> ActiveRun:
    scores = {seed: np.full(size, np.nan) for seed in plan.seeds}
    return ActiveRun(plan=plan, scores=scores, data=data, resumable=resumable)


def _fail(run: ActiveRun, error: Exception, *, where: str, trace: str = "") -> None:
    """Record an error: it ends this run, and all of them only if asked to."""
    run.error = error
    if is_hole(error):
        run.plan.folder.fail(error, trace="")
        log.warning("%s: not run: %s", run.plan.model.name, error)
        return
    trace = trace or traceback.format_exc()
    run.plan.folder.fail(error, trace=trace)
    with about(run=run.name, model=run.plan.model.name, exception=trace):
        log.error("%s %s: %s: %s", run.plan.model.name, where, type(error).__name__, error)
    if run.plan.settings.runtime.on_error == "stop":
        raise error


def source_of_target(target: str, variant: Variant, workspace: Workspace) -> Source:
    """The sources of one target: labels of its train tasks alone, lists rebuilt from them when asked for."""
    rows = variant.folds.rows(target, role="train")
    context_of = np.full(workspace.corpus.n_tasks, -1, np.int64)
    context_of[rows] = variant.folds.contexts[rows]
    names = tuple(variant.folds.context_names[c] for c in np.unique(context_of[rows]) if c >= 0)
    return Source(
        target=target,
        held_out=variant.folds.held_out_contexts(target),
        fold=workspace.fold(variant.settings, workspace.labels.only(rows)),
        contexts=names,
        context_names=variant.folds.context_names,
        context_of=context_of,
        build=lambda fold: workspace.manifests(variant.settings, fold),
    )


def _attempt(run: ActiveRun, place: Place, *, board: Board, workspace: Workspace) -> bool:
    """Fit and score one model on one target, unless an interrupted run left its scores: then true."""
    if run.resumable and _restore(run, place.source.target, columns=place.columns):
        return True
    for fit in fits(run.plan, place.source, bank=workspace.bank):
        pairs = board.pairs.take(place.here)
        scores = np.asarray(fit.scorer.score(pairs, bank=workspace.bank, seed=fit.seed), np.float64)
        _check_scores(scores, place.here.size, target=place.source.target, seed=fit.seed)
        run.scores[fit.seed][place.here] = scores
        # Before the scores: where they lie, nothing else of the target is made again.
        _write_stages(run, fit, pairs, place=place, workspace=workspace)
        _write_target(run, place.source.target, fit, columns=place.columns)
    return False


def _write_stages(run: ActiveRun, fit: Fit, pairs: Pairs, *, place: Place, workspace: Workspace) -> None:
    """Leave how much every stage changes the target's lists, for a model that has stages."""
    if not isinstance(fit.scorer, Stepwise):
        return
    (rows, at), target = place.columns, place.source.target
    steps = fit.scorer.steps(pairs, bank=workspace.bank)
    scores = run.scores[fit.seed][place.here]
    found = stage_changes(rows, np.searchsorted(place.here, at), scores=scores, steps=steps)
    write_stage_changes(run.plan.folder.path, found, target=target, seed=fit.seed)


def _restore(run: ActiveRun, target: str, *, columns: tuple[pa.Table, NDArray[np.int64]]) -> bool:
    """Take over the stored scores of a target, of every seed or of none."""
    rows, place = columns
    stored = stored_scores(run.plan.folder.path, target, seeds=run.plan.seeds, rows=rows, place=place, data=run.data)
    if stored is None:
        return False
    for seed, (at, scores) in stored.items():
        run.scores[seed][at] = scores
    return True


def _check_scores(scores: NDArray[np.float64], size: int, *, target: str, seed: int) -> None:
    if scores.shape != (size,):
        raise NonFiniteScore(f"target {target}, seed {seed}: {scores.shape} scores for {size} pairs")
    bad = int((~np.isfinite(scores)).sum())
    if bad:
        raise NonFiniteScore(f"target {target}, seed {seed}: {bad} of {size} scores are not finite")


def _write_target(run: ActiveRun, target: str, fit: Fit, *, columns: tuple[pa.Table, NDArray[np.int64]]) -> None:
    """Checkpoint, selection record and the published predictions (view, task_id, capability_id, score) of a target."""
    path, (table, place) = run.plan.folder.path, columns
    write_selection(path, fit.scorer, target=target, seed=fit.seed, choice=fit.choice, data=run.data)
    scored = table.append_column("score", pa.array(run.scores[fit.seed][place]))
    write_table(path / "scores" / folder_name(target) / f"seed={fit.seed}.parquet", scored)


def _values(run: ActiveRun, board: Board, workspace: Workspace, *, slices: Sequence[str]) -> pd.DataFrame | None:
    """Per-task values over all views and seeds, of the whole lists (``slices`` empty) or of list-level slices."""
    frames = []
    for one, place in zip(board.variant.lists, board.place, strict=True):
        for name in slices or ("",):
            inside = in_slice(one, name) if name else np.ones(place.size, bool)
            kept = one.keep(inside) if name else one
            if not kept.manifest.tasks.size:
                continue
            at = place[inside & np.repeat(np.isin(one.manifest.tasks, kept.manifest.tasks), one.manifest.lengths)]
            for seed, scores in run.scores.items():
                frame = _frame(kept, scores[at], plan=run.plan, seed=seed, workspace=workspace)
                frames.append(frame.assign(slice=name) if name else frame)
    return _sorted(frames) if frames else None


def _wanted_slices(plan: PlannedRun) -> list[str]:
    wanted = plan.settings.evaluation.slices
    return [name for name in LIST_SLICES if name.split("=")[0] in wanted]


def _frame(
    lists: ViewLists, scores: NDArray[np.float64], *, plan: PlannedRun, seed: int, workspace: Workspace
) -> pd.DataFrame:
    evaluation, flags = plan.settings.evaluation, workspace.flags
    frame = per_task_values(lists, scores, corpus=workspace.corpus, measures=evaluation.measures, ties=evaluation.ties)
    rows = frame.pop("task_row").to_numpy()
    frame = frame.assign(
        protocol=plan.settings.protocol.name,
        model=plan.model.name,
        seed=seed,
        name_free=flags.name_free[rows],
        no_partial_schema=flags.no_partial_schema[rows],
    )
    measured = list(evaluation.measures)
    if "MRR" in measured and "RR" not in measured:
        # The name that the value of a single task has in the published file; tables read the measure's own name.
        frame["RR"] = frame["MRR"]
        measured.insert(0, "RR")
    return frame.loc[:, [*PER_TASK_COLUMNS, *measured, "scored", "name_free", "no_partial_schema"]]


def _write_inputs(active: Sequence[ActiveRun], variant: Variant, workspace: Workspace) -> None:
    """Leave the frozen lists, the fold table and the artefact statistics in every run folder."""
    for name, manifest in variant.manifests.items():
        table = manifest_table(manifest, workspace.corpus, suspects=variant.suspects[name])
        for run in active:
            write_table(run.plan.folder.path / "manifests" / f"{name}.parquet", table)
    folds = variant.folds.table(workspace.corpus)
    for run in active:
        write_table(run.plan.folder.path / "folds.parquet", folds)
    bank = workspace.bank
    rows = artefact_rows(
        variant.lists,
        workspace.corpus,
        folds=variant.folds,
        fold=variant.fold,
        flags=workspace.flags,
        leakage=Leakage(
            workspace.corpus,
            bank.task_vectors,
            bank.capability_vectors,
            at_least=variant.settings.protocol.near_cosine,
        ),
    )
    for run in active:
        path = run.plan.folder.path
        write_text(path / "artefacts.csv", rows.to_csv(index=False, lineterminator="\n"))
        lists = {name: sha256_file(path / "manifests" / f"{name}.parquet") for name in sorted(variant.manifests)}
        # The device too: mixed precision is not the same to the last digit, and one run must not be made of both.
        device = run.plan.settings.runtime.device
        run.data = stable_hash([run.plan.identity["fingerprints"], lists, sha256_file(path / "folds.parquet"), device])


def _close(run: ActiveRun, board: Board, workspace: Workspace, *, command: str, world_size: int) -> None:
    """Write the collected values and mark the run as done."""
    if run.reused:
        log.info("%s: scores of %d targets reused from an interrupted run", run.plan.model.name, run.reused)
    try:
        _write_results(run, board, workspace, command=command, world_size=world_size)
    except Exception as error:
        _fail(run, error, where="failed while its results were written")


def _write_results(run: ActiveRun, board: Board, workspace: Workspace, *, command: str, world_size: int) -> None:
    path, plan = run.plan.folder.path, run.plan
    for number in np.unique(board.target):
        for seed in plan.seeds:
            target = board.variant.folds.targets[number]
            held_out = board.variant.folds.held_out_contexts(target)
            open_target(path, target, seed=seed, data=run.data, held_out=held_out)
    per_task = _values(run, board, workspace, slices=())
    assert per_task is not None  # a variant without any list was refused before
    write_table(path / "per_task.parquet", pa.Table.from_pandas(per_task, preserve_index=False))
    wanted = _wanted_slices(plan)
    sliced = _values(run, board, workspace, slices=wanted) if wanted else None
    if sliced is not None:
        write_table(path / "per_task_slices.parquet", pa.Table.from_pandas(sliced, preserve_index=False))
    cells = product(board.variant.folds.targets, plan.settings.view.views)
    metrics = metric_rows(per_task, measures=plan.settings.evaluation.measures, cells=list(cells))
    write_text(path / "metrics.csv", metrics.to_csv(index=False, lineterminator="\n"))
    write_json(path / "run.json", _run_record(run, board, workspace, command=command, world_size=world_size))
    plan.folder.finish()


def _sorted(frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    keys = [k for k in ("slice", "target", "view", "seed", "task_id") if k in frames[0].columns]
    return pd.concat(frames, ignore_index=True).sort_values(keys, kind="stable", ignore_index=True)


def metric_rows(per_task: pd.DataFrame, *, measures: Sequence[str], cells: Sequence[tuple[str, str]]) -> pd.DataFrame:
    """metrics.csv: task mean of every (target, view, seed) cell; ``value`` is empty where the cell is not scored.

    cells: the (target, view) pairs that must have a row; one without a task gets ``n_tasks`` 0 and is not scored.
    """
    keys = ["protocol", "target", "view", "model", "seed"]
    groups = per_task.groupby(keys, sort=True)
    found = groups.agg(n_tasks=("task_id", "size"), scored=("scored", "first"), **{m: (m, "mean") for m in measures})
    once = {name: sorted(set(per_task[name])) for name in ("protocol", "model", "seed")}
    every = [(p, t, v, m, s) for p, m, s in product(*once.values()) for t, v in cells]
    whole = found.reindex(pd.MultiIndex.from_tuples(sorted(every), names=keys)).reset_index()
    whole["n_tasks"], whole["scored"] = whole["n_tasks"].fillna(0).astype(int), whole["scored"].eq(True)
    rows = whole.melt(id_vars=[*keys, "n_tasks", "scored"], value_vars=list(measures), var_name="measure")
    rows["value"] = rows["value"].where(rows["scored"])
    rows = rows.sort_values(keys, kind="stable", ignore_index=True)
    return rows.loc[:, [*keys, "measure", "value", "n_tasks", "scored"]]


def _run_record(
    run: ActiveRun, board: Board, workspace: Workspace, *, command: str, world_size: int
) -> Mapping[str, Any]:
    path, variant = run.plan.folder.path, board.variant
    scored = [variant.folds.targets[number] for number in np.unique(board.target)]
    selection = summarise_selection(path, targets=scored, seeds=run.plan.seeds)
    return {
        **environment(command=command),
        "model": run.plan.model.name,
        "family": run.plan.family,
        "variant": {
            "universe": variant.settings.view.universe,
            "miner": variant.settings.view.miner,
            "purge": variant.settings.protocol.cut,
        },
        "data": variant.settings.data.source,
        "seeds": list(run.plan.seeds),
        "targets_reused": run.reused,
        "fingerprints": dict(run.plan.identity["fingerprints"]),
        "manifests": {p.stem: sha256_file(p) for p in sorted((path / "manifests").glob("*.parquet"))},
        "folds": sha256_file(path / "folds.parquet"),
        "not_converged": selection.not_converged,
        "selected": dict(selection.selected),
        "skipped": {view: dict(m.skipped) for view, m in variant.manifests.items()},
        "cache": {"folder": workspace.cache.folder.name},
        "device": run.plan.settings.runtime.device,
        "world_size": world_size,
        "wall_s": round(time.monotonic() - run.started, 3),
        "peak_rss_mb": peak_rss_mb(),
    }

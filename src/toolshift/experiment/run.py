"""Execute planned runs: fit per target, score every pair once, write what the architecture promises."""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

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
from toolshift.experiment.fit import Fit, build, fits
from toolshift.experiment.plan import PlannedRun, variant_name
from toolshift.experiment.resume import code_fingerprint, prepare_folder, stored_scores
from toolshift.experiment.workspace import Variant, Workspace
from toolshift.models.base import Source
from toolshift.models.features import Pairs
from toolshift.runs.environment import environment, peak_rss_mb
from toolshift.runs.files import sha256_file, stable_hash, write_json, write_text
from toolshift.runs.progress import track
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


def execute(runs: Sequence[PlannedRun], workspace: Workspace, *, command: str) -> list[PlannedRun]:
    """Execute runs variant by variant and return those that failed.

    A failing model does not end the others unless ``runtime.on_error`` is ``stop``.

    Raises:
        RunBusy: if another process works in one of the run folders.
    """
    failed: list[PlannedRun] = []
    for _, group in groupby(runs, key=_variant_key):
        with ExitStack() as locks:
            plans = list(group)
            for plan in plans:
                locks.enter_context(plan.folder.lock())
            # Another process may have finished some of them since the command was planned.
            pending = [plan for plan in plans if not plan.is_done]
            if pending:
                failed += _execute_variant(pending, workspace, command=command)
    return failed


def _execute_variant(plans: Sequence[PlannedRun], workspace: Workspace, *, command: str) -> list[PlannedRun]:
    variant = workspace.variant(plans[0].settings)
    board = Board.of(variant, workspace.corpus)
    active = [_begin(plan, size=len(board.pairs)) for plan in plans]
    _write_inputs(active, variant, workspace)
    for number, target in enumerate(track(variant.folds.targets, what=_variant_key(plans[0]))):
        here = np.flatnonzero(board.target == number)
        if here.size:
            source = _source(target, variant, workspace)
            columns = board.columns(number)
            for run in active:
                if run.error is None:
                    _attempt(run, source, here=here, columns=columns, board=board, workspace=workspace)
    for run in active:
        if run.error is None:
            _close(run, board, workspace, command=command)
    return [run.plan for run in active if run.error is not None]


def _variant_key(plan: PlannedRun) -> str:
    return variant_name(plan.settings)


def _begin(plan: PlannedRun, *, size: int) -> ActiveRun:
    from omegaconf import OmegaConf

    plan.folder.begin(identity=plan.identity, config_yaml=OmegaConf.to_yaml(OmegaConf.create(dict(plan.identity))))
    run = ActiveRun(plan=plan, scores={seed: np.full(size, np.nan) for seed in plan.seeds})
    try:
        run.resumable = prepare_folder(plan.folder.path, code=code_fingerprint(plan.model.target))
        build(plan)  # parameters that the model refuses are found before the first target
    except Exception as error:
        _fail(run, error, where="could not be built")
    return run


def _fail(run: ActiveRun, error: Exception, *, where: str) -> None:
    """Record an error: it ends this run, and all of them only if asked to."""
    run.error = error
    run.plan.folder.fail(error, trace=traceback.format_exc())
    log.error("%s %s: %s: %s", run.plan.model.name, where, type(error).__name__, error)
    if run.plan.settings.runtime.on_error == "stop":
        raise error


def _source(target: str, variant: Variant, workspace: Workspace) -> Source:
    """The sources of one target: labels of its train tasks alone, lists rebuilt from them when asked for."""
    rows = variant.folds.rows(target, role="train")
    context_of = np.full(workspace.corpus.n_tasks, -1, np.int64)
    context_of[rows] = variant.folds.contexts[rows]
    names = tuple(variant.folds.context_names[c] for c in np.unique(context_of[rows]) if c >= 0)
    return Source(
        target=target,
        fold=workspace.fold(variant.settings, workspace.labels.only(rows)),
        contexts=names,
        context_of=context_of,
        build=lambda fold: workspace.manifests(variant.settings, fold),
    )


def _attempt(
    run: ActiveRun,
    source: Source,
    *,
    here: NDArray[np.int64],
    columns: tuple[pa.Table, NDArray[np.int64]],
    board: Board,
    workspace: Workspace,
) -> None:
    """Fit and score one model on one target, unless an interrupted run left its scores."""
    try:
        if _restore(run, source.target, columns=columns):
            return
        for fit in fits(run.plan, source, bank=workspace.bank):
            pairs = board.pairs.take(here)
            scores = np.asarray(fit.scorer.score(pairs, bank=workspace.bank, seed=fit.seed), np.float64)
            _check_scores(scores, here.size, target=source.target, seed=fit.seed)
            run.scores[fit.seed][here] = scores
            _write_target(run, source.target, fit, columns=columns)
    except Exception as error:
        _fail(run, error, where=f"failed on {source.target}")


def _restore(run: ActiveRun, target: str, *, columns: tuple[pa.Table, NDArray[np.int64]]) -> bool:
    """Take over the scores of a target that an interrupted run left behind, of every seed or of none."""
    if not run.resumable:
        return False
    rows, place = columns
    stored = stored_scores(run.plan.folder.path, target, seeds=run.plan.seeds, rows=rows, place=place, data=run.data)
    if stored is None:
        return False
    for seed, (at, scores) in stored.items():
        run.scores[seed][at] = scores
    run.reused += 1
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
    write_table(path / "scores" / target / f"seed={fit.seed}.parquet", scored)


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
    rows = artefact_rows(variant, workspace.corpus, labels=workspace.labels, flags=workspace.flags)
    for run in active:
        path = run.plan.folder.path
        write_text(path / "artefacts.csv", rows.to_csv(index=False, lineterminator="\n"))
        lists = {name: sha256_file(path / "manifests" / f"{name}.parquet") for name in sorted(variant.manifests)}
        run.data = stable_hash([run.plan.identity["fingerprints"], lists, sha256_file(path / "folds.parquet")])


def _close(run: ActiveRun, board: Board, workspace: Workspace, *, command: str) -> None:
    """Write the collected values and mark the run as done."""
    if run.reused:
        log.info("%s: scores of %d targets reused from an interrupted run", run.plan.model.name, run.reused)
    try:
        _write_results(run, board, workspace, command=command)
    except Exception as error:
        _fail(run, error, where="failed while its results were written")


def _write_results(run: ActiveRun, board: Board, workspace: Workspace, *, command: str) -> None:
    path, plan = run.plan.folder.path, run.plan
    for number in np.unique(board.target):
        for seed in plan.seeds:
            open_target(path, board.variant.folds.targets[number], seed=seed, data=run.data)
    per_task = _values(run, board, workspace, slices=())
    assert per_task is not None  # a variant without any list was refused before
    write_table(path / "per_task.parquet", pa.Table.from_pandas(per_task, preserve_index=False))
    wanted = _wanted_slices(plan)
    sliced = _values(run, board, workspace, slices=wanted) if wanted else None
    if sliced is not None:
        write_table(path / "per_task_slices.parquet", pa.Table.from_pandas(sliced, preserve_index=False))
    metrics = metric_rows(per_task, measures=plan.settings.evaluation.measures)
    write_text(path / "metrics.csv", metrics.to_csv(index=False, lineterminator="\n"))
    write_json(path / "run.json", _run_record(run, board, workspace, command=command))
    plan.folder.finish()


def _sorted(frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    keys = [k for k in ("slice", "target", "view", "seed", "task_id") if k in frames[0].columns]
    return pd.concat(frames, ignore_index=True).sort_values(keys, kind="stable", ignore_index=True)


def metric_rows(per_task: pd.DataFrame, *, measures: Sequence[str]) -> pd.DataFrame:
    """metrics.csv: task mean of every (target, view, seed) cell; ``value`` is empty where the cell is not scored."""
    keys = ["protocol", "target", "view", "model", "seed"]
    cells = per_task.groupby(keys, sort=True)
    means = cells.agg(**{name: (name, "mean") for name in measures}).reset_index()
    long = means.melt(id_vars=keys, var_name="measure", value_name="value").sort_values(keys, kind="stable")
    size = cells.agg(n_tasks=("task_id", "size"), scored=("scored", "first")).reset_index()
    rows = long.merge(size, on=keys)
    rows["value"] = rows["value"].where(rows["scored"])
    return rows


def _run_record(run: ActiveRun, board: Board, workspace: Workspace, *, command: str) -> Mapping[str, Any]:
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
            "purge": variant.settings.protocol.purge,
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
        "world_size": 1,
        "wall_s": round(time.monotonic() - run.started, 3),
        "peak_rss_mb": peak_rss_mb(),
    }

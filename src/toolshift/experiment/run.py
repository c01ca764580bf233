"""Execute planned runs: fit per target, score every pair once, write what the architecture promises."""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from toolshift.evaluation.artefacts import artefact_rows
from toolshift.evaluation.per_task import LIST_SLICES, TargetLists, per_task_values, scores_of, sliced, target_pairs
from toolshift.experiment.plan import PlannedRun
from toolshift.experiment.workspace import Variant, Workspace, resolve
from toolshift.models.base import Ranker, Scorer, Source
from toolshift.models.features import Pairs
from toolshift.runs.environment import environment, peak_rss_mb
from toolshift.runs.files import sha256_file, write_json, write_text
from toolshift.runs.progress import track
from toolshift.selection.value import source_value
from toolshift.views.manifest import manifest_table, write_table

log = logging.getLogger("toolshift")

PER_TASK_COLUMNS = ("protocol", "target", "view", "task_id", "model", "seed", "n_candidates", "n_gold", "tied")


class NonFiniteScore(ValueError):
    """A model returned NaN or infinity."""

    user_facing = True


@dataclass
class ActiveRun:
    """A planned run while it is being executed."""

    plan: PlannedRun
    ranker: Ranker
    started: float = field(default_factory=time.monotonic)
    frames: list[pd.DataFrame] = field(default_factory=list)
    slices: list[pd.DataFrame] = field(default_factory=list)
    error: BaseException | None = None


def execute(runs: Sequence[PlannedRun], workspace: Workspace, *, command: str) -> list[PlannedRun]:
    """Execute runs variant by variant and return those that failed.

    A failing model does not end the others unless ``runtime.on_error`` is ``stop``.
    """
    failed: list[PlannedRun] = []
    for _, group in groupby(runs, key=_variant_key):
        plans = list(group)
        variant = workspace.variant(plans[0].settings)
        active = [_begin(plan) for plan in plans]
        _write_manifests(active, variant, workspace)
        for target in track(variant.folds.targets, what=_variant_key(plans[0])):
            lists = variant.target_lists(target)
            if not lists:
                continue
            pairs = target_pairs(lists, workspace.corpus)
            source = _source(target, variant, workspace)
            for run in active:
                if run.error is None:
                    _attempt(run, source=source, lists=lists, pairs=pairs, workspace=workspace)
        for run in active:
            _close(run, variant, workspace, command=command)
        failed += [run.plan for run in active if run.error is not None]
    return failed


def _variant_key(plan: PlannedRun) -> str:
    settings = plan.settings
    return f"{settings.view.universe}/{settings.view.miner}/purge={settings.protocol.purge}"


def _begin(plan: PlannedRun) -> ActiveRun:
    from omegaconf import OmegaConf

    plan.folder.begin(identity=plan.identity, config_yaml=OmegaConf.to_yaml(OmegaConf.create(dict(plan.identity))))
    ranker: Ranker = resolve(plan.model.target)(**plan.model.params)
    return ActiveRun(plan=plan, ranker=ranker)


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
    run: ActiveRun, *, source: Source, lists: Sequence[TargetLists], pairs: Pairs, workspace: Workspace
) -> None:
    try:
        for seed, scorer in _fitted(run, source, workspace):
            _score(run, scorer, seed=seed, source=source, lists=lists, pairs=pairs, workspace=workspace)
    except Exception as error:
        if run.plan.settings.runtime.on_error == "stop":
            run.plan.folder.fail(error, trace=traceback.format_exc())
            raise
        log.error("%s failed on %s: %s: %s", run.plan.model.name, source.target, type(error).__name__, error)
        run.plan.folder.fail(error, trace=traceback.format_exc())
        run.error = error


def _fitted(run: ActiveRun, source: Source, workspace: Workspace) -> Iterator[tuple[int, Scorer]]:
    scorer: Scorer | None = None
    for seed in run.plan.seeds:
        if scorer is None or run.ranker.fit_per_seed:
            scorer = run.ranker.fit(source, bank=workspace.bank, measure=source_value, seed=seed)
        if source.target in scorer.contexts_seen:
            raise AssertionError(f"{run.plan.model.name}: the held-out context {source.target} was seen while fitting")
        yield seed, scorer


def _score(
    run: ActiveRun,
    scorer: Scorer,
    *,
    seed: int,
    source: Source,
    lists: Sequence[TargetLists],
    pairs: Pairs,
    workspace: Workspace,
) -> None:
    corpus, plan = workspace.corpus, run.plan
    scores = np.asarray(scorer.score(pairs, bank=workspace.bank, seed=seed), np.float64)
    if scores.shape != (len(pairs),) or not np.isfinite(scores).all():
        bad = int((~np.isfinite(scores)).sum())
        raise NonFiniteScore(f"target {source.target}, seed {seed}: {bad} of {len(pairs)} scores are not finite")
    write_json(
        plan.folder.path / "selection" / source.target / f"seed={seed}.json",
        {"target": source.target, "seed": seed, "contexts_seen": list(scorer.contexts_seen), **scorer.record},
    )
    aligned = [scores_of(one.manifest, pairs, scores=scores, corpus=corpus) for one in lists]
    write_table(
        plan.folder.path / "scores" / source.target / f"seed={seed}.parquet", _score_table(lists, aligned, workspace)
    )
    for one, values in zip(lists, aligned, strict=True):
        run.frames.append(_frame(one, values, plan=plan, seed=seed, workspace=workspace))
        for name in _wanted_slices(plan):
            part, keep = sliced(one, name)
            if part.manifest.tasks.size:
                frame = _frame(part, values[keep], plan=plan, seed=seed, workspace=workspace)
                run.slices.append(frame.assign(slice=name))


def _wanted_slices(plan: PlannedRun) -> list[str]:
    wanted = plan.settings.evaluation.slices
    return [name for name in LIST_SLICES if name.split("=")[0] in wanted]


def _frame(
    lists: TargetLists, scores: NDArray[np.float64], *, plan: PlannedRun, seed: int, workspace: Workspace
) -> pd.DataFrame:
    evaluation, flags = plan.settings.evaluation, workspace.flags
    frame = per_task_values(
        lists, scores, corpus=workspace.corpus, measures=evaluation.measures, ties=evaluation.ties
    )
    rows = frame.pop("task_row").to_numpy()
    frame = frame.assign(
        protocol=plan.settings.protocol.name,
        model=plan.model.name,
        seed=seed,
        name_free=flags.name_free[rows],
        no_partial_schema=flags.no_partial_schema[rows],
    )
    return frame[
        [*PER_TASK_COLUMNS, *evaluation.measures, "scored", "name_free", "no_partial_schema"]
    ]


def _score_table(
    lists: Sequence[TargetLists], aligned: Sequence[NDArray[np.float64]], workspace: Workspace
) -> pa.Table:
    """view, task_id, capability_id, score: the published predictions."""
    corpus = workspace.corpus
    tables = []
    for one, scores in zip(lists, aligned, strict=True):
        task = [corpus.task_ids[t] for t in one.manifest.task_of]
        capability = [corpus.capability_ids[c] for c in one.manifest.capability]
        view = [one.manifest.view] * scores.size
        columns = {"view": view, "task_id": task, "capability_id": capability}
        tables.append(pa.table({k: pa.array(v, pa.string()) for k, v in columns.items()} | {"score": scores}))
    return pa.concat_tables(tables)


def _write_manifests(active: Sequence[ActiveRun], variant: Variant, workspace: Workspace) -> None:
    """Leave the frozen lists and the fold table in every run folder (one write, then hard links where possible)."""
    for name, manifest in variant.manifests.items():
        table = manifest_table(manifest, workspace.corpus, suspects=variant.suspects[name])
        for run in active:
            write_table(run.plan.folder.path / "manifests" / f"{name}.parquet", table)
    folds = variant.folds.table(workspace.corpus)
    for run in active:
        write_table(run.plan.folder.path / "folds.parquet", folds)
    rows = artefact_rows(variant, workspace.corpus, labels=workspace.labels, flags=workspace.flags)
    for run in active:
        write_text(run.plan.folder.path / "artefacts.csv", rows.to_csv(index=False, lineterminator="\n"))


def _close(run: ActiveRun, variant: Variant, workspace: Workspace, *, command: str) -> None:
    """Write the collected values and mark the run as done; a failed run keeps its status."""
    if run.error is not None:
        return
    path, plan = run.plan.folder.path, run.plan
    per_task = _sorted(run.frames)
    write_table(path / "per_task.parquet", pa.Table.from_pandas(per_task, preserve_index=False))
    if run.slices:
        write_table(path / "per_task_slices.parquet", pa.Table.from_pandas(_sorted(run.slices), preserve_index=False))
    metrics = metric_rows(per_task, measures=plan.settings.evaluation.measures)
    write_text(path / "metrics.csv", metrics.to_csv(index=False, lineterminator="\n"))
    write_json(path / "run.json", _run_record(run, variant, workspace, command=command))
    plan.folder.finish()


def _sorted(frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    keys = [k for k in ("slice", "target", "view", "seed", "task_id") if k in frames[0].columns]
    return pd.concat(frames, ignore_index=True).sort_values(keys, kind="stable", ignore_index=True)


def metric_rows(per_task: pd.DataFrame, *, measures: Sequence[str]) -> pd.DataFrame:
    """metrics.csv: task mean of every (target, view, seed) cell; ``value`` is empty where the cell is not scored."""
    keys = ["protocol", "target", "view", "model", "seed"]
    cells = per_task.groupby(keys, sort=True)
    means = cells[list(measures)].mean()
    long = means.rename_axis("measure", axis=1).stack().rename("value").reset_index()
    size = cells.agg(n_tasks=("task_id", "size"), scored=("scored", "first")).reset_index()
    rows = long.merge(size, on=keys)
    rows["value"] = rows["value"].where(rows["scored"])
    return rows


def _run_record(run: ActiveRun, variant: Variant, workspace: Workspace, *, command: str) -> Mapping[str, Any]:
    path = run.plan.folder.path
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
        "fingerprints": dict(run.plan.identity["fingerprints"]),
        "manifests": {p.stem: sha256_file(p) for p in sorted((path / "manifests").glob("*.parquet"))},
        "folds": sha256_file(path / "folds.parquet"),
        "skipped": {view: dict(m.skipped) for view, m in variant.manifests.items()},
        "cache": {"folder": workspace.cache.folder.name},
        "device": run.plan.settings.runtime.device,
        "world_size": 1,
        "wall_s": round(time.monotonic() - run.started, 3),
        "peak_rss_mb": peak_rss_mb(),
    }


def read_per_task(plan_path: Any) -> pd.DataFrame:
    """per_task.parquet of a done run."""
    return pq.read_table(plan_path / "per_task.parquet").to_pandas()

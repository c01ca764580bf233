"""Activity of the rows of a table and of their stages: what they selected, and whether they change anything."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence

import pandas as pd

from toolshift.evaluation.activity import (
    STAGE_COLUMNS,
    STAGE_FOLDER,
    STAGES,
    Published,
    activity,
    scored_cells,
    stage_activity,
)
from toolshift.evaluation.aggregate import TableSpec
from toolshift.experiment.finished import DoneRun, not_converged_text, settings_text, variant_text
from toolshift.reporting.activity import ACTIVITY_COLUMNS, STAGE_TABLE_COLUMNS, hole, with_verdict
from toolshift.runs.files import read_json
from toolshift.selection.records import record_path

log = logging.getLogger("toolshift")


def activity_frame(runs: Sequence[DoneRun], *, spec: TableSpec, protocol: str) -> pd.DataFrame:
    """How every row but the reference reorders the reference's lists of its variant (columns ``ACTIVITY_COLUMNS``).

    A run whose published scores were taken away is left out, and named in the log.
    """
    found: list[pd.DataFrame] = []
    for variant in sorted({run.variant for run in runs}):
        readable = [run for run in runs if run.variant == variant and _has_scores(run)]
        base = [run for run in readable if run.model == spec.reference]
        others = [run for run in readable if run.model != spec.reference]
        if base and others:
            frame = activity(_published(base[0]), [_published(run) for run in others])
            found.append(_described(_ordered(frame, spec), others, reference=base[0]))
    if not found:
        return pd.DataFrame(columns=ACTIVITY_COLUMNS)
    whole = pd.concat(found, ignore_index=True).assign(table=spec.name, protocol=protocol, data=spec.data)
    return with_verdict(whole.loc[:, ACTIVITY_COLUMNS])


def stage_frame(runs: Sequence[DoneRun], *, spec: TableSpec, protocol: str) -> pd.DataFrame:
    """How much every stage of a row changes that row's own lists (columns ``STAGE_TABLE_COLUMNS``), in the order of the
    runs; a row whose run left no records is a hole, with the reason in its note."""
    found = [_stages_of(run, spec=spec) for run in runs if run.seeds and _has_stages(run)]
    if not found:
        return pd.DataFrame(columns=STAGE_TABLE_COLUMNS)
    whole = pd.concat(found, ignore_index=True).assign(table=spec.name, protocol=protocol, data=spec.data)
    return with_verdict(whole.loc[:, STAGE_TABLE_COLUMNS])


def _stages_of(run: DoneRun, *, spec: TableSpec) -> pd.DataFrame:
    chosen = [json.loads(setting) for setting in run.selected]
    offered = [stage for stage in STAGES if any(f"beta_{stage}" in setting for setting in chosen)]
    measured, missing = stage_activity(_published(run), offered=offered)
    frame = measured.astype(object).assign(note="")
    if missing:
        note = hole(len(missing), of=len(scored_cells(run.folder.path)))
        log.warning("no activity of the stages of %s (%s): %s", run.model, variant_text(run.variant), note)
        empty = dict.fromkeys(STAGE_COLUMNS, float("nan"))
        frame = pd.DataFrame([{**empty, "stage": "", "view": "", "note": note}], dtype=object)
    else:
        views = {name: i for i, name in enumerate(spec.view_order)}
        stages = {name: i for i, name in enumerate(STAGES)}
        keys = [(stages[s], views[v]) for s, v in zip(frame["stage"], frame["view"], strict=True)]
        frame = frame.iloc[sorted(range(len(keys)), key=keys.__getitem__)]
    variant = {"universe": run.universe, "miner": run.miner, "purge": run.purge}
    return frame.assign(**variant, model=run.model, seed=run.seeds[0])


def _has_stages(run: DoneRun) -> bool:
    """Whether the model of a run has stages: it left records of them, or some fit names one, as older runs do."""
    path = run.folder.path
    if (path / STAGE_FOLDER).is_dir():
        return True
    records = (record_path(path, target, run.seeds[0]) for target in sorted(scored_cells(path)))
    return any(set(STAGES) & set(read_json(record)["fitted"]) for record in records if record.is_file())


def _ordered(frame: pd.DataFrame, spec: TableSpec) -> pd.DataFrame:
    """Models, then views, in the order of the table."""
    models = {name: i for i, name in enumerate(spec.model_order)}
    views = {name: i for i, name in enumerate(spec.view_order)}
    keys = [(models[model], views[view]) for model, view in zip(frame["model"], frame["view"], strict=True)]
    return frame.iloc[sorted(range(len(keys)), key=keys.__getitem__)]


def _has_scores(run: DoneRun) -> bool:
    """Whether the score files of the first seed are all there."""
    if run.seeds and all(_published(run).scores(target).is_file() for target in scored_cells(run.folder.path)):
        return True
    log.warning(
        "no activity of %s (%s): score files are missing in %s", run.model, variant_text(run.variant), run.folder.path
    )
    return False


def _published(run: DoneRun) -> Published:
    return Published(folder=run.folder.path, model=run.model, seed=run.seeds[0])


def _described(frame: pd.DataFrame, runs: Sequence[DoneRun], *, reference: DoneRun) -> pd.DataFrame:
    """Activity with what a run says of itself: its variant, its settings, whether its fits are finished."""
    run_of = {run.model: run for run in runs}
    ours = [run_of[model] for model in frame["model"]]
    return frame.assign(
        universe=reference.universe,
        miner=reference.miner,
        purge=reference.purge,
        reference=reference.model,
        seed=[run.seeds[0] for run in ours],
        settings=[settings_text(run.selected) for run in ours],
        note=[not_converged_text(run) for run in ours],
    )

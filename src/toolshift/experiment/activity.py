"""Activity of the rows of a table: which settings they selected, and whether they change anything."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pandas as pd

from toolshift.evaluation.activity import Published, activity, scored_cells
from toolshift.evaluation.aggregate import TableSpec
from toolshift.experiment.finished import DoneRun, not_converged_text, settings_text, variant_text
from toolshift.reporting.activity import ACTIVITY_COLUMNS, with_verdict

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

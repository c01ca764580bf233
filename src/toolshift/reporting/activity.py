"""The activity page: which settings were selected, how much each row reorders the reference's lists, and how much each
stage of a row changes its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from toolshift.evaluation.activity import INACTIVE_BELOW, MEASURED, STAGE_COLUMNS, STAGE_MEASURED, TOP
from toolshift.reporting.markdown import escape, frame_to_markdown
from toolshift.reporting.tidy import INACTIVE, to_csv, with_note
from toolshift.runs.files import write_text

VARIANT = ["protocol", "universe", "miner", "purge"]
ACTIVITY_COLUMNS = [
    "table", *VARIANT, "view", "model", "reference", "seed", "n_targets", "n_lists", "n_pairs", *MEASURED, "settings",
    "data", "note",
]  # fmt: skip
"""Columns of ``outputs/tables/<name>_activity.csv``. ``seed``: the one whose scores are compared. ``settings``: targets
per selected setting, empty for a row without a grid. ``note``: inactive, not converged."""
STAGE_TABLE_COLUMNS = ["table", *VARIANT, "model", "seed", *STAGE_COLUMNS, "data", "note"]
"""Columns of ``outputs/tables/<name>_stages.csv``. ``targets_on``: targets at which the stage is switched on. ``note``:
inactive, or why the row is a hole (its numbers, stage and view are then empty)."""
_KEYS = ["universe", "miner", "purge", "view", "model"]
_PRINTED = {
    "mean_abs_rank_change": "mean rank change",
    "pairs_changed": "pairs changed %",
    "top5_changed": f"top {TOP} changed %",
    "order_changed": "order changed %",
}
_STAGE_PRINTED = {
    "targets_on": "on at targets",
    "mean_abs_correction": "mean |D|",
    "mean_abs_added": "mean |added|",
    "pairs_corrected": "pairs corrected %",
    **_PRINTED,
}


def with_verdict(activity: pd.DataFrame) -> pd.DataFrame:
    """The rows with ``inactive`` noted where less than ``INACTIVE_BELOW`` of the lists have another order."""
    return with_note(activity, (activity["order_changed"] < INACTIVE_BELOW).to_numpy(bool), INACTIVE)


def mark_inactive(tidy: pd.DataFrame, activity: pd.DataFrame) -> pd.DataFrame:
    """The results table with ``inactive`` in the note of every row (any slice, any measure) of an inactive one."""
    noted = np.array([INACTIVE in note.split("; ") for note in activity["note"]], bool)
    inactive = set(activity.loc[noted, _KEYS].itertuples(index=False, name=None))
    hit = [row in inactive for row in tidy[_KEYS].itertuples(index=False, name=None)]
    return with_note(tidy, np.array(hit, bool), INACTIVE)


def hole(missing: int, *, of: int) -> str:
    """What is noted where a run left no record of its stages for some of its targets."""
    return f"no record of the stages for {missing} of {of} targets (older or incomplete run folder)"


def write_activity(
    activity: pd.DataFrame, *, name: str, folder: Path, stages: pd.DataFrame | None = None
) -> list[Path]:
    """Write ``<name>_activity.csv`` (shares 0 to 1, full precision) and ``<name>_activity.md``; where some row has
    stages also ``<name>_stages.csv``, and their part of the page."""
    known = pd.DataFrame(columns=STAGE_TABLE_COLUMNS) if stages is None else stages
    pages = [page for page in (activity_page(activity), stages_page(known)) if page]
    paths = [
        write_text(folder / f"{name}_activity.csv", to_csv(activity.loc[:, ACTIVITY_COLUMNS])),
        write_text(folder / f"{name}_activity.md", "\n".join(pages)),
    ]
    # A table without such a row must not leave the file of an earlier one beside it.
    (folder / f"{name}_stages.csv").unlink(missing_ok=True)
    if len(known):
        paths.append(write_text(folder / f"{name}_stages.csv", to_csv(known.loc[:, STAGE_TABLE_COLUMNS])))
    return paths


def activity_page(activity: pd.DataFrame) -> str:
    """The page as Markdown; empty without a row."""
    return "\n\n".join(_page(activity)) + "\n" if len(activity) else ""


def stages_page(stages: pd.DataFrame) -> str:
    """The page of the stages as Markdown; empty without a row."""
    return "\n\n".join(_stages_page(stages)) + "\n" if len(stages) else ""


def _stages_page(stages: pd.DataFrame) -> Iterator[str]:
    kind = "real" if stages.iloc[0]["data"] == "real" else "sample (synthetic)"
    yield f"# Activity of stages (data: {kind})"
    yield (
        "How much each stage changes the row's own lists: the final score against the final score without what the "
        "stage adds, all else as fitted; first seed, scored cells, every list and pair counted once. D: the stage's "
        "correction, added: with its gate. pairs corrected: D with its gate is not 0; pairs changed: another rank. "
        "on at targets: where the strength 0 was not selected; at other targets the stage changes nothing, and they "
        f"count. A stage that changes the order of less than {100 * INACTIVE_BELOW:g}% of the lists is `inactive`, "
        "which is no support."
    )
    variants = list(stages[["universe", "miner", "purge"]].itertuples(index=False, name=None))
    for variant in dict.fromkeys(variants):
        yield "## Stages: universe {}, miner {}, purge {}".format(*variant)
        yield frame_to_markdown(_printed_stages(stages.loc[[v == variant for v in variants], :]))


def _printed_stages(rows: pd.DataFrame) -> pd.DataFrame:
    known = rows["n_lists"].notna().to_numpy(bool)
    shown = rows.loc[:, ["model", "stage", "view", "note"]].copy()
    on = [f"{on} of {of}" for on, of in zip(rows["targets_on"], rows["n_targets"], strict=True)]
    columns = {"targets_on": on, "n_lists": [str(n) for n in rows["n_lists"]]}
    for name in STAGE_MEASURED:
        scale, form = (1.0, ".4f") if name.startswith("mean_abs") else (100.0, ".1f")
        columns[name] = [format(scale * value, form) for value in rows[name]]
    for name, texts in columns.items():
        shown[name] = np.where(known, texts, np.array(None, object))
    order = ["model", "stage", "view", "n_lists", "targets_on", *STAGE_MEASURED, "note"]
    return shown.loc[:, order].rename(columns={"n_lists": "lists", **_STAGE_PRINTED})


def _page(activity: pd.DataFrame) -> Iterator[str]:
    first = activity.iloc[0]
    kind = "real" if first["data"] == "real" else "sample (synthetic)"
    yield f"# Activity (data: {kind})"
    yield (
        f"How much each row reorders the lists of {escape(first['reference'])}, first seed of both, whole lists of "
        "scored cells, every list counted once. mean rank change: places, over pairs, tied candidates at the mean of "
        "their ranks. A row that changes the order of less than "
        f"{100 * INACTIVE_BELOW:g}% of the lists is `inactive`, which is no support. settings: targets per selected "
        "setting."
    )
    variants = list(activity[["universe", "miner", "purge"]].itertuples(index=False, name=None))
    for variant in dict.fromkeys(variants):
        yield "## Universe {}, miner {}, purge {}".format(*variant)
        yield frame_to_markdown(_printed(activity.loc[[v == variant for v in variants], :]))


def _printed(rows: pd.DataFrame) -> pd.DataFrame:
    shown = rows.loc[:, ["model", "view", "n_lists", *MEASURED, "settings", "note"]].copy()
    for column in MEASURED[1:]:
        shown[column] = [f"{100 * share:.1f}" for share in shown[column]]
    # The settings are those of the run, the same in every view: said once.
    shown["settings"] = shown["settings"].where(~shown.duplicated("model"), "")
    return shown.rename(columns={"n_lists": "lists", **_PRINTED})

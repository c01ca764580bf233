"""The activity page: which settings were selected, and how much each row reorders the reference's lists."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from toolshift.evaluation.activity import INACTIVE_BELOW, MEASURED, TOP
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
_KEYS = ["universe", "miner", "purge", "view", "model"]
_PRINTED = {
    "mean_abs_rank_change": "mean rank change",
    "pairs_changed": "pairs changed %",
    "top5_changed": f"top {TOP} changed %",
    "order_changed": "order changed %",
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


def write_activity(activity: pd.DataFrame, *, name: str, folder: Path) -> list[Path]:
    """Write ``<name>_activity.csv`` (shares 0 to 1, full precision) and ``<name>_activity.md``."""
    return [
        write_text(folder / f"{name}_activity.csv", to_csv(activity.loc[:, ACTIVITY_COLUMNS])),
        write_text(folder / f"{name}_activity.md", activity_page(activity)),
    ]


def activity_page(activity: pd.DataFrame) -> str:
    """The page as Markdown; empty without a row."""
    return "\n\n".join(_page(activity)) + "\n" if len(activity) else ""


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

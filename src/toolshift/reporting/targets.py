"""Target by target: what a macro mean over a few targets is made of."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from toolshift.evaluation.aggregate import TableSpec
from toolshift.evaluation.compare import ZERO
from toolshift.reporting.markdown import escape, frame_to_markdown
from toolshift.reporting.tidy import to_csv
from toolshift.runs.files import write_text

VARIANT = ["universe", "miner", "purge"]
TARGET_COLUMNS = [
    "table", *VARIANT, "view", "target", "model", "measure", "mean", "std", "n_seeds", "n_tasks", "reference", "delta",
    "data",
]  # fmt: skip
"""Columns of ``outputs/tables/<name>_targets.csv``: task means of scored cells, mean and deviation over seeds."""


def target_rows(metrics: pd.DataFrame, *, spec: TableSpec) -> pd.DataFrame:
    """Tidy rows (``TARGET_COLUMNS``).

    metrics: rows of ``metrics.csv`` of all runs, with the columns universe, miner and purge; cells that are not scored
    are left out. ``delta``: difference from the reference on the same target.
    """
    scored = metrics.loc[metrics["scored"].to_numpy(bool), :]
    keys = [*VARIANT, "view", "target", "model", "measure"]
    found = scored.groupby(keys, sort=False).agg(
        mean=("value", "mean"), std=("value", "std"), n_seeds=("value", "size"), n_tasks=("n_tasks", "first")
    )
    frame = found.reset_index()
    reference = frame.loc[frame["model"] == spec.reference, [*VARIANT, "view", "target", "measure", "mean"]]
    frame = frame.merge(
        reference.rename(columns={"mean": "of_reference"}), on=[*VARIANT, "view", "target", "measure"], how="left"
    )
    delta = (frame["mean"] - frame["of_reference"]).round(12)
    frame["delta"] = np.where(frame["model"] == spec.reference, np.nan, delta)
    return frame.assign(table=spec.name, reference=spec.reference, data=spec.data).loc[:, TARGET_COLUMNS]


def write_targets(rows: pd.DataFrame, *, spec: TableSpec, folder: Path) -> list[Path]:
    """Write ``<name>_targets.csv`` and ``.md``."""
    return [
        write_text(folder / f"{spec.name}_targets.csv", to_csv(rows)),
        write_text(folder / f"{spec.name}_targets.md", targets_page(rows, spec=spec)),
    ]


def targets_page(rows: pd.DataFrame, *, spec: TableSpec) -> str:
    """One table per variant and view: models in rows, targets in columns, and on how many a row beats the reference."""
    return "\n\n".join(_page(rows, spec=spec)) + "\n"


def _page(rows: pd.DataFrame, *, spec: TableSpec) -> Iterator[str]:
    kind = "real" if spec.data == "real" else "sample (synthetic)"
    measure = "NDCG@5" if "NDCG@5" in spec.measures else spec.measures[0]
    yield f"# Target by target: {escape(measure)} (data: {kind})"
    yield (
        f"Task means, mean over seeds; number of tasks under each target. positive: targets on which the row is above "
        f"{escape(spec.reference)}. A dash is a cell without a list or with too few available tools."
    )
    shown = rows.loc[rows["measure"] == measure, :]
    for variant, part in shown.groupby(VARIANT, sort=False):
        for view in (v for v in spec.view_order if v in set(part["view"])):
            lists = part.loc[part["view"] == view, :]
            yield "## Universe {}, miner {}, purge {}, view {}".format(*map(escape, (*map(str, variant), str(view))))
            yield frame_to_markdown(_wide(lists, spec=spec))


def _wide(rows: pd.DataFrame, *, spec: TableSpec) -> pd.DataFrame:
    order = [*(m for m in spec.model_order if m in set(rows["model"])), *sorted({*rows["model"]} - {*spec.model_order})]
    sizes = {str(target): int(np.max(part["n_tasks"].to_numpy())) for target, part in rows.groupby("target")}
    wide = rows.pivot_table(index="model", columns="target", values="mean", sort=True).reindex(order)
    wide.columns = [f"{target} ({sizes[str(target)]})" for target in wide.columns]
    compared = rows.loc[rows["delta"].notna(), :]
    up = {model: (part["delta"] > ZERO).to_numpy(bool) for model, part in compared.groupby("model")}
    wide["positive"] = [f"{up[model].sum()} of {up[model].size}" if model in up else "" for model in order]
    return wide.reset_index()

"""Forest plot: the difference to the reference in every target, with the macro difference below."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from toolshift.evaluation.aggregate import BLOCK
from toolshift.reporting.tidy import to_csv
from toolshift.runs.files import write_binary, write_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_ROW_HEIGHT_IN = 0.19
_MAX_POINT = 90.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Macro:
    delta: float
    low: float
    high: float


def write_forest(
    targets: pd.DataFrame, *, tidy: pd.DataFrame, name: str, measure: str, model: str, folder: Path
) -> list[Path]:
    """Draw one plot per view for one model and measure: PDF, PNG and the CSV of the points drawn.

    Args:
        targets: rows of one block from `evaluation.aggregate.per_target`.
        tidy: the results table, from which the macro difference and its interval (the diamond) are read.
        name: first part of the file names, ``<name>_<view>.{pdf,png,csv}``.
        measure: measure drawn.
        model: model drawn against the reference.
        folder: created if absent.

    Returns the paths written. Point area grows with the number of tasks. Equal input gives equal bytes.

    Raises:
        ValueError: if ``targets`` spans several blocks, or model, measure and table share no row.
    """
    chosen = targets.loc[(targets["model"] == model) & (targets["measure"] == measure), :]
    if chosen.empty:
        raise ValueError(f"forest plot {name}: no per-target difference of {model} on {measure}")
    if chosen.duplicated(["view", "target"]).any():
        raise ValueError(f"forest plot {name}: choose one block of {list(BLOCK)}; several are in the data")
    paths: list[Path] = []
    for view, rows in chosen.groupby("view", sort=False):
        ordered = rows.sort_values(["delta", "target"], ascending=[False, True], kind="stable").reset_index(drop=True)
        stem = f"{name}_{view}"
        figure = _draw(ordered, _macro_of(tidy, ordered.iloc[0], name=name))
        paths += save_figure(figure, folder / stem)
        paths.append(write_text(folder / f"{stem}.csv", to_csv(ordered)))
    return paths


def _macro_of(tidy: pd.DataFrame, row: pd.Series, *, name: str) -> _Macro:
    match = np.ones(len(tidy), dtype=bool)
    for key in (*BLOCK, "view", "model", "measure"):
        match &= (tidy[key] == row[key]).to_numpy(dtype=bool)
    if match.sum() != 1:
        raise ValueError(f"forest plot {name}: the table has {int(match.sum())} rows for {row['model']}, need 1")
    found = tidy[match].iloc[0]
    return _Macro(delta=100 * found["delta"], low=100 * found["ci_low"], high=100 * found["ci_high"])


def _draw(rows: pd.DataFrame, macro: _Macro) -> Figure:
    # The object interface needs no backend choice and leaves no state behind.
    from matplotlib.figure import Figure

    n = len(rows)
    figure = Figure(figsize=(6.0, 1.2 + _ROW_HEIGHT_IN * (n + 2)), layout="constrained")
    axes = figure.add_subplot()
    place = np.arange(n, 0, -1)
    delta, low, high = (100 * rows[c].to_numpy(dtype=float) for c in ("delta", "ci_low", "ci_high"))
    tasks = rows["n_tasks"].to_numpy(dtype=float)
    axes.hlines(place, low, high, color="0.6", linewidth=1.0, zorder=1)
    axes.scatter(delta, place, s=8 + _MAX_POINT * tasks / tasks.max(), color="tab:blue", alpha=0.85, zorder=2)
    axes.hlines([0], macro.low, macro.high, color="black", linewidth=1.4, zorder=1)
    axes.scatter([macro.delta], [0], marker="D", s=45, color="black", zorder=2)
    axes.axvline(0.0, color="0.3", linewidth=0.8, linestyle="--", zorder=0)
    _label(axes, rows, place)
    return figure


def _label(axes: Axes, rows: pd.DataFrame, place: np.ndarray[Any, Any]) -> None:
    first = rows.iloc[0]
    names = [f"{target} ({n})" for target, n in zip(rows["target"], rows["n_tasks"], strict=True)]
    axes.set_yticks([*place, 0], [*map(_literal, names), "macro"], fontsize=7)
    axes.set_ylim(-1, len(rows) + 1)
    axes.set_xlabel(
        _literal(f"{first['model']} - {first['reference']}\n{first['measure']}, percentage points"), fontsize=9
    )
    axes.set_title(_literal(f"{first['protocol']}, view {first['view']}: targets (tasks)"), fontsize=9)


def _literal(text: str) -> str:
    return text.replace("$", r"\$")


def save_figure(figure: Figure, stem: Path) -> list[Path]:
    """PDF and PNG without dates or versions, so that equal figures are equal files."""
    pdf, png = stem.with_name(f"{stem.name}.pdf"), stem.with_name(f"{stem.name}.png")
    bare = {"CreationDate": None, "ModDate": None, "Creator": None, "Producer": None}
    write_binary(pdf, lambda stream: figure.savefig(stream, format="pdf", metadata=bare))
    write_binary(png, lambda stream: figure.savefig(stream, format="png", dpi=150, metadata={"Software": None}))
    return [pdf, png]

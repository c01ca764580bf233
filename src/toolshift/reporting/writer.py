"""Writing a results table in its three forms: the tidy CSV, and Markdown and LaTeX drawn from it."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from toolshift.evaluation.aggregate import GAIN_COLUMNS, TIDY_COLUMNS, TableSpec
from toolshift.reporting.latex import to_latex
from toolshift.reporting.markdown import to_markdown
from toolshift.reporting.tidy import blocks, to_csv
from toolshift.runs.files import write_text


def write_table(
    tidy: pd.DataFrame,
    *,
    spec: TableSpec,
    folder: Path,
    gains: pd.DataFrame | None = None,
) -> list[Path]:
    """Write ``<name>.csv`` (full precision), ``.md`` and ``.tex``, and ``<name>_gain.csv`` where gains are given.

    Args:
        tidy: as `evaluation.aggregate.summarise` gives it, with the papers' values where there are some
            (`reporting.tidy.with_paper`).
        spec: the specification it was made with; captions state it.
        folder: created if absent. Each file is replaced as a whole.
        gains: as `evaluation.aggregate.gain_over_strongest` gives them; without them the last row has no interval.

    Returns the paths written. Equal input gives equal bytes.

    Raises:
        ValueError: if ``tidy`` is empty, lacks a column or was made for other data than ``spec`` says.
    """
    _check(tidy, spec)
    found = pd.DataFrame(columns=list(GAIN_COLUMNS)) if gains is None else gains
    drawn = blocks(tidy, gains=found)
    paths = [
        write_text(folder / f"{spec.name}.csv", to_csv(tidy)),
        write_text(folder / f"{spec.name}.md", to_markdown(drawn, spec=spec)),
        write_text(folder / f"{spec.name}.tex", to_latex(drawn, spec=spec)),
    ]
    if gains is not None:
        paths.append(write_text(folder / f"{spec.name}_gain.csv", to_csv(gains)))
    return paths


def _check(tidy: pd.DataFrame, spec: TableSpec) -> None:
    missing = [c for c in TIDY_COLUMNS if c not in tidy.columns]
    if missing or tidy.empty:
        raise ValueError(f"table {spec.name}: no rows, or columns missing: {missing}")
    other = sorted(set(tidy["data"]) - {spec.data})
    if other:
        raise ValueError(f"table {spec.name}: rows from data {other}, but the caption would say {spec.data!r}")

"""Reading the tidy results table, and laying one block of it out as a grid of rows (models) and columns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from toolshift.evaluation.aggregate import BLOCK, CONDITIONAL, GAIN_COLUMNS, TIDY_COLUMNS

Place = Literal["best", "second", ""]
Column = tuple[str, str]

_PAPER_KEYS = (*BLOCK, "view", "model", "measure")
ARTEFACT = "artefact"
"""Note of a row on a view that gives no verdict, see `reporting.artefacts`."""
_TEXT_COLUMNS = ("table", *BLOCK, "view", "model", "measure", "reference", "data", "note")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the tidy table; missing numbers are NaN."""

    table: str
    protocol: str
    universe: str
    miner: str
    purge: str
    slice: str
    view: str
    model: str
    measure: str
    mean: float
    std: float
    task_mean: float
    mean_ge20: float
    n_seeds: int
    n_targets: int
    n_tasks: int
    paper: float
    reference: str
    delta: float
    ci_low: float
    ci_high: float
    p_value: float
    p_adjusted: float
    data: str
    note: str
    tied_share: float
    mde: float

    @property
    def column(self) -> Column:
        """(view, measure)."""
        return self.view, self.measure


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """One line of the gain frame."""

    table: str
    protocol: str
    universe: str
    miner: str
    purge: str
    slice: str
    view: str
    measure: str
    champion: str
    strongest: str
    gain_pp: float
    ci_low_pp: float
    ci_high_pp: float
    p_value: float
    n_targets: int
    n_tasks: int
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One number of a table. ``std`` is NaN for one seed, ``paper`` where the paper gives no value."""

    mean: float
    std: float
    paper: float
    place: Place


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """The rows of one (protocol, universe, miner, purge, slice): what one printed table holds. Never empty."""

    rows: tuple[Row, ...]
    gains: tuple[Gain, ...]

    @property
    def key(self) -> Row:
        """A row of the block; its protocol, universe, miner, purge and slice are those of all."""
        return self.rows[0]

    @property
    def models(self) -> list[str]:
        """Row names, in table order."""
        return list(dict.fromkeys(row.model for row in self.rows))

    @property
    def views(self) -> list[str]:
        """Views, in table order."""
        return list(dict.fromkeys(row.view for row in self.rows))

    @property
    def columns(self) -> list[Column]:
        """(view, measure) of every column, in table order."""
        return list(dict.fromkeys(row.column for row in self.rows))

    @property
    def conditional_views(self) -> list[str]:
        """Views in which the test held targets fixed, in table order."""
        return list(dict.fromkeys(row.view for row in self.rows if CONDITIONAL in row.note))

    @property
    def artefact_views(self) -> list[str]:
        """Views whose positives the candidate alone gives away, in table order."""
        return list(dict.fromkeys(row.view for row in self.rows if ARTEFACT in row.note.split("; ")))

    def cells(self) -> dict[tuple[str, Column], Cell]:
        """Cell of each (model, column) that was run."""
        out: dict[tuple[str, Column], Cell] = {}
        for column in self.columns:
            rows = [row for row in self.rows if row.column == column]
            for row, place in zip(rows, _places([row.mean for row in rows]), strict=True):
                out[row.model, column] = Cell(mean=row.mean, std=row.std, paper=row.paper, place=place)
        return out

    def holes(self) -> list[tuple[str, str]]:
        """(model, view) without a run, in table order."""
        present = {(row.model, row.view) for row in self.rows}
        return [(model, view) for model in self.models for view in self.views if (model, view) not in present]

    def papers(self) -> set[Column]:
        """Columns for which the paper gives some value."""
        return {row.column for row in self.rows if not math.isnan(row.paper)}

    def size(self, view: str) -> tuple[int, int]:
        """Scored targets and tasks of a view."""
        row = next(row for row in self.rows if row.view == view)
        return row.n_targets, row.n_tasks

    def seeds(self) -> dict[str, int]:
        """Seeds of each model."""
        return {model: max(row.n_seeds for row in self.rows if row.model == model) for model in self.models}

    def gain(self, column: Column) -> Gain | None:
        """The gain of a column, if one was made."""
        return next((gain for gain in self.gains if (gain.view, gain.measure) == column), None)


def blocks(tidy: pd.DataFrame, *, gains: pd.DataFrame) -> list[Block]:
    """The blocks of a table, in table order; ``gains`` as `evaluation.aggregate.gain_over_strongest` gives them."""
    rows: dict[tuple[str, ...], list[Row]] = {}
    found: dict[tuple[str, ...], list[Gain]] = {}
    for record in tidy.loc[:, list(TIDY_COLUMNS)].to_dict("records"):
        rows.setdefault(tuple(record[k] for k in BLOCK), []).append(Row(**record))
    for record in gains.loc[:, list(GAIN_COLUMNS)].to_dict("records"):
        found.setdefault(tuple(record[k] for k in BLOCK), []).append(Gain(**record))
    return [Block(rows=tuple(group), gains=tuple(found.get(key, ()))) for key, group in rows.items()]


def with_paper(tidy: pd.DataFrame, paper: pd.DataFrame | None) -> pd.DataFrame:
    """Put the papers' values into the ``paper`` column.

    ``paper`` has a column ``paper`` and any of protocol, universe, miner, purge, slice, view, model, measure; a key
    that it lacks matches every value. Nothing else of the table changes, and no row is added.

    Raises:
        ValueError: if ``paper`` lacks its value column or a key, or gives two values for one row.
    """
    if paper is None or paper.empty:
        return tidy
    keys = [key for key in _PAPER_KEYS if key in paper.columns]
    if "paper" not in paper.columns or not keys:
        raise ValueError(f"paper values need a column 'paper' and some of {list(_PAPER_KEYS)}: {list(paper.columns)}")
    repeated = paper.duplicated(keys, keep=False)
    if repeated.any():
        raise ValueError(f"paper values repeat: {paper.loc[repeated, keys].iloc[0].to_dict()}")
    merged = tidy.drop(columns="paper").merge(paper[[*keys, "paper"]], on=keys, how="left", validate="many_to_one")
    return merged.loc[:, list(tidy.columns)]


def to_csv(tidy: pd.DataFrame) -> str:
    """The table as CSV: full precision, empty cells for missing values, Unix line ends."""
    return tidy.to_csv(index=False, lineterminator="\n")


def read_tidy(path: Path) -> pd.DataFrame:
    """Read back a table written by `reporting.writer.write_table`.

    Raises:
        ValueError: if the file lacks a column of the contract.
    """
    # Words such as "none" (purge) are values here; only the empty string is a missing number.
    missing_words: dict[Any, list[str]] = {c: [""] for c in TIDY_COLUMNS if c not in _TEXT_COLUMNS}
    text: dict[Any, Any] = dict.fromkeys(_TEXT_COLUMNS, str)
    tidy = pd.read_csv(path, dtype=text, keep_default_na=False, na_values=missing_words)
    missing = [c for c in TIDY_COLUMNS if c not in tidy.columns]
    if missing:
        raise ValueError(f"{path}: not a results table, columns missing: {missing}")
    return tidy


def _places(means: Sequence[float]) -> list[Place]:
    """Best and second of a column; equal values (to 1e-9) share a place."""
    values = [round(mean, 9) for mean in means]
    ranked = sorted(set(values), reverse=True)
    names: dict[float, Place] = dict(zip(ranked, ("best", "second"), strict=False))
    return [names.get(v, "") for v in values]

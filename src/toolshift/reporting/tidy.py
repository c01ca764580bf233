"""Reading the tidy results table, and laying one block of it out as a grid of rows (models) and columns."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from toolshift.evaluation.aggregate import BLOCK, CONDITIONAL, GAIN_COLUMNS, TIDY_COLUMNS
from toolshift.settings.schema import PaperSettings

Place = Literal["best", "second", ""]
Column = tuple[str, str]

ARTEFACT = "artefact"
"""Note of a row on a view that gives no verdict, see `reporting.artefacts`."""
INACTIVE = "inactive"
"""Note of a row that leaves the reference's order alone, see `evaluation.activity`."""
NOT_CONVERGED = "not converged"
"""How the note of a row with unfinished fits begins; ``(k of n fits)`` follows."""
NO_RUN = "no run"
"""Note of a row that a paper prints and that has no run here."""
_TEXT_COLUMNS = ("table", *BLOCK, "view", "model", "measure", "reference", "data", "note")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the tidy table; missing numbers are NaN. A row that only a paper has counts 0 tasks."""

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

    @property
    def notes(self) -> list[str]:
        """The single remarks of the note."""
        return self.note.split("; ") if self.note else []


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
    """One number of a table. ``mean`` is NaN for a row without a run, ``std`` for one seed, ``paper`` where the paper
    gives no value."""

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
        return list(dict.fromkeys(row.view for row in self.rows if ARTEFACT in row.notes))

    @property
    def not_converged(self) -> dict[str, str]:
        """Models with unfinished fits, in table order, and how many these are."""
        found = ((row.model, note) for row in self.rows for note in row.notes if note.startswith(NOT_CONVERGED))
        return dict(found)

    @property
    def inactive(self) -> dict[str, list[str]]:
        """Models that leave the reference's order alone, in table order, and the views in which they do."""
        found: dict[str, dict[str, None]] = {}
        for row in self.rows:
            if INACTIVE in row.notes:
                found.setdefault(row.model, {})[row.view] = None
        return {model: list(views) for model, views in found.items()}

    @property
    def run(self) -> list[Row]:
        """The rows that have a run."""
        return [row for row in self.rows if row.n_tasks > 0]

    def cells(self) -> dict[tuple[str, Column], Cell]:
        """Cell of each (model, column) that was run, or that a paper gives a value for."""
        out: dict[tuple[str, Column], Cell] = {}
        for column in self.columns:
            rows = [row for row in self.rows if row.column == column]
            for row, place in zip(rows, _places([row.mean for row in rows]), strict=True):
                out[row.model, column] = Cell(mean=row.mean, std=row.std, paper=row.paper, place=place)
        return out

    def holes(self) -> list[tuple[str, str]]:
        """(model, view) without a run, in table order."""
        present = {(row.model, row.view) for row in self.run}
        return [(model, view) for model in self.models for view in self.views if (model, view) not in present]

    def papers(self) -> set[Column]:
        """Columns for which the paper gives some value."""
        return {row.column for row in self.rows if not math.isnan(row.paper)}

    def size(self, view: str) -> tuple[int, int]:
        """Scored targets and tasks of a view."""
        row = next(row for row in self.run if row.view == view)
        return row.n_targets, row.n_tasks

    def seeds(self) -> dict[str, int]:
        """Seeds of each model that has a run."""
        found: dict[str, int] = {}
        for row in self.run:
            found[row.model] = max(row.n_seeds, found.get(row.model, 0))
        return found

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


def with_note(frame: pd.DataFrame, hit: NDArray[np.bool_], note: str) -> pd.DataFrame:
    """The frame with ``note`` added, after "; ", to the notes of the rows (n,) in ``hit``."""
    before = frame["note"].fillna("").astype(str)
    return frame.assign(note=before.where(~hit, (before + "; " + note).str.removeprefix("; ")))


def paper_remark(paper: PaperSettings, *, data: str) -> str:
    """What a caption says about the papers' values; empty for a table that no paper has."""
    if not paper.values:
        return ""
    if data != "real":
        return "No paper column: the data is a generated sample."
    sources = ", ".join(dict.fromkeys(f"{value.source} ({value.status})" for value in paper.values))
    return (
        f"paper: {sources}, beside universe {paper.universe}, miner {paper.miner}, purge {paper.purge}, slice "
        f"{paper.slice} alone, the closest settings."
    )


def with_paper(tidy: pd.DataFrame, paper: PaperSettings) -> pd.DataFrame:
    """Put the papers' values into the ``paper`` column of the block that they are printed beside.

    A value whose row has no run is added at the end of the block as a row without numbers (0 targets, 0 tasks, note
    ``no run``), so that it is printed as a hole. A value for a view or measure that the table lacks is left out. A
    table of the generated sample is returned as it is.
    """
    block = np.array(tidy["data"] == "real", bool)
    for key in ("universe", "miner", "purge", "slice"):
        block &= (tidy[key] == getattr(paper, key)).to_numpy(bool)
    if not block.any():
        return tidy
    values = {(v.view, v.model, v.measure): v.value for v in paper.values}
    cells = [tuple(row) for row in tidy.loc[block, ["view", "model", "measure"]].itertuples(index=False, name=None)]
    printed = tidy["paper"].to_numpy(float, copy=True)
    printed[block] = [values.get(cell, float("nan")) for cell in cells]
    table = tidy.assign(paper=printed)
    holes = _paper_holes(table.loc[block, :], values)
    last = int(np.flatnonzero(block)[-1]) + 1
    return pd.concat([table.iloc[:last], holes, table.iloc[last:]], ignore_index=True) if len(holes) else table


def _paper_holes(block: pd.DataFrame, values: Mapping[tuple[str, str, str], float]) -> pd.DataFrame:
    """A row for each value whose (view, measure) the block has and whose row it lacks."""
    columns = block.drop_duplicates(["view", "measure"]).set_index(["view", "measure"], drop=False)
    present = set(block[["view", "model"]].itertuples(index=False, name=None))
    wanted = [
        (view, model, measure)
        for view, model, measure in values
        if (view, measure) in columns.index and (view, model) not in present
    ]
    # The rows of a model stand together, models in the order in which they are first named.
    order = list(dict.fromkeys(model for _, model, _ in wanted))
    wanted.sort(key=lambda cell: order.index(cell[1]))
    holes = columns.loc[[(view, measure) for view, _, measure in wanted]].reset_index(drop=True)
    counts = ("n_seeds", "n_targets", "n_tasks")
    empty = [c for c in TIDY_COLUMNS if c not in (*_TEXT_COLUMNS, *counts)]
    numbers = {**dict.fromkeys(empty, float("nan")), **dict.fromkeys(counts, 0)}
    numbers["paper"] = [values[cell] for cell in wanted]
    named = holes.assign(**numbers, model=[model for _, model, _ in wanted], note=NO_RUN)
    return named.astype(block.dtypes.to_dict())


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
    """Best and second of a column; equal values (to 1e-9) share a place, missing ones have none."""
    values = [round(mean, 9) for mean in means]
    ranked = sorted({v for v in values if not math.isnan(v)}, reverse=True)
    names: dict[float, Place] = dict(zip(ranked, ("best", "second"), strict=False))
    return [names.get(v, "") for v in values]

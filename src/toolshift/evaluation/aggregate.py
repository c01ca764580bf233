"""From per-task values to the tidy results table: averages, paired differences, corrections.

Averaging: seeds per task, task mean per target, equal mean over scored targets. Every comparison of a call rests on
one shared resample (`toolshift.evaluation.bootstrap`). A hole is reported, never averaged around.
Source: spec/metrics_and_statistics.md sections 1 and 4, spec/validity.md section 8.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from toolshift.evaluation.bootstrap import PointEstimates, Scheme, point_estimates, scheme_for, transfer_bootstrap
from toolshift.evaluation.compare import (
    ZERO,
    Differences,
    differences,
    holm_by_family,
    minimum_detectable_effect,
    strongest_other,
)
from toolshift.measures import parse_measure

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

VARIANT = ("protocol", "universe", "miner", "purge")
BLOCK = (*VARIANT, "slice")
CELL = (*BLOCK, "view", "model")
TIDY_COLUMNS = (
    "table", *BLOCK, "view", "model", "measure", "mean", "std", "task_mean", "mean_ge20", "n_seeds", "n_targets",
    "n_tasks", "paper", "reference", "delta", "ci_low", "ci_high", "p_value", "p_adjusted", "data", "note",
    "tied_share", "mde",
)  # fmt: skip
"""Columns of ``outputs/tables/<name>.csv``, in order; the last two extend the contract."""
GAIN_COLUMNS = (
    "table", *BLOCK, "view", "measure", "champion", "strongest", "gain_pp", "ci_low_pp", "ci_high_pp", "p_value",
    "n_targets", "n_tasks", "note",
)  # fmt: skip
TARGET_COLUMNS = (
    *BLOCK, "view", "measure", "model", "reference", "target", "n_tasks", "value", "reference_value", "delta",
    "ci_low", "ci_high",
)  # fmt: skip

CONDITIONAL = "conditional on these datasets"
NO_INTERVAL = "no interval: a target has a single task"
_VIEW_ORDER = ("natural", "semantic", "context", "mixed")
_PER_TASK = (*CELL, "target", "task_id", "seed", "tied", "scored")
# Fewer tasks give no interval worth drawing: a resample of four tasks has 35 distinct outcomes.
_MIN_TASKS_INTERVAL = 5
_MAX_LISTED = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSpec:
    """What one table is made of.

    ``holm_family`` names the keys that vary inside a family of tests; all other keys separate families. ``champion``
    is the row of the last line (gain over the strongest other row); None takes the best row of each column.
    ``selection`` and ``ties`` are named in captions. ``texts`` says which encoder and texts the rows read and whether
    tasks were limited; ``missing`` lists runs that were asked for and are not there; ``remarks`` are sentences that end
    the caption of a main table; ``title`` follows the name in its heading.
    ``model_order`` and ``view_order`` come first in that order, others follow
    alphabetically.

    Raises:
        ValueError: if a field is out of range or names an unknown key.
    """

    name: str
    data: Literal["sample", "real"]
    measures: tuple[str, ...]
    reference: str
    replicates: int = 10_000
    seed: int = 20261130
    min_targets_two_level: int = 10
    min_tasks: int = 20
    holm_family: tuple[str, ...] = ("view", "measure")
    confidence: float = 0.95
    power: float = 0.8
    champion: str | None = None
    selection: str = "none"
    ties: str = "expected"
    texts: str = ""
    missing: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    title: str = ""
    model_order: tuple[str, ...] = ()
    view_order: tuple[str, ...] = _VIEW_ORDER

    def __post_init__(self) -> None:
        if self.data not in ("sample", "real"):
            raise ValueError(f"table {self.name}: data must be 'sample' or 'real', got {self.data!r}")
        if not self.measures:
            raise ValueError(f"table {self.name}: no measures")
        unknown = [key for key in self.holm_family if key not in (*CELL, "measure")]
        if unknown:
            raise ValueError(f"table {self.name}: holm_family names {unknown}, known are {[*CELL, 'measure']}")


@dataclass(frozen=True, kw_only=True)
class Analysis:
    """Per-task values of a table as arrays, with everything the tables need drawn once; built by `analyse`."""

    spec: TableSpec
    cells: pd.DataFrame
    """(n_cells) one row per block, view and model, columns ``CELL`` + n_seeds, tied_share; sorted for display."""
    values: Floats
    """(n_tasks, n_measures, n_cells) averaged over seeds; NaN where the cell lacks the task."""
    target: Ints
    """(n_tasks,) position in ``targets``."""
    targets: tuple[str, ...]
    std: Floats
    """(n_measures, n_cells) sample standard deviation over per-seed macro scores; NaN for one seed."""
    points: PointEstimates
    """Arrays (n_measures, n_cells)."""
    replicates: NDArray[np.float32]
    """(n_replicates, n_measures, n_cells) macro scores under the shared resample."""
    schemes: tuple[Scheme, ...]
    """(n_cells,) how the cell was resampled."""

    def columns(self) -> Iterator[Ints]:
        """Cells of each (block, view), the rows that are compared with each other."""
        keys = [*BLOCK, "view"]
        groups = self.cells.groupby(keys, sort=False, observed=True).indices
        yield from (np.sort(np.asarray(rows, dtype=np.int64)) for rows in groups.values())

    def target_means(self, cell: int, *, measure: int) -> Floats:
        """Task mean of each target, (n_targets,); NaN without a task."""
        values = self.values[:, measure, cell]
        seen = ~np.isnan(values)
        n = len(self.targets)
        counts = np.bincount(self.target[seen], minlength=n)
        sums = np.bincount(self.target[seen], weights=values[seen], minlength=n)
        return np.divide(sums, counts, out=np.full(n, np.nan), where=counts > 0)


def analyse(per_task: pd.DataFrame, *, spec: TableSpec) -> Analysis:
    """Check the per-task values, average them and draw the shared resample.

    ``per_task`` has one row per task, list and seed: protocol, universe, miner, purge, slice, target, view, task_id,
    model, seed, tied, scored and one column per measure. Rows with ``scored`` false are in no number. Slices are
    separate rows.

    Raises:
        ValueError: if a column or value is missing, a row repeats, a task stands under two targets, or a model lacks
            tasks that another model of the same block and view has (the message lists model and target).
    """
    coded = _encode(per_task, spec=spec)
    del per_task  # a caller that keeps no name for the frame gets its memory back here
    n_tasks, n_cells = len(coded.target), len(coded.cells)
    counts = np.bincount(coded.task * n_cells + coded.cell, minlength=n_tasks * n_cells).reshape(n_tasks, n_cells)
    _refuse_repeats(coded)
    seeds_of = _seeds_of_cells(coded)
    _refuse_holes(coded, counts, seeds_of)
    sums = [np.bincount(coded.task * n_cells + coded.cell, weights=v, minlength=counts.size) for v in coded.measured]
    values = np.stack([s.reshape(counts.shape) for s in sums], axis=1) / np.where(counts, counts, np.nan)[:, None, :]
    cells = coded.cells.assign(
        n_seeds=seeds_of, tied_share=np.bincount(coded.cell, weights=coded.tied) / np.bincount(coded.cell)
    )
    std, target, targets = _seed_deviation(coded), coded.target, coded.targets
    del coded, counts, sums  # before the resample, which needs the most memory
    flat = values.reshape(n_tasks, -1)
    points = point_estimates(flat, target=target, min_tasks=spec.min_tasks)
    shape = (len(spec.measures), n_cells)
    n_targets = points.n_targets.reshape(shape)[0]
    schemes: tuple[Scheme, ...] = tuple(scheme_for(int(n), min_targets=spec.min_targets_two_level) for n in n_targets)
    return Analysis(
        spec=spec,
        cells=cells,
        values=values,
        target=target,
        targets=targets,
        std=std,
        points=PointEstimates(**{f: getattr(points, f).reshape(shape) for f in PointEstimates.__dataclass_fields__}),
        replicates=_replicates(values, target=target, schemes=schemes, spec=spec),
        schemes=schemes,
    )


def summarise(per_task: pd.DataFrame | Analysis, *, spec: TableSpec) -> pd.DataFrame:
    """Tidy table (columns ``TIDY_COLUMNS``): one row per block, view, model and measure.

    ``delta`` and its test compare a row with ``spec.reference`` in the same block and view; they are empty for the
    reference itself. ``paper`` is empty here. Bootstrap statistics are rounded to 1e-6, what replicates carry.

    Raises:
        ValueError: as `analyse`; or if the reference is in no row.
    """
    analysis = _analysed(per_task, spec)
    models = sorted(analysis.cells["model"].unique())
    if spec.reference not in models:
        raise ValueError(f"table {spec.name}: reference {spec.reference!r} has no row; models: {models}")
    tidy = _tidy(analysis, _compared(analysis))
    keys = [key for key in (*CELL, "measure") if key not in spec.holm_family]
    family = list(tidy[keys].itertuples(index=False, name=None)) if keys else [()] * len(tidy)
    tidy["p_adjusted"] = holm_by_family(tidy["p_value"].to_numpy(), family=family)
    return tidy.loc[:, list(TIDY_COLUMNS)]


def gain_over_strongest(per_task: pd.DataFrame | Analysis, *, spec: TableSpec) -> pd.DataFrame:
    """Champion minus the strongest other row, in percentage points (columns ``GAIN_COLUMNS``).

    One row per block, view and measure. The strongest other row is looked for anew in every replicate. Columns
    without the champion, or without another row, are left out.

    Raises:
        ValueError: as `analyse`; or if ``spec.champion`` is in no row.
    """
    analysis = _analysed(per_task, spec)
    if spec.champion is not None and spec.champion not in set(analysis.cells["model"]):
        raise ValueError(f"table {spec.name}: champion {spec.champion!r} has no row")
    rows = [
        _gain_row(analysis, cells, measure=m)
        for cells in analysis.columns()
        if len(cells) > 1 and (spec.champion is None or spec.champion in set(analysis.cells["model"].iloc[cells]))
        for m in range(len(spec.measures))
    ]
    return pd.DataFrame(rows, columns=list(GAIN_COLUMNS))


def per_target(
    per_task: pd.DataFrame | Analysis,
    *,
    spec: TableSpec,
    replicates: int = 2_000,
    only: Mapping[str, str] | None = None,
) -> pd.DataFrame:
    """Difference model - reference in each target, for the forest plot (columns ``TARGET_COLUMNS``).

    Intervals resample the tasks of the target; they are empty below 5 tasks. ``only`` keeps the rows whose cell
    (a key of ``CELL``) has the given values.

    Raises:
        ValueError: as `analyse`.
    """
    analysis = _analysed(per_task, spec)
    wanted = np.ones(len(analysis.cells), dtype=bool)
    for key, value in (only or {}).items():
        wanted &= (analysis.cells[key] == value).to_numpy()
    pairs = [pair for pair in _pairs(analysis) if wanted[pair[0]]]
    if not pairs:
        return pd.DataFrame(columns=list(TARGET_COLUMNS))
    cells, references = np.array(pairs).T
    low, high = _target_intervals(analysis, cells, references, replicates=replicates)
    frames = [_target_frame(analysis, cell, reference) for cell, reference in pairs]
    frame = pd.concat(frames, ignore_index=True)
    drawn = frame["n_tasks"].to_numpy() >= _MIN_TASKS_INTERVAL
    at = frame["pair"].to_numpy(), frame["measure_number"].to_numpy(), frame["target_number"].to_numpy()
    frame["ci_low"], frame["ci_high"] = np.where(drawn, low[at], np.nan), np.where(drawn, high[at], np.nan)
    return frame.loc[:, list(TARGET_COLUMNS)]


# --- reading the per-task frame -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Coded:
    """Scored rows as integer codes; r rows."""

    cell: Ints
    task: Ints
    seed: Ints
    tied: Floats
    measured: tuple[Floats, ...]
    cells: pd.DataFrame
    target: Ints
    targets: tuple[str, ...]
    task_ids: tuple[str, ...]


def _analysed(source: pd.DataFrame | Analysis, spec: TableSpec) -> Analysis:
    if not isinstance(source, Analysis):
        return analyse(source, spec=spec)
    if source.spec != spec:
        raise ValueError(f"table {spec.name}: the analysis was made with another specification")
    return source


def _encode(per_task: pd.DataFrame, *, spec: TableSpec) -> _Coded:
    columns = [_measure_column(per_task, name, table=spec.name) for name in spec.measures]
    missing = [c for c in _PER_TASK if c not in per_task.columns]
    if missing:
        raise ValueError(f"table {spec.name}: per-task values lack the columns {missing}")
    scored = per_task["scored"].to_numpy(dtype=bool)
    frame = per_task.loc[scored, :]
    if frame.empty:
        raise ValueError(f"table {spec.name}: no scored row among {len(per_task)}")
    orders = {"model": spec.model_order, "view": spec.view_order, "slice": ("all",)}
    keys = {key: _factorised(frame[key], first=orders.get(key, ())) for key in CELL}
    cell, cells = _cells(keys)
    target, targets = _factorised(frame["target"])
    task, target_of, task_ids = _tasks(frame["task_id"], target, targets)
    measured = tuple(frame[c].to_numpy(dtype=np.float64) for c in columns)
    for name, values in zip(spec.measures, measured, strict=True):
        bad = np.flatnonzero(~np.isfinite(values))
        if bad.size:
            at = frame.iloc[int(bad[0])]
            raise ValueError(f"table {spec.name}: {name} of {at['model']} on {at['task_id']} is {values[bad[0]]}")
    return _Coded(
        cell=cell,
        task=task,
        seed=_factorised(frame["seed"])[0],
        tied=frame["tied"].to_numpy(dtype=np.float64),
        measured=measured,
        cells=cells,
        target=target_of,
        targets=targets,
        task_ids=task_ids,
    )


def _measure_column(frame: pd.DataFrame, name: str, *, table: str) -> str:
    """The measure's column; a ranking measure may stand under an alias (``RR`` for ``MRR``)."""
    if name in frame.columns:
        return name
    for column in frame.columns:
        try:
            if str(parse_measure(str(column))) == str(parse_measure(name)):
                return str(column)
        except ValueError:
            continue
    raise ValueError(f"table {table}: per-task values have no column for measure {name!r}")


def _factorised(column: pd.Series, *, first: Sequence[str] = ()) -> tuple[Ints, tuple[str, ...]]:
    """Codes and names; ``first`` leads in its order, the others follow sorted."""
    codes, uniques = pd.factorize(column)
    if (codes < 0).any():
        raise ValueError(f"per-task column {column.name!r} has an empty value")
    names = uniques.tolist()
    rank = {name: i for i, name in enumerate(first)}
    order = sorted(range(len(names)), key=lambda i: (rank.get(names[i], len(rank)), names[i]))
    position = np.empty(len(names), dtype=np.int64)
    position[order] = np.arange(len(names))
    return position[codes], tuple(str(names[i]) for i in order)


def _cells(keys: dict[str, tuple[Ints, tuple[str, ...]]]) -> tuple[Ints, pd.DataFrame]:
    """Cell of each row, and the cells sorted by their key codes."""
    sizes = [len(names) for _, names in keys.values()]
    mixed, cell = np.unique(np.ravel_multi_index([codes for codes, _ in keys.values()], sizes), return_inverse=True)
    parts = np.unravel_index(mixed, sizes)
    columns = {key: [names[int(i)] for i in part] for (key, (_, names)), part in zip(keys.items(), parts, strict=True)}
    return cell.astype(np.int64), pd.DataFrame(columns)


def _tasks(column: pd.Series, target: Ints, targets: Sequence[str]) -> tuple[Ints, Ints, tuple[str, ...]]:
    """Task of each row, target of each task, task ids."""
    task, ids = _factorised(column)
    target_of = np.empty(len(ids), dtype=np.int64)
    target_of[task] = target
    clash = np.flatnonzero(target_of[task] != target)
    if clash.size:
        row = int(clash[0])
        raise ValueError(
            f"task {ids[int(task[row])]} stands under the targets {targets[int(target[row])]!r} and "
            f"{targets[int(target_of[task[row]])]!r}; one resample needs one target per task: "
            "summarise protocols separately"
        )
    return task, target_of, ids


def _seeds_of_cells(coded: _Coded) -> Ints:
    pairs = np.unique(coded.cell * (int(coded.seed.max()) + 1) + coded.seed)
    return np.bincount(pairs // (int(coded.seed.max()) + 1), minlength=len(coded.cells))


def _refuse_repeats(coded: _Coded) -> None:
    n_cells, n_seeds = len(coded.cells), int(coded.seed.max()) + 1
    key = (coded.task * n_cells + coded.cell) * n_seeds + coded.seed
    key.sort()
    same = np.flatnonzero(key[1:] == key[:-1])
    if same.size:
        task, cell = divmod(int(key[same[0]]) // n_seeds, n_cells)
        where = ", ".join(f"{k}={v}" for k, v in coded.cells.iloc[cell].items())
        raise ValueError(f"task {coded.task_ids[task]} appears twice for one seed in {where}")


def _refuse_holes(coded: _Coded, counts: Ints, seeds_of: Ints) -> None:
    """Every model of a block and view must have every task of it, for each of its seeds."""
    holes: list[str] = []
    for rows in coded.cells.groupby([*BLOCK, "view"], sort=False).indices.values():
        expected = counts[:, rows].any(axis=1)
        for cell in np.sort(rows):
            short = expected & (counts[:, cell] < seeds_of[cell])
            for g in np.unique(coded.target[short]):
                n = int((short & (coded.target == g)).sum())
                model = coded.cells["model"].iloc[cell]
                where = "/".join(coded.cells.loc[int(cell), [*BLOCK, "view"]].tolist())
                holes.append(f"{model} on {coded.targets[g]} ({n} tasks; {where})")
    if holes:
        more = f" and {len(holes) - _MAX_LISTED} more" if len(holes) > _MAX_LISTED else ""
        raise ValueError(
            f"{len(holes)} holes: {'; '.join(holes[:_MAX_LISTED])}{more}. Finish the missing runs, or leave the model "
            "out of the table"
        )


# --- numbers --------------------------------------------------------------------------------------------------------


def _seed_deviation(coded: _Coded) -> Floats:
    """Sample standard deviation over the per-seed macro scores, (n_measures, n_cells)."""
    n_cells, n_seeds, n_targets = len(coded.cells), int(coded.seed.max()) + 1, len(coded.targets)
    shape = (n_cells, n_seeds, n_targets)
    key = (coded.cell * n_seeds + coded.seed) * n_targets + coded.target[coded.task]
    counts = np.bincount(key, minlength=int(np.prod(shape))).reshape(shape)
    out = np.full((len(coded.measured), n_cells), np.nan)
    scored = (counts > 0).sum(axis=2)
    several = (scored > 0).sum(axis=1) > 1
    for m, values in enumerate(coded.measured):
        sums = np.bincount(key, weights=values, minlength=counts.size).reshape(shape)
        means = np.divide(sums, counts, out=np.zeros(shape), where=counts > 0)
        macro = np.divide(means.sum(axis=2), scored, out=np.full(scored.shape, np.nan), where=scored > 0)
        out[m, several] = np.nanstd(macro[several], axis=1, ddof=1)
    return out


def _replicates(values: Floats, *, target: Ints, schemes: Sequence[Scheme], spec: TableSpec) -> NDArray[np.float32]:
    """One shared resample for all cells of a scheme, (n_replicates, n_measures, n_cells)."""
    out = np.empty((spec.replicates, *values.shape[1:]), np.float32)
    for scheme in sorted(set(schemes)):
        cells = np.flatnonzero([s == scheme for s in schemes])
        seen = ~np.isnan(values[:, 0, cells]).all(axis=1)
        _, code = np.unique(target[seen], return_inverse=True)
        drawn = transfer_bootstrap(
            values[seen][:, :, cells].reshape(int(seen.sum()), -1),
            target=code,
            replicates=spec.replicates,
            seed=spec.seed,
            scheme=scheme,
        )
        out[:, :, cells] = drawn.macro.reshape(spec.replicates, values.shape[1], len(cells))
    return out


@dataclass(frozen=True, slots=True, kw_only=True)
class _Compared:
    """Comparisons with the reference; arrays (n_measures, n_cells), NaN where there is none."""

    delta: Floats
    low: Floats
    high: Floats
    p_value: Floats
    mde: Floats
    note: NDArray[np.object_]


def _pairs(analysis: Analysis) -> Iterator[tuple[int, int]]:
    """(cell, reference cell) of every comparison."""
    for rows in analysis.columns():
        models = analysis.cells["model"].iloc[rows].tolist()
        if analysis.spec.reference in models:
            reference = int(rows[models.index(analysis.spec.reference)])
            yield from ((int(cell), reference) for cell in rows if cell != reference)


def _compared(analysis: Analysis) -> _Compared:
    shape = (len(analysis.spec.measures), len(analysis.cells))
    out = _Compared(
        **{name: np.full(shape, np.nan) for name in ("delta", "low", "high", "p_value", "mde")},
        note=np.full(shape, "the reference is not in this view", dtype=object),
    )
    out.note[:, analysis.cells["model"].to_numpy() == analysis.spec.reference] = ""
    for cell, reference in _pairs(analysis):
        found = _difference(analysis, cell, reference)
        out.delta[:, cell], out.p_value[:, cell] = found.delta.round(12), found.p_value
        out.low[:, cell], out.high[:, cell] = found.low.round(6), found.high.round(6)
        out.mde[:, cell] = minimum_detectable_effect(found.standard_error, power=analysis.spec.power).round(6)
        within = analysis.schemes[cell] == "within_targets"
        out.note[:, cell] = [_signs(analysis, cell, reference, measure=m) if within else "" for m in range(shape[0])]
        if _has_single_tasks(analysis, cell):
            for column in (out.low, out.high, out.p_value, out.mde):
                column[:, cell] = np.nan
            out.note[:, cell] = [f"{note}; {NO_INTERVAL}" for note in out.note[:, cell]]
    return out


def _tidy(analysis: Analysis, compared: _Compared) -> pd.DataFrame:
    """Tidy rows in cell order, measures inside a cell; p_adjusted still to come."""
    spec, points = analysis.spec, analysis.points
    n = len(spec.measures)
    frame = analysis.cells.loc[analysis.cells.index.repeat(n)].reset_index(drop=True)
    conditional = np.repeat([CONDITIONAL if s == "within_targets" else "" for s in analysis.schemes], n)
    columns = {
        "mean": points.macro.round(12),
        "std": analysis.std.round(12),
        "task_mean": points.task_mean.round(12),
        "mean_ge20": points.macro_large.round(12),
        "n_targets": points.n_targets,
        "n_tasks": points.n_tasks,
        "delta": compared.delta,
        "ci_low": compared.low,
        "ci_high": compared.high,
        "p_value": compared.p_value,
        "mde": compared.mde,
    }
    return frame.assign(
        table=spec.name,
        measure=list(spec.measures) * len(analysis.cells),
        **{name: array.T.ravel() for name, array in columns.items()},
        paper=np.nan,
        reference=spec.reference,
        data=spec.data,
        note=[_joined(*pair) for pair in zip(conditional, compared.note.T.ravel(), strict=True)],
        tied_share=frame["tied_share"].round(12),
    )


def _difference(analysis: Analysis, cell: int, reference: int) -> Differences:
    drawn = analysis.replicates[:, :, cell].astype(np.float64) - analysis.replicates[:, :, reference]
    macro = analysis.points.macro
    return differences(drawn, estimate=macro[:, cell] - macro[:, reference], confidence=analysis.spec.confidence)


def _has_single_tasks(analysis: Analysis, cell: int) -> bool:
    """Whether a cell whose targets stay fixed has a target of one task: resampling it says nothing."""
    if analysis.schemes[cell] != "within_targets":
        return False
    present = ~np.isnan(analysis.values[:, 0, cell])
    counts = np.bincount(analysis.target[present])
    return bool((counts == 1).any())


def _signs(analysis: Analysis, cell: int, reference: int, *, measure: int) -> str:
    delta = analysis.target_means(cell, measure=measure) - analysis.target_means(reference, measure=measure)
    delta = delta[~np.isnan(delta)]
    return f"difference positive in {int((delta > ZERO).sum())} of {len(delta)} targets"


def _gain_row(analysis: Analysis, cells: Ints, *, measure: int) -> dict[str, object]:
    spec = analysis.spec
    models = analysis.cells["model"].iloc[cells].tolist()
    scores = analysis.points.macro[measure, cells]
    champion = models.index(spec.champion) if spec.champion else int(np.argmax(scores))
    drawn, gain, rival = strongest_other(analysis.replicates[:, measure, cells], estimate=scores, champion=champion)
    found = differences(drawn[:, None], estimate=[gain], confidence=spec.confidence)
    key = analysis.cells.iloc[cells[champion]]
    note = "" if spec.champion else "champion is the best row, chosen after the fact"
    if analysis.schemes[cells[champion]] == "within_targets":
        note = _joined(CONDITIONAL, note)
    low, high, p_value = float(found.low[0]), float(found.high[0]), float(found.p_value[0])
    if _has_single_tasks(analysis, int(cells[champion])):
        low = high = p_value = float("nan")
        note = _joined(note, NO_INTERVAL)
    return {
        "table": spec.name,
        **{k: key[k] for k in (*BLOCK, "view")},
        "measure": spec.measures[measure],
        "champion": models[champion],
        "strongest": models[rival],
        "gain_pp": round(100.0 * float(found.delta[0]), 10),
        "ci_low_pp": round(100.0 * low, 4),
        "ci_high_pp": round(100.0 * high, 4),
        "p_value": p_value,
        "n_targets": int(analysis.points.n_targets[measure, cells[champion]]),
        "n_tasks": int(analysis.points.n_tasks[measure, cells[champion]]),
        "note": note,
    }


def _target_frame(analysis: Analysis, cell: int, reference: int) -> pd.DataFrame:
    """Per-target differences of one model, all measures, still without intervals."""
    spec, key = analysis.spec, analysis.cells.iloc[cell]
    present = ~np.isnan(analysis.values[:, 0, cell])
    counts = np.bincount(analysis.target[present], minlength=len(analysis.targets))
    frames: list[pd.DataFrame] = []
    for m, name in enumerate(spec.measures):
        value = analysis.target_means(cell, measure=m)
        against = analysis.target_means(reference, measure=m)
        frame = pd.DataFrame(
            {
                **{k: key[k] for k in CELL},
                "measure": name,
                "reference": spec.reference,
                "target": list(analysis.targets),
                "n_tasks": counts,
                "value": value.round(12),
                "reference_value": against.round(12),
                "delta": (value - against).round(12),
                "pair": cell,
                "measure_number": m,
                "target_number": np.arange(len(counts)),
            }
        )
        frames.append(frame.loc[counts > 0, :])
    return pd.concat(frames, ignore_index=True)


def _target_intervals(analysis: Analysis, cells: Ints, references: Ints, *, replicates: int) -> tuple[Floats, Floats]:
    """Percentile interval of each target's difference, two arrays (n_cells, n_measures, n_targets)."""
    shape = (len(analysis.cells), len(analysis.spec.measures), len(analysis.targets))
    low, high = np.full(shape, np.nan), np.full(shape, np.nan)
    for g in range(shape[2]):
        rows = analysis.values[analysis.target == g]
        deltas = (rows[:, :, cells] - rows[:, :, references]).reshape(len(rows), -1)
        drawn = transfer_bootstrap(
            deltas,
            target=np.zeros(len(rows), dtype=np.int64),
            replicates=replicates,
            seed=analysis.spec.seed,
            scheme="within_targets",
        )
        found = differences(drawn.macro, estimate=drawn.estimate, confidence=analysis.spec.confidence)
        low[cells, :, g] = found.low.reshape(shape[1], -1).T.round(6)
        high[cells, :, g] = found.high.reshape(shape[1], -1).T.round(6)
    return low, high


def _joined(first: str, second: str) -> str:
    return "; ".join(part for part in (first, second) if part)

"""Per-query results of a study: means over queries, paired differences, and the tidy table made of them.

A study (tool sequences, dispatch, diagnostics) has one pool of queries per split and no targets, so a mean is one over
queries. Queries that share an origin are not independent: groups of queries are resampled, never single ones
(spec/metrics_and_statistics.md section 4, spec/validity.md section 8).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_matrix
from threadpoolctl import threadpool_limits

from toolshift.evaluation.aggregate import TIDY_COLUMNS
from toolshift.evaluation.compare import ZERO, differences, holm_by_family, minimum_detectable_effect
from toolshift.runs.files import write_binary
from toolshift.runs.seeds import generator

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
RowKey = tuple[str, str, str]
"""(protocol, view, model)"""

ROW = ("protocol", "view", "model")
QUERY_KEYS = (*ROW, "seed", "task_id", "group")
"""Key columns of a per-query frame; numeric columns beside them are measures, others are kept for reading."""
STATISTICS = (
    "mean_ci_low", "mean_ci_high", "n_groups", "n_undefined", "n_paired", "p_one_sided", "improved", "degraded",
    "equal",
)  # fmt: skip
STUDY_COLUMNS = (*TIDY_COLUMNS, *STATISTICS)
"""Columns of a study's ``outputs/tables/<name>.csv``: the tidy ones, then what only queries have."""
PAIR_COLUMNS = (
    "protocol", "view", "model", "reference_view", "reference", "measure", "delta", "ci_low", "ci_high", "p_value",
    "p_one_sided", "mde", "n_paired", "n_groups", "improved", "degraded", "equal",
)  # fmt: skip

# Columns whose replicates are held at once, and draws made at once: both bound memory and are part of no result.
_COLUMNS = 512
_DRAWS = 2_000_000
_MAX_LISTED = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class QuerySpec:
    """What is computed from the per-query values of a study.

    ``reference`` is the row that every other row of the same protocol and view is compared with; None compares none.
    ``lower_is_better`` names measures such as errors and times: "improved" then means lower. ``holm_family`` names the
    keys that vary inside a family of tests; all other keys separate families. ``span``: the groups that one resample is
    drawn from, those of a protocol (any two of its columns can be compared, a view with few of the groups gets a random
    number of them) or those of a view. With fewer than ``min_groups`` groups there is no interval. Rows and views come
    in the given order, others follow alphabetically.

    Raises:
        ValueError: if a field is out of range or names an unknown key.
    """

    name: str
    data: Literal["sample", "real"]
    measures: tuple[str, ...]
    reference: str | None
    lower_is_better: tuple[str, ...] = ()
    replicates: int = 10_000
    seed: int = 20261130
    confidence: float = 0.95
    power: float = 0.8
    holm_family: tuple[str, ...] = ("view", "measure")
    span: Literal["protocol", "view"] = "protocol"
    min_groups: int = 5
    model_order: tuple[str, ...] = ()
    view_order: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.data not in ("sample", "real"):
            raise ValueError(f"table {self.name}: data must be 'sample' or 'real', got {self.data!r}")
        if self.span not in ("protocol", "view"):
            raise ValueError(f"table {self.name}: span must be 'protocol' or 'view', got {self.span!r}")
        if not self.measures or len(set(self.measures)) < len(self.measures):
            raise ValueError(f"table {self.name}: measures must be named, each once, got {list(self.measures)}")
        if self.replicates < 1 or not 0.0 < self.confidence < 1.0:
            raise ValueError(f"table {self.name}: need replicates >= 1 and a confidence inside (0, 1)")
        unknown = [key for key in self.holm_family if key not in (*ROW, "measure")]
        if unknown:
            raise ValueError(f"table {self.name}: holm_family names {unknown}, known are {[*ROW, 'measure']}")
        stray = sorted(set(self.lower_is_better) - set(self.measures))
        if stray:
            raise ValueError(f"table {self.name}: lower_is_better names {stray}, which are no measures of the table")


@dataclass(frozen=True, kw_only=True)
class Split:
    """The queries of one protocol as arrays; n tasks sorted by id, m measures, r rows in table order."""

    protocol: str
    rows: pd.DataFrame
    """(r) columns view, model, n_seeds."""
    task_ids: tuple[str, ...]
    group: Ints
    """(n,) position in ``groups``."""
    groups: tuple[str, ...]
    present: Bools
    """(n, r) whether the row has the task; its value may still be undefined."""
    values: Floats
    """(n, m, r) mean over the seeds in which the value is defined; NaN where it is in none."""
    std: Floats
    """(m, r) sample standard deviation over the means of the seeds; NaN for one seed."""


@dataclass(frozen=True, kw_only=True)
class Queries:
    """Checked per-query values of a study; built by `read_queries`."""

    spec: QuerySpec
    splits: tuple[Split, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tests:
    """Paired comparisons, arrays (m, k); NaN (0 for counts) where there is none."""

    delta: Floats
    ci_low: Floats
    ci_high: Floats
    p_value: Floats
    p_one_sided: Floats
    mde: Floats
    n_paired: Ints
    n_groups: Ints
    improved: Ints
    degraded: Ints
    equal: Ints


# --- files ----------------------------------------------------------------------------------------------------------


def write_per_query(path: Path, frame: pd.DataFrame) -> Path:
    """Write a per-query frame as parquet, whole or not at all, rows sorted by key: equal content gives equal bytes.

    Raises:
        ValueError: if a key column is missing or empty, or a row repeats.
    """
    wide = _wide(frame, where=str(path))
    ordered = wide.sort_values(list(QUERY_KEYS), kind="stable")
    table = pa.Table.from_pandas(ordered, preserve_index=False).replace_schema_metadata()
    return write_binary(path, lambda stream: pq.write_table(table, stream, compression="zstd"))


def read_per_query(path: Path) -> pd.DataFrame:
    """Read what `write_per_query` wrote.

    Raises:
        ValueError: if the file is not there, is no parquet or lacks a key column; the message names it.
    """
    try:
        frame = pq.read_table(path).to_pandas()
    except (OSError, pa.ArrowInvalid) as error:
        raise ValueError(f"{path}: no per-query values ({error}); run the experiment again") from error
    return _wide(frame, where=str(path))


# --- statistics -----------------------------------------------------------------------------------------------------


def read_queries(frame: pd.DataFrame, *, spec: QuerySpec) -> Queries:
    """Check a per-query frame and average it over seeds.

    One row per query, model, view and seed with the columns ``QUERY_KEYS`` and one column per measure, NaN where the
    measure is undefined for the query; or long, with the columns ``measure`` and ``value``, where an absent line is
    undefined. Without a column ``group`` every task is its own group.

    Raises:
        ValueError: if a column or key is missing, a row repeats, a task stands in two groups of a protocol, a value is
            infinite, or a row lacks queries that another row of its view has (the message lists them).
    """
    wide = _wide(frame, where=f"table {spec.name}")
    missing = [name for name in spec.measures if name not in wide.columns]
    if missing:
        raise ValueError(f"table {spec.name}: per-query values have no column for {missing}")
    if wide.empty:
        raise ValueError(f"table {spec.name}: no per-query values")
    parts = [(str(name), part) for name, part in wide.groupby("protocol", sort=True)]
    return Queries(spec=spec, splits=tuple(_split(part, name, spec=spec) for name, part in parts))


def cluster_bootstrap(values: ArrayLike, *, group: ArrayLike, replicates: int, seed: int, stream: str = "") -> Floats:
    """Means over queries when whole groups are resampled, jointly for all columns.

    A replicate draws as many groups as there are, with replacement; a column's mean is the sum over the drawn queries
    that have a value, over their number. Each replicate is a vector of multinomial counts times the group sums.

    Args:
        values: (n, c); NaN where a column is undefined.
        group: (n,) int codes 0..G-1. A code may be unused by all values: its group is drawn and adds nothing.
        replicates: number of replicates B.
        seed: with ``stream`` and G, names the draws; they depend on no value and no column.
        stream: further name of the draws, such as a digest of the groups' names.

    Returns (B, c) float64, NaN where a replicate drew no value of the column. Bits do not depend on the number of
    threads: BLAS is held to one.

    Raises:
        ValueError: if shapes or codes are wrong, or ``replicates`` is below 1.
    """
    matrix, code = np.asarray(values, dtype=np.float64), np.asarray(group)
    if matrix.ndim != 2 or code.shape != matrix.shape[:1] or not len(code) or code.dtype.kind not in "iu":
        raise ValueError(f"values must be (n, c) and group (n,) int codes, got {matrix.shape} and {code.shape}")
    if int(code.min()) < 0 or replicates < 1:
        raise ValueError(f"group codes must not be negative and replicates positive, got {replicates} replicates")
    n_groups = int(code.max()) + 1
    defined = ~np.isnan(matrix)
    patterns, pattern_of = np.unique(defined, axis=1, return_inverse=True)
    adder = csr_matrix((np.ones(len(code)), (code, np.arange(len(code)))), shape=(n_groups, len(code)))
    sums = np.ascontiguousarray(adder @ np.where(defined, matrix, 0.0))
    sizes = np.ascontiguousarray(adder @ patterns.astype(np.float64))
    out = np.empty((replicates, matrix.shape[1]))
    rng = generator("bootstrap/queries", seed, stream)
    step = max(1, _DRAWS // n_groups)
    with threadpool_limits(limits=1):
        for begin in range(0, replicates, step):
            rows = slice(begin, min(begin + step, replicates))
            counts = _multinomial(rows.stop - begin, n_groups=n_groups, rng=rng)
            drawn = (counts @ sizes)[:, pattern_of.ravel()]
            np.divide(counts @ sums, drawn, out=out[rows], where=drawn > 0)
            out[rows][drawn == 0] = np.nan
    return out


def summarise_queries(source: pd.DataFrame | Queries, *, spec: QuerySpec) -> pd.DataFrame:
    """Tidy table (columns ``STUDY_COLUMNS``): one row per protocol, view, model and measure.

    A study is one target: ``mean`` and ``task_mean`` are the mean over queries with a value, n_tasks their number.
    ``delta`` is the mean over the queries for which row and reference both have a value (n_paired), so with undefined
    values it need not be the difference of the two means. ``p_one_sided`` is the share of replicates in which the row
    is no better than the reference, the p of the SkillGraph code. ``paper`` is empty here.

    Raises:
        ValueError: as `read_queries`; or if the reference is in no row.
    """
    queries = _checked(source, spec)
    models = sorted({str(model) for split in queries.splits for model in split.rows["model"]})
    if spec.reference is not None and spec.reference not in models:
        raise ValueError(f"table {spec.name}: reference {spec.reference!r} has no row; models: {models}")
    tidy = pd.concat([_tidy(split, spec) for split in queries.splits], ignore_index=True)
    keys = [key for key in (*ROW, "measure") if key not in spec.holm_family]
    family = list(tidy[keys].itertuples(index=False, name=None)) if keys else [()] * len(tidy)
    tidy["p_adjusted"] = holm_by_family(tidy["p_value"].to_numpy(), family=family)
    return tidy.loc[:, list(STUDY_COLUMNS)]


def compare_rows(
    source: pd.DataFrame | Queries, *, spec: QuerySpec, pairs: Sequence[tuple[RowKey, RowKey]]
) -> pd.DataFrame:
    """Paired differences of chosen rows, first minus second (columns ``PAIR_COLUMNS``), also across views.

    The resample is the one of the table if ``spec.span`` is ``protocol``; pairs across views are always drawn so.

    Raises:
        ValueError: as `read_queries`; or if a row is not there or a pair spans two protocols.
    """
    queries = _checked(source, spec)
    frames: list[pd.DataFrame] = []
    for first, second in pairs:
        if first[0] != second[0]:
            raise ValueError(f"rows {first} and {second} are of two protocols; their queries are not paired")
        split = next((s for s in queries.splits if s.protocol == first[0]), None)
        ours, theirs = (_position(split, row, table=spec.name) for row in (first, second))
        assert split is not None  # _position refuses it
        alone = spec.span == "view" and first[1] == second[1]
        tasks = split.present[:, ours] if alone else np.ones(len(split.group), bool)
        deltas = split.values[:, :, [ours]] - split.values[:, :, [theirs]]
        drawn = _replicates(split, deltas, tasks=tasks, spec=spec)
        found = _tests(split, deltas, drawn=drawn, spec=spec)
        frame = pd.DataFrame({name: getattr(found, name)[:, 0] for name in _Tests.__dataclass_fields__})
        keys = dict(zip(("protocol", "view", "model"), first, strict=True))
        frames.append(frame.assign(**keys, reference_view=second[1], reference=second[2], measure=list(spec.measures)))
    if not frames:
        return pd.DataFrame(columns=list(PAIR_COLUMNS))
    return pd.concat(frames, ignore_index=True).loc[:, list(PAIR_COLUMNS)]


def with_pareto(tidy: pd.DataFrame, *, first: str, second: str, spec: QuerySpec) -> pd.DataFrame:
    """The table with a column ``pareto``: whether no row of the same protocol and view is at least as good in both
    measures and better in one. NaN means are never on the front; equal rows both are.

    Raises:
        ValueError: if a measure is not in the table.
    """
    unknown = [name for name in (first, second) if name not in set(tidy["measure"])]
    if unknown:
        raise ValueError(f"table {spec.name}: no measure {unknown}; there are {sorted(set(tidy['measure']))}")
    front: set[RowKey] = set()
    for _, part in tidy.groupby(["protocol", "view"], sort=False):
        chosen = part.loc[part["measure"].isin([first, second]), :]
        scores = chosen.pivot(index="model", columns="measure", values="mean").reindex(columns=[first, second])
        better = scores.to_numpy(float) * [-1.0 if name in spec.lower_is_better else 1.0 for name in (first, second)]
        key = part.iloc[0]
        on_it = _undominated(better)
        front |= {(key["protocol"], key["view"], str(m)) for m, hit in zip(scores.index, on_it, strict=True) if hit}
    hits = [row in front for row in tidy[list(ROW)].itertuples(index=False, name=None)]
    return tidy.assign(pareto=np.array(hits, bool))


# --- reading --------------------------------------------------------------------------------------------------------


def _checked(source: pd.DataFrame | Queries, spec: QuerySpec) -> Queries:
    if not isinstance(source, Queries):
        return read_queries(source, spec=spec)
    if source.spec != spec:
        raise ValueError(f"table {spec.name}: the queries were read with another specification")
    return source


def _wide(frame: pd.DataFrame, *, where: str) -> pd.DataFrame:
    """The frame with one column per measure, keys first, each row once."""
    if "group" not in frame.columns and "task_id" in frame.columns:
        frame = frame.assign(group=frame["task_id"])
    missing = [key for key in QUERY_KEYS if key not in frame.columns]
    if missing:
        raise ValueError(f"{where}: per-query values lack the columns {missing}")
    empty = [key for key in QUERY_KEYS if np.asarray(pd.isna(frame[key])).any()]
    if empty:
        raise ValueError(f"{where}: per-query values have empty entries in {empty}")
    keys = list(QUERY_KEYS)
    if {"measure", "value"} <= set(frame.columns):
        _refuse_repeats(frame, [*keys, "measure"], where=where)
        frame = frame.pivot(index=keys, columns="measure", values="value").reset_index()
        frame.columns.name = None
    _refuse_repeats(frame, [key for key in keys if key != "group"], where=where)
    others = [str(name) for name in frame.columns if name not in QUERY_KEYS]
    numbers = [name for name in others if pd.api.types.is_numeric_dtype(frame[name])]
    text = {key: str for key in keys if key != "seed"}
    kinds = {**text, "seed": np.int64, **dict.fromkeys(numbers, np.float64)}
    return frame.loc[:, [*keys, *others]].astype(kinds).reset_index(drop=True)


def _refuse_repeats(frame: pd.DataFrame, keys: list[str], *, where: str) -> None:
    again = frame.duplicated(keys).to_numpy(bool)
    if again.any():
        at = frame.loc[again, keys].iloc[0]
        raise ValueError(f"{where}: a query appears twice: " + ", ".join(f"{key}={at[key]}" for key in keys))


def _split(frame: pd.DataFrame, protocol: str, *, spec: QuerySpec) -> Split:
    task, task_ids = _codes(frame["task_id"].tolist())
    group, groups = _codes(frame["group"].tolist())
    view, views = _codes(frame["view"].tolist(), first=spec.view_order)
    model, models = _codes(frame["model"].tolist(), first=spec.model_order)
    seed = pd.factorize(frame["seed"], sort=True)[0].astype(np.int64)
    mixed, row = np.unique(view * len(models) + model, return_inverse=True)
    shape = (len(task_ids), len(mixed))
    counts = np.bincount(task * shape[1] + row, minlength=shape[0] * shape[1]).reshape(shape)
    n_seeds = int(seed.max()) + 1
    seeds_of = np.bincount(np.unique(row * n_seeds + seed) // n_seeds, minlength=shape[1])
    rows = pd.DataFrame(
        {
            "view": [views[int(i)] for i in mixed // len(models)],
            "model": [models[int(i)] for i in mixed % len(models)],
            "n_seeds": seeds_of,
        }
    )
    _refuse_holes(counts, rows, task_ids=task_ids, where=f"table {spec.name}, {protocol}")
    measured = [_finite(frame, name, where=f"table {spec.name}, {protocol}") for name in spec.measures]
    return Split(
        protocol=protocol,
        rows=rows,
        task_ids=task_ids,
        group=_one_group(task, group, task_ids=task_ids, groups=groups, protocol=protocol),
        groups=groups,
        present=counts > 0,
        values=np.stack([_means(values, task * shape[1] + row, shape=shape) for values in measured], axis=1),
        std=np.stack([_seed_deviation(values, row, seed, shape=(shape[1], n_seeds)) for values in measured]),
    )


def _codes(column: Sequence[str], *, first: Sequence[str] = ()) -> tuple[Ints, tuple[str, ...]]:
    """Codes and names; ``first`` leads in its order, the others follow sorted."""
    present = set(column)
    names = [name for name in first if name in present]
    names += sorted(present - set(names))
    return pd.Index(names).get_indexer(pd.Index(column)).astype(np.int64), tuple(names)


def _finite(frame: pd.DataFrame, name: str, *, where: str) -> Floats:
    if not pd.api.types.is_numeric_dtype(frame[name]):
        raise ValueError(f"{where}: the values of {name} are no numbers")
    values = frame[name].to_numpy(np.float64)
    bad = np.flatnonzero(np.isinf(values))
    if bad.size:
        at = frame.iloc[int(bad[0])]
        raise ValueError(f"{where}: {name} of {at['model']} on {at['task_id']} is {values[bad[0]]}")
    return values


def _one_group(task: Ints, group: Ints, *, task_ids: tuple[str, ...], groups: tuple[str, ...], protocol: str) -> Ints:
    of_task = np.empty(len(task_ids), np.int64)
    of_task[task] = group
    clash = np.flatnonzero(of_task[task] != group)
    if clash.size:
        row = int(clash[0])
        names = sorted((groups[int(group[row])], groups[int(of_task[task[row]])]))
        raise ValueError(f"{protocol}: task {task_ids[int(task[row])]} stands in the groups {names[0]} and {names[1]}")
    return of_task


def _refuse_holes(counts: Ints, rows: pd.DataFrame, *, task_ids: tuple[str, ...], where: str) -> None:
    """Every row of a view must have every query of it, for each of its seeds."""
    holes: list[str] = []
    for name, members in rows.groupby("view", sort=False).indices.items():
        expected = counts[:, members].any(axis=1)
        for row in np.sort(members):
            short = np.flatnonzero(expected & (counts[:, row] < rows["n_seeds"].iloc[row]))
            if short.size:
                model = rows["model"].iloc[row]
                holes.append(f"{model} in view {name} ({short.size} queries, first {task_ids[int(short[0])]})")
    if holes:
        more = f" and {len(holes) - _MAX_LISTED} more" if len(holes) > _MAX_LISTED else ""
        raise ValueError(
            f"{where}: {len(holes)} rows lack queries: {'; '.join(holes[:_MAX_LISTED])}{more}. Finish the missing "
            "runs, or give the smaller set of queries a view of its own. An undefined value is NaN, not a missing row"
        )


def _means(values: Floats, key: Ints, *, shape: tuple[int, int]) -> Floats:
    """Mean of the defined values of each key; NaN for none."""
    defined = ~np.isnan(values)
    size = shape[0] * shape[1]
    counts = np.bincount(key[defined], minlength=size)
    # Sorted by value inside each key: the sum then does not follow the order of the rows.
    order = np.lexsort((values[defined], key[defined]))
    sums = np.bincount(key[defined][order], weights=values[defined][order], minlength=size)
    return np.divide(sums, counts, out=np.full(size, np.nan), where=counts > 0).reshape(shape)


def _seed_deviation(values: Floats, row: Ints, seed: Ints, *, shape: tuple[int, int]) -> Floats:
    """Sample standard deviation over the means of the seeds, (r,); a seed without a value is left out."""
    means = _means(values, row * shape[1] + seed, shape=shape)
    several = (~np.isnan(means)).sum(axis=1) > 1
    out = np.full(shape[0], np.nan)
    out[several] = np.nanstd(means[several], axis=1, ddof=1)
    return out


# --- numbers --------------------------------------------------------------------------------------------------------


def _multinomial(n: int, *, n_groups: int, rng: np.random.Generator) -> Floats:
    """How often each of n replicates draws each group, (n, G); rows sum to G."""
    draws = rng.integers(0, n_groups, size=(n, n_groups), dtype=np.int32)
    counts = np.empty((n, n_groups))
    for row, drawn in zip(counts, draws, strict=True):  # one row at a time stays in the processor's cache
        row[:] = np.bincount(drawn, minlength=n_groups)
    return counts


def _replicates(split: Split, columns: Floats, *, tasks: Bools, spec: QuerySpec) -> Floats:
    """Resampled means (B, c) of ``columns`` (n, m, k), c = m k; groups of the given tasks are drawn."""
    used, code = np.unique(split.group[tasks], return_inverse=True)
    # Equal groups give equal draws, whatever else stands in the table.
    names = "\x1f".join(split.groups[int(g)] for g in used)
    return cluster_bootstrap(
        columns[tasks].reshape(int(tasks.sum()), -1),
        group=code,
        replicates=spec.replicates,
        seed=spec.seed,
        stream=hashlib.sha256(names.encode()).hexdigest(),
    )


def _tidy(split: Split, spec: QuerySpec) -> pd.DataFrame:
    """Tidy rows of a split in row order, measures inside a row; p_adjusted still to come."""
    shape = (len(spec.measures), len(split.rows))
    reference = _references(split, spec)
    low, high = np.full(shape, np.nan), np.full(shape, np.nan)
    numbers = {name: np.full(shape, np.nan) for name in _Tests.__dataclass_fields__}
    for rows, tasks in _blocks(split, spec):
        values = split.values[:, :, rows]
        compared = rows[reference[rows] >= 0]
        deltas = split.values[:, :, compared] - split.values[:, :, reference[compared]]
        drawn = _replicates(split, np.concatenate([values, deltas], axis=2), tasks=tasks, spec=spec)
        drawn = drawn.reshape(spec.replicates, shape[0], -1)
        low[:, rows], high[:, rows] = _intervals(split, values, drawn=drawn[:, :, : len(rows)], spec=spec)
        found = _tests(split, deltas, drawn=drawn[:, :, len(rows) :].reshape(spec.replicates, -1), spec=spec)
        for name, array in numbers.items():
            array[:, compared] = getattr(found, name)
    return _frame(split, spec, reference=reference, low=low, high=high, tests=numbers)


def _references(split: Split, spec: QuerySpec) -> Ints:
    """Row that each row is compared with, (r,); -1 for none."""
    out = np.full(len(split.rows), -1, np.int64)
    for members in split.rows.groupby("view", sort=False).indices.values():
        found = [int(i) for i in members if split.rows["model"].iloc[i] == spec.reference]
        if found:
            out[members] = found[0]
            out[found[0]] = -1
    return out


def _blocks(split: Split, spec: QuerySpec) -> Iterator[tuple[Ints, Bools]]:
    """Rows worked on at once, with the tasks whose groups are drawn for them."""
    whole = np.arange(len(split.rows), dtype=np.int64)
    views = [np.sort(rows) for rows in split.rows.groupby("view", sort=False).indices.values()]
    step = max(1, _COLUMNS // (2 * len(spec.measures)))
    for rows in [whole] if spec.span == "protocol" else views:
        tasks = np.ones(len(split.group), bool)
        if spec.span == "view":
            tasks = np.asarray(np.any(split.present[:, rows], axis=1), bool)
        for begin in range(0, len(rows), step):
            yield rows[begin : begin + step].astype(np.int64), tasks


def _intervals(split: Split, values: Floats, *, drawn: Floats, spec: QuerySpec) -> tuple[Floats, Floats]:
    """Percentile interval of the mean, two arrays (m, k)."""
    shape = values.shape[1:]
    mean = _over_queries(values).ravel()
    found = differences(drawn.reshape(len(drawn), -1), estimate=mean, confidence=spec.confidence)
    few = _groups_of(split, values) < spec.min_groups
    low, high = (np.where(few, np.nan, end.reshape(shape).round(9)) for end in (found.low, found.high))
    return low, high


def _tests(split: Split, deltas: Floats, *, drawn: Floats, spec: QuerySpec) -> _Tests:
    """Comparisons of k pairs from their per-query differences (n, m, k) and resampled means (B, m k)."""
    shape = deltas.shape[1:]
    sign = np.where([name in spec.lower_is_better for name in spec.measures], -1.0, 1.0)[:, None]
    flip = np.broadcast_to(sign, shape)
    mean = _over_queries(deltas)
    # Signed so that larger is better: one-sided p, improved and degraded then read the same for every measure.
    found = differences(drawn * flip.ravel(), estimate=(mean * flip).ravel(), confidence=spec.confidence)
    low, high = found.low.reshape(shape), found.high.reshape(shape)
    n_groups = _groups_of(split, deltas)

    def kept(array: Floats, digits: int = 12) -> Floats:
        return np.where(n_groups < spec.min_groups, np.nan, array.reshape(shape).round(digits)) + 0.0

    gain = deltas * flip
    defined = ~np.isnan(gain)
    improved, degraded = (gain > ZERO).sum(axis=0), (gain < -ZERO).sum(axis=0)
    return _Tests(
        delta=np.where(np.abs(mean) < ZERO, 0.0 * mean, mean).round(12) + 0.0,
        ci_low=kept(np.where(flip > 0, low, -high), 9),
        ci_high=kept(np.where(flip > 0, high, -low), 9),
        p_value=kept(found.p_value),
        p_one_sided=kept(found.p_not_greater),
        mde=kept(minimum_detectable_effect(found.standard_error, power=spec.power), 9),
        n_paired=defined.sum(axis=0),
        n_groups=n_groups,
        improved=improved,
        degraded=degraded,
        equal=defined.sum(axis=0) - improved - degraded,
    )


def _over_queries(values: Floats) -> Floats:
    """Mean over queries with a value, (m, k); NaN for none."""
    defined = ~np.isnan(values)
    counts = defined.sum(axis=0)
    sums = np.where(defined, values, 0.0).sum(axis=0)
    return np.divide(sums, counts, out=np.full(counts.shape, np.nan), where=counts > 0)


def _groups_of(split: Split, values: Floats) -> Ints:
    """Groups with a value, (m, k)."""
    n = len(split.groups)
    adder = csr_matrix((np.ones(len(split.group)), (split.group, np.arange(len(split.group)))), shape=(n, len(values)))
    flat = (~np.isnan(values)).reshape(len(values), -1).astype(np.float64)
    return (adder @ flat > 0).sum(axis=0).reshape(values.shape[1:])


def _frame(
    split: Split, spec: QuerySpec, *, reference: Ints, low: Floats, high: Floats, tests: dict[str, Floats]
) -> pd.DataFrame:
    n, mean, n_tasks = len(spec.measures), _over_queries(split.values), (~np.isnan(split.values)).sum(axis=0)
    n_groups = _groups_of(split, split.values)
    frame = split.rows.loc[split.rows.index.repeat(n)].reset_index(drop=True)
    counted = ("n_paired", "improved", "degraded", "equal")
    arrays: dict[str, NDArray[np.generic]] = {
        **{name: array for name, array in tests.items() if name not in ("n_groups", *counted)},
        **{name: np.nan_to_num(tests[name]).astype(np.int64) for name in counted},
        "mean": mean.round(12), "task_mean": mean.round(12), "std": split.std.round(12),
        "mean_ge20": np.where(n_tasks >= 20, mean, np.nan).round(12), "n_tasks": n_tasks, "n_groups": n_groups,
        "n_undefined": split.present.sum(axis=0)[None, :] - n_tasks, "mean_ci_low": low, "mean_ci_high": high,
        "note": _notes(
            split, spec, reference=reference, n_tasks=n_tasks, paired=tests["n_paired"],
            n_groups=np.fmin(n_groups, tests["n_groups"]),
        ),
    }  # fmt: skip
    empty = {"universe": "", "miner": "", "purge": "", "paper": np.nan, "tied_share": np.nan, "p_adjusted": np.nan}
    columns = {name: array.T.ravel() for name, array in arrays.items()}
    return frame.assign(
        **columns, **empty, table=spec.name, protocol=split.protocol, slice="all", n_targets=1, data=spec.data,
        measure=list(spec.measures) * len(split.rows), reference=spec.reference or "",
    )  # fmt: skip


def _notes(
    split: Split, spec: QuerySpec, *, reference: Ints, n_tasks: Ints, paired: Floats, n_groups: Floats
) -> NDArray[np.object_]:
    notes = np.full(n_tasks.shape, "", dtype=object)
    absent = (split.rows["model"] != spec.reference).to_numpy(bool) & (reference < 0) & (spec.reference is not None)
    for m, row in np.ndindex(*notes.shape):
        found: list[str] = []
        if n_groups[m, row] < spec.min_groups:
            found.append(f"no interval: fewer than {spec.min_groups} groups")
        if absent[row]:
            found.append("the reference is not in this view")
        elif reference[row] >= 0 and paired[m, row] < max(n_tasks[m, row], n_tasks[m, reference[row]]):
            found.append(f"difference over the {int(paired[m, row])} queries defined for both")
        notes[m, row] = "; ".join(found)
    return notes


def _position(split: Split | None, row: RowKey, *, table: str) -> int:
    """Position of a row in its split."""
    if split is not None:
        hit = (split.rows["view"] == row[1]).to_numpy(bool) & (split.rows["model"] == row[2]).to_numpy(bool)
        if hit.any():
            return int(np.flatnonzero(hit)[0])
    raise ValueError(f"table {table}: no row {row[2]} in view {row[1]} of protocol {row[0]}")


def _undominated(scores: Floats) -> Bools:
    """(k,) rows of ``scores`` (k, 2), larger is better, that no other row dominates."""
    at_least = np.all(scores[None, :, :] >= scores[:, None, :], axis=2)
    more = np.any(scores[None, :, :] > scores[:, None, :], axis=2)
    dominated = np.asarray(at_least & more, bool).any(axis=1)
    return np.asarray(~dominated & ~np.isnan(scores).any(axis=1), bool)

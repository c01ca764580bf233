"""Transfer bootstrap: how far a macro score would move with other targets and other tasks.

One resample of targets and tasks is drawn per replicate and used for every column (model, view, measure, ...) of a
table, so that any two columns can be compared within a replicate (spec/metrics_and_statistics.md section 4,
spec/validity.md section 8).
"""

from __future__ import annotations

import hashlib
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_matrix
from threadpoolctl import threadpool_limits

from toolshift.runs.seeds import generator

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Singles = NDArray[np.float32]
Scheme = Literal["two_level", "within_targets"]

MIN_TARGETS_TWO_LEVEL = 10

# Columns worked on at once: the temporaries of a chunk then fit the processor's second-level cache.
_BLOCK = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Replicates:
    """Bootstrap distribution of the macro score of each column."""

    macro: Singles
    """(n_replicates, n_columns) float32; NaN where a replicate drew no target of the column."""
    estimate: Floats
    """(n_columns,) macro score of the data themselves."""
    scheme: Scheme


@dataclass(frozen=True, slots=True, kw_only=True)
class PointEstimates:
    """Three ways to average a column over tasks, each (n_columns,)."""

    macro: Floats
    """Equal mean over the targets that have a task of the column."""
    task_mean: Floats
    """Mean over all tasks."""
    macro_large: Floats
    """As ``macro``, over targets with at least ``min_tasks`` tasks of the column; NaN where there is none."""
    n_targets: Ints
    n_tasks: Ints


def scheme_for(n_targets: int, *, min_targets: int = MIN_TARGETS_TWO_LEVEL) -> Scheme:
    """Resampling targets needs enough of them (10, validity.md section 8); with fewer they stay fixed."""
    return "two_level" if n_targets >= min_targets else "within_targets"


def point_estimates(values: ArrayLike, *, target: ArrayLike, min_tasks: int = 20) -> PointEstimates:
    """Averages of ``values`` (n_tasks, n_columns), NaN where a column lacks the task; ``target`` as in the bootstrap.

    Raises:
        ValueError: if shapes or target codes are wrong.
    """
    matrix, code = _checked(values, target)
    sums, counts = _target_sums(matrix, code)
    present = counts > 0
    means = np.divide(sums, counts, out=np.full(sums.shape, np.nan), where=present)
    return PointEstimates(
        macro=_mean_where(means, present),
        task_mean=_ratio(sums.sum(axis=0), counts.sum(axis=0)),
        macro_large=_mean_where(means, counts >= max(min_tasks, 1)),
        n_targets=present.sum(axis=0),
        n_tasks=counts.sum(axis=0).astype(np.int64),
    )


def transfer_bootstrap(
    values: ArrayLike,
    *,
    target: ArrayLike,
    replicates: int,
    seed: int,
    scheme: Scheme = "two_level",
    chunk: int = 500,
) -> Replicates:
    """Resample targets and tasks, jointly for all columns.

    ``two_level`` draws G targets with replacement and, within each drawn copy, its n_g tasks with replacement;
    ``within_targets`` keeps every target once and draws its tasks. The statistic of a column is the mean over drawn
    copies of the copy's task mean. A copy without a task of the column is left out of that column's mean.

    Args:
        values: (n_tasks, n_columns); NaN where a column (another view or slice) does not contain the task.
        target: (n_tasks,) int codes 0..G-1, each used.
        replicates: number of replicates.
        seed: names the random stream; equal seeds give equal draws for equal targets, whatever the columns.
        scheme: see above; choose it with `scheme_for`.
        chunk: replicates held at once; bounds memory and is part of no result beyond rounding.

    Raises:
        ValueError: if shapes, target codes or a number are wrong.
    """
    matrix, code = _checked(values, target)
    if replicates < 1 or chunk < 1:
        raise ValueError(f"replicates and chunk must be positive, got {replicates} and {chunk}")
    if scheme not in ("two_level", "within_targets"):
        raise ValueError(f"scheme must be 'two_level' or 'within_targets', got {scheme!r}")
    # Equal columns are computed once: methods that agree on all tasks then agree exactly in every replicate.
    first, column_of = _distinct_columns(matrix)
    design = _Design.of(matrix[:, first], code=code)
    n_targets = len(design.starts) - 1
    copies = _draw_targets(n_targets, replicates=replicates, seed=seed, scheme=scheme)
    streams = [generator("bootstrap/tasks", seed, g) for g in range(n_targets)]
    macro = np.empty((replicates, len(first)), np.float32)
    # One BLAS thread: the same bits on any number of cores. Our own threads share out blocks of columns.
    with threadpool_limits(limits=1), ThreadPoolExecutor(max_workers=min(4, os.cpu_count() or 1)) as pool:
        for begin in range(0, replicates, chunk):
            rows = slice(begin, min(begin + chunk, replicates))
            macro[rows] = _chunk_of_replicates(design, streams, copies=copies[rows], pool=pool)
    return Replicates(macro=macro[:, column_of], estimate=point_estimates(matrix, target=code).macro, scheme=scheme)


@dataclass(frozen=True, slots=True)
class _Design:
    """The table as the inner loop reads it; tasks sorted by target.

    Single precision halves the cost; replicates then carry about 1e-7, far below any difference of interest.
    """

    values: Singles
    """(n_tasks, c) with 0 for absent tasks."""
    masks: Singles
    """(n_tasks, k) distinct presence patterns of the columns, 0 or 1."""
    mask_of: Ints
    """(c,) pattern of each column."""
    starts: Ints
    """(n_targets + 1,) first task of each target, and the number of tasks."""

    @classmethod
    def of(cls, values: Floats, *, code: Ints) -> _Design:
        order = np.argsort(code, kind="stable")
        present = ~np.isnan(values[order])
        first, mask_of = _distinct_columns(present)
        return cls(
            values=np.where(present, values[order], 0.0).astype(np.float32),
            masks=present[:, first].astype(np.float32),
            mask_of=mask_of,
            starts=np.searchsorted(code[order], np.arange(int(code.max()) + 2)),
        )


def _distinct_columns(matrix: NDArray[np.generic]) -> tuple[Ints, Ints]:
    """Position of the first of each set of equal columns, and the set of each column."""
    seen: dict[bytes, int] = {}
    first: list[int] = []
    group = np.empty(matrix.shape[1], dtype=np.int64)
    for begin in range(0, matrix.shape[1], _BLOCK):
        for i, column in enumerate(np.ascontiguousarray(matrix[:, begin : begin + _BLOCK].T), start=begin):
            key = hashlib.sha256(column.tobytes()).digest()
            if key not in seen:
                seen[key] = len(first)
                first.append(i)
            group[i] = seen[key]
    return np.asarray(first, dtype=np.int64), group


def _draw_targets(n_targets: int, *, replicates: int, seed: int, scheme: Scheme) -> Ints:
    """How often each replicate draws each target, (replicates, n_targets)."""
    if scheme == "within_targets":
        return np.ones((replicates, n_targets), dtype=np.int64)
    draws = generator("bootstrap/targets", seed).integers(0, n_targets, size=(replicates, n_targets))
    flat = draws + np.arange(replicates)[:, None] * n_targets
    return np.bincount(flat.ravel(), minlength=replicates * n_targets).reshape(replicates, n_targets)


def _chunk_of_replicates(
    design: _Design, streams: list[np.random.Generator], *, copies: Ints, pool: ThreadPoolExecutor
) -> Singles:
    """Macro score of each replicate, (b, c); ``copies`` (b, n_targets)."""
    total = np.zeros((len(copies), design.values.shape[1]), np.float32)
    weight = np.zeros((len(copies), design.masks.shape[1]), np.float32)
    blocks = [slice(i, i + _BLOCK) for i in range(0, total.shape[1], _BLOCK)]
    for g, (stream, multiplicity) in enumerate(zip(streams, copies.T, strict=True)):
        tasks = slice(design.starts[g], design.starts[g + 1])
        counts = _resample_counts(tasks.stop - tasks.start, n_copies=int(multiplicity.sum()), rng=stream)
        sizes = counts @ design.masks[tasks]
        inverse = np.divide(np.float32(1.0), sizes, out=np.zeros_like(sizes), where=sizes > 0)
        gather = _adjacent_sums(multiplicity)
        weight += gather @ (sizes > 0).astype(np.float32)
        add = partial(_add_copy_means, total, design, tasks=tasks, counts=counts, inverse=inverse, gather=gather)
        list(pool.map(add, blocks))
    drawn = np.take(weight, design.mask_of, axis=1)
    return np.divide(total, drawn, out=np.full_like(total, np.nan), where=drawn > 0)


def _add_copy_means(
    total: Singles,
    design: _Design,
    block: slice,
    *,
    tasks: slice,
    counts: Singles,
    inverse: Singles,
    gather: csr_matrix,
) -> None:
    """Add the task means of a target's copies to their replicates, for one block of columns."""
    means = counts @ design.values[tasks, block]
    means *= np.take(inverse, design.mask_of[block], axis=1)
    total[:, block] += gather @ means


def _adjacent_sums(multiplicity: Ints) -> csr_matrix:
    """0/1 matrix (b, n_copies) that adds up the copies of each replicate, which are adjacent rows."""
    n_copies = int(multiplicity.sum())
    edges = np.concatenate([[0], np.cumsum(multiplicity)])
    return csr_matrix((np.ones(n_copies, np.float32), np.arange(n_copies), edges), shape=(len(multiplicity), n_copies))


def _resample_counts(n_tasks: int, *, n_copies: int, rng: np.random.Generator) -> Singles:
    """How often each copy draws each task, (n_copies, n_tasks); rows sum to n_tasks."""
    draws = rng.integers(0, n_tasks, size=(n_copies, n_tasks), dtype=np.int64)
    draws += np.arange(n_copies)[:, None] * n_tasks
    counts = np.bincount(draws.ravel(), minlength=n_copies * n_tasks)
    return counts.reshape(n_copies, n_tasks).astype(np.float32)


def _checked(values: ArrayLike, target: ArrayLike) -> tuple[Floats, Ints]:
    matrix, code = np.asarray(values, dtype=np.float64), np.asarray(target)
    if matrix.ndim != 2 or code.shape != matrix.shape[:1] or not len(code):
        raise ValueError(f"values must be (n_tasks, n_columns) and target (n_tasks,), got {matrix.shape}, {code.shape}")
    if code.dtype.kind not in "iu" or len(np.unique(code)) != int(code.max()) + 1 or int(code.min()) != 0:
        raise ValueError("target must hold int codes 0..G-1, each used")
    if np.isinf(matrix).any():
        raise ValueError("values must be finite, or NaN where a column lacks a task")
    return matrix, code.astype(np.int64)


def _target_sums(matrix: Floats, code: Ints) -> tuple[Floats, Floats]:
    """Sum and number of values, each (n_targets, n_columns)."""
    shape = (int(code.max()) + 1, matrix.shape[1])
    sums, counts = np.zeros(shape), np.zeros(shape)
    for g in range(shape[0]):
        rows = matrix[code == g]
        present = ~np.isnan(rows)
        sums[g], counts[g] = np.where(present, rows, 0.0).sum(axis=0), present.sum(axis=0)
    return sums, counts


def _ratio(numerator: Floats, denominator: Floats) -> Floats:
    return np.divide(numerator, denominator, out=np.full(numerator.shape, np.nan), where=denominator > 0)


def _mean_where(means: Floats, chosen: Bools) -> Floats:
    return _ratio(np.where(chosen, means, 0.0).sum(axis=0), chosen.sum(axis=0).astype(np.float64))

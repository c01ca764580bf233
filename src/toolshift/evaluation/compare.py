"""Comparisons of two columns, corrections for many of them, and the small exact tests.

Source: spec/metrics_and_statistics.md section 4, spec/validity.md section 8.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from toolshift.runs.seeds import generator

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# Replicates are single precision: differences below this are rounding, and count as zero.
ZERO = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Differences:
    """Bootstrap statistics of n paired differences; each array (n,)."""

    delta: Floats
    """Difference of the data themselves."""
    low: Floats
    """Lower end of the percentile interval."""
    high: Floats
    """Upper end."""
    p_value: Floats
    """Two-sided."""
    p_not_greater: Floats
    """One-sided share of replicates with a difference <= 0, as the SkillGraph code reports it."""
    standard_error: Floats
    """Standard deviation over replicates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """An estimate with its percentile interval."""

    estimate: float
    low: float
    high: float


def differences(replicates: ArrayLike, *, estimate: ArrayLike, confidence: float = 0.95) -> Differences:
    """Statistics of differences d* between two columns.

    ``replicates`` (n_replicates, n) holds d*, NaN where a replicate is undefined (left out); ``estimate`` (n,) the
    differences themselves. p = 2 min((1 + #{d* <= 0}) / (B + 1), (1 + #{d* >= 0}) / (B + 1)), cut at 1.

    Raises:
        ValueError: if shapes disagree or ``confidence`` is not inside (0, 1).
    """
    drawn, delta = np.asarray(replicates, dtype=np.float64), np.asarray(estimate, dtype=np.float64)
    if drawn.ndim != 2 or delta.shape != drawn.shape[1:]:
        raise ValueError(f"replicates must be (B, n) and estimate (n,), got {drawn.shape} and {delta.shape}")
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence must be inside (0, 1), got {confidence}")
    delta = np.where(np.abs(delta) < ZERO, 0.0, delta)
    ordered = np.ascontiguousarray(drawn.T)
    ordered[np.abs(ordered) < ZERO] = 0.0
    ordered.sort(axis=1)  # undefined replicates end up last
    used = ordered.shape[1] - np.count_nonzero(np.isnan(ordered), axis=1)
    not_greater, not_less = np.count_nonzero(ordered <= 0, axis=1), np.count_nonzero(ordered >= 0, axis=1)
    tail = (1.0 - confidence) / 2.0
    return Differences(
        delta=delta,
        low=_quantile(ordered, used, tail),
        high=_quantile(ordered, used, 1.0 - tail),
        p_value=two_sided_p(not_greater, not_less, n=used),
        p_not_greater=np.divide(not_greater, used, out=np.full(len(used), np.nan), where=used > 0),
        standard_error=_standard_error(ordered, used),
    )


def two_sided_p(not_greater: ArrayLike, not_less: ArrayLike, *, n: ArrayLike) -> Floats:
    """Bootstrap p-value from the counts of d* <= 0 and d* >= 0 among ``n`` replicates; NaN for n = 0."""
    smaller = np.minimum(np.asarray(not_greater), np.asarray(not_less)).astype(np.float64)
    total = np.asarray(n, dtype=np.float64)
    return np.where(total > 0, np.minimum(1.0, 2.0 * (1.0 + smaller) / (total + 1.0)), np.nan)


def strongest_other(replicates: ArrayLike, *, estimate: ArrayLike, champion: int) -> tuple[Floats, float, int]:
    """Champion minus the strongest other row, the maximum taken anew inside each replicate.

    ``replicates`` (B, n_rows) and ``estimate`` (n_rows,) are the scores of the rows of one table column. The
    strongest other row is chosen after the fact: recomputing the maximum lets the interval carry that choice.

    Returns the differences (B,), the difference of the data, and the index of the strongest other row.

    Raises:
        ValueError: if there is no other row, or ``champion`` is out of range.
    """
    drawn, scores = np.asarray(replicates, dtype=np.float64), np.asarray(estimate, dtype=np.float64)
    if not 0 <= champion < len(scores) or len(scores) < 2:
        raise ValueError(f"champion must be one of at least two rows, got row {champion} of {len(scores)}")
    others = np.delete(np.arange(len(scores)), champion)
    rival = int(others[np.argmax(scores[others])])
    return drawn[:, champion] - drawn[:, others].max(axis=1), float(scores[champion] - scores[rival]), rival


def holm(p_values: ArrayLike) -> Floats:
    """Holm-adjusted p-values of one family, (n,); NaN entries are no member of it and stay NaN.

    Step-down: the i-th smallest of m is multiplied by m - i + 1, made monotone and cut at 1. Equal to statsmodels'
    ``multipletests(method="holm")``, which collects garbage at every call: seconds for the families of one table.
    """
    raw = np.asarray(p_values, dtype=np.float64)
    adjusted = np.full(raw.shape, np.nan)
    member = np.flatnonzero(~np.isnan(raw))
    order = member[np.argsort(raw[member], kind="stable")]
    steps = raw[order] * np.arange(order.size, 0, -1)
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return adjusted


def holm_by_family(p_values: ArrayLike, *, family: Sequence[Hashable]) -> Floats:
    """Holm-adjusted p-values (n,), corrected within each family; ``family`` (n,) names the family of each."""
    raw = np.asarray(p_values, dtype=np.float64)
    if len(family) != len(raw):
        raise ValueError(f"{len(raw)} p-values but {len(family)} families")
    adjusted = np.full(raw.shape, np.nan)
    members: dict[Hashable, list[int]] = {}
    for i, name in enumerate(family):
        members.setdefault(name, []).append(i)
    for rows in members.values():
        adjusted[rows] = holm(raw[rows])
    return adjusted


def minimum_detectable_effect(standard_error: ArrayLike, *, power: float = 0.8, alpha: float = 0.05) -> Floats:
    """Smallest true difference found with the given power by a two-sided test: (z_{1-alpha/2} + z_power) SE."""
    factor = stats.norm.ppf(1.0 - alpha / 2.0) + stats.norm.ppf(power)
    return float(factor) * np.asarray(standard_error, dtype=np.float64)


def mcnemar_exact(only_first: int, only_second: int) -> float:
    """Exact two-sided McNemar p-value of two discordant counts; 1 when both are 0.

    Raises:
        ValueError: if a count is negative.
    """
    from statsmodels.stats.contingency_tables import mcnemar

    if min(only_first, only_second) < 0:
        raise ValueError(f"counts must not be negative, got {only_first} and {only_second}")
    if only_first + only_second == 0:
        return 1.0
    result = mcnemar([[0, only_first], [only_second, 0]], exact=True)
    return min(1.0, float(result.pvalue))  # type: ignore[attr-defined]


def cohen_kappa(first: Sequence[Hashable], second: Sequence[Hashable]) -> float:
    """Agreement of two raters beyond chance, (p_o - p_e) / (1 - p_e); 1 when both use one and the same label.

    Raises:
        ValueError: if the ratings are empty or differ in length.
    """
    if len(first) != len(second) or not first:
        raise ValueError(f"ratings must be equally long and not empty, got {len(first)} and {len(second)}")
    labels = {label: i for i, label in enumerate(dict.fromkeys([*first, *second]))}
    table = np.zeros((len(labels), len(labels)))
    np.add.at(table, ([labels[a] for a in first], [labels[b] for b in second]), 1.0 / len(first))
    chance = float(table.sum(axis=1) @ table.sum(axis=0))
    return 1.0 if len(labels) == 1 else float((np.trace(table) - chance) / (1.0 - chance))


def cluster_ratio(
    numerator: ArrayLike,
    denominator: ArrayLike,
    *,
    cluster: ArrayLike,
    replicates: int = 20_000,
    seed: int = 20261012,
    confidence: float = 0.95,
) -> Interval:
    """Percentile interval of sum(numerator) / sum(denominator) when whole clusters are resampled.

    For a flip rate: one row per pair, ``numerator`` 1 for a flip, ``denominator`` 1, ``cluster`` any label; each
    replicate draws as many clusters as there are, with replacement. Defaults are those of the published check.

    Raises:
        ValueError: if the inputs are empty, differ in length, or a cluster has no positive denominator.
    """
    top, bottom = np.asarray(numerator, dtype=np.float64), np.asarray(denominator, dtype=np.float64)
    _, code = np.unique(np.asarray(cluster), return_inverse=True)
    if not (top.shape == bottom.shape == code.shape) or top.ndim != 1 or not len(top):
        raise ValueError("numerator, denominator and cluster must be (n,) of equal length, n > 0")
    sums = np.stack([np.bincount(code, weights=top), np.bincount(code, weights=bottom)])
    if (sums[1] <= 0).any():
        raise ValueError("every cluster needs a positive denominator")
    n = sums.shape[1]
    rng = generator("bootstrap/clusters", seed)
    ratios = np.empty(replicates)
    step = max(1, 4_000_000 // n)
    for begin in range(0, replicates, step):
        drawn = sums[:, rng.integers(0, n, size=(min(step, replicates - begin), n))].sum(axis=2)
        ratios[begin : begin + step] = drawn[0] / drawn[1]
    tail = 50.0 * (1.0 - confidence)
    low, high = np.percentile(ratios, [tail, 100.0 - tail])
    return Interval(estimate=float(top.sum() / bottom.sum()), low=float(low), high=float(high))


def _quantile(ordered: Floats, used: Ints, share: float) -> Floats:
    """Linearly interpolated quantile of the first ``used`` entries of each sorted row, (n,); NaN for none."""
    at = share * np.maximum(used - 1, 0)
    below = np.floor(at).astype(np.int64)
    above = np.minimum(below + 1, np.maximum(used - 1, 0))
    row = np.arange(len(ordered))
    return ordered[row, below] + (at - below) * (ordered[row, above] - ordered[row, below])


def _standard_error(ordered: Floats, used: Ints) -> Floats:
    out = np.full(len(ordered), np.nan)
    whole = (used == ordered.shape[1]) & (used > 1)
    if whole.any():
        out[whole] = ordered[whole].std(axis=1, ddof=1)
    for i in np.flatnonzero(~whole & (used > 1)):
        out[i] = ordered[i, : used[i]].std(ddof=1)
    return out

"""Exact McNemar tests of paired right-or-wrong outcomes (spec/metrics_and_statistics.md section 4).

Meant for few queries, where one query is a visible step: b, c and n stand beside every p.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.stats import binomtest

from toolshift.evaluation.compare import holm_by_family
from toolshift.evaluation.queries import QUERY_KEYS, ROW

MCNEMAR_COLUMNS = (
    *ROW, "reference", "measure", "seed", "rate", "reference_rate", "b", "c", "n", "n_groups", "p_value", "p_adjusted",
    "note",
)  # fmt: skip
DEPENDENT = "queries of a group are not independent, which this test takes them to be"


@dataclass(frozen=True, slots=True, kw_only=True)
class McNemar:
    """Discordant counts of n pairs and the exact two-sided p-value."""

    b: int
    """Only the first is right."""
    c: int
    """Only the second is right."""
    n: int
    p_value: float


def mcnemar(first: ArrayLike, second: ArrayLike) -> McNemar:
    """Exact McNemar test of paired outcomes (n,), each 0 or 1; pairs with a NaN are left out.

    p is that of a binomial test of b among b + c at 1/2; 1 when no pair is discordant.

    Raises:
        ValueError: if shapes differ or an outcome is neither 0, 1 nor NaN.
    """
    ours, theirs = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if ours.ndim != 1 or ours.shape != theirs.shape:
        raise ValueError(f"outcomes must be (n,) and paired, got {ours.shape} and {theirs.shape}")
    both = ~(np.isnan(ours) | np.isnan(theirs))
    ours, theirs = ours[both], theirs[both]
    if not (np.isin(ours, (0.0, 1.0)).all() and np.isin(theirs, (0.0, 1.0)).all()):
        raise ValueError("McNemar's test needs outcomes 0 or 1; a mean over seeds is none: test each seed")
    b, c = int((ours > theirs).sum()), int((ours < theirs).sum())
    p_value = float(binomtest(b, b + c, 0.5).pvalue) if b + c else 1.0
    return McNemar(b=b, c=c, n=len(ours), p_value=min(1.0, p_value))


def mcnemar_rows(
    per_query: pd.DataFrame, *, measure: str, reference: str, holm_family: tuple[str, ...] = ("view",)
) -> pd.DataFrame:
    """Every row against the reference of its protocol and view, seed by seed (columns ``MCNEMAR_COLUMNS``).

    A seed is paired with the same seed of the reference, or with the only one that the reference has. b: queries that
    only the row gets right, c: that only the reference does. ``holm_family`` names the keys (of protocol, view, model,
    seed) that vary inside a family of tests.

    Args:
        per_query: as `evaluation.queries.read_per_query` gives it.
        measure: a column of outcomes 0 or 1; NaN where a query does not count.
        reference: model that the others are compared with; views without it are left out.
        holm_family: see above.

    Raises:
        ValueError: if a column is missing, the reference is in no row, an outcome is not 0 or 1, a row and the
            reference do not have the same queries, or a seed has no counterpart.
    """
    missing = [name for name in (*QUERY_KEYS, measure) if name not in per_query.columns]
    if missing:
        raise ValueError(f"McNemar's test of {measure}: per-query values lack the columns {missing}")
    if reference not in set(per_query["model"]):
        raise ValueError(f"McNemar's test of {measure}: reference {reference!r} has no row")
    rows = [
        row for _, part in per_query.groupby(["protocol", "view"], sort=True) for row in _rows(part, measure, reference)
    ]
    frame = pd.DataFrame(rows, columns=[name for name in MCNEMAR_COLUMNS if name != "p_adjusted"])
    keys = [key for key in (*ROW, "seed") if key not in holm_family]
    family: list[Hashable] = list(frame[keys].itertuples(index=False, name=None)) if keys else [()] * len(frame)
    frame["p_adjusted"] = holm_by_family(frame["p_value"].to_numpy(np.float64), family=family)
    return frame.loc[:, list(MCNEMAR_COLUMNS)]


def _rows(part: pd.DataFrame, measure: str, reference: str) -> Iterator[dict[str, object]]:
    """Tests of one protocol and view."""
    theirs = part.loc[part["model"] == reference, :]
    if theirs.empty:
        return
    by_seed = dict(list(theirs.groupby("seed")))
    for (model, seed), ours in part.loc[part["model"] != reference, :].groupby(["model", "seed"], sort=True):
        other = by_seed.get(seed) if len(by_seed) > 1 else theirs
        key = ours.iloc[0]
        where = f"McNemar's test of {measure}, {key['protocol']}, view {key['view']}, {model}, seed {seed}"
        if other is None:
            raise ValueError(f"{where}: the reference {reference} has no such seed, only {sorted(by_seed)}")
        yield _row(ours, other, measure=measure, where=where)


def _row(ours: pd.DataFrame, theirs: pd.DataFrame, *, measure: str, where: str) -> dict[str, object]:
    paired = ours.merge(theirs, on="task_id", how="outer", suffixes=("", "_reference"), validate="one_to_one")
    if len(paired) != len(ours) or len(paired) != len(theirs):
        raise ValueError(f"{where}: {len(ours)} queries but {len(theirs)} of the reference; finish the missing run")
    used = paired.dropna(subset=[measure, f"{measure}_reference"])
    first, second = (used[name].to_numpy(np.float64) for name in (measure, f"{measure}_reference"))
    try:
        found = mcnemar(first, second)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error
    n_groups, key = len(set(used["group"])), ours.iloc[0]
    return {
        **{name: key[name] for name in (*ROW, "seed")}, "reference": theirs["model"].iloc[0], "measure": measure,
        "rate": round(float(first.mean()), 12) if found.n else np.nan, "b": found.b, "c": found.c, "n": found.n,
        "reference_rate": round(float(second.mean()), 12) if found.n else np.nan, "n_groups": n_groups,
        "p_value": found.p_value, "note": DEPENDENT if n_groups < found.n else "",
    }  # fmt: skip

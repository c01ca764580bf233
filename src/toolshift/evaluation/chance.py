"""Is the random row as good as chance? A check of the whole chain: lists, ties, measures and averaging."""

from __future__ import annotations

import numpy as np
import pandas as pd

from toolshift.evaluation.aggregate import BLOCK, Analysis

COLUMNS = (*BLOCK, "view", "measure", "difference", "standard_error", "z")


def chance_distance(analysis: Analysis, *, model: str, chance: str) -> pd.DataFrame:
    """Macro difference of a random row to its closed-form expectation, in standard errors (columns ``COLUMNS``).

    Given the lists, the difference of a task is pure noise of the row's keyed numbers, independent over tasks, so the
    targets are not resampled: SE^2 = s^2 / G^2 * sum_g 1/n_g, with s^2 pooled over the tasks of the G targets.
    """
    rows: list[tuple[object, ...]] = []
    for cells in analysis.columns():
        names = analysis.cells["model"].iloc[cells].tolist()
        if model not in names or chance not in names:
            continue
        here, there = cells[names.index(model)], cells[names.index(chance)]
        key = [analysis.cells[k].iloc[here] for k in (*BLOCK, "view")]
        for m, measure in enumerate(analysis.spec.measures):
            gap = analysis.values[:, m, here] - analysis.values[:, m, there]
            seen = ~np.isnan(gap)
            count = np.bincount(analysis.target[seen], minlength=len(analysis.targets))
            used = count > 0
            mean = np.bincount(analysis.target[seen], weights=gap[seen], minlength=count.size)[used] / count[used]
            error = float(np.sqrt(np.mean(gap[seen] ** 2) * np.sum(1.0 / count[used])) / used.sum())
            difference = float(mean.mean())
            rows.append((*key, measure, difference, error, difference / error if error > 0 else 0.0))
    return pd.DataFrame(rows, columns=list(COLUMNS))

"""metrics.csv: every (target, view) cell has a row, also one that was not scored."""

from __future__ import annotations

import pandas as pd

from toolshift.experiment.run import metric_rows


def test_every_cell_has_a_row_and_only_scored_ones_a_value() -> None:
    per_task = pd.DataFrame(
        {
            "protocol": "lodo",
            "target": ["a", "a", "b"],
            "view": "natural",
            "model": "m",
            "seed": 1,
            "task_id": ["x", "y", "z"],
            "scored": [True, True, False],
            "MRR": [1.0, 0.5, 0.3],
        }
    )
    cells = [("a", "natural"), ("b", "natural"), ("a", "semantic")]
    rows = metric_rows(per_task, measures=["MRR"], cells=cells).set_index(["target", "view"])
    assert rows.loc[("a", "natural"), ["value", "n_tasks", "scored"]].tolist() == [0.75, 2, True]
    assert rows.loc[("b", "natural"), ["n_tasks", "scored"]].tolist() == [1, False]
    assert rows.loc[("a", "semantic"), ["n_tasks", "scored"]].tolist() == [0, False]
    assert rows["value"].isna().tolist() == [False, True, True]

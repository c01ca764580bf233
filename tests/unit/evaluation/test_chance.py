"""Distance of the random row to chance: by hand, and its size when the row is noise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import pytest

from toolshift.evaluation.aggregate import Analysis, TableSpec, analyse
from toolshift.evaluation.chance import COLUMNS, chance_distance

SPEC = TableSpec(name="t", data="sample", measures=("NDCG@5",), reference="expected", replicates=2)


def analysis_of(gaps: Mapping[str, Sequence[float]], *, models: Sequence[str] = ("random", "expected")) -> Analysis:
    """Target -> random minus expected of its tasks; every task is expected to give .4."""
    rows = [
        {
            "protocol": "lodo", "universe": "domain", "miner": "union", "purge": "none", "slice": "all",
            "target": target, "view": "natural", "task_id": f"{target}{i}", "model": model, "seed": 42, "tied": False,
            "scored": True, "NDCG@5": 0.4 + (gap if model == "random" else 0.0),
        }
        for target, values in gaps.items()
        for i, gap in enumerate(values)
        for model in models
    ]  # fmt: skip
    return analyse(pd.DataFrame(rows), spec=SPEC)


def distance(analysis: Analysis) -> pd.DataFrame:
    return chance_distance(analysis, model="random", chance="expected")


def test_distance_by_hand() -> None:
    """Target means .2 and 0, macro .1; s^2 = 4 * .04 / 6; SE^2 = s^2 / 2^2 * (1/4 + 1/2)."""
    found = distance(analysis_of({"a": [0.2] * 4, "b": [0.0, 0.0]}))
    assert list(found.columns) == list(COLUMNS)
    (row,) = found.to_dict("records")
    assert row["difference"] == pytest.approx(0.1)
    error = np.sqrt(0.16 / 6 * (1 / 4 + 1 / 2)) / 2
    assert row["standard_error"] == pytest.approx(error)
    assert row["z"] == pytest.approx(0.1 / error)
    assert (row["measure"], row["view"], row["purge"]) == ("NDCG@5", "natural", "none")


def test_targets_count_alike_however_many_tasks_they_have() -> None:
    found = distance(analysis_of({"a": [0.3], "b": [-0.1] * 9}))
    assert found["difference"].item() == pytest.approx(0.1)


def test_no_difference_is_no_distance() -> None:
    found = distance(analysis_of({"a": [0.0, 0.0], "b": [0.0]}))
    assert found[["difference", "standard_error", "z"]].to_numpy().tolist() == [[0.0, 0.0, 0.0]]


def test_without_both_rows_there_is_nothing_to_compare() -> None:
    found = distance(analysis_of({"a": [0.1]}, models=("expected",)))
    assert found.empty
    assert list(found.columns) == list(COLUMNS)


def test_noise_lies_within_standard_errors_and_a_shift_does_not() -> None:
    """z has unit variance under pure noise: 60 draws, so the sample deviation is 1 +- .09."""
    rng = np.random.default_rng(0)
    size = {"a": 30, "b": 5, "c": 12}
    z = [
        distance(analysis_of({t: rng.normal(0, 0.1, n).tolist() for t, n in size.items()}))["z"].item()
        for _ in range(60)
    ]
    assert abs(np.mean(z)) < 3 / np.sqrt(60)
    assert 0.75 < np.std(z) < 1.25
    shifted = distance(analysis_of({t: rng.normal(0.3, 0.1, n).tolist() for t, n in size.items()}))
    assert shifted["z"].item() > 4

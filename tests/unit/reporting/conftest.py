"""A small fixed table: written by hand, so that its drawings cannot move with any computation."""

from __future__ import annotations

import pandas as pd
import pytest

from toolshift.evaluation.aggregate import GAIN_COLUMNS, TIDY_COLUMNS, TableSpec
from toolshift.settings.schema import PaperSettings, PaperValue

NAN = float("nan")
BLOCK = {"table": "lodo", "protocol": "leave_one_domain_out", "universe": "domain", "miner": "union", "purge": "none"}


@pytest.fixture
def spec() -> TableSpec:
    return TableSpec(name="lodo", data="sample", measures=("MRR", "NDCG@5"), reference="semantic_cosine")


def _row(part: str, view: str, model: str, measure: str, mean: float, **more: object) -> dict[str, object]:
    tested = model != "semantic_cosine"
    numbers = {"delta": mean - 0.5, "ci_low": mean - 0.53, "ci_high": mean - 0.46, "p_value": 0.0123, "mde": 0.0456}
    return {
        **BLOCK, "slice": part, "view": view, "model": model, "measure": measure, "mean": mean, "std": NAN,
        "task_mean": mean + 0.01, "mean_ge20": mean - 0.01, "n_seeds": 1, "n_targets": 12, "n_tasks": 345,
        "paper": NAN, "reference": "semantic_cosine", "data": "sample", "note": "", "tied_share": 0.0625,
        **(numbers if tested else dict.fromkeys(numbers, NAN)), "p_adjusted": 0.0492 if tested else NAN, **more,
    }  # fmt: skip


@pytest.fixture
def tidy() -> pd.DataFrame:
    rows = []
    for measure in ("MRR", "NDCG@5"):
        rows += [
            _row("all", "natural", "semantic_cosine", measure, 0.5),
            _row("all", "natural", "bm25", measure, 0.61234567891),
            _row("all", "natural", "random", measure, 0.25, std=0.0123, n_seeds=3),
            _row("all", "context", "semantic_cosine", measure, 0.5),
            _row("all", "context", "bm25", measure, 0.5),
            _row("name_free", "natural", "semantic_cosine", measure, 0.5, n_targets=4, n_tasks=40, mean_ge20=NAN,
                 note="conditional on these datasets"),
            _row("name_free", "natural", "bm25", measure, 0.48, n_targets=4, n_tasks=40, mean_ge20=NAN,
                 note="conditional on these datasets; difference positive in 1 of 4 targets"),
        ]  # fmt: skip
    return pd.DataFrame(rows).loc[:, list(TIDY_COLUMNS)]


@pytest.fixture
def gains() -> pd.DataFrame:
    rows = [
        {
            **BLOCK, "slice": "all", "view": "natural", "measure": measure, "champion": "bm25",
            "strongest": "semantic_cosine", "gain_pp": 11.234567891, "ci_low_pp": -0.5, "ci_high_pp": 20.25,
            "p_value": 0.0602, "n_targets": 12, "n_tasks": 345,
            "note": "champion is the best row, chosen after the fact",
        }
        for measure in ("MRR", "NDCG@5")
    ]  # fmt: skip
    return pd.DataFrame(rows).loc[:, list(GAIN_COLUMNS)]


@pytest.fixture
def paper() -> PaperSettings:
    """A value of a row with a run, one of a row without, one of a view that the table lacks."""
    values = (
        PaperValue(view="natural", model="bm25", measure="NDCG@5", value=0.6, source="Paper Table 1", status="given"),
        PaperValue(view="context", model="later", measure="MRR", value=0.7, source="Paper Table 2", status="derived"),
        PaperValue(view="mixed", model="bm25", measure="MRR", value=0.9, source="Paper Table 1", status="given"),
    )
    return PaperSettings(universe="domain", miner="union", purge="none", slice="all", values=values)


@pytest.fixture
def real(tidy: pd.DataFrame) -> pd.DataFrame:
    """The same table as if it were of real data."""
    return tidy.assign(data="real")

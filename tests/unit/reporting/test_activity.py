from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from toolshift.reporting.activity import ACTIVITY_COLUMNS, activity_page, mark_inactive, with_verdict, write_activity

VARIANT = {"protocol": "leave_one_domain_out", "universe": "domain", "miner": "union", "purge": "none"}


def _row(model: str, view: str, order: float, **more: object) -> dict[str, object]:
    return {
        "table": "lodo", **VARIANT, "view": view, "model": model, "reference": "semantic_cosine", "seed": 42,
        "n_targets": 12, "n_lists": 400, "n_pairs": 8000, "mean_abs_rank_change": 0.125, "pairs_changed": order / 2,
        "top5_changed": order / 4, "order_changed": order, "settings": "", "data": "sample", "note": "", **more,
    }  # fmt: skip


@pytest.fixture
def activity() -> pd.DataFrame:
    rows = [
        _row("bm25", "natural", 0.5, settings="l2=0.01: 8; l2=1.0: 4", note="not converged (2 of 36 fits)"),
        _row("bm25", "context", 0.009, settings="l2=0.01: 8; l2=1.0: 4", note="not converged (2 of 36 fits)"),
        _row("bm25", "natural", 0.01, purge="gold"),
    ]
    return pd.DataFrame(rows).loc[:, ACTIVITY_COLUMNS]


def test_less_than_one_percent_of_the_lists_is_inactive(activity) -> None:
    assert with_verdict(activity)["note"].tolist() == [
        "not converged (2 of 36 fits)",
        "not converged (2 of 36 fits); inactive",
        "",
    ]


def test_the_results_table_is_marked_where_the_row_is_inactive(tidy, activity) -> None:
    marked = mark_inactive(tidy, with_verdict(activity))
    hit = (marked["model"] == "bm25") & (marked["view"] == "context")
    assert set(marked.loc[hit, "note"]) == {"inactive"}
    pd.testing.assert_frame_equal(marked.loc[~hit, :], tidy.loc[~hit, :])
    pd.testing.assert_frame_equal(mark_inactive(tidy, activity.iloc[:0]), tidy)


def test_page_and_csv(activity, tmp_path: Path) -> None:
    csv, page = write_activity(with_verdict(activity), name="lodo", folder=tmp_path)
    assert (csv.name, page.name) == ("lodo_activity.csv", "lodo_activity.md")
    assert list(pd.read_csv(csv).columns) == ACTIVITY_COLUMNS
    text = page.read_text()
    assert "# Activity (data: sample (synthetic))" in text
    assert "the lists of semantic\\_cosine, first seed of both" in text
    assert text.count("## Universe domain, miner union, purge ") == 2
    first, second = [line.split("|")[1:-1] for line in text.splitlines() if line.startswith("| bm25")][:2]
    assert [part.strip() for part in first[:8]] == [
        "bm25", "natural", "400", "0.125", "25.0", "12.5", "50.0", "l2=0.01: 8; l2=1.0: 4",
    ]  # fmt: skip
    assert second[7].strip() == ""  # the settings of a run are said once
    assert second[8].strip() == "not converged (2 of 36 fits); inactive"


def test_no_row_is_no_page(activity) -> None:
    assert activity_page(activity.iloc[:0]) == ""

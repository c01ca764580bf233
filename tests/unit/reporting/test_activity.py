from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from toolshift.reporting.activity import (
    ACTIVITY_COLUMNS,
    STAGE_TABLE_COLUMNS,
    activity_page,
    hole,
    mark_inactive,
    stages_page,
    with_verdict,
    write_activity,
)
from toolshift.reporting.markdown import STYLE

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


@pytest.fixture
def stages() -> pd.DataFrame:
    numbers = {
        "n_targets": 12, "targets_on": 7, "n_lists": 400, "n_pairs": 8000, "mean_abs_correction": 0.03125,
        "mean_abs_added": 0.015625, "pairs_corrected": 0.5, "pairs_changed": 0.25, "top5_changed": 0.125,
    }  # fmt: skip
    fixed = {"table": "lodo", **VARIANT, "model": "tact", "seed": 42, "data": "sample", "note": ""}
    empty = {**dict.fromkeys(numbers, float("nan")), "order_changed": float("nan"), "stage": "", "view": ""}
    rows = [
        {**fixed, **numbers, "stage": "functional", "view": "natural", "order_changed": 0.375},
        {**fixed, **numbers, "stage": "contextual", "view": "natural", "order_changed": 0.0099},
        {**fixed, **empty, "model": "old_tact", "note": hole(3, of=12)},
    ]
    return pd.DataFrame(rows, dtype=object).loc[:, STAGE_TABLE_COLUMNS]


def test_the_page_of_the_stages(activity, stages, tmp_path: Path) -> None:
    csv, page, table = write_activity(activity, name="lodo", folder=tmp_path, stages=with_verdict(stages))
    assert (csv.name, page.name, table.name) == ("lodo_activity.csv", "lodo_activity.md", "lodo_stages.csv")
    text = page.read_text()
    assert text.index("# Activity (data") < text.index("# Activity of stages (data: sample (synthetic))")
    lines = [line for line in text.splitlines() if line.startswith(("| tact", "| old"))]
    cells = [[part.strip() for part in line.split("|")[1:-1]] for line in lines]
    assert cells[0] == [
        "tact", "functional", "natural", "400", "7 of 12", "0.0312", "0.0156", "50.0", "25.0", "12.5", "37.5", "",
    ]  # fmt: skip
    assert (cells[1][1], cells[1][-1]) == ("contextual", "inactive")
    assert cells[2][1:3] == ["", ""]
    assert set(cells[2][3:-1]) == {STYLE.hole}
    assert cells[2][-1] == "no record of the stages for 3 of 12 targets (older or incomplete run folder)"
    read = pd.read_csv(table)
    assert list(read.columns) == STAGE_TABLE_COLUMNS
    assert read["mean_abs_correction"].tolist()[:2] == [0.03125, 0.03125]
    assert read["n_lists"].isna().tolist() == [False, False, True]


def test_a_table_without_stages_leaves_no_file_of_them(activity, stages, tmp_path: Path) -> None:
    write_activity(activity, name="lodo", folder=tmp_path, stages=stages)
    assert len(write_activity(activity, name="lodo", folder=tmp_path)) == 2
    assert not (tmp_path / "lodo_stages.csv").exists()
    assert stages_page(stages.iloc[:0]) == ""

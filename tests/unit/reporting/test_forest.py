from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from toolshift.evaluation.aggregate import TARGET_COLUMNS
from toolshift.reporting import forest
from toolshift.reporting.forest import write_forest


@pytest.fixture
def targets() -> pd.DataFrame:
    n = 5
    frame = pd.DataFrame(
        {
            "protocol": "leave_one_domain_out", "universe": "domain", "miner": "union", "purge": "none",
            "slice": "all", "view": "natural", "measure": "MRR", "model": "bm25", "reference": "semantic_cosine",
            "target": ["Video_Images", "Food & $", "Data", "Sports", "Finance"], "n_tasks": [3, 40, 974, 8, 20],
            "value": np.linspace(0.4, 0.8, n), "reference_value": 0.5, "delta": np.linspace(-0.1, 0.3, n),
        }
    )  # fmt: skip
    frame["ci_low"] = np.where(frame["n_tasks"] < 5, np.nan, frame["delta"] - 0.05)
    frame["ci_high"] = frame["ci_low"] + 0.1
    return frame.loc[:, list(TARGET_COLUMNS)]


def write(targets: pd.DataFrame, tidy: pd.DataFrame, folder: Path, **more: str) -> list[Path]:
    options = {"name": "forest", "measure": "MRR", "model": "bm25", **more}
    return write_forest(targets, tidy=tidy, folder=folder, **options)


def test_writes_pdf_png_and_the_data_behind_it(targets, tidy, tmp_path: Path) -> None:
    pdf, png, csv = write(targets, tidy, tmp_path)
    assert [p.name for p in (pdf, png, csv)] == [f"forest_natural.{e}" for e in ("pdf", "png", "csv")]
    assert pdf.read_bytes().startswith(b"%PDF")
    assert png.read_bytes().startswith(b"\x89PNG")
    drawn = pd.read_csv(csv)
    assert drawn["delta"].tolist() == sorted(targets["delta"], reverse=True)
    assert set(drawn["target"]) == set(targets["target"])


def test_equal_input_gives_equal_bytes_without_a_date(targets, tidy, tmp_path: Path) -> None:
    first = write(targets, tidy, tmp_path / "a")
    second = write(targets.sample(frac=1, random_state=1), tidy, tmp_path / "b")
    assert [p.read_bytes() for p in first] == [p.read_bytes() for p in second]
    assert b"CreationDate" not in first[0].read_bytes()


def test_points_intervals_and_diamond_are_the_numbers(targets, tidy) -> None:
    macro = forest._macro_of(tidy, targets.iloc[0], name="x")
    assert macro.delta == pytest.approx(11.234567891)
    axes = forest._draw(targets, macro).axes[0]
    points, diamond = axes.collections[1], axes.collections[3]
    np.testing.assert_allclose(points.get_offsets()[:, 0], 100 * targets["delta"])
    assert np.argmax(points.get_sizes()) == targets["n_tasks"].argmax()
    np.testing.assert_allclose(diamond.get_offsets(), [[macro.delta, 0.0]])
    assert axes.get_yticklabels()[2].get_text() == "Data (974)"


def test_several_blocks_or_no_row_are_refused(targets, tidy, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="choose one block"):
        write(pd.concat([targets, targets.assign(purge="gold")]), tidy, tmp_path)
    with pytest.raises(ValueError, match="no per-target difference of tact on MRR"):
        write(targets, tidy, tmp_path, model="tact")
    with pytest.raises(ValueError, match="the table has 0 rows"):
        write(targets.assign(universe="library"), tidy, tmp_path)

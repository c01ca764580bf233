"""Values of single targets, by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from toolshift.evaluation.aggregate import TableSpec
from toolshift.reporting.targets import TARGET_COLUMNS, target_rows, targets_page, write_targets

SPEC = TableSpec(name="t", data="real", measures=("NDCG@5",), reference="cosine", model_order=("cosine", "mlp"))


def row(target: str, model: str, value: float, *, seed: int = 42, scored: bool = True, n: int = 3) -> dict[str, object]:
    return {
        "universe": "domain", "miner": "union", "purge": "none", "view": "natural", "target": target, "model": model,
        "seed": seed, "measure": "NDCG@5", "value": value if scored else np.nan, "n_tasks": n, "scored": scored,
    }  # fmt: skip


@pytest.fixture
def metrics() -> pd.DataFrame:
    return pd.DataFrame(
        [
            row("A", "cosine", 0.5),
            row("B", "cosine", 0.25, n=7),
            row("C", "cosine", 0.0, scored=False),
            row("A", "mlp", 0.6),
            row("A", "mlp", 0.8, seed=43),
            row("B", "mlp", 0.2, n=7),
            row("B", "mlp", 0.2, seed=43, n=7),
        ]
    )


def test_means_over_seeds_and_differences_from_the_reference(metrics: pd.DataFrame) -> None:
    found = target_rows(metrics, spec=SPEC)
    assert list(found.columns) == TARGET_COLUMNS
    mlp = found.loc[found["model"] == "mlp"].set_index("target")
    assert mlp["mean"].to_dict() == pytest.approx({"A": 0.7, "B": 0.2})
    assert mlp["delta"].to_dict() == pytest.approx({"A": 0.2, "B": -0.05})
    assert mlp["std"].to_dict() == pytest.approx({"A": np.sqrt(0.02), "B": 0.0})
    assert mlp["n_seeds"].tolist() == [2, 2]
    cosine = found.loc[found["model"] == "cosine"]
    assert cosine["target"].tolist() == ["A", "B"]  # C is not scored
    assert cosine["delta"].isna().all()


def test_the_page_counts_signs(metrics: pd.DataFrame, tmp_path: Path) -> None:
    rows = target_rows(metrics, spec=SPEC)
    page = targets_page(rows, spec=SPEC)
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in page.splitlines() if line.startswith("|")]
    assert lines[0] == ["model", "A (3)", "B (7)", "positive"]
    assert lines[2:] == [["cosine", "0.500", "0.250", ""], ["mlp", "0.700", "0.200", "1 of 2"]]
    csv, markdown = write_targets(rows, spec=SPEC, folder=tmp_path)
    assert (csv.name, markdown.name) == ("t_targets.csv", "t_targets.md")
    assert markdown.read_text() == page
    assert pd.read_csv(csv)["mean"].tolist() == rows["mean"].tolist()

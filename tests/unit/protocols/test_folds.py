"""The fold table: roles as data, and nothing that was not declared."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from toolshift.protocols.folds import TASK_ROLES, FoldTable, SourceRules, UndeclaredRole
from toolshift.views.corpus import build_corpus


@pytest.fixture
def folds() -> FoldTable:
    """Tasks 0, 1 of A, 2 of B, 3 without a context."""
    return FoldTable(
        protocol="p",
        rules=SourceRules(purge="near"),
        targets=("A", "B"),
        context_names=("A", "B"),
        contexts=np.array([0, 0, 1, -1]),
        role=np.array([[1, 1, 2, 0], [0, 3, 1, 0]], np.int8),
    )


@pytest.mark.parametrize(
    ("target", "role", "rows"),
    [
        ("A", "train", [3]),
        ("A", "test", [0, 1]),
        ("A", "purged_gold", [2]),
        ("A", "purged_near", []),
        ("B", "train", [0, 3]),
        ("B", "purged_near", [1]),
    ],
)
def test_rows(folds: FoldTable, target: str, role: str, rows: list[int]) -> None:
    np.testing.assert_array_equal(folds.rows(target, role=role), rows)


def test_an_undeclared_role_is_refused(folds: FoldTable) -> None:
    with pytest.raises(UndeclaredRole, match=r"'select' is not declared.*train, test, purged_gold, purged_near"):
        folds.rows("A", role="select")


def test_a_context_that_is_no_target_is_refused(folds: FoldTable) -> None:
    with pytest.raises(UndeclaredRole, match="'C' is not a target of p; targets: A, B"):
        folds.rows("C", role="test")


def test_counts(folds: FoldTable) -> None:
    nothing = dict.fromkeys(TASK_ROLES, 0)
    assert folds.counts() == {
        "A": {**nothing, "train": 1, "test": 2, "purged_gold": 1},
        "B": {**nothing, "train": 2, "test": 1, "purged_near": 1},
    }


def test_what_is_held_out_are_the_contexts_of_the_target(folds: FoldTable) -> None:
    assert folds.held_out_contexts("A") == ("A",)
    assert folds.held_out_contexts("B") == ("B",)


def test_long_form(folds: FoldTable, worlds: Any) -> None:
    asks = [worlds.Ask(f"t{i}", d, "x", (("a",),)) for i, d in enumerate(("A", "A", "B", ""))]
    corpus, _ = build_corpus(worlds.records([worlds.Tool("a", "A", ())], asks))
    frame = folds.table(corpus).to_pandas()
    assert frame["target"].tolist() == ["A"] * 4 + ["B"] * 4
    assert frame["task_id"].tolist() == list(corpus.task_ids) * 2
    assert frame["context"].astype(object).where(frame["context"].notna(), None).tolist() == ["A", "A", "B", None] * 2
    assert frame["role"].tolist() == [TASK_ROLES[r] for r in folds.role.ravel()]

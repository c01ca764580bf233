"""List-level slices: a miner's own hard negatives, suspected duplicates removed."""

from __future__ import annotations

import numpy as np
import pytest

from toolshift.evaluation.per_task import ViewLists, in_slice
from toolshift.views.manifest import Manifest, Suspects

BM25, DENSE, CATEGORY, UNIFORM = 1, 2, 4, 16


@pytest.fixture
def lists() -> ViewLists:
    """Task 0: a semantic negative of BM25 and dense, one of dense. Task 1: a contextual one of the category.
    Task 2: no hard negative at all."""
    manifest = Manifest(
        view="mixed",
        tasks=np.array([0, 1, 2]),
        offsets=np.array([0, 4, 7, 9]),
        capability=np.array([0, 1, 2, 3, 0, 1, 2, 0, 1]),
        role=np.array([0, 2, 2, 1, 0, 3, 1, 0, 1], np.int8),
        miner=np.array([0, BM25 | DENSE, DENSE, UNIFORM, 0, CATEGORY, UNIFORM, 0, UNIFORM], np.uint8),
        skipped={},
    )
    near = np.zeros(9, bool)
    near[[3, 8]] = True
    return ViewLists(
        manifest=manifest,
        suspects=Suspects(same_operation=np.zeros(9, bool), near_text=near),
        targets=("A", "B"),
        target=np.array([0, 1, 1]),
        scored=np.array([True, False, True]),
    )


@pytest.mark.parametrize(
    ("name", "tasks", "capability"),
    [
        ("miner=bm25", [0], [0, 1, 3]),
        ("miner=dense", [0], [0, 1, 2, 3]),
        ("miner=category", [1], [0, 1, 2]),
        ("no_duplicates", [0, 1], [0, 1, 2, 0, 1, 2]),  # task 2 has no negative left
    ],
)
def test_slices_by_hand(lists: ViewLists, name: str, tasks: list[int], capability: list[int]) -> None:
    kept = lists.keep(in_slice(lists, name))
    np.testing.assert_array_equal(kept.manifest.tasks, tasks)
    np.testing.assert_array_equal(kept.manifest.capability, capability)
    np.testing.assert_array_equal(kept.target, lists.target[tasks])
    np.testing.assert_array_equal(kept.scored, lists.scored[tasks])
    assert kept.suspects.any.size == len(capability)


def test_a_list_keeps_its_ordinary_candidates_in_a_miner_slice(lists: ViewLists) -> None:
    kept = lists.keep(in_slice(lists, "miner=bm25"))
    np.testing.assert_array_equal(kept.manifest.role, [0, 2, 1])
    np.testing.assert_array_equal(kept.suspects.near_text, [False, False, True])

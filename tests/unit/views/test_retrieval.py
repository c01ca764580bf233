"""Neighbourhoods over the library: what they hold, how they are cached, near-duplicate texts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolshift.text.lexical import Bm25
from toolshift.views import retrieval
from toolshift.views.retrieval import Retrieval, near_pairs, retrieve

TEXTS = ("red apple", "green apple", "blue plum", "stone")
VECTORS = np.array([[1, 0], [0.8, 0.6], [0, 1], [-1, 0]], np.float32)


def run(folder: Path, *, key: str = "k", top: int = 2, duplicate_cosine: float = 0.75) -> Retrieval:
    return retrieve(
        ("apple of red", "nothing known"),
        Bm25(TEXTS),
        task_vectors=np.array([[0.6, 0.8], [-1, 0]], np.float32),
        capability_vectors=VECTORS,
        top=top,
        duplicate_cosine=duplicate_cosine,
        cache=folder,
        key=key,
    )


def test_lists_by_hand(tmp_path: Path) -> None:
    found = run(tmp_path)
    np.testing.assert_array_equal(found.bm25_top, [[0, 1], [-1, -1]])  # no common word: no entry
    np.testing.assert_array_equal(found.dense_top, [[1, 2], [3, 2]])  # .96, .8 | 1, 0
    np.testing.assert_array_equal(np.argwhere(found.near_text.toarray()), [[0, 1], [1, 0]])


def test_no_near_pair_and_more_places_than_tools(tmp_path: Path) -> None:
    found = run(tmp_path, duplicate_cosine=0.99, top=9)
    assert found.near_text.nnz == 0
    assert found.dense_top.shape == (2, 4)


def test_the_same_question_is_read_from_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = run(tmp_path)
    monkeypatch.setattr(retrieval, "dense_top", lambda *_, **__: pytest.fail("computed again"))
    second = run(tmp_path)
    np.testing.assert_array_equal(first.dense_top, second.dense_top)
    np.testing.assert_array_equal(first.bm25_top, second.bm25_top)
    np.testing.assert_array_equal(first.near_text.toarray(), second.near_text.toarray())


@pytest.mark.parametrize("other", [{"key": "other"}, {"top": 3}, {"duplicate_cosine": 0.9}])
def test_another_question_is_computed(tmp_path: Path, other: dict[str, Any]) -> None:
    run(tmp_path)
    run(tmp_path, **other)
    assert len(list(tmp_path.iterdir())) == 2


def test_a_half_written_folder_is_completed(tmp_path: Path) -> None:
    first = run(tmp_path)
    (folder,) = tmp_path.iterdir()
    (folder / "dense_top.npy").unlink()
    np.testing.assert_array_equal(run(tmp_path).dense_top, first.dense_top)


@given(data=st.data())
def test_near_pairs_against_a_loop(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 12))
    angles = np.array(data.draw(st.lists(st.integers(0, 35), min_size=size, max_size=size)))
    vectors = np.stack([np.cos(angles * np.pi / 18), np.sin(angles * np.pi / 18)], axis=1).astype(np.float32)
    expected = [(i, j) for i in range(size) for j in range(size) if i != j and float(vectors[i] @ vectors[j]) >= 0.95]
    found = near_pairs(vectors, at_least=0.95, chunk=data.draw(st.integers(1, 5)))
    assert sorted(map(tuple, found.T.tolist())) == expected

"""Lists of several queries per task over the library of the task's dataset, by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from toolshift.models.generative.lists import bm25_search, dense_search, mean_vectors, ranked_lists
from toolshift.views.corpus import build_corpus

VECTORS = {"apple": (1, 0), "berry": (0.8, 0.6), "cedar": (0.8, 0.6), "dates": (0, 1), "east": (1, 0), "north": (0, 1)}


def test_ranks_are_over_the_library_and_equal_scores_share_the_best(grid: Any, make: Any) -> None:
    bank = make.bank(grid, VECTORS)
    pairs = make.all_pairs(grid).take(np.array([3, 2, 4]))  # t0 dates, t0 cedar, t1 apple; in no order
    search = dense_search(bank, bank.capability_vectors)
    found = list(ranked_lists(pairs, {0: ("east", "north"), 2: ("east",)}, corpus=grid, search=search))
    assert [one.size for one in found] == [4, 4]  # t1 has no query, t2 no pair
    east, north = found
    assert east.at.tolist() == north.at.tolist() == [0, 1]
    np.testing.assert_allclose(east.score, [0, 0.8], atol=1e-6)
    assert east.rank.tolist() == [4, 2]  # apple 1, berry and cedar share 2
    assert north.rank.tolist() == [1, 2]  # dates 1, berry and cedar share 2


def test_many_queries_are_searched_block_by_block(grid: Any, make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    bank, pairs = make.bank(grid, VECTORS), make.all_pairs(grid)
    queries = {0: ("east", "north", "east"), 1: ("north",), 2: ("east", "east")}
    sizes: list[int] = []

    def search(texts: Any, part: Any) -> Any:
        sizes.append(len(texts))
        return dense_search(bank, bank.capability_vectors)(texts, part)

    whole = [(o.at.tolist(), o.rank.tolist()) for o in ranked_lists(pairs, queries, corpus=grid, search=search)]
    monkeypatch.setattr("toolshift.models.generative.lists._BLOCK", 2)
    parts = [(o.at.tolist(), o.rank.tolist()) for o in ranked_lists(pairs, queries, corpus=grid, search=search)]
    assert parts == whole
    assert sizes == [6, 2, 2, 2]


def test_bm25_lists_score_the_library(grid: Any, make: Any) -> None:
    bank = make.bank(grid, VECTORS)
    table = bm25_search(bank)(["berry and dates", "nothing"], grid.parts[0])
    assert (table > 0).tolist() == [[False, True, False, True], [False] * 4]


def test_mean_vectors_by_hand(grid: Any, make: Any) -> None:
    bank = make.bank(grid, VECTORS)
    found = mean_vectors([["east", "north"], ["berry"], ["north", "north", "east"]], bank=bank, rows=2)
    half, long = 0.5**0.5, 5**0.5
    np.testing.assert_allclose(found[:, :2], [[half, half], [0.8, 0.6], [1 / long, 2 / long]], atol=1e-6)


def test_a_list_holds_the_own_dataset_alone(worlds: Any, make: Any) -> None:
    from dataclasses import replace

    corpus, _ = build_corpus(
        worlds.records([worlds.Tool(n, "A", ()) for n in "abcd"], [worlds.Ask(n, "A", n, (("a",),)) for n in "tu"])
    )
    first = replace(corpus.parts[0], name="x", tasks=slice(0, 1), capabilities=slice(0, 1))
    second = replace(corpus.parts[0], name="y", tasks=slice(1, 2), capabilities=slice(1, 4))
    two = replace(corpus, parts=(first, second))
    bank = make.bank(two, {"a": (1, 0), "b": (1, 0), "c": (0.6, 0.8), "d": (0, 1)})
    search = dense_search(bank, bank.capability_vectors)
    lists = ranked_lists(make.all_pairs(two), {0: ("b",), 1: ("b",)}, corpus=two, search=search)
    assert [(o.at.tolist(), o.rank.tolist(), o.size) for o in lists] == [([0], [1], 1), ([5, 6, 7], [1, 2, 3], 3)]

"""Reciprocal rank fusion over the lists of the whole library."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from toolshift.models.frozen.rrf import ReciprocalRankFusion
from toolshift.views.corpus import build_corpus


@pytest.fixture
def world(worlds: Any, make: Any) -> Any:
    """Dense order of ``t``: b, a, d, c. BM25 order: a, b; c and d share no word with it."""
    texts = {"a": "rain rain", "b": "rain snow", "c": "wind", "d": "hail"}
    tools = [worlds.Tool(n, "A", (), t) for n, t in texts.items()]
    corpus, _ = build_corpus(worlds.records(tools, [worlds.Ask("t", "A", "rain", (("a",),))]))
    vectors = {"rain": (1, 0), "rain snow": (1, 0.1), "rain rain": (1, 0.5), "hail": (1, 1), "wind": (0, 1)}
    return corpus, make.bank(corpus, vectors)


def test_by_hand(world: Any, make: Any) -> None:
    corpus, bank = world
    found = ReciprocalRankFusion().score(make.all_pairs(corpus), bank=bank, seed=0)
    np.testing.assert_allclose(found, [1 / 62 + 1 / 61, 1 / 61 + 1 / 62, 1 / 64, 1 / 63], rtol=1e-12)


def test_k_and_lists_are_parameters(world: Any, make: Any) -> None:
    corpus, bank = world
    found = ReciprocalRankFusion(k=0, over=("bm25",)).score(make.all_pairs(corpus), bank=bank, seed=0)
    np.testing.assert_allclose(found, [1, 1 / 2, 0, 0])  # absent from the list: adds 0


def test_ranks_are_those_of_the_library_not_of_the_list(world: Any, make: Any) -> None:
    corpus, bank = world
    alone = make.all_pairs(corpus).take(np.array([2]))
    np.testing.assert_allclose(ReciprocalRankFusion().score(alone, bank=bank, seed=0), [1 / 64])


def test_equal_scores_share_a_rank(grid: Any, make: Any) -> None:
    bank = make.bank(grid, {"task t0": (1, 0), "apple": (1, 0), "berry": (0.6, 0.8), "cedar": (0.6, 0.8)})
    found = ReciprocalRankFusion(over=("semantic_cosine",)).score(make.all_pairs(grid), bank=bank, seed=0)
    np.testing.assert_allclose(found[:4], [1 / 61, 1 / 62, 1 / 62, 1 / 64])

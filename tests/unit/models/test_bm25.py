"""BM25 equals bm25s, with the statistics of the whole library."""

from __future__ import annotations

from typing import Any

import bm25s
import numpy as np
import pytest

from toolshift.models.frozen.bm25 import Bm25Ranker
from toolshift.text.lexical import tokens
from toolshift.views.corpus import build_corpus


@pytest.mark.parametrize(("k1", "b"), [(1.5, 0.75), (0.9, 0.4)])
def test_equal_to_bm25s(fixed_world: Any, make: Any, k1: float, b: float) -> None:
    corpus = fixed_world.corpus
    index = bm25s.BM25(k1=k1, b=b, method="lucene")
    index.index([tokens(t) for t in corpus.capability_texts], show_progress=False)
    known = {w for t in corpus.capability_texts for w in tokens(t)}
    expected = [index.get_scores([w for w in tokens(t) if w in known]) for t in corpus.task_texts]
    found = Bm25Ranker(k1=k1, b=b).score(make.all_pairs(corpus), bank=fixed_world.bank(), seed=0)
    np.testing.assert_allclose(found.reshape(corpus.n_tasks, -1), expected, rtol=1e-5, atol=1e-6)
    assert found.max() > 0


def test_by_hand(worlds: Any, make: Any) -> None:
    """N = 3; "rain" is in 2 documents: idf = ln(1 + 1.5/2.5). Lengths 2, 1, 3, mean 2."""
    texts = {"a": "rain rain", "b": "rain", "c": "snow snow snow"}
    tools = [worlds.Tool(n, "A", (), t) for n, t in texts.items()]
    corpus, _ = build_corpus(worlds.records(tools, [worlds.Ask("t", "A", "rain today", (("a",),))]))
    found = Bm25Ranker().score(make.all_pairs(corpus), bank=make.bank(corpus, {"x": (1, 0)}), seed=0)
    idf = np.log(1 + 1.5 / 2.5)
    expected = [idf * 2 / (2 + 1.5), idf * 1 / (1 + 1.5 * (0.25 + 0.75 / 2)), 0]
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_statistics_are_those_of_the_library(fixed_world: Any, make: Any) -> None:
    """A pair scores the same alone as among all others."""
    pairs = make.all_pairs(fixed_world.corpus)
    whole = Bm25Ranker().score(pairs, bank=fixed_world.bank(), seed=0)
    for i in (0, 99, 500):
        alone = Bm25Ranker().score(pairs.take(np.array([i])), bank=fixed_world.bank(), seed=0)
        np.testing.assert_array_equal(alone, whole[[i]])

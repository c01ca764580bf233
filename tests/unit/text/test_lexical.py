"""Tokens, BM25 and the tie rule."""

from __future__ import annotations

import math
import subprocess
import sys

import bm25s
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from toolshift.text.lexical import Bm25, dense_top, tokens, top_k

DOCS = [
    "get_weather forecast for a city",
    "currency exchange rates",
    "",
    "weather weather weather",
    "currency exchange rates",
    "getCityByName city search",
]
WORDS = ["sun", "rain", "wind", "city", "rate", "bank"]
texts = st.lists(st.sampled_from(WORDS), max_size=6).map(" ".join)


def test_tokens_of_names_and_of_text() -> None:
    assert tokens("Get weather_byCity, São Paulo") == ["get", "weather", "by", "city", "são", "paulo"]


def test_scores_are_the_lucene_formula() -> None:
    """Hand-worked: two documents of 1 and 3 tokens, the term once in the first; idf = ln(1 + 1.5/1.5) = ln 2."""
    scores = Bm25(["rain", "sun sun wind"], k1=1.5, b=0.75).score_matrix(["rain", "sun", "snow", ""])
    rain = math.log(2) * 1 / (1 + 1.5 * (0.25 + 0.75 * 1 / 2))
    sun = math.log(2) * 2 / (2 + 1.5 * (0.25 + 0.75 * 3 / 2))
    np.testing.assert_allclose(scores, [[rain, 0], [0, sun], [0, 0], [0, 0]], rtol=1e-6)


def test_a_term_in_every_document_still_counts() -> None:
    scores = Bm25(["rain", "rain sun", "rain wind"]).score_matrix(["rain"])
    assert (scores > 0).all()


@settings(max_examples=50, deadline=None)
@given(st.lists(texts, min_size=1, max_size=8), st.lists(texts, min_size=1, max_size=4))
def test_scores_equal_bm25s_repeated_terms_included(docs: list[str], queries: list[str]) -> None:
    ours = Bm25(docs).score_matrix(queries)
    assert ours.shape == (len(queries), len(docs)) and ours.dtype == np.float32
    split = [doc.split() for doc in docs]
    if not any(split):
        assert not ours.any()
        return
    index = bm25s.BM25(k1=1.5, b=0.75, method="lucene", dtype="float64")
    index.index(split, show_progress=False)
    for row, query in zip(ours, queries, strict=True):
        known = [term for term in query.split() if term in index.vocab_dict]
        expected = index.get_scores(known) if known else np.zeros(len(docs))
        np.testing.assert_allclose(row, expected, rtol=1e-5, atol=1e-7)


def test_equal_documents_tie_in_document_order() -> None:
    ids, scores = Bm25(DOCS).top(["currency rates"], k=6)
    assert ids.tolist() == [[1, 4, 0, 2, 3, 5]]
    assert scores[0, 0] == scores[0, 1] > 0
    assert scores[0, 2:].tolist() == [0, 0, 0, 0]


def test_top_gives_at_most_all_documents_and_handles_no_query() -> None:
    model = Bm25(DOCS)
    assert model.top(["city"], k=50)[0].shape == (1, 6)
    assert model.top([], k=3)[0].shape == (0, 3)
    assert model.score_matrix([]).shape == (0, 6)


def test_pairs_equal_the_matrix_across_blocks() -> None:
    rng = np.random.default_rng(0)
    queries = [" ".join(rng.choice(WORDS, size=3)) for _ in range(600)]
    docs = [" ".join(rng.choice(WORDS, size=n)) for n in rng.integers(0, 6, size=40)]
    model = Bm25(docs)
    query_index, doc_index = rng.integers(0, 600, size=500), rng.integers(0, 40, size=500)
    expected = model.score_matrix(queries)[query_index, doc_index]
    got = model.pairs(queries, query_index=query_index, doc_index=doc_index)
    np.testing.assert_array_equal(got, expected)
    assert got.any()
    none = np.array([], dtype=int)
    assert model.pairs(queries, query_index=none, doc_index=none).shape == (0,)


@pytest.mark.parametrize(("query_index", "doc_index"), [([2], [0]), ([0], [6]), ([-1], [0])])
def test_pairs_out_of_range(query_index: list[int], doc_index: list[int]) -> None:
    with pytest.raises(IndexError, match="must lie in"):
        Bm25(DOCS).pairs(["a", "b"], query_index=np.array(query_index), doc_index=np.array(doc_index))


def test_pairs_of_unequal_length() -> None:
    with pytest.raises(ValueError, match="equal 1-d"):
        Bm25(DOCS).pairs(["a"], query_index=np.array([0, 0]), doc_index=np.array([0]))


def test_parameters_are_described_and_used() -> None:
    assert Bm25(DOCS).describe == "bm25(variant=lucene,k1=1.5,b=0.75,stemmer=none,stopwords=none,statistics=library)"
    plain, stemmed = Bm25(["raining"]), Bm25(["raining"], stemmer="english", stopwords=["the"])
    assert not plain.score_matrix(["rains"]).any()
    assert stemmed.score_matrix(["rains"]).any()
    assert stemmed.describe.endswith("stemmer=english,stopwords=the,statistics=library)")
    assert not Bm25(["the rain"], stopwords=["the"]).score_matrix(["the"]).any()


@pytest.mark.parametrize("bad", [{"k1": -1}, {"b": 1.1}, {"stemmer": "klingon"}])
def test_bad_parameters(bad: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"k1|stemmer"):
        Bm25(DOCS, **bad)  # type: ignore[arg-type]


def test_no_documents() -> None:
    with pytest.raises(ValueError, match="at least one document"):
        Bm25([])


def test_bytes_do_not_depend_on_the_hash_seed() -> None:
    code = (
        "from toolshift.text.lexical import Bm25; import hashlib; d=['a b c d e f','b c d','e f g a a','c e g b d f'];"
        "print(hashlib.sha256(Bm25(d).score_matrix(['a b c d e f g', 'g f e d']).tobytes()).hexdigest())"
    )
    path = [p for p in sys.path if p]
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(path)},
            capture_output=True, text=True, check=True,
        ).stdout
        for seed in ("0", "1", "2")
    }  # fmt: skip
    assert len(outputs) == 1


scores = hnp.arrays(
    np.float32,
    hnp.array_shapes(min_dims=2, max_dims=2, max_side=12),
    elements=st.sampled_from([-2.5, -1.0, -0.0, 0.0, 1e-30, 0.5, 0.50001, 3.0, float("inf"), float("-inf")]),
)


@given(scores, st.integers(1, 15))
def test_top_k_is_score_descending_then_position_ascending(matrix: np.ndarray, k: int) -> None:
    ids, values = top_k(matrix, k=k)
    for row, got, value in zip(matrix, ids, values, strict=True):
        expected = sorted(range(len(row)), key=lambda j: (-row[j], j))[:k]
        assert got.tolist() == expected
        assert value.tolist() == row[expected].tolist()


@given(scores, st.integers(1, 12))
def test_the_order_is_the_same_for_every_k(matrix: np.ndarray, k: int) -> None:
    full, _ = top_k(matrix, k=matrix.shape[1])
    np.testing.assert_array_equal(top_k(matrix, k=k)[0], full[:, :k])


def test_top_k_refuses_nan_and_empty_lists() -> None:
    with pytest.raises(ValueError, match="NaN"):
        top_k(np.array([[0.0, np.nan]], dtype=np.float32), k=1)
    with pytest.raises(ValueError, match="at least 1"):
        top_k(np.zeros((1, 2), dtype=np.float32), k=0)
    assert top_k(np.zeros((2, 0), dtype=np.float32), k=3)[0].shape == (2, 0)


def _unit(rng: np.random.Generator, n: int, d: int = 48) -> np.ndarray:
    rows = rng.normal(size=(n, d))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def test_dense_top_is_exact_search() -> None:
    rng = np.random.default_rng(1)
    queries, docs = _unit(rng, 300), _unit(rng, 70)
    ids, values = dense_top(queries, docs, k=5)
    exact = queries.astype(np.float64) @ docs.T.astype(np.float64)
    np.testing.assert_allclose(values, np.sort(exact, axis=1)[:, ::-1][:, :5], atol=2e-6)
    np.testing.assert_allclose(np.take_along_axis(exact, ids, axis=1), values, atol=2e-6)


def test_dense_top_equal_documents_keep_their_order_for_every_k() -> None:
    """The copies stand in columns that matrix kernels treat differently; their scores must tie all the same."""
    rng = np.random.default_rng(2)
    base = _unit(rng, 37)
    docs = np.concatenate([base, base, base])
    queries = _unit(rng, 50)
    full, values = dense_top(queries, docs, k=111)
    assert (full[:, ::3] % 37 == full[:, 1::3] % 37).all()
    assert (full[:, ::3] < full[:, 1::3]).all() and (full[:, 1::3] < full[:, 2::3]).all()
    assert (values[:, ::3] == values[:, 2::3]).all()
    for k in (1, 2, 10, 50):
        np.testing.assert_array_equal(dense_top(queries, docs, k=k)[0], full[:, :k])


def test_dense_top_shapes() -> None:
    with pytest.raises(ValueError, match="dense_top needs"):
        dense_top(np.zeros((2, 3), np.float32), np.zeros((2, 4), np.float32), k=1)
    assert dense_top(np.zeros((0, 3), np.float32), np.zeros((2, 3), np.float32), k=5)[0].shape == (0, 2)

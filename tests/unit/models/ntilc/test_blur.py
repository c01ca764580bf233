"""Blur pairs: alike by vectors or by words, incompatible by signature."""

from __future__ import annotations

import numpy as np
import pytest

from toolshift.models.base import BadParameter
from toolshift.models.ntilc.blur import blur_pairs, tf_idf, theta_of_count
from toolshift.models.ntilc.signature import Signatures
from toolshift.text.encoder import unit_rows


def signatures(*items: str) -> Signatures:
    return Signatures.of_items([frozenset(words.split()) for words in items])


# Tools 0 and 1: cosine 0.96 and no item in common; 0 and 2: cosine 0.6, the same words; 3 like 0 in all.
VECTORS = unit_rows(np.array([[1, 0, 0], [0.96, 0.28, 0], [0.6, 0, 0.8], [1, 0, 0]], np.float64))
SIGNATURES = signatures("a b", "c", "a c d", "a b")
TEXTS = ["rain in town", "snow", "rain in town", "hail"]


def test_pairs_by_hand() -> None:
    found = blur_pairs(VECTORS, SIGNATURES, texts=TEXTS)
    assert list(zip(found.left.tolist(), found.right.tolist(), strict=True)) == [(0, 1), (0, 2), (1, 3)]
    assert found.cosine.tolist() == pytest.approx([0.96, 0.6, 0.96])
    assert found.lexical.tolist() == pytest.approx([0.0, 1.0, 0.0])
    assert found.w.tolist() == pytest.approx([1.0, 0.75, 1.0])
    assert found.slice.tolist() == [1, 2, 1]
    assert (len(found.only("dense")), len(found.only("lexical")), len(found.only("all"))) == (2, 1, 3)
    assert found.tools.tolist() == [True, True, True, True]
    assert found.partners(1).tolist() == [0, 3]
    assert found.only("lexical").tools.tolist() == [True, False, True, False]


def test_a_pair_with_one_signature_is_none() -> None:
    """0 and 3 read alike and have the same signature; a higher theta_w takes further pairs out."""
    found = blur_pairs(VECTORS, SIGNATURES, texts=TEXTS, theta_w=0.8)
    assert found.right.tolist() == [1, 3]
    assert len(blur_pairs(VECTORS, SIGNATURES)) == 2


def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    vectors = unit_rows(rng.standard_normal((60, 4)))
    table = Signatures.of_items([frozenset(rng.choice(list("abcdef"), 2).tolist()) for _ in range(60)])
    texts = [" ".join(rng.choice(["rain", "snow", "hail", "wind", "fog"], 3)) for _ in range(60)]
    whole = blur_pairs(vectors, table, texts=texts)
    monkeypatch.setattr("toolshift.models.ntilc.blur._BLOCK_ROWS", 7)
    parts = blur_pairs(vectors, table, texts=texts)
    assert len(whole) > 50
    for name in ("left", "right", "slice"):
        np.testing.assert_array_equal(getattr(whole, name), getattr(parts, name))
    cosine, lexical = vectors @ vectors.T, (tf_idf(texts) @ tf_idf(texts).T).toarray()
    alike = (cosine >= 0.75) | (lexical >= 0.6)
    w = 1 - table.compat(np.arange(60), np.arange(60))
    assert len(whole) == int(np.triu(alike & (w >= 0.5), 1).sum())


def test_the_threshold_of_a_published_count() -> None:
    found = blur_pairs(VECTORS, SIGNATURES, theta_s=0.5)
    assert theta_of_count(found, 2) == pytest.approx(0.96)
    assert len(found.at_least(theta_s=0.9, theta_w=0.5)) == 2
    assert np.isnan(theta_of_count(found, 99))


def test_bad_input() -> None:
    nothing = blur_pairs(np.zeros((0, 3), np.float32), signatures(), texts=[])
    assert (len(nothing), nothing.tools.size) == (0, 0)
    with pytest.raises(BadParameter, match=r"theta_s=0\.0"):
        blur_pairs(VECTORS, SIGNATURES, theta_s=0.0)
    with pytest.raises(BadParameter, match="4 vectors, 1 signatures"):
        blur_pairs(VECTORS, signatures("a"))


def test_tf_idf_rows_are_unit_and_common_words_count_nothing() -> None:
    texts = ["the rain", "the snow", *["the"] * 2000]
    table = tf_idf(texts)
    assert table[0].multiply(table[1]).sum() == 0
    assert table[2].nnz == 0
    assert np.sqrt(table[0].multiply(table[0]).sum()) == pytest.approx(1.0)

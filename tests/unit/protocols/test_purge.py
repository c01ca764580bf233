"""Source tasks that share a gold capability with the target, or nearly its words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolshift.protocols.purge import near_query, normalise, shares_gold
from toolshift.views.corpus import build_corpus


@given(data=st.data())
@settings(max_examples=25)
def test_shares_gold_against_sets(worlds: Any, data: st.DataObject) -> None:
    records = data.draw(worlds.drawn())
    _, labels = build_corpus(records)
    target = data.draw(st.lists(st.integers(0, len(records.tasks) - 1), unique=True))
    wanted = {g for t in target for g in records.tasks[t].gold_capability_ids}
    expected = [bool(wanted & set(t.gold_capability_ids)) for t in records.tasks]
    np.testing.assert_array_equal(shares_gold(labels, target=np.array(target, np.int64)), expected)


def test_given_candidates_are_no_shared_gold(worlds: Any) -> None:
    tools = [worlds.Tool(n, "A", ()) for n in "ab"]
    asks = [worlds.Ask("t", "A", "x", (("a",),), ("b",)), worlds.Ask("u", "B", "x", (("b",),), ("a",))]
    _, labels = build_corpus(worlds.records(tools, asks))
    np.testing.assert_array_equal(shares_gold(labels, target=np.array([0])), [True, False])


TEXTS = ("Find a Café!", "find  a, café", "find a bar", "far away")
VECTORS = np.array([[1, 0], [0, 1], [0.96, 0.28], [0.94, -0.3411744]], np.float32)


def test_near_by_words_or_by_vector() -> None:
    near = near_query(TEXTS, VECTORS, target=np.array([0]), at_least=0.95)
    np.testing.assert_array_equal(near, [True, True, True, False])


@pytest.mark.parametrize("at_least", [0.93, 0.97])
def test_the_threshold_counts(at_least: float) -> None:
    near = near_query(TEXTS, VECTORS, target=np.array([0]), at_least=at_least)
    np.testing.assert_array_equal(near[2:], np.array([0.96, 0.94]) >= at_least)


@given(seed=st.integers(0, 1000), chunk=st.integers(1, 7))
def test_near_query_against_a_loop(seed: int, chunk: int) -> None:
    rng = np.random.default_rng(seed)
    angles = rng.integers(0, 24, size=9) * np.pi / 12
    vectors = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    texts = [f"text {i}" for i in rng.integers(0, 6, size=9)]
    target = np.flatnonzero(rng.random(9) < 0.3)
    expected = [any(texts[i] == texts[t] or float(vectors[i] @ vectors[t]) >= 0.95 for t in target) for i in range(9)]
    np.testing.assert_array_equal(near_query(texts, vectors, target=target, at_least=0.95, chunk=chunk), expected)


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("  Hello,   WORLD! ", "hello world"),
        ("e\u0301te\u0301", "\u00e9t\u00e9"),
        ("Stra\u00dfe", "strasse"),
        ("...", ""),
    ],
)
def test_normalised_text(text: str, normal: str) -> None:
    assert normalise(text) == normal

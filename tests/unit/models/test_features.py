"""Pair features: memo, cosine, BM25, library ranks, endpoint schema match against loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolshift.models.features import (
    FeatureBank,
    PairCache,
    Pairs,
    exact_cosines,
    on_grid,
    requirement_spans,
    task_chunks,
)
from toolshift.text.spans import detected_types, identifier_words
from toolshift.views.corpus import build_corpus

# ------------------------------------------------------------------------------------------------------------ memo


def test_only_missing_pairs_are_computed_and_each_once() -> None:
    asked: list[list[tuple[int, int]]] = []

    def compute(pairs: Pairs) -> Any:
        asked.append(list(zip(pairs.task.tolist(), pairs.capability.tolist(), strict=True)))
        return pairs.task * 100.0 + pairs.capability

    cache = PairCache(compute, n_capabilities=10)
    first = Pairs(task=np.array([2, 0, 2]), capability=np.array([3, 9, 3]))
    np.testing.assert_array_equal(cache(first), [203, 9, 203])
    second = Pairs(task=np.array([0, 1, 2]), capability=np.array([9, 1, 3]))
    np.testing.assert_array_equal(cache(second), [9, 101, 203])
    assert asked == [[(0, 9), (2, 3)], [(1, 1)]]
    assert cache(Pairs(task=np.zeros(0, np.int64), capability=np.zeros(0, np.int64))).size == 0
    assert len(asked) == 2


@given(data=st.data())
def test_the_memo_changes_no_value(data: st.DataObject) -> None:
    cache = PairCache(lambda p: np.sin(p.task * 7.0 + p.capability), n_capabilities=5)
    for _ in range(3):
        pairs = data.draw(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 4)), max_size=12))
        task, capability = np.array(pairs, np.int64).reshape(-1, 2).T
        found = cache(Pairs(task=task, capability=capability))
        np.testing.assert_array_equal(found, np.sin(task * 7.0 + capability))


def test_task_chunks_cover_the_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolshift.models.features._CHUNK_TASKS", 2)
    task = np.array([1, 1, 4, 6, 6, 6, 9])
    chunks = [(tasks.tolist(), where.start, where.stop) for tasks, where in task_chunks(task)]
    assert chunks == [([1, 4], 0, 3), ([6, 9], 3, 7)]


# ------------------------------------------------------------------------------------------------- whole-text scores


def test_cosine_is_the_dot_product(fixed_world: Any, make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolshift.models.features._CHUNK_PAIRS", 100)
    pairs = make.all_pairs(fixed_world.corpus)
    expected = fixed_world.task_vectors.astype(float) @ fixed_world.capability_vectors.astype(float).T
    np.testing.assert_allclose(fixed_world.bank().cosine(pairs), expected.ravel(), atol=1e-12)


DIRECTIONS = {"task t0": (1, 0), "task t1": (0, 1), "apple": (0.6, 0.8), "berry": (0.8, 0.6), "cedar": (0.8, 0.6)}


def test_library_ranks_by_hand(grid: Any, make: Any) -> None:
    """Cosines of t0: .6, .8, .8, 0; of t1: .8, .6, .6, 0; t2 lies on its own axis like ``dates``."""
    ranks = make.bank(grid, DIRECTIONS).library_rank(make.all_pairs(grid), by="semantic_cosine")
    np.testing.assert_array_equal(ranks.reshape(3, 4), [[3, 1, 1, 4], [1, 2, 2, 4], [2, 2, 2, 1]])


def test_bm25_ranks_leave_out_what_is_not_retrieved(worlds: Any, make: Any) -> None:
    tools = [worlds.Tool(n, "A", (), text) for n, text in [("a", "rain rain"), ("b", "rain snow"), ("c", "wind")]]
    corpus, _ = build_corpus(worlds.records(tools, [worlds.Ask("t", "A", "rain", (("a",),))]))
    ranks = make.bank(corpus, {"x": (1, 0)}).library_rank(make.all_pairs(corpus), by="bm25")
    np.testing.assert_array_equal(ranks, [1, 2, np.inf])


@given(data=st.data(), by=st.sampled_from(["semantic_cosine", "bm25"]))
@settings(max_examples=25)
def test_library_ranks_against_sorting(worlds: Any, make: Any, data: st.DataObject, by: str) -> None:
    world = worlds.of(data.draw(worlds.drawn()))
    bank = world.bank()
    pairs = make.all_pairs(world.corpus)
    feature = bank.cosine(pairs) if by == "semantic_cosine" else bank.bm25(pairs, k1=1.5, b=0.75)
    table = feature.reshape(world.corpus.n_tasks, -1)
    # Beyond rounding: better by more than 2e-6 counts, worse by more than 2e-6 does not.
    surely = (table[:, None, :] > table[:, :, None] + 2e-6).sum(axis=2).ravel() + 1
    perhaps = (table[:, None, :] > table[:, :, None] - 2e-6).sum(axis=2).ravel()
    ranks = bank.library_rank(pairs, by=by)
    retrieved = np.isfinite(ranks)
    assert ((surely <= ranks) & (ranks <= perhaps))[retrieved].all()
    np.testing.assert_array_equal(retrieved, (feature > 0) | (by != "bm25"))


def test_the_grid_merges_noise_and_nothing_else() -> None:
    half = np.float32(0.5)
    noisy = np.array([half, np.nextafter(half, np.float32(1)), np.nextafter(half, np.float32(0))], np.float32)
    assert np.unique(on_grid(noisy)).size == 1
    assert np.unique(on_grid(np.array([0.5, 0.500002], np.float32))).size == 2
    assert on_grid(noisy).dtype == np.float32


# ---------------------------------------------------------------------------------------------------- schema match


def reference_match(world: Any, encoder: Any, task: int, capability: int, *, pool: int, operation: bool) -> float:
    """Baselines.md section 1, one endpoint at a time."""
    text = world.records.tasks[task].text
    record = world.records.library.capabilities[capability]
    endpoints = world.records.library.endpoints_of[record.capability_id]
    x_task = encoder.encode([text])[0]
    if not endpoints:
        return float(x_task @ encoder.encode([record.text])[0])
    x_spans = encoder.encode(requirement_spans(text))
    cosines = [float(x_task @ encoder.encode([e.text])[0]) for e in endpoints]
    order = sorted(range(len(endpoints)), key=lambda j: (-round(cosines[j], 5), j))
    values = []
    for j in order[:pool]:
        required = endpoints[j].required_arguments
        terms = [cosines[j]] if operation else []
        if required:
            names = [encoder.encode([identifier_words(a.name)])[0] for a in required]
            terms.append(float(np.mean([max(0.0, float((x_spans @ n).max())) for n in names])))
        if any(a.type != "unknown" for a in required):
            fits = [a.type in detected_types(text) and a.type != "unknown" for a in required]
            terms.append(float(np.mean(fits)))
        values.append(float(np.mean(terms)) if terms else cosines[j])
    return max(values)


@given(data=st.data(), pool=st.integers(1, 4), operation=st.booleans())
@settings(max_examples=40)
def test_schema_match_against_loops(worlds: Any, make: Any, data: st.DataObject, pool: int, operation: bool) -> None:
    world = worlds.of(data.draw(worlds.drawn()))
    pairs = make.all_pairs(world.corpus)
    bank = world.bank()
    found = bank.schema_match(pairs, pool=pool, operation=operation)
    encoder, some = worlds.WordEncoder(), slice(data.draw(st.integers(0, 4)), None, 5)
    expected = [
        reference_match(world, encoder, t, c, pool=pool, operation=operation)
        for t, c in zip(pairs.task[some], pairs.capability[some], strict=True)
    ]
    np.testing.assert_allclose(found[some], expected, atol=3e-6)


def test_schema_match_does_not_depend_on_which_pairs_are_asked(fixed_world: Any, make: Any) -> None:
    pairs = make.all_pairs(fixed_world.corpus)
    whole = fixed_world.bank().schema_match(pairs, pool=2, operation=True)
    bank: FeatureBank = fixed_world.bank()
    for index in (np.arange(5), np.arange(len(pairs))[::7][::-1]):
        np.testing.assert_allclose(
            bank.schema_match(pairs.take(index), pool=2, operation=True), whole[index], atol=1e-6
        )


def test_capability_tables_are_computed_once(grid: Any, make: Any) -> None:
    calls = []

    def compute(corpus: Any) -> Any:
        calls.append(corpus)
        return np.zeros(4)

    bank = make.bank(grid, DIRECTIONS)
    assert bank.per_capability(compute) is bank.per_capability(compute)
    assert len(calls) == 1


def test_exact_cosines_do_not_depend_on_what_is_multiplied_beside() -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(300, 384))
    vectors = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    whole = exact_cosines(vectors, vectors)
    for part in (slice(0, 1), slice(7, 20), slice(100, 300)):
        np.testing.assert_array_equal(exact_cosines(vectors[part], vectors[::3]), whole[part, ::3])
    np.testing.assert_allclose(whole, vectors.astype(np.float64) @ vectors.T.astype(np.float64), atol=1e-6)

"""Records as arrays; labels apart from everything that a method may read."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolshift.views.corpus import build_corpus, stored_entries


@pytest.fixture
def records(worlds: Any) -> Any:
    tools = [
        worlds.Tool("ant", "Zoo", (worlds.Api("get ant"), worlds.Api("eat ant")), source="task"),
        worlds.Tool("bee", "Farm", ()),
        worlds.Tool("cow", "", (worlds.Api("get cow"),)),
    ]
    asks = [
        worlds.Ask("t0", "Zoo", "see an ant", (("ant", "get ant"),), ("bee",)),
        worlds.Ask("t1", "Farm", "see all", (("cow", "get cow"), ("ant", "eat ant")), ()),
        worlds.Ask("t2", "", "nowhere", (("bee",),), ("ant",)),
    ]
    return worlds.records(tools, asks)


def test_rows_follow_sorted_ids(records: Any) -> None:
    corpus, _ = build_corpus(records)
    assert corpus.task_ids == ("toy/t0", "toy/t1", "toy/t2")
    assert corpus.capability_ids == ("toy/ant", "toy/bee", "toy/cow")
    assert corpus.domains == ("Farm", "Zoo")
    np.testing.assert_array_equal(corpus.task_domain, [1, 0, -1])
    np.testing.assert_array_equal(corpus.capability_domain, [1, 0, -1])
    np.testing.assert_array_equal(corpus.partial_schema, [True, False, False])
    assert (corpus.n_tasks, corpus.n_capabilities) == (3, 3)


def test_endpoints_are_packed_by_capability(records: Any) -> None:
    corpus, _ = build_corpus(records)
    assert [e.operation for e in corpus.endpoints] == ["eat ant", "get ant", "get cow"]
    np.testing.assert_array_equal(corpus.endpoint_offsets, [0, 2, 2, 3])
    np.testing.assert_array_equal(corpus.endpoint_count, [2, 0, 1])
    np.testing.assert_array_equal(corpus.endpoint_capability, [0, 0, 2])


def test_labels_are_memberships(records: Any) -> None:
    _, labels = build_corpus(records)
    np.testing.assert_array_equal(labels.gold.toarray(), [[1, 0, 0], [1, 0, 1], [0, 1, 0]])
    np.testing.assert_array_equal(labels.given.toarray(), [[0, 1, 0], [0, 0, 0], [1, 0, 0]])
    np.testing.assert_array_equal(labels.gold_endpoints.toarray(), [[0, 1, 0], [1, 0, 1], [0, 0, 0]])


def test_domain_counts_leave_out_tasks_without_a_domain(records: Any) -> None:
    corpus, labels = build_corpus(records)
    np.testing.assert_array_equal(labels.domain_counts(corpus), [[1, 0, 1], [1, 0, 0]])
    np.testing.assert_array_equal(labels.judged_by_domain(corpus), [[True, False, True], [True, True, False]])


def test_only_refuses_labels_that_were_erased(records: Any) -> None:
    _, labels = build_corpus(records)
    kept = labels.only(np.array([2, 0]))
    with pytest.raises(ValueError, match="1 tasks are not among the 2"):
        kept.only(np.array([0, 1]))


@given(data=st.data())
@settings(max_examples=25)
def test_only_erases_and_changes_nothing_else(worlds: Any, data: st.DataObject) -> None:
    _, labels = build_corpus(data.draw(worlds.drawn()))
    rows = data.draw(st.lists(st.sampled_from(labels.rows.tolist()), unique=True))
    kept = labels.only(np.array(rows, np.int64))
    np.testing.assert_array_equal(kept.rows, sorted(rows))
    for name in ("gold", "given", "gold_endpoints"):
        before, after = getattr(labels, name).toarray(), getattr(kept, name)
        expected = np.zeros_like(before)
        expected[rows] = before[rows]
        np.testing.assert_array_equal(after.toarray(), expected)
        assert after.nnz == expected.sum()  # nothing is stored where nothing is known


def test_the_corpus_reads_no_label(worlds: Any) -> None:
    """Other labels, same corpus: bit for bit, in every field."""
    records = worlds.fixed()
    one, _ = build_corpus(records)
    other, labels = build_corpus(worlds.relabelled(records, "D1", how="replaced"))
    assert labels.gold.nnz != build_corpus(records)[1].gold.nnz
    for field in dataclasses.fields(one):
        mine, theirs = getattr(one, field.name), getattr(other, field.name)
        if field.name == "operations":
            np.testing.assert_array_equal(mine.verb, theirs.verb)
            np.testing.assert_array_equal(mine.words.toarray(), theirs.words.toarray())
        else:
            np.testing.assert_array_equal(np.asarray(mine, object), np.asarray(theirs, object))


@given(data=st.data())
@settings(max_examples=15)
def test_stored_entries_are_the_nonzeros(worlds: Any, data: st.DataObject) -> None:
    _, labels = build_corpus(data.draw(worlds.drawn()))
    np.testing.assert_array_equal(stored_entries(labels.gold), np.nonzero(labels.gold.toarray()))


def test_pair_keys_sort_like_pairs(records: Any) -> None:
    corpus, _ = build_corpus(records)
    task, capability = np.divmod(np.arange(9), 3)
    keys = corpus.pair_key(task, capability)
    assert (np.diff(keys) > 0).all()

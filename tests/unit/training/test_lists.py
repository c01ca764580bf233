"""One list per task and epoch, in a keyed order, from every view in turn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolshift.training.lists import Batch, TrainingLists
from toolshift.views.corpus import Corpus, build_corpus
from toolshift.views.manifest import Manifest

GOLD = 0
VIEWS = ("a", "b", "c")


@pytest.fixture(scope="session")
def corpus(worlds: Any) -> Corpus:
    """Twelve tasks and four tools; tool 0 is gold, tool 1 + v a negative of view v alone."""
    tools = [worlds.Tool(f"tool{i}", "A", ()) for i in range(4)]
    asks = [worlds.Ask(f"t{i:02d}", "A", "x", (("tool0",),)) for i in range(12)]
    return build_corpus(worlds.records(tools, asks))[0]


def manifest(view: str, tasks: Sequence[int]) -> Manifest:
    """Lists of two: the gold and the negative of the view."""
    n = len(tasks)
    return Manifest(
        view=view,
        tasks=np.array(tasks, np.int64),
        offsets=np.arange(n + 1) * 2,
        capability=np.tile([GOLD, 1 + VIEWS.index(view)], n),
        role=np.tile(np.array([0, 1], np.int8), n),
        miner=np.zeros(2 * n, np.uint8),
        skipped={},
    )


def lists_of(tasks: Mapping[str, Sequence[int]], corpus: Corpus, *, max_tasks: int | None = None) -> TrainingLists:
    return TrainingLists.of({v: manifest(v, t) for v, t in tasks.items()}, corpus, max_tasks=max_tasks)


def seen(batches: Sequence[Batch]) -> list[tuple[int, str]]:
    """(task, view) of every list, and a check that each is the whole list with its labels."""
    found = []
    for batch in batches:
        np.testing.assert_array_equal(batch.offsets, np.arange(batch.tasks.size + 1) * 2)
        np.testing.assert_array_equal(batch.owner, np.repeat(np.arange(batch.tasks.size), 2))
        np.testing.assert_array_equal(batch.positive, np.tile([True, False], batch.tasks.size))
        assert (batch.capability[::2] == GOLD).all()
        found += [(int(t), VIEWS[c - 1]) for t, c in zip(batch.tasks, batch.capability[1::2], strict=True)]
    return found


view_tasks = st.dictionaries(
    st.sampled_from(VIEWS), st.sets(st.integers(0, 11), min_size=1).map(sorted), min_size=1, max_size=3
)


@given(tasks=view_tasks, seed=st.integers(0, 9), batch_tasks=st.integers(1, 13))
def test_an_epoch_has_one_list_per_task_and_the_views_take_turns(
    corpus: Corpus, tasks: dict[str, list[int]], seed: int, batch_tasks: int
) -> None:
    lists = lists_of(tasks, corpus)
    everyone = sorted(set().union(*tasks.values()))
    rounds: list[list[tuple[int, str]]] = []
    for number in range(6):  # 6 is a multiple of 1, 2 and 3 lists per task
        batches = list(lists.epoch(number, seed=seed, batch_tasks=batch_tasks))
        assert all(b.tasks.size == batch_tasks for b in batches[:-1])
        rounds.append(seen(batches))
        assert sorted(t for t, _ in rounds[-1]) == everyone
    for task in everyone:
        has = [view for view in sorted(tasks) if task in tasks[view]]
        for start in range(0, 6, len(has)):
            turn = Counter(v for r in rounds[start : start + len(has)] for t, v in r if t == task)
            assert turn == Counter(has)


def test_the_first_views_differ_between_tasks(corpus: Corpus) -> None:
    """All tasks starting with the same view would make an epoch see one negative role alone."""
    lists = lists_of({v: range(12) for v in VIEWS}, corpus)
    assert len({v for _, v in seen(list(lists.epoch(0, seed=42, batch_tasks=12)))}) > 1


def test_the_order_is_keyed(corpus: Corpus) -> None:
    lists = lists_of({"a": range(12), "b": range(12)}, corpus)

    def order(some: TrainingLists, number: int, seed: int, batch_tasks: int = 5) -> list[tuple[int, str]]:
        return seen(list(some.epoch(number, seed=seed, batch_tasks=batch_tasks)))

    first = order(lists, 0, 42)
    assert [t for t, _ in first] != sorted(t for t, _ in first)
    assert order(lists, 0, 42, batch_tasks=3) == first
    assert order(lists_of({"b": range(12), "a": range(12)}, corpus), 0, 42) == first
    assert [t for t, _ in order(lists, 1, 42)] != [t for t, _ in first]
    assert [t for t, _ in order(lists, 0, 43)] != [t for t, _ in first]
    # Fewer tasks: the others keep their order and their lists.
    fewer = order(lists_of({"a": range(6), "b": range(6)}, corpus), 0, 42)
    assert fewer == [x for x in first if x[0] < 6]


def test_the_cap_takes_the_smallest_hashes_with_all_their_lists(corpus: Corpus) -> None:
    kept = np.sort(np.argsort(corpus.task_hash)[:5])
    assert kept.tolist() != list(range(5))
    lists = lists_of({"a": range(12), "b": range(0, 12, 2)}, corpus, max_tasks=5)
    assert lists.tasks.tolist() == kept.tolist()
    expected = [(t, v) for t in kept.tolist() for v in "ab" if v == "a" or t % 2 == 0]
    assert seen([lists.everything()]) == expected
    for cap in (12, 99, None):
        np.testing.assert_array_equal(lists_of({"a": range(12)}, corpus, max_tasks=cap).tasks, np.arange(12))


def test_the_cap_counts_tasks_of_all_views_together(corpus: Corpus) -> None:
    small, large = np.argsort(corpus.task_hash)[[0, -1]].tolist()
    lists = lists_of({"a": [large], "b": [small]}, corpus, max_tasks=1)
    assert seen([lists.everything()]) == [(small, "b")]


def test_everything_holds_every_list(corpus: Corpus) -> None:
    lists = lists_of({"b": [1, 3], "a": [3, 7]}, corpus)
    assert seen([lists.everything()]) == [(1, "b"), (3, "a"), (3, "b"), (7, "a")]


def test_lists_of_unequal_length_stay_whole(corpus: Corpus) -> None:
    long = Manifest(
        view="a",
        tasks=np.array([2, 5]),
        offsets=np.array([0, 3, 5]),
        capability=np.array([0, 1, 2, 2, 3]),
        role=np.array([1, 0, 2, 0, 3], np.int8),
        miner=np.zeros(5, np.uint8),
        skipped={},
    )
    lists = TrainingLists.of({"a": long, "b": manifest("b", [5])}, corpus, max_tasks=None)
    found = set()
    for number in range(2):
        for batch in lists.epoch(number, seed=1, batch_tasks=1):
            (task,) = batch.tasks.tolist()
            found.add((task, tuple(batch.capability.tolist()), tuple(batch.positive.tolist())))
    assert found == {
        (2, (0, 1, 2), (False, True, False)),
        (5, (2, 3), (True, False)),
        (5, (0, 2), (True, False)),
    }

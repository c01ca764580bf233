"""Splits of trajectories: components stay whole, strata keep their share, the authors' way row by row."""

from __future__ import annotations

import math
import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolshift.data.records import Task
from toolshift.protocols.trajectory_split import WAYS, By, components, seen_pairs, split_trajectories


def task(row: int, text: str, calls: str) -> Task:
    ids = tuple(f"d/{name}/call" for name in calls)
    return Task(
        task_id=f"d/{row:05d}",
        dataset="d",
        domain="",
        text=text,
        gold_capability_ids=tuple(sorted({f"d/{name}" for name in calls})),
        gold_endpoint_ids=tuple(sorted(set(ids))),
        ordered=True,
        calls=ids,
    )


def drawn(n: int, *, seed: int, texts: int, tools: str = "abcdefghij") -> list[Task]:
    rng = random.Random(seed)
    return [
        task(row, f"query {rng.randrange(texts)}", "".join(rng.choices(tools, k=rng.randint(1, 9)))) for row in range(n)
    ]


def test_components_by_hand() -> None:
    # 0-2 share x, 2-4 share y; 1 and 3 stand alone.
    keys = [["x"], ["p"], ["x", "y"], ["q"], ["y"]]
    assert components(keys).tolist() == [0, 1, 0, 2, 0]


def test_text_ignores_case_punctuation_and_blanks() -> None:
    tasks = [task(0, "Will it rain?", "a"), task(1, "will  it RAIN", "b"), task(2, "Will it snow?", "a")]
    assert split_trajectories(tasks, by="text").group.tolist() == [0, 0, 1]
    assert split_trajectories(tasks, by="calls").group.tolist() == [0, 0, 0]  # 0 and 2 have the same calls
    assert split_trajectories(tasks, by="id").group.tolist() == [0, 1, 2]


def test_order_of_calls_makes_another_sequence() -> None:
    tasks = [task(0, "x", "ab"), task(1, "y", "ba"), task(2, "z", "ab")]
    assert split_trajectories(tasks, by="calls").group.tolist() == [0, 1, 0]


def test_texts_without_a_word_are_not_one_query() -> None:
    tasks = [task(0, "???", "a"), task(1, "!!!", "b")]
    assert split_trajectories(tasks, by="text").group.tolist() == [0, 1]


def test_by_id_is_the_authors_recipe() -> None:
    tasks = drawn(207, seed=3, texts=60)
    expected: list[int] = []
    for low, high in ((1, 3), (4, 6), (7, 99)):
        rows = [row for row, t in enumerate(tasks) if low <= len(t.calls) <= high]
        random.Random(42).shuffle(rows)
        expected += rows[: int(0.2 * len(rows))]
    assert split_trajectories(tasks, by="id").test.tolist() == sorted(expected)


@pytest.mark.parametrize("by", ["text", "calls"])
def test_strata_keep_their_share(by: By) -> None:
    tasks = drawn(3000, seed=5, texts=1200)
    if by == "calls":  # sequences of few tools would connect nearly all
        tasks = drawn(3000, seed=5, texts=1200, tools="".join(map(chr, range(0x4E00, 0x4E00 + 2000))))
    split = split_trajectories(tasks, by=by)

    def bucket(row: int) -> int:
        return (len(tasks[row].calls) - 1) // 3

    all_rows = Counter(map(bucket, range(len(tasks))))
    tested = Counter(map(bucket, split.test.tolist()))
    for name, size in all_rows.items():
        assert abs(tested[name] - int(0.2 * size)) <= 2


def test_a_component_above_the_test_size_is_trained_on() -> None:
    tasks = [task(row, "the same", "a") for row in range(8)] + [task(8, "one", "b"), task(9, "two", "c")]
    split = split_trajectories(tasks, by="text")
    assert split.test.tolist() == [8, 9]


def test_seen_pairs_by_hand() -> None:
    tasks = [task(0, "p", "abc"), task(1, "q", "abba"), task(2, "r", "cb")]
    split = split_trajectories(tasks, by="id")
    made = type(split)(train=np.array([0]), test=np.array([1, 2]), group=split.group)
    # Pairs of row 1: ab (seen), ba (not); bb is no pair. Of row 2: cb (not; training shows bc).
    pairs = seen_pairs(tasks, made)
    assert (pairs.seen, pairs.pairs) == (1, 3)
    assert pairs.share == pytest.approx(1 / 3)
    none = seen_pairs(tasks, type(split)(train=np.array([1]), test=np.array([], np.int64), group=split.group))
    assert math.isnan(none.share)


def test_bad_arguments_are_named() -> None:
    tasks = [task(0, "p", "abc")]
    with pytest.raises(ValueError, match="text, calls, id"):
        split_trajectories(tasks, by="words")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="test_share=1"):
        split_trajectories(tasks, test_share=1.0)
    with pytest.raises(ValueError, match="of 3 calls"):
        split_trajectories(tasks, buckets=((1, 2),))
    with pytest.raises(ValueError, match="no trajectory"):
        split_trajectories([])


@given(
    rows=st.lists(st.tuples(st.integers(0, 6), st.text("abc", min_size=1, max_size=8)), min_size=1, max_size=40),
    by=st.sampled_from(WAYS),
    seed=st.integers(0, 5),
)
def test_no_component_is_on_both_sides(rows: list[tuple[int, str]], by: By, seed: int) -> None:
    tasks = [task(i, f"query {text}", calls) for i, (text, calls) in enumerate(rows)]
    split = split_trajectories(tasks, by=by, seed=seed)
    assert sorted([*split.train.tolist(), *split.test.tolist()]) == list(range(len(tasks)))
    assert not set(split.group[split.train].tolist()) & set(split.group[split.test].tolist())
    if by != "id":
        texts = {tasks[r].text for r in split.train} & {tasks[r].text for r in split.test}
        assert not texts
    if by == "calls":
        assert not {tasks[r].calls for r in split.train} & {tasks[r].calls for r in split.test}
    again = split_trajectories(tasks, by=by, seed=seed)
    assert np.array_equal(again.test, split.test)

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolshift.models.skillgraph.sequences import Sequences, concatenated, sequences_of

CALLS = st.lists(st.lists(st.integers(0, 4), max_size=6), max_size=8)


@given(CALLS)
def test_packing_keeps_every_call_in_order(calls: list[list[int]]) -> None:
    packed = sequences_of(calls, n_tools=5)
    assert [row.tolist() for row in packed] == calls
    assert packed.lengths.tolist() == [len(c) for c in calls]
    assert list(zip(packed.owner.tolist(), packed.place.tolist(), strict=True)) == [
        (i, j) for i, row in enumerate(calls) for j in range(len(row))
    ]


@given(CALLS)
def test_deduplicated_keeps_first_calls(calls: list[list[int]]) -> None:
    packed = sequences_of(calls, n_tools=5)
    assert [row.tolist() for row in packed.deduplicated()] == [list(dict.fromkeys(c)) for c in calls]


@given(CALLS.filter(bool), st.data())
def test_take_reads_rows_in_the_order_asked(calls: list[list[int]], data: st.DataObject) -> None:
    packed = sequences_of(calls, n_tools=5)
    rows = data.draw(st.lists(st.integers(0, len(calls) - 1), max_size=6))
    assert [row.tolist() for row in packed.take(rows)] == [calls[i] for i in rows]
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=len(calls), max_size=len(calls))))
    assert [row.tolist() for row in packed.take(mask)] == [c for c, keep in zip(calls, mask, strict=True) if keep]


@given(CALLS, CALLS)
def test_concatenated_is_one_after_the_other(first: list[list[int]], second: list[list[int]]) -> None:
    joined = concatenated(sequences_of(first, n_tools=5), sequences_of(second, n_tools=5))
    assert [row.tolist() for row in joined] == first + second


def test_padded() -> None:
    packed = sequences_of([[3, 1], [], [2, 2, 0]], n_tools=4)
    assert packed.padded().tolist() == [[3, 1, -1], [-1, -1, -1], [2, 2, 0]]
    assert sequences_of([], n_tools=4).padded().shape == (0, 0)


def test_a_tool_outside_the_library_is_named_by_trajectory_and_call() -> None:
    with pytest.raises(ValueError, match="trajectory 2, call 2: tool row 7 is outside the library of 5 tools"):
        sequences_of([[0], [], [1, 7]], n_tools=5)
    with pytest.raises(ValueError, match="tool row -1"):
        sequences_of([[-1]], n_tools=5)


def test_bad_offsets_masks_and_libraries_are_refused() -> None:
    items = np.array([0, 1], dtype=np.int64)
    with pytest.raises(ValueError, match="from 0 to the 2 items"):
        Sequences(offsets=np.array([0, 1]), items=items, n_tools=2)
    with pytest.raises(ValueError, match="must not decrease"):
        Sequences(offsets=np.array([0, 2, 1, 2]), items=items, n_tools=2)
    packed = sequences_of([[0], [1]], n_tools=2)
    with pytest.raises(ValueError, match="mask must be"):
        packed.take(np.array([True]))
    with pytest.raises(ValueError, match="cannot be joined"):
        concatenated(packed, sequences_of([], n_tools=3))

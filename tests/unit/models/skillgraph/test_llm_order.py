"""What the language model is shown and how its answer is read; the rows against a server are in tests/unit/llm."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolshift.models.skillgraph.llm_order import (
    Shots,
    ToolTexts,
    example_text,
    nearest_examples,
    prompt,
    read_order,
    unique_names,
)
from toolshift.models.skillgraph.sequences import sequences_of

TOOLS = ToolTexts(names=("get rain", "send mail", "get rain", "find flat"), descriptions=("a b c d", "m", "", "f  g"))


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        ("b -> a -> c", [1, 0, 2]),
        ("Order: b->a->c", [1, 0, 2]),
        ("First a.\n\n`B` -> **a** -> 'c'.\n", [1, 0, 2]),
        ("1. b -> 2. a -> 3. c", [1, 0, 2]),
        ("b \u2192 a \u2192 c", [1, 0, 2]),
        ("a -> b\nb -> a -> c", [1, 0, 2]),
        ("a -> b -> c\nno: c -> b -> a", [2, 1, 0]),
        ("a, b, c", "no_arrow"),
        ("", "no_arrow"),
        ("a -> b -> d", "unknown_tool"),
        ("a -> b -> ", "unknown_tool"),
        ("a -> b -> a -> c", "repeated_tool"),
        ("c -> a", "missing_tool"),
    ],
)
def test_answers(answer: str, found: Any) -> None:
    assert read_order(answer, ["a", "b", "c"]) == found


@given(
    names=st.lists(
        st.sampled_from(["get rain", "Get Rain", "x: y", "v2.0", "(a)", "b*", "1. c", "7"]), min_size=2, max_size=6
    ),
    data=st.data(),
)
def test_a_faithful_answer_is_read_back(names: list[str], data: st.DataObject) -> None:
    shown = unique_names(np.arange(len(names)), names)
    order = data.draw(st.permutations(range(len(names))))
    assert read_order(" -> ".join(shown[i] for i in order), shown) == list(order)


def test_names_are_told_apart() -> None:
    assert unique_names(np.array([2, 1, 0]), TOOLS.names) == ["get rain", "send mail", "get rain (2)"]


def test_the_prompt_lists_tools_by_name() -> None:
    items = np.array([2, 1, 0])
    text = prompt("will  it\nrain?", items, unique_names(items, TOOLS.names), TOOLS, words=2)
    assert text.split("\n") == [
        "Request: will it rain?", "Tools:", "- get rain", "- get rain (2): a b", "- send mail: m", "Order:",
    ]  # fmt: skip
    other = np.array([2, 0, 1])
    assert text == prompt("will it rain?", other, unique_names(other, TOOLS.names), TOOLS, words=2)


def test_examples_are_of_similar_length_and_never_the_record_itself() -> None:
    calls = sequences_of([[0, 1], [0, 1, 3], [1], [3, 1, 3, 1], [0, 1, 2, 3]], n_tools=4)
    shots = Shots(ids=("a", "b", "c", "d", "e"), queries=("qa", "qb", "qc", "qd", "qe"), sequences=calls)
    two, four = nearest_examples(np.array([2, 4]), ids=["x", "y"], shots=shots, count=2, seed=42)
    assert sorted(two) == [0, 3]  # d has two distinct tools
    assert four == [4, 1]
    own = nearest_examples(np.array([2]), ids=["a"], shots=shots, count=2, seed=42)[0]
    assert own == [3, 1]
    many = [nearest_examples(np.array([2]), ids=[f"x{i}"], shots=shots, count=1, seed=42)[0][0] for i in range(30)]
    assert set(many) == {0, 3}
    with pytest.raises(ValueError, match="5 examples asked for, 4"):
        nearest_examples(np.array([2]), ids=["x"], shots=shots, count=5, seed=42)


def test_an_example_ends_in_its_own_order() -> None:
    calls = sequences_of([[3, 1, 3, 0]], n_tools=4)
    text = example_text(Shots(ids=("a",), queries=("q",), sequences=calls), 0, tools=TOOLS, words=9)
    assert text.split("\n")[2:] == [
        "- find flat: f g", "- get rain: a b c d", "- send mail: m", "Order: find flat -> send mail -> get rain",
    ]  # fmt: skip

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolshift.data.json_schema import schema_arguments, type_word
from toolshift.data.records import Argument


def parse(schema: Any) -> tuple[tuple[Argument, ...], int, list[str]]:
    kept: list[None] = []
    dropped: list[str] = []
    arguments = schema_arguments(schema, keep=lambda: kept.append(None), drop=dropped.append)
    return arguments, len(kept), dropped


def test_properties_become_arguments_in_order() -> None:
    schema = {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": " A city. "},
            "days": {"type": ["integer", "null"]},
            "box": {"type": "object", "properties": {"inner": {"type": "string"}}},
        },
        "required": ["city", "gone"],
    }
    arguments, kept, dropped = parse(schema)
    assert [(a.name, a.raw_type, a.type, a.required, a.description) for a in arguments] == [
        ("city", "string", "string", True, "A city."),
        ("days", "integer", "number", False, ""),
        ("box", "object", "object", False, ""),
    ]
    assert (kept, dropped) == (3, [])


@pytest.mark.parametrize(
    ("schema", "kept", "dropped"),
    [
        (None, 0, []),
        ({}, 0, []),
        ({"properties": None}, 0, []),
        ([], 0, ["parameters_not_a_schema"]),
        ({"properties": ["a"]}, 0, ["parameters_not_a_schema"]),
        ({"properties": {"a": {}, "b": 1, " ": {}}}, 1, ["not_an_object", "empty_name"]),
        ({"properties": {"a": {}}, "required": True}, 1, ["required_not_a_list"]),
    ],
)
def test_other_shapes_are_reported(schema: Any, kept: int, dropped: list[str]) -> None:
    assert parse(schema)[1:] == (kept, dropped)


def test_without_required_it_is_unknown() -> None:
    assert [a.required for a in parse({"properties": {"a": {}}})[0]] == [None]
    assert [a.required for a in parse({"properties": {"a": {}}, "required": []})[0]] == [False]


@pytest.mark.parametrize(
    ("value", "word"),
    [
        ({"type": "string", "format": "date"}, "date"),
        ({"type": "string", "format": "uuid"}, "string"),
        ({"type": "number", "format": "date"}, "number"),
        ({"type": ["string", "integer", "null"]}, "string|integer"),
        ({"enum": [1]}, "enum"),
        ({"enum": "a"}, ""),
        ({"type": {"a": 1}}, ""),
    ],
)
def test_the_type_word(value: dict[str, Any], word: str) -> None:
    assert type_word(value) == word


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["type", "properties", "required", "format", ""]), inner, max_size=4)
    ),
    max_leaves=8,
)


@given(schema=JUNK)
def test_anything_gives_arguments_or_reasons(schema: Any) -> None:
    arguments, kept, dropped = parse(schema)
    assert len(arguments) == kept
    properties = schema.get("properties") if isinstance(schema, dict) else None
    faults = [reason for reason in dropped if reason != "required_not_a_list"]
    if isinstance(properties, dict):
        assert kept + len(faults) == len(properties)
    else:
        assert kept == 0

"""Schemas of arguments, what may be written under them, and the check of what was."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolshift.data.records import Argument, Endpoint
from toolshift.models.ntilc.arguments import (
    Faulty,
    Limits,
    SchemaError,
    canonical,
    endpoint_schema,
    normalised,
    problems,
    read_arguments,
    strict,
    takes_nothing,
    type_schema,
    without_nulls,
    writable,
)

LIST = {
    "type": "object",
    "properties": {"value": {"type": "int"}, "next": {"$ref": "#"}, "more": {"type": "array", "items": {"$ref": "#"}}},
    "required": ["value"],
}


def endpoint(*arguments: Argument) -> Endpoint:
    return Endpoint(endpoint_id="d/t/op", capability_id="d/t", operation="op", arguments=arguments)


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("NUMBER", {"type": "number"}),
        ("int", {"type": "integer"}),
        ("BOOLEAN", {"type": "boolean"}),
        ("DATE (YYYY-MM-DD)", {"type": "string"}),
        ("List[str]", {"type": "array", "items": {"type": "string"}}),
        ("HashMap", {"type": "object"}),
        ("enum(a, b)", {"enum": ["a", "b"]}),
        ("string|integer", {"type": ["string", "integer"]}),
        ("any", {}),
        ("", {}),
        ("frobnicator", {}),
    ],
)
def test_type_words_of_releases(word: str, expected: dict[str, object]) -> None:
    assert type_schema(word) == expected


def test_no_arguments_allow_the_empty_call_alone() -> None:
    schema = endpoint_schema(endpoint())
    assert takes_nothing(schema)
    assert read_arguments("{}", schema) == {}
    assert isinstance(read_arguments('{"a": 1}', schema), Faulty)


def test_unknown_requirement_may_be_left_out_and_the_first_of_a_name_counts() -> None:
    one = Argument(name="a", raw_type="NUMBER", type="number", required=True)
    again = Argument(name="a", raw_type="STRING", type="string")
    schema = endpoint_schema(endpoint(one, again, Argument(name="b", type="url")))
    assert schema["required"] == ["a"]
    assert problems({"a": 1}, schema) == ()
    assert problems({"a": "x"}, schema) != ()
    assert problems({"a": 1, "b": 2}, schema) != ()


def test_long_descriptions_are_cut_between_words() -> None:
    schema = endpoint_schema(endpoint(Argument(name="a", description="word " * 1000)))
    text = schema["properties"]["a"]["description"]
    assert len(text) <= 400
    assert text.endswith("word")
    raw = normalised({"properties": {"a": {"type": "string", "description": "x" * 5000}}})
    assert len(raw["properties"]["a"]["description"]) == 400


def test_recursion_is_followed_to_the_limit_and_what_fits_fits_the_original() -> None:
    schema = normalised(LIST, limits=Limits(depth=1))
    deepest = schema["properties"]["next"]
    assert "next" not in deepest["properties"]
    assert deepest["properties"]["more"]["maxItems"] == 0
    assert problems({"value": 1, "next": {"value": 2, "more": []}}, schema) == ()
    assert problems({"value": 1, "next": {"value": 2, "next": {"value": 3}}}, schema) != ()
    assert "$ref" not in canonical(schema)


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"self": {"$ref": "#"}}, "required": ["self"]},
        {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
        {"type": "string"},
        {"additionalProperties": {"$ref": "#"}, "minProperties": 1},
        ["no", "schema"],
    ],
)
def test_a_schema_that_no_finite_object_fits_is_refused(schema: object) -> None:
    with pytest.raises(SchemaError, match="parameters"):
        normalised(schema)


def test_references_that_multiply_end() -> None:
    defs = {f"n{i}": {"properties": {c: {"$ref": f"#/$defs/n{i + 1}"} for c in "abcdefgh"}} for i in range(12)}
    normalised({"properties": {"x": {"$ref": "#/$defs/n0"}}, "$defs": defs})  # 8 ** 12 parts if nothing stopped it


def test_dialects_and_broken_parts_are_understood_or_left_out() -> None:
    schema = normalised(
        {
            "type": "dict",
            "properties": {
                "a": {"type": "float", "required": True},
                "b": {"type": "str", "nullable": True, "pattern": "("},
                "c": {"$ref": "https://elsewhere.example/schema"},
                "d": "no schema",
                "e": {"enum": []},
            },
            "required": "a",
        }
    )
    assert schema["type"] == "object"
    assert schema["required"] == ["a"]
    assert schema["properties"]["b"] == {"type": ["string", "null"]}
    assert [schema["properties"][name] for name in "cde"] == [{}, {}, {}]


def test_writable_is_a_bounded_part() -> None:
    limits = Limits(string=5, items=2)
    schema = normalised(
        {
            "properties": {
                "s": {"type": "string"},
                "n": {"type": "integer", "minimum": 3},
                "l": {"type": "array", "uniqueItems": True},
                "o": {"type": "object"},
                "any": {},
                "one": {"oneOf": [{"type": "string"}, {"type": "integer"}]},
            }
        }
    )
    parts = writable(schema, limits=limits)["properties"]
    assert parts["s"] == {"type": "string", "maxLength": 5}
    assert (parts["n"]["minimum"], parts["n"]["maximum"]) == (3, 2**53 - 1)
    assert parts["l"]["maxItems"] == 2
    assert "uniqueItems" not in parts["l"]
    assert parts["o"]["additionalProperties"] is False
    assert parts["any"]["type"] == ["string", "number", "boolean"]
    assert [branch["type"] for branch in parts["one"]["anyOf"]] == ["string", "integer"]


@pytest.mark.parametrize(
    ("part", "longest"),
    [
        ({"type": "string", "format": "date"}, 64),
        ({"type": "string", "format": "email", "maxLength": 30}, 30),
        ({"type": "string", "format": "uri", "minLength": 100}, 100),
        ({"type": "string", "pattern": "^a+$"}, 5),
        ({"type": "string", "pattern": "^[a-f]{40}$"}, 11 * 40),
        ({"type": "string", "pattern": "^(x{2,}){3}$", "maxLength": 9}, 9),
    ],
)
def test_texts_of_a_form_are_bounded_and_have_the_room_they_need(part: dict[str, object], longest: int) -> None:
    narrow = writable(normalised({"properties": {"s": part}}), limits=Limits(string=5))
    assert narrow["properties"]["s"]["maxLength"] == longest


def test_ranges_beyond_safe_integers_are_closed_as_well() -> None:
    parts = {"up": {"type": "number", "minimum": 2**60}, "down": {"type": "number", "exclusiveMaximum": -(2**60)}}
    found = writable(normalised({"properties": parts}))["properties"]
    assert (found["up"]["minimum"], found["up"]["maximum"]) == (2**60, 2**61)
    assert (found["down"]["minimum"], found["down"]["exclusiveMaximum"]) == (-(2**61), -(2**60))


def test_a_name_that_is_required_without_a_word_about_it_may_hold_anything() -> None:
    schema = normalised({"type": "object", "required": ["a"]})
    assert problems({"a": [1]}, schema) == ()
    assert problems({}, schema) != ()
    assert problems({"a": 1, "b": 1}, schema) != ()


@pytest.mark.parametrize(
    ("value", "step", "fits"),
    [
        (0.3, 0.1, True),
        (19.99, 0.01, True),
        (19.995, 0.01, False),
        (10**30 + 1, 2, False),
        (1e300, 1, True),
        ("a", 3, True),
    ],
)
def test_multiples_are_counted_in_decimals(value: object, step: float, fits: bool) -> None:
    schema = normalised({"properties": {"n": {"multipleOf": step}}})
    assert (problems({"n": value}, schema) == ()) is fits


def test_all_of_is_merged() -> None:
    schema = normalised({"allOf": [{"properties": {"a": {"type": "string"}}}, {"required": ["b"]}]})
    narrow = writable(schema)
    assert narrow["required"] == ["b"]
    assert sorted(narrow["properties"]) == ["a", "b"]


def test_strict_form_writes_null_for_what_is_left_out() -> None:
    schema = normalised(
        {"properties": {"a": {"type": "string"}, "b": {"type": "integer"}, "c": {"type": ["integer", "null"]}}}
        | {"required": ["a"]}
    )
    form = strict(writable(schema))
    assert form is not None
    assert form["required"] == ["a", "b", "c"]
    assert form["properties"]["b"]["anyOf"][1] == {"type": "null"}
    assert without_nulls({"a": "x", "b": None, "c": None}, schema) == {"a": "x", "c": None}
    assert strict(writable(normalised({"properties": {"free": {"type": "object"}}}))) is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"a": "x', "cut"),
        ('{"a": 1,', "cut"),
        ("sure: {}", "not_json"),
        ('{"a": NaN}', "not_json"),
        ('{"any": 1e999}', "not_json"),
        ('{"any": "\\ud800"}', "not_json"),
        ("[1]", "not_an_object"),
        ('{"a": "x"}', "schema"),
        ('{"b": 1}', "schema"),
        ("[" * 100_000, "not_json"),
    ],
)
def test_what_is_no_call_has_a_reason(text: str, reason: str) -> None:
    schema = normalised({"properties": {"a": {"type": "integer"}, "any": {}}})
    found = read_arguments(text, schema)
    assert isinstance(found, Faulty)
    assert found.reason == reason


def test_limits_are_checked() -> None:
    with pytest.raises(SchemaError):
        Limits(depth=0)


KEYS = ["type", "properties", "items", "required", "enum", "anyOf", "allOf", "$ref", "additionalProperties", "maximum"]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=3), inner),
    max_leaves=12,
)


@given(raw=st.dictionaries(st.sampled_from(KEYS), JSON, max_size=5))
def test_any_json_is_a_schema_or_refused(raw: dict[str, object]) -> None:
    try:
        schema = normalised(raw)
    except SchemaError:
        return
    writable(schema)
    strict(writable(schema))
    assert isinstance(problems({}, schema), tuple)

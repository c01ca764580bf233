"""Every dialect on documents written here: what becomes of names, arguments, domains and odd schemas."""

from __future__ import annotations

import enum
import functools
from collections.abc import Mapping
from datetime import date
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolshift.data.errors import AdapterError
from toolshift.data.importers.dialects.callables import parsed_docstring, type_word
from toolshift.data.importers.reading import Imported, dialect_of, import_tools, known_dialects
from toolshift.data.records import Argument

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string", "description": "Where."}, "days": {"type": "integer"}},
    "required": ["city"],
}
EXAMPLES: Mapping[str, Any] = {
    "openai": {"type": "function", "function": {"name": "f", "description": "d", "parameters": SCHEMA}},
    "anthropic": {"name": "f", "description": "d", "input_schema": SCHEMA},
    "mcp": {"name": "f", "description": "d", "inputSchema": SCHEMA},
    "toolbench": {"tool_name": "f", "tool_description": "d", "api_list": [{"name": "f"}]},
    "own": {"_id": "1", "name": "f", "text": "d"},
    "openapi": {"openapi": "3.1.0", "paths": {"/f": {"get": {"operationId": "f", "summary": "d"}}}},
    "swagger": {"swagger": "2.0", "paths": {"/f": {"get": {"operationId": "f", "summary": "d"}}}},
    "callables": len,
}


def arguments(found: Imported) -> tuple[Argument, ...]:
    (endpoint,) = found.library.endpoints
    return endpoint.arguments


def of_schema(schema: object, **document: Any) -> tuple[dict[str, tuple[str, str, bool | None]], Imported]:
    """name -> (raw type, coarse type, required), of a function with these parameters."""
    found = import_tools([{"name": "f", "parameters": schema, **document}])
    return {a.name: (a.raw_type, a.type, a.required) for a in arguments(found)}, found


def test_every_dialect_has_an_example_and_is_claimed_by_no_other() -> None:
    assert set(EXAMPLES) == set(known_dialects())
    for name, value in EXAMPLES.items():
        assert [other for other, module in known_dialects().items() if module.claims(value)] == [name]


@pytest.mark.parametrize("name", sorted(set(EXAMPLES) - {"callables"}))
def test_every_dialect_gives_the_same_tool(name: str) -> None:
    found = import_tools(EXAMPLES[name])
    (capability,) = found.library.capabilities
    assert (capability.capability_id, capability.name, capability.text) == ("tools/f", "f", "f: d")
    assert [e.endpoint_id for e in found.library.endpoints] == ["tools/f/f"]
    assert (found.dialects, found.notes) == ({name: 1}, ())


@pytest.mark.parametrize("name", ["openai", "anthropic", "mcp"])
def test_functions_have_the_arguments_of_their_schema(name: str) -> None:
    assert arguments(import_tools(EXAMPLES[name])) == (
        Argument(name="city", raw_type="string", type="string", required=True, description="Where."),
        Argument(name="days", raw_type="integer", type="number", required=False),
    )


KEYS = st.sampled_from(
    ["name", "description", "parameters", "function", "input_schema", "inputSchema", "type", "_id", "title", "openapi",
     "swagger", "api_list", "tool_name", "paths"]
)  # fmt: skip
VALUES = st.sampled_from(["f", "function", "web_search_20250305", None, 3, [], {}, SCHEMA])


@given(st.dictionaries(KEYS, VALUES))
def test_at_most_one_dialect_claims_an_object_and_reading_it_never_fails(value: dict[str, Any]) -> None:
    claims = [name for name, module in known_dialects().items() if module.claims(value)]
    assert len(claims) <= 1
    assert dialect_of(value) == (claims[0] if claims else None)
    try:
        found = import_tools(value)
    except AdapterError as error:
        assert "no tools found" in str(error)
    else:
        assert found.library.capabilities


def test_wrappers_of_every_kind() -> None:
    tool = EXAMPLES["mcp"]
    for wrapped in ([tool], {"tools": [tool]}, {"jsonrpc": "2.0", "id": 1, "result": {"tools": [tool]}}, [[tool]]):
        assert len(import_tools(wrapped).library.capabilities) == 1
    assert len(import_tools({"functions": [{"name": "g"}]}).library.capabilities) == 1
    flat = {"type": "function", "name": "g", "parameters": {}, "strict": True}
    assert import_tools({"tools": [flat], "model": "m"}).dialects == {"openai": 1}


def test_a_page_that_is_not_the_last_and_an_error_of_the_server_are_told() -> None:
    page = import_tools({"result": {"tools": [EXAMPLES["mcp"]], "nextCursor": "x"}})
    assert "tools are missing" in page.notes[0]
    with pytest.raises(AdapterError, match="answer is a JSON-RPC error"):
        import_tools({"jsonrpc": "2.0", "id": 1, "error": {"code": -32601, "message": "no"}})


def test_tools_of_a_server_say_nothing_and_are_left_out() -> None:
    found = import_tools([EXAMPLES["anthropic"], {"type": "web_search_20250305", "name": "web_search"}])
    assert [c.name for c in found.library.capabilities] == ["f"]
    assert "tool of the server without a description" in found.notes[0]


# ------------------------------------------------------------------------------------------------------------ schemas


def test_schemas_without_properties() -> None:
    for schema in ({}, {"type": "object"}, {"type": "object", "additionalProperties": {"type": "string"}}, None, True):
        found, imported = of_schema(schema)
        assert (found, imported.notes) == ({}, ())


def test_types_in_every_shape() -> None:
    found, imported = of_schema(
        {
            "properties": {
                "nullable": {"type": ["string", "null"]},
                "either": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
                "several": {"oneOf": [{"type": "string"}, {"type": "array"}]},
                "levels": {"enum": ["low", "high"]},
                "three": {"const": 3},
                "when": {"type": "string", "format": "date-time"},
                "inner": {"properties": {"x": {}}},
                "all": {"allOf": [{"description": "b"}, {"type": "boolean"}]},
                "any": {},
            }
        }
    )
    assert found == {
        "nullable": ("string", "string", None),
        "either": ("integer", "number", None),
        "several": ("string|array", "string", None),
        "levels": ("string", "string", None),
        "three": ("integer", "number", None),
        "when": ("date-time", "datetime", None),
        "inner": ("object", "object", None),
        "all": ("boolean", "boolean", None),
        "any": ("", "unknown", None),
    }
    assert imported.notes == ()


def test_unions_at_the_top_keep_every_property_and_require_what_each_branch_requires() -> None:
    a = {"properties": {"id": {"type": "integer"}, "x": {}}, "required": ["id", "x"]}
    b = {"properties": {"id": {"type": "string"}, "y": {}}, "required": ["id"]}
    found, _ = of_schema({"oneOf": [a, b]})
    assert {name: needed for name, (_, _, needed) in found.items()} == {"id": True, "x": False, "y": False}
    found, _ = of_schema({"allOf": [a, b]})
    assert {name: needed for name, (_, _, needed) in found.items()} == {"id": True, "x": True, "y": False}


def test_local_references_are_followed_and_those_into_themselves_end() -> None:
    when = {"$ref": "#/$defs/a~1b", "description": "d"}
    tree = {
        "type": "object",
        "properties": {"child": {"$ref": "#"}, "when": when},
        "required": ["child"],
        "$defs": {"a/b": {"type": "string", "format": "date"}},
    }
    found, imported = of_schema(tree)
    assert found == {"child": ("object", "object", True), "when": ("date", "datetime", False)}
    assert imported.notes == ()


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("https://example.org/s.json", "remote ref"),
        ("other.yaml#/a", "remote ref"),
        ("#/$defs/a", "circular ref"),
        ("#/$defs/none", "unresolved ref"),
    ],
)
def test_references_that_lead_nowhere_cost_the_type_alone_and_are_told(reference: str, said: str) -> None:
    schema = {
        "properties": {"x": {"$ref": reference}},
        "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}},
    }
    found, imported = of_schema(schema)
    assert found == {"x": ("", "unknown", None)}
    (note,) = imported.notes
    assert said in note
    with pytest.raises(AdapterError, match=rf"\(f\): {said}"):
        import_tools([{"name": "f", "parameters": schema}], strict=True)


def test_a_union_that_contains_itself_ends() -> None:
    schema: dict[str, Any] = {"properties": {"x": {"type": "string"}}}
    schema["allOf"] = [schema]
    found, imported = of_schema(schema)
    assert found == {"x": ("string", "string", None)}
    assert "circular ref" in imported.notes[0]
    looped, _ = of_schema({"properties": {"x": {}}, "anyOf": [{"$ref": "#"}]})
    assert set(looped) == {"x"}


# ------------------------------------------------------------------------------------------------- API descriptions

PETS: Mapping[str, Any] = {
    "openapi": "3.0.3",
    "info": {"title": "Pets"},
    "paths": {
        "/pets/{id}": {
            "parameters": [{"name": "id", "in": "path", "required": True, "schema": {"type": "integer"}}],
            "get": {"operationId": "getPet", "tags": ["animals", "read"], "summary": "One pet."},
            "put": {
                "summary": "Change a pet",
                "description": "Everything about it.",
                "parameters": [
                    {"$ref": "#/components/parameters/Trace"},
                    {"name": "X-Key", "in": "header", "schema": {"type": "string"}},
                ],
                "requestBody": {"$ref": "#/components/requestBodies/Pet"},
            },
        }
    },
    "components": {
        "parameters": {"Trace": {"name": "trace", "in": "query", "schema": {"type": "boolean"}}},
        "requestBodies": {"Pet": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Pet"}}}}},
        "schemas": {
            "Pet": {
                "type": "object",
                "required": ["name"],
                "properties": {"name": {"type": "string"}, "mother": {"$ref": "#/components/schemas/Pet"}},
            }
        },
    },
}


def test_operations_of_openapi_are_endpoints_and_tags_domains() -> None:
    found = import_tools(PETS)
    assert [(c.capability_id, c.domain) for c in found.library.capabilities] == [
        ("tools/PUT /pets/{id}", "Pets"),
        ("tools/getPet", "animals"),
    ]
    put, get = found.library.endpoints
    assert (get.operation, get.method, [(a.name, a.type, a.required) for a in get.arguments]) == (
        "getPet", "GET", [("id", "number", True)],
    )  # fmt: skip
    assert put.description == "Change a pet. Everything about it."
    assert [(a.name, a.type, a.required) for a in put.arguments] == [
        ("id", "number", True),
        ("trace", "boolean", False),
        ("name", "string", True),
        ("mother", "object", False),
    ]
    assert found.notes == ("parameters: 1 left out: header or cookie (first: PUT the given tools /pets/{id})",)


def test_swagger_takes_body_and_form() -> None:
    document = {
        "swagger": "2.0",
        "paths": {
            "/a": {
                "post": {
                    "parameters": [
                        {"name": "file", "in": "formData", "type": "file", "required": True},
                        {"name": "order", "in": "body", "schema": {"$ref": "#/definitions/Order"}},
                    ]
                }
            },
            "/b": {"post": {"parameters": [{"name": "ids", "in": "body", "schema": {"type": "array"}}]}},
        },
        "definitions": {"Order": {"properties": {"item": {"type": "string"}}, "required": ["item"]}},
    }
    first, second = import_tools(document).library.endpoints
    assert [(a.name, a.raw_type, a.required) for a in first.arguments] == [
        ("file", "file", True),
        ("item", "string", True),
    ]
    assert [(a.name, a.type) for a in second.arguments] == [("ids", "list")]


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"openapi": "4.0", "paths": {}}, "openapi version is not 3"),
        ({"swagger": "1.2", "paths": {}}, "swagger version is not 2"),
        ({"openapi": "3.0.0"}, "api description without paths"),
    ],
)
def test_other_versions_are_named(document: dict[str, Any], said: str) -> None:
    with pytest.raises(AdapterError, match=said):
        import_tools(document)


# ---------------------------------------------------------------------------------------------------------- callables


class Unit(enum.Enum):
    METRIC = 1


def forecast(
    city: str,
    when: date,
    days: int = 3,
    unit: Unit | None = None,
    kind: Literal["a", "b"] = "a",
    *rest: str,
    **more: int,
) -> dict[str, Any]:
    """Forecast of the weather
    for a city.

    Args:
        city: Name of the city.
        days (int): How many days
            to look ahead.

    Returns:
        A table.
    """
    raise AssertionError("never called")


def test_a_function_is_its_docstring_and_signature() -> None:
    found = import_tools([forecast])
    (capability,) = found.library.capabilities
    assert capability.text == "forecast: Forecast of the weather for a city."
    assert [(a.name, a.raw_type, a.type, a.required, a.description) for a in arguments(found)] == [
        ("city", "string", "string", True, "Name of the city."),
        ("when", "date", "datetime", True, ""),
        ("days", "integer", "number", False, "How many days to look ahead."),
        ("unit", "enum", "string", False, ""),
        ("kind", "string", "string", False, ""),
    ]


def test_methods_partials_callable_objects_and_builtins() -> None:
    class Lights:
        """Lights of a house."""

        def off(self, room: str) -> None:
            """Turn them off."""

        def __call__(self, level: float) -> None:
            """Dim."""

    found = import_tools([Lights().off, functools.partial(forecast, city="x"), Lights(), dict.fromkeys])
    names = {c.name: c.description for c in found.library.capabilities}
    assert names["off"] == "Turn them off."
    assert names["Lights"] == "Lights of a house."
    assert set(names) == {"off", "forecast", "Lights", "fromkeys"}
    (room,) = next(e for e in found.library.endpoints if e.operation == "off").arguments
    assert (room.name, room.type) == ("room", "string")


def test_a_lambda_has_no_name_and_code_in_files_is_not_run(tmp_path: Any) -> None:
    with pytest.raises(AdapterError, match="callable without a name"):
        import_tools([lambda x: x])
    (tmp_path / "tools.py").write_text("raise SystemExit('run!')")
    with pytest.raises(AdapterError, match="code is not run; pass the functions themselves"):
        import_tools(tmp_path / "tools.py")


@pytest.mark.parametrize(
    "text",
    [
        "Do it.\n\nArgs:\n    x: The x\n        of it.\n    **y (int): The y.\n",
        "Do it.\n\n:param x: The x\n    of it.\n:param int y: The y.\n:returns: Nothing.\n",
        "Do it.\n\nParameters\n----------\nx : int\n    The x\n    of it.\ny\n    The y.\n\nReturns\n-------\nint\n",
    ],
)
def test_docstrings_in_three_styles(text: str) -> None:
    assert parsed_docstring(text) == ("Do it.", {"x": "The x of it.", "y": "The y."})


@pytest.mark.parametrize(
    ("annotation", "word"),
    [(int, "integer"), (list[str], "array"), (int | None, "integer"), (int | str, "integer|string"), (Any, ""),
     (dict[str, int], "object"), ("str | None", "str"), (Literal[1, 2], "integer"), (date, "date")],
)  # fmt: skip
def test_words_of_annotations(annotation: Any, word: str) -> None:
    assert type_word(annotation) == word

"""Arguments out of the JSON Schema of a function's ``parameters``, as OpenAI-style tool definitions hold it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from toolshift.data.records import Argument
from toolshift.data.rendering import clean
from toolshift.data.rows import BadRow, as_object, scrubbed, text_of
from toolshift.data.types import coarse_type


def schema_arguments(schema: object, *, keep: Callable[[], None], drop: Callable[[str], None]) -> tuple[Argument, ...]:
    """Arguments of ``{"properties": {name: {"type", "description", ...}}, "required": [names]}``, in its order.

    ``keep`` is called once for each property that becomes an argument, ``drop`` with a reason for each that does not
    and for a schema or a ``required`` of another shape. Without ``required`` it is unknown which are (None). Only the
    top level counts: an object argument is one argument, whatever it holds.
    """
    if schema is None:
        return ()
    try:
        properties = as_object(as_object(schema).get("properties") or {})
    except BadRow:
        drop("parameters_not_a_schema")
        return ()
    needed = _needed(as_object(schema), drop=drop)
    arguments: list[Argument] = []
    for raw_name, value in properties.items():
        name = clean(scrubbed(raw_name))
        if not name or not isinstance(value, dict):
            drop("not_an_object" if name else "empty_name")
            continue
        keep()
        arguments.append(_argument(name, value, required=None if needed is None else raw_name in needed))
    return tuple(arguments)


def _argument(name: str, value: Mapping[str, Any], *, required: bool | None) -> Argument:
    raw_type = type_word(value)
    return Argument(
        name=name,
        raw_type=raw_type,
        type=coarse_type(raw_type, name),
        required=required,
        description=text_of(value.get("description")),
    )


def type_word(value: Mapping[str, Any]) -> str:
    """The schema's type; its ``format`` where that says more (date, uri, email); alternatives joined by "|"."""
    kind = value.get("type")
    word = "|".join(text_of(k) for k in kind if text_of(k) != "null") if isinstance(kind, list) else text_of(kind)
    shape = text_of(value.get("format"))
    if word == "string" and shape and coarse_type(shape) not in ("unknown", "string"):
        return shape
    return word or ("enum" if isinstance(value.get("enum"), list) else "")


def _needed(schema: Mapping[str, Any], *, drop: Callable[[str], None]) -> frozenset[str] | None:
    values = schema.get("required")
    if values is None:
        return None
    if not isinstance(values, list):
        drop("required_not_a_list")
        return None
    return frozenset(value for value in values if isinstance(value, str))

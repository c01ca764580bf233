"""JSON Schemas as tools carry them, made flat: one object schema with plain properties, local references resolved.

Only the top level counts, as everywhere (`toolshift.data.json_schema`): of a property its type, format and description
are kept, so that a schema that contains itself ends there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import unquote

from toolshift.data.json_schema import schema_arguments
from toolshift.data.records import Argument
from toolshift.data.tally import Tally

_ALTERNATIVES = ("anyOf", "oneOf")
_WORDS = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}


class References:
    """Local references into one document. ``lost`` is told of each that leads nowhere: ``remote_ref``,
    ``circular_ref`` or ``unresolved_ref``."""

    def __init__(self, root: object, *, lost: Callable[[str], None]) -> None:
        self.root, self.lost = root, lost

    def followed(self, value: object) -> Mapping[str, Any]:
        """The object at the end of a chain of references, with what stands beside them; empty where it is lost."""
        seen: set[str] = set()
        beside: dict[str, Any] = {}
        while isinstance(value, Mapping) and isinstance(value.get("$ref"), str):
            pointer = value["$ref"]
            beside = {**{k: v for k, v in value.items() if k != "$ref"}, **beside}
            if not pointer.startswith("#") or pointer in seen:
                self.lost("circular_ref" if pointer in seen else "remote_ref")
                return beside
            seen.add(pointer)
            value = self._at(pointer)
        return {**value, **beside} if isinstance(value, Mapping) else beside

    def _at(self, pointer: str) -> object:
        found: object = self.root
        for part in pointer[1:].split("/")[1:]:
            key = unquote(part).replace("~1", "/").replace("~0", "~")
            if isinstance(found, Mapping) and key in found:
                found = found[key]
            elif isinstance(found, list) and key.isdecimal() and int(key) < len(found):
                found = found[int(key)]
            else:
                self.lost("unresolved_ref")
                return None
        return found


def arguments_of(schema: object, *, root: object, where: str, tally: Tally) -> tuple[Argument, ...]:
    """Arguments of a schema in any of the shapes that occur, in its order.

    ``allOf`` is united; of ``anyOf`` and ``oneOf`` at the top every property is kept, and only those that each
    alternative requires are required. root: the document that ``#/...`` points into.
    """

    def lost(reason: str) -> None:
        tally.drop("references", reason, where=where)

    def keep() -> None:
        tally.keep("parameters")

    def drop(reason: str) -> None:
        tally.drop("parameters", reason, where=where)

    if schema is None or isinstance(schema, bool):
        return ()
    plain: object = schema
    if isinstance(schema, Mapping):
        properties, required = _united(schema, References(root, lost=lost), above=())
        plain = {"properties": properties, "required": required}
    return schema_arguments(plain, keep=keep, drop=drop)


def property_of(value: object, references: References) -> dict[str, Any]:
    """``type``, ``format``, ``enum`` and ``description`` of a property's schema, whatever its shape."""
    schema = references.followed(value)
    kept = {key: schema[key] for key in ("type", "format", "description", "enum") if key in schema}
    parts = [p for key in (*_ALTERNATIVES, "allOf") for p in _listed(schema.get(key))]
    words = _type_words(schema) or [w for part in parts for w in _type_words(references.followed(part))]
    distinct = list(dict.fromkeys(word for word in words if word != "null"))
    if distinct:
        kept["type"] = distinct[0] if len(distinct) == 1 else distinct
    return kept


def _type_words(schema: Mapping[str, Any]) -> list[str]:
    kind = schema.get("type")
    if isinstance(kind, str | list):
        return [k for k in (kind if isinstance(kind, list) else [kind]) if isinstance(k, str)]
    values = schema.get("enum")
    if not isinstance(values, list):
        values = [schema["const"]] if "const" in schema else []
    if values:
        return list(dict.fromkeys(_WORDS.get(type(value), "null") for value in values))
    return ["object"] * ("properties" in schema) or ["array"] * ("items" in schema)


def _united(
    schema: object, references: References, *, above: tuple[int, ...]
) -> tuple[dict[str, Any], list[str] | Any]:
    """(properties, required) of an object schema; ``required`` as it stands where it is no list, None where unsaid."""
    if isinstance(schema, Mapping) and id(schema) in above:
        references.lost("circular_ref")
        return {}, None
    inner = (*above, id(schema))
    whole = references.followed(schema)
    own = whole.get("properties")
    raw = own if isinstance(own, Mapping) else {}
    properties = {  # what is no schema stays as it is, to be counted
        name: property_of(value, references) if isinstance(value, Mapping | bool) else value
        for name, value in raw.items()
    }
    required = whole.get("required")
    if required is not None and not isinstance(required, list):
        return properties, required
    needed = [*(required or ()), *(n for n, v in raw.items() if isinstance(v, Mapping) and v.get("required") is True)]
    said = required is not None or bool(needed)
    for part in _listed(whole.get("allOf")):
        more, also = _united(part, references, above=inner)
        properties = {**more, **properties}
        needed, said = [*needed, *(also if isinstance(also, list) else ())], said or isinstance(also, list)
    for key in _ALTERNATIVES:
        found = [_united(part, references, above=inner) for part in _listed(whole.get(key))]
        for more, _ in found:
            properties = {**more, **properties}
        lists = [also if isinstance(also, list) else [] for _, also in found]
        in_all = [name for name in (lists[0] if lists else ()) if all(name in also for also in lists)]
        needed, said = [*needed, *in_all], said or any(isinstance(also, list) for _, also in found)
    return properties, needed if said else None


def _listed(value: object) -> list[Any]:
    return value if isinstance(value, list) else []

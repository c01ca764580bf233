"""Arguments of a call: the JSON Schema of a tool, the narrower one a decoder is held to, and the check of a call.

Three schemas of one tool. Releases write what they like; `normalised` and `endpoint_schema` make JSON Schema 2020-12
without references out of it, against which every call is validated. `writable` is a part of it with bounded sizes, so
that each text under it ends, and validates (spec/ntilc.md section 1; paper, Algorithm 1 line 6).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, Literal, TypeGuard, get_args

from toolshift.data.records import Argument, Endpoint
from toolshift.data.rendering import clean
from toolshift.data.types import coarse_type
from toolshift.models.ntilc.signature import shortened

Schema = dict[str, Any]
Fault = Literal["cut", "not_json", "not_an_object", "schema"]
FAULTS: tuple[str, ...] = get_args(Fault)
"""``cut``: the text ends too early. ``schema``: an object that breaks the schema."""

_INTEGER = re.compile(r"\b(?:int|integer|int32|int64|long|short|byte|bigint|biginteger)\b")
_INSIDE = re.compile(r"^\s*\w+\s*[\[(<{](.*)[\])>}]\s*$")
_CLOSED = re.compile(r"^\s*(?:enum|literal)\b", re.IGNORECASE)
_MANY_TYPES = re.compile(r"\||\bor\b")
_JSON_TYPES = ("string", "integer", "number", "boolean", "array", "object", "null")
# What each coarse type may hold. A date, an address or a position is text in some releases and more in none.
_OF_COARSE: dict[str, Schema] = {
    "number": {"type": "number"},
    "boolean": {"type": "boolean"},
    "datetime": {"type": "string"},
    "url": {"type": "string"},
    "email": {"type": "string"},
    "geo": {"type": ["string", "array", "object"]},
    "list": {"type": "array"},
    "object": {"type": "object"},
    "string": {"type": "string"},
    "unknown": {},
}
_WHOLE = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")
_NUMBERS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_BRANCHES = ("anyOf", "oneOf", "allOf")
_FORMATS = frozenset(("date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri"))
# Integers that every JSON reader keeps (RFC 8259 section 6).
_SAFE = 2**53 - 1
_HUGE = 1e308
# Texts of a format are this long at least where that is possible; an address, an id or a date needs it.
_FORMAT_LENGTH = 64
# How often something in a pattern is repeated at least, and the most characters that are believed to be needed.
_REPEATED = re.compile(r"\{(\d+)")
_PATTERN_LENGTH = 10_000
# A name of an argument that the schema does not name.
_OPEN_NAME = "^[A-Za-z_][A-Za-z0-9_]{0,39}$"
# References that multiply (each of ten parts has ten parts) are stopped here.
_MOST_NODES = 5_000


class SchemaError(ValueError):
    """No call can satisfy the schema of a tool, or it is none; the message says where."""

    user_facing = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """depth: how often one reference may stand inside itself. description: characters kept of one description.
    string, items: characters of a text and elements of a list that a decoder may write; more where the schema needs it.
    """

    depth: int = 3
    description: int = 400
    string: int = 2_000
    items: int = 20

    def __post_init__(self) -> None:
        if min(self.depth, self.description, self.string, self.items) < 1:
            raise SchemaError(f"limits must be at least 1, got {self}")


DEFAULT_LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class Faulty:
    """A text that is no call. detail: what is wrong, without the text."""

    reason: Fault
    detail: str


# ------------------------------------------------------------------------------------------------ schemas of endpoints


def endpoint_schema(endpoint: Endpoint, *, limits: Limits = DEFAULT_LIMITS) -> Schema:
    """The schema of an endpoint's arguments, from the words of its release; without arguments only ``{}`` fits.

    Of a repeated name the first argument counts. An argument of which the release does not say whether it is required
    may be left out. A type that is unknown allows every value.

    >>> city = Argument(name="city", raw_type="STRING", type="string", required=True)
    >>> endpoint_schema(Endpoint(endpoint_id="d/w/now", capability_id="d/w", operation="now", arguments=(city,)))
    {'type': 'object', 'properties': {'city': {'type': 'string'}}, 'required': ['city'], 'additionalProperties': False}
    """
    properties: dict[str, Any] = {}
    for argument in endpoint.arguments:
        properties.setdefault(argument.name, argument_schema(argument, limits=limits))
    required = list(dict.fromkeys(a.name for a in endpoint.required_arguments))
    schema: Schema = {"type": "object", "properties": properties}
    return schema | ({"required": required} if required else {}) | {"additionalProperties": False}


def argument_schema(argument: Argument, *, limits: Limits = DEFAULT_LIMITS) -> Schema:
    """The schema of one argument."""
    schema = type_schema(argument.raw_type) or dict(_OF_COARSE[argument.type])
    text = shortened(argument.description, limit=limits.description)
    return schema | ({"description": text} if text else {})


def type_schema(word: str) -> Schema:
    """The schema behind a type word of a release ("NUMBER", "list(str)", "enum(a, b)"); empty where it says nothing.

    >>> type_schema("List[int]"), type_schema("enum('km', 'mi')")
    ({'type': 'array', 'items': {'type': 'integer'}}, {'enum': ['km', 'mi']})
    """
    word = clean(word)
    inside = match.group(1) if (match := _INSIDE.match(word)) else ""
    if inside and _CLOSED.match(word):
        return {"enum": list(dict.fromkeys(part.strip(" '\"") for part in re.split(r"[,|]", inside)))}
    if not inside and _MANY_TYPES.search(word):
        parts = [type_schema(part) for part in _MANY_TYPES.split(word)]
        names = [name for part in parts for name in _names(part.get("type"))]
        names = list(dict.fromkeys(names)) if all("type" in part for part in parts) else []
        return {"type": names[0] if len(names) == 1 else names} if names else {}
    coarse = coarse_type(word)
    schema = dict(_OF_COARSE[coarse])
    if coarse == "number" and _INTEGER.search(word.lower()):
        return {"type": "integer"}
    if coarse == "list" and inside and "," not in inside and (items := type_schema(inside)):
        schema["items"] = items
    return schema


def _names(kind: object) -> tuple[str, ...]:
    return tuple(str(k) for k in kind) if isinstance(kind, list) else (str(kind),) if kind else ()


# ---------------------------------------------------------------------------------------------------- raw JSON Schemas


def normalised(schema: object, *, limits: Limits = DEFAULT_LIMITS) -> Schema:
    """JSON Schema 2020-12 without references out of the ``parameters`` of a tool definition, in whatever dialect.

    Type words of releases are understood ("dict", "float", "any"), ``nullable`` and ``required: true`` of a property
    too; what is malformed is left out, as if it had not been said. A local reference is put in place. One that contains
    itself is followed ``limits.depth`` times; deeper, what needs it is impossible, and left out where it may be: so
    every call that fits the result fits the original. A reference to another document allows every value. At the top,
    unnamed arguments are refused unless the schema allows them.

    Raises:
        SchemaError: if it is no schema of an object, or no finite call fits.
    """
    if schema is None:
        schema = {}
    if not isinstance(schema, Mapping):
        raise SchemaError(f"parameters: expected a JSON Schema of an object, got {type(schema).__name__}")
    found = _Normaliser(root=schema, limits=limits).node(schema, path=())
    if found is None:
        raise SchemaError("parameters: no finite call fits, since a required part contains itself or nothing fits it")
    if not _names(found.get("type")) and not any(key in found for key in ("enum", "const", *_BRANCHES)):
        found = {"type": "object"} | found
    elif "type" in found and "object" not in _names(found["type"]):
        raise SchemaError(f"parameters: expected type object, got {found['type']!r}")
    if _names(found.get("type")) == ("object",):
        named: Any = found.setdefault("properties", {})
        if not any(key in found for key in _BRANCHES) and "additionalProperties" not in found:
            # A name that is required without a word about it may hold anything; the others are refused.
            found["properties"] = {**named, **{name: {} for name in found.get("required", ()) if name not in named}}
            found["additionalProperties"] = False
    return found


@dataclass(slots=True)
class _Normaliser:
    """One pass over a schema. None stands for a schema that nothing fits. ``path``: references we are inside of."""

    root: Mapping[str, Any]
    limits: Limits
    nodes: int = 0

    def node(self, value: object, *, path: tuple[str, ...]) -> Schema | None:
        self.nodes += 1
        if value is False or self.nodes > _MOST_NODES:
            return None
        if not isinstance(value, Mapping):
            return {}
        reference = value.get("$ref")
        if isinstance(reference, str):
            return self._reference(reference, value, path=path)
        result = self._type(value) | _bounds(value)
        text = value.get("description")
        if isinstance(text, str) and clean(text):
            result["description"] = shortened(text, limit=self.limits.description)
        for part in (self._branches, self._object, self._array):
            found = part(value, path=path)
            if found is None:
                return None
            result |= found
        return result

    def _reference(self, reference: str, value: Mapping[str, Any], *, path: tuple[str, ...]) -> Schema | None:
        if path.count(reference) >= self.limits.depth:
            return None
        target = _pointed(self.root, reference)
        if target is False:
            return None
        beside = {key: item for key, item in value.items() if key != "$ref"}
        return self.node({**(target if isinstance(target, Mapping) else {}), **beside}, path=(*path, reference))

    @staticmethod
    def _type(value: Mapping[str, Any]) -> Schema:
        kind = value.get("type")
        words = [k for k in (kind if isinstance(kind, list | tuple) else [kind]) if isinstance(k, str)]
        result: Schema = {}
        found = [{"type": w} if w in _JSON_TYPES else type_schema(w) for w in words]
        names = list(dict.fromkeys(name for part in found for name in _names(part.get("type"))))
        if names and all("type" in part for part in found):
            names += ["null"] * (value.get("nullable") is True and "null" not in names)
            result["type"] = names[0] if len(names) == 1 else names
        if len(found) == 1:
            result |= {key: item for key, item in found[0].items() if key != "type"}
        if _is_list(value.get("enum")) and value["enum"]:
            result["enum"] = [*value["enum"], *([None] if value.get("nullable") is True else [])]
        if "const" in value:
            result["const"] = value["const"]
        return result

    def _branches(self, value: Mapping[str, Any], *, path: tuple[str, ...]) -> Schema | None:
        result: Schema = {}
        for key in _BRANCHES:
            if not _is_list(value.get(key)) or not value[key]:
                continue
            found = [self.node(branch, path=path) for branch in value[key]]
            kept = [branch for branch in found if branch is not None]
            if not kept or (key == "allOf" and len(kept) < len(found)):
                return None
            result[key] = kept
        return result

    def _object(self, value: Mapping[str, Any], *, path: tuple[str, ...]) -> Schema | None:
        given, needed = value.get("properties"), value.get("required")
        required = [n for n in (needed if isinstance(needed, list | tuple) else ()) if isinstance(n, str)]
        result: Schema = {}
        if isinstance(given, Mapping):
            required += [n for n, v in given.items() if isinstance(v, Mapping) and v.get("required") is True]
            found = {str(name): self.node(part, path=path) for name, part in given.items()}
            if any(found.get(name, {}) is None for name in required):
                return None
            result["properties"] = {name: part for name, part in found.items() if part is not None}
            if len(result["properties"]) < len(found):
                # What was left out must stay out, not come back as an unnamed argument.
                result["additionalProperties"] = False
        if required:
            result["required"] = list(dict.fromkeys(required))
        more = value.get("additionalProperties")
        if isinstance(more, bool | Mapping) and "additionalProperties" not in result:
            part = self.node(more, path=path) if more is not True else {}
            result["additionalProperties"] = False if part is None else part or True
        closed = result.get("additionalProperties") is False
        if closed and _at_least_0(value.get("minProperties")) > len(result.get("properties", {})):
            return None
        return result

    def _array(self, value: Mapping[str, Any], *, path: tuple[str, ...]) -> Schema | None:
        items, first = value.get("items"), value.get("prefixItems")
        if _is_list(items):  # a tuple, as drafts before 2020-12 wrote it
            items, first = value.get("additionalItems"), items
        result: Schema = {}
        least, most = _at_least_0(value.get("minItems")), None
        if _is_list(first) and first:
            kept: list[Schema] = []
            for part in (self.node(part, path=path) for part in first):
                if part is None:
                    most = len(kept)
                    break
                kept.append(part)
            result |= {"prefixItems": kept} if kept else {}
        if isinstance(items, bool | Mapping) and most is None:
            part = self.node(items, path=path) if items is not True else {}
            if part is None:
                most = len(result.get("prefixItems", ()))
            elif part:
                result["items"] = part
        if most is not None:
            if most < least:
                return None
            result["maxItems"] = min(most, _at_least_0(value.get("maxItems"), default=most))
        return result


def _bounds(value: Mapping[str, Any]) -> Schema:
    """Sizes, ranges, patterns and formats that are well-formed."""
    result: Schema = {key: value[key] for key in _WHOLE if _is_number(value.get(key)) and value[key] >= 0}
    result |= {key: value[key] for key in _NUMBERS if _is_number(value.get(key))}
    if result.get("multipleOf", 1) <= 0:
        del result["multipleOf"]
    pattern = value.get("pattern")
    if isinstance(pattern, str) and _compiles(pattern):
        result["pattern"] = pattern
    if isinstance(value.get("format"), str):
        result["format"] = value["format"]
    return result | ({"uniqueItems": True} if value.get("uniqueItems") is True else {})


def _pointed(root: Mapping[str, Any], reference: str) -> object:
    """What a local reference points to; an empty schema where it points nowhere or elsewhere."""
    if not reference.startswith("#"):
        return {}
    found: Any = root
    for part in reference[1:].split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(found, Mapping) and key in found:
            found = found[key]
        elif isinstance(found, list) and key.isdigit() and int(key) < len(found):
            found = found[int(key)]
        else:
            return {}
    return found


def _compiles(pattern: str) -> bool:
    try:
        re.compile(pattern)
    except re.error:
        return False
    return True


def _is_list(value: object) -> bool:
    return isinstance(value, list | tuple)


def _is_number(value: object) -> TypeGuard[int | float]:
    """Whether it is a number that JSON knows."""
    return isinstance(value, int | float) and not isinstance(value, bool) and -_HUGE < value < _HUGE


def _at_least_0(value: object, *, default: int = 0) -> int:
    return max(int(value), 0) if _is_number(value) else default


# ------------------------------------------------------------------------------------------------- what is written


def takes_nothing(schema: Schema) -> bool:
    """Whether ``{}`` is the only call."""
    return schema.get("additionalProperties") is False and not schema.get("properties")


def writable(schema: Schema, *, limits: Limits = DEFAULT_LIMITS) -> Schema:
    """The part of a normalised schema that a decoder is held to: texts, lists and numbers bounded, objects closed.

    Where any value is allowed a single one is written (text, number, true or false). `problems` checks the calls
    against the whole schema; what no decoder can be held to (``uniqueItems``, an unknown ``format``, that only one of
    ``oneOf`` fits) shows there.
    """
    if "allOf" in schema:
        parts = [{k: v for k, v in schema.items() if k != "allOf"}, *schema["allOf"]]
        return writable(_merged(parts), limits=limits)
    result: Schema = {key: schema[key] for key in ("enum", "const", "description") if key in schema}
    if "enum" in result or "const" in result:
        return result | ({"type": schema["type"]} if "type" in schema else {})
    for key in ("anyOf", "oneOf"):
        if key in schema:
            own = {k: v for k, v in schema.items() if k not in ("anyOf", "oneOf", "description")}
            branches = [writable(_merged([own, branch]), limits=limits) for branch in schema[key]]
            return result | {"anyOf": branches}
    kinds = _names(schema.get("type")) or _implied(schema)
    result["type"] = kinds[0] if len(kinds) == 1 else list(kinds)
    for kind, write in _WRITERS.items():
        if kind in kinds:
            result |= write(schema, limits)
    return result


def _implied(schema: Schema) -> tuple[str, ...]:
    """Types that a schema without one speaks of."""
    if any(key in schema for key in ("properties", "additionalProperties", "required")):
        return ("object",)
    if any(key in schema for key in ("items", "prefixItems", "minItems", "maxItems")):
        return ("array",)
    return ("string", "number", "boolean")


def _write_string(schema: Schema, limits: Limits) -> Schema:
    result: Schema = {key: schema[key] for key in ("minLength", "pattern") if key in schema}
    if schema.get("format") in _FORMATS:
        result["format"] = schema["format"]
    longest = max(limits.string, _at_least_0(schema.get("minLength")))
    if "format" in result:
        longest = max(longest, _FORMAT_LENGTH)
    if "pattern" in result:
        longest = max(longest, _needed(result["pattern"]))
    return result | {"maxLength": min(longest, _at_least_0(schema.get("maxLength"), default=longest))}


def _needed(pattern: str) -> int:
    """Characters within which some text matches a pattern, if any text of a sensible length does."""
    return min(len(pattern) * math.prod(int(times) or 1 for times in _REPEATED.findall(pattern)), _PATTERN_LENGTH)


def _write_number(schema: Schema, limits: Limits) -> Schema:
    """Both ends of the range are given, so that the digits before the point are bounded."""
    del limits
    result: Schema = {key: schema[key] for key in _NUMBERS if key in schema}
    low = max((result[k] for k in ("minimum", "exclusiveMinimum") if k in result), default=None)
    high = min((result[k] for k in ("maximum", "exclusiveMaximum") if k in result), default=None)
    if low is None:
        result["minimum"] = -_SAFE if high is None or high >= -_SAFE else _doubled(high)
    if high is None:
        result["maximum"] = _SAFE if low is None or low <= _SAFE else _doubled(low)
    return result


def _doubled(value: float) -> float:
    return value * 2 if abs(value) < _HUGE / 2 else value


def _write_array(schema: Schema, limits: Limits) -> Schema:
    result: Schema = {key: schema[key] for key in ("minItems",) if key in schema}
    first = [writable(part, limits=limits) for part in schema.get("prefixItems", ())]
    if first:
        result["prefixItems"] = first
    result["items"] = writable(schema.get("items", {}), limits=limits)
    most = max(limits.items, len(first), _at_least_0(schema.get("minItems")))
    return result | {"maxItems": min(most, _at_least_0(schema.get("maxItems"), default=most))}


def _write_object(schema: Schema, limits: Limits) -> Schema:
    given, more = schema.get("properties", {}), schema.get("additionalProperties", True)
    required = list(schema.get("required", ()))
    properties = {name: writable(part, limits=limits) for name, part in given.items()}
    unnamed = more if isinstance(more, dict) else {}
    # A name that is required and not described may hold anything that unnamed arguments may.
    properties |= {n: writable(unnamed, limits=limits) for n in required if n not in properties and more is not False}
    result: Schema = {"properties": properties} | ({"required": required} if required else {})
    sizes: Schema = {key: schema[key] for key in ("minProperties", "maxProperties") if key in schema}
    if properties or more is False:
        return result | {"additionalProperties": False} | sizes
    most = max(limits.items, _at_least_0(schema.get("minProperties")))
    sizes["maxProperties"] = min(most, _at_least_0(schema.get("maxProperties"), default=most))
    part = writable(unnamed, limits=limits)
    return {"patternProperties": {_OPEN_NAME: part}, "additionalProperties": False} | sizes


_WRITERS = {
    "string": _write_string,
    "integer": _write_number,
    "number": _write_number,
    "array": _write_array,
    "object": _write_object,
}


def _merged(parts: Sequence[Schema]) -> Schema:
    """One schema for all of several, as far as one can say it; a later part counts where two contradict."""
    result: Schema = {}
    for part in parts:
        for key, value in part.items():
            result[key] = _both(key, result[key], value) if key in result else value
    return result


def _both(key: str, one: Any, other: Any) -> Any:
    if key == "properties":
        shared = {name: {"allOf": [one[name], other[name]]} for name in one if name in other}
        return {**one, **other, **shared}
    if key == "required":
        return list(dict.fromkeys([*one, *other]))
    if key == "type":
        kept = [name for name in _names(other) if name in _names(one)]
        return kept[0] if len(kept) == 1 else kept or other
    if key == "enum":
        return [value for value in other if value in one] or other
    if key in ("anyOf", "allOf", "oneOf"):
        return [*one, *other] if key == "allOf" else other
    if key.startswith(("min", "exclusiveMin")):
        return max(one, other)
    return min(one, other) if key.startswith(("max", "exclusiveMax")) else other


def strict(schema: Schema) -> Schema | None:
    """A writable schema in the strict subset of OpenAI's ``json_schema`` response format, or None outside of it.

    There every property is required and every object closed: an argument that may be left out may be null instead,
    which `without_nulls` takes out again.
    """
    if "patternProperties" in schema:
        return None
    result: Schema = {key: value for key, value in schema.items() if key not in _NOT_STRICT}
    for key in ("anyOf", "prefixItems"):
        if key in schema:
            parts = [strict(part) for part in schema[key]]
            if key == "prefixItems" or None in parts:
                return None
            result[key] = parts
    if "items" in schema:
        result["items"] = strict(schema["items"])
        if result["items"] is None:
            return None
    if "properties" in schema:
        found = {name: strict(part) for name, part in schema["properties"].items()}
        if None in found.values():
            return None
        needed = set(schema.get("required", ()))
        result["properties"] = {
            name: part if name in needed else {"anyOf": [part, {"type": "null"}]} for name, part in found.items()
        }
        result["required"] = list(found)
    return result


# Sizes that no strict endpoint takes at all of its servers; the check comes after the answer.
_NOT_STRICT = ("minLength", "maxLength", "minProperties", "maxProperties", "required", "properties", "anyOf")


def without_nulls(arguments: Mapping[str, Any], schema: Schema) -> dict[str, Any]:
    """A call without the nulls that stand for optional arguments (`strict`), at every depth."""
    properties, needed = schema.get("properties", {}), schema.get("required", ())
    result: dict[str, Any] = {}
    for name, value in arguments.items():
        part = properties.get(name, {})
        says_nothing = not any(key != "description" for key in part)
        if value is None and name not in needed and (says_nothing or problems(None, part)):
            continue
        result[name] = _inner(value, part)
    return result


def _inner(value: Any, schema: Schema) -> Any:
    if isinstance(value, dict) and "properties" in schema:
        return without_nulls(value, schema)
    if isinstance(value, list) and isinstance(schema.get("items"), dict):
        return [_inner(item, schema["items"]) for item in value]
    return value


# --------------------------------------------------------------------------------------------------------- the check


def problems(value: Any, schema: Schema) -> tuple[str, ...]:
    """What about a value breaks a schema, one line each, sorted by place; empty for a valid one."""
    errors = sorted(_validator(canonical(schema)).iter_errors(value), key=lambda e: (list(map(str, e.path)), e.message))
    return tuple(f"{'.'.join(map(str, e.path)) or 'arguments'}: {shortened(e.message, limit=200)}" for e in errors)


@lru_cache(maxsize=1024)
def _validator(schema: str) -> Any:
    from jsonschema import Draft202012Validator
    from jsonschema.validators import extend

    return extend(Draft202012Validator, {"multipleOf": _multiple})(json.loads(schema))


def _multiple(validator: Any, step: float, value: Any, schema: Schema) -> Iterator[Any]:
    """``multipleOf`` on the decimals as written: 0.3 is three times 0.1, which its binary fraction is not."""
    from jsonschema import ValidationError

    del schema
    if not validator.is_type(value, "number"):
        return
    exact = isinstance(value, int) or math.isfinite(value)
    if exact and (Fraction(repr(value)) / Fraction(repr(step))).denominator != 1:
        yield ValidationError(f"{value!r} is not a multiple of {step!r}")


def read_arguments(text: str, schema: Schema, *, nulls: bool = False) -> dict[str, Any] | Faulty:
    """The arguments of a written call. nulls: null stands for an optional argument that is left out (`strict`).

    Text around the object is refused: a call is nothing but its JSON. So are numbers that JSON does not know.
    """
    try:
        found = json.loads(text, parse_constant=_no_number)
        text.encode()
    except json.JSONDecodeError as error:
        ends = error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated")
        return Faulty("cut" if ends and text.lstrip().startswith("{") else "not_json", str(error))
    except (ValueError, RecursionError) as error:
        return Faulty("not_json", shortened(str(error), limit=200))
    if not isinstance(found, dict):
        return Faulty("not_an_object", f"expected an object with the arguments, got {type(found).__name__}")
    found = without_nulls(found, schema) if nulls else found
    if not all(_is_plain(value) for value in _leaves(found)):
        return Faulty("not_json", "a number is too large, or a text holds half a character")
    wrong = problems(found, schema)
    return Faulty("schema", "; ".join(wrong[:3])) if wrong else found


def _no_number(word: str) -> float:
    raise ValueError(f"{word} is no JSON number")


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        yield from value
        for item in value.values():
            yield from _leaves(item)
    elif isinstance(value, list):
        for item in value:
            yield from _leaves(item)
    else:
        yield value


def _is_plain(value: Any) -> bool:
    if isinstance(value, float):
        return value - value == 0  # finite
    if not isinstance(value, str) or value.isascii():
        return True
    return not any("\ud800" <= character <= "\udfff" for character in value)


def canonical(value: Any) -> str:
    """JSON with sorted keys and no blanks: equal calls have equal texts."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))

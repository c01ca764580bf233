"""Strict conversion of plain containers to frozen dataclasses.

Nothing is guessed: an unknown key, a missing key or a value of another type is a problem, and all problems of a
config are reported together. YAML lists become tuples, so that settings cannot be changed after the check.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from toolshift.settings.errors import ConfigError
from toolshift.settings.nearest import suggestion

T = TypeVar("T")

_KINDS: Mapping[type, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    NoneType: "null",
}


class _Wrong(Exception):
    """A value that does not fit, inside ``_value`` only."""


def from_mapping(cls: type[T], data: object, *, where: str = "") -> T:
    """Build the dataclass ``cls`` from nested plain containers.

    Args:
        cls: a dataclass whose fields are scalars, ``Literal``, unions with None, tuples, mappings or dataclasses.
        data: a mapping with exactly the keys of ``cls``.
        where: dotted prefix of the keys in messages.

    Raises:
        ConfigError: lists every unknown key (with the nearest valid one), missing key and ill-typed value.
    """
    problems: list[str] = []
    result = _dataclass(cls, data, where, problems)
    if problems:
        raise ConfigError(problems)
    return cast("T", result)


def convert_field(cls: type, name: str, value: object, *, where: str) -> Any:
    """Convert ``value`` as the field ``name`` of the dataclass ``cls`` would be.

    Raises:
        ConfigError: if the value does not fit the field; ``where`` opens the message.
    """
    problems: list[str] = []
    result = _value(_fields(cls)[name], value, where, problems)
    if problems:
        raise ConfigError(problems)
    return result


def kind_problem(value: object, example: object) -> str | None:
    """Say why ``value`` has another type than ``example``, or None if it fits.

    A whole number fits where a number is; null in the example accepts any scalar or null, since it tells no type;
    the items of a list are compared with the example's first item.
    """
    if example is None:
        return f"expected a single value, got {_show(value)}" if _is_container(value) else None
    if isinstance(example, Mapping):
        return None if isinstance(value, Mapping) else f"expected a mapping, got {_show(value)}"
    if isinstance(example, (list, tuple)):
        return _list_problem(value, cast("Sequence[object]", example))
    wanted = type(example)
    fits = isinstance(value, (int, float)) if wanted is float else isinstance(value, wanted)
    if isinstance(value, bool) and wanted is not bool:
        fits = False
    return None if fits else f"expected {_KINDS.get(wanted, wanted.__name__)}, got {_show(value)}"


def freeze(value: object) -> Any:
    """Lists to tuples and mappings to plain dicts, recursively; scalars as they are."""
    if isinstance(value, Mapping):
        return {str(key): freeze(item) for key, item in cast("Mapping[object, object]", value).items()}
    if isinstance(value, (list, tuple)):
        return tuple(freeze(item) for item in cast("Sequence[object]", value))
    return value


def _list_problem(value: object, example: Sequence[object]) -> str | None:
    if not isinstance(value, (list, tuple)):
        return f"expected a list, got {_show(value)}"
    if not example:
        return None
    problems = (kind_problem(item, example[0]) for item in cast("Sequence[object]", value))
    return next((f"in the list: {problem}" for problem in problems if problem), None)


@cache
def _fields(cls: type) -> Mapping[str, Any]:
    hints = get_type_hints(cls)
    return {field.name: hints[field.name] for field in dataclasses.fields(cls)}


def _join(where: str, key: str) -> str:
    return f"{where}.{key}" if where else key


def _is_container(value: object) -> bool:
    return isinstance(value, (Mapping, list, tuple))


def _show(value: object) -> str:
    if isinstance(value, Mapping):
        return "a mapping"
    return repr(list(cast("Sequence[object]", value)) if isinstance(value, tuple) else value)


def _dataclass(cls: type, data: object, where: str, problems: list[str]) -> object:
    if not isinstance(data, Mapping):
        problems.append(f"{where or 'the config'}: expected a mapping, got {_show(data)}")
        return None
    given = cast("Mapping[str, object]", data)
    fields = _fields(cls)
    before = len(problems)
    for key in sorted(set(map(str, given)) - set(fields)):
        problems.append(f"{_join(where, key)}: no such key{suggestion(key, fields)}")
    for key in sorted(set(fields) - set(given)):
        problems.append(f"{_join(where, key)}: this key is missing")
    values = {
        key: _value(hint, given[key], _join(where, key), problems) for key, hint in fields.items() if key in given
    }
    return cls(**values) if len(problems) == before else None


def _value(hint: Any, value: object, where: str, problems: list[str]) -> Any:
    """Convert one value; a problem is recorded and gives None."""
    if dataclasses.is_dataclass(hint):
        return _dataclass(cast("type", hint), value, where, problems)
    origin = get_origin(hint)
    if origin in (tuple, dict) or (isinstance(origin, type) and issubclass(origin, Mapping)):
        convert = _tuple if origin is tuple else _mapping
        return convert(hint, value, where, problems)
    try:
        return _scalar(hint, value)
    except _Wrong as problem:
        problems.append(f"{where}: {problem}")
        return None


def _tuple(hint: Any, value: object, where: str, problems: list[str]) -> tuple[Any, ...] | None:
    if not isinstance(value, (list, tuple)):
        problems.append(f"{where}: expected a list, got {_show(value)}")
        return None
    item_hint = get_args(hint)[0]
    return tuple(
        _value(item_hint, item, f"{where}[{i}]", problems) for i, item in enumerate(cast("Sequence[object]", value))
    )


def _mapping(hint: Any, value: object, where: str, problems: list[str]) -> dict[str, Any] | None:
    if not isinstance(value, Mapping):
        problems.append(f"{where}: expected a mapping, got {_show(value)}")
        return None
    item_hint = get_args(hint)[1]
    items = cast("Mapping[object, object]", value).items()
    return {str(key): _value(item_hint, item, _join(where, str(key)), problems) for key, item in items}


def _scalar(hint: Any, value: object) -> Any:
    origin = get_origin(hint)
    if hint is Any:
        return freeze(value)
    if origin is Literal:
        return _literal(get_args(hint), value)
    if origin in (Union, UnionType):
        return _union(get_args(hint), value)
    problem = kind_problem(value, _EXAMPLES[hint]()) if hint is not NoneType else None
    if problem or (hint is NoneType and value is not None):
        raise _Wrong(problem or f"expected null, got {_show(value)}")
    return float(cast("float", value)) if hint is float else value


_EXAMPLES: Mapping[Any, Callable[[], object]] = {bool: bool, int: int, float: float, str: str}


def _literal(options: tuple[Any, ...], value: object) -> Any:
    if value in options:
        return value
    raise _Wrong(f"{_show(value)} is not an option{suggestion(str(value), map(str, options))}")


def _union(hints: tuple[Any, ...], value: object) -> Any:
    if value is None and NoneType in hints:
        return None
    others = [hint for hint in hints if hint is not NoneType]
    for hint in others:
        try:
            return _scalar(hint, value)
        except _Wrong:
            continue
    expected = " or ".join(_KINDS.get(hint, str(hint)) for hint in hints)
    raise _Wrong(f"expected {expected}, got {_show(value)}")

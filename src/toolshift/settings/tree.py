"""Settings as plain containers: for hashing, for ``config.yaml`` and for a readable difference."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from toolshift.settings.schema import Settings

ABSENT = "(absent)"


@dataclass(frozen=True, slots=True)
class Difference:
    """One key whose value differs from the default; ``str()`` is ``key: default -> value``."""

    key: str
    default: object
    value: object

    def __str__(self) -> str:
        return f"{self.key}: {_show(self.default)} -> {_show(self.value)}"


def as_mapping(settings: Any, *, without: Collection[str] = ()) -> dict[str, Any]:
    """Nested plain dicts and lists with sorted keys, ready for JSON and independent of the order of the config.

    Args:
        settings: ``Settings`` or any dataclass of this package.
        without: dotted keys to leave out, for example ``paths``, ``runtime`` and ``data.root`` for a run's hash.
    """
    plain = cast("dict[str, Any]", _plain(settings))
    for key in without:
        *parents, last = key.split(".")
        node = plain
        for parent in parents:
            node = node[parent]
        del node[last]
    return plain


def difference(settings: Settings, defaults: Settings) -> tuple[Difference, ...]:
    """Every key that differs, sorted; a model or a view that only one side has is one entry."""
    return tuple(_walk("", as_mapping(settings), as_mapping(defaults)))


def _walk(key: str, ours: object, theirs: object) -> Iterator[Difference]:
    if ours == theirs:
        return
    left, right = _children(ours), _children(theirs)
    if left is None or right is None:
        yield Difference(key, theirs, ours)
        return
    for name in sorted({*left, *right}):
        yield from _walk(f"{key}.{name}" if key else name, left.get(name, ABSENT), right.get(name, ABSENT))


def _children(node: object) -> Mapping[str, object] | None:
    return cast("Mapping[str, object]", node) if isinstance(node, dict) else None


def _plain(value: object) -> object:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field: _plain(getattr(value, field)) for field in sorted(f.name for f in dataclasses.fields(value))}
    if isinstance(value, Mapping):
        items = cast("Mapping[str, object]", value)
        return {key: _plain(items[key]) for key in sorted(items)}
    if isinstance(value, (tuple, list)):
        return [_plain(item) for item in cast("tuple[object, ...]", value)]
    return value


def _show(value: object) -> str:
    if isinstance(value, dict):
        return "(present)"
    return "null" if value is None else str(value)

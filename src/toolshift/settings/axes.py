"""Values that are printed side by side: one ``Settings`` per combination of the ``compare`` axes."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from itertools import product
from typing import Any, cast

from toolshift.settings.convert import convert_field, freeze, kind_problem
from toolshift.settings.errors import ConfigError
from toolshift.settings.nearest import suggestion
from toolshift.settings.schema import Settings

# An axis over these would compare runs that are not the same experiment, or not a run at all.
NOT_AN_AXIS = ("name", "compare", "paths", "runtime", "debug", "tracking")


def expand_axes(settings: Settings, overridden_keys: Collection[str] = ()) -> list[Settings]:
    """All combinations of the axes in ``settings.compare``, the first axis varying slowest.

    An axis the user set on the command line keeps that value alone. Every result has an empty ``compare``, so that
    a run's hash does not depend on what it is printed beside.

    Raises:
        ConfigError: if an axis names no setting or holds a value that the setting refuses.
    """
    axes = {key: values for key, values in settings.compare.items() if key not in overridden_keys}
    base = dataclasses.replace(settings, compare={})
    expanded: list[Settings] = []
    for values in product(*axes.values()):
        variant = base
        for key, value in zip(axes, values, strict=True):
            variant = with_value(variant, key, value)
        expanded.append(variant)
    return expanded


def with_value(settings: Settings, key: str, value: object) -> Settings:
    """A copy with the dotted ``key`` set to ``value``, under the same type rules as the config.

    Raises:
        ConfigError: if there is no such key or the value does not fit.
    """
    return cast("Settings", _replace(settings, key.split("."), value, key))


def _replace(node: object, path: list[str], value: object, key: str) -> object:
    head, *rest = path
    names = _names(node)
    if head not in names:
        raise ConfigError(f"{key}: no such key{suggestion(head, names)}")
    child = cast("Mapping[str, object]", node)[head] if isinstance(node, Mapping) else getattr(node, head)
    if rest:
        new = _replace(child, rest, value, key)
    elif isinstance(node, Mapping):
        problem = kind_problem(value, child)
        if problem:
            raise ConfigError(f"{key}: {problem}")
        new = freeze(value)
    else:
        new = convert_field(type(node), head, value, where=key)
    if isinstance(node, Mapping):
        return {**cast("Mapping[str, object]", node), head: new}
    return dataclasses.replace(cast("Any", node), **{head: new})


def _names(node: object) -> tuple[str, ...]:
    if isinstance(node, Mapping):
        return tuple(cast("Mapping[str, object]", node))
    if dataclasses.is_dataclass(node):
        return tuple(field.name for field in dataclasses.fields(node))
    return ()

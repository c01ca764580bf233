"""OpenAI tools: ``{"type": "function", "function": {...}}``, the flat form of the Responses API, and bare functions.

Bare functions (``name``, ``description``, ``parameters``) are also the form of many benchmarks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from toolshift.data.importers.base import ToolDoc
from toolshift.data.importers.dialects._function import function_tool
from toolshift.data.importers.dialects._marks import mark_of
from toolshift.data.tally import Tally

_BARE = frozenset(("name", "description", "parameters", "strict", "response", "returns"))


def claims(value: object) -> bool:
    """A function tool, or a function: ``name`` with ``parameters``, or with nothing but keys of a function."""
    if mark_of(value) is not None or not isinstance(value, Mapping):
        return False
    if value.get("type") == "function" or isinstance(value.get("function"), Mapping):
        return True
    return "name" in value and ("parameters" in value or set(value) <= _BARE)


def read(value: Mapping[str, Any], *, where: str, tally: Tally) -> Iterator[ToolDoc]:
    """The function."""
    function = value.get("function", value)
    if not isinstance(function, Mapping):
        tally.drop("tools", "function_not_an_object", where=where)
        return
    yield from function_tool(function, schema="parameters", where=where, tally=tally)

"""Anthropic tools: ``{"name", "description", "input_schema"}``; tools of the server have a type and no schema."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from toolshift.data.importers.base import ToolDoc
from toolshift.data.importers.dialects._function import function_tool
from toolshift.data.importers.dialects._marks import mark_of
from toolshift.data.tally import Tally

_OF_THE_SERVER = re.compile(r"[a-z_]+_\d{8}")


def claims(value: object) -> bool:
    """A tool with ``input_schema``, or one of the server: a name and a dated type."""
    return mark_of(value) == "input_schema" or is_of_the_server(value)


def read(value: Mapping[str, Any], *, where: str, tally: Tally) -> Iterator[ToolDoc]:
    """The tool; one of the server says nothing about itself and is left out."""
    if "input_schema" not in value:
        tally.drop("tools", "tool_of_the_server_without_a_description", where=where)
        return
    yield from function_tool(value, schema="input_schema", where=where, tally=tally)


def is_of_the_server(value: object) -> bool:
    """Whether a tool has nothing but a name and a dated type, such as ``web_search_20250305``."""
    if mark_of(value) is not None or not isinstance(value, Mapping):
        return False
    dated = isinstance(value.get("type"), str) and bool(_OF_THE_SERVER.fullmatch(value["type"]))
    return dated and "name" in value and not {"parameters", "function"} & set(value)

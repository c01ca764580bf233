"""Tools of the Model Context Protocol, as ``tools/list`` gives them: ``{"name", "description", "inputSchema"}``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from toolshift.data.importers.base import ToolDoc
from toolshift.data.importers.dialects._function import function_tool
from toolshift.data.importers.dialects._marks import mark_of
from toolshift.data.tally import Tally


def claims(value: object) -> bool:
    """A tool with ``inputSchema``."""
    return mark_of(value) == "inputSchema"


def read(value: Mapping[str, Any], *, where: str, tally: Tally) -> Iterator[ToolDoc]:
    """The tool; where it has no description, the title stands in for it."""
    annotations = value.get("annotations")
    title = value.get("title") or (annotations.get("title") if isinstance(annotations, Mapping) else None)
    output = value.get("outputSchema")
    properties = output.get("properties") if isinstance(output, Mapping) else None
    returns = tuple(properties) if isinstance(properties, Mapping) else ()
    row = {**value, "description": value.get("description") or title}
    yield from function_tool(row, schema="inputSchema", where=where, tally=tally, returns=returns)

"""A function with a JSON Schema of its arguments: the form that OpenAI, Anthropic and MCP spell differently."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from toolshift.data.catalog import EndpointDoc
from toolshift.data.importers.base import ToolDoc
from toolshift.data.importers.schema import arguments_of
from toolshift.data.rendering import clean
from toolshift.data.rows import BadRow, required_name, text_of
from toolshift.data.tally import Tally


def function_tool(
    row: Mapping[str, Any], *, schema: str, where: str, tally: Tally, returns: tuple[str, ...] = ()
) -> Iterator[ToolDoc]:
    """The tool of a row with ``name``, ``description`` and a schema under some key; a tool is its one operation."""
    try:
        name = clean(required_name(row, "name"))
    except BadRow as reason:
        tally.drop("tools", str(reason), where=where)
        return
    tally.keep("tools")
    description = text_of(row.get("description"))
    root = row.get(schema)
    arguments = arguments_of(root, root=root, where=f"{where} ({name})", tally=tally)
    operation = EndpointDoc(operation=name, description=description, arguments=arguments, returns=returns)
    yield ToolDoc(name=name, description=description, operations=(operation,), where=where)

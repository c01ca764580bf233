"""The tools of an agent, out of a file: ``corpus.jsonl`` (docs/own_data.md) or a list of OpenAI tool definitions.

The records of a dataset keep the top level of a schema, which is what rankers read. An agent also needs what lies
below, so that it reads the definitions themselves.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from toolshift.agents.outcomes import AgentError
from toolshift.data.json_schema import schema_arguments
from toolshift.data.lines import read_lines
from toolshift.data.names import local_name
from toolshift.data.records import Capability, Endpoint, Library
from toolshift.data.rendering import capability_text, clean, endpoint_text
from toolshift.data.rows import text_of
from toolshift.models.ntilc.arguments import DEFAULT_LIMITS, Limits, Schema, SchemaError, endpoint_schema, normalised
from toolshift.models.ntilc.signature import render_tool

_DATASET = "tools"


@dataclass(frozen=True, kw_only=True)
class Tool:
    """One callable operation. name: unique; by it a tool is called, allowed and recorded. schema: of its arguments."""

    name: str
    endpoint: Endpoint
    capability: Capability
    schema: Schema

    @property
    def text(self) -> str:
        """What an encoder reads of it."""
        return render_tool(self.endpoint, self.capability)

    @property
    def description(self) -> str:
        """Its own description, or that of what it belongs to."""
        return self.endpoint.description or self.capability.description

    @property
    def same(self) -> tuple[object, ...]:
        """Equal for two definitions of one tool."""
        return self.text, json.dumps(self.schema, sort_keys=True)


@dataclass(frozen=True)
class Toolbox:
    """Tools in the order of their file. merged: definitions that repeated one of the same name word for word.

    Raises:
        AgentError: if two tools of one name differ.
    """

    tools: tuple[Tool, ...]
    merged: int = 0

    def __post_init__(self) -> None:
        if len(self.by_name) < len(self.tools):
            seen: set[str] = set()
            twice = next(t.name for t in self.tools if t.name in seen or seen.add(t.name))
            raise AgentError(f"two different tools are called {twice!r}: rename one, since calls go by name")

    @cached_property
    def by_name(self) -> Mapping[str, Tool]:
        """Tools by name."""
        return {tool.name: tool for tool in self.tools}

    @staticmethod
    def of(tools: Iterable[Tool]) -> Toolbox:
        """Tools, each definition once."""
        kept: dict[tuple[str, object], Tool] = {}
        count = 0
        for tool in tools:
            count += 1
            kept.setdefault((tool.name, tool.same), tool)
        return Toolbox(tuple(kept.values()), merged=count - len(kept))

    @staticmethod
    def of_library(library: Library, *, limits: Limits = DEFAULT_LIMITS) -> Toolbox:
        """The endpoints of a dataset; a tool's name is its endpoint id."""
        return Toolbox(
            tuple(
                Tool(
                    name=endpoint.endpoint_id,
                    endpoint=endpoint,
                    capability=library.capabilities[library.position[endpoint.capability_id]],
                    schema=endpoint_schema(endpoint, limits=limits),
                )
                for endpoint in library.endpoints
            )
        )


def read_tools(path: Path, *, limits: Limits = DEFAULT_LIMITS) -> Toolbox:
    """The tools of a file: JSON Lines as ``corpus.jsonl``, or JSON with a list (or ``{"tools": list}``) of OpenAI tool
    definitions, with or without the outer ``{"type": "function", "function": ...}``.

    Raises:
        AgentError: if the file is missing or no such file, or a definition cannot be used; names file and place.
    """
    if not path.is_file():
        raise AgentError(f"{path}: no such file; expected tools as JSON Lines or an OpenAI tools list (docs/agents.md)")
    rows = _listed(path)
    found: list[Tool] = []
    for where, row in rows if rows is not None else _lines(path):
        try:
            found.extend(_tools_of(row, limits=limits))
        except (AgentError, SchemaError) as error:
            raise AgentError(f"{where}: {error}") from error
    return Toolbox.of(found)


def _listed(path: Path) -> list[tuple[str, object]] | None:
    """The elements of a JSON list, with their places; None for a file of JSON Lines."""
    if path.name.endswith((".jsonl", ".jsonl.gz")):
        return None
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise AgentError(f"{path}: {error}; expected JSON (or a name that ends in .jsonl for JSON Lines)") from error
    rows = content.get("tools") if isinstance(content, dict) else content
    if not isinstance(rows, list):
        raise AgentError(f'{path}: expected a list of tool definitions, or {{"tools": [...]}}')
    return [(f"{path}, tool {number}", row) for number, row in enumerate(rows, 1)]


def _lines(path: Path) -> Iterator[tuple[str, object]]:
    for line in read_lines(path):
        where = f"{path}:{line.number}"
        if line.fault:
            raise AgentError(f"{where}: {line.fault.replace('_', ' ')}; expected one tool as a JSON object")
        yield where, line.value


def _tools_of(row: object, *, limits: Limits) -> Iterator[Tool]:
    """A definition as OpenAI writes it, or a line of ``corpus.jsonl`` with one or several operations."""
    if not isinstance(row, Mapping):
        raise AgentError("expected a tool as a JSON object")
    inner = row.get("function")
    row = inner if isinstance(inner, Mapping) else row
    name = clean(text_of(row.get("name")) or text_of(row.get("title")))
    if not name:
        raise AgentError("the tool has no name")
    key = text_of(row.get("_id")) or name
    description = clean(text_of(row.get("description")) or text_of(row.get("text")))
    capability = Capability(
        capability_id=f"{_DATASET}/{key}",
        dataset=_DATASET,
        name=name,
        description=description,
        domain=clean(text_of(row.get("domain"))),
        text=capability_text(name, description),
    )
    operations = row.get("endpoints")
    if operations is None:
        yield _tool(key, operation=name, row=row, capability=capability, limits=limits)
    for operation in operations if isinstance(operations, Sequence) and not isinstance(operations, str) else ():
        own = clean(text_of(operation.get("name"))) if isinstance(operation, Mapping) else ""
        if not own:
            raise AgentError(f"an operation of {name!r} has no name")
        yield _tool(f"{key}.{local_name(own)}", operation=own, row=operation, capability=capability, limits=limits)


def _tool(name: str, *, operation: str, row: Mapping[str, Any], capability: Capability, limits: Limits) -> Tool:
    parameters = _as_schema(row["arguments"]) if row.get("arguments") is not None else row.get("parameters")
    schema = normalised(parameters, limits=limits)
    description = clean(text_of(row.get("description")))
    returns = row.get("returns")
    endpoint = Endpoint(
        endpoint_id=f"{capability.capability_id}/{local_name(operation)}",
        capability_id=capability.capability_id,
        operation=operation,
        description=description,
        method=text_of(row.get("method")).upper(),
        arguments=schema_arguments(schema, keep=lambda: None, drop=lambda _: None),
        returns=tuple(t for v in returns if (t := clean(text_of(v)))) if isinstance(returns, list) else (),
        text=endpoint_text(operation, description),
    )
    return Tool(name=name, endpoint=endpoint, capability=capability, schema=schema)


def _as_schema(arguments: object) -> dict[str, Any]:
    """The list ``[{"name", "type", "required", ...}]`` as a JSON Schema."""
    if not isinstance(arguments, list) or not all(isinstance(a, Mapping) and text_of(a.get("name")) for a in arguments):
        raise AgentError("arguments: expected a list of objects with a name each")
    properties: dict[str, Any] = {}
    for argument in arguments:
        properties.setdefault(clean(text_of(argument["name"])), {k: v for k, v in argument.items() if k != "name"})
    return {"type": "object", "properties": properties}

"""Our own ``corpus.jsonl`` (docs/own_data.md): ``_id``, ``name`` or ``title``, and the operations of a tool."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from toolshift.data.catalog import EndpointDoc
from toolshift.data.importers.base import ToolDoc
from toolshift.data.importers.dialects._marks import mark_of
from toolshift.data.importers.schema import arguments_of
from toolshift.data.records import Argument
from toolshift.data.rendering import clean
from toolshift.data.rows import text_of
from toolshift.data.tally import Tally
from toolshift.data.types import coarse_type


def claims(value: object) -> bool:
    """A tool with ``_id`` and a name."""
    return mark_of(value) == "_id" and isinstance(value, Mapping) and ("name" in value or "title" in value)


def read(value: Mapping[str, Any], *, where: str, tally: Tally) -> Iterator[ToolDoc]:
    """The tool; without ``endpoints`` it is its one operation."""
    name = clean(text_of(value.get("name")) or text_of(value.get("title")))
    if not name:
        tally.drop("tools", "missing_name_or_title", where=where)
        return
    tally.keep("tools")
    description = clean(text_of(value.get("description")) or text_of(value.get("text")))
    listed = value.get("endpoints")
    if listed is None:
        operations = (_operation(value, name, description, where=where, tally=tally),)
    else:
        operations = tuple(_operations(listed, where=where, tally=tally))
    domain = clean(text_of(value.get("domain")))
    yield ToolDoc(name=name, description=description, domain=domain, operations=operations, where=where)


def _operations(listed: object, *, where: str, tally: Tally) -> Iterator[EndpointDoc]:
    for row in listed if isinstance(listed, list) else ():
        name = clean(text_of(row.get("name"))) if isinstance(row, Mapping) else ""
        if not name:
            tally.drop("operations", "missing_name", where=where)
            continue
        tally.keep("operations")
        yield _operation(row, name, clean(text_of(row.get("description"))), where=where, tally=tally)


def _operation(row: Mapping[str, Any], name: str, description: str, *, where: str, tally: Tally) -> EndpointDoc:
    return EndpointDoc(
        operation=name,
        description=description,
        method=text_of(row.get("method")).upper(),
        arguments=_arguments(row, where=where, tally=tally),
    )


def _arguments(row: Mapping[str, Any], *, where: str, tally: Tally) -> tuple[Argument, ...]:
    values = row.get("arguments")
    if values is None:
        return arguments_of(row.get("parameters"), root=row.get("parameters"), where=where, tally=tally)
    found: list[Argument] = []
    for value in values if isinstance(values, list) else ():
        name = clean(text_of(value.get("name"))) if isinstance(value, Mapping) else ""
        if not name:
            tally.drop("parameters", "missing_name", where=where)
            continue
        tally.keep("parameters")
        raw, needed = text_of(value.get("type")), value.get("required")
        found.append(
            Argument(
                name=name,
                raw_type=raw,
                type=coarse_type(raw, name),
                required=needed if isinstance(needed, bool) else None,
                description=text_of(value.get("description")),
            )
        )
    return tuple(found)

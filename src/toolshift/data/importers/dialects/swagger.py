"""Swagger 2.0 documents; every operation is a tool (see ``_operations``)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from toolshift.data.importers.base import ToolDoc
from toolshift.data.importers.dialects._marks import mark_of
from toolshift.data.importers.dialects._operations import operations
from toolshift.data.importers.schema import References
from toolshift.data.rows import text_of
from toolshift.data.tally import Tally


def claims(value: object) -> bool:
    """A document with ``swagger``."""
    return mark_of(value) == "swagger"


def read(value: Mapping[str, Any], *, where: str, tally: Tally) -> Iterator[ToolDoc]:
    """The operations; a version other than 2 is counted and left out."""
    if not str(value["swagger"]).startswith("2"):
        tally.drop("documents", "swagger_version_is_not_2", where=where)
        return
    yield from operations(value, body=_body, where=where, tally=tally)


def _body(
    operation: Mapping[str, Any], parameters: list[Mapping[str, Any]], references: References
) -> tuple[object, str]:
    """The schema of the parameter ``in: body``."""
    del operation, references
    found = next((p for p in parameters if p.get("in") == "body"), {})
    return found.get("schema"), text_of(found.get("name")) or "body"

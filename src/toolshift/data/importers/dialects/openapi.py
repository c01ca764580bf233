"""OpenAPI 3.x documents; every operation is a tool (see ``_operations``)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from toolshift.data.importers.base import ToolDoc
from toolshift.data.importers.dialects._marks import mark_of
from toolshift.data.importers.dialects._operations import operations
from toolshift.data.importers.schema import References
from toolshift.data.tally import Tally


def claims(value: object) -> bool:
    """A document with ``openapi``."""
    return mark_of(value) == "openapi"


def read(value: Mapping[str, Any], *, where: str, tally: Tally) -> Iterator[ToolDoc]:
    """The operations; a version other than 3 is counted and left out."""
    if not str(value["openapi"]).startswith("3"):
        tally.drop("documents", "openapi_version_is_not_3", where=where)
        return
    yield from operations(value, body=_body, where=where, tally=tally)


def _body(
    operation: Mapping[str, Any], parameters: list[Mapping[str, Any]], references: References
) -> tuple[object, str]:
    """The schema of the first JSON media type, or of the first one."""
    del parameters
    content = references.followed(operation.get("requestBody")).get("content")
    if not isinstance(content, Mapping):
        return None, "body"
    media = next((m for name, m in content.items() if "json" in str(name)), next(iter(content.values()), None))
    return (media.get("schema") if isinstance(media, Mapping) else None), "body"

"""The one key that tells a dialect; where an object has several, the first of them counts."""

from __future__ import annotations

from collections.abc import Mapping

MARKS = ("openapi", "swagger", "api_list", "inputSchema", "input_schema", "_id")


def mark_of(value: object) -> str | None:
    """The mark of an object; None where it has none, empty for what is no object."""
    if not isinstance(value, Mapping):
        return ""
    return next((mark for mark in MARKS if mark in value), None)

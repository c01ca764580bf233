"""A tool file of ToolBench: ``{"tool_name", "tool_description", "api_list": [...]}``, one tool with its operations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from toolshift.data.catalog import EndpointDoc
from toolshift.data.importers.base import ToolDoc
from toolshift.data.importers.dialects._marks import mark_of
from toolshift.data.rendering import clean
from toolshift.data.rows import BadRow, as_object, named_arguments, required, required_name, text_of
from toolshift.data.tally import Tally


def claims(value: object) -> bool:
    """A tool with an ``api_list``."""
    return mark_of(value) == "api_list" and isinstance(value, Mapping) and "tool_name" in value


def read(value: Mapping[str, Any], *, where: str, tally: Tally) -> Iterator[ToolDoc]:
    """The tool with its operations."""
    try:
        name = clean(required_name(value, "tool_name"))
        listed = required(value, "api_list", list)
    except BadRow as reason:
        tally.drop("tools", str(reason), where=where)
        return
    tally.keep("tools")
    operations = tuple(doc for i, api in enumerate(listed) for doc in _operation(api, f"{where}.api_list[{i}]", tally))
    description = text_of(value.get("tool_description"))
    named = next((text_of(api.get("category_name")) for api in listed if isinstance(api, Mapping)), "")
    folder = where.rpartition("/")[0].rpartition("/")[2]  # the release lays tools in one folder per category
    domain = named or folder
    yield ToolDoc(name=name, description=description, domain=domain, operations=operations, where=where)


def _operation(value: object, where: str, tally: Tally) -> Iterator[EndpointDoc]:
    try:
        api = as_object(value)
        name = clean(required_name(api, "name"))
    except BadRow as reason:
        tally.drop("operations", str(reason), where=where)
        return
    tally.keep("operations")
    arguments = [
        argument
        for key, needed in (("required_parameters", True), ("optional_parameters", False))
        for argument in named_arguments(api.get(key), tally, required=needed, where=f"{where}.{key}")
    ]
    yield EndpointDoc(
        operation=name,
        description=clean(text_of(api.get("description"))),
        method=text_of(api.get("method")).upper(),
        arguments=tuple(arguments),
    )

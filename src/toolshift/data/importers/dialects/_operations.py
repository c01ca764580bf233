"""Operations of an API description: what OpenAPI 3 and Swagger 2 have in common.

Every operation is a tool with one endpoint, since it is the operation that an agent calls; its first tag is the domain,
or the title of the API where it has none. Arguments are those of query, path, form and body; headers and cookies belong
to the transport and are left out. References are followed inside the document only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from toolshift.data.catalog import EndpointDoc
from toolshift.data.importers.base import ToolDoc
from toolshift.data.importers.schema import References, arguments_of, property_of
from toolshift.data.json_schema import type_word
from toolshift.data.records import Argument
from toolshift.data.rendering import clean
from toolshift.data.rows import text_of
from toolshift.data.tally import Tally
from toolshift.data.types import coarse_type

METHODS = ("get", "put", "post", "delete", "options", "head", "patch", "trace")
Body = Callable[[Mapping[str, Any], "list[Mapping[str, Any]]", References], tuple[object, str]]
"""(operation, its parameters, references) -> (schema of the body, a name for it where it is no object)."""


def operations(document: Mapping[str, Any], *, body: Body, where: str, tally: Tally) -> Iterator[ToolDoc]:
    """Every operation of a document, paths in its order."""
    paths = document.get("paths")
    if not isinstance(paths, Mapping):
        tally.drop("documents", "api_description_without_paths", where=where)
        return
    info = document.get("info")
    title = clean(text_of(info.get("title"))) if isinstance(info, Mapping) else ""
    for path, value in paths.items():
        place = f"{where} {path}"
        item = _references(document, place, tally).followed(value)
        for method in (name for name in METHODS if isinstance(item.get(name), Mapping)):
            yield _tool(document, item, str(path), method, body=body, title=title, where=place, tally=tally)


def _references(document: Mapping[str, Any], where: str, tally: Tally) -> References:
    return References(document, lost=lambda reason: tally.drop("references", reason, where=where))


def _tool(
    document: Mapping[str, Any], item: Mapping[str, Any], path: str, method: str, *, body: Body, title: str,
    where: str, tally: Tally,
) -> ToolDoc:  # fmt: skip
    operation = item[method]
    place = f"{method.upper()} {where}"
    name = clean(text_of(operation.get("operationId"))) or f"{method.upper()} {path}"
    description = _description(operation)
    tags = [clean(text_of(tag)) for tag in operation.get("tags") or () if isinstance(tag, str)]
    references = _references(document, place, tally)
    parameters = _parameters(item, operation, references)
    found = [a for p in parameters if (a := _argument(p, references, where=place, tally=tally)) is not None]
    schema, called = body(operation, parameters, references)
    found += _body_arguments(schema, called, document, references, where=place, tally=tally)
    tally.keep("tools")
    doc = EndpointDoc(operation=name, description=description, method=method.upper(), arguments=tuple(found))
    return ToolDoc(name=name, description=description, domain=next(iter(tags), title), operations=(doc,), where=place)


def _description(operation: Mapping[str, Any]) -> str:
    summary, text = clean(text_of(operation.get("summary"))), clean(text_of(operation.get("description")))
    if not summary or text.startswith(summary):
        return text or summary
    return f"{summary.rstrip('.')}. {text}".strip() if text else summary


def _parameters(
    item: Mapping[str, Any], operation: Mapping[str, Any], references: References
) -> list[Mapping[str, Any]]:
    """Those of the path and of the operation, which wins for the same name and place."""
    found: dict[tuple[str, str], Mapping[str, Any]] = {}
    for owner in (item, operation):
        values = owner.get("parameters")
        for value in values if isinstance(values, list) else ():
            parameter = references.followed(value)
            if parameter:
                found[text_of(parameter.get("name")), text_of(parameter.get("in"))] = parameter
    return list(found.values())


def _argument(parameter: Mapping[str, Any], references: References, *, where: str, tally: Tally) -> Argument | None:
    name, place = clean(text_of(parameter.get("name"))), parameter.get("in")
    if place == "body":
        return None
    if place in ("header", "cookie"):
        tally.exclude("parameters", "header_or_cookie", where=where)
        return None
    if not name:
        tally.drop("parameters", "missing_name", where=where)
        return None
    tally.keep("parameters")
    content = parameter.get("content")
    media = next(iter(content.values()), None) if isinstance(content, Mapping) else None
    inner = media.get("schema") if isinstance(media, Mapping) else parameter.get("schema", parameter)
    schema = property_of(inner, references)
    raw_type = type_word(schema)
    return Argument(
        name=name,
        raw_type=raw_type,
        type=coarse_type(raw_type, name),
        required=parameter.get("required") is True,
        description=clean(text_of(parameter.get("description")) or text_of(schema.get("description"))),
    )


def _body_arguments(
    schema: object, called: str, document: Mapping[str, Any], references: References, *, where: str, tally: Tally
) -> list[Argument]:
    """Properties of the body; a body that is no object is one argument."""
    if schema is None:
        return []
    found = arguments_of(schema, root=document, where=where, tally=tally)
    if found:
        return list(found)
    raw_type = type_word(property_of(schema, references))
    if not raw_type or raw_type == "object":
        return []
    tally.keep("parameters")
    return [Argument(name=called, raw_type=raw_type, type=coarse_type(raw_type, called), required=None)]

"""Plain Python callables: the name, the docstring and the signature. They are looked at, never called."""

from __future__ import annotations

import enum
import functools
import inspect
import re
import types
import typing
from collections.abc import Callable, Iterator
from typing import Any, Literal, Union

from toolshift.data.catalog import EndpointDoc
from toolshift.data.importers.base import ToolDoc
from toolshift.data.records import Argument
from toolshift.data.rendering import clean
from toolshift.data.tally import Tally
from toolshift.data.types import coarse_type

_SECTION = re.compile(r"^(Args|Arguments|Parameters|Params|Returns?|Raises|Yields?|Examples?|Notes?):?\s*$", re.I)
_INPUTS = ("args", "arguments", "parameters", "params")
_GOOGLE = re.compile(r"^\s+\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.+)$")
_SPHINX = re.compile(r"^\s*:param\s+(?:[\w\[\], |.]+\s+)?(\w+)\s*:\s*(.*)$")
_NUMPY = re.compile(r"^(\w+)\s*(?::.*)?$")
_WORDS = {str: "string", int: "integer", float: "number", bool: "boolean", dict: "object", bytes: "binary"}
_LISTS = (list, tuple, set, frozenset)
_SKIPPED = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def claims(value: object) -> bool:
    """Anything that can be called."""
    return callable(value)


def read(value: Callable[..., Any], *, where: str, tally: Tally) -> Iterator[ToolDoc]:
    """The callable as one tool; one without a name, such as a lambda, is left out."""
    named = value.func if isinstance(value, functools.partial) else value
    name = getattr(named, "__name__", type(named).__name__)
    if name == "<lambda>":
        tally.drop("tools", "callable_without_a_name", where=where)
        return
    tally.keep("tools")
    text = _docstring(value, named)
    summary, described = parsed_docstring(text)
    arguments = tuple(_arguments(value, described, where=f"{where} ({name})", tally=tally))
    doc = EndpointDoc(operation=name, description=summary, arguments=arguments)
    yield ToolDoc(name=name, description=summary, operations=(doc,), where=where)


def parsed_docstring(text: str) -> tuple[str, dict[str, str]]:
    """(what stands before the first section, argument -> its text), for Google, Sphinx and NumPy style."""
    head: list[str] = []
    described: dict[str, str] = {}
    section, last = "", ""
    for line in text.splitlines():
        if match := _SPHINX.match(line):
            last, section = match[1], "sphinx"
            described[last] = match[2].strip()
        elif line.lstrip().startswith(":") and section in ("", "sphinx"):
            last, section = "", "sphinx"
        elif match := _SECTION.match(line):
            section, last = match[1].lower(), ""
        elif not section:
            head.append(line)
        elif section == "sphinx" or section in _INPUTS:
            last = _described(line, described, last=last)
    return clean(" ".join(head)), described


def _described(line: str, described: dict[str, str], *, last: str) -> str:
    """Add a line of a section of arguments; returns the argument that the next line may go on about."""
    if match := _GOOGLE.match(line):
        described[match[1]] = match[2].strip()
        return match[1]
    if match := _NUMPY.match(line):
        described.setdefault(match[1], "")
        return match[1]
    if last and line.strip() and not set(line.strip()) <= {"-"}:
        described[last] = clean(f"{described[last]} {line}")
    return last if line.strip() else ""


def _docstring(value: object, named: object) -> str:
    own = inspect.getdoc(named) or ""
    if own or inspect.isroutine(named) or inspect.isclass(named):
        return own
    return inspect.getdoc(type(value).__call__) or ""


def _arguments(value: Callable[..., Any], described: dict[str, str], *, where: str, tally: Tally) -> Iterator[Argument]:
    try:
        parameters = inspect.signature(value).parameters.values()
    except (ValueError, TypeError):
        tally.drop("parameters", "no_signature", where=where)
        return
    hints = _hints(value)
    for parameter in parameters:
        if parameter.kind in _SKIPPED:
            tally.exclude("parameters", "star_arguments", where=where)
            continue
        tally.keep("parameters")
        raw_type = type_word(hints.get(parameter.name, parameter.annotation))
        yield Argument(
            name=parameter.name,
            raw_type=raw_type,
            type=coarse_type(raw_type, parameter.name),
            required=parameter.default is inspect.Parameter.empty,
            description=clean(described.get(parameter.name, "")),
        )


def _hints(value: Callable[..., Any]) -> dict[str, Any]:
    """Resolved annotations; none where a name in them is unknown here, then the written words are taken."""
    inner: Any = value.func if isinstance(value, functools.partial) else value
    if inspect.isclass(inner):
        inner = inner.__init__
    elif not inspect.isroutine(inner):
        inner = type(inner).__call__
    try:
        return typing.get_type_hints(inner)
    except Exception:  # annotations are code of the user: anything may go wrong in them
        return {}


def type_word(annotation: Any) -> str:
    """The word for an annotation: ``integer`` for int, alternatives joined by "|" without None."""
    if annotation is inspect.Parameter.empty or annotation is Any:
        return ""
    if isinstance(annotation, str):
        return re.sub(r"\s*\|\s*None\b|\bNone\s*\|\s*", "", annotation).strip()
    origin = typing.get_origin(annotation)
    if origin in (Union, types.UnionType):
        words = [type_word(part) for part in typing.get_args(annotation) if part is not type(None)]
        return "|".join(dict.fromkeys(word for word in words if word))
    if origin is typing.Annotated:
        return type_word(typing.get_args(annotation)[0])
    if origin is Literal:
        return "|".join(dict.fromkeys(type_word(type(part)) for part in typing.get_args(annotation)))
    kind = origin or annotation
    if kind in _WORDS:
        return _WORDS[kind]
    if kind in _LISTS:
        return "array"
    if inspect.isclass(kind) and issubclass(kind, enum.Enum):
        return "enum"
    return getattr(kind, "__name__", str(kind))

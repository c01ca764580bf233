"""From files, folders or objects in memory to a library of tools, whatever dialects they are in.

Ids are ``tools/<name>``: the name as its owner knows it, without control characters. A second tool of the same name
that says something else becomes ``tools/<name>#2``; one that says the same is the same tool. Descriptions are data:
nothing in them is read as an instruction, and nothing is changed but control characters (and the end of a text of more
than ``LONGEST_DESCRIPTION`` characters).
"""

from __future__ import annotations

import gzip
import importlib
import json
import pkgutil
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, cast

from toolshift.data.catalog import Catalog, EndpointDoc
from toolshift.data.errors import AdapterError
from toolshift.data.files import READ_ERRORS
from toolshift.data.importers import dialects
from toolshift.data.importers.base import Dialect, ToolDoc, ToolTally
from toolshift.data.records import Library
from toolshift.data.rendering import NAME_DESCRIPTION, clean
from toolshift.data.rows import scrubbed

DATASET = "tools"
LONGEST_DESCRIPTION = 20_000
"""Characters of a description that are kept; an encoder reads far fewer."""
SUFFIXES = (".json", ".jsonl", ".yaml", ".yml")
_WRAPPERS = ("tools", "functions")
# Control characters, marks that change the direction of writing, and invisible ones that carry hidden text.
_INVISIBLE = re.compile(r"[\x00-\x08\x0e-\x1f\x7f-\x9f\u200b\u202a-\u202e\u2060-\u2069\ufeff\U000e0000-\U000e007f]")
_GUIDE = "docs/your_tools.md shows every dialect"

Source = str | Path | Mapping[str, Any] | Callable[..., Any] | Sequence[Any] | Library


@dataclass(frozen=True, kw_only=True)
class Imported:
    """A library, how many tools came from which dialect, and what was left out or changed, one line each."""

    library: Library
    dialects: Mapping[str, int]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Found:
    """A value that may be a tool, and its place."""

    value: Any
    where: str


@cache
def known_dialects() -> Mapping[str, Dialect]:
    """Name -> module, sorted by name."""
    names = sorted(info.name for info in pkgutil.iter_modules(dialects.__path__) if not info.name.startswith("_"))
    return {name: cast("Dialect", importlib.import_module(f"{dialects.__name__}.{name}")) for name in names}


def dialect_of(value: object) -> str | None:
    """The dialect of a tool or a document, by its content."""
    return next((name for name, module in known_dialects().items() if module.claims(value)), None)


def import_tools(source: Source, *, strict: bool = False) -> Imported:
    """Read tools from a file, a folder, one or several tools in memory, or a library that exists already.

    strict: the first part of a tool that cannot be used is an error, instead of being left out and noted.

    Raises:
        AdapterError: if a file cannot be read, or no tool is found; the message names the place.
    """
    if isinstance(source, Library):
        if not source.capabilities:
            raise AdapterError("the library holds no tools")
        return Imported(library=source, dialects={}, notes=())
    tally, counts = ToolTally(strict=strict), Counter[str]()
    where = str(source) if isinstance(source, str | Path) else "the given tools"
    try:
        docs = list(_tools(_found(source, tally), tally, counts))
    except RecursionError as error:
        raise AdapterError(f"{where}: nested too deeply, or an object that contains itself") from error
    if not docs:
        raise AdapterError(f"{where}: no tools found. {_why_none(tally)}{_GUIDE}")
    library, changes = _library(docs)
    return Imported(library=library, dialects=dict(sorted(counts.items())), notes=(*tally.lines(), *changes))


# ------------------------------------------------------------------------------------------------------------ sources


def _found(source: Any, tally: ToolTally) -> Iterator[_Found]:
    if isinstance(source, str | Path):
        yield from _from_path(Path(source), tally)
        return
    for item in _unwrapped(source, "the given tools"):
        if isinstance(item.value, str | Path):
            yield from _from_path(Path(item.value), tally)
        else:
            yield item


def _from_path(path: Path, tally: ToolTally) -> Iterator[_Found]:
    if path.is_dir():
        files = sorted(p for p in path.rglob("*") if p.is_file() and _is_read(p, below=path))
        if not files:
            raise AdapterError(f"{path}: the folder holds no {', '.join(SUFFIXES)} file (or .gz of one). {_GUIDE}")
        for file in files:
            place = file.relative_to(path.parent).as_posix()
            try:
                found = list(_from_file(file, where=place))
            except AdapterError as error:
                if tally.strict:
                    raise
                tally.drop("files", "cannot_be_read", where=str(error))
                continue
            yield from found
    else:
        yield from _from_file(path, where=path.name)


def _is_read(path: Path, *, below: Path) -> bool:
    """Not hidden, and of a known kind; a file called just ``.json`` (a release names some so) is not hidden."""
    hidden = any(part.startswith(".") for part in path.relative_to(below).parts if part not in SUFFIXES)
    return not hidden and _suffix(path) in SUFFIXES


def _suffix(path: Path) -> str:
    name = path.name.removesuffix(".gz").lower()
    return name if name in SUFFIXES else Path(name).suffix


def _from_file(path: Path, *, where: str) -> Iterator[_Found]:
    text = _text_of(path)
    if not text.strip():
        raise AdapterError(f"{path}: the file is empty. {_GUIDE}")
    if _suffix(path) in (".yaml", ".yml"):
        yield from _unwrapped(_yaml(text, path), where)
        return
    try:
        yield from _unwrapped(json.loads(text), where)
    except json.JSONDecodeError as error:
        rows = _json_lines(text)
        if rows is None:
            raise AdapterError(
                f"{path}: invalid JSON at line {error.lineno}, column {error.colno}: {error.msg}. Expected one JSON "
                f"document, or one JSON object per line. {_GUIDE}"
            ) from error
        for number, value in rows:
            yield from _unwrapped(value, f"{where}:{number}")


def _text_of(path: Path) -> str:
    if path.suffix == ".py":
        raise AdapterError(f"{path}: code is not run; pass the functions themselves, ranker.index([f, g]). {_GUIDE}")
    try:
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        return data.decode("utf-8-sig")
    except FileNotFoundError:
        raise AdapterError(f"{path}: no such file or folder") from None
    except UnicodeDecodeError as error:
        raise AdapterError(f"{path}: not UTF-8 ({error.reason} at byte {error.start})") from error
    except READ_ERRORS as error:
        raise AdapterError(f"{path}: cannot be read ({error})") from error


def _yaml(text: str, path: Path) -> Any:
    import yaml

    try:
        return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError as error:
        raise AdapterError(f"{path}: invalid YAML: {clean(str(error))}") from error


def _json_lines(text: str) -> list[tuple[int, Any]] | None:
    """(number, value) of every line that is not blank; None where one is no JSON value."""
    try:
        return [(n, json.loads(line)) for n, line in enumerate(text.splitlines(), start=1) if line.strip()]
    except json.JSONDecodeError:
        return None


def _unwrapped(value: Any, where: str) -> Iterator[_Found]:
    """The tools inside lists, ``{"tools": [...]}``, and results of JSON-RPC."""
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        for i, item in enumerate(value):
            yield from _unwrapped(item, f"{where}[{i}]")
        return
    if isinstance(value, Mapping) and dialect_of(value) is None:
        inner = value.get("result") if isinstance(value.get("result"), Mapping) else value
        for key in _WRAPPERS:
            if isinstance(inner, Mapping) and isinstance(inner.get(key), list):
                yield from _unwrapped(inner[key], f"{where}.{key}")
                if inner.get("nextCursor"):
                    yield _Found({"nextCursor": inner["nextCursor"]}, where)
                return
    yield _Found(value, where)


# -------------------------------------------------------------------------------------------------------------- tools


def _tools(found: Iterable[_Found], tally: ToolTally, counts: Counter[str]) -> Iterator[ToolDoc]:
    for item in found:
        name = dialect_of(item.value)
        if name is None:
            tally.drop("documents", _why_not(item.value), where=item.where)
            continue
        for doc in known_dialects()[name].read(item.value, where=item.where, tally=tally):
            counts[name] += 1
            yield doc


def _why_not(value: object) -> str:
    if not isinstance(value, Mapping):
        return f"{type(value).__name__}_in_place_of_a_tool"
    if "nextCursor" in value:
        return "page_is_not_the_last_one_so_tools_are_missing"
    if isinstance(value.get("error"), Mapping):
        return "answer_is_a_JSON-RPC_error"
    keys = ", ".join(sorted(map(str, value))[:6])
    return f"object_of_no_known_dialect_with_the_keys: {keys}" if keys else "empty_object"


def _why_none(tally: ToolTally) -> str:
    lines = tally.lines()
    if not lines:
        return "The list is empty. "
    return f"{'; '.join(lines[:3])}. Expected tools of {', '.join(known_dialects())}. "


def _library(docs: Sequence[ToolDoc]) -> tuple[Library, tuple[str, ...]]:
    catalog = Catalog(DATASET, template=NAME_DESCRIPTION)
    known: dict[str, ToolDoc] = {}
    notes: Counter[str] = Counter()
    first: dict[str, str] = {}
    for raw in docs:
        doc = _tidied(raw)
        if doc.description != clean(raw.description):
            _note(notes, first, "descriptions with control characters, or longer than is kept", raw.where)
        same, name = replace(doc, where=""), doc.name
        number = 1
        while name in known and known[name] != same:
            number += 1
            name = f"{doc.name}#{number}"
        if name in known:
            _note(notes, first, "tools that are there twice, word for word", raw.where)
            continue
        if number > 1:
            _note(notes, first, "tools with a name that another one has (numbered: NAME#2)", f"{doc.name}, {raw.where}")
        known[name] = same
        _add(catalog, f"{DATASET}/{name}", doc)
    lines = (f"{count} {text} (first: {first[text]})" for text, count in sorted(notes.items()))
    return catalog.library(), tuple(lines)


def _note(notes: Counter[str], first: dict[str, str], text: str, where: str) -> None:
    notes[text] += 1
    first.setdefault(text, where)


def _add(catalog: Catalog, capability_id: str, doc: ToolDoc) -> None:
    catalog.add_capability(
        capability_id, name=doc.name, description=doc.description, domain=doc.domain, origin="library"
    )
    for operation in doc.operations:
        catalog.add_endpoint(f"{capability_id}/{operation.operation}", capability_id, doc=operation, origin="library")


def visible(text: str, *, most: int | None = None) -> str:
    """The text without control and invisible characters and broken halves of characters, in single blanks."""
    return clean(_INVISIBLE.sub(" ", scrubbed(text)))[:most]


def _tidied(doc: ToolDoc) -> ToolDoc:
    name = visible(doc.name) or "unnamed"
    return replace(
        doc,
        name=name,
        description=visible(doc.description, most=LONGEST_DESCRIPTION),
        domain=visible(doc.domain),
        operations=tuple(_tidied_operation(operation) for operation in doc.operations),
    )


def _tidied_operation(doc: EndpointDoc) -> EndpointDoc:
    arguments = tuple(
        replace(a, name=visible(a.name) or "unnamed", description=visible(a.description, most=LONGEST_DESCRIPTION))
        for a in doc.arguments
    )
    return replace(
        doc,
        operation=visible(doc.operation) or "unnamed",
        description=visible(doc.description, most=LONGEST_DESCRIPTION),
        arguments=arguments,
    )

"""TaskBench (Shen et al., 2023) in its upstream layout: per domain a tool list, rows with gold graphs, and requests.

Every folder ``data_<domain>`` is a domain with its own tools; a tool is a capability with one endpoint. Rows come in
three schemas, recognised row by row: ``tool_nodes``/``tool_links`` as JSON inside strings (upstream), ``task_nodes``/
``task_links`` as lists, and the older form that calls the text ``user_request`` instead of ``instruction``.

- **Excerpts.** ``user_requests.json`` lists every request of a domain. Where fewer rows than that are there, the
  records are marked ``unscorable``: an excerpt chosen by hand is a fixture of the format, not a sample.
- **Order.** ``tool_links`` name tools, not nodes. Where they leave exactly one order of two or more calls, the task is
  ordered; where they leave several (a graph with branches) it is not, and is counted. A tool that is used twice, or a
  cycle, makes the links ambiguous: the order of the nodes is taken and counted.
- **Gold that the domain's tool list lacks** is dropped and counted; what is left of such a task has no order.
- ``sampled_nodes`` are what a request was generated from, not candidates that were shown: they are not read, and
  neither are argument values, whose odd shapes are only counted.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolshift.data.catalog import Catalog, EndpointDoc
from toolshift.data.errors import AdapterError
from toolshift.data.files import READ_ERRORS, describe_failure, existing, read_json
from toolshift.data.lines import read_lines
from toolshift.data.names import local_name
from toolshift.data.records import Argument, Records, Task
from toolshift.data.rendering import NAME_DESCRIPTION, TEMPLATES, clean
from toolshift.data.rows import (
    BadRow,
    as_object,
    dataset_folder,
    named_arguments,
    report_of,
    required,
    required_name,
    scrubbed,
    text_of,
)
from toolshift.data.sources import source_of
from toolshift.data.tally import Tally
from toolshift.data.types import coarse_type

DATASET = "taskbench"
_PREFIX = "data_"
_SECTIONS = ("gold_nodes", "links", "parameters", "requests", "rows", "tools")
_NOTES = (
    "arguments_missing",
    "arguments_not_a_list",
    "arguments_with_numbers",
    "gold_capabilities",
    "incomplete_order",
    "links_between_other_tools",
    "merged_duplicate_text",
    "merged_duplicate_tools",
    "merged_text_with_other_gold",
    "n_tools_unlike_nodes",
    "order_from_nodes",
    "partial_order",
    "repeated_request_ids",
    "rows_without_request",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What may vary in reading TaskBench; part of every record fingerprint.

    ``folders`` below ``<root>/taskbench`` hold one domain each; empty means every ``data_*`` folder. ``template`` is
    the capability rendering (``toolshift.data.rendering``).
    """

    template: str = NAME_DESCRIPTION
    folders: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.template not in TEMPLATES:
            raise AdapterError(f"template={self.template!r} is unknown; expected one of {', '.join(TEMPLATES)}")
        outside = [name for name in self.folders if Path(name).is_absolute() or ".." in Path(name).parts]
        if outside:
            raise AdapterError(f"folders: {outside[0]!r} must be a folder below <data.root>/{DATASET}")


def read(root: Path, *, options: Options | None = None, strict: bool = False) -> Records:
    """Read the tools, rows and requests of every domain folder.

    Sections of the report: ``tools`` and their ``parameters``, ``rows`` (of ``data.json``), ``gold_nodes`` and
    ``links`` of usable rows, and ``requests`` (lines of ``user_requests.json``, which only say what is complete).

    Raises:
        AdapterError: if a folder, its ``tool_desc.json`` or its ``data.json`` is missing or unusable as a whole, and,
            under ``strict``, at the first row that cannot become a record.
    """
    options = options or Options()
    base = dataset_folder(root, DATASET)
    tally = Tally(strict=strict)
    tally.open(sections=_SECTIONS, notes=_NOTES)
    reader = _Reader(base, Catalog(DATASET, template=options.template), tally)
    for folder in _folders(base, options=options):
        reader.read_folder(folder)
    tally.log()
    return reader.records()


def inputs(root: Path, *, options: Options | None = None) -> list[Path]:
    """Return the files ``read`` opens, in reading order; their bytes identify the records.

    Raises:
        AdapterError: as ``read`` for missing folders and files.
    """
    base = dataset_folder(root, DATASET)
    files: list[Path] = []
    for folder in _folders(base, options=options or Options()):
        files += [_needed(folder / "tool_desc.json"), _needed(folder / "data.json")]
        requests = _requests_file(folder)
        files += [requests] if requests else []
    return files


# ------------------------------------------------------------------------------------------------ folders and files


def _folders(base: Path, *, options: Options) -> list[Path]:
    if options.folders:
        found = [base / name for name in sorted(set(options.folders))]
    else:
        found = sorted(entry for entry in base.iterdir() if entry.is_dir() and entry.name.startswith(_PREFIX))
    if not found:
        raise AdapterError(f"{base}: holds no {_PREFIX}<domain> folder. {source_of(DATASET).hint()}")
    missing = [folder for folder in found if not folder.is_dir()]
    if missing:
        raise AdapterError(f"{missing[0]}: no such folder. {source_of(DATASET).hint()}")
    return found


def _needed(path: Path) -> Path:
    found = existing(path)
    if found is None:
        what = "is a folder, not a file" if path.is_dir() else "no such file (nor one with .gz)"
        raise AdapterError(f"{path}: {what}. {source_of(DATASET).hint()}")
    return found


def _requests_file(folder: Path) -> Path | None:
    """The list of requests; the release on Hugging Face ends its name in ``.jsonl``."""
    return existing(folder / "user_requests.json") or existing(folder / "user_requests.jsonl")


# ---------------------------------------------------------------------------------------------------------- reader


@dataclass(frozen=True, slots=True)
class _Graph:
    """Gold of one row: endpoint ids in their order, and whether the release gives that order."""

    calls: tuple[str, ...]
    ordered: bool


@dataclass(slots=True)
class _TaskDraft:
    text: str
    source: str
    gold: tuple[str, ...]
    calls: tuple[str, ...]
    splits: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Coverage:
    """Rows read of one domain, and the requests its list names (None: there is no list)."""

    domain: str
    rows: int
    requests: int | None


class _Reader:
    """Everything one pass accumulates."""

    def __init__(self, base: Path, catalog: Catalog, tally: Tally) -> None:
        self.base = base
        self.catalog = catalog
        self.tally = tally
        self._drafts: dict[str, _TaskDraft] = {}
        self._coverage: list[_Coverage] = []

    def read_folder(self, folder: Path) -> None:
        """Read one domain: its tools first, for gold is looked up among them."""
        domain = local_name(folder.name.removeprefix(_PREFIX))
        tools = self._read_tools(_needed(folder / "tool_desc.json"), domain=domain)
        path = folder / "data.json"
        _needed(path)
        rows = 0
        ids: set[str] = set()
        for line in read_lines(path):
            rows += 1
            where = f"{self._relative(path)}:{line.number}"
            if line.fault:
                self.tally.drop("rows", line.fault, where=where)
                continue
            ids.add(self._read_row(line.value, tools, where=where))
        self._coverage.append(_Coverage(domain, rows, self._count_requests(folder, ids - {""})))

    def _relative(self, path: Path) -> str:
        return f"{DATASET}/{path.relative_to(self.base).as_posix()}"

    # -- tools

    def _read_tools(self, path: Path, *, domain: str) -> Mapping[str, str]:
        """Add a domain's tools; returns native name -> endpoint id."""
        try:
            nodes = required(as_object(read_json(path)), "nodes", list)
        except READ_ERRORS as error:
            raise AdapterError(f"{path}: {describe_failure(error).replace('_', ' ')} ({error})") from error
        except BadRow as reason:
            raise AdapterError(f'{path}: {reason}; expected {{"nodes": [{{"id": ..., "desc": ...}}]}}') from reason
        tools: dict[str, str] = {}
        for position, value in enumerate(nodes):
            where = f"{self._relative(path)}#{position}"
            try:
                node = as_object(value)
                name = required_name(node, "id")
            except BadRow as reason:
                self.tally.drop("tools", str(reason), where=where)
                continue
            self.tally.keep("tools")
            tools[name] = self._add_tool(name, node, domain=domain, where=where)
        return tools

    def _add_tool(self, name: str, node: Mapping[str, Any], *, domain: str, where: str) -> str:
        key = local_name(name)
        capability_id = f"{DATASET}/{domain}/{key}"
        endpoint_id = f"{capability_id}/{key}"
        description = clean(text_of(node.get("desc")))
        if not self.catalog.add_capability(
            capability_id, name=clean(name), description=description, domain=domain, origin="library"
        ):
            self.tally.note("merged_duplicate_tools")
        doc = EndpointDoc(
            operation=clean(name),
            description=description,
            arguments=(
                *named_arguments(node.get("parameters"), self.tally, required=None, where=where, description="desc"),
                *self._media(node, where=where),
            ),
            returns=tuple(text_of(word) for word in _list(node.get("output-type")) if text_of(word)),
        )
        self.catalog.add_endpoint(endpoint_id, capability_id, doc=doc, origin="library")
        return endpoint_id

    def _media(self, node: Mapping[str, Any], *, where: str) -> Iterator[Argument]:
        """Inputs that have a medium instead of a name; two of a kind are told apart by a number."""
        seen: Counter[str] = Counter()
        for value in _list(node.get("input-type")):
            word = clean(text_of(value))
            if not word:
                self.tally.drop("parameters", "input_type_not_a_word", where=where)
                continue
            self.tally.keep("parameters")
            seen[word] += 1
            name = word if seen[word] == 1 else f"{word}_{seen[word]}"
            yield Argument(name=name, raw_type=word, type=coarse_type(word))

    # -- rows

    def _read_row(self, value: object, tools: Mapping[str, str], *, where: str) -> str:
        """Turn one row into a task, unite it with the task of its text, or drop it; returns the row's id or ""."""
        try:
            row = as_object(value)
            text = scrubbed(required(row, "instruction" if "instruction" in row else "user_request", str)).strip()
            nodes = _embedded(row, "nodes")
            links = _embedded(row, "links", missing=[])
        except BadRow as reason:
            self.tally.drop("rows", str(reason), where=where)
            return text_of(value.get("id")) if isinstance(value, dict) else ""
        key = text_of(row.get("id"))
        names = self._read_nodes(nodes, where=where)
        pairs = self._read_links(links, names, where=where)
        if not text:
            self.tally.drop("rows", "empty_text", where=where)
            return key
        graph = self._graph(names, pairs, tools, complete=len(names) == len(nodes), where=where)
        if not graph.calls:
            self.tally.drop("rows", "no_known_gold", where=where)
            return key
        self.tally.keep("rows")
        stated = row.get("n_tools")
        self.tally.note("n_tools_unlike_nodes", int(isinstance(stated, int) and stated != len(nodes)))
        self._add_task(text, graph, split=text_of(row.get("type")), where=where)
        return key

    def _read_nodes(self, nodes: Sequence[object], *, where: str) -> list[str]:
        """Native tool names in node order; a node that names none is dropped."""
        names: list[str] = []
        for value in nodes:
            try:
                node = as_object(value)
                names.append(required_name(node, "task"))
            except BadRow as reason:
                self.tally.drop("gold_nodes", str(reason), where=where)
                continue
            arguments = node.get("arguments")
            if arguments is None:
                self.tally.note("arguments_missing")
            elif not isinstance(arguments, list):
                self.tally.note("arguments_not_a_list")
            elif any(isinstance(a, int | float) for a in arguments):
                self.tally.note("arguments_with_numbers")
        return names

    def _read_links(self, links: Sequence[object], names: Sequence[str], *, where: str) -> list[tuple[str, str]]:
        pairs: list[tuple[str, str]] = []
        for value in links:
            try:
                link = as_object(value)
                pair = (required_name(link, "source"), required_name(link, "target"))
            except BadRow as reason:
                self.tally.drop("links", str(reason), where=where)
                continue
            self.tally.keep("links")
            if pair[0] in names and pair[1] in names:
                pairs.append(pair)
            else:
                self.tally.note("links_between_other_tools")
        return pairs

    def _graph(
        self,
        names: Sequence[str],
        pairs: Sequence[tuple[str, str]],
        tools: Mapping[str, str],
        *,
        complete: bool,
        where: str,
    ) -> _Graph:
        """Endpoint ids of the known gold, in the order of the links where these leave only one."""
        known = 0
        for name in names:
            if name in tools:
                known += 1
                self.tally.keep("gold_nodes")
            else:
                self.tally.drop("gold_nodes", "not_in_tool_desc", where=f"{where} [{name!r}]")
        order, unique = _topological(names, pairs)
        calls = tuple(tools[name] for name in order or names if name in tools)
        if len(names) < 2 or not calls:
            return _Graph(calls, ordered=False)
        if known < len(names) or not complete:
            self.tally.note("incomplete_order")
            return _Graph(calls, ordered=False)
        if order is None:
            self.tally.note("order_from_nodes")
            return _Graph(calls, ordered=True)
        self.tally.note("partial_order", int(not unique))
        return _Graph(calls, ordered=unique)

    def _add_task(self, text: str, graph: _Graph, *, split: str, where: str) -> None:
        gold = tuple(sorted(set(graph.calls)))
        calls = graph.calls if graph.ordered else ()
        splits = (split,) if split else ()
        draft = self._drafts.get(text)
        if draft is None:
            self._drafts[text] = _TaskDraft(text, where, gold, calls, splits)
            return
        self.tally.note("merged_duplicate_text")
        if gold != draft.gold:
            self.tally.note("merged_text_with_other_gold")
        draft.gold = tuple(sorted({*draft.gold, *gold}))
        draft.calls = calls if calls == draft.calls else ()
        draft.splits = tuple(sorted({*draft.splits, *splits}))

    # -- completeness

    def _count_requests(self, folder: Path, ids: set[str]) -> int | None:
        """Lines of the domain's request list; ids of rows that it does not name are counted."""
        path = _requests_file(folder)
        if path is None:
            return None
        listed: set[str] = set()
        lines = 0
        for line in read_lines(path.with_name(path.name.removesuffix(".gz"))):
            lines += 1
            fault = line.fault or ("" if isinstance(line.value, dict) else "not_an_object")
            if fault:
                self.tally.drop("requests", fault, where=f"{self._relative(path)}:{line.number}")
                continue
            self.tally.keep("requests")
            key = text_of(line.value.get("id"))
            self.tally.note("repeated_request_ids", int(key in listed))
            listed.add(key)
        self.tally.note("rows_without_request", len(ids - listed))
        return lines

    # -- result

    def records(self) -> Records:
        """Freeze what was read."""
        library = self.catalog.library()
        tasks = tuple(sorted((_task(draft) for draft in self._drafts.values()), key=lambda task: task.task_id))
        self.tally.note("gold_capabilities", len({c for t in tasks for c in t.gold_capability_ids}))
        report = report_of(self.tally, library, tasks)
        return Records(
            dataset=DATASET, library=library, tasks=tasks, report=report, unscorable=_unscorable(self._coverage)
        )


def _list(value: object) -> Sequence[object]:
    return value if isinstance(value, list) else ()


def _embedded(row: Mapping[str, Any], what: str, *, missing: list[object] | None = None) -> list[object]:
    """``tool_<what>`` or ``task_<what>``: a list, or a list written as JSON inside a string."""
    key = next((k for k in (f"tool_{what}", f"task_{what}") if k in row), None)
    if key is None:
        if missing is not None:
            return missing
        raise BadRow(f"missing_tool_{what}")
    value = row[key]
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise BadRow(f"malformed_{key}") from None
    if not isinstance(value, list):
        raise BadRow(f"wrong_type_of_{key}")
    return value


def _topological(names: Sequence[str], pairs: Sequence[tuple[str, str]]) -> tuple[list[str] | None, bool]:
    """Names sorted along the links, ties by position, and whether no other order would do.

    None instead of the order where a name repeats or the links hold a cycle: then links do not tell an order.
    """
    if len(set(names)) < len(names):
        return None, False
    before: dict[str, set[str]] = {name: set() for name in names}
    for source, target in pairs:
        before[target].add(source)
    order: list[str] = []
    unique = True
    while len(order) < len(names):
        free = [name for name in names if name in before and not before[name]]
        if not free:
            return None, False
        unique = unique and len(free) == 1
        order.append(free[0])
        del before[free[0]]
        for waiting in before.values():
            waiting.discard(free[0])
    return order, unique


def _task(draft: _TaskDraft) -> Task:
    domains = Counter(endpoint.split("/")[1] for endpoint in draft.gold)
    most = max(domains.values())
    return Task(
        task_id=f"{DATASET}/{hashlib.sha256(draft.text.encode()).hexdigest()[:16]}",
        dataset=DATASET,
        domain=min(domain for domain, count in domains.items() if count == most),
        text=draft.text,
        gold_capability_ids=tuple(sorted({endpoint.rpartition("/")[0] for endpoint in draft.gold})),
        gold_endpoint_ids=draft.gold,
        ordered=bool(draft.calls),
        calls=draft.calls,
        split="+".join(draft.splits),
        source=draft.source,
    )


def _unscorable(coverage: Sequence[_Coverage]) -> str:
    """Why no score may be reported: some domain's rows are fewer than its requests, or nothing tells."""
    unknown = [c.domain for c in coverage if c.requests is None]
    if unknown:
        return (
            f"{DATASET}: without user_requests.json of {', '.join(unknown)} nothing tells whether data.json is complete"
        )
    short = [f"{c.domain} {c.rows:,} of {c.requests:,}" for c in coverage if c.rows < (c.requests or 0)]
    if not short:
        return ""
    return f"{DATASET}: data.json is an excerpt of the requests that user_requests.json lists: {'; '.join(short)}"

"""TRAJECT-Bench (He et al., 2025), sequential part, in its upstream layout: requests with executed call sequences.

The release groups its tools as RapidAPI does: a capability is a parent tool, an endpoint one of its APIs, as in
ToolBench, whose tools these are (names join after standardisation). The chains were designed by a model and then
executed; numbers from them should say so.

- Rows hold their calls under ``tool list`` or ``tool_list``; the order of the list is the order of the calls, whatever
  came of them (``execution_status``).
- The full name of a tool is its key. Rows may call a tool that ``tools/`` lacks: it is re-created from the calls
  (``schema_source="task"``), with the names of the parameters it was called with. Their ``tool description`` says what
  the step is for, not what the tool is, so it is not read. Where the row does not know the parent either ("unknown"),
  the longest parent tool in ``tools/`` whose name the full name starts with is taken, else what stands before the first
  colon, else the whole name.
- ``tools/`` lists many tools in several files; their documentations are united. ``sequence.json`` (chains without
  requests), ``all_tools.json`` and the ``parallel`` part (no order) are not read.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolshift.data.catalog import Catalog, EndpointDoc
from toolshift.data.errors import AdapterError
from toolshift.data.files import existing, plain_name, stream_array
from toolshift.data.names import local_name
from toolshift.data.records import Records, Task
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

DATASET = "trajectbench"
QUERY_FILES = ("simple_ver", "traj_query")
_TOOLS = "public_data/tools"
_SEQUENTIAL = "public_data/sequential"
_UNKNOWN = "unknown"
_SECTIONS = ("calls", "parameters", "queries", "tools")
_NOTES = (
    "calls_of_recreated_tools",
    "failed_calls",
    "gold_capabilities",
    "incomplete_order",
    "merged_duplicate_text",
    "merged_text_with_other_calls",
    "merged_tool_rows",
    "merged_tools_of_one_key",
    "recreated_apis",
    "recreated_tools",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What may vary in reading TRAJECT-Bench; part of every record fingerprint.

    ``queries`` are the files per domain that become tasks; absent ones are skipped as long as one file is left.
    ``template`` is the capability rendering (``toolshift.data.rendering``).
    """

    template: str = NAME_DESCRIPTION
    queries: tuple[str, ...] = QUERY_FILES

    def __post_init__(self) -> None:
        if self.template not in TEMPLATES:
            raise AdapterError(f"template={self.template!r} is unknown; expected one of {', '.join(TEMPLATES)}")
        if set(self.queries) - set(QUERY_FILES) or not self.queries:
            raise AdapterError(f"queries={self.queries!r}: expected some of {', '.join(QUERY_FILES)}")


def read(root: Path, *, options: Options | None = None, strict: bool = False) -> Records:
    """Read every tool file and sequential query below ``<root>/trajectbench``.

    Sections of the report: ``tools`` (rows of tool files), ``queries``, their ``calls``, and ``parameters`` (of tool
    rows, and of the calls of re-created tools).

    Raises:
        AdapterError: if the root, all tool files or all query files are missing, if a file is cut or no JSON array,
            and, under ``strict``, at the first row that cannot become a record.
    """
    options = options or Options()
    base = dataset_folder(root, DATASET)
    tally = Tally(strict=strict)
    tally.open(sections=_SECTIONS, notes=_NOTES)
    reader = _Reader(Catalog(DATASET, template=options.template), tally)
    for path in _tool_files(base):
        for row, value in enumerate(stream_array(path)):
            reader.read_tool(value, where=f"{_relative(path, base)}#{row}")
    for path in _query_files(base, options=options):
        for row, value in enumerate(stream_array(path)):
            reader.read_query(value, file=path, where=f"{_relative(path, base)}#{row}")
    tally.log()
    return reader.records()


def inputs(root: Path, *, options: Options | None = None) -> list[Path]:
    """Return the files ``read`` opens, in reading order; their bytes identify the records.

    Raises:
        AdapterError: as ``read`` for missing folders and files.
    """
    base = dataset_folder(root, DATASET)
    files = [*_tool_files(base), *_query_files(base, options=options or Options())]
    return [found for path in files if (found := existing(path)) is not None]


# ------------------------------------------------------------------------------------------------ folders and files


def _tool_files(base: Path) -> list[Path]:
    folder = base / _TOOLS
    found = _logical(folder.glob("*_tool.json*"), ending="_tool.json")
    if not found:
        raise AdapterError(f"{folder}: holds no <Domain>_tool.json. {source_of(DATASET).hint()}")
    return found


def _query_files(base: Path, *, options: Options) -> list[Path]:
    folder = base / _SEQUENTIAL
    names = sorted(set(options.queries))
    found = sorted(path for name in names for path in _logical(folder.glob(f"*/{name}.json*"), ending=f"{name}.json"))
    if not found:
        wanted = " or ".join(f"{name}.json" for name in names)
        raise AdapterError(f"{folder}: holds no <Domain>/{wanted}. {source_of(DATASET).hint()}")
    return found


def _logical(paths: Iterator[Path], *, ending: str) -> list[Path]:
    """Sorted ``.gz``-free paths of the files among ``paths`` that end so."""
    plain = {path.with_name(plain_name(path.name)) for path in paths}
    return sorted(path for path in plain if path.name.endswith(ending) and existing(path))


def _relative(path: Path, base: Path) -> str:
    return f"{DATASET}/{path.relative_to(base).as_posix()}"


# ---------------------------------------------------------------------------------------------------------- reader


@dataclass(slots=True)
class _TaskDraft:
    text: str
    source: str
    domains: tuple[str, ...]
    gold: tuple[str, ...]
    calls: tuple[str, ...]
    splits: tuple[str, ...]


class _Reader:
    """Everything one pass accumulates; memory grows with distinct tools and texts, never with executed outputs."""

    def __init__(self, catalog: Catalog, tally: Tally) -> None:
        self.catalog = catalog
        self.tally = tally
        self._endpoint_of: dict[str, str] = {}
        self._names_of: dict[str, str] = {}
        self._recreated: set[str] = set()
        self._parents: dict[str, str] = {}
        self._drafts: dict[str, _TaskDraft] = {}

    # -- tools

    def read_tool(self, value: object, *, where: str) -> None:
        """Add one API of a tool file, or count why it is dropped."""
        try:
            row = as_object(value)
            parent = required_name(row, "parent tool name")
            api = required_name(row, "API name")
        except BadRow as reason:
            self.tally.drop("tools", str(reason).replace(" ", "_"), where=where)
            return
        self.tally.keep("tools")
        capability_id = f"{DATASET}/{local_name(parent)}"
        endpoint_id = f"{capability_id}/{local_name(api)}"
        self._parents.setdefault(parent.strip(), capability_id)
        self.catalog.add_capability(
            capability_id,
            name=clean(parent),
            description=clean(text_of(row.get("parent tool description"))),
            domain=clean(text_of(row.get("domain name"))),
            origin="library",
        )
        doc = EndpointDoc(
            operation=clean(api),
            description=clean(text_of(row.get("tool description"))),
            arguments=(
                *named_arguments(row.get("required_parameters"), self.tally, required=True, where=where),
                *named_arguments(row.get("optional_parameters"), self.tally, required=False, where=where),
            ),
        )
        full = text_of(row.get("tool name")) or f"{parent}: {api}".strip()
        if not self.catalog.add_endpoint(endpoint_id, capability_id, doc=doc, origin="library"):
            self.tally.note("merged_tool_rows")
            self.tally.note("merged_tools_of_one_key", int(full not in self._endpoint_of))
        self._endpoint_of.setdefault(full, endpoint_id)

    # -- queries

    def read_query(self, value: object, *, file: Path, where: str) -> None:
        """Turn one row into a task, unite it with the task of the same text, or count why it is dropped."""
        try:
            row = as_object(value)
            text = scrubbed(required(row, "query", str)).strip()
            calls = required(row, "tool list" if "tool list" in row else "tool_list", list)
        except BadRow as reason:
            self.tally.drop("queries", str(reason), where=where)
            return
        if not text:
            self.tally.drop("queries", "empty_query", where=where)
            return
        domain = clean(text_of(row.get("domain"))) or scrubbed(file.parent.name)
        endpoints = [e for call in calls if (e := self._read_call(call, domain=domain, where=where))]
        if not endpoints:
            self.tally.drop("queries", "no_known_gold", where=where)
            return
        self.tally.keep("queries")
        complete = len(endpoints) == len(calls)
        self.tally.note("incomplete_order", int(not complete))
        ordered = complete and len(endpoints) > 1
        split = file.name.removesuffix(".json")
        draft = _TaskDraft(
            text, where, (domain,), tuple(sorted(set(endpoints))), tuple(endpoints) if ordered else (), (split,)
        )
        self._add_task(draft)

    def _read_call(self, value: object, *, domain: str, where: str) -> str:
        """The endpoint id of one call, or "" where it names no tool."""
        try:
            call = as_object(value)
            full = required_name(call, "tool name").strip()
        except BadRow as reason:
            self.tally.drop("calls", str(reason).replace(" ", "_"), where=where)
            return ""
        self.tally.keep("calls")
        self.tally.note("failed_calls", int(text_of(call.get("execution_status")) == "failed"))
        endpoint_id = self._endpoint_of.get(full)
        if endpoint_id is None:
            endpoint_id = self._endpoint_of[full] = self._recreate(full, call, domain=domain)
        if endpoint_id in self._recreated:
            self.tally.note("calls_of_recreated_tools")
            self._document(endpoint_id, call, where=where)
        return endpoint_id

    def _recreate(self, full: str, call: Mapping[str, Any], *, domain: str) -> str:
        """Add a tool that rows name and ``tools/`` lacks; its parameters follow from the calls."""
        parent, api = self._split_name(full, call)
        capability_id = self._parents.get(parent) or f"{DATASET}/{local_name(parent)}"
        endpoint_id = f"{capability_id}/{local_name(api)}"
        place = clean(text_of(call.get("domain name"))) or domain
        if self.catalog.add_capability(capability_id, name=clean(parent), domain=place, origin="task"):
            self.tally.note("recreated_tools")
        if self.catalog.add_endpoint(endpoint_id, capability_id, doc=EndpointDoc(operation=clean(api)), origin="task"):
            self.tally.note("recreated_apis")
            self._recreated.add(endpoint_id)
            self._names_of[endpoint_id] = clean(api)
        return endpoint_id

    def _split_name(self, full: str, call: Mapping[str, Any]) -> tuple[str, str]:
        parent, api = (text_of(call.get(key)) for key in ("parent tool name", "API name"))
        if parent not in ("", _UNKNOWN) and api not in ("", _UNKNOWN):
            return parent, api
        known = [name for name in self._parents if full.startswith(f"{name}:") and full[len(name) + 1 :].strip()]
        if known:
            parent = max(known, key=len)
            return parent, full[len(parent) + 1 :].strip()
        head, _, tail = full.partition(":")
        return (head.strip(), tail.strip()) if head.strip() and tail.strip() else (full, full)

    def _document(self, endpoint_id: str, call: Mapping[str, Any], *, where: str) -> None:
        """Unite the parameters of one call into a re-created tool."""
        arguments = (
            *named_arguments(call.get("required parameters"), self.tally, required=True, where=where),
            *named_arguments(call.get("optional parameters"), self.tally, required=False, where=where),
        )
        doc = EndpointDoc(operation=self._names_of[endpoint_id], arguments=arguments)
        self.catalog.add_endpoint(endpoint_id, endpoint_id.rpartition("/")[0], doc=doc, origin="task")

    def _add_task(self, new: _TaskDraft) -> None:
        draft = self._drafts.setdefault(new.text, new)
        if draft is new:
            return
        self.tally.note("merged_duplicate_text")
        if new.calls != draft.calls:
            # Two orders for one request are no order; which calls belong to it is still known.
            self.tally.note("merged_text_with_other_calls")
            draft.calls = ()
        draft.domains = (*draft.domains, *new.domains)
        draft.gold = tuple(sorted({*draft.gold, *new.gold}))
        draft.splits = tuple(sorted({*draft.splits, *new.splits}))

    # -- result

    def records(self) -> Records:
        """Freeze what was read."""
        library = self.catalog.library()
        tasks = tuple(sorted((_task(draft) for draft in self._drafts.values()), key=lambda task: task.task_id))
        self.tally.note("gold_capabilities", len({c for t in tasks for c in t.gold_capability_ids}))
        report = report_of(self.tally, library, tasks)
        return Records(dataset=DATASET, library=library, tasks=tasks, report=report)


def _task(draft: _TaskDraft) -> Task:
    return Task(
        task_id=f"{DATASET}/{hashlib.sha256(draft.text.encode()).hexdigest()[:16]}",
        dataset=DATASET,
        domain=_most_common(draft.domains),
        text=draft.text,
        gold_capability_ids=tuple(sorted({endpoint.rpartition("/")[0] for endpoint in draft.gold})),
        gold_endpoint_ids=draft.gold,
        ordered=bool(draft.calls),
        calls=draft.calls,
        split="+".join(draft.splits),
        source=draft.source,
    )


def _most_common(domains: Sequence[str]) -> str:
    counts = Counter(domains)
    most = max(counts.values())
    return min(domain for domain, count in counts.items() if count == most)

"""ToolEyes (Ye et al., 2024) in its upstream layout: a tool library and queries, without any gold tool.

The release names no gold tools, calls or orders: a query names only the tool set it was written for (``path``). All
queries are therefore kept apart (``no_gold="not_annotated"``), each with the tools of its set as the candidates it was
given, and the records are ``unscorable``.

- A tool is a capability with one endpoint; its id holds category and set, because the same name occurs in many sets.
  Equal names within one set cannot be told apart by a call: they are one tool, counted.
- Every set also lists ``ask_to_user`` and ``finish``, controls of the agent loop and no tools: they are left out,
  counted (``control_entry``).
- The ``*_processed.json`` files hold the same queries inside prompts; only ``scenario_data_raw.json`` is read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolshift.data.catalog import Catalog, EndpointDoc
from toolshift.data.errors import AdapterError
from toolshift.data.files import READ_ERRORS, describe_failure, existing, plain_name, read_json, stream_array
from toolshift.data.json_schema import schema_arguments
from toolshift.data.names import local_name
from toolshift.data.records import Records, Task
from toolshift.data.rendering import NAME_DESCRIPTION, TEMPLATES, clean
from toolshift.data.rows import (
    BadRow,
    as_object,
    dataset_folder,
    report_of,
    required,
    required_name,
    scrubbed,
    text_of,
)
from toolshift.data.sources import source_of
from toolshift.data.tally import Tally

DATASET = "tooleyes"
CONTROLS = ("ask_to_user", "finish")
UNSCORABLE = f"{DATASET}: the release names no gold tools, only the tool set a query was written for"
_LIBRARY = "Tool_Library"
_CONFIG = "config_gpt4.json"
_QUERIES = "Test_Data/scenario_data_raw.json"
_SECTIONS = ("parameters", "queries", "tool_sets", "tools")
_NOTES = ("merged_duplicate_text", "merged_same_name_in_set", "merged_with_other_documentation", "tasks_apart")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What may vary in reading ToolEyes; part of every record fingerprint.

    ``template`` is the capability rendering (``toolshift.data.rendering``).
    """

    template: str = NAME_DESCRIPTION

    def __post_init__(self) -> None:
        if self.template not in TEMPLATES:
            raise AdapterError(f"template={self.template!r} is unknown; expected one of {', '.join(TEMPLATES)}")


def read(root: Path, *, options: Options | None = None, strict: bool = False) -> Records:
    """Read every tool set and query below ``<root>/tooleyes``.

    Sections of the report: ``tool_sets`` (files), their ``tools`` and ``parameters``, and ``queries``.

    Raises:
        AdapterError: if the root, the tool library or the query file is missing, if the query file is cut or no JSON
            array, and, under ``strict``, at the first row that cannot become a record.
    """
    options = options or Options()
    base = dataset_folder(root, DATASET)
    tally = Tally(strict=strict)
    tally.open(sections=_SECTIONS, notes=_NOTES)
    reader = _Reader(base, Catalog(DATASET, template=options.template), tally)
    for path in _tool_files(base):
        reader.read_set(path)
    for row, value in enumerate(stream_array(_query_file(base))):
        reader.read_query(value, where=f"{DATASET}/{_QUERIES}#{row}")
    tally.log()
    return reader.records()


def inputs(root: Path, *, options: Options | None = None) -> list[Path]:
    """Return the files ``read`` opens, in reading order; their bytes identify the records.

    Raises:
        AdapterError: as ``read`` for missing folders and files.
    """
    base = dataset_folder(root, DATASET)
    return [found for path in (*_tool_files(base), _query_file(base)) if (found := existing(path)) is not None]


def _tool_files(base: Path) -> list[Path]:
    """Logical (``.gz``-free) paths of all ``<Category>/<Set>/config_gpt4.json``, sorted."""
    library = base / _LIBRARY
    found = sorted(
        {path.with_name(plain_name(path.name)) for path in library.glob(f"*/*/{_CONFIG}*") if existing(path)}
    )
    found = [path for path in found if path.name == _CONFIG and existing(path)]
    if not found:
        raise AdapterError(f"{library}: holds no <Category>/<Set>/{_CONFIG}. {source_of(DATASET).hint()}")
    return found


def _query_file(base: Path) -> Path:
    path = base / _QUERIES
    if existing(path) is None:
        what = "is a folder, not a file" if path.is_dir() else "no such file (nor one with .gz)"
        raise AdapterError(f"{path}: {what}. {source_of(DATASET).hint()}")
    return path


@dataclass(slots=True)
class _TaskDraft:
    text: str
    source: str
    sets: tuple[str, ...]
    scenarios: tuple[str, ...]


class _Reader:
    """Everything one pass accumulates."""

    def __init__(self, base: Path, catalog: Catalog, tally: Tally) -> None:
        self.base = base
        self.catalog = catalog
        self.tally = tally
        self._tools_of: dict[str, set[str]] = {}
        self._native: dict[str, str] = {}
        self._docs: dict[str, EndpointDoc] = {}
        self._drafts: dict[str, _TaskDraft] = {}

    # -- tools

    def read_set(self, path: Path) -> None:
        """Add the tools of one set, or count why its file cannot be read."""
        relative = path.relative_to(self.base).as_posix()
        where = f"{DATASET}/{relative}"
        try:
            entries = read_json(path)
        except READ_ERRORS as error:
            self.tally.drop("tool_sets", describe_failure(error), where=where)
            return
        if not isinstance(entries, list):
            self.tally.drop("tool_sets", "not_a_list", where=where)
            return
        self.tally.keep("tool_sets")
        category, name = (scrubbed(part) for part in path.parent.parts[-2:])
        key = f"{_folder_key(category)}/{_folder_key(name)}"
        self._native[f"{category}/{name}"] = key
        tools = self._tools_of.setdefault(key, set())
        for position, value in enumerate(entries):
            capability_id = self._read_tool(value, key, category=category, where=f"{where}#{position}")
            if capability_id:
                tools.add(capability_id)

    def _read_tool(self, value: object, set_key: str, *, category: str, where: str) -> str:
        """Add one tool; returns its capability id, or "" where there is none."""
        try:
            entry = as_object(value)
            name = required_name(entry, "name")
        except BadRow as reason:
            self.tally.drop("tools", str(reason), where=where)
            return ""
        if name.strip() in CONTROLS:
            self.tally.exclude("tools", "control_entry", where=where)
            return ""
        self.tally.keep("tools")
        capability_id = f"{DATASET}/{set_key}/{local_name(name)}"
        doc = self._doc(name, entry, where=where)
        if not self.catalog.add_capability(
            capability_id, name=clean(name), description=doc.description, domain=category, origin="library"
        ):
            self.tally.note("merged_same_name_in_set")
            self.tally.note("merged_with_other_documentation", int(doc != self._docs[capability_id]))
        self._docs.setdefault(capability_id, doc)
        self.catalog.add_endpoint(f"{capability_id}/{local_name(name)}", capability_id, doc=doc, origin="library")
        return capability_id

    def _doc(self, name: str, entry: Mapping[str, Any], *, where: str) -> EndpointDoc:
        return EndpointDoc(
            operation=clean(name),
            description=clean(text_of(entry.get("description"))),
            arguments=schema_arguments(
                entry.get("parameters"),
                keep=lambda: self.tally.keep("parameters"),
                drop=lambda reason: self.tally.drop("parameters", reason, where=where),
            ),
        )

    # -- queries

    def read_query(self, value: object, *, where: str) -> None:
        """Keep one query apart, unite it with the query of the same text, or count why it is dropped."""
        try:
            row = as_object(value)
            text = scrubbed(required(row, "query", str)).strip()
            path = required_name(row, "path")
            if not text:
                raise BadRow("empty_query")
            key = self._native.get("/".join(path.strip().strip("/").split("/")[-2:]))
            if key is None:
                raise BadRow("unknown_tool_set")
        except BadRow as reason:
            self.tally.drop("queries", str(reason), where=where)
            return
        self.tally.keep("queries")
        scenario = text_of(row.get("scenario"))
        scenarios = (scenario,) if scenario else ()
        draft = self._drafts.get(text)
        if draft is None:
            self._drafts[text] = _TaskDraft(text, where, (key,), scenarios)
            return
        self.tally.note("merged_duplicate_text")
        draft.sets = tuple(sorted({*draft.sets, key}))
        draft.scenarios = tuple(sorted({*draft.scenarios, *scenarios}))

    # -- result

    def records(self) -> Records:
        """Freeze what was read: a library, no task to score, and all queries apart."""
        library = self.catalog.library()
        domain_of = {c.capability_id: c.domain for c in library.capabilities}
        apart = tuple(
            sorted((self._task(draft, domain_of) for draft in self._drafts.values()), key=lambda task: task.task_id)
        )
        report = report_of(self.tally, library, (), apart=apart)
        return Records(dataset=DATASET, library=library, tasks=(), report=report, apart=apart, unscorable=UNSCORABLE)

    def _task(self, draft: _TaskDraft, domain_of: Mapping[str, str]) -> Task:
        given = tuple(sorted({tool for key in draft.sets for tool in self._tools_of[key]}))
        return Task(
            task_id=f"{DATASET}/{hashlib.sha256(draft.text.encode()).hexdigest()[:16]}",
            dataset=DATASET,
            domain=min((domain_of[tool] for tool in given), default=""),
            text=draft.text,
            gold_capability_ids=(),
            given_candidate_ids=given,
            split="+".join(draft.scenarios),
            source=draft.source,
            no_gold="not_annotated",
        )


def _folder_key(name: str) -> str:
    """A folder name as part of an id: kept as the release writes it, blanks and slashes aside."""
    return "_".join(name.replace("/", " ").split()) or local_name(name)

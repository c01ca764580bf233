"""ToolBench (Qin et al., 2023) in its upstream layout: RapidAPI tools as capabilities, their APIs as endpoints.

Keys are always (category, tool, API): hundreds of tool names occur in several categories. Which names meet:

- A tool file's stem is upstream's key of the tool. It equals ``standardize(tool_name)`` except where the name holds a
  slash, which the stem drops; the standardised name is therefore an alias of the stem (certain: within one category no
  two tools claim the same alias; a contested alias is ignored and counted).
- Tools that queries name but the library lacks are re-created from the rows' ``api_list`` (``schema_source="task"``).
  They are *not* matched to a similar library tool: a ``_v2`` suffix marks a second product of the same name, and the
  same name in another category is another key, even where their operations agree.
- A name that standardises to nothing (no ASCII, no CJK) keys as ``unnamed-`` and a hash; so does the file ``.json``.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from toolshift.data.catalog import Catalog, EndpointDoc, Origin
from toolshift.data.errors import AdapterError
from toolshift.data.files import READ_ERRORS, describe_failure, existing, plain_name, read_json, stream_array
from toolshift.data.names import local_name, standardize, standardize_category
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
from toolshift.data.spool import Spool
from toolshift.data.tally import Tally
from toolshift.data.task_file import spilled

DATASET = "toolbench"
QUERY_FOLDERS = ("instruction", "solvable_queries/test_instruction", "test_instruction")
_TOOLS = "toolenv/tools"
_SECTIONS = ("apis", "gold_pairs", "parameters", "queries", "task_docs", "tool_files")
_NOTES = (
    "ambiguous_gold",
    "arguments_added_by_task_docs",
    "contested_aliases",
    "endpoints_from_task_docs",
    "merged_duplicate_apis",
    "merged_duplicate_text",
    "merged_text_with_other_gold",
    "merged_tool_files",
    "recreated_tools",
    "repeated_gold_pairs",
    "tools_matched_by_alias",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What may vary in reading ToolBench; part of every record fingerprint.

    ``queries`` are folders below ``<root>/toolbench`` whose JSON arrays become tasks; absent ones are skipped as long
    as one file is left. ``template`` is the capability rendering (``toolshift.data.rendering``).
    """

    template: str = NAME_DESCRIPTION
    queries: tuple[str, ...] = QUERY_FOLDERS

    def __post_init__(self) -> None:
        if self.template not in TEMPLATES:
            raise AdapterError(f"template={self.template!r} is unknown; expected one of {', '.join(TEMPLATES)}")
        unknown = sorted(set(self.queries) - set(QUERY_FOLDERS))
        if unknown or not self.queries:
            raise AdapterError(f"queries={self.queries!r}: expected some of {', '.join(QUERY_FOLDERS)}")


def read(root: Path, *, options: Options | None = None, strict: bool = False) -> Records:
    """Read every tool file and query row below ``<root>/toolbench``.

    Sections of the report: ``tool_files`` and ``apis`` (library), ``queries``, ``task_docs`` (``api_list`` entries of
    usable rows), ``gold_pairs`` (``relevant APIs`` of usable rows) and ``parameters`` (of distinct documentations).
    A row that was merged into another one counts as a record, with a note saying how many.

    Raises:
        AdapterError: if the root, the tool folder or all query files are missing, if a query file is cut or no JSON
            array, and, under ``strict``, at the first row that cannot become a record.
    """
    options = options or Options()
    base = dataset_folder(root, DATASET)
    tally = Tally(strict=strict)
    tally.open(sections=_SECTIONS, notes=_NOTES)
    reader = _Reader(base, Catalog(DATASET, template=options.template), tally)
    for path in _tool_files(base):
        reader.read_tool(path)
    reader.settle_aliases()
    for path in _query_files(base, options=options):
        for row, value in enumerate(stream_array(path)):
            reader.read_row(value, where=f"{_relative(path, base)}#{row}")
    tally.log()
    return reader.records()


def inputs(root: Path, *, options: Options | None = None) -> list[Path]:
    """Return the files ``read`` opens, in reading order; their bytes identify the records.

    Raises:
        AdapterError: as ``read`` for missing folders.
    """
    base = dataset_folder(root, DATASET)
    files = [*_tool_files(base), *_query_files(base, options=options or Options())]
    return [found for path in files if (found := existing(path)) is not None]


# ------------------------------------------------------------------------------------------------ folders and files


def _tool_files(base: Path) -> list[Path]:
    """Logical (``.gz``-free) paths of all tool files, sorted, one named just ``.json`` included."""
    tools = base / _TOOLS
    if not tools.is_dir():
        raise AdapterError(f"{tools}: no such folder, so there is no tool library. {source_of(DATASET).hint()}")
    found = [
        category / name
        for category in sorted(entry for entry in tools.iterdir() if entry.is_dir() and not entry.name.startswith("."))
        for name in _json_names(category)
    ]
    if not found:
        raise AdapterError(f"{tools}: holds no <Category>/<tool>.json file. {source_of(DATASET).hint()}")
    return found


def _query_files(base: Path, *, options: Options) -> list[Path]:
    found = [base / folder / name for folder in sorted(options.queries) for name in _json_names(base / folder)]
    if not found:
        folders = ", ".join(str(base / folder) for folder in sorted(options.queries))
        raise AdapterError(f"no query file (*.json or *.json.gz) in any of: {folders}. {source_of(DATASET).hint()}")
    return found


def _json_names(folder: Path) -> list[str]:
    if not folder.is_dir():
        return []
    with os.scandir(folder) as entries:
        names = {plain_name(entry.name) for entry in entries if entry.is_file()}
    return sorted(name for name in names if name.endswith(".json"))


def _relative(path: Path, base: Path) -> str:
    return f"{DATASET}/{path.relative_to(base).as_posix()}"


# ---------------------------------------------------------------------------------------------------------- reader


@dataclass(frozen=True, slots=True)
class _Listed:
    """One entry of a row's ``api_list``, resolved to ids."""

    tool: str
    api: str
    capability_id: str
    endpoint_id: str


class _Row(NamedTuple):
    """What a usable query row says of its task; ids are sorted."""

    text: str
    source: str
    gold: Sequence[str]
    given: Sequence[str]


class _Reader:
    """Everything one pass accumulates. Memory grows with distinct tools and endpoints; query rows lie on disk."""

    def __init__(self, base: Path, catalog: Catalog, tally: Tally) -> None:
        self.base = base
        self.catalog = catalog
        self.tally = tally
        self._stems: set[str] = set()
        self._aliases: dict[str, set[str]] = {}
        self._seen_docs: set[bytes] = set()
        self._keys: dict[tuple[str, str], str] = {}
        self._api_names: dict[str, str] = {}
        self._categories: dict[str, str] = {}
        self._capability_of: dict[str, str] = {}
        self._rows = Spool()

    # -- tool library

    def read_tool(self, path: Path) -> None:
        """Add one tool file, or count why it cannot be read."""
        where = _relative(path, self.base)
        try:
            tool = as_object(read_json(path))
            name = required_name(tool, "tool_name")
            apis = required(tool, "api_list", list)
        except BadRow as reason:
            self.tally.drop("tool_files", str(reason), where=where)
            return
        except READ_ERRORS as error:
            self.tally.drop("tool_files", describe_failure(error), where=where)
            return
        category = standardize_category(scrubbed(path.parent.name))
        stem = scrubbed(path.name.removesuffix(".json"))
        capability_id = f"{DATASET}/{category}/{stem or local_name(name)}"
        self._stems.add(capability_id)
        for key in (local_name(name), local_name(stem)) if stem else ():
            self._aliases.setdefault(f"{DATASET}/{category}/{key}", set()).add(capability_id)
        description = text_of(tool.get("tool_description"))
        self.tally.keep("tool_files")
        if not self.catalog.add_capability(
            capability_id, name=clean(name), description=description, domain=category, origin="library"
        ):
            self.tally.note("merged_tool_files")
        for position, value in enumerate(apis):
            self._read_api(value, capability_id, where=f"{where}#{position}")

    def _read_api(self, value: object, capability_id: str, *, where: str) -> None:
        try:
            api = as_object(value)
            name = required_name(api, "name")
        except BadRow as reason:
            self.tally.drop("apis", str(reason), where=where)
            return
        self.tally.keep("apis")
        doc = self._doc(name, api, description=api.get("description"), where=where)
        if not self._add_endpoint(capability_id, name, doc, origin="library"):
            self.tally.note("merged_duplicate_apis")

    def settle_aliases(self) -> None:
        """Turn uncontested aliases into keys; call once, after the last tool file and before the first query row."""
        for alias, owners in sorted(self._aliases.items()):
            if alias in self._stems:
                continue
            if len(owners) > 1:
                self.tally.note("contested_aliases")
                continue
            self._capability_of[alias] = next(iter(owners))
        self._aliases.clear()

    # -- documentation

    def _doc(self, name: str, api: Mapping[str, Any], *, description: object, where: str) -> EndpointDoc:
        return EndpointDoc(
            operation=clean(name),
            description=text_of(description),
            method=text_of(api.get("method")).upper(),
            arguments=(
                *named_arguments(api.get("required_parameters"), self.tally, required=True, where=where),
                *named_arguments(api.get("optional_parameters"), self.tally, required=False, where=where),
            ),
        )

    def _add_endpoint(self, capability_id: str, name: str, doc: EndpointDoc, *, origin: Origin) -> bool:
        return self.catalog.add_endpoint(self._endpoint_id(capability_id, name), capability_id, doc=doc, origin=origin)

    def _endpoint_id(self, capability_id: str, name: str) -> str:
        key = self._api_names.get(name)
        if key is None:
            key = self._api_names[name] = local_name(name)
        return f"{capability_id}/{key}"

    def _capability_id(self, category: str, tool: str) -> str:
        pair = (category, tool)
        found = self._keys.get(pair)
        if found is None:
            folder = self._categories.setdefault(category, standardize_category(category) or local_name(category))
            key = f"{DATASET}/{folder}/{local_name(tool)}"
            found = self._keys[pair] = self._capability_of.get(key, key)
            if found != key:
                self.tally.note("tools_matched_by_alias")
        return found

    # -- query rows

    def read_row(self, value: object, *, where: str) -> None:
        """Turn one query row into a task, unite it with the task of the same text, or count why it is dropped."""
        try:
            row = as_object(value)
            text = scrubbed(required(row, "query", str)).strip()
            api_list = required(row, "api_list", list)
            relevant = required(row, "relevant APIs", list)
        except BadRow as reason:
            self.tally.drop("queries", str(reason), where=where)
            return
        listed = self._read_api_list(api_list, where=where)
        if not text:
            self.tally.drop("queries", "empty_query", where=where)
            return
        gold = self._gold(relevant, listed, where=where)
        if not gold:
            self.tally.drop("queries", "no_known_gold", where=where)
            return
        self.tally.keep("queries")
        given = {entry.capability_id for entry in listed}
        self._rows.add(_task_id(text), _Row(text, where, sorted(gold), sorted(given)))

    def _read_api_list(self, values: Sequence[object], *, where: str) -> list[_Listed]:
        listed: list[_Listed] = []
        for value in values:
            try:
                entry = as_object(value)
                category = required_name(entry, "category_name")
                tool = required_name(entry, "tool_name")
                api = required_name(entry, "api_name")
            except BadRow as reason:
                self.tally.drop("task_docs", str(reason), where=where)
                continue
            self.tally.keep("task_docs")
            capability_id = self._capability_id(category, tool)
            endpoint_id = self._endpoint_id(capability_id, api)
            listed.append(_Listed(tool, api, capability_id, endpoint_id))
            self._document(entry, listed[-1], where=where)
        return listed

    def _document(self, entry: Mapping[str, Any], listed: _Listed, *, where: str) -> None:
        fields = [entry.get(k) for k in ("api_description", "method", "required_parameters", "optional_parameters")]
        digest = hashlib.blake2b(repr((listed.endpoint_id, fields)).encode("utf-8", "replace"), digest_size=16).digest()
        if digest in self._seen_docs:
            return
        self._seen_docs.add(digest)
        domain = listed.capability_id.split("/")[1]
        if self.catalog.add_capability(listed.capability_id, name=clean(listed.tool), domain=domain, origin="task"):
            self.tally.note("recreated_tools")
        doc = self._doc(listed.api, entry, description=entry.get("api_description"), where=where)
        before = self.catalog.arguments_added
        if self._add_endpoint(listed.capability_id, listed.api, doc, origin="task"):
            self.tally.note("endpoints_from_task_docs")
        self.tally.note("arguments_added_by_task_docs", self.catalog.arguments_added - before)

    def _gold(self, relevant: Sequence[object], listed: Sequence[_Listed], *, where: str) -> set[str]:
        """Resolve ``relevant APIs`` inside the row's own list, which alone tells the category."""
        gold: set[str] = set()
        for pair in relevant:
            if not isinstance(pair, list) or len(pair) != 2 or not all(isinstance(part, str) for part in pair):
                self.tally.drop("gold_pairs", "malformed_gold_pair", where=where)
                continue
            tool, api = (scrubbed(part) for part in pair)
            matches = _matches(tool, api, listed)
            if not matches:
                self.tally.drop("gold_pairs", "unknown_gold_pair", where=f"{where} [{tool!r}, {api!r}]")
                continue
            self.tally.keep("gold_pairs")
            if len(set(matches)) > 1:
                self.tally.note("ambiguous_gold")
            if matches[0] in gold:
                self.tally.note("repeated_gold_pairs")
            gold.add(matches[0])
        return gold

    # -- result

    def records(self) -> Records:
        """Freeze what was read."""
        library = self.catalog.library()
        tasks = spilled(self._tasks())
        report = report_of(self.tally, library, tasks)
        return Records(dataset=DATASET, library=library, tasks=tasks, report=report)

    def _tasks(self) -> Iterator[Task]:
        """Tasks by id; rows of one text make one."""
        capabilities: set[str] = set()
        for task_id, rows in self._rows.groups():
            united: dict[str, list[_Row]] = {}  # two texts of one id are two tasks, which the records refuse
            for row in map(_Row._make, rows):
                united.setdefault(row.text, []).append(row)
            for same in united.values():
                self._note_merges(same)
                task = _task(task_id, same)
                capabilities.update(task.gold_capability_ids)
                self.tally.note("gold_capability_pairs", len(task.gold_capability_ids))
                yield task
        self._rows.close()
        self.tally.note("gold_capabilities", len(capabilities))

    def _note_merges(self, rows: Sequence[_Row]) -> None:
        gold = set(rows[0].gold)
        for row in rows[1:]:
            self.tally.note("merged_duplicate_text")
            self.tally.note("merged_text_with_other_gold", int(not gold.issuperset(row.gold)))
            gold.update(row.gold)


def _matches(tool: str, api: str, listed: Sequence[_Listed]) -> list[str]:
    """Endpoint ids in list order: of native names, and only without any of these, of standardised ones."""
    exact = [entry.endpoint_id for entry in listed if entry.tool == tool and entry.api == api]
    if exact:
        return exact
    key = (standardize(tool), standardize(api))
    if not all(key):
        return []
    return [entry.endpoint_id for entry in listed if (standardize(entry.tool), standardize(entry.api)) == key]


def _task_id(text: str) -> str:
    return f"{DATASET}/{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def _task(task_id: str, rows: Sequence[_Row]) -> Task:
    """The task of all rows with one text, in reading order."""
    gold = tuple(sorted({endpoint for row in rows for endpoint in row.gold}))
    domains = Counter(endpoint.split("/")[1] for endpoint in gold)
    most = max(domains.values())
    return Task(
        task_id=task_id,
        dataset=DATASET,
        domain=min(domain for domain, count in domains.items() if count == most),
        text=rows[0].text,
        gold_capability_ids=tuple(sorted({endpoint.rpartition("/")[0] for endpoint in gold})),
        gold_endpoint_ids=gold,
        given_candidate_ids=tuple(sorted({given for row in rows for given in row.given})),
        split="+".join(sorted({_file(row.source) for row in rows})),
        source=rows[0].source,
    )


def _file(source: str) -> str:
    return source.partition("#")[0].removeprefix(f"{DATASET}/").removesuffix(".json")

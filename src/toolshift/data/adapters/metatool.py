"""MetaTool, also called ToolE (Huang et al., 2023), in its upstream ``dataset/`` folder.

- A tool is a capability with one endpoint. The library is ``plugin_des.json`` (name -> one sentence); the release
  documents no arguments. Gold names tools exactly as this file spells them.
- ``plugin_info.json`` is not read: it describes the plugins *before* upstream merged the alike ones, so that its other
  entries are second copies of a gold tool (a negative that is right), and it is silent about the merged tools.
  ``big_tool_des.json`` repeats entries of ``plugin_des.json``.
- Queries: ``data/all_clean_data.csv`` (one tool), ``data/multi_tool_query_golden.json`` (two, unordered), and the
  positive rows of ``tmp_dataset/Task1.json``. Equal texts are one task with united gold. ``Task2-Subtask4.json``
  repeats the second file and shows ten candidates for each query.
- No tool applies, by design, to the negative rows of ``Task1.json`` and to ``Task2-Subtask3.json`` (the tool it names
  is left out of the ten shown). These tasks go to ``Records.apart``. The same text may be an ordinary task as well:
  among all tools one applies. Their ids end in the file's name, so that the two never meet.
- The CSV was decoded wrongly before it was released: some queries hold mojibake, one has swallowed a second query. They
  stay as they are (what was lost cannot be restored) and are counted.
- There are no domains. The scenario files list ten or so tools for each of a few occupations, overlap, and leave most
  tools and queries without any; a leave-one-domain-out over them would measure an artefact of that choice.
"""

from __future__ import annotations

import csv
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolshift.data.catalog import Catalog, EndpointDoc
from toolshift.data.errors import AdapterError
from toolshift.data.files import READ_ERRORS, describe_failure, existing, open_text, stream_array
from toolshift.data.names import local_name
from toolshift.data.records import Records, Task
from toolshift.data.rendering import NAME_DESCRIPTION, TEMPLATES, clean
from toolshift.data.rows import BadRow, as_object, dataset_folder, report_of, required, scrubbed, text_of
from toolshift.data.sources import source_of
from toolshift.data.tally import Tally

DATASET = "metatool"
LIBRARY = "dataset/plugin_des.json"
SINGLE = "dataset/data/all_clean_data.csv"
MULTI = "dataset/data/multi_tool_query_golden.json"
TASK1 = "dataset/tmp_dataset/Task1.json"
SUBTASK3 = "dataset/tmp_dataset/Task2-Subtask3.json"
SUBTASK4 = "dataset/tmp_dataset/Task2-Subtask4.json"
_NEEDED = (LIBRARY, SINGLE, MULTI)
_OPTIONAL = (TASK1, SUBTASK3, SUBTASK4)

_SECTIONS = (
    "candidates",
    "gold_names",
    "multi_queries",
    "single_queries",
    "subtask3_queries",
    "subtask4_queries",
    "task1_queries",
    "tools",
)
_NOTES = (
    "merged_duplicate_apart",
    "merged_duplicate_text",
    "merged_text_with_other_gold",
    "merged_tool_names",
    "queries_that_name_their_tool",
    "queries_with_mojibake",
    "queries_with_newline",
    "repeated_gold_names",
    "texts_in_both_tasks_and_apart",
    "tools_without_description",
)
_HEADER = ["Query", "Tool"]
_LIST = re.compile(
    r"\[List of Tools with Names and Descriptions Start\](.*)\[List of Tools with Names and Descriptions End\]", re.S
)
_SHOWN = re.compile(r"^\d+\. tool name: (.*?), tool description:", re.M)
_FOREIGN = re.compile(r"[^\x00-\x7f]+")
_UTF8_START = re.compile(rb"[\xc2-\xf4][\x80-\xbf]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What may vary in reading MetaTool: ``template`` is the capability rendering (``toolshift.data.rendering``)."""

    template: str = NAME_DESCRIPTION

    def __post_init__(self) -> None:
        if self.template not in TEMPLATES:
            raise AdapterError(f"template={self.template!r} is unknown; expected one of {', '.join(TEMPLATES)}")


def read(root: Path, *, options: Options | None = None, strict: bool = False) -> Records:
    """Read the library and all queries below ``<root>/metatool``.

    Sections of the report: ``tools``, one per query file, ``gold_names`` (tools that usable query rows name) and
    ``candidates`` (tools that prompts show). A row that was merged into another one counts as a record, with a note
    saying how many.

    Raises:
        AdapterError: if the folder, the library, the CSV or the two-tool queries are missing, if a file is cut or has
            another layout, and, under ``strict``, at the first row that cannot become a record.
    """
    options = options or Options()
    base = dataset_folder(root, DATASET)
    files = _files(base)
    tally = Tally(strict=strict)
    tally.open(sections=_SECTIONS, notes=_NOTES)
    reader = _Reader(Catalog(DATASET, template=options.template), tally)
    for row, (name, description) in enumerate(_members(files[LIBRARY])):
        reader.read_tool(name, description, where=_where(LIBRARY, row))
    for row, cells in enumerate(_csv_rows(files[SINGLE])):
        reader.read_single(cells, where=_where(SINGLE, row))
    readers = {
        MULTI: reader.read_multi,
        TASK1: reader.read_task1,
        SUBTASK3: reader.read_subtask3,
        SUBTASK4: reader.read_subtask4,
    }
    for name, read_row in readers.items():
        for row, value in enumerate(stream_array(files[name]) if name in files else ()):
            read_row(value, where=_where(name, row))
    tally.log()
    return reader.records()


def inputs(root: Path, *, options: Options | None = None) -> list[Path]:
    """Return the files ``read`` opens, in reading order; their bytes identify the records.

    Raises:
        AdapterError: as ``read`` for missing files.
    """
    del options  # no option changes what is read
    return list(_files(dataset_folder(root, DATASET)).values())


# ------------------------------------------------------------------------------------------------ folders and files


def _files(base: Path) -> dict[str, Path]:
    """Upstream name -> the file that is there (``.gz`` or not), in reading order."""
    found: dict[str, Path] = {}
    for name in (*_NEEDED, *_OPTIONAL):
        path = existing(base / name)
        if path is not None:
            found[name] = path
        elif (base / name).exists():
            raise AdapterError(f"{base / name}: is a folder, not a file. {source_of(DATASET).hint()}")
        elif name in _NEEDED:
            raise AdapterError(f"{base / name}: no such file (nor its .gz beside it). {source_of(DATASET).hint()}")
    return found


def _where(name: str, row: int) -> str:
    return f"{DATASET}/{name}#{row}"


def _members(path: Path) -> list[tuple[str, Any]]:
    """Name and value of every member of a JSON object; a name that is there twice comes twice."""
    try:
        with open_text(path) as handle:
            members = json.load(handle, object_pairs_hook=_Members)
    except READ_ERRORS as error:
        raise AdapterError(f"{path}: {describe_failure(error)} ({error}). Expected one JSON object in UTF-8") from error
    if not isinstance(members, _Members):
        raise AdapterError(f"{path}: expected one JSON object of tool name -> description")
    return list(members)


class _Members(list[tuple[str, Any]]):
    """A JSON object as the list of its members."""


def _csv_rows(path: Path) -> Iterator[list[str]]:
    """Yield the rows below the header; a quoted query may hold newlines.

    Raises:
        AdapterError: if the header is another one, or the file is not UTF-8 or cut; how many rows an open quote
            swallowed cannot be counted.
    """
    line = 0
    try:
        with open_text(path) as handle:
            rows = csv.reader(handle, strict=True)
            header = next(rows, [])
            if header != _HEADER:
                raise AdapterError(f"{path}: the header is {header[:5]}, expected {_HEADER}")
            for cells in rows:
                line = rows.line_num
                if cells:  # a blank line is no row
                    yield cells
    except (csv.Error, *READ_ERRORS) as error:
        raise AdapterError(
            f"{path}: cannot be read beyond line {line} ({error}). Expected a CSV of {', '.join(_HEADER)} in UTF-8; "
            "fetch the file again and compare its size with the source."
        ) from error


# ---------------------------------------------------------------------------------------------------------- reader


@dataclass(slots=True)
class _TaskDraft:
    text: str
    source: str
    gold: frozenset[str]
    given: frozenset[str]
    files: frozenset[str]


class _Reader:
    """Everything one pass accumulates."""

    def __init__(self, catalog: Catalog, tally: Tally) -> None:
        self.catalog = catalog
        self.tally = tally
        self._ids: dict[str, str] = {}
        self._drafts: dict[str, _TaskDraft] = {}
        self._apart: dict[tuple[str, str], _TaskDraft] = {}

    # -- tool library

    def read_tool(self, name: str, value: object, *, where: str) -> None:
        """Add one member of the library, or count why it is no tool."""
        name = scrubbed(name)
        if not name.strip():
            self.tally.drop("tools", "empty_name", where=where)
            return
        if not isinstance(value, str):
            self.tally.drop("tools", "wrong_type_of_description", where=where)
            return
        self.tally.keep("tools")
        description = text_of(value)
        if not description:
            self.tally.note("tools_without_description")
        capability_id = self._ids[name] = f"{DATASET}/{local_name(name)}"
        if not self.catalog.add_capability(capability_id, name=clean(name), description=description, origin="library"):
            self.tally.note("merged_tool_names")
        doc = EndpointDoc(operation=clean(name), description=description)
        self.catalog.add_endpoint(_endpoint_id(capability_id), capability_id, doc=doc, origin="library")

    # -- query rows

    def read_single(self, cells: list[str], *, where: str) -> None:
        """One row of the CSV: a query and the name of its tool."""
        if len(cells) != len(_HEADER):
            self.tally.drop("single_queries", "wrong_number_of_columns", where=where)
            return
        row = dict(zip(("query", "tool"), cells, strict=True))
        if self._read_gold_row(row, "single_queries", where=where):
            self._describe(*cells)

    def read_multi(self, value: object, *, where: str) -> None:
        """One two-tool query."""
        self._read_gold_row(value, "multi_queries", where=where)

    def read_subtask4(self, value: object, *, where: str) -> None:
        """One two-tool query with the ten tools its prompt shows."""
        self._read_gold_row(value, "subtask4_queries", where=where, shown=True)

    def read_task1(self, value: object, *, where: str) -> None:
        """A positive row is a query with its tool; a negative one needs no tool."""
        section = "task1_queries"
        label = value.get("label") if isinstance(value, dict) else "positive"
        if label == "positive":
            self._read_gold_row(value, section, where=where)
        elif label == "negative":
            self._read_apart_row(value, section, where=where, shown=False)
        else:
            self.tally.drop(section, "unknown_label", where=where)

    def read_subtask3(self, value: object, *, where: str) -> None:
        """One query with ten tools of which none applies."""
        self._read_apart_row(value, "subtask3_queries", where=where, shown=True)

    def _read_gold_row(self, value: object, section: str, *, where: str, shown: bool = False) -> bool:
        """Add a task, or unite it with the task of the same text; False where the row is dropped."""
        try:
            row = as_object(value)
            text = _query(row)
            names = required(row, "tool", (str, list))
            listed = _shown(row) if shown else []
        except BadRow as reason:
            self.tally.drop(section, str(reason), where=where)
            return False
        gold = self._gold(names if isinstance(names, list) else [names], where=where)
        if not gold:
            self.tally.drop(section, "no_known_gold", where=where)
            return False
        self.tally.keep(section)
        draft = _TaskDraft(text, where, gold, self._given(listed, where=where), frozenset({_split(where)}))
        self._unite(draft)
        return True

    def _read_apart_row(self, value: object, section: str, *, where: str, shown: bool) -> None:
        try:
            row = as_object(value)
            text = _query(row)
            listed = _shown(row) if shown else []
        except BadRow as reason:
            self.tally.drop(section, str(reason), where=where)
            return
        self.tally.keep(section)
        split = _split(where)
        given = self._given(listed, where=where)
        draft = self._apart.setdefault((text, split), _TaskDraft(text, where, frozenset(), given, frozenset({split})))
        if draft.source != where:
            self.tally.note("merged_duplicate_apart")
            draft.given |= given

    def _gold(self, names: Iterable[object], *, where: str) -> frozenset[str]:
        gold: set[str] = set()
        for name in names:
            found = self._known(name, section="gold_names", where=where)
            if found in gold:
                self.tally.note("repeated_gold_names")
            gold |= {found} if found else set()
        return frozenset(gold)

    def _given(self, names: Iterable[object], *, where: str) -> frozenset[str]:
        return frozenset(found for name in names if (found := self._known(name, section="candidates", where=where)))

    def _known(self, name: object, *, section: str, where: str) -> str:
        """The capability of a name, or "" for one the library lacks; both are counted."""
        found = self._ids.get(scrubbed(name), "") if isinstance(name, str) else ""
        if found:
            self.tally.keep(section)
        else:
            self.tally.drop(section, "unknown_tool", where=f"{where} [{name!r}]")
        return found

    def _unite(self, draft: _TaskDraft) -> None:
        known = self._drafts.setdefault(draft.text, draft)
        if known is draft:
            return
        self.tally.note("merged_duplicate_text")
        if not draft.gold <= known.gold:
            self.tally.note("merged_text_with_other_gold")
        known.gold |= draft.gold
        known.given |= draft.given
        known.files |= draft.files

    def _describe(self, query: str, tool: str) -> None:
        """Count what the release is known for in queries of the CSV; nothing is changed."""
        self.tally.note("queries_that_name_their_tool", int(tool.lower() in query.lower()))
        self.tally.note("queries_with_mojibake", int(_has_mojibake(query)))
        self.tally.note("queries_with_newline", int("\n" in query))

    # -- result

    def records(self) -> Records:
        """Freeze what was read."""
        library = self.catalog.library()
        tasks = _sorted(_task(draft) for draft in self._drafts.values())
        apart = _sorted(_task(draft) for draft in self._apart.values())
        self.tally.note("texts_in_both_tasks_and_apart", sum(text in self._drafts for text, _ in self._apart))
        self.tally.note("gold_capabilities", len({c for t in tasks for c in t.gold_capability_ids}))
        self.tally.note("tasks_with_several_gold", sum(len(t.gold_capability_ids) > 1 for t in tasks))
        report = report_of(self.tally, library, tasks, apart=apart)
        return Records(dataset=DATASET, library=library, tasks=tasks, report=report, apart=apart)


def _query(row: Mapping[str, Any]) -> str:
    text = scrubbed(required(row, "query", str)).strip()
    if not text:
        raise BadRow("empty_query")
    return text


def _shown(row: Mapping[str, Any]) -> list[str]:
    """The names of the tools that a prompt lists, in its order."""
    found = _LIST.search(required(row, "action_prompt", str))
    names = _SHOWN.findall(found[1]) if found else []
    if not names:
        raise BadRow("no_tool_list")
    return names


def _split(where: str) -> str:
    return Path(where.partition("#")[0]).stem


def _endpoint_id(capability_id: str) -> str:
    return f"{capability_id}/{capability_id.rpartition('/')[2]}"


def _has_mojibake(text: str) -> bool:
    """Whether a run of non-ASCII characters is UTF-8 that was read as GBK: its GBK bytes begin as UTF-8 does.

    Real Chinese, Japanese, Cyrillic and accented Latin hardly ever do: the second byte of a common GBK character is
    above the range of UTF-8's continuation bytes, or its first byte below that of UTF-8's first ones.
    """
    runs = () if text.isascii() else _FOREIGN.findall(text)
    return any(_UTF8_START.match(run.encode("gb18030", "replace")) for run in runs)


def _sorted(tasks: Iterable[Task]) -> tuple[Task, ...]:
    return tuple(sorted(tasks, key=lambda task: task.task_id))


def _task(draft: _TaskDraft) -> Task:
    digest = hashlib.sha256(draft.text.encode()).hexdigest()[:16]
    split = "+".join(sorted(draft.files))
    return Task(
        task_id=f"{DATASET}/{digest}" if draft.gold else f"{DATASET}/{digest}-{split}",
        dataset=DATASET,
        domain="",
        text=draft.text,
        gold_capability_ids=tuple(sorted(draft.gold)),
        gold_endpoint_ids=tuple(sorted(map(_endpoint_id, draft.gold))),
        given_candidate_ids=tuple(sorted(draft.given)),
        split=split,
        source=draft.source,
        no_gold="" if draft.gold else "irrelevance",
    )

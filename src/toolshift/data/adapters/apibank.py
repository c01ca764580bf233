"""API-Bank (Li et al., 2023), levels 1 to 3: API classes as capabilities, each with one endpoint.

- Tasks. A row of level 1 and 2 asks for the next call of a dialogue. Its text is what the user and the assistant have
  said until then, one utterance per line, without the calls, whose names would give away the tools in use. The
  assistant's lines stay because they tell which wishes are met; some name the next tool (``utterances: user`` leaves
  them out). Rows between which nobody speaks have one text and are united. The dialogue files hold the same steps and
  unite with the rows; where a checkout has only them, they stand in. Level 3 and its training part are one task per
  request, with ordered ``calls``. The stamp "TIME: ..." behind a training request is the prompt's, not the user's, and
  is removed (counted).
- ``ToolSearcher``, the search over the tools, is no gold and no candidate. Its steps unite with the call that follows
  in the same text; a text where it is the only call is kept apart (``not_annotated``).
- Two libraries. Levels 1 and 2 use the classes of ``apis/``, level 3 those of ``lv3_apis/``. A class name of both is
  one tool where the parameter names agree, else two: the one of level 3 has the id ``<name>-lv3``.
- Who documents a tool: the classes of a checkout (``apis/``, ``lv3_apis/`` beside ``data/``; parsed, never imported),
  else the prompts and search results in two vocabularies, else ``data/all_apis.csv``. The table is an earlier design
  with other parameters; where a better source documents the tool, it only gives the scenario.
- Domains are the scenarios of the table (its third column), in English, found by class name. Tools and tasks of level 3
  that the table does not know have none, so that no domain protocol uses them.
- Not read: the response files (no call is asked for), ``level-3-batch-inf*`` (the steps of the plans in
  ``level-3.json``), ``lv3-train`` (its calls are in ``lv3-api-train``), ``lv3-samples`` (scene notes, not requests).
"""

from __future__ import annotations

import csv
import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from toolshift.data.adapters._apibank_text import (
    ToolDoc,
    assigned,
    called_name,
    described_in,
    documented_classes,
    found_tools,
    literal,
    result_of,
    tool_doc,
    turns_of,
)
from toolshift.data.catalog import Catalog, EndpointDoc, Origin
from toolshift.data.errors import AdapterError
from toolshift.data.files import existing, open_text, plain_name, stream_array
from toolshift.data.lines import read_lines
from toolshift.data.names import local_name
from toolshift.data.records import Argument, Records, Task
from toolshift.data.rendering import NAME_DESCRIPTION, TEMPLATES, clean
from toolshift.data.rows import BadRow, as_object, dataset_folder, report_of, required, required_name, scrubbed
from toolshift.data.sources import source_of
from toolshift.data.tally import Tally
from toolshift.data.types import coarse_type

DATASET = "apibank"
SEARCH = "ToolSearcher"
FILES: Mapping[str, str] = {
    "level-1": "test-data/level-1-api.json",
    "level-2": "test-data/level-2-api.json",
    "level-3": "test-data/level-3.json",
    "level-3-train": "training-data/lv3-api-train.json",
}
DIALOGUES: Mapping[str, str] = {
    "dialogues-1": "lv1-lv2-samples/level-1-given-desc",
    "dialogues-2": "lv1-lv2-samples/level-2-toolsearcher",
}
PARTS = (*FILES, *DIALOGUES)
TABLE = "data/all_apis.csv"
CODE: Mapping[str, Literal["lv12", "lv3"]] = {"apis": "lv12", "lv3_apis": "lv3"}

SCENARIOS: Mapping[str, str] = {
    "信息查询和处理": "Information",
    "娱乐消遣": "Entertainment",
    "学习科研相关": "Study",
    "工作相关": "Work",
    "旅游出行": "Travel",
    "日程安排和管理": "Schedule",
    "智能家居控制": "SmartHome",
    "健康管理": "Health",
    "财务管理": "Finance",
    "账户管理": "Account",
    "钉钉": "DingTalk",
}
"""Scenario of the table -> domain; another scenario keeps its own name."""

_SCENARIO, _CLASS, _INFO = "应用场景", "类名", "api_info"
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_TIME = re.compile(r"\s*TIME:[^\n]*\Z")
_SECTIONS = ("code_classes", "code_files", "dialogue_turns", "docs", "gold_calls", "rows", "table_rows")
_NOTES = (
    "dialogues_without_call",
    "docs_superseded",
    "empty_dialogues",
    "merged_duplicate_text",
    "merged_text_with_other_gold",
    "names_with_two_libraries",
    "names_with_several_signatures",
    "requests_with_several_plans",
    "table_rows_without_documentation",
    "tasks_with_tool_search_only",
    "time_stamps_removed",
    "tool_search_calls",
    "tools_without_documentation",
    "tools_without_scenario",
)

Shelf = Literal["lv12", "lv3"]
ToolKey = tuple[Shelf, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What may vary in reading API-Bank; part of every record fingerprint.

    ``template`` is the capability rendering (``toolshift.data.rendering``). ``parts`` are the parts to read; absent
    ones are skipped as long as one is left. ``utterances``: whose lines of a dialogue make a text, ``all`` or ``user``.
    """

    template: str = NAME_DESCRIPTION
    parts: tuple[str, ...] = PARTS
    utterances: str = "all"

    def __post_init__(self) -> None:
        if self.template not in TEMPLATES:
            raise AdapterError(f"template={self.template!r} is unknown; expected one of {', '.join(TEMPLATES)}")
        if self.utterances not in ("all", "user"):
            raise AdapterError(f"utterances={self.utterances!r}: expected all or user")
        if not self.parts or set(self.parts) - set(PARTS):
            raise AdapterError(f"parts={self.parts!r}: expected some of {', '.join(PARTS)}")


def read(root: Path, *, options: Options | None = None, strict: bool = False) -> Records:
    """Read the parts of API-Bank below ``<root>/apibank``.

    Sections of the report: ``rows`` (of the JSON parts), ``dialogue_turns`` (lines of the dialogue files),
    ``gold_calls``, ``docs`` (documentations in prompts and search results), ``table_rows``, ``code_files`` and
    ``code_classes`` (of a checkout; a file need not hold an API class).

    Raises:
        AdapterError: for a missing folder or table, no part at all, a file that cannot be read to its end, and under
            ``strict`` for the first row that would be dropped.
    """
    options = options or Options()
    base = dataset_folder(root, DATASET)
    parts = _parts(base, options)
    tally = Tally(strict=strict)
    tally.open(sections=_SECTIONS, notes=_NOTES)
    reader = _Reader(base, tally, user_only=options.utterances == "user")
    for path in _code_files(base):
        reader.read_code(path)
    reader.read_table(_table(base))
    for part in parts:
        reader.read_part(part)
    tally.log()
    return reader.records(Catalog(DATASET, template=options.template))


def inputs(root: Path, *, options: Options | None = None) -> list[Path]:
    """Return the files ``read`` opens, in reading order; their bytes identify the records.

    Raises:
        AdapterError: as ``read`` for missing folders and files.
    """
    base = dataset_folder(root, DATASET)
    files = [*_code_files(base), _table(base)]
    for part in _parts(base, options or Options()):
        files += [base / FILES[part]] if part in FILES else _dialogues(base / DIALOGUES[part])
    return [found for path in files if (found := existing(path)) is not None]


def _parts(base: Path, options: Options) -> list[str]:
    found = [
        part
        for part in PARTS
        if part in options.parts
        and (_is_file(base / FILES[part]) if part in FILES else _dialogues(base / DIALOGUES[part]))
    ]
    if not found:
        wanted = ", ".join({**FILES, **DIALOGUES}[part] for part in PARTS if part in options.parts)
        raise AdapterError(f"{base}: none of {wanted} is there. {source_of(DATASET).hint()}")
    return found


def _is_file(path: Path) -> bool:
    if path.is_dir():
        raise AdapterError(f"{path}: is a folder, not a file. {source_of(DATASET).hint()}")
    return existing(path) is not None


def _table(base: Path) -> Path:
    path = base / TABLE
    if not _is_file(path):
        raise AdapterError(f"{path}: no such file, so no tool has a scenario. {source_of(DATASET).hint()}")
    return path


def _dialogues(folder: Path) -> list[Path]:
    return _files(folder, ".jsonl")


def _code_files(base: Path) -> list[Path]:
    return [path for folder in CODE for path in _files(base / folder, ".py")]


def _files(folder: Path, suffix: str) -> list[Path]:
    """Logical (``.gz``-free) paths of the files of a folder, sorted; none where there is no folder."""
    entries = sorted(folder.iterdir()) if folder.is_dir() else []
    names = {plain_name(entry.name) for entry in entries if _is_file(entry)} if entries else set()
    return [folder / name for name in sorted(names) if name.endswith(suffix)]


# ---------------------------------------------------------------------------------------------------------- library

_RANKS = ("code", "prompt", "table")
Rank = Literal["code", "prompt", "table"]


@dataclass(slots=True)
class _Shelf:
    """Documentations of one tool by source, in reading order and without repetition."""

    by_rank: dict[Rank, dict[ToolDoc, None]] = field(default_factory=dict)

    def add(self, doc: ToolDoc, rank: Rank) -> None:
        self.by_rank.setdefault(rank, {}).setdefault(doc)

    @property
    def docs(self) -> list[tuple[Rank, ToolDoc]]:
        return [(rank, doc) for rank in _RANKS for doc in self.by_rank.get(rank, ())]

    @property
    def best(self) -> Rank | None:
        return next(
            (rank for rank in _RANKS if any(d.parameters is not None for d in self.by_rank.get(rank, ()))), None
        )

    def signatures(self) -> set[frozenset[str]]:
        """Sets of parameter names in the best source."""
        docs = self.by_rank.get(self.best, {}) if self.best else {}
        return {frozenset(name for name, _, _ in d.parameters) for d in docs if d.parameters is not None}

    def parameter_names(self) -> frozenset[str]:
        """All parameter names of the best source."""
        return frozenset().union(*self.signatures())


class _Library:
    """All documentations; ``build`` decides which name is one tool and which is two, and fills a catalogue."""

    def __init__(self, tally: Tally) -> None:
        self.tally = tally
        self.scenarios: dict[str, str] = {}
        self._shelves: dict[ToolKey, _Shelf] = {}
        self._ids: dict[ToolKey, str] = {}

    def add(self, key: ToolKey, doc: ToolDoc | None, rank: Rank) -> None:
        """Add a documentation, or with None only the name; the tool search is no tool."""
        if key[1] == SEARCH:
            return
        shelf = self._shelves.setdefault(key, _Shelf())
        if doc is not None:
            shelf.add(doc, rank)

    def domain(self, key: ToolKey) -> str:
        """The scenario of a tool, or ""."""
        return self.scenarios.get(key[1], "")

    def capability_id(self, key: ToolKey) -> str:
        """The id of a tool that was added; valid after ``build``."""
        return self._ids[key]

    def build(self, catalog: Catalog) -> None:
        """Give every tool its id and its united documentation."""
        for key, shelf in sorted(self._shelves.items()):
            self._ids[key] = f"{DATASET}/{self._local(key, shelf)}"
            self._fill(catalog, key, shelf)

    def _local(self, key: ToolKey, shelf: _Shelf) -> str:
        library, name = key
        local = name if _IDENTIFIER.fullmatch(name) else local_name(name)
        other = self._shelves.get(("lv12", name)) if library == "lv3" else None
        if other is None:
            return local
        if shelf.best is None or other.best is None or shelf.parameter_names() == other.parameter_names():
            return local
        self.tally.note("names_with_two_libraries")
        return f"{local}-lv3"

    def _fill(self, catalog: Catalog, key: ToolKey, shelf: _Shelf) -> None:
        identity = self._ids[key]
        domain = self.domain(key)
        self.tally.note("names_with_several_signatures", len(shelf.signatures()) > 1)
        entries: list[tuple[Origin, EndpointDoc]] = [
            ("task" if rank == "prompt" else "library", self._endpoint(key[1], doc, with_schema=rank == shelf.best))
            for rank, doc in shelf.docs
        ]
        for origin, doc in entries or [("task", EndpointDoc(operation=key[1]))]:
            added = catalog.add_capability(
                identity, name=key[1], description=doc.description, domain=domain, origin=origin
            )
            catalog.add_endpoint(f"{identity}/call", identity, doc=doc, origin=origin)
            self.tally.note("tools_without_scenario", added and not domain)
        self.tally.note("tools_without_documentation", not any(doc.arguments or doc.description for _, doc in entries))
        superseded = [d for r, d in shelf.docs if r != shelf.best and d.parameters is not None]
        self.tally.note("docs_superseded", len(superseded))

    def _endpoint(self, name: str, doc: ToolDoc, *, with_schema: bool) -> EndpointDoc:
        parameters = (doc.parameters or ()) if with_schema else ()
        return EndpointDoc(
            operation=name,
            description=doc.description,
            arguments=tuple(_argument(doc, *parameter) for parameter in parameters),
            returns=doc.returns if with_schema else (),
        )


def _argument(doc: ToolDoc, name: str, raw_type: str, description: str) -> Argument:
    known = name in doc.needed or name in doc.optional
    return Argument(
        name=name,
        raw_type=raw_type,
        type=coarse_type(raw_type, name),
        required=name in doc.needed if known else None,
        description=description,
    )


# ----------------------------------------------------------------------------------------------------------- reader


@dataclass(slots=True)
class _Draft:
    text: str
    source: str
    gold: set[ToolKey] = field(default_factory=set)
    given: set[ToolKey] = field(default_factory=set)
    calls: tuple[ToolKey, ...] = ()
    parts: set[str] = field(default_factory=set)


class _Reader:
    """Everything one pass accumulates."""

    def __init__(self, base: Path, tally: Tally, *, user_only: bool) -> None:
        self.base = base
        self.tally = tally
        self.speakers = ("User",) if user_only else ("User", "AI")
        self.library = _Library(tally)
        self._drafts: dict[str, _Draft] = {}
        self._seen_results: set[tuple[Shelf, str]] = set()

    def _where(self, path: Path) -> str:
        return f"{DATASET}/{path.relative_to(self.base).as_posix()}"

    # -- documentation outside tasks

    def read_code(self, path: Path) -> None:
        """Add the API classes of one Python file of a checkout."""
        where = self._where(path)
        try:
            with open_text(path) as handle:
                docs = list(documented_classes(handle.read()))
        except (BadRow, OSError, EOFError, UnicodeDecodeError) as problem:
            self.tally.drop("code_files", str(problem) if isinstance(problem, BadRow) else "unreadable", where=where)
            return
        self.tally.keep("code_files")
        for doc in docs:
            self.tally.keep("code_classes")
            self.library.add((CODE[path.parent.name], doc.name), doc, "code")

    def read_table(self, path: Path) -> None:
        """Read the scenario and the documentation of each class.

        Raises:
            AdapterError: if the file is no such table.
        """
        try:
            with open_text(path) as handle:
                table = csv.DictReader(handle)
                missing = {_SCENARIO, _CLASS, _INFO} - set(table.fieldnames or ())
                if missing:
                    raise AdapterError(f"{path}: no column {', '.join(sorted(missing))} in its first line")
                for number, row in enumerate(table, start=1):
                    self._read_table_row(row, where=f"{self._where(path)}#{number}")
        except (csv.Error, UnicodeDecodeError, EOFError, OSError) as error:
            raise AdapterError(f"{path}: cannot be read as a UTF-8 table ({error})") from error

    def _read_table_row(self, row: Mapping[Any, Any], *, where: str) -> None:
        try:
            name = required_name(row, _CLASS).strip()
            scenario = clean(required_name(row, _SCENARIO))
        except BadRow as reason:
            english = str(reason).replace(_CLASS, "class").replace(_SCENARIO, "scenario")
            self.tally.drop("table_rows", english, where=where)
            return
        self.tally.keep("table_rows")
        self.library.scenarios.setdefault(name, SCENARIOS.get(scenario) or local_name(scenario))
        doc = ToolDoc(name=name)
        try:
            fields = assigned(row[_INFO] if isinstance(row[_INFO], str) else "")
            if fields:
                given = fields.get("input_parameters")  # None and {None} are the table's ways to say that there is none
                doc = tool_doc({**fields, "name": name, "input_parameters": given if isinstance(given, dict) else {}})
        except BadRow:
            pass
        self.tally.note("table_rows_without_documentation", doc.parameters is None)
        self.library.add(("lv12", name), doc, "table")

    def _document(self, values: Iterable[object], shelf: Shelf, *, where: str) -> Iterator[str]:
        """Add documentations that stand in a task; yields the names of those that are tools."""
        for value in values:
            try:
                doc = tool_doc(as_object(value))
            except BadRow as reason:
                self.tally.drop("docs", str(reason), where=where)
                continue
            self.tally.keep("docs")
            self.library.add((shelf, doc.name), doc, "prompt")
            if doc.name != SEARCH:
                yield doc.name

    def _document_result(self, call: str, shelf: Shelf, *, where: str) -> None:
        """Add what an answered call of the tool search found; each answer once."""
        if called_name(call) != SEARCH or (shelf, call) in self._seen_results:
            return
        self._seen_results.add((shelf, call))
        result = result_of(call)
        if not result:
            return
        try:
            value = literal(result)
        except BadRow as reason:
            self.tally.drop("docs", str(reason), where=where)
            return
        self._found(value, shelf=shelf, where=where)

    # -- tasks

    def read_part(self, part: str) -> None:
        """Read the rows or dialogues of one part."""
        if part in DIALOGUES:
            for path in _dialogues(self.base / DIALOGUES[part]):
                self._read_dialogue(path, part)
            return
        path = self.base / FILES[part]
        plans: dict[str, list[tuple[tuple[str, ...], str]]] = {}
        for number, value in enumerate(stream_array(path)):
            where = f"{self._where(path)}#{number}"
            try:
                row = as_object(value)
                if part == "level-3":
                    self._read_plan(row, part, where=where)
                elif part == "level-3-train":
                    self._read_train_step(row, plans, where=where)
                else:
                    self._read_step(row, part, where=where)
            except BadRow as reason:
                self.tally.drop("rows", str(reason), where=where)
        self._settle_plans(plans, part)

    def _read_step(self, row: Mapping[str, Any], part: str, *, where: str) -> None:
        """Level 1 and 2: the next call of a dialogue."""
        instruction = scrubbed(required(row, "instruction", str))
        turns = turns_of(scrubbed(required(row, "input", str)))
        name = self._gold(scrubbed(required(row, "expected_output", str)), where=where)
        text = _spoken(turn.text for turn in turns if turn.speaker in self.speakers)
        given = set(self._document(described_in(instruction), "lv12", where=where))
        for turn in turns:
            if turn.speaker == "API-Request":
                self._search_result(turn.text, "lv12", where=where)
        self.tally.keep("rows")
        self._add(text, part, [("lv12", name)], given={("lv12", g) for g in given}, where=where)

    def _search_result(self, call: str, shelf: Shelf, *, where: str) -> str | None:
        """The name an earlier call of a prompt calls, after reading what it found; None where it names nothing."""
        try:
            name = called_name(call)
        except BadRow:
            return None
        self._document_result(call, shelf, where=where)
        return name

    def _gold(self, output: str, *, where: str) -> str:
        try:
            name = called_name(output)
        except BadRow as reason:
            self.tally.drop("gold_calls", str(reason), where=where)
            raise
        self._count_gold([name])
        return name

    def _count_gold(self, names: Sequence[str]) -> None:
        self.tally.keep("gold_calls", len(names))
        self.tally.note("tool_search_calls", sum(name == SEARCH for name in names))

    def _read_plan(self, row: Mapping[str, Any], part: str, *, where: str) -> None:
        """Level 3: a request with its ordered calls."""
        text = _spoken([scrubbed(required(row, "requirement", str))])
        names: list[str] = []
        for value in required(row, "apis", list):
            call = as_object(value)
            names.append(required_name(call, "api_name").strip())
            if names[-1] == SEARCH:
                self._found(call.get("output"), where=where)
        if not names:
            raise BadRow("no_call")
        self._count_gold(names)
        self.tally.keep("rows")
        self._add(text, part, [("lv3", name) for name in names], ordered=True, where=where)

    def _found(self, result: object, *, shelf: Shelf = "lv3", where: str) -> None:
        """Add the documentations in a result of the tool search."""
        try:
            found = list(found_tools(result))
        except RecursionError:
            self.tally.drop("docs", "nested_too_deeply", where=where)
            return
        for _ in self._document(found, shelf, where=where):
            pass

    def _read_train_step(
        self, row: Mapping[str, Any], plans: dict[str, list[tuple[tuple[str, ...], str]]], *, where: str
    ) -> None:
        """Training part of level 3: one step of a plan, with the calls before it in the prompt."""
        turns = turns_of(scrubbed(required(row, "input", str)))
        name = self._gold(scrubbed(required(row, "output", str)), where=where)
        request = _spoken(turn.text for turn in turns if turn.speaker == "User")
        text = _TIME.sub("", request)
        if not text:
            raise BadRow("empty_text")
        self.tally.note("time_stamps_removed", text != request)
        before = [self._search_result(turn.text, "lv3", where=where) for turn in turns if turn.speaker == "API-Request"]
        self.tally.keep("rows")
        plans.setdefault(text, []).append(((*(b for b in before if b is not None), name), where))

    def _settle_plans(self, plans: Mapping[str, list[tuple[tuple[str, ...], str]]], part: str) -> None:
        """One task per request: the plans of its steps are those that no other one continues."""
        for text, steps in plans.items():
            sequences = list(dict.fromkeys(calls for calls, _ in steps))
            whole = [s for s in sequences if not any(len(o) > len(s) and o[: len(s)] == s for o in sequences)]
            distinct = list(dict.fromkeys(tuple(name for name in s if name != SEARCH) for s in whole))
            self.tally.note("requests_with_several_plans", len(distinct) > 1)
            for names in distinct:
                self._add(text, part, [("lv3", n) for n in names], ordered=True, where=steps[0][1], united=True)

    def _read_dialogue(self, path: Path, part: str) -> None:
        spoken: list[str] = []
        calls = turns = 0
        for line in read_lines(path):
            where = f"{self._where(path)}#{line.number}"
            turns += 1
            try:
                if line.fault:
                    raise BadRow(line.fault)
                turn = as_object(line.value)
                role = required(turn, "role", str)
                if role == "API":
                    self._read_dialogue_call(turn, part, spoken, where=where)
                    calls += 1
                elif role in ("User", "AI"):
                    text = scrubbed(required(turn, "text", str))
                    spoken += [text] if role in self.speakers else []
                else:
                    raise BadRow("unknown_role")
            except BadRow as reason:
                self.tally.drop("dialogue_turns", str(reason), where=where)
                continue
            self.tally.keep("dialogue_turns")
        self.tally.note("empty_dialogues", not turns)
        self.tally.note("dialogues_without_call", bool(turns) and not calls)

    def _read_dialogue_call(self, turn: Mapping[str, Any], part: str, spoken: Sequence[str], *, where: str) -> None:
        name = required_name(turn, "api_name").strip()
        text = _spoken(spoken)
        self._count_gold([name])
        if name == SEARCH:
            self._found(turn.get("result"), shelf="lv12", where=where)
        self._add(text, part, [("lv12", name)], where=where)

    def _add(
        self,
        text: str,
        part: str,
        calls: Sequence[ToolKey],
        *,
        given: Iterable[ToolKey] = (),
        ordered: bool = False,
        united: bool = False,
        where: str,
    ) -> None:
        """Make or extend the task of a text; ``united`` says that the caller counted the merge itself."""
        tools = [key for key in calls if key[1] != SEARCH]
        for key in tools:
            self.library.add(key, None, "prompt")
        draft = self._drafts.get(text)
        if draft is None:
            draft = self._drafts[text] = _Draft(text, where)
        else:
            self.tally.note("merged_duplicate_text", not united)
            self.tally.note("merged_text_with_other_gold", bool(tools) and not draft.gold.issuperset(tools))
        draft.gold.update(tools)
        draft.given.update(given)
        draft.calls = draft.calls or (tuple(tools) if ordered else ())
        draft.parts.add(part)

    # -- result

    def records(self, catalog: Catalog) -> Records:
        """Freeze what was read.

        Raises:
            AdapterError: if no row or dialogue is a task.
        """
        if not self._drafts:
            raise AdapterError(f"{self.base}: no task could be read; see the dropped rows above")
        self.library.build(catalog)
        tasks = sorted((self._task(draft) for draft in self._drafts.values()), key=lambda task: task.task_id)
        ranked = tuple(task for task in tasks if not task.no_gold)
        apart = tuple(task for task in tasks if task.no_gold)
        self.tally.note("tasks_with_tool_search_only", len(apart))
        library = catalog.library()
        report = report_of(self.tally, library, ranked, apart=apart)
        return Records(dataset=DATASET, library=library, tasks=ranked, report=report, apart=apart)

    def _task(self, draft: _Draft) -> Task:
        identity = f"{DATASET}/{hashlib.sha256(draft.text.encode()).hexdigest()[:16]}"
        gold = tuple(sorted({self.library.capability_id(key) for key in draft.gold}))
        return Task(
            task_id=identity if gold else f"{identity}-not_annotated",
            dataset=DATASET,
            domain=_most(self.library.domain(key) for key in draft.gold),
            text=draft.text,
            gold_capability_ids=gold,
            gold_endpoint_ids=tuple(f"{g}/call" for g in gold),
            ordered=bool(draft.calls),
            calls=tuple(f"{self.library.capability_id(key)}/call" for key in draft.calls),
            given_candidate_ids=tuple(sorted({self.library.capability_id(key) for key in draft.given})),
            split="+".join(part for part in PARTS if part in draft.parts),
            source=draft.source,
            no_gold="" if gold else "not_annotated",
        )


def _spoken(utterances: Iterable[str]) -> str:
    text = "\n".join(clean(utterance) for utterance in utterances).strip()
    if not text:
        raise BadRow("empty_text")
    return text


def _most(domains: Iterable[str]) -> str:
    """The most frequent domain, the first name among equals; "" only where no tool has one."""
    counts = Counter(domain for domain in domains if domain)
    return min(counts, key=lambda domain: (-counts[domain], domain)) if counts else ""

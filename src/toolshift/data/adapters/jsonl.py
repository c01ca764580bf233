"""Your own data: BEIR's three files, with the schemas of tools where there are any (docs/own_data.md).

``corpus.jsonl`` holds tools (capabilities) with their operations (endpoints), ``tasks.jsonl`` requests, ``qrels.tsv``
which tools answer which request. They lie in ``<root>/jsonl/``, or in the folder the option ``folder`` names.

Ids are yours: a tool is ``jsonl/<_id>``, a task ``jsonl/<_id>`` (of the first task with its text). A tool without
``endpoints`` is one operation of its own name. By default any row that cannot be used stops the run with its file and
line; ``faults=drop`` counts such rows instead.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from toolshift.data.catalog import Catalog, EndpointDoc
from toolshift.data.errors import AdapterError
from toolshift.data.files import existing
from toolshift.data.json_schema import schema_arguments, type_word
from toolshift.data.lines import numbered_lines, read_lines
from toolshift.data.names import local_name
from toolshift.data.records import Argument, Records, Task
from toolshift.data.rendering import NAME_DESCRIPTION, TEMPLATES, clean
from toolshift.data.rows import BadRow, as_object, report_of, required, required_name, scrubbed, text_of
from toolshift.data.spool import DiskMap, Spool
from toolshift.data.tally import Tally
from toolshift.data.task_file import TaskSink
from toolshift.data.types import coarse_type

DATASET = "jsonl"
CORPUS, TASKS, QRELS = FILES = ("corpus.jsonl", "tasks.jsonl", "qrels.tsv")
HEADER = ("query-id", "corpus-id", "score")
_SECTIONS = ("calls", "candidates", "endpoints", "parameters", "qrels", "tasks", "tools")
_NOTES = (
    "gold_added_by_calls",
    "gold_without_endpoint",
    "judged_not_relevant",
    "merged_duplicate_endpoints",
    "merged_duplicate_text",
    "merged_text_with_other_calls",
    "repeated_qrels",
    "tasks_apart",
)
_HINT = (
    f"Expected files: {', '.join(FILES)}, in UTF-8; docs/own_data.md describes them with a complete small example. "
    "dataset.options.folder names another folder below data.root."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What may vary in reading your own data; part of every record fingerprint.

    ``folder`` is where the files lie below the data root. ``faults`` says what becomes of a row that cannot be used:
    ``fail`` stops with its file and line, ``drop`` leaves it out and counts it. ``template`` is the capability
    rendering (``toolshift.data.rendering``).
    """

    template: str = NAME_DESCRIPTION
    folder: str = DATASET
    faults: Literal["fail", "drop"] = "fail"

    def __post_init__(self) -> None:
        if self.template not in TEMPLATES:
            raise AdapterError(f"template={self.template!r} is unknown; expected one of {', '.join(TEMPLATES)}")
        if self.faults not in ("fail", "drop"):
            raise AdapterError(f"faults={self.faults!r} is unknown; expected fail or drop")
        path = Path(self.folder)
        if not self.folder or path.is_absolute() or ".." in path.parts:
            raise AdapterError(f"folder={self.folder!r}: expected a folder below data.root, such as {DATASET}")


class _Ledger(Tally):
    """Row accounts whose error tells how to go on without the row."""

    def drop(self, section: str, reason: str, *, where: str, rows: int = 1) -> None:
        """Count rows that cannot become a record; see ``Tally.drop``."""
        if self.strict:
            raise AdapterError(
                f"{where}: {reason.replace('_', ' ')} ({section}). Repair or remove it (docs/own_data.md), or set "
                "dataset.options.faults=drop and data.strict=false to leave such rows out and have them counted."
            )
        super().drop(section, reason, where=where, rows=rows)


def read(root: Path, *, options: Options | None = None, strict: bool = False) -> Records:
    """Read the three files.

    Sections of the report: ``tools`` (corpus lines), their ``endpoints`` and ``parameters``, ``tasks``, their ``calls``
    and ``candidates``, and ``qrels``. A task without a relevant tool is kept apart (``not_annotated``).

    Raises:
        AdapterError: if a file is missing, cannot be read, or lacks the header of qrels; and at the first row that
            cannot be used, with file and line, unless ``faults`` is ``drop`` and ``strict`` is off.
    """
    options = options or Options()
    corpus, tasks, qrels = _files(root, options=options)
    tally = _Ledger(strict=strict or options.faults == "fail")
    tally.open(sections=_SECTIONS, notes=_NOTES)
    reader = _Reader(root, Catalog(DATASET, template=options.template), tally)
    reader.read_corpus(corpus)
    reader.read_tasks(tasks)
    reader.read_qrels(qrels)
    tally.log()
    return reader.records()


def inputs(root: Path, *, options: Options | None = None) -> list[Path]:
    """Return the files ``read`` opens, in reading order; their bytes identify the records.

    Raises:
        AdapterError: as ``read`` for missing files.
    """
    files = _files(root, options=options or Options())
    return [found for path in files if (found := existing(path)) is not None]


def _files(root: Path, *, options: Options) -> tuple[Path, Path, Path]:
    folder = root / options.folder
    if not folder.is_dir():
        what = "is a file, not a folder" if folder.exists() else "no such folder"
        raise AdapterError(f"{folder}: {what}. {_HINT}")
    for name in FILES:
        path = folder / name
        if existing(path) is None:
            what = "is a folder, not a file" if path.is_dir() else f"no such file (nor {name}.gz beside it)"
            raise AdapterError(f"{path}: {what}. {_HINT}")
    return folder / CORPUS, folder / TASKS, folder / QRELS


# ---------------------------------------------------------------------------------------------------------- reader


class _Line(NamedTuple):
    """What a usable line says of its task, as it lies in the spool."""

    text: str
    source: str
    domain: str
    split: str
    calls: Sequence[str]
    gold_endpoints: Sequence[str]
    given: Sequence[str]


class _Judgement(NamedTuple):
    """A usable line of qrels, as it lies in the spool."""

    task: str
    capability_id: str
    relevant: bool


@dataclass(slots=True)
class _TaskDraft:
    line: _Line
    calls: tuple[str, ...]
    gold_endpoints: set[str]
    given: set[str]
    gold: set[str] = field(default_factory=set)


class _Reader:
    """Everything one pass accumulates. Memory grows with tools and their operations; tasks and gold lie on disk."""

    def __init__(self, root: Path, catalog: Catalog, tally: Tally) -> None:
        self.root = root
        self.catalog = catalog
        self.tally = tally
        self._tools: dict[str, str] = {}
        self._endpoints: dict[tuple[str, str], str] = {}
        self._endpoints_of: dict[str, list[str]] = {}
        self._task_of = DiskMap()  # _id of a task line -> id of the first task with its text
        self._texts = DiskMap()
        self._rows = Spool()

    def _objects(self, path: Path, section: str) -> Iterator[tuple[Mapping[str, Any], str]]:
        """(object, "file:line") of every usable line."""
        relative = path.relative_to(self.root).as_posix()
        for line in read_lines(path):
            where = f"{relative}:{line.number}"
            if line.fault or not isinstance(line.value, dict):
                self.tally.drop(section, line.fault or "not_an_object", where=where)
                continue
            yield line.value, where

    # -- corpus

    def read_corpus(self, path: Path) -> None:
        """Add every tool with its operations."""
        for row, where in self._objects(path, "tools"):
            try:
                key = _identifier(row)
                if key in self._tools:
                    raise BadRow("id_appears_twice")
                name = clean(_first_text(row, "name", "title"))
                if not name:
                    raise BadRow("missing_name_or_title")
            except BadRow as reason:
                self.tally.drop("tools", str(reason), where=where)
                continue
            self.tally.keep("tools")
            description = clean(_first_text(row, "description", "text"))
            capability_id = self._tools[key] = f"{DATASET}/{key}"
            domain = clean(text_of(row.get("domain")))
            self.catalog.add_capability(
                capability_id, name=name, description=description, domain=domain, origin="library"
            )
            if row.get("endpoints") is None:
                self._add_endpoint(key, name, row, description=description, where=where)
            else:
                self._read_endpoints(key, row["endpoints"], where=where)

    def _read_endpoints(self, key: str, values: object, *, where: str) -> None:
        if not isinstance(values, list):
            self.tally.drop("endpoints", "endpoints_not_a_list", where=where)
            return
        for value in values:
            try:
                endpoint = as_object(value)
                name = clean(required_name(endpoint, "name"))
            except BadRow as reason:
                self.tally.drop("endpoints", str(reason), where=where)
                continue
            description = clean(text_of(endpoint.get("description")))
            self._add_endpoint(key, name, endpoint, description=description, where=where)

    def _add_endpoint(self, key: str, name: str, row: Mapping[str, Any], *, description: str, where: str) -> None:
        self.tally.keep("endpoints")
        doc = EndpointDoc(
            operation=name,
            description=description,
            method=text_of(row.get("method")).upper(),
            arguments=self._arguments(row, where=where),
            returns=tuple(t for value in _list(row.get("returns")) if (t := clean(text_of(value)))),
        )
        capability_id = self._tools[key]
        endpoint_id = self._endpoints[key, name] = f"{capability_id}/{local_name(name)}"
        if self.catalog.add_endpoint(endpoint_id, capability_id, doc=doc, origin="library"):
            self._endpoints_of.setdefault(capability_id, []).append(endpoint_id)
        else:
            self.tally.note("merged_duplicate_endpoints")

    def _arguments(self, row: Mapping[str, Any], *, where: str) -> tuple[Argument, ...]:
        """``arguments``, a list of objects with a name, or ``parameters``, a JSON Schema."""

        def drop(reason: str) -> None:
            self.tally.drop("parameters", reason, where=where)

        def keep() -> None:
            self.tally.keep("parameters")

        values = row.get("arguments")
        if values is None:
            return schema_arguments(row.get("parameters"), keep=keep, drop=drop)
        if not isinstance(values, list):
            drop("arguments_not_a_list")
            return ()
        return tuple(argument for value in values if (argument := _argument(value, keep=keep, drop=drop)) is not None)

    # -- tasks

    def read_tasks(self, path: Path) -> None:
        """Add every task; a task whose text was there before is united with it."""
        for row, where in self._objects(path, "tasks"):
            try:
                key = _identifier(row)
                if self._task_of.get(key):
                    raise BadRow("id_appears_twice")
                text = scrubbed(required(row, "text", str)).strip()
                if not text:
                    raise BadRow("empty_text")
            except BadRow as reason:
                self.tally.drop("tasks", str(reason), where=where)
                continue
            self.tally.keep("tasks")
            task_id = self._texts.setdefault(hashlib.sha256(text.encode()).hexdigest(), f"{DATASET}/{key}")
            self._task_of.setdefault(key, task_id)
            self._rows.add(task_id, self._line(row, text=text, where=where))

    def _line(self, row: Mapping[str, Any], *, text: str, where: str) -> _Line:
        calls = self._resolved(row, "calls", self._call, where=where)
        given = self._resolved(row, "candidates", self._candidate, where=where)
        return _Line(
            text=text,
            source=where,
            domain=clean(text_of(row.get("domain"))),
            split=clean(text_of(row.get("split"))),
            calls=calls if len(calls) > 1 and all(calls) else (),
            gold_endpoints=[call for call in calls if call],
            given=[candidate for candidate in given if candidate],
        )

    def _resolved(
        self, row: Mapping[str, Any], section: str, resolve: Callable[[object], str], *, where: str
    ) -> list[str]:
        """Ids of a list of references; "" for one that was dropped."""
        values = row.get(section)
        if values is None:
            return []
        if not isinstance(values, list):
            self.tally.drop(section, f"{section}_not_a_list", where=where)
            return [""]
        ids: list[str] = []
        for value in values:
            try:
                ids.append(resolve(value))
                self.tally.keep(section)
            except BadRow as reason:
                self.tally.drop(section, str(reason), where=f"{where} [{value!r}]"[:300])
                ids.append("")
        return ids

    def _call(self, value: object) -> str:
        """An endpoint id: of a tool's only operation, or of the one that is named."""
        row = value if isinstance(value, dict) else {"tool": value}
        key = text_of(row.get("tool"))
        if key not in self._tools:
            raise BadRow("tool_not_in_corpus")
        name = clean(text_of(row.get("endpoint")))
        if name:
            if (key, name) not in self._endpoints:
                raise BadRow("endpoint_not_in_corpus")
            return self._endpoints[key, name]
        only = self._only_endpoint(self._tools[key])
        if not only:
            raise BadRow("endpoint_not_named_and_tool_has_not_exactly_one")
        return only

    def _candidate(self, value: object) -> str:
        if text_of(value) not in self._tools:
            raise BadRow("tool_not_in_corpus")
        return self._tools[text_of(value)]

    def _only_endpoint(self, capability_id: str) -> str:
        ids = self._endpoints_of.get(capability_id, [])
        return ids[0] if len(ids) == 1 else ""

    # -- qrels

    def read_qrels(self, path: Path) -> None:
        """Add gold: every pair with a score above 0.

        Raises:
            AdapterError: if the first line is not BEIR's header.
        """
        relative = path.relative_to(self.root).as_posix()
        columns: Sequence[str] | None = None
        for number, data in numbered_lines(path):
            where = f"{relative}:{number}"
            cells = [cell.strip() for cell in data.decode("utf-8", "replace").split("\t")]
            if columns is None:
                columns = cells
                if tuple(cells) != HEADER:
                    raise AdapterError(f"{path}:{number}: the header is {cells}, not {list(HEADER)} with tabs. {_HINT}")
                continue
            try:
                self._read_judgement(cells)
            except BadRow as reason:
                self.tally.drop("qrels", str(reason), where=where)
        if columns is None:
            raise AdapterError(f"{path}: is empty; expected the header {list(HEADER)} with tabs. {_HINT}")

    def _read_judgement(self, cells: Sequence[str]) -> None:
        if any("\ufffd" in cell for cell in cells):
            raise BadRow("not_utf8")
        if len(cells) != len(HEADER):
            raise BadRow("not_three_columns")
        try:
            score = float(cells[2])
        except ValueError:
            raise BadRow("score_not_a_number") from None
        if not math.isfinite(score):
            raise BadRow("score_not_a_number")
        task_id = self._task_of.get(cells[0])
        if task_id is None:
            raise BadRow("task_not_in_tasks")
        if cells[1] not in self._tools:
            raise BadRow("tool_not_in_corpus")
        self.tally.keep("qrels")
        self._rows.add(task_id, _Judgement(cells[0], self._tools[cells[1]], score > 0))
        self.tally.note("judged_not_relevant", int(score <= 0))

    # -- result

    def records(self) -> Records:
        """Freeze what was read."""
        library = self.catalog.library()
        domain_of = {c.capability_id: c.domain for c in library.capabilities}
        ranked, kept_apart = TaskSink(), TaskSink()
        for task_id, rows in self._rows.groups():
            task = self._task(task_id, self._united(rows), domain_of)
            (kept_apart if task.no_gold else ranked).add(task)
        tasks, apart = ranked.tasks(), kept_apart.tasks()
        report = report_of(self.tally, library, tasks, apart=apart)
        unscorable = "" if tasks else f"{DATASET}: no task has a relevant tool (a score above 0 in {QRELS}, or calls)"
        return Records(dataset=DATASET, library=library, tasks=tasks, report=report, apart=apart, unscorable=unscorable)

    def _united(self, rows: Sequence[Sequence[Any]]) -> _TaskDraft:
        """One draft of all lines with its text, in reading order, and of what is judged of their tasks."""
        lines = [_Line(*row) for row in rows if len(row) == len(_Line._fields)]
        judged = [_Judgement(*row) for row in rows if len(row) == len(_Judgement._fields)]
        first = lines[0]
        draft = _TaskDraft(first, tuple(first.calls), set(first.gold_endpoints), set(first.given))
        for line in lines[1:]:
            calls = tuple(line.calls)
            self.tally.note("merged_duplicate_text")
            self.tally.note("merged_text_with_other_calls", int(draft.calls != calls))
            draft.calls = draft.calls if draft.calls == calls else ()
            draft.gold_endpoints.update(line.gold_endpoints)
            draft.given.update(line.given)
        self.tally.note("repeated_qrels", len(judged) - len({(j.task, j.capability_id) for j in judged}))
        draft.gold.update(j.capability_id for j in judged if j.relevant)
        return draft

    def _task(self, task_id: str, draft: _TaskDraft, domain_of: Mapping[str, str]) -> Task:
        called = {endpoint.rpartition("/")[0] for endpoint in draft.gold_endpoints}
        self.tally.note("gold_added_by_calls", len(called - draft.gold))
        gold = draft.gold | called
        endpoints = set(draft.gold_endpoints)
        for capability_id in sorted(gold - called):
            only = self._only_endpoint(capability_id)
            endpoints |= {only} if only else set()
            self.tally.note("gold_without_endpoint", int(not only))
        return Task(
            task_id=task_id,
            dataset=DATASET,
            domain=draft.line.domain or _most_common(domain_of[c] for c in sorted(gold)),
            text=draft.line.text,
            gold_capability_ids=tuple(sorted(gold)),
            gold_endpoint_ids=tuple(sorted(endpoints)),
            ordered=bool(draft.calls),
            calls=draft.calls,
            given_candidate_ids=tuple(sorted(draft.given)),
            split=draft.line.split,
            source=draft.line.source,
            no_gold="" if gold else "not_annotated",
        )


def _identifier(row: Mapping[str, Any]) -> str:
    """The ``_id`` of a line; a number reads as its digits.

    Raises:
        BadRow: if it is missing, empty, or holds a tab or line break, which ``qrels.tsv`` cannot name.
    """
    if "_id" not in row:
        raise BadRow("missing_id")
    key = text_of(row["_id"])
    if not key or any(c in key for c in "\t\r\n"):
        raise BadRow("unusable_id")
    return key


def _first_text(row: Mapping[str, Any], *keys: str) -> str:
    return next((text for key in keys if (text := text_of(row.get(key)))), "")


def _list(value: object) -> Sequence[object]:
    return value if isinstance(value, list) else ()


def _argument(value: object, *, keep: Callable[[], None], drop: Callable[[str], None]) -> Argument | None:
    try:
        row = as_object(value)
        name = clean(required_name(row, "name"))
        needed = row.get("required")
        if needed is not None and not isinstance(needed, bool):
            raise BadRow("required_not_true_or_false")
    except BadRow as reason:
        drop(str(reason))
        return None
    keep()
    raw_type = type_word(row)
    return Argument(
        name=name,
        raw_type=raw_type,
        type=coarse_type(raw_type, name),
        required=needed,
        description=text_of(row.get("description")),
    )


def _most_common(domains: Iterator[str]) -> str:
    """The most frequent domain, the first by name among equals; "" where no tool has one."""
    counts = Counter(domain for domain in domains if domain)
    return min(counts, key=lambda domain: (-counts[domain], domain), default="")

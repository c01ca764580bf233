"""APIBench (Patil et al., 2023, "Gorilla"): model hubs whose API records are capabilities with one endpoint each.

- A capability is a *call* of one hub: what the release itself takes as gold. Records with equal ``api_call`` are one
  capability: rewordings of each other (TensorFlow Hub has hundreds for one call), or different models that the same
  line of code loads (``joblib.load('model.joblib')``), which a gold call cannot tell apart either. Two spellings of a
  call that differ in the kind of quotes, in blanks or in a final full stop are one call. Name, domain, functionality
  and description come from one record, the first of those with the most frequent name in the most frequent domain
  (ties: alphabetical); the arguments of all are united.
- Gold is the call of the query row. Where the API documentation does not hold it word for word, the row's ``api_name``
  finds it; a name of several calls is settled by the row's other fields. Both ways are counted.
- The domain is the record's ``domain`` field, and a task's that of its gold call. The hub is not part of it: the hubs
  share no domain, and their union is what a leave-one-domain-out runs over.
- ``api_arguments`` is an object, a list of names or of objects, a text or nothing; what stands behind a name may be a
  type, a description or an example. No record says which arguments are required.
- The request is the instruction inside ``code``, with its input where it has one; the answer behind it is not read.
  ``torchhub_train`` wraps it in a Python literal whose texts are mostly unquoted, so that no parser reads it.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from toolshift.data.catalog import Catalog, EndpointDoc
from toolshift.data.errors import AdapterError
from toolshift.data.files import existing
from toolshift.data.lines import Line, read_lines
from toolshift.data.names import local_name
from toolshift.data.records import Argument, Records, Task
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
from toolshift.data.types import coarse_type

DATASET = "apibench"
HUBS = ("huggingface", "tensorflowhub", "torchhub")
SPLITS = ("eval", "train")
_QUERY_PREFIX = {"tensorflowhub": "tensorflow"}

_SECTIONS = ("api_records", "arguments", "queries")
_NOTES = (
    "ambiguous_gold",
    "arguments_repeated_in_merged_records",
    "calls_with_several_domains",
    "calls_with_several_names",
    "gold_found_by_api_name",
    "gold_found_verbatim",
    "gold_found_in_another_spelling",
    "merged_call_spellings",
    "merged_duplicate_text",
    "merged_text_with_other_gold",
    "requests_with_input",
)
_MARKER = re.compile(r"###\s*(Instruction|Input|Output)\s*:")
_LITERAL = re.compile(r"\{'Instruction':(?P<instruction>.*?)(?:,\s*'Input':(?P<input>.*?))?,?\s*'Output':", re.S)
_NO_INPUT = "<noinput>"
_EMPTY_INPUT = re.compile(r"\s*\*\*Input:\s*<noinput>\s*\*\*\s*$")
_STRAY_QUOTE = re.compile(r"(?<=[.?!])['\"]$")
_PLACEHOLDERS = frozenset(("", "n/a", "na", "none", "null"))
_TYPE_WORDS = frozenset(
    word
    for words in ("str string text url", "int integer float number", "bool boolean", "list tuple array dict object")
    for word in words.split()
)
_NAME_AND_MEANING = re.compile(r"(?P<name>[^:=]+?)\s*(?::\s+|=)\s*(?P<meaning>.+)", re.S)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What may vary in reading APIBench; part of every record fingerprint.

    ``template`` is the capability rendering (``toolshift.data.rendering``), ``hubs`` the hubs that are read.
    """

    template: str = NAME_DESCRIPTION
    hubs: tuple[str, ...] = HUBS

    def __post_init__(self) -> None:
        if self.template not in TEMPLATES:
            raise AdapterError(f"template={self.template!r} is unknown; expected one of {', '.join(TEMPLATES)}")
        if not self.hubs or set(self.hubs) - set(HUBS):
            raise AdapterError(f"hubs={self.hubs!r}: expected some of {', '.join(HUBS)}")


def read(root: Path, *, options: Options | None = None, strict: bool = False) -> Records:
    """Read the API records and query rows of each hub below ``<root>/apibench``.

    Sections of the report: ``api_records``, ``arguments`` (of all usable records) and ``queries``. A row that was
    merged into another one counts as a record, with a note saying how many.

    Raises:
        AdapterError: if a hub's API records or all its query files are missing, if a file is empty or its ``.gz`` cut,
            and, under ``strict``, at the first row that cannot become a record.
    """
    options = options or Options()
    base = dataset_folder(root, DATASET)
    hubs = {hub: _hub_files(base, hub) for hub in sorted(set(options.hubs))}
    tally = Tally(strict=strict)
    tally.open(sections=_SECTIONS, notes=_NOTES)
    reader = _Reader(Catalog(DATASET, template=options.template), tally)
    for hub, files in hubs.items():
        for line in _lines(files.records):
            reader.read_record(line, where=_where(files.records, base, line))
        reader.settle_hub(hub)
        for path in files.queries:
            for line in _lines(path):
                reader.read_query(line, hub, where=_where(path, base, line))
    tally.log()
    return reader.finish()


def inputs(root: Path, *, options: Options | None = None) -> list[Path]:
    """Return the files ``read`` opens, in reading order; their bytes identify the records.

    Raises:
        AdapterError: as ``read`` for missing files.
    """
    base = dataset_folder(root, DATASET)
    hubs = [_hub_files(base, hub) for hub in sorted(set((options or Options()).hubs))]
    return [path for hub in hubs for path in (hub.records, *hub.queries)]


# ------------------------------------------------------------------------------------------------ folders and files


@dataclass(frozen=True, slots=True)
class _HubFiles:
    """The files of a hub that are there, with ``.gz`` where that is how they lie."""

    records: Path
    queries: tuple[Path, ...]


def _hub_files(base: Path, hub: str) -> _HubFiles:
    records = base / "api" / f"{hub}_api.jsonl"
    prefix = _QUERY_PREFIX.get(hub, hub)
    queries = [base / "apibench" / f"{prefix}_{split}.json" for split in SPLITS]
    for path in (records, *queries):
        if path.is_dir():
            raise AdapterError(f"{path}: is a folder, not a file. {source_of(DATASET).hint()}")
    found = existing(records)
    if found is None:
        raise AdapterError(
            f"{records}: no such file (nor its .gz beside it); dataset.options.hubs says which hubs are read. "
            f"{source_of(DATASET).hint()}"
        )
    present = tuple(path for query in queries if (path := existing(query)) is not None)
    if not present:
        names = " or ".join(query.name for query in queries)
        raise AdapterError(f"{base / 'apibench'}: no {names} (nor their .gz). {source_of(DATASET).hint()}")
    return _HubFiles(found, present)


def _lines(path: Path) -> Iterator[Line]:
    """The lines of a file that must have some."""
    empty = True
    for line in read_lines(path):
        empty = False
        yield line
    if empty:
        raise AdapterError(f"{path}: holds no line, expected JSON Lines. {source_of(DATASET).hint()}")


def _where(path: Path, base: Path, line: Line) -> str:
    return f"{DATASET}/{path.relative_to(base).as_posix().removesuffix('.gz')}#{line.number}"


# ---------------------------------------------------------------------------------------------------------- reader


@dataclass(frozen=True, slots=True, kw_only=True)
class _ApiRecord:
    """One usable row of the API documentation."""

    call: str
    name: str
    domain: str
    raw: Mapping[str, Any]
    where: str


@dataclass(frozen=True, slots=True)
class _Known:
    """The capability of a call: its id, domain, endpoint, and the records that document it."""

    capability_id: str
    domain: str
    endpoint_id: str
    records: tuple[_ApiRecord, ...]


@dataclass(slots=True)
class _TaskDraft:
    text: str
    source: str
    gold: dict[str, _Known] = field(default_factory=dict)
    files: set[str] = field(default_factory=set)


class _Reader:
    """Everything one pass accumulates; hubs are settled one after the other."""

    def __init__(self, catalog: Catalog, tally: Tally) -> None:
        self.catalog = catalog
        self.tally = tally
        self._pending: dict[str, list[_ApiRecord]] = {}
        self._by_key: dict[tuple[str, str], _Known] = {}
        self._by_name: dict[tuple[str, str], list[_Known]] = {}
        self._drafts: dict[str, _TaskDraft] = {}

    # -- API documentation

    def read_record(self, line: Line, *, where: str) -> None:
        """Keep one record until its hub is complete (``settle_hub``), or count why it is none."""
        try:
            raw = _value(line)
            record = _ApiRecord(
                call=clean(required_name(raw, "api_call")),
                name=clean(required_name(raw, "api_name")),
                domain=clean(required_name(raw, "domain")),
                raw=raw,
                where=where,
            )
        except BadRow as reason:
            self.tally.drop("api_records", str(reason), where=where)
            return
        self.tally.keep("api_records")
        self._pending.setdefault(_call_key(record.call), []).append(record)

    def settle_hub(self, hub: str) -> None:
        """Turn the pending records into capabilities of ``hub``; call once, before its first query row."""
        taken = Counter(local_name(key) for key in self._pending)
        for key, records in sorted(self._pending.items()):
            local = local_name(key) if taken[local_name(key)] == 1 else f"{local_name(key)}-{_digest(key)[:8]}"
            known = self._add(f"{DATASET}/{hub}/{local}", records)
            self._by_key[hub, key] = known
            for name in sorted({record.name for record in records}):
                self._by_name.setdefault((hub, name), []).append(known)
            self.tally.note("merged_call_spellings", len({record.call for record in records}) - 1)
            self.tally.note("calls_with_several_names", int(len({record.name for record in records}) > 1))
            self.tally.note("calls_with_several_domains", int(len({record.domain for record in records}) > 1))
        self._pending.clear()

    def _add(self, capability_id: str, records: Sequence[_ApiRecord]) -> _Known:
        first = _representative(records)
        ordered = (first, *(record for record in records if record is not first))
        docs = [self._doc(record) for record in ordered]
        description = next((doc.description for doc in docs if doc.description), "")
        self.catalog.add_capability(
            capability_id, name=first.name, description=description, domain=first.domain, origin="library"
        )
        endpoint_id = f"{capability_id}/{local_name(docs[0].operation)}"
        for doc in docs:
            self.catalog.add_endpoint(endpoint_id, capability_id, doc=doc, origin="library")
        names = [argument.name for doc in docs for argument in doc.arguments]
        self.tally.note("arguments_repeated_in_merged_records", len(names) - len(set(names)))
        return _Known(capability_id, first.domain, endpoint_id, tuple(records))

    def _doc(self, record: _ApiRecord) -> EndpointDoc:
        return EndpointDoc(
            operation=clean(_words(record.raw.get("functionality"))) or record.name,
            description=_words(record.raw.get("description")),
            arguments=tuple(self._arguments(record)),
        )

    def _arguments(self, record: _ApiRecord) -> Iterator[Argument]:
        for name, meaning in _entries(record.raw.get("api_arguments")):
            if not isinstance(name, str) or not _unquoted(scrubbed(name)):
                self.tally.drop("arguments", "no_name", where=record.where)
                continue
            self.tally.keep("arguments")
            yield _argument(_unquoted(scrubbed(name)), meaning)

    # -- query rows

    def read_query(self, line: Line, hub: str, *, where: str) -> None:
        """Turn one query row into a task, unite it with the task of the same text, or count why it is dropped."""
        try:
            row = _value(line)
            instruction, material = _request(scrubbed(required(row, "code", str)))
            known = self._gold(row, hub)
        except BadRow as reason:
            self.tally.drop("queries", str(reason), where=where)
            return
        self.tally.keep("queries")
        self.tally.note("requests_with_input", int(bool(material)))
        text = f"{instruction}\n{material}" if material else instruction
        draft = self._drafts.setdefault(text, _TaskDraft(text, where))
        if draft.source != where:
            self.tally.note("merged_duplicate_text")
            self.tally.note("merged_text_with_other_gold", int(known.capability_id not in draft.gold))
        draft.gold[known.capability_id] = known
        draft.files.add(Path(where.partition("#")[0]).stem)

    def _gold(self, row: Mapping[str, Any], hub: str) -> _Known:
        call = clean(required_name(row, "api_call"))
        known = self._by_key.get((hub, _call_key(call)))
        if known is not None:
            verbatim = any(call == record.call for record in known.records)
            self.tally.note("gold_found_verbatim" if verbatim else "gold_found_in_another_spelling")
            return known
        data = row.get("api_data")
        fields: Mapping[str, Any] = data if isinstance(data, dict) else {}
        candidates = self._by_name.get((hub, clean(text_of(fields.get("api_name")))), [])
        if not candidates:
            raise BadRow("unknown_gold_call")
        self.tally.note("gold_found_by_api_name")
        settled = [c for c in candidates if any(_same_but_for_call(r.raw, fields) for r in c.records)] or candidates
        self.tally.note("ambiguous_gold", int(len(settled) > 1))
        return settled[0]

    # -- result

    def finish(self) -> Records:
        """Freeze what was read."""
        library = self.catalog.library()
        tasks = tuple(sorted((_task(draft) for draft in self._drafts.values()), key=lambda task: task.task_id))
        calls = [{record.call for record in known.records} for known in self._by_key.values()]
        documented = {record.domain for known in self._by_key.values() for record in known.records}
        self.tally.note("distinct_api_calls", sum(map(len, calls)))
        self.tally.note("domains_in_api_records", len(documented))
        self.tally.note("gold_capabilities", len({c for t in tasks for c in t.gold_capability_ids}))
        report = report_of(self.tally, library, tasks)
        return Records(dataset=DATASET, library=library, tasks=tasks, report=report)


def _value(line: Line) -> Mapping[str, Any]:
    if line.fault:
        raise BadRow(line.fault)
    return as_object(line.value)


def _call_key(call: str) -> str:
    return call.replace('"', "'").rstrip(" .") or call


def _representative(records: Sequence[_ApiRecord]) -> _ApiRecord:
    """The first record with the most frequent name in the most frequent domain."""
    domain = _most_frequent(record.domain for record in records)
    name = _most_frequent(record.name for record in records if record.domain == domain)
    return next(record for record in records if (record.domain, record.name) == (domain, name))


def _most_frequent(values: Iterable[str]) -> str:
    counts = Counter(values)
    return min(counts, key=lambda value: (-counts[value], value))


def _same_but_for_call(record: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    keys = (record.keys() | other.keys()) - {"api_call"}
    return all(record.get(key) == other.get(key) for key in keys)


def _words(value: object) -> str:
    """A text field that may be a list of texts; placeholders ("N/A") read as empty."""
    text = ", ".join(map(text_of, value)) if isinstance(value, list) else text_of(value)
    return "" if text.lower() in _PLACEHOLDERS else text


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


# ------------------------------------------------------------------------------------------------------- arguments


@dataclass(frozen=True, slots=True)
class _Schema:
    """What a record says about an argument in fields of their own: ``type``, ``description``."""

    fields: Mapping[str, Any]


def _entries(value: object) -> Iterator[tuple[object, object]]:
    """(name, what the record says about it) of every argument, whatever the field's type; no name where it has none."""
    if isinstance(value, dict):
        yield from value.items()
    elif isinstance(value, list):
        for item in value:
            if isinstance(item, dict):
                yield from [(item["name"], _Schema(item))] if "name" in item else item.items()
            elif isinstance(item, str):
                yield from _named(item)
            else:
                yield None, item
    elif isinstance(value, str):
        literal = _literal(value)
        if literal is not None:
            yield from _entries(literal)
        else:
            for part in _split_outside_brackets(value):
                yield from _named(part)
    elif value is not None:
        yield None, value


def _named(text: str) -> Iterator[tuple[str, str | None]]:
    """ "name", "name: meaning" or "name=value"; placeholders name nothing."""
    text = text.strip()
    if text.lower() in _PLACEHOLDERS:
        return
    found = _NAME_AND_MEANING.fullmatch(text)
    yield (found["name"], found["meaning"]) if found else (text, None)


def _literal(text: str) -> dict[Any, Any] | list[Any] | None:
    """The dict or list that a text spells in Python, if it does."""
    if not text.lstrip().startswith(("[", "{")):
        return None
    try:
        value = ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None
    return value if isinstance(value, dict | list) else None


def _split_outside_brackets(text: str) -> Iterator[str]:
    depth, start = 0, 0
    for position, character in enumerate(text):
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth <= 0:
            yield text[start:position]
            start = position + 1
    yield text[start:]


def _argument(name: str, meaning: object) -> Argument:
    """An argument; of an example (a number, a list, an object) the type is kept, of a text the words."""
    raw_type, description, needed = "", "", None
    if isinstance(meaning, _Schema):
        raw_type, description = text_of(meaning.fields.get("type")), _words(meaning.fields.get("description"))
        needed = meaning.fields.get("required")
        needed = needed if isinstance(needed, bool) else None
    elif isinstance(meaning, str):
        text = _words(meaning)
        raw_type, description = (text, "") if text.lower() in _TYPE_WORDS else ("", text)
    elif meaning is not None:
        raw_type = type(meaning).__name__
    return Argument(
        name=name, raw_type=raw_type, type=coarse_type(raw_type, name), required=needed, description=description
    )


# -------------------------------------------------------------------------------------------------------- requests


def _request(code: str) -> tuple[str, str]:
    """Instruction and input (or "") of a row's ``code``, up to its first output.

    Raises:
        BadRow: ``no_instruction``.
    """
    found = _LITERAL.match(code)
    if found:
        instruction, material = (_unquoted((part or "").strip(" ,\n")) for part in found.group("instruction", "input"))
    else:
        instruction, material = _marked(code)
    instruction = _EMPTY_INPUT.sub("", instruction)
    if not instruction:
        raise BadRow("no_instruction")
    return instruction, "" if material == _NO_INPUT else material


def _marked(code: str) -> tuple[str, str]:
    """The parts behind the first ``###Instruction:`` and, before any output, the ``###Input:`` that follows it."""
    parts = {"Instruction": "", "Input": ""}
    marks = list(_MARKER.finditer(code))
    ends = [*(mark.start() for mark in marks[1:]), len(code)]
    for mark, end in zip(marks, ends, strict=False):
        if mark[1] == "Output":
            break
        parts[mark[1]] = parts[mark[1]] or code[mark.end() : end].strip()
    return parts["Instruction"], parts["Input"]


def _unquoted(text: str) -> str:
    """The text without quotes around it, and without a closing quote that was never opened."""
    text = text.strip()
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        return clean(text[1:-1])
    return clean(text if text[:1] in "'\"" else _STRAY_QUOTE.sub("", text))


def _task(draft: _TaskDraft) -> Task:
    return Task(
        task_id=f"{DATASET}/{_digest(draft.text)[:16]}",
        dataset=DATASET,
        domain=_most_frequent(known.domain for known in draft.gold.values()),
        text=draft.text,
        gold_capability_ids=tuple(sorted(draft.gold)),
        gold_endpoint_ids=tuple(sorted(known.endpoint_id for known in draft.gold.values())),
        split="+".join(sorted(draft.files)),
        source=draft.source,
    )

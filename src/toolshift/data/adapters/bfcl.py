"""Berkeley Function Calling Leaderboard (Patil et al., 2025; versions 3 and 4): functions as capabilities.

- A function is one capability with one endpoint, and its identity is its name *and* the hash of its definition: the
  release defines hundreds of names several times, with other parameters or another meaning. Functions come from the
  entries that list them and from the class documentations of the multi-turn part. All are ``schema_source="library"``:
  a definition inside an entry is complete, and the entry lists its distractors as fully as its gold.
- Domains. A function of a class (multi-turn, memory, web search) has its class as domain. A single-turn function has
  its suite: ``python``, ``java``, ``javascript`` (written for the leaderboard, in three languages) or ``live`` (written
  by users). The suites share no definition, and each has enough functions to fill a candidate list. The files cannot be
  domains: ``multiple`` and ``parallel_multiple`` reuse the functions and even the questions of ``simple_python``, so
  that a held-out file would have been trained on. Name prefixes ("math.", "get_") cannot either: most occur only once
  or twice. A task has the domain of most of its gold functions, the first name among equals.
- A task's text is what the user says, all turns, one per line. System prompts and the assistant's lines are left out
  (counted): they are the same for many entries and say nothing about one request.
- Multi-turn gold is a list of Python call strings per turn; it is parsed (``ast``), never evaluated, and gives the
  ordered ``calls``. Parallel calls have no order in the leaderboard's own checker, and have none here.
- Kept apart: ``irrelevance`` (no listed function applies, by design) and ``not_annotated`` (``live_relevance``,
  ``memory``, ``web_search``: no gold functions are released; the answers of the last two are texts). Their ids end in
  the reason, because the same question may also be asked with the right function at hand.
- ``unused_datasets/`` and ``memory_prereq_conversation/`` belong to no category and are not read.
"""

from __future__ import annotations

import ast
import hashlib
import json
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from toolshift.data.adapters._bfcl_files import ANSWERS, CLASS_DOCS, DATASET, Release, find_release
from toolshift.data.catalog import Catalog, EndpointDoc
from toolshift.data.errors import AdapterError
from toolshift.data.json_schema import schema_arguments
from toolshift.data.lines import Line
from toolshift.data.names import local_name
from toolshift.data.records import Argument, Records, Task
from toolshift.data.rendering import NAME_DESCRIPTION, TEMPLATES, clean
from toolshift.data.rows import BadRow, as_object, report_of, required, required_name, scrubbed, text_of
from toolshift.data.sources import source_of
from toolshift.data.tally import Tally
from toolshift.data.types import split_words

CLASS_FILES: Mapping[str, str] = {
    "GorillaFileSystem": "gorilla_file_system",
    "MathAPI": "math_api",
    "MemoryAPI_kv": "memory_kv",
    "MemoryAPI_rec_sum": "memory_rec_sum",
    "MemoryAPI_vector": "memory_vector",
    "MessageAPI": "message_api",
    "TicketAPI": "ticket_api",
    "TradingBot": "trading_bot",
    "TravelAPI": "travel_booking",
    "TwitterAPI": "posting_api",
    "VehicleControlAPI": "vehicle_control",
    "WebSearchAPI": "web_search",
}
"""Class -> file of its functions; the names of two files have nothing in common with their class."""

IRRELEVANCE = frozenset({"irrelevance", "live_irrelevance"})
NOT_ANNOTATED = frozenset({"live_relevance", "memory", "web_search"})
_LANGUAGES = {"simple_java": "java", "simple_javascript": "javascript"}
_CLASS_OF = {stem: name for name, stem in CLASS_FILES.items()}
_DEEPEST = 8
_SECTIONS = ("answers", "arguments", "class_functions", "entries", "functions", "gold_calls")
_NOTES = (
    "duplicate_function_in_entry",
    "function_names",
    "functions_defined_again",
    "merged_apart_text",
    "merged_duplicate_text",
    "merged_text_with_other_calls",
    "merged_text_with_other_gold",
    "messages_left_out",
    "names_with_several_definitions",
    "nested_arguments",
    "tasks_irrelevance",
    "tasks_not_annotated",
    "unresolved_classes_of_tasks_apart",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What may vary in reading BFCL; part of every record fingerprint.

    ``template`` is the capability rendering (``toolshift.data.rendering``). ``categories`` are the files to read, by
    the part of their name after ``BFCL_v4_``; empty reads all. ``nested_arguments`` adds the properties of an object
    argument ("place.city") and of the objects in a list ("orders[].price") behind the argument that holds them.
    """

    template: str = NAME_DESCRIPTION
    categories: tuple[str, ...] = ()
    nested_arguments: bool = True

    def __post_init__(self) -> None:
        if self.template not in TEMPLATES:
            raise AdapterError(f"template={self.template!r} is unknown; expected one of {', '.join(TEMPLATES)}")


def read(root: Path, *, options: Options | None = None, strict: bool = False) -> Records:
    """Read ``<root>/bfcl/bfcl_eval/data``, or the wheel in ``<root>/bfcl`` (``root`` may be the wheel).

    Sections of the report: ``entries`` (one becomes a task, or is united with the task of its text), ``answers``
    (lines of ``possible_answer/``), ``gold_calls``, ``functions`` (definitions inside entries), ``class_functions``
    (lines of ``multi_turn_func_doc/``) and ``arguments`` (of distinct definitions, nested ones included). An entry with
    a gold call that names no function of the entry is dropped: what is left would be another task.

    Raises:
        AdapterError: for a missing release, category, answer file or class documentation, an empty or unreadable file,
            and under ``strict`` for the first row that would be dropped.
    """
    options = options or Options()
    release = find_release(root)
    tally = Tally(strict=strict)
    tally.open(sections=_SECTIONS, notes=_NOTES)
    reader = _Reader(release, Catalog(DATASET, template=options.template), tally, nested=options.nested_arguments)
    for stem in release.class_files:
        reader.read_class(stem)
    for category in _categories(release, options):
        reader.read_category(category)
    tally.log()
    return reader.records()


def inputs(root: Path, *, options: Options | None = None) -> list[Path]:
    """Return the files ``read`` opens (the wheel alone, where there is one); their bytes identify the records.

    Raises:
        AdapterError: as ``read`` for missing folders and categories.
    """
    release = find_release(root)
    categories = _categories(release, options or Options())
    return release.paths(categories, answered=frozenset(categories) - IRRELEVANCE - NOT_ANNOTATED)


def _categories(release: Release, options: Options) -> tuple[str, ...]:
    unknown = sorted(set(options.categories) - set(release.categories))
    if unknown:
        known = ", ".join(release.categories)
        raise AdapterError(f"{release.base}: there is no category {unknown[0]!r}; expected some of {known}")
    return tuple(sorted(set(options.categories or release.categories)))


def suite_of(category: str) -> str:
    """The domain of the functions that single-turn entries of a category define."""
    return _LANGUAGES.get(category) or ("live" if category.startswith("live_") else "python")


def definition_hash(function: Mapping[str, Any]) -> str:
    """Eight hex digits of the sha256 of a definition; the order of keys does not count."""
    return hashlib.sha256(json.dumps(function, sort_keys=True).encode()).hexdigest()[:8]


def called_name(call: str) -> str:
    """The function a call string calls: "cd" in "cd(folder='x')" and in "shell.cd('x')".

    Raises:
        BadRow: ``malformed_call`` for anything but one call by name. Nothing is evaluated.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an invalid escape such as "\d" in a search pattern is none of ours
            node = ast.parse(call.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise BadRow("malformed_call") from None
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Name):
            return node.func.id
        if isinstance(node.func, ast.Attribute):
            return node.func.attr
    raise BadRow("malformed_call")


# ---------------------------------------------------------------------------------------------------------- reader


@dataclass(slots=True)
class _Draft:
    text: str
    source: str
    gold: tuple[str, ...]
    given: tuple[str, ...]
    calls: tuple[str, ...]
    categories: tuple[str, ...]
    no_gold: str


class _Reader:
    """Everything one pass accumulates; ``listed`` maps native function names of one entry to capability ids."""

    def __init__(self, release: Release, catalog: Catalog, tally: Tally, *, nested: bool) -> None:
        self.release = release
        self.catalog = catalog
        self.tally = tally
        self.nested = nested
        self._domains: dict[str, str] = {}
        self._names: dict[str, set[str]] = {}
        self._classes: dict[str, dict[str, str]] = {}
        self._ids: set[str] = set()
        self._drafts: dict[tuple[str, str], _Draft] = {}

    # -- functions

    def read_class(self, stem: str) -> None:
        """Add the functions of one class."""
        functions = self._classes.setdefault(stem, {})
        for line, where in self._valid(self.release.functions(stem), f"{CLASS_DOCS}/{stem}.json", "class_functions"):
            self._function(line.value, functions, _CLASS_OF.get(stem, stem), section="class_functions", where=where)

    def _function(self, value: object, listed: dict[str, str], domain: str, *, section: str, where: str) -> None:
        try:
            function = as_object(value)
            name = required_name(function, "name")
            capability_id = f"{DATASET}/{local_name(name)}-{definition_hash(function)}"
        except (BadRow, RecursionError) as problem:
            reason = str(problem) if isinstance(problem, BadRow) else "nested_too_deeply"
            self.tally.drop(section, reason, where=where)
            return
        self.tally.keep(section)
        if listed.setdefault(name, capability_id) != capability_id:
            self.tally.note("duplicate_function_in_entry")
        if capability_id in self._domains:
            self.tally.note("functions_defined_again")
            return
        self._domains[capability_id] = domain
        self._names.setdefault(name, set()).add(capability_id)
        doc = self._doc(name, function, where=where)
        self.catalog.add_capability(
            capability_id, name=clean(name), description=doc.description, domain=domain, origin="library"
        )
        self.catalog.add_endpoint(_endpoint_id(capability_id), capability_id, doc=doc, origin="library")

    def _doc(self, name: str, function: Mapping[str, Any], *, where: str) -> EndpointDoc:
        def drop(reason: str) -> None:
            self.tally.drop("arguments", reason, where=where)

        schema = function.get("parameters")
        arguments = schema_arguments(schema, keep=lambda: self.tally.keep("arguments"), drop=drop)
        if self.nested:
            inner = tuple(_nested(schema, keep=lambda: self.tally.keep("arguments"), drop=drop))
            self.tally.note("nested_arguments", len(inner))
            arguments = _interleaved(arguments, inner)
        return EndpointDoc(
            operation=clean(name),
            description=text_of(function.get("description")),
            arguments=arguments,
            returns=_returns(function.get("response")),
        )

    # -- entries

    def read_category(self, category: str) -> None:
        """Read the entries of one category with their answers."""
        no_gold = "irrelevance" if category in IRRELEVANCE else "not_annotated" if category in NOT_ANNOTATED else ""
        answers = {} if no_gold else self._answers(category)
        file = self.release.categories[category]
        for line, where in self._valid(self.release.entries(category), file, "entries"):
            self._read_entry(line.value, category, answers=answers, no_gold=no_gold, where=where)
        for identity, where in sorted(answers.items()):
            self.tally.drop("answers", "answer_without_entry", where=f"{where[1]} [{identity}]")

    def _answers(self, category: str) -> dict[str, tuple[list[Any], str]]:
        """Entry id -> (gold, place); an answer is counted when its entry takes it."""
        answers: dict[str, tuple[list[Any], str]] = {}
        file = f"{ANSWERS}/{self.release.categories[category]}"
        for line, where in self._valid(self.release.answers(category), file, "answers"):
            try:
                row = as_object(line.value)
                identity = required(row, "id", str)
                truth = required(row, "ground_truth", list)
                if identity in answers:
                    raise BadRow("duplicate_id")
            except BadRow as reason:
                self.tally.drop("answers", str(reason), where=where)
                continue
            answers[identity] = (truth, where)
        return answers

    def _read_entry(
        self,
        value: object,
        category: str,
        *,
        answers: dict[str, tuple[list[Any], str]],
        no_gold: str,
        where: str,
    ) -> None:
        try:
            row = as_object(value)
            identity = required(row, "id", str)
            if identity in self._ids:
                raise BadRow("duplicate_id")
            self._ids.add(identity)
            truth = None if no_gold else answers.pop(identity, None)
            if truth is not None:
                self.tally.keep("answers")
            listed = self._listed(row, category, no_gold=no_gold, where=where)
            text = self._text(required(row, "question", list))
            if not no_gold and truth is None:
                raise BadRow("no_answer")
            calls = self._calls(truth[0], listed, where=where) if truth else []
        except BadRow as reason:
            self.tally.drop("entries", str(reason), where=where)
            return
        self.tally.keep("entries")
        self._add(text, category, calls, listed, no_gold, ordered="involved_classes" in row, where=where)

    def _listed(self, row: Mapping[str, Any], category: str, *, no_gold: str, where: str) -> dict[str, str]:
        """The functions an entry offers: those it defines, or those of its classes without the excluded ones."""
        listed: dict[str, str] = {}
        if "involved_classes" not in row:
            for function in required(row, "function", list):
                self._function(function, listed, suite_of(category), section="functions", where=where)
            return listed
        names = required(row, "involved_classes", list)
        if not self._classes and not no_gold:
            raise AdapterError(
                f"{self.release.base / CLASS_DOCS}: no function documentation, which {where} needs. "
                f"{source_of(DATASET).hint()}"
            )
        for name in names:
            functions = self._classes.get(_class_file(name)) if isinstance(name, str) else None
            if functions is None and not no_gold:
                raise BadRow("class_without_functions")
            self.tally.note("unresolved_classes_of_tasks_apart", functions is None)
            listed.update(functions or {})
        excluded = row.get("excluded_function")
        for name in excluded if isinstance(excluded, list) else ():
            listed.pop(str(name), None)
        return listed

    def _text(self, turns: Sequence[object]) -> str:
        said: list[str] = []
        for turn in turns:
            for message in turn if isinstance(turn, list) else [turn]:
                role = required(as_object(message), "role", str)
                content = scrubbed(required(as_object(message), "content", str)).strip()
                if role == "user" and content:
                    said.append(content)
                self.tally.note("messages_left_out", role != "user")
        if not said:
            raise BadRow("empty_question")
        return "\n".join(said)

    def _calls(self, truth: Sequence[object], listed: Mapping[str, str], *, where: str) -> list[str]:
        """Endpoint ids of all gold calls, in order.

        Raises:
            BadRow: if there is none, or one cannot be resolved.
        """
        calls: list[str] = []
        faults = 0
        for call in _flat(truth):
            try:
                name = called_name(call) if isinstance(call, str) else _single_key(call)
                if name not in listed:
                    raise BadRow("unknown_function")
            except BadRow as reason:
                self.tally.drop("gold_calls", str(reason), where=where)
                faults += 1
                continue
            self.tally.keep("gold_calls")
            calls.append(_endpoint_id(listed[name]))
        if faults or not calls:
            raise BadRow("unresolved_gold" if faults else "no_gold_call")
        return calls

    def _add(
        self,
        text: str,
        category: str,
        calls: Sequence[str],
        listed: Mapping[str, str],
        no_gold: str,
        *,
        ordered: bool,
        where: str,
    ) -> None:
        gold = tuple(sorted(set(calls)))
        given = tuple(sorted(set(listed.values())))
        sequence = tuple(calls) if ordered else ()
        draft = self._drafts.get((text, no_gold))
        if draft is None:
            self._drafts[text, no_gold] = _Draft(text, where, gold, given, sequence, (category,), no_gold)
            return
        self.tally.note("merged_apart_text" if no_gold else "merged_duplicate_text")
        self.tally.note("merged_text_with_other_gold", gold != draft.gold)
        self.tally.note("merged_text_with_other_calls", sequence != draft.calls)
        draft.gold = tuple(sorted({*gold, *draft.gold}))
        draft.given = tuple(sorted({*given, *draft.given}))
        draft.categories = tuple(sorted({*draft.categories, category}))

    def _valid(self, lines: Iterator[Line], file: str, section: str) -> Iterator[tuple[Line, str]]:
        """Lines that hold a value, with their place; the others are counted."""
        for line in lines:
            where = f"{DATASET}/{file}#{line.number}"
            if line.fault:
                self.tally.drop(section, line.fault, where=where)
            else:
                yield line, where

    # -- result

    def records(self) -> Records:
        """Freeze what was read.

        Raises:
            AdapterError: if nothing in the files is an entry.
        """
        if not self._drafts:
            raise AdapterError(f"{self.release.base}: no entry could be read; see the dropped rows above")
        tasks = sorted((self._task(draft) for draft in self._drafts.values()), key=lambda task: task.task_id)
        ranked = tuple(task for task in tasks if not task.no_gold)
        apart = tuple(task for task in tasks if task.no_gold)
        for task in apart:
            self.tally.note(f"tasks_{task.no_gold}")
        self.tally.note("function_names", len(self._names))
        self.tally.note("names_with_several_definitions", sum(len(ids) > 1 for ids in self._names.values()))
        library = self.catalog.library()
        report = report_of(self.tally, library, ranked, apart=apart)
        return Records(dataset=DATASET, library=library, tasks=ranked, report=report, apart=apart)

    def _task(self, draft: _Draft) -> Task:
        gold = tuple(sorted({endpoint.rpartition("/")[0] for endpoint in draft.gold}))
        identity = f"{DATASET}/{hashlib.sha256(draft.text.encode()).hexdigest()[:16]}"
        return Task(
            task_id=f"{identity}-{draft.no_gold}" if draft.no_gold else identity,
            dataset=DATASET,
            domain=_most(self._domains[c] for c in gold or draft.given),
            text=draft.text,
            gold_capability_ids=gold,
            gold_endpoint_ids=draft.gold,
            ordered=bool(draft.calls),
            calls=draft.calls,
            given_candidate_ids=draft.given,
            split="+".join(draft.categories),
            source=draft.source,
            no_gold=draft.no_gold,
        )


def _endpoint_id(capability_id: str) -> str:
    return f"{capability_id}/{capability_id.removeprefix(f'{DATASET}/').rpartition('-')[0]}"


def _class_file(name: str) -> str:
    """File of a class: as ``CLASS_FILES`` says, else its name in snake case ("ParkingLot" -> "parking_lot")."""
    return CLASS_FILES.get(name) or "_".join(split_words(name))


def _flat(truth: Sequence[object]) -> Iterator[object]:
    """Gold calls of an answer: single-turn answers are flat, multi-turn ones hold a list per turn."""
    for item in truth:
        if isinstance(item, list):
            yield from item
        else:
            yield item


def _single_key(call: object) -> str:
    if not isinstance(call, dict) or len(call) != 1:
        raise BadRow("malformed_call")
    return scrubbed(str(next(iter(call))))


def _most(domains: Iterator[str]) -> str:
    counts = Counter(domains)
    return min(counts, key=lambda domain: (-counts[domain], domain)) if counts else ""


def _returns(response: object) -> tuple[str, ...]:
    properties = response.get("properties") if isinstance(response, dict) else None
    names = (clean(scrubbed(name)) for name in (properties if isinstance(properties, dict) else ()))
    return tuple(dict.fromkeys(name for name in names if name))


def _nested(
    schema: object, *, keep: Callable[[], None], drop: Callable[[str], None], depth: int = 0
) -> Iterator[Argument]:
    """Arguments inside the object arguments of a schema, named with their path; deeper than 8 levels none."""
    properties = schema.get("properties") if isinstance(schema, dict) and depth < _DEEPEST else None
    for raw_name, value in properties.items() if isinstance(properties, dict) else ():
        name = clean(scrubbed(raw_name))
        items = value.get("items") if isinstance(value, dict) else None
        for inner, path in ((value, f"{name}."), (items, f"{name}[].")):
            if name and isinstance(inner, dict) and isinstance(inner.get("properties"), dict):
                held = schema_arguments(inner, keep=keep, drop=drop)
                deeper = tuple(_nested(inner, keep=keep, drop=drop, depth=depth + 1))
                for argument in _interleaved(held, deeper):
                    yield replace(argument, name=f"{path}{argument.name}")


def _interleaved(outer: tuple[Argument, ...], inner: tuple[Argument, ...]) -> tuple[Argument, ...]:
    """Each outer argument with those inside it behind it; a name that is taken already stays as it is."""
    placed: dict[str, Argument] = {}
    for argument in outer:
        placed.setdefault(argument.name, argument)
        for held in inner:
            if held.name.startswith((f"{argument.name}.", f"{argument.name}[].")):
                placed.setdefault(held.name, held)
    return tuple(placed.values())

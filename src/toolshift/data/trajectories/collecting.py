"""From raw trajectories to tasks: success, names, errors and repeats, each drop under its reason.

Names are resolved in two passes. The first resolves what the library knows and adds endpoints that an agent's own
function list documents; the second looks once more at names that were only listed, because another trajectory may
have documented them. So the order of the sources does not decide which calls are kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from toolshift.data.json_schema import schema_arguments
from toolshift.data.records import Argument, Capability, Endpoint, Library, Task
from toolshift.data.rendering import capability_text, clean, endpoint_text
from toolshift.data.rows import report_of, scrubbed, text_of
from toolshift.data.tally import Tally
from toolshift.data.trajectories.base import Call, Rules, Run, Trajectories
from toolshift.data.trajectories.functions import FunctionIndex, cut, said_description, said_tool

FINISH = "Finish"
UNLISTED = "unlisted"
"""Category part of the id of a tool that only function lists know; they do not tell the category."""


@dataclass(frozen=True, slots=True)
class _Unresolved:
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Draft:
    run: Run
    calls: Sequence[str | _Unresolved]
    """Endpoint ids, or names that only the second pass may resolve."""


class Collector:
    """Takes trajectories of one dataset; ``tasks`` and ``library`` give the result, in this order."""

    def __init__(self, dataset: str, library: Library, *, rules: Rules, tally: Tally) -> None:
        self.dataset = dataset
        self.rules = rules
        self.tally = tally
        self._library = library
        self._index: FunctionIndex | None = None
        self._drafts: list[_Draft] = []
        self._tasks: list[tuple[Task, str]] = []
        self._added: dict[str, Endpoint] = {}
        self._added_by_name: dict[str, str] = {}
        self._new_tools: dict[str, Capability] = {}

    @property
    def base(self) -> Library:
        """The library as it was given."""
        return self._library

    @property
    def index(self) -> FunctionIndex:
        """Function names of the library."""
        if self._index is None:
            self._index = FunctionIndex(self._library, dataset=self.dataset)
        return self._index

    # -- what a source hands in

    def open(self, origin: str) -> None:
        """Make the sections of a source appear in the report, as 0, whatever it holds."""
        self.tally.open(sections=(f"{origin}:trajectories", f"{origin}:calls"))

    def drop(self, origin: str, reason: str, *, where: str) -> None:
        """Count a trajectory that cannot be read."""
        self.tally.drop(f"{origin}:trajectories", reason, where=where)

    def needs_documents(self, names: Iterable[str]) -> bool:
        """Whether the library leaves any name open, so that a source should parse its function list."""
        return any(name != FINISH and len(self.index.candidates(name)) != 1 for name in names)

    def add(self, run: Run) -> None:
        """Take a trajectory whose calls are function names."""
        section = f"{run.origin}:trajectories"
        if not run.text.strip():
            self.tally.drop(section, "empty_query", where=run.source)
        elif self.rules.successful and not run.marked:
            self.tally.exclude(section, "not_successful", where=run.source)
        else:
            calls = [found for call in run.calls if (found := self._taken(run, call)) is not None]
            # What is kept until the end must not hold the function lists of 50,000 trajectories.
            self._drafts.append(_Draft(run=replace(run, calls=(), listed=(), documented={}), calls=calls))

    def add_task(self, task: Task, *, origin: str, collapse: bool = False) -> None:
        """Take a trajectory that an adapter resolved. ``collapse``: without de-duplication, a call that repeats the one
        right before it is dropped all the same."""
        self._settle(task, task.calls, origin=origin, collapse=collapse)

    # -- first pass

    def _taken(self, run: Run, call: Call) -> str | _Unresolved | None:
        section = f"{run.origin}:calls"
        if call.name == FINISH:
            self.tally.exclude(section, "finish", where=run.source)
            return None
        if call.hallucinated or (run.listed and not {call.name, cut(call.name)} & set(run.listed)):
            self.tally.exclude(section, "hallucinated_name", where=f"{run.source} {cut(call.name)!r}")
            return None
        if self.rules.error_free and call.error:
            self.tally.exclude(section, "error", where=run.source)
            return None
        self.tally.note("calls_of_unknown_error", int(call.error is None))
        document = run.documented.get(call.name) or run.documented.get(cut(call.name))
        told = said_description(text_of(document.get("description"))) if document else ""
        found = self.index.resolve(call.name, listed=run.listed, told=told)
        if found is not None:
            self.tally.note("calls_of_ambiguous_name", int(len(self.index.candidates(call.name)) > 1))
            return found
        return _Unresolved(cut(call.name)) if document is None else self._documented(cut(call.name), document, run)

    def _documented(self, name: str, document: Mapping[str, Any], run: Run) -> str:
        """The endpoint of a function that only an agent's function list documents."""
        known = self._added_by_name.get(name)
        if known is not None:
            return known
        text = text_of(document.get("description"))
        tool = said_tool(text, name)
        owner = self._owner(tool, run)
        api = name.removesuffix(f"_for_{tool}") or name
        listed = {e.endpoint_id for e in self._library.endpoints_of.get(owner, ())}
        endpoint_id = f"{owner}/{api}"
        while endpoint_id in listed or endpoint_id in self._added:
            endpoint_id += "_"
        description = said_description(text)
        self._added[endpoint_id] = Endpoint(
            endpoint_id=endpoint_id,
            capability_id=owner,
            operation=api,
            description=description,
            arguments=self._arguments(document, run),
            text=endpoint_text(api, description),
            source="task",
        )
        self._added_by_name[name] = endpoint_id
        self.tally.note("endpoints_from_function_lists")
        return endpoint_id

    def _owner(self, tool: str, run: Run) -> str:
        """The capability of a tool name: among several, the one that offers most of the listed functions."""
        known = self.index.capabilities(tool)
        if known:
            offers = Counter(
                endpoint.rpartition("/")[0] for name in run.listed for endpoint in self.index.candidates(name)
            )
            return min(known, key=lambda capability: (-offers[capability], capability))
        key = f"{self.dataset}/{UNLISTED}/{tool}"
        if key not in self._new_tools:
            name = clean(tool.replace("_", " ")) or tool
            self._new_tools[key] = Capability(
                capability_id=key,
                dataset=self.dataset,
                name=name,
                text=capability_text(name, ""),
                schema_source="task",
            )
            self.tally.note("tools_from_function_lists")
        return key

    def _arguments(self, document: Mapping[str, Any], run: Run) -> tuple[Argument, ...]:
        return schema_arguments(
            document.get("parameters"),
            keep=lambda: self.tally.keep("parameters"),
            drop=lambda reason: self.tally.drop("parameters", reason, where=run.source),
        )

    # -- second pass

    def tasks(self) -> list[tuple[Task, str]]:
        """Every kept trajectory with the name of its source, unsorted; to be called once."""
        for draft in self._drafts:
            self._finish(draft)
        self._drafts.clear()
        return self._tasks

    def _finish(self, draft: _Draft) -> None:
        run, calls = draft.run, list[str]()
        for call in draft.calls:
            if isinstance(call, str):
                calls.append(call)
            elif call.name in self._added_by_name:
                calls.append(self._added_by_name[call.name])
            else:
                self.tally.exclude(f"{run.origin}:calls", "undocumented_name", where=f"{run.source} {call.name!r}")
        self._settle(run, calls, origin=run.origin)

    def _settle(self, task: Task | Run, calls: Sequence[str], *, origin: str, collapse: bool = False) -> None:
        kept = self._distinct(calls, collapse=collapse)
        where, section = task.source, f"{origin}:calls"
        if len(calls) > len(kept):
            self.tally.exclude(section, "repeated", where=where, rows=len(calls) - len(kept))
        if not kept:
            self.tally.exclude(f"{origin}:trajectories", "no_call_left", where=where)
            return
        self.tally.keep(section, len(kept))
        self.tally.keep(f"{origin}:trajectories")
        made = replace(task, calls=kept) if isinstance(task, Task) else self._task(task, kept)
        self._tasks.append((made, origin))

    def _distinct(self, calls: Sequence[str], *, collapse: bool) -> tuple[str, ...]:
        if self.rules.deduplicate:
            return tuple(dict.fromkeys(calls))
        if collapse:
            return tuple(c for i, c in enumerate(calls) if not i or c != calls[i - 1])
        return tuple(calls)

    def _task(self, run: Run, calls: tuple[str, ...]) -> Task:
        gold = tuple(sorted(set(calls)))
        owners = [endpoint.rpartition("/")[0] for endpoint in gold]
        # The first part of a local id is the category; of equally frequent ones the first name counts.
        domains = Counter(owner.split("/")[1] for owner in owners if owner not in self._new_tools)
        return Task(
            task_id=run.task_id,
            dataset=self.dataset,
            domain=min(domains, key=lambda d: (-domains[d], d)) if domains else "",
            text=run.text,
            gold_capability_ids=tuple(sorted(set(owners))),
            gold_endpoint_ids=gold,
            ordered=True,
            calls=calls,
            split=run.split,
            source=run.source,
        )

    def library(self) -> Library:
        """The library given, and what function lists added to it. A tool of both has the source ``both``."""
        if not self._added:
            return self._library
        extended = {e.capability_id for e in self._added.values()}
        capabilities = [
            replace(c, schema_source="both" if c.schema_source == "library" else c.schema_source)
            if c.capability_id in extended
            else c
            for c in self._library.capabilities
        ]
        return Library(
            tuple(sorted([*capabilities, *self._new_tools.values()], key=lambda c: c.capability_id)),
            tuple(sorted([*self._library.endpoints, *self._added.values()], key=lambda e: e.endpoint_id)),
        )


def united(parts: Sequence[tuple[Library, Sequence[tuple[Task, str]]]], tally: Tally) -> Trajectories:
    """One set of trajectories over the libraries of several datasets, whose ids cannot meet."""
    pairs = sorted((pair for _, tasks in parts for pair in tasks), key=lambda pair: pair[0].task_id)
    library = Library(
        tuple(sorted((c for part, _ in parts for c in part.capabilities), key=lambda c: c.capability_id)),
        tuple(sorted((e for part, _ in parts for e in part.endpoints), key=lambda e: e.endpoint_id)),
    )
    tasks = tuple(task for task, _ in pairs)
    return Trajectories(
        library=library,
        tasks=tasks,
        origin=tuple(origin for _, origin in pairs),
        report=report_of(tally, library, tasks),
    )


def query_of(text: object) -> str:
    """The query of a sample, without the ``Step N: `` of training files."""
    words = scrubbed(text).strip() if isinstance(text, str) else ""
    head, colon, tail = words.partition(":")
    number = head.removeprefix("Step ")
    return tail.strip() if colon and number != head and number.strip().isdigit() else words

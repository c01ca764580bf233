"""The one data model: capabilities, endpoints, arguments and tasks, and the library that holds them.

Ids are ``dataset/local-id``: content-derived, unique and sorted wherever they are stored. An empty text is the
empty string, never a placeholder. All records are frozen; nothing after the adapters knows a raw format.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

COARSE_TYPES = (
    "number",
    "boolean",
    "datetime",
    "url",
    "email",
    "geo",
    "list",
    "object",
    "string",
    "unknown",
)

SchemaSource = Literal["library", "task", "both"]
NO_GOLD = ("irrelevance", "not_annotated")
"""Why a task has no gold: no tool applies by design, or the release names none."""


class RecordError(ValueError):
    """A record breaks the data model; the message names the record and the field."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """One named input of an endpoint.

    ``raw_type`` is the word of the release ("DATE (YYYY-MM-DD)"), ``type`` the coarse one of ``COARSE_TYPES``.
    ``required`` is None where the release does not say.
    """

    name: str
    raw_type: str = ""
    type: str = "unknown"
    required: bool | None = None
    description: str = ""

    def __post_init__(self) -> None:
        if not self.name:
            raise RecordError("an argument has no name")
        if self.type not in COARSE_TYPES:
            raise RecordError(f"argument {self.name!r}: coarse type {self.type!r} is not one of {COARSE_TYPES}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One callable operation of a capability. ``text`` is its one public rendering."""

    endpoint_id: str
    capability_id: str
    operation: str
    description: str = ""
    method: str = ""
    arguments: tuple[Argument, ...] = ()
    returns: tuple[str, ...] = ()
    text: str = ""
    source: SchemaSource = "library"

    def __post_init__(self) -> None:
        if not self.endpoint_id.startswith(self.capability_id):
            raise RecordError(f"endpoint {self.endpoint_id!r} does not belong to {self.capability_id!r}")

    @property
    def required_arguments(self) -> tuple[Argument, ...]:
        """Arguments the release marks as required, in release order."""
        return tuple(a for a in self.arguments if a.required)


@dataclass(frozen=True, slots=True, kw_only=True)
class Capability:
    """One selectable tool. ``text`` is the one public rendering that every method reads.

    ``schema_source`` says where its endpoints come from: the release's tool library, the documentation inside
    task rows (``partial_schema``: such a tool holds mostly gold endpoints, validity.md section 3), or both.
    """

    capability_id: str
    dataset: str
    name: str
    description: str = ""
    domain: str = ""
    text: str = ""
    schema_source: SchemaSource = "library"

    def __post_init__(self) -> None:
        if not self.capability_id.startswith(f"{self.dataset}/"):
            raise RecordError(f"capability id {self.capability_id!r} must start with {self.dataset!r} and a slash")

    @property
    def partial_schema(self) -> bool:
        """True where the tool was re-created from task rows only."""
        return self.schema_source == "task"


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One request with its annotated gold. Gold and given ids are sorted; ``calls`` keeps its order.

    ``no_gold`` is empty for a task that can be ranked; for one kept apart (``Records.apart``) it says why there is no
    gold: ``irrelevance`` (no tool applies, by design) or ``not_annotated``.
    """

    task_id: str
    dataset: str
    domain: str
    text: str
    gold_capability_ids: tuple[str, ...]
    gold_endpoint_ids: tuple[str, ...] = ()
    ordered: bool = False
    calls: tuple[str, ...] = ()
    given_candidate_ids: tuple[str, ...] = ()
    split: str = ""
    source: str = ""
    no_gold: str = ""

    def __post_init__(self) -> None:
        if not self.task_id.startswith(f"{self.dataset}/"):
            raise RecordError(f"task id {self.task_id!r} must start with {self.dataset!r} and a slash")
        if not self.text.strip():
            raise RecordError(f"task {self.task_id}: the text is empty")
        if self.no_gold not in ("", *NO_GOLD):
            raise RecordError(f"task {self.task_id}: no_gold={self.no_gold!r} is not one of {NO_GOLD}")
        if bool(self.gold_capability_ids) == bool(self.no_gold):
            raise RecordError(
                f"task {self.task_id}: " + ("gold and a reason for none" if self.no_gold else "no gold capability")
            )
        for name in ("gold_capability_ids", "gold_endpoint_ids", "given_candidate_ids"):
            ids = getattr(self, name)
            if tuple(sorted(set(ids))) != ids:
                raise RecordError(f"task {self.task_id}: {name} must be sorted and free of duplicates")


@dataclass(frozen=True)
class Library:
    """All capabilities and endpoints of one dataset, each sorted by id.

    Raises:
        RecordError: if ids repeat, are unsorted, or an endpoint names an unknown capability.
    """

    capabilities: tuple[Capability, ...]
    endpoints: tuple[Endpoint, ...]

    def __post_init__(self) -> None:
        _assert_sorted_unique((c.capability_id for c in self.capabilities), what="capability")
        _assert_sorted_unique((e.endpoint_id for e in self.endpoints), what="endpoint")
        known = self.position
        for endpoint in self.endpoints:
            if endpoint.capability_id not in known:
                raise RecordError(f"endpoint {endpoint.endpoint_id}: unknown capability {endpoint.capability_id}")

    @cached_property
    def position(self) -> Mapping[str, int]:
        """capability_id -> row in ``capabilities``."""
        return {c.capability_id: i for i, c in enumerate(self.capabilities)}

    @cached_property
    def endpoints_of(self) -> Mapping[str, tuple[Endpoint, ...]]:
        """capability_id -> its endpoints, sorted by id; every capability has an entry."""
        groups: dict[str, list[Endpoint]] = {c.capability_id: [] for c in self.capabilities}
        for endpoint in self.endpoints:
            groups[endpoint.capability_id].append(endpoint)
        return {key: tuple(group) for key, group in groups.items()}


@dataclass(frozen=True, kw_only=True)
class Section:
    """Counts of one kind of raw row; ``rows_read == records + sum(dropped)`` always holds."""

    rows_read: int
    records: int
    dropped: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        lost = self.rows_read - self.records - sum(self.dropped.values())
        if lost:
            raise RecordError(f"{lost} rows are neither a record nor counted as dropped")


@dataclass(frozen=True, kw_only=True)
class Report:
    """What was read and what became of it (architecture.md section 2, ``report.json``)."""

    sections: Mapping[str, Section]
    tasks: int
    capabilities: int
    endpoints: int
    gold_pairs: int
    domains: int
    ordered_tasks: int
    notes: Mapping[str, int] = field(default_factory=dict)

    @property
    def rows_read(self) -> int:
        """Raw rows over all sections."""
        return sum(s.rows_read for s in self.sections.values())

    @property
    def records(self) -> int:
        """Rows that became a record, over all sections."""
        return sum(s.records for s in self.sections.values())

    @property
    def dropped(self) -> dict[str, int]:
        """``section:reason`` -> rows."""
        return {f"{name}:{why}": n for name, s in sorted(self.sections.items()) for why, n in sorted(s.dropped.items())}

    def as_dict(self) -> dict[str, object]:
        """The content of ``report.json``."""
        return {
            "rows_read": self.rows_read,
            "records": self.records,
            "dropped": self.dropped,
            "tasks": self.tasks,
            "capabilities": self.capabilities,
            "endpoints": self.endpoints,
            "gold_pairs": self.gold_pairs,
            "domains": self.domains,
            "ordered_tasks": self.ordered_tasks,
            "sections": {
                name: {"rows_read": s.rows_read, "records": s.records, "dropped": dict(sorted(s.dropped.items()))}
                for name, s in sorted(self.sections.items())
            },
            "notes": dict(sorted(self.notes.items())),
        }


@dataclass(frozen=True, kw_only=True)
class Records:
    """Everything one adapter yields: a library, its tasks sorted by id, and the report.

    tasks: a tuple, or where there may be many a sequence that reads them from a file (``TaskFile``): go through it in
    order, and do not keep more of it than needed. apart: tasks without gold, sorted by id; no ranking experiment reads
    them. unscorable: empty, or why no experiment
    may report a score on these records (an excerpt, no annotation).

    Raises:
        RecordError: if task ids repeat or are unsorted, a gold or given id is not in the library, or a task lies on the
            wrong side.
    """

    dataset: str
    library: Library
    tasks: Sequence[Task]
    report: Report
    apart: Sequence[Task] = ()
    unscorable: str = ""

    def __post_init__(self) -> None:
        capability_ids = self.library.position
        endpoint_ids = {e.endpoint_id for e in self.library.endpoints}
        for tasks, apart, what in ((self.tasks, False, "task"), (self.apart, True, "task apart")):
            checked = _checked(tasks, capability_ids, endpoint_ids, apart=apart)
            _assert_sorted_unique((task.task_id for task in checked), what=what)  # one pass: it may read a file


def _checked(
    tasks: Iterable[Task], capability_ids: Container[str], endpoint_ids: Container[str], *, apart: bool
) -> Iterator[Task]:
    for task in tasks:
        if bool(task.no_gold) != apart:
            raise RecordError(f"task {task.task_id}: tasks without gold belong in ``apart``, and only these")
        for capability_id in (*task.gold_capability_ids, *task.given_candidate_ids):
            if capability_id not in capability_ids:
                raise RecordError(f"task {task.task_id}: {capability_id} is not in the library")
        for endpoint_id in (*task.gold_endpoint_ids, *task.calls):
            if endpoint_id not in endpoint_ids:
                raise RecordError(f"task {task.task_id}: endpoint {endpoint_id} is not in the library")
        yield task


def _assert_sorted_unique(ids: Iterable[str], *, what: str) -> None:
    previous = ""
    for current in ids:
        if current <= previous:
            problem = "appears twice" if current == previous else f"comes after {previous!r}"
            raise RecordError(f"{what} ids must be sorted and unique: {current!r} {problem}")
        previous = current

"""What a trajectory is before and after its names are resolved, and the rules of a mode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from toolshift.data.records import Library, RecordError, Report, Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Which calls and trajectories are kept.

    deduplicate: keep the first call of each tool (text of the paper), or all calls (its code). error_free: drop calls
    whose response reports an error; a call of which the release does not tell is kept, and noted. successful: drop
    trajectories without a success marker.
    """

    deduplicate: bool = True
    error_free: bool = False
    successful: bool = True


PAPER = Rules(deduplicate=True)
AUTHORS = Rules(deduplicate=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call of a function by its released name. error: whether it failed, None where the release does not tell."""

    name: str
    error: bool | None = None
    hallucinated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One trajectory as a release holds it.

    origin: name of its source, with which ``task_id`` (of the form ``dataset/source/...``) begins. listed: names of the
    functions that the agent was given, in release order; empty where the release does not tell. documented: what it
    was told of them, in OpenAI's shape, by name; a subset of ``listed``. marked: whether it ended in success.
    """

    origin: str
    task_id: str
    text: str
    calls: Sequence[Call]
    marked: bool
    split: str
    source: str
    listed: Sequence[str] = ()
    documented: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Trajectories:
    """n trajectories over one library, sorted by id.

    library: its endpoints are the tools that are retrieved and ordered. tasks: (n,), ``ordered``, ``calls`` hold one
    endpoint id or more in order of execution. origin: (n,) name of each task's source. report: sections
    ``<origin>:trajectories`` and ``<origin>:calls``; the latter counts the calls of trajectories that were not dropped
    before their calls were looked at.

    Raises:
        RecordError: if ids repeat or are unsorted, a call is not in the library, or a task holds none.
    """

    library: Library
    tasks: tuple[Task, ...]
    origin: tuple[str, ...]
    report: Report

    def __post_init__(self) -> None:
        if len(self.origin) != len(self.tasks):
            raise RecordError(f"{len(self.tasks)} trajectories and {len(self.origin)} origins")
        known = {endpoint.endpoint_id for endpoint in self.library.endpoints}
        previous = ""
        for task in self.tasks:
            if task.task_id <= previous:
                raise RecordError(f"trajectory ids must be sorted and unique: {task.task_id!r} after {previous!r}")
            if not (task.ordered and task.calls):
                raise RecordError(f"trajectory {task.task_id}: no ordered call")
            unknown = next((call for call in task.calls if call not in known), None)
            if unknown is not None:
                raise RecordError(f"trajectory {task.task_id}: endpoint {unknown} is not in the library")
            previous = task.task_id

    def __len__(self) -> int:
        return len(self.tasks)

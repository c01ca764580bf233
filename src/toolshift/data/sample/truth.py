"""The truth beside a sample: why a candidate is valid or not, in the ids of the records.

Written while the tasks are drawn, read by tests of methods and never by a method. ``docs/sample.md`` explains how the
tables hang together.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from toolshift.data.sample.language import CONDITIONS
from toolshift.data.sample.tasks import SampleTask
from toolshift.data.sample.world import World

FOLDER = "truth"
_BATCH = 2048

_STRINGS = pa.list_(pa.string())
_CONDITION = pa.struct([("axis", pa.string()), ("value", pa.string())])
_ARGUMENT = pa.struct([("kind", pa.string()), ("value", pa.string()), ("source_step", pa.int8())])
_REQUIREMENT = pa.struct(
    [
        ("concept", pa.string()),
        ("function", pa.string()),
        ("gold_endpoint_ids", _STRINGS),
        ("arguments", pa.list_(_ARGUMENT)),
    ]
)
SCHEMAS = {
    "capabilities": pa.schema(
        [
            ("capability_id", pa.string()),
            ("domain", pa.string()),
            ("provider", pa.string()),
            ("axis", pa.string()),
            ("admits", _STRINGS),
        ]
    ),
    "endpoints": pa.schema(
        [
            ("endpoint_id", pa.string()),
            ("capability_id", pa.string()),
            ("concept", pa.string()),
            ("function", pa.string()),
        ]
    ),
    "groups": pa.schema(
        [
            ("domain", pa.string()),
            ("concept", pa.string()),
            ("function", pa.string()),
            ("capability_ids", _STRINGS),
            ("false_friend_ids", _STRINGS),
        ]
    ),
    "tasks": pa.schema(
        [
            ("task_id", pa.string()),
            ("domain", pa.string()),
            ("conditions", pa.list_(_CONDITION)),
            ("requirements", pa.list_(_REQUIREMENT)),
            ("calls", _STRINGS),
        ]
    ),
    "judgements": pa.schema(
        [
            ("task_id", pa.string()),
            ("requirement", pa.int8()),
            ("capability_id", pa.string()),
            ("functional", pa.bool_()),
            ("contextual", pa.bool_()),
            ("valid", pa.bool_()),
            ("reason", pa.string()),
        ]
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ids:
    """Record ids of a rendering, by row of the world's capabilities and endpoints."""

    capability: tuple[str, ...]
    endpoint: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """The truth of one sample as Arrow tables (``SCHEMAS``).

    capabilities: the hidden conditions a capability admits (all values of its axis in ``no_context_gap``, none in
    ``context_is_noise``, where no condition outlives its task). endpoints: what an endpoint does, whatever its
    documentation says. groups: per function of a concept that tasks ask for, who has it and who only speaks of the
    concept. tasks: stated conditions, steps with arguments, and the endpoint called in each step; ``source_step`` is
    the step whose result an argument takes. judgements: one row per task, step and capability that speaks of the
    step's concept, with ``reason`` ok, functional_conflict (which goes before), context_unmet or less_popular.
    """

    capabilities: pa.Table
    endpoints: pa.Table
    groups: pa.Table
    tasks: pa.Table
    judgements: pa.Table


class TruthWriter:
    """Writes the truth of a world below a folder, tasks as they come; memory holds one batch of them."""

    def __init__(self, folder: Path, world: World, *, ids: Ids) -> None:
        self.world, self.ids = world, ids
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._rows: dict[str, list[dict[str, object]]] = {"tasks": [], "judgements": []}
        self._files = {name: pq.ParquetWriter(folder / f"{name}.parquet", SCHEMAS[name]) for name in self._rows}

    def write_library(self) -> None:
        """Write the tables that do not depend on tasks."""
        for name, rows in (
            ("capabilities", self._capabilities()),
            ("endpoints", self._endpoints()),
            ("groups", self._groups()),
        ):
            pq.write_table(pa.Table.from_pylist(list(rows), SCHEMAS[name]), self._folder / f"{name}.parquet")

    def add(self, task: SampleTask, *, task_id: str) -> None:
        """Add one task and its judgements."""
        concepts, ids = self.world.concepts, self.ids
        self._rows["tasks"].append(
            {
                "task_id": task_id,
                "domain": task.domain,
                "conditions": [{"axis": axis, "value": value} for axis, value in task.conditions],
                "requirements": [
                    {
                        "concept": concepts[requirement.group.concept].noun,
                        "function": requirement.group.function,
                        "gold_endpoint_ids": [ids.endpoint[row] for row in requirement.gold],
                        "arguments": [
                            {"kind": m.kind, "value": m.value, "source_step": m.source} for m in requirement.mentions
                        ],
                    }
                    for requirement in task.requirements
                ],
                "calls": [ids.endpoint[row] for row in task.calls],
            }
        )
        self._rows["judgements"] += self._judgements(task, task_id)
        if len(self._rows["tasks"]) >= _BATCH:
            self._flush()

    def close(self) -> None:
        """Write what is left and close the files; call it also after an error."""
        try:
            self._flush()
        finally:
            for file in self._files.values():
                file.close()

    def _flush(self) -> None:
        for name, rows in self._rows.items():
            if rows:
                self._files[name].write_table(pa.Table.from_pylist(rows, SCHEMAS[name]))
                rows.clear()

    def _judgements(self, task: SampleTask, task_id: str) -> Iterator[dict[str, object]]:
        for step, requirement in enumerate(task.requirements):
            for judged in requirement.judged:
                yield {
                    "task_id": task_id,
                    "requirement": step,
                    "capability_id": self.ids.capability[judged.capability],
                    "functional": judged.functional,
                    "contextual": judged.contextual,
                    "valid": judged.gold,
                    "reason": judged.reason,
                }

    def _capabilities(self) -> Iterator[dict[str, object]]:
        for row in self.world.capabilities:
            yield {
                "capability_id": self.ids.capability[row.row],
                "domain": row.domain,
                "provider": row.provider,
                "axis": row.axis,
                "admits": _admits(self.world, row.axis, row.admits),
            }

    def _endpoints(self) -> Iterator[dict[str, object]]:
        for row in self.world.endpoints:
            yield {
                "endpoint_id": self.ids.endpoint[row.row],
                "capability_id": self.ids.capability[row.capability],
                "concept": self.world.concepts[row.concept].noun,
                "function": row.function,
            }

    def _groups(self) -> Iterator[dict[str, object]]:
        world = self.world
        for domain in world.domains:
            for group in domain.groups:
                owners = sorted(self.ids.capability[world.endpoints[row].capability] for row in group.rivals)
                yield {
                    "domain": domain.name,
                    "concept": world.concepts[group.concept].noun,
                    "function": group.function,
                    "capability_ids": owners,
                    "false_friend_ids": sorted(self.ids.capability[row] for row in world.false_friends(group)),
                }


def read_truth(root: Path, *, dataset: str = "toolbench") -> Truth:
    """The truth of the sample below ``root`` (``SampleInfo.root``), in the ids of a dataset's records.

    Raises:
        FileNotFoundError: if there is none: ``root`` holds no sample, or none in the format of this dataset.
    """
    folder = root / FOLDER / dataset
    if not folder.is_dir():
        raise FileNotFoundError(
            f"{folder}: no such folder, so there is no truth to read; expected the root of a generated sample "
            "(toolshift.data.sample.write_sample); real files have no truth"
        )
    return Truth(**{name: pq.read_table(folder / f"{name}.parquet", schema=SCHEMAS[name]) for name in SCHEMAS})


def _admits(world: World, axis: str, admits: tuple[str, ...]) -> list[str]:
    if world.spec.world == "context_is_noise":
        return []
    return sorted(CONDITIONS[axis]) if world.spec.world == "no_context_gap" else list(admits)


class WorldHash:
    """SHA-256 over a world and its tasks in canonical JSON lines: equal wherever the same world is drawn, whatever
    format it is written in."""

    def __init__(self, world: World) -> None:
        self._hash = hashlib.sha256()
        for concept in world.concepts:
            self._line(concept.domain, concept.noun, concept.asked_as, concept.axis, concept.idle)
        for row in world.capabilities:
            self._line(row.domain, row.name, row.description, row.axis, _admits(world, row.axis, row.admits), row.idle)
        for row in world.endpoints:
            document = row.document
            arguments = [
                [p.name, p.raw_type, p.description, required]
                for required, given in ((True, document.required), (False, document.optional))
                for p in given
            ]
            head = (document.operation, document.description, document.method)
            self._line(row.capability, row.concept, row.function, *head, arguments)

    def add(self, task: SampleTask) -> None:
        """Add the next task."""
        steps = [
            [
                requirement.group.concept,
                requirement.group.function,
                [[m.kind, m.value, m.source] for m in requirement.mentions],
                requirement.gold,
                [[j.capability, j.functional, j.contextual, j.gold, j.reason] for j in requirement.judged],
            ]
            for requirement in task.requirements
        ]
        self._line(task.domain, task.text, task.conditions, steps)

    def hexdigest(self) -> str:
        """The hash of what was added so far."""
        return self._hash.hexdigest()

    def _line(self, *parts: object) -> None:
        self._hash.update(json.dumps(parts, ensure_ascii=False, separators=(",", ":")).encode() + b"\n")

"""Formats whose tool is one function: requests, order, domains and arguments as their adapters read them back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from toolshift.data.records import Records, Task
from toolshift.data.sample import (
    WORLDS,
    SampleTask,
    Spec,
    World,
    WorldName,
    build_world,
    draw_tasks,
    read_truth,
    world_of,
    write_sample,
)
from toolshift.data.sample.files import HashedFolder
from toolshift.data.sample.formats.base import format_of

DATASETS = ("apibank", "apibench", "bfcl", "metatool")
each = pytest.mark.parametrize("dataset", DATASETS)
everywhere = pytest.mark.parametrize("name", WORLDS)


@dataclass(frozen=True)
class Opened:
    world: World
    drawn: tuple[SampleTask, ...]
    records: Records
    calls: dict[str, list[str]]
    writer: Any

    def pairs(self) -> list[tuple[SampleTask, Task]]:
        """Every drawn task with its record."""
        tasks = {task.task_id: task for task in self.records.tasks}
        return [(task, tasks[self.writer.task_id(task)]) for task in self.drawn]


Open = Callable[[str, WorldName], Opened]


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Open:
    """A small sample of a world in a dataset's format; written and read once per module."""
    folder = tmp_path_factory.mktemp("formats")
    kept: dict[tuple[str, WorldName], Opened] = {}

    def open_one(dataset: str, name: WorldName) -> Opened:
        if (dataset, name) not in kept:
            spec = Spec(world=name, size="tiny", tasks=20)
            root = write_sample(folder, spec, dataset=dataset).root
            world = format_of(dataset).shaped(build_world(world_of(spec, dataset=dataset)))
            kept[dataset, name] = Opened(
                world=world,
                drawn=tuple(draw_tasks(world)),
                records=import_module(f"toolshift.data.adapters.{dataset}").read(root, strict=True),
                calls={r["task_id"]: r["calls"] for r in read_truth(root, dataset=dataset).tasks.to_pylist()},
                writer=format_of(dataset).open_writer(HashedFolder(folder), world),
            )
        return kept[dataset, name]

    return open_one


@each
@everywhere
def test_every_request_is_a_task(opened: Open, dataset: str, name: WorldName) -> None:
    """Formats break lines, and some let somebody say more behind the request; nothing else changes."""
    it = opened(dataset, name)
    assert len(it.pairs()) == len(it.records.tasks) == len(it.calls) == 228
    longer = 0
    for task, record in it.pairs():
        said = " ".join(record.text.split())
        assert said.startswith(task.text)
        longer += said != task.text
    assert longer == 0 if dataset in ("apibench", "bfcl") else 1 <= longer < 30


@each
@everywhere
def test_gold_is_that_of_the_world(opened: Open, dataset: str, name: WorldName) -> None:
    it = opened(dataset, name)
    ids = it.writer.ids
    for task, record in it.pairs():
        assert record.gold_endpoint_ids == tuple(sorted(ids.endpoint[row] for row in task.gold))
        assert record.gold_capability_ids == tuple(sorted(ids.capability[row] for row in task.gold))
        if record.given_candidate_ids:
            assert set(record.given_candidate_ids) >= set(record.gold_capability_ids) or dataset == "apibank"
    assert it.records.report.dropped == {}


@each
@everywhere
def test_order_is_told_where_the_format_tells_it(opened: Open, dataset: str, name: WorldName) -> None:
    it = opened(dataset, name)
    ordered = [record for _, record in it.pairs() if record.ordered]
    for record in ordered:
        assert list(record.calls) == it.calls[record.task_id]
    several = [record for record in ordered if len(record.calls) > 1]
    assert len(several) > 100 if dataset in ("apibank", "bfcl") else not ordered
    if dataset == "bfcl":
        assert {r.domain for _, r in it.pairs() if not r.ordered} == {"python", "live", "java"}
        assert {r.domain for r in ordered}.isdisjoint({"python", "live", "java"})


@each
@everywhere
def test_domains(opened: Open, dataset: str, name: WorldName) -> None:
    it = opened(dataset, name)
    unknown = {"metatool": {row.name for row in it.world.domains}, "apibank": {"sea_and_coast"}}.get(dataset, set())
    for task, record in it.pairs():
        assert record.domain == ("" if task.domain in unknown else task.domain)
    found = {row.domain for row in it.records.library.capabilities}
    assert found - {""} == {row.name for row in it.world.domains} - unknown
    known = {row.capability_id: row.domain for row in it.records.library.capabilities}
    wrong = [
        row.name
        for row, identity in zip(it.world.capabilities, it.writer.ids.capability, strict=True)
        if known[identity] != ("" if row.domain in unknown else row.domain)
    ]
    # API-Bank finds scenarios by class name, also that of the second class of a name.
    assert len(wrong) == (1 if dataset == "apibank" else 0)


@each
@everywhere
def test_arguments(opened: Open, dataset: str, name: WorldName) -> None:
    it = opened(dataset, name)
    known = {endpoint.endpoint_id: endpoint.arguments for endpoint in it.records.library.endpoints}
    for row, identity in zip(it.world.endpoints, it.writer.ids.endpoint, strict=True):
        found = {argument.name: argument.required for argument in known[identity] if "." not in argument.name}
        required = {p.name: True for p in row.document.required}
        documented = {**required, **{p.name: False for p in row.document.optional}}
        told = dataset == "bfcl" or (dataset == "apibank" and it.world.capabilities[row.row].domain in it.writer.coded)
        expected = {} if dataset == "metatool" else documented if told else dict.fromkeys(documented)
        assert found == expected


@each
def test_too_few_tasks_are_refused(tmp_path: Path, dataset: str) -> None:
    if dataset == "apibench":
        pytest.skip("its records need no task")
    with pytest.raises(ValueError, match="more tasks per domain"):
        for seed in range(3):
            write_sample(tmp_path, Spec(size="tiny", tasks=1, seed=seed), dataset=dataset)


@pytest.mark.parametrize("dataset", ["apibank", "bfcl"])
def test_only_so_many_files(tmp_path: Path, dataset: str) -> None:
    """The number of files follows from the library, not from the tasks."""
    few, many = (write_sample(tmp_path, Spec(size="tiny", tasks=tasks), dataset=dataset).files for tasks in (80, 120))
    assert few == many

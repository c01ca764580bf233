"""Formats whose tool is one function: what they say of arguments and order, and what they refuse.

That requests, gold and domains are those of the world is tested for all formats in ``test_sample_formats.py``.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from toolshift.data.sample import Spec, WorldName, build_world, draw_tasks, world_of, write_sample
from toolshift.data.sample.files import HashedFolder
from toolshift.data.sample.formats import apibank, metatool
from toolshift.data.sample.formats.base import format_of

DATASETS = ("apibank", "apibench", "bfcl", "metatool")


@pytest.mark.parametrize("name", ["default", "no_function_gap"])
@pytest.mark.parametrize("dataset", DATASETS)
def test_arguments_and_what_is_required(tmp_path: Path, dataset: str, name: WorldName) -> None:
    """MetaTool documents none, APIBench does not say which are required, API-Bank only where there is code."""
    spec = Spec(world=name, size="tiny", tasks=20, seed=1)
    root = write_sample(tmp_path, spec, dataset=dataset).root
    world = format_of(dataset).shaped(build_world(world_of(spec, dataset=dataset)))
    ids = format_of(dataset).open_writer(HashedFolder(tmp_path), world).ids
    full = [domain.name for domain in world.domains if not domain.tiny]
    told = {"bfcl": {d.name for d in world.domains}, "apibank": {*full[::2], full[-1]}}.get(dataset, set())
    records = import_module(f"toolshift.data.adapters.{dataset}").read(root, strict=True)
    known = {endpoint.endpoint_id: endpoint.arguments for endpoint in records.library.endpoints}
    for row, identity in zip(world.endpoints, ids.endpoint, strict=True):
        found = {argument.name: argument.required for argument in known[identity] if "." not in argument.name}
        documented = {p.name: True for p in row.document.required} | {p.name: False for p in row.document.optional}
        here = world.capabilities[row.capability].domain in told
        assert found == ({} if dataset == "metatool" else documented if here else dict.fromkeys(documented))


@pytest.mark.parametrize("dataset", ["apibank", "bfcl"])
def test_too_few_tasks_are_refused(tmp_path: Path, dataset: str) -> None:
    with pytest.raises(ValueError, match="more tasks per domain"):
        write_sample(tmp_path, Spec(size="tiny", tasks=1), dataset=dataset)
    assert list(tmp_path.iterdir()) == []


def test_metatool_needs_queries_of_both_kinds(tmp_path: Path) -> None:
    world = metatool.shaped(build_world(Spec(size="tiny", tasks=2)))
    for kept in (lambda task: len(task.requirements) == 1, lambda task: len(task.requirements) > 1):
        files = HashedFolder(tmp_path)
        writer = metatool.open_writer(files, world)
        writer.write_tools()
        for task in filter(kept, draw_tasks(world)):
            writer.add(task)
        with pytest.raises(ValueError, match="more tasks per domain"):
            writer.close()
        files.close()


@pytest.mark.parametrize("dataset", ["apibank", "bfcl"])
def test_only_so_many_files(tmp_path: Path, dataset: str) -> None:
    """The number of files follows from the library, not from the tasks."""
    few, many = (write_sample(tmp_path, Spec(size="tiny", tasks=n), dataset=dataset).files for n in (80, 120))
    assert few == many


def test_apibank_has_an_order_in_level_3_alone(tmp_path: Path) -> None:
    spec = Spec(size="tiny", tasks=20)
    records = import_module("toolshift.data.adapters.apibank").read(
        write_sample(tmp_path, spec, dataset="apibank").root
    )
    world = apibank.shaped(build_world(world_of(spec, dataset="apibank")))
    writer = apibank.open_writer(HashedFolder(tmp_path), world)
    tasks = {task.task_id: task for task in records.tasks}
    parts = {task.row: writer.placement(task).part for task in draw_tasks(world)}
    assert set(parts.values()) == {"level-1", "level-2", "level-3", "level-3-train"}
    for task in draw_tasks(world):
        record = tasks[writer.task_id(task)]
        assert record.split.split("+")[0] == parts[task.row]
        assert record.ordered == parts[task.row].startswith("level-3")
        # The domain without a scenario is one of level 3's own.
        assert record.domain or record.ordered

"""The quirks of the sample in ToolEyes' format, and what of the world its sets show."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from toolshift.data.adapters.tooleyes import CONTROLS, read
from toolshift.data.records import Records
from toolshift.data.sample import Spec, World, build_world, draw_tasks, world_of, write_sample
from toolshift.data.sample.files import HashedFolder
from toolshift.data.sample.formats.tooleyes import DATASET, open_writer, shaped

SPEC = Spec(size="tiny")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_sample(tmp_path_factory.mktemp("tooleyes"), SPEC, dataset=DATASET).root


@pytest.fixture(scope="module")
def records(root: Path) -> Records:
    return read(root)


@pytest.fixture(scope="module")
def world() -> World:
    return shaped(build_world(world_of(SPEC, dataset=DATASET)))


def test_given_are_the_tools_that_speak_of_what_is_asked_first(records: Records, world: World, tmp_path: Path) -> None:
    writer = open_writer(HashedFolder(tmp_path), world)
    tasks = {task.task_id: task for task in records.apart}
    for drawn in draw_tasks(world):
        concept = drawn.requirements[0].group.concept
        given = sorted(writer.ids.capability[row] for row in world.speakers[concept])
        task = tasks[writer.task_id(drawn)]
        assert list(task.given_candidate_ids) == given
        assert writer.ids.capability[world.endpoints[drawn.calls[0]].capability] in given
        assert task.domain == drawn.domain


def test_quirks(root: Path, records: Records, world: World) -> None:
    notes = records.report.notes
    assert notes["merged_duplicate_text"] > 0
    assert any("+" in task.split for task in records.apart)
    assert (notes["merged_same_name_in_set"], notes["merged_with_other_documentation"]) == (1, 0)
    controls = records.report.sections["tools"].dropped["control_entry"]
    assert controls == len(CONTROLS) * len(world.concepts)
    names = Counter(c.name for c in records.library.capabilities)
    assert names["quick_lookup"] == 2
    assert len({c.domain for c in records.library.capabilities if c.name == "quick_lookup"}) == 2
    sets = {path.parent.name for path in (root / DATASET).rglob("config_gpt4.json")}
    assert {" " in name for name in sets} == {True, False}
    rows = json.loads((root / DATASET / "Test_Data" / "scenario_data_raw.json").read_text())
    assert {row["path"].endswith("/") for row in rows} == {True, False}


def test_arguments(records: Records, world: World, tmp_path: Path) -> None:
    ids = open_writer(HashedFolder(tmp_path), world).ids.endpoint
    found = {endpoint.endpoint_id: endpoint for endpoint in records.library.endpoints}
    unknown = 0
    for row in world.endpoints:
        document, arguments = row.document, found[ids[row.row]].arguments
        assert [a.name for a in arguments] == [p.name for p in (*document.required, *document.optional)]
        needed = [a.name for a in arguments if a.required]
        if row.row % 7 == 0:
            unknown += len(arguments)
            assert all(a.required is None for a in arguments)
        else:
            assert needed == [p.name for p in document.required]
    assert unknown > 0
    assert {a.type for e in found.values() for a in e.arguments} >= {"string", "number", "boolean"}

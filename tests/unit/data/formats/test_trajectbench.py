"""The quirks of the sample in TRAJECT-Bench's format, and what of the world its rows show."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from toolshift.data.adapters.trajectbench import read
from toolshift.data.records import Records
from toolshift.data.sample import Spec, World, build_world, world_of, write_sample
from toolshift.data.sample.files import HashedFolder
from toolshift.data.sample.formats.trajectbench import DATASET, open_writer, shaped

SPEC = Spec(size="tiny")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_sample(tmp_path_factory.mktemp("trajectbench"), SPEC, dataset=DATASET).root


@pytest.fixture(scope="module")
def records(root: Path) -> Records:
    return read(root, strict=True)


@pytest.fixture(scope="module")
def world() -> World:
    return shaped(build_world(world_of(SPEC, dataset=DATASET)))


def test_quirks(root: Path, records: Records) -> None:
    notes = records.report.notes
    for quirk in (
        "calls_of_recreated_tools",
        "failed_calls",
        "merged_duplicate_text",
        "merged_tool_rows",
        "recreated_apis",
        "recreated_tools",
    ):
        assert notes[quirk] > 0, quirk
    assert notes["merged_tools_of_one_key"] == 1
    assert notes["merged_text_with_other_calls"] == 0
    assert records.report.sections["queries"].dropped == {}
    assert {task.split for task in records.tasks} == {"traj_query", "simple_ver+traj_query"}
    assert len(list((root / DATASET).rglob("sequence.json"))) == 1


def test_both_spellings_of_the_list_and_unknown_parents_occur(root: Path) -> None:
    sequential = root / DATASET / "public_data" / "sequential"
    first, second = (
        [row for path in sorted(sequential.glob(f"*/{name}.json")) for row in json.loads(path.read_text())]
        for name in ("traj_query", "simple_ver")
    )
    assert all("tool list" in row for row in first)
    assert all("tool_list" in row for row in second)
    parents = [call["parent tool name"] for row in first for call in row["tool list"]]
    assert 0 < parents.count("unknown") < len(parents)
    values = [p["value"] for row in first for call in row["tool list"] for p in call["required parameters"]]
    assert any(value.startswith("result of step") for value in values)


def test_an_order_that_several_answers_have_is_none(tmp_path: Path) -> None:
    found = read(write_sample(tmp_path, Spec(world="no_context_gap", size="tiny"), dataset=DATASET).root)
    several = [task for task in found.tasks if "traj_query" in task.split]
    assert found.report.notes["merged_text_with_other_calls"] > 0
    assert len(several) == len(found.tasks)
    assert found.report.ordered_tasks == 0


def test_arguments(records: Records, world: World, tmp_path: Path) -> None:
    """Tools that a file lists have all arguments with their types; the others what their calls give, without."""
    ids = open_writer(HashedFolder(tmp_path), world).ids.endpoint
    found = {endpoint.endpoint_id: endpoint for endpoint in records.library.endpoints}
    recreated = 0
    for row in world.endpoints:
        endpoint, document = found[ids[row.row]], row.document
        required = [p.name for p in document.required]
        if endpoint.source == "task":
            recreated += 1
            assert [a.name for a in endpoint.arguments] == required
            assert {a.raw_type for a in endpoint.arguments} == {""}
            assert endpoint.description == ""
            continue
        assert [(a.name, a.raw_type) for a in endpoint.arguments] == [
            (p.name, p.raw_type) for p in (*document.required, *document.optional)
        ]
        assert [a.name for a in endpoint.arguments if a.required] == required
        assert endpoint.description == document.description
    assert recreated == records.report.notes["recreated_apis"]


def test_recreated_tools_have_no_public_description(records: Records) -> None:
    recreated = [c for c in records.library.capabilities if c.schema_source == "task"]
    assert len(recreated) == records.report.notes["recreated_tools"]
    assert all(not c.description and c.domain for c in recreated)
    assert all(c.description for c in records.library.capabilities if c.schema_source == "library")

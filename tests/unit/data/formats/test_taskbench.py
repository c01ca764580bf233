"""The quirks of the sample in TaskBench's format, and what of the world its rows show."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from toolshift.data.adapters.taskbench import read
from toolshift.data.records import Records
from toolshift.data.sample import Spec, World, build_world, world_of, write_sample
from toolshift.data.sample.files import HashedFolder
from toolshift.data.sample.formats.taskbench import DATASET, open_writer, shaped

SPEC = Spec(size="tiny")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_sample(tmp_path_factory.mktemp("taskbench"), SPEC, dataset=DATASET).root


@pytest.fixture(scope="module")
def records(root: Path) -> Records:
    return read(root)


@pytest.fixture(scope="module")
def world() -> World:
    return shaped(build_world(world_of(SPEC, dataset=DATASET)))


@pytest.fixture(scope="module")
def folders(root: Path) -> list[Path]:
    return sorted((root / DATASET).iterdir())


def test_a_folder_per_domain_in_lower_case(folders: list[Path], world: World) -> None:
    assert [folder.name for folder in folders] == [f"data_{domain.name}" for domain in world.domains]
    assert all(folder.name == folder.name.lower() for folder in folders)


def test_quirks(records: Records) -> None:
    notes = records.report.notes
    for quirk in (
        "arguments_missing",
        "arguments_not_a_list",
        "arguments_with_numbers",
        "incomplete_order",
        "n_tools_unlike_nodes",
        "partial_order",
    ):
        assert notes[quirk] > 0, quirk
    assert notes["repeated_request_ids"] == 12
    assert records.report.sections["gold_nodes"].dropped["not_in_tool_desc"] > 0
    assert {task.split for task in records.tasks} >= {"single", "chain", "dag"}


def test_requests_are_complete_so_that_it_can_be_scored(folders: list[Path], records: Records) -> None:
    assert records.unscorable == ""
    for folder in folders:
        name = "user_requests.jsonl" if folder == folders[-1] else "user_requests.json"
        requests = [json.loads(line) for line in (folder / name).read_text().splitlines()]
        rows = [json.loads(line) for line in (folder / "data.json").read_text().splitlines()]
        assert [(r["id"], r["user_request"]) for r in requests] == [
            (r["id"], r.get("instruction", r.get("user_request"))) for r in rows
        ]


def test_all_schemas_occur(folders: list[Path]) -> None:
    first = [json.loads((folder / "data.json").read_text().split("\n", 1)[0]) for folder in folders]
    assert any(isinstance(row.get("tool_nodes"), str) for row in first)
    assert any(isinstance(row.get("task_nodes"), list) and "instruction" in row for row in first)
    assert any("user_request" in row and "instruction" not in row for row in first)


def test_nodes_may_stand_against_their_links(folders: list[Path]) -> None:
    against = 0
    for line in (folders[0] / "data.json").read_text().splitlines():
        row = json.loads(line)
        names = [node["task"] for node in json.loads(row["tool_nodes"])]
        against += any(names.index(x["source"]) > names.index(x["target"]) for x in json.loads(row["tool_links"]))
    assert against > 0


def test_tools_have_named_parameters_or_media(records: Records, world: World, folders: list[Path]) -> None:
    ids = open_writer(HashedFolder(folders[0]), world).ids.endpoint
    found = {endpoint.endpoint_id: endpoint for endpoint in records.library.endpoints}
    media = {domain.name for domain in world.domains[3::4]}
    assert len(media) == 3
    for row in world.endpoints:
        endpoint = found[ids[row.row]]
        document = row.document
        if world.capabilities[row.capability].domain in media:
            assert len(endpoint.arguments) == len(document.required)
            assert endpoint.returns == ("text",)
        else:
            expected = [p.name for p in (*document.required, *document.optional)]
            assert [argument.name for argument in endpoint.arguments] == expected
        assert endpoint.description == " ".join(world.capabilities[row.capability].description.split())


def test_each_tool_is_a_function(records: Records) -> None:
    assert {len(ids) for ids in records.library.endpoints_of.values()} == {1}
    for task in records.tasks:
        assert {gold.split("/")[1] for gold in task.gold_capability_ids} == {task.domain}

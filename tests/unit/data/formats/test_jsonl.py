"""What the sample shows of the three files for your own data."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from toolshift.data.adapters.jsonl import read
from toolshift.data.records import Records
from toolshift.data.sample import Spec, World, build_world, draw_tasks, world_of, write_sample
from toolshift.data.sample.files import HashedFolder
from toolshift.data.sample.formats.jsonl import DATASET, open_writer, shaped

SPEC = Spec(size="tiny")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_sample(tmp_path_factory.mktemp("jsonl"), SPEC, dataset=DATASET).root


@pytest.fixture(scope="module")
def records(root: Path) -> Records:
    return read(root, strict=True)


@pytest.fixture(scope="module")
def world() -> World:
    return shaped(build_world(world_of(SPEC, dataset=DATASET)))


def test_no_row_is_a_fault_and_all_judgements_agree_with_the_calls(records: Records) -> None:
    notes = records.report.notes
    assert all(not section.dropped for section in records.report.sections.values())
    assert (notes["gold_added_by_calls"], notes["gold_without_endpoint"], notes["tasks_apart"]) == (0, 0, 0)
    for quirk in ("judged_not_relevant", "repeated_qrels", "merged_duplicate_endpoints"):
        assert notes[quirk] > 0, quirk


def test_what_the_files_may_hold_occurs(root: Path, world: World) -> None:
    corpus = (root / DATASET / "corpus.jsonl").read_bytes()
    assert corpus.startswith(b"\xef\xbb\xbf")
    assert corpus.endswith(b"\n\n")
    tools = [json.loads(line) for line in corpus.decode("utf-8-sig").splitlines() if line]
    assert len(tools) == len(world.capabilities)
    assert {type(tool["_id"]) for tool in tools} == {int, str}
    assert {"title" in tool for tool in tools} == {"text" in tool for tool in tools} == {True, False}
    assert {frozenset(e) & {"arguments", "parameters"} for tool in tools for e in tool["endpoints"]} == {
        frozenset({"arguments"}),
        frozenset({"parameters"}),
    }
    tasks = [json.loads(line) for line in (root / DATASET / "tasks.jsonl").read_text().splitlines()]
    assert {"domain" in task for task in tasks} == {"candidates" in task for task in tasks} == {True, False}
    assert {type(call) for task in tasks for call in task["calls"]} == {dict, str, int}
    lines = (root / DATASET / "qrels.tsv").read_text().splitlines()
    assert {line.split("\t")[2] for line in lines[1:]} >= {"0", "1", "2", "3"}


def test_operations_and_arguments(records: Records, world: World, tmp_path: Path) -> None:
    ids = open_writer(HashedFolder(tmp_path), world).ids
    found = {endpoint.endpoint_id: endpoint for endpoint in records.library.endpoints}
    for row in world.endpoints:
        endpoint, document = found[ids.endpoint[row.row]], row.document
        assert (endpoint.operation, endpoint.method) == (document.operation, document.method)
        assert endpoint.description == document.description
        assert [(a.name, a.raw_type, a.required) for a in endpoint.arguments] == [
            *((p.name, p.raw_type, True) for p in document.required),
            *((p.name, p.raw_type, False) for p in document.optional),
        ]
    names = {c.capability_id: (c.name, c.description) for c in records.library.capabilities}
    assert names == {ids.capability[row.row]: (row.name, row.description) for row in world.capabilities}


def test_candidates_hold_the_gold_and_more(records: Records) -> None:
    given = [task for task in records.tasks if task.given_candidate_ids]
    assert 0.2 < len(given) / len(records.tasks) < 0.4
    assert all(set(task.given_candidate_ids) > set(task.gold_capability_ids) for task in given)
    assert {task.split for task in records.tasks} == {"train", "test"}


def test_ids_are_rows(records: Records, world: World) -> None:
    texts = {f"jsonl/t{task.row}": task.text for task in draw_tasks(world)}
    assert {task.task_id: task.text for task in records.tasks} == texts

"""The quirks of the sample in the leaderboard's layout."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from toolshift.data.adapters.bfcl import Options, read
from toolshift.data.records import Records
from toolshift.data.sample import Spec, write_sample
from toolshift.data.sample.formats.bfcl import DATASET


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_sample(tmp_path_factory.mktemp(DATASET), Spec(size="tiny"), dataset=DATASET).root


@pytest.fixture(scope="module")
def records(root: Path) -> Records:
    return read(root, strict=True)


def _lines(root: Path, name: str) -> list[dict[str, Any]]:
    path = root / DATASET / "bfcl_eval" / "data" / name
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_quirks(records: Records) -> None:
    notes = records.report.notes
    for quirk in (
        "functions_defined_again",
        "merged_apart_text",
        "merged_duplicate_text",
        "messages_left_out",
        "nested_arguments",
        "tasks_irrelevance",
        "tasks_not_annotated",
        "unresolved_classes_of_tasks_apart",
    ):
        assert notes[quirk] > 0, quirk
    assert notes["names_with_several_definitions"] == 1
    assert notes["function_names"] == len(records.library.capabilities) - 1
    types = {a.raw_type for e in records.library.endpoints for a in e.arguments}
    assert types >= {"Integer", "String", "dict", "float", "integer", "string", "tuple"}
    assert {split for task in records.tasks for split in task.split.split("+")} >= {
        "live_multiple",
        "live_parallel_multiple",
        "multi_turn_base",
        "multi_turn_long_context",
        "multi_turn_miss_func",
        "multi_turn_miss_param",
        "multiple",
        "parallel_multiple",
        "simple_java",
        "simple_python",
    }


def test_a_class_lies_in_a_file_of_another_name(root: Path, records: Records) -> None:
    assert _lines(root, "multi_turn_func_doc/travel_booking.json")
    assert "TravelAPI" in {task.domain for task in records.tasks}


def test_answers_of_a_turn_lie_at_the_place_of_the_turn(root: Path) -> None:
    entries = _lines(root, "BFCL_v4_multi_turn_miss_func.json")
    answers = {
        row["id"]: row["ground_truth"] for row in _lines(root, "possible_answer/BFCL_v4_multi_turn_miss_func.json")
    }
    for entry in entries:
        truth = answers[entry["id"]]
        assert len(entry["question"]) == len(truth)
        assert entry["question"][1] == truth[1] == []
        names = [call.partition("(")[0] for turn in truth for call in turn]
        assert names == entry["path"]


def test_excluded_functions_are_not_on_offer(root: Path, records: Records) -> None:
    excluded = [row for row in _lines(root, "BFCL_v4_multi_turn_miss_param.json") if "excluded_function" in row]
    texts = {"\n".join(m["content"] for turn in row["question"] for m in turn): row for row in excluded}
    found = [task for task in records.tasks if task.text in texts]
    assert len(found) == len(texts) > 0
    names = {c.capability_id: c.name for c in records.library.capabilities}
    for task in found:
        given = {names[identity] for identity in task.given_candidate_ids}
        assert given.isdisjoint(texts[task.text]["excluded_function"])
        assert not {names[identity] for identity in task.gold_capability_ids} - given


def test_parallel_entries_call_one_function_twice(root: Path) -> None:
    for row in _lines(root, "possible_answer/BFCL_v4_live_parallel.json"):
        names = [name for call in row["ground_truth"] for name in call]
        assert len(names) == 2
        assert names[0] == names[1]


def test_suites_share_no_function(root: Path, records: Records) -> None:
    """So the domain of a function does not depend on which files are read."""
    domain = {row.capability_id: row.domain for row in records.library.capabilities}
    for category, suite in (("simple_python", "python"), ("live_parallel_multiple", "live"), ("simple_java", "java")):
        part = read(root, options=Options(categories=(category,)), strict=True)
        own = [row for row in part.library.capabilities if row.domain == suite]
        assert own
        assert all(domain[row.capability_id] == row.domain for row in part.library.capabilities)


def test_what_belongs_to_no_category(root: Path) -> None:
    base = root / DATASET / "bfcl_eval" / "data"
    listed = json.loads((base / "BFCL_v4_format_sensitivity.json").read_text(encoding="utf-8"))
    for category, ids in listed.items():
        assert ids == [row["id"] for row in _lines(root, f"BFCL_v4_{category}.json")[:5]]
    assert (base / "unused_datasets" / "question" / "BFCL_v4_chatable.json").is_file()
    assert any(row["function"] == [] for row in _lines(root, "BFCL_v4_live_irrelevance.json"))

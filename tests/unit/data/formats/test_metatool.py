"""The quirks of the sample in MetaTool's folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from toolshift.data.adapters.metatool import MULTI, SINGLE, SUBTASK3, SUBTASK4, TASK1, read
from toolshift.data.records import Records
from toolshift.data.sample import Spec, write_sample
from toolshift.data.sample.formats.metatool import DATASET


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_sample(tmp_path_factory.mktemp(DATASET), Spec(size="tiny"), dataset=DATASET).root


@pytest.fixture(scope="module")
def records(root: Path) -> Records:
    return read(root, strict=True)


def _json(root: Path, name: str) -> Any:
    return json.loads((root / DATASET / name).read_text(encoding="utf-8"))


def test_quirks(records: Records) -> None:
    notes = records.report.notes
    for quirk in (
        "merged_duplicate_text",
        "queries_that_name_their_tool",
        "queries_with_mojibake",
        "queries_with_newline",
        "texts_in_both_tasks_and_apart",
        "tools_without_description",
    ):
        assert notes[quirk] > 0, quirk
    assert {task.no_gold for task in records.apart} == {"irrelevance"}
    assert {joint for c in records.library.capabilities for joint in "_ &-" if joint in c.name} == set("_ &-")
    assert all(not endpoint.arguments for endpoint in records.library.endpoints)


def test_queries_of_several_tools_come_twice(root: Path, records: Records) -> None:
    several = _json(root, MULTI)
    assert [(row["query"], row["tool"]) for row in _json(root, SUBTASK4)] == [(r["query"], r["tool"]) for r in several]
    assert {len(row["tool"]) for row in several} == {2, 3, 4}
    by_text = {task.text: task for task in records.tasks}
    for row in several:
        task = by_text[row["query"]]
        assert len(task.gold_capability_ids) == len(row["tool"])
        assert 6 <= len(task.given_candidate_ids) <= 10
        assert set(task.given_candidate_ids) > set(task.gold_capability_ids)


def test_the_tool_that_is_left_out_is_not_shown(root: Path, records: Records) -> None:
    names = {c.capability_id: c.name for c in records.library.capabilities}
    apart = {task.text: task for task in records.apart if task.split == "Task2-Subtask3"}
    rows = _json(root, SUBTASK3)
    assert len(rows) == len(apart) > 10
    for row in rows:
        assert row["tool"] not in {names[identity] for identity in apart[row["query"]].given_candidate_ids}
        assert len(apart[row["query"]].given_candidate_ids) >= 6


def test_rows_that_need_no_tool_name_none(root: Path) -> None:
    rows = _json(root, TASK1)
    assert {row["label"] for row in rows} == {"positive", "negative"}
    for row in rows:
        assert ("tool" in row) == (row["label"] == "positive")


def test_several_valid_tools_are_several_rows(tmp_path: Path) -> None:
    spec = Spec(world="no_context_gap", size="tiny", tasks=20)
    root = write_sample(tmp_path, spec, dataset=DATASET).root
    notes = read(root, strict=True).report.notes
    assert notes["merged_text_with_other_gold"] > 0
    assert (root / DATASET / SINGLE).read_text(encoding="utf-8").startswith("Query,Tool\n")

"""The quirks of the sample in API-Bank's layout."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from toolshift.data.adapters.apibank import FILES, SCENARIOS, SEARCH, TABLE, Options, read
from toolshift.data.records import Records
from toolshift.data.sample import Spec, write_sample
from toolshift.data.sample.formats.apibank import DATASET


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
        "docs_superseded",
        "merged_duplicate_text",
        "merged_text_with_other_gold",
        "table_rows_without_documentation",
        "tasks_with_tool_search_only",
        "time_stamps_removed",
        "tool_search_calls",
        "tools_without_scenario",
    ):
        assert notes[quirk] > 0, quirk
    for once in ("dialogues_without_call", "empty_dialogues", "names_with_two_libraries"):
        assert notes[once] == 1, once
    assert {task.no_gold for task in records.apart} == {"not_annotated"}
    assert {part for task in records.tasks for part in task.split.split("+")} == {*FILES, "dialogues-1", "dialogues-2"}


def test_one_class_name_is_two_tools(records: Records) -> None:
    ids = {c.capability_id for c in records.library.capabilities}
    (second,) = [identity for identity in ids if identity.endswith("-lv3")]
    assert second.removesuffix("-lv3") in ids


def test_scenarios_are_in_chinese_where_upstream_has_them(root: Path, records: Records) -> None:
    with (root / DATASET / TABLE).open(encoding="utf-8", newline="") as handle:
        rows = list(csv.DictReader(handle))
    scenarios = {row["应用场景"] for row in rows}
    assert {SCENARIOS[name] for name in scenarios if name in SCENARIOS} <= {
        c.domain for c in records.library.capabilities
    }
    assert scenarios & set(SCENARIOS)
    assert scenarios - set(SCENARIOS)


def test_table_of_coded_classes_is_an_earlier_design(records: Records) -> None:
    names = {a.name for e in records.library.endpoints for a in e.arguments}
    assert not any(name.startswith("old_") for name in names)
    told = {a.required for e in records.library.endpoints for a in e.arguments}
    assert told == {True, False, None}


def test_prompts_show_the_gold_and_others(root: Path, records: Records) -> None:
    given = [task for task in records.tasks if task.split.startswith("level-1")]
    assert given
    for task in given:
        assert set(task.given_candidate_ids) >= set(task.gold_capability_ids)
    assert any(len(task.given_candidate_ids) > len(task.gold_capability_ids) for task in given)
    shown = [row["instruction"].count('{"name"') for row in _json(root, FILES["level-2"])]
    assert set(shown) == {1}


def test_dialogues_add_nothing(root: Path, records: Records) -> None:
    """They hold steps that rows hold as well, with equal texts."""
    without = read(root, options=Options(parts=tuple(FILES)), strict=True)
    assert [(t.task_id, t.gold_capability_ids) for t in without.tasks] == [
        (t.task_id, t.gold_capability_ids) for t in records.tasks
    ]


def test_plans_keep_their_order_behind_searches(root: Path, records: Records) -> None:
    by_text = {task.text: task for task in records.tasks}
    plans = _json(root, FILES["level-3"])
    searched = 0
    for plan in plans:
        names = [call["api_name"] for call in plan["apis"]]
        searched += SEARCH in names
        task = by_text[plan["requirement"].strip()]
        assert [call.split("/")[1].removesuffix("-lv3") for call in task.calls] == [n for n in names if n != SEARCH]
    assert 0 < searched < len(plans)


def test_quotes_of_a_search_result_are_broken(root: Path) -> None:
    assert any("'The tool's answer.'" in row["input"] for row in _json(root, FILES["level-2"]))

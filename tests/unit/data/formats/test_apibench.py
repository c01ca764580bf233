"""The quirks of the sample in APIBench's layout."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from toolshift.data.adapters.apibench import HUBS, Options, read
from toolshift.data.records import Records
from toolshift.data.sample import Spec, write_sample
from toolshift.data.sample.formats.apibench import DATASET


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_sample(tmp_path_factory.mktemp(DATASET), Spec(size="tiny"), dataset=DATASET).root


@pytest.fixture(scope="module")
def records(root: Path) -> Records:
    return read(root, strict=True)


def _lines(root: Path, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (root / DATASET / name).read_text(encoding="utf-8").splitlines()]


def test_quirks(records: Records) -> None:
    notes = records.report.notes
    for quirk in (
        "gold_found_by_api_name",
        "gold_found_in_another_spelling",
        "gold_found_verbatim",
        "merged_call_spellings",
        "merged_text_with_other_gold",
        "requests_with_input",
    ):
        assert notes[quirk] > 0, quirk
    for unwanted in ("ambiguous_gold", "calls_with_several_domains", "calls_with_several_names"):
        assert notes[unwanted] == 0, unwanted
    assert notes["distinct_api_calls"] == len(records.library.capabilities) + notes["merged_call_spellings"]


def test_arguments_have_every_shape(root: Path) -> None:
    shapes = [row["api_arguments"] for row in _lines(root, "api/huggingface_api.jsonl")]
    texts = [shape for shape in shapes if isinstance(shape, str)]
    assert any(isinstance(shape, dict) for shape in shapes)
    assert any(isinstance(shape, list) and isinstance(shape[0], dict) for shape in shapes)
    assert any(isinstance(shape, list) and isinstance(shape[0], str) for shape in shapes)
    assert any(text.startswith("[") for text in texts)
    assert "N/A" in texts


def test_hubs_share_no_domain_and_no_task(root: Path, records: Records) -> None:
    parts = [read(root, options=Options(hubs=(hub,)), strict=True) for hub in HUBS]
    domains = [{c.domain for c in part.library.capabilities} for part in parts]
    assert sum(map(len, domains)) == len(set().union(*domains)) == 12
    assert sum(len(part.tasks) for part in parts) == len(records.tasks)


def test_names_of_torch_hub_belong_to_several_calls(root: Path) -> None:
    calls: dict[str, set[str]] = {}
    for row in _lines(root, "api/torchhub_api.jsonl"):
        calls.setdefault(row["api_name"], set()).add(row["api_call"])
    assert max(map(len, calls.values())) > 2


def test_training_requests_of_torch_hub_are_unquoted_literals(root: Path) -> None:
    rows = _lines(root, "apibench/torchhub_train.json")
    assert all(row["code"].startswith("{'Instruction': ") for row in rows)
    assert all(row["code"].startswith("###Instruction: ") for row in _lines(root, "apibench/torchhub_eval.json"))
    assert any("<noinput>" in row["code"] for row in rows)
    assert any("'Input': " in row["code"] and "<noinput>" not in row["code"] for row in rows)

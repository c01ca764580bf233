"""Requirements of the real requests, read in place: never empty, at most four, only the text's own words, fast."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from toolshift.data.adapters import apibank, apibench, bfcl, metatool, taskbench, toolbench, trajectbench
from toolshift.data.errors import AdapterError
from toolshift.data.records import Records
from toolshift.text.lexical import tokens
from toolshift.text.requirements import MAX_REQUIREMENTS, requirements

pytestmark = pytest.mark.real

READERS: dict[str, Callable[[Path], Records]] = {
    module.DATASET: module.read for module in (apibank, apibench, bfcl, metatool, taskbench, toolbench, trajectbench)
}


@pytest.fixture(scope="module", params=sorted(READERS))
def texts(request: pytest.FixtureRequest, data_root: Path) -> list[str]:
    try:
        return [task.text for task in READERS[request.param](data_root).tasks]
    except AdapterError as error:
        pytest.skip(f"{request.param} cannot be read below TOOLSHIFT_DATA: {error}")


def test_every_request_has_one_to_four_requirements_made_of_its_own_words(texts: list[str]) -> None:
    for text in texts[::4]:
        found = requirements(text)
        assert 1 <= len(found) <= MAX_REQUIREMENTS, text
        assert all(found)
        # Clauses may overlap in words, never in place: together they hold no token more often than the text.
        assert not Counter(t for item in found for t in tokens(item)) - Counter(tokens(text)), text


def test_extraction_is_fast_enough_for_whole_datasets(texts: list[str]) -> None:
    started = time.process_time()
    for text in texts:
        requirements(text)
    per_task = (time.process_time() - started) / len(texts)
    assert per_task < 5e-3  # ten times the usual, so that a slow machine does not fail it and backtracking does


def test_most_requests_of_the_multi_tool_release_have_several_requirements(data_root: Path) -> None:
    try:
        tasks = toolbench.read(data_root).tasks
    except AdapterError as error:
        pytest.skip(f"toolbench cannot be read below TOOLSHIFT_DATA: {error}")
    several = [len(requirements(task.text)) > 1 for task in tasks if len(task.gold_capability_ids) > 1]
    assert sum(several) > 0.9 * len(several)

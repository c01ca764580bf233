"""Requirements of the real requests, read in place: never empty, at most four, only the text's own words, fast."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from functools import cache
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


@cache
def read(dataset: str, root: Path) -> Records:
    try:
        return READERS[dataset](root)
    except AdapterError as error:
        pytest.skip(f"{dataset} cannot be read below TOOLSHIFT_DATA: {error}")


@pytest.mark.parametrize("dataset", sorted(READERS))
def test_every_request_has_one_to_four_requirements_made_of_its_own_words(dataset: str, data_root: Path) -> None:
    """Of every sixteenth request, quickly: ten times the usual time passes, so that a slow machine does not fail it and
    backtracking does."""
    texts = [task.text for task in read(dataset, data_root).tasks[::16]]
    started = time.process_time()
    every = [requirements(text) for text in texts]
    assert (time.process_time() - started) / len(texts) < 5e-3
    for text, found in zip(texts, every, strict=True):
        assert 1 <= len(found) <= MAX_REQUIREMENTS, text
        assert all(found)
        # Clauses may overlap in words, never in place: together they hold no token more often than the text.
        assert not Counter(t for item in found for t in tokens(item)) - Counter(tokens(text)), text


def test_most_requests_of_the_multi_tool_release_have_several_requirements(data_root: Path) -> None:
    tasks = read("toolbench", data_root).tasks[::8]
    several = [len(requirements(task.text)) > 1 for task in tasks if len(task.gold_capability_ids) > 1]
    assert sum(several) > 0.9 * len(several)

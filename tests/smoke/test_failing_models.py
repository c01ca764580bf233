"""A model that fails ends its own run and nothing else, unless it is asked to end all."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

BROKEN = """
from dataclasses import dataclass, replace
import numpy as np
from toolshift.models.frozen.bm25 import Bm25Ranker

fitted = []

@dataclass(frozen=True, kw_only=True)
class NotANumber(Bm25Ranker):
    bad: bool = False
    def fit(self, source, *, bank, measure, seed):
        fitted.append(source.target)
        return replace(self, bad=len(fitted) == 2)
    def score(self, pairs, *, bank, seed):
        scores = super().score(pairs, bank=bank, seed=seed).copy()
        scores[0] = np.nan if self.bad else scores[0]
        return scores

class Raises(Bm25Ranker):
    def score(self, pairs, *, bank, seed):
        raise ZeroDivisionError("no evidence\\nsecond line")

class CannotBeBuilt(Bm25Ranker):
    def __init__(self, **params):
        raise OSError("weights are missing")
"""
MODELS = "model=[random,bm25,rrf]"
Call = Callable[..., Any]


@pytest.fixture(autouse=True)
def broken_models(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A fresh module for each test."""
    folder = tmp_path_factory.mktemp("models")
    (folder / "broken_models.py").write_text(BROKEN)
    monkeypatch.syspath_prepend(str(folder))
    yield
    sys.modules.pop("broken_models", None)


def status(run: Path) -> dict[str, Any]:
    return json.loads((run / "status.json").read_text())


@pytest.mark.parametrize(
    ("target", "exception"),
    [
        ("broken_models:NotANumber", "NonFiniteScore: target "),
        ("broken_models:Raises", "ZeroDivisionError: no evidence"),
        ("broken_models:CannotBeBuilt", "OSError: weights are missing"),
        ("no_such_module:Model", "ModuleNotFoundError: No module named 'no_such_module'"),
    ],
)
def test_the_others_finish(target: str, exception: str, call: Call, tools: Any) -> None:
    outcome = call(*tools.small, MODELS, f"models.bm25.target={target}")
    assert outcome.code == 1
    assert status(outcome.run_of("bm25"))["state"] == "failed"
    assert status(outcome.run_of("bm25"))["exception"].startswith(exception)
    assert "Traceback" in status(outcome.run_of("bm25"))["traceback"]
    assert f"failed: bm25 (universe=domain miner=union purge=none): {exception}" in outcome.err
    outcome.refuse_traceback()
    for name in ("random", "rrf", "semantic_cosine"):
        assert status(outcome.run_of(name))["state"] == "done"
    with (outcome.folder / "outputs/tables/lodo.csv").open() as stream:
        assert {row["model"] for row in csv.DictReader(stream)} == {
            "random", "rrf", "semantic_cosine", "random_expected"
        }  # fmt: skip
    listed = call_status(outcome.folder)
    assert "4 runs: 3 done, 1 failed" in listed
    assert exception[:40] in listed


def call_status(folder: Path) -> str:
    from toolshift.runs.status import render, run_lines

    return render(run_lines(folder / "outputs"))


def test_a_failed_run_is_tried_again_and_its_row_appears(call: Call, tools: Any) -> None:
    """Same folder: the model's class is what changes, as when a user mends a module."""
    import broken_models

    command = (*tools.small, "model=bm25", "models.bm25.target=broken_models:Raises")
    assert call(*command).code == 1
    score = broken_models.Raises.score
    broken_models.Raises.score = broken_models.Bm25Ranker.score
    try:
        again = call(*command)
    finally:
        broken_models.Raises.score = score
    assert again.code == 0, again.err
    assert "1 already done, 1 to do" in again.err
    mended = status(again.run_of("bm25"))
    assert mended["state"] == "done"
    assert "exception" not in mended


def test_on_error_stop_ends_the_command(call: Call, tools: Any) -> None:
    outcome = call(*tools.small, MODELS, "models.bm25.target=broken_models:NotANumber", "runtime.on_error=stop")
    assert outcome.code == 1
    assert "error: target" in outcome.err
    outcome.refuse_traceback()
    assert status(outcome.run_of("bm25"))["state"] == "failed"
    assert status(outcome.run_of("rrf"))["state"] == "running"
    assert not (outcome.folder / "outputs/tables").exists()
    # The model gives its NaN once: the same command now ends well, from where it stopped.
    continued = call(*tools.small, MODELS, "models.bm25.target=broken_models:NotANumber", "runtime.on_error=stop")
    assert continued.code == 0, continued.err
    assert "rrf: scores of 1 targets reused" in continued.err
    assert status(continued.run_of("bm25"))["state"] == status(continued.run_of("rrf"))["state"] == "done"


def test_without_the_reference_there_is_no_table(call: Call, tools: Any) -> None:
    outcome = call(*tools.small, "model=random", "models.semantic_cosine.target=broken_models:Raises")
    assert outcome.code != 0
    assert not (outcome.folder / "outputs/tables").exists()


def test_a_row_stands_for_one_set_of_parameters(call: Call, tools: Any) -> None:
    """The same model with other parameters is another run of the same family; the table shows what was asked for."""
    first = call(*tools.small, "model=bm25")
    other = call(*tools.small, "model=bm25", "models.bm25.params.b=0.1")
    assert first.code == other.code == 0, other.err
    assert len(other.runs) == 3
    assert first.out != other.out
    assert call(*tools.small, "model=bm25").out == first.out

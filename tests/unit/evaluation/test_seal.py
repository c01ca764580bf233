"""No target is opened before its selection record exists and fits its checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from toolshift.evaluation.seal import SealedTarget, open_target
from toolshift.runs.files import read_json, write_json
from toolshift.selection.records import checkpoint_path, record_path, write_checkpoint, write_selection
from toolshift.settings.errors import is_user_facing


@dataclass(frozen=True)
class Frozen:
    contexts_seen: tuple[str, ...] = ("A", "B")
    record: Mapping[str, Any] = field(default_factory=dict)

    def score(self, pairs: Any, *, bank: Any, seed: int) -> Any:
        raise NotImplementedError


@dataclass(frozen=True)
class Fitted(Frozen):
    value: float = 1.0

    def state(self) -> Mapping[str, Any]:
        return {"weights": np.full(3, self.value)}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run folder whose target T may be opened."""
    write_selection(tmp_path, Fitted(), target="T", seed=42, choice={}, data="d")
    return tmp_path


def edit(run: Path, **change: Any) -> None:
    path = record_path(run, "T", 42)
    write_json(path, {**read_json(path), **change})


def refused(run: Path, message: str, *, target: str = "T", seed: int = 42, data: str = "d") -> None:
    with pytest.raises(SealedTarget, match=message) as caught:
        open_target(run, target, seed=seed, data=data, held_out=("T",))
    assert str(caught.value).startswith(f"target {target}, seed {seed}: ")
    assert is_user_facing(caught.value)


def test_a_record_that_fits_opens_its_target(run: Path) -> None:
    open_target(run, "T", seed=42, data="d", held_out=("T",))
    write_selection(run, Frozen(contexts_seen=()), target="U", seed=42, choice={}, data="d")
    open_target(run, "U", seed=42, data="d", held_out=("T",))


def test_a_missing_record(run: Path) -> None:
    refused(run, "is missing, so nothing was selected", target="U")
    refused(run, "is missing, so nothing was selected", seed=43)
    record_path(run, "T", 42).unlink()
    refused(run, "is missing")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"target": "U"}, "was written for U, seed 42"),
        ({"seed": 43}, "was written for T, seed 43"),
        ({"target": None}, "was written for None, seed 42"),
        ({"data": "other"}, "was selected on other lists or texts"),
        ({"contexts_seen": ["A", "T"]}, "the fit has seen its own target"),
        ({"checkpoint_sha256": None}, "disagree on whether a checkpoint exists"),
        ({"checkpoint_sha256": "0" * 64}, "is not the checkpoint that was selected"),
    ],
)
def test_a_record_that_does_not_fit(run: Path, change: dict[str, Any], message: str) -> None:
    edit(run, **change)
    refused(run, message)


def test_other_data(run: Path) -> None:
    refused(run, "was selected on other lists or texts", data="e")


def test_a_missing_checkpoint(run: Path) -> None:
    checkpoint_path(run, "T", 42).unlink()
    refused(run, "disagree on whether a checkpoint exists")


def test_a_changed_checkpoint(run: Path) -> None:
    write_checkpoint(checkpoint_path(run, "T", 42), Fitted(value=2.0), target="T", seed=42)
    refused(run, "is not the checkpoint that was selected")


def test_a_truncated_checkpoint(run: Path) -> None:
    path = checkpoint_path(run, "T", 42)
    path.write_bytes(path.read_bytes()[:-1])
    refused(run, "is not the checkpoint that was selected")


def test_an_extra_checkpoint(run: Path) -> None:
    write_selection(run, Frozen(), target="U", seed=42, choice={}, data="d")
    write_checkpoint(checkpoint_path(run, "U", 42), Fitted(), target="U", seed=42)
    refused(run, "disagree on whether a checkpoint exists", target="U")


def test_a_record_that_is_no_json_names_the_file(run: Path) -> None:
    record_path(run, "T", 42).write_text("{")
    with pytest.raises(ValueError, match=r"seed=42\.json is not valid JSON"):
        open_target(run, "T", seed=42, data="d", held_out=("T",))

"""Selection records and checkpoints: equal bytes everywhere, whole or refused."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from toolshift.runs.files import read_json, sha256_file, write_json
from toolshift.selection.records import (
    SelectionSummary,
    Stateful,
    checkpoint_path,
    read_checkpoint,
    record_path,
    summarise_selection,
    write_checkpoint,
    write_selection,
)

SRC = Path(__file__).resolve().parents[3] / "src"


@dataclass(frozen=True)
class Frozen:
    contexts_seen: tuple[str, ...] = ()
    record: Mapping[str, Any] = field(default_factory=dict)

    def score(self, pairs: Any, *, bank: Any, seed: int) -> Any:
        raise NotImplementedError


@dataclass(frozen=True)
class Fitted(Frozen):
    arrays: Mapping[str, Any] = field(default_factory=dict)

    def state(self) -> Mapping[str, Any]:
        return self.arrays


ARRAYS = {
    "weights": np.arange(6, dtype=np.float32).reshape(2, 3),
    "axes": np.arange(6.0).reshape(3, 2).T,  # not contiguous
    "counts": np.array([3, 1], np.int64),
}
FITTED = Fitted(contexts_seen=("B", "A"), record={"loss": 0.5}, arrays=ARRAYS)


def test_round_trip(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path / "c.safetensors", FITTED, target="T", seed=42)
    meta, arrays = read_checkpoint(path)
    assert meta == {
        "class": f"{Fitted.__module__}:Fitted",
        "target": "T",
        "seed": 42,
        "contexts_seen": ["B", "A"],
    }
    assert list(arrays) == sorted(ARRAYS)
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, ARRAYS[name])
        assert array.dtype == ARRAYS[name].dtype


def test_the_order_of_arrays_does_not_reach_the_file(tmp_path: Path) -> None:
    turned = Fitted(contexts_seen=("B", "A"), arrays=dict(reversed(ARRAYS.items())))
    one = write_checkpoint(tmp_path / "1", FITTED, target="T", seed=1)
    two = write_checkpoint(tmp_path / "2", turned, target="T", seed=1)
    assert one.read_bytes() == two.read_bytes()


SCRIPT = """
import sys
from pathlib import Path
import numpy as np
from toolshift.models.transfer.pointwise_mlp import FittedMlp
from toolshift.selection.records import write_selection
names = {f"layer_{i}" for i in range(8)}  # the order of this set follows the hash seed
weights = {n: np.full((2, 2), int(n[-1]), np.float32) for n in names}
scorer = FittedMlp(weights=weights, loss=0.25, contexts_seen=("A", "B"))
write_selection(Path(sys.argv[1]), scorer, target="T", seed=1, choice={k: 1 for k in names}, data="d")
"""


def test_bytes_do_not_depend_on_process_or_hash_seed(tmp_path: Path) -> None:
    found = set()
    for hash_seed in ("1", "2", "3"):
        folder = tmp_path / hash_seed
        env = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(SRC)}
        subprocess.run([sys.executable, "-c", SCRIPT, str(folder)], check=True, env=env)
        found.add((sha256_file(checkpoint_path(folder, "T", 1)), sha256_file(record_path(folder, "T", 1))))
    assert len(found) == 1


@pytest.mark.parametrize("kept", [0, 4, 8, 50, -1])
def test_a_truncated_checkpoint_is_refused(tmp_path: Path, kept: int) -> None:
    path = write_checkpoint(tmp_path / "c.safetensors", FITTED, target="T", seed=42)
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(ValueError, match=r"c\.safetensors is not a whole checkpoint .*; delete it and run the command"):
        read_checkpoint(path)


def test_a_missing_or_foreign_file_is_refused(tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    with pytest.raises(ValueError, match=r"none\.safetensors is not a whole checkpoint"):
        read_checkpoint(tmp_path / "none.safetensors")
    foreign = tmp_path / "foreign.safetensors"
    for metadata in (None, {"other": "{}"}, {"toolshift": "no json"}):
        save_file({"x": np.zeros(2)}, foreign, metadata=metadata)
        with pytest.raises(ValueError, match=r"foreign\.safetensors is not a whole checkpoint"):
            read_checkpoint(foreign)


def test_the_record_names_its_checkpoint(tmp_path: Path) -> None:
    path = write_selection(tmp_path, FITTED, target="T", seed=42, choice={"choice": {"h": 1}}, data="d")
    assert path == tmp_path / "selection" / "T" / "seed=42.json"
    assert read_json(path) == {
        "target": "T",
        "seed": 42,
        "contexts_seen": ["B", "A"],
        "checkpoint_sha256": sha256_file(tmp_path / "checkpoints" / "T" / "seed=42.safetensors"),
        "data": "d",
        "fitted": {"loss": 0.5},
        "selection": {"choice": {"h": 1}},
    }


def test_a_row_without_fitted_state_has_no_checkpoint(tmp_path: Path) -> None:
    assert isinstance(FITTED, Stateful)
    assert not isinstance(Frozen(), Stateful)
    path = write_selection(tmp_path, Frozen(), target="T", seed=42, choice={}, data="d")
    assert read_json(path)["checkpoint_sha256"] is None
    assert not (tmp_path / "checkpoints").exists()


def test_nothing_half_written_is_left(tmp_path: Path) -> None:
    write_selection(tmp_path, FITTED, target="T", seed=42, choice={}, data="d")
    names = sorted(p.name for p in tmp_path.rglob("*") if p.is_file())
    assert names == ["seed=42.json", "seed=42.safetensors"]


# --- what the records of a run say together -------------------------------------------------------------------------


def leave(run: Path, target: str, seed: int, selection: Mapping[str, Any]) -> None:
    write_json(record_path(run, target, seed), {"target": target, "selection": selection})


def test_summary_by_hand(tmp_path: Path) -> None:
    """A and B agree on one setting whatever the order of its keys; B's second seed chose another; C is not asked."""
    one, two = {"b": 1, "a": 0.5}, {"a": 0.0, "b": 1}
    leave(tmp_path, "A", 1, {"converged": False, "choice": one})
    leave(tmp_path, "A", 2, {"converged": True, "choice": one})
    leave(tmp_path, "B", 1, {"converged": False, "choice": dict(reversed(one.items()))})
    leave(tmp_path, "B", 2, {"converged": False, "choice": two})
    leave(tmp_path, "C", 1, {"converged": False, "choice": two})
    leave(tmp_path, "A", 3, {"converged": False, "choice": two})
    assert summarise_selection(tmp_path, targets=["B", "A"], seeds=[1, 2]) == SelectionSummary(
        not_converged=3, selected={'{"a": 0.0, "b": 1}': 1, '{"a": 0.5, "b": 1}': 2}
    )


def test_a_row_without_a_grid_selected_nothing(tmp_path: Path) -> None:
    write_selection(tmp_path, Frozen(), target="T", seed=42, choice={}, data="d")
    found = summarise_selection(tmp_path, targets=["T"], seeds=[42])
    assert found == SelectionSummary(not_converged=0, selected={})

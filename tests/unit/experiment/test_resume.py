"""Reading published scores back: bit for bit, or not at all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import toolshift
from toolshift.experiment.resume import (
    AFTER_SCORES,
    code_fingerprint,
    package_fingerprint,
    prepare_folder,
    stored_scores,
)
from toolshift.runs.files import write_json

# Two views; the pair (t1, c2) stands in both. ``PLACE``: which of four distinct pairs a row is.
ROWS = pa.table(
    {
        "view": ["natural", "natural", "mixed", "mixed", "mixed"],
        "task_id": pa.array(["t1", "t1", "t1", "t1", "t2"]).dictionary_encode(),
        "capability_id": pa.array(["c1", "c2", "c2", "c3", "c1"]).dictionary_encode(),
    }
)
PACKAGE = Path(str(toolshift.__file__)).parent
DATA = "fingerprint of lists, records and encoder"
PLACE = np.array([10, 11, 11, 12, 20])
SCORES = np.array([0.1, 1 / 3, 1 / 3, -7e-300, 2.0])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for seed in (1, 2):
        put(tmp_path, seed, SCORES * seed)
    return tmp_path


def put(folder: Path, seed: int, scores: np.ndarray, rows: pa.Table = ROWS) -> None:
    path = folder / "scores" / "Target" / f"seed={seed}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows.append_column("score", pa.array(scores)), path)
    write_json(folder / "selection" / "Target" / f"seed={seed}.json", {"target": "Target", "seed": seed, "data": DATA})


def read(folder: Path, seeds: tuple[int, ...] = (1, 2)) -> object:
    return stored_scores(folder, "Target", seeds=seeds, rows=ROWS, place=PLACE, data=DATA)


def test_scores_come_back_bit_for_bit(folder: Path) -> None:
    found = stored_scores(folder, "Target", seeds=(1, 2), rows=ROWS, place=PLACE, data=DATA)
    assert found is not None
    for seed, (place, scores) in found.items():
        assert place.tolist() == [10, 11, 12, 20]
        assert scores.tobytes() == (SCORES[[0, 1, 3, 4]] * seed).tobytes()


def missing_file(folder: Path) -> None:
    (folder / "scores/Target/seed=2.parquet").unlink()


def missing_selection(folder: Path) -> None:
    (folder / "selection/Target/seed=2.json").unlink()


def cut_selection(folder: Path) -> None:
    (folder / "selection/Target/seed=2.json").write_text('{"target": "Tar')


def selection_of_another_seed(folder: Path) -> None:
    write_json(folder / "selection/Target/seed=2.json", {"target": "Target", "seed": 1, "data": DATA})


def selection_on_other_data(folder: Path) -> None:
    write_json(folder / "selection/Target/seed=2.json", {"target": "Target", "seed": 2, "data": "other"})


def cut_parquet(folder: Path) -> None:
    path = folder / "scores/Target/seed=2.parquet"
    path.write_bytes(path.read_bytes()[:-20])


def empty_parquet(folder: Path) -> None:
    (folder / "scores/Target/seed=2.parquet").write_bytes(b"")


def other_candidates(folder: Path) -> None:
    put(folder, 2, SCORES, ROWS.set_column(2, "capability_id", pa.array(["c1", "c2", "c2", "c3", "c9"])))


def fewer_rows(folder: Path) -> None:
    put(folder, 2, SCORES[:4], ROWS.slice(0, 4))


def no_score_column(folder: Path) -> None:
    pq.write_table(ROWS, folder / "scores/Target/seed=2.parquet")


def not_finite(folder: Path) -> None:
    put(folder, 2, np.where(np.arange(5) == 3, np.nan, SCORES))


def single_precision(folder: Path) -> None:
    put(folder, 2, SCORES.astype(np.float32))


def one_pair_with_two_scores(folder: Path) -> None:
    put(folder, 2, SCORES + np.array([0, 0, 0.5, 0, 0]))


@pytest.mark.parametrize(
    "damage",
    [
        missing_file, missing_selection, cut_selection, selection_of_another_seed, selection_on_other_data,
        cut_parquet, empty_parquet, other_candidates, fewer_rows, no_score_column, not_finite, single_precision,
        one_pair_with_two_scores,
    ],
)  # fmt: skip
def test_anything_else_is_computed_again_for_all_seeds(folder: Path, damage: Callable[[Path], None]) -> None:
    damage(folder)
    assert read(folder) is None
    assert read(folder, (1,)) is not None


def test_a_folder_of_other_code_is_emptied_before_it_is_marked(tmp_path: Path) -> None:
    put(tmp_path, 1, SCORES)
    (tmp_path / "trec").mkdir()
    (tmp_path / "scores" / ".x.parquet.12.tmp").write_text("")
    assert not prepare_folder(tmp_path, code="a")
    assert not (tmp_path / "scores").exists()
    assert not (tmp_path / "selection").exists()
    put(tmp_path, 1, SCORES)
    (tmp_path / "scores" / ".x.parquet.12.tmp").write_text("")
    assert prepare_folder(tmp_path, code="a")
    assert read(tmp_path, (1,)) is not None
    assert not list(tmp_path.rglob(".*.tmp"))
    assert not (tmp_path / "trec").exists()
    assert not prepare_folder(tmp_path, code="b")
    assert read(tmp_path, (1,)) is None


def test_later_stages_do_not_make_scores_stale() -> None:
    files = {p.relative_to(PACKAGE).as_posix() for p in PACKAGE.rglob("*.py")}
    left_out = {name for name in files if name.startswith(AFTER_SCORES)}
    assert {"reporting/markdown.py", "experiment/tables.py", "evaluation/bootstrap.py"} <= left_out
    kept = {name.partition("/")[0] for name in files - left_out}
    assert kept >= {"data", "text", "views", "protocols", "models", "measures", "runs", "settings", "experiment"}
    assert all(any(name.startswith(part) for name in files) for part in AFTER_SCORES), "a name that is no file"
    assert package_fingerprint() != package_fingerprint(without=AFTER_SCORES)


def test_the_code_of_a_model_outside_the_package_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "outside_model.py").write_text("class M: ...\n")
    first = code_fingerprint("outside_model:M")
    assert first == code_fingerprint("outside_model:M")
    assert first != code_fingerprint("toolshift.models.frozen.bm25:Bm25Ranker")
    (tmp_path / "outside_model.py").write_text("class M: pass\n")
    assert first != code_fingerprint("outside_model:M")
    with pytest.raises(ImportError):
        code_fingerprint("no_such_module_at_all:M")

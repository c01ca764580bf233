"""Continue an interrupted run: the published scores of a target are read back instead of being computed again.

Scores are trusted only where the code that wrote them is the code that would write them now; everything else about
them is already in the run's identity.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.metadata
import shutil
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

import toolshift
from toolshift.evaluation.activity import STAGE_FOLDER
from toolshift.runs.environment import PACKAGES
from toolshift.runs.files import folder_name, read_json, sha256_file, write_text

CODE_FILE = ".code"
EXPORT_FOLDER = "trec"
# What only reads scores: a change there leaves them as they are.
AFTER_SCORES = (
    "evaluation/",
    "reporting/",
    *(f"experiment/{name}.py" for name in ("activity", "bench", "export", "families", "finished", "main", "paper")),
    *(f"experiment/{name}.py" for name in ("cost", "download", "explain", "nulls", "prepare", "rebuild", "tables")),
    *(f"runs/{name}.py" for name in ("devices", "locks", "log", "status", "tracking")),
    *(f"data/{name}.py" for name in ("download", "sources", "transfer")),
    "settings/launch",
)
PAIR_COLUMNS = ("view", "task_id", "capability_id")


def prepare_folder(folder: Path, *, code: str) -> bool:
    """Clear what a former process left half-written or from other code; true if scores are left to be read back."""
    for path in folder.rglob(".*.tmp"):
        path.unlink(missing_ok=True)
    shutil.rmtree(folder / EXPORT_FOLDER, ignore_errors=True)
    note = folder / CODE_FILE
    if note.is_file() and note.read_text(encoding="utf-8", errors="replace") == code:
        return True
    # Before the note is renewed: a process killed in between must not make old scores look current.
    for name in ("scores", "selection", "checkpoints", STAGE_FOLDER):
        shutil.rmtree(folder / name, ignore_errors=True)
    write_text(note, code)
    return False


def made_by_this_code(folder: Path, target: str) -> bool:
    """Whether a run folder was filled by the code that would fill it now."""
    note = folder / CODE_FILE
    return note.is_file() and note.read_text(encoding="utf-8", errors="replace") == code_fingerprint(target)


def code_fingerprint(target: str) -> str:
    """Hash of what scores follow from: this package but its later stages, the module of the model ``target``
    (``module:Class``), the packages' versions.

    Raises:
        ImportError: if the module cannot be imported.
    """
    file = importlib.import_module(target.partition(":")[0]).__file__
    own = sha256_file(Path(file)) if file else ""
    return hashlib.sha256(f"{package_fingerprint(without=AFTER_SCORES)}\0{own}".encode()).hexdigest()


@cache
def package_fingerprint(*, without: tuple[str, ...] = ()) -> str:
    """Hash of the modules of this package and of the versions of the packages it rests on.

    without: beginnings of relative paths to leave out.
    """
    root = Path(str(toolshift.__file__)).parent
    files = {path.relative_to(root).as_posix(): path for path in sorted(root.rglob("*.py"))}
    lines = [f"{name} {sha256_file(path)}" for name, path in files.items() if not name.startswith(without)]
    lines += [f"{name} {_version(name)}" for name in PACKAGES]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def stored_scores(
    folder: Path, target: str, *, seeds: Sequence[int], rows: pa.Table, place: NDArray[np.int64], data: str
) -> Mapping[int, tuple[NDArray[np.int64], NDArray[np.float64]]] | None:
    """Scores of a target for every seed, as (distinct places (q,), their scores (q,)), bit for bit as written.

    rows: the (view, task_id, capability_id) rows of the target's lists. place: (rows,) the pair each row stands for.
    data: what the fit must have been made from. None if a selection record or a score file is missing, unreadable, or
    does not fit these rows or this data: such a target is computed again.
    """
    found: dict[int, tuple[NDArray[np.int64], NDArray[np.float64]]] = {}
    for seed in seeds:
        selection = folder / "selection" / folder_name(target) / f"seed={seed}.json"
        scores = _read_scores(folder / "scores" / folder_name(target) / f"seed={seed}.parquet", rows)
        if scores is None or not _is_selection(selection, target, seed, data=data):
            return None
        distinct, first, of = np.unique(place, return_index=True, return_inverse=True)
        if not np.array_equal(scores[first][of], scores):
            return None  # one pair, two scores: not what a run writes
        found[seed] = distinct, scores[first]
    return found


def _read_scores(path: Path, rows: pa.Table) -> NDArray[np.float64] | None:
    try:
        table = pq.read_table(path)
        columns = [_strings(table[name]) for name in PAIR_COLUMNS]
        scores = table["score"].to_numpy()
    except (OSError, KeyError, pa.ArrowException):
        return None
    fits = all(mine.equals(_strings(rows[name])) for mine, name in zip(columns, PAIR_COLUMNS, strict=True))
    return scores if fits and scores.dtype == np.float64 and bool(np.isfinite(scores).all()) else None


def _strings(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(pa.string())


def _is_selection(path: Path, target: str, seed: int, *, data: str) -> bool:
    try:
        record = read_json(path)
    except (OSError, ValueError):
        return False
    wanted = (target, seed, data)
    return isinstance(record, dict) and (record.get("target"), record.get("seed"), record.get("data")) == wanted

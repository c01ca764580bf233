"""TREC run and qrels files of a finished run, for trec_eval and for everybody's own tools.

``<run>/trec/<view>.run`` holds ``qid Q0 docid rank score tag`` lines, ``<view>.qrels`` holds ``qid 0 docid relevance``.
trec_eval orders by score and breaks ties its own way, so the published scores are not what is written: candidates are
ranked by our rule (equal to 1e-9 means tied; a keyed hash orders the tied) and get the scores n, n-1, ..., 1. Any
program then reproduces the ``hashed`` tie rule (spec/metrics_and_statistics.md section 1).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TextIO
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from toolshift.experiment.resume import EXPORT_FOLDER
from toolshift.runs.files import atomic_path, read_json, write_text
from toolshift.runs.seeds import id_hashes, keyed_hash, seed_of

_SEPARATORS = re.compile(r"[%\s]")
# Scores equal to 1e-9 are tied, as in toolshift.measures.
_GRID = 1e9


def export_trec(folder: Path) -> list[Path]:
    """Write the TREC files of the finished run in ``folder``; nothing is done where they are already there.

    The first seed of a run is ``<view>.run``, further ones are ``<view>.seed=<s>.run``. Score files are read one at a
    time. Blanks and ``%`` in an id are percent-encoded, since blanks separate the columns.
    """
    record = read_json(folder / "run.json")
    views = sorted(path.stem for path in (folder / "manifests").glob("*.parquet"))
    files = [folder / EXPORT_FOLDER / f"{view}.qrels" for view in views]
    if all(file.is_file() for file in files):
        return []
    written: list[Path] = []
    judged: dict[str, set[str]] = defaultdict(set)
    for seed in record["seeds"]:
        suffix = "" if seed == record["seeds"][0] else f".seed={seed}"
        names = {view: folder / EXPORT_FOLDER / f"{view}{suffix}.run" for view in views}
        written += _write_runs(folder, names, seed=seed, tag=f"{record['model']}.seed={seed}", judged=judged)
    # Last: qrels that are there say that the export is whole.
    for view, file in zip(views, files, strict=True):
        table = pq.read_table(folder / "manifests" / f"{view}.parquet", columns=["task_id", "capability_id", "role"])
        written.append(write_text(file, "".join(qrels_lines(table, tasks=judged[view]))))
    return written


def _write_runs(
    folder: Path, names: Mapping[str, Path], *, seed: int, tag: str, judged: dict[str, set[str]]
) -> list[Path]:
    """The run files of one seed, one per view; ``judged`` gains the tasks of each view."""
    with ExitStack() as stack:
        streams: dict[str, TextIO] = {}
        for view, path in names.items():
            temporary = stack.enter_context(atomic_path(path))
            streams[view] = stack.enter_context(temporary.open("w", encoding="utf-8", newline="\n"))
        for path in sorted((folder / "scores").glob(f"*/seed={seed}.parquet")):
            table = pq.read_table(path)
            found, code = _coded(table["view"])
            for number, view in enumerate(found):
                part = table.filter(pa.array(code == number))
                judged[view].update(_coded(part["task_id"])[0])
                streams[view].writelines(run_lines(part, tag=tag))
    return list(names.values())


def run_lines(table: pa.Table, *, tag: str) -> Iterator[str]:
    """TREC lines of the lists in ``table`` (task_id, capability_id, score), by task id and rank."""
    task_names, task = _coded(table["task_id"])
    capability_names, capability = _coded(table["capability_id"])
    order = ranking(
        table["score"].to_numpy(),
        task=task,
        keys=tie_keys(task_names, capability_names, task=task, capability=capability),
    )
    task, capability = task[order], capability[order]
    length = np.bincount(task, minlength=len(task_names))
    rank = np.arange(task.size) - (np.cumsum(length) - length)[task] + 1
    score = length[task] - rank + 1
    queries, documents = [trec_id(i) for i in task_names], [trec_id(i) for i in capability_names]
    for t, c, r, s in zip(task.tolist(), capability.tolist(), rank.tolist(), score.tolist(), strict=True):
        yield f"{queries[t]} Q0 {documents[c]} {r} {s} {tag}\n"


def ranking(scores: NDArray[np.float64], *, task: NDArray[np.int64], keys: NDArray[np.uint64]) -> NDArray[np.int64]:
    """(N,) positions by task code, then score descending (equal to 1e-9: tied), then key ascending."""
    return np.lexsort((keys, -np.rint(scores * _GRID), task))


def tie_keys(
    task_ids: list[str], capability_ids: list[str], *, task: NDArray[np.int64], capability: NDArray[np.int64]
) -> NDArray[np.uint64]:
    """(N,) the hashes that `toolshift.evaluation.per_task.tie_keys` orders tied candidates by."""
    return keyed_hash(seed_of("ties"), id_hashes(task_ids)[task], id_hashes(capability_ids)[capability])


def qrels_lines(table: pa.Table, *, tasks: set[str]) -> Iterator[str]:
    """Relevance lines of a manifest's candidates, for the tasks that were scored; 1 for positives, 0 for the rest."""
    columns = [_strings(table[name]).to_pylist() for name in ("task_id", "capability_id", "role")]
    for task, capability, role in zip(*columns, strict=True):
        if task in tasks:
            yield f"{trec_id(task)} 0 {trec_id(capability)} {int(role == 'positive')}\n"


def trec_id(name: str) -> str:
    """An id without blanks; different ids stay different."""
    return _SEPARATORS.sub(lambda found: quote(found[0]), name)


def _coded(column: pa.ChunkedArray) -> tuple[list[str], NDArray[np.int64]]:
    """Sorted distinct values, and the code (N,) of each row."""
    values = _strings(column).to_pylist()
    names = sorted(set(values))
    code = {name: i for i, name in enumerate(names)}
    return names, np.array([code[value] for value in values], np.int64)


def _strings(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(pa.string())

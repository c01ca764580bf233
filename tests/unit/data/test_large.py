"""Large releases: the same records by way of files, and memory that does not grow with tasks."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from toolshift.data import task_file
from toolshift.data.adapters import jsonl, toolbench
from toolshift.data.merge import merged
from toolshift.data.records import Records
from toolshift.data.store import load_records
from toolshift.data.task_file import TaskFile
from toolshift.views.corpus import build_corpus

_FILLER = "please " * 300  # 2 kB a task, so that tasks outweigh everything else
_MEASURE = """
import sys
from pathlib import Path
from toolshift.data import spool, task_file
from toolshift.data.store import load_records
from toolshift.runs.environment import peak_rss_mb
task_file.BLOCK_TASKS, spool._CACHE_KIB = 256, 512  # small ones, which few tasks fill
name, root, cache = sys.argv[1:]
loaded = load_records(
    dataset=name, adapter=f"toolshift.data.adapters.{name}:read", root=Path(root), cache=Path(cache), strict=True
)
assert loaded.rebuilt
print(len(loaded.records.tasks), peak_rss_mb())
"""


def _text(task: int, *, distinct: int) -> str:
    return f"request {task % distinct} {_FILLER}"


def write_toolbench(root: Path, *, tasks: int, distinct: int) -> None:
    """One category of seven tools; row i asks for tool i mod 7, and every third row lists another tool beside it."""
    tools = root / "toolbench/toolenv/tools/Food"
    tools.mkdir(parents=True)
    for tool in range(7):
        content = {"tool_name": f"T{tool}", "tool_description": "", "api_list": [{"name": "go"}]}
        (tools / f"t{tool}.json").write_text(json.dumps(content))
    rows = (
        {
            "query": _text(i, distinct=distinct),
            "api_list": [
                {"category_name": "Food", "tool_name": f"T{tool % 7}", "api_name": "go"}
                for tool in range(i, i + 1 + (i % 3 == 0))
            ],
            "relevant APIs": [[f"T{i % 7}", "go"]],
        }
        for i in range(tasks)
    )
    (root / "toolbench/instruction").mkdir()
    (root / "toolbench/instruction/G1_query.json").write_text(f"[{','.join(map(json.dumps, rows))}]")


def write_jsonl(root: Path, *, tasks: int, distinct: int) -> None:
    """Seven tools; task i asks for tool i mod 7, every fifth for none."""
    folder = root / "jsonl"
    folder.mkdir(parents=True)
    lines = {
        "corpus.jsonl": [{"_id": f"c{tool}", "name": f"T{tool}"} for tool in range(7)],
        "tasks.jsonl": [{"_id": f"t{i}", "text": _text(i, distinct=distinct)} for i in range(tasks)],
    }
    for name, rows in lines.items():
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    judged = "".join(f"t{i}\tc{i % 7}\t{int(i % 5 > 0)}\n" for i in range(tasks))
    (folder / "qrels.tsv").write_text(f"query-id\tcorpus-id\tscore\n{judged}")


WRITERS = {"toolbench": write_toolbench, "jsonl": write_jsonl}
READERS: dict[str, Callable[[Path], Records]] = {"toolbench": toolbench.read, "jsonl": jsonl.read}


@pytest.mark.parametrize("name", sorted(WRITERS))
def test_records_in_a_file_equal_records_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    WRITERS[name](tmp_path, tasks=60, distinct=41)  # no multiple of 7, so that repeated texts have other gold
    small = READERS[name](tmp_path)
    monkeypatch.setattr(task_file, "BLOCK_TASKS", 8)
    large = READERS[name](tmp_path)
    assert (type(small.tasks), type(large.tasks)) == (tuple, TaskFile)
    assert large == small
    assert large.report.notes["merged_duplicate_text"] == 19
    (corpus, labels), (expected, expected_labels) = build_corpus(large), build_corpus(small)
    assert corpus.task_ids == expected.task_ids
    assert corpus.task_domain.tolist() == expected.task_domain.tolist()
    for matrix in ("gold", "given", "gold_endpoints"):
        assert (getattr(labels, matrix) != getattr(expected_labels, matrix)).nnz == 0
    assert labels.gold.nnz == sum(len(task.gold_capability_ids) for task in small.tasks)


def test_the_store_is_read_in_row_groups_and_two_of_them_merge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_file, "BLOCK_TASKS", 8)
    loaded = []
    for name, write in sorted(WRITERS.items()):
        write(tmp_path, tasks=60, distinct=60)
        for rebuilt in (True, False):
            found = load_records(
                dataset=name, adapter=f"toolshift.data.adapters.{name}:read", root=tmp_path, cache=tmp_path / "cache"
            )
            assert found.rebuilt == rebuilt
            assert isinstance(found.records.tasks, TaskFile)
            assert found.records == READERS[name](tmp_path)
        loaded.append(found.records)
    both = merged(loaded[::-1])
    assert isinstance(both.tasks, TaskFile)
    assert [task.task_id for task in both.tasks] == [task.task_id for one in loaded for task in one.tasks]


@pytest.mark.parametrize("name", sorted(WRITERS))
def test_memory_does_not_grow_with_tasks(tmp_path: Path, name: str) -> None:
    few, many = 2_500, 10_000
    peaks: list[float] = []
    for tasks in (few, many):
        WRITERS[name](tmp_path / f"{tasks}", tasks=tasks, distinct=tasks)
        command = [sys.executable, "-c", _MEASURE, name, str(tmp_path / f"{tasks}"), str(tmp_path / "cache")]
        kept, peak = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
        assert int(kept) == (tasks if name == "toolbench" else tasks * 4 // 5)
        peaks.append(float(peak))
    # 7,500 tasks more are 15 MiB of text, of which a reader that keeps its tasks holds more than one copy.
    assert peaks[1] - peaks[0] < 8, peaks

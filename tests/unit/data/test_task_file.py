"""Tasks in a file behave like the tuple of them, whatever the number of row groups."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolshift.data import task_file
from toolshift.data.records import Task
from toolshift.data.task_file import TaskFile, TaskSink, spilled, write_tasks


def make(count: int) -> tuple[Task, ...]:
    return tuple(
        Task(
            task_id=f"d/{i:05}",
            dataset="d",
            domain="" if i % 2 else "maps",
            text=f"request {i}",
            gold_capability_ids=("d/a", "d/b")[: 1 + i % 2],
            calls=("d/a/x", "d/b/y", "d/a/x")[: i % 4],
            ordered=bool(i % 3),
        )
        for i in range(count)
    )


@pytest.fixture
def blocks_of_three(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_file, "BLOCK_TASKS", 3)


@pytest.mark.usefixtures("blocks_of_three")
@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 6, 8])
def test_a_file_is_the_sequence_that_was_written(tmp_path: Path, count: int) -> None:
    tasks = make(count)
    write_tasks(tmp_path / "t.parquet", iter(tasks))
    read = TaskFile(tmp_path / "t.parquet")
    assert pq.ParquetFile(tmp_path / "t.parquet").num_row_groups == -(-count // 3)
    assert len(read) == count
    assert tuple(read) == tasks
    assert [read[i] for i in range(-count, count)] == [*tasks, *tasks]
    assert read[1:7:2] == tasks[1:7:2]
    assert read[::-1] == tasks[::-1]
    assert (read == tasks) and (tasks == read) and (read == list(tasks))
    for outside in (count, -count - 1):
        with pytest.raises(IndexError, match=f"task {outside} of {count}"):
            read[outside]


@pytest.mark.usefixtures("blocks_of_three")
def test_another_task_or_length_is_not_equal(tmp_path: Path) -> None:
    tasks = make(7)
    write_tasks(tmp_path / "t.parquet", tasks)
    read = TaskFile(tmp_path / "t.parquet")
    assert read != tasks[:-1]
    assert read != (*tasks[:-1], tasks[0])
    assert read != "none of its tasks"
    assert read != 7


@pytest.mark.usefixtures("blocks_of_three")
def test_two_passes_at_once_do_not_disturb_each_other(tmp_path: Path) -> None:
    tasks = make(8)
    write_tasks(tmp_path / "t.parquet", tasks)
    read = TaskFile(tmp_path / "t.parquet")
    assert list(zip(read, reversed(read), strict=True)) == list(zip(tasks, reversed(tasks), strict=True))


def test_a_file_with_other_columns_is_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"task_id": ["d/1"]}), tmp_path / "t.parquet")
    with pytest.raises(ValueError, match=r"t\.parquet: its schema is not the one of this version"):
        TaskFile(tmp_path / "t.parquet")


@pytest.mark.usefixtures("blocks_of_three")
@pytest.mark.parametrize(("count", "in_a_file"), [(0, False), (2, False), (3, True), (4, True), (9, True)])
def test_few_tasks_stay_in_memory_and_many_leave_no_file_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, in_a_file: bool
) -> None:
    monkeypatch.setattr(task_file.tempfile, "tempdir", str(tmp_path))
    kept = spilled(iter(make(count)))
    assert isinstance(kept, TaskFile) == in_a_file
    assert list(tmp_path.iterdir()) == []
    assert tuple(kept) == make(count)


@pytest.mark.usefixtures("blocks_of_three")
def test_a_fault_on_the_way_leaves_no_file_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_file.tempfile, "tempdir", str(tmp_path))

    def broken() -> Iterator[Task]:
        yield from make(4)
        raise ValueError("row 5")

    with pytest.raises(ValueError, match="row 5"):
        spilled(broken())
    assert list(tmp_path.iterdir()) == []


@given(counts=st.lists(st.integers(0, 9), max_size=3))
def test_sinks_are_independent(counts: list[int]) -> None:
    sinks = [TaskSink() for _ in counts]
    for i in range(max(counts, default=0)):
        for sink, count in zip(sinks, counts, strict=True):
            if i < count:
                sink.add(make(count)[i])
    assert [tuple(sink.tasks()) for sink in sinks] == [make(count) for count in counts]

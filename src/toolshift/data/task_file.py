"""Tasks in a file: a sequence of them that holds one block in memory, however many there are."""

from __future__ import annotations

import tempfile
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, islice
from pathlib import Path
from typing import overload

import pyarrow.parquet as pq

from toolshift.data.records import Task
from toolshift.data.tables import TASKS, fields_of, table_of

BLOCK_TASKS = 4096
"""Tasks of a row group: the most that a ``TaskFile`` holds, and that a reader of a small release keeps without one."""
_NAME = "tasks.parquet"


class TaskFile(Sequence[Task]):
    """Tasks of a parquet file in the order of its rows. Memory holds one row group of them, the one read last.

    Reading in order costs one pass over the file; rows should be picked in ascending order. The file stays open, so its
    folder may be replaced or removed while it is read. Equal to any sequence of equal tasks.

    Raises:
        OSError, pa.ArrowException: if the file cannot be read.
        ValueError: if its schema is not that of tasks.
    """

    __hash__ = None  # type: ignore[assignment]  # equal to tuples, whose hash would need all tasks

    def __init__(self, path: Path) -> None:
        self._file = pq.ParquetFile(path)
        if not self._file.schema_arrow.equals(TASKS):
            raise ValueError(f"{path}: its schema is not the one of this version")
        metadata = self._file.metadata
        groups = (metadata.row_group(group).num_rows for group in range(metadata.num_row_groups))
        self._starts = list(accumulate(groups, initial=0))
        self._held: tuple[int, tuple[Task, ...]] = (-1, ())

    def __len__(self) -> int:
        return self._starts[-1]

    @overload
    def __getitem__(self, index: int) -> Task: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Task]: ...
    def __getitem__(self, index: int | slice) -> Task | Sequence[Task]:
        if isinstance(index, slice):
            return tuple(self[row] for row in range(*index.indices(len(self))))
        row = index + len(self) if index < 0 else index
        if not 0 <= row < len(self):
            raise IndexError(f"task {index} of {len(self)}")
        group = bisect_right(self._starts, row) - 1
        return self._group(group)[row - self._starts[group]]

    def __iter__(self) -> Iterator[Task]:
        for group in range(len(self._starts) - 1):
            yield from self._group(group)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    def _group(self, group: int) -> tuple[Task, ...]:
        held, tasks = self._held
        if held != group:
            tasks = tuple(Task(**fields) for fields in fields_of(self._file.read_row_group(group, use_threads=False)))
            self._held = (group, tasks)
        return tasks


def write_tasks(path: Path, tasks: Iterable[Task]) -> None:
    """Write tasks in their order to a parquet file with row groups of ``BLOCK_TASKS``; memory holds one of them."""
    rows = iter(tasks)
    with pq.ParquetWriter(path, TASKS, compression="zstd") as writer:
        while block := tuple(islice(rows, BLOCK_TASKS)):
            writer.write_table(table_of(block, TASKS))


class TaskSink:
    """Takes tasks one by one and gives them back as a tuple if they fill no block, else as a ``TaskFile``.

    The file goes when the sequence goes: it has no name once it is written, so nothing is left behind, whatever ends
    the process later. It lies in the system's temporary folder (``TMPDIR``).
    """

    def __init__(self) -> None:
        self._block: list[Task] = []
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._writer: pq.ParquetWriter | None = None

    def add(self, task: Task) -> None:
        """Take the next task."""
        self._block.append(task)
        if len(self._block) == BLOCK_TASKS:
            self._flush()

    def tasks(self) -> Sequence[Task]:
        """All tasks in the order of addition; call it once, after the last one."""
        if self._folder is None or self._writer is None:
            return tuple(self._block)
        with self._folder as folder:
            self._flush()
            self._writer.close()
            return TaskFile(Path(folder) / _NAME)

    def _flush(self) -> None:
        if self._folder is None or self._writer is None:
            self._folder = tempfile.TemporaryDirectory(prefix="toolshift-", ignore_cleanup_errors=True)
            self._writer = pq.ParquetWriter(Path(self._folder.name) / _NAME, TASKS, compression="zstd")
        if self._block:
            self._writer.write_table(table_of(self._block, TASKS))
        self._block.clear()


def spilled(tasks: Iterable[Task]) -> Sequence[Task]:
    """The tasks as ``TaskSink`` gives them back."""
    sink = TaskSink()
    for task in tasks:
        sink.add(task)
    return sink.tasks()

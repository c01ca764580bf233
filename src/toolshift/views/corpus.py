"""Records as arrays: what may be known about tasks and capabilities without a label, and the labels apart.

``Corpus`` is label-free and the same for every fold. ``Labels`` holds gold and given candidates and is cut down
to a fold's own tasks before anything is fitted (validity.md section 4). Rows follow the sorted ids of the records.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from sys import intern

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from toolshift.data.records import Endpoint, Records, Task
from toolshift.runs.seeds import id_hashes
from toolshift.views.schema import OperationTable, operation_table

Rows = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One dataset inside a corpus: its tasks and capabilities are consecutive rows, since ids start with its name."""

    name: str
    tasks: slice
    capabilities: slice

    @property
    def n_capabilities(self) -> int:
        """Size of its library."""
        return self.capabilities.stop - self.capabilities.start


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """Label-free arrays. n tasks, m capabilities, e endpoints, d domains.

    parts: the datasets, by name; a candidate always comes from the task's own. task_domain: (n,) rows of ``domains``,
    -1 where a task has none. capability_domain: (m,) likewise. endpoint_offsets: (m+1,) endpoints of capability c are
    ``offsets[c]:offsets[c+1]`` (sorted by id).
    """

    dataset: str
    parts: tuple[Part, ...]
    task_ids: tuple[str, ...]
    task_texts: tuple[str, ...]
    task_splits: tuple[str, ...]
    capability_ids: tuple[str, ...]
    capability_texts: tuple[str, ...]
    endpoints: tuple[Endpoint, ...]
    endpoint_offsets: Rows
    domains: tuple[str, ...]
    task_domain: Rows
    capability_domain: Rows
    partial_schema: NDArray[np.bool_]
    operations: OperationTable

    @property
    def n_tasks(self) -> int:
        """Number of tasks, n."""
        return len(self.task_ids)

    @property
    def n_capabilities(self) -> int:
        """Number of capabilities, m."""
        return len(self.capability_ids)

    @cached_property
    def task_part(self) -> Rows:
        """(n,) position of a task's dataset among ``parts``."""
        return np.repeat(np.arange(len(self.parts)), [p.tasks.stop - p.tasks.start for p in self.parts])

    @cached_property
    def capability_part(self) -> Rows:
        """(m,) position of a capability's dataset among ``parts``."""
        return np.repeat(np.arange(len(self.parts)), [p.n_capabilities for p in self.parts])

    @cached_property
    def task_hash(self) -> NDArray[np.uint64]:
        """(n,) hashes of the task ids."""
        return id_hashes(self.task_ids)

    @cached_property
    def capability_hash(self) -> NDArray[np.uint64]:
        """(m,) hashes of the capability ids."""
        return id_hashes(self.capability_ids)

    @cached_property
    def endpoint_count(self) -> Rows:
        """(m,) endpoints per capability."""
        return np.diff(self.endpoint_offsets)

    @cached_property
    def endpoint_capability(self) -> Rows:
        """(e,) the capability row of every endpoint."""
        return np.repeat(np.arange(self.n_capabilities), self.endpoint_count)

    def pair_key(self, task: Rows, capability: Rows) -> Rows:
        """One integer per (task, capability) row pair; sorts like (task, capability)."""
        return np.asarray(task, np.int64) * self.n_capabilities + capability


@dataclass(frozen=True, kw_only=True)
class Labels:
    """Annotated relevance of the tasks in ``rows`` and of no others.

    gold, given: (n, m) boolean CSR, empty outside ``rows``. gold_endpoints: (n, e) likewise.
    """

    rows: Rows
    gold: sparse.csr_matrix
    given: sparse.csr_matrix
    gold_endpoints: sparse.csr_matrix

    def only(self, rows: Rows) -> Labels:
        """The labels of ``rows`` alone; everything else is erased, not hidden.

        Raises:
            ValueError: if a row is not held here.
        """
        rows = np.unique(np.asarray(rows, np.int64))
        outside = np.setdiff1d(rows, self.rows)
        if outside.size:
            raise ValueError(f"{outside.size} tasks are not among the {self.rows.size} whose labels are held here")
        keep = np.zeros(self.gold.indptr.size - 1, bool)
        keep[rows] = True
        return Labels(
            rows=rows,
            gold=_keep_rows(self.gold, keep),
            given=_keep_rows(self.given, keep),
            gold_endpoints=_keep_rows(self.gold_endpoints, keep),
        )

    def domain_counts(self, corpus: Corpus) -> NDArray[np.int64]:
        """(d, m) number of tasks of each domain for which a capability is gold."""
        return _by_domain(corpus, self.gold, self.rows)

    def judged_by_domain(self, corpus: Corpus) -> NDArray[np.bool_]:
        """(d, m) whether a capability is gold or given for some task of the domain."""
        return (_by_domain(corpus, self.gold, self.rows) + _by_domain(corpus, self.given, self.rows)) > 0


class _Memberships:
    """Rows of a boolean matrix, one after another."""

    def __init__(self) -> None:
        self._ends = array("q", [0])
        self._columns = array("q")

    def add(self, columns: Iterable[int]) -> None:
        """Add a row by its columns."""
        self._columns.extend(sorted(columns))
        self._ends.append(len(self._columns))

    def matrix(self, *, width: int) -> sparse.csr_matrix:
        """(rows added, width) boolean CSR."""
        indptr, indices = np.array(self._ends, np.int64), np.array(self._columns, np.int64)
        return sparse.csr_matrix((np.ones(indices.size, bool), indices, indptr), shape=(indptr.size - 1, width))


@dataclass(slots=True)
class _TaskColumns:
    """What is kept of the tasks after one pass over them; the three lists of rows are those of ``Labels``."""

    ids: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    splits: list[str] = field(default_factory=list)
    domains: list[str] = field(default_factory=list)
    datasets: Counter[str] = field(default_factory=Counter)
    gold: _Memberships = field(default_factory=_Memberships)
    given: _Memberships = field(default_factory=_Memberships)
    gold_endpoints: _Memberships = field(default_factory=_Memberships)


def build_corpus(records: Records) -> tuple[Corpus, Labels]:
    """Turn records into arrays; the labels come apart from everything a method may read.

    The tasks are read once, in order, and none is kept whole.
    """
    library = records.library
    position = library.position
    endpoints = tuple(e for c in library.capabilities for e in library.endpoints_of[c.capability_id])
    counts = [len(library.endpoints_of[c.capability_id]) for c in library.capabilities]
    tasks = _task_columns(records.tasks, position, {e.endpoint_id: i for i, e in enumerate(endpoints)})
    domains = tuple(sorted({*tasks.domains, *(c.domain for c in library.capabilities)} - {""}))
    code = {name: i for i, name in enumerate(domains)} | {"": -1}
    corpus = Corpus(
        dataset=records.dataset,
        parts=_parts(tasks.datasets, Counter(c.dataset for c in library.capabilities)),
        task_ids=tuple(tasks.ids),
        task_texts=tuple(tasks.texts),
        task_splits=tuple(tasks.splits),
        capability_ids=tuple(c.capability_id for c in library.capabilities),
        capability_texts=tuple(c.text for c in library.capabilities),
        endpoints=endpoints,
        endpoint_offsets=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        domains=domains,
        task_domain=np.array([code[name] for name in tasks.domains], np.int64),
        capability_domain=np.array([code[c.domain] for c in library.capabilities], np.int64),
        partial_schema=np.array([c.partial_schema for c in library.capabilities], bool),
        operations=operation_table(endpoints),
    )
    labels = Labels(
        rows=np.arange(len(tasks.ids)),
        gold=tasks.gold.matrix(width=len(position)),
        given=tasks.given.matrix(width=len(position)),
        gold_endpoints=tasks.gold_endpoints.matrix(width=len(endpoints)),
    )
    return corpus, labels


def _task_columns(tasks: Iterable[Task], position: Mapping[str, int], row_of: Mapping[str, int]) -> _TaskColumns:
    columns = _TaskColumns()
    for task in tasks:
        columns.ids.append(task.task_id)
        columns.texts.append(task.text)
        columns.splits.append(intern(task.split))
        columns.domains.append(intern(task.domain))
        columns.datasets[task.dataset] += 1
        columns.gold.add(position[i] for i in task.gold_capability_ids)
        columns.given.add(position[i] for i in task.given_candidate_ids)
        columns.gold_endpoints.add(row_of[i] for i in task.gold_endpoint_ids)
    return columns


def _parts(tasks: Mapping[str, int], capabilities: Mapping[str, int]) -> tuple[Part, ...]:
    """From tasks and capabilities per dataset: both are grouped by it, as ids are sorted and start with its name."""
    found = []
    first_task = first_capability = 0
    for name in sorted({*tasks, *capabilities}, key=lambda name: f"{name}/"):
        last_task = first_task + tasks.get(name, 0)
        last_capability = first_capability + capabilities.get(name, 0)
        rows, columns = slice(first_task, last_task), slice(first_capability, last_capability)
        found.append(Part(name=name, tasks=rows, capabilities=columns))
        first_task, first_capability = last_task, last_capability
    return tuple(found)


def stored_entries(matrix: sparse.csr_matrix) -> tuple[Rows, Rows]:
    """(row, column) of the stored entries, row by row; the typed way to read a membership matrix."""
    row = np.repeat(np.arange(matrix.indptr.size - 1), np.diff(matrix.indptr))
    return row, np.asarray(matrix.indices, np.int64)


def _keep_rows(matrix: sparse.csr_matrix, keep: NDArray[np.bool_]) -> sparse.csr_matrix:
    counts = np.diff(matrix.indptr)
    indptr = np.concatenate([[0], np.cumsum(np.where(keep, counts, 0))])
    indices = matrix.indices[np.repeat(keep, counts)]
    return sparse.csr_matrix((np.ones(indices.size, bool), indices, indptr), shape=matrix.shape)


def _by_domain(corpus: Corpus, matrix: sparse.csr_matrix, rows: Rows) -> NDArray[np.int64]:
    known = rows[corpus.task_domain[rows] >= 0]
    member = sparse.csr_matrix(
        (np.ones(known.size, np.int64), (corpus.task_domain[known], known)), shape=(len(corpus.domains), corpus.n_tasks)
    )
    return sparse.csr_matrix(member @ matrix.astype(np.int64)).toarray()

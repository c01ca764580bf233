"""Records as arrays: what may be known about tasks and capabilities without a label, and the labels apart.

``Corpus`` is label-free and the same for every fold. ``Labels`` holds gold and given candidates and is cut down
to a fold's own tasks before anything is fitted (validity.md section 4). Rows follow the sorted ids of the records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from toolshift.data.records import Endpoint, Records
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


def build_corpus(records: Records) -> tuple[Corpus, Labels]:
    """Turn records into arrays; the labels come apart from everything a method may read."""
    library, tasks = records.library, records.tasks
    position = library.position
    named = {t.domain for t in tasks} | {c.domain for c in library.capabilities}
    domains = tuple(sorted(named - {""}))
    code = {name: i for i, name in enumerate(domains)} | {"": -1}
    endpoints = tuple(e for c in library.capabilities for e in library.endpoints_of[c.capability_id])
    counts = [len(library.endpoints_of[c.capability_id]) for c in library.capabilities]
    corpus = Corpus(
        dataset=records.dataset,
        parts=_parts([t.dataset for t in tasks], [c.dataset for c in library.capabilities]),
        task_ids=tuple(t.task_id for t in tasks),
        task_texts=tuple(t.text for t in tasks),
        task_splits=tuple(t.split for t in tasks),
        capability_ids=tuple(c.capability_id for c in library.capabilities),
        capability_texts=tuple(c.text for c in library.capabilities),
        endpoints=endpoints,
        endpoint_offsets=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        domains=domains,
        task_domain=np.array([code[t.domain] for t in tasks], np.int64),
        capability_domain=np.array([code[c.domain] for c in library.capabilities], np.int64),
        partial_schema=np.array([c.partial_schema for c in library.capabilities], bool),
        operations=operation_table(endpoints),
    )
    row_of = {e.endpoint_id: i for i, e in enumerate(endpoints)}.__getitem__
    labels = Labels(
        rows=np.arange(len(tasks)),
        gold=_membership([t.gold_capability_ids for t in tasks], position.__getitem__, width=len(position)),
        given=_membership([t.given_candidate_ids for t in tasks], position.__getitem__, width=len(position)),
        gold_endpoints=_membership([t.gold_endpoint_ids for t in tasks], row_of, width=len(endpoints)),
    )
    return corpus, labels


def _parts(tasks: Sequence[str], capabilities: Sequence[str]) -> tuple[Part, ...]:
    """Both sequences of dataset names are grouped, since ids are sorted and start with the name and a slash."""
    found = []
    first_task = first_capability = 0
    for name in sorted({*tasks, *capabilities}, key=lambda name: f"{name}/"):
        last_task = first_task + tasks.count(name)
        last_capability = first_capability + capabilities.count(name)
        rows, columns = slice(first_task, last_task), slice(first_capability, last_capability)
        found.append(Part(name=name, tasks=rows, capabilities=columns))
        first_task, first_capability = last_task, last_capability
    return tuple(found)


def stored_entries(matrix: sparse.csr_matrix) -> tuple[Rows, Rows]:
    """(row, column) of the stored entries, row by row; the typed way to read a membership matrix."""
    row = np.repeat(np.arange(matrix.indptr.size - 1), np.diff(matrix.indptr))
    return row, np.asarray(matrix.indices, np.int64)


def _membership(ids: Sequence[Iterable[str]], row_of: Callable[[str], int], *, width: int) -> sparse.csr_matrix:
    columns = [np.array(sorted(row_of(i) for i in group), np.int64) for group in ids]
    indptr = np.concatenate([[0], np.cumsum([c.size for c in columns])]).astype(np.int64)
    indices = np.concatenate(columns) if columns else np.zeros(0, np.int64)
    return sparse.csr_matrix((np.ones(indices.size, bool), indices, indptr), shape=(len(columns), width))


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

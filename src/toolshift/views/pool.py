"""The hard pool: every (task, capability) pair that a miner proposes, with the signals the role rules read.

Row t depends on the label-free corpus and on the labels of task t alone, so the table is built once and each fold
reads the rows of its own tasks (validity.md section 4). Which endpoint of a candidate is held against the gold is
decided by word overlap with the task, one endpoint per candidate: a rule over *any* endpoint would call tools with few
endpoints conflicts and tools with many matches, and the endpoint count alone would then give the role away.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from toolshift.runs.seeds import keyed_hash, seed_of
from toolshift.views.corpus import Corpus, Labels, Rows
from toolshift.views.retrieval import Retrieval
from toolshift.views.schema import NO_VERB

Mask = NDArray[np.bool_]

MINER_BITS = {"bm25": 1, "dense": 2, "category": 4, "given": 8, "uniform": 16}
_BLOCK_TASKS = 256
_LOCAL_BITS = 10


@dataclass(frozen=True, kw_only=True)
class Pool:
    """Packed pairs of n tasks, p in all.

    offsets: (n+1,). capability: (p,) rows, ascending inside a task. miner: (p,) bits of ``MINER_BITS``.
    shares_verb: (p,) the candidate's representative endpoint has the verb class of some gold endpoint.
    overlap: (p,) largest Jaccard overlap of its required argument names with a gold endpoint (1 if both need none).
    uniform: (n, w) capabilities of the task's whole library with the smallest keyed hashes, for uniform library draws;
    -1 where the library is smaller.
    """

    offsets: Rows
    capability: NDArray[np.int32]
    miner: NDArray[np.uint8]
    shares_verb: Mask
    overlap: NDArray[np.float32]
    uniform: NDArray[np.int32]


@dataclass(frozen=True, kw_only=True)
class LibraryWidth:
    """How much of a library universe is kept per task. Whole-library offers of the ordinary and the semantic role
    depend on no other task's labels, so the ``width`` smallest hashes of each suffice for every fold.

    overlap_below: argument overlap under which a pair without a shared verb is a semantic candidate.
    """

    width: int
    seed: int
    overlap_below: float


def build_pool(corpus: Corpus, labels: Labels, *, retrieval: Retrieval, library: LibraryWidth | None = None) -> Pool:
    """Evaluate the miners and the schema signals for every task whose labels are held.

    Without ``library`` only capabilities that some task judges are looked at: no other universe can draw more. Both
    cuts change the cost of a manifest, never a list. A capability without endpoints has no signal and is no hard
    candidate.
    """
    judged = np.zeros(corpus.n_capabilities, bool)
    judged[labels.gold.indices] = True
    judged[labels.given.indices] = True
    wanted = judged if library is None else np.ones_like(judged)
    columns = np.flatnonzero(wanted & (corpus.endpoint_count > 0))
    parts = [
        _trimmed(_block_pairs(block), corpus, judged=judged, library=library)
        for block in _blocks(corpus, labels, retrieval, columns)
    ]
    task, capability, miner, verb, overlap = (np.concatenate(p) for p in zip(*parts, strict=True))
    order = np.lexsort((capability, task))
    offsets = np.concatenate([[0], np.cumsum(np.bincount(task, minlength=corpus.n_tasks))]).astype(np.int64)
    return Pool(
        offsets=offsets,
        capability=capability[order].astype(np.int32),
        miner=miner[order],
        shares_verb=verb[order],
        overlap=overlap[order],
        uniform=uniform_candidates(corpus, seed=library.seed, width=library.width)
        if library
        else np.zeros((corpus.n_tasks, 0), np.int32),
    )


def uniform_candidates(corpus: Corpus, *, seed: int, width: int) -> NDArray[np.int32]:
    """(n, width) capability rows of the task's dataset with the smallest keyed hash of the ordinary role, per task, -1
    where the dataset has fewer; label-free."""
    width = min(width, max(part.n_capabilities for part in corpus.parts))
    result = np.full((corpus.n_tasks, width), -1, np.int32)
    salt = draw_salt("ordinary", seed)
    for part in corpus.parts:
        count, columns = min(width, part.n_capabilities), corpus.capability_hash[None, part.capabilities]
        for start in range(part.tasks.start, part.tasks.stop, _BLOCK_TASKS):
            rows = slice(start, min(start + _BLOCK_TASKS, part.tasks.stop))
            hashes = keyed_hash(salt, corpus.task_hash[rows, None], columns)
            first = np.argpartition(hashes, count - 1, axis=1)[:, :count]
            result[rows, :count] = first + part.capabilities.start
    return result


def draw_salt(role: str, seed: int) -> int:
    """The key of a role's draws; it names no view, so views that share a role share its candidates."""
    return seed_of("draw", role, seed)


@dataclass(frozen=True, kw_only=True)
class _Block:
    """Some tasks (t,) and the k candidate columns they are held against; every column has an endpoint."""

    corpus: Corpus
    labels: Labels
    retrieval: Retrieval
    tasks: Rows
    columns: Rows

    @cached_property
    def gold_slots(self) -> Rows:
        """(t, g) gold endpoint rows, padded by -1."""
        matrix = self.labels.gold_endpoints[self.tasks]
        counts = np.diff(matrix.indptr)
        slots = np.full((self.tasks.size, int(counts.max(initial=0))), -1, np.int64)
        row = np.repeat(np.arange(self.tasks.size), counts)
        slots[row, np.arange(matrix.indices.size) - np.repeat(matrix.indptr[:-1], counts)] = matrix.indices
        return slots

    def miners(self) -> NDArray[np.uint8]:
        """(t, k) bits: bm25 and dense top lists over the whole library, and the category of a gold capability."""
        bits = self._same_category() * np.uint8(MINER_BITS["category"])
        for name, top in (("bm25", self.retrieval.bm25_top), ("dense", self.retrieval.dense_top)):
            listed = np.zeros((self.tasks.size, self.corpus.n_capabilities + 1), bool)
            np.put_along_axis(listed, np.asarray(top[self.tasks], np.int64), True, axis=1)
            bits |= listed[:, self.columns] * np.uint8(MINER_BITS[name])
        return bits

    def _same_category(self) -> Mask:
        gold = self.labels.gold[self.tasks]
        member = np.zeros((self.tasks.size, len(self.corpus.domains) + 1), bool)
        row = np.repeat(np.arange(self.tasks.size), np.diff(gold.indptr))
        member[row, self.corpus.capability_domain[gold.indices]] = True
        member[:, -1] = False
        return member[:, self.corpus.capability_domain[self.columns]]

    def representative(self) -> Rows:
        """(t, k) endpoint of each column that shares most words with the task (TF-IDF cosine), the first by id among
        equals. Reads no label."""
        corpus, table = self.corpus, self.corpus.operations
        if not self.columns.size:
            return np.zeros((self.tasks.size, 0), np.int64)
        counts, starts = corpus.endpoint_count[self.columns], corpus.endpoint_offsets[self.columns]
        local = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        words = table.task_words([corpus.task_texts[t] for t in self.tasks])
        similarity = (words @ table.words[np.repeat(starts, counts) + local].T).toarray()
        last = (1 << _LOCAL_BITS) - 1
        key = np.round(similarity * 1e6).astype(np.int64) << _LOCAL_BITS
        key |= last - np.minimum(local, last)
        best = np.maximum.reduceat(key, np.cumsum(counts) - counts, axis=1)
        return starts + (last - (best & last))

    def shares_verb(self, endpoint: Rows) -> Mask:
        """(t, k) whether an endpoint has the verb class of a gold endpoint; an unknown verb shares nothing."""
        verb = self.corpus.operations.verb.astype(np.int64)
        classes = np.zeros((self.tasks.size, int(verb.max(initial=0)) + 2), bool)
        np.put_along_axis(classes, np.where(self.gold_slots >= 0, verb[self.gold_slots], NO_VERB), True, axis=1)
        classes[:, NO_VERB] = False
        return np.take_along_axis(classes, verb[endpoint], axis=1)

    def overlap(self, endpoint: Rows) -> NDArray[np.float32]:
        """(t, k) largest Jaccard overlap of required argument names with a gold endpoint."""
        table = self.corpus.operations
        best = np.zeros(endpoint.shape, np.float32)
        signature = table.signature[endpoint]
        distinct = np.unique(table.signature[self.gold_slots[self.gold_slots >= 0]])
        overlap = table.overlap(distinct)
        for slot in self.gold_slots.T:
            row = np.minimum(np.searchsorted(distinct, table.signature[slot]), distinct.size - 1)
            value = overlap[row[:, None], signature]
            np.maximum(best, np.where(slot[:, None] >= 0, value, 0.0), out=best)
        return best


def _blocks(corpus: Corpus, labels: Labels, retrieval: Retrieval, columns: Rows) -> Iterator[_Block]:
    """Blocks of tasks of one domain: their pools overlap, so endpoint work is shared."""
    domain_of = corpus.task_domain[labels.rows]
    for domain in np.unique(domain_of):
        rows = labels.rows[domain_of == domain]
        for start in range(0, rows.size, _BLOCK_TASKS):
            tasks = rows[start : start + _BLOCK_TASKS]
            yield _Block(corpus=corpus, labels=labels, retrieval=retrieval, tasks=tasks, columns=columns)


_Pairs = tuple[Rows, Rows, NDArray[np.uint8], Mask, NDArray[np.float32]]


def _block_pairs(block: _Block) -> _Pairs:
    bits = block.miners()
    used = np.flatnonzero(bits.any(axis=0))
    block = _Block(
        corpus=block.corpus,
        labels=block.labels,
        retrieval=block.retrieval,
        tasks=block.tasks,
        columns=block.columns[used],
    )
    endpoint = block.representative()
    row, column = np.nonzero(bits[:, used])
    verb, overlap = block.shares_verb(endpoint), block.overlap(endpoint)
    return block.tasks[row], block.columns[column], bits[:, used][row, column], verb[row, column], overlap[row, column]


def _trimmed(pairs: _Pairs, corpus: Corpus, *, judged: Mask, library: LibraryWidth | None) -> _Pairs:
    """Keep judged capabilities, and for every miner the first semantic candidates of each task by hash."""
    if library is None:
        return pairs
    task, capability, miner, verb, overlap = pairs
    salt = draw_salt("semantic", library.seed)
    priority = keyed_hash(salt, corpus.task_hash[task], corpus.capability_hash[capability])
    order = np.lexsort((priority, task))
    conflict = (~verb & (overlap < library.overlap_below))[order]
    keep = judged[capability]
    for bits in (MINER_BITS["bm25"] | MINER_BITS["dense"] | MINER_BITS["category"], 1, 2, 4):
        mined = order[conflict & ((miner[order] & bits) > 0)]
        keep[mined[place_in_group(task[mined]) < library.width]] = True
    return task[keep], capability[keep], miner[keep], verb[keep], overlap[keep]


def place_in_group(ascending: Rows) -> Rows:
    """(p,) position of every element among its equals in an ascending array: 0, 1, ... within each group."""
    starts = np.flatnonzero(np.diff(ascending, prepend=-1))
    return np.arange(ascending.size) - np.repeat(starts, np.diff(np.append(starts, ascending.size)))

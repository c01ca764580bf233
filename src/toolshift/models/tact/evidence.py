"""Endpoint pool and typed evidence of (task, capability) pairs, computed once per pair and kept on disk.

Nothing here has a parameter or reads a label (tact.md sections 3.2 and 3.3 [R]), so one store serves every fold, seed
and configuration. Per pair: the four endpoints with the largest cosine to any requirement, one set for all requirements
and channels [G], and for each requirement and endpoint

- operation: max(0, cos(requirement, endpoint text));
- argument: mean over required argument names of the best non-negative cosine with a span of the requirement;
- type: share of required arguments whose coarse type the requirement offers a value of;

with a mask per endpoint for the last two: an endpoint without required arguments, or without a type, has no evidence,
which is not a mismatch [G].
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from toolshift.data import types as types_of_arguments
from toolshift.data.records import COARSE_TYPES, Endpoint
from toolshift.models import features
from toolshift.models.features import FeatureBank, Pairs, exact_cosines, on_grid
from toolshift.models.tact import assignment
from toolshift.models.tact import requirements as tact_requirements
from toolshift.models.tact.assignment import ENDPOINTS, REQUIREMENTS
from toolshift.models.tact.requirements import TaskRequirements, requirement_texts, spans_of, task_requirements
from toolshift.runs.files import sha256_file, stable_hash, write_array
from toolshift.text import lexical
from toolshift.text import requirements as text_requirements
from toolshift.text import spans as text_spans
from toolshift.text.spans import identifier_words
from toolshift.views import schema
from toolshift.views.corpus import Corpus, Rows
from toolshift.views.roles import contains, packed_rows

log = logging.getLogger(__name__)

GRID = (REQUIREMENTS, ENDPOINTS)
ROW = np.dtype(
    [
        ("operation", np.float32, GRID),
        ("argument", np.float32, GRID),
        ("type", np.float32, GRID),
        ("weight", np.float32, (REQUIREMENTS,)),
        ("has_argument", np.bool_, (ENDPOINTS,)),
        ("has_type", np.bool_, (ENDPOINTS,)),
        ("requirements", np.int8),
        ("endpoints", np.int8),
    ]
)
"""What is stored per pair. weight: of each requirement by the rarity of its words, 1 on average. requirements,
endpoints: how many there are; the rest of the grid is zero."""
Evidence = NDArray[Any]
"""(p,) array of `ROW`."""
_UNKNOWN = COARSE_TYPES.index("unknown")
_SHARD_PAIRS = 262_144
_WORTH_A_LINE = 10_000
_KEYS_SUFFIX = ".keys.npy"


@dataclass(frozen=True, kw_only=True)
class EndpointTable:
    """Distinct endpoints of a corpus, e in all, with their required arguments, a in all.

    rows: (e,) rows of ``corpus.endpoints``. offsets: (m+1,) those of each capability, by id. argument_offsets: (e+1,).
    argument_name: (a,) rows of ``names``. argument_type: (a,) codes of ``COARSE_TYPES``.
    """

    rows: Rows
    offsets: Rows
    argument_offsets: Rows
    argument_name: Rows
    argument_type: Rows
    names: tuple[str, ...]

    @cached_property
    def has_type(self) -> NDArray[np.bool_]:
        """(e,) whether some required argument has a known type."""
        known = np.concatenate([[0], np.cumsum(self.argument_type != _UNKNOWN)])
        return np.diff(known[self.argument_offsets]) > 0

    @staticmethod
    def of(corpus: Corpus) -> EndpointTable:
        """Endpoint rows that differ in nothing a caller sees are one [G]."""
        rows, counts = [], np.zeros(corpus.n_capabilities, np.int64)
        seen: set[tuple[object, ...]] = set()
        for row, capability in enumerate(corpus.endpoint_capability.tolist()):
            key = (capability, *identity_of(corpus.endpoints[row]))
            if key not in seen:
                seen.add(key)
                rows.append(row)
                counts[capability] += 1
        required = [corpus.endpoints[row].required_arguments for row in rows]
        words = [[identifier_words(a.name) or a.name for a in arguments] for arguments in required]
        names = tuple(sorted({word for group in words for word in group}))
        code = {name: i for i, name in enumerate(names)}
        kind = {name: i for i, name in enumerate(COARSE_TYPES)}
        return EndpointTable(
            rows=np.array(rows, np.int64),
            offsets=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
            argument_offsets=np.cumsum([0, *map(len, required)]),
            argument_name=np.array([code[word] for group in words for word in group], np.int64),
            argument_type=np.array([kind[a.type] for arguments in required for a in arguments], np.int64),
            names=names,
        )


def identity_of(endpoint: Endpoint) -> tuple[object, ...]:
    """What tells an endpoint from another one of its capability (tact.md section 3.2 [G])."""
    arguments = tuple((a.name, a.raw_type) for a in endpoint.required_arguments)
    return endpoint.operation, endpoint.description, endpoint.method, arguments


class EvidenceStore:
    """Evidence of pairs, memory-mapped; what is missing is computed and written as one more shard.

    A shard is named by the hash of its keys and appears by a rename, so that several processes may write at once. The
    folder is named by everything that the values depend on. A bank without a ``store`` keeps its shards in memory.
    """

    def __init__(self, bank: FeatureBank) -> None:
        self.bank, self.corpus = bank, bank.corpus
        self.table = EndpointTable.of(bank.corpus)
        self.folder = bank.store / "evidence" / self._fingerprint()[:16] if bank.store else None
        self._keys = np.zeros(0, np.int64)
        self._shard = np.zeros(0, np.int32)
        self._place = np.zeros(0, np.int64)
        self._shards: list[Path | Evidence] = []
        self._known: set[str] = set()
        self._scan()

    @cached_property
    def _names(self) -> NDArray[np.float32]:
        """(r, d) vectors of all argument names, read once: folds keep asking for a few more pairs."""
        names = self.table.names
        return self.bank.cache.rows(names) if names else np.zeros((0, self.bank.task_vectors.shape[1]), np.float32)

    def __call__(self, pairs: Pairs) -> Evidence:
        """(p,) rows of `ROW`, computed where they are missing."""
        keys = self.corpus.pair_key(pairs.task, pairs.capability)
        self._ensure(keys)
        place = np.searchsorted(self._keys, keys)
        shard, row = self._shard[place], self._place[place]
        result = np.empty(len(pairs), ROW)
        for number in np.unique(shard):
            here = np.flatnonzero(shard == number)
            shard_rows = self._shards[number]
            held = np.load(shard_rows, mmap_mode="r") if isinstance(shard_rows, Path) else shard_rows
            result[here] = held[row[here]]
        return result

    def _ensure(self, keys: Rows) -> None:
        missing = np.unique(keys[~contains(self._keys, keys)])
        if missing.size:
            self._scan()  # another process may have written it since
            missing = missing[~contains(self._keys, missing)]
        if not missing.size:
            return
        m = self.corpus.n_capabilities
        started, tasks = time.monotonic(), np.unique(missing // m)
        groups = self._groups(tasks)
        for start in range(0, missing.size, _SHARD_PAIRS):
            part = missing[start : start + _SHARD_PAIRS]
            rows = self._compute(Pairs(task=part // m, capability=part % m), tasks=tasks, groups=groups)
            self._write(part, rows)
            done = start + part.size
            spent = max(time.monotonic() - started, 1e-9)
            left = spent / done * (missing.size - done)
            level = logging.INFO if missing.size >= _WORTH_A_LINE else logging.DEBUG
            said = (done, missing.size, done / spent, left)
            log.log(level, "evidence: %d of %d pairs, %.0f pairs/s, %.0f s left", *said)
        self._scan()

    def _groups(self, tasks: Rows) -> list[tuple[str, ...]]:
        """Requirements of the tasks; every text that evidence needs is encoded in one go."""
        texts = [self.corpus.task_texts[t] for t in tasks]
        groups = requirement_texts(texts, bank=self.bank)
        self.bank.cache.ensure([span for group in groups for text in group for span in spans_of(text)])
        return groups

    def _compute(self, pairs: Pairs, *, tasks: Rows, groups: Sequence[tuple[str, ...]]) -> Evidence:
        capabilities = np.unique(pairs.capability)
        work = _Work.of(self.table, capabilities, bank=self.bank, names=self._names)
        result = np.zeros(len(pairs), ROW)
        for chunk, where in features.task_chunks(pairs.task):
            place = np.searchsorted(tasks, chunk)
            needed = task_requirements([groups[i] for i in place], bank=self.bank)
            bounds = [*np.searchsorted(pairs.task[where], chunk).tolist(), where.stop - where.start]
            for i in range(chunk.size):
                rows = slice(where.start + bounds[i], where.start + bounds[i + 1])
                columns = np.searchsorted(capabilities, pairs.capability[rows])
                result[rows] = work.evidence(needed.of(i), columns)
        return result

    def _write(self, keys: Rows, rows: Evidence) -> None:
        if self.folder is None:
            self._take_over(keys, rows)
            return
        name = f"shard-{hashlib.sha256(keys.tobytes()).hexdigest()[:16]}"
        write_array(self.folder / f"{name}.npy", rows)
        write_array(self.folder / f"{name}{_KEYS_SUFFIX}", keys)

    def _scan(self) -> None:
        """Take over the keys of shards not read so far."""
        if self.folder is None:
            return
        for path in sorted(self.folder.glob(f"shard-*{_KEYS_SUFFIX}")):
            values = path.with_name(path.name.removesuffix(_KEYS_SUFFIX) + ".npy")
            if path.name not in self._known and values.is_file():
                self._take_over(np.load(path), values)
                self._known.add(path.name)

    def _take_over(self, keys: Rows, values: Path | Evidence) -> None:
        new = ~contains(self._keys, keys)
        merged = np.concatenate([self._keys, keys[new]])
        order = np.argsort(merged, kind="stable")
        number = np.full(int(new.sum()), len(self._shards), np.int32)
        self._keys = merged[order]
        self._shard = np.concatenate([self._shard, number])[order]
        self._place = np.concatenate([self._place, np.flatnonzero(new)])[order]
        self._shards.append(values)

    def _fingerprint(self) -> str:
        digest = hashlib.sha256()
        for text in (*self.corpus.task_ids, *self.corpus.task_texts, *self.corpus.capability_ids):
            digest.update(text.encode("utf-8", "surrogatepass") + b"\0")
        for endpoint in self.corpus.endpoints:
            types = tuple(a.type for a in endpoint.required_arguments)
            read = (endpoint.endpoint_id, *identity_of(endpoint), endpoint.text, types)
            digest.update(repr(read).encode("utf-8", "surrogatepass"))
        modules = (
            features, schema, assignment, tact_requirements, text_requirements, text_spans, lexical, types_of_arguments
        )  # fmt: skip
        code = [sha256_file(Path(str(m.__file__))) for m in modules] + [sha256_file(Path(__file__))]
        return stable_hash([self.bank.cache.encoder.fingerprint, digest.hexdigest(), code])


@dataclass(frozen=True, kw_only=True)
class _Work:
    """Endpoints of c capabilities, q in all, ready to be compared.

    offsets: (c+1,). operation: (q, d). names: (r, d). argument_offsets: (q+1,). argument_name: (a,) rows of ``names``.
    """

    offsets: Rows
    operation: NDArray[np.float32]
    names: NDArray[np.float32]
    argument_offsets: Rows
    argument_name: Rows
    argument_type: Rows
    has_type: NDArray[np.bool_]

    @staticmethod
    def of(table: EndpointTable, capabilities: Rows, *, bank: FeatureBank, names: NDArray[np.float32]) -> _Work:
        index, _ = packed_rows(table.offsets, capabilities)
        arguments, _ = packed_rows(table.argument_offsets, index)
        counts = np.diff(table.offsets)[capabilities]
        texts = [bank.corpus.endpoints[row].text for row in table.rows[index]]
        return _Work(
            offsets=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
            operation=bank.cache.rows(texts),
            names=names,
            argument_offsets=np.concatenate([[0], np.cumsum(np.diff(table.argument_offsets)[index])]).astype(np.int64),
            argument_name=table.argument_name[arguments],
            argument_type=table.argument_type[arguments],
            has_type=table.has_type[index],
        )

    def evidence(self, needed: TaskRequirements, columns: Rows) -> Evidence:
        """(len(columns),) evidence of one task's requirements for some of the capabilities."""
        result = np.zeros(columns.size, ROW)
        count = needed.offsets[-1]
        result["requirements"] = count
        result["weight"][:, :count] = needed.weights
        index, _ = packed_rows(self.offsets, columns)
        if not index.size:
            return result
        owner = np.repeat(np.arange(columns.size), np.diff(self.offsets)[columns])
        cosine = exact_cosines(needed.vectors, self.operation[index])
        chosen, slot = _pool(cosine, owner)
        pair = owner[chosen]
        index, cosine = index[chosen], cosine[:, chosen]
        np.maximum.at(result["endpoints"], pair, (slot + 1).astype(np.int8))
        argument, kind = self._arguments(needed, index)
        width = np.diff(self.argument_offsets)[index]
        for name, values in (("operation", np.maximum(cosine, 0.0)), ("argument", argument), ("type", kind)):
            result[name][pair, :count, slot] = on_grid(values).T
        result["has_argument"][pair, slot] = width > 0
        result["has_type"][pair, slot] = self.has_type[index]
        return result

    def _arguments(self, needed: TaskRequirements, index: Rows) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """(M, k) argument and type evidence of k endpoints; 0 where an endpoint requires nothing."""
        arguments, _ = packed_rows(self.argument_offsets, index)
        width = np.diff(self.argument_offsets)[index]
        shape = (int(needed.offsets[-1]), index.size)
        argument, kind = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
        if not arguments.size:
            return argument, kind
        distinct, place = np.unique(self.argument_name[arguments], return_inverse=True)
        similar = np.maximum(exact_cosines(needed.spans, self.names[distinct]), 0.0)
        best = np.maximum.reduceat(similar, needed.span_offsets[:-1], axis=0)[:, place.ravel()]
        offered = needed.types[:, self.argument_type[arguments]].astype(np.float32)
        offered[:, self.argument_type[arguments] == _UNKNOWN] = 0.0
        some = width > 0
        starts = (np.cumsum(width) - width)[some]
        argument[:, some] = np.add.reduceat(best, starts, axis=1) / width[some]
        kind[:, some] = np.add.reduceat(offered, starts, axis=1) / width[some]
        return argument, kind


def _pool(cosine: NDArray[np.float32], owner: Rows) -> tuple[Rows, Rows]:
    """The ``ENDPOINTS`` best endpoints of every owner by their largest cosine with a requirement, equal ones by id:
    (positions, slots)."""
    key = on_grid(cosine.max(axis=0))
    position = np.arange(owner.size)
    order = np.lexsort((position, -key, owner))
    first = np.searchsorted(owner, owner)  # owners ascend
    slot = position - first
    kept = slot < ENDPOINTS
    return order[kept], slot[kept]


def evidence_of(bank: FeatureBank) -> EvidenceStore:
    """The store of a bank's corpus, opened once."""
    return bank.shared(EvidenceStore)

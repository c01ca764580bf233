"""Label-free features of (task, capability) pairs, computed once per pair and shared by all methods and folds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from toolshift.data.records import COARSE_TYPES
from toolshift.text.cache import EmbeddingCache
from toolshift.text.lexical import Bm25
from toolshift.text.spans import detected_types, identifier_words, spans
from toolshift.views.corpus import Corpus, Part, Rows
from toolshift.views.roles import contains, packed_rows

Values = NDArray[np.float64]
T = TypeVar("T")
Space = Literal["raw", "aligned"]
SPACES: tuple[str, ...] = get_args(Space)
"""``aligned``: coordinates of tact.md section 6, standardised per dataset without labels."""
LIBRARY_RANKINGS = ("semantic_cosine", "bm25")
"""Rankings of the whole library that `FeatureBank.library_rank` knows."""
_CHUNK_TASKS = 256
_CHUNK_PAIRS = 65_536


class UnknownSpace(ValueError):
    """A model was configured with coordinates that do not exist."""

    user_facing = True


@dataclass(frozen=True, kw_only=True)
class Pairs:
    """p distinct (task, capability) row pairs, ascending by task, then capability."""

    task: Rows
    capability: Rows

    def __len__(self) -> int:
        """Number of pairs."""
        return int(self.task.size)

    def take(self, index: NDArray[np.int64] | NDArray[np.bool_] | slice) -> Pairs:
        """A part of the pairs."""
        return Pairs(task=self.task[index], capability=self.capability[index])


class PairCache:
    """Memo of one float64 feature over distinct pairs; what is missing is computed in one call."""

    def __init__(self, compute: Callable[[Pairs], Values], *, n_capabilities: int) -> None:
        self._compute = compute
        self._m = n_capabilities
        self._keys = np.zeros(0, np.int64)
        self._values = np.zeros(0, np.float64)

    def __call__(self, pairs: Pairs) -> Values:
        """(p,) values of the feature."""
        keys = pairs.task * self._m + pairs.capability
        missing = np.unique(keys[~contains(self._keys, keys)])
        if missing.size:
            fresh = self._compute(Pairs(task=missing // self._m, capability=missing % self._m))
            merged = np.concatenate([self._keys, missing])
            order = np.argsort(merged, kind="stable")
            self._keys, self._values = merged[order], np.concatenate([self._values, fresh])[order]
        return self._values[np.searchsorted(self._keys, keys)]


@dataclass(kw_only=True)
class FeatureBank:
    """Lazy features of one corpus under one encoder. At most ``max_pairs`` pairs of vectors are gathered at once.

    task_vectors: (n, d), capability_vectors: (m, d) unit rows. ``cache`` yields vectors of further texts.
    ``bm25_index(k1, b, part)`` is the index of one dataset's library. store: folder for features that are worth
    keeping; None keeps them in memory.
    """

    corpus: Corpus
    cache: EmbeddingCache
    task_vectors: NDArray[np.float32]
    capability_vectors: NDArray[np.float32]
    bm25_index: Callable[[float, float, Part], Bm25]
    max_pairs: int = _CHUNK_PAIRS
    store: Path | None = None
    _memo: dict[tuple[object, ...], PairCache] = field(default_factory=dict, repr=False)
    _tables: dict[Callable[[Corpus], Values], Values] = field(default_factory=dict, repr=False)
    _shared: dict[Callable[[FeatureBank], Any], Any] = field(default_factory=dict, repr=False)
    _aligned: tuple[NDArray[np.float32], NDArray[np.float32]] | None = field(default=None, repr=False)

    def per_capability(self, compute: Callable[[Corpus], Values]) -> Values:
        """A label-free table over the m capabilities, computed once per corpus."""
        if compute not in self._tables:
            self._tables[compute] = compute(self.corpus)
        return self._tables[compute]

    def shared(self, make: Callable[[FeatureBank], T]) -> T:
        """What ``make`` builds from this bank, built once: label-free tables that several models read."""
        if make not in self._shared:
            self._shared[make] = make(self)
        return self._shared[make]

    def cached(self, name: str, compute: Callable[[Pairs], Values]) -> PairCache:
        """A label-free feature of pairs under a name of its own, computed once per pair."""
        return self._cached((name,), compute)

    def vectors(self, space: str) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """((n, d), (m, d)) unit rows of tasks and capabilities, ``raw`` or ``aligned``.

        Raises:
            UnknownSpace: for another space.
        """
        if space == "raw":
            return self.task_vectors, self.capability_vectors
        known_space(space, model="vectors")
        if self._aligned is None:
            parts = self.corpus.parts
            self._aligned = (
                aligned(self.task_vectors, [part.tasks for part in parts]),
                aligned(self.capability_vectors, [part.capabilities for part in parts]),
            )
        return self._aligned

    def cosine(self, pairs: Pairs, *, space: str = "raw") -> Values:
        """(p,) cosine of the public task and capability texts."""
        return self._cached(("cosine", space), lambda p: self._cosine(p, space=space))(pairs)

    def bm25(self, pairs: Pairs, *, k1: float, b: float) -> Values:
        """(p,) BM25 of the capability text for the task text, statistics of the dataset's whole library; 0 for a
        capability of another dataset."""
        return self._cached(("bm25", k1, b), lambda p: self._bm25(p, k1=k1, b=b))(pairs)

    def library_rank(self, pairs: Pairs, *, by: str) -> Values:
        """(p,) one-based rank of the capability among its dataset's library for the task, by ``semantic_cosine`` or
        ``bm25``; equal scores share the best rank; infinity where BM25 does not retrieve it (no common word) and for a
        capability of another dataset."""
        return self._cached(("rank", by), lambda p: self._library_rank(p, by=by))(pairs)

    def schema_match(self, pairs: Pairs, *, pool: int, operation: bool) -> Values:
        """(p,) best endpoint of the operation-retrieved pool (baselines.md section 1, Endpoint Schema Match)."""
        compute = SchemaMatch(bank=self, pool=pool, operation=operation)
        return self._cached(("schema", pool, operation), compute)(pairs)

    def best_endpoint_cosine(self, pairs: Pairs) -> Values:
        """(p,) largest cosine of the task text with an endpoint text of the capability; the cosine of the public texts
        where it has no endpoint."""
        return self._cached(("endpoint",), self._best_endpoint_cosine)(pairs)

    def _cached(self, key: tuple[object, ...], compute: Callable[[Pairs], Values]) -> PairCache:
        if key not in self._memo:
            self._memo[key] = PairCache(compute, n_capabilities=self.corpus.n_capabilities)
        return self._memo[key]

    def _cosine(self, pairs: Pairs, *, space: str) -> Values:
        tasks, capabilities = self.vectors(space)
        step = max(min(self.max_pairs, _CHUNK_PAIRS), 1)
        result = np.empty(len(pairs), np.float64)
        for start in range(0, len(pairs), step):
            part = pairs.take(slice(start, start + step))
            left, right = tasks[part.task], capabilities[part.capability]
            result[start : start + step] = np.einsum("pd,pd->p", left, right, dtype=np.float64)
        return result

    def _own(self, pairs: Pairs) -> Iterator[tuple[Part, NDArray[np.int64]]]:
        """Per dataset the positions of the pairs whose task and capability both belong to it."""
        part_of = self.corpus.task_part[pairs.task]
        same = part_of == self.corpus.capability_part[pairs.capability]
        for number, part in enumerate(self.corpus.parts):
            at = np.flatnonzero(same & (part_of == number))
            if at.size:
                yield part, at

    def _bm25(self, pairs: Pairs, *, k1: float, b: float) -> Values:
        result = np.zeros(len(pairs), np.float64)
        for part, at in self._own(pairs):
            tasks, local = np.unique(pairs.task[at], return_inverse=True)
            queries = [self.corpus.task_texts[t] for t in tasks]
            columns = pairs.capability[at] - part.capabilities.start
            result[at] = self.bm25_index(k1, b, part).pairs(queries, query_index=local, doc_index=columns)
        return result

    def _best_endpoint_cosine(self, pairs: Pairs) -> Values:
        corpus, result = self.corpus, self.cosine(pairs)
        capabilities = np.unique(pairs.capability[corpus.endpoint_count[pairs.capability] > 0])
        count = corpus.endpoint_count[capabilities]
        starts = np.cumsum(count) - count
        rows, _ = packed_rows(corpus.endpoint_offsets, capabilities)
        vectors = self.cache.rows([corpus.endpoints[i].text for i in rows])
        for tasks, where in task_chunks(pairs.task):
            best = np.maximum.reduceat(exact_cosines(self.task_vectors[tasks], vectors), starts, axis=1)
            filled = corpus.endpoint_count[pairs.capability[where]] > 0
            local = np.searchsorted(tasks, pairs.task[where][filled])
            place = np.searchsorted(capabilities, pairs.capability[where][filled])
            result[where][filled] = best[local, place]
        return result

    def _library_rank(self, pairs: Pairs, *, by: str) -> Values:
        score = {"semantic_cosine": self._dense_scores, "bm25": self._lexical_scores}[by]
        result = np.full(len(pairs), np.inf)
        for part, at in self._own(pairs):
            result[at] = self._part_rank(pairs.take(at), part, score=score, positive=by == "bm25")
        return result

    def _part_rank(
        self, pairs: Pairs, part: Part, *, score: Callable[[Rows, Part], NDArray[np.float32]], positive: bool
    ) -> Values:
        """(p,) ranks inside one dataset; infinity for a score of at most 0 where only ``positive`` ones count."""
        result = np.empty(len(pairs), np.float64)
        for tasks, where in task_chunks(pairs.task):
            table = score(tasks, part)
            local = np.searchsorted(tasks, pairs.task[where])
            own = table[local, pairs.capability[where] - part.capabilities.start]
            ascending = np.sort(table, axis=1)
            width = table.shape[1]
            for i in range(tasks.size):
                mine = local == i
                above = width - np.searchsorted(ascending[i], own[mine], side="right")
                result[where][mine] = above + 1.0
            if positive:
                result[where][own <= 0] = np.inf
        return result

    def _dense_scores(self, tasks: Rows, part: Part) -> NDArray[np.float32]:
        library = np.asarray(self.capability_vectors[part.capabilities])
        return on_grid(exact_cosines(self.task_vectors[tasks], library))

    def _lexical_scores(self, tasks: Rows, part: Part) -> NDArray[np.float32]:
        index = self.bm25_index(1.5, 0.75, part)
        return np.asarray(index.score_matrix([self.corpus.task_texts[t] for t in tasks]))


def task_chunks(task: Rows) -> Iterator[tuple[Rows, slice]]:
    """Chunks of pairs ascending by task: (distinct task rows, slice of the pairs)."""
    tasks, first = np.unique(task, return_index=True)
    bounds = np.append(first, task.size)
    for start in range(0, tasks.size, _CHUNK_TASKS):
        stop = min(start + _CHUNK_TASKS, tasks.size)
        yield tasks[start:stop], slice(int(bounds[start]), int(bounds[stop]))


@dataclass(frozen=True, kw_only=True)
class SchemaMatch:
    """Endpoint Schema Match: h_j = (cos(x_t, x_op_j) + m^a A_j + m^y Y_j) / (1 + m^a + m^y), score = max_j h_j over
    the ``pool`` endpoints with the largest cos(x_t, x_op_j) [R].

    A and Y are the argument and type evidence of tact.md section 3.3 with the whole task as the only requirement;
    a capability without endpoints falls back to the cosine of the public texts. ``operation=False`` leaves the
    operation term out (the literal reading); an endpoint without a schema then scores its operation cosine.
    """

    bank: FeatureBank
    pool: int
    operation: bool

    def __call__(self, pairs: Pairs) -> Values:
        """(p,) scores."""
        texts = [self.bank.corpus.task_texts[t] for t in np.unique(pairs.task)]
        self.bank.cache.ensure([s for t in texts for s in requirement_spans(t)])
        capabilities = np.unique(pairs.capability)
        parts = _Endpoints.of(self.bank, capabilities)
        result = np.empty(len(pairs), np.float64)
        for tasks, where in task_chunks(pairs.task):
            operation, value = parts.evidence(tasks, bank=self.bank, operation=self.operation)
            local = np.searchsorted(tasks, pairs.task[where])
            place = np.searchsorted(capabilities, pairs.capability[where])
            result[where] = self._best(operation, value, local=local, place=place, parts=parts)
        bare = self.bank.corpus.endpoint_count[pairs.capability] == 0
        result[bare] = self.bank.cosine(pairs.take(bare))
        return result

    def _best(
        self, operation: NDArray[np.float32], value: NDArray[np.float32], *, local: Rows, place: Rows, parts: _Endpoints
    ) -> Values:
        count = parts.count[place]
        pair = np.repeat(np.arange(place.size), count)
        within = np.arange(pair.size) - np.repeat(np.cumsum(count) - count, count)
        column = parts.offsets[place][pair] + within
        order = np.lexsort((within, -on_grid(operation[local[pair], column]), pair))
        in_pool = order[within < self.pool]
        best = np.full(place.size, -np.inf)
        np.maximum.at(best, pair[in_pool], value[local[pair[in_pool]], column[in_pool]].astype(np.float64))
        return best


@dataclass(frozen=True, kw_only=True)
class _Endpoints:
    """Endpoints of some capabilities with their vectors and required arguments. q endpoints, r argument names.

    offsets, count: (c,) packed position and number of each capability's endpoints. operation: (q, d). names: (r, d).
    argument: (q, r) rows sum to 1 where an endpoint requires arguments. typed: (q, len(COARSE_TYPES)) likewise.
    """

    offsets: Rows
    count: Rows
    operation: NDArray[np.float32]
    names: NDArray[np.float32]
    argument: sparse.csr_matrix
    typed: NDArray[np.float32]
    has_argument: NDArray[np.bool_]
    has_type: NDArray[np.bool_]

    @staticmethod
    def of(bank: FeatureBank, capabilities: Rows) -> _Endpoints:
        corpus = bank.corpus
        count = corpus.endpoint_count[capabilities]
        rows, _ = packed_rows(corpus.endpoint_offsets, capabilities)
        endpoints = [corpus.endpoints[i] for i in rows]
        required = [[(identifier_words(a.name) or a.name, a.type) for a in e.required_arguments] for e in endpoints]
        names = sorted({name for args in required for name, _ in args})
        code, kind = {n: i for i, n in enumerate(names)}, {t: i for i, t in enumerate(COARSE_TYPES)}
        triples = [(i, code[n], kind[t], 1.0 / len(args)) for i, args in enumerate(required) for n, t in args]
        i, n, t, w = (np.array(x) for x in zip(*triples, strict=True)) if triples else (np.zeros(0, int),) * 4
        argument = sparse.csr_matrix((w, (i, n)), shape=(len(rows), max(len(names), 1)), dtype=np.float32)
        typed = np.zeros((len(rows), len(COARSE_TYPES)), np.float32)
        np.add.at(typed, (i, t), w)
        known = typed.sum(axis=1) - typed[:, kind["unknown"]] > 0
        typed[:, kind["unknown"]] = 0.0
        return _Endpoints(
            offsets=np.cumsum(count) - count,
            count=count,
            operation=bank.cache.rows([e.text for e in endpoints]),
            names=bank.cache.rows(names or [""]),
            argument=argument,
            typed=typed,
            has_argument=np.array([bool(a) for a in required], bool),
            has_type=known,
        )

    def evidence(
        self, tasks: Rows, *, bank: FeatureBank, operation: bool
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """(t, q) operation cosine and (t, q) combined evidence h."""
        texts = [bank.corpus.task_texts[t] for t in tasks]
        cosine = exact_cosines(bank.task_vectors[tasks], self.operation)
        named = self._argument_scores(texts, bank=bank)
        a = np.asarray((self.argument @ named.T).T, np.float32)
        detected = [detected_types(x) for x in texts]
        kinds = np.array([[k in found for k in COARSE_TYPES] for found in detected], np.float32)
        y = sparse.csr_matrix(kinds) @ self.typed.T
        masks = self.has_argument.astype(np.float32) + self.has_type
        weight = masks + (1.0 if operation else 0.0)
        total = a * self.has_argument + y * self.has_type + (cosine if operation else 0.0)
        return cosine, np.where(weight > 0, total / np.maximum(weight, 1.0), cosine).astype(np.float32)

    def _argument_scores(self, texts: list[str], *, bank: FeatureBank) -> NDArray[np.float32]:
        """(t, r) best non-negative cosine of each argument name with a span of the task."""
        groups = [requirement_spans(t) for t in texts]
        vectors = bank.cache.rows([s for g in groups for s in g])
        similarity = np.maximum(exact_cosines(vectors, self.names), 0.0)
        starts = np.concatenate([[0], np.cumsum([len(g) for g in groups])[:-1]])
        return np.maximum.reduceat(similarity, starts, axis=0)


def known_space(space: str, *, model: str) -> None:
    """Check a model's parameter.

    Raises:
        UnknownSpace: for a space that is not in ``SPACES``.
    """
    if space not in SPACES:
        raise UnknownSpace(f"{model}: space={space!r}; expected one of {', '.join(SPACES)}")


def aligned(vectors: NDArray[np.float32], groups: Sequence[slice], *, floor: float = 1e-6) -> NDArray[np.float32]:
    """Unit rows of (x - mean) / (std + floor), mean and deviation per coordinate over each group of rows (tact.md
    section 6 [G, R]). vectors: (n, d); no label is read."""
    result = np.empty(vectors.shape, np.float32)
    for rows in groups:
        x = np.asarray(vectors[rows], np.float64)
        if not len(x):
            continue
        x = (x - x.mean(axis=0)) / (x.std(axis=0) + floor)
        result[rows] = x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)
    return result


def on_grid(cosines: NDArray[np.float32]) -> NDArray[np.float32]:
    """Cosines rounded to 2^-20 (about 1e-6): noise of the last bits, which depends on how many rows are multiplied at
    once, neither makes nor breaks a tie between equal texts."""
    return (np.rint(cosines * np.float32(2**20)) / np.float32(2**20)).astype(np.float32)


def exact_cosines(left: NDArray[np.float32], right: NDArray[np.float32]) -> NDArray[np.float32]:
    """(a, b) cosines of unit rows, the same bits however many rows are multiplied at once and by how many threads.

    Coordinates are rounded to 2^-24 (an error below 1e-6 in the cosine). All products are then whole multiples of
    2^-48, and no partial sum of unit rows exceeds 1 by more than rounding, so that float64 holds every sum exactly.
    """
    scale = 2.0**24
    a, b = (np.rint(side.astype(np.float64) * scale) for side in (left, right))
    return (a @ b.T / scale**2).astype(np.float32)


def requirement_spans(text: str) -> tuple[str, ...]:
    """Spans that an argument name is compared with; never empty."""
    return spans(text) or (text,)

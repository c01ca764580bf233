"""Stage 1: which tools, for many queries at once (skillgraph.md sections 3 and 5).

Cosines are computed exactly and laid on a grid, so that a query gets the same tools alone and among 10,000 others.
Equal scores are decided by the cosine rank, equal cosines by the tool row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from toolshift.measures.sequences import sequence_measures
from toolshift.models.features import on_grid
from toolshift.models.skillgraph.graph import TransitionGraph
from toolshift.runs.seeds import id_hashes, keyed_hash, seed_of
from toolshift.text.lexical import Bm25, top_k

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Vectors = NDArray[np.float32]
Words = NDArray[np.uint64]
Mode = Literal["paper", "authors"]
Method = Literal["gs_hybrid", "hybrid_sem_graph", "semantic_only", "bm25", "beam_search", "max_transition"]

METHODS: tuple[str, ...] = get_args(Method)
_SCALE = 2.0**24
_ZERO = np.zeros((), dtype=np.uint64)
_QUERIES = 512
# Cells (pairs of candidates, or expansions of beams) and targets of paths worked on at once.
_CELLS = 1 << 21
_TARGETS = 1024


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sets:
    """Tools chosen for q queries. Where the method is a planner of its own, their order is its order."""

    items: Ints
    """(q, k) distinct tool rows, filled with -1 on the right."""
    similarity: Floats
    """(q, k) cosine with the query, 0 in the filling."""

    @property
    def size(self) -> Ints:
        """(q,) tools of each query."""
        return (self.items >= 0).sum(axis=1)

    def by_cosine(self) -> Sets:
        """The same sets, cosine descending, equal cosines by tool row: what Stage 2 is handed."""
        filling = self.items < 0
        order = np.lexsort((self.items, -self.similarity, filling))
        return Sets(
            items=np.take_along_axis(self.items, order, axis=1),
            similarity=np.take_along_axis(self.similarity, order, axis=1),
        )

    def take(self, rows: ArrayLike) -> Sets:
        """The sets of some queries."""
        chosen = np.asarray(rows)
        return Sets(items=self.items[chosen], similarity=self.similarity[chosen])


@dataclass(frozen=True, slots=True, kw_only=True)
class Texts:
    """Words of the q queries and of the n tools (name with spaces, then description), for BM25."""

    queries: Sequence[str]
    tools: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class BeamOptions:
    """Beam search over the graph, values of the authors' code (section 6).

    Raises:
        ValueError: if a size is below 1.
    """

    entries: int = 5
    """Paths to start with, at the tools of the graph with the largest cosine."""
    width: int = 5
    neighbours: int = 30
    """Successors tried per step, by edge weight descending."""
    transition_share: float = 0.4
    cosine_share: float = 0.4
    diversity_share: float = 0.2
    """Times 1 - share of the path in the community of the successor."""

    def __post_init__(self) -> None:
        if min(self.entries, self.width, self.neighbours) < 1:
            raise ValueError(f"entries, width and neighbours must be at least 1, got {self}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrievalOptions:
    """How Stage 1 chooses.

    Raises:
        ValueError: if a value is out of range.
    """

    mode: Mode = "paper"
    """``paper``: K tools for every method, out of the whole library. ``authors``: the planners return ``length`` tools
    whatever K is, and only tools of the graph can be retrieved, except by BM25."""
    length: int | None = None
    """Target length of the planners in ``mode=authors``, see `authors_length`."""
    c: int = 3
    """The pool holds max(K + 2, c K) tools."""
    alpha: float = 0.5
    """Share of the edge weight; the cosine has the rest."""
    gamma: float = 0.1
    """Weight of the position bonus, on top."""
    ends: int = 3
    """Tools per component that are tried as ends of a bridge."""
    beam: BeamOptions = BeamOptions()
    k1: float = 1.5
    b: float = 0.75
    tokens: Literal["words", "whitespace"] = "words"
    """BM25 over the project's words, or over lower-case whitespace tokens as the authors' code. The idf is the same:
    ln(1 + (N - n + 0.5) / (n + 0.5))."""

    def __post_init__(self) -> None:
        if self.mode not in get_args(Mode) or self.tokens not in ("words", "whitespace"):
            raise ValueError(f"mode {self.mode!r}: paper or authors; tokens {self.tokens!r}: words or whitespace")
        if self.c < 1 or not 0 <= self.alpha <= 1 or self.gamma < 0 or self.ends < 1:
            raise ValueError(f"c >= 1, alpha in [0, 1], gamma >= 0 and ends >= 1 expected, got {self}")
        if self.length is not None and self.length < 1:
            raise ValueError(f"length must be at least 1, got {self.length}")


def authors_length(lengths: ArrayLike) -> int:
    """Tools that the planners of the authors' code return: the median training length, rounded, in [2, 8].

    Raises:
        ValueError: without a training trajectory.
    """
    values = np.asarray(lengths)
    if not values.size:
        raise ValueError("no training trajectory: the authors' target length is the median of their lengths")
    return max(2, min(8, round(float(np.median(values)))))


def oracle_k(lengths: ArrayLike, *, least: int = 3) -> Ints:
    """K_eval = max(L*, least) of section 3; the authors' code takes least=2 on API-Bank."""
    return np.maximum(np.asarray(lengths, dtype=np.int64), least)


def sample_rows(ids: Sequence[str], *, count: int, name: str) -> Ints:
    """``count`` rows (all, if there are fewer), ascending, drawn by the hash of each id with ``name``: the same records
    whatever their order."""
    drawn = keyed_hash(seed_of(name), id_hashes(ids), _ZERO)
    return np.sort(np.lexsort((np.asarray(ids, dtype=np.str_), drawn))[:count]).astype(np.int64)


def retrieve(
    method: str,
    *,
    queries: Vectors,
    tools: Vectors,
    graph: TransitionGraph,
    k: ArrayLike,
    options: RetrievalOptions | None = None,
    texts: Texts | None = None,
    communities: Ints | None = None,
) -> Sets:
    """Choose tools for q queries.

    Args:
        method: ``gs_hybrid``; ``hybrid_sem_graph``, the same with the planner's own order kept; ``semantic_only``;
            ``bm25``; ``beam_search``; ``max_transition``, the planner of the authors' API-Bank script (section 7).
        queries: (q, d) unit rows.
        tools: (n, d) unit rows in library order.
        graph: over the same n tools; it may be empty or fall apart.
        k: (q,) tools wanted. Fewer are returned where fewer can be retrieved, none included.
        options: see there.
        texts: for ``bm25``.
        communities: (n,) community of each tool, -1 without one, for ``beam_search``.

    ``gs_hybrid``, ``semantic_only`` and ``max_transition`` give sets by cosine, the others their own order.

    Raises:
        ValueError: for an unknown method, shapes that do not fit, k below 1, or an input that is missing.
    """
    if method not in _RETRIEVERS:
        raise ValueError(f"unknown method {method!r}: one of {', '.join(METHODS)}")
    ask = _asked(queries, tools, graph=graph, k=k, options=options or RetrievalOptions())
    return _RETRIEVERS[method](replace(ask, texts=texts, communities=communities))


def resized(
    sets: Sets,
    *,
    queries: Vectors,
    tools: Vectors,
    graph: TransitionGraph,
    k: ArrayLike,
    options: RetrievalOptions | None = None,
) -> Sets:
    """Sets cut at k tools, in their order, or filled up with the nearest tools not in them.

    That is fixed K in the authors' way: a planner runs once at its own length. Arguments and errors as `retrieve`.
    """
    ask = _asked(queries, tools, graph=graph, k=k, options=options or RetrievalOptions())
    near = ask.cosines.nearest(int(ask.k.max(initial=1)), rows=ask.candidates)
    known = (near.items[:, :, None] == sets.items[:, None, :]).any(axis=2)
    items = np.concatenate([sets.items, np.where(known, -1, near.items)], axis=1)
    similarity = np.concatenate([sets.similarity, near.similarity], axis=1)
    order = np.argsort(items < 0, axis=1, kind="stable")
    items = np.take_along_axis(items, order, axis=1)
    rank = np.arange(items.shape[1])
    return _filled(items, np.take_along_axis(similarity, order, axis=1), kept=rank < ask.k[:, None])


def oracle_sets(gold: ArrayLike, *, queries: Vectors, tools: Vectors) -> Sets:
    """The distinct tools of gold sequences (q, l), filled with -1, by cosine: what an `oracle set` row is given."""
    rows = np.asarray(gold, dtype=np.int64)
    query, place = np.nonzero(rows >= 0)
    keys = np.unique(query * len(tools) + rows[query, place])
    query, tool = np.divmod(keys, max(1, len(tools)))
    return _packed(query, tool, Cosines.of(queries, tools).pairs(query, tool), n_queries=len(rows))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Cosines:
    """Cosines of unit rows, the same bits for one pair and for a block of any size.

    Coordinates are rounded to 2^-24. Products are then whole multiples of 2^-48, and float64 holds every partial sum
    exactly. Results lie on the grid of `on_grid`, so that equal texts tie.
    """

    queries: Floats
    """(q, d) whole numbers."""
    tools: Floats
    """(n, d)"""

    @staticmethod
    def of(queries: Vectors, tools: Vectors) -> Cosines:
        """From unit rows (q, d) and (n, d)."""
        left, right = (np.rint(np.asarray(side, np.float64) * _SCALE) for side in (queries, tools))
        return Cosines(queries=left, tools=right)

    def table(self, rows: slice | Ints, *, columns: Ints | None = None) -> NDArray[np.float32]:
        """(b, n) cosines of some queries with all tools, or with those of ``columns``."""
        tools = self.tools if columns is None else self.tools[columns]
        return _gridded(self.queries[rows] @ tools.T)

    def pairs(self, query: Ints, tool: Ints) -> Floats:
        """(p,) cosines of given pairs."""
        out = np.empty(len(query))
        step = max(1, _CELLS // max(1, self.tools.shape[1]))
        for first in range(0, len(query), step):
            part = slice(first, first + step)
            out[part] = _gridded(np.einsum("pd,pd->p", self.queries[query[part]], self.tools[tool[part]]))
        return out

    def nearest(self, width: int, *, rows: Ints | None = None) -> Sets:
        """The ``width`` nearest tools of every query, out of ``rows`` (ascending); a smaller width gives a prefix."""
        n = len(self.tools) if rows is None else len(rows)
        items = np.full((len(self.queries), min(width, n)), -1, dtype=np.int64)
        similarity = np.zeros(items.shape)
        if not items.size:
            return Sets(items=items, similarity=similarity)
        tools = self.tools if rows is None else self.tools[rows]
        for first in range(0, len(items), _QUERIES):
            part = slice(first, first + _QUERIES)
            at, value = top_k(_gridded(self.queries[part] @ tools.T), k=items.shape[1])
            items[part], similarity[part] = at if rows is None else rows[at], value
        return Sets(items=items, similarity=similarity)


def _gridded(products: Floats) -> NDArray[np.float32]:
    return on_grid((products / _SCALE**2).astype(np.float32))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EdgeTable:
    """Entries of a sparse (n, n) matrix, to look up many at once."""

    keys: Ints
    """(e,) row * n + column, ascending."""
    values: Floats
    n: int

    @staticmethod
    def of(matrix: sparse.csr_matrix) -> EdgeTable:
        """All stored entries, zeros included."""
        own = sparse.csr_matrix(matrix, copy=True)
        own.sum_duplicates()
        n = int(own.indptr.size) - 1
        rows = np.repeat(np.arange(n, dtype=np.int64), np.diff(own.indptr))
        return EdgeTable(keys=rows * n + own.indices, values=own.data.astype(np.float64), n=n)

    def lookup(self, source: Ints, target: Ints) -> tuple[Floats, Bools]:
        """Entries of pairs of tool rows, 0 where none is stored or a row is -1, and whether one is; any shape."""
        wanted = source * self.n + target
        if not self.keys.size:
            return np.zeros(wanted.shape), np.zeros(wanted.shape, dtype=bool)
        at = np.minimum(np.searchsorted(self.keys, wanted), self.keys.size - 1)
        found = (self.keys[at] == wanted) & (source >= 0) & (target >= 0)
        return np.where(found, self.values[at], 0.0), found

    def square(self, items: Ints) -> tuple[Floats, Bools]:
        """(b, k, k) entries among the tools of each row of ``items`` (b, k), and whether they are stored."""
        wide = np.broadcast_to(items[:, :, None], (*items.shape, items.shape[1]))
        return self.lookup(wide, items[:, None, :])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Ask:
    """Checked arguments of a call. k: (q,) as asked for. candidates: rows that can be retrieved, None for all."""

    cosines: Cosines
    graph: TransitionGraph
    k: Ints
    options: RetrievalOptions
    candidates: Ints | None
    texts: Texts | None = None
    communities: Ints | None = None

    @property
    def planned_k(self) -> Ints:
        """(q,) target length of the planners."""
        if self.options.mode == "paper":
            return self.k
        if self.options.length is None:
            raise ValueError("mode=authors needs options.length, the one target length: see authors_length")
        return np.full(len(self.k), self.options.length, dtype=np.int64)


def _asked(
    queries: Vectors, tools: Vectors, *, graph: TransitionGraph, k: ArrayLike, options: RetrievalOptions
) -> _Ask:
    wanted = np.asarray(k, dtype=np.int64)
    if queries.ndim != 2 or tools.ndim != 2 or queries.shape[1] != tools.shape[1]:
        raise ValueError(f"queries and tools must be (q, d) and (n, d), got {queries.shape} and {tools.shape}")
    if graph.n_tools != len(tools):
        raise ValueError(f"the graph is over {graph.n_tools} tools, the vectors are of {len(tools)}")
    if wanted.shape != (len(queries),) or (wanted < 1).any():
        raise ValueError(f"k must hold one number of at least 1 for each of {len(queries)} queries")
    candidates = np.flatnonzero(graph.nodes) if options.mode == "authors" else None
    return _Ask(cosines=Cosines.of(queries, tools), graph=graph, k=wanted, options=options, candidates=candidates)


def _packed(query: Ints, tool: Ints, similarity: Floats, *, n_queries: int) -> Sets:
    """Sets by cosine out of distinct pairs (p,) in any order."""
    order = np.lexsort((tool, -similarity, query))
    query, tool, similarity = query[order], tool[order], similarity[order]
    count = np.bincount(query, minlength=n_queries)
    place = np.arange(len(query)) - np.repeat(np.cumsum(count) - count, count)
    items = np.full((n_queries, int(count.max(initial=0))), -1, dtype=np.int64)
    values = np.zeros(items.shape)
    items[query, place], values[query, place] = tool, similarity
    return Sets(items=items, similarity=values)


def _filled(items: Ints, similarity: Floats, *, kept: Bools) -> Sets:
    """Sets whose entries outside ``kept`` are filling, without columns of nothing else."""
    kept = kept & (items >= 0)
    width = int(kept.sum(axis=1).max(initial=0))
    return Sets(items=np.where(kept, items, -1)[:, :width], similarity=np.where(kept, similarity, 0.0)[:, :width])


def _blocks(key: Ints, *, cells: Callable[[int], int]) -> Iterator[tuple[int, Ints]]:
    """(key, query rows) of queries with the same key, so many at once as ``cells`` of each allow."""
    for value in np.unique(key).tolist():
        rows = np.flatnonzero(key == value)
        step = max(1, _CELLS // max(1, cells(value)))
        for first in range(0, len(rows), step):
            yield value, rows[first : first + step]


def _semantic_only(ask: _Ask) -> Sets:
    near = ask.cosines.nearest(int(ask.k.max(initial=1)), rows=ask.candidates)
    return _filled(near.items, near.similarity, kept=np.arange(near.items.shape[1]) < ask.k[:, None])


class _WhitespaceBm25(Bm25):
    """BM25 over lower-case whitespace tokens [C]."""

    def _terms(self, text: str) -> list[str]:
        return text.lower().split()


def _bm25(ask: _Ask) -> Sets:
    if ask.texts is None:
        raise ValueError("bm25 needs the texts of queries and tools")
    sizes = (len(ask.texts.queries), len(ask.texts.tools))
    if sizes != (len(ask.cosines.queries), len(ask.cosines.tools)):
        raise ValueError(f"texts are of {sizes[0]} queries and {sizes[1]} tools, the vectors of other numbers")
    kind = Bm25 if ask.options.tokens == "words" else _WhitespaceBm25
    index = kind(ask.texts.tools, k1=ask.options.k1, b=ask.options.b)
    items, _ = index.top(ask.texts.queries, k=int(ask.k.max(initial=1)))
    query = np.repeat(np.arange(len(items)), items.shape[1])
    similarity = ask.cosines.pairs(query, items.ravel()).reshape(items.shape)
    return _filled(items, similarity, kept=np.arange(items.shape[1]) < ask.k[:, None])


def _gs_hybrid(ask: _Ask) -> Sets:
    return _hybrid_sem_graph(ask).by_cosine()


def _hybrid_sem_graph(ask: _Ask) -> Sets:
    return _planned(_candidates(ask), ask)


def _pool_size(k: Ints, *, c: int) -> Ints:
    return np.maximum(k + 2, c * k)


def _candidates(ask: _Ask, *, near: Sets | None = None) -> Sets:
    """Pool and bridges of every query, by cosine. ``near``: nearest tools, where they are at hand already."""
    width = _pool_size(ask.planned_k, c=ask.options.c)
    near = near or ask.cosines.nearest(int(width.max(initial=1)), rows=ask.candidates)
    pool = _filled(near.items, near.similarity, kept=np.arange(near.items.shape[1]) < width[:, None])
    query, tool = _bridges(pool, ask)
    at, place = np.nonzero(pool.items >= 0)
    return _packed(
        np.concatenate([at, query]),
        np.concatenate([pool.items[at, place], tool]),
        np.concatenate([pool.similarity[at, place], ask.cosines.pairs(query, tool)]),
        n_queries=len(pool.items),
    )


def _planned(candidates: Sets, ask: _Ask) -> Sets:
    """The greedy sequence of each query over its candidates."""
    k, edges = ask.planned_k, EdgeTable.of(ask.graph.weight)
    items = np.full((len(k), int(k.max(initial=0))), -1, dtype=np.int64)
    similarity = np.zeros(items.shape)
    # Queries of equal K and equally many candidates go through the steps together.
    width = candidates.size
    key = k * (int(width.max(initial=0)) + 1) + width
    for value, rows in _blocks(key, cells=lambda v: (v % (int(width.max()) + 1)) ** 2):
        length, wide = divmod(value, int(width.max()) + 1)
        part = Sets(items=candidates.items[rows, :wide], similarity=candidates.similarity[rows, :wide])
        slots = _greedy(part, min(length, wide), length=length, edges=edges, ask=ask)
        taken = slots.shape[1]
        items[rows, :taken] = np.take_along_axis(part.items, slots, axis=1)
        similarity[rows, :taken] = np.take_along_axis(part.similarity, slots, axis=1)
    return _filled(items, similarity, kept=items >= 0)


def _greedy(part: Sets, steps: int, *, length: int, edges: EdgeTable, ask: _Ask) -> Ints:
    """(b, steps) slots of the greedy sequence over candidates (b, p) without filling, towards ``length`` tools."""
    slots = np.zeros((len(part.items), steps), dtype=np.int64)
    if not steps:
        return slots
    weight, found = edges.square(part.items)
    back = np.swapaxes(found, 1, 2)
    local = np.where(found, weight, np.where(back, 0.5 * np.swapaxes(weight, 1, 2), 0.0))
    position, b = ask.graph.position[part.items], np.arange(len(part.items))
    free = np.ones(part.items.shape, dtype=bool)
    free[:, 0] = False
    for step in range(1, steps):
        bonus = np.maximum(0.0, 1.0 - np.abs(position - step / max(1, length - 1)))
        score = (
            ask.options.alpha * local[b, slots[:, step - 1]]
            + (1.0 - ask.options.alpha) * part.similarity
            + ask.options.gamma * bonus
        )
        slots[:, step] = np.where(free, score, -np.inf).argmax(axis=1)
        free[b, slots[:, step]] = False
    return slots


def _bridges(pool: Sets, ask: _Ask) -> tuple[Ints, Ints]:
    """Tools (query, tool) on the paths between components of the pools, without those of the pools."""
    edges, nodes = EdgeTable.of(ask.graph.weight), ask.graph.nodes
    parts = [(np.zeros(0, np.int64), np.zeros((0, ask.options.ends), np.int64))]
    for wide, rows in _blocks(pool.size, cells=lambda wide: wide**2):
        items = pool.items[rows, :wide]
        inside = nodes[items]
        _, found = edges.square(items)
        linked = (found | np.swapaxes(found, 1, 2)) & inside[:, :, None] & inside[:, None, :]
        owner, ends = _component_ends(items, smallest_member(items, linked), inside, ends=ask.options.ends)
        parts.append((rows[owner], ends))
    owner, ends = (np.concatenate(column) for column in zip(*parts, strict=True))
    # Rows of a block ascend, but blocks do not: neighbours below are components of one query in every case.
    adjacent = np.flatnonzero(owner[:-1] == owner[1:])
    query, tool = _accepted(owner[adjacent], ends[adjacent], ends[adjacent + 1], graph=ask.graph)
    keys = np.unique(query * ask.graph.n_tools + tool)
    at, place = np.nonzero(pool.items >= 0)
    keys = np.setdiff1d(keys, at * ask.graph.n_tools + pool.items[at, place], assume_unique=True)
    query, tool = np.divmod(keys, max(1, ask.graph.n_tools))
    return query, tool


def smallest_member(items: Ints, linked: Bools) -> Ints:
    """(b, p) smallest tool row of the component of each tool.

    items: (b, p) tool rows. linked: (b, p, p), symmetric.
    """
    label = items
    while True:
        lower = np.where(linked, label[:, None, :], np.iinfo(np.int64).max).min(axis=2, initial=np.iinfo(np.int64).max)
        lower = np.minimum(label, lower)
        if np.array_equal(lower, label):
            return label
        label = lower


def _component_ends(items: Ints, label: Ints, inside: Bools, *, ends: int) -> tuple[Ints, Ints]:
    """Components in library order (by their smallest row): owner (m,) row of ``items``, and the tools (m, ends) of
    each with the largest cosine, filled with -1. Tools outside the graph are in no component."""
    owner, slot = np.nonzero(inside)
    name = label[owner, slot]
    order = np.lexsort((slot, name, owner))
    owner, slot, name = owner[order], slot[order], name[order]
    first = np.ones(len(owner), dtype=bool)
    first[1:] = (np.diff(owner) != 0) | (np.diff(name) != 0)
    component = np.cumsum(first) - 1
    rank = np.arange(len(owner)) - np.flatnonzero(first)[component]
    out = np.full((int(first.sum()), ends), -1, dtype=np.int64)
    kept = rank < ends
    out[component[kept], rank[kept]] = items[owner[kept], slot[kept]]
    return owner[first], out


def _accepted(query: Ints, left: Ints, right: Ints, *, graph: TransitionGraph) -> tuple[Ints, Ints]:
    """Interior tools of the first path that exists from an end of ``left`` (m, e) to one of ``right`` (m, e)."""
    e = left.shape[1]
    source, target = np.repeat(left, e, axis=1), np.tile(right, (1, e))
    valid = (source >= 0) & (target >= 0)
    n = max(1, graph.n_tools)
    keys, at = np.unique((source * n + target)[valid], return_inverse=True)
    found, interior = shortest_paths(graph.weight, keys // n, keys % n)
    number = np.full(source.shape, -1, dtype=np.int64)
    number[valid] = at
    exists = np.zeros(source.shape, dtype=bool)
    exists[valid] = found[at]
    chosen = number[np.arange(len(query)), exists.argmax(axis=1)]
    some = exists.any(axis=1)
    inner = interior[chosen[some]]
    row, place = np.nonzero(inner >= 0)
    return query[some][row], inner[row, place]


def shortest_paths(edges: sparse.csr_matrix, source: Ints, target: Ints) -> tuple[Bools, Ints]:
    """Directed shortest paths by number of edges; of several the one whose rows come first in lexicographic order.

    edges: (n, n), stored entries are edges. source, target: (p,) distinct in each pair. Returns whether there is a path
    (p,), and its interior tools (p, w) from source to target, filled with -1.

    All targets of a block are searched at once, backwards, as bits of one word per 64 of them.
    """
    matrix = sparse.csr_matrix(edges, copy=True)
    matrix.sum_duplicates()
    n = int(matrix.indptr.size) - 1
    found, pieces = np.zeros(len(source), dtype=bool), []
    degree = np.diff(matrix.indptr)
    has_in = np.bincount(matrix.indices, minlength=n) > 0
    live = np.flatnonzero((degree[source] > 0) & has_in[target])
    ends = np.unique(target[live])
    for first in range(0, len(ends), _TARGETS):
        block = ends[first : first + _TARGETS]
        here = live[np.isin(target[live], block)]
        column = np.searchsorted(block, target[here])
        levels = _levels(matrix, block, source=source[here], column=column)
        within = np.stack([_has(level, source[here], column) for level in levels])
        near = within.any(axis=0)
        here, column, far = here[near], column[near], within.argmax(axis=0)[near]
        found[here] = True
        pieces.append((here, _walked(matrix, levels, source[here], column, far)))
    interior = np.full((len(source), max((p.shape[1] for _, p in pieces), default=0)), -1, dtype=np.int64)
    for here, path in pieces:
        interior[here, : path.shape[1]] = path
    return found, interior


def _levels(matrix: sparse.csr_matrix, targets: Ints, *, source: Ints, column: Ints) -> list[Words]:
    """For 0, 1, 2, ... edges the tools that get to each target with at most so many, as bits (n, t / 64).

    Stops where nothing is added, or all pairs of ``source`` and ``column`` (of targets) are connected.
    """
    t = len(targets)
    rows = np.flatnonzero(np.diff(matrix.indptr))
    starts = matrix.indptr[rows]
    bits = np.zeros((int(matrix.indptr.size) - 1, -(-t // 64) * 8), dtype=np.uint8)
    bits[targets, np.arange(t) // 8] = np.uint8(128) >> (np.arange(t) % 8).astype(np.uint8)
    levels = [bits.view(np.uint64)]
    while not _has(levels[-1], source, column).all():
        reached = levels[-1].copy()
        reached[rows] |= np.bitwise_or.reduceat(levels[-1][matrix.indices], starts, axis=0)
        if np.array_equal(reached, levels[-1]):
            break
        levels.append(reached)
    return levels


def _has(level: Words, tool: Ints, column: Ints) -> Bools:
    """Whether the bits of (tool, target) are set."""
    return (level.view(np.uint8)[tool, column // 8] >> (7 - column % 8).astype(np.uint8) & 1).astype(bool)


def _walked(matrix: sparse.csr_matrix, levels: Sequence[Words], source: Ints, column: Ints, far: Ints) -> Ints:
    """(p, w) interiors of the paths of ``far`` (p,) edges, always one step nearer, the lowest row first."""
    n, nearer = int(matrix.indptr.size) - 1, np.stack(levels)
    interior = np.full((len(source), max(0, int(far.max(initial=0)) - 1)), -1, dtype=np.int64)
    here, at = np.flatnonzero(far > 1), source
    for step in range(interior.shape[1]):
        tool, count = at[here], np.diff(matrix.indptr)[at[here]]
        starts = np.cumsum(count) - count
        flat = np.repeat(matrix.indptr[tool] - starts, count) + np.arange(int(count.sum()))
        onward, owner = matrix.indices[flat].astype(np.int64), np.repeat(here, count)
        bits = nearer.view(np.uint8)[far[owner] - step - 1, onward, column[owner] // 8]
        closer = (bits >> (7 - column[owner] % 8).astype(np.uint8) & 1).astype(bool)
        chosen = np.minimum.reduceat(np.where(closer, onward, n), starts)
        interior[here, step] = chosen
        at = at.copy()
        at[here] = chosen
        here = here[far[here] > step + 2]
    return interior


def _max_transition(ask: _Ask) -> Sets:
    """Greedy over all candidates, score 0.5 max over chosen s of tp(s, t) + 0.5 cosine, of the API-Bank script [C]."""
    near = ask.cosines.nearest(len(ask.cosines.tools), rows=ask.candidates)
    edges, k = EdgeTable.of(ask.graph.transition), ask.k
    taken = np.zeros(near.items.shape, dtype=bool)
    if not taken.size:
        return near
    best, b = np.zeros(near.items.shape), np.arange(len(near.items))
    for step in range(min(int(k.max(initial=0)), near.items.shape[1])):
        score = np.where(taken, -np.inf, 0.5 * best + 0.5 * near.similarity) if step else near.similarity
        slot = score.argmax(axis=1)
        taken[b, slot] = taken[b, slot] | (step < k)
        value, _ = edges.lookup(near.items[b, slot][:, None], near.items)
        best = np.maximum(best, value)
    order = np.argsort(~taken, axis=1, kind="stable")
    return _filled(
        np.take_along_axis(near.items, order, axis=1),
        np.take_along_axis(near.similarity, order, axis=1),
        kept=np.take_along_axis(taken, order, axis=1),
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Steps:
    """The steps a beam may take: successors (n, w) of each tool, filled with -1, their transition, and communities."""

    successors: Ints
    transition: Floats
    communities: Ints
    options: BeamOptions


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Beams:
    """Paths of b queries, best first: items (b, w, l) filled with -1; total (b, w) of step scores; steps (b, w) taken;
    -1 in the first item where there is no path."""

    items: Ints
    total: Floats
    steps: Ints

    @property
    def mean(self) -> Floats:
        """(b, w) mean step score, -inf for a path that took none (ranked last) and for no path."""
        return np.where(self.steps > 0, self.total / np.maximum(self.steps, 1), -np.inf)


def _beam_search(ask: _Ask) -> Sets:
    """Beam search; a path that cannot go on stays in the competition, nothing is filled up.

    [C] gives entries, width, neighbours and score. [R]: entries are tools of the graph in both modes, where alone a
    path can go on; the entry is no step; the first ``neighbours`` successors are taken before those of the path are
    left out.
    """
    if ask.communities is None or ask.communities.shape != ask.graph.nodes.shape:
        raise ValueError("beam_search needs the community of every tool, (n,) with -1 for none")
    k, beam = ask.planned_k, ask.options.beam
    nodes = np.flatnonzero(ask.graph.nodes)
    items = np.full((len(k), int(k.max(initial=0))), -1, dtype=np.int64)
    if not nodes.size:
        return Sets(items=items[:, :0], similarity=np.zeros((len(k), 0)))
    steps = _steps(ask.graph, ask.communities, options=beam)
    entries = ask.cosines.nearest(beam.entries, rows=nodes).items
    for length, rows in _blocks(k, cells=lambda _: max(_CELLS // _QUERIES, beam.width * beam.neighbours)):
        table = ask.cosines.table(rows).astype(np.float64)
        beams = _Beams(
            items=entries[rows][:, :, None], total=np.zeros(entries[rows].shape), steps=np.zeros_like(entries[rows])
        )
        for _ in range(1, length):
            beams = _advanced(beams, table, steps=steps)
        items[rows, : beams.items.shape[2]] = beams.items[:, 0]
    query, place = np.nonzero(items >= 0)
    similarity = np.zeros(items.shape)
    similarity[query, place] = ask.cosines.pairs(query, items[query, place])
    return _filled(items, similarity, kept=items >= 0)


def _steps(graph: TransitionGraph, communities: Ints, *, options: BeamOptions) -> _Steps:
    edges = EdgeTable.of(graph.weight)
    source, target = np.divmod(edges.keys, max(1, edges.n))
    order = np.lexsort((target, -edges.values, source))
    source, target = source[order], target[order]
    count = np.bincount(source, minlength=edges.n)
    rank = np.arange(len(source)) - np.repeat(np.cumsum(count) - count, count)
    kept = rank < options.neighbours
    successors = np.full((edges.n, int(min(options.neighbours, count.max(initial=0)))), -1, dtype=np.int64)
    successors[source[kept], rank[kept]] = target[kept]
    origin = np.broadcast_to(np.arange(edges.n, dtype=np.int64)[:, None], successors.shape)
    transition, _ = EdgeTable.of(graph.transition).lookup(origin, successors)
    return _Steps(successors=successors, transition=transition, communities=communities, options=options)


def _advanced(beams: _Beams, table: Floats, *, steps: _Steps) -> _Beams:
    """One step of every path: the best ``width`` of all expansions and of the paths that cannot go on."""
    b, w, length = beams.items.shape
    # A path that stopped earlier ends in filling, which has no successor.
    last = beams.items[:, :, -1]
    onward = np.where(last[:, :, None] >= 0, steps.successors[last], -1)
    possible = (onward >= 0) & ~(onward[:, :, :, None] == beams.items[:, :, None, :]).any(axis=3)
    community = np.where(beams.items >= 0, steps.communities[beams.items], -1)
    own = np.where(onward >= 0, steps.communities[onward], -1)
    same = ((own[:, :, :, None] == community[:, :, None, :]) & (own >= 0)[:, :, :, None]).sum(axis=3)
    options = steps.options
    score = (
        options.transition_share * steps.transition[last]
        + options.cosine_share * table[np.arange(b)[:, None, None], onward]
        + options.diversity_share * (1.0 - same / length)
    )
    total = np.concatenate([(beams.total[:, :, None] + score).reshape(b, -1), beams.total], axis=1)
    taken = np.concatenate([np.repeat(beams.steps + 1, onward.shape[2], axis=1), beams.steps], axis=1)
    stuck = (beams.items[:, :, 0] >= 0) & ~possible.any(axis=2)
    valid = np.concatenate([possible.reshape(b, -1), stuck], axis=1)
    mean = _Beams(items=beams.items, total=total, steps=taken).mean
    # Two keys: what is no path at all comes after a path that took no step.
    order = np.lexsort((np.broadcast_to(np.arange(total.shape[1]), total.shape), -mean, ~valid))[:, : options.width]
    parent = np.concatenate([np.repeat(np.arange(w), onward.shape[2]), np.arange(w)])[order]
    added = np.concatenate([onward.reshape(b, -1), np.full((b, w), -1)], axis=1)
    items = np.concatenate(
        [
            np.take_along_axis(beams.items, parent[:, :, None], axis=1),
            np.take_along_axis(added, order, axis=1)[..., None],
        ],
        axis=2,
    )
    kept = np.take_along_axis(valid, order, axis=1)
    return _Beams(
        items=np.where(kept[:, :, None], items, -1),
        total=np.where(kept, np.take_along_axis(total, order, axis=1), 0.0),
        steps=np.where(kept, np.take_along_axis(taken, order, axis=1), 0),
    )


_RETRIEVERS: dict[str, Callable[[_Ask], Sets]] = {
    "gs_hybrid": _gs_hybrid,
    "hybrid_sem_graph": _hybrid_sem_graph,
    "semantic_only": _semantic_only,
    "bm25": _bm25,
    "beam_search": _beam_search,
    "max_transition": _max_transition,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrievalTrial:
    """One setting on the tuning queries. objective = set_f1 + 0.5 lcs_ratio + 0.3 ordered_precision, all means."""

    c: int
    alpha: float
    gamma: float
    set_f1: float
    lcs_ratio: float
    ordered_precision: float

    @property
    def objective(self) -> float:
        """What the authors' code maximises."""
        return self.set_f1 + 0.5 * self.lcs_ratio + 0.3 * self.ordered_precision


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrievalTuning:
    """The options with the best setting, and all trials in grid order; of equal objectives the first wins."""

    options: RetrievalOptions
    trials: tuple[RetrievalTrial, ...]


def tune_retrieval(
    *,
    ids: Sequence[str],
    queries: Vectors,
    gold: ArrayLike,
    tools: Vectors,
    graph: TransitionGraph,
    k: ArrayLike,
    options: RetrievalOptions | None = None,
    c: Sequence[int] = (2, 3, 4),
    alpha: Sequence[float] = (0.3, 0.4, 0.5, 0.6, 0.7),
    gamma: Sequence[float] = (0.0, 0.05, 0.1, 0.15, 0.2),
) -> RetrievalTuning:
    """Choose c, alpha and gamma of GS-Hybrid on training queries, by the planner's own sequence (section 5).

    ids (q,), queries (q, d), gold (q, l) filled with -1 and k (q,) are of the tuning queries, at most 500 in the paper
    (`sample_rows`); they must be training trajectories of the graph.

    Raises:
        ValueError: if an id is not among the contributors of the graph, there is no query or a grid is empty.
    """
    check_training(ids, graph=graph)
    if not len(ids) or not (c and alpha and gamma):
        raise ValueError("tuning needs at least one training query and one value of c, alpha and gamma each")
    ask = _asked(queries, tools, graph=graph, k=k, options=options or RetrievalOptions())
    near = ask.cosines.nearest(int(_pool_size(ask.planned_k, c=max(c)).max()), rows=ask.candidates)
    trials, settings = [], []
    for pool in c:
        ask = replace(ask, options=replace(ask.options, c=pool))
        candidates = _candidates(ask, near=near)
        for share, bonus in product(alpha, gamma):
            settings.append(replace(ask.options, alpha=share, gamma=bonus))
            found = sequence_measures(_planned(candidates, replace(ask, options=settings[-1])).items, gold)
            means = {n: float(getattr(found, n).mean()) for n in ("set_f1", "lcs_ratio", "ordered_precision")}
            trials.append(RetrievalTrial(c=pool, alpha=share, gamma=bonus, **means))
    best = max(range(len(trials)), key=lambda i: (trials[i].objective, -i))
    return RetrievalTuning(options=settings[best], trials=tuple(trials))


def check_training(ids: Sequence[str], *, graph: TransitionGraph) -> None:
    """Check that records to be learned from are training records of the graph.

    Raises:
        ValueError: if one is not; the message names it.
    """
    outside = sorted(set(ids) - set(graph.contributors))
    if outside:
        raise ValueError(
            f"{len(outside)} of {len(ids)} tuning queries are no training trajectories of the graph, "
            f"the first is {outside[0]!r}; tune on the training part of the split only"
        )

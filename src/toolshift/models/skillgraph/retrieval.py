"""Stage 1: which tools, for many queries at once (skillgraph.md sections 3 and 5).

Cosines are computed exactly and laid on a grid, so that a query gets the same tools alone and among 10,000 others.
Equal scores are decided by the cosine rank, equal cosines by the tool row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from toolshift.models.skillgraph.asking import Ask, BeamOptions, Mode, RetrievalOptions, Texts, asked
from toolshift.models.skillgraph.beam import beam_search
from toolshift.models.skillgraph.bridges import shortest_paths, smallest_member
from toolshift.models.skillgraph.cosines import Cosines
from toolshift.models.skillgraph.edges import EdgeTable
from toolshift.models.skillgraph.graph import TransitionGraph
from toolshift.models.skillgraph.planner import candidates_of, planned
from toolshift.models.skillgraph.sets import Ints, Sets, Vectors, filled, packed
from toolshift.models.skillgraph.tuning import RetrievalTrial, RetrievalTuning, check_training, tune_retrieval
from toolshift.runs.seeds import id_hashes, keyed_hash, seed_of
from toolshift.text.lexical import Bm25

__all__ = [
    "METHODS",
    "BeamOptions",
    "Cosines",
    "EdgeTable",
    "Method",
    "Mode",
    "RetrievalOptions",
    "RetrievalTrial",
    "RetrievalTuning",
    "Sets",
    "Texts",
    "Vectors",
    "authors_length",
    "check_training",
    "nearest_tools",
    "oracle_k",
    "oracle_sets",
    "resized",
    "retrieve",
    "sample_rows",
    "shortest_paths",
    "smallest_member",
    "tune_retrieval",
]

Method = Literal["gs_hybrid", "hybrid_sem_graph", "semantic_only", "bm25", "beam_search", "max_transition"]

METHODS: tuple[str, ...] = get_args(Method)
_ZERO = np.zeros((), dtype=np.uint64)


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
    near: Sets | None = None,
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
        near: what `nearest_tools` found for the same queries, tools, graph and mode, where several calls share it. The
            result is the same without; one that is too narrow is not used.

    ``gs_hybrid``, ``semantic_only`` and ``max_transition`` give sets by cosine, the others their own order.

    Raises:
        ValueError: for an unknown method, shapes that do not fit, k below 1, or an input that is missing.
    """
    if method not in _RETRIEVERS:
        raise ValueError(f"unknown method {method!r}: one of {', '.join(METHODS)}")
    ask = asked(queries, tools, graph=graph, k=k, options=options or RetrievalOptions())
    if near is not None and len(near.items) != len(queries):
        raise ValueError(f"near is of {len(near.items)} queries, the vectors are of {len(queries)}")
    return _RETRIEVERS[method](replace(ask, texts=texts, communities=communities, near=near))


def nearest_tools(
    width: int, *, queries: Vectors, tools: Vectors, graph: TransitionGraph, mode: Mode = "paper"
) -> Sets:
    """The ``width`` nearest tools that can be retrieved for every query: ``near`` of `retrieve`.

    A pool takes max(K + 2, c K) of them, ``semantic_only`` K.

    Raises:
        ValueError: for shapes that do not fit, or width below 1.
    """
    k = np.full(len(queries), width, dtype=np.int64)
    return asked(queries, tools, graph=graph, k=k, options=RetrievalOptions(mode=mode)).nearest(width)


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
    ask = asked(queries, tools, graph=graph, k=k, options=options or RetrievalOptions())
    near = ask.nearest(int(ask.k.max(initial=1)))
    known = (near.items[:, :, None] == sets.items[:, None, :]).any(axis=2)
    items = np.concatenate([sets.items, np.where(known, -1, near.items)], axis=1)
    similarity = np.concatenate([sets.similarity, near.similarity], axis=1)
    order = np.argsort(items < 0, axis=1, kind="stable")
    items = np.take_along_axis(items, order, axis=1)
    rank = np.arange(items.shape[1])
    return filled(items, np.take_along_axis(similarity, order, axis=1), kept=rank < ask.k[:, None])


def oracle_sets(gold: ArrayLike, *, queries: Vectors, tools: Vectors) -> Sets:
    """The distinct tools of gold sequences (q, l), filled with -1, by cosine: what an `oracle set` row is given."""
    rows = np.asarray(gold, dtype=np.int64)
    query, place = np.nonzero(rows >= 0)
    keys = np.unique(query * len(tools) + rows[query, place])
    query, tool = np.divmod(keys, max(1, len(tools)))
    return packed(query, tool, Cosines.of(queries, tools).pairs(query, tool), n_queries=len(rows))


def _semantic_only(ask: Ask) -> Sets:
    near = ask.nearest(int(ask.k.max(initial=1)))
    return filled(near.items, near.similarity, kept=np.arange(near.items.shape[1]) < ask.k[:, None])


class _WhitespaceBm25(Bm25):
    """BM25 over lower-case whitespace tokens [C]."""

    def _terms(self, text: str) -> list[str]:
        return text.lower().split()


def _bm25(ask: Ask) -> Sets:
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
    return filled(items, similarity, kept=np.arange(items.shape[1]) < ask.k[:, None])


def _gs_hybrid(ask: Ask) -> Sets:
    return _hybrid_sem_graph(ask).by_cosine()


def _hybrid_sem_graph(ask: Ask) -> Sets:
    return planned(candidates_of(ask), ask)


def _max_transition(ask: Ask) -> Sets:
    """Greedy over all candidates, score 0.5 max over chosen s of tp(s, t) + 0.5 cosine, of the API-Bank script [C]."""
    near = ask.nearest(len(ask.cosines.tools))
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
    return filled(
        np.take_along_axis(near.items, order, axis=1),
        np.take_along_axis(near.similarity, order, axis=1),
        kept=np.take_along_axis(taken, order, axis=1),
    )


_RETRIEVERS: dict[str, Callable[[Ask], Sets]] = {
    "gs_hybrid": _gs_hybrid,
    "hybrid_sem_graph": _hybrid_sem_graph,
    "semantic_only": _semantic_only,
    "bm25": _bm25,
    "beam_search": beam_search,
    "max_transition": _max_transition,
}

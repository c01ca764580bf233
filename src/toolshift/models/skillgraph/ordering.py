"""Stage 2 without learning: in which order the tools of a fixed set run (skillgraph.md section 6).

An order never adds or drops a tool. Weights and similarities are rounded to 2^-40, so that the value of a permutation
does not depend on how it is summed up and equal permutations tie exactly; of those the first in lexicographic order of
cosine ranks stands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from toolshift.measures.sequences import SequenceValues, sequence_measures
from toolshift.models.skillgraph.graph import TransitionGraph
from toolshift.models.skillgraph.retrieval import EdgeTable, Sets, check_training
from toolshift.runs.seeds import id_hashes, keyed_hash, seed_of

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

ALPHAS = tuple(i / 10 for i in range(11))
"""Grid of the share of transitions in Hybrid-Rerank."""
SHUFFLES = 100
_GRID = 2.0**40
_FLOOR = 1e-9
# Table entries of the dynamic programme worked on at once.
_STATES = 1 << 21
_LARGEST = 12


class Orderer(Protocol):
    """A fitted model that orders sets."""

    def order(self, sets: Sets, *, graph: TransitionGraph) -> Ints:
        """(q, k) tool rows, filled with -1."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderOptions:
    """How sets are ordered.

    Raises:
        ValueError: if a value is out of range.
    """

    alpha: float = 0.4
    """Share of the transitions in Hybrid-Rerank (0.7 in the authors' API-Bank script)."""
    exhaustive: int = 8
    """Largest set whose best permutation is found; larger ones are ordered greedily. 0: all greedily."""
    link: str = "last"
    """What a greedy step looks back at: the ``last`` tool, or the largest transition from ``any`` tool placed (the
    authors' API-Bank script)."""

    def __post_init__(self) -> None:
        if not 0 <= self.alpha <= 1 or not 0 <= self.exhaustive <= _LARGEST or self.link not in ("last", "any"):
            raise ValueError(
                f"alpha in [0, 1], exhaustive in [0, {_LARGEST}] and link last or any expected, got {self}"
            )


def order(
    method: str,
    sets: Sets,
    *,
    graph: TransitionGraph,
    options: OrderOptions | None = None,
    learned: Orderer | None = None,
) -> Ints:
    """Order sets: (q, k) tool rows, filled with -1 on the right.

    Args:
        method: ``sem_sort``, ``hybrid_rerank``, ``opt_perm`` or ``learned``.
        sets: of any method of Stage 1; their own order plays no part.
        graph: its transition probabilities are used.
        options: see there.
        learned: the fitted reranker, for ``learned``.

    `semantic set + HR` of the paper is ``hybrid_rerank`` on the sets of ``semantic_only``.

    Raises:
        ValueError: for an unknown method, or ``learned`` without a reranker.
    """
    options, ranked = options or OrderOptions(), sets.by_cosine()
    if method == "learned":
        if learned is None:
            raise ValueError("method 'learned' needs a fitted reranker")
        return learned.order(ranked, graph=graph)
    if method not in _ORDERERS:
        raise ValueError(f"unknown method {method!r}: one of {', '.join((*_ORDERERS, 'learned'))}")
    return _ORDERERS[method](ranked, graph, options)


def ordered_by(scores: Floats, sets: Sets) -> Ints:
    """Sets (q, k), given by cosine, reordered by scores (q, k) descending; equal scores keep the cosine order."""
    rank = np.argsort(np.where(sets.items >= 0, -scores, np.inf), axis=1, kind="stable")
    return np.take_along_axis(sets.items, rank, axis=1)


def _sem_sort(sets: Sets, graph: TransitionGraph, options: OrderOptions) -> Ints:
    del graph, options
    return sets.items


def _hybrid_rerank(sets: Sets, graph: TransitionGraph, options: OrderOptions) -> Ints:
    """J(pi) = alpha sum w(pi_i, pi_i+1) + (1 - alpha) sum s(pi_i) / i."""

    def terms(part: Sets, weight: Floats) -> tuple[Floats, Floats]:
        place = np.arange(1, part.items.shape[1] + 1)
        return options.alpha * weight, (1.0 - options.alpha) * part.similarity[:, :, None] / place

    return _best(sets, graph, terms=terms, options=options)


def _opt_perm(sets: Sets, graph: TransitionGraph, options: OrderOptions) -> Ints:
    """The sum of ln(w(pi_i, pi_i+1) + 1e-9)."""

    def terms(part: Sets, weight: Floats) -> tuple[Floats, Floats]:
        return np.log(weight + _FLOOR), np.zeros((*part.items.shape, part.items.shape[1]))

    return _best(sets, graph, terms=terms, options=options)


_ORDERERS: dict[str, Callable[[Sets, TransitionGraph, OrderOptions], Ints]] = {
    "sem_sort": _sem_sort,
    "hybrid_rerank": _hybrid_rerank,
    "opt_perm": _opt_perm,
}


def _best(
    sets: Sets,
    graph: TransitionGraph,
    *,
    terms: Callable[[Sets, Floats], tuple[Floats, Floats]],
    options: OrderOptions,
) -> Ints:
    """``terms``: transitions (b, k, k) -> links (b, k, k) and values of tools at places (b, k, k)."""
    edges, out = EdgeTable.of(graph.transition), sets.items.copy()
    for size, rows in _by_size(sets.size):
        part = Sets(items=sets.items[rows, :size], similarity=sets.similarity[rows, :size])
        link, own = (on_sum_grid(value) for value in terms(part, edges.square(part.items)[0]))
        if size <= options.exhaustive:
            slots = best_permutations(link, own)
        else:
            slots = _greedy(link, own, look_back=options.link)
        out[rows, :size] = np.take_along_axis(part.items, slots, axis=1)
    return out


def _by_size(size: Ints) -> Iterator[tuple[int, Ints]]:
    """Queries with equally many tools, at least two, so many at once as memory allows."""
    for value in np.unique(size[size > 1]).tolist():
        rows = np.flatnonzero(size == value)
        step = max(1, _STATES // (value << min(value, _LARGEST)))
        for first in range(0, len(rows), step):
            yield value, rows[first : first + step]


def on_sum_grid(values: Floats) -> Floats:
    """Values rounded to 2^-40: sums of a few, below 2^12, are exact in any order."""
    return np.rint(values * _GRID) / _GRID


def best_permutations(link: Floats, own: Floats) -> Ints:
    """Slots (b, k) in the order pi that maximises sum own[pi_i, i] + sum link[pi_i, pi_i+1], the first of equal ones.

    link: (b, k, k) from slot to slot. own: (b, k, k) of a slot at a place. Exact, by dynamic programming over (tools
    placed, last tool) from the end: the number placed gives the place, and the first best successor of every state
    gives the lexicographically first permutation. O(2^k k^2).
    """
    b, k, _ = link.shape
    bit = 1 << np.arange(k)
    rest, onward = np.zeros((b, 1 << k, k)), np.zeros((b, 1 << k, k), dtype=np.int8)
    masks = np.arange(1 << k)
    count = (masks[:, None] & bit > 0).sum(axis=1)
    for placed in range(k - 1, 0, -1):
        level = masks[count == placed]
        which, last = np.nonzero(level[:, None] & bit)
        mask = level[which]
        value = link[:, last] + own[:, None, :, placed] + rest[:, mask[:, None] | bit, np.arange(k)]
        value[:, (mask[:, None] & bit) > 0] = -np.inf
        onward[:, mask, last] = value.argmax(axis=2)
        rest[:, mask, last] = value.max(axis=2)
    slots, rows = np.empty((b, k), dtype=np.int64), np.arange(b)
    slots[:, 0] = (own[:, :, 0] + rest[:, bit, np.arange(k)]).argmax(axis=1)
    mask = bit[slots[:, 0]]
    for place in range(1, k):
        slots[:, place] = onward[rows, mask, slots[:, place - 1]]
        mask = mask | bit[slots[:, place]]
    return slots


def _greedy(link: Floats, own: Floats, *, look_back: str) -> Ints:
    """Slots (b, k): the best tool for each place in turn, equal ones by cosine rank; arguments as above."""
    b, k, _ = link.shape
    rows, slots = np.arange(b), np.empty((b, k), dtype=np.int64)
    free, back = np.ones((b, k), dtype=bool), np.zeros((b, k))
    for place in range(k):
        slot = np.where(free, back + own[:, :, place], -np.inf).argmax(axis=1)
        slots[:, place], free[rows, slot] = slot, False
        back = np.maximum(back, link[rows, slot]) if look_back == "any" and place else link[rows, slot]
    return slots


def shuffled(sets: Sets, *, ids: Sequence[str], shuffle: int, name: str = "skillgraph/random_order") -> Ints:
    """Sets in random order: (q, k) tool rows. The order belongs to (name, shuffle, id of the query) alone."""
    place = np.arange(sets.items.shape[1], dtype=np.uint64)
    drawn = keyed_hash(seed_of(name, shuffle), id_hashes(ids)[:, None], place)
    ranked = sets.by_cosine()
    filling = ranked.items < 0
    return np.take_along_axis(ranked.items, np.lexsort((drawn, filling)), axis=1)


def random_floor(
    sets: Sets, gold: ArrayLike, *, ids: Sequence[str], shuffles: int = SHUFFLES, name: str = "skillgraph/random_order"
) -> SequenceValues:
    """Measures of each query, mean over random orders of its set: the floor of every ordering figure (section 6).

    gold: (q, l) filled with -1. ids: (q,) of the queries.

    Raises:
        ValueError: if shuffles < 1.
    """
    if shuffles < 1:
        raise ValueError(f"shuffles must be at least 1, got {shuffles}")
    found = (sequence_measures(shuffled(sets, ids=ids, shuffle=s, name=name), gold) for s in range(shuffles))
    first = next(found)
    names = [f.name for f in fields(first) if getattr(first, f.name).dtype == np.float64]
    total = {n: getattr(first, n).copy() for n in names}
    for values in found:
        for n in names:
            total[n] += getattr(values, n)
    counts = {f.name: getattr(first, f.name) for f in fields(first) if f.name not in total}
    return SequenceValues(**{n: value / shuffles for n, value in total.items()}, **counts)


@dataclass(frozen=True, slots=True, kw_only=True)
class AlphaTuning:
    """The alpha of the best mean Ord.Prec, the smallest of equal ones, and all (alpha, Ord.Prec)."""

    alpha: float
    trials: tuple[tuple[float, float], ...]


def tune_alpha(
    sets: Sets, gold: ArrayLike, *, ids: Sequence[str], graph: TransitionGraph, alphas: Sequence[float] = ALPHAS
) -> AlphaTuning:
    """Choose alpha of Hybrid-Rerank by Ord.Prec on training queries (at most 500 in the paper).

    sets and gold (q, l) are of the tuning queries ``ids`` (q,), which must be training trajectories of the graph.

    Raises:
        ValueError: if an id is not among the contributors of the graph, or there is no query or alpha.
    """
    check_training(ids, graph=graph)
    if not len(ids) or not alphas:
        raise ValueError("tuning needs at least one training query and one alpha")
    trials = []
    for alpha in alphas:
        found = order("hybrid_rerank", sets, graph=graph, options=OrderOptions(alpha=alpha))
        trials.append((alpha, float(sequence_measures(found, gold).ordered_precision.mean())))
    best = max(trials, key=lambda trial: (trial[1], -trial[0]))
    return AlphaTuning(alpha=best[0], trials=tuple(trials))

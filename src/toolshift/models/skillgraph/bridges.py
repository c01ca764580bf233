"""Bridges: tools on shortest paths between the components of a pool."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import csgraph

from toolshift.models.skillgraph.asking import Ask, blocks
from toolshift.models.skillgraph.edges import EdgeTable
from toolshift.models.skillgraph.graph import TransitionGraph
from toolshift.models.skillgraph.sets import Bools, Ints, Sets

Words = NDArray[np.uint64]
# Targets of paths worked on at once.
_TARGETS = 1024


def bridges(pool: Sets, ask: Ask) -> tuple[Ints, Ints]:
    """Tools (query, tool) on the paths between components of the pools, without those of the pools."""
    edges, nodes = EdgeTable.of(ask.graph.weight), ask.graph.nodes
    parts = [(np.zeros(0, np.int64), np.zeros((0, ask.options.ends), np.int64))]
    for wide, rows in blocks(pool.size, cells=lambda wide: wide**2):
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
    exists = (source >= 0) & (target >= 0)
    n, matrix = max(1, graph.n_tools), _pattern(graph.weight)
    # A pair of tools comes up in many queries and is searched once.
    keys, at = np.unique((source * n + target)[exists], return_inverse=True)
    exists[exists] = _connected(matrix, keys // n, keys % n)[at]
    some = np.flatnonzero(exists.any(axis=1))
    first = exists[some].argmax(axis=1)
    keys, at = np.unique(source[some, first] * n + target[some, first], return_inverse=True)
    interior = _interiors(matrix, keys // n, keys % n)[at]
    row, place = np.nonzero(interior >= 0)
    return query[some[row]], interior[row, place]


def shortest_paths(edges: sparse.csr_matrix, source: Ints, target: Ints) -> tuple[Bools, Ints]:
    """Directed shortest paths by number of edges; of several the one whose rows come first in lexicographic order.

    edges: (n, n), stored entries are edges. source, target: (p,) distinct in each pair. Returns whether there is a path
    (p,), and its interior tools (p, w) from source to target, filled with -1.
    """
    matrix = _pattern(edges)
    found = _connected(matrix, source, target)
    some = _interiors(matrix, source[found], target[found])
    interior = np.full((len(source), some.shape[1]), -1, dtype=np.int64)
    interior[found] = some
    return found, interior


def _pattern(edges: sparse.csr_matrix) -> sparse.csr_matrix:
    """The stored entries as ones: an edge of weight 0 is an edge."""
    matrix = sparse.csr_matrix(edges, copy=True)
    matrix.sum_duplicates()
    matrix.data = np.ones(len(matrix.indices), dtype=np.int8)
    return matrix


def _connected(matrix: sparse.csr_matrix, source: Ints, target: Ints) -> Bools:
    """(p,) whether there is a directed path.

    Paths through the largest strongly connected component are told from what leads to it and what it leads to. Others
    run in the rest of the graph, which is small where trajectories overlap.
    """
    if not len(source):
        return np.zeros(0, dtype=bool)
    _, label = csgraph.connected_components(matrix, directed=True, connection="strong")
    core = label == np.bincount(label).argmax()
    root = int(core.argmax())
    found = _reached(sparse.csr_matrix(matrix.T), root)[source] & _reached(matrix, root)[target]
    degree, has_in = np.diff(matrix.indptr), np.bincount(matrix.indices, minlength=len(core)) > 0
    left = np.flatnonzero(~found & ~core[source] & ~core[target] & (degree[source] > 0) & has_in[target])
    number, rest = np.cumsum(~core) - 1, np.flatnonzero(~core)
    inner = sparse.csr_matrix(matrix[rest][:, rest])
    for here, block, column in _target_blocks(number[target[left]]):
        closed = _closed(inner, block)
        found[left[here]] = _has(closed, number[source[left[here]]], column)
    return found


def _reached(matrix: sparse.csr_matrix, root: int) -> Bools:
    """(n,) tools that a path from ``root`` gets to, itself included."""
    out = np.zeros(int(matrix.indptr.size) - 1, dtype=bool)
    out[csgraph.breadth_first_order(matrix, root, directed=True, return_predecessors=False)] = True
    return out


def _target_blocks(target: Ints) -> Iterator[tuple[Ints, Ints, Ints]]:
    """Distinct targets so many at once as fit: rows of ``target`` (p,), the targets, and which of them each row has."""
    ends, at = np.unique(target, return_inverse=True)
    for first in range(0, len(ends), _TARGETS):
        here = np.flatnonzero((at >= first) & (at < first + _TARGETS))
        yield here, ends[first : first + _TARGETS], at[here] - first


def _closed(matrix: sparse.csr_matrix, targets: Ints) -> Words:
    """The tools that get to each target, as bits (n, t / 64)."""
    level = _own_bits(targets, n=int(matrix.indptr.size) - 1)
    while True:
        after = _one_edge_more(matrix, level)
        if np.array_equal(after, level):
            return level
        level = after


def _interiors(matrix: sparse.csr_matrix, source: Ints, target: Ints) -> Ints:
    """(p, w) interiors of the shortest paths of connected pairs, see `shortest_paths`.

    All targets of a block are searched at once, backwards, as bits of one word per 64 of them.
    """
    pieces = []
    for here, block, column in _target_blocks(target):
        levels = [_own_bits(block, n=int(matrix.indptr.size) - 1)]
        far, open_ = np.zeros(len(here), dtype=np.int64), np.arange(len(here))
        while True:
            open_ = open_[~_has(levels[-1], source[here[open_]], column[open_])]
            if not open_.size:
                break
            far[open_] += 1
            levels.append(_one_edge_more(matrix, levels[-1]))
        pieces.append((here, _walked(matrix, levels, source[here], column, far)))
    interior = np.full((len(source), max((p.shape[1] for _, p in pieces), default=0)), -1, dtype=np.int64)
    for here, path in pieces:
        interior[here, : path.shape[1]] = path
    return interior


def _own_bits(targets: Ints, *, n: int) -> Words:
    """Bits (n, t / 64) in which each target gets to itself and nothing else to anything."""
    t = len(targets)
    bits = np.zeros((n, -(-t // 64) * 8), dtype=np.uint8)
    bits[targets, np.arange(t) // 8] = np.uint8(128) >> (np.arange(t) % 8).astype(np.uint8)
    return bits.view(np.uint64)


def _one_edge_more(matrix: sparse.csr_matrix, level: Words) -> Words:
    """The tools that get to each target with one edge more than those of ``level`` at most."""
    rows = np.flatnonzero(np.diff(matrix.indptr))
    reached = level.copy()
    if rows.size:
        reached[rows] |= np.bitwise_or.reduceat(level[matrix.indices], matrix.indptr[rows], axis=0)
    return reached


def _has(level: Words, tool: Ints, column: Ints) -> Bools:
    """Whether the bits of (tool, target) are set."""
    return (level.view(np.uint8)[tool, column // 8] >> (7 - column % 8).astype(np.uint8) & 1).astype(bool)


def _walked(matrix: sparse.csr_matrix, levels: Sequence[Words], source: Ints, column: Ints, far: Ints) -> Ints:
    """(p, w) interiors of the paths of ``far`` (p,) edges, always one step nearer, the lowest row first."""
    n, degree = int(matrix.indptr.size) - 1, np.diff(matrix.indptr)
    interior = np.full((len(source), max(0, int(far.max(initial=0)) - 1)), -1, dtype=np.int64)
    at = source.copy()
    # Longer paths start earlier, so that all that are under way have equally far to go.
    for left in range(interior.shape[1] + 1, 1, -1):
        here = np.flatnonzero(far >= left)
        count = degree[at[here]].astype(np.int64)
        starts = np.cumsum(count) - count
        flat = np.repeat(matrix.indptr[at[here]] - starts, count) + np.arange(int(count.sum()))
        onward = matrix.indices[flat].astype(np.int64)
        closer = _has(levels[left - 1], onward, np.repeat(column[here], count))
        at[here] = np.minimum.reduceat(np.where(closer, onward, n), starts)
        interior[here, far[here] - left] = at[here]
    return interior

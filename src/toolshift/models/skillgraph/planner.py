"""GS-Hybrid: pool by cosine, bridges, and the greedy sequence (skillgraph.md section 5)."""

from __future__ import annotations

import numpy as np

from toolshift.models.skillgraph.asking import Ask, blocks
from toolshift.models.skillgraph.bridges import bridges
from toolshift.models.skillgraph.edges import EdgeTable
from toolshift.models.skillgraph.sets import Ints, Sets, filled, packed


def pool_size(k: Ints, *, c: int) -> Ints:
    """(q,) tools of the pool: max(K + 2, c K)."""
    return np.maximum(k + 2, c * k)


def candidates_of(ask: Ask) -> Sets:
    """Pool and bridges of every query, by cosine."""
    width = pool_size(ask.planned_k, c=ask.options.c)
    near = ask.nearest(int(width.max(initial=1)))
    pool = filled(near.items, near.similarity, kept=np.arange(near.items.shape[1]) < width[:, None])
    query, tool = bridges(pool, ask)
    at, place = np.nonzero(pool.items >= 0)
    return packed(
        np.concatenate([at, query]),
        np.concatenate([pool.items[at, place], tool]),
        np.concatenate([pool.similarity[at, place], ask.cosines.pairs(query, tool)]),
        n_queries=len(pool.items),
    )


def planned(candidates: Sets, ask: Ask) -> Sets:
    """The greedy sequence of each query over its candidates."""
    k, edges = ask.planned_k, EdgeTable.of(ask.graph.weight)
    items = np.full((len(k), int(k.max(initial=0))), -1, dtype=np.int64)
    similarity = np.zeros(items.shape)
    # Queries of equal K and equally many candidates go through the steps together.
    width = candidates.size
    key = k * (int(width.max(initial=0)) + 1) + width
    for value, rows in blocks(key, cells=lambda v: (v % (int(width.max()) + 1)) ** 2):
        length, wide = divmod(value, int(width.max()) + 1)
        part = Sets(items=candidates.items[rows, :wide], similarity=candidates.similarity[rows, :wide])
        slots = _greedy(part, min(length, wide), length=length, edges=edges, ask=ask)
        taken = slots.shape[1]
        items[rows, :taken] = np.take_along_axis(part.items, slots, axis=1)
        similarity[rows, :taken] = np.take_along_axis(part.similarity, slots, axis=1)
    return filled(items, similarity, kept=items >= 0)


def _greedy(part: Sets, steps: int, *, length: int, edges: EdgeTable, ask: Ask) -> Ints:
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

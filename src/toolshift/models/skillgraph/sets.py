"""Tools chosen for many queries at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Vectors = NDArray[np.float32]


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


def packed(query: Ints, tool: Ints, similarity: Floats, *, n_queries: int) -> Sets:
    """Sets by cosine out of distinct pairs (p,) in any order."""
    order = np.lexsort((tool, -similarity, query))
    query, tool, similarity = query[order], tool[order], similarity[order]
    count = np.bincount(query, minlength=n_queries)
    place = np.arange(len(query)) - np.repeat(np.cumsum(count) - count, count)
    items = np.full((n_queries, int(count.max(initial=0))), -1, dtype=np.int64)
    values = np.zeros(items.shape)
    items[query, place], values[query, place] = tool, similarity
    return Sets(items=items, similarity=values)


def filled(items: Ints, similarity: Floats, *, kept: Bools) -> Sets:
    """Sets whose entries outside ``kept`` are filling, without columns of nothing else."""
    kept = kept & (items >= 0)
    width = int(kept.sum(axis=1).max(initial=0))
    return Sets(items=np.where(kept, items, -1)[:, :width], similarity=np.where(kept, similarity, 0.0)[:, :width])

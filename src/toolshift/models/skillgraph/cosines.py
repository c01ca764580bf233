"""Exact cosines, so that a query gets the same tools alone and among 10,000 others."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from toolshift.models.skillgraph.sets import Floats, Ints, Sets, Vectors
from toolshift.text.lexical import top_k

_SCALE = 2.0**24
# The grid of `on_grid`.
_GRID = 2.0**20
# A block and its copies stay small enough for the allocator to hand the same memory out again.
_QUERIES = 128
# Pairs worked on at once, times their coordinates.
_CELLS = 1 << 21


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
            at, value = _best(_gridded(self.queries[part] @ tools.T), k=items.shape[1])
            items[part], similarity[part] = at if rows is None else rows[at], value
        return Sets(items=items, similarity=similarity)


def _gridded(products: Floats) -> NDArray[np.float32]:
    """The bits of ``on_grid((products / 2^48).astype(float32))``: powers of two change no rounding, so that the factors
    are drawn together and one array is worked on in place."""
    out = products.astype(np.float32)
    out *= np.float32(_GRID / _SCALE**2)
    np.rint(out, out=out)
    out *= np.float32(1 / _GRID)
    return out


def _best(table: NDArray[np.float32], *, k: int) -> tuple[Ints, NDArray[np.float32]]:
    """What `top_k` returns for k of at most n columns, by sorting only the cells that reach the k-th value of a row."""
    b, n = table.shape
    top = np.partition(table, n - k, axis=1)[:, n - k :]
    row, column = np.divmod(np.flatnonzero(table >= top[:, :1]), n)
    # NaN sorts last and reaches nothing. Where very many cells tie, sorting them is no gain.
    if np.isnan(top).any() or len(row) > 2 * b * k + n:
        return top_k(table, k=k)
    value = table[row, column]
    order = np.lexsort((column, -value, row))
    count = np.bincount(row, minlength=b)
    rank = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
    kept = order[rank < k]
    return column[kept].reshape(b, k), value[kept].reshape(b, k)

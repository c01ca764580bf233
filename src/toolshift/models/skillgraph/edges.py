"""Entries of a sparse matrix over the tools, looked up many at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from toolshift.models.skillgraph.sets import Bools, Floats, Ints


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

"""Spherical k-means with restarts: the contextual prototypes of TACT (tact.md section 4.1 [R]).

Coordinates are rounded to 2^-11. All products are then whole multiples of 2^-22, and no partial sum of unit rows
exceeds 1 by more than rounding, so that float32 holds every sum exactly: the clusters do not depend on the number of
threads.
All restarts run a few rounds as one matrix product; the best of them run on until nothing moves.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from toolshift.runs.seeds import generator

RESTARTS = 10
FIRST_ROUNDS = 5
FINALISTS = 2
ROUNDS = 50
_SCALE = np.float32(2.0**11)

Vectors = NDArray[np.float32]


def spherical_kmeans(vectors: Vectors, count: int, *, seed: int) -> Vectors:
    """(k, d) unit centroids of (n, d) unit rows, k = min(count, n), the largest cluster first."""
    count = min(count, len(vectors))
    if count == 0:
        return np.zeros((0, vectors.shape[1]), np.float32)
    data = _Data(vectors=vectors, rounded=_rounded(vectors))
    tried, value = data.improve(data.starts(count, seed=seed), rounds=FIRST_ROUNDS)
    best = np.argsort(-value, kind="stable")[:FINALISTS]
    final, value = data.improve(tried[best], rounds=ROUNDS)
    centroids = final[int(np.argmax(value))]
    size = np.bincount(data.cosines(centroids[None])[:, 0].argmax(axis=1), minlength=count)
    return centroids[np.argsort(-size, kind="stable")]


@dataclass(frozen=True, kw_only=True)
class _Data:
    """vectors: (n, d); rounded: the same, each coordinate a whole multiple of 2^-11."""

    vectors: Vectors
    rounded: Vectors

    def cosines(self, centroids: Vectors) -> Vectors:
        """(n, r, k) cosines to (r, k, d) centroids, exact for the rounded coordinates."""
        flat = _rounded(centroids.reshape(-1, centroids.shape[-1]))
        return (self.rounded @ flat.T).reshape(len(self.rounded), *centroids.shape[:2])

    def starts(self, count: int, *, seed: int) -> Vectors:
        """(r, k, d) k-means++ on cosine distance, one generator per restart."""
        draws = [generator("tact.kmeans", seed, restart) for restart in range(RESTARTS)]
        n = len(self.vectors)
        chosen = [[int(g.integers(n)) for g in draws]]
        distance = np.full((n, RESTARTS), np.inf)
        for _ in range(1, count):
            nearest = 1.0 - self.cosines(self.vectors[chosen[-1]][:, None])[:, :, 0].astype(np.float64)
            distance = np.minimum(distance, np.maximum(nearest, 0.0))
            total = np.cumsum(distance, axis=0)
            places = [
                int(np.searchsorted(total[:, r], g.random() * total[-1, r], side="right")) for r, g in enumerate(draws)
            ]
            chosen.append([min(place, n - 1) for place in places])
        return self.vectors[np.array(chosen).T]

    def improve(self, centroids: Vectors, *, rounds: int) -> tuple[Vectors, NDArray[np.float64]]:
        """(r, k, d) centroids after at most ``rounds`` rounds, and (r,) the mean cosine of a row to its own before
        the last."""
        of = np.full((len(self.vectors), len(centroids)), -1)
        value = np.full(len(centroids), -np.inf)
        for _ in range(rounds):
            cosines = self.cosines(centroids)
            new = cosines.argmax(axis=2)
            value = np.take_along_axis(cosines, new[:, :, None], axis=2)[:, :, 0].mean(axis=0, dtype=np.float64)
            if np.array_equal(new, of):
                break
            of = new
            centroids = np.stack([self._means(new[:, r], before) for r, before in enumerate(centroids)])
        return centroids, value

    def _means(self, of: NDArray[np.int64], before: Vectors) -> Vectors:
        """Unit mean of every cluster; an empty one, or one whose rows cancel, stays where it was."""
        n = len(self.vectors)
        member = sparse.csr_matrix((np.ones(n, np.float32), (of, np.arange(n))), shape=(len(before), n))
        total = np.asarray(member @ self.vectors, np.float64)
        length = np.linalg.norm(total, axis=1, keepdims=True)
        return np.where(length > 1e-6, total / np.maximum(length, 1e-6), before).astype(np.float32)


def _rounded(vectors: Vectors) -> Vectors:
    return (np.rint(vectors * _SCALE) / _SCALE).astype(np.float32)

"""Spherical k-means: separated clusters, degenerate inputs, determinism."""

from __future__ import annotations

import numpy as np
import pytest

from toolshift.models.tact.kmeans import spherical_kmeans
from toolshift.text.encoder import Vectors, unit_rows


def blobs(sizes: list[int], *, dim: int = 12, spread: float = 0.08, seed: int = 0) -> tuple[Vectors, np.ndarray]:
    """Unit rows around the first axes, shuffled, and their blob."""
    rng = np.random.default_rng(seed)
    of = np.repeat(np.arange(len(sizes)), sizes)
    rows = np.eye(dim)[of] + spread * rng.standard_normal((of.size, dim))
    order = rng.permutation(of.size)
    return unit_rows(rows[order]), of[order]


def test_separated_clusters_are_recovered_largest_first() -> None:
    vectors, of = blobs([20, 50, 35])
    centroids = spherical_kmeans(vectors, 3, seed=42)
    assert centroids.shape == (3, 12)
    assert centroids.dtype == np.float32
    nearest = (vectors @ centroids.T).argmax(axis=1)
    assert [set(of[nearest == k]) for k in range(3)] == [{1}, {2}, {0}]
    np.testing.assert_allclose(np.linalg.norm(centroids, axis=1), 1.0, atol=1e-5)
    expected = unit_rows(np.stack([vectors[of == k].mean(axis=0) for k in (1, 2, 0)]))
    np.testing.assert_allclose(centroids, expected, atol=1e-5)


def test_the_same_seed_gives_the_same_bits() -> None:
    vectors, _ = blobs([9, 9, 9, 9], spread=0.6)
    np.testing.assert_array_equal(spherical_kmeans(vectors, 5, seed=1), spherical_kmeans(vectors, 5, seed=1))


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_row_order_does_not_matter_where_clusters_are_clear(seed: int) -> None:
    vectors, _ = blobs([10, 20, 30, 40], spread=0.05)
    order = np.random.default_rng(seed).permutation(len(vectors))
    one, other = spherical_kmeans(vectors, 4, seed=7), spherical_kmeans(vectors[order], 4, seed=7)
    np.testing.assert_allclose(one, other, atol=1e-6)


def test_every_blob_is_found_under_every_seed() -> None:
    vectors, of = blobs([30] * 6, spread=0.1)
    for seed in range(10):
        nearest = (vectors @ spherical_kmeans(vectors, 6, seed=seed).T).argmax(axis=1)
        assert len({tuple(sorted(set(of[nearest == k]))) for k in range(6)}) == 6


def test_fewer_rows_than_clusters() -> None:
    vectors = np.eye(3, dtype=np.float32)
    centroids = spherical_kmeans(vectors, 8, seed=0)
    assert centroids.shape == (3, 3)
    np.testing.assert_allclose(sorted(centroids.tolist()), sorted(vectors.tolist()), atol=1e-6)


def test_no_rows_no_clusters() -> None:
    assert spherical_kmeans(np.zeros((0, 5), np.float32), 4, seed=0).shape == (0, 5)


def test_equal_rows_and_opposite_rows_stay_finite() -> None:
    same = np.tile(unit_rows(np.ones((1, 4))), (6, 1))
    centroids = spherical_kmeans(same, 3, seed=0)
    assert centroids.shape == (3, 4)
    np.testing.assert_allclose(centroids, same[:3], atol=1e-6)
    opposite = np.array([[1.0, 0.0], [-1.0, 0.0]] * 3, np.float32)
    one = spherical_kmeans(opposite, 1, seed=0)
    assert np.isfinite(one).all()
    np.testing.assert_allclose(np.linalg.norm(one, axis=1), 1.0, atol=1e-6)


def test_the_result_is_a_local_optimum() -> None:
    """Every centroid is the unit mean of the rows that are nearest to it."""
    vectors, _ = blobs([12] * 5, spread=0.5, seed=3)
    centroids = spherical_kmeans(vectors, 5, seed=3)
    nearest = (vectors @ centroids.T).argmax(axis=1)
    means = unit_rows(np.stack([vectors[nearest == k].mean(axis=0) for k in range(5)]))
    np.testing.assert_allclose(centroids, means, atol=2e-3)

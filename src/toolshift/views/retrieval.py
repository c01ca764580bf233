"""Label-free neighbourhoods over a dataset's whole library: what the miners propose from, and near-duplicate texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from toolshift.runs.files import stable_hash, write_array
from toolshift.text.lexical import Bm25, dense_top
from toolshift.views.corpus import Part

_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class Retrieval:
    """bm25_top, dense_top: (n, top) capability rows by rank over the library, -1 where a list is shorter.
    near_text: (m, m) boolean CSR of capability pairs whose texts have a cosine of at least the threshold."""

    bm25_top: NDArray[np.int32]
    dense_top: NDArray[np.int32]
    near_text: sparse.csr_matrix


def retrieve(
    task_texts: tuple[str, ...],
    bm25: Bm25,
    *,
    task_vectors: NDArray[np.float32],
    capability_vectors: NDArray[np.float32],
    top: int,
    duplicate_cosine: float,
    cache: Path,
    key: str,
) -> Retrieval:
    """Compute the neighbourhoods, or map them from ``cache`` where the same ones were computed before.

    key: fingerprint of the records and of the encoder; together with the parameters it names the cache folder.
    """
    top = min(top, capability_vectors.shape[0])
    folder = cache / stable_hash([_VERSION, key, bm25.describe, top, duplicate_cosine])[:16]
    files = {name: folder / f"{name}.npy" for name in ("bm25_top", "dense_top", "near_pairs")}
    if not all(path.exists() for path in files.values()):
        lexical, scores = bm25.top(task_texts, k=top)
        dense, _ = dense_top(task_vectors, capability_vectors, k=top)
        write_array(files["bm25_top"], np.where(scores > 0, lexical, -1).astype(np.int32))
        write_array(files["dense_top"], dense.astype(np.int32))
        write_array(files["near_pairs"], near_pairs(capability_vectors, at_least=duplicate_cosine))
    bm25_top, dense, pairs = (np.load(path, mmap_mode="r") for path in files.values())
    size = capability_vectors.shape[0]
    near = sparse.csr_matrix((np.ones(pairs.shape[1], bool), (pairs[0], pairs[1])), shape=(size, size))
    return Retrieval(bm25_top=bm25_top, dense_top=dense, near_text=near)


def joined(found: Sequence[Retrieval], parts: Sequence[Part]) -> Retrieval:
    """The neighbourhoods of several datasets as one, in rows of the whole corpus: no neighbour lies in another one."""
    if len(found) == 1:
        return found[0]

    def stacked(tops: Sequence[NDArray[np.int32]]) -> NDArray[np.int32]:
        width = max(top.shape[1] for top in tops)
        moved = [np.where(top >= 0, top + part.capabilities.start, -1) for top, part in zip(tops, parts, strict=True)]
        padded = [np.pad(top, ((0, 0), (0, width - top.shape[1])), constant_values=-1) for top in moved]
        return np.concatenate(padded).astype(np.int32)

    near = sparse.block_diag([one.near_text for one in found], format="csr", dtype=bool)
    return Retrieval(
        bm25_top=stacked([one.bm25_top for one in found]),
        dense_top=stacked([one.dense_top for one in found]),
        near_text=sparse.csr_matrix(near),
    )


def near_pairs(vectors: NDArray[np.float32], *, at_least: float, chunk: int = 1024) -> NDArray[np.int32]:
    """(2, p) ordered pairs of different rows of unit vectors (m, d) with a cosine of at least ``at_least``."""
    found: list[NDArray[np.int32]] = []
    for start in range(0, vectors.shape[0], chunk):
        row, column = np.nonzero(vectors[start : start + chunk] @ vectors.T >= at_least)
        keep = row + start != column
        found.append(np.stack([row[keep] + start, column[keep]]).astype(np.int32))
    return np.concatenate(found, axis=1) if found else np.zeros((2, 0), np.int32)

"""Source-side purges: take away what makes an "unseen" target seen (validity.md section 5)."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from toolshift.views.corpus import Labels, Rows

Mask = NDArray[np.bool_]


def shares_gold(labels: Labels, *, target: Rows) -> Mask:
    """(n,) tasks that have a gold capability in common with a target task."""
    held_out = np.zeros(labels.gold.indptr.size - 1, np.int32)
    held_out[target] = 1
    return shares(labels, np.asarray(held_out @ labels.gold.astype(np.int32)) > 0)


def shares(labels: Labels, capabilities: Mask) -> Mask:
    """(n,) tasks that have a gold capability among the marked ones, (m,)."""
    return np.asarray(labels.gold.astype(np.int32) @ capabilities.astype(np.int32)) > 0


def near_query(
    texts: Sequence[str], vectors: NDArray[np.float32], *, target: Rows, at_least: float, chunk: int = 2048
) -> Mask:
    """(n,) tasks whose normalised text equals a target task's, or whose text vector has a cosine of ``at_least``.

    vectors: (n, d) unit rows.
    """
    keys = [normalise(t) for t in texts]
    known = {keys[i] for i in target}
    near = np.fromiter((k in known for k in keys), bool, len(keys))
    targets = vectors[target]
    for start in range(0, vectors.shape[0], chunk):
        near[start : start + chunk] |= (vectors[start : start + chunk] @ targets.T >= at_least).any(axis=1)
    return near


def normalise(text: str) -> str:
    """Case-folded words of a text, without punctuation and repeated white space."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    return " ".join("".join(c if c.isalnum() else " " for c in folded).split())

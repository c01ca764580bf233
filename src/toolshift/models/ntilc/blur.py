"""Semantic blur: pairs of tools that read alike and cannot stand in for each other.

[T] thresholds w = 1 - compat alone, which nearly every unrelated pair passes. [R] the two must also read alike: by the
frozen encoder, or by their words. Both count, with a slice for each, because pairs picked by the encoder alone would
handicap that encoder as a row of the table (spec/validity.md section 11). Nothing here is trained.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from toolshift.models.base import BadParameter
from toolshift.models.ntilc.signature import Compat, Rows
from toolshift.text.lexical import tokens

DENSE, LEXICAL = 1, 2
SLICES = {"all": DENSE | LEXICAL, "dense": DENSE, "lexical": LEXICAL}
"""Slice -> bits of ``BlurPairs.slice`` that belong to it; a pair may be in both."""
_BLOCK_ROWS = 512
# A word of more tools than this, and than a tenth of the library, tells nothing and would cost most of the time.
_COMMON = 1000


@dataclass(frozen=True, kw_only=True)
class BlurPairs:
    """p pairs of tool rows, left < right, ascending. cosine: of the frozen vectors; lexical: of the TF-IDF vectors;
    w: 1 - compat; slice: (p,) bits, 1 = alike by the encoder, 2 = alike by words. n_tools: of the library.
    """

    left: Rows
    right: Rows
    cosine: NDArray[np.float32]
    lexical: NDArray[np.float32]
    w: NDArray[np.float32]
    slice: NDArray[np.uint8]
    n_tools: int

    def __len__(self) -> int:
        """Number of pairs."""
        return int(self.left.size)

    def only(self, name: str) -> BlurPairs:
        """The pairs of a slice (see ``SLICES``)."""
        return self._take((self.slice & SLICES[name]) > 0)

    def at_least(self, *, theta_s: float, theta_w: float) -> BlurPairs:
        """The pairs that the encoder finds under stricter thresholds."""
        return self._take((self.cosine >= theta_s) & (self.w >= theta_w))

    def _take(self, keep: NDArray[np.bool_]) -> BlurPairs:
        return BlurPairs(
            left=self.left[keep],
            right=self.right[keep],
            cosine=self.cosine[keep],
            lexical=self.lexical[keep],
            w=self.w[keep],
            slice=self.slice[keep],
            n_tools=self.n_tools,
        )

    @property
    def tools(self) -> NDArray[np.bool_]:
        """(n,) whether a tool is in a pair: queries with such a gold tool are the blur queries."""
        found = np.zeros(self.n_tools, bool)
        found[self.left] = found[self.right] = True
        return found

    def partners(self, tool: int) -> Rows:
        """Tools that are in a pair with ``tool``, ascending."""
        return np.sort(np.concatenate([self.right[self.left == tool], self.left[self.right == tool]]))


def blur_pairs(
    vectors: NDArray[np.float32],
    signatures: Compat,
    *,
    theta_s: float = 0.75,
    theta_w: float = 0.5,
    texts: Sequence[str] | None = None,
    lexical: float = 0.6,
) -> BlurPairs:
    """Pairs with w >= theta_w that read alike: cosine >= theta_s, or TF-IDF cosine of ``texts`` >= ``lexical``.

    vectors: (n, d) unit rows of the frozen encoder. texts: n renderings; None leaves the lexical side out. Memory is
    bounded by blocks of rows, whatever the number of tools.

    Raises:
        BadParameter: if a threshold lies outside (0, 1], or vectors, signatures and texts do not belong together.
    """
    _check(vectors, signatures, texts, thresholds={"theta_s": theta_s, "theta_w": theta_w, "lexical": lexical})
    words = tf_idf(texts if texts is not None else [""] * len(vectors))
    found = [
        _finished(part, signatures, theta_w)
        for part in _alike(vectors, words, theta_s=theta_s, lexical=lexical if texts is not None else np.inf)
    ]
    nothing = np.zeros(0)  # a library may be empty

    def joined(place: int, kind: type) -> NDArray[Any]:
        return np.concatenate([nothing, *(part[place] for part in found)]).astype(kind)

    return BlurPairs(
        left=joined(0, np.int64),
        right=joined(1, np.int64),
        cosine=joined(2, np.float32),
        lexical=joined(3, np.float32),
        w=joined(4, np.float32),
        slice=joined(5, np.uint8),
        n_tools=len(vectors),
    )


def theta_of_count(pairs: BlurPairs, count: int) -> float:
    """The theta_s under which the encoder finds ``count`` of the pairs: the ``count``-th largest cosine. NaN where
    there are fewer: they were searched with a larger theta_s."""
    if not 0 < count <= len(pairs):
        return float("nan")
    return float(np.partition(pairs.cosine, len(pairs) - count)[len(pairs) - count])


def tf_idf(texts: Sequence[str]) -> sparse.csr_matrix:
    """(n, terms) unit rows of term counts times ln(n / df) + 1; a text without a rare enough word has an empty row."""
    documents = [tokens(text) for text in texts]
    column = {term: i for i, term in enumerate(sorted({term for words in documents for term in words}))}
    indices = np.array([column[term] for words in documents for term in words], np.int32)
    indptr = np.concatenate([[0], np.cumsum([len(words) for words in documents])]).astype(np.int32)
    table = sparse.csr_matrix(
        (np.ones(indices.size, np.float32), indices, indptr), shape=(len(texts), max(len(column), 1))
    )
    table.sum_duplicates()
    df = np.bincount(table.indices, minlength=max(len(column), 1))
    weight = np.where(df <= max(_COMMON, len(texts) // 10), np.log(max(len(texts), 1) / np.maximum(df, 1)) + 1.0, 0.0)
    table.data = table.data * weight[table.indices].astype(np.float32)
    table.eliminate_zeros()
    norms = np.sqrt(np.asarray(table.multiply(table).sum(axis=1)).ravel())
    table.data = table.data / np.repeat(np.maximum(norms, 1e-12), np.diff(table.indptr)).astype(np.float32)
    return table


_Part = tuple[Rows, Rows, NDArray[np.float32], NDArray[np.float32], NDArray[np.uint8]]


def _alike(
    vectors: NDArray[np.float32], words: sparse.csr_matrix, *, theta_s: float, lexical: float
) -> Iterator[_Part]:
    """Pairs that read alike, block by block: left, right, cosine, lexical, bits."""
    n, by_words = len(vectors), np.isfinite(lexical)
    for start in range(0, n, _BLOCK_ROWS):
        stop = min(start + _BLOCK_ROWS, n)
        cosine = np.asarray(vectors[start:stop]) @ np.asarray(vectors[start:]).T
        row, column = np.nonzero(cosine >= theta_s)
        keys = np.asarray(row * n + column + start, np.int64)
        if by_words:
            product = sparse.csr_matrix(words[start:stop] @ words[start:].T)
            near = np.flatnonzero(product.data >= lexical)
            near_row = np.searchsorted(product.indptr, near, side="right") - 1
            keys = np.union1d(keys, near_row * n + product.indices[near] + start)
        row, column = keys // n, keys % n
        keep = row + start < column
        row, column = row[keep], column[keep]
        dense = cosine[row, column - start]
        word = _paired_products(words, row + start, column) if by_words else np.zeros(row.size, np.float32)
        bits = DENSE * (dense >= theta_s) + LEXICAL * (word >= lexical)
        yield row + start, column, dense, word, bits.astype(np.uint8)


def _paired_products(words: sparse.csr_matrix, left: Rows, right: Rows) -> NDArray[np.float32]:
    """(p,) TF-IDF cosines of given pairs."""
    return np.asarray(words[left].multiply(words[right]).sum(axis=1), np.float32).ravel()


def _finished(part: _Part, signatures: Compat, theta_w: float) -> tuple[NDArray[np.generic], ...]:
    left, right, cosine, lexical, bits = part
    w = 1.0 - signatures.pairs(left, right)
    keep = (w >= theta_w) & (bits > 0)
    return left[keep], right[keep], cosine[keep], lexical[keep], w[keep], bits[keep]


def _check(
    vectors: NDArray[np.float32], signatures: Compat, texts: Sequence[str] | None, *, thresholds: dict[str, float]
) -> None:
    for name, value in thresholds.items():
        if not 0.0 < value <= 1.0:
            raise BadParameter(f"blur pairs: {name}={value}; expected a number above 0, at most 1")
    counts = {len(vectors), signatures.n_tools, len(vectors) if texts is None else len(texts)}
    if len(counts) > 1:
        raise BadParameter(
            f"blur pairs: {len(vectors)} vectors, {signatures.n_tools} signatures and "
            f"{'no' if texts is None else len(texts)} texts; expected one of each per tool"
        )

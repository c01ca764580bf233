"""Lexical retrieval: tokens, BM25 with whole-library statistics, and the one tie rule of every top-k.

Tie rule: score descending, then document position ascending. Libraries leave the order among equal scores open
(bm25s and faiss change it with k), so their own top-k is never used.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from toolshift.data.types import split_words

if TYPE_CHECKING:
    from scipy import sparse

Floats = NDArray[np.float32]
Positions = NDArray[np.int64]

# Rows of one dense block. 256 x 12,000 documents x (4 + 8 + 8) bytes stay near 60 MB.
_BLOCK = 256
# Dense scores are compared on this grid (2^-20, about 1e-6): BLAS may give two equal documents scores that differ
# in the last bits, depending on their columns, and such noise must not decide a tie.
_GRID = np.float32(2**20)


def tokens(text: str) -> list[str]:
    """Lower-case tokens: split on non-alphanumerics, snake_case and camelCase; unicode letters are kept."""
    return split_words(text)


class Bm25:
    """BM25 in the Lucene variant, computed by bm25s and scored by sparse products.

    ``idf = ln(1 + (N - n + 0.5) / (n + 0.5))`` is never negative. The weight is ``idf * f / (f + k1 (1 - b + b L))``
    without the constant factor ``k1 + 1`` of the textbook form, which changes no ranking. Statistics are those of
    ``texts``, the whole library, never of a candidate list. A term that a query repeats counts as often as it occurs.
    Source: Robertson; variant (i) of spec baselines.md section 1.

    Raises:
        ValueError: if there is no document, or k1 or b is out of range.
    """

    def __init__(
        self,
        texts: Sequence[str],
        *,
        k1: float = 1.5,
        b: float = 0.75,
        stemmer: str = "",
        stopwords: Sequence[str] = (),
    ) -> None:
        if not texts:
            raise ValueError("BM25 needs at least one document")
        if k1 < 0 or not 0 <= b <= 1:
            raise ValueError(f"BM25 needs k1 >= 0 and 0 <= b <= 1, got k1={k1} and b={b}")
        self.k1, self.b, self.stemmer, self.stopwords = k1, b, stemmer, tuple(sorted(set(stopwords)))
        self._stem = _snowball(stemmer)
        self._stopped = frozenset(self.stopwords)
        documents = [self._terms(text) for text in texts]
        # A sorted vocabulary keeps the order of additions, hence the last bits, free of the hash seed.
        self._vocabulary = {term: i for i, term in enumerate(sorted({t for d in documents for t in d}))}
        self.n_docs = len(texts)
        self._weights = self._index(documents)

    @property
    def describe(self) -> str:
        """Variant and every parameter in one string, for row names and fingerprints."""
        stopwords = ",".join(self.stopwords) or "none"
        return (
            f"bm25(variant=lucene,k1={self.k1:g},b={self.b:g},stemmer={self.stemmer or 'none'},"
            f"stopwords={stopwords},statistics=library)"
        )

    def score_matrix(self, queries: Sequence[str]) -> Floats:
        """Scores of all documents, shape (queries, documents), float32 rounded from float64 sums."""
        blocks = [block for _, block in self._blocks(queries)]
        return np.concatenate(blocks) if blocks else np.zeros((0, self.n_docs), dtype=np.float32)

    def top(self, queries: Sequence[str], *, k: int) -> tuple[Positions, Floats]:
        """The best ``min(k, documents)`` documents per query: positions and scores, each (queries, k), by the tie rule.

        Documents that share no term with the query score 0 and fill the list in document order.
        """
        return _collect((top_k(block, k=k) for _, block in self._blocks(queries)), width=min(k, self.n_docs))

    def pairs(self, queries: Sequence[str], *, query_index: NDArray[Any], doc_index: NDArray[Any]) -> Floats:
        """Scores of given pairs, shape (n,): equal to ``score_matrix(queries)[query_index, doc_index]``, one block at
        a time.

        Raises:
            ValueError: if the two index arrays differ in shape.
            IndexError: if an index is out of range.
        """
        query_index, doc_index = np.asarray(query_index), np.asarray(doc_index)
        if query_index.ndim != 1 or query_index.shape != doc_index.shape:
            raise ValueError(f"pairs need two equal 1-d index arrays, got {query_index.shape} and {doc_index.shape}")
        _check_range(query_index, len(queries), what="query_index")
        _check_range(doc_index, self.n_docs, what="doc_index")
        used, rank = np.unique(query_index, return_inverse=True)
        order = np.argsort(rank, kind="stable")
        out = np.empty(len(query_index), dtype=np.float32)
        for start, block in self._blocks([queries[int(i)] for i in used]):
            low, high = np.searchsorted(rank[order], [start, start + len(block)])
            here = order[low:high]
            out[here] = block[rank[here] - start, doc_index[here]]
        return out

    def _terms(self, text: str) -> list[str]:
        terms = tokens(text)
        if self._stopped:
            terms = [term for term in terms if term not in self._stopped]
        return self._stem.stemWords(terms) if self._stem is not None else terms

    def _index(self, documents: list[list[str]]) -> sparse.csr_matrix:
        """Term weights as a (terms, documents) matrix, float64."""
        from scipy import sparse

        if not self._vocabulary:  # every document is empty: nothing ever matches
            return sparse.csr_matrix((0, self.n_docs), dtype=np.float64)
        import bm25s

        index = bm25s.BM25(k1=self.k1, b=self.b, method="lucene", dtype="float64")
        ids = [[self._vocabulary[term] for term in document] for document in documents]
        index.index((ids, dict(self._vocabulary)), create_empty_token=False, show_progress=False)
        stored = index.scores
        shape = (self.n_docs, len(self._vocabulary))
        by_document = sparse.csc_matrix((stored["data"], stored["indices"], stored["indptr"]), shape=shape)
        weights = by_document.T.tocsr()
        weights.sort_indices()
        return weights

    def _counts(self, queries: Sequence[str]) -> sparse.csr_matrix:
        """Term counts of the queries, (queries, terms); terms outside the library are left out."""
        from scipy import sparse

        columns: list[int] = []
        counts: list[int] = []
        ends = [0]
        for query in queries:
            found = Counter(self._vocabulary[t] for t in self._terms(query) if t in self._vocabulary)
            for column in sorted(found):
                columns.append(column)
                counts.append(found[column])
            ends.append(len(columns))
        content = (np.asarray(counts, dtype=np.float64), np.asarray(columns, dtype=np.int32), np.asarray(ends))
        return sparse.csr_matrix(content, shape=(len(queries), len(self._vocabulary)))

    def _blocks(self, queries: Sequence[str]) -> Iterator[tuple[int, Floats]]:
        for start in range(0, len(queries), _BLOCK):
            product: Any = self._counts(queries[start : start + _BLOCK]) @ self._weights
            yield start, product.toarray().astype(np.float32)


def dense_top(queries: Floats, docs: Floats, *, k: int) -> tuple[Positions, Floats]:
    """The best ``min(k, documents)`` documents by dot product: positions and scores, each (queries, k).

    Args:
        queries: (queries, d) float32, unit rows expected.
        docs: (documents, d) float32, unit rows expected.
        k: list length; the order of the first entries is the same for every k.

    Scores lie on a grid of 2^-20, so that equal texts tie exactly and keep document order.
    """
    if queries.ndim != 2 or docs.ndim != 2 or queries.shape[1] != docs.shape[1]:
        raise ValueError(f"dense_top needs (n, d) and (m, d) arrays, got {queries.shape} and {docs.shape}")

    def blocks() -> Iterator[tuple[Positions, Floats]]:
        # The block height does not depend on k: another shape may change the last bits of a product.
        for start in range(0, len(queries), _BLOCK):
            scores = np.asarray(queries[start : start + _BLOCK], dtype=np.float32) @ docs.T
            yield top_k((np.rint(scores * _GRID) / _GRID).astype(np.float32), k=k)

    return _collect(blocks(), width=min(k, len(docs)))


def top_k(scores: Floats, *, k: int) -> tuple[Positions, Floats]:
    """Positions and scores of the ``min(k, n)`` best columns of each row, (rows, k), under the tie rule.

    Score and position are packed into one unsigned key per cell. Keys are distinct, so a partial sort has only one
    possible answer and the lists for a smaller k are prefixes of those for a larger one.

    Raises:
        ValueError: if k < 1 or a score is NaN.
    """
    if k < 1:
        raise ValueError(f"k must be at least 1, got {k}")
    if np.isnan(scores).any():
        raise ValueError("scores contain NaN; a ranking of them has no meaning")
    n = scores.shape[1]
    k = min(k, n)
    if k == 0:
        return np.empty((len(scores), 0), dtype=np.int64), np.empty((len(scores), 0), dtype=np.float32)
    keys = _ordered_bits(scores) << np.uint64(32)
    keys |= np.arange(n - 1, -1, -1, dtype=np.uint64)  # earlier documents get the larger low bits
    if k < n:
        keys = np.partition(keys, n - k, axis=1)[:, n - k :]
    keys = np.sort(keys, axis=1)[:, ::-1]
    positions = (n - 1) - (keys & np.uint64(0xFFFFFFFF)).astype(np.int64)
    return positions, np.take_along_axis(scores, positions, axis=1).astype(np.float32)


def _ordered_bits(scores: Floats) -> NDArray[np.uint64]:
    """float32 -> unsigned integers in the same order (the usual sign-flip of the IEEE bits); -0 equals 0."""
    bits = (np.asarray(scores, dtype=np.float32) + np.float32(0.0)).view(np.uint32)
    negative = (bits >> np.uint32(31)).astype(bool)
    return np.where(negative, ~bits, bits | np.uint32(0x80000000)).astype(np.uint64)


def _collect(blocks: Iterator[tuple[Positions, Floats]], *, width: int) -> tuple[Positions, Floats]:
    pieces = list(blocks)
    if not pieces:
        return np.empty((0, width), dtype=np.int64), np.empty((0, width), dtype=np.float32)
    return np.concatenate([p for p, _ in pieces]), np.concatenate([s for _, s in pieces])


def _check_range(index: NDArray[Any], size: int, *, what: str) -> None:
    if index.size and (index.min() < 0 or index.max() >= size):
        raise IndexError(f"{what} must lie in [0, {size}), got values from {index.min()} to {index.max()}")


def _snowball(language: str) -> Any:
    if not language:
        return None
    try:
        import Stemmer
    except ImportError as error:
        raise ImportError("a stemmer was asked for but PyStemmer is missing: pip install PyStemmer") from error
    if language not in Stemmer.algorithms():
        raise ValueError(f"stemmer {language!r} is not one of {', '.join(sorted(Stemmer.algorithms()))}")
    return Stemmer.Stemmer(language)

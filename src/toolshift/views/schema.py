"""Lexical schema signals for the role rules: operation verbs, required-argument sets, operation words.

They are cruder than any method's evidence on purpose: a view built with a method's own signals would test that method
against itself. They read no label. The verb classes are ours [R].
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from toolshift.data.records import Endpoint
from toolshift.text.lexical import tokens
from toolshift.text.spans import identifier_words

VERB_CLASSES: dict[str, str] = {
    "read": "get retrieve fetch show view read return obtain give provide access display receive pull load see",
    "list": "list browse all index enumerate",
    "search": "search find query lookup autocomplete filter discover explore suggest",
    "check": "check validate verify test ping is",
    "create": "create add generate make build insert register random new",
    "convert": "convert translate transform format parse encode decode resize shorten encrypt decrypt",
    "compute": "calculate compute estimate predict count compare analyze analyse score rank",
    "send": "send post submit publish upload share notify",
    "update": "update edit put set change modify",
    "delete": "delete remove clear",
    "extract": "download extract scrape export crawl capture",
    "detect": "detect recognize identify classify",
    "authenticate": "login logout authenticate sign",
    "track": "track monitor follow",
    "buy": "buy book order pay reserve",
}
_CLASS_NAMES = tuple(sorted(VERB_CLASSES))
_CLASS_OF = {word: _CLASS_NAMES.index(name) for name in _CLASS_NAMES for word in VERB_CLASSES[name].split()}
_NO_THIRD_PERSON = frozenset({"news"})  # looks like a form of the verb class word "new"
NO_VERB = -1


def operation_verb(operation: str, description: str = "") -> str | None:
    """The verb class of an operation: first known verb among the first three words of its name, else of its
    description; None when neither has one. Third-person forms count in descriptions only ("Returns all users"): in a
    name the final s is nearly always a plural ("news", "posts", "books")."""
    code = _verb_code(operation, description)
    return None if code == NO_VERB else _CLASS_NAMES[code]


@dataclass(frozen=True, kw_only=True)
class OperationTable:
    """Signals of e endpoints.

    verb: (e,) class code or ``NO_VERB``. signature: (e,) row of the endpoint's required-argument set in
    ``signatures``; signatures: (s, a) boolean CSR over argument names. words: (e, v) float32 CSR of unit-length
    TF-IDF rows over operation names and descriptions; vocabulary and idf turn any text into the same space.
    """

    verb: NDArray[np.int8]
    signature: NDArray[np.int64]
    signatures: sparse.csr_matrix
    words: sparse.csr_matrix
    vocabulary: dict[str, int]
    idf: NDArray[np.float32]

    def task_words(self, texts: Sequence[str]) -> sparse.csr_matrix:
        """(n, v) unit-length TF-IDF rows of task texts; unknown words are ignored."""
        return _unit_tfidf([tokens(t) for t in texts], self.vocabulary, self.idf)

    def overlap(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """(len(rows), s) Jaccard overlap of the given signatures with all signatures; two empty sets agree (1)."""
        counts = self.signatures.astype(np.float32)
        size = np.asarray(counts.sum(axis=1)).ravel()
        shared = sparse.csr_matrix(sparse.csr_matrix(counts)[rows] @ counts.T).toarray().astype(np.float32)
        union = size[rows][:, None] + size[None, :] - shared
        return np.where(union > 0, shared / np.maximum(union, 1), np.float32(1.0))


def operation_table(endpoints: Sequence[Endpoint]) -> OperationTable:
    """Derive the lexical schema signals of all endpoints once."""
    verb = np.array([_verb_code(e.operation, e.description) for e in endpoints], np.int8)
    sets = [tuple(sorted({identifier_words(a.name) or a.name for a in e.required_arguments})) for e in endpoints]
    distinct = sorted(set(sets))
    row = {names: i for i, names in enumerate(distinct)}
    documents = [tokens(f"{identifier_words(e.operation)} {e.description}") for e in endpoints]
    vocabulary = {word: i for i, word in enumerate(sorted({w for d in documents for w in d}))}
    frequency = np.zeros(len(vocabulary), np.int64)
    for document in documents:
        frequency[[vocabulary[w] for w in set(document)]] += 1
    idf = np.log1p(len(documents) / np.maximum(frequency, 1)).astype(np.float32)
    return OperationTable(
        verb=verb,
        signature=np.array([row[s] for s in sets], np.int64),
        signatures=_set_matrix(distinct),
        words=_unit_tfidf(documents, vocabulary, idf),
        vocabulary=vocabulary,
        idf=idf,
    )


def _verb_code(operation: str, description: str) -> int:
    for word in identifier_words(operation).split()[:3]:
        if word in _CLASS_OF:
            return _CLASS_OF[word]
    for word in identifier_words(description[:80]).split()[:3]:
        forms = (word,) if word in _NO_THIRD_PERSON else (word, word.removesuffix("s"), word.removesuffix("es"))
        for form in forms:
            if form in _CLASS_OF:
                return _CLASS_OF[form]
    return NO_VERB


def _set_matrix(sets: Sequence[tuple[str, ...]]) -> sparse.csr_matrix:
    names = {name: i for i, name in enumerate(sorted({n for s in sets for n in s}))}
    indices = np.array([names[n] for s in sets for n in s], np.int64)
    indptr = np.concatenate([[0], np.cumsum([len(s) for s in sets])]).astype(np.int64)
    return sparse.csr_matrix((np.ones(indices.size, bool), indices, indptr), shape=(len(sets), len(names)))


def _unit_tfidf(
    documents: Sequence[list[str]], vocabulary: dict[str, int], idf: NDArray[np.float32]
) -> sparse.csr_matrix:
    known = [sorted({vocabulary[w] for w in d if w in vocabulary}) for d in documents]
    indices = np.array([w for d in known for w in d], np.int64)
    indptr = np.concatenate([[0], np.cumsum([len(d) for d in known])]).astype(np.int64)
    matrix = sparse.csr_matrix((idf[indices], indices, indptr), shape=(len(known), len(vocabulary)))
    norm = np.sqrt(np.asarray(matrix.multiply(matrix).sum(axis=1)).ravel())
    return sparse.csr_matrix(sparse.diags((1.0 / np.maximum(norm, 1e-12)).astype(np.float32)) @ matrix)

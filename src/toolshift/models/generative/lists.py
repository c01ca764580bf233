"""Several queries per task, each of which ranks the library of the task's dataset.

Re-Invoke and ToolDreamer are listwise by nature: a score depends on what else is ranked. Their ranks are taken over the
whole library of the task's dataset, never over the candidate list, so that the score of a pair is the same in every
view, as the one scorer interface asks [R]. This is the only scope: a universe of candidates is made from labels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from toolshift.models.features import FeatureBank, Pairs, exact_cosines, on_grid
from toolshift.text.encoder import unit_rows
from toolshift.views.corpus import Corpus, Part

Queries = Mapping[int, tuple[str, ...]]
"""Task row -> its query texts; a task without one gets no list."""
Table = NDArray[np.float32]
Search = Callable[[Sequence[str], Part], Table]
"""(queries, a dataset) -> (q, m) scores of its library."""
# (queries x library) cells at once: 256 x 12,000 float64 stay near 25 MB.
_BLOCK = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedList:
    """One query's list, seen from the asked pairs. at: (p,) positions of the task's pairs. score: (p,). rank: (p,) from
    1, equal scores share the best one. size: of the library."""

    at: NDArray[np.int64]
    score: NDArray[np.float32]
    rank: NDArray[np.int64]
    size: int


def ranked_lists(pairs: Pairs, queries: Queries, *, corpus: Corpus, search: Search) -> Iterator[RankedList]:
    """The list of every query of every task, dataset by dataset; pairs across datasets are in none."""
    for part, at in _by_part(pairs, corpus):
        tasks, first = np.unique(pairs.task[at], return_index=True)
        bounds = np.append(first, at.size)
        asked = ((i, text) for i, task in enumerate(tasks) for text in queries.get(int(task), ()))
        while block := list(islice(asked, _BLOCK)):
            table = search([text for _, text in block], part)
            for (i, _), row in zip(block, table, strict=True):
                mine = at[bounds[i] : bounds[i + 1]]
                score = row[pairs.capability[mine] - part.capabilities.start]
                above = row.size - np.searchsorted(np.sort(row), score, side="right")
                yield RankedList(at=mine, score=score, rank=above + 1, size=row.size)


def dense_search(bank: FeatureBank, tools: NDArray[np.float32]) -> Search:
    """Cosines of query texts with ``tools``, (m, d) unit rows of all capabilities, on a grid: equal texts tie."""

    def search(queries: Sequence[str], part: Part) -> Table:
        return on_grid(exact_cosines(bank.cache.rows(queries), np.asarray(tools[part.capabilities])))

    return search


def bm25_search(bank: FeatureBank, *, k1: float = 1.5, b: float = 0.75) -> Search:
    """BM25 of query texts over the public capability texts of the library; 0 without a common word."""

    def search(queries: Sequence[str], part: Part) -> Table:
        return np.asarray(bank.bm25_index(k1, b, part).score_matrix(queries), np.float32)

    return search


def encode_queries(queries: Queries, *, bank: FeatureBank) -> None:
    """Encode all query texts in one go; the lists then read them block by block."""
    bank.cache.ensure([text for _, texts in sorted(queries.items()) for text in texts])


def mean_vectors(texts: Sequence[Sequence[str]], *, bank: FeatureBank, rows: int = 512) -> NDArray[np.float32]:
    """(n, d) unit rows: the mean vector of each item's texts, at least one; ``rows`` items are read at once."""
    bank.cache.ensure([text for some in texts for text in some])
    parts = [np.zeros((0, bank.capability_vectors.shape[1]), np.float32)]
    for start in range(0, len(texts), rows):
        chunk = texts[start : start + rows]
        vectors = bank.cache.rows([text for some in chunk for text in some]).astype(np.float64)
        counts = np.array([len(some) for some in chunk])
        sums = np.add.reduceat(vectors, np.cumsum(counts) - counts, axis=0)
        parts.append(unit_rows(sums / counts[:, None]))
    return np.concatenate(parts)


def _by_part(pairs: Pairs, corpus: Corpus) -> Iterator[tuple[Part, NDArray[np.int64]]]:
    """Per dataset the positions of the pairs within it, ascending by task."""
    part_of = corpus.task_part[pairs.task]
    same = part_of == corpus.capability_part[pairs.capability]
    for number, part in enumerate(corpus.parts):
        at = np.flatnonzero(same & (part_of == number))
        if at.size:
            yield part, at[np.argsort(pairs.task[at], kind="stable")]

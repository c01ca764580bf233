"""Requirements of tasks as arrays: texts, vectors, spans and the types they offer (tact.md sections 3.1 and 3.3).

Read from the task text alone, so they are the same for every candidate, view and fold [G].
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from toolshift.data.records import COARSE_TYPES
from toolshift.models.features import FeatureBank, requirement_spans
from toolshift.models.tact.assignment import REQUIREMENTS
from toolshift.text.lexical import tokens
from toolshift.text.requirements import longest, merge_similar, requirements
from toolshift.text.spans import detected_types
from toolshift.views.corpus import Rows

MERGE_COSINE = 0.9
"""Clauses at least this similar say the same thing (tact.md section 3.1, step 5)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRequirements:
    """Requirements of t tasks, r in all, with s spans.

    offsets: (t+1,). texts: r. vectors: (r, d). types: (r, len(COARSE_TYPES)) whether a value of the type is offered.
    weights: (r,) mean rarity of a requirement's words in the library's operations, 1 on average over a task.
    span_offsets: (r+1,). spans: (s, d) vectors; every requirement has at least one span, itself.
    """

    offsets: Rows
    texts: tuple[str, ...]
    vectors: NDArray[np.float32]
    types: NDArray[np.bool_]
    weights: NDArray[np.float32]
    span_offsets: Rows
    spans: NDArray[np.float32]

    def of(self, place: int) -> TaskRequirements:
        """Those of one task."""
        first, last = self.offsets[place], self.offsets[place + 1]
        begin, end = self.span_offsets[first], self.span_offsets[last]
        return TaskRequirements(
            offsets=np.array([0, last - first]),
            texts=self.texts[first:last],
            vectors=self.vectors[first:last],
            types=self.types[first:last],
            weights=self.weights[first:last],
            span_offsets=self.span_offsets[first : last + 1] - begin,
            spans=self.spans[begin:end],
        )


def requirement_texts(texts: Sequence[str], *, bank: FeatureBank) -> list[tuple[str, ...]]:
    """At most four requirements per task text, near-duplicates by meaning merged.

    Clauses are merged by words first, then by cosine, and only then cut to four, so that a repeated clause does not
    cost another one its place.
    """
    clauses = [_clauses_of(text) for text in texts]
    vectors = bank.cache.rows([clause for group in clauses for clause in group])
    starts = np.cumsum([0, *map(len, clauses)])
    found = []
    for group, begin in zip(clauses, starts[:-1], strict=True):
        kept = merge_similar(group, vectors[begin : begin + len(group)], cosine=MERGE_COSINE)
        found.append(longest([group[i] for i in kept], limit=REQUIREMENTS))
    return found


def task_requirements(groups: Sequence[tuple[str, ...]], *, bank: FeatureBank) -> TaskRequirements:
    """Arrays of the requirements (`requirement_texts`) of some tasks."""
    texts = tuple(text for group in groups for text in group)
    spans = [spans_of(text) for text in texts]
    detected = [_types_of(text) for text in texts]
    rarity = [word_rarity(text, bank=bank) for text in texts]
    return TaskRequirements(
        offsets=np.cumsum([0, *map(len, groups)]),
        texts=texts,
        vectors=bank.cache.rows(texts),
        types=np.array([[kind in found for kind in COARSE_TYPES] for found in detected], bool).reshape(len(texts), -1),
        weights=_relative(np.array(rarity), np.cumsum([0, *map(len, groups)])),
        span_offsets=np.cumsum([0, *map(len, spans)]),
        spans=bank.cache.rows([span for group in spans for span in group]),
    )


def word_rarity(text: str, *, bank: FeatureBank) -> float:
    """Mean inverse document frequency of the distinct words of a text that some operation of the library has; 0 if it
    has none of them."""
    operations = bank.corpus.operations
    known = sorted({operations.vocabulary[word] for word in tokens(text) if word in operations.vocabulary})
    return float(operations.idf[known].mean(dtype=np.float64)) if known else 0.0


def _relative(values: NDArray[np.float64], offsets: Rows) -> NDArray[np.float32]:
    """(r,) values divided by their mean inside each group; 1 where all are 0."""
    count = np.diff(offsets)
    total = np.add.reduceat(values, offsets[:-1]) if values.size else values
    mean = np.repeat(total / np.maximum(count, 1), count)
    return np.where(mean > 0, values / np.where(mean > 0, mean, 1.0), 1.0).astype(np.float32)


@lru_cache(maxsize=131_072)
def _clauses_of(text: str) -> tuple[str, ...]:
    return requirements(text, limit=4 * REQUIREMENTS)


@lru_cache(maxsize=131_072)
def spans_of(text: str) -> tuple[str, ...]:
    """Spans of a requirement, found once per text: every fold asks for most of them again."""
    return requirement_spans(text)


@lru_cache(maxsize=131_072)
def _types_of(text: str) -> frozenset[str]:
    return detected_types(text)

"""What a target and other datasets have in common: repeated requests and repeated tools, by how they are found.

Reads texts and their vectors, never a label. Inside one dataset nothing is compared: there the purge is the rule.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from toolshift.protocols.purge import normalise
from toolshift.views.corpus import Corpus, Rows

Mask = NDArray[np.bool_]
Level = Literal["exact", "normalised", "near"]
LEVELS: tuple[Level, ...] = ("exact", "normalised", "near")
"""The same text; the same words; the same words or a cosine of at least the threshold. Each contains the one before."""
_CHUNK = 2048


@dataclass(frozen=True, kw_only=True)
class Repeats:
    """Marked rows on both sides of a target: (n,) tasks and (m,) capabilities."""

    source_tasks: Mask
    target_tasks: Mask
    source_capabilities: Mask
    target_capabilities: Mask


@dataclass(frozen=True)
class Leakage:
    """Comparisons of one corpus. task_vectors: (n, d), capability_vectors: (m, d) unit rows. at_least: cosine."""

    corpus: Corpus
    task_vectors: NDArray[np.float32]
    capability_vectors: NDArray[np.float32]
    at_least: float

    def of(self, target: Rows, *, level: Level) -> Repeats:
        """What the target tasks, and the libraries of their datasets, share with the other datasets."""
        corpus = self.corpus
        own = np.isin(np.arange(len(corpus.parts)), corpus.task_part[target])
        held_out = np.zeros(corpus.n_tasks, bool)
        held_out[target] = True
        tasks = self._repeats(
            corpus.task_texts,
            self._task_words,
            self.task_vectors,
            level,
            target=held_out,
            source=~own[corpus.task_part],
        )
        library = own[corpus.capability_part]
        tools = self._repeats(
            corpus.capability_texts,
            self._capability_words,
            self.capability_vectors,
            level,
            target=library,
            source=~library,
        )
        return Repeats(
            source_tasks=tasks[0],
            target_tasks=tasks[1],
            source_capabilities=tools[0],
            target_capabilities=tools[1],
        )

    def rows(self, target: Rows) -> Iterator[tuple[str, Level, str, int, int]]:
        """(what, level, side, repeated, of how many) of one target."""
        corpus = self.corpus
        own = np.isin(np.arange(len(corpus.parts)), corpus.task_part[target])
        sizes = {
            ("tasks", "source"): int((~own[corpus.task_part]).sum()),
            ("tasks", "target"): int(target.size),
            ("tools", "source"): int((~own[corpus.capability_part]).sum()),
            ("tools", "target"): int(own[corpus.capability_part].sum()),
        }
        for level in LEVELS:
            found = self.of(target, level=level)
            marked = {
                ("tasks", "source"): found.source_tasks,
                ("tasks", "target"): found.target_tasks,
                ("tools", "source"): found.source_capabilities,
                ("tools", "target"): found.target_capabilities,
            }
            for (what, side), mask in marked.items():
                yield what, level, side, int(mask.sum()), sizes[what, side]

    @cached_property
    def _task_words(self) -> tuple[str, ...]:
        return tuple(normalise(text) for text in self.corpus.task_texts)

    @cached_property
    def _capability_words(self) -> tuple[str, ...]:
        return tuple(normalise(text) for text in self.corpus.capability_texts)

    def _repeats(
        self,
        texts: Sequence[str],
        words: Sequence[str],
        vectors: NDArray[np.float32],
        level: Level,
        *,
        target: Mask,
        source: Mask,
    ) -> tuple[Mask, Mask]:
        """Masks of the source and of the target rows that have an equal on the other side; an empty text has none."""
        if not source.any():
            return np.zeros(source.size, bool), np.zeros(target.size, bool)
        found = _equal(texts if level == "exact" else words, target=target, source=source)
        if level != "near":
            return found
        near = _near(vectors, target=np.flatnonzero(target), source=np.flatnonzero(source), at_least=self.at_least)
        return found[0] | near[0], found[1] | near[1]


def _equal(keys: Sequence[str], *, target: Mask, source: Mask) -> tuple[Mask, Mask]:
    there = {k for k, inside in zip(keys, target, strict=True) if inside}
    there &= {k for k, inside in zip(keys, source, strict=True) if inside}
    common = np.fromiter((key in there and bool(key) for key in keys), bool, len(keys))
    return common & source, common & target


def _near(vectors: NDArray[np.float32], *, target: Rows, source: Rows, at_least: float) -> tuple[Mask, Mask]:
    marks = np.zeros(vectors.shape[0], bool), np.zeros(vectors.shape[0], bool)
    right = np.asarray(vectors[target])
    for start in range(0, source.size, _CHUNK):
        rows = source[start : start + _CHUNK]
        close = np.asarray(vectors[rows]) @ right.T >= at_least
        marks[0][rows] |= close.any(axis=1)
        marks[1][target] |= close.any(axis=0)
    return marks

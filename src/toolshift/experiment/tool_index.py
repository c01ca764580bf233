"""Somebody's tools, ready to be ranked: texts embedded once and kept on disk, scores for requests as they come.

Semantic Cosine is one product of a matrix. Every other method gets the corpus and the pair features that experiments
have, with the requests as tasks; the library's side is made once, the requests' side never touches the disk.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from toolshift.data.records import Capability, Endpoint, Library
from toolshift.experiment.method import Method, aligned_vectors, moved, source_rows
from toolshift.models.features import FeatureBank, Pairs, on_grid
from toolshift.models.frozen.semantic_cosine import SemanticCosine
from toolshift.text.cache import EmbeddingCache
from toolshift.text.lexical import Bm25
from toolshift.text.spans import identifier_words
from toolshift.views.corpus import Corpus, Part
from toolshift.views.schema import operation_table

if TYPE_CHECKING:
    from toolshift.models.base import Scorer

_CHUNK_PAIRS = 100_000


class TextMemory:
    """Vectors in memory: those of the library by way of the cache on disk, those of requests for one answer only.

    It stands in for `EmbeddingCache` where features are made; a request must not leave files behind.
    """

    def __init__(self, disk: EmbeddingCache) -> None:
        self.disk, self.encoder = disk, disk.encoder
        self._place: dict[str, int] = {}
        self._kept = np.zeros((0, disk.encoder.dim), np.float32)
        self._passing: dict[str, NDArray[np.float32]] = {}

    def keep(self, texts: Sequence[str]) -> None:
        """Have the vectors of texts of the library."""
        new = sorted({text for text in texts if text not in self._place})
        if not new:
            return
        self._place |= {text: len(self._kept) + i for i, text in enumerate(new)}
        self._kept = np.concatenate([self._kept, self.disk.rows(new)])

    def queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """(n, d) unit rows of requests."""
        return self.encoder.encode(texts)

    def ensure(self, texts: Sequence[str]) -> None:
        """Encode what is in neither memory."""
        new = sorted({text for text in texts if text not in self._place and text not in self._passing})
        if new:
            self._passing |= dict(zip(new, self.encoder.encode(new), strict=True))

    def rows(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """(n, d) unit rows."""
        self.ensure(texts)
        place = np.array([self._place.get(text, -1) for text in texts], np.int64)
        found = np.zeros((len(texts), self.encoder.dim), np.float32)
        found[place >= 0] = self._kept[place[place >= 0]]
        for i in np.flatnonzero(place < 0).tolist():
            found[i] = self._passing[texts[i]]
        return found

    def forget(self) -> None:
        """Let go of the vectors of the last requests."""
        self._passing.clear()


@dataclass(frozen=True)
class ToolIndex:
    """A library under a method. Nothing in it changes: adding and removing give another one that shares the texts."""

    method: Method
    library: Library
    texts: TextMemory

    @staticmethod
    def of(library: Library, method: Method, *, cache: Path) -> ToolIndex:
        """Embed what the method reads of the library, where the cache on disk does not have it."""
        disk = EmbeddingCache(cache / "embeddings", method.encoder, max_truncated_share=method.max_truncated_share)
        index = ToolIndex(method, library, TextMemory(disk))
        index.texts.keep(index._read(library))
        return index

    def extended(self, more: Library) -> ToolIndex:
        """With more tools; ids must be new."""
        self.texts.keep(self._read(more))
        return replace(
            self,
            library=Library(
                tuple(sorted((*self.library.capabilities, *more.capabilities), key=lambda c: c.capability_id)),
                tuple(sorted((*self.library.endpoints, *more.endpoints), key=lambda e: e.endpoint_id)),
            ),
        )

    def without(self, ids: Sequence[str]) -> ToolIndex:
        """With fewer tools."""
        gone = set(ids)
        return replace(
            self,
            library=Library(
                tuple(c for c in self.library.capabilities if c.capability_id not in gone),
                tuple(e for e in self.library.endpoints if e.capability_id not in gone),
            ),
        )

    @property
    def is_plain(self) -> bool:
        """Whether a score is the cosine of two texts."""
        scorer: Any = self.method.scorer
        return isinstance(scorer, SemanticCosine) and scorer.space == "raw"

    def scores(self, queries: Sequence[str]) -> Iterator[NDArray[np.float64]]:
        """(n,) scores of all tools, by id, for one request after another."""
        if self.is_plain:
            for query in queries:
                yield on_grid(self._vectors @ self.texts.queries([query])[0]).astype(np.float64)
            return
        count = len(self.library.capabilities)
        step = max(_CHUNK_PAIRS // max(count, 1), 1)
        for start in range(0, len(queries), step):
            part = queries[start : start + step]
            bank = self.bank(part)
            pairs = Pairs(task=np.repeat(np.arange(len(part)), count), capability=np.tile(np.arange(count), len(part)))
            yield from self.scorer.score(pairs, bank=bank, seed=self.method.seed).reshape(len(part), count)

    @cached_property
    def scorer(self) -> Scorer:
        """The method's scorer over this library."""
        path, sources = self.method.path, self.method.sources
        if path is None or sources is None:
            return self.method.scorer
        here = {c: i for i, c in enumerate(self._corpus.capability_ids)}
        row_of = {i: here[c.capability_id] for i, c in enumerate(sources.capabilities) if c.capability_id in here}
        return moved(path, row_of)

    def bank(self, queries: Sequence[str]) -> FeatureBank:
        """Features of the tools for some requests; tools are the first rows."""
        self.texts.forget()
        corpus = _with_tasks(self._corpus, queries)
        tasks = self.texts.queries(queries)
        sources = self.method.sources
        both = None
        if sources is not None and sources.mean is not None:
            both = aligned_vectors(tasks, self._corpus_vectors, sources=sources, corpus=corpus)
        return FeatureBank(
            corpus=corpus,
            cache=cast("EmbeddingCache", self.texts),
            task_vectors=tasks,
            capability_vectors=self._corpus_vectors,
            bm25_index=self._bm25,
            _aligned=both,
        )

    def _read(self, library: Library) -> list[str]:
        """Texts of a library that the method compares with requests."""
        texts = [c.text for c in library.capabilities]
        if self.is_plain:
            return texts
        names = {identifier_words(a.name) or a.name for e in library.endpoints for a in e.required_arguments}
        return [*texts, *(e.text for e in library.endpoints), *sorted(names), *(c.text for c in self._sources)]

    @cached_property
    def _sources(self) -> tuple[Capability, ...]:
        """Capabilities of the run that tools are compared with, beside the tools."""
        path, sources = self.method.path, self.method.sources
        if path is None or sources is None:
            return ()
        known = self.library.position
        found = (sources.capabilities[row] for row in source_rows(path))
        return tuple(c for c in found if c.capability_id not in known)

    @cached_property
    def _vectors(self) -> NDArray[np.float32]:
        return self.texts.rows([c.text for c in self.library.capabilities])

    @cached_property
    def _corpus(self) -> Corpus:
        return _corpus_of(self.library, self._sources)

    @cached_property
    def _corpus_vectors(self) -> NDArray[np.float32]:
        return self.texts.rows(self._corpus.capability_texts)

    @cached_property
    def _lexical(self) -> dict[tuple[float, float, str], Bm25]:
        return {}

    def _bm25(self, k1: float, b: float, part: Part) -> Bm25:
        key = (k1, b, part.name)
        if key not in self._lexical:
            self._lexical[key] = Bm25(self._corpus.capability_texts[part.capabilities], k1=k1, b=b)
        return self._lexical[key]


def _corpus_of(library: Library, sources: Sequence[Capability]) -> Corpus:
    """Tools first, as one dataset; then the capabilities that were used in the sources, without their operations."""
    capabilities = (*library.capabilities, *sorted(sources, key=lambda c: (f"{c.dataset}/", c.capability_id)))
    endpoints: list[Endpoint] = [e for c in library.capabilities for e in library.endpoints_of[c.capability_id]]
    counts = [len(library.endpoints_of.get(c.capability_id, ())) for c in capabilities]
    domains = tuple(sorted({c.domain for c in capabilities} - {""}))
    code = {name: i for i, name in enumerate(domains)} | {"": -1}
    own, start = len(library.capabilities), len(library.capabilities)
    parts = [Part(name="", tasks=slice(0, 0), capabilities=slice(0, own))]
    for name, group in groupby(capabilities[own:], key=lambda c: c.dataset):
        stop = start + len(list(group))
        parts.append(Part(name=name, tasks=slice(0, 0), capabilities=slice(start, stop)))
        start = stop
    return Corpus(
        dataset="tools",
        parts=tuple(parts),
        task_ids=(),
        task_texts=(),
        task_splits=(),
        capability_ids=tuple(c.capability_id for c in capabilities),
        capability_texts=tuple(c.text for c in capabilities),
        endpoints=tuple(endpoints),
        endpoint_offsets=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        domains=domains,
        task_domain=np.zeros(0, np.int64),
        capability_domain=np.array([code[c.domain] for c in capabilities], np.int64),
        partial_schema=np.array([c.partial_schema for c in capabilities], bool),
        operations=operation_table(endpoints),
    )


def _with_tasks(corpus: Corpus, queries: Sequence[str]) -> Corpus:
    """The corpus with requests as tasks of the tools' own dataset."""
    count = len(queries)
    first, *others = corpus.parts
    after = slice(count, count)
    return replace(
        corpus,
        parts=(replace(first, tasks=slice(0, count)), *(replace(part, tasks=after) for part in others)),
        task_ids=tuple(f"tools/{hashlib.sha256(q.encode('utf-8', 'replace')).hexdigest()[:16]}" for q in queries),
        task_texts=tuple(queries),
        task_splits=("",) * count,
        task_domain=np.full(count, -1, np.int64),
    )

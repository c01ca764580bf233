"""Pairs, sources and an encoder with vectors written out by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from toolshift.models.base import Source
from toolshift.models.features import FeatureBank, Pairs
from toolshift.text.encoder import Vectors, unit_rows
from toolshift.text.lexical import Bm25
from toolshift.views.corpus import Corpus, build_corpus
from toolshift.views.manifest import Manifest


class TableEncoder:
    """Vectors of known texts; any other text gets the last axis."""

    def __init__(self, vectors: Mapping[str, Sequence[float]], *, dim: int) -> None:
        self.vectors, self.dim = vectors, dim + 1

    def encode(self, texts: Sequence[str]) -> Vectors:
        other = [0.0] * (self.dim - 1) + [1.0]
        rows = [[*self.vectors[t], 0.0] if t in self.vectors else other for t in texts]
        return unit_rows(np.array(rows, np.float64).reshape(len(texts), self.dim))


@dataclass(frozen=True)
class Make:
    """Builders, handed to tests as one fixture."""

    worlds: Any

    def bank(self, corpus: Corpus, vectors: Mapping[str, Sequence[float]]) -> FeatureBank:
        """A bank in which ``vectors`` gives the (2-d or 3-d) directions of texts."""
        encoder = TableEncoder(vectors, dim=len(next(iter(vectors.values()))))
        return FeatureBank(
            corpus=corpus,
            cache=self.worlds.MemoryCache(encoder),
            task_vectors=encoder.encode(corpus.task_texts),
            capability_vectors=encoder.encode(corpus.capability_texts),
            bm25_index=lambda k1, b, part: Bm25(corpus.capability_texts, k1=k1, b=b),
        )

    @staticmethod
    def all_pairs(corpus: Corpus) -> Pairs:
        task, capability = np.divmod(np.arange(corpus.n_tasks * corpus.n_capabilities), corpus.n_capabilities)
        return Pairs(task=task, capability=capability)

    @staticmethod
    def manifest(lists: Mapping[int, tuple[Sequence[int], Sequence[int]]], *, view: str = "v") -> Manifest:
        """task row -> (positive rows, ordinary rows)."""
        rows = [(t, c, role) for t, both in lists.items() for role, some in enumerate(both) for c in some]
        task, capability, role = np.array(sorted(rows), np.int64).reshape(-1, 3).T
        tasks, lengths = np.unique(task, return_counts=True)
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        miner = np.zeros(task.size, np.uint8)
        role = role.astype(np.int8)
        return Manifest(
            view=view, tasks=tasks, offsets=offsets, capability=capability, role=role, miner=miner, skipped={}
        )

    @staticmethod
    def source(world: Any, rules: Any, *, target: str) -> Source:
        """The sources of a held-out domain, without a purge, as an experiment makes them."""
        corpus = world.corpus
        rows = np.flatnonzero(corpus.task_domain != corpus.domains.index(target))
        context_of = np.full(corpus.n_tasks, -1, np.int64)
        context_of[rows] = corpus.task_domain[rows]
        return Source(
            target=target,
            fold=world.fold(rules, rows=rows),
            held_out=(target,),
            contexts=tuple(d for d in corpus.domains if d != target),
            context_names=corpus.domains,
            context_of=context_of,
            build=world.manifests,
        )

    @staticmethod
    def fixed_source(manifests: Mapping[str, Manifest], corpus: Corpus) -> Source:
        """A source with given lists; every task is its own context."""

        def build(_: Any) -> Mapping[str, Manifest]:
            return manifests

        context_of = np.arange(corpus.n_tasks)
        contexts = tuple(corpus.task_ids)
        fold: Any = type("NoFold", (), {"corpus": corpus})()
        return Source(
            target="T",
            held_out=(),
            fold=fold,
            contexts=contexts,
            context_names=contexts,
            context_of=context_of,
            build=build,
        )


@pytest.fixture(scope="session")
def make(worlds: Any) -> Make:
    return Make(worlds)


@pytest.fixture
def grid(worlds: Any) -> Corpus:
    """Three tasks and four tools without endpoints; texts are their names."""
    tools = [worlds.Tool(n, "A", ()) for n in ("apple", "berry", "cedar", "dates")]
    asks = [worlds.Ask(n, "A", f"task {n}", (("apple",),)) for n in ("t0", "t1", "t2")]
    return build_corpus(worlds.records(tools, asks))[0]

"""Trajectories of a study as arrays: one library, its tools' vectors and labels, the queries and what they call."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from toolshift.data.records import Endpoint, Library, Task
from toolshift.data.sample import Spec
from toolshift.data.trajectories import Rules, Trajectories, read_trajectories
from toolshift.data.trajectories.sample import write_sample_trajectories
from toolshift.experiment.data import open_dataset
from toolshift.experiment.workspace import build_encoder
from toolshift.models.skillgraph.retrieval import Texts
from toolshift.models.skillgraph.sequences import Sequences, sequences_of
from toolshift.protocols.trajectory_split import components
from toolshift.runs.files import stable_hash
from toolshift.runs.seeds import id_hashes
from toolshift.settings.options import load_dataset
from toolshift.settings.schema import Settings
from toolshift.text.cache import EmbeddingCache

log = logging.getLogger("toolshift")

Vectors = NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class Tools:
    """The n endpoints of a library as tools, in its order. vectors: (n, d) unit rows of their public texts."""

    ids: tuple[str, ...]
    names: tuple[str, ...]
    descriptions: tuple[str, ...]
    texts: tuple[str, ...]
    categories: tuple[str, ...]
    parents: tuple[str, ...]
    vectors: Vectors

    @staticmethod
    def of(library: Library, *, cache: EmbeddingCache) -> Tools:
        """Categories are domains of capabilities, parents the capabilities."""
        owner = {c.capability_id: c for c in library.capabilities}
        texts = tuple(_text(e, owner[e.capability_id].text) for e in library.endpoints)
        cache.ensure(texts)
        return Tools(
            ids=tuple(e.endpoint_id for e in library.endpoints),
            names=tuple(f"{e.operation} for {owner[e.capability_id].name}" for e in library.endpoints),
            descriptions=tuple(e.description for e in library.endpoints),
            texts=texts,
            categories=tuple(owner[e.capability_id].domain for e in library.endpoints),
            parents=tuple(e.capability_id for e in library.endpoints),
            vectors=cache.rows(texts),
        )

    @cached_property
    def row(self) -> Mapping[str, int]:
        """Tool row of an id."""
        return {tool: i for i, tool in enumerate(self.ids)}


def _text(endpoint: Endpoint, capability: str) -> str:
    return endpoint.text or capability or endpoint.operation


@dataclass(frozen=True, kw_only=True)
class Bench:
    """The trajectories of one dataset under one set of rules.

    vectors: (n, d) unit rows of the queries. sequences: n sequences of tool rows. group: (n,) queries of one text are
    one group; they are not independent.
    """

    dataset: str
    tasks: tuple[Task, ...]
    origin: tuple[str, ...]
    tools: Tools
    vectors: Vectors
    sequences: Sequences
    group: NDArray[np.int64]
    counts: pd.DataFrame

    @property
    def ids(self) -> tuple[str, ...]:
        """(n,) trajectory ids."""
        return tuple(task.task_id for task in self.tasks)

    def texts(self, rows: NDArray[np.int64], *, words: bool) -> Texts:
        """Words for BM25: the public texts, or the authors' document of name and description (``words`` false)."""
        queries = [self.tasks[row].text for row in rows.tolist()]
        if words:
            return Texts(queries=queries, tools=self.tools.texts)
        pairs = zip(self.tools.names, self.tools.descriptions, strict=True)
        return Texts(queries=queries, tools=[f"{name.replace('_', ' ')} {text}".strip() for name, text in pairs])


@dataclass(kw_only=True)
class TrajectoryData:
    """Reads trajectories of the configured data; each dataset's library is opened and embedded once.

    sources: names of ``data.trajectories``, of one dataset or several.
    """

    settings: Settings
    sources: Sequence[str]

    @property
    def datasets(self) -> tuple[str, ...]:
        """Names of the datasets, sorted."""
        return tuple(sorted({name.partition("/")[0] for name in self.sources}))

    @cached_property
    def cache(self) -> EmbeddingCache:
        """Vectors of texts under the configured encoder."""
        settings = self.settings
        root = Path(settings.data.cache) / "embeddings"
        return EmbeddingCache(root, build_encoder(settings), max_truncated_share=settings.encoder.max_truncated_share)

    def read(self, dataset: str, *, rules: Rules) -> Trajectories:
        """The trajectories of one dataset, cut down by ``debug.max_tasks``."""
        own = [name for name in self.sources if name.startswith(f"{dataset}/")]
        loaded = open_dataset(self.settings, load_dataset(dataset))
        found = read_trajectories(self._root(), names=own, rules=rules, records={dataset: loaded.records})
        return _limited(found, self.settings.debug.max_tasks)

    def bench(self, dataset: str, *, rules: Rules) -> Bench:
        """Arrays of one dataset."""
        found = self.read(dataset, rules=rules)
        tools = self._tools(found.library)
        queries = [task.text for task in found.tasks]
        self.cache.ensure(queries)
        calls = [[tools.row[call] for call in task.calls] for task in found.tasks]
        return Bench(
            dataset=dataset,
            tasks=found.tasks,
            origin=found.origin,
            tools=tools,
            vectors=self.cache.rows(queries),
            sequences=sequences_of(calls, n_tools=len(tools.ids)),
            group=components([[" ".join(text.casefold().split())] for text in queries]),
            counts=source_counts(found),
        )

    def _tools(self, library: Library) -> Tools:
        return Tools.of(library, cache=self.cache)

    def _root(self) -> Path:
        data = self.settings.data
        if data.source == "real":
            assert data.root is not None  # the settings refuse real data without a root
            return Path(data.root)
        spec = Spec(world=data.world, size=data.sample_size, seed=data.sample_seed)
        return write_sample_trajectories(Path(data.cache) / "sample", spec).root


def fingerprint(found: Trajectories) -> str:
    """Hash of texts, calls and tools."""
    tasks = [(task.task_id, task.text, task.calls) for task in found.tasks]
    return stable_hash([tasks, [(e.endpoint_id, e.text) for e in found.library.endpoints]])


def source_counts(found: Trajectories) -> pd.DataFrame:
    """What was read and what became of it; columns source, kind (trajectories, calls), outcome, count."""
    rows: list[tuple[str, str, str, int]] = []
    kept = Counter(found.origin)
    for name, section in sorted(found.report.sections.items()):
        source, _, kind = name.rpartition(":")
        rows.append((source, kind, "read", section.rows_read))
        rows.append((source, kind, "kept", section.records))
        rows += [(source, kind, f"dropped: {why}", count) for why, count in sorted(section.dropped.items())]
    rows += [(source, "trajectories", "used", count) for source, count in sorted(kept.items())]
    return pd.DataFrame(rows, columns=pd.Index(["source", "kind", "outcome", "count"]))


def _limited(found: Trajectories, count: int | None) -> Trajectories:
    """At most ``count`` trajectories, those with the smallest id hash."""
    if count is None or len(found) <= count:
        return found
    keep = np.sort(np.argsort(id_hashes(task.task_id for task in found.tasks), kind="stable")[:count]).tolist()
    return replace(found, tasks=tuple(found.tasks[i] for i in keep), origin=tuple(found.origin[i] for i in keep))

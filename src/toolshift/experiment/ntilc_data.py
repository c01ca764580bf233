"""What the NTILC studies read: registries of tools with their queries, blur pairs, and the two splits.

A tool is an endpoint; a query is a task with gold endpoints, in its own words (no generated intents). Nothing here is
trained: vectors are those of the frozen encoder.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from toolshift.data.records import Library, Task
from toolshift.data.store import LoadedRecords
from toolshift.experiment.data import open_dataset, refuse_unscorable
from toolshift.experiment.workspace import build_encoder
from toolshift.models.ntilc.blur import BlurPairs, blur_pairs, theta_of_count
from toolshift.models.ntilc.encoder import text_codes
from toolshift.models.ntilc.signature import CodeCompat, Compat, Rows, Signatures, render_tool
from toolshift.models.ntilc.training import Examples
from toolshift.protocols.purge import normalise
from toolshift.protocols.trajectory_split import components
from toolshift.runs.seeds import U64, id_hashes, keyed_hash, seed_of
from toolshift.settings.errors import UserError
from toolshift.settings.options import load_dataset
from toolshift.settings.schema import Settings
from toolshift.text.cache import EmbeddingCache
from toolshift.text.encoder import Vectors
from toolshift.views.roles import packed_rows

log = logging.getLogger("toolshift")

Bools = NDArray[np.bool_]
Way = Literal["query", "tool"]
WAYS: tuple[Way, ...] = get_args(Way)
JOINT = "joint"
"""The registry that holds the tools of all datasets at once."""
# Where fewer pairs than the paper prints are found, they are looked for again under these.
_LOOSER = (0.5, 0.25, 0.05)


@dataclass(frozen=True, kw_only=True)
class Registry:
    """The n tools of one dataset, or of several, and the q queries over them.

    texts: n renderings; code: (n,) equal for equal ones. tool_vectors: (n, d), query_vectors: (q, d), unit rows of the
    frozen encoder. offsets: (q+1,) into gold: tool rows, ascending within a query. group: (q,) code of the normalised
    text. read: tasks before the cap; without_gold: those of them that name no endpoint.
    """

    name: str
    library: Library
    tasks: tuple[Task, ...]
    texts: tuple[str, ...]
    code: Rows
    tool_vectors: Vectors
    query_vectors: Vectors
    offsets: Rows
    gold: Rows
    group: Rows
    compat: Compat
    read: int
    without_gold: int

    @cached_property
    def ids(self) -> tuple[str, ...]:
        """(q,) task ids."""
        return tuple(task.task_id for task in self.tasks)

    @cached_property
    def hashes(self) -> U64:
        """(q,) hashes of the task ids."""
        return id_hashes(self.ids)

    @property
    def n_tools(self) -> int:
        """Number of tools."""
        return len(self.texts)

    def gold_of(self, rows: Rows) -> tuple[Rows, Rows]:
        """(g,) gold tools of some queries and (g,) the position of each one's query in ``rows``."""
        index, _ = packed_rows(self.offsets, rows)
        return self.gold[index], np.repeat(np.arange(rows.size), np.diff(self.offsets)[rows])

    def names(self, tools: Sequence[int]) -> str:
        """Endpoint ids as one text."""
        return " ".join(self.library.endpoints[tool].endpoint_id for tool in tools)

    def examples(self, rows: Rows) -> Examples:
        """Queries to learn from."""
        gold = [self.gold[self.offsets[row] : self.offsets[row + 1]].tolist() for row in rows.tolist()]
        return Examples.of(gold, hashes=self.hashes[rows], query=rows)


@dataclass(frozen=True, kw_only=True)
class Split:
    """Query rows of both sides, ascending. held_out: (n,) tools that no training query has as gold by design. novel:
    (t,) whether all gold tools of a test query are held out. dropped: queries of neither side."""

    way: Way
    train: Rows
    test: Rows
    held_out: Bools
    novel: Bools
    dropped: int


@dataclass(kw_only=True)
class DispatchData:
    """Reads registries of the configured data. cap: queries of one dataset, those with the smallest id hash."""

    settings: Settings
    datasets: Sequence[str]
    cap: int | None = None
    compat: str = "signature"

    @cached_property
    def cache(self) -> EmbeddingCache:
        """Vectors of texts under the configured encoder."""
        settings = self.settings
        root = Path(settings.data.cache) / "embeddings"
        return EmbeddingCache(root, build_encoder(settings), max_truncated_share=settings.encoder.max_truncated_share)

    @cached_property
    def loaded(self) -> Mapping[str, LoadedRecords]:
        """Records by dataset, sorted by name."""
        found = {name: open_dataset(self.settings, load_dataset(name)) for name in sorted(set(self.datasets))}
        for one in found.values():
            refuse_unscorable(one)
        return found

    def inputs(self) -> Mapping[str, str]:
        """Fingerprints of the records and the encoder."""
        records = {name: one.fingerprint for name, one in self.loaded.items()}
        return {**records, "encoder": self.cache.encoder.fingerprint}

    def registry(self, name: str) -> Registry:
        """The registry of a dataset, or `JOINT`: one of all datasets.

        Raises:
            UserError: if no query has a gold endpoint.
        """
        names = list(self.loaded) if name == JOINT else [name]
        records = [self.loaded[one].records for one in names]
        library = Library(
            tuple(c for one in records for c in one.library.capabilities),
            tuple(e for one in records for e in one.library.endpoints),
        )
        kept = [limited([t for t in one.tasks if t.gold_endpoint_ids], self._cap) for one in records]
        tasks = tuple(task for some in kept for task in some)
        if not tasks or not library.endpoints:
            raise UserError(f"{name}: no query names a gold endpoint, so that nothing can be dispatched")
        return self._registry(
            name,
            library,
            tasks,
            read=sum(len(one.tasks) for one in records),
            without_gold=sum(not t.gold_endpoint_ids for one in records for t in one.tasks),
        )

    @property
    def _cap(self) -> int | None:
        limits = [limit for limit in (self.cap, self.settings.debug.max_tasks) if limit is not None]
        return min(limits, default=None)

    def _registry(
        self, name: str, library: Library, tasks: tuple[Task, ...], *, read: int, without_gold: int
    ) -> Registry:
        owner = library.position
        texts = tuple(render_tool(e, library.capabilities[owner[e.capability_id]]) for e in library.endpoints)
        queries = [task.text for task in tasks]
        self.cache.ensure([*texts, *queries])
        row = {endpoint.endpoint_id: i for i, endpoint in enumerate(library.endpoints)}
        gold = [sorted(row[e] for e in task.gold_endpoint_ids) for task in tasks]
        return Registry(
            name=name,
            library=library,
            tasks=tasks,
            texts=texts,
            code=text_codes(texts),
            tool_vectors=self.cache.rows(texts),
            query_vectors=self.cache.rows(queries),
            offsets=np.concatenate([[0], np.cumsum([len(some) for some in gold])]).astype(np.int64),
            gold=np.array([tool for some in gold for tool in some], np.int64),
            group=components([[normalise(text) or text] for text in queries]),
            compat=Signatures.of(library) if self.compat == "signature" else CodeCompat.of(library),
            read=read,
            without_gold=without_gold,
        )


def limited(tasks: Sequence[Task], count: int | None) -> list[Task]:
    """At most ``count`` tasks, those with the smallest id hash, in the given order."""
    if count is None or len(tasks) <= count:
        return list(tasks)
    keep = np.sort(np.argsort(id_hashes(task.task_id for task in tasks), kind="stable")[:count])
    return [tasks[i] for i in keep.tolist()]


# --- splits -----------------------------------------------------------------------------------------------------------


def split_queries(registry: Registry, *, share: float, seed: int) -> Split:
    """``share`` of the query texts is tested: equal texts stay together, strata are their first gold tools.

    Texts are lined up stratum by stratum, strata and the texts in them by keyed hash, and every 1/share-th is taken;
    so a tool gives about its share, and tools with one query are not left out of the test part.
    """
    first = registry.gold[registry.offsets[:-1]]
    _, start = np.unique(registry.group, return_index=True)
    own = id_hashes([normalise(registry.tasks[row].text) or registry.tasks[row].text for row in start.tolist()])
    stratum = first[start]
    of_stratum = id_hashes([registry.library.endpoints[tool].endpoint_id for tool in stratum.tolist()])
    salt = seed_of("ntilc query split", seed)
    order = np.lexsort((keyed_hash(salt, own, own), stratum, keyed_hash(salt, of_stratum, of_stratum)))
    steps = np.floor(share * np.arange(1, order.size + 1) + 1e-9)
    tested = np.zeros(order.size, bool)
    tested[order] = np.diff(steps, prepend=0.0) > 0
    test = tested[registry.group]
    nothing = np.zeros(registry.n_tools, bool)
    return Split(
        way="query",
        train=np.flatnonzero(~test),
        test=np.flatnonzero(test),
        held_out=nothing,
        novel=np.zeros(int(test.sum()), bool),
        dropped=0,
    )


def split_tools(registry: Registry, *, share: float, seed: int) -> Split:
    """``share`` of the gold tools is held out: a query with one of them is tested, none trains; the registry keeps
    them. A query of the same text as a tested one is in neither part."""
    golds = np.unique(registry.gold)
    own = id_hashes([registry.library.endpoints[tool].endpoint_id for tool in golds.tolist()])
    order = np.argsort(keyed_hash(seed_of("ntilc tool split", seed), own, own), kind="stable")
    held_out = np.zeros(registry.n_tools, bool)
    held_out[golds[order[: int(np.rint(share * golds.size))]]] = True
    hits = np.add.reduceat(held_out[registry.gold].astype(np.int64), registry.offsets[:-1])
    test = hits > 0
    train = ~test & ~np.isin(registry.group, registry.group[test])
    return Split(
        way="tool",
        train=np.flatnonzero(train),
        test=np.flatnonzero(test),
        held_out=held_out,
        novel=(hits == np.diff(registry.offsets))[test],
        dropped=int((~test & ~train).sum()),
    )


def split_of(registry: Registry, way: str, *, share: float, seed: int) -> Split:
    """The split of a way in ``WAYS``.

    Raises:
        UserError: for another way, or if a side is left without queries.
    """
    if way not in WAYS or not 0 < share < 1:
        raise UserError(f"study.params: split {way!r} with test_share={share}; expected {', '.join(WAYS)} and (0, 1)")
    found = (split_queries if way == "query" else split_tools)(registry, share=share, seed=seed)
    if not found.train.size or not found.test.size:
        raise UserError(
            f"{registry.name}, split={way}: {found.train.size} training and {found.test.size} test queries of "
            f"{len(registry.tasks)}; raise study.params.max_queries or leave the split out"
        )
    return found


# --- blur pairs -------------------------------------------------------------------------------------------------------


def blur_frame(registry: Registry, *, theta_s: float, theta_w: float, lexical: float) -> pd.DataFrame:
    """The pairs of a registry as a frame (columns of `BlurPairs`)."""
    found = blur_pairs(
        registry.tool_vectors,
        registry.compat,
        theta_s=theta_s,
        theta_w=theta_w,
        texts=registry.texts,
        lexical=lexical,
    )
    names = [field.name for field in fields(BlurPairs) if field.name != "n_tools"]
    return pd.DataFrame({name: getattr(found, name) for name in names})


def blur_of(frame: pd.DataFrame, *, n_tools: int) -> BlurPairs:
    """Back from `blur_frame`."""
    return BlurPairs(
        left=frame["left"].to_numpy(np.int64),
        right=frame["right"].to_numpy(np.int64),
        cosine=frame["cosine"].to_numpy(np.float32),
        lexical=frame["lexical"].to_numpy(np.float32),
        w=frame["w"].to_numpy(np.float32),
        slice=frame["slice"].to_numpy(np.uint8),
        n_tools=n_tools,
    )


def published_theta(registry: Registry, blur: BlurPairs, *, count: int, theta_w: float) -> float:
    """theta_s under which the encoder alone finds ``count`` pairs with w >= theta_w; NaN where there are fewer."""
    found = blur.only("dense")
    for theta_s in _LOOSER:
        if len(found) >= count:
            break
        found = blur_pairs(registry.tool_vectors, registry.compat, theta_s=theta_s, theta_w=theta_w)
    return theta_of_count(found, count)


# --- coverage ---------------------------------------------------------------------------------------------------------


def registry_facts(registry: Registry, blur: BlurPairs, *, published: int | None, theta_w: float) -> pd.DataFrame:
    """What a registry is made of; columns registry, split, fact, value."""
    pairs = published if published is not None else 0
    theta = published_theta(registry, blur, count=pairs, theta_w=theta_w) if pairs else float("nan")
    sizes = np.diff(registry.offsets)
    facts: dict[str, float] = {
        "tools": registry.n_tools,
        "tools that read like another": registry.n_tools - np.unique(registry.code).size,
        "tools with a query": np.unique(registry.gold).size,
        "tasks": registry.read,
        "tasks without a gold endpoint": registry.without_gold,
        "queries": len(registry.tasks),
        "query texts": np.unique(registry.group).size,
        "gold pairs": registry.gold.size,
        "queries with several gold tools": int((sizes > 1).sum()),
        "tool pairs with two empty signatures": registry.compat.empty_pairs,
        "empty signatures": _empty(registry.compat),
        "blur pairs": len(blur),
        "blur pairs by the encoder": len(blur.only("dense")),
        "blur pairs by words": len(blur.only("lexical")),
        "tools in a blur pair": int(blur.tools.sum()),
        "published blur pairs": published if published is not None else float("nan"),
        "theta_s of the published count": theta,
    }
    return _facts(registry.name, "", facts)


def split_facts(registry: Registry, split: Split, blur: BlurPairs) -> pd.DataFrame:
    """What a split is made of."""
    gold, owner = registry.gold_of(split.test)
    inside = blur.tools[gold]
    facts: dict[str, float] = {
        "training queries": split.train.size,
        "test queries": split.test.size,
        "queries of neither part": split.dropped,
        "held-out tools": int(split.held_out.sum()),
        "test queries with held-out gold alone": int(split.novel.sum()),
        "test queries with a gold tool in a blur pair": np.unique(owner[inside]).size,
    }
    return _facts(registry.name, split.way, facts)


def _facts(registry: str, split: str, facts: Mapping[str, float]) -> pd.DataFrame:
    values = [float(value) for value in facts.values()]
    return pd.DataFrame({"registry": registry, "split": split, "fact": list(facts), "value": values})


def _empty(compat: Compat) -> int:
    """n from n (n - 1) / 2 pairs: tools of which nothing is known; 0 for one, which is in no pair."""
    pairs = compat.empty_pairs
    return int((1 + np.sqrt(1 + 8 * pairs)) / 2 + 0.5) if pairs else 0

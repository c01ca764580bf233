"""Small worlds for the stages after the records: tools, tasks and miner lists written out by hand, or drawn by
hypothesis; and an encoder that needs no weights. Handed to tests as fixtures (test modules import nothing from each
other)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st
from numpy.typing import NDArray

from toolshift.data.records import Argument, Capability, Endpoint, Library, Records, Report, Task
from toolshift.models.features import FeatureBank
from toolshift.runs.seeds import generator
from toolshift.text.encoder import Vectors, unit_rows
from toolshift.text.lexical import Bm25, dense_top, tokens
from toolshift.views import context, mixed, natural, semantic
from toolshift.views.corpus import Corpus, Labels, build_corpus
from toolshift.views.manifest import ROLES, Manifest, Recipe, build_manifest
from toolshift.views.pool import LibraryWidth, Pool, build_pool
from toolshift.views.retrieval import Retrieval, near_pairs
from toolshift.views.roles import Fold, Rules

DATASET = "toy"
TYPES = {"amount": "number", "date": "datetime", "unit": "unknown"}
MODULES = {"natural": natural, "semantic": semantic, "context": context, "mixed": mixed}


class WordEncoder:
    """Sum of one fixed random vector per word: equal words give equal vectors, no weights and no heavy import."""

    name, dim, max_length, batch_size, fingerprint = "words", 24, 0, 64, "f" * 64

    def encode(self, texts: Sequence[str]) -> Vectors:
        rows = [sum((word_vector(w, self.dim) for w in tokens(text)), np.zeros(self.dim)) for text in texts]
        return unit_rows(np.array(rows).reshape(len(texts), self.dim))

    def truncated(self, texts: Sequence[str]) -> NDArray[np.bool_]:
        return np.zeros(len(texts), bool)


@cache
def word_vector(word: str, dim: int) -> NDArray[np.float64]:
    return generator("word", word).standard_normal(dim)


class MemoryCache:
    """What the feature bank asks of an embedding cache, without files."""

    def __init__(self, encoder: Any) -> None:
        self.encoder = encoder

    def ensure(self, texts: Sequence[str]) -> None:
        self.encoder.encode(texts)

    def rows(self, texts: Sequence[str]) -> Vectors:
        return self.encoder.encode(texts)


@dataclass(frozen=True)
class Api:
    """One endpoint: its operation and the names of its arguments, whose types ``TYPES`` gives ("string" by default)."""

    operation: str
    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    description: str = ""


@dataclass(frozen=True)
class Tool:
    """``name`` is unique; its id is ``toy/<name>``."""

    name: str
    domain: str
    apis: tuple[Api, ...]
    text: str = ""
    source: str = "library"


@dataclass(frozen=True)
class Ask:
    """One task. gold: (tool, operations...) per gold tool; given: further tools."""

    name: str
    domain: str
    text: str
    gold: tuple[tuple[str, ...], ...]
    given: tuple[str, ...] = ()


def capability_id(name: str) -> str:
    return f"{DATASET}/{name}"


def make_records(tools: Iterable[Tool], asks: Iterable[Ask]) -> Records:
    tools, asks = sorted(tools, key=lambda t: t.name), sorted(asks, key=lambda a: a.name)
    endpoints = sorted((e for t in tools for e in _endpoints(t)), key=lambda e: e.endpoint_id)
    capabilities = tuple(
        Capability(
            capability_id=capability_id(t.name),
            dataset=DATASET,
            name=t.name,
            domain=t.domain,
            text=t.text or t.name,
            schema_source=t.source,  # type: ignore[arg-type]
        )
        for t in tools
    )
    tasks = tuple(_task(a) for a in asks)
    counts = {"tasks": len(tasks), "capabilities": len(capabilities), "endpoints": len(endpoints)}
    report = Report(sections={}, gold_pairs=0, domains=0, ordered_tasks=0, **counts)
    library = Library(capabilities=capabilities, endpoints=tuple(endpoints))
    return Records(dataset=DATASET, library=library, tasks=tasks, report=report)


def _endpoints(tool: Tool) -> list[Endpoint]:
    owner = capability_id(tool.name)
    return [
        Endpoint(
            endpoint_id=f"{owner}/{api.operation}",
            capability_id=owner,
            operation=api.operation,
            description=api.description,
            text=f"{api.operation} {api.description}".strip(),
            arguments=tuple(
                Argument(name=n, required=n in api.required, type=TYPES.get(n, "string"))
                for n in (*api.required, *api.optional)
            ),
        )
        for api in tool.apis
    ]


def _task(ask: Ask) -> Task:
    gold = [capability_id(name) for name, *_ in ask.gold]
    return Task(
        task_id=f"{DATASET}/{ask.name}",
        dataset=DATASET,
        domain=ask.domain,
        text=ask.text,
        gold_capability_ids=tuple(sorted(set(gold))),
        gold_endpoint_ids=tuple(sorted({f"{capability_id(name)}/{o}" for name, *ops in ask.gold for o in ops})),
        given_candidate_ids=tuple(sorted({capability_id(g) for g in ask.given})),
    )


@dataclass(frozen=True)
class World:
    """Records and everything that is label-free about them; ``m`` capabilities, ``n`` tasks."""

    records: Records
    corpus: Corpus
    labels: Labels
    task_vectors: NDArray[np.float32]
    capability_vectors: NDArray[np.float32]
    retrieval: Retrieval

    def task(self, name: str) -> int:
        return self.corpus.task_ids.index(f"{DATASET}/{name}")

    def tool(self, name: str) -> int:
        return self.corpus.capability_ids.index(capability_id(name))

    def pool(self, *, library: LibraryWidth | None = None) -> Pool:
        return build_pool(self.corpus, self.labels, retrieval=self.retrieval, library=library)

    def whole_pool(self, rules: Rules) -> Pool:
        """Every mined pair of the library and every capability as a uniform candidate: nothing is cut."""
        width = LibraryWidth(
            width=self.corpus.n_capabilities * 4, seed=rules.seed, overlap_below=rules.argument_overlap
        )
        return self.pool(library=width)

    def fold(self, rules: Rules, *, rows: Iterable[int] | None = None, pool: Pool | None = None) -> Fold:
        """The fold of some tasks (all by default), with the pool that an experiment would build."""
        if pool is None:
            width = LibraryWidth(width=4 * rules.length, seed=rules.seed, overlap_below=rules.argument_overlap)
            pool = self.pool(library=width if rules.universe == "library" else None)
        labels = self.labels if rows is None else self.labels.only(np.array(sorted(rows), np.int64))
        return Fold(corpus=self.corpus, labels=labels, pool=pool, rules=rules)

    def manifests(self, fold: Fold) -> dict[str, Manifest]:
        return {name: build_manifest(name, recipe_of(name, fold.rules), fold=fold) for name in MODULES}

    def readable(self, manifest: Manifest) -> list[tuple[str, str, str, int]]:
        """(task id, capability id, role, miner bits) of every candidate, sorted."""
        return [
            (self.corpus.task_ids[t], self.corpus.capability_ids[c], ROLES[r], int(m))
            for t, c, r, m in zip(manifest.task_of, manifest.capability, manifest.role, manifest.miner, strict=True)
        ]

    def bank(self) -> FeatureBank:
        memory: Any = MemoryCache(WordEncoder())
        return FeatureBank(
            corpus=self.corpus,
            cache=memory,
            task_vectors=self.task_vectors,
            capability_vectors=self.capability_vectors,
            bm25_index=lambda k1, b, part: Bm25(self.corpus.capability_texts, k1=k1, b=b),
        )


def recipe_of(view: str, rules: Rules) -> Recipe:
    return MODULES[view].recipe(rules)


def world_of(
    records: Records,
    *,
    top: int = 3,
    bm25: Mapping[str, Sequence[str]] | None = None,
    dense: Mapping[str, Sequence[str]] | None = None,
    near_cosine: float = 0.95,
) -> World:
    """Arrays of records. bm25, dense: task -> tools that the miner proposes (others: none), instead of a search."""
    corpus, labels = build_corpus(records)
    encoder = WordEncoder()
    tasks, tools = encoder.encode(corpus.task_texts), encoder.encode(corpus.capability_texts)
    top = min(top, corpus.n_capabilities)
    lexical, score = Bm25(corpus.capability_texts).top(corpus.task_texts, k=top)
    searched = np.where(score > 0, lexical, -1), dense_top(tasks, tools, k=top)[0]
    listed = [
        found if by_hand is None else _listed(corpus, by_hand)
        for found, by_hand in zip(searched, (bm25, dense), strict=True)
    ]
    pairs = near_pairs(tools, at_least=near_cosine)
    near = _sparse(pairs, size=corpus.n_capabilities)
    retrieval = Retrieval(bm25_top=listed[0].astype(np.int32), dense_top=listed[1].astype(np.int32), near_text=near)
    return World(records, corpus, labels, tasks, tools, retrieval)


def _listed(corpus: Corpus, by_hand: Mapping[str, Sequence[str]]) -> NDArray[np.int64]:
    table = np.full((corpus.n_tasks, max((len(v) for v in by_hand.values()), default=0) or 1), -1)
    for task, tools in by_hand.items():
        row = corpus.task_ids.index(f"{DATASET}/{task}")
        table[row, : len(tools)] = [corpus.capability_ids.index(capability_id(t)) for t in tools]
    return table


def _sparse(pairs: NDArray[np.int32], *, size: int) -> Any:
    from scipy import sparse

    return sparse.csr_matrix((np.ones(pairs.shape[1], bool), (pairs[0], pairs[1])), shape=(size, size))


VERBS = ("get", "list", "search", "convert", "delete", "rainbow")  # the last one is in no verb class
NOUNS = ("rain", "snow", "wind", "hail")
VALUES = ("12", "2031-05-04", "in", "Oslo")
ARGUMENTS = ("city", "date", "id", "amount", "unit", "page")


@st.composite
def drawn_records(draw: st.DrawFn, *, min_tools: int = 2) -> Records:
    """Records of two to four domains with up to six tools and five tasks each."""
    domains = draw(st.integers(2, 4))
    argument_sets = st.lists(st.sampled_from(ARGUMENTS), max_size=6, unique=True).map(tuple)
    operation = st.tuples(st.sampled_from(VERBS), st.sampled_from(NOUNS)).map(" ".join)
    apis = st.lists(st.builds(Api, operation, argument_sets), max_size=3, unique_by=lambda a: a.operation).map(tuple)
    words = st.lists(st.sampled_from((*VERBS, *NOUNS, *VALUES)), min_size=1, max_size=5).map(" ".join)
    tools = [
        Tool(f"tool{d}{i}", f"D{d}", draw(apis), draw(words))
        for d in range(domains)
        for i in range(draw(st.integers(min_tools, 6)))
    ]
    some = st.lists(st.sampled_from(tools), min_size=1, max_size=3, unique_by=lambda t: t.name)
    asks = [
        Ask(
            f"task{d}{i}",
            draw(st.sampled_from([f"D{d}", f"D{d}", f"D{d}", ""])) if d else f"D{d}",
            draw(words),
            tuple((t.name, *(a.operation for a in t.apis[:2])) for t in draw(some)),
            tuple(t.name for t in draw(some)),
        )
        for d in range(domains)
        for i in range(draw(st.integers(1, 5)))
    ]
    return make_records(tools, asks)


def fixed_records(*, domains: int = 4, tools: int = 7, tasks: int = 10, seed: int = 0) -> Records:
    """A larger random world, always the same: gold mostly in the task's domain, some of it elsewhere."""
    rng = generator("fixed world", seed)

    def pick(items: Sequence[Any], count: int) -> list[Any]:
        return [items[i] for i in rng.permutation(len(items))[:count]]

    made = []
    for d in range(domains):
        for i in range(tools):
            operations = pick([f"{v} {n}" for v in VERBS for n in NOUNS], int(rng.integers(1, 4)))
            apis = tuple(Api(o, tuple(pick(ARGUMENTS, int(rng.integers(0, 4))))) for o in operations)
            made.append(Tool(f"tool{d}{i}", f"D{d}", apis, " ".join([*operations, *pick(NOUNS, 1), f"brand{i}"])))
    asks = []
    for d in range(domains):
        home = made[d * tools : (d + 1) * tools]
        for i in range(tasks):
            gold = pick(home, int(rng.integers(1, 3))) + (pick(made, 1) if rng.random() < 0.4 else [])
            wanted = [(t.name, t.apis[0].operation) for t in {t.name: t for t in gold}.values()]
            text = " ".join(["please", *(o for _, o in wanted), *pick(NOUNS, 1), f"at {d}{i}"])
            asks.append(Ask(f"task{d}{i}", f"D{d}", text, tuple(wanted), tuple(t.name for t in pick(home, 2))))
    return make_records(made, asks)


def relabelled(records: Records, domain: str, *, how: str) -> Records:
    """The same tasks, those of one domain with other labels: ``permuted`` among themselves, or all ``replaced``."""
    rows = [i for i, t in enumerate(records.tasks) if t.domain == domain]
    labels = ("gold_capability_ids", "gold_endpoint_ids", "given_candidate_ids")
    tasks = list(records.tasks)
    for place, row in enumerate(rows):
        if how == "permuted":
            donor = records.tasks[rows[(place + 1) % len(rows)]]
            new = {name: getattr(donor, name) for name in labels}
        else:
            unused = sorted({c.capability_id for c in records.library.capabilities})[-1 - place % 3 :][:1]
            ends = tuple(e.endpoint_id for e in records.library.endpoints if e.capability_id in unused)
            new = dict(zip(labels, (tuple(unused), ends, ()), strict=True))
        tasks[row] = replace(records.tasks[row], **new)
    return replace(records, tasks=tuple(tasks))


@dataclass(frozen=True)
class Worlds:
    """The builders above."""

    Api = Api
    Tool = Tool
    Ask = Ask
    World = World
    Rules = Rules
    WordEncoder = WordEncoder
    MemoryCache = MemoryCache
    records = staticmethod(make_records)
    of = staticmethod(world_of)
    drawn = staticmethod(drawn_records)
    fixed = staticmethod(fixed_records)
    relabelled = staticmethod(relabelled)
    recipe = staticmethod(recipe_of)
    views = tuple(MODULES)


@pytest.fixture(scope="session")
def worlds() -> Worlds:
    return Worlds()


@pytest.fixture(scope="session")
def fixed_world() -> World:
    """Four domains, 28 tools, 40 tasks."""
    return world_of(fixed_records(), top=12)

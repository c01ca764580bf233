"""Re-Invoke (Chen 2024, arXiv 2408.01875): tools by the queries they would answer, tasks by their intents.

[P, through a public reimplementation; no author code] m = 10 synthetic queries per tool; the mean vector of the copies
"Documentation: {doc} Query: {query}"; an intent a line; multi-view ranking: per intent the reversed rank rr (worst 1,
best N) and the cosine, the lexicographic maximum over intents of (rr, cosine). [R] the frozen encoder of all rows, the
prompts' wording, ranks over the whole library of the dataset (`lists`), one request for all queries of a tool,
documentation shortened so that the encoder does not cut off the query.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from toolshift.data.records import Endpoint
from toolshift.models.base import BadParameter, FrozenRanker, Scorer, Scores, Source, SourceMeasure
from toolshift.models.features import FeatureBank, Pairs
from toolshift.models.generative.asking import Asked, LlmRow
from toolshift.models.generative.lists import Queries, dense_search, encode_queries, mean_vectors, ranked_lists
from toolshift.models.generative.requests import (
    INTENT_READER,
    QUERY_WRITER,
    intent_prompt,
    query_prompt,
    read_lines,
    shortened,
)
from toolshift.text.spans import identifier_words
from toolshift.views.corpus import Corpus


@dataclass(frozen=True, kw_only=True)
class ReInvoke(LlmRow):
    """queries: synthetic ones per tool. temperature: of the query writer; the intent reader answers at 0.
    document_words: of the documentation in a copy."""

    queries: int = 10
    temperature: float = 0.7
    document_words: int = 120

    def __post_init__(self) -> None:
        _check(self.queries, self.document_words, model="reinvoke")
        super().__post_init__()

    def fit(self, source: Source, *, bank: FeatureBank, measure: SourceMeasure, seed: int) -> Scorer:
        """Nothing is fitted; the scorer counts what it asks for."""
        del source, bank, measure, seed
        return AskedReInvoke(row=self)


@dataclass(frozen=True, kw_only=True)
class AskedReInvoke:
    """Re-Invoke with generated queries and intents.

    A tool whose queries are invalid is its documentation alone; a task whose intents are invalid ties all candidates,
    stays in the denominator and is counted in the record.
    """

    row: ReInvoke
    asked: Asked = field(init=False)
    contexts_seen: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "asked", Asked(row=self.row))

    @property
    def record(self) -> Mapping[str, Any]:
        """Requests about tools and tasks by outcome."""
        return self.asked.record

    def score(self, pairs: Pairs, *, bank: FeatureBank, seed: int) -> Scores:
        """(p,) multi-view ranking scores."""
        del seed
        corpus, row = bank.corpus, self.row
        prompts = [query_prompt(text, count=row.queries) for text in corpus.capability_texts]
        answers = self._ask("tools", QUERY_WRITER, prompts, temperature=row.temperature)
        written = tuple(some[: row.queries] for some in answers)
        tasks = np.unique(pairs.task).tolist()
        prompts = [intent_prompt(corpus.task_texts[t]) for t in tasks]
        intents = self._ask("tasks", INTENT_READER, prompts, temperature=0.0)
        tools = tool_vectors(written, bank=bank, words=row.document_words)
        return multi_view(pairs, dict(zip(tasks, intents, strict=True)), bank=bank, tools=tools)

    def _ask(self, kind: str, system: str, prompts: Sequence[str], *, temperature: float) -> list[tuple[str, ...]]:
        requests = [self.row.request(system, prompt, temperature=temperature) for prompt in prompts]
        texts = self.asked.ask(kind, requests, accept=lambda text: bool(read_lines(text)))
        return [read_lines(text) if text else () for text in texts]


@dataclass(frozen=True, kw_only=True)
class ReInvokeStandin(FrozenRanker):
    """Re-Invoke without a language model: queries from templates over endpoint documentation, intents from the
    requirement extractor [R]. Not the published method, whose generated text is its core."""

    queries: int = 10
    document_words: int = 120

    def __post_init__(self) -> None:
        _check(self.queries, self.document_words, model="reinvoke_standin")

    def score(self, pairs: Pairs, *, bank: FeatureBank, seed: int) -> Scores:
        """(p,) multi-view ranking scores."""
        del seed
        corpus = bank.corpus
        bounds = corpus.endpoint_offsets
        own = (corpus.endpoints[a:b] for a, b in pairwise(bounds))
        written = tuple(template_queries(endpoints, limit=self.queries) for endpoints in own)
        tools = tool_vectors(written, bank=bank, words=self.document_words)
        return multi_view(pairs, required(pairs, corpus), bank=bank, tools=tools)


def _check(queries: int, words: int, *, model: str) -> None:
    if queries < 1 or words < 1:
        raise BadParameter(f"{model} needs queries and document_words of at least 1, got {queries} and {words}")


def multi_view(pairs: Pairs, intents: Queries, *, bank: FeatureBank, tools: NDArray[np.float32]) -> Scores:
    """(p,) max over intents of 10 rr + cosine: since a cosine is at most 1, that is the order of the tuples (rr,
    cosine). A tool that is first for some intent comes before every tool that is second for its best one. 0 without an
    intent.

    tools: (m, d) unit rows. Equal cosines share a rank.
    """
    encode_queries(intents, bank=bank)
    result = np.zeros(len(pairs), np.float64)
    for one in ranked_lists(pairs, intents, corpus=bank.corpus, search=dense_search(bank, tools)):
        reversed_rank = one.size - one.rank + 1
        result[one.at] = np.maximum(result[one.at], 10.0 * reversed_rank + one.score)
    return result


def tool_vectors(written: tuple[tuple[str, ...], ...], *, bank: FeatureBank, words: int) -> NDArray[np.float32]:
    """(m, d) unit rows: the mean over the copies of a tool, one per query; without a query its documentation."""
    table = bank.per_capability(_Copies(written=written, words=words, bank=bank))
    return table.astype(np.float32)


@dataclass(frozen=True, kw_only=True)
class _Copies:
    """The table of `tool_vectors`; equal queries are encoded once per bank."""

    written: tuple[tuple[str, ...], ...]
    words: int
    bank: FeatureBank = field(compare=False)

    def __call__(self, corpus: Corpus) -> NDArray[np.float64]:
        texts = [
            [augmented(shortened(text, words=self.words), query) for query in queries] or [text]
            for text, queries in zip(corpus.capability_texts, self.written, strict=True)
        ]
        return mean_vectors(texts, bank=self.bank).astype(np.float64)


def augmented(documentation: str, query: str) -> str:
    """One copy of a tool [P]."""
    return f"Documentation: {documentation} Query: {query}"


def required(pairs: Pairs, corpus: Corpus) -> Queries:
    """Task row -> its requirements, or the whole task where none is found."""
    from toolshift.text.requirements import requirements

    texts = {int(t): corpus.task_texts[t] for t in np.unique(pairs.task)}
    return {t: tuple(dict.fromkeys(requirements(text))) or (text,) for t, text in texts.items()}


def template_queries(endpoints: Sequence[Endpoint], *, limit: int) -> tuple[str, ...]:
    """At most ``limit`` distinct queries from names, descriptions and required arguments of endpoints [R].

    Template by template over all endpoints, so that a few of them say something about each before the next template
    starts; of more than ``limit`` endpoints as many, evenly spread.
    """
    place = np.unique(np.linspace(0, len(endpoints) - 1, num=min(limit, len(endpoints))).round().astype(int))
    chosen = [endpoints[i] for i in place]
    found = (template(endpoint) for template in _TEMPLATES for endpoint in chosen)
    return tuple(dict.fromkeys(query for query in found if query))[:limit]


def _wish(endpoint: Endpoint) -> str:
    return f"I want to {_operation(endpoint)}."


def _described(endpoint: Endpoint) -> str:
    text = " ".join(endpoint.description.split())
    return f"Can you help me with this: {text}" if text else ""


def _with_values(endpoint: Endpoint) -> str:
    names = [identifier_words(a.name) or a.name for a in endpoint.required_arguments]
    return f"Please {_operation(endpoint)} for the {' and the '.join(names)} that I give you." if names else ""


def _operation(endpoint: Endpoint) -> str:
    return identifier_words(endpoint.operation) or endpoint.operation


_TEMPLATES: tuple[Callable[[Endpoint], str], ...] = (_wish, _described, _with_values)

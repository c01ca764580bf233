"""ToolDreamer (Sengupta 2026, arXiv 2510.19791): search with the tools that a language model imagines for a task.

[P, from abstract and reading notes; no author code] an open-ended set of hypothetical tools (thought, name,
description); QTND = question, thought, name and description in one text; one list per QTND; the lists fused by
reciprocal ranks. [U] the constant of the fusion, 60 here. [T] the configuration without source fitting. [R] the frozen
encoder of all rows in place of Qwen3-8B, dense and BM25 lists fused together, ranks over the whole library (`lists`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from toolshift.models.base import BadParameter, FrozenRanker, Scorer, Scores, Source, SourceMeasure
from toolshift.models.features import LIBRARY_RANKINGS, FeatureBank, Pairs
from toolshift.models.generative.asking import Asked, LlmRow
from toolshift.models.generative.lists import (
    Queries,
    Search,
    bm25_search,
    dense_search,
    encode_queries,
    ranked_lists,
)
from toolshift.models.generative.reinvoke import required
from toolshift.models.generative.requests import TOOL_DREAMER, Dream, dream_prompt, joined, read_dreams


@dataclass(frozen=True, kw_only=True)
class ToolDreamer(LlmRow):
    """k: constant of the fusion. over: rankings of the library that are fused. max_tools: hypothetical tools of a task
    that are used, in the order of the answer. temperature: of the dreamer."""

    k: float = 60.0
    over: Sequence[str] = LIBRARY_RANKINGS
    max_tools: int = 10
    temperature: float = 0.7

    def __post_init__(self) -> None:
        _check(self.k, self.over, model="tooldreamer")
        if self.max_tools < 1:
            raise BadParameter(f"tooldreamer needs max_tools of at least 1, got {self.max_tools}")
        super().__post_init__()

    def fit(self, source: Source, *, bank: FeatureBank, measure: SourceMeasure, seed: int) -> Scorer:
        """Nothing is fitted; the scorer counts what it asks for."""
        del source, bank, measure, seed
        return AskedToolDreamer(row=self)


@dataclass(frozen=True, kw_only=True)
class AskedToolDreamer:
    """ToolDreamer with generated tools. A task whose answer is invalid ties all candidates, stays in the denominator
    and is counted in the record."""

    row: ToolDreamer
    asked: Asked = field(init=False)
    contexts_seen: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "asked", Asked(row=self.row))

    @property
    def record(self) -> Mapping[str, Any]:
        """Requests by outcome."""
        return self.asked.record

    def score(self, pairs: Pairs, *, bank: FeatureBank, seed: int) -> Scores:
        """(p,) fused reciprocal ranks."""
        del seed
        row, texts = self.row, bank.corpus.task_texts
        tasks = np.unique(pairs.task).tolist()
        requests = [row.request(TOOL_DREAMER, dream_prompt(texts[t]), temperature=row.temperature) for t in tasks]
        answers = self.asked.ask("tasks", requests, accept=lambda text: bool(read_dreams(text)))
        queries = {
            t: tuple(dict.fromkeys(qtnd(texts[t], dream) for dream in read_dreams(answer or "")[: row.max_tools]))
            for t, answer in zip(tasks, answers, strict=True)
        }
        return fused(pairs, queries, bank=bank, over=row.over, k=row.k)


@dataclass(frozen=True, kw_only=True)
class ToolDreamerStandin(FrozenRanker):
    """ToolDreamer without a language model: one "hypothetical tool" per requirement, whose text is the task, the
    requirement and "Tool that can " with the requirement [R]. Not the published method, whose generated text is its
    core."""

    k: float = 60.0
    over: Sequence[str] = LIBRARY_RANKINGS

    def __post_init__(self) -> None:
        _check(self.k, self.over, model="tooldreamer_standin")

    def score(self, pairs: Pairs, *, bank: FeatureBank, seed: int) -> Scores:
        """(p,) fused reciprocal ranks."""
        del seed
        texts = bank.corpus.task_texts
        needs = required(pairs, bank.corpus)
        queries = {t: tuple(standin_text(texts[t], need) for need in some) for t, some in needs.items()}
        return fused(pairs, queries, bank=bank, over=self.over, k=self.k)


def _check(k: float, over: Sequence[str], *, model: str) -> None:
    if k < 0 or not over or not set(over) <= set(LIBRARY_RANKINGS) or len(set(over)) < len(over):
        raise BadParameter(
            f"{model} fuses some of {', '.join(LIBRARY_RANKINGS)} with k of at least 0, got over={list(over)}, k={k}"
        )


def qtnd(task: str, dream: Dream) -> str:
    """Question, thought, name and description of a hypothetical tool, in this order [P]."""
    return joined([task, dream.thought, dream.name, dream.description])


def standin_text(task: str, requirement: str) -> str:
    """The stand-in's query for one requirement [R]."""
    return joined([task, requirement, f"Tool that can {requirement}"])


def fused(pairs: Pairs, queries: Queries, *, bank: FeatureBank, over: Sequence[str], k: float) -> Scores:
    """(p,) sum over all lists of 1/(k + rank), ranks from 1 over the library. A BM25 list holds only tools that share a
    word with the query; what a list does not hold gets nothing from it. 0 without a query."""
    encode_queries(queries, bank=bank)
    result = np.zeros(len(pairs), np.float64)
    for name in over:
        dense = name == "semantic_cosine"
        search: Search = dense_search(bank, np.asarray(bank.capability_vectors)) if dense else bm25_search(bank)
        for one in ranked_lists(pairs, queries, corpus=bank.corpus, search=search):
            held = np.ones(one.rank.size, bool) if dense else one.score > 0
            result[one.at] += np.where(held, 1.0 / (k + one.rank), 0.0)
    return result

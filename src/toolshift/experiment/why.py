"""Why one of somebody's tools got its score: what each part of the method added, in numbers that sum to the score."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from toolshift.data.types import split_words
from toolshift.evaluation.explanation import ExplainedPair, SourceTasks, explain_pairs, requirements_of
from toolshift.experiment.tool_index import ToolIndex
from toolshift.models.features import exact_cosines
from toolshift.models.tact.path import Path as TactPath

_OPERATIONS = 4
_FULL = "the whole score"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What a part of the method added to the score, and the numbers behind it."""

    name: str
    added: float
    how: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchedOperation:
    """An operation of the tool beside the request, or beside a part of it. cosine: of their texts. evidence: composed
    evidence of a match, None where nothing was matched."""

    operation: str
    request: str
    cosine: float
    evidence: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Why:
    """The parts of a score and what they were read from. shared_words: of the request and the tool's public text."""

    score: float
    parts: tuple[Part, ...]
    operations: tuple[MatchedOperation, ...]
    requirements: tuple[str, ...]
    shared_words: tuple[str, ...]


def why(index: ToolIndex, query: str, tool: str, *, score: float) -> Why:
    """What made the score of a tool. tool: an id of the index. score: as ranked, for methods that are one number."""
    row = index.library.position[tool]
    words = set(split_words(index.library.capabilities[row].text))
    shared = tuple(dict.fromkeys(word for word in split_words(query) if word in words))
    if isinstance(index.scorer, TactPath):
        return _of_tact(index, index.scorer, query, row, shared=shared)
    what = "cosine of the request and the tool's text" if index.is_plain else f"score of {index.method.name}"
    return Why(
        score=score,
        parts=(Part(name=what, added=score, how=_FULL),),
        operations=_nearest_operations(index, query, tool),
        requirements=(),
        shared_words=shared,
    )


def _nearest_operations(index: ToolIndex, query: str, tool: str) -> tuple[MatchedOperation, ...]:
    """The operations whose texts are closest to the request. They are shown, and add nothing to a cosine."""
    endpoints = index.library.endpoints_of[tool]
    if not endpoints:
        return ()
    vectors = index.texts.rows([e.text for e in endpoints])
    cosines = exact_cosines(index.texts.queries([query]), vectors)[0]
    best = np.argsort(-cosines, kind="stable")[:_OPERATIONS]
    index.texts.forget()
    return tuple(
        MatchedOperation(operation=endpoints[i].operation, request=query, cosine=float(cosines[i])) for i in best
    )


def _of_tact(index: ToolIndex, path: TactPath, query: str, row: int, *, shared: tuple[str, ...]) -> Why:
    bank = index.bank([query])
    needed, words = requirements_of(0, bank=bank)
    nothing = SourceTasks(rows=np.zeros(0, np.int64), context=(), gold={})
    (pair,) = explain_pairs(path, 0, np.array([row]), needed=needed, sources=nothing, bank=bank)
    texts = tuple(requirement.text for requirement in words)
    return Why(
        score=pair.scores.score,
        parts=_parts(pair),
        operations=_matched(pair, texts),
        requirements=texts,
        shared_words=shared,
    )


def _parts(pair: ExplainedPair) -> tuple[Part, ...]:
    scores = pair.scores
    kind = "a blend of label-free signals" if scores.anchor_terms else "cosine of the request and the tool's text"
    found = [Part(name="anchor s0", added=scores.anchor, how=kind)]
    if scores.relation_strength:
        how = f"learned relation of request and tool, at most {scores.relation_strength:g}"
        found.append(Part(name="relation", added=scores.relation, how=how))
    if (functional := pair.functional) is not None:
        how = (
            f"match F {functional.match:.3f} against {functional.reference:.3f}, usual at this s1; reliability "
            f"{functional.reliability:.3f}, gate {functional.correction.gate:.3f}"
        )
        empty = "the tool has no operations, so there is no evidence"
        found.append(Part(name="functional", added=functional.correction.added, how=how if pair.endpoints else empty))
    if (contextual := pair.contextual) is not None:
        found.append(Part(name="contextual", added=contextual.correction.added + 0.0, how=_context(contextual)))
    if pair.support is not None:
        how = f"{pair.support.strength:g} times the source support {pair.support.support:.3f}"
        found.append(Part(name="support", added=pair.support.added, how=how))
    return tuple(found)


def _context(part: Any) -> str:
    if not part.use.records:
        by = {"id": "its id", "similarity": "similarity", "both": "its id or similarity"}[part.use.lookup]
        return f"no source record of the tool, looked up by {by}: no evidence, so nothing is added"
    where = f"{part.use.contexts_share * part.use.n_contexts:.3g} of {part.use.n_contexts} contexts"
    return (
        f"{part.use.records:.2f} source records in {where} (by {part.use.lookup}); C {part.value:+.3f}, reliability "
        f"{part.reliability:.3f}, gate {part.correction.gate:.3f}"
    )


def _matched(pair: ExplainedPair, texts: tuple[str, ...]) -> tuple[MatchedOperation, ...]:
    """The matching of requirements and operations; without a functional stage, the closest pairs."""
    channel = pair.channels.operation
    if pair.functional is None:
        cells = [(i, j, None) for i in range(len(texts)) for j in range(len(pair.endpoints))]
        chosen = sorted(cells, key=lambda cell: -channel[cell[0]][cell[1]])[:_OPERATIONS]
    else:
        chosen = [(cell.requirement, cell.endpoint, cell.evidence) for cell in pair.functional.matching]
    return tuple(
        MatchedOperation(
            operation=pair.endpoints[j].operation, request=texts[i], cosine=channel[i][j], evidence=evidence
        )
        for i, j, evidence in chosen
    )


def as_plain(found: Why) -> Mapping[str, Any]:
    """Plain values, for JSON."""
    from toolshift.settings.tree import as_mapping

    return as_mapping(found)

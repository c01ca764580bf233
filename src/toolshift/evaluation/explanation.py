"""One task's candidates under a fitted TACT path, taken apart: what every stage measured, and what it added.

Everything is read off the same objects that score; nothing is computed in another way. Shapes: M requirements, K pooled
endpoints, P prototypes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from toolshift.data.records import COARSE_TYPES, Endpoint
from toolshift.models.features import FeatureBank, Pairs, exact_cosines, on_grid
from toolshift.models.tact.assignment import ENDPOINTS
from toolshift.models.tact.contextual import CONFIDENCE, FittedContextual, PairEvidence, looked_up
from toolshift.models.tact.evidence import evidence_of
from toolshift.models.tact.functional import FEATURES, FittedFunctional, Match
from toolshift.models.tact.fusion import FittedFusion, gate_inputs
from toolshift.models.tact.path import Correction, Path, Trace, weighted_sum
from toolshift.models.tact.profiles import ProfileEvidence
from toolshift.models.tact.proposal import LABEL_FREE, FittedProposal, label_free
from toolshift.models.tact.relation import FittedRelation
from toolshift.models.tact.requirements import TaskRequirements, requirement_texts, spans_of, task_requirements
from toolshift.models.tact.support import FittedSupport
from toolshift.views.corpus import Rows

Matrix = tuple[tuple[float, ...], ...]
GATE = ("constant", "s1", "rho_F", "rho_C")
TOP_PROTOTYPES = 5
AGREES_WITHIN = 1e-5
"""A recomputed score and the published one may differ by rounding on another machine, not by more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """One summand ``value * weight`` of a linear score."""

    name: str
    value: float
    weight: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """text, the rarity weight of its words, the coarse types it offers a value of, and its spans (the first is itself
    or its first value)."""

    text: str
    weight: float
    types: tuple[str, ...]
    spans: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PooledEndpoint:
    """An endpoint that the requirements are compared with. required: (name, coarse type) of its required arguments.
    has_argument, has_type: the masks m^a, m^y."""

    endpoint_id: str
    operation: str
    required: tuple[tuple[str, str], ...]
    has_argument: bool
    has_type: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Channels:
    """(M, K) evidence before any training; 0 where a mask is 0."""

    operation: Matrix
    argument: Matrix
    type: Matrix


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchedCell:
    """A requirement matched to an endpoint (numbers from 0), with its evidence e_ij and its gain over kappa."""

    requirement: int
    endpoint: int
    evidence: float
    gain: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AppliedCorrection:
    """D, its gate, and what it adds. gate_terms: empty where corrections are not gated."""

    bounded: float
    gate: float
    gate_terms: tuple[Term, ...]
    added: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionalPart:
    """From evidence to s2. evidence: (M, K) composed e_ij. match: F. reference: F_ref at this s1. scale: tau_F.
    reliability: rho_F of ``reliability_terms``."""

    strength: float
    composition: str
    kappa: float
    argument_weight: float
    type_weight: float
    evidence: Matrix
    matching: tuple[MatchedCell, ...]
    match: float
    reference: float
    intercept: float
    slope: float
    scale: float
    reliability: float
    reliability_terms: tuple[Term, ...]
    correction: AppliedCorrection


@dataclass(frozen=True, slots=True, kw_only=True)
class Prototype:
    """What one prototype adds to C: eta * (routing - mean_routing) * log_ratio. nearest_task: text of the source task
    closest to it."""

    number: int
    routing: float
    mean_routing: float
    log_ratio: float
    eta: float
    added: float
    nearest_task: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceUse:
    """Source evidence of a capability as the profiles give it. records: n_c. support: S_c. contexts_share: of all
    ``n_contexts``. own_records, own_contexts: source tasks with this very capability as gold, and where they lie."""

    lookup: str
    records: float
    support: float
    contexts_share: float
    n_contexts: int
    own_records: int
    own_contexts: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextualPart:
    """From source evidence to s3. signal: ``profiles``, or the control that takes their place. value: C (of a control
    its signal). confidence: q of ``confidence_terms``. trusted: whether the hard conditions of rho_C hold."""

    strength: float
    signal: str
    use: SourceUse
    prototypes: tuple[Prototype, ...]
    value: float
    scale: float
    confidence: float
    confidence_terms: tuple[Term, ...]
    trusted: bool
    least_support: float
    least_nearness: float
    reliability: float
    correction: AppliedCorrection


@dataclass(frozen=True, slots=True, kw_only=True)
class SupportPart:
    """What source support adds to s3."""

    strength: float
    support: float
    added: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """anchor: s0. relation: what the relation adds. s1 to s3: after each stage. score: the last one, s4 where there is
    support. anchor_terms: signals of a blended proposal, empty for the cosine."""

    anchor: float
    anchor_terms: tuple[Term, ...]
    relation_strength: float
    relation: float
    s1: float
    s2: float
    s3: float
    score: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedPair:
    """One candidate. A part is None where its stage is off."""

    capability: int
    endpoints: tuple[PooledEndpoint, ...]
    channels: Channels
    scores: Scores
    functional: FunctionalPart | None
    contextual: ContextualPart | None
    support: SupportPart | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListPlace:
    """Where the published scores put a candidate in the task's list of a view. rank: 1 + those scored higher. tied:
    others with the same score. role: why it is in the list."""

    view: str
    rank: int
    of: int
    tied: int
    role: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A candidate, what the task's labels say of it, and its published score; None where no list has it."""

    capability_id: str
    name: str
    domain: str
    text: str
    is_gold: bool
    gold_endpoints: tuple[str, ...]
    lists: tuple[ListPlace, ...]
    published: float | None
    pair: ExplainedPair

    @property
    def agrees(self) -> bool:
        """Whether the score that was recomputed is the published one, up to rounding."""
        return self.published is None or abs(self.published - self.pair.scores.score) <= AGREES_WITHIN


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """A task and its candidates under one fit. choice: settings that were selected for the target. gold: ids.
    candidates: highest score first. named: whether the candidates were chosen, rather than all of the task's lists."""

    run: str
    experiment: str
    model: str
    target: str
    seed: int
    choice: Mapping[str, Any]
    stages: tuple[str, ...]
    task_id: str
    task_domain: str
    task_text: str
    gold: tuple[str, ...]
    requirements: tuple[Requirement, ...]
    views: tuple[str, ...]
    named: bool
    candidates: tuple[Candidate, ...]


@dataclass(frozen=True, kw_only=True)
class SourceTasks:
    """What a fit learned from, to name prototypes and contexts. rows: (t,) source tasks. context: (t,) their contexts,
    empty for none. gold: capability row -> places among ``rows``."""

    rows: Rows
    context: tuple[str, ...]
    gold: Mapping[int, NDArray[np.int64]]

    def use(self, capability: int) -> tuple[int, tuple[str, ...]]:
        """Number of source tasks with a gold capability, and their contexts, sorted."""
        places = self.gold.get(capability, np.zeros(0, np.int64))
        return int(places.size), tuple(sorted({self.context[i] for i in places if self.context[i]}))


def requirements_of(task: int, *, bank: FeatureBank) -> tuple[TaskRequirements, tuple[Requirement, ...]]:
    """Requirements of a task, as arrays and in words."""
    needed = task_requirements(requirement_texts([bank.corpus.task_texts[task]], bank=bank), bank=bank)
    words = tuple(
        Requirement(
            text=text,
            weight=float(weight),
            types=tuple(name for name, offered in zip(COARSE_TYPES, types, strict=True) if offered),
            spans=spans_of(text),
        )
        for text, weight, types in zip(needed.texts, needed.weights, needed.types, strict=True)
    )
    return needed, words


def explain_pairs(
    path: Path, task: int, capabilities: Rows, *, needed: TaskRequirements, sources: SourceTasks, bank: FeatureBank
) -> tuple[ExplainedPair, ...]:
    """Every stage's part in the scores of one task's candidates. capabilities: distinct rows, ascending; needed: the
    task's requirements."""
    pairs = Pairs(task=np.full(capabilities.size, task), capability=capabilities)
    trace = path.trace(pairs, bank=bank)
    stages: Mapping[str, Any] = {stage.name: stage for stage in path.stages}
    gates = _gate_terms(trace, stages.get("fusion"))
    scores = _scores(trace, stages)
    functional = _functional_parts(trace, stages.get("functional"), gates=gates, weights=needed.weights)
    contextual = _contextual_parts(trace, stages.get("contextual"), gates=gates, sources=sources)
    support = _support_parts(trace, stages.get("support"))
    return tuple(
        ExplainedPair(
            capability=int(capability),
            endpoints=pooled_endpoints(int(capability), needed, row=trace.evidence[i], bank=bank),
            channels=_channels(trace.evidence[i]),
            scores=scores[i],
            functional=functional[i],
            contextual=contextual[i],
            support=support[i],
        )
        for i, capability in enumerate(capabilities)
    )


def pooled_endpoints(
    capability: int, needed: TaskRequirements, *, row: Any, bank: FeatureBank
) -> tuple[PooledEndpoint, ...]:
    """The endpoints behind the columns of a pair's evidence, in their order: the largest cosine with any requirement
    first, equal ones by id (tact.md section 3.2). row: the pair's evidence."""
    table, corpus = evidence_of(bank).table, bank.corpus
    rows = table.rows[table.offsets[capability] : table.offsets[capability + 1]]
    if not rows.size:
        return ()
    cosine = exact_cosines(needed.vectors, bank.cache.rows([corpus.endpoints[r].text for r in rows]))
    pool = rows[np.argsort(-on_grid(cosine.max(axis=0)), kind="stable")[:ENDPOINTS]]
    return tuple(_endpoint(corpus.endpoints[r], row=row, slot=slot) for slot, r in enumerate(pool))


def _endpoint(endpoint: Endpoint, *, row: Any, slot: int) -> PooledEndpoint:
    return PooledEndpoint(
        endpoint_id=endpoint.endpoint_id,
        operation=endpoint.operation,
        required=tuple((a.name, a.type) for a in endpoint.required_arguments),
        has_argument=bool(row["has_argument"][slot]),
        has_type=bool(row["has_type"][slot]),
    )


def _channels(row: Any) -> Channels:
    size = int(row["requirements"]), int(row["endpoints"])
    return Channels(**{name: _matrix(row[name], size) for name in ("operation", "argument", "type")})


def _matrix(values: NDArray[Any], size: tuple[int, int]) -> Matrix:
    rows, columns = size
    return tuple(tuple(float(x) for x in row[:columns]) for row in values[:rows])


def _terms(names: Sequence[str], values: Sequence[float] | NDArray[Any], weights: NDArray[Any]) -> tuple[Term, ...]:
    return tuple(
        Term(name=name, value=float(value), weight=float(weight))
        for name, value, weight in zip(names, values, weights, strict=True)
    )


def _scores(trace: Trace, stages: Mapping[str, Any]) -> list[Scores]:
    proposal: FittedProposal | None = stages.get("proposal")
    relation: FittedRelation | None = stages.get("relation")
    terms: list[tuple[Term, ...]] = [()] * len(trace.pairs)
    if proposal is not None:
        terms = [_terms(LABEL_FREE, x, proposal.weights) for x in label_free(trace, space=proposal.space)]
    after = trace.functional_estimate + (0.0 if trace.contextual is None else trace.contextual.value)
    return [
        Scores(
            anchor=float(trace.anchor[i]),
            anchor_terms=terms[i],
            relation_strength=0.0 if relation is None else relation.strength,
            relation=float(trace.relation[i]),
            s1=float(trace.related[i]),
            s2=float(trace.functional_estimate[i]),
            s3=float(after[i]),
            score=float(trace.score[i]),
        )
        for i in range(len(trace.pairs))
    ]


def _gate_terms(trace: Trace, fusion: FittedFusion | None) -> list[tuple[tuple[Term, ...], tuple[Term, ...]]]:
    """Per pair the terms of the functional and of the contextual gate."""
    if fusion is None:
        return [((), ())] * len(trace.pairs)
    return [
        (_terms(GATE[:3], x[:3], fusion.functional), _terms(GATE, x, fusion.contextual)) for x in gate_inputs(trace)
    ]


def _applied(correction: Correction, place: int, *, terms: tuple[Term, ...]) -> AppliedCorrection:
    return AppliedCorrection(
        bounded=float(correction.bounded[place]),
        gate=float(correction.gate[place]),
        gate_terms=terms,
        added=float(correction.value[place]),
    )


def _functional_parts(
    trace: Trace, stage: FittedFunctional | None, *, gates: Sequence[Any], weights: NDArray[np.float32]
) -> Sequence[FunctionalPart | None]:
    correction = trace.functional
    if stage is None or correction is None:
        return [None] * len(trace.pairs)
    found, rows = stage.match(trace.evidence), trace.evidence
    return [
        FunctionalPart(
            strength=stage.settings.strength,
            composition=stage.settings.form.composition,
            kappa=stage.settings.kappa,
            argument_weight=stage.argument,
            type_weight=stage.kind,
            evidence=_matrix(found.evidence[0, i].numpy(), (int(rows[i]["requirements"]), int(rows[i]["endpoints"]))),
            matching=_matching(found, i, stage=stage, weights=weights),
            match=float(correction.signal[i]),
            reference=stage.intercept + stage.slope * float(trace.related[i]),
            intercept=stage.intercept,
            slope=stage.slope,
            scale=stage.scale,
            reliability=float(correction.reliability[i]),
            reliability_terms=_terms(FEATURES, found.features[0, i].numpy(), stage.v),
            correction=_applied(correction, i, terms=gates[i][0]),
        )
        for i in range(len(trace.pairs))
    ]


def _matching(
    found: Match, place: int, *, stage: FittedFunctional, weights: NDArray[np.float32]
) -> tuple[MatchedCell, ...]:
    evidence, cells = found.evidence[0, place].numpy(), found.cells[0, place].numpy().reshape(-1, ENDPOINTS)
    rarity = stage.settings.form.requirement_weights == "rarity"
    return tuple(
        MatchedCell(
            requirement=int(i),
            endpoint=int(j),
            evidence=float(evidence[i, j]),
            gain=float((evidence[i, j] - stage.settings.kappa) * (weights[i] if rarity else 1.0)),
        )
        for i, j in np.argwhere(cells > 0)
    )


def _contextual_parts(
    trace: Trace, stage: FittedContextual | None, *, gates: Sequence[Any], sources: SourceTasks
) -> Sequence[ContextualPart | None]:
    correction = trace.contextual
    if stage is None or correction is None:
        return [None] * len(trace.pairs)
    settings, evidence = stage.settings, looked_up(trace, stage.profiles)
    found = stage.profiles.lookup(trace.pairs.capability, bank=trace.bank)
    confidence = np.column_stack([evidence.confidence, np.abs(correction.signal)])
    q, trusted = expit(weighted_sum(confidence, stage.q)), evidence.trusted(settings)
    prototypes = _prototypes(trace, stage, evidence, found, sources=sources)
    return [
        ContextualPart(
            strength=settings.strength,
            signal=settings.signal,
            use=_use(stage, found, i, capability=int(trace.pairs.capability[i]), sources=sources),
            prototypes=prototypes[i],
            value=float(correction.signal[i]),
            scale=stage.scale,
            confidence=float(q[i]),
            confidence_terms=_terms(CONFIDENCE, confidence[i], stage.q),
            trusted=bool(trusted[i]),
            least_support=settings.least_support,
            least_nearness=settings.least_nearness,
            reliability=float(correction.reliability[i]),
            correction=_applied(correction, i, terms=gates[i][1]),
        )
        for i in range(len(trace.pairs))
    ]


def _use(
    stage: FittedContextual, found: ProfileEvidence, place: int, *, capability: int, sources: SourceTasks
) -> SourceUse:
    records, contexts = sources.use(capability)
    return SourceUse(
        lookup=stage.profiles.settings.lookup,
        records=float(found.records[place]),
        support=float(found.support[place]),
        contexts_share=float(found.contexts[place]),
        n_contexts=stage.profiles.n_contexts,
        own_records=records,
        own_contexts=contexts,
    )


def _prototypes(
    trace: Trace, stage: FittedContextual, evidence: PairEvidence, found: ProfileEvidence, *, sources: SourceTasks
) -> list[tuple[Prototype, ...]]:
    """Per pair the prototypes that move C most, largest first; none for a control or without evidence."""
    profiles, bank = stage.profiles, trace.bank
    if stage.settings.signal != "profiles" or not len(profiles.centroids):
        return [()] * len(trace.pairs)
    routing, _ = profiles.routing(trace.pairs.task[:1], bank=bank)
    nearest = _nearest_tasks(profiles.centroids, sources, bank=bank, space=profiles.settings.space)
    added = evidence.product * stage.eta
    order = np.argsort(-np.abs(added), axis=1, kind="stable")[:, :TOP_PROTOTYPES]
    return [
        tuple(
            Prototype(
                number=int(p),
                routing=float(routing[0, p]),
                mean_routing=float(profiles.mean_routing[p]),
                log_ratio=float(found.log_ratio[i, p]),
                eta=float(stage.eta[p]),
                added=float(added[i, p]),
                nearest_task=nearest[p],
            )
            for p in order[i]
            if evidence.known[i]
        )
        for i in range(len(trace.pairs))
    ]


def _nearest_tasks(
    centroids: NDArray[np.float32], sources: SourceTasks, *, bank: FeatureBank, space: str
) -> tuple[str, ...]:
    if not sources.rows.size:
        return ("",) * len(centroids)
    cosine = exact_cosines(np.asarray(bank.vectors(space)[0][sources.rows]), centroids)
    return tuple(bank.corpus.task_texts[row] for row in sources.rows[cosine.argmax(axis=0)])


def _support_parts(trace: Trace, stage: FittedSupport | None) -> Sequence[SupportPart | None]:
    if stage is None or trace.support is None:
        return [None] * len(trace.pairs)
    found = stage.profiles.lookup(trace.pairs.capability, bank=trace.bank)
    return [
        SupportPart(strength=stage.strength, support=float(support), added=float(added))
        for support, added in zip(found.support, trace.support, strict=True)
    ]

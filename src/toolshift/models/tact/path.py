"""The path of a pair through the stages: what each stage made of it, and the fitted stages one after another.

A stage that is switched off is not in the path, which is then exactly the preceding one (tact.md section 1).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from toolshift.models.base import Scores
from toolshift.models.features import FeatureBank, Pairs
from toolshift.models.steps import Step
from toolshift.models.tact.evidence import Evidence, evidence_of

Values = NDArray[np.float64]
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Correction:
    """What a validation stage adds to p pairs.

    signal: (p,) what was measured: F or C. reliability: (p,) 0 where there is no evidence. bounded: (p,) the ungated
    correction D. gate: (p,) in (0, 1]; 1 before fusion.
    """

    signal: Values
    reliability: Values
    bounded: Values
    gate: Values

    @property
    def value(self) -> Values:
        """(p,) what is added to the score."""
        return self.gate * self.bounded


@dataclass(frozen=True, kw_only=True)
class Trace:
    """p pairs on their way: anchor s0, relational term (0 without the stage), the two corrections and what source
    support adds, where they exist.

    memo holds what several stages or settings read of the same pairs.
    """

    pairs: Pairs
    bank: FeatureBank
    anchor: Values
    relation: Values
    functional: Correction | None = None
    contextual: Correction | None = None
    support: Values | None = None
    memo: dict[Hashable, Any] = field(default_factory=dict, repr=False)

    @property
    def related(self) -> Values:
        """(p,) s1."""
        return self.anchor + self.relation

    @property
    def functional_estimate(self) -> Values:
        """(p,) s2."""
        return self.related if self.functional is None else self.related + self.functional.value

    @property
    def score(self) -> Values:
        """(p,) s3, or s4 with support."""
        estimate = self.functional_estimate
        if self.contextual is not None:
            estimate = estimate + self.contextual.value
        return estimate if self.support is None else estimate + self.support

    @property
    def evidence(self) -> Evidence:
        """(p,) endpoint evidence, read once."""
        return self.remember("evidence", lambda: evidence_of(self.bank)(self.pairs))

    def without(self, stage: str) -> Values:
        """(p,) the score without what a stage adds; the other terms and their gates stay as they are."""
        nothing: Any = np.zeros(len(self.pairs)) if stage == "relation" else None
        return replace(self, **{stage: nothing}).score

    def remember(self, key: Hashable, make: Callable[[], T]) -> T:
        """What ``make`` gives, made once for these pairs."""
        if key not in self.memo:
            self.memo[key] = make()
        return self.memo[key]


class FittedStage(Protocol):
    """One stage after its fit."""

    @property
    def name(self) -> str:
        """Name of the stage."""
        ...

    @property
    def record(self) -> Mapping[str, Any]:
        """Fitted scalars, for the selection record."""
        ...

    def state(self) -> Mapping[str, NDArray[Any]]:
        """Fitted arrays."""
        ...

    def apply(self, trace: Trace) -> Trace:
        """The trace with what the stage adds."""
        ...


@dataclass(frozen=True, kw_only=True, eq=False)
class Path:
    """The fitted stages so far; the scorer of TACT.

    space: coordinates of the anchor. parent: the path without its last stage, which keeps the trace of the pairs it saw
    last, since selection scores the same lists under many settings.
    """

    space: str
    contexts_seen: tuple[str, ...]
    parent: Path | None = None
    stage: FittedStage | None = None
    _last: dict[str, Trace] = field(default_factory=dict, repr=False)

    @property
    def stages(self) -> tuple[FittedStage, ...]:
        """Fitted stages in order."""
        before = self.parent.stages if self.parent else ()
        return (*before, self.stage) if self.stage else before

    def then(self, stage: FittedStage) -> Path:
        """The path with one more stage."""
        return replace(self, parent=self, stage=stage, _last={})

    def trace(self, pairs: Pairs, *, bank: FeatureBank) -> Trace:
        """Everything about the pairs."""
        if self.parent is None or self.stage is None:
            return anchored(pairs, bank=bank, space=self.space)
        return self.stage.apply(self.parent.remembered(pairs, bank=bank))

    def remembered(self, pairs: Pairs, *, bank: FeatureBank) -> Trace:
        """`trace`, kept for the next call with the same pairs."""
        last = self._last.get("trace")
        if last is None or last.bank is not bank or not _same(last.pairs, pairs):
            last = self._last["trace"] = self.trace(pairs, bank=bank)
        return last

    def steps(self, pairs: Pairs, *, bank: FeatureBank) -> tuple[Step, ...]:
        """What every stage that adds to the score adds; the proposal and the gates are no such stage."""
        trace = self.trace(pairs, bank=bank)
        terms = {
            stage.name: getattr(trace, stage.name)
            for stage in self.stages
            if stage.name in ("relation", "functional", "contextual", "support")
        }
        return tuple(
            Step(
                stage=name,
                correction=term.bounded if isinstance(term, Correction) else term,
                added=term.value if isinstance(term, Correction) else term,
                without=trace.without(name),
            )
            for name, term in terms.items()
        )

    @property
    def record(self) -> Mapping[str, Any]:
        """Fitted scalars by stage."""
        return {stage.name: dict(stage.record) for stage in self.stages}

    def state(self) -> Mapping[str, NDArray[Any]]:
        """Fitted arrays, named by stage."""
        return {f"{stage.name}.{name}": value for stage in self.stages for name, value in stage.state().items()}

    def score(self, pairs: Pairs, *, bank: FeatureBank, seed: int) -> Scores:
        """(p,) validated scores; pointwise, so equal in every view.

        Raises:
            FloatingPointError: if a stage gives a score that is not finite; the message names the stage.
        """
        del seed
        trace = self.trace(pairs, bank=bank)
        parts = (("anchor", trace.anchor), ("relation", trace.related), ("functional", trace.functional_estimate))
        for name, values in (*parts, ("contextual, fusion or support", trace.score)):
            if not np.isfinite(values).all():
                bad = int((~np.isfinite(values)).sum())
                raise FloatingPointError(f"TACT, stage {name}: {bad} of {len(pairs)} scores are not finite")
        return trace.score


def anchored(pairs: Pairs, *, bank: FeatureBank, space: str) -> Trace:
    """The semantic proposal: cosine of the same public texts as Semantic Cosine, bit for bit [G]."""
    anchor = bank.cosine(pairs, space=space)
    return Trace(pairs=pairs, bank=bank, anchor=anchor, relation=np.zeros(len(pairs)))


def weighted_sum(columns: NDArray[np.float64], weights: NDArray[np.float64]) -> Values:
    """(p,) columns @ weights for (p, f) and (f,), added up column by column: a matrix product may give a row other last
    bits when it is alone than among others."""
    total = np.zeros(len(columns))
    for column, weight in zip(columns.T, weights, strict=True):
        total += column * weight
    return total


def _same(one: Pairs, other: Pairs) -> bool:
    return np.array_equal(one.task, other.task) and np.array_equal(one.capability, other.capability)

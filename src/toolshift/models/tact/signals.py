"""What TACT's endpoint evidence says of a pair before anything is trained, for models that want it as a number."""

from __future__ import annotations

import numpy as np

from toolshift.models.features import FeatureBank, Pairs, Values
from toolshift.models.tact.evidence import evidence_of
from toolshift.models.tact.functional import FittedFunctional, Form, FunctionalSettings

_CHUNK_PAIRS = 131_072
# Channel weights and kappa at the start of training (tact.md sections 3.4 and 3.5); the rest shapes no match.
_UNTRAINED = FittedFunctional(
    settings=FunctionalSettings(
        strength=0.0, kappa=0.3, set_weight=0.0, temperature=1.0, learning_rate=0.0, form=Form()
    ),
    argument=0.5,
    kind=0.25,
    v=np.zeros(7),
    intercept=0.0,
    slope=0.0,
    scale=1.0,
)


def untrained_match(pairs: Pairs, *, bank: FeatureBank) -> Values:
    """(p,) the match F at the initial weights; 0 for a capability without endpoints."""
    return bank.cached("tact.match", lambda part: _UNTRAINED.matched(evidence_of(bank)(part))[0])(pairs)


def best_requirement_endpoint_cosine(pairs: Pairs, *, bank: FeatureBank) -> Values:
    """(p,) the largest non-negative cosine of a requirement and an endpoint; the cosine of the public texts, at least
    0, for a capability without endpoints."""

    def compute(part: Pairs) -> Values:
        evidence = evidence_of(bank)(part)
        best = evidence["operation"].max(axis=(1, 2)).astype(np.float64)
        return np.where(evidence["endpoints"] > 0, best, np.maximum(bank.cosine(part), 0.0))

    return bank.cached("tact.best_cosine", compute)(pairs)

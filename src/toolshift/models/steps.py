"""What a score is made of, for scorers that build it up in stages: the measure of activity asks for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from toolshift.models.features import FeatureBank, Pairs

Values = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Step:
    """One stage's part in the score of p pairs.

    correction: (p,) D, before its gate. added: (p,) what the stage adds, gate included. without: (p,) the score without
    it, everything else as it was fitted.
    """

    stage: str
    correction: Values
    added: Values
    without: Values


@runtime_checkable
class Stepwise(Protocol):
    """A scorer whose score is a sum over stages."""

    def steps(self, pairs: Pairs, *, bank: FeatureBank) -> tuple[Step, ...]:
        """The stages that are on, in order; none where the score is the proposal alone."""
        ...

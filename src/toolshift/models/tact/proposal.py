"""A stronger semantic proposal than the paper's, an option of ours: a linear blend of label-free signals.

The paper's anchor is the cosine alone. The controls of this project show that cheap signals beside it carry much of
what a structured method gains; here they enter before the first stage, so that the later stages correct what is left.
Weights are a conditional logit on the fold's own lists without contextual negatives. The score is put on the scale of a
cosine by the temperature of the other losses.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from toolshift.models.tact.lists import CONTEXTUAL
from toolshift.models.tact.path import Trace, Values, weighted_sum
from toolshift.models.transfer.blend import POPULARITY, SIGNALS, signals
from toolshift.models.transfer.conditional_logit import fit_conditional_logit
from toolshift.training.lists import Batch

if TYPE_CHECKING:
    from toolshift.models.tact.fold import TactFold

Proposal = Literal["cosine", "blend"]
LABEL_FREE = tuple(name for name in SIGNALS if name != POPULARITY)


@dataclass(frozen=True, kw_only=True)
class ProposalSettings:
    """temperature: puts logits on the scale of a cosine. l2: of the standardised weights."""

    temperature: float
    l2: float
    space: str

    side_by_side: ClassVar[tuple[str, ...]] = ()
    """Scalars in which settings may differ and still be fitted together."""


@dataclass(frozen=True, kw_only=True)
class FittedProposal:
    """weights: (len(LABEL_FREE),) on raw signals, temperature included."""

    weights: NDArray[np.float64]
    space: str
    name: str = "proposal"

    @property
    def record(self) -> Mapping[str, Any]:
        """Weights by signal."""
        return {"weights": dict(zip(LABEL_FREE, self.weights.tolist(), strict=True))}

    def state(self) -> Mapping[str, NDArray[Any]]:
        """Weights."""
        return {"weights": self.weights}

    @staticmethod
    def restored(settings: ProposalSettings, arrays: Mapping[str, NDArray[Any]]) -> FittedProposal:
        """What `state` stored.

        Raises:
            KeyError: if an array is missing.
        """
        return FittedProposal(weights=arrays["weights"], space=settings.space)

    def apply(self, trace: Trace) -> Trace:
        """The blend in place of the cosine."""
        return replace(trace, anchor=weighted_sum(label_free(trace, space=self.space), self.weights))


def label_free(trace: Trace, *, space: str) -> Values:
    """(p, len(LABEL_FREE)) signals of the pairs, computed once per trace."""

    def make() -> Values:
        nothing = np.zeros(len(trace.pairs), np.int64)
        return signals(trace.pairs, LABEL_FREE, bank=trace.bank, records=nothing, space=space)

    return trace.remember(("label-free signals", space), make)


def fit_proposal(
    settings: Sequence[ProposalSettings], fold: TactFold, before: Trace, *, epochs: int, batch_tasks: int
) -> Iterator[tuple[FittedProposal]]:
    """One closed-form fit."""
    del epochs, batch_tasks
    (setting,) = settings
    lists = fold.lists.whole.without(CONTEXTUAL)  # as in the relation, which builds on it
    values = label_free(before, space=setting.space)[lists.index]
    mean, scale = values.mean(axis=0), values.std(axis=0) + 1e-9
    batch = Batch(
        tasks=fold.lists.tasks,
        offsets=lists.offsets,
        capability=fold.lists.pairs.capability[lists.index],
        positive=lists.positive,
    )
    weights = fit_conditional_logit((values - mean) / scale, batch, l2=setting.l2) / scale
    yield (FittedProposal(weights=weights * setting.temperature, space=setting.space),)

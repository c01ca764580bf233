"""Validated ranking: s3 = s1 + g_F D_F + g_C D_C with two bounded gates (tact.md section 5 [R]).

    g_F = sigmoid(b_F + u_F . [s1, rho_F]),   g_C = sigmoid(b_C + u_C . [s1, rho_F, rho_C]),   bias +1 at the start

Trained on all negative roles with equal weight per role, everything before frozen [R].
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from toolshift.models.tact.lists import CONTEXTUAL, ORDINARY, SEMANTIC
from toolshift.models.tact.path import Trace, Values, weighted_sum
from toolshift.training.losses import listwise

if TYPE_CHECKING:
    from toolshift.models.tact.fold import TactFold

Gates = Literal["function", "scalar", "none"]
_START = 1.0


@dataclass(frozen=True, kw_only=True)
class FusionSettings:
    """gates: functions of score and reliabilities, two scalars (an open choice), or none: corrections stay ungated."""

    gates: Gates
    temperature: float
    learning_rate: float

    side_by_side: ClassVar[tuple[str, ...]] = ()
    """Scalars in which settings may differ and still be fitted together."""


@dataclass(frozen=True, kw_only=True)
class FittedFusion:
    """functional: (3,) b_F, u_F. contextual: (4,) b_C, u_C."""

    functional: NDArray[np.float64]
    contextual: NDArray[np.float64]
    name: str = "fusion"

    @property
    def record(self) -> Mapping[str, Any]:
        """Weights of both gates, bias first."""
        return {"functional_gate": self.functional.tolist(), "contextual_gate": self.contextual.tolist()}

    def state(self) -> Mapping[str, NDArray[Any]]:
        """Weights of both gates."""
        return {"functional": self.functional, "contextual": self.contextual}

    @staticmethod
    def restored(settings: FusionSettings, arrays: Mapping[str, NDArray[Any]]) -> FittedFusion:
        """What `state` stored; the weights that a setting leaves out are 0 in it.

        Raises:
            KeyError: if an array is missing.
        """
        del settings
        return FittedFusion(functional=arrays["functional"], contextual=arrays["contextual"])

    def apply(self, trace: Trace) -> Trace:
        """s3 with both corrections gated."""
        inputs = gate_inputs(trace)
        functional, contextual = trace.functional, trace.contextual
        if functional is not None:
            functional = replace(functional, gate=expit(weighted_sum(inputs[:, :3], self.functional)))
        if contextual is not None:
            contextual = replace(contextual, gate=expit(weighted_sum(inputs, self.contextual)))
        return replace(trace, functional=functional, contextual=contextual)


def gate_inputs(trace: Trace) -> Values:
    """(p, 4) [1, s1, rho_F, rho_C]; 0 for a stage that is off."""
    nothing = np.zeros(len(trace.pairs))
    reliability = [nothing if c is None else c.reliability for c in (trace.functional, trace.contextual)]
    return np.column_stack([np.ones(len(trace.pairs)), trace.related, *reliability])


def fit_fusion(
    settings: Sequence[FusionSettings], fold: TactFold, before: Trace, *, epochs: int, batch_tasks: int
) -> Iterator[tuple[FittedFusion]]:
    """The gates of one setting after each epoch. before: the fold's pairs with both corrections, cross-fitted and
    ungated.

    Raises:
        FloatingPointError: if a loss is not finite.
    """
    import torch

    (setting,), device = settings, fold.device

    def tensor(values: NDArray[Any]) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(values)).to(device, torch.float32)

    nothing = np.zeros(len(before.pairs))
    related, inputs = tensor(before.related), tensor(gate_inputs(before))
    d_f, d_c = (tensor(nothing if c is None else c.bounded) for c in (before.functional, before.contextual))
    functional = torch.tensor([_START, 0.0, 0.0], device=device, requires_grad=True)
    contextual = torch.tensor([_START, 0.0, 0.0, 0.0], device=device, requires_grad=True)
    kept = torch.tensor([1.0] + [float(setting.gates == "function")] * 3, device=device)
    optimiser = torch.optim.Adam([functional, contextual], lr=setting.learning_rate)
    for number in range(epochs):
        losses = []
        for batch in fold.lists.epoch(number, seed=fold.seed, batch_tasks=batch_tasks):
            index = torch.from_numpy(batch.index).to(device)
            x = inputs[index] * kept
            scores = related[index] + torch.sigmoid(x[:, :3] @ functional) * d_f[index]
            scores = scores + torch.sigmoid(x @ contextual) * d_c[index]
            loss = listwise(
                scores,
                batch.offsets,
                positive=batch.positive,
                temperature=setting.temperature,
                weights=batch.balanced(ORDINARY, SEMANTIC, CONTEXTUAL),
            )
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            losses.append(loss.detach())
        if not bool(torch.isfinite(torch.stack(losses)).all()):
            raise FloatingPointError(f"TACT, stage fusion, epoch {number + 1}: the loss is not finite")
        weights = [(w.detach() * kept[: len(w)]).double().cpu().numpy() for w in (functional, contextual)]
        yield (FittedFusion(functional=weights[0], contextual=weights[1]),)

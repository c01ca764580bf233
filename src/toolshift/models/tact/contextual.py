"""Contextual validation: does a capability apply under the task's conditions (tact.md sections 4.3 to 4.5 [R]).

    C(t,c) = sum_p eta_p (R_p(t) - Rbar_p) ln(pi_cp / b_p),   D_C = beta * rho_C * tanh( C / tau_C ),   |D_C| <= beta

C is centred and signed [G]: 0 on average over source tasks, 0 for a capability used like the average one, so that only
*changes* of applicability count and popularity does not. rho_C needs records, support and a learned confidence q above
one half; without evidence the correction is exactly 0. For a training task all counts are taken without its context
[G: cross-fitted].

Controls (validity.md section 6) take the place of D_C: ``presence`` is the mere existence of a source record,
``popularity`` the support S_c, each with a signed strength.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from toolshift.models.features import FeatureBank, Pairs
from toolshift.models.tact.lists import CONTEXTUAL, ORDINARY, POSITIVE, SEMANTIC, RoleBatch
from toolshift.models.tact.path import Correction, Trace, Values, weighted_sum
from toolshift.models.tact.profiles import Profiles, ProfileSettings

if TYPE_CHECKING:
    import torch

    from toolshift.models.tact.fold import TactFold

Signal = Literal["profiles", "presence", "popularity"]
CONFIDENCE = ("constant", "support", "log records", "contexts", "nearest prototype", "certainty of routing", "|C|")
COUNTERFACTUAL_MARGIN = 0.05
NEUTRAL_WITHIN = 0.1
"""Pairs with |C| below this share of tau_C should not be moved."""
_TINY = 1e-9


@dataclass(frozen=True, kw_only=True)
class ContextualSettings:
    """strength: beta; signed for a control. neutral: weight of the neutrality objective. least_support, least_nearness:
    s_min and r_min."""

    strength: float
    neutral: float
    least_support: float
    least_nearness: float
    signal: Signal
    learning_rate: float
    profiles: ProfileSettings
    cross_fit: int

    side_by_side: ClassVar[tuple[str, ...]] = ("strength", "neutral", "least_support", "least_nearness")
    """Scalars in which settings may differ and still be fitted together."""


@dataclass(frozen=True, kw_only=True)
class PairEvidence:
    """Contextual evidence of p pairs. product: (p, P) (R - Rbar) ln(pi/b). confidence: (p, 6) of ``CONFIDENCE`` but
    |C|. known: (p,) n_c > 0. support, nearness: (p,)."""

    product: Values
    confidence: Values
    known: NDArray[np.bool_]
    support: Values
    nearness: Values

    @staticmethod
    def of(pairs: Pairs, profiles: Profiles, *, bank: FeatureBank) -> PairEvidence:
        """Route the tasks and look the capabilities up, each once."""
        tasks, task = np.unique(pairs.task, return_inverse=True)
        capabilities, capability = np.unique(pairs.capability, return_inverse=True)
        task, capability = task.ravel(), capability.ravel()
        routing, nearest = profiles.routing(tasks, bank=bank)
        found = profiles.lookup(capabilities, bank=bank)
        known = found.records[capability] > 0
        certainty = 1.0 - _entropy(routing) / np.log(max(routing.shape[1], 2))
        columns = (
            np.ones(len(pairs)),
            found.support[capability],
            np.log1p(found.records)[capability],
            found.contexts[capability],
            nearest[task],
            certainty[task],
        )
        return PairEvidence(
            product=(routing - profiles.mean_routing)[task] * found.log_ratio[capability],
            confidence=np.column_stack(columns),
            known=known,
            support=found.support[capability],
            nearness=nearest[task],
        )

    def numbered(self, numbers: NDArray[np.int64], *, count: int) -> PairEvidence:
        """The evidence with prototypes numbered as others, ``count`` in all; one that is missing here says nothing, and
        one beyond them is left out."""
        product = np.zeros((len(self.known), count))
        inside = numbers < count
        product[:, numbers[inside]] = self.product[:, inside]
        return replace(self, product=product)

    def trusted(self, settings: ContextualSettings) -> NDArray[np.bool_]:
        """(p,) pairs that the hard conditions of rho_C let through."""
        enough = self.support >= settings.least_support
        return self.known & enough & (self.nearness >= settings.least_nearness)


@dataclass(frozen=True, kw_only=True)
class FittedContextual:
    """eta: (P,). q: (7,) over ``CONFIDENCE``. scale: tau_C. profiles: of all source tasks of the fit."""

    settings: ContextualSettings
    profiles: Profiles
    eta: Values
    q: Values
    scale: float
    name: str = "contextual"

    @property
    def record(self) -> Mapping[str, Any]:
        """Strength, confidence weights and scale."""
        return {
            "strength": self.settings.strength,
            "signal": self.settings.signal,
            "confidence": dict(zip(CONFIDENCE, self.q.tolist(), strict=True)),
            "eta": [float(self.eta.min(initial=np.inf)), float(self.eta.max(initial=-np.inf))] if self.eta.size else [],
            "scale": self.scale,
            "capabilities_with_records": int(self.profiles.capabilities.size),
        }

    def state(self) -> Mapping[str, NDArray[Any]]:
        """Weights, prototypes and profiles."""
        scale = np.array([self.scale, self.settings.strength])
        return {"eta": self.eta, "confidence": self.q, "scale": scale, **self.profiles.state()}

    @staticmethod
    def restored(settings: ContextualSettings, arrays: Mapping[str, NDArray[Any]]) -> FittedContextual:
        """What `state` stored.

        Raises:
            KeyError: if an array is missing.
        """
        return FittedContextual(
            settings=settings,
            profiles=Profiles.restored(settings.profiles, arrays),
            eta=arrays["eta"],
            q=arrays["confidence"],
            scale=float(arrays["scale"][0]),
        )

    def apply(self, trace: Trace) -> Trace:
        """s3, ungated."""
        return replace(trace, contextual=self.correction(looked_up(trace, self.profiles)))

    def correction(self, evidence: PairEvidence) -> Correction:
        """The correction of pairs whose evidence is given."""
        settings, one = self.settings, np.ones(len(evidence.known))
        if settings.signal != "profiles":
            signal = control_signal(evidence, settings.signal)
            reliability = evidence.known.astype(np.float64)
            return Correction(signal=signal, reliability=reliability, bounded=settings.strength * signal, gate=one)
        signal = np.where(evidence.known, weighted_sum(evidence.product, self.eta), 0.0)
        confidence = np.column_stack([evidence.confidence, np.abs(signal)])
        q = expit(weighted_sum(confidence, self.q))
        reliability = np.where(evidence.trusted(settings), np.maximum(0.0, (q - 0.5) / 0.5), 0.0)
        bounded = settings.strength * reliability * np.tanh(signal / self.scale)
        return Correction(signal=signal, reliability=reliability, bounded=bounded, gate=one)


def looked_up(trace: Trace, profiles: Profiles) -> PairEvidence:
    """What the profiles say of the pairs, once per trace and set of profiles."""
    return trace.remember(("profiles", profiles), lambda: PairEvidence.of(trace.pairs, profiles, bank=trace.bank))


def control_signal(evidence: PairEvidence, signal: Signal) -> Values:
    """(p,) 1[n_c > 0] or S_c."""
    return evidence.known.astype(np.float64) if signal == "presence" else evidence.support


def fit_contextual(
    settings: Sequence[ContextualSettings], fold: TactFold, before: Trace, *, epochs: int, batch_tasks: int
) -> Iterator[tuple[FittedContextual, ...]]:
    """The fitted stage of every setting after each epoch; a control has nothing to train and is yielded once. before:
    the fold's pairs with s2, which stays fixed [G]. The settings share profiles and signal.

    Raises:
        FloatingPointError: if a loss is not finite.
    """
    import torch

    first = settings[0]
    profiles = fold.profiles(first.profiles)
    prototypes = len(profiles.centroids)
    if first.signal != "profiles":
        idle = {"profiles": profiles, "eta": np.ones(prototypes), "q": np.zeros(len(CONFIDENCE)), "scale": 1.0}
        yield tuple(FittedContextual(settings=setting, **idle) for setting in settings)
        return
    state = _Training(settings, fold, before, profiles=profiles)
    state.rescale()
    for number in range(epochs):
        batches = fold.lists.epoch(number, seed=fold.seed, batch_tasks=batch_tasks)
        losses = [state.step(batch) for batch in batches]
        if not bool(torch.isfinite(torch.stack(losses)).all()):
            raise FloatingPointError(f"TACT, stage contextual, epoch {number + 1}: the loss is not finite")
        state.rescale()
        yield state.fitted()


class _Training:
    """s networks: theta (s, P) of eta = softplus(theta), and the confidence weights q (s, 7)."""

    def __init__(
        self, settings: Sequence[ContextualSettings], fold: TactFold, before: Trace, *, profiles: Profiles
    ) -> None:
        import torch

        first, device, count = settings[0], fold.device, len(settings)
        self.settings, self.fold, self.profiles = settings, fold, profiles
        evidence = before.remember(
            ("cross-fitted", first.profiles, first.cross_fit),
            lambda: fold.cross_fitted(first.profiles, count=first.cross_fit),
        )

        def tensor(values: NDArray[Any]) -> torch.Tensor:
            return torch.from_numpy(np.ascontiguousarray(values)).to(device, torch.float32)

        self.product, self.confidence = tensor(evidence.product), tensor(evidence.confidence)
        self.known = tensor(evidence.known)
        self.trusted = torch.stack([tensor(evidence.trusted(setting)) for setting in settings])
        self.estimate = tensor(before.functional_estimate)
        self.theta = torch.full(
            (count, self.product.shape[1]), float(np.log(np.expm1(1.0))), device=device, requires_grad=True
        )
        self.q = torch.zeros(count, len(CONFIDENCE), device=device, requires_grad=True)
        self.strength = torch.tensor([s.strength for s in settings], device=device).unsqueeze(1)
        self.neutral = torch.tensor([s.neutral for s in settings], device=device)
        self.scale = torch.ones(count, 1, device=device)
        self.optimiser = torch.optim.Adam([self.theta, self.q], lr=first.learning_rate)

    def signal(self, index: torch.Tensor) -> torch.Tensor:
        """(s, p) C."""
        import torch

        return torch.nn.functional.softplus(self.theta) @ self.product[index].T

    def rescale(self) -> None:
        """tau_C: the deviation of C over the fold's pairs with evidence."""
        import torch

        with torch.no_grad():
            known = torch.nonzero(self.known).squeeze(1)
            if known.numel() > 1:
                spread = self.signal(known).double().std(dim=1, unbiased=False, keepdim=True)
                self.scale = spread.clamp(min=_TINY).float()

    def step(self, batch: RoleBatch) -> torch.Tensor:
        """(s,) losses before the step."""
        import torch

        device = self.estimate.device
        index = torch.from_numpy(batch.index).to(device)
        signal = self.signal(index)
        # |C| is detached: the confidence is taught by its own loss alone, and so may not shape C.
        confidence = torch.cat(
            [
                self.confidence[index].unsqueeze(0).expand(len(self.settings), -1, -1),
                signal.detach().abs().unsqueeze(2),
            ],
            dim=2,
        )
        logit = (confidence * self.q.unsqueeze(1)).sum(dim=2)
        # No gradient from the ranking losses into q: abstention cannot be learned away.
        sure = ((torch.sigmoid(logit.detach()) - 0.5) / 0.5).clamp(min=0.0)
        bounded = self.strength * self.trusted[:, index] * sure * torch.tanh(signal / self.scale)
        loss = self._counterfactual(bounded, batch, index) + self._confidence(logit, signal, batch, index)
        loss = loss + self.neutral * self._neutrality(bounded, signal, batch)
        self.optimiser.zero_grad()
        loss.sum().backward()
        self.optimiser.step()
        return loss.detach()

    def _counterfactual(self, bounded: torch.Tensor, batch: RoleBatch, index: torch.Tensor) -> torch.Tensor:
        import torch

        positives, negatives = (torch.from_numpy(x).to(bounded.device) for x in batch.against(CONTEXTUAL))
        if not positives.numel():
            return bounded.new_zeros(bounded.shape[0])
        score = self.estimate[index].unsqueeze(0) + bounded
        gap = score.index_select(1, positives) - score.index_select(1, negatives)
        return torch.nn.functional.softplus((COUNTERFACTUAL_MARGIN - gap) / COUNTERFACTUAL_MARGIN).mean(dim=1)

    def _confidence(
        self, logit: torch.Tensor, signal: torch.Tensor, batch: RoleBatch, index: torch.Tensor
    ) -> torch.Tensor:
        """Logistic loss of q: is the sign of C right for positives and contextual negatives with evidence."""
        import torch

        judged = torch.from_numpy(np.isin(batch.role, (POSITIVE, CONTEXTUAL))).to(logit.device) & (
            self.known[index] > 0
        )
        at = torch.nonzero(judged).squeeze(1)
        if not at.numel():
            return logit.new_zeros(logit.shape[0])
        positive = torch.from_numpy(batch.positive).to(logit.device)[at]
        right = torch.where(positive, signal[:, at] > 0, signal[:, at] < 0).float()
        cross_entropy = torch.nn.functional.binary_cross_entropy_with_logits
        return cross_entropy(logit.index_select(1, at), right.detach(), reduction="none").mean(dim=1)

    def _neutrality(self, bounded: torch.Tensor, signal: torch.Tensor, batch: RoleBatch) -> torch.Tensor:
        import torch

        control = torch.from_numpy(np.isin(batch.role, (ORDINARY, SEMANTIC))).to(bounded.device)
        quiet = control.unsqueeze(0) | (signal.detach().abs() <= NEUTRAL_WITHIN * self.scale)
        squared = bounded.square() * quiet
        return squared.sum(dim=1) / quiet.sum(dim=1).clamp(min=1)

    def fitted(self) -> tuple[FittedContextual, ...]:
        import torch

        eta = torch.nn.functional.softplus(self.theta).detach().double().cpu().numpy()
        q = self.q.detach().double().cpu().numpy().copy()
        return tuple(
            FittedContextual(
                settings=setting, profiles=self.profiles, eta=eta[i], q=q[i], scale=float(self.scale[i, 0])
            )
            for i, setting in enumerate(self.settings)
        )


def _entropy(routing: Values) -> Values:
    return -(routing * np.log(np.maximum(routing, _TINY))).sum(axis=1)

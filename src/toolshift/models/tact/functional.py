"""Functional validation: endpoint evidence, matched and held against what is usual at the pair's score (tact.md 3).

Per pair: evidence is composed inside each endpoint before anything else [G], requirements are matched to endpoints
exactly, one to one and partially [G], and the match F moves the score by

    D_F = beta * rho_F * tanh( (F - F_ref) / tau_F ),   |D_F| <= beta                                            [R]

F_ref is the least-squares line of F on s1 over source pairs: a pair without evidence gets 0, the value of an average
match, not of a mismatch. Reference and scale are statistics, refitted at the start of every epoch and after the last.
Settings that differ in strength, kappa or loss weights are trained side by side.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from toolshift.models.tact.assignment import CELLS, ENDPOINTS, REQUIREMENTS, assign, best_totals
from toolshift.models.tact.evidence import Evidence
from toolshift.models.tact.lists import CONTEXTUAL, SEMANTIC, RoleBatch
from toolshift.models.tact.path import Correction, Trace, Values
from toolshift.training.losses import listwise

if TYPE_CHECKING:
    import torch

    from toolshift.models.tact.fold import TactFold

Composition = Literal["same_endpoint", "cross_endpoint"]
Denominator = Literal["smaller", "requirements"]
EmptyArguments = Literal["no_evidence", "satisfied"]
Reference = Literal["line", "constant"]
RequirementWeights = Literal["uniform", "rarity"]

FEATURES = ("constant", "argument mask", "type mask", "matched share", "margin", "requirements", "endpoints")
FRIEND_WITHIN = 0.05
"""A semantic negative is a false friend where some positive has an s1 at most this far away."""
SET_MARGIN = 0.1
RESIDUAL_PENALTY = 0.01
_ABSENT = -8.0
_CHUNK_PAIRS = 32_768
_TINY = 1e-6


@dataclass(frozen=True, kw_only=True)
class Form:
    """What the fits of one stage have in common: the shape of the functional match.

    composition: ``cross_endpoint`` lets each channel take its own best endpoint (a control). denominator: of F;
    ``requirements`` is the other reading of the open choice. empty_arguments: whether an endpoint that requires nothing
    gives no argument evidence, or full evidence. reference: F_ref as a line in s1, or a constant. requirement_weights:
    ``rarity`` (an option of ours) weighs the gains of a requirement by the rarity of its words.
    """

    composition: Composition = "same_endpoint"
    denominator: Denominator = "smaller"
    empty_arguments: EmptyArguments = "no_evidence"
    reference: Reference = "line"
    requirement_weights: RequirementWeights = "uniform"


@dataclass(frozen=True, kw_only=True)
class FunctionalSettings:
    """strength: beta. kappa: evidence that a match must exceed. set_weight: of the endpoint-set objective."""

    strength: float
    kappa: float
    set_weight: float
    temperature: float
    learning_rate: float
    form: Form

    side_by_side: ClassVar[tuple[str, ...]] = ("strength", "kappa", "set_weight")
    """Scalars in which settings may differ and still be fitted together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grids:
    """Evidence of p pairs as tensors: channels (p, 4, 4), masks and weights (p, 4), counts (p,)."""

    operation: torch.Tensor
    argument: torch.Tensor
    type: torch.Tensor
    weight: torch.Tensor
    has_argument: torch.Tensor
    has_type: torch.Tensor
    requirements: torch.Tensor
    endpoints: torch.Tensor

    @staticmethod
    def of(evidence: Evidence, *, form: Form, device: str) -> Grids:
        """Evidence as stored, with the reading of empty argument lists applied."""
        import torch

        def tensor(name: str) -> torch.Tensor:
            # A copy: a field of a single record counts as contiguous with the strides of the whole record.
            return torch.from_numpy(np.array(evidence[name])).to(device, torch.float32)

        argument, has_argument, endpoints = tensor("argument"), tensor("has_argument"), tensor("endpoints")
        if form.empty_arguments == "satisfied":
            exists = torch.arange(ENDPOINTS, device=device) < endpoints.unsqueeze(1)
            empty = exists & (has_argument == 0)
            argument = torch.where(empty.unsqueeze(1), torch.ones_like(argument), argument)
            has_argument = torch.where(empty, torch.ones_like(has_argument), has_argument)
        return Grids(
            operation=tensor("operation"),
            argument=argument,
            type=tensor("type"),
            weight=tensor("weight"),
            has_argument=has_argument,
            has_type=tensor("has_type"),
            requirements=tensor("requirements"),
            endpoints=endpoints,
        )

    def take(self, index: torch.Tensor) -> Grids:
        """Some of the pairs."""
        return Grids(**{name: getattr(self, name)[index] for name in Grids.__slots__})

    def __len__(self) -> int:
        return int(self.requirements.shape[0])

    @property
    def present(self) -> torch.Tensor:
        """(p, 4, 4) cells of an existing requirement and an existing endpoint."""
        import torch

        rows = torch.arange(REQUIREMENTS, device=self.requirements.device) < self.requirements.unsqueeze(1)
        columns = torch.arange(ENDPOINTS, device=self.requirements.device) < self.endpoints.unsqueeze(1)
        return rows.unsqueeze(2) & columns.unsqueeze(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """(s, p) match F and logit of its ungated reliability rho_F, (p,) whether there is anything to match, and the
    (s, p, 16) matching; what they are made of: (s, p, 4, 4) composed evidence and (s, p, 7) ``FEATURES``."""

    value: torch.Tensor
    logit: torch.Tensor
    known: torch.Tensor
    cells: torch.Tensor
    evidence: torch.Tensor
    features: torch.Tensor

    @property
    def reliability(self) -> torch.Tensor:
        """(s, p) rho_F."""
        import torch

        return torch.sigmoid(self.logit) * self.known


def composed(grids: Grids, argument: torch.Tensor, kind: torch.Tensor, *, form: Form) -> torch.Tensor:
    """(s, p, 4, 4) evidence of every requirement and endpoint for channel weights ``argument``, ``kind`` (s,).

    A channel whose mask is 0 has no weight; with both masks 0 the evidence is the operation's (tact.md section 3.4).
    """
    operation = grids.operation.unsqueeze(0)
    w_a = argument.reshape(-1, 1, 1, 1) * grids.has_argument.reshape(1, len(grids), 1, ENDPOINTS)
    w_y = kind.reshape(-1, 1, 1, 1) * grids.has_type.reshape(1, len(grids), 1, ENDPOINTS)
    if form.composition == "cross_endpoint":
        masked = (grids.argument * grids.has_argument.unsqueeze(1), grids.type * grids.has_type.unsqueeze(1))
        best = [x.amax(dim=2, keepdim=True) for x in (grids.operation, *masked)]
        operation, arguments, kinds = (x.expand_as(grids.operation).unsqueeze(0) for x in best)
        w_a, w_y = (w.amax(dim=3, keepdim=True).expand_as(w) for w in (w_a, w_y))
    else:
        arguments, kinds = grids.argument.unsqueeze(0), grids.type.unsqueeze(0)
    return (operation + w_a * arguments + w_y * kinds) / (1.0 + w_a + w_y)


def match(
    grids: Grids, *, argument: torch.Tensor, kind: torch.Tensor, kappa: torch.Tensor, v: torch.Tensor, form: Form
) -> Match:
    """Match F and reliability for s networks. argument, kind, kappa: (s,); v: (s, 7) over ``FEATURES``."""
    import torch

    evidence = composed(grids, argument, kind, form=form)
    found = assign(_gains(grids, evidence, kappa=kappa, form=form))
    smaller = torch.minimum(grids.requirements, grids.endpoints).clamp(min=1.0)
    divisor = _divisor(grids, form=form)
    known = (grids.requirements > 0) & (grids.endpoints > 0)
    features = _reliability_features(grids, found.matched / smaller, found.margin)
    return Match(
        value=torch.where(known, found.value / divisor, torch.zeros_like(found.value)),
        logit=(features * v.unsqueeze(1)).sum(dim=2),
        known=known,
        cells=found.cells,
        evidence=evidence,
        features=features,
    )


def match_values(
    grids: Grids, *, argument: torch.Tensor, kind: torch.Tensor, kappa: torch.Tensor, form: Form
) -> torch.Tensor:
    """(s, p) match F alone, without a gradient."""
    import torch

    evidence = composed(grids, argument, kind, form=form)
    total = best_totals(_gains(grids, evidence, kappa=kappa, form=form))
    known = (grids.requirements > 0) & (grids.endpoints > 0)
    return torch.where(known, total / _divisor(grids, form=form), torch.zeros_like(total))


def _gains(grids: Grids, evidence: torch.Tensor, *, kappa: torch.Tensor, form: Form) -> torch.Tensor:
    """(s, p, 16) what a cell adds to a matching; absent cells are never worth taking."""
    import torch

    gains = evidence - kappa.reshape(-1, 1, 1, 1)
    if form.requirement_weights == "rarity":
        gains = gains * grids.weight.unsqueeze(2)
    return torch.where(grids.present.unsqueeze(0), gains, torch.full_like(gains, _ABSENT)).flatten(2)


def _divisor(grids: Grids, *, form: Form) -> torch.Tensor:
    """(p,) what the total is divided by."""
    import torch

    if form.denominator == "requirements":
        return grids.requirements.clamp(min=1.0)
    return torch.minimum(grids.requirements, grids.endpoints).clamp(min=1.0)


def _reliability_features(grids: Grids, matched: torch.Tensor, margin: torch.Tensor) -> torch.Tensor:
    """(s, p, 7) ``FEATURES``."""
    import torch

    count = grids.endpoints.clamp(min=1.0)
    shared = [
        torch.ones_like(count),
        grids.has_argument.sum(dim=1) / count,
        grids.has_type.sum(dim=1) / count,
        grids.requirements / REQUIREMENTS,
        grids.endpoints / ENDPOINTS,
    ]
    constant, argument, kind, requirements, endpoints = (x.unsqueeze(0).expand_as(matched) for x in shared)
    return torch.stack([constant, argument, kind, matched, margin.clamp(max=1.0), requirements, endpoints], dim=2)


@dataclass(frozen=True, kw_only=True)
class FittedFunctional:
    """argument, kind: channel weights w_a, w_y. v: (7,). intercept, slope: F_ref. scale: tau_F."""

    settings: FunctionalSettings
    argument: float
    kind: float
    v: NDArray[np.float64]
    intercept: float
    slope: float
    scale: float
    name: str = "functional"

    @property
    def record(self) -> Mapping[str, Any]:
        """Strength, weights, reference and scale."""
        return {
            "strength": self.settings.strength,
            "kappa": self.settings.kappa,
            "argument_weight": self.argument,
            "type_weight": self.kind,
            "reliability": dict(zip(FEATURES, self.v.tolist(), strict=True)),
            "reference": [self.intercept, self.slope],
            "scale": self.scale,
        }

    def state(self) -> Mapping[str, NDArray[Any]]:
        """All of it as arrays."""
        weights = [self.argument, self.kind, self.settings.kappa, self.settings.strength]
        reference = [self.intercept, self.slope, self.scale]
        return {"weights": np.array(weights), "reliability": self.v, "reference": np.array(reference)}

    @staticmethod
    def restored(settings: FunctionalSettings, arrays: Mapping[str, NDArray[Any]]) -> FittedFunctional:
        """What `state` stored.

        Raises:
            KeyError: if an array is missing.
        """
        argument, kind = arrays["weights"][:2].tolist()
        intercept, slope, scale = arrays["reference"].tolist()
        return FittedFunctional(
            settings=settings,
            argument=argument,
            kind=kind,
            v=arrays["reliability"],
            intercept=intercept,
            slope=slope,
            scale=scale,
        )

    def apply(self, trace: Trace) -> Trace:
        """s2, ungated."""
        value, reliability, _ = self.matched(trace.evidence)
        residual = np.tanh((value - self.intercept - self.slope * trace.related) / self.scale)
        bounded = self.settings.strength * reliability * residual
        return replace(
            trace,
            functional=Correction(signal=value, reliability=reliability, bounded=bounded, gate=np.ones(len(value))),
        )

    def matched(self, evidence: Evidence) -> tuple[Values, Values, NDArray[np.bool_]]:
        """(p,) match F, (p,) reliability and (p, 16) matching."""
        value, reliability = np.empty(len(evidence)), np.empty(len(evidence))
        cells = np.empty((len(evidence), CELLS), bool)
        for start in range(0, len(evidence), _CHUNK_PAIRS):
            part = slice(start, start + _CHUNK_PAIRS)
            found = self.match(evidence[part])
            value[part] = found.value[0].numpy()
            # Not torch's sigmoid: its last bits depend on the place of a pair among the others.
            reliability[part] = expit(found.logit[0].numpy().astype(np.float64)) * found.known.numpy()
            cells[part] = found.cells[0].numpy() > 0
        return value, reliability, cells

    def match(self, evidence: Evidence) -> Match:
        """(1, p) match of the pairs, all of them at once, with what it is made of."""
        import torch

        weights = [torch.tensor([x], dtype=torch.float32) for x in (self.argument, self.kind, self.settings.kappa)]
        argument, kind, kappa = weights
        v = torch.from_numpy(self.v).to(torch.float32).unsqueeze(0)
        with torch.no_grad():
            grids = Grids.of(evidence, form=self.settings.form, device="cpu")
            return match(grids, argument=argument, kind=kind, kappa=kappa, v=v, form=self.settings.form)


def fit_functional(
    settings: Sequence[FunctionalSettings], fold: TactFold, before: Trace, *, epochs: int, batch_tasks: int
) -> Iterator[tuple[FittedFunctional, ...]]:
    """The fitted stage of every setting after each epoch. before: the fold's pairs with s1, which stays fixed [G].

    Raises:
        FloatingPointError: if a loss is not finite.
    """
    import torch

    state = _Training(settings, fold, before)
    state.refer()
    for number in range(epochs):
        batches = fold.lists.epoch(number, seed=fold.seed, batch_tasks=batch_tasks)
        losses = [state.step(batch.without(CONTEXTUAL)) for batch in batches]
        if not bool(torch.isfinite(torch.stack(losses)).all()):
            raise FloatingPointError(f"TACT, stage functional, epoch {number + 1}: the loss is not finite")
        state.refer()
        yield state.fitted()


class _Training:
    """s networks with the scalars theta_a, theta_y (s,) and v (s, 7), and their statistics."""

    def __init__(self, settings: Sequence[FunctionalSettings], fold: TactFold, before: Trace) -> None:
        import torch

        device, count = fold.device, len(settings)
        self.settings, self.fold, self.form = settings, fold, settings[0].form
        self.related = torch.from_numpy(before.related).to(device, torch.float32)
        # Contextual negatives never enter functional training [G], neither losses nor statistics.
        self.counted = torch.from_numpy(np.flatnonzero(fold.lists.role != CONTEXTUAL)).to(device)
        self.grids = before.remember(
            ("grids", self.form), lambda: Grids.of(before.evidence, form=self.form, device=device)
        )
        start = [float(np.log(np.expm1(w))) for w in (0.5, 0.25)]
        self.theta = torch.tensor([start] * count, device=device, requires_grad=True)
        self.v = torch.zeros(count, len(FEATURES), device=device, requires_grad=True)
        self.kappa = torch.tensor([s.kappa for s in settings], device=device)
        self.strength = torch.tensor([s.strength for s in settings], device=device).unsqueeze(1)
        self.set_weight = torch.tensor([s.set_weight for s in settings], device=device)
        self.reference = torch.zeros(count, 3, device=device)
        self.optimiser = torch.optim.Adam([self.theta, self.v], lr=settings[0].learning_rate)

    def match(self, grids: Grids) -> Match:
        import torch

        argument, kind = torch.nn.functional.softplus(self.theta).unbind(dim=1)
        return match(grids, argument=argument, kind=kind, kappa=self.kappa, v=self.v, form=self.form)

    def refer(self) -> None:
        """Refit reference line and scale of every network on the fold's positive, ordinary and semantic pairs."""
        import torch

        parts = []
        with torch.no_grad():
            argument, kind = torch.nn.functional.softplus(self.theta).unbind(dim=1)
            for start in range(0, self.counted.numel(), _CHUNK_PAIRS):
                grids = self.grids.take(self.counted[start : start + _CHUNK_PAIRS])
                parts.append(match_values(grids, argument=argument, kind=kind, kappa=self.kappa, form=self.form))
        values = torch.cat(parts, dim=1).double().cpu().numpy()
        s1 = self.related[self.counted].double().cpu().numpy()
        lines = [reference_line(row, s1, slope=self.form.reference == "line") for row in values]
        self.reference = torch.tensor(lines, dtype=torch.float32, device=self.reference.device)

    def step(self, batch: RoleBatch) -> torch.Tensor:
        """(s,) losses before the step."""
        import torch

        index = torch.from_numpy(batch.index).to(self.related.device)
        s1 = self.related[index].unsqueeze(0)
        found = self.match(self.grids.take(index))
        intercept, slope, scale = (x.unsqueeze(1) for x in self.reference.unbind(dim=1))
        residual = found.reliability * torch.tanh((found.value - intercept - slope * s1) / scale)
        ranked = listwise(
            s1 + self.strength * residual,
            batch.offsets,
            positive=batch.positive,
            temperature=self.settings[0].temperature,
        )
        loss = ranked + RESIDUAL_PENALTY * residual.square().mean(dim=1)
        loss = loss + self.set_weight * self._set_loss(found.value, s1.squeeze(0), batch, index)
        self.optimiser.zero_grad()
        loss.sum().backward()
        self.optimiser.step()
        return loss.detach()

    def _set_loss(self, value: torch.Tensor, s1: torch.Tensor, batch: RoleBatch, index: torch.Tensor) -> torch.Tensor:
        """(s,) endpoint-set objective over positives and semantic false friends that both have endpoints [G, R]."""
        import torch

        positives, negatives = (torch.from_numpy(x).to(s1.device) for x in batch.against(SEMANTIC))
        near = (s1[positives] - s1[negatives]).abs() <= FRIEND_WITHIN
        # A friend of some positive counts against all positives of its list.
        friend = torch.zeros_like(s1).index_add(0, negatives, near.to(s1.dtype)) > 0
        known = self.grids.endpoints[index] > 0
        counted = friend[negatives] & known[positives] & known[negatives]
        positives, negatives = positives[counted], negatives[counted]
        if not positives.numel():
            return value.new_zeros(value.shape[0])
        gap = value.index_select(1, positives) - value.index_select(1, negatives)
        return torch.nn.functional.softplus((SET_MARGIN - gap) / SET_MARGIN).mean(dim=1)

    def fitted(self) -> tuple[FittedFunctional, ...]:
        import torch

        weights = torch.nn.functional.softplus(self.theta).detach().double().cpu().numpy()
        v, reference = self.v.detach().double().cpu().numpy().copy(), self.reference.double().cpu().numpy()
        return tuple(
            FittedFunctional(
                settings=setting,
                argument=float(weights[i, 0]),
                kind=float(weights[i, 1]),
                v=v[i],
                intercept=float(reference[i, 0]),
                slope=float(reference[i, 1]),
                scale=float(reference[i, 2]),
            )
            for i, setting in enumerate(self.settings)
        )


def reference_line(value: Values, s1: Values, *, slope: bool) -> tuple[float, float, float]:
    """(c0, c1, tau): least squares of F on s1 and the deviation of what is left; c1 = 0 without ``slope`` or spread."""
    if not value.size:
        return 0.0, 0.0, 1.0
    centred, spread = s1 - s1.mean(), float(s1.var())
    c1 = float((centred * value).mean()) / spread if slope and spread > _TINY**2 else 0.0
    c0 = float(value.mean()) - c1 * float(s1.mean())
    return c0, c1, max(float((value - c0 - c1 * s1).std()), _TINY)

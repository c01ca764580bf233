"""Relational refinement: s1 = s0 + beta * tanh( w . ((U'x_t) * (V'x_c)) ), w = 0 at the start (tact.md section 2 [R]).

Trained on ordinary and semantic negatives only; contextual negatives never enter it [G]. Settings that differ in
strength or penalty are trained side by side on the same batches.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from toolshift.models.features import FeatureBank, Pairs
from toolshift.models.tact.lists import CONTEXTUAL, RoleBatch
from toolshift.models.tact.path import Trace, Values
from toolshift.runs.seeds import seed_of
from toolshift.training.losses import listwise

if TYPE_CHECKING:
    import torch

    from toolshift.models.tact.fold import TactFold

_CHUNK_PAIRS = 65_536


@dataclass(frozen=True, kw_only=True)
class RelationSettings:
    """strength: beta, the most that the term can change a score. penalty: of the mean squared term."""

    strength: float
    penalty: float
    temperature: float
    rank: int
    space: str
    learning_rate: float

    side_by_side: ClassVar[tuple[str, ...]] = ("strength", "penalty")
    """Scalars in which settings may differ and still be fitted together."""


@dataclass(frozen=True, kw_only=True)
class FittedRelation:
    """left, right: (d, k) U and V. weights: (k,) w."""

    strength: float
    space: str
    left: NDArray[np.float32]
    right: NDArray[np.float32]
    weights: NDArray[np.float32]
    name: str = "relation"

    @property
    def record(self) -> Mapping[str, Any]:
        """Strength and the size of w."""
        return {"strength": self.strength, "weight_norm": float(np.linalg.norm(self.weights))}

    def state(self) -> Mapping[str, NDArray[Any]]:
        """U, V and w."""
        return {"left": self.left, "right": self.right, "weights": self.weights}

    @staticmethod
    def restored(settings: RelationSettings, arrays: Mapping[str, NDArray[Any]]) -> FittedRelation:
        """What `state` stored.

        Raises:
            KeyError: if an array is missing.
        """
        return FittedRelation(
            strength=settings.strength,
            space=settings.space,
            left=arrays["left"],
            right=arrays["right"],
            weights=arrays["weights"],
        )

    def apply(self, trace: Trace) -> Trace:
        """s1."""
        term = self.strength * np.tanh(bilinear(trace.pairs, self, bank=trace.bank))
        return replace(trace, relation=term)


def bilinear(pairs: Pairs, fitted: FittedRelation, *, bank: FeatureBank) -> Values:
    """(p,) w . ((U'x_t) * (V'x_c)); projections are made once per distinct row."""
    task_vectors, capability_vectors = bank.vectors(fitted.space)
    tasks, task = np.unique(pairs.task, return_inverse=True)
    capabilities, capability = np.unique(pairs.capability, return_inverse=True)
    left = exact_product(np.asarray(task_vectors[tasks]), fitted.left) * fitted.weights
    right = exact_product(np.asarray(capability_vectors[capabilities]), fitted.right)
    result = np.empty(len(pairs))
    for start in range(0, len(pairs), _CHUNK_PAIRS):
        part = slice(start, start + _CHUNK_PAIRS)
        result[part] = np.einsum("pk,pk->p", left[task.ravel()[part]], right[capability.ravel()[part]])
    return result


def exact_product(rows: NDArray[np.float32], matrix: NDArray[np.float32]) -> Values:
    """(n, k) product of (n, d) unit rows and a (d, k) matrix, the same bits however many rows there are.

    Coordinates are rounded to 2^-24, those of the matrix to 2^-20: no partial sum exceeds the length of a column, so
    that float64 holds every sum exactly for columns of a length up to 2^8.
    """
    a = np.rint(rows.astype(np.float64) * 2.0**24)
    b = np.rint(matrix.astype(np.float64) * 2.0**20)
    return a @ b / 2.0**44


def fit_relation(
    settings: Sequence[RelationSettings], fold: TactFold, before: Trace, *, epochs: int, batch_tasks: int
) -> Iterator[tuple[FittedRelation, ...]]:
    """The fitted stage of every setting after each epoch. before: the fold's pairs with the anchor.

    Raises:
        FloatingPointError: if a loss is not finite.
    """
    import torch

    state = _Training.begin(settings, fold, before)
    for number in range(epochs):
        batches = fold.lists.epoch(number, seed=fold.seed, batch_tasks=batch_tasks)
        losses = [state.step(batch.without(CONTEXTUAL)) for batch in batches]
        if not bool(torch.isfinite(torch.stack(losses)).all()):
            raise FloatingPointError(f"TACT, stage relation, epoch {number + 1}: the loss is not finite")
        yield state.fitted()


@dataclass(frozen=True, kw_only=True)
class _Training:
    """s networks: left, right (d, s, k), weights (s, k)."""

    settings: Sequence[RelationSettings]
    fold: TactFold
    anchor: NDArray[np.float32]
    left: torch.Tensor
    right: torch.Tensor
    weights: torch.Tensor
    optimiser: torch.optim.Optimizer

    @staticmethod
    def begin(settings: Sequence[RelationSettings], fold: TactFold, before: Trace) -> _Training:
        import torch

        first, device = settings[0], fold.device
        generator = torch.Generator().manual_seed(seed_of("tact.relation", fold.seed) % 2**62)
        shape = (fold.bank.task_vectors.shape[1], first.rank)
        # Unit rows of unit variance per coordinate: projections of size one, so that w alone sets the scale.
        sides = [torch.randn(shape, generator=generator).to(device) for _ in range(2)]
        left, right = (side.unsqueeze(1).repeat(1, len(settings), 1).requires_grad_() for side in sides)
        weights = torch.zeros(len(settings), first.rank, device=device, requires_grad=True)
        optimiser = torch.optim.Adam([left, right, weights], lr=first.learning_rate)
        return _Training(
            settings=settings,
            fold=fold,
            anchor=before.anchor.astype(np.float32),
            left=left,
            right=right,
            weights=weights,
            optimiser=optimiser,
        )

    def step(self, batch: RoleBatch) -> torch.Tensor:
        """Sum over settings of the loss, before the step."""
        import torch

        fold, device = self.fold, self.fold.device
        pairs = fold.lists.pairs.take(batch.index)
        task_vectors, capability_vectors = fold.bank.vectors(self.settings[0].space)
        tasks, task = np.unique(pairs.task, return_inverse=True)
        capabilities, capability = np.unique(pairs.capability, return_inverse=True)
        x = torch.from_numpy(np.asarray(task_vectors[tasks])).to(device)
        c = torch.from_numpy(np.asarray(capability_vectors[capabilities])).to(device)
        # embedding, not indexing: with several threads the gradient of indexing adds up in no fixed order.
        embedding = torch.nn.functional.embedding
        left = embedding(torch.from_numpy(task.ravel()).to(device), x @ self.left.flatten(1))
        right = embedding(torch.from_numpy(capability.ravel()).to(device), c @ self.right.flatten(1))
        product = (left * right).unflatten(1, self.weights.shape)
        term = torch.tanh((product * self.weights).sum(dim=2)).T
        anchor = torch.from_numpy(self.anchor[batch.index]).to(device)
        loss = term.new_zeros(())
        for setting, values in zip(self.settings, term, strict=True):
            scores = anchor + setting.strength * values
            ranked = listwise(scores, batch.offsets, positive=batch.positive, temperature=setting.temperature)
            loss = loss + ranked + setting.penalty * values.square().mean()
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()
        return loss.detach()

    def fitted(self) -> tuple[FittedRelation, ...]:
        """Copies of the networks."""
        left, right, weights = (x.detach().cpu().numpy().copy() for x in (self.left, self.right, self.weights))
        return tuple(
            FittedRelation(
                strength=setting.strength,
                space=setting.space,
                left=np.ascontiguousarray(left[:, i]),
                right=np.ascontiguousarray(right[:, i]),
                weights=weights[i],
            )
            for i, setting in enumerate(self.settings)
        )

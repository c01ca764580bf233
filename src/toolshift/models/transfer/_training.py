"""What the gradient-trained rows have in common: vectors of a batch, the optimiser, the loop over epochs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from toolshift.models.base import Limits, Scores
from toolshift.models.features import FeatureBank, Pairs
from toolshift.runs.seeds import seed_of
from toolshift.training.lists import Batch, TrainingLists
from toolshift.views.corpus import Rows

if TYPE_CHECKING:
    import torch

Weights = Mapping[str, "NDArray[np.float32]"]
CHUNK_PAIRS = 32_768


@dataclass(frozen=True, kw_only=True)
class PairVectors:
    """Vectors of p pairs, each distinct row once.

    tasks: (t,), capabilities: (k,) rows of the corpus. x: (t, d), c: (k, d) their vectors. task, capability: (p,)
    places among them.
    """

    tasks: Rows
    capabilities: Rows
    x: torch.Tensor
    c: torch.Tensor
    task: torch.Tensor
    capability: torch.Tensor

    @staticmethod
    def of(
        tasks: Rows, *, task: Rows, capability: Rows, bank: FeatureBank, space: str, device: str | torch.device
    ) -> PairVectors:
        """tasks: (t,) rows; task: (p,) places among them; capability: (p,) rows."""
        import torch

        task_vectors, capability_vectors = bank.vectors(space)
        capabilities, place = np.unique(capability, return_inverse=True)
        return PairVectors(
            tasks=tasks,
            capabilities=capabilities,
            x=torch.from_numpy(np.asarray(task_vectors[tasks])).to(device),
            c=torch.from_numpy(np.asarray(capability_vectors[capabilities])).to(device),
            task=torch.from_numpy(task).to(device),
            capability=torch.from_numpy(place.ravel()).to(device),
        )

    @staticmethod
    def of_batch(batch: Batch, *, bank: FeatureBank, space: str, device: str) -> PairVectors:
        """The candidates of a batch; ``tasks`` are those of its lists, in their order."""
        return PairVectors.of(
            batch.tasks, task=batch.owner, capability=batch.capability, bank=bank, space=space, device=device
        )

    @property
    def cosine(self) -> torch.Tensor:
        """(p,) s0, the cosine of every pair; in float32 under mixed precision too."""
        return (self.x[self.task] * self.c[self.capability]).sum(dim=1)


def scored(
    pairs: Pairs,
    score: Callable[[PairVectors], torch.Tensor],
    *,
    bank: FeatureBank,
    space: str,
    device: str,
) -> Scores:
    """(p,) scores, computed in chunks without gradients. ``score`` gives (p,) for the vectors of a chunk."""
    import torch

    result = np.empty(len(pairs), np.float64)
    with torch.no_grad():
        for start in range(0, len(pairs), CHUNK_PAIRS):
            part = pairs.take(slice(start, start + CHUNK_PAIRS))
            tasks, task = np.unique(part.task, return_inverse=True)
            vectors = PairVectors.of(
                tasks, task=task.ravel(), capability=part.capability, bank=bank, space=space, device=device
            )
            result[start : start + CHUNK_PAIRS] = score(vectors).double().cpu().numpy()
    return result


def products(u: torch.Tensor, v: torch.Tensor, vectors: PairVectors) -> torch.Tensor:
    """(s, p) inner products of the pairs for (s, t, h) tasks and (s, k, h) capabilities.

    While training, all products of the batch, which are cheaper than their gathered rows, and whose gradient adds up in
    a fixed order, because the pairs of a batch are distinct. Without gradients the table could be too large.
    """
    import torch

    if torch.is_grad_enabled():
        table = (u @ v.transpose(1, 2)).flatten(1)
        return table.index_select(1, vectors.task * v.shape[1] + vectors.capability)
    return (u[:, vectors.task] * v[:, vectors.capability]).sum(dim=-1)


def generator_of(model: str, seed: int) -> torch.Generator:
    """The CPU generator of a model's start, masks and noise: the same numbers on every device."""
    import torch

    return torch.Generator().manual_seed(seed_of(model, seed) % 2**62)


@dataclass(frozen=True, kw_only=True)
class Adam:
    """Adam with decoupled weight decay over s stacked networks, each with its own decay."""

    parameters: Mapping[str, torch.Tensor]
    kept: Mapping[str, torch.Tensor]
    optimiser: torch.optim.Optimizer

    @staticmethod
    def of(
        parameters: Mapping[str, torch.Tensor],
        *,
        learning_rate: float,
        decay: Sequence[float],
        axis: Mapping[str, int] | None = None,
    ) -> Adam:
        """decay: (s,). axis: where the axis of the networks lies in a tensor that does not begin with it."""
        import torch

        def shaped(name: str, value: torch.Tensor) -> torch.Tensor:
            factors = torch.tensor([1.0 - learning_rate * d for d in decay], device=value.device)
            where = (axis or {}).get(name, 0)
            return factors.reshape([-1 if place == where else 1 for place in range(value.dim())])

        parameters = {name: value for name, value in parameters.items() if value.requires_grad}
        kept = {name: shaped(name, value) for name, value in parameters.items()} if any(decay) else {}
        optimiser = torch.optim.Adam(list(parameters.values()), lr=learning_rate, fused=True)
        return Adam(parameters=parameters, kept=kept, optimiser=optimiser)

    def step(self, loss: torch.Tensor) -> None:
        """One step down the sum of the networks' losses, of which each depends on its own network alone."""
        import torch

        self.optimiser.zero_grad()
        loss.sum().backward()
        with torch.no_grad():
            for name, factor in self.kept.items():
                self.parameters[name].mul_(factor)
        self.optimiser.step()


def leaves(start: Mapping[str, torch.Tensor], *, device: str, fixed: Sequence[str] = ()) -> dict[str, torch.Tensor]:
    """The tensors as trainable ones on a device.

    fixed: names of those that are not trained. A listwise loss does not change with what is added to all candidates of
    a task; Adam would turn the rounding errors of such a gradient into steps of full size.
    """
    return {name: value.detach().to(device).requires_grad_(name not in fixed) for name, value in start.items()}


def repeated(start: Mapping[str, torch.Tensor], count: int) -> dict[str, torch.Tensor]:
    """``count`` equal networks, stacked along a new first axis."""
    return {name: value.detach().unsqueeze(0).repeat(count, *[1] * value.dim()) for name, value in start.items()}


def copies(parameters: Mapping[str, torch.Tensor], *, axis: Mapping[str, int] | None = None) -> list[Weights]:
    """Weights of each of the stacked networks, which later steps leave alone."""
    whole = {name: value.detach().cpu() for name, value in parameters.items()}
    places = {name: (axis or {}).get(name, 0) for name in whole}
    name = next(iter(whole))
    count = whole[name].shape[places[name]]
    return [{n: v.select(places[n], i).numpy().copy() for n, v in whole.items()} for i in range(count)]


def one_stack(
    weights: Weights, *, device: str | torch.device, axis: Mapping[str, int] | None = None
) -> dict[str, torch.Tensor]:
    """The weights of one network as a stack of one."""
    import torch

    return {n: torch.from_numpy(v).to(device).unsqueeze((axis or {}).get(n, 0)) for n, v in weights.items()}


def epoch_losses(
    step: Callable[[Batch], torch.Tensor], lists: TrainingLists, *, batch_tasks: int, seed: int, limits: Limits
) -> Iterator[NDArray[np.float64]]:
    """Train epoch by epoch: (s,) mean loss of each network. ``step`` takes a step on a batch and gives its (s,) loss.

    Raises:
        FloatingPointError: if a loss is not finite.
    """
    import torch

    size = min(batch_tasks, limits.batch_tasks or batch_tasks)
    for number in range(limits.epochs):
        losses = [step(batch) for batch in lists.epoch(number, seed=seed, batch_tasks=size)]
        mean = torch.stack(losses).double().mean(dim=0).cpu().numpy()
        if not np.isfinite(mean).all():
            raise FloatingPointError(f"epoch {number + 1}: the loss is not finite; lower the learning rate")
        yield mean

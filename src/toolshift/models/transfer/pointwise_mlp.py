"""Pointwise MLP on [x_t, x_c, x_t * x_c, |x_t - x_c|] (baselines.md section 2).

[T] the input. [R] 1536-256-64-1, ReLU, dropout, binary cross-entropy with positive weight = negatives / positives. The
first layer is split into a task part, a capability part and a pair part, so the first two are computed once per row of
a batch and not once per pair; the function is the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from toolshift.models.base import Limits, Scorer, Scores, SideBySide, Source
from toolshift.models.features import FeatureBank, Pairs, known_space
from toolshift.runs.seeds import seed_of
from toolshift.training.lists import Batch, TrainingLists

if TYPE_CHECKING:
    import torch

Weights = Mapping[str, "NDArray[np.float32]"]
# Where the axis of the networks lies when several are stacked.
AXIS = {
    "task": 1,
    "capability": 1,
    "pair": 1,
    "bias_1": 0,
    "layer_2": 0,
    "bias_2": 0,
    "layer_3": 0,
    "bias_3": 0,
}
_CHUNK_PAIRS = 32_768


@dataclass(frozen=True, kw_only=True)
class PointwiseMlp(SideBySide):
    """Adam with decoupled weight decay; at most ``batch_tasks`` tasks a step. space: coordinates of both vectors."""

    weight_decay: float = 0.01
    hidden: Sequence[int] = (256, 64)
    dropout: float = 0.1
    learning_rate: float = 1e-3
    batch_tasks: int = 256
    space: str = "raw"

    def __post_init__(self) -> None:
        known_space(self.space, model="pointwise_mlp")

    @staticmethod
    def alike(models: Sequence[PointwiseMlp]) -> bool:
        """Whether the models can be trained together: all but the weight decay is equal."""
        return len({replace(model, weight_decay=0.0, hidden=tuple(model.hidden)) for model in models}) == 1

    @staticmethod
    def together(
        models: Sequence[PointwiseMlp], source: Source, *, bank: FeatureBank, seed: int, limits: Limits
    ) -> Iterator[tuple[Scorer, ...]]:
        """Train models that are `alike` side by side, on the same batches and dropout masks: what ``epochs`` of each
        gives, up to rounding.

        Raises:
            FloatingPointError: if a loss is not finite.
        """
        import torch

        lists = TrainingLists.of(source.manifests, bank.corpus, max_tasks=limits.max_tasks)
        training = _Training.begin(models, bank=bank, seed=seed, device=limits.device)
        ratio = float((~lists.positive).sum() / max(int(lists.positive.sum()), 1))
        weight = torch.tensor(ratio, device=limits.device)
        size = min(models[0].batch_tasks, limits.batch_tasks or models[0].batch_tasks)
        for number in range(limits.epochs):
            losses = [
                training.step(batch, bank=bank, positive_weight=weight)
                for batch in lists.epoch(number, seed=seed, batch_tasks=size)
            ]
            mean = torch.stack(losses).double().mean(dim=0).cpu().numpy()
            if not np.isfinite(mean).all():
                raise FloatingPointError(f"epoch {number + 1}: the loss is not finite; lower the learning rate")
            yield tuple(
                FittedMlp(
                    weights=weights,
                    loss=float(loss),
                    contexts_seen=source.contexts,
                    device=limits.device,
                    space=models[0].space,
                )
                for weights, loss in zip(training.weights(), mean, strict=True)
            )


@dataclass(frozen=True, kw_only=True)
class _Training:
    """State of s networks that are trained together; see ``stack`` for the shapes."""

    network: Mapping[str, torch.Tensor]
    decay: Mapping[str, torch.Tensor]
    optimiser: torch.optim.Optimizer
    generator: torch.Generator
    dropout: float
    space: str

    @staticmethod
    def begin(models: Sequence[PointwiseMlp], *, bank: FeatureBank, seed: int, device: str) -> _Training:
        import torch

        first = models[0]
        generator = torch.Generator().manual_seed(seed_of("pointwise_mlp", seed) % 2**62)
        start = initial_weights(bank.task_vectors.shape[1], hidden=first.hidden, generator=generator)
        network = {n: v.detach().to(device).requires_grad_() for n, v in stack([start] * len(models)).items()}
        # Decoupled decay by hand: the optimiser knows one value for a tensor, here every network has its own.
        kept = torch.tensor([1.0 - m.learning_rate * m.weight_decay for m in models], device=device)
        decay = {n: kept.reshape([-1 if axis == AXIS[n] else 1 for axis in range(v.dim())]) for n, v in network.items()}
        optimiser = torch.optim.Adam(list(network.values()), lr=first.learning_rate, fused=True)
        return _Training(
            network=network,
            decay=decay,
            optimiser=optimiser,
            generator=generator,
            dropout=first.dropout,
            space=first.space,
        )

    def step(self, batch: Batch, *, bank: FeatureBank, positive_weight: torch.Tensor) -> torch.Tensor:
        """(s,) loss of every network on a batch, before the step that it takes."""
        import torch

        device, (task_vectors, capability_vectors) = positive_weight.device, bank.vectors(self.space)
        capabilities, place = np.unique(batch.capability, return_inverse=True)
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=device.type == "cuda"):
            outputs = stacked_logits(
                self.network,
                torch.from_numpy(np.asarray(task_vectors[batch.tasks])).to(device),
                torch.from_numpy(np.asarray(capability_vectors[capabilities])).to(device),
                task=torch.from_numpy(batch.owner).to(device),
                capability=torch.from_numpy(place.ravel()).to(device),
                dropout=self.dropout,
                generator=self.generator,
            )
        labels = torch.from_numpy(batch.positive.astype(np.float32)).to(device).expand_as(outputs)
        cross_entropy = torch.nn.functional.binary_cross_entropy_with_logits
        loss = cross_entropy(outputs.float(), labels, pos_weight=positive_weight, reduction="none").mean(dim=1)
        self.optimiser.zero_grad()
        loss.sum().backward()
        with torch.no_grad():
            for name, value in self.network.items():
                value.mul_(self.decay[name])
        self.optimiser.step()
        return loss.detach()

    def weights(self) -> list[Weights]:
        """Copies of the weights of every network."""
        count = len(self.network["bias_3"])
        whole = {name: value.detach().cpu() for name, value in self.network.items()}
        return [
            {name: value.select(AXIS[name], i).numpy().copy() for name, value in whole.items()} for i in range(count)
        ]


@dataclass(frozen=True, kw_only=True)
class FittedMlp:
    """Weights by name (see ``initial_weights``) and the mean training loss of the last epoch."""

    weights: Weights
    loss: float
    contexts_seen: tuple[str, ...]
    device: str = "cpu"
    space: str = "raw"

    @property
    def record(self) -> Mapping[str, Any]:
        """Training loss of the last epoch."""
        return {"training_loss": self.loss}

    def state(self) -> Mapping[str, NDArray[Any]]:
        """Weights of all layers."""
        return self.weights

    def score(self, pairs: Pairs, *, bank: FeatureBank, seed: int) -> Scores:
        """(p,) logits."""
        import torch

        del seed
        task_vectors, capability_vectors = bank.vectors(self.space)
        network = {name: torch.from_numpy(value).to(self.device) for name, value in self.weights.items()}
        result = np.empty(len(pairs), np.float64)
        with torch.no_grad():
            for start in range(0, len(pairs), _CHUNK_PAIRS):
                part = pairs.take(slice(start, start + _CHUNK_PAIRS))
                tasks, task = np.unique(part.task, return_inverse=True)
                capabilities, capability = np.unique(part.capability, return_inverse=True)
                outputs = logits(
                    network,
                    torch.from_numpy(np.asarray(task_vectors[tasks])).to(self.device),
                    torch.from_numpy(np.asarray(capability_vectors[capabilities])).to(self.device),
                    task=torch.from_numpy(task.ravel()).to(self.device),
                    capability=torch.from_numpy(capability.ravel()).to(self.device),
                )
                result[start : start + _CHUNK_PAIRS] = outputs.cpu().numpy()
        return result


def initial_weights(dim: int, *, hidden: Sequence[int], generator: torch.Generator) -> dict[str, torch.Tensor]:
    """Uniform in +-1/sqrt(fan in), as torch's linear layers; the first layer in its four column blocks."""
    import torch

    def uniform(*shape: int, fan_in: int) -> torch.Tensor:
        values = (torch.rand(*shape, generator=generator) * 2 - 1) / fan_in**0.5
        return values.requires_grad_()

    first, second = hidden
    return {
        "task": uniform(dim, first, fan_in=4 * dim),
        "capability": uniform(dim, first, fan_in=4 * dim),
        "pair": uniform(2 * dim, first, fan_in=4 * dim),
        "bias_1": uniform(first, fan_in=4 * dim),
        "layer_2": uniform(first, second, fan_in=first),
        "bias_2": uniform(second, fan_in=first),
        "layer_3": uniform(second, 1, fan_in=second),
        "bias_3": uniform(1, fan_in=second),
    }


def stack(networks: Sequence[Mapping[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """s networks as one. The first layer becomes (rows, s, first), which is one wide matrix; all else (s, ...)."""
    import torch

    return {name: torch.stack([n[name] for n in networks], dim=AXIS[name]) for name in AXIS}


def logits(
    network: Mapping[str, torch.Tensor],
    x: torch.Tensor,
    c: torch.Tensor,
    *,
    task: torch.Tensor,
    capability: torch.Tensor,
    dropout: float = 0.0,
    generator: torch.Generator | None = None,
) -> torch.Tensor:
    """(p,) outputs of one network; see ``stacked_logits``."""
    single = stack([network])
    return stacked_logits(single, x, c, task=task, capability=capability, dropout=dropout, generator=generator).squeeze(
        0
    )


def stacked_logits(
    network: Mapping[str, torch.Tensor],
    x: torch.Tensor,
    c: torch.Tensor,
    *,
    task: torch.Tensor,
    capability: torch.Tensor,
    dropout: float = 0.0,
    generator: torch.Generator | None = None,
) -> torch.Tensor:
    """(s, p) outputs of stacked networks, with dropout masks in common.

    x: (t, d) task vectors, c: (k, d) capability vectors; task, capability: (p,) rows of them.
    """
    hidden = stacked_first(network, x, c, task=task, capability=capability)
    return last_layer(network, second_hidden(network, hidden, dropout=dropout, generator=generator))


def stacked_first(
    network: Mapping[str, torch.Tensor],
    x: torch.Tensor,
    c: torch.Tensor,
    *,
    task: torch.Tensor,
    capability: torch.Tensor,
) -> torch.Tensor:
    """(p, s, first) outputs of the first layer, before its ReLU; arguments as of ``stacked_logits``."""
    import torch

    left, right = x[task], c[capability]
    pair = torch.cat([left * right, (left - right).abs()], dim=1)
    # embedding, not indexing: with several threads the gradient of indexing adds up in no fixed order.
    embedding = torch.nn.functional.embedding
    of_task = x @ network["task"].flatten(1)
    of_capability = torch.addmm(network["bias_1"].flatten(), c, network["capability"].flatten(1))
    shared = embedding(task, of_task) + embedding(capability, of_capability)
    return torch.addmm(shared, pair, network["pair"].flatten(1)).unflatten(1, network["bias_1"].shape)


def second_hidden(
    network: Mapping[str, torch.Tensor],
    first: torch.Tensor,
    *,
    dropout: float = 0.0,
    generator: torch.Generator | None = None,
) -> torch.Tensor:
    """(s, p, second) activations of the second layer for (p, s, first) outputs of the first one."""
    import torch

    hidden = drop(torch.relu(first), share=dropout, across=1, generator=generator).transpose(0, 1)
    hidden = torch.baddbmm(network["bias_2"].unsqueeze(1), hidden, network["layer_2"])
    return drop(torch.relu(hidden), share=dropout, across=0, generator=generator)


def last_layer(network: Mapping[str, torch.Tensor], hidden: torch.Tensor) -> torch.Tensor:
    """(s, p) outputs for (s, p, second) activations."""
    import torch

    return torch.baddbmm(network["bias_3"].unsqueeze(1), hidden, network["layer_3"]).squeeze(2)


def drop(values: torch.Tensor, *, share: float, across: int, generator: torch.Generator | None) -> torch.Tensor:
    """Dropout with the same mask for every entry of the axis ``across``."""
    import torch

    if not share:
        return values
    shape = [1 if axis == across else size for axis, size in enumerate(values.shape)]
    keep = torch.rand(shape, generator=generator) >= share  # drawn on the CPU: the same masks on every device
    return values * (keep.to(values.device) / (1.0 - share))

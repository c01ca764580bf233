"""Pointwise MLP on [x_t, x_c, x_t * x_c, |x_t - x_c|] (baselines.md section 2).

[T] the input. [R] 1536-256-64-1, ReLU, dropout, binary cross-entropy with positive weight = negatives / positives. The
first layer is split into a task part, a capability part and a pair part, so the first two are computed once per row of
a batch and not once per pair; the function is the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from toolshift.models.base import Limits, Scorer, Scores, Source
from toolshift.models.features import FeatureBank, Pairs
from toolshift.runs.seeds import seed_of
from toolshift.training.lists import Batch, TrainingLists

if TYPE_CHECKING:
    import torch

Weights = Mapping[str, "NDArray[np.float32]"]
_CHUNK_PAIRS = 32_768


@dataclass(frozen=True, kw_only=True)
class PointwiseMlp:
    """Adam with decoupled weight decay."""

    weight_decay: float = 0.01
    hidden: Sequence[int] = (256, 64)
    dropout: float = 0.1
    learning_rate: float = 1e-3
    batch_tasks: int = 256

    def epochs(self, source: Source, *, bank: FeatureBank, seed: int, limits: Limits) -> Iterator[Scorer]:
        """Train epoch by epoch; one list per task and epoch.

        Raises:
            FloatingPointError: if the loss is not finite.
        """
        import torch

        lists = TrainingLists.of(source.manifests, bank.corpus, max_tasks=limits.max_tasks)
        generator = torch.Generator().manual_seed(seed_of("pointwise_mlp", seed) % 2**62)
        network = initial_weights(bank.task_vectors.shape[1], hidden=self.hidden, generator=generator)
        optimiser = torch.optim.AdamW(list(network.values()), lr=self.learning_rate, weight_decay=self.weight_decay)
        ratio = float((~lists.positive).sum() / max(int(lists.positive.sum()), 1))
        for number in range(limits.epochs):
            losses = []
            for batch in lists.epoch(number, seed=seed, batch_tasks=self.batch_tasks):
                logits = self._forward(network, batch, bank=bank, generator=generator)
                loss = torch.nn.functional.binary_cross_entropy_with_logits(
                    logits,
                    torch.from_numpy(batch.positive.astype(np.float32)),
                    pos_weight=torch.tensor(ratio),
                )
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
                losses.append(float(loss.detach()))
            if not np.isfinite(losses).all():
                raise FloatingPointError(f"epoch {number + 1}: the loss is not finite; lower the learning rate")
            weights = {name: value.detach().numpy().copy() for name, value in network.items()}
            yield FittedMlp(weights=weights, loss=float(np.mean(losses)), contexts_seen=source.contexts)

    def _forward(
        self, network: Mapping[str, torch.Tensor], batch: Batch, *, bank: FeatureBank, generator: torch.Generator
    ) -> torch.Tensor:
        import torch

        capabilities, place = np.unique(batch.capability, return_inverse=True)
        x = torch.from_numpy(np.asarray(bank.task_vectors[batch.tasks]))
        c = torch.from_numpy(np.asarray(bank.capability_vectors[capabilities]))
        return logits(
            network,
            x,
            c,
            task=torch.from_numpy(batch.owner),
            capability=torch.from_numpy(place.ravel()),
            dropout=self.dropout,
            generator=generator,
        )


@dataclass(frozen=True, kw_only=True)
class FittedMlp:
    """Weights by name (see ``initial_weights``) and the mean training loss of the last epoch."""

    weights: Weights
    loss: float
    contexts_seen: tuple[str, ...]

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
        network = {name: torch.from_numpy(value) for name, value in self.weights.items()}
        result = np.empty(len(pairs), np.float64)
        with torch.no_grad():
            for start in range(0, len(pairs), _CHUNK_PAIRS):
                part = pairs.take(slice(start, start + _CHUNK_PAIRS))
                tasks, task = np.unique(part.task, return_inverse=True)
                capabilities, capability = np.unique(part.capability, return_inverse=True)
                result[start : start + _CHUNK_PAIRS] = logits(
                    network,
                    torch.from_numpy(np.asarray(bank.task_vectors[tasks])),
                    torch.from_numpy(np.asarray(bank.capability_vectors[capabilities])),
                    task=torch.from_numpy(task.ravel()),
                    capability=torch.from_numpy(capability.ravel()),
                ).numpy()
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
    """(p,) outputs. x: (t, d) task vectors, c: (k, d) capability vectors; task, capability: (p,) rows of them."""
    import torch

    def drop(values: torch.Tensor) -> torch.Tensor:
        if not dropout:
            return values
        keep = torch.rand(values.shape, generator=generator) >= dropout
        return values * keep / (1.0 - dropout)

    left, right = x[task], c[capability]
    pair = torch.cat([left * right, (left - right).abs()], dim=1)
    # embedding, not indexing: with several threads the gradient of indexing adds up in no fixed order.
    embedding = torch.nn.functional.embedding
    hidden = embedding(task, x @ network["task"]) + embedding(capability, c @ network["capability"])
    hidden = hidden + pair @ network["pair"]
    hidden = drop(torch.relu(hidden + network["bias_1"]))
    hidden = drop(torch.relu(hidden @ network["layer_2"] + network["bias_2"]))
    return (hidden @ network["layer_3"] + network["bias_3"]).squeeze(1)

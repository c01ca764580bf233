"""ZESRec: separate task and capability towers with source-trained capability residuals (baselines.md section 3).

[P] an item is its content network plus an offset eps ~ N(0, 1/lambda_v), fitted by MAP on the source and dropped for
unseen items. [T] task and capability towers. [R] u = W2 relu(W1 x_t), v = W4 relu(W3 x_c) + eps_c, 384-256-128, score
u.v / sqrt(128), listwise loss + lambda_v / 2 * mean |eps_c|^2.
[ours] both towers start as the projection onto the principal axes of the source's vectors, so that training starts near
the cosine; inputs are scaled to unit variance; "mean" is over the capabilities of a batch that have a residual, so that
the pull on each is of the size of its share in the loss. Only capabilities that are gold for a source task have one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from toolshift.models.base import Limits, Scorer, Scores, SideBySide, Source
from toolshift.models.features import FeatureBank, Pairs, known_space
from toolshift.models.transfer._training import (
    Adam,
    PairVectors,
    Weights,
    copies,
    epoch_losses,
    generator_of,
    leaves,
    one_stack,
    products,
    repeated,
    scored,
)
from toolshift.training.lists import Batch, TrainingLists
from toolshift.training.losses import listwise
from toolshift.views.corpus import Rows

if TYPE_CHECKING:
    import torch

FIXED = ("capability_bias_2",)
"""Not trained: it adds the same to all candidates of a task."""
TOWER = ("layer_1", "bias_1", "layer_2", "bias_2")


@dataclass(frozen=True, kw_only=True)
class ZesRec(SideBySide):
    """lambda_v: strength of the pull of the residuals to 0. widths: of both towers. residual: whether capabilities
    have one. Adam without weight decay. space: coordinates of both vectors."""

    lambda_v: float = 0.1
    widths: Sequence[int] = (256, 128)
    temperature: float = 1.0
    learning_rate: float = 1e-3
    batch_tasks: int = 256
    residual: bool = True
    space: str = "raw"

    def __post_init__(self) -> None:
        known_space(self.space, model="zesrec")

    @staticmethod
    def alike(models: Sequence[ZesRec]) -> bool:
        """Whether the models can be trained together: all but ``lambda_v`` is equal."""
        return len({replace(model, lambda_v=0.0, widths=tuple(model.widths)) for model in models}) == 1

    @staticmethod
    def together(
        models: Sequence[ZesRec], source: Source, *, bank: FeatureBank, seed: int, limits: Limits
    ) -> Iterator[tuple[Scorer, ...]]:
        """Train models that are `alike` side by side: what ``epochs`` of each gives, up to rounding."""
        lists = TrainingLists.of(source.manifests, bank.corpus, max_tasks=limits.max_tasks)
        known = np.flatnonzero(source.fold.source_records > 0) if models[0].residual else np.zeros(0, np.int64)
        axes = source_axes(lists, bank=bank, count=models[0].widths[1], space=models[0].space)
        training = _Training.begin(models, known=known, axes=axes, bank=bank, seed=seed, device=limits.device)
        for losses in epoch_losses(training.step, lists, batch_tasks=models[0].batch_tasks, seed=seed, limits=limits):
            yield tuple(
                FittedZesRec(
                    weights=weights,
                    known=known,
                    loss=float(loss),
                    contexts_seen=source.contexts,
                    device=limits.device,
                    space=models[0].space,
                )
                for weights, loss in zip(copies(training.network), losses, strict=True)
            )


@dataclass(frozen=True, kw_only=True)
class _Training:
    """s pairs of towers that are trained together; every tensor has the networks in front. known: (r,) capability rows
    with a residual; strength: (s,) lambda_v."""

    model: ZesRec
    bank: FeatureBank
    known: Rows
    strength: torch.Tensor
    network: Mapping[str, torch.Tensor]
    optimiser: Adam
    device: str

    @staticmethod
    def begin(
        models: Sequence[ZesRec], *, known: Rows, axes: NDArray[np.float32], bank: FeatureBank, seed: int, device: str
    ) -> _Training:
        import torch

        first = models[0]
        start = initial_towers(axes, widths=first.widths, generator=generator_of("zesrec", seed))
        start["residual"] = torch.zeros(known.size + 1, first.widths[1])
        network = leaves(repeated(start, len(models)), device=device, fixed=FIXED)
        return _Training(
            model=first,
            bank=bank,
            known=known,
            strength=torch.tensor([m.lambda_v for m in models], device=device),
            network=network,
            optimiser=Adam.of(network, learning_rate=first.learning_rate, decay=[0.0] * len(models)),
            device=device,
        )

    def step(self, batch: Batch) -> torch.Tensor:
        """(s,) loss of every network on a batch, before the step that it takes."""
        import torch

        vectors = PairVectors.of_batch(batch, bank=self.bank, space=self.model.space, device=self.device)
        place, has = residual_place(vectors.capabilities, self.known, device=self.device)
        with torch.autocast(vectors.x.device.type, dtype=torch.bfloat16, enabled=self.device != "cpu"):
            residual = residuals(self.network, place, has)
            scores = tower_scores(self.network, vectors, residual)
        loss = listwise(scores, batch.offsets, positive=batch.positive, temperature=self.model.temperature)
        square = residual.float().square().sum(dim=(1, 2)) / has.sum().clamp(min=1)
        loss = loss + 0.5 * self.strength * square
        self.optimiser.step(loss)
        return loss.detach()


@dataclass(frozen=True, kw_only=True)
class FittedZesRec:
    """Weights by name (see ``initial_towers``); residual: (r+1, h), the last row belongs to no capability and is 0.
    known: (r,) rows of the capabilities with a residual, ascending."""

    weights: Weights
    known: Rows
    loss: float
    contexts_seen: tuple[str, ...]
    device: str = "cpu"
    space: str = "raw"

    @property
    def record(self) -> Mapping[str, Any]:
        """Training loss of the last epoch and the size of the residuals."""
        norms = np.linalg.norm(self.weights["residual"][:-1], axis=1)
        size = float(norms.mean()) if norms.size else 0.0
        return {"training_loss": self.loss, "residuals": int(norms.size), "mean_residual_norm": size}

    def state(self) -> Mapping[str, NDArray[Any]]:
        """Weights of both towers, residuals, and whose they are."""
        return {**self.weights, "known": self.known}

    def score(self, pairs: Pairs, *, bank: FeatureBank, seed: int) -> Scores:
        """(p,) scaled inner products."""
        del seed
        network = one_stack(self.weights, device=self.device)

        def score(vectors: PairVectors) -> torch.Tensor:
            place, has = residual_place(vectors.capabilities, self.known, device=self.device)
            return tower_scores(network, vectors, residuals(network, place, has))[0]

        return scored(pairs, score, bank=bank, space=self.space, device=self.device)


def source_axes(lists: TrainingLists, *, bank: FeatureBank, count: int, space: str) -> NDArray[np.float32]:
    """(d, k) orthonormal principal axes of the training tasks' and their candidates' vectors, k at most ``count``."""
    tasks, capabilities = bank.vectors(space)
    sides = (
        np.asarray(tasks[lists.tasks], np.float64),
        np.asarray(capabilities[np.unique(lists.capability)], np.float64),
    )
    moment = sum(x.T @ x / len(x) for x in sides)
    return np.linalg.eigh(moment)[1][:, ::-1][:, :count].astype(np.float32)


def initial_towers(
    axes: NDArray[np.float32], *, widths: Sequence[int], generator: torch.Generator
) -> dict[str, torch.Tensor]:
    """Weights with relu(x A) - relu(-x A) = x A in the first outputs, A the (d, k) ``axes``, and small random ones
    elsewhere; biases 0. ``task_*`` and ``capability_*`` start equal."""
    import torch

    (dim, count), (hidden, out) = axes.shape, widths
    count = min(count, hidden // 2)
    kept = torch.from_numpy(axes[:, :count].copy())
    first = torch.randn(dim, hidden, generator=generator) * (2.0 / dim) ** 0.5
    second = torch.randn(hidden, out, generator=generator) * 0.1 / hidden**0.5
    first[:, :count], first[:, count : 2 * count] = kept, -kept
    second[: 2 * count] = 0.0
    second[:count, :count], second[count : 2 * count, :count] = torch.eye(count), -torch.eye(count)
    tower = {"layer_1": first, "bias_1": torch.zeros(hidden), "layer_2": second, "bias_2": torch.zeros(out)}
    return {f"{side}_{name}": tower[name].clone() for side in ("task", "capability") for name in TOWER}


def tower(network: Mapping[str, torch.Tensor], x: torch.Tensor, *, side: str) -> torch.Tensor:
    """(s, n, h) outputs of the stacked towers of a side for unit rows (n, d)."""
    import torch

    first, bias, second, last = (network[f"{side}_{name}"] for name in TOWER)
    scaled = (x * x.shape[1] ** 0.5).expand(first.shape[0], -1, -1)
    hidden = torch.relu(torch.baddbmm(bias.unsqueeze(1), scaled, first))
    return torch.baddbmm(last.unsqueeze(1), hidden, second)


def tower_scores(network: Mapping[str, torch.Tensor], vectors: PairVectors, residual: torch.Tensor) -> torch.Tensor:
    """(s, p) u.v / sqrt(h), with (s, k, h) residuals added to the capability tower."""
    u = tower(network, vectors.x, side="task")
    v = tower(network, vectors.c, side="capability") + residual
    return products(u, v, vectors) / u.shape[-1] ** 0.5


def residual_place(capabilities: Rows, known: Rows, *, device: str) -> tuple[torch.Tensor, torch.Tensor]:
    """(k,) rows of the residual table, the last one for capabilities without a residual; (k, 1) whether they have
    one."""
    import torch

    place = np.searchsorted(known, capabilities)
    has = np.zeros(capabilities.size, bool)
    inside = place < known.size
    has[inside] = known[place[inside]] == capabilities[inside]
    place = np.where(has, place, known.size)
    return torch.from_numpy(place).to(device), torch.from_numpy(has[:, None]).to(device)


def residuals(network: Mapping[str, torch.Tensor], place: torch.Tensor, has: torch.Tensor) -> torch.Tensor:
    """(s, k, h) eps, exactly 0 without a source record."""
    return network["residual"].index_select(1, place) * has

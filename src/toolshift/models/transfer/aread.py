"""AREAD, adapted: an invariant score plus a correction by experts that the context gates (baselines.md section 3).

[C] hierarchical experts with one searched mask per domain; an unseen domain takes the mask-free forward. [T] an
invariant score plus a source-context-aware correction. [R] s = f_inv(z) + beta * sum_e G_e(h) f_e(z) on the input z of
Pointwise MLP with six experts 1536-64-1; in training h is the context's learned embedding with probability 1/2, else
the mixture of context embeddings that the task is routed to; at test time always the mixture; one mask per source
context after half of the epochs: the experts with a mean gate above 1/6. The published search of masks, the levels of
towers and the augmentation by popularity are left out, hence `aread_adapted`.
[ours] f_inv contains the cosine; its network and the experts start at 0, so training starts at the cosine; a mask is
for the learned embedding alone, the mixture is mask-free in training as at test time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
    scored,
)
from toolshift.models.transfer.multipool import FIXED, silent_start
from toolshift.models.transfer.pointwise_mlp import (
    AXIS,
    drop,
    initial_weights,
    last_layer,
    second_hidden,
    stacked_first,
)
from toolshift.training.lists import Batch, TrainingLists
from toolshift.training.losses import listwise
from toolshift.views.corpus import Rows

if TYPE_CHECKING:
    import torch

_LATER = ("_2", "_3")
"""Ends of the names of the layers after the first."""


@dataclass(frozen=True, kw_only=True)
class AreadAdapted(SideBySide):
    """beta: weight of the correction. hidden: of f_inv. experts, expert_width, context_width: sizes of the correction.
    routing_temperature: of the softmax over cosines to context centroids. context_share: how often a training task is
    gated by its own context's embedding. mask_after: epochs before masks; half of what ``fast`` allows, and not a share
    of the allowed epochs, so that fewer epochs are the first of more. masks: False keeps all experts for all contexts.
    Adam with decoupled weight decay. space: coordinates of both vectors and of the cosine."""

    beta: float = 0.5
    hidden: Sequence[int] = (128, 64)
    experts: int = 6
    expert_width: int = 64
    context_width: int = 16
    routing_temperature: float = 0.1
    context_share: float = 0.5
    mask_after: int = 2
    masks: bool = True
    weight_decay: float = 10.0
    dropout: float = 0.3
    temperature: float = 0.05
    learning_rate: float = 3e-4
    batch_tasks: int = 256
    space: str = "raw"

    def __post_init__(self) -> None:
        known_space(self.space, model="aread_adapted")

    @staticmethod
    def alike(models: Sequence[AreadAdapted]) -> bool:
        """Whether the models can be trained together: all but ``beta`` is equal."""
        return len({replace(model, beta=0.0, hidden=tuple(model.hidden)) for model in models}) == 1

    @staticmethod
    def together(
        models: Sequence[AreadAdapted], source: Source, *, bank: FeatureBank, seed: int, limits: Limits
    ) -> Iterator[tuple[Scorer, ...]]:
        """Train models that are `alike` side by side: what ``epochs`` of each gives, up to rounding."""
        first = models[0]
        lists = TrainingLists.of(source.manifests, bank.corpus, max_tasks=limits.max_tasks)
        contexts = Contexts.of(source, bank=bank, space=first.space)
        training = _Training.begin(models, contexts=contexts, bank=bank, seed=seed, device=limits.device)
        losses = epoch_losses(training.step, lists, batch_tasks=first.batch_tasks, seed=seed, limits=limits)
        for number, mean in enumerate(losses, start=1):
            yield tuple(
                FittedAread(
                    weights=weights,
                    centroids=contexts.centroids,
                    active=active,
                    model=model,
                    loss=float(loss),
                    contexts_seen=source.contexts,
                    device=limits.device,
                )
                for model, weights, active, loss in zip(models, training.weights(), training.active, mean, strict=True)
            )
            if number == first.mask_after and first.masks:
                training.choose_masks(lists.tasks)


@dataclass(frozen=True, kw_only=True)
class Contexts:
    """Source contexts. codes: (r,) their rows among all contexts; empty where no source task has a context, and then
    all source tasks are one. centroids: (max(r, 1), d) unit rows. place: (n,) a task's among ``codes``, -1 without
    one."""

    codes: Rows
    centroids: NDArray[np.float32]
    place: Rows

    @staticmethod
    def of_tasks(tasks: Rows, context_of: Rows, vectors: NDArray[np.float32]) -> Contexts:
        """Contexts of the source tasks. vectors: (n, d) of all tasks, of which only those of the sources are read."""
        codes = np.unique(context_of[tasks][context_of[tasks] >= 0])
        groups = [tasks[context_of[tasks] == code] for code in codes] or [tasks]
        means = np.stack([np.asarray(vectors[rows], np.float64).mean(axis=0) for rows in groups])
        centroids = means / np.maximum(np.linalg.norm(means, axis=1, keepdims=True), 1e-12)
        place = np.full(context_of.size, -1, np.int64)
        known = tasks[context_of[tasks] >= 0]
        place[known] = np.searchsorted(codes, context_of[known])
        return Contexts(codes=codes, centroids=centroids.astype(np.float32), place=place)

    @staticmethod
    def of(source: Source, *, bank: FeatureBank, space: str) -> Contexts:
        """Contexts of all source tasks in the coordinates of ``space``."""
        return Contexts.of_tasks(source.tasks, source.context_of, bank.vectors(space)[0])


@dataclass(kw_only=True)
class _Training:
    """s networks that are trained together, see ``initial_network``; beta: (s, 1). active: (s, r, e) experts that the
    learned embedding of each context may use."""

    model: AreadAdapted
    bank: FeatureBank
    contexts: Contexts
    beta: torch.Tensor
    network: Mapping[str, torch.Tensor]
    optimiser: Adam
    generator: torch.Generator
    device: str
    active: NDArray[np.bool_]
    _centroids: torch.Tensor = field(repr=False)

    @staticmethod
    def begin(
        models: Sequence[AreadAdapted], *, contexts: Contexts, bank: FeatureBank, seed: int, device: str
    ) -> _Training:
        import torch

        first, count = models[0], len(contexts.centroids)
        start = initial_network(
            first, bank.task_vectors.shape[1], contexts=count, generator=generator_of("aread", seed)
        )
        stacked = {n: torch.stack([v] * len(models), dim=AXIS.get(n, 0)) for n, v in start.items()}
        network = leaves(stacked, device=device, fixed=FIXED)
        decay = [first.weight_decay] * len(models)
        return _Training(
            model=first,
            bank=bank,
            contexts=contexts,
            beta=torch.tensor([[m.beta] for m in models], device=device),
            network=network,
            optimiser=Adam.of(network, learning_rate=first.learning_rate, decay=decay, axis=AXIS),
            generator=generator_of("aread draws", seed),
            device=device,
            active=np.ones((len(models), count, first.experts), bool),
            _centroids=torch.from_numpy(contexts.centroids).to(device),
        )

    def step(self, batch: Batch) -> torch.Tensor:
        """(s,) loss of every network on a batch, before the step that it takes."""
        import torch

        model = self.model
        vectors = PairVectors.of_batch(batch, bank=self.bank, space=model.space, device=self.device)
        own = torch.from_numpy(self._own_context(batch.tasks)).to(self.device)
        with torch.autocast(vectors.x.device.type, dtype=torch.bfloat16, enabled=self.device != "cpu"):
            routed = routing(vectors.x, self._centroids, temperature=model.routing_temperature)
            active = torch.from_numpy(self.active).to(self.device)
            gate = training_gates(self.network, routed, own=own, active=active)
            outputs = corrected(self.network, vectors, gate, self.beta, model=model, generator=self.generator)
        scores = vectors.cosine + outputs.float()
        loss = listwise(scores, batch.offsets, positive=batch.positive, temperature=model.temperature)
        self.optimiser.step(loss)
        return loss.detach()

    def weights(self) -> list[Weights]:
        """Copies of the weights of every network."""
        return copies(self.network, axis=AXIS)

    def choose_masks(self, tasks: Rows) -> None:
        """Keep for every context the experts whose mean training gate over its tasks is above the mean of all."""
        import torch

        vectors = self.bank.vectors(self.model.space)[0]
        x = torch.from_numpy(np.asarray(vectors[tasks])).to(self.device)
        with torch.no_grad():
            routed = routing(x, self._centroids, temperature=self.model.routing_temperature)
            mixture = gates(self.network, mixed_contexts(self.network, routed)).float().cpu().numpy()
            learned = gates(self.network, self.network["context"]).float().cpu().numpy()
        self.active = expert_masks(mixture, learned, place=self.contexts.place[tasks], share=self.model.context_share)

    def _own_context(self, tasks: Rows) -> Rows:
        """(b,) the context whose embedding gates a task in this step, -1 for the mixture."""
        import torch

        drawn = torch.rand(tasks.size, generator=self.generator).numpy() < self.model.context_share
        return np.where(drawn, self.contexts.place[tasks], -1)


@dataclass(frozen=True, kw_only=True)
class FittedAread:
    """Weights by name, see ``initial_network``. centroids: (r, d) of the source contexts. active: (r, e) experts that
    each context's learned embedding was trained with."""

    weights: Weights
    centroids: NDArray[np.float32]
    active: NDArray[np.bool_]
    model: AreadAdapted
    loss: float
    contexts_seen: tuple[str, ...]
    device: str = "cpu"

    @property
    def record(self) -> Mapping[str, Any]:
        """Training loss of the last epoch and the share of experts that the masks keep."""
        return {"training_loss": self.loss, "active_experts": float(self.active.mean())}

    def state(self) -> Mapping[str, NDArray[Any]]:
        """Weights of all layers, centroids and masks."""
        return {**self.weights, "centroids": self.centroids, "active": self.active.astype(np.float32)}

    def score(self, pairs: Pairs, *, bank: FeatureBank, seed: int) -> Scores:
        """(p,) cosine, plus the network's output, plus beta times the experts gated by the routed mixture."""
        import torch

        del seed
        model, network = self.model, one_stack(self.weights, device=self.device, axis=AXIS)
        centroids = torch.from_numpy(self.centroids).to(self.device)
        beta = torch.tensor([[model.beta]], device=self.device)

        def score(vectors: PairVectors) -> torch.Tensor:
            routed = routing(vectors.x, centroids, temperature=model.routing_temperature)
            gate = gates(network, mixed_contexts(network, routed))
            return vectors.cosine + corrected(network, vectors, gate, beta, model=model)[0]

        return scored(pairs, score, bank=bank, space=model.space, device=self.device)


def initial_network(
    model: AreadAdapted, dim: int, *, contexts: int, generator: torch.Generator
) -> dict[str, torch.Tensor]:
    """f_inv as ``multipool.silent_start``; its first layer and those of the experts, (e * width) columns, side by side.

    context: (r, h). gate: (h, e), gate_bias: (e,). expert: (e, width), which starts at 0.

    Experts have no output bias: its share in a score would be the same for all candidates of a task.
    """
    import torch

    invariant = silent_start(dim, hidden=model.hidden, generator=generator)
    columns = (model.experts * model.expert_width, 1)
    experts = {n: v.detach() for n, v in initial_weights(dim, hidden=columns, generator=generator).items()}
    first = {name: torch.cat([invariant[name], experts[name]], dim=-1) for name in AXIS if not name.endswith(_LATER)}
    return {
        **invariant,
        **first,
        "context": torch.randn(contexts, model.context_width, generator=generator),
        "gate": torch.randn(model.context_width, model.experts, generator=generator) / model.context_width**0.5,
        "gate_bias": torch.zeros(model.experts),
        "expert": torch.zeros(model.experts, model.expert_width),
    }


def routing(x: torch.Tensor, centroids: torch.Tensor, *, temperature: float) -> torch.Tensor:
    """(n, r) softmax over the cosines of unit rows (n, d) to the context centroids (r, d)."""
    import torch

    return torch.softmax((x @ centroids.T).float() / temperature, dim=1)


def mixed_contexts(network: Mapping[str, torch.Tensor], routed: torch.Tensor) -> torch.Tensor:
    """(s, n, h) mixtures of the learned context embeddings for routing weights (n, r)."""
    import torch

    return torch.matmul(routed, network["context"])


def gates(network: Mapping[str, torch.Tensor], h: torch.Tensor, *, active: torch.Tensor | None = None) -> torch.Tensor:
    """(s, n, e) softmax over experts for context vectors (s, n, h). active: (s, n, e) experts that may be used."""
    import torch

    logits = torch.baddbmm(network["gate_bias"].unsqueeze(1), h, network["gate"]).float()
    return torch.softmax(logits if active is None else logits.masked_fill(~active, -torch.inf), dim=-1)


def training_gates(
    network: Mapping[str, torch.Tensor], routed: torch.Tensor, *, own: torch.Tensor, active: torch.Tensor
) -> torch.Tensor:
    """(s, n, e): for ``own`` = -1 the gate of the routed mixture, else the masked gate of the context's embedding.

    routed: (n, r). own: (n,). active: (s, r, e).
    """
    import torch

    mixture = gates(network, mixed_contexts(network, routed))
    learned = gates(network, network["context"], active=active)
    count = learned.shape[1]
    picked = torch.nn.functional.one_hot(own.clamp(min=0), count).to(learned.dtype)
    return torch.where((own < 0)[:, None], mixture, torch.matmul(picked, learned))


def corrected(
    network: Mapping[str, torch.Tensor],
    vectors: PairVectors,
    gate: torch.Tensor,
    beta: torch.Tensor,
    *,
    model: AreadAdapted,
    generator: torch.Generator | None = None,
) -> torch.Tensor:
    """(s, p) f_inv without its cosine plus beta * sum_e G_e f_e. gate: (s, t, e) of the tasks; beta: (s, 1); with a
    generator dropout is applied."""
    import torch

    share = model.dropout if generator is not None else 0.0
    first = stacked_first(network, vectors.x, vectors.c, task=vectors.task, capability=vectors.capability)
    width = network["layer_2"].shape[1]
    invariant = second_hidden(network, first[:, :, :width], dropout=share, generator=generator)
    hidden = drop(torch.relu(first[:, :, width:]), share=share, across=1, generator=generator)
    hidden = hidden.unflatten(2, network["expert"].shape[1:])
    experts = (hidden * network["expert"]).sum(dim=-1)
    by_task = gate.transpose(0, 1).flatten(1)
    weight = torch.nn.functional.embedding(vectors.task, by_task).unflatten(1, (gate.shape[0], gate.shape[2]))
    return last_layer(network, invariant) + beta * (weight * experts).sum(dim=-1).T


def expert_masks(
    mixture: NDArray[np.float32], learned: NDArray[np.float32], *, place: Rows, share: float
) -> NDArray[np.bool_]:
    """(s, r, e) experts whose mean gate in a context is above 1/e; all of them where none is.

    mixture: (s, n, e) gates of the routed mixture of tasks with contexts ``place`` (n,), -1 for none. learned:
    (s, r, e) gates of the contexts' embeddings, which count with ``share``; a context without tasks has nothing else.
    """
    mean = learned.astype(np.float64).copy()
    for context in np.unique(place[place >= 0]):
        routed = mixture[:, place == context].mean(axis=1, dtype=np.float64)
        mean[:, context] = share * learned[:, context] + (1 - share) * routed
    active = mean > 1.0 / mean.shape[2]
    return active | ~active.any(axis=2, keepdims=True)

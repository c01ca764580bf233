"""MultiPool: one ranker on all pooled sources (baselines.md section 2).

[T] the pooling, and for a target of another dataset a label-free "model-signature" alignment with target statistics.
[R] the network of Pointwise MLP plus the cosine as a skip term, trained with the listwise loss; the signature is the
last hidden vector, which is standardised by the target's unlabelled mean and deviation and rescaled to the source's.
[ours] the last layer starts at 0, so training starts at the cosine; statistics are over pairs drawn by hash from a
dataset's tasks and library, so that a score depends neither on the list nor on the other candidates.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from toolshift.models.base import BadParameter, Limits, Scorer, Scores, SideBySide, Source
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
from toolshift.models.transfer.pointwise_mlp import (
    AXIS,
    initial_weights,
    last_layer,
    second_hidden,
    stack,
    stacked_first,
)
from toolshift.runs.seeds import keyed_hash, seed_of
from toolshift.training.lists import Batch, TrainingLists
from toolshift.training.losses import listwise
from toolshift.views.corpus import Corpus, Part, Rows

if TYPE_CHECKING:
    import torch

ALIGNMENTS = ("none", "signature")
SIGNATURE_PAIRS = 4_096
"""Pairs of a dataset that its signature statistics are over."""
FIXED = ("bias_3",)
"""Not trained: it is added to all candidates alike."""
LARGEST_RATIO = 4.0
"""Rescaling is bounded: a hidden unit that is nearly silent on the target would else be blown up without limit."""


@dataclass(frozen=True, kw_only=True)
class MultiPool(SideBySide):
    """Adam with decoupled weight decay. temperature: of the listwise loss. alignment: ``none``, or ``signature`` for
    targets of a dataset that has no source task; inside a source dataset it does nothing. space: coordinates of both
    vectors and of the skip term.

    Raises:
        BadParameter: for an unknown alignment.
    """

    weight_decay: float = 10.0
    hidden: Sequence[int] = (256, 64)
    dropout: float = 0.3
    temperature: float = 0.05
    learning_rate: float = 3e-4
    batch_tasks: int = 256
    alignment: str = "signature"
    space: str = "raw"

    def __post_init__(self) -> None:
        known_space(self.space, model="multipool")
        if self.alignment not in ALIGNMENTS:
            raise BadParameter(f"multipool: alignment={self.alignment!r}; expected one of {', '.join(ALIGNMENTS)}")

    @staticmethod
    def alike(models: Sequence[MultiPool]) -> bool:
        """Whether the models can be trained together: all but the weight decay is equal."""
        return len({replace(model, weight_decay=0.0, hidden=tuple(model.hidden)) for model in models}) == 1

    @staticmethod
    def together(
        models: Sequence[MultiPool], source: Source, *, bank: FeatureBank, seed: int, limits: Limits
    ) -> Iterator[tuple[Scorer, ...]]:
        """Train models that are `alike` side by side: what ``epochs`` of each gives, up to rounding."""
        lists = TrainingLists.of(source.manifests, bank.corpus, max_tasks=limits.max_tasks)
        training = _Training.begin(models, bank=bank, seed=seed, device=limits.device)
        names = [part.name for part in bank.corpus.parts]
        across = models[0].alignment == "signature" and len(names) > 1
        sample = source_sample(source, bank.corpus) if across else None
        parts = tuple(names[i] for i in np.unique(bank.corpus.task_part[source.tasks]))

        for losses in epoch_losses(training.step, lists, batch_tasks=models[0].batch_tasks, seed=seed, limits=limits):
            fits = [
                FittedMultiPool(
                    weights=weights,
                    signature=None,
                    source_parts=parts,
                    loss=float(loss),
                    contexts_seen=source.contexts,
                    device=limits.device,
                    space=models[0].space,
                )
                for weights, loss in zip(copies(training.network, axis=AXIS), losses, strict=True)
            ]
            yield tuple(f if sample is None else replace(f, signature=f.statistics(sample, bank=bank)) for f in fits)


@dataclass(frozen=True, kw_only=True)
class _Training:
    """s networks that are trained together, shaped as ``pointwise_mlp.stack`` does."""

    model: MultiPool
    bank: FeatureBank
    network: Mapping[str, torch.Tensor]
    optimiser: Adam
    generator: torch.Generator
    device: str

    @staticmethod
    def begin(models: Sequence[MultiPool], *, bank: FeatureBank, seed: int, device: str) -> _Training:
        first = models[0]
        generator = generator_of("multipool", seed)
        start = silent_start(bank.task_vectors.shape[1], hidden=first.hidden, generator=generator)
        network = leaves(stack([start] * len(models)), device=device, fixed=FIXED)
        decay = [m.weight_decay for m in models]
        optimiser = Adam.of(network, learning_rate=first.learning_rate, decay=decay, axis=AXIS)
        return _Training(
            model=first, bank=bank, network=network, optimiser=optimiser, generator=generator, device=device
        )

    def step(self, batch: Batch) -> torch.Tensor:
        """(s,) loss of every network on a batch, before the step that it takes."""
        import torch

        vectors = PairVectors.of_batch(batch, bank=self.bank, space=self.model.space, device=self.device)
        with torch.autocast(vectors.x.device.type, dtype=torch.bfloat16, enabled=self.device != "cpu"):
            hidden = signature(self.network, vectors, dropout=self.model.dropout, generator=self.generator)
            outputs = last_layer(self.network, hidden)
        scores = vectors.cosine + outputs.float()
        loss = listwise(scores, batch.offsets, positive=batch.positive, temperature=self.model.temperature)
        self.optimiser.step(loss)
        return loss.detach()


Statistics = NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class FittedMultiPool:
    """Weights by name, shapes as in ``pointwise_mlp``.

    signature: (2, h) mean and deviation of the signature on the source datasets; None without alignment. source_parts:
    names of the datasets with source tasks, inside which nothing is aligned.
    """

    weights: Weights
    signature: Statistics | None
    source_parts: tuple[str, ...]
    loss: float
    contexts_seen: tuple[str, ...]
    device: str = "cpu"
    space: str = "raw"

    @property
    def record(self) -> Mapping[str, Any]:
        """Training loss of the last epoch, and what is not aligned."""
        alignment = "none" if self.signature is None else "signature"
        return {"training_loss": self.loss, "alignment": alignment, "source_datasets": list(self.source_parts)}

    def state(self) -> Mapping[str, NDArray[Any]]:
        """Weights of all layers, and the source's signature statistics."""
        return {**self.weights, **({} if self.signature is None else {"signature": self.signature})}

    def score(self, pairs: Pairs, *, bank: FeatureBank, seed: int) -> Scores:
        """(p,) cosine plus the network's output."""
        del seed
        network = one_stack(self.weights, device=self.device, axis=AXIS)
        shift, ratio = self._alignment(np.unique(bank.corpus.task_part[pairs.task]), bank=bank)

        def score(vectors: PairVectors) -> torch.Tensor:
            import torch

            hidden = signature(network, vectors)
            part = torch.from_numpy(bank.corpus.task_part[vectors.tasks]).to(hidden.device)[vectors.task]
            hidden = hidden * ratio[part] + shift[part]
            return vectors.cosine + last_layer(network, hidden)[0]

        return scored(pairs, score, bank=bank, space=self.space, device=self.device)

    def statistics(self, pairs: Pairs, *, bank: FeatureBank) -> Statistics:
        """(2, h) mean and deviation of the signature over pairs."""
        import torch

        network = one_stack(self.weights, device=self.device, axis=AXIS)
        tasks, task = np.unique(pairs.task, return_inverse=True)
        with torch.no_grad():
            vectors = PairVectors.of(
                tasks,
                task=task.ravel(),
                capability=pairs.capability,
                bank=bank,
                space=self.space,
                device=self.device,
            )
            hidden = signature(network, vectors)[0].double()
            return torch.stack([hidden.mean(dim=0), hidden.std(dim=0, correction=0)]).float().cpu().numpy()

    def _alignment(self, parts: Rows, *, bank: FeatureBank) -> tuple[torch.Tensor, torch.Tensor]:
        """(parts of the corpus, h) shift and ratio; 0 and 1 for datasets that are not aligned. parts: those needed."""
        import torch

        width = self.weights["bias_2"].size
        shift = np.zeros((len(bank.corpus.parts), width), np.float32)
        ratio = np.ones_like(shift)
        for number in parts:
            part = bank.corpus.parts[number]
            if self.signature is None or part.name in self.source_parts:
                continue
            sample = part_sample(bank.corpus, np.arange(part.tasks.start, part.tasks.stop), part)
            target = self.statistics(sample, bank=bank)
            ratio[number], shift[number] = rescaling(self.signature, target)
        return torch.from_numpy(shift).to(self.device), torch.from_numpy(ratio).to(self.device)


def signature(
    network: Mapping[str, torch.Tensor],
    vectors: PairVectors,
    *,
    dropout: float = 0.0,
    generator: torch.Generator | None = None,
) -> torch.Tensor:
    """(s, p, h) last hidden vectors of stacked networks."""
    first = stacked_first(network, vectors.x, vectors.c, task=vectors.task, capability=vectors.capability)
    return second_hidden(network, first, dropout=dropout, generator=generator)


def rescaling(source: Statistics, target: Statistics) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """(h,) ratio and shift of (x - target mean) / target deviation * source deviation + source mean. The ratio lies
    within ``LARGEST_RATIO`` and its inverse. source, target: (2, h) mean and deviation."""
    ratio = np.clip((source[1] + 1e-6) / (target[1] + 1e-6), 1 / LARGEST_RATIO, LARGEST_RATIO)
    return ratio, source[0] - target[0] * ratio


def silent_start(dim: int, *, hidden: Sequence[int], generator: torch.Generator) -> dict[str, torch.Tensor]:
    """Initial weights of ``pointwise_mlp`` with a last layer of 0, so that the network starts by adding nothing."""
    start = {name: value.detach() for name, value in initial_weights(dim, hidden=hidden, generator=generator).items()}
    return {name: value * 0 if name in ("layer_3", "bias_3") else value for name, value in start.items()}


def source_sample(source: Source, corpus: Corpus) -> Pairs:
    """The pairs of all source datasets that the source's signature statistics are over; no label is read."""
    part_of = corpus.task_part[source.tasks]
    found = [part_sample(corpus, source.tasks[part_of == i], corpus.parts[i]) for i in np.unique(part_of)]
    return Pairs(task=np.concatenate([p.task for p in found]), capability=np.concatenate([p.capability for p in found]))


def part_sample(corpus: Corpus, tasks: Rows, part: Part, *, count: int = SIGNATURE_PAIRS) -> Pairs:
    """At most ``count`` distinct pairs of some tasks (n,) of a dataset with capabilities of its library, by keyed hash
    of the ids: the tasks in turn, each time with another draw."""
    salt = seed_of("multipool signature")
    hashes = corpus.task_hash[tasks]
    order = np.argsort(keyed_hash(salt, hashes, hashes), kind="stable")
    turn = np.arange(count, dtype=np.int64)
    task = tasks[order[turn % tasks.size]]
    draw = keyed_hash(salt, corpus.task_hash[task], (turn // tasks.size).astype(np.uint64))
    capability = part.capabilities.start + (draw % np.uint64(part.n_capabilities)).astype(np.int64)
    keys = np.unique(corpus.pair_key(task, capability))
    return Pairs(task=keys // corpus.n_capabilities, capability=keys % corpus.n_capabilities)

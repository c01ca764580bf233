"""UniSRec: parametric whitening in a mixture of experts on both sides, in-batch InfoNCE (baselines.md section 3).

[C] an expert is (dropout(x) - b_k) W_k with W_k ~ N(0, 0.02) and b_k = 0; the gate is a softmax over x W_g plus, in
training, normal noise of scale softplus(x W_n) + 0.01; all experts are used. [R] one adaptor for tasks and one for
capabilities, no sequence encoder; score = cosine / 0.07; InfoNCE over the positives of a batch plus the listwise loss
on the manifest's negatives, plus lambda times InfoNCE of a task with its text after word dropout.
[ours] both adaptors start from the same weights (the original has one for all texts); an item that is another positive
of a row's own task is no negative; the dropped words follow from the text alone, so that each text is embedded once;
the grid is over how far the scorer goes from the initial to the trained weights.
"""

from __future__ import annotations

import math
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
    epoch_losses,
    generator_of,
    leaves,
    products,
    scored,
)
from toolshift.runs.seeds import id_hashes, keyed_hash, seed_of, uniform
from toolshift.training.lists import Batch, TrainingLists
from toolshift.training.losses import SAME_ITEM, contrastive, listwise
from toolshift.views.corpus import Rows

if TYPE_CHECKING:
    import torch

SIDES = ("task", "capability")
PARTS = ("shift", "expert", "gate", "noise")
NOISE_FLOOR = 0.01


@dataclass(frozen=True, kw_only=True)
class UniSRec(SideBySide):
    """retained: share of the way from the initial to the trained weights that the scorer goes; 1 is the original.
    experts, width: of both adaptors. dropout: of an expert's input, in steps of 1/256. temperature: tau of all three
    losses. augment, augment_weight, word_dropout: the task-task term, its lambda, and the share of dropped words.
    same_item: see `toolshift.training.losses.contrastive`. whitening, gate: False leaves the mechanism out (the
    experts' shift, so that they only project; the gate, so that all experts count alike). Adam without weight decay:
    outputs are normalised, so the scale of the weights means nothing. space: coordinates of both vectors.

    Raises:
        BadParameter: for an unknown ``same_item`` or a share outside its range.
    """

    retained: float = 1.0
    experts: int = 8
    width: int = 300
    dropout: float = 0.2
    temperature: float = 0.07
    augment: bool = True
    augment_weight: float = 1e-3
    word_dropout: float = 0.2
    same_item: str = "masked"
    whitening: bool = True
    gate: bool = True
    learning_rate: float = 1e-3
    batch_tasks: int = 256
    space: str = "raw"

    def __post_init__(self) -> None:
        known_space(self.space, model="unisrec")
        if self.same_item not in SAME_ITEM:
            raise BadParameter(f"unisrec: same_item={self.same_item!r}; expected one of {', '.join(SAME_ITEM)}")
        for name, value, top in (("retained", self.retained, 1.0), ("dropout", self.dropout, 0.99)):
            if not 0.0 <= value <= top:
                raise BadParameter(f"unisrec: {name}={value}; expected 0 to {top}")

    @staticmethod
    def alike(models: Sequence[UniSRec]) -> bool:
        """Whether one training serves all models: all but ``retained`` is equal."""
        return len({replace(model, retained=1.0) for model in models}) == 1

    @staticmethod
    def together(
        models: Sequence[UniSRec], source: Source, *, bank: FeatureBank, seed: int, limits: Limits
    ) -> Iterator[tuple[Scorer, ...]]:
        """Train once for models that are `alike`: exactly what ``epochs`` of each gives."""
        first = models[0]
        lists = TrainingLists.of(source.manifests, bank.corpus, max_tasks=limits.max_tasks)
        training = _Training.begin(first, lists=lists, bank=bank, seed=seed, device=limits.device)
        losses = epoch_losses(training.step, lists, batch_tasks=first.batch_tasks, seed=seed, limits=limits)
        for mean in losses:
            yield tuple(
                FittedUniSRec(
                    weights=training.weights(retained=model.retained),
                    gate=first.gate,
                    temperature=first.temperature,
                    loss=float(mean[0]),
                    contexts_seen=source.contexts,
                    device=limits.device,
                    space=first.space,
                )
                for model in models
            )


@dataclass(frozen=True, kw_only=True)
class Draws:
    """Random numbers of one adaptor in one step. keep: (g, n, d) dropout factors, every expert has its own; noise:
    (n, g) standard normal."""

    keep: torch.Tensor
    noise: torch.Tensor

    @staticmethod
    def of(x: torch.Tensor, model: UniSRec, *, generator: torch.Generator) -> Draws:
        """Draws for the rows (n, d) of x, made on the CPU: the same on every device."""
        import torch

        noise = torch.randn(x.shape[0], model.experts, generator=generator)
        keep = dropout_factors((model.experts, *x.shape), share=model.dropout, generator=generator)
        return Draws(keep=keep.to(x.device), noise=noise.to(x.device))


def dropout_factors(shape: Sequence[int], *, share: float, generator: torch.Generator) -> torch.Tensor:
    """0 with probability ``share``, rounded to 1/256, else what keeps the mean at 1. One byte decides a number: there
    are too many of them to draw a float for each."""
    import torch

    size, dropped = math.prod(shape), round(share * 256)
    words = torch.randint(-(2**63), 2**63 - 1, (size // 8 + 1,), dtype=torch.int64, generator=generator)
    keep = words.view(torch.uint8)[:size].view(*shape) >= dropped
    return keep.float() * (256 / (256 - dropped))


@dataclass(frozen=True, kw_only=True)
class _Training:
    """One pair of adaptors in training. altered: (t, d) vectors of the tasks ``rows`` after word dropout; empty without
    the task-task term. start: the weights that training began with."""

    model: UniSRec
    bank: FeatureBank
    rows: Rows
    altered: NDArray[np.float32]
    start: Mapping[str, torch.Tensor]
    network: Mapping[str, torch.Tensor]
    optimiser: Adam
    generator: torch.Generator
    device: str

    @staticmethod
    def begin(model: UniSRec, *, lists: TrainingLists, bank: FeatureBank, seed: int, device: str) -> _Training:
        dim = bank.task_vectors.shape[1]
        generator = generator_of("unisrec", seed)
        start = initial_adaptors(dim, width=model.width, experts=model.experts, generator=generator)
        network = leaves({n: v.clone() for n, v in start.items()}, device=device)
        altered = np.zeros((0, dim), np.float32)
        if model.augment:
            altered = altered_vectors(lists.tasks, bank=bank, share=model.word_dropout, space=model.space)
        return _Training(
            model=model,
            bank=bank,
            rows=lists.tasks,
            altered=altered,
            start=start,
            network=network,
            optimiser=Adam.of(network, learning_rate=model.learning_rate, decay=[]),
            generator=generator,
            device=device,
        )

    def step(self, batch: Batch) -> torch.Tensor:
        """(1,) loss on a batch, before the step that is taken."""
        import torch

        model = self.model
        vectors = PairVectors.of_batch(batch, bank=self.bank, space=model.space, device=self.device)
        inputs = [vectors.x, vectors.c]
        if model.augment:
            inputs.append(torch.from_numpy(self.altered[np.searchsorted(self.rows, batch.tasks)]).to(self.device))
        draws = [Draws.of(x, model, generator=self.generator) for x in inputs]
        with torch.autocast(vectors.x.device.type, dtype=torch.bfloat16, enabled=self.device != "cpu"):
            outputs = [
                adapted(self.network, x, side=side, draws=some, whitening=model.whitening, gate=model.gate)
                for x, side, some in zip(inputs, (*SIDES, "task"), draws, strict=False)
            ]
        loss = batch_loss(outputs, batch, vectors, model=model)
        self.optimiser.step(loss)
        return loss.detach().reshape(1)

    def weights(self, *, retained: float) -> Weights:
        """The weights at ``retained`` of the way from the start."""
        trained = {name: value.detach().cpu() for name, value in self.network.items()}
        return {n: (self.start[n] + retained * (v - self.start[n])).numpy() for n, v in trained.items()}


@dataclass(frozen=True, kw_only=True)
class FittedUniSRec:
    """Weights of both adaptors by name, see ``initial_adaptors``."""

    weights: Weights
    gate: bool
    temperature: float
    loss: float
    contexts_seen: tuple[str, ...]
    device: str = "cpu"
    space: str = "raw"

    @property
    def record(self) -> Mapping[str, Any]:
        """Training loss of the last epoch."""
        return {"training_loss": self.loss}

    def state(self) -> Mapping[str, NDArray[Any]]:
        """Weights of both adaptors."""
        return self.weights

    def score(self, pairs: Pairs, *, bank: FeatureBank, seed: int) -> Scores:
        """(p,) cosines of the adapted vectors over the temperature."""
        import torch

        del seed
        network = {name: torch.from_numpy(value).to(self.device) for name, value in self.weights.items()}

        def score(vectors: PairVectors) -> torch.Tensor:
            u, v = (
                adapted(network, x, side=side, gate=self.gate)
                for x, side in zip((vectors.x, vectors.c), SIDES, strict=True)
            )
            return products(u[None], v[None], vectors)[0] / self.temperature

        return scored(pairs, score, bank=bank, space=self.space, device=self.device)


def initial_adaptors(dim: int, *, width: int, experts: int, generator: torch.Generator) -> dict[str, torch.Tensor]:
    """Both adaptors, equal at the start: ``expert`` (g, d, w) ~ N(0, 0.02), ``shift`` (g, d), ``gate`` and ``noise``
    (d, g) all 0; names begin with the side."""
    import torch

    parts = {
        "shift": torch.zeros(experts, dim),
        "expert": torch.randn(experts, dim, width, generator=generator) * 0.02,
        "gate": torch.zeros(dim, experts),
        "noise": torch.zeros(dim, experts),
    }
    return {f"{side}_{part}": parts[part].clone() for side in SIDES for part in PARTS}


def adapted(
    network: Mapping[str, torch.Tensor],
    x: torch.Tensor,
    *,
    side: str,
    draws: Draws | None = None,
    whitening: bool = True,
    gate: bool = True,
) -> torch.Tensor:
    """(n, w) unit rows: the adaptor's output sum_k g_k (dropout(x) - b_k) W_k for (n, d) rows, normalised in float32.

    draws: dropout and gate noise of a training step; None at test time. whitening, gate: see `UniSRec`.
    """
    import torch

    shift, expert = network[f"{side}_shift"], network[f"{side}_expert"]
    inputs = x.expand(expert.shape[0], -1, -1)
    if draws is not None:
        inputs = inputs * draws.keep
    outputs = torch.bmm(inputs, expert)
    if whitening:
        # The shift goes through the expert by itself, so that the many input rows need no gradient.
        outputs = outputs - torch.bmm(shift.unsqueeze(1), expert)
    weights = gates(network, x, side=side, noise=draws.noise if draws else None) if gate else None
    mixed = outputs.mean(dim=0) if weights is None else (outputs * weights.T.unsqueeze(2)).sum(dim=0)
    return torch.nn.functional.normalize(mixed.float(), dim=1)


def gates(
    network: Mapping[str, torch.Tensor], x: torch.Tensor, *, side: str, noise: torch.Tensor | None
) -> torch.Tensor:
    """(n, g) weights softmax(x W_g + eta (softplus(x W_n) + 0.01)); eta is ``noise``, or 0."""
    import torch

    logits = x @ network[f"{side}_gate"]
    if noise is not None:
        logits = logits + noise * (torch.nn.functional.softplus(x @ network[f"{side}_noise"]) + NOISE_FLOOR)
    return torch.softmax(logits.float(), dim=1)


def batch_loss(outputs: Sequence[torch.Tensor], batch: Batch, vectors: PairVectors, *, model: UniSRec) -> torch.Tensor:
    """InfoNCE over the batch's positives, the listwise loss and, with a third output, lambda times the task-task term.

    outputs: adapted tasks (b, w), capabilities (k, w), and altered tasks (b, w) or nothing.
    """
    import torch

    u, v, *rest = outputs
    scores = products(u[None], v[None], vectors)[0] / model.temperature
    loss = listwise(scores, batch.offsets, positive=batch.positive, temperature=1.0)
    at = np.flatnonzero(batch.positive)
    owner, item = batch.owner[at], batch.capability[at]
    same, excluded = same_items(owner, item)
    table = (u @ v.T / model.temperature).flatten()
    place = torch.from_numpy(at).to(vectors.task.device)
    cells = vectors.task[place][:, None] * v.shape[0] + vectors.capability[place][None, :]
    logits = table_cells(table, cells)
    to = table.device
    loss = loss + contrastive(
        logits,
        same=torch.from_numpy(same).to(to),
        excluded=torch.from_numpy(excluded).to(to),
        same_item=model.same_item,
    )
    if rest:
        shared = torch.from_numpy(shared_items(owner, item, count=batch.tasks.size)).to(to)
        again = contrastive(u @ rest[0].T / model.temperature, same=shared, same_item=model.same_item)
        loss = loss + model.augment_weight * again
    return loss


def table_cells(table: torch.Tensor, cells: torch.Tensor) -> torch.Tensor:
    """The flat table at (q, q) cells; a gradient that adds up in fixed order though cells repeat."""
    import torch

    return torch.nn.functional.embedding(cells, table.unsqueeze(1)).squeeze(-1)


def same_items(owner: Rows, item: Rows) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """((q, q), (q, q)) of the positives of a batch, q (list, item) pairs: whether column j is row i's own item, and
    whether it is another positive of i's list."""
    same = item[:, None] == item[None, :]
    return same, holdings(owner, item, count=int(owner.max(initial=-1)) + 1)[owner] & ~same


def shared_items(owner: Rows, item: Rows, *, count: int) -> NDArray[np.bool_]:
    """(b, b) whether two lists of a batch have a positive in common; b = ``count``."""
    held = holdings(owner, item, count=count)
    shared = np.zeros((count, count), bool)
    np.logical_or.at(shared, owner, held.T)
    return shared


def holdings(owner: Rows, item: Rows, *, count: int) -> NDArray[np.bool_]:
    """(count, q) whether the item of each of the q pairs is a positive of each list."""
    codes = np.unique(item, return_inverse=True)[1].ravel()
    held = np.zeros((count, int(codes.max(initial=-1)) + 1), bool)
    held[owner, codes] = True
    return held[:, codes]


def altered_vectors(tasks: Rows, *, bank: FeatureBank, share: float, space: str) -> NDArray[np.float32]:
    """(t, d) vectors of the tasks' texts after word dropout, in the coordinates of ``space``."""
    vectors = bank.cache.rows([without_words(bank.corpus.task_texts[t], share=share) for t in tasks])
    if space == "raw":
        return np.asarray(vectors, np.float32)
    result = np.empty(vectors.shape, np.float32)
    part_of = bank.corpus.task_part[tasks]
    for number in np.unique(part_of):
        known = np.asarray(bank.task_vectors[bank.corpus.parts[number].tasks], np.float64)
        x = (vectors[part_of == number] - known.mean(axis=0)) / (known.std(axis=0) + 1e-6)
        result[part_of == number] = x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)
    return result


def without_words(text: str, *, share: float) -> str:
    """The text without about ``share`` of its words, which follow from a hash of the text; at least one word stays."""
    words = text.split()
    places = np.arange(len(words)).astype(np.uint64)
    keep = uniform(keyed_hash(seed_of("unisrec words"), id_hashes([text]), places)) >= share
    if not keep.any():
        return text
    return " ".join(w for w, kept in zip(words, keep, strict=True) if kept)

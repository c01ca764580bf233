"""The Learned Reranker: which of two tools runs first, learned from training trajectories (skillgraph.md section 6).

Eight features per tool, a pair is their difference. f8, the size of the set, is equal for both tools of a pair, so its
difference is always 0: the feature is inert, and the group "position" is f7 alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from toolshift.models.skillgraph.graph import TransitionGraph
from toolshift.models.skillgraph.ordering import ordered_by
from toolshift.models.skillgraph.retrieval import EdgeTable, Mode, Sets, Vectors, oracle_sets
from toolshift.models.skillgraph.sequences import Sequences
from toolshift.runs.seeds import id_hashes, keyed_hash, seed_of, uniform

if TYPE_CHECKING:
    import torch

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Split = Literal["trajectory", "pair"]
Weights = Mapping[str, NDArray[np.float32]]

FEATURES = ("cosine", "rank", "out_sum", "in_sum", "out_max", "in_max", "position", "set_size")
GROUPS: Mapping[str, tuple[int, ...]] = {"semantic": (0, 1), "transition": (2, 3, 4, 5), "position": (6, 7)}
"""Columns of the groups f1-2, f3-6, f7-8 of the ablation."""
_NAME = "skillgraph/reranker"
# Cells of (b, k, k, widest layer) worked on at once.
_CELLS = 1 << 22


class NothingToLearn(ValueError):
    """No training trajectory has two distinct tools."""

    user_facing = True


@dataclass(frozen=True, slots=True, kw_only=True)
class RerankerOptions:
    """How the reranker is trained; `reranker_options` gives the values of each mode.

    Raises:
        ValueError: if a value is out of range.
    """

    antisymmetric: bool = True
    """Logit (g(f) - g(-f)) / 2, so that p_ab = 1 - p_ba as the paper states; g(f) alone in the authors' code, where a
    network with biases does not satisfy it."""
    split: Split = "trajectory"
    """What the validation part is drawn from. With ``pair`` a pair and its mirror fall on both sides."""
    without: tuple[str, ...] = ()
    """Groups of features that are zero in training and afterwards."""
    hidden: tuple[int, int] = (64, 32)
    learning_rate: float = 1e-3
    batch: int = 2048
    epochs: int = 30
    patience: int = 5
    min_improvement: float = 1e-5
    validation: float = 0.1
    seed: int = 42

    def __post_init__(self) -> None:
        if self.split not in get_args(Split) or set(self.without) - set(GROUPS):
            raise ValueError(f"split {self.split!r}: trajectory or pair; without {self.without}: of {sorted(GROUPS)}")
        if min(*self.hidden, self.batch, self.epochs, self.patience) < 1 or self.learning_rate <= 0:
            raise ValueError(f"hidden, batch, epochs and patience of at least 1, learning_rate above 0, got {self}")
        if not 0 <= self.validation < 1:
            raise ValueError(f"validation must be a share in [0, 1), got {self.validation}")


def reranker_options(mode: Mode, *, seed: int = 42, without: Sequence[str] = ()) -> RerankerOptions:
    """Options of a mode."""
    paper = mode == "paper"
    split: Split = "trajectory" if paper else "pair"
    return RerankerOptions(antisymmetric=paper, split=split, seed=seed, without=tuple(without))


def tool_features(sets: Sets, *, graph: TransitionGraph, position: Floats | None = None) -> Floats:
    """f1..f8 of the tools of q sets given by cosine: (q, k, 8), 0 in the filling.

    Cosine; cosine rank / max(K - 1, 1); sum of transitions to and from the other tools of the set; largest transition
    to and from them; mean position in training; K / 10. ``position``: (n,) in place of that of the graph.
    """
    place = graph.position if position is None else position
    valid, size = sets.items >= 0, sets.size[:, None]
    weight, _ = EdgeTable.of(graph.transition).square(sets.items)
    rank = np.arange(sets.items.shape[1]) / np.maximum(size - 1, 1)
    columns = [
        sets.similarity,
        rank,
        weight.sum(axis=2),
        weight.sum(axis=1),
        weight.max(axis=2, initial=0.0),
        weight.max(axis=1, initial=0.0),
        place[sets.items],
        np.broadcast_to(size / 10, sets.items.shape),
    ]
    return np.where(valid[:, :, None], np.stack(columns, axis=2), 0.0)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TrainingPairs:
    """p ordered pairs of distinct tools of training trajectories; the first one was called before the second."""

    difference: Floats
    """(p, 8) features of the first tool minus those of the second."""
    owner: Ints
    """(p,) trajectory, ascending."""

    def __len__(self) -> int:
        return len(self.owner)


def training_pairs(
    sequences: Sequences, *, queries: Vectors, tools: Vectors, graph: TransitionGraph, position: Floats | None = None
) -> TrainingPairs:
    """Every distinct pair (a, b) of which some call of a comes before one of b; the candidates are the gold tools.

    queries: (n, d) unit rows, one per trajectory. Trajectories of one tool give no pair; a trajectory that calls
    a, b, a gives both orders unless it was deduplicated.
    """
    gold = sequences.padded()
    sets = oracle_sets(gold, queries=queries, tools=tools)
    features = tool_features(sets, graph=graph, position=position)
    first, second = np.triu_indices(gold.shape[1], 1)
    owners, firsts, seconds = [], [], []
    step = max(1, _CELLS // max(1, len(first)))
    for start in range(0, len(gold), step):
        part = slice(start, start + step)
        slot = _slots(gold[part], sets.items[part])
        a, b = slot[:, first], slot[:, second]
        owner, pair = np.nonzero((b >= 0) & (a != b))
        k = max(1, slot.shape[1])
        keys = np.unique((owner * k + a[owner, pair]) * k + b[owner, pair])
        owners.append(keys // (k * k) + start)
        firsts.append(keys // k % k)
        seconds.append(keys % k)
    none = np.zeros(0, dtype=np.int64)
    owner, a, b = (np.concatenate([none, *column]) for column in (owners, firsts, seconds))
    return TrainingPairs(difference=features[owner, a] - features[owner, b], owner=owner)


def _slots(gold: Ints, items: Ints) -> Ints:
    """(b, l) place of each call's tool among ``items`` (b, k), -1 in the filling."""
    place = (gold[:, :, None] == items[:, None, :]).argmax(axis=2) if items.shape[1] else np.zeros_like(gold)
    return np.where(gold >= 0, place, -1)


@dataclass(frozen=True, kw_only=True, eq=False)
class LearnedReranker:
    """A fitted reranker.

    weights: of the three layers. zeroed: columns of features that are set to 0. losses: (epoch, training, validation)
    BCE of each epoch. kept_epoch: whose weights these are. position: (n,) other positions than those of the graph.
    """

    weights: Weights
    antisymmetric: bool
    zeroed: tuple[int, ...] = ()
    losses: tuple[tuple[int, float, float], ...] = ()
    kept_epoch: int = 0
    n_pairs: int = 0
    position: Floats | None = None

    def without(self, *groups: str) -> LearnedReranker:
        """The same network with groups of features zero at inference."""
        return replace(self, zeroed=tuple(sorted({*self.zeroed, *(c for g in groups for c in GROUPS[g])})))

    def with_position(self, position: Floats) -> LearnedReranker:
        """The same network with other mean positions (n,): ToolBench's on API-Bank, 0.5 for an unseen tool."""
        return replace(self, position=position)

    def logits(self, difference: Floats) -> Floats:
        """(...,) logits that the first tool runs first, for differences (..., 8)."""
        x = difference.copy()
        x[..., list(self.zeroed)] = 0.0
        found = _forward(self.weights, x)
        return (found - _forward(self.weights, -x)) / 2 if self.antisymmetric else found

    def probabilities(self, sets: Sets, *, graph: TransitionGraph) -> Floats:
        """p_ab (q, k, k) for sets given by cosine; 0 on the diagonal and in the filling."""
        features = tool_features(sets, graph=graph, position=self.position)
        q, k = sets.items.shape
        out = np.zeros((q, k, k))
        valid = sets.items >= 0
        both = valid[:, :, None] & valid[:, None, :] & ~np.eye(k, dtype=bool)
        step = max(1, _CELLS // max(1, k * k * self.weights["layer_1"].shape[1]))
        for start in range(0, q, step):
            part = slice(start, start + step)
            block, a, b = np.nonzero(both[part])
            block = block + start
            out[block, a, b] = expit(self.logits(features[block, a] - features[block, b]))
        return out

    def order(self, sets: Sets, *, graph: TransitionGraph) -> Ints:
        """Tools by v(a) = sum over b of p_ab, descending: (q, k). Sums are rounded to 1e-9, below which two tools with
        the same features may differ; those keep their cosine order."""
        ranked = sets.by_cosine()
        return ordered_by(np.round(self.probabilities(ranked, graph=graph).sum(axis=2), 9), ranked)

    @property
    def record(self) -> Mapping[str, Any]:
        """Plain content for the record of a run."""
        return {
            "antisymmetric": self.antisymmetric,
            "zeroed": [FEATURES[c] for c in self.zeroed],
            "pairs": self.n_pairs,
            "kept_epoch": self.kept_epoch,
            "epochs": [{"epoch": e, "training": t, "validation": v} for e, t, v in self.losses],
        }


def _forward(weights: Weights, x: Floats) -> Floats:
    for layer in ("1", "2"):
        x = np.maximum(x @ weights[f"layer_{layer}"].astype(np.float64) + weights[f"bias_{layer}"], 0.0)
    return (x @ weights["layer_3"].astype(np.float64) + weights["bias_3"])[..., 0]


def fit_reranker(
    pairs: TrainingPairs, *, ids: Sequence[str], options: RerankerOptions | None = None
) -> LearnedReranker:
    """Train on pairs and their mirrors by binary cross-entropy, with early stopping.

    ids: of the trajectories that ``pairs.owner`` points to; trajectories of one id fall on one side of the split, so
    that ids of groups may be given. The result depends on seed and data alone, not on the number of threads. Where the
    validation part is empty, the training loss decides when to stop.

    Raises:
        NothingToLearn: without a pair.
    """
    options = options or RerankerOptions()
    if not len(pairs):
        raise NothingToLearn(
            f"none of the {len(ids)} training trajectories has two distinct tools, so there is no order to learn; "
            "use hybrid_rerank or sem_sort, or give more trajectories"
        )
    zeroed = tuple(sorted(c for group in set(options.without) for c in GROUPS[group]))
    difference = pairs.difference.astype(np.float32)
    difference[:, list(zeroed)] = 0.0
    x = np.concatenate([difference, -difference])
    y = np.repeat(np.array([1.0, 0.0], dtype=np.float32), len(pairs))
    held_out = _validation(pairs, ids=ids, options=options)
    with _one_thread():
        weights, losses, kept = _train(x, y, held_out=held_out, options=options)
    return LearnedReranker(
        weights=weights,
        antisymmetric=options.antisymmetric,
        zeroed=zeroed,
        losses=losses,
        kept_epoch=kept,
        n_pairs=len(pairs),
    )


def _validation(pairs: TrainingPairs, *, ids: Sequence[str], options: RerankerOptions) -> Bools:
    """(2p,) pairs, then mirrors, that are held out."""
    salt = seed_of(_NAME, "validation", options.seed)
    if options.split == "trajectory":
        held = uniform(keyed_hash(salt, id_hashes(ids), np.zeros((), np.uint64))) < options.validation
        return np.tile(held[pairs.owner], 2)
    rows = np.random.Generator(np.random.Philox(salt)).permutation(2 * len(pairs))
    held = np.zeros(2 * len(pairs), dtype=bool)
    held[rows[: int(options.validation * len(rows))]] = True
    return held


@contextmanager
def _one_thread() -> Iterator[None]:
    """Sums of a network this small cost more to share among threads than to do, and then add up in one order."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _train(
    x: NDArray[np.float32], y: NDArray[np.float32], *, held_out: Bools, options: RerankerOptions
) -> tuple[Weights, tuple[tuple[int, float, float], ...], int]:
    """Weights of the best epoch, losses of all, and which one was best."""
    import torch

    # A split that leaves nothing to train on, or nothing to validate on, is none.
    held_out = held_out if 0 < held_out.sum() < len(held_out) else np.zeros(len(held_out), dtype=bool)
    parts = [tuple(torch.from_numpy(a[m]) for a in (x, y)) for m in (~held_out, held_out)]
    generator = torch.Generator().manual_seed(seed_of(_NAME, "training", options.seed) % 2**62)
    parameters = _start(options.hidden, generator=generator)
    optimiser = torch.optim.Adam(list(parameters.values()), lr=options.learning_rate)
    losses, best, kept, weights = [], float("inf"), 0, {}
    for epoch in range(1, options.epochs + 1):
        training = _epoch(parameters, optimiser, *parts[0], generator=generator, options=options)
        judged = _loss_of(parameters, *parts[1], options=options) if held_out.any() else training
        losses.append((epoch, training, judged))
        if judged < best - options.min_improvement:
            best, kept = judged, epoch
            weights = {name: value.detach().numpy().copy() for name, value in parameters.items()}
        elif epoch - kept >= options.patience:
            break
    return weights, tuple(losses), kept


def _start(hidden: tuple[int, int], *, generator: torch.Generator) -> dict[str, torch.Tensor]:
    """Layers (in, out) with torch's uniform start of a linear layer, +-1 / sqrt(in)."""
    import torch

    sizes = (len(FEATURES), *hidden, 1)
    found: dict[str, torch.Tensor] = {}
    for number, (before, after) in enumerate(pairwise(sizes), start=1):
        for name, shape in ((f"layer_{number}", (before, after)), (f"bias_{number}", (after,))):
            drawn = torch.rand(shape, generator=generator)
            found[name] = ((2 * drawn - 1) / before**0.5).requires_grad_()
    return found


def _epoch(
    parameters: Mapping[str, torch.Tensor],
    optimiser: torch.optim.Optimizer,
    x: torch.Tensor,
    y: torch.Tensor,
    *,
    generator: torch.Generator,
    options: RerankerOptions,
) -> float:
    """One pass in random order; the mean loss of its pairs.

    Raises:
        FloatingPointError: if a loss is not finite.
    """
    import torch

    total = 0.0
    for rows in torch.randperm(len(x), generator=generator).split(options.batch):
        loss = _loss(parameters, x[rows], y[rows], antisymmetric=options.antisymmetric)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        total += float(loss.detach()) * len(rows)
    if not np.isfinite(total):
        raise FloatingPointError("the reranker's loss is not finite; check the vectors and the graph for NaN")
    return total / len(x)


def _loss_of(
    parameters: Mapping[str, torch.Tensor], x: torch.Tensor, y: torch.Tensor, *, options: RerankerOptions
) -> float:
    import torch

    with torch.no_grad():
        return float(_loss(parameters, x, y, antisymmetric=options.antisymmetric))


def _loss(
    parameters: Mapping[str, torch.Tensor], x: torch.Tensor, y: torch.Tensor, *, antisymmetric: bool
) -> torch.Tensor:
    import torch

    logit = _network(parameters, x)
    if antisymmetric:
        logit = (logit - _network(parameters, -x)) / 2
    return torch.nn.functional.binary_cross_entropy_with_logits(logit, y)


def _network(parameters: Mapping[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    import torch

    for layer in ("1", "2"):
        x = torch.relu(torch.addmm(parameters[f"bias_{layer}"], x, parameters[f"layer_{layer}"]))
    return torch.addmm(parameters["bias_3"], x, parameters["layer_3"]).squeeze(1)

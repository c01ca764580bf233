"""Training of the NTILC encoder: batches of queries, their gold tools and the neighbours of these (spec/ntilc.md).

[T] L = lambda1 L_circle + lambda2 L_FM. [C] AdamW, weight decay 0.01, clip 1.0, linear schedule with warm-up, 20 %
validation per tool, best epoch by Top-1. [R] tools of a batch: all its gold tools, and the nearest tools of each with
w >= theta_w in an index that is refreshed every epoch. No gold tool of a query, and no tool that reads like one, is a
negative of that query. Random numbers of an epoch follow from (seed, epoch), so that a training that was stopped goes
on as if it had not been.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from toolshift.models.base import BadParameter
from toolshift.models.ntilc.encoder import Inputs, NtilcError, z_of
from toolshift.models.ntilc.losses import FM_AVERAGES, circle, contrastive, functional_margin
from toolshift.models.ntilc.signature import Compat, Rows
from toolshift.runs.files import stable_hash, write_binary
from toolshift.runs.ranks import World
from toolshift.runs.seeds import keyed_hash, seed_of
from toolshift.views.roles import packed_rows

if TYPE_CHECKING:
    import torch

log = logging.getLogger("toolshift")
LOSSES = ("circle", "contrastive", "prototype", "circle_prototype")
"""``prototype``: cross-entropy against one learned vector per tool; ``circle_prototype``: what the public code does."""
FM_FORMS = ("tool", "prototype")
_SEARCH_ROWS = 1024
# Of the nearest tools so many times the neighbours that are kept: some read the same or have a like signature.
_LOOK = 4
_SUMS: tuple[str, ...] = ("loss", "alignment", "fm", "steps", "active", "rows", "rho", "w", "pairs")


class NoActivePairs(RuntimeError):
    """The Functional-Margin loss was zero for the whole training."""

    user_facing = True


@dataclass(frozen=True, kw_only=True)
class Objective:
    """lambda1 times an alignment loss plus lambda2 times the Functional-Margin loss.

    loss: see ``LOSSES``. gamma, margin: of Circle loss. temperature: of the contrastive ones. m0: margin of FM.
    fm_form: z_i, z_j are both tools (``tool``, [T]) or a query and a prototype (``prototype``, [C]). fm_average: see
    `functional_margin`.

    Raises:
        BadParameter: for an unknown name or a number outside its range.
    """

    loss: str = "circle"
    lambda1: float = 1.0
    lambda2: float = 2.0
    gamma: float = 32.0
    margin: float = 0.25
    temperature: float = 0.07
    m0: float = 0.3
    fm_form: str = "tool"
    fm_average: str = "all"

    def __post_init__(self) -> None:
        names = (("loss", LOSSES), ("fm_form", FM_FORMS), ("fm_average", FM_AVERAGES))
        for name, known in names:
            if getattr(self, name) not in known:
                raise BadParameter(f"ntilc: {name}={getattr(self, name)!r}; expected one of {', '.join(known)}")
        if self.lambda1 < 0 or self.lambda2 < 0 or self.lambda1 + self.lambda2 == 0:
            raise BadParameter(
                f"ntilc: lambda1={self.lambda1}, lambda2={self.lambda2}; expected none below 0 and one above"
            )
        if not 0 < self.m0 <= 2 or self.gamma <= 0 or not 0 <= self.margin <= 1 or self.temperature <= 0:
            raise BadParameter(
                f"ntilc: m0={self.m0}, gamma={self.gamma}, margin={self.margin}, temperature={self.temperature}; "
                "expected m0 in (0, 2], margin in [0, 1], the others above 0"
            )

    @property
    def has_prototypes(self) -> bool:
        """Whether one vector per tool is learned."""
        return self.loss.endswith("prototype") or self.fm_form == "prototype"


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """How long and how fast. batch: queries in a step, over all processes. neighbours: blur neighbours of a gold tool.
    refresh: epochs between two refreshes of their index, 0: made once. theta_w: w that a neighbour must have.
    max_steps: gradient steps in all. patience: epochs without a better validation Top-1 before the end; None: never.
    validation: share of a tool's queries that are held out. linear: the rate falls to 0 over all steps, else it stays
    after the warm-up (a share of all steps). head_learning_rate: of everything above a backbone; None: the same.
    """

    epochs: int = 25
    batch: int = 32
    learning_rate: float = 1e-3
    head_learning_rate: float | None = None
    weight_decay: float = 0.01
    warmup: float = 0.1
    linear: bool = True
    clip: float = 1.0
    neighbours: int = 8
    refresh: int = 1
    theta_w: float = 0.5
    max_steps: int | None = None
    patience: int | None = 5
    validation: float = 0.2


SCHEDULES: Mapping[str, Schedule] = {
    "frozen": Schedule(),
    "fine_tune": Schedule(learning_rate=2e-5),
    "fine_tune_cpu": Schedule(
        epochs=1,
        batch=16,
        learning_rate=2e-5,
        head_learning_rate=1e-3,
        neighbours=1,
        refresh=0,
        max_steps=200,
        patience=None,
        validation=0.0,
    ),
}
"""``frozen``: [R] a head alone needs a larger rate than [C] ``fine_tune``. ``fine_tune_cpu``: [R] capped for two cores;
give it short texts (32 and 48 tokens) and neighbours from frozen vectors, since every refresh encodes all tools."""


@dataclass(frozen=True, kw_only=True)
class Examples:
    """q queries with their gold tools, of which each has one or more.

    query: (q,) query rows. offsets: (q+1,) into ``tool``: (g,) tool rows, distinct and ascending within a query.
    hashes: (q,) of the query ids. missing: gold tools that are not in the registry; unusable: queries with no other.
    """

    query: Rows
    offsets: Rows
    tool: Rows
    hashes: NDArray[np.uint64]
    missing: int = 0
    unusable: int = 0

    @staticmethod
    def of(gold: Sequence[Sequence[int]], *, hashes: NDArray[np.uint64], query: Rows | None = None) -> Examples:
        """gold: tool rows per query, -1 for a tool that was removed from the registry: it is left out and counted.

        Raises:
            NtilcError: if no query has a gold tool.
        """
        kept = [np.unique([g for g in some if g >= 0]).astype(np.int64) for some in gold]
        use = np.flatnonzero([some.size > 0 for some in kept])
        if not use.size:
            raise NtilcError(f"none of {len(gold)} queries has a gold tool in the registry: nothing can be learned")
        lengths = [kept[i].size for i in use]
        return Examples(
            query=(np.arange(len(gold)) if query is None else query)[use],
            offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
            tool=np.concatenate([kept[i] for i in use]),
            hashes=hashes[use],
            missing=sum(len({g for g in some if g < 0}) for some in gold),
            unusable=len(gold) - use.size,
        )

    def __len__(self) -> int:
        """Number of queries."""
        return int(self.query.size)

    def take(self, rows: Rows) -> Examples:
        """Some of the queries, in the given order."""
        index, _ = packed_rows(self.offsets, rows)
        lengths = np.diff(self.offsets)[rows]
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        return replace(self, query=self.query[rows], offsets=offsets, tool=self.tool[index], hashes=self.hashes[rows])

    @property
    def owner(self) -> Rows:
        """(g,) position of the query of every gold tool."""
        return np.repeat(np.arange(len(self)), np.diff(self.offsets))

    def split(self, share: float, *, seed: int) -> tuple[Examples, Examples]:
        """(training, validation): of every tool's queries ``share`` by keyed hash, at least one of two or more [C].

        A query with several gold tools counts for the first of them.
        """
        first = self.tool[self.offsets[:-1]]
        key = keyed_hash(seed_of("ntilc validation", seed), self.hashes, self.hashes)
        order = np.lexsort((key, first))
        _, start, count = np.unique(first[order], return_index=True, return_counts=True)
        place = np.arange(order.size) - np.repeat(start, count)
        size = np.where(count >= 2, np.maximum(np.rint(share * count), 1), 0) if share > 0 else np.zeros_like(count)
        held = np.zeros(len(self), bool)
        held[order[place < np.repeat(size, count)]] = True
        return self.take(np.flatnonzero(~held)), self.take(np.flatnonzero(held))


@dataclass(frozen=True, kw_only=True)
class Epoch:
    """What one epoch did. active_share: of (query, gold tool) rows with an active pair; mean_rho, mean_w: over active
    pairs; validation_top1: NaN without validation queries."""

    number: int
    loss: float
    alignment: float
    fm: float
    active_share: float
    mean_rho: float
    mean_w: float
    steps: int
    validation_top1: float = float("nan")


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """The trained network at its best epoch, and the curve over all epochs."""

    net: Any
    curve: tuple[Epoch, ...]
    best: int
    state: Mapping[str, torch.Tensor] = field(repr=False)


@dataclass(kw_only=True)
class Trainer:
    """A network in training on some queries; ``epoch`` may be called with 0, 1, 2, ...

    pool: (k,) tool rows, ascending, among which neighbours are looked for; gold tools always belong to it. table:
    (n_tools, neighbours) neighbour rows, -1 where there is none.
    """

    net: Any
    inputs: Inputs
    examples: Examples
    compat: Compat
    objective: Objective
    schedule: Schedule
    pool: Rows
    seed: int
    device: str
    world: World
    forward: Any
    optimiser: torch.optim.Optimizer
    scheduler: Any
    steps: int = 0
    table: Rows | None = None

    @staticmethod
    def begin(
        net: Any,
        examples: Examples,
        *,
        inputs: Inputs,
        compat: Compat,
        objective: Objective,
        schedule: Schedule,
        seed: int,
        pool: Rows | None = None,
        device: str = "cpu",
        world: World | None = None,
        forward: Any = None,
        table: Rows | None = None,
    ) -> Trainer:
        """Everything before the first step; ``forward``: the network as distributed training wraps it; ``table``: the
        neighbours to begin with, which stay where ``refresh`` is 0.

        Raises:
            NtilcError: if the registry is empty.
        """
        import torch

        if not compat.n_tools:
            raise NtilcError("the registry is empty: there is no tool to train on")
        whole = np.arange(compat.n_tools) if pool is None else np.union1d(pool, examples.tool)
        if objective.has_prototypes and net.prototypes is None:
            raise BadParameter(f"ntilc: loss={objective.loss}, fm_form={objective.fm_form} need a net with prototypes")
        optimiser = torch.optim.AdamW(
            parameter_groups(net, schedule), lr=schedule.learning_rate, weight_decay=schedule.weight_decay
        )
        total = total_steps(len(examples), schedule)
        return Trainer(
            net=net,
            inputs=inputs,
            examples=examples,
            compat=compat,
            objective=objective,
            schedule=schedule,
            pool=whole.astype(np.int64),
            seed=seed,
            device=device,
            world=world or World(),
            forward=forward if forward is not None else net,
            table=table,
            optimiser=optimiser,
            scheduler=torch.optim.lr_scheduler.LambdaLR(optimiser, rate(schedule, total=total)),
        )

    @property
    def is_over(self) -> bool:
        """Whether the cap on steps is reached."""
        return self.schedule.max_steps is not None and self.steps >= self.schedule.max_steps

    def epoch(self, number: int) -> Epoch:
        """One pass over the queries.

        Raises:
            FloatingPointError: if a loss is not finite.
        """
        every = self.schedule.refresh
        if self.table is None or (every and number % every == 0):
            self.table = self.neighbours()
        sums = dict.fromkeys(_SUMS, 0.0)
        with seeded(seed_of("ntilc epoch", self.seed, number, self.world.rank)):
            self.net.train()
            for rows in batches(self.examples, number, seed=self.seed, size=self.schedule.batch):
                if self.is_over:
                    break
                for name, value in self.step(self.examples.take(share(rows, self.world))).items():
                    sums[name] += value
        sums = self._over_ranks(sums)
        if not np.isfinite(sums["loss"]):
            raise FloatingPointError(f"epoch {number + 1}: the loss is not finite; lower the learning rate")
        return epoch_of(number, sums)

    def step(self, batch: Examples) -> Mapping[str, float]:
        """One gradient step; what it adds to the sums of the epoch."""
        import torch

        device = torch.device(self.device)
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=device.type == "cuda"):
            loss, sums = self.loss(batch)
        self.optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.net.parameters(), self.schedule.clip)
        self.optimiser.step()
        self.scheduler.step()
        self.steps += 1
        return sums

    def loss(self, batch: Examples) -> tuple[torch.Tensor, Mapping[str, float]]:
        """The loss of a batch, and its parts as numbers."""
        import torch

        columns, gold = self.columns(batch)
        z_q, z_t, prototypes = self.forward(self.inputs.queries(batch.query), self.inputs.tools(columns))
        objective = self.objective
        by_prototype = objective.loss.endswith("prototype")
        named = self.pool if by_prototype else columns
        positive, negative = masks(batch, named, code=self.inputs.code)
        with torch.autocast(torch.device(self.device).type, enabled=False):
            similarity = z_q @ (prototypes if by_prototype else z_t).T
            part = {"positive": self._tensor(positive), "negative": self._tensor(negative)}
            if objective.loss.startswith("circle"):
                alignment = circle(similarity, **part, gamma=objective.gamma, margin=objective.margin)
            else:
                alignment = contrastive(similarity, **part, temperature=objective.temperature)
            fm = self._functional_margin(batch, columns, gold, z_q=z_q, z_t=z_t, prototypes=prototypes)
            total = objective.lambda1 * alignment + objective.lambda2 * fm.loss
        values = (total, alignment, fm.loss, 1, fm.active.sum(), fm.active.numel(), fm.rho, fm.w, fm.pairs)
        return total, {name: _number(value) for name, value in zip(_SUMS, values, strict=True)}

    def _functional_margin(
        self, batch: Examples, columns: Rows, gold: Rows, *, z_q: Any, z_t: Any, prototypes: Any
    ) -> Any:
        """FM over (query, gold tool) rows; those of one query share the weight of one example."""
        import torch

        place = np.searchsorted(gold, batch.tool)
        if self.objective.fm_form == "prototype":
            cosine = z_q @ prototypes.index_select(0, self._tensor(np.searchsorted(self.pool, columns))).T
            rows = batch.owner
        else:
            cosine = z_t.index_select(0, self._tensor(np.searchsorted(columns, gold))) @ z_t.T
            rows = place
        # embedding, not indexing: with several threads the gradient of indexing adds up in no fixed order.
        cosine = torch.nn.functional.embedding(self._tensor(rows), cosine)
        w = 1.0 - self.compat.compat(gold, columns)
        allowed = masks(batch, columns, code=self.inputs.code)[1]
        weight = 1.0 / np.diff(batch.offsets)[batch.owner]
        return functional_margin(
            cosine,
            self._tensor(w[place]),
            allowed=self._tensor(allowed[batch.owner]),
            m0=self.objective.m0,
            weight=self._tensor(weight.astype(np.float32)),
            average=self.objective.fm_average,
        )

    def columns(self, batch: Examples) -> tuple[Rows, Rows]:
        """((c,) tools of the batch, ascending: gold ones and their neighbours; (u,) the distinct gold ones)."""
        gold = np.unique(batch.tool)
        near = self.table[gold].ravel() if self.table is not None else gold
        return np.union1d(gold, near[near >= 0]), gold

    def neighbours(self) -> Rows:
        """(n_tools, k) the nearest tools of the pool for every gold tool, by the network as it is; -1 elsewhere."""
        result = np.full((self.compat.n_tools, self.schedule.neighbours), -1, np.int64)
        if self.schedule.neighbours:
            z = z_of(self.net, self.inputs.tools, self.pool, chunk=self.inputs.chunk)
            gold = np.unique(self.examples.tool)
            for start in range(0, gold.size, _SEARCH_ROWS):
                some = gold[start : start + _SEARCH_ROWS]
                result[some] = self.nearest(some, z)
        return result

    def nearest(self, gold: Rows, z: NDArray[np.float32]) -> Rows:
        """(u, neighbours) for some gold tools; z: (k, d) vectors of the pool, of any encoder."""
        import torch

        wanted = self.schedule.neighbours
        of_pool = torch.from_numpy(z)
        scores = of_pool[torch.from_numpy(np.searchsorted(self.pool, gold))] @ of_pool.T
        near = self.pool[torch.topk(scores, min(_LOOK * wanted + 1, self.pool.size), dim=1).indices.numpy()]
        left = np.repeat(gold, near.shape[1])
        w = 1.0 - self.compat.pairs(left, near.ravel()).reshape(near.shape)
        good = (w >= self.schedule.theta_w) & (self.inputs.code[near] != self.inputs.code[gold][:, None])
        order = np.argsort(~good, axis=1, kind="stable")[:, :wanted]
        found = np.where(np.take_along_axis(good, order, axis=1), np.take_along_axis(near, order, axis=1), -1)
        return np.pad(found, ((0, 0), (0, wanted - found.shape[1])), constant_values=-1)

    def top1(self, examples: Examples) -> float:
        """Share of queries whose nearest tool of the pool is gold; NaN without queries."""
        if not len(examples):
            return float("nan")
        tools = z_of(self.net, self.inputs.tools, self.pool, chunk=self.inputs.chunk)
        queries = z_of(self.net, self.inputs.queries, examples.query, chunk=self.inputs.chunk)
        hits = 0
        for start in range(0, len(examples), _SEARCH_ROWS):
            rows = np.arange(start, min(start + _SEARCH_ROWS, len(examples)))
            part = examples.take(rows)
            best = self.pool[(queries[rows] @ tools.T).argmax(axis=1)]
            hits += int((part.tool == best[part.owner]).sum())
        return hits / len(examples)

    def _tensor(self, values: NDArray[Any]) -> torch.Tensor:
        import torch

        return torch.from_numpy(np.ascontiguousarray(values)).to(self.device)

    def _over_ranks(self, sums: dict[str, float]) -> dict[str, float]:
        if self.world.size == 1:
            return sums
        import torch

        values = self._tensor(np.array([sums[name] for name in _SUMS], np.float64))
        torch.distributed.all_reduce(values)
        values = values.cpu().tolist()
        return dict(zip(_SUMS, values, strict=True))


def masks(batch: Examples, columns: Rows, *, code: Rows) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """((b, c) positive, (b, c) negative): a column is positive where it is a gold tool of the query, negative where it
    neither is nor reads like one (equal ``code``)."""
    positive = np.zeros((len(batch), columns.size), bool)
    place = np.searchsorted(columns, batch.tool)
    inside = (place < columns.size) & (columns[np.minimum(place, columns.size - 1)] == batch.tool)
    positive[batch.owner[inside], place[inside]] = True
    kinds, kind = np.unique(np.concatenate([code[columns], code[batch.tool]]), return_inverse=True)
    held = np.zeros((len(batch), kinds.size), bool)
    held[batch.owner, kind.ravel()[columns.size :]] = True
    return positive, ~held[:, kind.ravel()[: columns.size]]


def train(
    net: Any,
    examples: Examples,
    *,
    inputs: Inputs,
    compat: Compat,
    objective: Objective | None = None,
    schedule: Schedule | None = None,
    seed: int = 42,
    pool: Rows | None = None,
    device: str = "cpu",
    folder: Path | None = None,
    world: World | None = None,
    table: Rows | None = None,
) -> Fitted:
    """Train with early stopping on held-out queries; the network is left at its best epoch.

    Under torchrun the processes share every batch and average their gradients. folder: where the state is kept after
    every epoch; the same call then goes on from there. table: see `Trainer.begin`.

    Raises:
        NoActivePairs: if lambda2 > 0 and no pair was ever inside the margin.
        NtilcError: if there is nothing to learn, or the state in ``folder`` belongs to other settings.
        FloatingPointError: if a loss is not finite.
    """
    objective, schedule = objective or Objective(), schedule or Schedule()
    world = World.of(os.environ) if world is None else world
    fit, held_out = examples.split(schedule.validation, seed=seed)
    with distributed(net, world, device=device) as forward:
        trainer = Trainer.begin(
            net,
            fit,
            inputs=inputs,
            compat=compat,
            objective=objective,
            schedule=schedule,
            seed=seed,
            pool=pool,
            device=device,
            world=world,
            forward=forward,
            table=table,
        )
        key = stable_hash(
            [asdict(objective), asdict(schedule), seed, world.size, fit.tool.tolist(), fit.query.tolist()]
        )
        progress = _Progress.resumed(trainer, folder, key=key)
        for number in range(len(progress.curve), schedule.epochs):
            if progress.is_settled(schedule.patience) or trainer.is_over:
                break
            epoch = trainer.epoch(number)
            progress.add(replace(epoch, validation_top1=trainer.top1(held_out)), trainer)
            _say(progress.curve[-1])
            if folder is not None and world.rank == 0:
                progress.write(folder / "training.pt", trainer, key=key)
    require_active(progress.curve, objective)
    net.load_state_dict(progress.state)
    return Fitted(net=net.eval(), curve=tuple(progress.curve), best=progress.best, state=progress.state)


def require_active(curve: Sequence[Epoch], objective: Objective) -> None:
    """Refuse a training in which the Functional-Margin term did nothing; the public code documents such a run.

    Raises:
        NoActivePairs: if lambda2 > 0 and the active share was 0 in every epoch.
    """
    if objective.lambda2 > 0 and curve and not any(epoch.active_share > 0 for epoch in curve):
        raise NoActivePairs(
            f"active share 0 in all {len(curve)} epochs: no tool with another signature came closer than cosine "
            f"{1 - objective.m0:.2f} to a gold tool, so that lambda2={objective.lambda2:g} changed nothing. "
            "Raise m0 or the number of neighbours, lower theta_w, or set lambda2=0 and call the row Circle only"
        )


@dataclass(kw_only=True)
class _Progress:
    """The curve so far and the state of the best epoch."""

    curve: list[Epoch] = field(default_factory=list)
    best: int = -1
    state: dict[str, Any] = field(default_factory=dict)

    def add(self, epoch: Epoch, trainer: Trainer) -> None:
        """Note an epoch. Ties go to the earlier one; without validation the last one counts."""
        value = epoch.validation_top1
        self.curve.append(epoch)
        if self.best < 0 or not np.isfinite(value) or value > self.curve[self.best].validation_top1:
            self.best = len(self.curve) - 1
            self.state = {name: v.detach().cpu().clone() for name, v in trainer.net.state_dict().items()}

    def is_settled(self, patience: int | None) -> bool:
        """Whether the last ``patience`` epochs brought nothing."""
        return patience is not None and bool(self.curve) and len(self.curve) - 1 - self.best >= patience

    def write(self, path: Path, trainer: Trainer, *, key: str) -> None:
        """Keep everything that the next epoch depends on."""
        import torch

        content = {
            "key": key,
            "net": trainer.net.state_dict(),
            "optimiser": trainer.optimiser.state_dict(),
            "scheduler": trainer.scheduler.state_dict(),
            "steps": trainer.steps,
            "table": torch.from_numpy(trainer.table if trainer.table is not None else np.zeros((0, 0), np.int64)),
            "curve": [asdict(epoch) for epoch in self.curve],
            "best": self.best,
            "state": self.state,
        }
        write_binary(path, lambda stream: torch.save(content, stream))

    @staticmethod
    def resumed(trainer: Trainer, folder: Path | None, *, key: str) -> _Progress:
        """From a state on disk, or from the start."""
        import torch

        path = None if folder is None else folder / "training.pt"
        if path is None or not path.is_file():
            start = {name: v.detach().cpu().clone() for name, v in trainer.net.state_dict().items()}
            return _Progress(state=start)
        content = torch.load(path, map_location=trainer.device, weights_only=True)
        if content["key"] != key:
            raise NtilcError(
                f"{path} belongs to a training with other settings or data; delete it or use another folder"
            )
        trainer.net.load_state_dict(content["net"])
        trainer.optimiser.load_state_dict(content["optimiser"])
        trainer.scheduler.load_state_dict(content["scheduler"])
        trainer.steps, trainer.table = content["steps"], content["table"].cpu().numpy()
        curve = [Epoch(**epoch) for epoch in content["curve"]]
        return _Progress(curve=curve, best=content["best"], state=content["state"])


@contextmanager
def distributed(net: Any, world: World, *, device: str) -> Iterator[Any]:
    """The network as the processes of a launch train it together; itself where there is one process."""
    if world.size == 1:
        yield net
        return
    import torch

    own = not torch.distributed.is_initialized()
    if own:
        torch.distributed.init_process_group("nccl" if device.startswith("cuda") else "gloo")
    try:
        yield torch.nn.parallel.DistributedDataParallel(net)
    finally:
        if own:
            torch.distributed.destroy_process_group()


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Torch's own random numbers from a seed, and as they were afterwards."""
    import torch

    with torch.random.fork_rng():
        torch.manual_seed(seed % 2**62)
        yield


def batches(examples: Examples, number: int, *, seed: int, size: int) -> Iterator[Rows]:
    """Positions of the queries of every batch of an epoch, in the order of a keyed hash."""
    key = keyed_hash(seed_of("ntilc order", seed, number), examples.hashes, examples.hashes)
    order = np.argsort(key, kind="stable")
    for start in range(0, order.size, size):
        yield order[start : start + size]


def share(rows: Rows, world: World) -> Rows:
    """The part of a batch that belongs to this process; never empty, since all processes take the step together."""
    own = rows[world.rank :: world.size]
    return own if own.size else rows[:1]


def parameter_groups(net: Any, schedule: Schedule) -> list[dict[str, Any]]:
    """The backbone, where there is one, and everything above it with its own rate."""
    below = [] if net.backbone is None else [p for p in net.backbone.parameters() if p.requires_grad]
    known = {id(p) for p in below}
    above = [p for p in net.parameters() if p.requires_grad and id(p) not in known]
    groups = [{"params": below, "lr": schedule.learning_rate}] if below else []
    return [*groups, {"params": above, "lr": schedule.head_learning_rate or schedule.learning_rate}]


def total_steps(queries: int, schedule: Schedule) -> int:
    """Gradient steps of the whole training."""
    steps = schedule.epochs * -(-queries // schedule.batch)
    return max(steps if schedule.max_steps is None else min(steps, schedule.max_steps), 1)


def rate(schedule: Schedule, *, total: int) -> Callable[[int], float]:
    """Factor of the learning rate at a step: up over the warm-up, then down to 0, or level."""
    warm = max(int(schedule.warmup * total), 1)

    def factor(step: int) -> float:
        if step < warm:
            return (step + 1) / warm
        return max(total - step, 0) / max(total - warm, 1) if schedule.linear else 1.0

    return factor


def epoch_of(number: int, sums: Mapping[str, float]) -> Epoch:
    """Means of what the steps of an epoch added up."""
    steps, pairs = max(sums["steps"], 1.0), max(sums["pairs"], 1.0)
    return Epoch(
        number=number,
        loss=sums["loss"] / steps,
        alignment=sums["alignment"] / steps,
        fm=sums["fm"] / steps,
        active_share=sums["active"] / max(sums["rows"], 1.0),
        mean_rho=sums["rho"] / pairs,
        mean_w=sums["w"] / pairs,
        steps=int(sums["steps"]),
    )


def _number(value: Any) -> float:
    return float(value.detach() if hasattr(value, "detach") else value)


def _say(epoch: Epoch) -> None:
    log.info(
        "ntilc epoch %d: loss %.4f (alignment %.4f, fm %.4f), active %.1f %%, rho %.3f, w %.3f, validation %.1f %%",
        epoch.number + 1,
        epoch.loss,
        epoch.alignment,
        epoch.fm,
        100 * epoch.active_share,
        epoch.mean_rho,
        epoch.mean_w,
        100 * epoch.validation_top1,
    )

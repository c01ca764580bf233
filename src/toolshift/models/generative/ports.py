"""PORTS (Molfetta 2025, EMNLP main 507): a retriever trained towards what a frozen language model prefers.

[C] Pr = softmax(sim / gamma) over a positive and n negatives; l_j = - mean token NLL of the target answer with tool j
in the prompt; Q = softmax(l / beta); loss KL(Q || Pr) + lambda * odds-ratio loss; AdamW with warm-up, cosine schedule
and clipped gradients. [R] the retriever: the frozen vectors of all rows with a residual projection x + W x on both
sides, W starting at 0, in place of a fine-tuned RoBERTa or BGE, so that training starts at the cosine; the target
answer is the documented call of the gold endpoints, since the data holds no answers.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from toolshift.llm.errors import NotAvailable
from toolshift.models.base import BadParameter, Limits, Scorer, Scores, Source
from toolshift.models.features import FeatureBank, Pairs, known_space
from toolshift.models.generative.preference import answers_of, check_folder, load_language_model, tool_prompt
from toolshift.runs.seeds import keyed_hash, seed_of
from toolshift.training.lists import Batch, TrainingLists
from toolshift.views.corpus import Corpus, Rows

if TYPE_CHECKING:
    import torch

CLAMP = 1e-6
"""Pr is kept this far from 0 and 1: ln(1 - Pr) is infinite at Pr = 1."""
# In place of the similarity of an absent negative: exp of it is 0, and unlike -inf it makes no NaN in a gradient.
_ABSENT = -1e9
_CHUNK_PAIRS = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """s training samples. task: (s,) rows. tools: (s, 1 + n) rows, the positive first. valid: (s, 1 + n), false where a
    list has fewer than n negatives."""

    task: Rows
    tools: Rows
    valid: NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class PortsObjective:
    """What `Ports` and its stand-in have in common; the defaults are the authors'.

    gamma, beta: temperatures of retrieval and preference. lambda_or: weight of the odds-ratio loss; w: its inner
    weight. negatives: per sample, drawn anew in every epoch. schedule_epochs: length of the cosine schedule and most
    epochs. warm_up: share of its steps. clip: of the gradient norm. max_samples: source tasks at most. space:
    coordinates of both vectors.

    Raises:
        BadParameter: for a value out of range.
    """

    gamma: float = 0.5
    beta: float = 0.5
    lambda_or: float = 0.3
    w: float = 1.0
    negatives: int = 3
    learning_rate: float = 1e-5
    weight_decay: float = 0.01
    batch_tasks: int = 2
    schedule_epochs: int = 5
    warm_up: float = 0.1
    clip: float = 1.0
    max_samples: int | None = 1000
    space: str = "raw"

    def __post_init__(self) -> None:
        known_space(self.space, model="ports")
        for name in ("gamma", "beta", "negatives", "learning_rate", "batch_tasks", "schedule_epochs", "clip"):
            if getattr(self, name) <= 0:
                raise BadParameter(f"ports: {name} must be above 0, got {getattr(self, name)}")
        if min(self.lambda_or, self.w, self.weight_decay) < 0 or not 0 <= self.warm_up < 1:
            raise BadParameter("ports: lambda_or, w and weight_decay must be at least 0, warm_up in [0, 1)")

    def prepare(self, lists: TrainingLists, *, bank: FeatureBank) -> None:
        """Whatever is cheaper for all lists at once than batch by batch; nothing by default."""
        del lists, bank

    @abstractmethod
    def preference(self, samples: Samples, *, source: Source, bank: FeatureBank, device: str) -> NDArray[np.float64]:
        """(s, 1 + n) values l_j, higher for what helps more; absent negatives may have any."""
        raise NotImplementedError

    def epochs(self, source: Source, *, bank: FeatureBank, seed: int, limits: Limits) -> Iterator[Scorer]:
        """Train epoch by epoch; one list per task and epoch, a sample per positive of it.

        Raises:
            FloatingPointError: if the loss is not finite.
        """
        caps = [cap for cap in (limits.max_tasks, self.max_samples) if cap is not None]
        lists = TrainingLists.of(source.manifests, bank.corpus, max_tasks=min(caps, default=None))
        size = min(self.batch_tasks, limits.batch_tasks or self.batch_tasks)
        steps = self.schedule_epochs * math.ceil(lists.tasks.size / size)
        self.prepare(lists, bank=bank)
        training = _Training.begin(self, dim=bank.task_vectors.shape[1], steps=steps, device=limits.device)
        for number in range(min(limits.epochs, self.schedule_epochs)):
            losses = []
            for batch in lists.epoch(number, seed=seed, batch_tasks=size):
                samples = draw_samples(batch, bank.corpus, negatives=self.negatives, seed=seed, epoch=number)
                if samples.task.size:
                    liked = self.preference(samples, source=source, bank=bank, device=limits.device)
                    losses.append(training.step(samples, liked, bank=bank))
            loss = float(np.mean(losses)) if losses else 0.0
            if not math.isfinite(loss):
                raise FloatingPointError(f"epoch {number + 1}: the loss is not finite; lower the learning rate")
            weights = {name: value.detach().cpu().numpy().copy() for name, value in training.weights.items()}
            yield FittedPorts(weights=weights, loss=loss, contexts_seen=source.contexts, space=self.space)


@dataclass(frozen=True, kw_only=True)
class PortsStandin(PortsObjective):
    """The PORTS objective without a language model [R]: l = 1 for gold, schema match - 1 for others. The preference of
    the model is the core of PORTS, so this is not the published method. pool, operation: of the schema match."""

    pool: int = 4
    operation: bool = True

    def prepare(self, lists: TrainingLists, *, bank: FeatureBank) -> None:
        """Match all candidates; the bank remembers it. Domain by domain: a match reads every endpoint of all tools
        in the call for every task in it, and candidates mostly come from the task's domain."""
        whole = lists.everything()
        keys = np.unique(bank.corpus.pair_key(whole.tasks[whole.owner], whole.capability))
        tasks, tools = np.divmod(keys, bank.corpus.n_capabilities)
        domain = bank.corpus.task_domain[tasks]
        for code in np.unique(domain):
            pairs = Pairs(task=tasks[domain == code], capability=tools[domain == code])
            bank.schema_match(pairs, pool=self.pool, operation=self.operation)

    def preference(self, samples: Samples, *, source: Source, bank: FeatureBank, device: str) -> NDArray[np.float64]:
        """(s, 1 + n) proxy preferences."""
        del source, device
        pairs = Pairs(task=np.repeat(samples.task, samples.tools.shape[1]), capability=samples.tools.ravel())
        match = bank.schema_match(pairs, pool=self.pool, operation=self.operation)
        liked = match.reshape(samples.tools.shape) - 1.0
        liked[:, 0] = 1.0
        return liked


@dataclass(frozen=True, kw_only=True)
class Ports(PortsObjective):
    """PORTS with a local `transformers` causal language model. llm_path: its folder. llm_max_length: tokens of prompt
    and answer. document_words: of a tool's text in the prompt.

    Raises:
        NotAvailable: without a path.
        MissingModel: if the folder holds no such model.
    """

    llm_path: str | None = None
    llm_max_length: int = 1024
    document_words: int = 200

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.llm_path is None:
            raise NotAvailable("no language model is configured: give its folder with params.llm_path=PATH")
        check_folder(self.llm_path)

    def preference(self, samples: Samples, *, source: Source, bank: FeatureBank, device: str) -> NDArray[np.float64]:
        """(s, 1 + n) negated mean token NLL of the positive's documented call, each tool in the prompt in turn."""
        assert self.llm_path is not None
        corpus, model = bank.corpus, load_language_model(self.llm_path, device)
        answers = answers_of(samples.task, samples.tools[:, 0], source=source)
        places = np.argwhere(samples.valid)
        asked = [
            (
                tool_prompt(
                    corpus.capability_texts[samples.tools[i, j]],
                    corpus.task_texts[samples.task[i]],
                    words=self.document_words,
                ),
                answers[i],
            )
            for i, j in places
        ]
        liked = np.zeros(samples.tools.shape)
        liked[places[:, 0], places[:, 1]] = -model.mean_nll(asked, max_length=self.llm_max_length)
        return liked


@dataclass(frozen=True, kw_only=True)
class _Training:
    """State of one fit. weights: ``task`` and ``capability``, (d, d) each."""

    model: PortsObjective
    weights: Mapping[str, torch.Tensor]
    optimiser: torch.optim.Optimizer
    schedule: torch.optim.lr_scheduler.LambdaLR

    @staticmethod
    def begin(model: PortsObjective, *, dim: int, steps: int, device: str) -> _Training:
        import torch

        weights = {name: torch.zeros(dim, dim, device=device, requires_grad=True) for name in ("task", "capability")}
        optimiser = torch.optim.AdamW(
            list(weights.values()), lr=model.learning_rate, weight_decay=model.weight_decay, fused=True
        )
        schedule = torch.optim.lr_scheduler.LambdaLR(
            optimiser, lambda step: rate_factor(step, steps=steps, warm_up=model.warm_up)
        )
        return _Training(model=model, weights=weights, optimiser=optimiser, schedule=schedule)

    def step(self, samples: Samples, liked: NDArray[np.float64], *, bank: FeatureBank) -> float:
        """The mean loss of some samples, before the step that it takes."""
        import torch

        device, model = self.weights["task"].device, self.model
        task_vectors, tool_vectors = bank.vectors(model.space)
        x = torch.from_numpy(np.asarray(task_vectors[samples.task])).to(device)
        c = torch.from_numpy(np.asarray(tool_vectors[samples.tools])).to(device)
        left, right = project(x, self.weights["task"]), project(c, self.weights["capability"])
        losses = objective(
            torch.einsum("sd,snd->sn", left, right),
            torch.from_numpy(liked).float().to(device),
            torch.from_numpy(samples.valid).to(device),
            model=model,
        )
        loss = losses.mean()
        self.optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(list(self.weights.values()), model.clip)
        self.optimiser.step()
        self.schedule.step()
        return float(loss.detach())


@dataclass(frozen=True, kw_only=True)
class FittedPorts:
    """weights: ``task`` and ``capability``, (d, d) each; loss: mean training loss of the last epoch."""

    weights: Mapping[str, NDArray[np.float32]]
    loss: float
    contexts_seen: tuple[str, ...]
    space: str = "raw"

    @property
    def record(self) -> Mapping[str, Any]:
        """Training loss of the last epoch."""
        return {"training_loss": self.loss}

    def state(self) -> Mapping[str, NDArray[Any]]:
        """Both projections."""
        return self.weights

    def score(self, pairs: Pairs, *, bank: FeatureBank, seed: int) -> Scores:
        """(p,) cosines of the projected vectors."""
        del seed
        tasks, task = np.unique(pairs.task, return_inverse=True)
        tools, tool = np.unique(pairs.capability, return_inverse=True)
        task_vectors, tool_vectors = bank.vectors(self.space)
        left = self._projected(np.asarray(task_vectors[tasks]), "task")
        right = self._projected(np.asarray(tool_vectors[tools]), "capability")
        result = np.empty(len(pairs), np.float64)
        for start in range(0, len(pairs), _CHUNK_PAIRS):
            part = slice(start, start + _CHUNK_PAIRS)
            result[part] = np.einsum("pd,pd->p", left[task[part]], right[tool[part]])
        return result

    def _projected(self, vectors: NDArray[np.float32], side: str) -> NDArray[np.float64]:
        x = vectors.astype(np.float64)
        x = x + x @ self.weights[side].astype(np.float64)
        return x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)


def project(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """x + x W, scaled to length one; x: (..., d)."""
    import torch

    return torch.nn.functional.normalize(x + x @ weight, dim=-1)


def objective(sim: torch.Tensor, liked: torch.Tensor, valid: torch.Tensor, *, model: PortsObjective) -> torch.Tensor:
    """(s,) losses L_KL + lambda * L_OR. sim, liked, valid: (s, 1 + n)."""
    import torch

    log_pr = torch.log_softmax((sim / model.gamma).masked_fill(~valid, _ABSENT), dim=1)
    log_q = torch.log_softmax((liked / model.beta).masked_fill(~valid, _ABSENT), dim=1)
    return kl_loss(log_q, log_pr) + model.lambda_or * odds_ratio_loss(log_pr, valid, w=model.w)


def kl_loss(log_q: torch.Tensor, log_pr: torch.Tensor) -> torch.Tensor:
    """(s,) KL(Q || Pr), the preference being the target."""
    return (log_q.exp() * (log_q - log_pr)).sum(dim=1)


def odds_ratio_loss(log_pr: torch.Tensor, valid: torch.Tensor, *, w: float) -> torch.Tensor:
    """(s,) - w/n * sum over negatives of ln sigmoid of the log odds ratio between the positive and the negative."""
    import torch

    pr = log_pr.exp().clamp(CLAMP, 1.0 - CLAMP)
    log_odds = torch.log(pr) - torch.log1p(-pr)
    terms = torch.nn.functional.logsigmoid(log_odds[:, :1] - log_odds[:, 1:])
    present = valid[:, 1:]
    return -w * (terms * present).sum(dim=1) / present.sum(dim=1).clamp(min=1)


def rate_factor(step: int, *, steps: int, warm_up: float) -> float:
    """Factor of the learning rate: linear over the first ``warm_up`` of the steps, then half a cosine down to 0."""
    rising = math.ceil(warm_up * steps)
    if step < rising:
        return (step + 1) / rising
    return 0.5 * (1.0 + math.cos(math.pi * min((step - rising) / max(steps - rising, 1), 1.0)))


def draw_samples(batch: Batch, corpus: Corpus, *, negatives: int, seed: int, epoch: int) -> Samples:
    """A sample per positive that has a negative in its list: those with the smallest keyed hash, so that neither order
    nor process count matters; anew for every epoch."""
    owner, place = batch.owner, np.flatnonzero(~batch.positive)
    positive = np.flatnonzero(batch.positive)
    first = np.searchsorted(owner[place], owner[positive], side="left")
    count = np.searchsorted(owner[place], owner[positive], side="right") - first
    positive, first, count = positive[count > 0], first[count > 0], count[count > 0]
    sample = np.repeat(np.arange(positive.size), count)
    within = np.arange(sample.size) - np.repeat(np.cumsum(count) - count, count)
    tool = batch.capability[place[first[sample] + within]]
    task, salt = batch.tasks[owner[positive]], seed_of("ports", seed, epoch)
    of_sample = keyed_hash(salt, corpus.task_hash[task], corpus.capability_hash[batch.capability[positive]])
    order = np.lexsort((keyed_hash(salt, of_sample[sample], corpus.capability_hash[tool]), sample))
    kept = within < negatives  # sorted by sample, so the places within one are the ranks of the hashes
    tools = np.repeat(batch.capability[positive][:, None], negatives + 1, axis=1)
    valid = np.zeros(tools.shape, bool)
    tools[sample[kept], within[kept] + 1] = tool[order][kept]
    valid[:, 0] = True
    valid[sample[kept], within[kept] + 1] = True
    return Samples(task=task, tools=tools, valid=valid)

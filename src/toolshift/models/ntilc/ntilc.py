"""NTILC as a row of the ranking tables: the frozen mode of its encoder, fitted on the source tasks of a fold.

A tool of NTILC is an endpoint; a candidate of the tables is a capability. [ours] the score of a (task, capability)
pair is the largest cosine z_q . z_t over the endpoints t of the capability; a capability without endpoints counts as
one tool, its public text. Positives of a task are its gold endpoints, and all endpoints of a gold capability for which
none is named. Neighbours are looked for among the capabilities of the training lists, so that this row sees the same
candidates as the other trained rows. Schedule: as for those, a level learning rate and the epochs of the selection.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from toolshift.data.records import Endpoint
from toolshift.models.base import BadParameter, Limits, Scorer, Scores, Source
from toolshift.models.features import FeatureBank, Pairs, aligned, known_space
from toolshift.models.ntilc.encoder import (
    FrozenInputs,
    Weights,
    head_of,
    head_weights,
    network,
    scaled,
    text_codes,
    z_of,
)
from toolshift.models.ntilc.signature import CodeCompat, Compat, Signatures, items_of, known_compat, render
from toolshift.models.ntilc.training import Epoch, Examples, Objective, Schedule, Trainer, require_active
from toolshift.text.encoder import Vectors
from toolshift.training.lists import TrainingLists
from toolshift.views.corpus import Corpus, Labels, Rows
from toolshift.views.roles import packed_rows

_CHUNK_TOOLS = 65_536
_CHUNK_ROWS = 4096


@dataclass(frozen=True, kw_only=True)
class Ntilc:
    """Head on cached vectors, trained with Circle loss and ``lambda2`` times the Functional-Margin loss.

    lambda2 = 0 is "Circle only". Parameters as of `Objective` and `Schedule`; hidden, width, dropout: of the head;
    compat: ``signature`` [T] or ``code`` [C]; space: coordinates of the cached vectors.

    Raises:
        BadParameter: for an unknown name or a number outside its range.
    """

    lambda1: float = 1.0
    lambda2: float = 2.0
    m0: float = 0.3
    gamma: float = 32.0
    margin: float = 0.25
    loss: str = "circle"
    temperature: float = 0.07
    hidden: int = 384
    width: int = 128
    dropout: float = 0.1
    neighbours: int = 8
    theta_w: float = 0.5
    compat: str = "signature"
    learning_rate: float = 1e-3
    weight_decay: float = 0.01
    batch_tasks: int = 32
    space: str = "raw"

    def __post_init__(self) -> None:
        known_space(self.space, model="ntilc")
        known_compat(self.compat, model="ntilc")
        if self.objective.has_prototypes:
            raise BadParameter(
                f"ntilc: loss={self.loss!r} needs a vector per tool, which a tool of another domain does not have; "
                "expected circle or contrastive"
            )

    @property
    def objective(self) -> Objective:
        """The loss."""
        return Objective(
            loss=self.loss,
            lambda1=self.lambda1,
            lambda2=self.lambda2,
            gamma=self.gamma,
            margin=self.margin,
            temperature=self.temperature,
            m0=self.m0,
        )

    def schedule(self, limits: Limits) -> Schedule:
        """Level rate and no validation: selection decides on the number of epochs."""
        return Schedule(
            epochs=limits.epochs,
            batch=min(self.batch_tasks, limits.batch_tasks or self.batch_tasks),
            learning_rate=self.learning_rate,
            weight_decay=self.weight_decay,
            warmup=0.0,
            linear=False,
            neighbours=self.neighbours,
            theta_w=self.theta_w,
            patience=None,
            validation=0.0,
        )

    def epochs(self, source: Source, *, bank: FeatureBank, seed: int, limits: Limits) -> Iterator[Scorer]:
        """Fit on the sources and yield the scorer after every epoch.

        Raises:
            NoActivePairs: after the last epoch, if lambda2 > 0 and no pair was ever inside the margin.
            FloatingPointError: if a loss is not finite.
        """
        trainer = self.trainer(source, bank=bank, seed=seed, limits=limits)
        curve: list[Epoch] = []
        for number in range(limits.epochs):
            curve.append(trainer.epoch(number))
            if number == limits.epochs - 1:
                require_active(curve, self.objective)
            yield FittedNtilc(
                weights=head_weights(trainer.net),
                curve=tuple(curve),
                contexts_seen=source.contexts,
                device=limits.device,
                space=self.space,
            )

    def trainer(self, source: Source, *, bank: FeatureBank, seed: int, limits: Limits) -> Trainer:
        """Everything before the first epoch, from the fold's own lists and labels."""
        tools = bank.shared(tool_table)
        lists = TrainingLists.of(source.manifests, bank.corpus, max_tasks=limits.max_tasks)
        examples = Examples.of(
            gold_tools(lists.tasks, source.fold.labels, corpus=bank.corpus, tools=tools),
            hashes=lists.task_hash,
            query=lists.tasks,
        )
        pool, _ = packed_rows(tools.offsets, np.unique(lists.capability))
        task_vectors, tool_vectors = vectors_of(bank, self.space)
        dim = tool_vectors.shape[1]
        return Trainer.begin(
            network(
                dim=dim,
                seed=seed,
                hidden=self.hidden,
                width=self.width,
                dropout=self.dropout,
                device=limits.device,
            ),
            examples,
            inputs=FrozenInputs(
                query_vectors=task_vectors, tool_vectors=tool_vectors, code=tools.code, device=limits.device
            ),
            compat=bank.shared(signature_compat if self.compat == "signature" else code_compat),
            objective=self.objective,
            schedule=self.schedule(limits),
            seed=seed,
            pool=pool,
            device=limits.device,
        )


@dataclass(frozen=True, kw_only=True)
class ToolTable:
    """The tools of a corpus, k in all: its endpoints, and one for every capability without any.

    endpoints: k records. domain: k names, empty where there is none. offsets: (m+1,) tools of capability c are
    ``offsets[c]:offsets[c+1]``. tool_of: (e,) tool of every endpoint of the corpus. texts: k renderings; code: (k,)
    equal for equal renderings.
    """

    endpoints: tuple[Endpoint, ...]
    domains: tuple[str, ...]
    offsets: Rows
    tool_of: Rows
    texts: tuple[str, ...]
    code: Rows

    @staticmethod
    def of(corpus: Corpus) -> ToolTable:
        """Render every tool; reads no label."""
        endpoints: list[Endpoint] = []
        owner: list[int] = []
        tool_of: list[int] = []
        for c, identifier in enumerate(corpus.capability_ids):
            own = corpus.endpoints[corpus.endpoint_offsets[c] : corpus.endpoint_offsets[c + 1]]
            tool_of.extend(range(len(endpoints), len(endpoints) + len(own)))
            bare = Endpoint(endpoint_id=identifier, capability_id=identifier, operation="")
            endpoints.extend(own or (bare,))
            owner.extend([c] * max(len(own), 1))
        names = (*corpus.domains, "")  # a capability without a domain has row -1
        domains = tuple(names[corpus.capability_domain[c]] for c in owner)
        texts = tuple(
            render(e, capability_text=corpus.capability_texts[c], domain=d)
            for e, c, d in zip(endpoints, owner, domains, strict=True)
        )
        counts = np.bincount(np.array(owner, np.int64), minlength=corpus.n_capabilities)
        return ToolTable(
            endpoints=tuple(endpoints),
            domains=domains,
            offsets=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
            tool_of=np.array(tool_of, np.int64),
            texts=texts,
            code=text_codes(texts),
        )


def tool_table(bank: FeatureBank) -> ToolTable:
    """The tools of a bank's corpus; ask through ``bank.shared``."""
    return ToolTable.of(bank.corpus)


def signature_compat(bank: FeatureBank) -> Compat:
    """Signatures of the tools; ask through ``bank.shared``."""
    tools = bank.shared(tool_table)
    pairs = zip(tools.endpoints, tools.domains, strict=True)
    return Signatures.of_items(items_of(endpoint, domain=domain) for endpoint, domain in pairs)


def code_compat(bank: FeatureBank) -> Compat:
    """The public code's compatibility of the tools; ask through ``bank.shared``."""
    return CodeCompat.of_endpoints(bank.shared(tool_table).endpoints)


def raw_vectors(bank: FeatureBank) -> Vectors:
    """(k, d) unit vectors of the renderings; ask through ``bank.shared``."""
    return bank.cache.rows(bank.shared(tool_table).texts)


def aligned_vectors(bank: FeatureBank) -> Vectors:
    """`raw_vectors`, standardised per dataset; ask through ``bank.shared``."""
    offsets = bank.shared(tool_table).offsets
    groups = [slice(offsets[p.capabilities.start], offsets[p.capabilities.stop]) for p in bank.corpus.parts]
    return aligned(bank.shared(raw_vectors), groups)


def vectors_of(bank: FeatureBank, space: str) -> tuple[Vectors, Vectors]:
    """((n, d) tasks, (k, d) tools) in a space."""
    return bank.vectors(space)[0], bank.shared(raw_vectors if space == "raw" else aligned_vectors)


def gold_tools(tasks: Rows, labels: Labels, *, corpus: Corpus, tools: ToolTable) -> list[list[int]]:
    """Gold tools of every task: its gold endpoints; of a gold capability with no gold endpoint all tools."""
    found: list[list[int]] = []
    for task in tasks:
        endpoints = labels.gold_endpoints.indices[slice(*labels.gold_endpoints.indptr[task : task + 2])]
        capabilities = labels.gold.indices[slice(*labels.gold.indptr[task : task + 2])]
        rest = np.setdiff1d(capabilities, corpus.endpoint_capability[endpoints])
        others = [range(tools.offsets[c], tools.offsets[c + 1]) for c in rest]
        found.append([*tools.tool_of[endpoints].tolist(), *(t for some in others for t in some)])
    return found


@dataclass(frozen=True, kw_only=True)
class FittedNtilc:
    """Weights of the head by name (see `toolshift.models.ntilc.encoder.network`) and the curve so far."""

    weights: Weights
    curve: tuple[Epoch, ...]
    contexts_seen: tuple[str, ...]
    device: str = "cpu"
    space: str = "raw"

    @property
    def record(self) -> Mapping[str, Any]:
        """Training loss of the last epoch, and per epoch what the Functional-Margin term had to do."""
        kept = ("alignment", "fm", "active_share", "mean_rho", "mean_w")
        curve = [{name: value for name, value in asdict(epoch).items() if name in kept} for epoch in self.curve]
        return {"training_loss": self.curve[-1].loss, "curve": curve}

    def state(self) -> Mapping[str, NDArray[Any]]:
        """Weights of the head."""
        return self.weights

    def score(self, pairs: Pairs, *, bank: FeatureBank, seed: int) -> Scores:
        """(p,) largest cosine of the task with an endpoint of the capability."""
        del seed
        tools = bank.shared(tool_table)
        task_vectors, tool_vectors = vectors_of(bank, self.space)
        net = head_of(self.weights, device=self.device)

        def z(vectors: Vectors, rows: Rows) -> Vectors:
            return z_of(net, lambda r: scaled(vectors[r], device=self.device), rows, chunk=_CHUNK_ROWS)

        tasks, task = np.unique(pairs.task, return_inverse=True)
        rows, _ = packed_rows(tools.offsets, np.unique(pairs.capability))
        z_task, z_tool = z(task_vectors, tasks), z(tool_vectors, rows)
        first = np.searchsorted(rows, tools.offsets[pairs.capability])
        count = np.diff(tools.offsets)[pairs.capability]
        return best_cosines(z_task, z_tool, task=task.ravel(), first=first, count=count)


def best_cosines(z_task: Vectors, z_tool: Vectors, *, task: Rows, first: Rows, count: Rows) -> Scores:
    """(p,) largest inner product of ``z_task[task]`` with ``count`` rows of ``z_tool`` from ``first`` on."""
    result = np.empty(task.size, np.float64)
    ends = np.cumsum(count)
    start = 0
    while start < task.size:  # so many pairs at once that their tools fill a chunk
        limit = (ends[start - 1] if start else 0) + _CHUNK_TOOLS
        stop = max(int(np.searchsorted(ends, limit, side="right")), start + 1)
        some, sizes = slice(start, stop), count[start:stop]
        places = np.cumsum(sizes) - sizes
        rows = np.repeat(first[some] - places, sizes) + np.arange(sizes.sum())
        cosine = np.einsum("pd,pd->p", z_task[np.repeat(task[some], sizes)], z_tool[rows], dtype=np.float64)
        result[some] = np.maximum.reduceat(cosine, places)
        start = stop
    return result

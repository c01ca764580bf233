"""The rows of the NTILC tables on one split of one registry, as values per query.

Training-free rows: BM25 and the raw cosine of frozen vectors, which stands in for the paper's 8B embedder. Trained rows
differ in what ``study.params.trained`` says of each alone: fields of `Objective` and `Schedule`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse

from toolshift.experiment.ntilc_data import Registry, Split
from toolshift.models.ntilc.blur import BlurPairs
from toolshift.models.ntilc.encoder import FrozenInputs, Inputs, fine_tuned, network, z_of
from toolshift.models.ntilc.index import index_vectors
from toolshift.models.ntilc.signature import Rows
from toolshift.models.ntilc.training import SCHEDULES, Examples, Fitted, Objective, Schedule, Trainer, train
from toolshift.runs.ranks import World
from toolshift.settings.errors import UserError
from toolshift.text.encoder import Encoder, Vectors, unit_rows
from toolshift.text.lexical import Bm25, dense_top

log = logging.getLogger("toolshift")

Floats = NDArray[np.float64]

BM25, FROZEN = "bm25", "minilm_frozen"
THETAS = (0.0, 0.3, 0.5)
ERRORS = tuple(f"FE({theta:g})" for theta in THETAS)
"""Functional error: Top-1 is wrong and w to every gold tool is above theta."""
MEASURES = ("Top-1", "Top-5", "Blur-Acc", "Blur-Pair", *ERRORS)
ALL, NOVEL = "", "held-out gold alone"
BLUR_VIEWS: Mapping[str, str] = {"dense": "blur pairs by the encoder", "lexical": "blur pairs by words"}
"""Slice of the pairs -> part of the queries; the values of a blur part are those under its own pairs."""
PARTS = (ALL, NOVEL, *BLUR_VIEWS.values())
TOP = 5
# fine_tune_cpu: texts are cut short, so that 200 steps take minutes on two cores (docs/ntilc.md).
_LENGTHS: Mapping[str, tuple[int, int]] = {"fine_tune_cpu": (32, 48), "fine_tune": (96, 256)}
MODES = ("frozen", *_LENGTHS)
_CHUNK_PAIRS = 65_536
_GRID = np.float32(2**20)
_OBJECTIVE = {field.name for field in fields(Objective)}
_SCHEDULE = {field.name for field in fields(Schedule)}


class Ranking(Protocol):
    """How a row orders the tools of a registry for query rows."""

    def top(self, rows: Rows, *, k: int) -> Rows:
        """(r, k) tools, best first."""
        ...

    def pairs(self, rows: Rows, tools: Rows) -> Floats:
        """(p,) scores of given (query row, tool) pairs."""
        ...


@dataclass(frozen=True)
class Lexical:
    """BM25 over the renderings."""

    registry: Registry

    @cached_property
    def _bm25(self) -> Bm25:
        return Bm25(self.registry.texts)

    def top(self, rows: Rows, *, k: int) -> Rows:
        """See `Ranking.top`."""
        return self._bm25.top([self.registry.tasks[row].text for row in rows.tolist()], k=k)[0]

    def pairs(self, rows: Rows, tools: Rows) -> Floats:
        """See `Ranking.pairs`."""
        used, place = np.unique(rows, return_inverse=True)
        queries = [self.registry.tasks[row].text for row in used.tolist()]
        return self._bm25.pairs(queries, query_index=place.ravel(), doc_index=tools).astype(np.float64)


@dataclass(frozen=True)
class Dense:
    """Cosines. queries: (q, d) unit rows of all queries; tools: (n, d) unit rows."""

    queries: Vectors
    tools: Vectors

    def top(self, rows: Rows, *, k: int) -> Rows:
        """See `Ranking.top`."""
        return dense_top(self.queries[rows], self.tools, k=k)[0]

    def pairs(self, rows: Rows, tools: Rows) -> Floats:
        """See `Ranking.pairs`; on the grid of `dense_top`, so that equal tools are equal."""
        found = np.empty(rows.size, np.float64)
        for start in range(0, rows.size, _CHUNK_PAIRS):
            part = slice(start, start + _CHUNK_PAIRS)
            found[part] = np.einsum("pd,pd->p", self.queries[rows[part]], self.tools[tools[part]])
        return np.rint(found * _GRID) / _GRID


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One trained row."""

    objective: Objective
    schedule: Schedule

    @staticmethod
    def of(name: str, changes: Mapping[str, Any], *, mode: str) -> Recipe:
        """The defaults of a mode with what is said of one row.

        Raises:
            UserError: for a key that neither has, or a mode that does not exist.
        """
        unknown = sorted(set(changes) - _OBJECTIVE - _SCHEDULE)
        if unknown or mode not in MODES:
            raise UserError(
                f"study.params: row {name!r} has {unknown or 'no'} unknown keys, encoder_mode={mode!r}; known keys are "
                f"{sorted(_OBJECTIVE | _SCHEDULE)}, modes {', '.join(MODES)}"
            )
        objective = Objective(**{key: value for key, value in changes.items() if key in _OBJECTIVE})
        schedule = replace(SCHEDULES[mode], **{key: value for key, value in changes.items() if key in _SCHEDULE})
        if objective.loss == "prototype":  # validation looks at tool vectors, which this loss does not train
            schedule = replace(schedule, validation=0.0, patience=None)
        return Recipe(objective=objective, schedule=schedule)

    @property
    def by_prototype(self) -> bool:
        """Whether queries are held against learned prototypes: a held-out tool then has no vector of its own."""
        return self.objective.loss.endswith("prototype")


@dataclass(frozen=True, kw_only=True)
class Fold:
    """One split of one registry, its blur pairs, and how encoders are trained on it. index: see `index_vectors`."""

    registry: Registry
    split: Split
    blur: BlurPairs
    encoder: Encoder
    mode: str = "frozen"
    index: str = "schema"
    device: str = "cpu"

    @property
    def name(self) -> str:
        """The protocol of its rows."""
        return f"{self.registry.name}, split={self.split.way}"

    @cached_property
    def blurred(self) -> Mapping[str, tuple[Rows, BlurQueries]]:
        """Slice -> test queries and their triples; ``all``: every test query under all pairs, the others: only queries
        that have a triple under the pairs of the slice."""
        registry, test = self.registry, self.split.test
        found = {"all": (test, BlurQueries.of(registry, test, self.blur))}
        for name in BLUR_VIEWS:
            pairs = self.blur.only(name)
            inside = test[BlurQueries.of(registry, test, pairs).inside]
            found[name] = (inside, BlurQueries.of(registry, inside, pairs))
        return found

    def frozen(self, name: str) -> Ranking:
        """A row that learns nothing."""
        registry = self.registry
        return Lexical(registry) if name == BM25 else Dense(registry.query_vectors, registry.tool_vectors)

    def trained(self, recipe: Recipe, *, seed: int) -> tuple[Ranking, Fitted]:
        """Train an encoder and encode everything with it.

        Raises:
            NoActivePairs, FloatingPointError, NtilcError: if nothing came of the training.
        """
        examples = self.registry.examples(self.split.train)
        net, inputs = self._network(recipe, seed=seed)
        fitted = train(
            net,
            examples,
            inputs=inputs,
            compat=self.registry.compat,
            objective=recipe.objective,
            schedule=recipe.schedule,
            seed=seed,
            device=self.device,
            world=World(),
            table=self._first_neighbours(net, examples, inputs=inputs, recipe=recipe, seed=seed),
        )
        queries = z_of(net, inputs.queries, np.arange(len(self.registry.tasks)), chunk=inputs.chunk)
        return Dense(queries, self._tools(net, inputs, recipe, queries=queries)), fitted

    def _network(self, recipe: Recipe, *, seed: int) -> tuple[Any, Inputs]:
        registry, prototypes = self.registry, self.registry.n_tools if recipe.objective.has_prototypes else 0
        if self.mode == "frozen":
            dim = int(registry.tool_vectors.shape[1])
            net = network(dim=dim, seed=seed, prototypes=prototypes, device=self.device)
            return net, FrozenInputs(
                query_vectors=registry.query_vectors,
                tool_vectors=registry.tool_vectors,
                code=registry.code,
                device=self.device,
            )
        path = getattr(self.encoder, "path", None)
        if path is None or prototypes:
            what = "rows with prototypes" if prototypes else f"the encoder {self.encoder.name}"
            raise UserError(f"encoder_mode={self.mode} does not do {what}; use encoder_mode=frozen")
        query_length, tool_length = _LENGTHS[self.mode]
        net, inputs, _ = fine_tuned(
            path,
            [task.text for task in registry.tasks],
            registry.texts,
            seed=seed,
            query_length=query_length,
            tool_length=tool_length,
            device=self.device,
        )
        return net, inputs

    def _first_neighbours(
        self, net: Any, examples: Examples, *, inputs: Inputs, recipe: Recipe, seed: int
    ) -> Rows | None:
        """Neighbours by the frozen vectors, where they are made once."""
        schedule = recipe.schedule
        if schedule.refresh or not schedule.neighbours:
            return None
        trainer = Trainer.begin(
            net,
            examples,
            inputs=inputs,
            compat=self.registry.compat,
            objective=recipe.objective,
            schedule=schedule,
            seed=seed,
            device=self.device,
        )
        table = np.full((self.registry.n_tools, schedule.neighbours), -1, np.int64)
        gold = np.unique(examples.tool)
        for start in range(0, gold.size, 1024):
            some = gold[start : start + 1024]
            table[some] = trainer.nearest(some, np.asarray(self.registry.tool_vectors))
        return table

    def _tools(self, net: Any, inputs: Inputs, recipe: Recipe, *, queries: Vectors) -> Vectors:
        """(n, h) what queries are held against."""
        if recipe.by_prototype:
            return unit_rows(net.prototypes.detach().cpu().numpy())
        schema = z_of(net, inputs.tools, np.arange(self.registry.n_tools), chunk=inputs.chunk)
        gold, owner = self.registry.gold_of(self.split.train)
        rows = queries[self.split.train]
        return index_vectors(self.index, schema, queries=rows, owner=owner, tool=gold)[0]


def curve_frame(fitted: Fitted, *, fold: Fold, model: str, seed: int) -> pd.DataFrame:
    """One row per epoch: losses, active share, mean rho and w of active pairs, validation Top-1, which is kept."""
    rows = pd.DataFrame([asdict(epoch) for epoch in fitted.curve])
    keys = {"registry": fold.registry.name, "split": fold.split.way, "model": model, "seed": seed}
    kept = rows["number"] == fitted.curve[fitted.best].number if fitted.best >= 0 else False
    return rows.assign(**keys, kept=kept)


# --- values per query -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class BlurQueries:
    """The (query, gold tool, partner) triples of some queries under a set of pairs. query: (p,) positions, ascending;
    a partner that is gold for the query is none."""

    query: Rows
    gold: Rows
    partner: Rows
    inside: NDArray[np.bool_]

    @staticmethod
    def of(registry: Registry, rows: Rows, blur: BlurPairs) -> BlurQueries:
        """Triples of query rows; ``inside``: (r,) whether a query has any."""
        gold, owner = registry.gold_of(rows)
        near = _adjacency(blur)
        counts = np.diff(near.indptr)[gold]
        query, tool = np.repeat(owner, counts), np.repeat(gold, counts)
        partner = near[gold].indices.astype(np.int64) if gold.size else np.zeros(0, np.int64)
        own = np.isin(query * registry.n_tools + partner, owner * registry.n_tools + gold)
        query, tool, partner = query[~own], tool[~own], partner[~own]
        inside = np.zeros(rows.size, bool)
        inside[query] = True
        return BlurQueries(query=query, gold=tool, partner=partner, inside=inside)


def values(
    registry: Registry, rows: Rows, ranking: Ranking, *, triples: BlurQueries
) -> tuple[Mapping[str, Floats], Rows]:
    """({measure: (r,)}, (r, 5) the first tools) of query rows. Top-1 and Top-5: any gold tool. Blur-Acc: Top-1 where a
    gold tool is in a pair. Blur-Pair: share of (gold tool, partner) pairs with a strictly larger score for the gold
    one. Both are NaN for other queries."""
    top = ranking.top(rows, k=TOP)
    gold, owner = registry.gold_of(rows)
    right = np.isin(np.arange(rows.size)[:, None] * registry.n_tools + top, owner * registry.n_tools + gold)
    first = right[:, 0].astype(np.float64)
    above = np.zeros(triples.query.size, bool)
    if triples.query.size:
        asked = rows[triples.query]
        above = ranking.pairs(asked, triples.gold) > ranking.pairs(asked, triples.partner)
    counts = np.bincount(triples.query, minlength=rows.size)
    wins = np.bincount(triples.query, weights=above, minlength=rows.size)
    found = {
        "Top-1": first,
        "Top-5": right.any(axis=1).astype(np.float64),
        "Blur-Acc": np.where(triples.inside, first, np.nan),
        "Blur-Pair": np.divide(wins, counts, out=np.full(rows.size, np.nan), where=counts > 0),
    }
    w = incompatibility(registry, rows, top[:, 0])
    errors = {name: ((first == 0) & (w > theta)).astype(np.float64) for name, theta in zip(ERRORS, THETAS, strict=True)}
    return {**found, **errors}, top


def incompatibility(registry: Registry, rows: Rows, tools: Rows) -> Floats:
    """(r,) w = 1 - compat of one tool per query with the gold tool that is nearest to it by signature."""
    gold, owner = registry.gold_of(rows)
    w = 1.0 - registry.compat.pairs(tools[owner], gold).astype(np.float64)
    starts = np.flatnonzero(np.diff(owner, prepend=-1))
    return np.minimum.reduceat(w, starts)


def query_frame(fold: Fold, ranking: Ranking, *, model: str, seed: int = 0) -> pd.DataFrame:
    """Values of all parts (see ``PARTS``) of the test queries, and the names of the first tool and the gold ones."""
    whole = _frame(fold, ranking, slice_name="all", model=model, seed=seed)
    frames = [whole]
    if fold.split.novel.any():
        frames.append(whole.loc[fold.split.novel].assign(part=NOVEL))
    for name, part in BLUR_VIEWS.items():
        if fold.blurred[name][0].size:
            frames.append(_frame(fold, ranking, slice_name=name, model=model, seed=seed).assign(part=part))
    return pd.concat(frames, ignore_index=True)


def _frame(fold: Fold, ranking: Ranking, *, slice_name: str, model: str, seed: int) -> pd.DataFrame:
    registry = fold.registry
    rows, triples = fold.blurred[slice_name]
    found, top = values(registry, rows, ranking, triples=triples)
    gold = [registry.gold[registry.offsets[row] : registry.offsets[row + 1]].tolist() for row in rows.tolist()]
    missed = np.zeros(rows.size, bool)
    missed[triples.query[triples.partner == top[triples.query, 0]]] = True
    missed &= found["Top-1"] == 0
    keys = {
        "registry": registry.name,
        "split": fold.split.way,
        "part": ALL,
        "model": model,
        "seed": seed,
        "task_id": [registry.ids[row] for row in rows.tolist()],
        "group": [f"{registry.name} text {registry.group[row]}" for row in rows.tolist()],
        "gold": [registry.names(some) for some in gold],
        "first": [registry.names([tool]) for tool in top[:, 0].tolist()],
        "blur_miss": ["yes" if hit else "" for hit in missed.tolist()],
    }
    return pd.DataFrame({**keys, **{name: found[name] for name in MEASURES}})


def _adjacency(blur: BlurPairs) -> sparse.csr_matrix:
    ends = np.concatenate([blur.left, blur.right]), np.concatenate([blur.right, blur.left])
    table = sparse.csr_matrix((np.ones(ends[0].size, np.float32), ends), shape=(blur.n_tools, blur.n_tools))
    table.sort_indices()
    return table


def known_rows(rows: Sequence[str], trained: Mapping[str, Any]) -> None:
    """Check the rows of a study.

    Raises:
        UserError: for a row of which nothing is said.
    """
    unknown = sorted(set(rows) - {BM25, FROZEN, *trained})
    if unknown or not rows:
        raise UserError(f"study.params.rows: unknown {unknown}; known: {[BM25, FROZEN, *trained]}")

"""The rows of the SkillGraph tables: both stages on one split of one dataset, as values per query.

Everything that is fitted or chosen (graph, positions, c, alpha, gamma, alpha_HR, reranker) uses training trajectories
alone in ``mode=paper``. ``mode=authors`` follows the public code, whose graph holds the test trajectories too
(spec/skillgraph.md sections 2.2 and 9).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from toolshift.experiment.trajectories import Bench
from toolshift.measures.sequences import Repeats, SequenceValues, sequence_measures
from toolshift.models.skillgraph.communities import louvain
from toolshift.models.skillgraph.graph import TransitionGraph, build_graph
from toolshift.models.skillgraph.llm_order import LlmOrderer, Shots, ToolTexts
from toolshift.models.skillgraph.ordering import OrderOptions, order, random_floor, tune_alpha
from toolshift.models.skillgraph.reranker import (
    GROUPS,
    LearnedReranker,
    TrainingPairs,
    fit_reranker,
    reranker_options,
    training_pairs,
)
from toolshift.models.skillgraph.retrieval import (
    Mode,
    RetrievalOptions,
    Sets,
    authors_length,
    oracle_k,
    oracle_sets,
    resized,
    retrieve,
    sample_rows,
    tune_retrieval,
)
from toolshift.protocols.trajectory_split import By, Split, seen_pairs, split_trajectories

log = logging.getLogger("toolshift")

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

MEASURES: Mapping[str, str] = {
    "Set-P": "set_precision",
    "Set-R": "set_recall",
    "Set-F1": "set_f1",
    "Ord.Prec": "ordered_precision",
    "tau": "kendall_tau",
    "Trans.Acc": "transition_accuracy",
    "1st.Acc": "first_accuracy",
    "LCS-R": "lcs_ratio",
}
CONDITIONAL = ("Ord.Prec (2+)", "tau (2+)", "tau seen", "tau unseen")
"""Over queries with at least two common tools; over pairs of common tools that are, or are not, joined by an edge."""
ORACLE = "K oracle"
LLM_VIEW = "K oracle, queries of the language model"
STAGE_1 = ("bm25", "semantic_only", "beam_search", "hybrid_sem_graph")
FLOOR = "gs_random_order"
REFERENCE = "gs_sem_sort"


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """What the study leaves to its config. shuffles: of the random order. tuning: queries that c, alpha, gamma and
    alpha_HR are chosen on (0: the paper's values)."""

    seeds: tuple[int, ...]
    tuning: int = 500
    shuffles: int = 100
    fixed_k: tuple[int, ...] = ()
    alphas: tuple[float, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Fold:
    """One split of one dataset in one mode, with everything that both stages need."""

    bench: Bench
    mode: Mode
    by: By
    split: Split
    choices: Choices

    @property
    def name(self) -> str:
        """The protocol of its rows."""
        return f"{self.bench.dataset}, mode={self.mode}, split={self.by}"

    @cached_property
    def graph(self) -> TransitionGraph:
        """Of the training trajectories, or of all of them as the authors' code does."""
        bench, rows = self.bench, self.split.train if self.mode == "paper" else np.arange(len(self.bench.ids))
        ids = [bench.ids[row] for row in rows.tolist()]
        vectors = bench.tools.vectors if self.mode == "authors" else None
        graph = build_graph(bench.sequences.take(rows), ids=ids, form=self.mode, vectors=vectors)
        if self.mode == "paper":
            graph.assert_disjoint([bench.ids[row] for row in self.split.test.tolist()])
        return graph

    @cached_property
    def communities(self) -> Ints:
        """(n,) community of each tool, seed 42."""
        return louvain(self.graph, projection="average" if self.mode == "paper" else "one_direction").community

    @cached_property
    def options(self) -> RetrievalOptions:
        """Stage 1 with c, alpha and gamma chosen on training queries."""
        lengths = self.bench.sequences.lengths[self.split.train]
        start = RetrievalOptions(
            mode=self.mode,
            length=authors_length(lengths) if self.mode == "authors" else None,
            tokens="words" if self.mode == "paper" else "whitespace",
        )
        if not self.choices.tuning:
            return start
        rows = self.tuning
        return tune_retrieval(
            ids=[self.bench.ids[row] for row in rows.tolist()],
            queries=self.bench.vectors[rows],
            gold=self.gold(rows),
            tools=self.bench.tools.vectors,
            graph=self.graph,
            k=self.k(rows),
            options=start,
        ).options

    @cached_property
    def tuning(self) -> Ints:
        """Training rows that settings are chosen on."""
        ids = [self.bench.ids[row] for row in self.split.train.tolist()]
        return self.split.train[sample_rows(ids, count=self.choices.tuning, name="skillgraph/tuning")]

    @cached_property
    def alpha(self) -> float:
        """alpha_HR."""
        if not self.choices.tuning:
            return OrderOptions().alpha
        rows = self.tuning
        ids = [self.bench.ids[row] for row in rows.tolist()]
        return tune_alpha(self.sets("gs_hybrid", rows), self.gold(rows), ids=ids, graph=self.graph).alpha

    @cached_property
    def pairs(self) -> TrainingPairs:
        """Of the training trajectories."""
        rows = self.split.train
        tools = self.bench.tools.vectors
        queries = self.bench.vectors[rows]
        return training_pairs(self.bench.sequences.take(rows), queries=queries, tools=tools, graph=self.graph)

    def reranker(self, seed: int, *, without: Sequence[str] = ()) -> LearnedReranker:
        """Fitted on the training pairs; queries of one text fall on one side of its validation split."""
        groups = [f"group {self.bench.group[row]}" for row in self.split.train.tolist()]
        return fit_reranker(self.pairs, ids=groups, options=reranker_options(self.mode, seed=seed, without=without))

    def gold(self, rows: Ints) -> Ints:
        """(q, l) gold sequences."""
        return self.bench.sequences.take(rows).padded()

    def k(self, rows: Ints) -> Ints:
        """(q,) K_eval, from the gold length."""
        return oracle_k(self.bench.sequences.lengths[rows])

    def sets(self, method: str, rows: Ints, *, k: Ints | int | None = None) -> Sets:
        """Stage 1 for some queries, K_eval tools each where ``k`` is left out."""
        bench = self.bench
        wanted = self.k(rows) if k is None else np.broadcast_to(np.asarray(k, np.int64), rows.shape)
        found = retrieve(
            method,
            queries=bench.vectors[rows],
            tools=bench.tools.vectors,
            graph=self.graph,
            k=wanted,
            options=self.options if method != "semantic_only" else replace(self.options, length=None),
            texts=bench.texts(rows, words=self.mode == "paper") if method == "bm25" else None,
            communities=self.communities if method == "beam_search" else None,
        )
        if k is None or self.mode == "paper" or method in ("bm25", "semantic_only"):
            return found
        return resized(  # fixed K in the authors' way: the planner runs once at its own length
            found, queries=bench.vectors[rows], tools=bench.tools.vectors, graph=self.graph, k=wanted,
            options=self.options,
        )  # fmt: skip


def folds_of(bench: Bench, *, mode: Mode, ways: Sequence[By], choices: Choices) -> Iterator[Fold]:
    """A fold for every way to split."""
    for by in ways:
        yield Fold(bench=bench, mode=mode, by=by, split=split_trajectories(bench.tasks, by=by), choices=choices)


def main_rows(fold: Fold) -> pd.DataFrame:
    """Every row of the main table at K_eval on the test queries."""
    rows, frames = fold.split.test, []
    for method in STAGE_1:
        frames.append(_frame(fold, fold.sets(method, rows).items, model=method))
    near, chosen = fold.sets("semantic_only", rows), fold.sets("gs_hybrid", rows)
    frames.append(_frame(fold, _hr(fold, near), model="semantic_set_hr"))
    frames += _orders(fold, chosen, view=ORACLE)
    frames.append(_floor(fold, chosen))
    return pd.concat(frames, ignore_index=True)


def fixed_k_rows(fold: Fold) -> pd.DataFrame:
    """Semantic Only and all orders of GS-Hybrid at K tools whatever the gold length."""
    rows, frames = fold.split.test, []
    for k in fold.choices.fixed_k:
        view = f"K={k}"
        frames.append(_frame(fold, fold.sets("semantic_only", rows, k=k).items, model="semantic_only", view=view))
        frames += _orders(fold, fold.sets("gs_hybrid", rows, k=k), view=view)
    return pd.concat(frames, ignore_index=True)


def alpha_rows(fold: Fold) -> pd.DataFrame:
    """Hybrid-Rerank of the GS-Hybrid sets for every alpha, on the test queries: to look at, not to choose by."""
    chosen = fold.sets("gs_hybrid", fold.split.test)
    return pd.concat(
        [
            _frame(fold, _hr(fold, chosen, alpha=alpha), model="gs_hr", view=f"alpha={alpha:g}")
            for alpha in fold.choices.alphas
        ],
        ignore_index=True,
    )


def ablation_rows(fold: Fold) -> pd.DataFrame:
    """The reranker without a group of features: zeroed at inference (the paper), and trained without (ours)."""
    chosen, frames = fold.sets("gs_hybrid", fold.split.test), []
    for seed in fold.choices.seeds:
        whole = fold.reranker(seed)
        frames.append(_frame(fold, whole.order(chosen, graph=fold.graph), model="gs_lr", seed=seed))
        for group in GROUPS:
            zeroed = whole.without(group).order(chosen, graph=fold.graph)
            frames.append(_frame(fold, zeroed, model=f"gs_lr, {group} zeroed", seed=seed))
            refitted = fold.reranker(seed, without=[group]).order(chosen, graph=fold.graph)
            frames.append(_frame(fold, refitted, model=f"gs_lr, trained without {group}", seed=seed))
    return pd.concat(frames, ignore_index=True)


def facts(fold: Fold) -> pd.DataFrame:
    """What a fold is made of and what was chosen for it; columns protocol, fact, value."""
    graph, edges = fold.graph, fold.graph.edges()
    shown = seen_pairs(fold.bench.tasks, fold.split)
    reranker = fold.reranker(fold.choices.seeds[0])
    known, asked = (np.unique(fold.bench.group[part]) for part in (fold.split.train, fold.split.test))
    lengths = fold.bench.sequences.lengths
    found: Mapping[str, Any] = {
        "training trajectories": fold.split.train.size,
        "test trajectories": fold.split.test.size,
        "test query texts": asked.size,
        "test query texts also in training": np.intersect1d(known, asked).size,
        "test calls, mean": round(float(lengths[fold.split.test].mean()), 4),
        "trajectories in the graph": len(graph.contributors),
        "tools of the library": graph.n_tools,
        "tools of the graph": int(graph.nodes.sum()),
        "edges": graph.n_edges,
        "edges, semantic only": int(edges.semantic.sum()),
        "test pairs": shown.pairs,
        "test pairs seen in training": shown.seen,
        "c": fold.options.c,
        "alpha": fold.options.alpha,
        "gamma": fold.options.gamma,
        "planner length": fold.options.length or "K",
        "alpha_HR": fold.alpha,
        "reranker pairs": reranker.n_pairs,
        "reranker epochs": len(reranker.losses),
        "reranker kept epoch": reranker.kept_epoch,
    }
    return pd.DataFrame({"protocol": fold.name, "fact": list(found), "value": [str(value) for value in found.values()]})


def llm_rows(fold: Fold, orderers: Mapping[int, LlmOrderer], *, count: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Stage 2 by a language model on ``count`` test queries, beside every other order on the same queries; and how its
    answers came out (columns protocol, model, outcome, queries).

    orderers: number of examples -> model. Without examples it orders the GS-Hybrid set; with examples it is given the
    gold set, as the paper does (`oracle set`), which no other row is.
    """
    test, bench = fold.split.test, fold.bench
    rows = test[sample_rows([bench.ids[row] for row in test.tolist()], count=count, name="skillgraph/llm")]
    ids = [bench.ids[row] for row in rows.tolist()]
    queries = [bench.tasks[row].text for row in rows.tolist()]
    tools = ToolTexts(names=bench.tools.names, descriptions=bench.tools.descriptions)
    chosen, oracle = fold.sets("gs_hybrid", rows), oracle_sets(fold.gold(rows), queries=bench.vectors[rows],
                                                                tools=bench.tools.vectors)  # fmt: skip
    frames, outcomes = list(_orders(fold, chosen, view=LLM_VIEW, rows=rows)), list[pd.DataFrame]()
    for count_shots, orderer in orderers.items():
        model = f"oracle_set_llm_{count_shots}shot" if count_shots else "gs_llm_0shot"
        shots = _shots(fold) if count_shots else None
        found = orderer.order(oracle if count_shots else chosen, ids=ids, queries=queries, tools=tools, shots=shots)
        frames.append(_frame(fold, found.items, model=model, view=LLM_VIEW, rows=rows))
        counted = sorted(Counter(found.outcomes).items())
        frame = pd.DataFrame(counted, columns=pd.Index(["outcome", "queries"]))
        outcomes.append(frame.assign(protocol=fold.name, model=model))
    return pd.concat(frames, ignore_index=True), pd.concat(outcomes, ignore_index=True)


def _shots(fold: Fold) -> Shots:
    """The training records that examples are drawn from."""
    bench, rows = fold.bench, fold.split.train
    return Shots(
        ids=[bench.ids[row] for row in rows.tolist()],
        queries=[bench.tasks[row].text for row in rows.tolist()],
        sequences=bench.sequences.take(rows),
    )


def _orders(fold: Fold, chosen: Sets, *, view: str, rows: Ints | None = None) -> Iterator[pd.DataFrame]:
    """The same sets in every order of Stage 2."""
    yield _frame(fold, order("sem_sort", chosen, graph=fold.graph), model=REFERENCE, view=view, rows=rows)
    yield _frame(fold, order("opt_perm", chosen, graph=fold.graph), model="gs_opt_perm", view=view, rows=rows)
    yield _frame(fold, _hr(fold, chosen), model="gs_hr", view=view, rows=rows)
    for seed in fold.choices.seeds:
        learned = fold.reranker(seed).order(chosen, graph=fold.graph)
        yield _frame(fold, learned, model="gs_lr", view=view, seed=seed, rows=rows)


def _hr(fold: Fold, sets: Sets, *, alpha: float | None = None) -> Ints:
    options = OrderOptions(alpha=fold.alpha if alpha is None else alpha)
    return order("hybrid_rerank", sets, graph=fold.graph, options=options)


def _floor(fold: Fold, chosen: Sets) -> pd.DataFrame:
    """The mean over random orders. What depends on single pairs is left out: it has no meaning for a mean of orders."""
    rows = fold.split.test
    ids = [fold.bench.ids[row] for row in rows.tolist()]
    found = random_floor(chosen, fold.gold(rows), ids=ids, shuffles=fold.choices.shuffles)
    seen = np.full((2, rows.size), np.nan)
    return _with_keys(fold, found, seen=seen, model=FLOOR, view=ORACLE, seed=0, rows=rows)


def _frame(
    fold: Fold, predicted: Ints, *, model: str, view: str = ORACLE, seed: int = 0, rows: Ints | None = None
) -> pd.DataFrame:
    """Values of every query of ``rows``, by default of the test part."""
    rows = fold.split.test if rows is None else rows
    gold = fold.gold(rows)
    repeats: Repeats = "first" if fold.mode == "paper" else "last"
    found = sequence_measures(predicted, gold, repeats=repeats)
    seen = np.stack(pair_tau(predicted, gold, graph=fold.graph))
    return _with_keys(fold, found, seen=seen, model=model, view=view, seed=seed, rows=rows)


def _with_keys(
    fold: Fold, found: SequenceValues, *, seen: Floats, model: str, view: str, seed: int, rows: Ints
) -> pd.DataFrame:
    two = found.n_common >= 2
    values = {name: getattr(found, attribute) for name, attribute in MEASURES.items()}
    values |= {
        "Ord.Prec (2+)": np.where(two, found.ordered_precision, np.nan),
        "tau (2+)": np.where(two, found.kendall_tau, np.nan),
        "tau seen": seen[0],
        "tau unseen": seen[1],
    }
    keys = {
        "protocol": fold.name,
        "view": view,
        "model": model,
        "seed": seed,
        "task_id": [fold.bench.ids[row] for row in rows.tolist()],
        "group": [f"text {fold.bench.group[row]}" for row in rows.tolist()],
        "calls": [str(length) for length in fold.bench.sequences.lengths[rows].tolist()],
    }
    return pd.DataFrame({**keys, **values})


def pair_tau(predicted: Ints, gold: Ints, *, graph: TransitionGraph) -> tuple[Floats, Floats]:
    """Kendall's tau (q,) over the common pairs with an edge between them in either direction, and over those without;
    NaN for a query without such a pair. A tool stands where it is called first.

    predicted: (q, k), gold: (q, l) tool rows, filled with -1.
    """
    place = _first_places(gold, predicted)
    first, second = np.triu_indices(gold.shape[1], 1)
    both = (place[:, first] >= 0) & (place[:, second] >= 0)
    a, b = np.where(both, gold[:, first], 0), np.where(both, gold[:, second], 0)
    joined = np.asarray(graph.transition[a.ravel(), b.ravel()] + graph.transition[b.ravel(), a.ravel()]).ravel() > 0
    sign = np.sign(place[:, second] - place[:, first]).astype(np.float64)
    found = []
    for wanted in (joined.reshape(both.shape), ~joined.reshape(both.shape)):
        counted = both & wanted
        size = counted.sum(axis=1)
        total = np.where(counted, sign, 0.0).sum(axis=1)
        found.append(np.divide(total, size, out=np.full(len(gold), np.nan), where=size > 0))
    return found[0], found[1]


def _first_places(gold: Ints, predicted: Ints) -> Ints:
    """(q, l) place of the tool of each gold call in the prediction; -1 where it is not predicted, in the filling, and
    for later calls of a tool."""
    equal = (gold[:, :, None] == predicted[:, None, :]) & (gold[:, :, None] >= 0)
    later = ((gold[:, :, None] == gold[:, None, :]) & (np.tri(gold.shape[1], k=-1, dtype=bool))).any(axis=2)
    return np.where(equal.any(axis=2) & ~later, equal.argmax(axis=2), -1)

"""``experiment=skillgraph_apibank``: SkillGraph on API-Bank level 3, every record against transitions of the others.

The authors' script differs from their ToolBench code (spec/skillgraph.md section 7 [C]): a transition is any later
call, Stage 1 adds the largest transition from a tool chosen already, Hybrid-Rerank is greedy over all placed tools, and
the reranker comes from ToolBench. Records come in templates of five; leaving one record out keeps four siblings of it
in the table, so that leaving the whole template out stands beside it as the honest transfer number [D].
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from toolshift.data.records import Library
from toolshift.data.trajectories import AUTHORS
from toolshift.evaluation.queries import QuerySpec, summarise_queries
from toolshift.experiment.skillgraph_rows import MEASURES, Choices, Fold, folds_of
from toolshift.experiment.study import StudyRun
from toolshift.experiment.tables import Written
from toolshift.experiment.trajectories import Tools, TrajectoryData, fingerprint
from toolshift.measures.sequences import sequence_measures
from toolshift.models.skillgraph.graph import TransitionGraph
from toolshift.models.skillgraph.later_calls import later_calls
from toolshift.models.skillgraph.ordering import OrderOptions, order, random_floor
from toolshift.models.skillgraph.reranker import (
    LearnedReranker,
    NothingToLearn,
    fit_reranker,
    reranker_options,
    training_pairs,
)
from toolshift.models.skillgraph.retrieval import RetrievalOptions, Sets, Texts, oracle_k, retrieve
from toolshift.models.skillgraph.sequences import Sequences, sequences_of
from toolshift.reporting.study import StudyTable, study_markdown, write_study
from toolshift.runs.files import stable_hash, write_text
from toolshift.settings.errors import UserError
from toolshift.settings.schema import Settings

Ints = NDArray[np.int64]

SOURCE = "apibank/level3"
ALPHA = 0.7
"""alpha_HR of the authors' API-Bank script [C]."""
PREFIX = 2
"""Records whose first two calls agree are of one template [D]: ten templates of five records."""
WAYS = ("record", "template")
VIEW = "K oracle"
MODEL_ORDER = ("bm25", "semantic_only", "gs_random_order", "gs_sem_sort", "gs_hr", "gs_lr", "gs_lr_apibank")


@dataclass(frozen=True, kw_only=True)
class Records:
    """The n records over the m tools that some record calls. template: (n,) codes."""

    ids: tuple[str, ...]
    texts: tuple[str, ...]
    tools: Tools
    vectors: NDArray[np.float32]
    sequences: Sequences
    template: Ints

    def others(self, record: int, *, way: str) -> Ints:
        """Rows that the transitions for a record may come from: all but itself, or but its template."""
        rows = np.arange(len(self.ids))
        return rows[rows != record] if way == "record" else rows[self.template != self.template[record]]


class ApiBankStudy:
    """The study behind ``conf/study/skillgraph_apibank.yaml``.

    Raises:
        UserError: on the generated sample, whose API-Bank has no such records; for a tool text that does not exist.
    """

    def __init__(self, settings: Settings) -> None:
        params = settings.study.params
        self.settings, self.params = settings, params
        if settings.data.source != "real":
            raise UserError("skillgraph_apibank reads API-Bank's level-3 records; run with data=real data.root=PATH")
        if params["tool_text"] not in ("description", "public"):
            raise UserError(f"study.params.tool_text: {params['tool_text']!r}; description or public")
        self.data = TrajectoryData(settings=settings, sources=(SOURCE,))
        self.toolbench = TrajectoryData(settings=settings, sources=tuple(params["toolbench_sources"]))

    def inputs(self) -> Mapping[str, str]:
        """API-Bank's records, the ToolBench trajectories that the reranker learns from, and the encoder."""
        return {
            "apibank": fingerprint(self.data.read("apibank", rules=AUTHORS)),
            "toolbench": fingerprint(self.toolbench.read("toolbench", rules=AUTHORS)),
            "encoder": self.data.cache.encoder.fingerprint,
        }

    # --- computing ----------------------------------------------------------------------------------------------------

    @cached_property
    def records(self) -> Records:
        """The records as arrays."""
        found = self.data.read("apibank", rules=AUTHORS)
        used = {call for task in found.tasks for call in task.calls}
        endpoints = tuple(e for e in found.library.endpoints if e.endpoint_id in used)
        owners = {e.capability_id for e in endpoints}
        library = Library(tuple(c for c in found.library.capabilities if c.capability_id in owners), endpoints)
        if self.params["tool_text"] == "description":
            endpoints = tuple(replace(e, text=e.description or e.operation) for e in endpoints)
            library = Library(library.capabilities, endpoints)
        tools = Tools.of(library, cache=self.data.cache)
        texts = tuple(task.text for task in found.tasks)
        self.data.cache.ensure(texts)
        calls = [[tools.row[call] for call in task.calls] for task in found.tasks]
        starts = [tuple(row[:PREFIX]) for row in calls]
        _, template = np.unique([stable_hash(start) for start in starts], return_inverse=True)
        return Records(
            ids=tuple(task.task_id for task in found.tasks),
            texts=texts,
            tools=tools,
            vectors=self.data.cache.rows(texts),
            sequences=sequences_of(calls, n_tools=len(tools.ids)),
            template=template.astype(np.int64),
        )

    @cached_property
    def fold(self) -> Fold:
        """ToolBench in the authors' mode, for its reranker."""
        bench = self.toolbench.bench("toolbench", rules=AUTHORS)
        choices = Choices(seeds=self.settings.seeds, tuning=0)
        return next(iter(folds_of(bench, mode="authors", ways=["id"], choices=choices)))

    def compute(self, run: StudyRun) -> None:
        """Values of every record under both ways of leaving out."""
        for way in WAYS:
            for least in self.params["least_k"]:
                run.part(f"main/{_protocol(way, least)}", lambda way=way, least=least: self._rows(way, least=least))

    def _rows(self, way: str, *, least: int) -> pd.DataFrame:
        borrowed = {seed: self.fold.reranker(seed) for seed in self.settings.seeds}
        rows = range(len(self.records.ids))
        frames = [frame for row in rows for frame in self._record(row, way=way, least=least, borrowed=borrowed)]
        return pd.concat(frames, ignore_index=True)

    def _record(
        self, row: int, *, way: str, least: int, borrowed: Mapping[int, LearnedReranker]
    ) -> Iterator[pd.DataFrame]:
        """Every row of the table for one record."""
        records, others = self.records, self.records.others(row, way=way)
        known = records.sequences.take(others)
        graph = later_calls(known, ids=tuple(records.ids[i] for i in others.tolist()))
        graph.assert_disjoint([records.ids[row]])
        gold = records.sequences.take([row]).padded()
        sets = {m: self._sets(m, row, graph=graph, least=least) for m in ("bm25", "semantic_only", "max_transition")}
        chosen = sets["max_transition"]
        options = OrderOptions(alpha=ALPHA, exhaustive=0, link="any")
        found: list[tuple[str, int, Ints]] = [
            ("bm25", 0, sets["bm25"].items),
            ("semantic_only", 0, sets["semantic_only"].by_cosine().items),
            ("gs_sem_sort", 0, order("sem_sort", chosen, graph=graph)),
            ("gs_hr", 0, order("hybrid_rerank", chosen, graph=graph, options=options)),
        ]
        unseen = np.full(graph.n_tools, 0.5)  # ToolBench's positions: none of its tools is one of API-Bank's
        for seed, learned in borrowed.items():
            found.append(("gs_lr", seed, learned.with_position(unseen).order(chosen, graph=graph)))
        for seed, own in self._own_rerankers(others, graph=graph):
            found.append(("gs_lr_apibank", seed, own.order(chosen, graph=graph)))
        protocol = _protocol(way, least)
        for model, seed, predicted in found:
            values = sequence_measures(predicted, gold)
            yield self._frame(row, {n: getattr(values, a) for n, a in MEASURES.items()}, model=model, seed=seed).assign(
                protocol=protocol, predicted=" -> ".join(records.tools.names[t] for t in predicted[0] if t >= 0)
            )
        floor = random_floor(chosen, gold, ids=[records.ids[row]], shuffles=self.params["shuffles"])
        values = {n: getattr(floor, a) for n, a in MEASURES.items()}
        yield self._frame(row, values, model="gs_random_order", seed=0).assign(protocol=protocol, predicted="")

    def _own_rerankers(self, others: Ints, *, graph: TransitionGraph) -> Iterator[tuple[int, LearnedReranker]]:
        """Rerankers that learn from the other API-Bank records instead of ToolBench (ours)."""
        records = self.records
        vectors, tools = records.vectors[others], records.tools.vectors
        pairs = training_pairs(records.sequences.take(others), queries=vectors, tools=tools, graph=graph)
        ids = [f"template {records.template[i]}" for i in others.tolist()]
        for seed in self.settings.seeds:
            try:
                yield seed, fit_reranker(pairs, ids=ids, options=reranker_options("paper", seed=seed))
            except NothingToLearn:
                return

    def _sets(self, method: str, row: int, *, graph: TransitionGraph, least: int) -> Sets:
        records = self.records
        pairs = zip(records.tools.names, records.tools.descriptions, strict=True)
        return retrieve(
            method,
            queries=records.vectors[[row]],
            tools=records.tools.vectors,
            graph=graph,
            k=oracle_k(records.sequences.lengths[[row]], least=least),
            options=RetrievalOptions(alpha=0.5, tokens="whitespace"),
            texts=Texts(queries=[records.texts[row]], tools=[" ".join(pair) for pair in pairs]),
        )

    def _frame(self, row: int, values: Mapping[str, NDArray[np.float64]], *, model: str, seed: int) -> pd.DataFrame:
        records = self.records
        keys = {
            "view": VIEW,
            "model": model,
            "seed": seed,
            "task_id": [records.ids[row]],
            "group": f"template {records.template[row]}",
            "gold": " -> ".join(records.tools.names[t] for t in records.sequences.of(row).tolist()),
        }
        return pd.DataFrame({**keys, **values})

    # --- reporting ----------------------------------------------------------------------------------------------------

    def report(self, run: StudyRun) -> Written:
        """The table, and what every row predicts for every record."""
        names = [name for name in run.parts() if name.startswith("main/")]
        frame = pd.concat([run.read(name) for name in names], ignore_index=True)
        evaluation, study, folder = self.settings.evaluation, self.settings.study, Path(self.settings.paths.outputs)
        spec = QuerySpec(
            name=self.settings.name,
            data=self.settings.data.source,
            measures=tuple(MEASURES),
            reference=study.reference,
            replicates=evaluation.replicates,
            seed=evaluation.seed,
            confidence=evaluation.confidence,
            model_order=MODEL_ORDER,
            view_order=(VIEW,),
        )
        table = StudyTable(
            spec=spec,
            title=study.title,
            rows=summarise_queries(frame, spec=spec),
            paper=study.paper,
            paper_protocols=(_protocol("record", 2),),
            paper_remark="the same records; its reranker learned from other ToolBench trajectories",
            queries="records",
            groups="templates",
            missing=("oracle_set_llm_0shot, oracle_set_llm_3shot: no language model is given",),
            remarks=(
                "K is the gold length, at least the number in the protocol (oracle K). hybrid_sem_graph of the paper "
                "is gs_sem_sort: both sort by cosine here. gs_lr: reranker of ToolBench; gs_lr_apibank: of the other "
                "records (ours). Templates are resampled, since records of one are variants of each other.",
            ),
        )
        kept = ["protocol", "model", "seed", "task_id", "group", "gold", "predicted", "Set-F1", "Ord.Prec", "tau"]
        lines = frame.loc[frame["model"] != "gs_random_order", kept].sort_values(
            ["protocol", "model", "seed", "task_id"]
        )
        paths = write_study(table, folder=folder / "tables")
        text = lines.to_csv(index=False, lineterminator="\n")
        paths.append(write_text(folder / "tables" / f"{spec.name}_records.csv", text))
        return Written(paths=tuple(paths), markdown=study_markdown(table))


def _protocol(way: str, least: int) -> str:
    return f"leave one {way} out, K=max(L,{least})"

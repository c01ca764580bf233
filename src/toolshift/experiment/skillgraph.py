"""``experiment=skillgraph``: both stages on trajectories, graph and communities, ablation and sweeps."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import pandas as pd

from toolshift.data.trajectories import AUTHORS, PAPER, Rules
from toolshift.evaluation.queries import QuerySpec, compare_rows, read_queries, summarise_queries, with_pareto
from toolshift.experiment.skillgraph_rows import (
    CONDITIONAL,
    FLOOR,
    MEASURES,
    ORACLE,
    REFERENCE,
    STAGE_1,
    Choices,
    Fold,
    ablation_rows,
    alpha_rows,
    facts,
    fixed_k_rows,
    folds_of,
    llm_rows,
    main_rows,
)
from toolshift.experiment.study import StudyRun
from toolshift.experiment.tables import Written
from toolshift.experiment.trajectories import Bench, TrajectoryData, fingerprint
from toolshift.llm.errors import NotAvailable
from toolshift.models.skillgraph.communities import agreement, community_table, cosine_correlations, louvain, stability
from toolshift.models.skillgraph.graph import from_parquet, to_parquet
from toolshift.models.skillgraph.llm_order import LlmOrderer
from toolshift.models.skillgraph.retrieval import Mode
from toolshift.reporting.graph_figures import write_community_figure, write_graph_figures
from toolshift.reporting.study import StudyTable, study_markdown, write_lines, write_study
from toolshift.runs.files import write_text
from toolshift.settings.errors import UserError
from toolshift.settings.schema import Settings

log = logging.getLogger("toolshift")

RULES: Mapping[str, Rules] = {"paper": PAPER, "authors": AUTHORS}
PARTS: Mapping[str, Callable[[Fold], pd.DataFrame]] = {
    "main": main_rows,
    "fixed_k": fixed_k_rows,
    "alpha": alpha_rows,
    "ablation": ablation_rows,
}
"""Parts that are values per query; ``buckets`` is a reading of ``main``, ``graph`` has tables of its own."""
KNOWN = (*PARTS, "buckets", "graph", "llm")
LLM_SHOTS = (0, 3)
ORDERS = (REFERENCE, "gs_opt_perm", "gs_hr", "gs_lr")
MODEL_ORDER = (*STAGE_1, "semantic_set_hr", FLOOR, *ORDERS, "gs_llm_0shot", "oracle_set_llm_3shot")
LR_AGAINST = ("gs_hr", "gs_opt_perm", "semantic_set_hr", "beam_search")
"""Rows that the Learned Reranker is compared with besides the reference."""
PAPER_DATASET = "toolbench"
OTHER_TRAJECTORIES = "of other trajectories"


class SkillGraphStudy:
    """The study behind ``conf/study/skillgraph.yaml`` and ``skillgraph_ablation.yaml``.

    Raises:
        UserError: for a mode or part that does not exist, or sources of which none is named.
    """

    def __init__(self, settings: Settings) -> None:
        params = settings.study.params
        self.settings, self.params = settings, params
        sources = params["real_sources" if settings.data.source == "real" else "sample_sources"]
        unknown = sorted({*params["modes"]} - {*RULES}) + sorted({*params["parts"]} - {*KNOWN})
        if unknown or not sources or not params["modes"]:
            raise UserError(f"study.params: {unknown or 'no source or mode'}; modes {[*RULES]}, parts {[*KNOWN]}")
        self.data = TrajectoryData(settings=settings, sources=tuple(sources))
        self.choices = Choices(
            seeds=settings.seeds,
            tuning=params["tuning_queries"],
            shuffles=params["shuffles"],
            fixed_k=tuple(params["fixed_k"]),
            alphas=tuple(params["alphas"]),
        )

    @property
    def modes(self) -> Sequence[str]:
        """Modes in the order of the config."""
        return tuple(self.params["modes"])

    @cached_property
    def benches(self) -> Mapping[tuple[str, str], Bench]:
        """(dataset, mode) -> its trajectories."""
        pairs = [(dataset, mode) for dataset in self.data.datasets for mode in self.modes]
        return {(dataset, mode): self.data.bench(dataset, rules=RULES[mode]) for dataset, mode in pairs}

    def inputs(self) -> Mapping[str, str]:
        """Trajectories of every dataset under the rules of every mode, and the encoder."""
        found = {
            f"{dataset}, {mode}": fingerprint(self.data.read(dataset, rules=RULES[mode]))
            for dataset in self.data.datasets
            for mode in self.modes
        }
        return {**found, "encoder": self.data.cache.encoder.fingerprint}

    # --- computing ----------------------------------------------------------------------------------------------------

    def compute(self, run: StudyRun) -> None:
        """Values per query of every fold, facts, graphs and communities."""
        for fold in self._folds():
            for part in self.params["parts"]:
                if part in PARTS:
                    run.part(f"{part}/{fold.name}", lambda make=PARTS[part], fold=fold: make(fold))
            run.part(f"facts/{fold.name}", lambda fold=fold: facts(fold))
            if "llm" in self.params["parts"]:
                self._llm(run, fold)
            if "graph" in self.params["parts"]:
                self._graph(run, fold)
        if "graph" in self.params["parts"]:
            run.part("sources", lambda: pd.concat([self._sources(d) for d in self.data.datasets], ignore_index=True))

    def _folds(self) -> Iterator[Fold]:
        for (_, mode), bench in self.benches.items():
            yield from folds_of(
                bench, mode=cast("Mode", mode), ways=self.params[f"{mode}_splits"], choices=self.choices
            )

    def _llm(self, run: StudyRun, fold: Fold) -> None:
        """Rows of a language model, where one is configured or recorded."""
        try:
            orderers = {shots: self._orderer(shots) for shots in LLM_SHOTS}
        except NotAvailable as error:
            log.info("%s: rows of a language model are not run: %s", self.settings.name, error)
            return
        made: list[pd.DataFrame] = []

        def make() -> pd.DataFrame:
            frame, outcomes = llm_rows(fold, orderers, count=self.params["llm_queries"])
            made.append(outcomes)
            return frame

        if f"outcomes/{fold.name}" not in run.parts():
            (run.path / "parts" / "llm" / f"{fold.name}.parquet").unlink(missing_ok=True)
        run.part(f"llm/{fold.name}", make)
        run.part(f"outcomes/{fold.name}", lambda: made[0])

    def _orderer(self, shots: int) -> LlmOrderer:
        params = self.params
        return LlmOrderer(
            base_url=params["llm_base_url"],
            llm=params["llm_model"],
            mode=params["llm_mode"],
            store=params["llm_store"],
            shots=shots,
        )

    def _sources(self, dataset: str) -> pd.DataFrame:
        return self.benches[dataset, self.modes[0]].counts.assign(dataset=dataset)

    def _graph(self, run: StudyRun, fold: Fold) -> None:
        """Graph and communities of a fold whose graph is not that of another split already."""
        tools, folder = fold.bench.tools, run.path / "graphs" / fold.name
        if not (folder / "graph.json").is_file():
            to_parquet(fold.graph, folder, tool_ids=tools.ids)
        labels = {"category": list(tools.categories), "parent tool": list(tools.parents)}
        seeds = range(self.params["community_seeds"])
        run.part(f"communities/{fold.name}", lambda: community_table(fold.graph, labels=labels, seeds=list(seeds)))
        run.part(f"stability/{fold.name}", lambda: stability(fold.graph, seeds=list(seeds)))
        run.part(f"correlations/{fold.name}", lambda: cosine_correlations(fold.graph, tools.vectors))
        run.part(f"labels/{fold.name}", lambda: pd.DataFrame(labels))

    # --- reporting ----------------------------------------------------------------------------------------------------

    def report(self, run: StudyRun) -> Written:
        """Tables and figures of the parts that the run has."""
        paths: list[Path] = []
        pages: list[str] = []
        for part in self.params["parts"]:
            frame = _together(run, "main" if part == "buckets" else part)
            if frame is None:
                continue
            table = self._table(run, part, frame)
            paths += write_study(table, folder=self._folder("tables"))
            pages.append(study_markdown(table))
            if part == "main":
                paths.append(self._pairs(frame, table.spec))
            if part == "llm":
                paths.append(self._outcomes(run, table.spec.name))
            paths += self._figures(part, table)
        if "graph" in self.params["parts"]:
            paths += self._graph_page(run)
        return Written(paths=tuple(paths), markdown="".join(pages[:1]))  # the rest is in files

    def _folder(self, name: str) -> Path:
        return Path(self.settings.paths.outputs) / name

    def _name(self, part: str) -> str:
        name = self.settings.name
        return name if part in ("main", "ablation") else f"{name}_{part}"

    def _table(self, run: StudyRun, part: str, frame: pd.DataFrame) -> StudyTable:
        """One table; ``buckets`` shows the main rows by number of gold calls."""
        if part == "buckets":
            frame = self._by_length(frame)
        evaluation, study = self.settings.evaluation, self.settings.study
        extra = CONDITIONAL if part in ("main", "ablation") else ()
        measures = (*MEASURES, *extra) if part != "ablation" else ("Ord.Prec", "tau", "Trans.Acc", "1st.Acc", *extra)
        models = set(frame["model"])
        spec = QuerySpec(
            name=self._name(part),
            data=self.settings.data.source,
            measures=measures,
            reference=study.reference if study.reference in models else None,
            replicates=evaluation.replicates,
            seed=evaluation.seed,
            confidence=evaluation.confidence,
            model_order=tuple(m for m in MODEL_ORDER if m in models),
            view_order=tuple(dict.fromkeys(frame["view"])),
        )
        rows = summarise_queries(frame, spec=spec)
        pareto = ("Set-F1", "tau") if part == "main" else None
        return StudyTable(
            spec=spec,
            title=study.title if part in ("main", "ablation") else f"{study.title}, {part.replace('_', ' ')}",
            rows=with_pareto(rows, first=pareto[0], second=pareto[1], spec=spec) if pareto else rows,
            paper=study.paper if part in ("main", "ablation") else (),
            paper_protocols=tuple(p for p in dict.fromkeys(frame["protocol"]) if p.startswith(f"{PAPER_DATASET},")),
            paper_remark=OTHER_TRAJECTORIES,
            pareto=pareto,
            groups="query texts",
            missing=self._missing(run) if part == "main" else (),
            remarks=(_remark(part),),
        )

    def _missing(self, run: StudyRun) -> tuple[str, ...]:
        if any(name.startswith("llm/") for name in run.parts()):
            return ()
        return ("gs_llm_0shot, oracle_set_llm_3shot: no language model is configured or recorded (study.params.llm_*)",)

    def _by_length(self, frame: pd.DataFrame) -> pd.DataFrame:
        starts = [int(start) for start in self.params["buckets"]]
        calls = frame["calls"].astype(int)
        parts = []
        for start, end in zip(starts, [*starts[1:], None], strict=True):
            inside = (calls >= start) & (calls < end) if end else calls >= start
            label = f"{start} to {end - 1} calls" if end else f"{start} calls or more"
            parts.append(frame.loc[inside].assign(view=label))
        return pd.concat(parts, ignore_index=True)

    def _pairs(self, frame: pd.DataFrame, spec: QuerySpec) -> Path:
        """The Learned Reranker against rows other than the reference, with both p values."""
        queries = read_queries(frame, spec=spec)
        pairs = [
            ((split.protocol, ORACLE, "gs_lr"), (split.protocol, ORACLE, other))
            for split in queries.splits
            for other in LR_AGAINST
        ]
        found = compare_rows(queries, spec=spec, pairs=pairs)
        return write_text(
            self._folder("tables") / f"{spec.name}_pairs.csv", found.to_csv(index=False, lineterminator="\n")
        )

    def _outcomes(self, run: StudyRun, name: str) -> Path:
        """How many answers of the language model could be read, by reason."""
        found = _required(run, "outcomes").to_csv(index=False, lineterminator="\n")
        return write_text(self._folder("tables") / f"{name}_outcomes.csv", found)

    def _figures(self, part: str, table: StudyTable) -> list[Path]:
        """A line figure for each sweep and protocol."""
        if part not in ("alpha", "fixed_k"):
            return []
        sign = "=" if part == "alpha" else "K="
        x = {view: float(view.rpartition(sign)[2]) for view in dict.fromkeys(table.rows["view"])}
        label = "alpha_HR" if part == "alpha" else "K"
        paths: list[Path] = []
        for protocol in dict.fromkeys(table.rows["protocol"]):
            for measure in ("Set-F1", "tau") if part == "fixed_k" else ("tau", "Ord.Prec"):
                paths += write_lines(
                    table.rows,
                    name=f"{table.spec.name}_{_slug(protocol)}_{_slug(measure)}",
                    measure=measure,
                    x=x,
                    x_label=label,
                    folder=self._folder("figures"),
                    protocol=protocol,
                )
        return paths

    def _graph_page(self, run: StudyRun) -> list[Path]:
        """Facts, sources, communities and correlations as one page, each also as CSV; figures of every graph."""
        tables: dict[str, pd.DataFrame] = {"sources": run.read("sources"), "facts": _required(run, "facts")}
        for name in ("communities", "stability", "correlations"):
            tables[name] = _required(run, name, keyed=True)
        name, folder, paths = self._name("graph"), self._folder("tables"), list[Path]()
        for kind, frame in tables.items():
            text = frame.to_csv(index=False, lineterminator="\n")
            paths.append(write_text(folder / f"{name}_{kind}.csv", text))
        for part in run.parts():
            if part.startswith("labels/"):
                paths += self._graph_figures(run, part.partition("/")[2])
        markdown = _graph_markdown(tables, name=name, data=self.settings.data.source)
        return [*paths, write_text(folder / f"{name}.md", markdown)]

    def _graph_figures(self, run: StudyRun, protocol: str) -> list[Path]:
        graph = from_parquet(run.path / "graphs" / protocol)
        if not graph.n_edges:
            return []
        labels = run.read(f"labels/{protocol}")
        found = louvain(graph)
        agreements = {kind: agreement(found.community, labels[kind].tolist()) for kind in labels.columns}
        name, folder = f"{self._name('graph')}_{_slug(protocol)}", self._folder("figures")
        paths = write_graph_figures(graph, name=name, folder=folder)
        return paths + write_community_figure(found, agreements, name=name, folder=folder)


def _together(run: StudyRun, part: str) -> pd.DataFrame | None:
    names = [name for name in run.parts() if name.startswith(f"{part}/")]
    found = names and part in (*PARTS, "llm")
    return pd.concat([run.read(name) for name in names], ignore_index=True) if found else None


def _required(run: StudyRun, part: str, *, keyed: bool = False) -> pd.DataFrame:
    """The frames of a part of all folds as one; ``keyed`` adds the protocol, which the part's name holds."""
    names = [name for name in run.parts() if name.startswith(f"{part}/")]
    frames = [run.read(name) for name in names]
    if keyed:
        frames = [f.assign(protocol=n.partition("/")[2]) for f, n in zip(frames, names, strict=True)]
    found = pd.concat(frames, ignore_index=True)
    return found.loc[:, ["protocol", *(c for c in found.columns if c != "protocol")]]


def _graph_markdown(tables: Mapping[str, pd.DataFrame], *, name: str, data: str) -> str:
    words = {
        "sources": "Trajectories and calls by source: read, dropped by reason, kept, and used after `debug` limits.",
        "facts": "What each split is made of and what was chosen on its training part.",
        "communities": (
            "Communities, mean over seeds. purity: unweighted mean over communities (the paper's); purity_weighted: by "
            "tools. labels `category`: the tool's domain; `parent tool`: the API collection, which the authors' code "
            "calls category."
        ),
        "stability": "Agreement of the partitions of all pairs of seeds.",
        "correlations": (
            "Spearman correlation of edge values with the cosine of the two tools. Semantic edges have transition 0 "
            "and a high cosine by construction, which alone makes a negative correlation over all edges."
        ),
    }
    shown = {**tables, "facts": _wide_facts(tables["facts"]), "communities": _mean_communities(tables["communities"])}
    head = f"# {name}: graph and communities\n\nData: {'sample (synthetic)' if data == 'sample' else data}.\n"
    parts = [f"## {kind}\n\n{words[kind]}\n\n{_markdown(frame, kind)}\n" for kind, frame in shown.items()]
    return "\n".join([head, *parts])


def _markdown(frame: pd.DataFrame, kind: str) -> str:
    return str(frame.to_markdown(index=False, floatfmt=".4g", disable_numparse=kind == "facts"))


def _wide_facts(frame: pd.DataFrame) -> pd.DataFrame:
    order = list(dict.fromkeys(frame["fact"]))
    return frame.pivot(index="fact", columns="protocol", values="value").loc[order].reset_index()


def _mean_communities(frame: pd.DataFrame) -> pd.DataFrame:
    keys = ["protocol", "algorithm", "projection", "labels"]
    values = ["n_communities", "largest", "modularity", "purity", "purity_weighted", "nmi", "n_labelled"]
    return frame.groupby(keys, sort=True, as_index=False).agg(dict.fromkeys(values, "mean"))


def _remark(part: str) -> str:
    remarks: Mapping[str, Any] = {
        "fixed_k": "K is fixed; in mode=authors the planner runs once at its own length and is cut or filled up.",
        "buckets": "K is the gold length, at least 3 (oracle K).",
        "llm": (
            "K is the gold length, at least 3 (oracle K). oracle_set: the model is given the gold tools, as no other "
            "row is. An answer that cannot be read leaves the Stage-1 order; <name>_outcomes.csv counts them by reason."
        ),
        "alpha": "K is the gold length, at least 3 (oracle K); alpha_HR is varied on the test part, to look at only.",
    }
    oracle = (
        "K is the gold length, at least 3 (oracle K); planners in mode=authors return a fixed length. (2+): queries "
        "with two common tools or more. tau seen/unseen: pairs of common tools that an edge joins, or not. "
        "gs_random_order: mean over random orders of the same sets."
    )
    return str(remarks.get(part, oracle))


def _slug(text: str) -> str:
    return "".join(c if c.isalnum() else "_" for c in text).strip("_").replace("__", "_").lower()

"""``experiment=ntilc_registry``: what selection costs as the registry grows: milliseconds, and tokens of the prompt.

Latency is that of encoding the request and searching the index, apart, at batch 1 and 32; the head is untrained, which
changes no time. Registries beyond the library repeat its tools with noise. Tokens are counted, not asked for; rows of a
language model with the registry in its prompt need an endpoint or a record (paper, section 4.2).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd

from toolshift.agents.asking import PLANNER, WRITER, Model, plan_prompt
from toolshift.agents.registry import (
    CHOOSER,
    Chooser,
    EstimatedTokens,
    Registries,
    TokenCounter,
    TokenizerTokens,
    tool_line,
)
from toolshift.agents.tools import Toolbox
from toolshift.evaluation.queries import QuerySpec, summarise_queries
from toolshift.experiment.ntilc_data import DispatchData, Registry
from toolshift.experiment.study import StudyRun
from toolshift.experiment.tables import Written
from toolshift.llm.client import client_of
from toolshift.llm.endpoint import Endpoint
from toolshift.llm.errors import NotAvailable
from toolshift.models.ntilc.encoder import NtilcEncoder, NtilcError, network, scaled, z_of
from toolshift.models.ntilc.index import BACKENDS, ExactIndex, FaissIndex, make_index
from toolshift.models.ntilc.signature import Rows
from toolshift.reporting.forest import save_figure
from toolshift.reporting.study import StudyTable, study_markdown, write_lines, write_study
from toolshift.runs.files import write_text
from toolshift.runs.seeds import generator
from toolshift.settings.errors import UserError
from toolshift.settings.schema import Settings
from toolshift.text.encoder import Vectors, unit_rows

log = logging.getLogger("toolshift")

IN_CONTEXT, NTILC, WITH_SCHEMA = "in_context", "ntilc", "ntilc_with_schema"
PHASES = ("encode", "search", "add one tool and find it")
TOKENS = ("registry tokens", "prompt tokens")
ASKED = ("Top-1", "Top-5", "generated tokens", "latency ms")
MEASUREMENT = "a measurement: another run gives other numbers"
_DATA = {"sample": "sample (synthetic)", "real": "real"}
_NOISE = 0.05
_K = 5


@dataclass(frozen=True, kw_only=True)
class Stopwatch:
    """What one registry size is timed with. tools: (n, h) unit rows; texts: requests."""

    encoder: NtilcEncoder
    tools: Vectors
    texts: Sequence[str]
    backends: Sequence[str]
    batches: Sequence[int]
    repeats: int
    now: Callable[[], float] = time.perf_counter

    def frame(self) -> pd.DataFrame:
        """One row per backend, batch, phase and repeat; backends take turns, so that whatever else the machine does
        meets all of them. The first round only warms up."""
        indexes = {name: self._index(name) for name in self.backends}
        rows: list[dict[str, object]] = []
        for repeat in range(-1, self.repeats):
            for batch in self.batches:
                start = (repeat + 1) * batch
                texts = [self.texts[(start + i) % len(self.texts)] for i in range(batch)]
                seconds, z = self._timed(lambda texts=texts: self.encoder.encode_queries(texts))
                found = [("", batch, PHASES[0], seconds)]
                for name, index in indexes.items():
                    found.append((name, batch, PHASES[1], self._timed(lambda i=index, z=z: i.search(z, k=_K))[0]))
                rows += [] if repeat < 0 else [self._row(*one, repeat=repeat) for one in found]
        rows += [self._row(name, 1, PHASES[2], self._added(index), repeat=0) for name, index in indexes.items()]
        return pd.DataFrame(rows)

    def _row(self, backend: str, batch: int, phase: str, seconds: float, *, repeat: int) -> dict[str, object]:
        keys = {"tools": len(self.tools), "backend": backend, "batch": batch, "phase": phase}
        return {**keys, "repeat": repeat, "ms": 1000 * seconds}

    def _index(self, backend: str) -> ExactIndex | FaissIndex:
        index = make_index(backend, dim=int(self.tools.shape[1]), device=self.encoder.device)
        index.add([str(i) for i in range(len(self.tools))], self.tools)
        return index

    def _added(self, index: ExactIndex | FaissIndex) -> float:
        """Seconds until a tool that was just added is found by its own vector; NaN if it is not."""
        vector = unit_rows(generator("ntilc added tool", len(index)).standard_normal((1, index.dim)))
        start = self.now()
        index.add(["added"], vector)
        first = index.search(vector, k=1).ids(index)[0][0]
        return self.now() - start if first == "added" else float("nan")

    def _timed(self, do: Callable[[], Any]) -> tuple[float, Any]:
        start = self.now()
        result = do()
        return self.now() - start, result


@dataclass(frozen=True, kw_only=True)
class Prompts:
    """The requests of a registry and the tools that are drawn for each of them. rows: of the requests."""

    registry: Registry
    rows: Rows
    counter: TokenCounter
    seed: int

    @cached_property
    def toolbox(self) -> Toolbox:
        """Tools by row: names are endpoint ids."""
        return Toolbox.of_library(self.registry.library)

    @cached_property
    def _draw(self) -> Registries:
        return Registries([tool.name for tool in self.toolbox.tools], seed=self.seed)

    def drawn(self, row: int, *, size: int) -> Rows:
        """(size,) tools in the prompt of a request, its gold tools among them."""
        registry = self.registry
        return self._draw.rows(registry.ids[row], self.gold(row), size=size)

    def gold(self, row: int) -> list[int]:
        """Gold tools of a request."""
        registry = self.registry
        return registry.gold[registry.offsets[row] : registry.offsets[row + 1]].tolist()

    def tokens(self, *, size: int, shortlist: int) -> pd.DataFrame:
        """Tokens of every request under each way to select: the registry in the prompt, its ``shortlist`` nearest tools
        by the frozen encoder, none, and none until the arguments of the selected tool are written."""
        system, planner, writer = self.counter.count([CHOOSER, PLANNER, WRITER]).tolist()
        frames: list[pd.DataFrame] = []
        for row in self.rows.tolist():
            tools, gold = self.drawn(row, size=size), self.gold(row)
            vectors = np.asarray(self.registry.tool_vectors[tools])
            near = tools[np.argsort(-(vectors @ self.registry.query_vectors[row]), kind="stable")[:shortlist]]
            (query,) = self.counter.count([plan_prompt(self.registry.tasks[row].text)]).tolist()
            inside = {
                IN_CONTEXT: float(self._lines(tools).sum()),
                f"nearest_{shortlist}": float(self._lines(near).sum()),
                NTILC: 0.0,
                WITH_SCHEMA: float(self._lines(np.array(gold)).mean()),
            }
            fixed = [system + query] * 2 + [system + planner + writer + query] * 2
            total = [a + b for a, b in zip(inside.values(), fixed, strict=True)]
            counted = {TOKENS[0]: list(inside.values()), TOKENS[1]: total}
            frames.append(self._frame(row, size=size, models=list(inside)).assign(**counted))
        return pd.concat(frames, ignore_index=True)

    def asked(self, chooser: Chooser, *, size: int, model: str) -> pd.DataFrame:
        """What a language model picks with the registry in its prompt; time is NaN for recorded answers."""
        frames: list[pd.DataFrame] = []
        for row in self.rows.tolist():
            tools = self.drawn(row, size=size)
            choice = chooser.choose(self.registry.tasks[row].text, [self.toolbox.tools[i] for i in tools.tolist()])
            gold = [self.toolbox.tools[tool].name for tool in self.gold(row)]
            seconds = np.nan if choice.seconds is None else 1000 * choice.seconds
            found = (choice.hit(gold, k=1), choice.hit(gold, k=5), choice.usage.completion_tokens, seconds)
            values = {name: float(value) for name, value in zip(ASKED, found, strict=True)}
            tokens = {TOKENS[0]: float(self._lines(tools).sum()), TOKENS[1]: float(choice.usage.prompt_tokens)}
            frames.append(self._frame(row, size=size, models=[model]).assign(**values, **tokens, outcome=choice.kind))
        return pd.concat(frames, ignore_index=True)

    def _lines(self, tools: Rows) -> np.ndarray[Any, np.dtype[np.int64]]:
        return self.counter.count([tool_line(self.toolbox.tools[i]) + "\n" for i in tools.tolist()])

    def _frame(self, row: int, *, size: int, models: Sequence[str]) -> pd.DataFrame:
        registry = self.registry
        keys = {
            "protocol": registry.name,
            "view": f"{size} tools",
            "seed": 0,
            "task_id": registry.ids[row],
            "group": f"text {registry.group[row]}",
        }
        return pd.DataFrame({"model": list(models)}).assign(**keys)


class RegistryStudy:
    """The study behind ``conf/study/ntilc_registry.yaml``.

    Raises:
        UserError: for an index that does not exist, or a size below 1.
    """

    def __init__(self, settings: Settings) -> None:
        params = settings.study.params
        self.settings, self.params = settings, params
        self.dataset = params["real_dataset" if settings.data.source == "real" else "sample_dataset"]
        sizes = (*params["latency_sizes"], *params["prompt_sizes"], *params["batches"], params["repeats"])
        unknown = sorted(set(params["backends"]) - set(BACKENDS))
        if unknown or min(sizes) < 1:
            raise UserError(f"study.params: backends {unknown or 'fine'}, known {list(BACKENDS)}; sizes at least 1")
        self.data = DispatchData(settings=settings, datasets=[self.dataset], cap=params["queries"])

    @cached_property
    def registry(self) -> Registry:
        """Library and requests."""
        return self.data.registry(self.dataset)

    def inputs(self) -> Mapping[str, str]:
        """Records and encoder."""
        return self.data.inputs()

    # --- computing ----------------------------------------------------------------------------------------------------

    def compute(self, run: StudyRun) -> None:
        """Times and tokens, one part per registry size."""
        for size in self.params["latency_sizes"]:
            run.part(f"latency/{size:07d}", lambda size=size: self._watch(size).frame())
        shortlist = self.params["shortlist"]
        for size in self._prompt_sizes(run):
            run.part(f"tokens/{size:07d}", lambda s=size: self._prompts.tokens(size=s, shortlist=shortlist))
        self._ask(run)

    @property
    def _counter(self) -> TokenCounter:
        folder = self.params["tokenizer"]
        return cast("TokenCounter", EstimatedTokens() if folder is None else TokenizerTokens(Path(folder)))

    def _prompt_sizes(self, run: StudyRun) -> Sequence[int]:
        """Sizes that the library can fill; kept as a part, since tables read no library."""
        wanted = sorted(set(self.params["prompt_sizes"]))
        found = run.part(
            "sizes", lambda: pd.DataFrame({"size": wanted, "filled": [s <= self.registry.n_tools for s in wanted]})
        )
        return found.loc[found["filled"], "size"].tolist()

    @cached_property
    def _prompts(self) -> Prompts:
        registry = self.registry
        smallest = min(self.params["prompt_sizes"])
        fits = np.flatnonzero(np.diff(registry.offsets) <= smallest)
        return Prompts(registry=registry, rows=fits, counter=self._counter, seed=self.settings.seeds[0])

    def _watch(self, size: int) -> Stopwatch:
        registry, device = self.registry, self.settings.runtime.device
        net = network(dim=int(registry.tool_vectors.shape[1]), seed=self.settings.seeds[0], device=device).eval()
        frozen = grown(np.asarray(registry.tool_vectors), size)
        return Stopwatch(
            encoder=NtilcEncoder(net=net, base=self.data.cache.encoder, device=device),
            tools=z_of(net, lambda rows: scaled(frozen[rows], device=device), np.arange(size), chunk=4096),
            texts=[task.text for task in registry.tasks],
            backends=self._backends(),
            batches=self.params["batches"],
            repeats=self.params["repeats"],
        )

    def _backends(self) -> Sequence[str]:
        """Backends that are installed."""
        found: list[str] = []
        for name in self.params["backends"]:
            try:
                make_index(name, dim=2)
                found.append(name)
            except NtilcError as error:
                log.warning("%s: %s is left out: %s", self.settings.name, name, error)
        return found

    def _ask(self, run: StudyRun) -> None:
        """Rows of a language model, where one is configured or recorded."""
        params = self.params
        try:
            place = Endpoint(
                base_url=params["llm_base_url"], model=params["llm_model"], mode=params["llm_mode"],
                store=params["llm_store"], api_key_env=params["llm_api_key_env"],
            )  # fmt: skip
            chooser = Chooser(model=Model(client=client_of(place)))
        except NotAvailable as error:
            log.info("%s: rows of a language model are not run: %s", self.settings.name, error)
            return
        for size in self._prompt_sizes(run):
            run.part(f"llm/{size:07d}", lambda s=size: self._prompts.asked(chooser, size=s, model=self._llm))

    @property
    def _llm(self) -> str:
        return f"{self.params['llm_model']} (in context)"

    # --- reporting ----------------------------------------------------------------------------------------------------

    def report(self, run: StudyRun) -> Written:
        """The table of tokens; times as CSV and page; a figure of each."""
        names = [name for name in run.parts() if name.partition("/")[0] in ("tokens", "llm")]
        table = self._table(pd.concat([run.read(name) for name in names], ignore_index=True), run)
        folder, figures = self._folder("tables"), self._folder("figures")
        paths = write_study(table, folder=folder)
        times = latency(pd.concat([run.read(n) for n in run.parts() if n.startswith("latency/")], ignore_index=True))
        times = times.assign(data=self.settings.data.source, note=MEASUREMENT)
        name = self.settings.name
        paths.append(write_text(folder / f"{name}_latency.csv", times.to_csv(index=False, lineterminator="\n")))
        page = latency_page(times, name=name)
        paths.append(write_text(folder / f"{name}_latency.md", page))
        views = {view: float(view.partition(" ")[0]) for view in dict.fromkeys(table.rows["view"])}
        paths += write_lines(
            table.rows, name=f"{name}_tokens", measure=TOKENS[1], x=views, x_label="tools", folder=figures
        )
        paths += draw_latency(times, figures / f"{name}_latency")
        return Written(paths=tuple(paths), markdown=study_markdown(table) + "\n" + page)

    def _folder(self, name: str) -> Path:
        return Path(self.settings.paths.outputs) / name

    def _table(self, frame: pd.DataFrame, run: StudyRun) -> StudyTable:
        evaluation, study = self.settings.evaluation, self.settings.study
        asked = any(name.startswith("llm/") for name in run.parts())
        spec = QuerySpec(
            name=self.settings.name,
            data=self.settings.data.source,
            measures=(*TOKENS, *(ASKED if asked else ())),
            lower_is_better=(*TOKENS, *(ASKED[2:] if asked else ())),
            reference=study.reference,
            replicates=evaluation.replicates,
            seed=evaluation.seed,
            confidence=evaluation.confidence,
            model_order=(IN_CONTEXT, f"nearest_{self.params['shortlist']}", WITH_SCHEMA, NTILC),
            view_order=tuple(dict.fromkeys(frame.sort_values("view", key=_size)["view"])),
        )
        sizes = run.read("sizes")
        missing = [f"{size} tools: the library has fewer" for size in sizes.loc[~sizes["filled"], "size"]]
        if not asked:
            missing.append(f"{self._llm}: not run, no language model is configured or recorded (study.params.llm_*)")
        return StudyTable(
            spec=spec,
            title=study.title,
            rows=summarise_queries(frame, spec=spec),
            paper=study.paper,
            paper_remark="of its own queries, tools and tokenizer",
            groups="query texts",
            missing=tuple(missing),
            remarks=(
                f"Tokens: {self._counter.name}, counted, not asked for. registry tokens: of tools in the prompt; "
                "prompt tokens: with the fixed prompts and the request. ntilc_with_schema: the schema of the selected "
                "tool too, which writing its arguments takes.",
            ),
            digits=1 if not asked else 4,
        )


def grown(vectors: Vectors, size: int) -> Vectors:
    """(size, d) unit rows: the first tools, and copies of them with noise where there are too few."""
    rows = np.arange(size) % len(vectors)
    found = np.array(vectors[rows], np.float32)
    copies = rows != np.arange(size)
    noise = generator("ntilc registry", size).standard_normal((int(copies.sum()), vectors.shape[1]))
    found[copies] += (_NOISE * noise).astype(np.float32)
    return unit_rows(found)


def latency(times: pd.DataFrame) -> pd.DataFrame:
    """Median and quartiles over the repeats; columns tools, backend, batch, phase, median_ms, q1_ms, q3_ms, repeats."""
    keys = ["tools", "backend", "batch", "phase"]
    groups = times.assign(order=times["phase"].map(list(PHASES).index)).groupby([*keys, "order"], sort=True)["ms"]
    found = groups.quantile(np.array([0.25, 0.5, 0.75])).unstack().reset_index()
    found.columns = [*keys, "order", "q1_ms", "median_ms", "q3_ms"]
    found["repeats"] = groups.size().to_numpy()
    found = found.sort_values(["tools", "order", "batch", "backend"], kind="stable").reset_index(drop=True)
    return found.loc[:, [*keys, "median_ms", "q1_ms", "q3_ms", "repeats"]]


def latency_page(times: pd.DataFrame, *, name: str) -> str:
    """Times as a page."""
    data = _DATA[str(times["data"].iloc[0])]
    shown = times.assign(
        milliseconds=[
            f"{m:.3f} [{a:.3f}, {b:.3f}]"
            for m, a, b in zip(times["median_ms"], times["q1_ms"], times["q3_ms"], strict=True)
        ]
    )
    lost = times.loc[(times["phase"] == PHASES[2]) & times["median_ms"].isna()]
    found = (
        "An added tool is found by the next search in every index." if lost.empty else "An added tool was NOT found."
    )
    words = (
        f"Data: {data}. Selection alone: encoding a batch of requests, then searching the index, apart; median and "
        "quartiles over repeats, wall clock. Registries beyond the library repeat its tools with noise. These are "
        f"measurements: another run gives other numbers. {found}"
    )
    columns = ["tools", "phase", "batch", "backend", "milliseconds", "repeats"]
    return f"# {name}: selection latency\n\n{words}\n\n{shown.loc[:, columns].to_markdown(index=False)}\n"


def draw_latency(times: pd.DataFrame, stem: Path) -> list[Path]:
    """Median time against the number of tools, one line per phase, backend and batch; bars: quartiles."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.0, 3.8), layout="constrained")
    axes = figure.add_subplot()
    drawn = times.loc[times["phase"].isin(PHASES[:2])]
    for i, (_, line) in enumerate(drawn.groupby(["phase", "backend", "batch"], sort=True)):
        phase, backend, batch = line.iloc[0][["phase", "backend", "batch"]]
        place, mid, low, high = (line[c].to_numpy(float) for c in ("tools", "median_ms", "q1_ms", "q3_ms"))
        label = " ".join(word for word in (str(phase), str(backend), f"batch {batch}") if word)
        axes.plot(place, mid, marker="o", markersize=3.5, color=f"C{i % 10}", label=label)
        axes.vlines(place, low, high, color=f"C{i % 10}", alpha=0.5, linewidth=1.0)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_title(f"data: {_DATA[str(times['data'].iloc[0])]}; a measurement", fontsize=9)
    axes.set_xlabel("tools", fontsize=9)
    axes.set_ylabel("median milliseconds, bars: quartiles", fontsize=9)
    axes.legend(fontsize=7)
    return save_figure(figure, stem)


def _size(views: pd.Series) -> pd.Series:
    return views.str.partition(" ")[0].astype(int)

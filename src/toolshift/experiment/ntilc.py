"""``experiment=ntilc``: dispatch to the nearest tool of a whole registry, with and without the Functional-Margin loss.

Per dataset and pooled, on a split by query text and one by held-out tool. Blur pairs are fixed before anything is
trained (spec/ntilc.md section 4, spec/validity.md section 11).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from toolshift.evaluation.mcnemar import mcnemar_rows
from toolshift.evaluation.queries import QuerySpec, summarise_queries
from toolshift.experiment.ntilc_data import (
    JOINT,
    DispatchData,
    Registry,
    blur_frame,
    blur_of,
    registry_facts,
    split_facts,
    split_of,
)
from toolshift.experiment.ntilc_rows import (
    ALL,
    BM25,
    ERRORS,
    FROZEN,
    MEASURES,
    PARTS,
    Fold,
    Recipe,
    curve_frame,
    known_rows,
    query_frame,
)
from toolshift.experiment.study import StudyRun
from toolshift.experiment.tables import Written
from toolshift.models.base import BadParameter
from toolshift.models.ntilc.encoder import NtilcError
from toolshift.models.ntilc.signature import known_compat
from toolshift.models.ntilc.training import NoActivePairs
from toolshift.reporting.study import StudyTable, study_markdown, write_lines, write_study
from toolshift.runs.files import write_text
from toolshift.settings.errors import UserError
from toolshift.settings.schema import Settings

log = logging.getLogger("toolshift")

STEP, BASE = "ntilc", "ntilc_circle"
"""The Functional-Margin step: the first row against the second, alike in all else."""
TOGETHER = "pooled"
POOLED = ("none", "together", JOINT)
"""``together``: the queries of all datasets in one table, each over the registry of its own dataset. ``joint``: also
one registry with the tools of all datasets, and encoders trained on all of them."""
CURVES: Mapping[str, str] = {
    "active_share": "active share",
    "mean_rho": "mean rho",
    "mean_w": "mean w",
    "alignment": "alignment loss",
    "fm": "FM loss",
    "validation_top1": "validation Top-1",
}
DRAWN = ("active_share", "validation_top1")
"""Curves with a figure; all are in the CSV."""
TESTED = ("Top-1", "Blur-Acc")


class NtilcStudy:
    """The study behind ``conf/study/ntilc.yaml`` and ``ntilc_ablation.yaml``.

    Raises:
        UserError: for a row, split, mode or way of pooling that does not exist, or if no dataset is named.
    """

    def __init__(self, settings: Settings) -> None:
        params = settings.study.params
        self.settings, self.params = settings, params
        named = params["real_datasets" if settings.data.source == "real" else "sample_datasets"]
        self.datasets = tuple(sorted(set(named)))
        epochs = {} if params["epochs"] is None else {"epochs": params["epochs"]}
        self.recipes: Mapping[str, Recipe] = {
            name: Recipe.of(name, {**epochs, **(params["trained"][name] or {})}, mode=params["encoder_mode"])
            for name in params["rows"]
            if name in params["trained"]
        }
        known_rows(params["rows"], params["trained"])
        if not self.datasets or params["pooled"] not in POOLED or not params["splits"]:
            raise UserError(
                f"study.params: no dataset or split, or pooled={params['pooled']!r}; expected {', '.join(POOLED)}"
            )
        known_compat(params["compat"], model=settings.name)
        self.data = DispatchData(
            settings=settings, datasets=self.datasets, cap=params["max_queries"], compat=params["compat"]
        )

    @property
    def names(self) -> Sequence[str]:
        """Registries in table order."""
        return (*self.datasets, *((JOINT,) if self.params["pooled"] == JOINT and len(self.datasets) > 1 else ()))

    def inputs(self) -> Mapping[str, str]:
        """Records of every dataset, and the encoder."""
        return self.data.inputs()

    # --- computing ----------------------------------------------------------------------------------------------------

    def compute(self, run: StudyRun) -> None:
        """Blur pairs first, then every row of every fold; one registry is in memory at a time."""
        for name in self.names:
            if not self._wanted(run, name):
                continue
            registry = self.data.registry(name)
            thresholds = {key: float(self.params[key]) for key in ("theta_s", "theta_w", "lexical")}
            frame = run.part(f"blur/{name}", lambda r=registry, t=thresholds: blur_frame(r, **t))
            for fold in self._folds(registry, frame):
                self._rows(run, fold)

    def _wanted(self, run: StudyRun, name: str) -> bool:
        """Whether a part of a registry is missing, so that it has to be read."""
        wanted = [f"blur/{name}"]
        for split in self.params["splits"]:
            fold = f"{name}, split={split}"
            wanted.append(f"facts/{fold}")
            for model, seed in self._runs(split):
                wanted.append(f"rows/{fold}/{model}-{seed}")
        return not set(wanted) <= set(run.parts())

    def _runs(self, split: str) -> Iterator[tuple[str, int]]:
        """(row, seed) of a split; what is learned per tool says nothing of held-out tools."""
        for model in self.params["rows"]:
            recipe = self.recipes.get(model)
            if recipe is None:
                yield model, 0
            elif split == "query" or not recipe.by_prototype:
                yield from ((model, seed) for seed in self.settings.seeds)

    def _folds(self, registry: Registry, frame: pd.DataFrame) -> Iterator[Fold]:
        params = self.params
        for split in params["splits"]:
            yield Fold(
                registry=registry,
                split=split_of(registry, split, share=params["test_share"], seed=params["split_seed"]),
                blur=blur_of(frame, n_tools=registry.n_tools),
                encoder=self.data.cache.encoder,
                mode=params["encoder_mode"],
                index=params["index"],
                device=self.settings.runtime.device,
            )

    def _rows(self, run: StudyRun, fold: Fold) -> None:
        run.part(f"facts/{fold.name}", lambda: self._facts(fold))
        for model, seed in self._runs(fold.split.way):
            name = f"{fold.name}/{model}-{seed}"
            if model in self.recipes:
                run.part(f"rows/{name}", lambda m=model, s=seed: self._trained(run, fold, m, s))
            else:
                run.part(f"rows/{name}", lambda m=model: query_frame(fold, fold.frozen(m), model=m))

    def _facts(self, fold: Fold) -> pd.DataFrame:
        published = self.params["published_pairs"].get(fold.registry.name)
        whole = registry_facts(fold.registry, fold.blur, published=published, theta_w=float(self.params["theta_w"]))
        return pd.concat([whole, split_facts(fold.registry, fold.split, fold.blur)], ignore_index=True)

    def _trained(self, run: StudyRun, fold: Fold, model: str, seed: int) -> pd.DataFrame:
        """Values of a trained row; the curve becomes a part of its own. A training that came to nothing leaves one row
        with the reason (column ``missing``)."""
        try:
            ranking, fitted = fold.trained(self.recipes[model], seed=seed)
        except (NoActivePairs, FloatingPointError, NtilcError, BadParameter) as error:
            log.warning("%s, %s, seed %d is missing: %s", fold.name, model, seed, error)
            keys = {"registry": fold.registry.name, "split": fold.split.way, "model": model, "seed": seed}
            return pd.DataFrame([{**keys, "missing": " ".join(str(error).split())}])
        run.part(f"curve/{fold.name}/{model}-{seed}", lambda: curve_frame(fitted, fold=fold, model=model, seed=seed))
        return query_frame(fold, ranking, model=model, seed=seed)

    # --- reporting ----------------------------------------------------------------------------------------------------

    def report(self, run: StudyRun) -> Written:
        """The table, McNemar's tests, curves, coverage and cases; from the parts alone."""
        frame, missing = self._values(run)
        table = self._table(frame, missing)
        paths = write_study(table, folder=self._folder("tables"))
        name, data = self.settings.name, self.settings.data.source
        tests = _step_tests(frame)
        extra = {"mcnemar": tests, "cases": self._cases(frame), "coverage": _joined(run, "facts").drop_duplicates()}
        curve = _joined(run, "curve")
        if len(curve):
            extra["curve"] = curve
        for kind, content in extra.items():
            text = content.assign(data=data).to_csv(index=False, lineterminator="\n")
            paths.append(write_text(self._folder("tables") / f"{name}_{kind}.csv", text))
        paths.append(write_text(self._folder("tables") / f"{name}_notes.md", self._notes(extra)))
        paths += self._figures(curve) if len(curve) else []
        return Written(paths=tuple(paths), markdown=study_markdown(_whole(table)))

    def _folder(self, name: str) -> Path:
        return Path(self.settings.paths.outputs) / name

    @cached_property
    def _models(self) -> tuple[str, ...]:
        return tuple(self.params["rows"])

    def _values(self, run: StudyRun) -> tuple[pd.DataFrame, tuple[str, ...]]:
        """Per-query values with protocol and view, pooled ones included; and the runs that came to nothing."""
        found = _joined(run, "rows")
        reasons = found["missing"] if "missing" in found else pd.Series(np.nan, index=found.index)
        lost = found.loc[reasons.notna()]
        missing = tuple(
            f"{row['registry']}, split={row['split']}: {row['model']}, seed {row['seed']}: {row['missing']}"
            for row in lost.to_dict("records")
        )
        frame = found.loc[reasons.isna()].drop(columns=["missing"], errors="ignore")
        pool = self._pool(frame)
        out = [name for name in self.datasets if name not in pool] if len(pool) > 1 else []
        missing += tuple(f"{TOGETHER}: without {name}, for which {STEP} or {BASE} has no run" for name in out)
        whole = pd.concat([frame, *self._pooled(frame, pool)], ignore_index=True)
        return whole.assign(protocol=_protocols(whole), view=_views(whole)), missing

    def _pool(self, frame: pd.DataFrame) -> Sequence[str]:
        """Datasets that are pooled: those with the Functional-Margin step, where it is among the rows; a dataset whose
        signatures say nothing would otherwise take the step out of the pooled table."""
        if self.params["pooled"] == "none":
            return ()
        step = [row for row in (STEP, BASE) if row in self._models]
        wanted = len(step) * len(self.settings.seeds) * len(self.params["splits"])
        ran = frame.loc[frame["model"].isin(step), ["registry", "model", "seed", "split"]].drop_duplicates()
        return [name for name in self.datasets if int((ran["registry"] == name).sum()) == wanted]

    def _pooled(self, frame: pd.DataFrame, pool: Sequence[str]) -> list[pd.DataFrame]:
        """The queries of the pool together; a row that misses a dataset is left out, since it would be one of other
        queries."""
        if len(pool) < 2:
            return []
        own = frame.loc[frame["registry"].isin(pool)]
        kept: list[pd.DataFrame] = []
        for _, part in own.groupby(["split", "part"], sort=True):
            wanted = part["registry"].nunique()
            runs = part.groupby(["model", "seed"])["registry"].transform("nunique")
            kept.append(part.loc[runs == wanted])
        return [pd.concat(kept, ignore_index=True).assign(registry=TOGETHER)]

    def _table(self, frame: pd.DataFrame, missing: tuple[str, ...]) -> StudyTable:
        evaluation, study = self.settings.evaluation, self.settings.study
        spec = QuerySpec(
            name=self.settings.name,
            data=self.settings.data.source,
            measures=MEASURES,
            lower_is_better=ERRORS,
            reference=study.reference if study.reference in set(frame["model"]) else None,
            replicates=evaluation.replicates,
            seed=evaluation.seed,
            confidence=evaluation.confidence,
            model_order=self._models,
            view_order=_view_order(frame),
        )
        return StudyTable(
            spec=spec,
            title=study.title,
            rows=summarise_queries(frame, spec=spec),
            paper=study.paper,
            paper_protocols=tuple(p for p in dict.fromkeys(frame["protocol"]) if p.endswith("split=query")),
            paper_remark="of its own queries, registries and, where it says in context, hosted models",
            groups="query texts",
            missing=missing,
            remarks=self._remarks(),
        )

    def _remarks(self) -> tuple[str, ...]:
        params = self.params
        mode = params["encoder_mode"]
        return (
            f"Queries are the datasets' own; encoder_mode={mode}, index={params['index']}, compat={params['compat']}. "
            f"{FROZEN}: raw cosine of the frozen encoder, in place of the paper's 8B embedder. Top-1, Top-5: any gold "
            "tool, over the whole registry. Blur-Acc: Top-1 of queries with a gold tool in a blur pair (w >= "
            f"{params['theta_w']:g}; cosine >= {params['theta_s']:g} or TF-IDF >= {params['lexical']:g}), pairs fixed "
            "before training; Blur-Pair: share of such pairs in which the gold tool scores strictly above its partner. "
            "FE(theta): Top-1 is wrong and w to every gold tool is above theta.",
        )

    def _cases(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Queries that NTILC, or the last trained row, gets wrong in favour of a blur partner, by first seed, and what
        other rows say of them; at most ``study.params.cases`` per protocol, in the order of task ids."""
        present = set(frame["model"])
        model = next((m for m in (STEP, *reversed(list(self.recipes))) if m in present), "")
        whole = frame.loc[(frame["part"] == ALL) & (frame["registry"] != TOGETHER)]
        columns = ["protocol", "task_id", "gold", "predicted", *(f"predicted by {m}" for m in (BASE, FROZEN, BM25))]
        rows: list[dict[str, Any]] = []
        first = whole.groupby(["protocol", "model"])["seed"].transform("min")
        whole = whole.loc[whole["seed"] == first]
        for protocol, part in whole.groupby("protocol", sort=True):
            others = {m: part.loc[part["model"] == m].set_index("task_id")["first"] for m in (BASE, FROZEN, BM25)}
            missed = part.loc[(part["model"] == model) & (part["blur_miss"] == "yes")].sort_values("task_id")
            for row in missed.head(int(self.params["cases"])).to_dict("records"):
                said = {f"predicted by {m}": column.get(row["task_id"], "") for m, column in others.items()}
                keys = {"protocol": protocol, "task_id": row["task_id"], "gold": row["gold"], "predicted": row["first"]}
                rows.append({**keys, **said})
        return pd.DataFrame(rows, columns=columns)

    def _figures(self, curve: pd.DataFrame) -> list[Path]:
        """Line figures of every fold: mean over seeds against the epoch."""
        paths: list[Path] = []
        for _, part in curve.groupby(["registry", "split"], sort=True):
            registry, split = (str(part[key].iloc[0]) for key in ("registry", "split"))
            protocol = f"{registry}, split={split}"
            rows = _curve_rows(part, protocol=protocol, data=self.settings.data.source, models=self._models)
            x = {view: float(view.rpartition(" ")[2]) for view in dict.fromkeys(rows["view"])}
            for column in DRAWN:
                measure = CURVES[column]
                if rows.loc[rows["measure"] == measure, "mean"].notna().any():
                    stem = f"{self.settings.name}_{registry}_{split}_{column}"
                    folder = self._folder("figures")
                    paths += write_lines(rows, name=stem, measure=measure, x=x, x_label="epoch", folder=folder)
        return paths

    def _notes(self, extra: Mapping[str, pd.DataFrame]) -> str:
        """Coverage and McNemar's tests as a page."""
        data = self.settings.data.source
        coverage = extra["coverage"]
        wide = coverage.assign(of=[_of(r, s) for r, s in zip(coverage["registry"], coverage["split"], strict=True)])
        wide = wide.pivot(index="fact", columns="of", values="value").loc[list(dict.fromkeys(coverage["fact"]))]
        wide = wide.loc[:, list(dict.fromkeys([_of(r, s) for r, s in coverage[["registry", "split"]].to_numpy()]))]
        source = "sample (synthetic)" if data == "sample" else data
        head = f"# {self.settings.name}: coverage and tests\n\nData: {source}."
        tests = extra["mcnemar"]
        words = (
            f"Exact McNemar tests of {STEP} against {BASE}, seed by seed. b: queries that only {STEP} gets right, c: "
            f"only {BASE}. The published blur step is one query in 24: read n."
        )
        shown = tests.drop(columns=["model", "reference", "note"], errors="ignore")
        parts = [head, "## Coverage", str(wide.reset_index().to_markdown(index=False, floatfmt=".6g"))]
        printed = str(shown.to_markdown(index=False, floatfmt=".4g")) if len(shown) else "No pair."
        parts += ["## McNemar", words, printed]
        return "\n\n".join(parts) + "\n"


def _whole(table: StudyTable) -> StudyTable:
    """The table without parts of the queries, for the terminal; the rest is in files."""
    return replace(table, rows=table.rows.loc[~table.rows["view"].str.contains(": ")])


def _joined(run: StudyRun, kind: str) -> pd.DataFrame:
    names = [name for name in run.parts() if name.startswith(f"{kind}/")]
    return pd.concat([run.read(name) for name in names], ignore_index=True) if names else pd.DataFrame()


def _of(registry: str, split: str) -> str:
    return f"{registry}, split={split}" if split else registry


def _protocols(frame: pd.DataFrame) -> list[str]:
    return [_of(r, s) for r, s in zip(frame["registry"], frame["split"], strict=True)]


def _views(frame: pd.DataFrame) -> list[str]:
    """The registry names the view too: a paper's value belongs to a view, and differs by dataset."""
    pairs = zip(frame["registry"], frame["part"], strict=True)
    return [registry if part == ALL else f"{registry}: {part}" for registry, part in pairs]


def _view_order(frame: pd.DataFrame) -> tuple[str, ...]:
    seen = frame.assign(place=[PARTS.index(part) for part in frame["part"]])
    ordered = seen.drop_duplicates("view").sort_values(["registry", "place"], kind="stable")
    return tuple(ordered["view"])


def _step_tests(frame: pd.DataFrame) -> pd.DataFrame:
    """McNemar's tests of the Functional-Margin step for seeds that both rows have."""
    both = frame.loc[frame["model"].isin((STEP, BASE))]
    sizes = both.groupby(["protocol", "view", "seed"])["model"].transform("nunique")
    both = both.loc[sizes == 2]
    if both.empty:
        return pd.DataFrame()
    tests = [mcnemar_rows(both, measure=measure, reference=BASE) for measure in TESTED]
    found = pd.concat(tests, ignore_index=True)
    return found.loc[found["n"] > 0].reset_index(drop=True)


def _curve_rows(curve: pd.DataFrame, *, protocol: str, data: str, models: Sequence[str]) -> pd.DataFrame:
    """Tidy rows of a figure: view ``epoch n``, mean and standard deviation over the seeds that got so far."""
    long = curve.melt(id_vars=["model", "seed", "number"], value_vars=list(CURVES), var_name="column")
    stats = long.groupby(["model", "number", "column"], sort=True)["value"].agg(["mean", "std", "count"]).reset_index()
    rows = stats.assign(
        protocol=protocol,
        view=[f"epoch {int(number) + 1}" for number in stats["number"]],
        measure=[CURVES[str(column)] for column in stats["column"]],
        mean_ci_low=np.nan,
        mean_ci_high=np.nan,
        n_tasks=0,
        n_groups=0,
        data=data,
        order=[models.index(str(model)) for model in stats["model"]],
    )
    return rows.sort_values(["order", "number", "measure"], kind="stable").reset_index(drop=True)

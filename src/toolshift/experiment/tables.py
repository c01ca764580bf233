"""Tables of an experiment, rebuilt from finished run folders alone: no model, no data set, no encoder is opened."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

from toolshift.evaluation.aggregate import Analysis, TableSpec, analyse, gain_over_strongest, per_target, summarise
from toolshift.measures import expected_random
from toolshift.reporting.artefacts import control_rows, mark_artefacts, write_artefacts
from toolshift.reporting.forest import write_forest
from toolshift.reporting.markdown import to_markdown
from toolshift.reporting.tidy import blocks
from toolshift.reporting.writer import write_table
from toolshift.runs.files import read_json
from toolshift.runs.ledger import RunFolder, ledger
from toolshift.settings.options import load_table_spec
from toolshift.settings.schema import Settings

log = logging.getLogger("toolshift")

RANDOM_EXPECTED = "random_expected"
FOREST_MEASURE = "NDCG@5"
TASK_SLICES = ("name_free", "no_partial_schema")


@dataclass(frozen=True, kw_only=True)
class DoneRun:
    """A finished run and the cell of the table it fills."""

    folder: RunFolder
    model: str
    family: str
    universe: str
    miner: str
    purge: str
    data: str


def done_runs(outputs: Path, experiment: str, *, family: str | None = None) -> list[DoneRun]:
    """Finished runs of an experiment, sorted by folder; ``family`` keeps those of one table."""
    found = []
    for name, folder, state in ledger(outputs):
        if name != experiment or state != "done":
            continue
        record = read_json(folder.path / "run.json")
        run = DoneRun(
            folder=folder, model=record["model"], family=record["family"], data=record["data"], **record["variant"]
        )
        if family is None or run.family == family:
            found.append(run)
    return found


def table_spec(settings: Settings, *, models: Sequence[str]) -> TableSpec:
    """What the experiment's table tests, from its settings and ``conf/tables/<name>.yaml``."""
    table, evaluation = load_table_spec(settings.name), settings.evaluation
    return TableSpec(
        name=settings.name,
        data=settings.data.source,
        measures=tuple(evaluation.measures),
        reference=settings.reference,
        replicates=evaluation.replicates,
        seed=evaluation.seed,
        confidence=evaluation.confidence,
        min_targets_two_level=table.min_targets,
        min_tasks=evaluation.min_tasks,
        holm_family=table.holm_family,
        power=table.power,
        selection=settings.selection.name,
        ties=evaluation.ties,
        model_order=(RANDOM_EXPECTED, *models),
        view_order=tuple(settings.view.views),
    )


def per_task_frame(runs: Sequence[DoneRun], *, measures: Sequence[str], slices: Sequence[str]) -> pd.DataFrame:
    """Per-task values of all runs with the columns of a table block; task-level slices become rows of their own.

    The row ``random_expected`` is the closed-form expectation of a random ranking of the same lists.
    """
    frames = []
    for run in runs:
        whole = _read(run, "per_task.parquet")
        frames.append(whole.assign(slice="all"))
        frames += [whole[whole[name]].assign(slice=name) for name in TASK_SLICES if name in slices]
        if (run.folder.path / "per_task_slices.parquet").exists():
            frames.append(_read(run, "per_task_slices.parquet"))
    frame = pd.concat(frames, ignore_index=True)
    return pd.concat([frame, _random_expected(frame, measures=measures)], ignore_index=True)


def _read(run: DoneRun, name: str) -> pd.DataFrame:
    frame = pq.read_table(run.folder.path / name).to_pandas()
    return frame.assign(universe=run.universe, miner=run.miner, purge=run.purge)


def _random_expected(frame: pd.DataFrame, *, measures: Sequence[str]) -> pd.DataFrame:
    keys = ["protocol", "universe", "miner", "purge", "slice", "target", "view", "task_id"]
    lists = frame.drop_duplicates(keys).reset_index(drop=True)
    chance = expected_random(lists["n_candidates"].to_numpy(), lists["n_gold"].to_numpy(), measures=list(measures))
    values = {name: chance.values[name] for name in measures}
    return lists.assign(model=RANDOM_EXPECTED, seed=0, tied=np.zeros(len(lists), bool), **values)


@dataclass(frozen=True, kw_only=True)
class Written:
    """What a table stage wrote, and the Markdown of its main part: the configured universe and miner, slice ``all``."""

    paths: tuple[Path, ...]
    markdown: str


def build_tables(settings: Settings, runs: Sequence[DoneRun]) -> Written:
    """Write table, artefact page and forest plots of the given runs below ``outputs/``."""
    order = {name: i for i, name in enumerate(settings.models)}
    runs = sorted(runs, key=lambda r: (order.get(r.model, len(order)), r.model, r.universe, r.miner, r.purge))
    models = list(dict.fromkeys(r.model for r in runs))
    spec = table_spec(settings, models=models)
    frame = per_task_frame(runs, measures=spec.measures, slices=settings.evaluation.slices)
    analysis = analyse(frame, spec=spec)
    table = load_table_spec(settings.name)
    tidy = mark_artefacts(summarise(analysis, spec=spec), table=table)
    gains = gain_over_strongest(analysis, spec=spec)
    outputs = Path(settings.paths.outputs)
    paths = write_table(tidy, spec=spec, folder=outputs / "tables", gains=gains)
    statistics = pd.concat([pd.read_csv(r.folder.path / "artefacts.csv", keep_default_na=False) for r in runs])
    controls = control_rows(tidy, table=table)
    paths += write_artefacts(statistics.drop_duplicates(), controls, data=spec.data, folder=outputs / "tables")
    paths += _forests(analysis, tidy, settings=settings, spec=spec)
    main = {"universe": settings.view.universe, "miner": settings.view.miner, "slice": "all"}
    drawn = blocks(_only(tidy, main), gains=_only(gains, main))
    return Written(paths=tuple(paths), markdown=to_markdown(drawn, spec=spec))


def _forests(analysis: Analysis, tidy: pd.DataFrame, *, settings: Settings, spec: TableSpec) -> list[Path]:
    """One forest plot per view of the best row that is neither the reference nor a closed form, main variant."""
    purges = list(dict.fromkeys(tidy["purge"]))
    block = {
        "universe": settings.view.universe,
        "miner": settings.view.miner,
        "purge": "gold" if "gold" in purges else purges[0],
        "slice": "all",
    }
    measure = FOREST_MEASURE if FOREST_MEASURE in spec.measures else spec.measures[0]
    rows = _only(tidy, {**block, "measure": measure})
    rows = rows[~rows["model"].isin([spec.reference, RANDOM_EXPECTED])]
    if rows.empty:
        return []
    best = rows.groupby("model", sort=True)["mean"].mean().idxmax()
    targets = _only(per_target(analysis, spec=spec), block)
    folder = Path(settings.paths.outputs) / "figures"
    return write_forest(targets, tidy=tidy, name=f"{spec.name}_forest", measure=measure, model=str(best), folder=folder)


def _only(frame: pd.DataFrame, wanted: Mapping[str, str]) -> pd.DataFrame:
    keep = np.ones(len(frame), bool)
    for column, value in wanted.items():
        keep &= (frame[column] == value).to_numpy()
    return frame[keep]

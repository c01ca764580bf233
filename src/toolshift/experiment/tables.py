"""Tables of an experiment, rebuilt from finished run folders alone: no model, no data set, no encoder is opened."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from toolshift.evaluation.activity import STAGE_FOLDER
from toolshift.evaluation.aggregate import Analysis, TableSpec, analyse, gain_over_strongest, per_target, summarise
from toolshift.evaluation.chance import chance_distance
from toolshift.experiment.activity import activity_frame, stage_frame
from toolshift.experiment.finished import DoneRun, budget_text, not_converged_text, variant_text
from toolshift.experiment.finished import done_runs as done_runs
from toolshift.experiment.plan import axes_of
from toolshift.experiment.resume import package_fingerprint
from toolshift.measures import expected_random
from toolshift.reporting.activity import activity_page, mark_inactive, stages_page, write_activity
from toolshift.reporting.artefacts import artefact_page, control_rows, mark_artefacts, write_artefacts
from toolshift.reporting.forest import write_forest
from toolshift.reporting.markdown import to_markdown
from toolshift.reporting.targets import target_rows, targets_page, write_targets
from toolshift.reporting.tidy import blocks, paper_remark, with_note, with_paper
from toolshift.reporting.writer import write_table
from toolshift.runs.files import read_json, sha256_file, stable_hash, write_json
from toolshift.settings.axes import expand_axes
from toolshift.settings.options import conf_folder, load_table_spec, model_names
from toolshift.settings.schema import Settings
from toolshift.settings.tree import as_mapping

log = logging.getLogger("toolshift")

RANDOM_EXPECTED = "random_expected"
FOREST_MEASURE = "NDCG@5"
TASK_SLICES = ("name_free", "no_partial_schema")


def _texts(settings: Settings) -> str:
    """Encoder, capability text and limits, for captions."""
    options = ", ".join(f"{key}={value}" for key, value in sorted(settings.dataset.options.items()))
    limits = f"; limited by debug={settings.debug.name}" if settings.debug.name != "none" else ""
    world = f", world {settings.data.world}" if settings.data.source == "sample" else ""
    several = "+".join(settings.protocol.dataset_names)
    texts = f"Datasets {several}{world}" if several else f"Dataset {settings.dataset.name}{world} ({options})"
    cap = settings.protocol.max_source_tasks
    capped = "" if cap is None else f", at most {cap} source tasks per context"
    return f"{texts}, encoder {settings.encoder.name}{capped}{limits}"


def selection_text(settings: Settings, runs: Sequence[DoneRun]) -> str:
    """The selection rule, and for trained rows the budget they were made with, all of its caps, for captions."""
    budgets: dict[str, dict[str, None]] = {}
    for run in runs:
        if run.selected:
            budgets.setdefault(budget_text(run), {})[run.model] = None
    trained = [f"trained rows ({', '.join(models)}): {budget}" for budget, models in budgets.items()]
    return "; ".join([settings.selection.name, *trained])


def missing_runs(settings: Settings, runs: Sequence[DoneRun], *, fixed: Sequence[str]) -> list[str]:
    """Runs of the experiment that are not done: model and variant. fixed: axes that keep their one value."""
    done = {(run.model, run.universe, run.miner, run.purge) for run in runs}
    return [
        f"{name} ({variant_text((variant.view.universe, variant.view.miner, variant.protocol.cut))})"
        for variant in expand_axes(settings, fixed)
        for name in variant.models
        if (name, variant.view.universe, variant.view.miner, variant.protocol.cut) not in done
    ]


def missing_paper_rows(settings: Settings, runs: Sequence[DoneRun]) -> list[str]:
    """Rows that a paper prints beside a part of this real table and that have no run there, each with what makes it."""
    paper = load_table_spec(settings.name).paper
    variant = (paper.universe, paper.miner, paper.purge)
    present = {run.model for run in runs if run.variant == variant}
    if settings.data.source != "real" or not present:
        return []
    known = model_names(conf_folder())
    wanted = sorted({value.model for value in paper.values} - present)
    return [
        f"{name} ({variant_text(variant)}), a row of the paper: {_paper_command(name, settings, variant, known=known)}"
        for name in wanted
    ]


def _paper_command(name: str, settings: Settings, variant: tuple[str, str, str], *, known: Sequence[str]) -> str:
    if name not in known:
        return f"there is no conf/model/{name}.yaml yet"
    axes = [f"{axis}={value}" for axis, value in axes_of(*variant).items()]
    command = ["python", "scripts/train.py", f"experiment={settings.name}", "data=real", "data.root=PATH"]
    return shlex.join([*command, f"model={name}", *axes])


def table_spec(
    settings: Settings, *, models: Sequence[str], missing: Sequence[str] = (), runs: Sequence[DoneRun] = ()
) -> TableSpec:
    """What the experiment's table tests, from its settings and ``conf/tables/<name>.yaml``.

    models: rows in their order. runs: the caption states the selection budget if one of them is of a trained row.
    """
    table, evaluation = load_table_spec(settings.name), settings.evaluation
    remark = paper_remark(table.paper, data=settings.data.source)
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
        selection=selection_text(settings, runs),
        ties=evaluation.ties,
        title=table.title,
        texts=_texts(settings),
        missing=tuple(missing),
        remarks=(remark,) if remark else (),
        model_order=(RANDOM_EXPECTED, *models),
        view_order=tuple(settings.view.views),
    )


def per_task_frame(runs: Sequence[DoneRun], *, measures: Sequence[str], slices: Sequence[str]) -> pd.DataFrame:
    """Per-task values of all scored cells with the columns of a table block; slices are rows of their own.

    Texts are dictionary-encoded: a table of eight variants has some ten million rows. The row ``random_expected`` is
    the closed-form expectation of a random ranking of the same lists.
    """
    tables: list[pa.Table] = []
    variants: set[tuple[str, str, str]] = set()
    for run in runs:
        parts = list(_parts(run, measures=measures, slices=slices))
        variant = (run.universe, run.miner, run.purge)
        if variant not in variants:
            variants.add(variant)
            parts += [_chance(part, measures=measures) for part in parts]
        tables += [part.drop_columns(LIST_COLUMNS) for part in parts]
    names = tables[0].column_names
    whole = pa.concat_tables(part.select(names) for part in tables).unify_dictionaries()
    tables.clear()  # from here on one copy
    return whole.to_pandas(split_blocks=True, self_destruct=True)


LIST_COLUMNS = ["n_candidates", "n_gold"]


def _parts(run: DoneRun, *, measures: Sequence[str], slices: Sequence[str]) -> Iterator[pa.Table]:
    """The rows of one run: whole lists, task-level slices of them, list-level slices as the run wrote them."""
    texts = ["protocol", "target", "view", "task_id", "model"]
    columns = [*texts, "seed", *LIST_COLUMNS, "tied", *measures, "scored"]
    whole = _read(run, "per_task.parquet", columns=[*columns, *TASK_SLICES], texts=texts)
    plain = whole.drop_columns(list(TASK_SLICES))
    yield _with_constant(plain, "slice", "all")
    for name in TASK_SLICES:
        if name in slices:
            yield _with_constant(plain.filter(whole[name]), "slice", name)
    if (run.folder.path / "per_task_slices.parquet").exists():
        yield _read(run, "per_task_slices.parquet", columns=[*columns, "slice"], texts=[*texts, "slice"])


def _read(run: DoneRun, name: str, *, columns: Sequence[str], texts: Sequence[str]) -> pa.Table:
    table = pq.read_table(run.folder.path / name, columns=list(columns), read_dictionary=list(texts))
    table = table.filter(table["scored"])
    for key in ("universe", "miner", "purge"):
        table = _with_constant(table, key, getattr(run, key))
    # Files whose texts were stored as a pandas type carry it in their schema, which would not concatenate.
    return table.replace_schema_metadata(None)


def _with_constant(table: pa.Table, column: str, value: str) -> pa.Table:
    codes = pa.array(np.zeros(table.num_rows, np.int32))
    return table.append_column(column, pa.DictionaryArray.from_arrays(codes, pa.array([value], pa.string())))


def _chance(lists: pa.Table, *, measures: Sequence[str]) -> pa.Table:
    """The closed form in place of a model's values, one row per list."""
    seed = lists["seed"].to_numpy()
    first = lists.filter(pa.array(seed == (seed.min() if seed.size else 0)))
    sizes = [first[name].to_numpy() for name in LIST_COLUMNS]
    chance = expected_random(*sizes, measures=list(measures))
    columns: dict[str, pa.Array] = {
        "model": pa.DictionaryArray.from_arrays(
            pa.array(np.zeros(first.num_rows, np.int32)), pa.array([RANDOM_EXPECTED], pa.string())
        ),
        "seed": pa.array(np.zeros(first.num_rows, np.int64)),
        "tied": pa.array(np.zeros(first.num_rows, bool)),
        **{name: pa.array(chance.values[name]) for name in measures},
    }
    for name, values in columns.items():
        first = first.set_column(first.schema.get_field_index(name), name, values)
    return first.select(lists.column_names)


@dataclass(frozen=True, kw_only=True)
class Written:
    """What a table stage wrote, and the Markdown of its main part: the configured universe and miner, slice ``all``."""

    paths: tuple[Path, ...]
    markdown: str


def build_tables(
    settings: Settings, runs: Sequence[DoneRun], *, fixed: Sequence[str] = (), reuse: bool = False
) -> Written:
    """Write table, artefact page and forest plots of the given runs below ``outputs/``.

    fixed: keys of the command line; an axis among them keeps its one value, so no other run of it is missed.
    reuse: leave the files alone where the same runs, settings and code made them and nobody changed them since.
    """
    outputs = Path(settings.paths.outputs)
    stamp = outputs / "tables" / f".{settings.name}.json"
    missing = missing_runs(settings, runs, fixed=fixed)
    missing += missing_paper_rows(settings, runs)
    digest = _digest(settings, runs, missing=missing)
    if reuse and (known := _still_whole(stamp, digest)):
        log.info("table %s is up to date", settings.name)
        return known
    for name in ("tables", "figures"):
        for left in (outputs / name).glob(".*.tmp"):  # of a killed process: whoever writes tables holds their lock
            left.unlink(missing_ok=True)
    written = _build(settings, runs, missing=missing)
    files = {str(path): sha256_file(path) for path in written.paths}
    write_json(stamp, {"digest": digest, "files": files, "markdown": written.markdown})
    return written


def _digest(settings: Settings, runs: Sequence[DoneRun], *, missing: Sequence[str]) -> str:
    """Hash of all that a table follows from: per-task values, settings, table file and code."""
    inputs = ("per_task.parquet", "per_task_slices.parquet", "artefacts.csv", "run.json")
    values = {
        run.folder.path.name: [
            *(sha256_file(p) for p in (run.folder.path / n for n in inputs) if p.exists()),
            # Per-task values follow from the scores; that they are still there, and whole, is what is left to know.
            *([p.parent.name, p.name, p.stat().st_size] for p in sorted(run.folder.path.glob("scores/*/*.parquet"))),
            *([p.parent.name, sha256_file(p)] for p in sorted(run.folder.path.glob(f"{STAGE_FOLDER}/*/*.json"))),
        ]
        for run in runs
    }
    plain = [as_mapping(settings), as_mapping(load_table_spec(settings.name))]
    plain.append({"order": [list(settings.models), list(settings.view.views)]})  # a mapping has none in a hash
    return stable_hash([package_fingerprint(), plain, values, list(missing)])


def _still_whole(stamp: Path, digest: str) -> Written | None:
    """What an earlier build wrote, if it is the same build and its files are as it left them."""
    try:
        known = read_json(stamp)
        if known["digest"] != digest:
            return None
        paths = tuple(Path(p) for p in known["files"])
        whole = all(p.is_file() and sha256_file(p) == known["files"][str(p)] for p in paths)
        return Written(paths=paths, markdown=known["markdown"]) if whole else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _build(settings: Settings, runs: Sequence[DoneRun], *, missing: Sequence[str]) -> Written:
    order = {name: i for i, name in enumerate(settings.models)}
    runs = sorted(runs, key=lambda r: (order.get(r.model, len(order)), r.model, *r.variant))
    models = list(dict.fromkeys(r.model for r in runs))
    spec = table_spec(settings, models=models, missing=missing, runs=runs)
    moved = activity_frame(runs, spec=spec, protocol=settings.protocol.name)
    stages = stage_frame(runs, spec=spec, protocol=settings.protocol.name)
    analysis = analyse(per_task_frame(runs, measures=spec.measures, slices=settings.evaluation.slices), spec=spec)
    table = load_table_spec(settings.name)
    tidy = mark_artefacts(summarise(analysis, spec=spec), table=table)
    tidy = mark_inactive(mark_not_converged(tidy, runs), moved)
    gains = gain_over_strongest(analysis, spec=spec)
    outputs = Path(settings.paths.outputs)
    printed = with_paper(tidy, table.paper)
    paths = write_table(printed, spec=spec, folder=outputs / "tables", gains=gains)
    paths += write_activity(moved, name=spec.name, folder=outputs / "tables", stages=stages)
    pages = [pd.read_csv(r.folder.path / "artefacts.csv", keep_default_na=False) for r in runs]
    statistics = pd.concat(pages).drop_duplicates()
    chance = chance_distance(analysis, model="random", chance=RANDOM_EXPECTED)
    controls = control_rows(tidy, table=table, chance=chance)
    paths += write_artefacts(statistics, controls, data=spec.data, name=spec.name, folder=outputs / "tables")
    paths += _forests(analysis, tidy, settings=settings, spec=spec)
    main = {"universe": settings.view.universe, "miner": settings.view.miner, "slice": "all"}
    drawn = blocks(_only(printed, main), gains=_only(gains, main))
    shown = {key: main[key] for key in ("universe", "miner")}
    page = artefact_page(_only(statistics, shown), _only(controls, shown), data=spec.data)
    conditional = "within_targets" in analysis.schemes
    single = _few_targets(runs, spec=spec, conditional=conditional, only=shown, folder=outputs / "tables", paths=paths)
    pages = [to_markdown(drawn, spec=spec), *single, page]
    pages.append(activity_page(_only(moved.loc[moved["settings"] != "", :], shown)))  # all rows are in the file
    pages.append(stages_page(_only(stages, shown)))
    return Written(paths=tuple(paths), markdown="\n".join(page for page in pages if page))


def _few_targets(
    runs: Sequence[DoneRun],
    *,
    spec: TableSpec,
    conditional: bool,
    only: Mapping[str, str],
    folder: Path,
    paths: list[Path],
) -> Iterator[str]:
    """Where some comparison is conditional on its few targets, every target's values: files in ``folder``, which are
    added to ``paths``, and a page of one variant."""
    frames = [
        pd.read_csv(
            run.folder.path / "metrics.csv", keep_default_na=False, na_values={"value": [""]}, dtype={"target": str}
        ).assign(universe=run.universe, miner=run.miner, purge=run.purge)
        for run in runs
    ]
    if not conditional:
        return
    metrics = pd.concat(frames, ignore_index=True)
    rows = target_rows(metrics, spec=spec)
    paths += write_targets(rows, spec=spec, folder=folder)
    yield targets_page(_only(rows, only), spec=spec)


def mark_not_converged(tidy: pd.DataFrame, runs: Sequence[DoneRun]) -> pd.DataFrame:
    """The results table with ``not converged (k of n fits)`` in the note of every row with unfinished fits."""
    for run in runs:
        text = not_converged_text(run)
        if text:
            wanted = {"universe": run.universe, "miner": run.miner, "purge": run.purge, "model": run.model}
            tidy = with_note(tidy, _where(tidy, wanted), text)
    return tidy


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
    rows = rows.loc[~rows["model"].isin([spec.reference, RANDOM_EXPECTED]), :]
    if rows.empty:
        return []
    means = {name: rows.loc[rows["model"] == name, "mean"].mean() for name in sorted(set(rows["model"]))}
    best = max(means, key=lambda name: means[name])
    targets = per_target(analysis, spec=spec, only={**block, "model": best})
    folder = Path(settings.paths.outputs) / "figures"
    return write_forest(targets, tidy=tidy, name=f"{spec.name}_forest", measure=measure, model=best, folder=folder)


def _only(frame: pd.DataFrame, wanted: Mapping[str, str]) -> pd.DataFrame:
    return frame.loc[_where(frame, wanted), :]


def _where(frame: pd.DataFrame, wanted: Mapping[str, str]) -> NDArray[np.bool_]:
    """(n,) rows that have all the values of ``wanted``."""
    keep = np.ones(len(frame), bool)
    for column, value in wanted.items():
        keep &= (frame[column] == value).to_numpy(bool)
    return keep

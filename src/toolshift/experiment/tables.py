"""Tables of an experiment, rebuilt from finished run folders alone: no model, no data set, no encoder is opened."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from toolshift.evaluation.aggregate import Analysis, TableSpec, analyse, gain_over_strongest, per_target, summarise
from toolshift.evaluation.chance import chance_distance
from toolshift.experiment.resume import package_fingerprint
from toolshift.measures import expected_random
from toolshift.reporting.artefacts import artefact_page, control_rows, mark_artefacts, write_artefacts
from toolshift.reporting.forest import write_forest
from toolshift.reporting.markdown import to_markdown
from toolshift.reporting.tidy import blocks
from toolshift.reporting.writer import write_table
from toolshift.runs.files import read_json, sha256_file, stable_hash, write_json
from toolshift.runs.ledger import RunFolder, ledger
from toolshift.settings.axes import expand_axes
from toolshift.settings.options import load_table_spec
from toolshift.settings.schema import Settings
from toolshift.settings.tree import as_mapping

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
        if not (folder.path / "run.json").is_file():
            continue  # somebody took a file away: no run to read, and `make status` shows what is there
        record = read_json(folder.path / "run.json")
        run = DoneRun(
            folder=folder, model=record["model"], family=record["family"], data=record["data"], **record["variant"]
        )
        if family is None or run.family == family:
            found.append(run)
    return found


def _texts(settings: Settings) -> str:
    """Encoder, capability text and limits, for captions."""
    options = ", ".join(f"{key}={value}" for key, value in sorted(settings.dataset.options.items()))
    limits = f"; limited by debug={settings.debug.name}" if settings.debug.name != "none" else ""
    world = f", world {settings.data.world}" if settings.data.source == "sample" else ""
    return f"Dataset {settings.dataset.name}{world} ({options}), encoder {settings.encoder.name}{limits}"


def missing_runs(settings: Settings, runs: Sequence[DoneRun], *, fixed: Sequence[str]) -> list[str]:
    """Runs of the experiment that are not done: model and variant. fixed: axes that keep their one value."""
    done = {(run.model, run.universe, run.miner, run.purge) for run in runs}
    return [
        f"{name} (universe {variant.view.universe}, miner {variant.view.miner}, purge {variant.protocol.purge})"
        for variant in expand_axes(settings, fixed)
        for name in variant.models
        if (name, variant.view.universe, variant.view.miner, variant.protocol.purge) not in done
    ]


def table_spec(settings: Settings, *, models: Sequence[str], missing: Sequence[str] = ()) -> TableSpec:
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
        texts=_texts(settings),
        missing=tuple(missing),
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
    stamp = Path(settings.paths.outputs) / "tables" / f".{settings.name}.json"
    missing = missing_runs(settings, runs, fixed=fixed)
    digest = _digest(settings, runs, missing=missing)
    if reuse and (known := _still_whole(stamp, digest)):
        log.info("table %s is up to date", settings.name)
        return known
    written = _build(settings, runs, missing=missing)
    files = {str(path): sha256_file(path) for path in written.paths}
    write_json(stamp, {"digest": digest, "files": files, "markdown": written.markdown})
    return written


def _digest(settings: Settings, runs: Sequence[DoneRun], *, missing: Sequence[str]) -> str:
    """Hash of all that a table follows from: per-task values, settings, table file and code."""
    inputs = ("per_task.parquet", "per_task_slices.parquet", "artefacts.csv", "run.json")
    values = {
        run.folder.path.name: [sha256_file(p) for p in (run.folder.path / n for n in inputs) if p.exists()]
        for run in runs
    }
    plain = [as_mapping(settings), as_mapping(load_table_spec(settings.name))]
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
    runs = sorted(runs, key=lambda r: (order.get(r.model, len(order)), r.model, r.universe, r.miner, r.purge))
    models = list(dict.fromkeys(r.model for r in runs))
    spec = table_spec(settings, models=models, missing=missing)
    analysis = analyse(per_task_frame(runs, measures=spec.measures, slices=settings.evaluation.slices), spec=spec)
    table = load_table_spec(settings.name)
    tidy = mark_artefacts(summarise(analysis, spec=spec), table=table)
    gains = gain_over_strongest(analysis, spec=spec)
    outputs = Path(settings.paths.outputs)
    paths = write_table(tidy, spec=spec, folder=outputs / "tables", gains=gains)
    pages = [pd.read_csv(r.folder.path / "artefacts.csv", keep_default_na=False) for r in runs]
    statistics = pd.concat(pages).drop_duplicates()
    chance = chance_distance(analysis, model="random", chance=RANDOM_EXPECTED)
    controls = control_rows(tidy, table=table, chance=chance)
    paths += write_artefacts(statistics, controls, data=spec.data, folder=outputs / "tables")
    paths += _forests(analysis, tidy, settings=settings, spec=spec)
    main = {"universe": settings.view.universe, "miner": settings.view.miner, "slice": "all"}
    drawn = blocks(_only(tidy, main), gains=_only(gains, main))
    shown = {key: main[key] for key in ("universe", "miner")}
    page = artefact_page(_only(statistics, shown), _only(controls, shown), data=spec.data)
    return Written(paths=tuple(paths), markdown=f"{to_markdown(drawn, spec=spec)}\n{page}")


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
    keep = np.ones(len(frame), bool)
    for column, value in wanted.items():
        keep &= (frame[column] == value).to_numpy()
    return frame.loc[keep, :]

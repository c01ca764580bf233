"""The entry behind ``scripts/null_worlds.py``: does a method gain where there is nothing to gain?

One part of a method, present in ``full`` and absent in ``without``, is tried on worlds where it has something to learn
from (``default``) and on worlds where it has not, over many world seeds. In the null worlds the 95 % interval of its
gain has to contain 0 in at least 18 of 20 seeds, and where the part has a strength, 0 has to be its modal choice
(spec/validity.md section 9).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from toolshift.evaluation.aggregate import analyse, summarise
from toolshift.experiment.finished import DoneRun, done_runs
from toolshift.experiment.main import execute_missing, log_to_stderr, say
from toolshift.experiment.tables import per_task_frame, table_spec
from toolshift.runs.files import write_text
from toolshift.settings.axes import with_value
from toolshift.settings.errors import UserError
from toolshift.settings.launch import Launch
from toolshift.settings.schema import Settings

DEFAULT = "default"
WORLD_SEEDS = 20
MEASURE = "NDCG@5"
ENOUGH = 0.9
"""Share of world seeds whose interval must contain 0 for a null to hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part of a method: rows with and without it, and the worlds that take away what it learns from. strength: the
    key of its strength among the selected settings; empty where it has none."""

    name: str
    full: str
    without: str
    nulls: tuple[str, ...]
    strength: str = ""


ENDPOINTS = Part(name="endpoint evidence", full="blend", without="blend_without_endpoints", nulls=("no_function_gap",))
FUNCTIONAL = Part(
    name="functional validation",
    full="tact",
    without="tact_without_functional",
    nulls=("no_function_gap",),
    strength="beta_functional",
)
CONTEXTUAL = Part(
    name="contextual validation",
    full="tact",
    without="tact_without_contextual",
    nulls=("no_context_gap", "context_is_noise", "popularity_only"),
    strength="beta_contextual",
)
PARTS = (ENDPOINTS, FUNCTIONAL, CONTEXTUAL)


def null_worlds(launch: Launch) -> int:
    """Run every world and seed that is not done, write ``<name>_seeds.csv`` and ``.md``, print the summary.

    Looked at is every part of ``PARTS`` whose two rows are among the models. Returns 1 if a null does not hold in some
    view.

    Raises:
        UserError: for real data, or where the rows of no part are among the models.
    """
    log_to_stderr()
    settings = launch.settings
    if settings.data.source != "sample":
        raise UserError("null worlds are generated; run with data=sample")
    parts = parts_of(settings)
    rows = [row for world in worlds(settings, fixed=launch.overridden_keys) for row in _gains(world, parts, launch)]
    frame = pd.DataFrame(rows)
    summaries = [summarise_gains(frame.loc[frame["part"] == part.name], part=part) for part in parts]
    text = "\n".join(page(summary, part=part) for summary, part in zip(summaries, parts, strict=True))
    folder = Path(settings.paths.outputs) / "tables"
    written = [
        write_text(folder / f"{settings.name}_seeds.csv", frame.to_csv(index=False, lineterminator="\n")),
        write_text(folder / f"{settings.name}_seeds.md", text),
    ]
    print(text)
    say("wrote " + ", ".join(str(path) for path in written))
    return 0 if all(summary["holds"].dropna().all() for summary in summaries) else 1


def parts_of(settings: Settings) -> tuple[Part, ...]:
    """The parts whose rows are both among the models.

    Raises:
        UserError: if there is none.
    """
    found = tuple(part for part in PARTS if {part.full, part.without} <= set(settings.models))
    if not found:
        pairs = "; ".join(f"{part.without} and {part.full}" for part in PARTS)
        raise UserError(f"the rows of a part are needed ({pairs}): leave model=... to the experiment's file")
    return found


def worlds(settings: Settings, *, fixed: Sequence[str] = ()) -> Iterator[Settings]:
    """Settings of every world and seed; a key that the command line fixes keeps its value. ``debug=tiny``: 2 seeds."""
    count = WORLD_SEEDS if settings.debug.name == "none" else 2
    nulls = {null: None for part in parts_of(settings) for null in part.nulls}
    names = (settings.data.world,) if "data.world" in fixed else (DEFAULT, *nulls)
    seeds = (settings.data.sample_seed,) if "data.sample_seed" in fixed else tuple(range(count))
    for seed in seeds:  # worlds of a seed share nearly all texts, and so their embeddings
        for name in names:
            yield with_value(with_value(settings, "data.world", name), "data.sample_seed", seed)


def _gains(settings: Settings, parts: Sequence[Part], launch: Launch) -> Iterator[dict[str, object]]:
    """The gain of every part in each view of one world, with how often each strength was selected for its full row."""
    say(f"world {settings.data.world}, seed {settings.data.sample_seed}")
    runs, failed = execute_missing(settings, overridden_keys=launch.overridden_keys, command=launch.command)
    if failed:
        raise UserError(f"{failed[0].model.name} failed; see {failed[0].folder.path}")
    wanted = {run.folder.path for run in runs}
    every = [run for run in done_runs(Path(settings.paths.outputs), settings.name) if run.folder.path in wanted]
    for part in parts:
        done = [run for run in every if run.model in (part.full, part.without)]
        compared = replace(settings, reference=part.without)
        spec = table_spec(compared, models=[part.without, part.full], missing=[])
        values = per_task_frame(done, measures=spec.measures, slices=settings.evaluation.slices)
        tidy = summarise(analyse(values, spec=spec), spec=spec)
        rows = tidy.loc[(tidy["model"] == part.full) & (tidy["measure"] == MEASURE) & (tidy["slice"] == "all")]
        strengths = _strengths([run for run in done if run.model == part.full], part)
        for row in rows.itertuples():
            yield {
                "part": part.name,
                "world": settings.data.world,
                "sample_seed": settings.data.sample_seed,
                "purge": row.purge,
                "view": row.view,
                "model": part.full,
                "reference": part.without,
                "measure": MEASURE,
                "mean": row.mean,
                "delta": row.delta,
                "ci_low": row.ci_low,
                "ci_high": row.ci_high,
                "n_targets": row.n_targets,
                "n_tasks": row.n_tasks,
                "strengths": json.dumps(strengths, sort_keys=True),
            }


def _strengths(runs: Sequence[DoneRun], part: Part) -> dict[str, int]:
    """Strength of a part -> targets that selected it, over the runs."""
    count: Counter[str] = Counter()
    for run in runs if part.strength else ():
        for setting, targets in run.selected.items():
            count[str(json.loads(setting)[part.strength])] += targets
    return dict(sorted(count.items()))


def summarise_gains(gains: pd.DataFrame, *, part: Part) -> pd.DataFrame:
    """Per world, purge and view: seeds whose interval contains 0, lies above and lies below it, the mean gain, and the
    modal strength over seeds and targets (empty for a part without one).

    ``holds``: in a null world, whether enough intervals contain 0 and the modal strength is 0; empty elsewhere.
    """
    above, below = gains["ci_low"] > 0, gains["ci_high"] < 0
    frame = gains.assign(above=above, below=below, contains_0=~above & ~below)
    groups = frame.groupby(["world", "purge", "view"], sort=True)
    found = groups.agg(
        seeds=("delta", "size"),
        mean_delta=("delta", "mean"),
        contains_0=("contains_0", "sum"),
        above=("above", "sum"),
        below=("below", "sum"),
        modal_strength=("strengths", _modal),
    ).reset_index()
    enough = found["contains_0"] >= ENOUGH * found["seeds"]
    silent = np.array([not strength or float(strength) == 0 for strength in found["modal_strength"]], bool)
    return found.assign(holds=(enough & silent).where(found["world"].isin(part.nulls)))


def _modal(strengths: pd.Series) -> str:
    """The strength that most targets selected, over seeds; of equally frequent ones the smallest."""
    count: Counter[str] = Counter()
    for text in strengths:
        count.update(json.loads(text))
    return min(count, key=lambda strength: (-count[strength], float(strength))) if count else ""


def page(summary: pd.DataFrame, *, part: Part) -> str:
    """The summary as Markdown."""
    shown = summary.assign(
        mean_delta=[f"{100 * value:+.2f}" for value in summary["mean_delta"]],
        holds=["" if pd.isna(value) else "yes" if value else "NO" for value in summary["holds"]],
    ).rename(
        columns={
            "mean_delta": "mean gain (pp)",
            "contains_0": "interval contains 0",
            "modal_strength": "modal strength",
            "holds": "null holds",
        }
    )
    silent = " and 0 has to be the strength that most targets select" if part.strength else ""
    head = (
        f"# Null worlds: {part.name}\n\nGain of {part.full} over {part.without} in {MEASURE}, 95 % intervals, "
        f"data: sample (synthetic). In {', '.join(part.nulls)} there is nothing to gain: at least {100 * ENOUGH:.0f} % "
        f"of the intervals have to contain 0{silent}. The other worlds show that the gain is found where there is "
        "one.\n"
    )
    return f"{head}\n{shown.to_markdown(index=False)}\n"

"""The entry behind ``scripts/null_worlds.py``: does a method gain where there is nothing to gain?

One part of a method, present in ``full`` and absent in ``without``, is tried on worlds where it has something to learn
from (``default``) and on worlds where it has not, over many world seeds. In the null worlds the 95 % interval of its
gain has to contain 0 in at least 18 of 20 seeds (spec/validity.md section 9).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from toolshift.evaluation.aggregate import analyse, summarise
from toolshift.experiment.finished import done_runs
from toolshift.experiment.main import execute_missing, log_to_stderr, say
from toolshift.experiment.tables import per_task_frame, table_spec
from toolshift.runs.files import write_text
from toolshift.settings.axes import with_value
from toolshift.settings.errors import UserError
from toolshift.settings.launch import Launch
from toolshift.settings.schema import Settings

WORLDS = ("default", "no_function_gap")
WORLD_SEEDS = 20
MEASURE = "NDCG@5"
ENOUGH = 0.9
"""Share of world seeds whose interval must contain 0 for a null to hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part of a method: rows with and without it, and the world that takes away what it learns from."""

    name: str
    full: str
    without: str
    null: str


ENDPOINTS = Part(name="endpoint evidence", full="blend", without="blend_without_endpoints", null="no_function_gap")


def null_worlds(launch: Launch) -> int:
    """Run every world and seed that is not done, write ``null_worlds_seeds.csv`` and ``.md``, print the summary.

    Returns 1 if the null does not hold in some view.

    Raises:
        UserError: for real data, or where the rows of the part are not among the models.
    """
    log_to_stderr()
    settings, part = launch.settings, ENDPOINTS
    if settings.data.source != "sample":
        raise UserError("null worlds are generated; run with data=sample")
    if not {part.full, part.without} <= set(settings.models):
        raise UserError(
            f"the rows {part.without} and {part.full} are needed: leave model=... to experiment=null_worlds"
        )
    rows = [row for world in worlds(settings, fixed=launch.overridden_keys) for row in _gains(world, part, launch)]
    frame = pd.DataFrame(rows)
    summary = summarise_gains(frame, part=part)
    folder = Path(settings.paths.outputs) / "tables"
    written = [
        write_text(folder / "null_worlds_seeds.csv", frame.to_csv(index=False, lineterminator="\n")),
        write_text(folder / "null_worlds_seeds.md", page(summary, part=part)),
    ]
    print(page(summary, part=part))
    say("wrote " + ", ".join(str(path) for path in written))
    return 0 if summary.loc[summary["world"] == part.null, "holds"].all() else 1


def worlds(settings: Settings, *, fixed: Sequence[str] = ()) -> Iterator[Settings]:
    """Settings of every world and seed; a key that the command line fixes keeps its value. ``debug=tiny``: 2 seeds."""
    count = WORLD_SEEDS if settings.debug.name == "none" else 2
    names = (settings.data.world,) if "data.world" in fixed else WORLDS
    seeds = (settings.data.sample_seed,) if "data.sample_seed" in fixed else tuple(range(count))
    for seed in seeds:  # worlds of a seed share nearly all texts, and so their embeddings
        for name in names:
            yield with_value(with_value(settings, "data.world", name), "data.sample_seed", seed)


def _gains(settings: Settings, part: Part, launch: Launch) -> Iterator[dict[str, object]]:
    """The gain of a part in each view of one world."""
    say(f"world {settings.data.world}, seed {settings.data.sample_seed}")
    runs, failed = execute_missing(settings, overridden_keys=launch.overridden_keys, command=launch.command)
    if failed:
        raise UserError(f"{failed[0].model.name} failed; see {failed[0].folder.path}")
    wanted = {run.folder.path for run in runs if run.model.name in (part.full, part.without)}
    done = [run for run in done_runs(Path(settings.paths.outputs), settings.name) if run.folder.path in wanted]
    spec = table_spec(settings, models=[part.without, part.full], missing=[])
    values = per_task_frame(done, measures=spec.measures, slices=settings.evaluation.slices)
    tidy = summarise(analyse(values, spec=spec), spec=spec)
    rows = tidy.loc[(tidy["model"] == part.full) & (tidy["measure"] == MEASURE) & (tidy["slice"] == "all")]
    for row in rows.itertuples():
        yield {
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
        }


def summarise_gains(gains: pd.DataFrame, *, part: Part) -> pd.DataFrame:
    """Per world, purge and view: seeds whose interval contains 0, lies above and lies below it, and the mean gain.

    ``holds``: in the null world, whether enough intervals contain 0; empty elsewhere.
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
    ).reset_index()
    enough = found["contains_0"] >= ENOUGH * found["seeds"]
    return found.assign(holds=enough.where(found["world"] == part.null))


def page(summary: pd.DataFrame, *, part: Part) -> str:
    """The summary as Markdown."""
    shown = summary.assign(
        mean_delta=[f"{100 * value:+.2f}" for value in summary["mean_delta"]],
        holds=["" if pd.isna(value) else "yes" if value else "NO" for value in summary["holds"]],
    ).rename(columns={"mean_delta": "mean gain (pp)", "contains_0": "interval contains 0", "holds": "null holds"})
    head = (
        f"# Null worlds: {part.name}\n\nGain of {part.full} over {part.without} in {MEASURE}, 95 % intervals, "
        f"data: sample (synthetic). In world {part.null} there is nothing to gain: at least {100 * ENOUGH:.0f} % of "
        "the intervals have to contain 0. The other worlds show that the gain is found where there is one.\n"
    )
    return f"{head}\n{shown.to_markdown(index=False)}\n"

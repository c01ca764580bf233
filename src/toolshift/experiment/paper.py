"""The entry behind ``make paper``: what every table still lacks, at which cost, and every table rebuilt from its runs.

No run is started, and no data set, encoder or model is opened.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from toolshift.experiment.families import Family, agrees, families, family_settings, table_runs
from toolshift.experiment.finished import DoneRun, done_runs
from toolshift.experiment.main import log_to_stderr, say
from toolshift.experiment.plan import axes_of, variant_name
from toolshift.experiment.rebuild import command_of, origin, rebuild_family
from toolshift.settings.axes import expand_axes
from toolshift.settings.compose import load_settings
from toolshift.settings.errors import UserError
from toolshift.settings.launch import Launch
from toolshift.settings.options import conf_folder, groups, load_table_spec, model_names, option_body, table_names
from toolshift.settings.schema import Settings

NEVER_RUN = "unknown: never run here"


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """A row of a table in one variant. ``run`` is the finished run; without one, ``command`` makes it.

    seconds: what the run took, or is estimated to take; None where nothing is known. basis: what an estimate rests on.
    """

    model: str
    variant: str
    run: DoneRun | None
    command: str
    seconds: float | None
    basis: str


def paper(launch: Launch) -> int:
    """List the runs of every table of ``conf/tables`` (``experiment=...``: of that one), there and missing, and rebuild
    every table that has runs.

    Shown is the newest family that agrees with the command line, one on real data before any on the sample. Returns 1
    if a table was not made.
    """
    log_to_stderr()
    written: list[Path] = []
    unmade: list[str] = []
    names = [launch.settings.name] if "experiment" in launch.overridden_keys else all_tables()
    for name in names:
        try:
            made = _table(name, launch)
        except UserError as error:
            say(f"{name}: {error}")
            made = []
        written += made
        unmade += [] if made else [name]
    if unmade:
        say(f"not made: {', '.join(unmade)}")
    say("wrote " + ", ".join(str(path) for path in written) if written else "wrote nothing")
    return 1 if unmade else 0


def all_tables() -> list[str]:
    """Tables of ``conf/tables`` and of the experiments that are studies, sorted."""
    return sorted({*table_names(), *(name for name in groups(conf_folder())["experiment"] if is_study(name))})


def is_study(name: str) -> bool:
    """Whether an experiment's file asks for a study."""
    defaults = (option_body(conf_folder(), "experiment", name) or {}).get("defaults", ())
    return any("override /study" in entry for entry in defaults)


def _table(name: str, launch: Launch) -> list[Path]:
    if name not in groups(conf_folder())["experiment"]:
        raise UserError(f"there is no conf/experiment/{name}.yaml that makes runs for conf/tables/{name}.yaml")
    if is_study(name):
        from toolshift.experiment.study import rebuild_study

        made = rebuild_study(load_settings("train", [f"experiment={name}", *launch.overrides]), launch)
        return list(made.paths) if made else []
    preset = load_table_spec(name).rows
    rows = (f"model={preset}",) if preset and "model" not in launch.overridden_keys else ()
    composed = load_settings("train", [f"experiment={name}", *rows, *launch.overrides])
    if composed.multiverse.choices:
        from toolshift.experiment.multiverse import rebuild_multiverse  # which reads this module

        built = rebuild_multiverse(composed, launch)
        return list(built.paths) if built else []
    outputs = Path(composed.paths.outputs)
    family = choose(families(outputs, name), composed, launch=launch)
    settings = composed
    try:
        settings = family_settings(composed, family) if family else composed
    except UserError as error:
        say(f"{name}: {error}")
        family = None
    title = f"family {family.name} of {family.at:%Y-%m-%d %H:%M}" if family else "no finished run to draw it from"
    say(f"table {name} (data: {settings.data.source}): {title}")
    for line in lines(needs(settings, family, launch=launch, known=done_runs(outputs, name))):
        say(f"  {line}")
    for line in _still_to_come(name):
        say(f"  {line}")
    made = rebuild_family(settings, family, launch=launch, reuse=True) if family else None
    return list(made.paths) if made else []


def choose(found: Sequence[Family], settings: Settings, *, launch: Launch) -> Family | None:
    """The newest of the families that agree with the command line; real data first, then runs without limits."""

    def rank(family: Family) -> tuple[bool, bool]:
        return family.identity["data"]["source"] == "real", family.identity["debug"]["name"] == "none"

    # Stable: families come newest first, and stay so among equals.
    fitting = sorted((f for f in found if agrees(f, settings, keys=launch.overridden_keys)), key=rank, reverse=True)
    return fitting[0] if fitting else None


def needs(settings: Settings, family: Family | None, *, launch: Launch, known: Sequence[DoneRun]) -> list[Need]:
    """Every (variant, model) of a table, variants slowest. known: finished runs that estimates may rest on."""
    runs = table_runs(family.runs, settings) if family else []
    done = {(run.model, *run.variant): run for run in runs}
    comparable = [run for run in known if run.data == settings.data.source]
    told: Mapping[str, str] = origin(family, launch, settings.name) if family else {}
    found: list[Need] = []
    for variant in expand_axes(settings, launch.overridden_keys):
        cell = (variant.view.universe, variant.view.miner, variant.protocol.cut)
        for model in variant.models:
            run = done.get((model, *cell))
            seconds, basis = (run.wall_s, "") if run else estimate(model, cell, family=family, known=comparable)
            chosen = {**axes_of(*cell), "model": model}
            command = command_of(launch, settings.name, {**told, **chosen})
            found.append(
                Need(model=model, variant=variant_name(variant), run=run, command=command, seconds=seconds, basis=basis)
            )
    return found


def estimate(
    model: str, cell: tuple[str, str, str], *, family: Family | None, known: Sequence[DoneRun]
) -> tuple[float | None, str]:
    """(seconds, basis) from the finished runs of the same model that are most like the one asked for.

    Runs of one command share their time, so that each one's is an upper bound of what it takes alone.
    """
    timed = [run for run in known if run.model == model and run.wall_s is not None]
    own = [run for run in timed if family is not None and run.family == family.name]
    kinds = {
        "of the same lists": [run for run in own if run.variant[:2] == cell[:2]],
        "of other variants": own,
        "made with other settings": timed,
    }
    for kind, runs in kinds.items():
        if runs:
            return median(run.wall_s for run in runs if run.wall_s is not None), f"{len(runs)} finished {kind}"
    return None, NEVER_RUN


def lines(found: Sequence[Need]) -> Iterator[str]:
    """One line per run that is there, two per missing one, and the sum."""
    for need in found:
        if need.run is not None:
            took = "" if need.seconds is None else f", took {duration(need.seconds)}"
            yield f"there    {need.model} ({need.variant}){took}"
    missing = [need for need in found if need.run is None]
    for need in missing:
        cost = need.basis if need.seconds is None else f"about {duration(need.seconds)}, from {need.basis}"
        yield f"missing  {need.model} ({need.variant}); cost {cost}"
        yield f"    {need.command}"
    known = [need.seconds for need in missing if need.seconds is not None]
    costs = [f"about {duration(sum(known))} for {len(known)} of them"] if known else []
    costs += [f"unknown for {len(missing) - len(known)}"] if len(known) < len(missing) else []
    yield f"{len(found) - len(missing)} runs there, {len(missing)} missing" + (f": {', '.join(costs)}" if costs else "")


def duration(seconds: float) -> str:
    """``40 s``, ``3 min``, ``1.5 h``."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _still_to_come(name: str) -> Iterator[str]:
    """Rows that a paper prints and that no model file stands for."""
    known = model_names(conf_folder())
    for model in sorted({value.model for value in load_table_spec(name).paper.values} - set(known)):
        yield f"missing  {model} (a row of the paper): there is no conf/model/{model}.yaml yet"

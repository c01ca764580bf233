"""``experiment=multiverse``: the headline gains under each open choice, one changed at a time.

Every choice is an ordinary experiment: its runs lie in ordinary run folders, and rows that a choice leaves as they are
have the run of the default. The tables are drawn from finished runs alone (spec/validity.md section 8).
"""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

import pandas as pd

from toolshift.evaluation.aggregate import Analysis, TableSpec, analyse, summarise
from toolshift.experiment.families import Family, agrees, families
from toolshift.experiment.finished import DoneRun, done_runs
from toolshift.experiment.main import changes, execute_missing, for_terminal, log_to_stderr, say, track_runs
from toolshift.experiment.paper import choose
from toolshift.experiment.plan import PlannedRun, plan_runs
from toolshift.experiment.rebuild import origin
from toolshift.experiment.tables import RANDOM_EXPECTED, Written, per_task_frame, table_spec
from toolshift.reporting.multiverse import Gain, hole, to_markdown, with_survival, write_multiverse
from toolshift.runs.devices import claim
from toolshift.runs.environment import peak_rss_mb
from toolshift.runs.locks import exclusive
from toolshift.runs.ranks import World
from toolshift.settings.axes import with_value
from toolshift.settings.checks import problems
from toolshift.settings.compose import load_settings, parse_overrides
from toolshift.settings.errors import ConfigError, UserError, is_user_facing
from toolshift.settings.launch import Launch, overridden_keys
from toolshift.settings.nearest import suggestion
from toolshift.settings.options import conf_folder, groups, load_table_spec
from toolshift.settings.schema import Settings

DEFAULT = "default"
"""The choice that changes nothing; always made, since every other one is held against it."""
MEASURE = "NDCG@5"
NOT_SCORED = "no scored cell"


@dataclass(frozen=True, kw_only=True)
class Choice:
    """One open choice. overrides: as on a command line, without patterns. settings: what they make of the launch's."""

    name: str
    overrides: tuple[str, ...]
    settings: Settings


@dataclass(frozen=True, kw_only=True)
class Made:
    """A choice and the runs that it asks for, finished or not."""

    choice: Choice
    runs: tuple[PlannedRun, ...]


def multiverse(launch: Launch) -> int:
    """Run what is missing of every choice, write the tables and the figure. Returns 1 if a run of a choice is missing.

    A choice that fails is a hole in the table and does not stop the others, unless ``runtime.on_error=stop``.

    Raises:
        ConfigError: for a choice that names what does not exist, before anything is run.
        UserError: under torchrun, or where the experiment has other axes or lacks the row.
    """
    start = time.monotonic()
    log_to_stderr()
    if World.of(os.environ).size > 1:
        raise UserError("the multiverse runs in one process; start it without torchrun")
    choices = choices_of(launch)
    claim(launch.settings.runtime.device, job=launch.job)
    for line in changes(launch.settings):
        if not line.startswith("  multiverse."):
            say(line)
    made = [_run(choice, launch, number=i, of=len(choices)) for i, choice in enumerate(choices, start=1)]
    written = build_multiverse(made, launch)
    runs = {run.folder.path: run for one in made for run in one.runs}
    track_runs(launch.settings, list(runs.values()), tables=written.paths)
    _print(written)
    say(f"{time.monotonic() - start:.1f} s, peak memory {peak_rss_mb():.0f} MiB")
    return 0 if all(run.is_done for run in runs.values()) else 1


def rebuild_multiverse(composed: Settings, launch: Launch) -> Written | None:
    """Tables and figure from finished runs alone: those of the newest family that agrees with the command line, real
    data first; None, and a word to the user, where there is none. Holes are told with the commands that make them."""
    outputs = Path(composed.paths.outputs)
    found = [f for f in families(outputs, composed.name) if agrees(f, composed, keys=launch.overridden_keys)]
    family = choose(found, composed, launch=launch)
    if family is None:
        say(f"{composed.name}: no finished run that agrees with this command; make one:")
        say(f"  {command_of(launch, composed.name)}")
        return None
    launch = _as_made(composed, launch, family)
    made = [Made(choice=one, runs=tuple(_planned(one, found))) for one in choices_of(launch)]
    written = build_multiverse(made, launch)
    _print(written)
    return written


def _print(written: Written) -> None:
    print(for_terminal(written.markdown))
    say("wrote " + ", ".join(str(path) for path in written.paths))


# --- choices --------------------------------------------------------------------------------------------------------


def choices_of(launch: Launch) -> list[Choice]:
    """The default, then the choices that the protocol has and ``multiverse.only`` asks for, in the order of the config.

    A choice wins over the command line where both set a key.

    Raises:
        ConfigError: every misspelled name, key and value of all choices.
        UserError: if there are axes to compare, or ``multiverse.row`` or the measure is not there.
    """
    settings = launch.settings
    _refuse(settings)
    found, made = list(_name_problems(settings)), list[Choice]()
    asked, protocol = settings.multiverse.only, settings.protocol.name
    for name, overrides in {DEFAULT: (), **settings.multiverse.choices}.items():
        if protocol not in settings.multiverse.protocols.get(name, (protocol,)):
            continue
        if asked and name not in (DEFAULT, *asked):
            continue
        try:
            made.append(_choice(name, overrides, launch))
        except ConfigError as error:
            found += [f"multiverse.choices.{name}: {problem}" for problem in error.problems]
    if found:
        raise ConfigError(found)
    return made


def _refuse(settings: Settings) -> None:
    row = settings.multiverse.row
    load_table_spec(settings.name)  # without a table it is refused before its runs, not after them
    if settings.compare:
        raise UserError(
            f"the multiverse changes one thing at a time; fix {', '.join(settings.compare)}, without compare"
        )
    if row is None or row not in settings.models or len(settings.models) < 2:
        raise UserError(f"multiverse.row: {row} and a row to compare it with are needed among {list(settings.models)}")
    if MEASURE not in settings.evaluation.measures:
        raise UserError(f"evaluation.measures: the multiverse is drawn in {MEASURE}; add it")


def _name_problems(settings: Settings) -> Iterator[str]:
    """Names of choices and protocols that do not exist."""
    known, protocols = [DEFAULT, *settings.multiverse.choices], groups(conf_folder())["protocol"]
    if DEFAULT in settings.multiverse.choices:
        yield f"multiverse.choices.{DEFAULT}: the default changes nothing; give the choice another name"
    for name in settings.multiverse.only:
        if name not in known:
            yield f"multiverse.only: no choice {name!r}{suggestion(name, known)}"
        elif settings.protocol.name not in settings.multiverse.protocols.get(name, (settings.protocol.name,)):
            yield f"multiverse.only: {name} is no choice of protocol={settings.protocol.name}"
    for name, having in settings.multiverse.protocols.items():
        if name not in known:
            yield f"multiverse.protocols.{name}: no such choice{suggestion(name, known)}"
        for protocol in having:
            if protocol not in protocols:
                yield f"multiverse.protocols.{name}: no protocol {protocol!r}{suggestion(protocol, protocols)}"


def _choice(name: str, overrides: Sequence[str], launch: Launch) -> Choice:
    plain = [each for override in overrides for each in _without_pattern(override, launch.settings.models)]
    return Choice(name=name, overrides=tuple(plain), settings=_changed(plain, launch))


def _without_pattern(override: str, models: Mapping[str, object]) -> list[str]:
    """``models.tact*.params.x=1`` as one override per row that it names.

    Raises:
        ConfigError: if it names none.
    """
    head, _, rest = override.removeprefix("models.").partition(".")
    if not override.startswith("models.") or "*" not in head:
        return [override]
    named = [name for name in models if fnmatchcase(name, head)]
    if not named:
        raise ConfigError(f"{override}: none of the rows {', '.join(models)} is a {head}")
    return [f"models.{name}.{rest}" for name in named]


def _changed(overrides: Sequence[str], launch: Launch) -> Settings:
    """The launch's settings with ``overrides``; composed anew only where one of them exchanges a group's option."""
    parsed, settings = parse_overrides(overrides), launch.settings
    if any(each.key_or_group in groups(conf_folder()) for each in parsed):
        keys = overridden_keys(overrides)
        return load_settings("train", [*_kept(launch, settings.name, without=keys), *overrides])
    for each in parsed:
        settings = with_value(settings, each.key_or_group, each.value())
    if found := problems(settings, folder=conf_folder()):
        raise ConfigError(found)
    return settings


def _kept(launch: Launch, name: str, *, without: Sequence[str] = ()) -> list[str]:
    """The overrides of a launch of the experiment ``name``, except some keys."""
    kept = [o for o in launch.overrides if _key(o) not in {"experiment", *without}]
    return [f"experiment={name}", *kept]


def _key(override: str) -> str:
    return override.lstrip("+~").split("=")[0]


def command_of(launch: Launch, name: str, choice: str | None = None) -> str:
    """The command that makes a choice, or all: the user's own, without the places of this machine's data."""
    kept = _kept(launch, name, without=["multiverse.only", "data.cache"])
    kept = ["data.root=PATH" if _key(o) == "data.root" else o for o in kept]
    return shlex.join(["python", "scripts/train.py", *kept, *([f"multiverse.only=[{choice}]"] if choice else [])])


# --- runs -----------------------------------------------------------------------------------------------------------


def _run(choice: Choice, launch: Launch, *, number: int, of: int) -> Made:
    """Do what is missing of a choice; what fails stays missing."""
    say(f"choice {number} of {of}, {choice.name}: {', '.join(choice.overrides) or 'nothing changed'}")
    try:
        runs, failed = execute_missing(choice.settings, overridden_keys=(), command=launch.command)
    except Exception as error:
        if choice.settings.runtime.on_error == "stop" or choice.name == DEFAULT or not is_user_facing(error):
            raise
        say(f"  not made: {error}")
        return Made(choice=choice, runs=tuple(plan_runs(choice.settings, overridden_keys=(), fingerprints={})))
    for run in failed:
        say(f"  failed: {run.model.name}; see {run.folder.path}")
    return Made(choice=choice, runs=tuple(runs))


def _planned(choice: Choice, found: Sequence[Family]) -> list[PlannedRun]:
    """The runs of a choice in the newest family that is of its settings; none of them is done where there is none.

    A family's name is the hash of its settings and of the fingerprints of its data, which are read from its runs.
    """
    for family in found:
        runs = plan_runs(choice.settings, overridden_keys=(), fingerprints=family.identity["fingerprints"])
        if runs[0].family == family.name:
            return runs
    return plan_runs(choice.settings, overridden_keys=(), fingerprints={})


def _as_made(composed: Settings, launch: Launch, family: Family) -> Launch:
    """A launch that tells what the command line left open as the family has it, except what a choice changes."""
    varied = {_key(o) for overrides in composed.multiverse.choices.values() for o in overrides}
    told = {
        key: value
        for key, value in origin(family, launch, composed.name).items()
        if not any(key == each or key.startswith(f"{each}.") for each in varied)
    }
    overrides = (*_kept(launch, composed.name, without=list(told)), *(f"{k}={v}" for k, v in told.items()))
    settings = load_settings("train", overrides) if told else composed
    return replace(launch, settings=settings, overrides=overrides, overridden_keys=overridden_keys(overrides))


# --- tables ---------------------------------------------------------------------------------------------------------


def build_multiverse(made: Sequence[Made], launch: Launch) -> Written:
    """Write the tables and the figure from the finished ones among the runs; the default comes first in ``made``."""
    settings = launch.settings
    outputs, name = Path(settings.paths.outputs), settings.name
    with exclusive(outputs / "tables" / ".lock"):
        known = {run.folder.path: run for run in done_runs(outputs, name)}
        done = [_done(one.runs, known) for one in made]
        gains = [
            gain
            for one, runs in zip(made, done, strict=True)
            for gain in _gains(one.choice, runs, command=command_of(launch, name, one.choice.name))
        ]
        gains = with_survival(gains, default=DEFAULT)
        caption = _caption(made[0].choice.settings, done[0])
        paths = write_multiverse(gains, name=name, default=DEFAULT, caption=caption, outputs=outputs)
    return Written(paths=tuple(paths), markdown=to_markdown(gains, name=name, default=DEFAULT, caption=caption))


def _done(runs: Sequence[PlannedRun], known: Mapping[Path, DoneRun]) -> list[DoneRun]:
    """The finished ones, in the order of the rows."""
    return [known[run.folder.path] for run in runs if run.is_done and run.folder.path in known]


def _caption(settings: Settings, runs: Sequence[DoneRun]) -> str:
    spec = _spec(settings, runs)
    data = "sample (synthetic)" if spec.data == "sample" else spec.data
    return (
        f"{load_table_spec(settings.name).title}. Gain of {settings.multiverse.row} over each row in {MEASURE}, "
        f"percentage points, {100 * spec.confidence:g} % intervals of the transfer bootstrap ({spec.replicates} "
        f"replicates, seed {spec.seed}; fewer than {spec.min_targets_two_level} targets stay fixed, and intervals are "
        f"then conditional on these datasets). One choice changed at a time, all else as in {DEFAULT}. A gain survives "
        f"if its sign and the order of the gains are those of {DEFAULT} under every choice. {spec.texts}; selection: "
        f"{spec.selection}; data: {data}."
    )


def _spec(settings: Settings, runs: Sequence[DoneRun]) -> TableSpec:
    spec = table_spec(settings, models=list(settings.models), runs=runs)
    return replace(spec, measures=(MEASURE,))


def _gains(choice: Choice, runs: Sequence[DoneRun], *, command: str) -> Iterator[Gain]:
    """The gains of one choice, views slowest; a comparison without one of its runs is a hole."""
    settings, there = choice.settings, {run.model for run in runs}
    row = str(settings.multiverse.row)
    results = dict(_compared(settings, runs, row=row)) if row in there else {}
    for view in settings.view.views:
        for reference in (name for name in settings.models if name != row):
            empty = _empty(choice, view=view, reference=reference)
            done = reference in results
            yield _filled(empty, results[reference]) if done else hole(empty, command=command)


def _empty(choice: Choice, *, view: str, reference: str) -> Gain:
    """A comparison before its numbers."""
    settings = choice.settings
    return Gain(
        protocol=settings.protocol.name,
        universe=settings.view.universe,
        miner=settings.view.miner,
        purge=settings.protocol.cut,
        choice=choice.name,
        changes=" ".join(choice.overrides),
        view=view,
        measure=MEASURE,
        model=str(settings.multiverse.row),
        reference=reference,
        data=settings.data.source,
    )


def _compared(settings: Settings, runs: Sequence[DoneRun], *, row: str) -> Iterator[tuple[str, pd.DataFrame]]:
    """(reference, its results table) for every other row; one resample serves them all."""
    spec = _spec(settings, runs)
    values = per_task_frame(runs, measures=spec.measures, slices=("all",))
    values = values.loc[(values["slice"] == "all") & (values["model"] != RANDOM_EXPECTED)]
    analysis: Analysis | None = None
    for reference in (run.model for run in runs if run.model != row):
        against = replace(spec, reference=reference)
        analysis = analyse(values, spec=against) if analysis is None else replace(analysis, spec=against)
        yield reference, summarise(analysis, spec=against)


def _filled(empty: Gain, tidy: pd.DataFrame) -> Gain:
    """The comparison with the numbers of its view in a results table against its reference."""
    here = tidy.loc[tidy["view"] == empty.view]
    found = {str(row.model): row for row in here.itertuples()}
    if not {empty.model, empty.reference} <= set(found):
        return replace(empty, note=NOT_SCORED)
    gain, reference = found[empty.model], found[empty.reference]
    return replace(
        empty,
        mean=gain.mean,
        reference_mean=reference.mean,
        delta=gain.delta,
        ci_low=gain.ci_low,
        ci_high=gain.ci_high,
        n_targets=gain.n_targets,
        n_tasks=gain.n_tasks,
        note=gain.note,
    )

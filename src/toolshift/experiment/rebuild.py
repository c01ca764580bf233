"""The entry behind ``scripts/make_tables.py``: tables from finished runs; no data set, encoder or model is opened."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

from toolshift.experiment.families import Family, agrees, families, family_settings, table_runs
from toolshift.experiment.finished import DoneRun
from toolshift.experiment.main import for_terminal, log_to_stderr, say
from toolshift.experiment.plan import TABLE_AXES, axes_of, variant_name
from toolshift.experiment.tables import Written, build_tables
from toolshift.runs.ledger import ledger
from toolshift.runs.locks import exclusive
from toolshift.settings.axes import expand_axes
from toolshift.settings.compose import load_settings
from toolshift.settings.launch import Launch
from toolshift.settings.options import conf_folder, groups
from toolshift.settings.schema import Settings
from toolshift.settings.tree import ABSENT, difference


def rebuild(launch: Launch) -> int:
    """Rebuild the table of ``experiment=...``, or of every experiment that has a run. Returns the exit status.

    Shown is the newest family of runs that agrees with every key of the command line. 1 if an experiment has no such
    family, or none of its runs is of the reference; what else is missing is listed with the command that makes it.
    """
    log_to_stderr()
    outputs = Path(launch.settings.paths.outputs)
    if "experiment" in launch.overridden_keys:
        return _rebuild_one(launch.settings, launch)
    known = groups(conf_folder())["experiment"]
    names = [name for name in sorted({name for name, _, _ in ledger(outputs)}) if name in known]
    if not names:
        say(f"no finished runs below {outputs / 'runs'}; for example: python scripts/train.py experiment=lodo")
        return 1
    codes = [_rebuild_one(load_settings("train", [f"experiment={n}", *launch.overrides]), launch) for n in names]
    return max(codes)


def _rebuild_one(composed: Settings, launch: Launch) -> int:
    if composed.study.target:
        from toolshift.experiment.study import rebuild_study  # which reads this module

        return 0 if rebuild_study(composed, launch) else 1
    if composed.multiverse.choices:
        from toolshift.experiment.multiverse import rebuild_multiverse  # which reads this module

        return 0 if rebuild_multiverse(composed, launch) else 1
    outputs = Path(composed.paths.outputs)
    found = [f for f in families(outputs, composed.name) if agrees(f, composed, keys=launch.overridden_keys)]
    if not found:
        say(f"{composed.name}: no finished run that agrees with this command; make one:")
        say(f"  {command_of(launch, composed.name, {})}")
        return 1
    family = found[0]
    settings = family_settings(composed, family)
    say(f"{composed.name}: family {family.name} of {family.at:%Y-%m-%d %H:%M}, {len(found) - 1} older ones not shown")
    for line in missing(settings, table_runs(family.runs, settings), family=family, launch=launch):
        say(line)
    written = rebuild_family(settings, family, launch=launch)
    if written is None:
        return 1
    print(for_terminal(written.markdown))
    say("wrote " + ", ".join(str(path) for path in written.paths))
    return 0


def rebuild_family(settings: Settings, family: Family, *, launch: Launch, reuse: bool = False) -> Written | None:
    """Write the table of a family from its runs; None, and a word to the user, where the reference has no run.

    reuse: see `experiment.tables.build_tables`.
    """
    runs = table_runs(family.runs, settings)
    if not any(run.model == settings.reference for run in runs):
        say(f"{settings.name}: no table: the reference {settings.reference} has no finished run")
        return None
    with exclusive(Path(settings.paths.outputs) / "tables" / ".lock"):  # jobs of a sweep write the same files
        return build_tables(settings, runs, fixed=launch.overridden_keys, reuse=reuse)


def missing(settings: Settings, runs: Sequence[DoneRun], *, family: Family, launch: Launch) -> list[str]:
    """Two lines per variant with holes: the models without a finished run, and the command that makes them."""
    done = {(run.model, run.universe, run.miner, run.purge) for run in runs}
    lines: list[str] = []
    told: dict[str, str] | None = None
    for variant in expand_axes(settings, launch.overridden_keys):
        cell = (variant.view.universe, variant.view.miner, variant.protocol.cut)
        holes = [name for name in variant.models if (name, *cell) not in done]
        if holes:
            chosen: dict[str, str] = axes_of(*cell)
            if len(holes) < len(variant.models):
                chosen["model"] = f"[{','.join(holes)}]"
            told = origin(family, launch, settings.name) if told is None else told
            lines.append(f"missing ({variant_name(variant)}): {', '.join(holes)}")
            lines.append(f"  {command_of(launch, settings.name, {**told, **chosen})}")
    return lines


def origin(family: Family, launch: Launch, experiment: str) -> dict[str, str]:
    """Keys and values that tell the family from what the command line alone would make; table axes left out."""
    groups: dict[str, str] = {}
    if family.identity["debug"]["name"] != "none":
        groups["debug"] = family.identity["debug"]["name"]
    if family.identity["data"]["source"] == "real":
        groups |= {"data": "real", "data.root": "PATH"}
    groups = {key: value for key, value in groups.items() if key not in launch.overridden_keys}
    given = [*launch.overrides, *(f"{key}={value}" for key, value in groups.items())]
    composed = load_settings("train", [f"experiment={experiment}", *given])
    found = difference(family_settings(composed, family), composed)
    return groups | {d.key: _written(d.value) for d in found if d.key not in TABLE_AXES and _is_plain(d.value)}


def _is_plain(value: object) -> bool:
    """Whether a value can be written on a command line: a scalar, or a list of scalars."""
    if isinstance(value, list):
        return all(map(_is_plain, cast("list[object]", value)))
    return value != ABSENT and (value is None or isinstance(value, (bool, int, float, str)))


def _written(value: object) -> str:
    if isinstance(value, list):
        return f"[{','.join(map(_written, cast('list[object]', value)))}]"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return str(value)


def command_of(launch: Launch, experiment: str, chosen: Mapping[str, str]) -> str:
    """The command that makes runs: that of the user with ``chosen`` keys in place of its own."""
    kept = [o for o in launch.overrides if o.lstrip("+~").split("=")[0] not in {"experiment", *chosen}]
    added = [f"{key}={value}" for key, value in chosen.items()]
    return shlex.join(["python", "scripts/train.py", f"experiment={experiment}", *kept, *added])

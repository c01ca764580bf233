"""The entry behind ``scripts/make_tables.py``: tables from finished runs; no data set, encoder or model is opened."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from toolshift.experiment.families import Family, agrees, families, family_settings, table_runs
from toolshift.experiment.main import for_terminal, log_to_stderr, say
from toolshift.experiment.plan import TABLE_AXES, variant_name
from toolshift.experiment.tables import DoneRun, build_tables
from toolshift.runs.ledger import ledger
from toolshift.settings.axes import expand_axes
from toolshift.settings.compose import load_settings
from toolshift.settings.launch import Launch
from toolshift.settings.options import conf_folder, groups
from toolshift.settings.schema import Settings


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
    outputs = Path(composed.paths.outputs)
    found = [f for f in families(outputs, composed.name) if agrees(f, composed, keys=launch.overridden_keys)]
    if not found:
        say(f"{composed.name}: no finished run that agrees with this command; make one:")
        say(f"  {_command(launch, composed.name, {})}")
        return 1
    family = found[0]
    settings = family_settings(composed, family)
    say(f"{composed.name}: family {family.name} of {family.at:%Y-%m-%d %H:%M}, {len(found) - 1} older ones not shown")
    runs = table_runs(family.runs, settings.models)
    for line in missing(settings, runs, family=family, launch=launch):
        say(line)
    if not any(run.model == settings.reference for run in runs):
        say(f"{composed.name}: no table: the reference {settings.reference} has no finished run")
        return 1
    written = build_tables(settings, runs, fixed=launch.overridden_keys)
    print(for_terminal(written.markdown))
    say("wrote " + ", ".join(str(path) for path in written.paths))
    return 0


def missing(settings: Settings, runs: Sequence[DoneRun], *, family: Family, launch: Launch) -> list[str]:
    """Two lines per variant with holes: the models without a finished run, and the command that makes them."""
    done = {(run.model, run.universe, run.miner, run.purge) for run in runs}
    lines = []
    for variant in expand_axes(settings, launch.overridden_keys):
        cell = (variant.view.universe, variant.view.miner, variant.protocol.purge)
        holes = [name for name in variant.models if (name, *cell) not in done]
        if holes:
            chosen: dict[str, str] = dict(zip(TABLE_AXES, cell, strict=True))
            if len(holes) < len(variant.models):
                chosen["model"] = f"[{','.join(holes)}]"
            lines.append(f"missing ({variant_name(variant)}): {', '.join(holes)}")
            lines.append(f"  {_command(launch, settings.name, {**_origin(family, launch), **chosen})}")
    return lines


def _origin(family: Family, launch: Launch) -> Mapping[str, str]:
    """What tells the family from the defaults by group and is not on the command line already."""
    origin: dict[str, str] = {}
    if family.identity["debug"]["name"] != "none":
        origin["debug"] = family.identity["debug"]["name"]
    if family.identity["data"]["source"] == "real":
        origin |= {"data": "real", "data.root": "PATH"}
    return {key: value for key, value in origin.items() if key not in launch.overridden_keys}


def _command(launch: Launch, experiment: str, chosen: Mapping[str, str]) -> str:
    kept = [o for o in launch.overrides if o.lstrip("+~").split("=")[0] not in {"experiment", *chosen}]
    added = [f"{key}={value}" for key, value in chosen.items()]
    return shlex.join(["python", "scripts/train.py", f"experiment={experiment}", *kept, *added])

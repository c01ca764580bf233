"""Which finished runs stand in one table.

A family is all runs that differ in model and table axes alone. Settings of a family can be rebuilt from the identity
files in its run folders, so that tables need neither data nor encoder.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from toolshift.experiment.plan import TABLE_AXES, run_identity
from toolshift.experiment.tables import DoneRun, done_runs
from toolshift.runs.files import read_json, stable_hash
from toolshift.settings.convert import from_mapping
from toolshift.settings.errors import ConfigError, UserError
from toolshift.settings.schema import ModelSettings, Settings
from toolshift.settings.tree import as_mapping

# Keys of a command line that choose rows, columns or places; no family is told from another by them.
_NOT_COMPARED = ("experiment", "model", "models", "reference", "compare", "paths", "runtime", "tracking", "hydra")
# A group whose option files fill one key only.
_FILLED = {"view": "view.views"}


@dataclass(frozen=True, kw_only=True)
class Family:
    """Finished runs of one table. identity: that of one of them. at: when the newest one was finished."""

    name: str
    runs: tuple[DoneRun, ...]
    identity: Mapping[str, Any]
    at: datetime


def families(outputs: Path, experiment: str) -> list[Family]:
    """All families of an experiment, newest first; ties by name."""
    groups: dict[str, list[DoneRun]] = {}
    for run in done_runs(outputs, experiment):
        groups.setdefault(run.family, []).append(run)
    found = [
        Family(name=name, runs=tuple(runs), identity=_identity(runs[0]), at=max(map(_finished_at, runs)))
        for name, runs in sorted(groups.items())
    ]
    return sorted(found, key=lambda family: family.at, reverse=True)


def agrees(family: Family, settings: Settings, *, keys: Collection[str]) -> bool:
    """Whether a family was made with the values that ``settings`` has at the dotted ``keys`` of a command line.

    Keys that are no part of a run's identity, or that vary inside a table, say nothing about a family.
    """
    wanted = run_identity(settings, next(iter(settings.models.values())), fingerprints={})
    compared = (_FILLED.get(key, key) for key in keys if key.split(".")[0] not in _NOT_COMPARED)
    return all(_value(family.identity, key) == _value(wanted, key) for key in compared)


def family_settings(settings: Settings, family: Family) -> Settings:
    """``settings`` with everything that belongs to the identity of the family's runs taken from there.

    Axes keep the value that a table's main part is drawn for, where the family has it.

    Raises:
        UserError: if the family was made by a version with other settings.
    """
    plain = as_mapping(settings)
    for group, content in family.identity.items():
        if group in plain:
            plain[group] = {**plain[group], **content} if isinstance(content, Mapping) else content
    for axis, name in zip(TABLE_AXES, ("universe", "miner", "purge"), strict=True):
        group, key = axis.split(".")
        values = sorted({getattr(run, name) for run in family.runs})
        chosen = getattr(getattr(settings, group), key)
        plain[group][key] = chosen if chosen in values else values[0]
    try:
        made = from_mapping(Settings, plain)
    except ConfigError as error:
        raise UserError(f"family {family.name} was made by another version ({error}); run it again") from error
    # Plain mappings are sorted; the order of rows, columns and axes is that of the config.
    order = [*(v for v in settings.view.views if v in made.view.views), *made.view.views]
    views = {name: made.view.views[name] for name in order}
    view = dataclasses.replace(made.view, views=views)
    return dataclasses.replace(made, view=view, models=settings.models, compare=settings.compare)


def table_runs(runs: Sequence[DoneRun], models: Mapping[str, ModelSettings]) -> list[DoneRun]:
    """At most one run per model and variant: a row stands for one set of parameters.

    A model in ``models`` has the parameters given there; of any other model, those of its newest run are shown.
    """
    wanted = {name: stable_hash(as_mapping(model)) for name, model in models.items()}
    made_with = {run.folder.path: stable_hash(_identity(run)["model"]) for run in runs}
    for run in sorted(runs, key=_finished_at, reverse=True):
        wanted.setdefault(run.model, made_with[run.folder.path])
    return [run for run in runs if made_with[run.folder.path] == wanted[run.model]]


def _value(identity: Mapping[str, Any], key: str) -> Any:
    """The value at a dotted key without table axes; None where there is none."""
    content: Any = identity
    for axis in TABLE_AXES:
        group, name = axis.split(".")
        content = {**content, group: {k: v for k, v in content[group].items() if k != name}}
    for part in key.split("."):
        content = content.get(part) if isinstance(content, Mapping) else None
    return content


def _identity(run: DoneRun) -> Mapping[str, Any]:
    return read_json(run.folder.path / "identity.json")


def _finished_at(run: DoneRun) -> datetime:
    return datetime.fromisoformat(read_json(run.folder.path / "status.json")["at"])

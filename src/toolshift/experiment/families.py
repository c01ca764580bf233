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

from toolshift.experiment.finished import DoneRun, done_runs
from toolshift.experiment.plan import TABLE_AXES, axes_of, model_identity, run_identity
from toolshift.runs.files import read_json, stable_hash
from toolshift.settings.convert import from_mapping
from toolshift.settings.errors import ConfigError, UserError
from toolshift.settings.schema import Settings
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
        if group in plain and group != "selection":
            plain[group] = {**plain[group], **content} if isinstance(content, Mapping) else content
    if plain["debug"]["replicates"] is not None:  # no part of an identity, but of what debug=tiny asks for
        plain["evaluation"]["replicates"] = plain["debug"]["replicates"]
    made = [axes_of(*run.variant) for run in family.runs]
    for axis in TABLE_AXES:
        group, key = axis.split(".")
        values = sorted({axes[axis] for axes in made})
        chosen = getattr(getattr(settings, group), key)
        plain[group][key] = chosen if chosen in values else values[0]
    try:
        remade = from_mapping(Settings, plain)
    except ConfigError as error:
        raise UserError(f"family {family.name} was made by another version ({error}); run it again") from error
    # Plain mappings are sorted; the order of rows, columns and axes is that of the config.
    order = [*(v for v in settings.view.views if v in remade.view.views), *remade.view.views]
    views = {name: remade.view.views[name] for name in order}
    view = dataclasses.replace(remade.view, views=views)
    return dataclasses.replace(remade, view=view, models=settings.models, compare=settings.compare)


def table_runs(runs: Sequence[DoneRun], settings: Settings) -> list[DoneRun]:
    """At most one run per model and variant: a row stands for one set of parameters and one selection.

    A model in ``settings.models`` has the parameters given there; of any other model, those of its newest run are
    shown. Of trained rows those are shown that were selected as ``settings.selection`` says, where there is one, else
    the newest.
    """
    newest = sorted(runs, key=_finished_at, reverse=True)
    identity = {run.folder.path: _identity(run) for run in runs}
    made_with = {path: stable_hash(found["model"]) for path, found in identity.items()}
    chosen_by = {path: stable_hash(found.get("selection")) for path, found in identity.items()}
    model = {name: stable_hash(model_identity(given)) for name, given in settings.models.items()}
    for run in newest:
        model.setdefault(run.model, made_with[run.folder.path])
    alike = [run for run in newest if made_with[run.folder.path] == model[run.model]]
    asked = stable_hash(as_mapping(settings.selection))
    selection: dict[str, str] = {}
    for run in alike:
        found = chosen_by[run.folder.path]
        if found == asked or run.model not in selection:
            selection[run.model] = found
    kept = {run.folder.path for run in alike if chosen_by[run.folder.path] == selection[run.model]}
    return [run for run in runs if run.folder.path in kept]


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

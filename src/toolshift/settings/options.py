"""The files below ``conf/``: which groups and options exist, and what an option's own file says.

An option's file is the schema of its open mappings: ``conf/model/bm25.yaml`` lists the parameters of ``bm25``, and
an experiment or a command line may change their values but neither their names nor their types.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, cast

from omegaconf import OmegaConf

from toolshift.settings.convert import from_mapping
from toolshift.settings.errors import ConfigError
from toolshift.settings.nearest import suggestion
from toolshift.settings.schema import DatasetSettings, ModelSettings, TableSettings

# tables: read by `load_table_spec` when tables are written. hydra: launchers of sweeps. No part of a run's config.
_NOT_COMPOSED = ("hydra", "tables")


def conf_folder() -> Path:
    """The project's ``conf/`` folder.

    Raises:
        ConfigError: if the package was installed without the repository around it.
    """
    folder = Path(__file__).resolve().parents[3] / "conf"
    if not folder.is_dir():
        raise ConfigError(f"no folder {folder}: install the project in editable mode from its repository (make setup)")
    return folder


@cache
def groups(folder: Path) -> Mapping[str, tuple[str, ...]]:
    """Config group -> its options, both sorted."""
    return {
        group.name: tuple(sorted(file.stem for file in group.glob("*.yaml")))
        for group in sorted(folder.iterdir())
        if group.is_dir() and group.name not in _NOT_COMPOSED
    }


def option_body(folder: Path, group: str, option: str) -> Mapping[str, Any] | None:
    """The unresolved content of ``conf/<group>/<option>.yaml``, or None where there is no such file. Of a variant of a
    model (``defaults: [<model>@models.<option>]``) or of a study (``defaults: [<study>, _self_]``): that of the
    original with the variant's changes."""
    file = folder / group / f"{option}.yaml"
    body = _read(file, file.stat().st_mtime_ns) if file.is_file() else None
    if group == "study" and body and "defaults" in body:
        return _varied(folder, group, str(body["defaults"][0]), {k: v for k, v in body.items() if k != "defaults"})
    base = _base_of(body, option) if group == "model" and body else None
    if base is None or body is None:
        return body
    return _varied(folder, group, base, body.get("models", {}).get(option, {}))


def _varied(folder: Path, group: str, base: str, changes: Mapping[str, Any]) -> Mapping[str, Any]:
    """The content of the option ``base`` with the changes of one that builds on it."""
    merged = OmegaConf.merge(dict(option_body(folder, group, base) or {}), dict(changes))
    return cast("Mapping[str, Any]", OmegaConf.to_container(merged, resolve=False))


def _base_of(body: Mapping[str, Any], option: str) -> str | None:
    """The model that an option is a variant of."""
    for entry in body.get("defaults", ()):
        base, _, package = str(entry).partition("@")
        if package == f"models.{option}":
            return base
    return None


@cache
def _read(file: Path, _modified: int) -> Mapping[str, Any]:
    """Once per process and state of the file."""
    body = OmegaConf.to_container(OmegaConf.load(file), resolve=False)
    return cast("Mapping[str, Any]", body) if isinstance(body, dict) else {}


def model_names(folder: Path) -> tuple[str, ...]:
    """Models that have a file of their own; presets (files that only list others) are left out."""
    return tuple(name for name in groups(folder)["model"] if "target" in (option_body(folder, "model", name) or {}))


def load_model(name: str, *, folder: Path | None = None) -> ModelSettings:
    """The settings of a model as its file gives them, for methods built on other rows.

    Raises:
        ConfigError: if there is no such model.
    """
    folder = folder or conf_folder()
    known = model_names(folder)
    if name not in known:
        raise ConfigError(f"no model {name!r} in conf/model{suggestion(name, known)}")
    return from_mapping(ModelSettings, option_body(folder, "model", name), where=f"conf/model/{name}.yaml")


def table_names(folder: Path | None = None) -> list[str]:
    """Tables that have a file in ``conf/tables``, sorted."""
    return sorted(file.stem for file in ((folder or conf_folder()) / "tables").glob("*.yaml"))


def load_dataset(name: str, *, folder: Path | None = None) -> DatasetSettings:
    """The settings of a dataset as its file gives them, for protocols over several.

    Raises:
        ConfigError: if there is no such dataset.
    """
    folder = folder or conf_folder()
    known = groups(folder)["dataset"]
    if name not in known:
        raise ConfigError(f"no dataset {name!r} in conf/dataset{suggestion(name, known)}")
    return from_mapping(DatasetSettings, option_body(folder, "dataset", name), where=f"conf/dataset/{name}.yaml")


def load_table_spec(name: str, *, folder: Path | None = None) -> TableSettings:
    """Read ``conf/tables/<name>.yaml``.

    Raises:
        ConfigError: if the file is absent, or has unknown, missing or ill-typed keys or values out of range.
    """
    folder = folder or conf_folder()
    known = table_names(folder)
    if name not in known:
        raise ConfigError(f"no table {name!r} in conf/tables{suggestion(name, known)}")
    where = f"conf/tables/{name}.yaml"
    spec = from_mapping(TableSettings, option_body(folder, "tables", name), where=where)
    problems = [
        f"{where}: {key} must lie between 0 and 1" for key in ("alpha", "power") if not 0 < getattr(spec, key) < 1
    ]
    problems += [f"{where}: name must be {name!r}, as the file"] * (spec.name != name)
    if spec.rows is not None and spec.rows not in groups(folder)["model"]:
        problems.append(
            f"{where}: rows: no conf/model/{spec.rows}.yaml{suggestion(spec.rows, groups(folder)['model'])}"
        )
    problems += _paper_problems(spec, folder, where=where)
    if problems:
        raise ConfigError(problems)
    return spec


def _paper_problems(spec: TableSettings, folder: Path, *, where: str) -> list[str]:
    """Views that do not exist, measures that are none, and numbers given twice. Rows need not exist: they may be of
    methods that are still to come."""
    from toolshift.settings.checks import MEASURE, measure_problem  # checks reads the files of this module

    problems: list[str] = []
    known, seen = groups(folder)["view"], set[tuple[str, str, str]]()
    for i, value in enumerate(spec.paper.values):
        at, key = f"{where}.paper.values[{i}]", (value.view, value.model, value.measure)
        if value.view not in known:
            problems.append(f"{at}.view: no view {value.view!r}{suggestion(value.view, known)}")
        if not MEASURE.fullmatch(value.measure):
            problems.append(f"{at}.measure: {measure_problem(value.measure).partition(': ')[2]}")
        if key in seen:
            problems.append(f"{at}: {value.model} has another value for {value.view} {value.measure} already")
        seen.add(key)
    return problems

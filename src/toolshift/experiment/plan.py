"""What a command asks for: one run per (variant, model), each with an identity that names its folder."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolshift.runs.files import stable_hash
from toolshift.runs.ledger import HASH_LENGTH, RunFolder
from toolshift.settings.axes import expand_axes
from toolshift.settings.checks import COMPARED
from toolshift.settings.schema import ModelSettings, Settings
from toolshift.settings.tree import as_mapping

# How and where a run is computed, and what it is printed beside, is not what it computes.
NOT_IDENTITY = (
    "paths", "runtime", "tracking", "compare", "multiverse", "study", "models", "reference", "data.root", "data.cache",
)  # fmt: skip
# Where an encoder finds its weights and runs; its fingerprint, which is part of the identity, covers both.
NOT_IDENTITY_OF_ENCODER = ("device", "path")
# What a finished run has; a folder without one of them is run again, whatever its status says.
RUN_FILES = ("config.yaml", "run.json", "folds.parquet", "artefacts.csv", "per_task.parquet", "metrics.csv")
# Runs that differ in these alone stand in one table.
TABLE_AXES = COMPARED
# What a table makes of finished runs; no run depends on it.
TABLE_ONLY = ("replicates", "confidence", "seed", "min_tasks", "export_trec")


@dataclass(frozen=True, kw_only=True)
class PlannedRun:
    """One model under one variant."""

    settings: Settings
    model: ModelSettings
    identity: Mapping[str, Any]
    folder: RunFolder
    family: str

    @property
    def seeds(self) -> tuple[int, ...]:
        """Seeds to score: all for a stochastic row, the first one otherwise."""
        return self.settings.seeds if self.model.stochastic else self.settings.seeds[:1]

    @property
    def is_done(self) -> bool:
        """Whether the run is finished and nothing of it was taken away since."""
        return self.folder.state == "done" and all((self.folder.path / name).is_file() for name in RUN_FILES)


def variant_name(settings: Settings) -> str:
    """The values of the table axes, for logs and messages."""
    return f"universe={settings.view.universe} miner={settings.view.miner} purge={settings.protocol.cut}"


def axes_of(universe: str, miner: str, cut: str) -> dict[str, str]:
    """Table axis -> value, of a variant as tables name it; ``cut`` is that of the protocol settings."""
    purge, _, dedup = cut.partition("+dedup=")
    return dict(zip(TABLE_AXES, (universe, miner, purge, dedup or "none"), strict=True))


def plan_runs(
    settings: Settings, *, overridden_keys: Sequence[str], fingerprints: Mapping[str, str]
) -> list[PlannedRun]:
    """Every run of a command, variants slowest.

    fingerprints: data and encoder fingerprints that belong to the identity of each run.
    """
    runs: list[PlannedRun] = []
    for variant in expand_axes(settings, overridden_keys):
        for model in variant.models.values():
            identity = run_identity(variant, model, fingerprints=fingerprints)
            folder = RunFolder.of(Path(variant.paths.outputs), variant.name, identity)
            family = family_of(identity)
            runs.append(PlannedRun(settings=variant, model=model, identity=identity, folder=folder, family=family))
    return runs


def run_identity(settings: Settings, model: ModelSettings, *, fingerprints: Mapping[str, str]) -> dict[str, Any]:
    """The resolved config of one run without paths and runtime, plus data fingerprints."""
    config = as_mapping(settings, without=NOT_IDENTITY)
    config["evaluation"] = {k: v for k, v in config["evaluation"].items() if k not in TABLE_ONLY}
    if not model.grid:  # nothing is selected for it
        config.pop("selection")
    for name in NOT_IDENTITY_OF_ENCODER:
        config["encoder"]["params"].pop(name, None)
    config["model"] = model_identity(model)
    config["fingerprints"] = dict(sorted(fingerprints.items()))
    return config


def model_identity(model: ModelSettings) -> dict[str, Any]:
    """What tells one row from another: name, class, parameters and grid. A class may name parameters that say how it is
    computed, not what (``not_identity``)."""
    content = as_mapping(model)
    for name in getattr(_class_of(model), "not_identity", ()):
        content["params"].pop(name, None)
    # A mapping has no order in a hash; which settings a budget tries follows from the order of the keys.
    content["grid"] = [[key, list(values)] for key, values in model.grid.items()]
    return content


def _class_of(model: ModelSettings) -> object:
    """The class of a model; None where it cannot be imported, which the run itself will report."""
    module, _, name = model.target.partition(":")
    try:
        return getattr(importlib.import_module(module), name, None)
    except ImportError:
        return None


def family_of(identity: Mapping[str, Any]) -> str:
    """Hash of an identity without model, selection and table axes: equal for the runs of one table."""
    config = {key: value for key, value in identity.items() if key not in ("model", "selection")}
    for axis in TABLE_AXES:
        group, name = axis.split(".")
        config[group] = {k: v for k, v in config[group].items() if k != name}
    return stable_hash(config)[:HASH_LENGTH]

"""Finished runs as the table stage reads them: what a run's folder says of it, without opening a score."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from toolshift.reporting.tidy import NOT_CONVERGED
from toolshift.runs.files import read_json
from toolshift.runs.ledger import RunFolder, ledger


@dataclass(frozen=True, kw_only=True)
class DoneRun:
    """A finished run and the cell of the table it fills.

    selected: setting (JSON) -> targets, empty for a row without a grid. not_converged: fits that call themselves so.
    wall_s: seconds from its beginning to its end, None where an older run does not say.
    """

    folder: RunFolder
    model: str
    family: str
    universe: str
    miner: str
    purge: str
    data: str
    seeds: tuple[int, ...] = ()
    selected: Mapping[str, int] = field(default_factory=dict)
    not_converged: int = 0
    wall_s: float | None = None

    @property
    def variant(self) -> tuple[str, str, str]:
        """Universe, miner and purge."""
        return self.universe, self.miner, self.purge


def done_runs(outputs: Path, experiment: str, *, family: str | None = None) -> list[DoneRun]:
    """Finished runs of an experiment, sorted by folder; ``family`` keeps those of one table."""
    found = []
    for name, folder, state in ledger(outputs):
        if name != experiment or state != "done":
            continue
        if not (folder.path / "run.json").is_file():
            continue  # somebody took a file away: no run to read, and `make status` shows what is there
        record = read_json(folder.path / "run.json")
        run = DoneRun(
            folder=folder,
            model=record["model"],
            family=record["family"],
            data=record["data"],
            seeds=tuple(record.get("seeds", ())),
            selected=record.get("selected", {}),
            not_converged=record.get("not_converged", 0),
            wall_s=record.get("wall_s"),
            **record["variant"],
        )
        if family is None or run.family == family:
            found.append(run)
    return found


def variant_text(variant: tuple[str, str, str]) -> str:
    """Universe, miner and purge in words."""
    return "universe {}, miner {}, purge {}".format(*variant)


def settings_text(selected: Mapping[str, int]) -> str:
    """``l2=0.01: 40; l2=1.0: 8``: targets per selected setting, most chosen first."""
    ranked = sorted(selected.items(), key=lambda item: (-item[1], item[0]))
    return "; ".join(
        f"{', '.join(f'{key}={value}' for key, value in json.loads(setting).items())}: {n}" for setting, n in ranked
    )


def not_converged_text(run: DoneRun) -> str:
    """``not converged (k of n fits)``, n = targets x seeds; empty where every fit is finished."""
    if not run.not_converged:
        return ""
    metrics = pd.read_csv(run.folder.path / "metrics.csv", usecols=["target", "n_tasks"], keep_default_na=False)
    fits = metrics.loc[metrics["n_tasks"] > 0, "target"].nunique() * len(run.seeds)
    return f"{NOT_CONVERGED} ({run.not_converged} of {fits} fits)"


_CAPS = {
    "inner folds": "folds",
    "settings of the grid": "settings",
    "source tasks per fit": "max_tasks",
    "validation tasks per view and inner fold": "validation_tasks",
    "epochs": "epochs",
    "tasks per gradient step": "batch_tasks",
}


def budget_text(run: DoneRun) -> str:
    """The selection budget that a trained run worked under: its name and every cap, as its identity records them."""
    selection = read_json(run.folder.path / "identity.json")["selection"]
    budget = selection["budgets"][selection["budget"]]
    caps = {name: budget.get(key, "not recorded") for name, key in _CAPS.items()}
    listed = ", ".join(f"{name} {'no cap' if cap is None else cap}" for name, cap in caps.items())
    chosen = "by every seed" if budget.get("every_seed") else "once per target, with the first seed"
    return f"budget {selection['budget']} (at most: {listed}; chosen {chosen})"

"""Which finished runs stand in one table, and with which settings it is drawn."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import pytest

from toolshift.experiment.families import agrees, families, family_settings, table_runs
from toolshift.experiment.plan import plan_runs
from toolshift.experiment.tables import done_runs
from toolshift.runs.files import write_json
from toolshift.settings.compose import load_settings
from toolshift.settings.errors import UserError
from toolshift.settings.launch import overridden_keys
from toolshift.settings.schema import Settings

BASE = ("experiment=lodo", "debug=tiny", "view.universe=domain", "view.miner=union")


@cache
def settings_of(*overrides: str) -> Settings:
    return load_settings("train", overrides)


@pytest.fixture
def finish(tmp_path: Path) -> Callable[..., None]:
    """Leave what the ledger needs of the runs of a command, finished at a given hour."""

    def finish(*overrides: str, hour: int, data: str = "x") -> None:
        given = [*BASE, f"paths.outputs={tmp_path}", *overrides]
        prints = {"records": data, "encoder": "e"}
        for run in plan_runs(settings_of(*given), overridden_keys=overridden_keys(given), fingerprints=prints):
            view, purge = run.settings.view, run.settings.protocol.purge
            variant = {"universe": view.universe, "miner": view.miner, "purge": purge}
            record = {"model": run.model.name, "family": run.family, "data": "sample", "variant": variant}
            write_json(run.folder.path / "identity.json", dict(run.identity))
            write_json(run.folder.path / "run.json", record)
            status = {"state": "done", "at": f"2026-01-01T{hour:02d}:00:00+0000"}
            write_json(run.folder.path / "status.json", status)

    return finish


def test_families_are_sorted_by_age_and_told_apart_by_the_command(finish: Callable[..., None], tmp_path: Path) -> None:
    finish("model=bm25", hour=3)
    finish("model=random", hour=9)
    finish("model=bm25", "view.length=10", hour=5)
    finish("model=bm25", hour=1, data="older release")
    found = families(tmp_path, "lodo")
    assert [f.at.hour for f in found] == [9, 5, 1]
    assert {run.model for run in found[0].runs} == {"bm25", "random", "semantic_cosine"}

    def choose(*overrides: str) -> list[int]:
        given = ["experiment=lodo", *overrides]
        return [f.at.hour for f in found if agrees(f, settings_of(*given), keys=overridden_keys(given))]

    assert choose() == [9, 5, 1]
    assert choose("debug=tiny") == [9, 5, 1]
    assert choose("view.length=10") == [5]
    assert choose("view.length=20") == [9, 1]
    assert choose("debug=none") == []
    assert choose("data=real", "data.root=anywhere") == []
    assert choose("view=natural") == []
    assert choose("view.miner=dense", "protocol.purge=gold", "model=rrf", "reference=bm25") == [9, 5, 1]


def test_settings_of_a_family_are_those_it_was_made_with(finish: Callable[..., None], tmp_path: Path) -> None:
    finish("view=[mixed,natural]", "evaluation.measures=[MRR]", "view.miner=bm25", "view.universe=judged", hour=1)
    (family,) = families(tmp_path, "lodo")
    composed = settings_of("experiment=lodo")
    made = family_settings(composed, family)
    assert made.evaluation.measures == ("MRR",)
    assert made.evaluation.replicates == 200
    assert list(made.view.views) == ["natural", "mixed"]
    assert (made.view.universe, made.view.miner, made.protocol.purge) == ("judged", "bm25", "none")
    assert list(made.models) == list(composed.models)
    assert made.compare == composed.compare
    assert made.paths == composed.paths


def test_a_family_of_another_version_is_named(finish: Callable[..., None], tmp_path: Path) -> None:
    finish("model=bm25", hour=1)
    for path in tmp_path.glob("runs/lodo/*/identity.json"):
        identity = json.loads(path.read_text())
        identity["view"]["depth_of_former_versions"] = 3
        path.write_text(json.dumps(identity))
    (family,) = families(tmp_path, "lodo")
    with pytest.raises(UserError, match=r"made by another version .*depth_of_former_versions"):
        family_settings(settings_of("experiment=lodo"), family)


def test_a_row_has_one_set_of_parameters(finish: Callable[..., None], tmp_path: Path) -> None:
    finish("model=bm25", hour=1)
    finish("model=bm25", "models.bm25.params.b=0.1", "protocol.purge=none", hour=2)
    runs = done_runs(tmp_path, "lodo")

    def rows(*overrides: str) -> Sequence[tuple[str, str, float]]:
        asked = settings_of(*BASE, *overrides)
        shown = table_runs(runs, asked)
        assert len({(r.model, r.purge) for r in shown}) == len(shown)
        read = [(r, json.loads((r.folder.path / "identity.json").read_text())) for r in shown]
        return sorted((r.model, r.purge, i["model"]["params"].get("b", 0.0)) for r, i in read)

    cosine = [("semantic_cosine", purge, 0.0) for purge in ("gold", "none")]
    assert rows("model=bm25") == [("bm25", "gold", 0.75), ("bm25", "none", 0.75), *cosine]
    assert rows("model=bm25", "models.bm25.params.b=0.1") == [("bm25", "none", 0.1), *cosine]
    assert rows("model=random") == [("bm25", "none", 0.1), *cosine]
    assert rows("model=bm25", "models.bm25.params.b=0.2") == cosine


def test_a_trained_row_is_shown_as_it_was_selected(finish: Callable[..., None], tmp_path: Path) -> None:
    """One run per budget; the asked one is shown, or the newest where there is none. Frozen rows are shared."""
    finish("model=logistic", "protocol.purge=none", hour=1)
    finish("model=logistic", "protocol.purge=none", "selection.budgets.fast.folds=2", hour=2)
    runs = done_runs(tmp_path, "lodo")
    assert len({run.family for run in runs}) == 1
    assert [run.model for run in runs].count("semantic_cosine") == 1

    def folds(*overrides: str) -> list[int]:
        shown = table_runs(runs, settings_of(*BASE, "model=logistic", *overrides))
        read = [json.loads((r.folder.path / "identity.json").read_text()) for r in shown if r.model == "logistic"]
        return [identity["selection"]["budgets"]["fast"]["folds"] for identity in read]

    assert folds() == [3]
    assert folds("selection.budgets.fast.folds=2") == [2]
    assert folds("selection.budgets.fast.folds=4") == [2]

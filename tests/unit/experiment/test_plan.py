"""What names a run folder: the question asked, and not where or how it is answered."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest

from toolshift.experiment.plan import RUN_FILES, PlannedRun, plan_runs, run_identity, variant_name
from toolshift.runs.files import write_text
from toolshift.settings.compose import load_settings
from toolshift.settings.launch import overridden_keys
from toolshift.settings.schema import Settings

PRINTS = {"records": "r", "encoder": "e"}
BASE = ("experiment=lodo", "debug=tiny", "encoder=minilm")


@cache
def settings_of(*overrides: str) -> Settings:
    return load_settings("train", overrides)


def plan(*overrides: str, prints: dict[str, str] = PRINTS) -> list[PlannedRun]:
    given = (*BASE, *overrides)
    return plan_runs(settings_of(*given), overridden_keys=overridden_keys(given), fingerprints=prints)


def folders(runs: list[PlannedRun]) -> set[str]:
    return {run.folder.path.name for run in runs}


def test_one_run_per_variant_and_model_each_with_its_own_folder() -> None:
    runs = plan()
    settings = settings_of(*BASE)
    cells = 1
    for values in settings.compare.values():
        cells *= len(values)
    assert len(runs) == cells * len(settings.models) == len(folders(runs))
    assert len({run.family for run in runs}) == 1
    assert [run.model.name for run in runs[: len(settings.models)]] == list(settings.models)
    assert len({variant_name(run.settings) for run in runs}) == cells


@pytest.mark.parametrize(
    "override",
    [
        "paths.outputs=elsewhere",
        "data.cache=elsewhere",
        "encoder.params.path=/some/folder/of/weights",
        "runtime=gpu",
        "runtime.on_error=stop",
        "evaluation.export_trec=true",
        "model=[bm25,random]",
        "reference=bm25",
        "protocol.purge=gold",
    ],
)
def test_place_and_company_do_not_change_a_folder(override: str) -> None:
    assert folders(plan(override)) <= folders(plan())
    assert {run.family for run in plan(override)} == {run.family for run in plan()}


@pytest.mark.parametrize(
    "override",
    [
        "view.length=10",
        "view.seed=1",
        "seeds=[1]",
        "encoder.params.max_length=128",
        "evaluation.measures=[MRR]",
        "evaluation.ties=trec",
        "debug.max_tasks=7",
        "data.strict=true",
    ],
)
def test_another_question_is_another_family(override: str) -> None:
    other = plan(override)
    assert not folders(other) & folders(plan())
    assert other[0].family != plan()[0].family


def test_parameters_of_one_model_change_its_own_folders_alone() -> None:
    before, after = plan(), plan("models.bm25.params.b=0.1")
    changed = {run.model.name for run in after if run.folder.path.name not in folders(before)}
    assert changed == {"bm25"}
    assert before[0].family == after[0].family


def test_fingerprints_of_data_and_encoder_belong_to_the_identity() -> None:
    for changed in ({"records": "x", "encoder": "e"}, {"records": "r", "encoder": "x"}):
        assert not folders(plan(prints=changed)) & folders(plan())


def test_no_path_of_a_machine_in_an_identity(tmp_path: Path) -> None:
    overrides = [
        *BASE, "data=real", f"data.root={tmp_path}", f"data.cache={tmp_path}", f"paths.outputs={tmp_path}",
        f"encoder.params.path={tmp_path}",
    ]  # fmt: skip
    settings = settings_of(*overrides)
    for model in settings.models.values():
        identity = run_identity(settings, model, fingerprints=PRINTS)
        assert str(tmp_path) not in json.dumps(identity)
        assert identity["data"]["source"] == "real"


def test_seeds_belong_to_stochastic_rows() -> None:
    seeds = {run.model.name: run.seeds for run in plan()}
    assert seeds["random"] == (42, 43, 44)
    assert seeds["bm25"] == (42,)


@pytest.mark.parametrize("absent", [None, *RUN_FILES])
def test_a_done_run_has_all_its_files(tmp_path: Path, absent: str | None) -> None:
    run = plan(f"paths.outputs={tmp_path}")[0]
    assert not run.is_done
    for name in RUN_FILES:
        write_text(run.folder.path / name, "")
    assert not run.is_done
    run.folder.finish()
    if absent:
        (run.folder.path / absent).unlink()
    assert run.is_done is (absent is None)

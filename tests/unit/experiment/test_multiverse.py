"""Which choices there are, what each changes, and what the tables take from finished runs."""

from __future__ import annotations

import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from toolshift.experiment.multiverse import (
    DEFAULT,
    Made,
    build_multiverse,
    choices_of,
    command_of,
    multiverse,
    rebuild_multiverse,
)
from toolshift.experiment.plan import RUN_FILES, PlannedRun, plan_runs
from toolshift.runs.files import write_json
from toolshift.settings.compose import load_settings
from toolshift.settings.errors import ConfigError, UserError
from toolshift.settings.launch import Launch, overridden_keys
from toolshift.settings.tree import difference

ROWS = ["semantic_cosine", "blend", "tact_without_functional", "tact_without_contextual", "tact"]


def launch_of(*overrides: str) -> Launch:
    given = ("experiment=multiverse", *overrides)
    return Launch(
        settings=load_settings("train", given), overrides=given, overridden_keys=overridden_keys(given), command="",
    )  # fmt: skip


def changed(launch: Launch) -> dict[str, dict[str, object]]:
    """Choice -> key -> value, of what it changes."""
    found = {choice.name: difference(choice.settings, launch.settings) for choice in choices_of(launch)}
    return {name: {d.key: d.value for d in ds} for name, ds in found.items()}


def test_the_default_comes_first_and_changes_nothing() -> None:
    launch = launch_of()
    found = choices_of(launch)
    assert found[0].name == DEFAULT
    assert found[0].settings == launch.settings
    assert list(launch.settings.models) == ROWS
    assert launch.settings.protocol.purge == "gold"
    names = [choice.name for choice in found]
    assert len(set(names)) == len(names) > 15
    assert not {"dedup_near", "anchor_aligned"} & set(names), "of another protocol"


def test_every_choice_changes_what_it_says_and_no_two_the_same() -> None:
    found = changed(launch_of())
    assert found["length_50"] == {"view.length": 50, "view.hard": 20}
    assert found["folds_5"] == {"selection.budgets.fast.folds": 5}
    assert found["gates_none"] == {f"models.{row}.params.gates": "none" for row in ROWS[2:]}
    assert [name for name, keys in found.items() if not keys] == [DEFAULT]
    assert len({str(sorted(keys.items())) for keys in found.values()}) == len(found)


def test_another_protocol_has_its_own_choices() -> None:
    launch = launch_of("protocol=leave_one_dataset_out", "multiverse.only=[anchor_aligned,dedup_near]")
    found = changed(launch)
    assert list(found) == [DEFAULT, "dedup_near", "anchor_aligned"]
    assert found["dedup_near"] == {"protocol.dedup": "near"}
    with pytest.raises(ConfigError, match="purge_none is no choice of protocol=leave_one_dataset_out"):
        choices_of(launch_of("protocol=leave_one_dataset_out", "multiverse.only=[purge_none]"))


def test_a_choice_of_a_groups_option_is_composed_with_the_rest_of_the_command_line() -> None:
    launch = launch_of("view.seed=7", "encoder.params.dim=64", "encoder=hashing", "multiverse.only=[second_encoder]",
                       "+multiverse.choices.second_encoder=['encoder=hashing','encoder.params.dim=32']")  # fmt: skip
    _, choice = choices_of(launch)
    assert choice.settings.view.seed == 7
    assert choice.settings.encoder.params["dim"] == 32


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("multiverse.only=[lenght_10]", "multiverse.only: no choice 'lenght_10'; did you mean 'length_10'"),
        (
            "+multiverse.choices.x=['view.lenght=9']",
            "multiverse.choices.x: view.lenght: no such key; did you mean 'length'",
        ),
        (
            "+multiverse.choices.x=['view.miner=dens']",
            "choices.x: view.miner: 'dens' is not an option; did you mean 'dense'",
        ),
        ("+multiverse.choices.x=['view.hard=99']", "multiverse.choices.x: view.hard: must be at least 0 and below"),
        ("+multiverse.choices.x=['models.tract*.params.gates=none']", "none of the rows .* is a tract"),
        ("+multiverse.choices.x=['models.tact.params.gate=none']", "gate: no such key; did you mean 'gates'"),
        (
            "+multiverse.choices.x=['encoder=minilmm']",
            "choices.x: encoder=minilmm: there is no conf/encoder/minilmm.yaml",
        ),
        ("+multiverse.choices.x=['viewminer']", "choices.x: 'viewminer' is not an override"),
        ("+multiverse.choices.default=['view.length=9']", "the default changes nothing"),
        ("multiverse.protocols.dedup_near=[leave_one_domain_in]", "no protocol 'leave_one_domain_in'; did you mean"),
    ],
)
def test_a_typo_is_named_before_anything_runs(change: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        multiverse(launch_of(change, *() if "only" in change else ("multiverse.only=[x]",)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("model=[blend]", "multiverse.row: tact and a row to compare it with are needed among"),
        ("evaluation.measures=[MRR]", "drawn in NDCG@5; add it"),
        ("+compare={view.miner: [union, dense]}", "one thing at a time; fix view.miner"),
    ],
)
def test_what_is_no_multiverse_is_refused(change: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        choices_of(launch_of(change))


def test_torchrun_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for key, value in {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(key, value)
    with pytest.raises(UserError, match="one process"):
        multiverse(launch_of())


def test_the_command_of_a_choice_is_the_users_without_the_places_of_data() -> None:
    launch = launch_of("data=real", "data.root=/somewhere", "data.cache=/else", "multiverse.only=[a]", "seeds=[1]")
    assert shlex.split(command_of(launch, "multiverse", "length_10")) == [
        "python", "scripts/train.py", "experiment=multiverse", "data=real", "data.root=PATH", "seeds=[1]",
        "multiverse.only=[length_10]",
    ]  # fmt: skip


def planned(launch: Launch) -> dict[str, list[PlannedRun]]:
    prints = {"records": "r", "encoder": "e"}
    return {c.name: plan_runs(c.settings, overridden_keys=(), fingerprints=prints) for c in choices_of(launch)}


def test_rows_that_a_choice_leaves_alone_keep_their_run() -> None:
    runs = planned(launch_of("multiverse.only=[gates_none,folds_5,length_10]"))
    folders = {name: [run.folder.path for run in made] for name, made in runs.items()}
    same = {name: [a == b for a, b in zip(folders[DEFAULT], made, strict=True)] for name, made in folders.items()}
    assert same["gates_none"] == [True, True, False, False, False]
    assert same["folds_5"] == [True, False, False, False, False]
    assert not any(same["length_10"])
    assert {run.family for run in runs["gates_none"]} == {run.family for run in runs[DEFAULT]}


def finish(run: PlannedRun, value: float, *, hour: int = 1) -> None:
    """A finished run: 12 targets of 5 tasks in the mixed view, ``value`` everywhere, a tenth more on odd targets."""
    targets = np.repeat([f"t{i:02d}" for i in range(12)], 5)
    frame = pd.DataFrame(
        {
            "protocol": "leave_one_domain_out", "target": targets, "view": "mixed",
            "task_id": [f"task{i}" for i in range(60)], "model": run.model.name, "seed": 42, "n_candidates": 20,
            "n_gold": 1, "tied": False, "NDCG@5": value + 0.1 * (np.arange(60) // 5 % 2), "scored": True,
            "name_free": False, "no_partial_schema": False,
        }
    )  # fmt: skip
    folder, settings = run.folder.path, run.settings
    folder.mkdir(parents=True)
    for name in RUN_FILES:
        (folder / name).touch()
    frame.to_parquet(folder / "per_task.parquet")
    variant = {"universe": settings.view.universe, "miner": settings.view.miner, "purge": settings.protocol.cut}
    write_json(folder / "identity.json", dict(run.identity))
    write_json(
        folder / "run.json",
        {"model": run.model.name, "family": run.family, "data": "sample", "variant": variant, "seeds": [42]},
    )
    write_json(folder / "status.json", {"state": "done", "at": f"2026-01-01T{hour:02d}:00:00+0000"})


@pytest.fixture
def launch(tmp_path: Path) -> Launch:
    """Three choices: the first two finished, of the third only what it shares with the default."""
    launch = launch_of(
        f"paths.outputs={tmp_path}", "model=[semantic_cosine,blend,tact]", "view=[mixed,context]",
        "evaluation.replicates=50", "multiverse.only=[length_10,gates_none]",
    )  # fmt: skip
    runs = planned(launch)
    for name, scores in {DEFAULT: (0.5, 0.65, 0.7), "length_10": (0.6, 0.75, 0.7)}.items():
        for run, score in zip(runs[name], scores, strict=True):
            finish(run, score)
    return launch


def table_of(tmp_path: Path) -> pd.DataFrame:
    return pd.read_csv(tmp_path / "tables" / "multiverse.csv", keep_default_na=False, na_values={"delta": [""]})


def test_gains_of_finished_runs_and_holes_of_the_others(launch: Launch, tmp_path: Path) -> None:
    runs = planned(launch)
    build_multiverse([Made(choice=c, runs=tuple(runs[c.name])) for c in choices_of(launch)], launch)
    table = table_of(tmp_path)
    mixed = table.loc[table["view"] == "mixed"].set_index(["choice", "reference"])
    assert mixed["delta"].round(12).dropna().to_dict() == {
        ("default", "semantic_cosine"): 0.2, ("default", "blend"): 0.05,
        ("length_10", "semantic_cosine"): 0.1, ("length_10", "blend"): -0.05,
    }  # fmt: skip
    assert mixed.loc["length_10", "sign_survives"].tolist() == ["yes", "no"]
    assert mixed.loc["length_10", "order_survives"].tolist() == ["yes", "yes"]
    shown = mixed.loc[("default", "blend")]
    assert (float(shown["mean"]), float(shown["ci_low"]), float(shown["ci_high"])) == (0.75, 0.05, 0.05)
    assert (shown["n_targets"], shown["n_tasks"]) == (12, 60)
    gone = mixed.loc["gates_none"]
    assert gone["note"].tolist() == ["no run", "no run"]
    assert gone["command"].str.endswith("'multiverse.only=[gates_none]'").all()
    assert mixed.loc["length_10", "changes"].tolist() == ["view.length=10 view.hard=4"] * 2
    assert set(table.loc[table["view"] == "context", "note"]) == {"no scored cell", "no run"}


def test_tables_are_the_same_when_drawn_from_the_runs_alone(launch: Launch, tmp_path: Path) -> None:
    runs = planned(launch)
    first = build_multiverse([Made(choice=c, runs=tuple(runs[c.name])) for c in choices_of(launch)], launch)
    files = {path: path.read_bytes() for path in first.paths}
    again = rebuild_multiverse(launch.settings, launch)
    assert again is not None
    assert {path: path.read_bytes() for path in again.paths} == files
    assert again.markdown == first.markdown


def test_what_the_command_line_leaves_open_is_that_of_the_runs(tmp_path: Path) -> None:
    """The runs were made with other list seeds; the family of a choice, made last, does not become the default."""
    own = (f"paths.outputs={tmp_path}", "model=[semantic_cosine,tact]", "multiverse.only=[length_10]")
    made = planned(launch_of(*own, "view.seed=5", "view=[mixed]"))
    for hour, name in enumerate((DEFAULT, "length_10"), start=1):
        for run, score in zip(made[name], (0.5, 0.6), strict=True):
            finish(run, score, hour=hour)
    plain = launch_of(*own, "view=[mixed]")
    assert rebuild_multiverse(plain.settings, plain) is not None
    table = table_of(tmp_path)
    assert table["choice"].tolist() == [DEFAULT, "length_10"]
    assert table["delta"].round(12).tolist() == [0.1, 0.1]
    assert table["changes"].tolist() == ["", "view.length=10 view.hard=4"]


def test_without_runs_the_command_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    launch = launch_of(f"paths.outputs={tmp_path}")
    assert rebuild_multiverse(launch.settings, launch) is None
    assert f"python scripts/train.py experiment=multiverse paths.outputs={tmp_path}" in capsys.readouterr().err
    assert not (tmp_path / "tables").exists()

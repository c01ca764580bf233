"""The command behind scripts/explain.py: what it refuses, and how it finds a run, its settings and a task."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from toolshift.experiment import explain as command
from toolshift.experiment.explain import FinishedRun
from toolshift.experiment.plan import run_identity
from toolshift.settings.errors import ConfigError, UserError
from toolshift.settings.tree import as_mapping

ROOT = Path(__file__).resolve().parents[3]
PRINTS = {"records": "r" * 8, "encoder": "e" * 8}
Make = Callable[..., FinishedRun]


@pytest.mark.parametrize(
    ("arguments", "messages"),
    [
        ([], ["run: a value must be given", "task: a value must be given"]),
        (["run=1", "tsk=2"], ["tsk: no such key; did you mean 'task'"]),
        (["run=1", "task=2", "format=xml"], ["format: 'xml' is not an option; did you mean"]),
        (["run=1", "task=2", "seed=first"], ["seed: expected"]),
        (["run=1", "task=2", "root=x"], ["root: no such key; did you mean 'data.root'"]),
        (["run=1", "task=2", "+seed=1"], ["expected key=value"]),
        (["run=1", "task=2", "seed=1,2"], ["expected key=value"]),
        (["run", "task=2"], ["is not an override"]),
    ],
)
def test_a_wrong_command_is_refused_with_the_nearest_name(arguments: list[str], messages: list[str]) -> None:
    with pytest.raises(ConfigError) as refused:
        command.load(arguments)
    for message in messages:
        assert message in str(refused.value)


def test_words_are_taken_as_they_stand() -> None:
    """A hash that reads as a number, ids with commas, brackets, equals signs and what looks like an interpolation."""
    found = command.load(["run=12e45678", "task=a/b (c), d=e", "capability='${x} [y]'", "seed=43", "format=json"])
    assert (found.run, found.task, found.capability) == ("12e45678", "a/b (c), d=e", "${x} [y]")
    assert (found.seed, found.format) == (43, "json")


def test_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TOOLSHIFT_DATA", raising=False)
    found = command.load(["run=1", "task=2", "capability=null"])
    assert (found.capability, found.seed, found.format) == (None, None, "text")
    assert (found.data.root, found.data.cache, found.paths.outputs) == (None, "data", "outputs")
    monkeypatch.setenv("TOOLSHIFT_DATA", "/some/where")
    assert command.load(["run=1", "task=2"]).data.root == "/some/where"


def test_the_keys_are_those_of_the_file() -> None:
    plain = as_mapping(command.load(["run=1", "task=2"]))
    dotted = [f"{k}.{x}" for k, v in plain.items() if isinstance(v, dict) for x in v]
    assert sorted([*dotted, *(k for k, v in plain.items() if not isinstance(v, dict))]) == sorted(command.KEYS)


@pytest.fixture
def make(tmp_path: Path, settings_of: Callable[..., Any]) -> Make:
    """``make("abc", "model=tact")``: a run folder as far as it is read before records are."""

    def build(name: str, *overrides: str, state: str = "done") -> FinishedRun:
        settings = settings_of("experiment=lodo", "debug=tiny", *overrides)
        model = settings.models[next(reversed(settings.models))]
        folder = tmp_path / "outputs" / "runs" / "lodo" / name
        folder.mkdir(parents=True)
        identity = json.loads(json.dumps(run_identity(settings, model, fingerprints=PRINTS)))
        (folder / "identity.json").write_text(json.dumps(identity))
        (folder / "status.json").write_text(json.dumps({"state": state}))
        (folder / "run.json").write_text(json.dumps({"seeds": [42, 43], "device": "cpu"}))
        rows = [
            ("T", "d/task-1", "T", "test"),
            ("T", "d/task-10", "S", "train"),
            ("T", "d/other", None, "train"),
            ("S", "d/task-1", "T", "train"),
            ("S", "d/task-10", "S", "test"),
        ]
        frame = pd.DataFrame(rows, columns=["target", "task_id", "context", "role"]).astype("category")
        pq.write_table(pa.Table.from_pandas(frame, preserve_index=False), folder / "folds.parquet")
        return FinishedRun(folder=folder, identity=identity)

    return build


def find(tmp_path: Path, run: str) -> FinishedRun:
    return FinishedRun.find(run, outputs=tmp_path / "outputs")


def test_a_run_is_found_by_hash_and_by_folder(make: Make, tmp_path: Path) -> None:
    made = make("abc1", "model=tact")
    make("abd2", "model=tact_plus")
    assert find(tmp_path, "abc").folder == made.folder
    assert find(tmp_path, str(made.folder)).identity == made.identity
    with pytest.raises(UserError, match=r"run=ab: 2 fit below .*: abc1, abd2; give more of one"):
        find(tmp_path, "ab")
    with pytest.raises(UserError, match=r"run=abc9: there is none below .*; did you mean 'abc1'"):
        find(tmp_path, "abc9")
    with pytest.raises(UserError, match=r"there is none below"):
        FinishedRun.find("abc", outputs=tmp_path / "nowhere")


def test_an_unfinished_run_and_another_model_are_refused(make: Make, tmp_path: Path) -> None:
    make("aaa", "model=tact", state="failed")
    make("bbb", "model=bm25")
    with pytest.raises(UserError, match=r"run aaa is failed, not done"):
        find(tmp_path, "aaa")
    with pytest.raises(UserError, match=r"run bbb is of the model bm25; explain.py takes apart TACT"):
        find(tmp_path, "bbb")


def test_a_task_is_found_by_its_id_and_by_one_end(make: Make) -> None:
    run = make("abc", "model=tact")
    assert run.tested("d/task-1") == ("d/task-1", "T")
    assert run.tested("task-10") == ("d/task-10", "S")
    assert run.tested("-1") == ("d/task-1", "T")
    with pytest.raises(UserError, match=r"task=d/: 2 fit among the tested tasks of the run: d/task-1, d/task-10"):
        run.tested("d/")
    with pytest.raises(UserError, match=r"task=task-2: there is none .*did you mean 'd/task-1'"):
        run.tested("task-2")
    with pytest.raises(UserError, match=r"task=d/other: there is none"):
        run.tested("d/other")  # a source task of every target


def test_sources_and_seeds(make: Make) -> None:
    run = make("abc", "model=tact")
    assert run.having("T", role="train") == [("d/task-10", "S"), ("d/other", "")]
    assert (run.seed(None), run.seed(43)) == (42, 43)
    with pytest.raises(UserError, match=r"seed=7: the run has the seeds 42, 43"):
        run.seed(7)


@pytest.mark.parametrize(
    "overrides",
    [
        ("model=tact",),
        ("model=tact_plus", "view.universe=library", "protocol.purge=gold", "view=natural"),
        ("model=tact", "models.tact.params.kappa=0.4", "encoder=minilm", "data.world=no_context_gap"),
        ("model=tact", "selection.budget=full", "data.sample_size=tiny", "seeds=[7]"),
    ],
)
def test_the_settings_of_a_run_are_those_it_was_made_with(make: Make, overrides: tuple[str, ...]) -> None:
    run = make("abc", *overrides)
    given = command.load(["run=abc", "task=x", "data.cache=elsewhere", "paths.outputs=there"])
    settings = run.settings(given)
    (model,) = settings.models.values()
    again = json.loads(json.dumps(run_identity(settings, model, fingerprints=PRINTS)))
    assert again == run.identity
    assert (settings.data.cache, settings.paths.outputs) == ("elsewhere", "there")


def test_places_are_not_taken_from_the_identity(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TOOLSHIFT_DATA", raising=False)
    run = make("abc", "model=tact", "data=real", "data.root=/old", "encoder=minilm", "encoder.params.path=/weights")
    with pytest.raises(UserError, match=r"the run is of real data: data.root=PATH"):
        run.settings(command.load(["run=abc", "task=x"]))
    settings = run.settings(command.load(["run=abc", "task=x", "data.root=/new", "encoder.path=/w"]))
    assert (settings.data.root, settings.encoder.params["path"], settings.encoder.params["device"]) == (
        "/new",
        "/w",
        "cpu",
    )


def test_a_run_of_another_version_says_so(make: Make) -> None:
    run = make("abc", "model=tact")
    older = FinishedRun(folder=run.folder, identity={**run.identity, "view": {**run.identity["view"], "gone": 1}})
    with pytest.raises(UserError, match=r"run abc was made by another version .*gone"):
        older.settings(command.load(["run=abc", "task=x"]))


def test_ranks_count_what_is_higher_and_name_ties() -> None:
    rows = [("natural", "a", 0.5, "positive"), ("natural", "b", 0.7, "ordinary"), ("natural", "c", 0.5, "semantic")]
    scores = pd.DataFrame([*rows, ("mixed", "b", 0.7, "ordinary")], columns=["view", "capability_id", "score", "role"])
    (place,) = command._places(scores, "a")
    assert (place.view, place.rank, place.of, place.tied, place.role) == ("natural", 2, 3, 1, "positive")
    assert [(p.view, p.rank, p.of, p.tied) for p in command._places(scores, "b")] == [
        ("natural", 1, 3, 0),
        ("mixed", 1, 1, 0),
    ]
    assert command._places(scores, "z") == ()


def test_the_script_refuses_and_helps() -> None:
    def script(*arguments: str) -> subprocess.CompletedProcess[str]:
        call = [sys.executable, str(ROOT / "scripts" / "explain.py"), *arguments]
        return subprocess.run(call, capture_output=True, text=True, check=False)

    refused = script("run=x", "tsk=y")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "did you mean 'task'" in refused.stderr
    helped = script("--help")
    assert helped.returncode == 0
    assert "capability: null" in helped.stdout

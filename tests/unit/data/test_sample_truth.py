"""The truth beside the sample, and what the views make of the sample."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from toolshift.data.adapters.toolbench import read
from toolshift.data.records import Records
from toolshift.data.sample import WORLDS, Spec, Truth, WorldName, build_world, draw_tasks, read_truth, write_sample
from toolshift.data.sample.language import CONDITIONS
from toolshift.settings.compose import load_settings

Opened = Callable[[WorldName], tuple[Records, Truth]]


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Opened:
    """Records and truth of the tiny sample of a world."""
    folder = tmp_path_factory.mktemp("truth")

    def open_both(name: WorldName) -> tuple[Records, Truth]:
        root = write_sample(folder, Spec(world=name, size="tiny")).root
        return read(root, strict=True), read_truth(root)

    return open_both


@pytest.mark.parametrize("name", WORLDS)
def test_truth_and_records_meet(opened: Opened, name: WorldName) -> None:
    records, truth = opened(name)
    assert sorted(truth.capabilities["capability_id"].to_pylist()) == [
        c.capability_id for c in records.library.capabilities
    ]
    assert sorted(truth.endpoints["endpoint_id"].to_pylist()) == [e.endpoint_id for e in records.library.endpoints]
    gold = {t.task_id: t.gold_capability_ids for t in records.tasks}
    endpoints = {t.task_id: t.gold_endpoint_ids for t in records.tasks}
    valid: dict[str, set[str]] = {}
    for row in truth.judgements.to_pylist():
        assert row["valid"] == (row["reason"] == "ok")
        if row["valid"]:
            valid.setdefault(row["task_id"], set()).add(row["capability_id"])
    assert {task: tuple(sorted(ids)) for task, ids in valid.items()} == gold
    for task in truth.tasks.to_pylist():
        answers = {e for requirement in task["requirements"] for e in requirement["gold_endpoint_ids"]}
        assert tuple(sorted(answers)) == endpoints[task["task_id"]]
        assert [r["gold_endpoint_ids"][0] for r in task["requirements"]] == task["calls"]


def test_the_truth_of_the_default_world_explains_every_judgement(opened: Opened) -> None:
    _, truth = opened("default")
    admits = {c["capability_id"]: set(c["admits"]) for c in truth.capabilities.to_pylist()}
    axis = {c["capability_id"]: c["axis"] for c in truth.capabilities.to_pylist()}
    functions: dict[str, set[tuple[str, str]]] = {}
    for row in truth.endpoints.to_pylist():
        functions.setdefault(row["capability_id"], set()).add((row["concept"], row["function"]))
    tasks = {t["task_id"]: t for t in truth.tasks.to_pylist()}
    friends = {(g["concept"], g["function"]): g for g in truth.groups.to_pylist()}
    for row in truth.judgements.to_pylist():
        task, capability = tasks[row["task_id"]], row["capability_id"]
        asked = task["requirements"][row["requirement"]]
        key = (asked["concept"], asked["function"])
        value = {c["axis"]: c["value"] for c in task["conditions"]}[axis[capability]]
        assert row["functional"] == (key in functions[capability])
        assert row["functional"] == (capability in friends[key]["capability_ids"])
        assert row["functional"] != (capability in friends[key]["false_friend_ids"])
        assert row["contextual"] == (value in admits[capability])
        assert row["valid"] == (row["functional"] and row["contextual"])


def test_conditions_that_a_capability_admits(opened: Opened) -> None:
    for name, expected in (("default", 2), ("no_context_gap", 4), ("context_is_noise", 0)):
        _, truth = opened(name)
        for row in truth.capabilities.to_pylist():
            assert len(row["admits"]) == expected
            assert set(row["admits"]) <= set(CONDITIONS[row["axis"]])


def test_chains_are_kept_in_order(opened: Opened) -> None:
    _, truth = opened("default")
    linked = 0
    for task in truth.tasks.to_pylist():
        for step, requirement in enumerate(task["requirements"]):
            sources = [a["source_step"] for a in requirement["arguments"] if a["source_step"] is not None]
            linked += len(sources)
            assert all(0 <= source < step for source in sources)
    drawn = draw_tasks(build_world(Spec(size="tiny")))
    assert linked == sum(m.source is not None for t in drawn for r in t.requirements for m in r.mentions) > 0


def test_real_files_have_no_truth(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="real files have no truth"):
        read_truth(tmp_path)


@pytest.mark.parametrize("name", WORLDS[:3])
def test_every_view_has_lists_with_its_roles(tmp_path: Path, name: WorldName) -> None:
    """Lists can be built in every world; no ranker is run."""
    from toolshift.experiment.workspace import open_workspace
    from toolshift.views.manifest import ROLES

    overrides = [f"data.world={name}", "data.sample_size=tiny", f"data.cache={tmp_path}", "encoder=hashing"]
    settings = load_settings("train", ["experiment=lodo", *overrides])
    workspace = open_workspace(settings)
    manifests = workspace.manifests(settings, workspace.fold(settings, workspace.labels))
    wanted = {
        "natural": set(),
        "semantic": {"semantic"},
        "context": {"contextual"},
        "mixed": {"semantic", "contextual"},
    }
    for view, roles in wanted.items():
        manifest = manifests[view]
        assert manifest.tasks.size > 0.9 * workspace.corpus.n_tasks, view
        assert {ROLES[code] for code in manifest.role} == {"positive", "ordinary"} | roles
        assert len(set(workspace.corpus.task_domain[manifest.tasks].tolist())) >= 11

"""Trajectories of the sample, read back and held against the world."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from toolshift.data.adapters import toolbench
from toolshift.data.records import Library
from toolshift.data.sample import Spec, build_world, draw_tasks, write_sample
from toolshift.data.sample.formats.toolbench import Rendering
from toolshift.data.trajectories import AUTHORS, PAPER, Rules, Trajectories, read_trajectories
from toolshift.data.trajectories.sample import NAMES, SUCCESSFUL, write_sample_trajectories
from toolshift.protocols.purge import normalise

SPEC = Spec(world="default", size="tiny", seed=0)


@dataclass(frozen=True)
class Made:
    folder: Path
    root: Path
    library: Library

    def read(self, rules: Rules = PAPER) -> Trajectories:
        return read_trajectories(self.root, names=NAMES, rules=rules, library=self.library)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("sample")
    library = toolbench.read(write_sample(folder, SPEC).root).library
    return Made(folder, write_sample_trajectories(folder, SPEC).root, library)


def test_calls_are_those_of_the_world(made: Made) -> None:
    world = build_world(SPEC)
    ids = Rendering(world).ids.endpoint
    chains = {normalise(t.text): [ids[row] for row in t.calls] for t in draw_tasks(world)}
    for task in made.read().tasks:
        expected = chains[normalise(task.text)]
        assert [call for call in task.calls if call in expected] == expected


def test_there_are_enough_of_every_kind(made: Made) -> None:
    result = made.read(AUTHORS)
    assert SUCCESSFUL["tiny"] <= len(result) <= SUCCESSFUL["tiny"] + 3
    sections = result.report.sections
    calls = Counter[str]()
    for name, section in sections.items():
        calls.update(section.dropped if name.endswith(":calls") else {})
        assert section.rows_read == section.records + sum(section.dropped.values())
    assert calls["hallucinated_name"] >= 5
    assert sum(s.dropped.get("not_successful", 0) for s in sections.values()) >= 10
    cleaned = made.read(Rules(deduplicate=False, error_free=True)).report.sections
    assert sum(s.dropped.get("error", 0) for s in cleaned.values()) >= 5
    assert result.report.notes["endpoints_from_function_lists"] >= 1
    assert len(set(result.origin)) >= 4
    by_text: dict[str, set[str]] = {}
    for task, origin in zip(result.tasks, result.origin, strict=True):
        by_text.setdefault(normalise(task.text), set()).add(origin)
    assert sum(len(origins) > 1 for origins in by_text.values()) >= 15  # one query, several sources
    assert sum(len(task.calls) > 1 for task in result.tasks) >= 70


def test_the_same_files_are_written_again(made: Made, tmp_path: Path) -> None:
    again = write_sample_trajectories(tmp_path, SPEC)
    assert again.generated
    for path in sorted(made.root.rglob("*.json")):
        assert (again.root / path.relative_to(made.root)).read_bytes() == path.read_bytes()
    assert not write_sample_trajectories(tmp_path, SPEC).generated
    changed = min((again.root / "toolbench").rglob("*.json"))
    changed.write_text("{}", encoding="utf-8")
    assert write_sample_trajectories(tmp_path, SPEC).generated


def test_every_world_has_trajectories(tmp_path: Path) -> None:
    spec = Spec(world="popularity_only", size="tiny", seed=1)
    library = toolbench.read(write_sample(tmp_path, spec).root).library
    root = write_sample_trajectories(tmp_path, spec).root
    assert len(read_trajectories(root, names=NAMES, library=library)) >= SUCCESSFUL["tiny"]

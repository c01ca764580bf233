"""The sample on disk: bytes, reuse, quirks, and the records that the ToolBench adapter makes of it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tracemalloc
from collections import Counter
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import get_args

import pytest

from toolshift.data import sample
from toolshift.data.adapters.toolbench import read
from toolshift.data.checks import name_free_flags
from toolshift.data.names import standardize
from toolshift.data.records import Capability, Endpoint, Records
from toolshift.data.sample import (
    LABEL,
    MANIFEST,
    SIZES,
    TOOLBENCH_HASH,
    WORLD_HASH,
    WORLDS,
    SampleInfo,
    Spec,
    build_world,
    draw_tasks,
    world_hash,
    write_sample,
)
from toolshift.data.sample.formats.base import text_id
from toolshift.data.sample.formats.toolbench import DATASET, Rendering
from toolshift.data.sample.world import Parameter, World, WorldName
from toolshift.settings.schema import SampleSize, SampleWorld

Written = Callable[[WorldName], SampleInfo]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """The tiny sample of a world; written once per module."""
    folder = tmp_path_factory.mktemp("sample")
    return lambda name: write_sample(folder, Spec(world=name, size="tiny"))


@pytest.fixture(scope="module")
def root(written: Written) -> Path:
    return written("default").root


@pytest.fixture(scope="module")
def records(root: Path) -> Records:
    return read(root, strict=True)


# --------------------------------------------------------------------------------------------------------- the bytes


def test_the_same_seed_gives_the_same_bytes_in_any_process(tmp_path: Path) -> None:
    here = write_sample(tmp_path / "here", Spec(size="tiny", seed=3, tasks=20))
    program = (
        "import sys; from pathlib import Path; from toolshift.data.sample import Spec, write_sample as w; "
        "i = w(Path(sys.argv[1]), Spec(size='tiny', seed=3, tasks=20)); print(i.sha256, i.world_hash)"
    )
    source = str(Path(sample.__file__).parents[3])
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": source}
        command = [sys.executable, "-c", program, str(tmp_path / hash_seed)]
        done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
        assert done.stdout.split() == [here.sha256, here.world_hash]
    other = write_sample(tmp_path / "here", Spec(size="tiny", seed=4, tasks=20))
    assert other.sha256 != here.sha256
    assert other.world_hash != here.world_hash


def test_it_is_written_again_only_when_something_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = Spec(size="tiny", tasks=20)
    first = write_sample(tmp_path, spec)
    assert first.generated
    assert first.root == tmp_path / "default-tiny-0-20"
    again = write_sample(tmp_path, spec)
    assert (again.generated, again.sha256, again.files) == (False, first.sha256, first.files)
    for name in ("toolbench/instruction/G1_query.json", "truth/toolbench/tasks.parquet"):
        (first.root / name).write_text("[]")
        repaired = write_sample(tmp_path, spec)
        assert (repaired.generated, repaired.sha256) == (True, first.sha256)
    (first.root / MANIFEST).unlink()
    assert write_sample(tmp_path, spec).generated
    monkeypatch.setattr(sample, "_code_hash", lambda _: "new code")
    assert write_sample(tmp_path, spec).generated
    assert [p.name for p in tmp_path.iterdir()] == [spec.name]


def test_a_failed_write_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = Spec(size="tiny", tasks=20)
    first = write_sample(tmp_path, spec)
    monkeypatch.setattr(sample, "_code_hash", lambda _: "new code")
    monkeypatch.setattr(sample.TruthWriter, "add", lambda *_, **__: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        write_sample(tmp_path, spec)
    monkeypatch.undo()
    assert [p.name for p in tmp_path.iterdir()] == [spec.name]
    assert not write_sample(tmp_path, spec).generated
    assert first.generated


def test_it_says_what_it_is(written: Written) -> None:
    info = written("default")
    manifest = json.loads((info.root / MANIFEST).read_text())
    assert manifest["label"] == LABEL == "sample (synthetic)"
    assert (manifest["world"], manifest["size"], manifest["seed"]) == ("default", "tiny", 0)
    assert manifest["world_hash"] == info.world_hash


def test_bad_arguments_are_refused(tmp_path: Path) -> None:
    for wrong in ({"world": "nul"}, {"size": "huge"}, {"seed": -1}, {"tasks": 0}):
        with pytest.raises(ValueError, match="expected"):
            Spec(**wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="more tasks per domain"):
        write_sample(tmp_path, Spec(size="tiny", tasks=2))
    assert list(tmp_path.iterdir()) == []


def test_the_settings_offer_what_there_is() -> None:
    assert get_args(SampleWorld) == WORLDS
    assert get_args(SampleSize) == tuple(SIZES)


# -------------------------------------------------------------------------------------------------------- the freeze


@pytest.mark.parametrize("size", ["tiny", "small"])
@pytest.mark.parametrize("name", WORLDS)
def test_the_worlds_are_the_frozen_ones(
    tmp_path: Path, name: WorldName, size: sample.SizeName, caplog: pytest.LogCaptureFixture
) -> None:
    """A failure here voids every result made so far: docs/sample.md says what a change of the world needs."""
    info = write_sample(tmp_path, Spec(world=name, size=size))
    assert info.world_hash == WORLD_HASH[name, size]
    assert info.sha256 == TOOLBENCH_HASH[name, size]
    assert not caplog.records


def test_all_frozen_worlds_differ() -> None:
    assert set(WORLD_HASH) == set(TOOLBENCH_HASH) == {(name, size) for name in WORLDS for size in ("tiny", "small")}
    assert len(set(WORLD_HASH.values())) == len(set(TOOLBENCH_HASH.values())) == 10


def test_the_hash_of_a_world_needs_no_file() -> None:
    assert world_hash(Spec(size="tiny")) == WORLD_HASH["default", "tiny"]


def test_a_world_that_is_not_the_frozen_one_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sample, "WORLD_HASH", {("default", "tiny"): "0"})
    write_sample(tmp_path, Spec(size="tiny"))
    assert "not the frozen one" in caplog.text


# ---------------------------------------------------------------------------------------------- records equal the world


@pytest.mark.parametrize("name", WORLDS)
def test_records_equal_the_world(written: Written, name: WorldName) -> None:
    world = build_world(Spec(world=name, size="tiny"))
    rendering = Rendering(world)
    found = read(written(name).root, strict=True)
    assert {c.capability_id: _facts(c) for c in found.library.capabilities} == _expected_capabilities(rendering)
    assert {e.endpoint_id: _documented(e) for e in found.library.endpoints} == _expected_endpoints(rendering)
    expected = {
        text_id(DATASET, task): (
            task.text,
            task.domain,
            tuple(sorted(rendering.ids.endpoint[row] for row in task.gold)),
        )
        for task in draw_tasks(world)
    }
    assert {t.task_id: (t.text, t.domain, t.gold_endpoint_ids) for t in found.tasks} == expected
    assert found.report.dropped == {}
    assert found.report.notes["ambiguous_gold"] == 0


def _facts(capability: Capability) -> tuple[str, str, str]:
    return capability.name, capability.description, capability.domain


def _expected_capabilities(rendering: Rendering) -> dict[str, tuple[str, str, str]]:
    facts = {}
    for row, face in zip(rendering.world.capabilities, rendering.tools, strict=True):
        description = row.description if face.listed and face.described else ""
        facts[rendering.ids.capability[row.row]] = (" ".join(face.name.split()), description, row.domain)
    return facts


Documented = tuple[str, str, str, list[tuple[str, str, str, bool | None]]]


def _documented(endpoint: Endpoint) -> Documented:
    arguments = [(a.name, a.raw_type, a.description, a.required) for a in endpoint.arguments]
    return endpoint.operation, endpoint.description, endpoint.method, arguments


def _expected_endpoints(rendering: Rendering) -> dict[str, Documented]:
    def arguments(given: tuple[Parameter, ...], *, required: bool) -> list[tuple[str, str, str, bool | None]]:
        return [(p.name, p.raw_type, p.description, required) for p in given]

    facts = {}
    for row, face in zip(rendering.world.endpoints, rendering.apis, strict=True):
        document = row.document
        facts[rendering.ids.endpoint[row.row]] = (
            face.name,
            document.description,
            document.method,
            [*arguments(document.required, required=True), *arguments(document.optional, required=False)],
        )
    return facts


def test_sizes(records: Records) -> None:
    tasks = Counter(t.domain for t in records.tasks)
    assert len(tasks) == records.report.domains == 12
    assert sorted(tasks.values()) == [8, *[40] * 11]
    assert 150 < records.report.capabilities < 200
    assert 400 < records.report.endpoints < 450
    assert {1, 2, 3, 4, 5, 6} == {len(group) for group in records.library.endpoints_of.values()}


def test_upstream_quirks_are_present(root: Path, records: Records) -> None:
    notes = records.report.notes
    for quirk in (
        "merged_duplicate_text",
        "merged_text_with_other_gold",
        "merged_duplicate_apis",
        "recreated_tools",
        "endpoints_from_task_docs",
        "tools_matched_by_alias",
    ):
        assert notes[quirk] > 0, quirk
    capabilities = records.library.capabilities
    assert Counter(c.name for c in capabilities)["Quick Lookup"] == 2
    assert any(c.name.endswith("_v2") and c.schema_source == "task" for c in capabilities)
    assert any(c.schema_source == "library" for c in capabilities), "tools no request needs"
    assert any(not c.description and c.schema_source != "task" for c in capabilities)
    assert any(c.capability_id.split("/")[2].startswith("unnamed-") for c in capabilities)
    assert any(c.capability_id.split("/")[2].startswith("get_7") for c in capabilities)
    assert any("^" in e.endpoint_id for e in records.library.endpoints)
    assert any(c.capability_id.split("/")[2] != standardize(c.name) for c in capabilities)
    tools = root / "toolbench" / "toolenv" / "tools"
    assert any(entry.name == ".json" for folder in os.scandir(tools) for entry in os.scandir(folder.path))
    several = [t for t in records.tasks if len({c.split("/")[1] for c in t.gold_capability_ids}) > 1]
    assert len(several) > 100
    assert sum(set(t.given_candidate_ids) > set(t.gold_capability_ids) for t in records.tasks) > 300
    assert 0 < name_free_flags(records).sum() < len(records.tasks)
    types = {a.type for e in records.library.endpoints for a in e.arguments}
    assert types >= {"string", "number", "boolean", "datetime", "geo", "list", "url", "email"}


def test_one_domain_has_fewer_than_five_available_tools(records: Records) -> None:
    available: dict[str, set[str]] = {}
    for task in records.tasks:
        available.setdefault(task.domain, set()).update(task.gold_capability_ids, task.given_candidate_ids)
    sizes = sorted(len(ids) for ids in available.values())
    assert 1 < sizes[0] < 5
    assert sizes[1] >= 20


def test_requests_are_filled_in_and_short(records: Records) -> None:
    for task in records.tasks:
        assert not re.search(r"[{}]|  ", task.text)
        assert task.text.endswith(".")
    assert sorted(len(t.text.split()) for t in records.tasks)[len(records.tasks) // 2] < 30


# ------------------------------------------------------------------------------------------------------------ scale


def test_drawing_tasks_keeps_no_memory_of_them() -> None:
    world = build_world(Spec(size="large"))
    assert 15_000 < len(world.endpoints) <= 16_000
    assert 199_000 < sum(domain.tasks for domain in world.domains) <= 200_000
    peaks = [_peak(world, tasks) for tasks in (100, 1_500)]
    assert peaks[1] < peaks[0] + (1 << 20)


def _peak(world: World, tasks: int) -> int:
    """Bytes at the peak of drawing; the first task builds what is cached, outside the measurement."""
    drawn = draw_tasks(world)
    next(drawn)
    tracemalloc.start()
    try:
        count = sum(1 for _ in islice(drawn, tasks))
        assert count == tasks
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

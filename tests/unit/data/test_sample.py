from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from toolshift.data import sample
from toolshift.data.adapters.toolbench import read
from toolshift.data.checks import name_free_flags
from toolshift.data.names import standardize
from toolshift.data.records import Records
from toolshift.data.sample import LABEL, MANIFEST, write_tiny_toolbench


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_toolbench(tmp_path_factory.mktemp("sample"), seed=0).root


@pytest.fixture(scope="module")
def records(root: Path) -> Records:
    return read(root, strict=True)


def test_the_same_seed_gives_the_same_bytes_in_any_process(tmp_path: Path) -> None:
    here = write_tiny_toolbench(tmp_path / "here", seed=3)
    program = "import sys; from pathlib import Path; from toolshift.data.sample import write_tiny_toolbench as w; "
    program += "print(w(Path(sys.argv[1]), seed=3).sha256)"
    source = str(Path(sample.__file__).parents[2])
    for hash_seed in ("0", "1"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": source}
        command = [sys.executable, "-c", program, str(tmp_path / hash_seed)]
        done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
        assert done.stdout.strip() == here.sha256
    assert write_tiny_toolbench(tmp_path / "other", seed=4).sha256 != here.sha256


def test_it_is_written_again_only_when_something_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = write_tiny_toolbench(tmp_path, seed=0, n_domains=3)
    assert first.generated
    again = write_tiny_toolbench(tmp_path, seed=0, n_domains=3)
    assert (again.generated, again.sha256, again.files) == (False, first.sha256, first.files)
    edited = tmp_path / "toolbench" / "instruction" / "G1_query.json"
    edited.write_text("[]")
    repaired = write_tiny_toolbench(tmp_path, seed=0, n_domains=3)
    assert (repaired.generated, repaired.sha256) == (True, first.sha256)
    assert write_tiny_toolbench(tmp_path, seed=1, n_domains=3).generated
    monkeypatch.setattr(sample, "sha256_file", lambda path: "new code")
    assert write_tiny_toolbench(tmp_path, seed=1, n_domains=3).generated
    assert [p.name for p in tmp_path.iterdir()] == ["toolbench"]


def test_it_says_what_it_is(root: Path) -> None:
    manifest = json.loads((root / "toolbench" / MANIFEST).read_text())
    assert manifest["label"] == LABEL == "sample (synthetic)"
    assert manifest["seed"] == 0


def test_sizes(records: Records) -> None:
    tasks = Counter(t.domain for t in records.tasks)
    tools = Counter(c.domain for c in records.library.capabilities)
    assert len(tasks) == records.report.domains == 12
    assert sorted(tasks.values()) == [8, *[40] * 11]
    assert sorted(tools.values()) == [3, *[12] * 11]
    assert {1, 2, 3, 4, 5, 6} == {len(group) for group in records.library.endpoints_of.values()}
    assert len({t.text for t in records.tasks}) == len(records.tasks)


def test_upstream_quirks_are_present(root: Path, records: Records) -> None:
    notes = records.report.notes
    for quirk in (
        "merged_duplicate_text",
        "merged_duplicate_apis",
        "recreated_tools",
        "endpoints_from_task_docs",
        "tools_matched_by_alias",
    ):
        assert notes[quirk] > 0, quirk
    capabilities = records.library.capabilities
    names = Counter(c.name for c in capabilities)
    assert names["Quick Lookup"] == 2
    assert any(c.name.endswith("_v2") and c.schema_source == "task" for c in capabilities)
    assert any(c.schema_source == "library" for c in capabilities), "tools no request needs"
    assert any(not c.description and c.schema_source != "task" for c in capabilities)
    assert any(c.capability_id.split("/")[2].startswith("unnamed-") for c in capabilities)
    assert any("^" in e.endpoint_id for e in records.library.endpoints)
    assert any(c.capability_id.split("/")[2] != standardize(c.name) for c in capabilities)
    tools = root / "toolbench" / "toolenv" / "tools"
    assert any(entry.name == ".json" for folder in os.scandir(tools) for entry in os.scandir(folder.path))
    several = [t for t in records.tasks if len({c.split("/")[1] for c in t.gold_capability_ids}) > 1]
    assert len(several) > 40
    assert any(set(t.given_candidate_ids) > set(t.gold_capability_ids) for t in records.tasks)
    assert 0 < name_free_flags(records).sum() < len(records.tasks)
    types = {a.type for e in records.library.endpoints for a in e.arguments}
    assert types >= {"string", "number", "boolean", "datetime", "geo", "list", "url", "email"}


def test_one_domain_has_fewer_than_five_available_tools(records: Records) -> None:
    available: dict[str, set[str]] = {}
    for task in records.tasks:
        available.setdefault(task.domain, set()).update(task.gold_capability_ids, task.given_candidate_ids)
    sizes = sorted(len(ids) for ids in available.values())
    assert sizes[0] == 3
    assert sizes[1] >= 5


def test_requests_are_filled_in(records: Records) -> None:
    for task in records.tasks:
        assert not re.search(r"[{}]", task.text)
        assert task.text.endswith(".")


def test_sizes_out_of_range_are_refused(tmp_path: Path) -> None:
    for sizes in ({"n_domains": 2}, {"tools_per_domain": 5}, {"tasks_per_domain": 0}, {"n_domains": 99}):
        with pytest.raises(ValueError, match="expected 3 to 12 domains"):
            write_tiny_toolbench(tmp_path, **sizes)
    assert list(tmp_path.iterdir()) == []

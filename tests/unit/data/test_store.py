from __future__ import annotations

import json
import os
import re
import sys
import tempfile
import types
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolshift.data import store
from toolshift.data.adapters import toolbench
from toolshift.data.errors import AdapterError
from toolshift.data.records import (
    COARSE_TYPES,
    Argument,
    Capability,
    Endpoint,
    Library,
    Records,
    Report,
    Section,
    Task,
)
from toolshift.data.store import LoadedRecords, StoreError, load_records, read_records, write_records

ADAPTER = "toolshift.data.adapters.toolbench:read"


def load(root: Path, cache: Path, **options: Any) -> LoadedRecords:
    return load_records(dataset="toolbench", adapter=ADAPTER, root=root, cache=cache, **options)


# ---------------------------------------------------------------------------------------------------------- round trip

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
NAME = TEXT.filter(bool)
SOURCES = st.sampled_from(["library", "task", "both"])
ARGUMENTS = st.builds(
    Argument,
    name=NAME,
    raw_type=TEXT,
    type=st.sampled_from(COARSE_TYPES),
    required=st.sampled_from([True, False, None]),
    description=TEXT,
)


@st.composite
def any_records(draw: st.DrawFn) -> Records:
    keys = sorted(draw(st.sets(NAME, min_size=1, max_size=4)))
    ids = [f"d/{key}" for key in keys]
    capabilities = tuple(
        Capability(
            capability_id=i,
            dataset="d",
            name=draw(TEXT),
            description=draw(TEXT),
            domain=draw(TEXT),
            text=draw(TEXT),
            schema_source=draw(SOURCES),
        )
        for i in ids
    )
    wanted = sorted(draw(st.sets(st.tuples(st.sampled_from(ids), NAME), max_size=5)), key=lambda p: f"{p[0]}/{p[1]}")
    endpoints = {
        f"{i}/{key}": Endpoint(
            endpoint_id=f"{i}/{key}",
            capability_id=i,
            operation=draw(TEXT),
            description=draw(TEXT),
            method=draw(TEXT),
            arguments=tuple(draw(st.lists(ARGUMENTS, max_size=3))),
            returns=tuple(draw(st.lists(TEXT, max_size=2))),
            text=draw(TEXT),
            source=draw(SOURCES),
        )
        for i, key in wanted
    }
    known = sorted(endpoints)
    some = st.lists(st.sampled_from(known), max_size=3) if known else st.just([])
    tasks = tuple(
        Task(
            task_id=f"d/{number}",
            dataset="d",
            domain=draw(TEXT),
            text=draw(TEXT.filter(str.strip)),
            gold_capability_ids=tuple(sorted(draw(st.sets(st.sampled_from(ids), min_size=1)))),
            gold_endpoint_ids=tuple(sorted(set(draw(some)))),
            ordered=draw(st.booleans()),
            calls=tuple(draw(some)),
            given_candidate_ids=tuple(sorted(draw(st.sets(st.sampled_from(ids))))),
            split=draw(TEXT),
            source=draw(TEXT),
        )
        for number in range(draw(st.integers(0, 3)))
    )
    kept, lost = draw(st.integers(0, 9)), draw(st.dictionaries(NAME, st.integers(1, 9), max_size=2))
    report = Report(
        sections={"rows": Section(rows_read=kept + sum(lost.values()), records=kept, dropped=lost)},
        tasks=len(tasks),
        capabilities=len(ids),
        endpoints=len(known),
        gold_pairs=1,
        domains=1,
        ordered_tasks=0,
        notes=draw(st.dictionaries(NAME, st.integers(0, 9), max_size=2)),
    )
    library = Library(capabilities, tuple(endpoints[i] for i in known))
    return Records(dataset="d", library=library, tasks=tasks, report=report)


@settings(max_examples=80, deadline=None)
@given(records=any_records())
def test_records_come_back_identical(records: Records) -> None:
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "store"
        write_records(records, target, fingerprint="f")
        assert read_records(target, fingerprint="f") == records
        assert sorted(p.name for p in Path(folder).iterdir()) == ["store"], "no temporary folder is left"


# ----------------------------------------------------------------------------------------------------- loading, memory


def test_a_second_load_reads_the_store_and_equals_the_first(release: Any, tmp_path: Path) -> None:
    first = load(release.root, tmp_path / "cache")
    second = load(release.root, tmp_path / "cache")
    assert (first.rebuilt, second.rebuilt) == (True, False)
    assert first.records == second.records
    assert first.fingerprint == second.fingerprint
    assert second.folder == tmp_path / "cache" / "records" / "toolbench" / first.fingerprint[:12]
    report = json.loads((tmp_path / "cache" / "records" / "toolbench" / "report.json").read_text())
    assert report == first.records.report.as_dict()
    assert report["rows_read"] == report["records"] + sum(report["dropped"].values())


def test_the_root_may_be_given_with_a_trailing_slash_or_moved(release: Any, tmp_path: Path) -> None:
    first = load(release.root, tmp_path / "cache")
    moved = release.root.rename(tmp_path / "elsewhere")
    again = load(Path(f"{moved}/"), tmp_path / "cache")
    assert again.fingerprint == first.fingerprint
    assert not again.rebuilt


def test_content_options_and_code_change_the_fingerprint(
    release: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"
    seen = [load(release.root, cache).fingerprint]
    seen.append(load(release.root, cache, options={"template": "with_operations"}).fingerprint)
    seen.append(load(release.root, cache, options={"queries": ["test_instruction"]}).fingerprint)
    path = release.root / "toolbench/toolenv/tools/Food/soup_book.json"
    path.write_text(path.read_text().replace("All soups", "Any soups"))
    changed = load(release.root, cache)
    assert changed.rebuilt
    seen.append(changed.fingerprint)
    monkeypatch.setattr(store, "_LAYOUT", 99)
    seen.append(load(release.root, cache).fingerprint)
    assert len(set(seen)) == 5
    explicit = load(release.root, cache, options=toolbench.Options(template="name_description"))
    assert explicit.fingerprint == seen[-1], "defaults spelled out are the same options"


def test_unchanged_files_are_not_hashed_again(release: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = toolbench.inputs(release.root)
    first = store.raw_fingerprint(paths, root=release.root, memo=tmp_path / "raw")
    hashed: list[Path] = []
    real = store.sha256_file
    monkeypatch.setattr(store, "sha256_file", lambda path: hashed.append(path) or real(path))
    assert store.raw_fingerprint(paths[::-1], root=release.root, memo=tmp_path / "raw") == first
    assert hashed == []
    os.utime(paths[0], ns=(1, 1))
    assert store.raw_fingerprint(paths, root=release.root, memo=tmp_path / "raw") == first
    assert len(hashed) == len(paths)


def test_a_damaged_memo_is_ignored(release: Any, tmp_path: Path) -> None:
    paths = toolbench.inputs(release.root)
    first = store.raw_fingerprint(paths, root=release.root, memo=tmp_path)
    (note,) = tmp_path.glob("*.json")
    note.write_text("{")
    assert store.raw_fingerprint(paths, root=release.root, memo=tmp_path) == first


# ------------------------------------------------------------------------------------------------------ damaged store


@pytest.mark.parametrize("name", ["tasks.parquet", "report.json", "meta.json"])
@pytest.mark.parametrize("damage", ["cut", "remove"])
def test_a_damaged_store_is_named_and_rebuilt(
    release: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, damage: str
) -> None:
    first = load(release.root, tmp_path)
    path = first.folder / name
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:-7])
    else:
        path.unlink()
    with pytest.raises(StoreError, match=name):
        read_records(first.folder)
    again = load(release.root, tmp_path)
    assert again.rebuilt
    assert again.records == first.records
    assert name in caplog.text
    assert not load(release.root, tmp_path).rebuilt
    assert [p.name for p in (tmp_path / "records/toolbench").iterdir() if p.name.startswith(".")] == []


def test_another_fingerprint_or_schema_is_refused(release: Any, tmp_path: Path) -> None:
    folder = load(release.root, tmp_path).folder
    with pytest.raises(StoreError, match="written for fingerprint"):
        read_records(folder, fingerprint="other")
    path = folder / "tasks.parquet"
    pq.write_table(pq.read_table(path).drop_columns(["split"]), path)
    meta = json.loads((folder / "meta.json").read_text())
    meta["files"]["tasks.parquet"] = store.sha256_file(path)
    (folder / "meta.json").write_text(json.dumps(meta))
    with pytest.raises(StoreError, match=r"tasks\.parquet: its schema"):
        read_records(folder)


@pytest.mark.parametrize("name", ["tasks.parquet", "apart.parquet"])
def test_tasks_that_were_never_parquet_are_named(release: Any, tmp_path: Path, name: str) -> None:
    folder = load(release.root, tmp_path).folder
    (folder / name).write_bytes(b"no parquet")
    meta = json.loads((folder / "meta.json").read_text())
    meta["files"][name] = store.sha256_file(folder / name)
    (folder / "meta.json").write_text(json.dumps(meta))
    with pytest.raises(StoreError, match=rf"{re.escape(name)}: not a readable parquet file"):
        read_records(folder)


def test_a_failed_write_leaves_nothing(release: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(store.pq, "write_table", fail)
    with pytest.raises(OSError, match="disk full"):
        load(release.root, tmp_path)
    assert [p.name for p in (tmp_path / "records/toolbench").iterdir()] == ["raw"]


# ------------------------------------------------------------------------------------------------ strict, bad adapter


def test_strict_is_an_error_also_for_what_a_lenient_run_stored(release: Any, tmp_path: Path) -> None:
    release.put("toolenv/tools/Food/broken.json", b"[]")
    assert load(release.root, tmp_path).records.report.dropped == {"tool_files:not_an_object": 1}
    with pytest.raises(AdapterError, match=r"broken\.json: not an object"):
        load(release.root, tmp_path, strict=True)
    assert not load(release.root, tmp_path).rebuilt


def test_strict_reads_a_clean_store(release: Any, tmp_path: Path) -> None:
    load(release.root, tmp_path)
    assert not load(release.root, tmp_path, strict=True).rebuilt


@pytest.mark.parametrize("adapter", ["toolshift.nowhere:read", "toolshift.data.adapters.toolbench:reed", "plain", ":x"])
def test_an_adapter_that_cannot_be_found(tmp_path: Path, adapter: str) -> None:
    with pytest.raises(AdapterError, match="expected 'module:function'"):
        load_records(dataset="toolbench", adapter=adapter, root=tmp_path, cache=tmp_path)


def test_unknown_or_misshapen_options(release: Any, tmp_path: Path) -> None:
    with pytest.raises(AdapterError, match="unknown key 'templat'; expected one of queries, template"):
        load(release.root, tmp_path, options={"templat": "x"})
    with pytest.raises(AdapterError, match="must be a mapping"):
        load(release.root, tmp_path, options=3)


def test_an_adapter_without_extras_reads_all_files_below_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = types.ModuleType("tiny_adapter")
    module.__file__ = str(Path(__file__))

    def read(root: Path, *, options: object, strict: bool) -> Records:
        names = sorted(p.read_text() for p in (root / "d").iterdir())
        capabilities = tuple(Capability(capability_id=f"d/{n}", dataset="d", name=n) for n in names)
        report = Report(
            sections={}, tasks=0, capabilities=len(names), endpoints=0, gold_pairs=0, domains=0, ordered_tasks=0
        )
        return Records(dataset="d", library=Library(capabilities, ()), tasks=(), report=report)

    module.read = read  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tiny_adapter", module)
    with pytest.raises(AdapterError, match="no such folder; expected the raw files of dataset=d"):
        load_records(dataset="d", adapter="tiny_adapter:read", root=tmp_path, cache=tmp_path / "c")
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "one").write_text("a")
    first = load_records(dataset="d", adapter="tiny_adapter:read", root=tmp_path, cache=tmp_path / "c")
    (tmp_path / "d" / "two").write_text("b")
    second = load_records(dataset="d", adapter="tiny_adapter:read", root=tmp_path, cache=tmp_path / "c")
    assert [c.name for c in second.records.library.capabilities] == ["a", "b"]
    assert first.fingerprint != second.fingerprint
    with pytest.raises(AdapterError, match="yields records of 'd', not of dataset='e'"):
        (tmp_path / "e").mkdir()
        load_records(dataset="e", adapter="tiny_adapter:read", root=tmp_path, cache=tmp_path / "c")

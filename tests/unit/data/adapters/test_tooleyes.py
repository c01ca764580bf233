from __future__ import annotations

import gzip
import hashlib
import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolshift.data.adapters.tooleyes import Options, inputs, read
from toolshift.data.errors import AdapterError
from toolshift.data.records import Records

QUERIES = "Test_Data/scenario_data_raw.json"
CONTROLS = [{"name": "ask_to_user", "parameters": {}}, {"name": "finish", "parameters": {}}]


@dataclass(frozen=True)
class Release:
    """A release below ``root``; every ``put`` writes one file below ``root/tooleyes``."""

    root: Path

    def put(self, relative: str, content: Any) -> Path:
        """Write JSON, or bytes as they are; a name that ends in .gz is packed."""
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        path = self.root / "tooleyes" / relative
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(data) if relative.endswith(".gz") else data)
        return path

    def tools(self, place: str, *entries: Any) -> Path:
        return self.put(f"Tool_Library/{place}/config_gpt4.json", [*entries, *CONTROLS])

    def queries(self, *rows: Any) -> Path:
        return self.put(QUERIES, list(rows))


def tool(name: str, *required: str, optional: tuple[str, ...] = (), description: str = "") -> dict[str, Any]:
    properties = {p: {"type": "string", "description": f"The {p}."} for p in (*required, *optional)}
    schema = {"type": "object", "properties": properties, "required": list(required)}
    return {"name": name, "description": description, "parameters": schema}


def query(text: str, place: str, scenario: str = "TG") -> dict[str, Any]:
    return {"query": text, "path": f"ToolEyes/Tool_Library/{place}", "scenario": scenario}


@pytest.fixture
def release(tmp_path: Path) -> Release:
    made = Release(tmp_path / "root")
    made.tools("Garden/Seed_Box", tool("sow", "seed", optional=("depth",), description="Sow  it."), tool("water"))
    made.tools("Sea/Harbour", tool("moor", "boat"))
    made.queries(query("Sow beans.", "Garden/Seed_Box"), query("Moor it.", "Sea/Harbour", "RS"))
    return made


def given_of(records: Records) -> dict[str, list[str]]:
    return {task.text: [c.removeprefix("tooleyes/") for c in task.given_candidate_ids] for task in records.apart}


# ------------------------------------------------------------------------------------------------------ plain reading


def test_tools_become_a_library_and_queries_are_kept_apart(release: Release) -> None:
    records = read(release.root, strict=True)
    assert [c.capability_id for c in records.library.capabilities] == [
        "tooleyes/Garden/Seed_Box/sow",
        "tooleyes/Garden/Seed_Box/water",
        "tooleyes/Sea/Harbour/moor",
    ]
    sow = records.library.endpoints[0]
    assert (sow.endpoint_id, sow.description) == ("tooleyes/Garden/Seed_Box/sow/sow", "Sow it.")
    assert [(a.name, a.type, a.required, a.description) for a in sow.arguments] == [
        ("seed", "string", True, "The seed."),
        ("depth", "string", False, "The depth."),
    ]
    assert (records.library.capabilities[0].text, records.library.capabilities[0].domain) == ("sow: Sow it.", "Garden")
    assert records.tasks == ()
    assert given_of(records) == {
        "Sow beans.": ["Garden/Seed_Box/sow", "Garden/Seed_Box/water"],
        "Moor it.": ["Sea/Harbour/moor"],
    }
    task = next(t for t in records.apart if t.text == "Moor it.")
    assert task.task_id == "tooleyes/" + hashlib.sha256(b"Moor it.").hexdigest()[:16]
    assert (task.no_gold, task.gold_capability_ids, task.domain) == ("not_annotated", (), "Sea")
    assert (task.split, task.source) == ("RS", f"tooleyes/{QUERIES}#1")
    assert "no gold tools" in records.unscorable
    assert (records.report.tasks, records.report.notes["tasks_apart"]) == (0, 2)


def test_controls_of_the_agent_loop_are_left_out_and_counted_also_under_strict(release: Release) -> None:
    for strict in (False, True):
        section = read(release.root, strict=strict).report.sections["tools"]
        assert (section.rows_read, section.records, section.dropped) == (7, 3, {"control_entry": 4})


def test_the_template_is_an_option_and_packed_files_are_read(release: Release) -> None:
    (release.root / "tooleyes" / QUERIES).unlink()
    release.put(f"{QUERIES}.gz", [query("Moor it.", "Sea/Harbour")])
    release.put("Tool_Library/Sea/Beach/config_gpt4.json.gz", [tool("dig")])
    release.put("Tool_Library/Sea/Beach/config_other.json", [tool("no")])
    release.put("Tool_Library/Sea/config_gpt4.json", [tool("too high")])
    records = read(release.root, options=Options(template="with_operations"))
    assert [c.text for c in records.library.capabilities if "/Sea/" in c.capability_id] == [
        "dig | operations: dig",
        "moor | operations: moor",
    ]
    assert [p.relative_to(release.root / "tooleyes").as_posix() for p in inputs(release.root)] == [
        "Tool_Library/Garden/Seed_Box/config_gpt4.json",
        "Tool_Library/Sea/Beach/config_gpt4.json.gz",
        "Tool_Library/Sea/Harbour/config_gpt4.json",
        f"{QUERIES}.gz",
    ]
    with pytest.raises(AdapterError, match="template='x' is unknown"):
        Options(template="x")


def test_one_name_in_two_sets_is_two_tools_in_one_set_one(release: Release) -> None:
    again = tool("sow", "seed", "row", description="Another text.")
    release.tools("Garden/Seed_Box", tool("sow", "seed"), tool("sow", "seed"), again)
    release.tools("Sea/Harbour", tool("sow"), tool("moor"))
    records = read(release.root)
    assert [c.capability_id for c in records.library.capabilities] == [
        "tooleyes/Garden/Seed_Box/sow",
        "tooleyes/Sea/Harbour/moor",
        "tooleyes/Sea/Harbour/sow",
    ]
    assert [a.name for a in records.library.endpoints[0].arguments] == ["seed", "row"]
    notes = records.report.notes
    assert (notes["merged_same_name_in_set"], notes["merged_with_other_documentation"]) == (2, 1)


def test_equal_texts_are_united_with_the_tools_of_both_sets(release: Release) -> None:
    release.queries(query("Do it.", "Sea/Harbour", "RS"), query(" Do it.\n", "Garden/Seed_Box", "TG"))
    records = read(release.root)
    (task,) = records.apart
    assert given_of(records) == {"Do it.": ["Garden/Seed_Box/sow", "Garden/Seed_Box/water", "Sea/Harbour/moor"]}
    assert (task.domain, task.split, task.source) == ("Garden", "RS+TG", f"tooleyes/{QUERIES}#0")
    assert records.report.notes["merged_duplicate_text"] == 1


# ---------------------------------------------------------------------------------------------------------- bad input


def test_missing_folders_and_files_say_where_the_release_is(release: Release, tmp_path: Path) -> None:
    with pytest.raises(AdapterError, match="tooleyes: no such folder") as caught:
        read(tmp_path / "nowhere")
    assert "Tool_Library" in str(caught.value), "the hint names the expected files"
    path = release.root / "tooleyes" / QUERIES
    path.unlink()
    with pytest.raises(AdapterError, match=r"scenario_data_raw\.json: no such file"):
        read(release.root)
    path.mkdir()
    with pytest.raises(AdapterError, match="is a folder, not a file"):
        read(release.root)
    (release.root / "tooleyes" / "Tool_Library").rename(release.root / "tooleyes" / "Elsewhere")
    with pytest.raises(AdapterError, match=r"holds no <Category>/<Set>/config_gpt4\.json"):
        read(release.root)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"{}", "not_a_list"),
        (b'[{"name": "cut', "malformed_json"),
        (b'["\xe9"]', "not_utf8"),
        (b"", "malformed_json"),
    ],
)
def test_an_unusable_tool_file_costs_its_queries_their_set(release: Release, content: bytes, reason: str) -> None:
    release.put("Tool_Library/Sea/Harbour/config_gpt4.json", content)
    report = read(release.root).report
    assert report.sections["tool_sets"].dropped == {reason: 1}
    assert report.sections["queries"].dropped == {"unknown_tool_set": 1}
    with pytest.raises(AdapterError, match=f"Harbour/config_gpt4.json: {reason.replace('_', ' ')}"):
        read(release.root, strict=True)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "not_an_object"),
        ({"path": "a/b"}, "missing_query"),
        ({"query": 3, "path": "a/b"}, "wrong_type_of_query"),
        ({"query": "a"}, "missing_path"),
        ({"query": "a", "path": " "}, "empty_path"),
        (query(" ", "Sea/Harbour"), "empty_query"),
        (query("a", "Sea/Lagoon"), "unknown_tool_set"),
        ({"query": "a", "path": "Harbour"}, "unknown_tool_set"),
    ],
)
def test_unusable_queries_are_counted_by_reason(release: Release, value: Any, reason: str) -> None:
    release.queries(query("Moor it.", "Sea/Harbour"), value)
    report = read(release.root).report
    assert report.sections["queries"].dropped == {reason: 1}
    with pytest.raises(AdapterError, match=r"scenario_data_raw\.json#1"):
        read(release.root, strict=True)


def test_unusable_tools_and_parameters_are_counted(release: Release) -> None:
    odd = tool("odd", "a")
    odd["parameters"]["properties"].update({"b": "text", " ": {}})
    release.tools("Sea/Harbour", odd, 3, {"description": "nameless"}, {"name": "bare"}, {"name": "x", "parameters": 1})
    report = read(release.root).report
    assert report.sections["tools"].dropped == {"control_entry": 4, "missing_name": 1, "not_an_object": 1}
    assert report.sections["parameters"].dropped == {"empty_name": 1, "not_an_object": 1, "parameters_not_a_schema": 1}


@pytest.mark.parametrize("content", [b"", b"{}", b'[{"query": "cut', b'["\xff"]'])
def test_a_damaged_query_file_is_an_error_in_both_modes(release: Release, content: bytes) -> None:
    path = release.put(QUERIES, content)
    for strict in (False, True):
        with pytest.raises(AdapterError, match=str(path)):
            read(release.root, strict=strict)


# ----------------------------------------------------------------------------------------------------------- any input

JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=5,
)
NAMES = st.sampled_from(["sow", "Sow ", "7 beds", "빵", "", "finish"])


def odd(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Objects whose keys may be missing or hold anything, and now and then no object at all."""
    usual = st.fixed_dictionaries({}, optional={k: v | JUNK for k, v in fields.items()})
    return st.fixed_dictionaries(fields) | usual | JUNK


SCHEMA = odd(properties=st.dictionaries(NAMES, odd(type=NAMES), max_size=2), required=st.lists(NAMES, max_size=2))
SETS = st.lists(odd(name=NAMES, description=NAMES, parameters=SCHEMA), max_size=4) | JUNK
PATHS = st.sampled_from(["ToolEyes/Tool_Library/A/One", "A/Two", "A/None", "/"])


@given(one=SETS, two=SETS, rows=st.lists(odd(query=NAMES, path=PATHS, scenario=NAMES), max_size=5))
def test_whatever_the_files_hold_every_row_is_accounted_for(one: Any, two: Any, rows: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        release = Release(Path(folder))
        release.put("Tool_Library/A/One/config_gpt4.json", one)
        release.put("Tool_Library/A/Two/config_gpt4.json", two)
        release.queries(*rows)
        records = read(release.root)
    report = records.report
    assert report.rows_read == report.records + sum(report.dropped.values())
    assert report.sections["tool_sets"].rows_read == 2
    assert report.sections["tools"].rows_read == sum(
        len(entries) for entries in (one, two) if isinstance(entries, list)
    )
    assert report.sections["queries"].rows_read == len(rows)
    assert report.sections["queries"].records == len(records.apart) + report.notes["merged_duplicate_text"]
    assert (
        report.sections["tools"].records == len(records.library.capabilities) + report.notes["merged_same_name_in_set"]
    )

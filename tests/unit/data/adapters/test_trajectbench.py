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

from toolshift.data.adapters.trajectbench import Options, inputs, read
from toolshift.data.errors import AdapterError
from toolshift.data.records import Endpoint, Records, Task


@dataclass(frozen=True)
class Release:
    """A release below ``root``; every ``put`` writes one file below ``root/trajectbench/public_data``."""

    root: Path

    def put(self, relative: str, content: Any) -> Path:
        """Write JSON, or bytes as they are; a name that ends in .gz is packed."""
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        path = self.root / "trajectbench/public_data" / relative
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(data) if relative.endswith(".gz") else data)
        return path

    def tools(self, *rows: Any, domain: str = "Sea") -> Path:
        return self.put(f"tools/{domain}_tool.json", list(rows))

    def queries(self, *rows: Any, place: str = "Sea/traj_query") -> Path:
        return self.put(f"sequential/{place}.json", list(rows))


def tool(parent: str, api: str, *needed: str, optional: tuple[str, ...] = (), **more: Any) -> dict[str, Any]:
    return {
        "parent tool name": parent,
        "parent tool description": f"All of {parent}.",
        "tool name": f"{parent}: {api}",
        "tool description": f"Does {api}.",
        "required_parameters": [
            {"name": p, "type": "DATE (YYYY-MM-DD)", "description": "", "default": ""} for p in needed
        ],
        "optional_parameters": [{"name": p, "type": "NUMBER", "description": "", "default": ""} for p in optional],
        "API name": api,
        "domain name": "Sea",
        **more,
    }


def call(parent: str, api: str, *needed: str, optional: tuple[str, ...] = (), **more: Any) -> dict[str, Any]:
    return {
        "tool name": f"{parent}: {api}",
        "tool description": "What this step is for.",
        "required parameters": [{"name": p, "value": "1"} for p in needed],
        "optional parameters": [{"name": p, "value": 1} for p in optional],
        "execution_status": "success",
        "API name": api,
        "parent tool name": parent,
        "domain name": "Sea",
        **more,
    }


def unknown(full: str, **more: Any) -> dict[str, Any]:
    """A call whose tool the release's authors could not place."""
    return {**call("unknown", "unknown", **more), "tool name": full}


def row(text: str, *calls: Any, key: str = "tool list", **more: Any) -> dict[str, Any]:
    return {"query": text, key: list(calls), "domain": "Sea", **more}


@pytest.fixture
def release(tmp_path: Path) -> Release:
    made = Release(tmp_path / "root")
    made.tools(
        tool("Tide Tables", "Next Low", "day", optional=("count",)), tool("Tide Tables", "List"), tool("Chart", "Find")
    )
    made.queries(
        row("Low water?", call("Chart", "Find"), call("Tide Tables", "Next Low", "day"), call("Chart", "Find"))
    )
    return made


def only(records: Records) -> Task:
    (task,) = records.tasks
    return task


def endpoint(records: Records, endpoint_id: str) -> Endpoint:
    return next(e for e in records.library.endpoints if e.endpoint_id == f"trajectbench/{endpoint_id}")


# ------------------------------------------------------------------------------------------------------ plain reading


def test_parent_tools_apis_and_ordered_calls_become_records(release: Release) -> None:
    records = read(release.root, strict=True)
    assert [c.capability_id for c in records.library.capabilities] == ["trajectbench/chart", "trajectbench/tide_tables"]
    tides = records.library.capabilities[1]
    assert (tides.name, tides.domain, tides.text) == ("Tide Tables", "Sea", "Tide Tables: All of Tide Tables.")
    low = endpoint(records, "tide_tables/next_low")
    assert [(a.name, a.raw_type, a.type, a.required) for a in low.arguments] == [
        ("day", "DATE (YYYY-MM-DD)", "datetime", True),
        ("count", "NUMBER", "number", False),
    ]
    assert (low.operation, low.description, low.source) == ("Next Low", "Does Next Low.", "library")
    task = only(records)
    assert task.task_id == "trajectbench/" + hashlib.sha256(b"Low water?").hexdigest()[:16]
    find = "trajectbench/chart/find"
    assert (task.ordered, task.calls) == (True, (find, low.endpoint_id, find))
    assert task.gold_endpoint_ids == (find, low.endpoint_id)
    assert task.gold_capability_ids == ("trajectbench/chart", "trajectbench/tide_tables")
    assert (task.domain, task.split) == ("Sea", "traj_query")
    assert task.source == "trajectbench/public_data/sequential/Sea/traj_query.json#0"
    assert records.report.dropped == {}
    assert (records.report.ordered_tasks, records.report.domains, records.unscorable) == (1, 1, "")


def test_both_spellings_of_the_call_list_are_read(release: Release) -> None:
    release.queries(
        row("Other?", call("Chart", "Find"), call("Tide Tables", "List"), key="tool_list"), place="Sea/simple_ver"
    )
    records = read(release.root)
    assert {t.text: (t.split, len(t.calls)) for t in records.tasks} == {
        "Low water?": ("traj_query", 3),
        "Other?": ("simple_ver", 2),
    }
    assert only(read(release.root, options=Options(queries=("simple_ver",)))).text == "Other?"
    with pytest.raises(AdapterError, match="expected some of simple_ver, traj_query"):
        Options(queries=("sequence",))
    with pytest.raises(AdapterError, match="template='x' is unknown"):
        Options(template="x")


def test_other_files_are_not_read_and_packed_ones_are(release: Release) -> None:
    release.put("sequential/Sea/sequence.json", [{"name": "a chain"}])
    release.put("tools/all_tools.json", b"not read")
    release.put("tools/Garden_tool.json.gz", [tool("Seeds", "Sow", **{"domain name": "Garden"})])
    release.put("sequential/Garden/traj_query.json.gz", [row("Sow.", call("Seeds", "Sow"), domain="Garden")])
    records = read(release.root, options=Options(template="with_operations"))
    assert records.library.capabilities[1].text == "Seeds: All of Seeds. | operations: Sow"
    assert {t.text: (t.domain, t.ordered) for t in records.tasks} == {
        "Low water?": ("Sea", True),
        "Sow.": ("Garden", False),
    }
    assert [p.name for p in inputs(release.root)] == [
        "Garden_tool.json.gz",
        "Sea_tool.json",
        "traj_query.json.gz",
        "traj_query.json",
    ]


def test_rows_of_one_tool_in_several_files_are_united(release: Release) -> None:
    release.tools(tool("Chart", "Find", "place"), tool("Chart", "Find", **{"tool name": "Chart:  Find"}), domain="Aft")
    release.queries(row("Go.", unknown("Chart:  Find"), call("Chart", "Find")))
    records = read(release.root)
    assert only(records).calls == ("trajectbench/chart/find",) * 2
    assert [a.name for a in endpoint(records, "chart/find").arguments] == ["place"]
    notes = records.report.notes
    assert (notes["merged_tool_rows"], notes["merged_tools_of_one_key"], notes["recreated_apis"]) == (2, 1, 0)


def test_failed_calls_are_calls(release: Release) -> None:
    release.queries(row("Go.", call("Chart", "Find", execution_status="failed"), call("Tide Tables", "List")))
    records = read(release.root)
    assert len(only(records).calls) == 2
    assert records.report.notes["failed_calls"] == 1


def test_equal_texts_are_united_and_keep_an_order_only_where_they_agree(release: Release) -> None:
    first, second = call("Chart", "Find"), call("Tide Tables", "List")
    release.queries(row("Same.", first, second), row(" Same.", first, second), row("Other.", first, second))
    release.queries(
        row("Other.", second, first, domain="Aft"), row("Other.", first, domain="Aft"), place="Zoo/traj_query"
    )
    records = read(release.root)
    tasks = {t.text: t for t in records.tasks}
    assert (tasks["Same."].ordered, tasks["Other."].ordered, tasks["Other."].calls) == (True, False, ())
    assert tasks["Other."].domain == "Aft"
    assert len(tasks["Other."].gold_endpoint_ids) == 2
    notes = records.report.notes
    assert (notes["merged_duplicate_text"], notes["merged_text_with_other_calls"]) == (3, 1)


# ---------------------------------------------------------------------------------------------------- re-created tools


def test_a_called_tool_that_the_library_lacks_is_re_created_from_its_calls(release: Release) -> None:
    release.queries(
        row("One.", call("Lamp", "Light", "bay"), call("Chart", "Find")),
        row("Two.", call("Lamp", "Light", "bay", optional=("hours",)), call("Chart", "Draw", "scale")),
    )
    records = read(release.root)
    lamp = records.library.capabilities[records.library.position["trajectbench/lamp"]]
    assert (lamp.schema_source, lamp.name, lamp.description, lamp.domain) == ("task", "Lamp", "", "Sea")
    light = endpoint(records, "lamp/light")
    assert [(a.name, a.raw_type, a.required) for a in light.arguments] == [("bay", "", True), ("hours", "", False)]
    assert (light.source, light.description) == ("task", ""), "what a step is for is no documentation"
    assert records.library.capabilities[0].schema_source == "both"
    assert endpoint(records, "chart/draw").source == "task"
    assert endpoint(records, "chart/find").source == "library"
    notes = records.report.notes
    assert (notes["recreated_tools"], notes["recreated_apis"], notes["calls_of_recreated_tools"]) == (1, 2, 3)


def test_names_of_unplaced_tools_are_split_at_a_known_parent_or_the_first_colon(release: Release) -> None:
    release.tools(tool("Tide", "A"), tool("Tide: the Tables", "B"))
    names = ["Tide: C", "Tide: the Tables: D", "Buoy: lit: E", "Lantern", "Anchor:", "Tide: the Tables: B"]
    release.queries(row("Go.", *(unknown(name) for name in names)))
    records = read(release.root)
    assert [c.removeprefix("trajectbench/") for c in only(records).calls] == [
        "tide/c",
        "tide_the_tables/d",
        "buoy/lit_e",
        "lantern/lantern",
        "anchor/anchor",
        "tide_the_tables/b",
    ]
    assert records.report.notes["recreated_apis"] == 5


# ---------------------------------------------------------------------------------------------------------- bad input


def test_missing_folders_and_files_say_where_the_release_is(release: Release, tmp_path: Path) -> None:
    with pytest.raises(AdapterError, match="trajectbench: no such folder") as caught:
        read(tmp_path / "nowhere")
    assert "public_data" in str(caught.value), "the hint names the expected files"
    path = release.root / "trajectbench/public_data/sequential/Sea/traj_query.json"
    path.unlink()
    path.mkdir()
    with pytest.raises(AdapterError, match=r"sequential: holds no <Domain>/simple_ver\.json or traj_query\.json"):
        read(release.root)
    (release.root / "trajectbench/public_data/tools/Sea_tool.json").unlink()
    with pytest.raises(AdapterError, match=r"tools: holds no <Domain>_tool\.json"):
        read(release.root)


@pytest.mark.parametrize("name", ["tools/Sea_tool.json", "sequential/Sea/traj_query.json"])
@pytest.mark.parametrize("content", [b"", b"{}", b'[{"query": "cut', b'["\xff"]'])
def test_a_damaged_file_is_an_error_in_both_modes(release: Release, name: str, content: bytes) -> None:
    path = release.put(name, content)
    for strict in (False, True):
        with pytest.raises(AdapterError, match=str(path)):
            read(release.root, strict=strict)


@pytest.mark.parametrize(
    ("value", "dropped"),
    [
        ("text", {"queries:not_an_object": 1}),
        ({"tool list": []}, {"queries:missing_query": 1}),
        ({"query": "a"}, {"queries:missing_tool_list": 1}),
        ({"query": ["a"], "tool list": []}, {"queries:wrong_type_of_query": 1}),
        ({"query": "a", "tool list": {}}, {"queries:wrong_type_of_tool_list": 1}),
        (row(" "), {"queries:empty_query": 1}),
        (row("a"), {"queries:no_known_gold": 1}),
        (row("a", {"API name": "Find"}), {"calls:missing_tool_name": 1, "queries:no_known_gold": 1}),
        (row("a", call("Chart", "Find"), None), {"calls:not_an_object": 1}),
        (row("a", call("Lamp", "Light", **{"required parameters": 3})), {"parameters:parameters_not_a_list": 1}),
    ],
)
def test_unusable_queries_and_calls_are_counted_by_reason(
    release: Release, value: Any, dropped: dict[str, int]
) -> None:
    release.queries(value)
    report = read(release.root).report
    assert report.dropped == dropped
    with pytest.raises(AdapterError, match=r"sequential/Sea/traj_query\.json#0"):
        read(release.root, strict=True)


def test_a_lost_call_costs_the_order(release: Release) -> None:
    release.queries(row("Go.", call("Chart", "Find"), {}, call("Tide Tables", "List")))
    records = read(release.root)
    assert (only(records).ordered, only(records).calls, len(only(records).gold_endpoint_ids)) == (False, (), 2)
    assert records.report.notes["incomplete_order"] == 1


def test_unusable_tools_and_parameters_are_counted(release: Release) -> None:
    odd = tool("Tide Tables", "Odd", required_parameters=[{"name": "a", "type": 5}, 3, {}], optional_parameters="x")
    release.tools(odd, None, tool("", "A"), {"parent tool name": "B"}, tool("Chart", "Find"))
    report = read(release.root).report
    assert report.sections["tools"].dropped == {"empty_parent_tool_name": 1, "missing_API_name": 1, "not_an_object": 1}
    assert report.sections["parameters"].dropped == {"missing_name": 1, "not_an_object": 1, "parameters_not_a_list": 1}


# ----------------------------------------------------------------------------------------------------------- any input

JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=5,
)
NAMES = st.sampled_from(["Tide", "tide ", "Tide: A", "빵", "", "unknown", "7"])


def odd_object(fields: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[Any]:
    """Objects whose keys may be missing or hold anything, and now and then no object at all."""
    usual = st.fixed_dictionaries({}, optional={k: v | JUNK for k, v in fields.items()})
    return st.fixed_dictionaries(fields) | usual | JUNK


PARAMETERS = st.lists(odd_object({"name": NAMES, "type": NAMES}), max_size=2)
TOOLS = odd_object(
    {"parent tool name": NAMES, "API name": NAMES, "tool name": NAMES, "required_parameters": PARAMETERS}
)
CALLS = odd_object(
    {"parent tool name": NAMES, "API name": NAMES, "tool name": NAMES, "optional parameters": PARAMETERS}
)
ROWS = odd_object({"query": NAMES, "tool list": st.lists(CALLS, max_size=4)}) | odd_object(
    {"query": NAMES, "tool_list": st.lists(CALLS, max_size=2), "domain": NAMES}
)


@given(tools=st.lists(TOOLS, max_size=4), rows=st.lists(ROWS, max_size=5), more=st.lists(ROWS, max_size=3))
def test_whatever_the_files_hold_every_row_is_accounted_for(tools: Any, rows: Any, more: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        release = Release(Path(folder))
        release.tools(*tools)
        release.queries(*rows)
        release.queries(*more, place="Sea/simple_ver")
        records = read(release.root)
    report = records.report
    assert report.rows_read == report.records + sum(report.dropped.values())
    assert report.sections["tools"].rows_read == len(tools)
    assert report.sections["queries"].rows_read == len(rows) + len(more)
    assert report.sections["queries"].records == len(records.tasks) + report.notes["merged_duplicate_text"]
    for task in records.tasks:
        assert set(task.calls) == (set(task.gold_endpoint_ids) if task.ordered else set())

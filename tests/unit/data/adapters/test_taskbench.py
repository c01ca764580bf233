from __future__ import annotations

import gzip
import hashlib
import json
import re
import shutil
import tempfile
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolshift.data.adapters.taskbench import Options, inputs, read
from toolshift.data.errors import AdapterError
from toolshift.data.records import Records, Task


@dataclass(frozen=True)
class Release:
    """A release below ``root``; every ``put`` writes one file below ``root/taskbench``."""

    root: Path

    def put(self, relative: str, content: Any) -> Path:
        """Write a JSON value, for a list one JSON line each, or bytes as they are."""
        path = self.root / "taskbench" / relative
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            data = content
        elif isinstance(content, list):
            data = "".join(json.dumps(line) + "\n" for line in content).encode()
        else:
            data = json.dumps(content).encode()
        path.write_bytes(gzip.compress(data) if relative.endswith(".gz") else data)
        return path

    def rows(self, *rows: Any, domain: str = "boats") -> None:
        """Rows of a domain, and a request list of as many lines."""
        self.put(f"data_{domain}/data.json", list(rows))
        self.put(f"data_{domain}/user_requests.json", [{"id": str(n), "user_request": "?"} for n in range(len(rows))])


def tool(name: str, *, inputs: tuple[str, ...] = ("text",), outputs: tuple[str, ...] = ("text",)) -> dict[str, Any]:
    return {"id": name, "desc": f"Does {name}.", "input-type": list(inputs), "output-type": list(outputs)}


def row(text: str, names: list[str], links: tuple[tuple[str, str], ...] = (), **more: Any) -> dict[str, Any]:
    """A row of the upstream form: lists as JSON inside strings."""
    return {
        "id": "0",
        "n_tools": len(names),
        "type": "chain" if links else "single",
        "instruction": text,
        "tool_nodes": json.dumps([{"task": name, "arguments": ["x"]} for name in names]),
        "tool_links": json.dumps([{"source": a, "target": b} for a, b in links]),
        **more,
    }


@pytest.fixture
def release(tmp_path: Path) -> Release:
    made = Release(tmp_path / "root")
    made.put("data_boats/tool_desc.json", {"nodes": [tool("Row Boat"), tool("Sail"), tool("Moor-it"), tool("Bail")]})
    made.rows(row("Row over.", ["Row Boat"]))
    return made


def only(records: Records) -> Task:
    (task,) = records.tasks
    return task


# ------------------------------------------------------------------------------------------------------ plain reading


def test_tools_with_media_and_rows_become_records(release: Release) -> None:
    tools = [tool("Blend Images", inputs=("image", "image", "text"), outputs=("image",))]
    release.put("data_art/tool_desc.json", {"nodes": tools})
    release.rows(row("Blend these.", ["Blend Images"]), domain="art")
    records = read(release.root)
    (blend,) = [e for e in records.library.endpoints if "/art/" in e.endpoint_id]
    assert (blend.endpoint_id, blend.capability_id) == (
        "taskbench/art/blend_images/blend_images",
        "taskbench/art/blend_images",
    )
    assert [(a.name, a.raw_type, a.type, a.required) for a in blend.arguments] == [
        ("image", "image", "string", None),
        ("image_2", "image", "string", None),
        ("text", "text", "string", None),
    ]
    assert blend.returns == ("image",)
    capability = records.library.capabilities[records.library.position["taskbench/art/blend_images"]]
    assert (capability.name, capability.domain) == ("Blend Images", "art")
    assert capability.text == "Blend Images: Does Blend Images."
    task = next(t for t in records.tasks if t.text == "Blend these.")
    assert task.task_id == "taskbench/" + hashlib.sha256(b"Blend these.").hexdigest()[:16]
    assert (task.domain, task.split, task.source) == ("art", "single", "taskbench/data_art/data.json:1")
    assert task.gold_endpoint_ids == (blend.endpoint_id,)
    assert (task.given_candidate_ids, task.ordered) == ((), False)
    assert (records.unscorable, records.report.dropped, records.report.domains) == ("", {}, 2)


def test_named_parameters_are_typed_and_none_is_said_to_be_required(release: Release) -> None:
    parameters = [{"name": "when", "type": "date", "desc": "Day."}, {"name": "who", "type": "string"}]
    release.put("data_boats/tool_desc.json", {"nodes": [{"id": "Row Boat", "parameters": parameters}]})
    (endpoint,) = read(release.root).library.endpoints
    assert [(a.name, a.type, a.required, a.description) for a in endpoint.arguments] == [
        ("when", "datetime", None, "Day."),
        ("who", "string", None, ""),
    ]


def test_the_three_schemas_give_the_same_task(release: Release) -> None:
    upstream = row("Go.", ["Row Boat", "Sail"], (("Row Boat", "Sail"),))
    lists = {
        "instruction": "Go.",
        "task_nodes": json.loads(upstream["tool_nodes"]),
        "task_links": json.loads(upstream["tool_links"]),
        "type": "chain",
    }
    older = {"id": 0, **lists, "user_request": lists["instruction"]}
    del older["instruction"]
    found = []
    for form in (upstream, lists, older):
        release.rows(form)
        found.append(only(read(release.root, strict=True)))
    assert found[0] == found[1] == found[2]
    assert found[0].calls == ("taskbench/boats/row_boat/row_boat", "taskbench/boats/sail/sail")


def test_folders_and_the_template_are_options_and_files_may_be_packed(release: Release) -> None:
    release.put("old/lakes/tool_desc.json.gz", {"nodes": [{"id": "SwimLake"}]})
    release.put("old/lakes/data.json.gz", [{"user_request": "Swim.", "task_nodes": [{"task": "SwimLake"}]}])
    release.put("old/lakes/user_requests.jsonl.gz", [{"id": 0}])
    options = Options(folders=("old/lakes",), template="with_operations")
    records = read(release.root, options=options)
    assert only(records).gold_capability_ids == ("taskbench/lakes/swimlake",)
    assert records.library.capabilities[0].text == "SwimLake | operations: SwimLake"
    assert records.unscorable == ""
    assert [p.name for p in inputs(release.root, options=options)] == [
        "tool_desc.json.gz",
        "data.json.gz",
        "user_requests.jsonl.gz",
    ]
    assert [p.name for p in inputs(release.root)] == ["tool_desc.json", "data.json", "user_requests.json"]
    with pytest.raises(AdapterError, match="template='x' is unknown"):
        Options(template="x")
    with pytest.raises(AdapterError, match="must be a folder below"):
        Options(folders=("../elsewhere",))


# ------------------------------------------------------------------------------------------------------------ excerpt


def test_fewer_rows_than_requests_are_an_excerpt(release: Release) -> None:
    release.put("data_boats/user_requests.json", [{"id": str(n)} for n in (0, 1, 1)])
    records = read(release.root)
    assert "excerpt" in records.unscorable
    assert "boats 1 of 3" in records.unscorable
    assert records.report.notes["repeated_request_ids"] == 1
    release.rows(*(row(f"Row {n}.", ["Row Boat"], id=str(n)) for n in range(3)))
    assert read(release.root).unscorable == ""


def test_one_short_domain_is_enough_and_the_other_is_not_named(release: Release) -> None:
    release.put("data_art/tool_desc.json", {"nodes": [tool("Blend")]})
    release.rows(row("Blend.", ["Blend"]), domain="art")
    release.put("data_art/user_requests.json", [{"id": "0"}, {"id": "1"}])
    assert read(release.root).unscorable.endswith("lists: art 1 of 2")


def test_without_the_request_list_nothing_may_be_scored(release: Release) -> None:
    (release.root / "taskbench/data_boats/user_requests.json").unlink()
    records = read(release.root)
    assert "without user_requests.json of boats" in records.unscorable
    assert len(records.tasks) == 1


def test_ids_that_the_request_list_lacks_are_counted(release: Release) -> None:
    release.rows(row("Row.", ["Row Boat"], id="9"), row("Sail.", ["Sail"], id="1"))
    assert read(release.root).report.notes["rows_without_request"] == 1


# -------------------------------------------------------------------------------------------------------------- order


@pytest.mark.parametrize(
    ("names", "links", "calls", "note"),
    [
        (["Sail", "Row Boat"], [("Row Boat", "Sail")], ["row_boat", "sail"], ""),
        (["Sail", "Bail", "Row Boat"], [("Row Boat", "Bail"), ("Bail", "Sail")], ["row_boat", "bail", "sail"], ""),
        (["Sail", "Row Boat"], [("Row Boat", "Sail"), ("Row Boat", "Sail")], ["row_boat", "sail"], ""),
        (["Sail", "Row Boat"], [], [], "partial_order"),
        (["Sail", "Row Boat", "Bail"], [("Sail", "Bail"), ("Row Boat", "Bail")], [], "partial_order"),
        (["Sail", "Row Boat"], [("Sail", "Row Boat"), ("Row Boat", "Sail")], ["sail", "row_boat"], "order_from_nodes"),
        (
            ["Sail", "Row Boat", "Sail"],
            [("Sail", "Row Boat"), ("Row Boat", "Sail")],
            ["sail", "row_boat", "sail"],
            "order_from_nodes",
        ),
        (["Sail", "Sail"], [("Sail", "Sail")], ["sail", "sail"], "order_from_nodes"),
        (["Sail", "Paddle"], [("Sail", "Paddle")], [], "incomplete_order"),
        (["Sail"], [], [], ""),
    ],
)
def test_links_order_the_calls_where_they_leave_one_order(
    release: Release, names: list[str], links: list[tuple[str, str]], calls: list[str], note: str
) -> None:
    release.rows(row("Go.", names, tuple(links)))
    records = read(release.root)
    task = only(records)
    assert [call.rpartition("/")[2] for call in task.calls] == calls
    assert task.ordered == bool(calls)
    counted = {n for n in ("partial_order", "order_from_nodes", "incomplete_order") if records.report.notes[n]}
    assert counted == ({note} if note else set())


def test_links_to_tools_outside_the_row_are_ignored_and_counted(release: Release) -> None:
    release.rows(row("Go.", ["Sail", "Bail"], (("Sail", "Bail"), ("Row Boat", "Sail"))))
    records = read(release.root)
    assert only(records).ordered
    assert records.report.notes["links_between_other_tools"] == 1


# --------------------------------------------------------------------------------------------------------------- gold


def test_gold_that_the_tool_list_lacks_is_dropped_and_counted(release: Release) -> None:
    release.rows(row("Go.", ["Paddle", "Sail"]), row("Paddle.", ["Paddle"]), row("lower", ["row boat"]))
    records = read(release.root)
    assert only(records).gold_capability_ids == ("taskbench/boats/sail",)
    assert records.report.dropped == {"gold_nodes:not_in_tool_desc": 3, "rows:no_known_gold": 2}
    with pytest.raises(AdapterError, match=r"taskbench/data_boats/data\.json:1 \['Paddle'\]: not in tool desc"):
        read(release.root, strict=True)


def test_odd_argument_shapes_cost_nothing_and_are_counted(release: Release) -> None:
    shapes: list[Any] = ["text", 3, None, ["a", 2], [{"name": "a", "value": 1}], {"a": 1}]
    nodes = [{"task": "Sail", "arguments": shape} for shape in shapes] + [{"task": "Bail", "input_file": "x"}]
    release.rows({"instruction": "Go.", "task_nodes": nodes})
    notes = read(release.root, strict=True).report.notes
    assert (notes["arguments_missing"], notes["arguments_not_a_list"], notes["arguments_with_numbers"]) == (2, 3, 1)


def test_a_stated_number_of_tools_that_differs_is_counted(release: Release) -> None:
    release.rows(row("a", ["Sail"], n_tools=2), row("b", ["Sail"]), row("c", ["Sail"], n_tools="2"))
    assert read(release.root).report.notes["n_tools_unlike_nodes"] == 1


def test_equal_texts_are_united(release: Release) -> None:
    release.rows(
        row("Go.", ["Sail", "Bail"], (("Sail", "Bail"),)),
        row(" Go.\n", ["Bail", "Moor-it"], (("Bail", "Moor-it"),), type="dag"),
    )
    records = read(release.root)
    task = only(records)
    assert [g.rpartition("/")[2] for g in task.gold_capability_ids] == ["bail", "moor_it", "sail"]
    assert (task.ordered, task.split, task.source) == (False, "chain+dag", "taskbench/data_boats/data.json:1")
    notes = records.report.notes
    assert notes["merged_duplicate_text"] == notes["merged_text_with_other_gold"] == 1


def test_tools_of_one_key_are_one_tool(release: Release) -> None:
    release.put("data_boats/tool_desc.json", {"nodes": [tool("Row Boat"), tool("row-boat", inputs=("image",))]})
    release.rows(row("Go.", ["row-boat"]))
    records = read(release.root)
    assert only(records).gold_capability_ids == ("taskbench/boats/row_boat",)
    assert records.report.notes["merged_duplicate_tools"] == 1
    assert [a.name for a in records.library.endpoints[0].arguments] == ["text", "image"]


# ---------------------------------------------------------------------------------------------------------- bad input


def test_a_missing_folder_or_file_says_where_the_release_is(release: Release, tmp_path: Path) -> None:
    with pytest.raises(AdapterError, match="taskbench: no such folder") as caught:
        read(tmp_path / "nowhere")
    assert "data_" in str(caught.value), "the hint names the expected files"
    with pytest.raises(AdapterError, match="data_lakes: no such folder"):
        read(release.root, options=Options(folders=("data_lakes",)))
    base = release.root / "taskbench"
    (base / "data_boats/data.json").unlink()
    with pytest.raises(AdapterError, match=r"data\.json: no such file"):
        read(release.root)
    (base / "data_boats/data.json").mkdir()
    with pytest.raises(AdapterError, match=r"data\.json: is a folder, not a file"):
        read(release.root)
    shutil.rmtree(base / "data_boats")
    with pytest.raises(AdapterError, match="holds no data_<domain> folder"):
        read(release.root)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "malformed json"),
        (b'{"nodes": [', "malformed json"),
        (b'{"nodes": "\xff"}', "not utf8"),
        (b"[]", "not_an_object"),
        (b"{}", "missing_nodes"),
        (b'{"nodes": {}}', "wrong_type_of_nodes"),
    ],
)
def test_an_unusable_tool_list_is_an_error(release: Release, content: bytes, reason: str) -> None:
    path = release.put("data_boats/tool_desc.json", content)
    with pytest.raises(AdapterError, match=f"{re.escape(str(path))}: {reason}"):
        read(release.root)


GOOD = json.dumps(row("Row over.", ["Row Boat"])).encode() + b"\n"
NODES = [{"task": "Sail"}]


@pytest.mark.parametrize(
    ("line", "dropped"),
    [
        (b'{"instruction": "cut', {"rows:malformed_json": 1}),
        (b'"\xff"', {"rows:not_utf8": 1}),
        (b"7", {"rows:not_an_object": 1}),
        ({"task_nodes": NODES}, {"rows:missing_user_request": 1}),
        ({"instruction": 5, "task_nodes": NODES}, {"rows:wrong_type_of_instruction": 1}),
        ({"instruction": "a"}, {"rows:missing_tool_nodes": 1}),
        ({"instruction": "a", "tool_nodes": "[{"}, {"rows:malformed_tool_nodes": 1}),
        ({"instruction": "a", "tool_nodes": "{}"}, {"rows:wrong_type_of_tool_nodes": 1}),
        ({"instruction": "a", "task_nodes": NODES, "task_links": 1}, {"rows:wrong_type_of_task_links": 1}),
        ({"instruction": " ", "task_nodes": NODES}, {"rows:empty_text": 1}),
        ({"instruction": "a", "task_nodes": []}, {"rows:no_known_gold": 1}),
        (
            {"instruction": "a", "task_nodes": [*NODES, "x", {}]},
            {"gold_nodes:not_an_object": 1, "gold_nodes:missing_task": 1},
        ),
        ({"instruction": "a", "task_nodes": NODES, "task_links": [{"source": "Sail"}]}, {"links:missing_target": 1}),
    ],
)
def test_unusable_rows_are_counted_by_reason(release: Release, line: Any, dropped: dict[str, int]) -> None:
    data = line if isinstance(line, bytes) else json.dumps(line).encode()
    release.put("data_boats/data.json", GOOD + data)
    report = read(release.root).report
    assert report.dropped == dropped
    assert report.sections["rows"].rows_read == 2
    with pytest.raises(AdapterError, match=r"taskbench/data_boats/data\.json:2"):
        read(release.root, strict=True)


def test_an_empty_row_file_is_an_excerpt_without_tasks(release: Release) -> None:
    release.put("data_boats/data.json", b"")
    records = read(release.root)
    assert records.tasks == ()
    assert records.unscorable.endswith("lists: boats 0 of 1")


def test_unusable_tools_and_requests_are_counted(release: Release) -> None:
    nodes = [tool("Row Boat"), "x", {"desc": "nameless"}, {"id": "Sail", "parameters": [1, {}], "input-type": [None]}]
    release.put("data_boats/tool_desc.json", {"nodes": [*nodes, {"id": "Bail", "parameters": "p"}]})
    release.put("data_boats/user_requests.json", b'{"id": "0"}\n[]\n{"id"')
    report = read(release.root).report
    assert report.dropped == {
        "parameters:input_type_not_a_word": 1,
        "parameters:missing_name": 1,
        "parameters:not_an_object": 1,
        "parameters:parameters_not_a_list": 1,
        "requests:malformed_json": 1,
        "requests:not_an_object": 1,
        "tools:missing_id": 1,
        "tools:not_an_object": 1,
    }
    assert report.sections["requests"].rows_read == 3


# ----------------------------------------------------------------------------------------------------------- any input

JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=5,
)
NAMES = st.sampled_from(["Sail", "sail ", "Row-Boat", "빵", "", "7"])


def odd(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Objects whose keys may be missing or hold anything, and now and then no object at all."""
    usual = st.fixed_dictionaries({}, optional={k: v | JUNK for k, v in fields.items()})
    return st.fixed_dictionaries(fields) | usual | JUNK


def maybe_text(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return values | values.map(json.dumps)


TOOLS = (
    st.fixed_dictionaries({"id": NAMES}, optional={"parameters": JUNK, "input-type": JUNK, "output-type": JUNK}) | JUNK
)
NODE_LISTS = maybe_text(st.lists(odd(task=NAMES, arguments=JUNK), max_size=4))
LINK_LISTS = maybe_text(st.lists(odd(source=NAMES, target=NAMES), max_size=3))
ROWS = odd(instruction=NAMES, tool_nodes=NODE_LISTS, tool_links=LINK_LISTS, id=JUNK, n_tools=JUNK) | odd(
    user_request=NAMES, task_nodes=NODE_LISTS, task_links=LINK_LISTS
)


@given(tools=st.lists(TOOLS, max_size=4), rows=st.lists(ROWS, max_size=5), requests=st.lists(JUNK, max_size=4))
def test_whatever_the_files_hold_every_row_is_accounted_for(tools: Any, rows: Any, requests: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        release = Release(Path(folder))
        release.put("data_boats/tool_desc.json", {"nodes": tools})
        release.put("data_boats/data.json", rows)
        release.put("data_boats/user_requests.json", requests)
        records = read(release.root)
    report = records.report
    assert report.rows_read == report.records + sum(report.dropped.values())
    assert report.sections["tools"].rows_read == len(tools)
    assert report.sections["rows"].rows_read == len(rows)
    assert report.sections["requests"].rows_read == len(requests)
    assert report.sections["rows"].records == len(records.tasks) + report.notes["merged_duplicate_text"]
    assert bool(records.unscorable) == (len(rows) < len(requests))
    for task in records.tasks:
        assert set(task.calls) == (set(task.gold_endpoint_ids) if task.ordered else set())


@given(
    names=st.lists(st.sampled_from(["Row Boat", "Sail", "Moor-it", "Bail"]), min_size=2, max_size=4, unique=True),
    data=st.data(),
)
def test_a_chain_is_restored_from_any_order_of_nodes_and_links(names: list[str], data: st.DataObject) -> None:
    links = list(pairwise(names))
    shown = row("Go.", data.draw(st.permutations(names)), tuple(data.draw(st.permutations(links))))
    with tempfile.TemporaryDirectory() as folder:
        release = Release(Path(folder))
        release.put("data_boats/tool_desc.json", {"nodes": [tool(name) for name in names]})
        release.rows(shown)
        records = read(release.root)
    name_of = {e.endpoint_id: e.operation for e in records.library.endpoints}
    assert [name_of[call] for call in only(records).calls] == names

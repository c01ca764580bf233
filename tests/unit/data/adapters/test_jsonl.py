from __future__ import annotations

import gzip
import json
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolshift.data.adapters.jsonl import Options, inputs, read
from toolshift.data.errors import AdapterError
from toolshift.data.records import Records, Task
from toolshift.data.store import load_records

PAGE = Path(__file__).resolve().parents[4] / "docs" / "own_data.md"
DROP = Options(faults="drop")


@dataclass(frozen=True)
class Own:
    """Three files below ``root/jsonl``, which each test changes."""

    root: Path

    def put(self, name: str, content: Any) -> Path:
        """Lines of JSON, of cells (qrels), or bytes as they are."""
        path = self.root / "jsonl" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            data = content
        elif "qrels" in name:
            data = "".join("\t".join(cells) + "\n" for cells in content).encode()
        else:
            data = "".join(json.dumps(line) + "\n" for line in content).encode()
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return path


HEADER = ("query-id", "corpus-id", "score")
TOOLS = [{"_id": "pan", "name": "Pan", "domain": "kitchen"}, {"_id": "oar", "name": "Oar", "domain": "sea"}]


@pytest.fixture
def own(tmp_path: Path) -> Own:
    files = Own(tmp_path / "root")
    files.put("corpus.jsonl", TOOLS)
    files.put("tasks.jsonl", [{"_id": "t", "text": "Fry it."}])
    files.put("qrels.tsv", [HEADER, ("t", "pan", "1")])
    return files


def task(records: Records, task_id: str) -> Task:
    return next(t for t in (*records.tasks, *records.apart) if t.task_id == task_id)


# ------------------------------------------------------------------------------------------------------ plain reading


def page_example(root: Path) -> None:
    """Write the files that the documentation shows."""
    shown = re.findall(r"`(\w+\.(?:jsonl|tsv))`\n\n```\w+\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert [name for name, _ in shown] == ["corpus.jsonl", "tasks.jsonl", "qrels.tsv"]
    (root / "jsonl").mkdir(parents=True)
    for name, text in shown:
        (root / "jsonl" / name).write_text(text, encoding="utf-8")


def test_the_example_of_the_documentation_is_what_it_says(tmp_path: Path) -> None:
    page_example(tmp_path)
    records = read(tmp_path, strict=True)
    assert [c.capability_id for c in records.library.capabilities] == ["jsonl/bread", "jsonl/rope", "jsonl/tides"]
    assert [e.endpoint_id for e in records.library.endpoints] == [
        "jsonl/bread/bread_book",
        "jsonl/rope/rope_length",
        "jsonl/tides/list_harbours",
        "jsonl/tides/next_low_water",
    ]
    assert [t.task_id for t in records.tasks] == ["jsonl/t1", "jsonl/t2"]
    assert [(t.task_id, t.no_gold) for t in records.apart] == [("jsonl/t3", "not_annotated")]
    assert (records.report.ordered_tasks, records.report.domains, records.unscorable) == (1, 2, "")
    first = task(records, "jsonl/t1")
    assert first.calls == ("jsonl/tides/next_low_water", "jsonl/rope/rope_length")
    assert (first.domain, first.gold_capability_ids) == ("sea", ("jsonl/rope", "jsonl/tides"))
    second = task(records, "jsonl/t2")
    assert second.gold_endpoint_ids == ("jsonl/bread/bread_book",)
    assert (second.given_candidate_ids, second.split) == (("jsonl/bread", "jsonl/rope"), "test")
    assert second.source == "jsonl/tasks.jsonl:2"


def test_both_forms_of_schemas_give_typed_arguments(tmp_path: Path) -> None:
    page_example(tmp_path)
    endpoints = {e.endpoint_id: e for e in read(tmp_path).library.endpoints}
    low = endpoints["jsonl/tides/next_low_water"]
    assert [(a.name, a.type, a.required) for a in low.arguments] == [
        ("harbour", "string", True),
        ("after", "datetime", False),
    ]
    assert (low.method, low.returns, low.operation) == ("GET", ("time", "height"), "next_low_water")
    rope = endpoints["jsonl/rope/rope_length"]
    assert [(a.name, a.raw_type, a.type, a.required) for a in rope.arguments] == [
        ("depth", "number", "number", True),
        ("chain", "boolean", "boolean", False),
    ]
    assert rope.description == "Length of rope for an anchorage."


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "string", "format": "date-time"}, ("date-time", "datetime")),
        ({"type": "string", "format": "uuid"}, ("string", "string")),
        ({"type": ["integer", "null"]}, ("integer", "number")),
        ({"enum": ["a", "b"]}, ("enum", "string")),
        ({}, ("", "unknown")),
    ],
)
def test_types_of_a_json_schema(own: Own, schema: dict[str, Any], expected: tuple[str, str]) -> None:
    own.put("corpus.jsonl", [*TOOLS, {"_id": "x", "name": "X", "parameters": {"properties": {"p": schema}}}])
    (argument,) = next(e for e in read(own.root).library.endpoints if e.capability_id == "jsonl/x").arguments
    assert (argument.raw_type, argument.type, argument.required) == (*expected, None)


def test_packed_files_another_folder_and_the_store(own: Own, tmp_path: Path) -> None:
    (own.root / "jsonl").rename(own.root / "mine")
    (own.root / "mine" / "corpus.jsonl").unlink()
    own.put("../mine/corpus.jsonl.gz", TOOLS)
    options = Options(folder="mine", template="with_operations")
    assert [p.name for p in inputs(own.root, options=options)] == ["corpus.jsonl.gz", "tasks.jsonl", "qrels.tsv"]
    load = {"dataset": "jsonl", "adapter": "toolshift.data.adapters.jsonl:read", "root": own.root}
    first = load_records(**load, cache=tmp_path / "cache", options=options)
    again = load_records(**load, cache=tmp_path / "cache", options={"folder": "mine", "template": "with_operations"})
    assert (first.rebuilt, again.rebuilt) == (True, False)
    assert again.records == first.records == read(own.root, options=options)
    assert first.records.library.capabilities[0].text == "Oar | operations: Oar"


def test_blank_lines_and_a_byte_order_mark_are_nothing(own: Own) -> None:
    own.put(
        "corpus.jsonl", b"\xef\xbb\xbf" + json.dumps(TOOLS[0]).encode() + b"\r\n\n  \n" + json.dumps(TOOLS[1]).encode()
    )
    own.put("qrels.tsv", b"\xef\xbb\xbfquery-id\tcorpus-id\tscore\r\nt\tpan\t1\r\n\r\n")
    report = read(own.root).report
    assert (report.capabilities, report.tasks, report.dropped) == (2, 1, {})


# --------------------------------------------------------------------------------------------------------------- gold


def test_a_score_above_zero_is_gold(own: Own) -> None:
    scores = [("t", "pan", "0.5"), ("t", "oar", "0"), ("u", "pan", "-1")]
    own.put("tasks.jsonl", [{"_id": "t", "text": "Fry it."}, {"_id": "u", "text": "Row it."}])
    own.put("qrels.tsv", [HEADER, *scores])
    records = read(own.root)
    assert [(t.task_id, t.gold_capability_ids) for t in records.tasks] == [("jsonl/t", ("jsonl/pan",))]
    assert [t.task_id for t in records.apart] == ["jsonl/u"]
    assert records.report.notes["judged_not_relevant"] == 2
    assert records.report.sections["qrels"].records == 3


def test_without_any_gold_nothing_may_be_scored(own: Own) -> None:
    own.put("qrels.tsv", [HEADER])
    records = read(own.root)
    assert records.tasks == ()
    assert records.unscorable.startswith("jsonl: no task has a relevant tool")


def test_calls_add_gold_and_one_call_is_no_order(own: Own) -> None:
    own.put("tasks.jsonl", [{"_id": "t", "text": "Fry it.", "calls": ["oar"]}])
    records = read(own.root)
    (only,) = records.tasks
    assert only.gold_capability_ids == ("jsonl/oar", "jsonl/pan")
    assert only.gold_endpoint_ids == ("jsonl/oar/oar", "jsonl/pan/pan")
    assert (only.ordered, only.calls, records.report.notes["gold_added_by_calls"]) == (False, (), 1)


def test_gold_of_a_tool_with_two_operations_names_no_endpoint(own: Own) -> None:
    endpoints = [{"name": "Fry"}, {"name": "Scrub"}]
    own.put("corpus.jsonl", [{"_id": "pan", "name": "Pan", "endpoints": endpoints}])
    records = read(own.root)
    assert records.tasks[0].gold_endpoint_ids == ()
    assert records.report.notes["gold_without_endpoint"] == 1


def test_equal_texts_are_one_task_under_the_first_id(own: Own) -> None:
    rows = [
        {"_id": "b", "text": " Fry it.", "calls": ["pan", "oar"]},
        {"_id": "a", "text": "Fry it.\n", "calls": ["oar", "pan"], "candidates": ["oar"]},
    ]
    own.put("tasks.jsonl", rows)
    own.put("qrels.tsv", [HEADER, ("a", "oar", "1"), ("b", "pan", "1")])
    records = read(own.root)
    (only,) = records.tasks
    assert (only.task_id, only.source) == ("jsonl/b", "jsonl/tasks.jsonl:1")
    assert only.gold_capability_ids == ("jsonl/oar", "jsonl/pan")
    assert (only.ordered, only.calls, only.given_candidate_ids) == (False, (), ("jsonl/oar",))
    assert records.report.notes["merged_duplicate_text"] == records.report.notes["merged_text_with_other_calls"] == 1


def test_a_stated_domain_beats_that_of_the_tools_and_ties_go_to_the_first_name(own: Own) -> None:
    rows = [{"_id": "t", "text": "Both."}, {"_id": "u", "text": "Said.", "domain": "garden"}]
    own.put("tasks.jsonl", rows)
    own.put("qrels.tsv", [HEADER, ("t", "oar", "1"), ("t", "pan", "1"), ("u", "oar", "1")])
    assert [t.domain for t in read(own.root).tasks] == ["kitchen", "garden"]


def test_numbers_are_usable_as_ids(own: Own) -> None:
    own.put("corpus.jsonl", [{"_id": 7, "name": "Seven"}])
    own.put("tasks.jsonl", [{"_id": 1, "text": "One", "calls": [7]}])
    own.put("qrels.tsv", [HEADER, ("1", "7", "1")])
    assert read(own.root).tasks[0].gold_capability_ids == ("jsonl/7",)


# ---------------------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize("name", ["corpus.jsonl", "tasks.jsonl", "qrels.tsv"])
def test_a_missing_file_or_a_folder_for_one_is_an_error(own: Own, name: str) -> None:
    path = own.root / "jsonl" / name
    path.unlink()
    with pytest.raises(AdapterError, match=rf"{re.escape(str(path))}: no such file .*docs/own_data\.md"):
        read(own.root)
    path.mkdir()
    with pytest.raises(AdapterError, match="is a folder, not a file"):
        inputs(own.root)


def test_a_missing_folder_is_an_error_that_shows_the_way(tmp_path: Path) -> None:
    with pytest.raises(AdapterError, match=r"jsonl: no such folder\. Expected files: corpus\.jsonl, tasks\.jsonl"):
        read(tmp_path)
    (tmp_path / "jsonl").write_text("x")
    with pytest.raises(AdapterError, match="is a file, not a folder"):
        read(tmp_path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"template": "x"}, "template='x' is unknown"),
        ({"faults": "ignore"}, "faults='ignore' is unknown; expected fail or drop"),
        ({"folder": "../secret"}, "expected a folder below data.root"),
        ({"folder": "/secret"}, "expected a folder below data.root"),
        ({"folder": ""}, "expected a folder below data.root"),
    ],
)
def test_options_are_checked(options: dict[str, Any], message: str) -> None:
    with pytest.raises(AdapterError, match=message):
        Options(**options)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty; expected the header"),
        (b"\n\n", "is empty; expected the header"),
        (b"t\tpan\t1\n", "qrels.tsv:1: the header is"),
        (b"query-id,corpus-id,score\n", "qrels.tsv:1: the header is"),
    ],
)
def test_qrels_without_its_header_are_an_error_in_any_case(own: Own, content: bytes, message: str) -> None:
    own.put("qrels.tsv", content)
    with pytest.raises(AdapterError, match=re.escape(message)):
        read(own.root, options=DROP)


def test_a_cut_packed_file_is_an_error_in_any_case(own: Own) -> None:
    (own.root / "jsonl" / "corpus.jsonl").unlink()
    path = own.put("corpus.jsonl.gz", [{"_id": str(n), "name": f"tool {n * 7919}"} for n in range(500)])
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(AdapterError, match=r"corpus\.jsonl\.gz: cannot be read beyond line \d+"):
        read(own.root, options=DROP)


PAN = {"_id": "pan", "name": "Pan"}


@pytest.mark.parametrize(
    ("name", "content", "line", "dropped"),
    [
        ("corpus.jsonl", b'{"_id": "pan", "name": "Pan"}\n{"_id": "cut', 2, {"tools:malformed_json": 1}),
        ("corpus.jsonl", b'{"_id": "pan", "name": "Pan"}\n{"_id": "\xe9"}', 2, {"tools:not_utf8": 1}),
        ("corpus.jsonl", [PAN, ["a", "list"]], 2, {"tools:not_an_object": 1}),
        ("corpus.jsonl", [PAN, PAN], 2, {"tools:id_appears_twice": 1}),
        ("corpus.jsonl", [PAN, {"name": "x"}], 2, {"tools:missing_id": 1}),
        ("corpus.jsonl", [PAN, {"_id": "a\tb", "name": "x"}], 2, {"tools:unusable_id": 1}),
        ("corpus.jsonl", [PAN, {"_id": None, "name": "x"}], 2, {"tools:unusable_id": 1}),
        ("corpus.jsonl", [PAN, {"_id": "x", "text": "nameless"}], 2, {"tools:missing_name_or_title": 1}),
        ("corpus.jsonl", [{**PAN, "endpoints": {}}], 1, {"endpoints:endpoints_not_a_list": 1}),
        ("corpus.jsonl", [{**PAN, "endpoints": [{}]}], 1, {"endpoints:missing_name": 1}),
        ("corpus.jsonl", [{**PAN, "arguments": "a"}], 1, {"parameters:arguments_not_a_list": 1}),
        ("corpus.jsonl", [{**PAN, "arguments": [{"type": "x"}]}], 1, {"parameters:missing_name": 1}),
        (
            "corpus.jsonl",
            [{**PAN, "arguments": [{"name": "a", "required": "yes"}]}],
            1,
            {"parameters:required_not_true_or_false": 1},
        ),
        ("corpus.jsonl", [{**PAN, "parameters": []}], 1, {"parameters:parameters_not_a_schema": 1}),
        ("corpus.jsonl", [{**PAN, "parameters": {"properties": {"a": 1}}}], 1, {"parameters:not_an_object": 1}),
        (
            "corpus.jsonl",
            [{**PAN, "parameters": {"properties": {}, "required": "a"}}],
            1,
            {"parameters:required_not_a_list": 1},
        ),
        ("tasks.jsonl", [{"_id": "t", "text": "a"}, {"_id": "t", "text": "b"}], 2, {"tasks:id_appears_twice": 1}),
        ("tasks.jsonl", [{"_id": "t", "text": "a"}, {"_id": "u"}], 2, {"tasks:missing_text": 1}),
        ("tasks.jsonl", [{"_id": "t", "text": "a"}, {"_id": "u", "text": 5}], 2, {"tasks:wrong_type_of_text": 1}),
        ("tasks.jsonl", [{"_id": "t", "text": "a"}, {"_id": "u", "text": " "}], 2, {"tasks:empty_text": 1}),
        ("tasks.jsonl", [{"_id": "t", "text": "a", "calls": "pan"}], 1, {"calls:calls_not_a_list": 1}),
        ("tasks.jsonl", [{"_id": "t", "text": "a", "calls": ["no"]}], 1, {"calls:tool_not_in_corpus": 1}),
        (
            "tasks.jsonl",
            [{"_id": "t", "text": "a", "calls": [{"tool": "pan", "endpoint": "Row"}]}],
            1,
            {"calls:endpoint_not_in_corpus": 1},
        ),
        ("tasks.jsonl", [{"_id": "t", "text": "a", "candidates": [None]}], 1, {"candidates:tool_not_in_corpus": 1}),
        ("qrels.tsv", [HEADER, ("t", "pan", "1"), ("t", "no", "1")], 3, {"qrels:tool_not_in_corpus": 1}),
        ("qrels.tsv", [HEADER, ("t", "pan", "1"), ("no", "pan", "1")], 3, {"qrels:task_not_in_tasks": 1}),
        ("qrels.tsv", [HEADER, ("t", "pan", "1"), ("t", "pan")], 3, {"qrels:not_three_columns": 1}),
        ("qrels.tsv", [HEADER, ("t", "pan", "1"), ("t", "pan", "x")], 3, {"qrels:score_not_a_number": 1}),
        ("qrels.tsv", [HEADER, ("t", "pan", "1"), ("t", "pan", "nan")], 3, {"qrels:score_not_a_number": 1}),
        ("qrels.tsv", b"query-id\tcorpus-id\tscore\nt\tpan\t1\nt\t\xff\t1\n", 3, {"qrels:not_utf8": 1}),
    ],
)
def test_a_wrong_line_is_an_error_with_its_number_or_a_counted_drop(
    own: Own, name: str, content: Any, line: int, dropped: dict[str, int]
) -> None:
    own.put(name, content)
    for options, strict in ((Options(), False), (DROP, True)):
        with pytest.raises(AdapterError, match=rf"jsonl/{re.escape(name)}:{line}\b.*faults=drop"):
            read(own.root, options=options, strict=strict)
    report = read(own.root, options=DROP).report
    assert report.dropped == dropped
    assert report.rows_read == report.records + 1


def test_an_ambiguous_call_breaks_the_order_only(own: Own) -> None:
    own.put("corpus.jsonl", [*TOOLS, {"_id": "net", "name": "Net", "endpoints": [{"name": "Cast"}, {"name": "Mend"}]}])
    own.put("tasks.jsonl", [{"_id": "t", "text": "Fish.", "calls": ["oar", "net", "pan"]}])
    records = read(own.root, options=DROP)
    assert records.report.dropped == {"calls:endpoint_not_named_and_tool_has_not_exactly_one": 1}
    assert (records.tasks[0].ordered, records.tasks[0].calls) == (False, ())
    assert records.tasks[0].gold_endpoint_ids == ("jsonl/oar/oar", "jsonl/pan/pan")


# ----------------------------------------------------------------------------------------------------------- any input

JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=5,
)
IDS = st.sampled_from(["a", "b", "a/b", " a", "c", "", "빵"])


def odd(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Objects whose keys may be missing or hold anything, and now and then no object at all."""
    usual = st.fixed_dictionaries({}, optional={k: v | JUNK for k, v in fields.items()})
    return st.fixed_dictionaries(fields) | usual | JUNK


SCHEMA = odd(properties=st.dictionaries(IDS, odd(type=IDS), max_size=2), required=st.lists(IDS, max_size=2))
ENDPOINT = odd(name=IDS, arguments=st.lists(odd(name=IDS, type=IDS), max_size=2), parameters=SCHEMA)
TOOL = odd(_id=IDS, name=IDS, parameters=SCHEMA) | odd(_id=IDS, name=IDS, endpoints=st.lists(ENDPOINT, max_size=2))
CALL = IDS | odd(tool=IDS, endpoint=IDS)
TASK = odd(_id=IDS, text=IDS, calls=st.lists(CALL, max_size=3), candidates=st.lists(IDS, max_size=2))
QREL = st.tuples(IDS, IDS, st.sampled_from(["1", "0", "x", "inf", "2.5"])) | st.lists(IDS, max_size=4)


@given(tools=st.lists(TOOL, max_size=5), tasks=st.lists(TASK, max_size=5), qrels=st.lists(QREL, max_size=5))
def test_whatever_the_files_hold_every_row_is_accounted_for(tools: Any, tasks: Any, qrels: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        own = Own(Path(folder))
        own.put("corpus.jsonl", tools)
        own.put("tasks.jsonl", tasks)
        own.put("qrels.tsv", [HEADER, *qrels])
        records = read(own.root, options=DROP)
    report = records.report
    assert report.rows_read == report.records + sum(report.dropped.values())
    assert report.sections["tools"].rows_read == len(tools)
    assert report.sections["tasks"].rows_read == len(tasks)
    assert report.sections["qrels"].rows_read == sum(bool("\t".join(cells).strip()) for cells in qrels)
    assert report.sections["tools"].records == len(records.library.capabilities)
    united = report.notes["merged_duplicate_text"]
    assert report.sections["tasks"].records == len(records.tasks) + len(records.apart) + united
    assert report.tasks == len(records.tasks)

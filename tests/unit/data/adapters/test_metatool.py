from __future__ import annotations

import csv
import gzip
import io
import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolshift.data.adapters.metatool import MULTI, SINGLE, SUBTASK3, SUBTASK4, TASK1, Options, inputs, read
from toolshift.data.errors import AdapterError
from toolshift.data.records import Records, Task

TOOLS = {
    "SoupTool": "All soups, hot and cold.",
    "rain_watch": "Tells when it rains.",
    "Tax&Tip": "Adds tax and tip.",
    "Now": "The time.",
}
SOUP, RAIN, TAX, NOW = (f"metatool/{key}" for key in ("souptool", "rain_watch", "tax_tip", "now"))
QUESTION = "metatool/56437da9fdbb0249"  # first 16 hex digits of sha256("A soup, please.")


def prompt(*names: str) -> str:
    """A prompt that shows tools, with an example behind the list that looks like a part of it."""
    listed = "\n".join(f"{i}. tool name: {name}, tool description: ['1. x']" for i, name in enumerate(names, 1))
    head, tail = (f"[List of Tools with Names and Descriptions {word}]" for word in ("Start", "End"))
    return f"Choose.\n{head}\n{listed}\n\n{tail}\n1. tool name: Ghost, tool description: an example"


@dataclass(frozen=True)
class Release:
    root: Path

    def put(self, relative: str, content: Any) -> Path:
        """Write bytes as they are, rows of a CSV for a name that holds .csv, else JSON; .gz packs."""
        if relative.removesuffix(".gz").endswith(".csv") and not isinstance(content, bytes):
            text = io.StringIO()
            csv.writer(text).writerows([["Query", "Tool"], *content])
            content = text.getvalue().encode()
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        path = self.root / "metatool" / relative
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(data) if relative.endswith(".gz") else data)
        return path


def fill(release: Release) -> Release:
    release.put("dataset/plugin_des.json", TOOLS)
    release.put(SINGLE, [["A soup, please.", "SoupTool"], ["Will it rain?", "rain_watch"]])
    release.put(MULTI, [{"query": "Soup in the rain?", "tool": ["rain_watch", "SoupTool"]}])
    return release


@pytest.fixture
def release(tmp_path: Path) -> Release:
    return fill(Release(tmp_path / "root"))


def task(records: Records, text: str) -> Task:
    (found,) = [t for t in records.tasks if t.text == text]
    return found


# ------------------------------------------------------------------------------------------------------ plain reading


def test_tools_and_queries_become_records(release: Release) -> None:
    records = read(release.root, strict=True)
    assert [c.capability_id for c in records.library.capabilities] == [NOW, RAIN, SOUP, TAX]
    soup = records.library.capabilities[2]
    assert (soup.name, soup.domain, soup.text) == ("SoupTool", "", "SoupTool: All soups, hot and cold.")
    (endpoint,) = records.library.endpoints_of[RAIN]
    assert (endpoint.endpoint_id, endpoint.operation) == (f"{RAIN}/rain_watch", "rain_watch")
    assert (endpoint.arguments, endpoint.text) == ((), "rain watch: Tells when it rains.")
    one = task(records, "A soup, please.")
    assert (one.task_id, one.domain, one.ordered) == (QUESTION, "", False)
    assert (one.gold_capability_ids, one.gold_endpoint_ids) == ((SOUP,), (f"{SOUP}/souptool",))
    assert (one.split, one.source) == ("all_clean_data", f"metatool/{SINGLE}#0")
    two = task(records, "Soup in the rain?")
    assert (two.gold_capability_ids, two.given_candidate_ids) == ((RAIN, SOUP), ())
    assert records.apart == ()
    assert (records.report.tasks, records.report.gold_pairs, records.report.domains) == (3, 4, 0)
    assert records.report.dropped == {}


def test_packed_files_are_read_and_named(release: Release) -> None:
    expected = read(release.root)
    (release.root / "metatool" / SINGLE).unlink()
    release.put(f"{SINGLE}.gz", [["A soup, please.", "SoupTool"], ["Will it rain?", "rain_watch"]])
    release.put(f"{TASK1}.gz", [])
    assert read(release.root).tasks == expected.tasks
    names = [path.name for path in inputs(release.root)]
    assert names == ["plugin_des.json", "all_clean_data.csv.gz", "multi_tool_query_golden.json", "Task1.json.gz"]


def test_the_template_is_an_option(release: Release) -> None:
    records = read(release.root, options=Options(template="with_operations"))
    assert records.library.capabilities[1].text == "rain_watch: Tells when it rains. | operations: rain watch"
    with pytest.raises(AdapterError, match="template='x' is unknown"):
        Options(template="x")


# ------------------------------------------------------------------------------------------------------------- quirks


def test_equal_texts_are_one_task_with_united_gold(release: Release) -> None:
    release.put(SINGLE, [["What now? ", "Now"], ["What now?", "rain_watch"], ["What now?", "Now"]])
    release.put(TASK1, [{"query": "What now?", "label": "positive", "tool": "Now"}])
    records = read(release.root)
    united = task(records, "What now?")
    assert united.gold_capability_ids == (NOW, RAIN)
    assert (united.split, united.source) == ("Task1+all_clean_data", f"metatool/{SINGLE}#0")
    notes = records.report.notes
    assert (notes["merged_duplicate_text"], notes["merged_text_with_other_gold"]) == (3, 1)
    assert records.report.sections["single_queries"].records == 3
    assert notes["tasks_with_several_gold"] == 2, "this one and the two-tool query"


def test_candidates_come_from_the_prompt(release: Release) -> None:
    row = {"query": "Soup in the rain?", "tool": ["SoupTool", "rain_watch"]}
    release.put(SUBTASK4, [{**row, "action_prompt": prompt("Tax&Tip", "SoupTool", "rain_watch")}])
    two = task(read(release.root, strict=True), "Soup in the rain?")
    assert two.given_candidate_ids == (RAIN, SOUP, TAX)
    assert two.gold_capability_ids == (RAIN, SOUP)
    assert two.split == "Task2-Subtask4+multi_tool_query_golden"


def test_queries_to_which_no_tool_applies_are_kept_apart(release: Release) -> None:
    shown = {"query": "A soup, please.", "tool": "SoupTool", "action_prompt": prompt("Now", "rain_watch")}
    release.put(SUBTASK3, [shown])
    release.put(TASK1, [{"query": "Tell a joke.", "label": "negative"}])
    records = read(release.root, strict=True)
    apart = {t.text: t for t in records.apart}
    soup, joke = apart["A soup, please."], apart["Tell a joke."]
    assert (soup.task_id, soup.given_candidate_ids) == (f"{QUESTION}-Task2-Subtask3", (NOW, RAIN))
    assert (joke.split, joke.given_candidate_ids) == ("Task1", ())
    assert {(t.no_gold, t.gold_capability_ids, t.gold_endpoint_ids) for t in records.apart} == {("irrelevance", (), ())}
    assert task(records, "A soup, please.").gold_capability_ids == (SOUP,), "among all tools one applies"
    assert {t.task_id for t in records.tasks}.isdisjoint(t.task_id for t in records.apart)
    notes = records.report.notes
    assert (notes["tasks_apart"], notes["texts_in_both_tasks_and_apart"]) == (2, 1)
    assert len(records.tasks) == 3


def test_an_apart_query_twice_in_one_file_is_one_task(release: Release) -> None:
    rows = [{"query": "A soup?", "tool": "SoupTool", "action_prompt": prompt(name)} for name in ("Now", "Tax&Tip")]
    release.put(SUBTASK3, rows)
    records = read(release.root)
    (soup,) = records.apart
    assert soup.given_candidate_ids == (NOW, TAX)
    assert soup.source == f"metatool/{SUBTASK3}#0"
    assert records.report.notes["merged_duplicate_apart"] == 1


def test_what_is_odd_in_queries_is_counted_and_kept(release: Release) -> None:
    rows = [
        ["Is SOUPTOOL open?\nOr shut, perhaps?", "SoupTool"],
        ["A caf茅 in the rain?", "rain_watch"],  # "café" in UTF-8, read as GBK
        ["Is it 30鎺 outside?", "rain_watch"],  # a degree sign, twice
        ["How do I say 你好 in a café, “naïve” as I am?", "Now"],
    ]
    release.put(SINGLE, rows)
    records = read(release.root, strict=True)
    assert {query for query, _ in rows} < {t.text for t in records.tasks}
    notes = records.report.notes
    assert notes["queries_that_name_their_tool"] == 1
    assert notes["queries_with_newline"] == 1
    assert notes["queries_with_mojibake"] == 2


def test_a_tool_twice_in_the_library_is_one_tool(release: Release) -> None:
    release.put("dataset/plugin_des.json", b'{"Now": "", "now": "The time.", "Now": "A clock.", "SoupTool": "Soups."}')
    release.put(SINGLE, [["What now?", "now"]])
    release.put(MULTI, [{"query": "Soup now?", "tool": ["Now", "now", "SoupTool"]}])
    records = read(release.root)
    assert [(c.capability_id, c.description) for c in records.library.capabilities] == [
        (NOW, "The time."),
        (SOUP, "Soups."),
    ]
    assert task(records, "Soup now?").gold_capability_ids == (NOW, SOUP)
    notes = records.report.notes
    assert (notes["merged_tool_names"], notes["repeated_gold_names"], notes["tools_without_description"]) == (2, 1, 1)
    assert records.report.sections["tools"].records == 4


# ---------------------------------------------------------------------------------------------------------- bad input


def test_a_missing_folder_or_file_is_named(release: Release, tmp_path: Path) -> None:
    with pytest.raises(AdapterError, match=r"nowhere/metatool: no such folder(.|\n)*MetaTool"):
        read(tmp_path / "nowhere")
    for name in ("dataset/plugin_des.json", SINGLE, MULTI):
        path = release.root / "metatool" / name
        content = path.read_bytes()
        path.unlink()
        with pytest.raises(AdapterError, match=rf"{path.name}: no such file \(nor its \.gz beside it\)"):
            read(release.root)
        path.write_bytes(content)


@pytest.mark.parametrize("name", ["dataset/plugin_des.json", SINGLE, MULTI, TASK1, SUBTASK3])
def test_a_folder_in_place_of_a_file_is_an_error(release: Release, name: str) -> None:
    path = release.root / "metatool" / name
    path.unlink(missing_ok=True)
    path.mkdir(parents=True)
    with pytest.raises(AdapterError, match=f"{path.name}: is a folder, not a file"):
        inputs(release.root)


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("dataset/plugin_des.json", b"", "malformed_json"),
        ("dataset/plugin_des.json", b'{"Now": "The ti', "malformed_json"),
        ("dataset/plugin_des.json", b'{"Now": "\xe9"}', "not_utf8"),
        ("dataset/plugin_des.json", b'["Now"]', "one JSON object"),
        (SINGLE, b"", r"the header is \[\], expected"),
        (SINGLE, b"Text,Label\nA,Now\n", r"the header is \['Text', 'Label'\]"),
        (SINGLE, b'Query,Tool\nWhen?,Now\n"A cut qu', "cannot be read beyond line 2 .unexpected end"),
        (SINGLE, b"Query,Tool\nA caf\xe9?,Now\n", "cannot be read beyond line 0"),
        (MULTI, b"", "not a JSON array"),
        (MULTI, b'{"query": "A soup?"}', "not a JSON array"),
        (MULTI, b'[{"query": "A so', "truncated or malformed"),
        (SUBTASK3, b'["\xff"]', "not UTF-8"),
    ],
)
def test_a_damaged_file_is_an_error_in_both_modes(release: Release, name: str, content: bytes, problem: str) -> None:
    path = release.put(name, content)
    for strict in (False, True):
        with pytest.raises(AdapterError, match=f"{path.name}(.|\n)*{problem}"):
            read(release.root, strict=strict)


def test_a_cut_gz_is_an_error(release: Release) -> None:
    (release.root / "metatool" / SINGLE).unlink()
    path = release.put(f"{SINGLE}.gz", [[f"Soup {i * i}?", "SoupTool"] for i in range(200)])
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(AdapterError, match="cannot be read beyond line"):
        read(release.root)


PROMPT = prompt("Now", "SoupTool")


@pytest.mark.parametrize(
    ("name", "row", "dropped"),
    [
        (SINGLE, ["A soup?"], {"single_queries:wrong_number_of_columns": 1}),
        (SINGLE, [" ", "Now"], {"single_queries:empty_query": 1}),
        (SINGLE, ["A?", "Nowhere"], {"gold_names:unknown_tool": 1, "single_queries:no_known_gold": 1}),
        (MULTI, "text", {"multi_queries:not_an_object": 1}),
        (MULTI, {"tool": ["Now"]}, {"multi_queries:missing_query": 1}),
        (MULTI, {"query": 7, "tool": ["Now"]}, {"multi_queries:wrong_type_of_query": 1}),
        (MULTI, {"query": "A?"}, {"multi_queries:missing_tool": 1}),
        (MULTI, {"query": "A?", "tool": None}, {"multi_queries:wrong_type_of_tool": 1}),
        (MULTI, {"query": "A?", "tool": []}, {"multi_queries:no_known_gold": 1}),
        (MULTI, {"query": "A?", "tool": ["Now", "Gone"]}, {"gold_names:unknown_tool": 1}),
        (MULTI, {"query": "A?", "tool": ["Now", 3]}, {"gold_names:unknown_tool": 1}),
        (TASK1, 3, {"task1_queries:not_an_object": 1}),
        (TASK1, {"query": "A?", "label": "maybe", "tool": "Now"}, {"task1_queries:unknown_label": 1}),
        (TASK1, {"query": "", "label": "negative"}, {"task1_queries:empty_query": 1}),
        (TASK1, {"query": "A?", "label": "positive"}, {"task1_queries:missing_tool": 1}),
        (SUBTASK3, {"query": "A?", "tool": "Now"}, {"subtask3_queries:missing_action_prompt": 1}),
        (SUBTASK3, {"query": "A?", "action_prompt": "1. tool name: Now"}, {"subtask3_queries:no_tool_list": 1}),
        (SUBTASK3, {"query": "A?", "action_prompt": prompt("Gone", "Now")}, {"candidates:unknown_tool": 1}),
        (SUBTASK4, {"query": "A?", "tool": ["Now"], "action_prompt": "x"}, {"subtask4_queries:no_tool_list": 1}),
    ],
)  # fmt: skip
def test_unusable_rows_are_counted_by_reason(release: Release, name: str, row: Any, dropped: dict[str, int]) -> None:
    release.put(name, [row])
    assert read(release.root).report.dropped == dropped
    with pytest.raises(AdapterError, match=f"metatool/{name}#0"):
        read(release.root, strict=True)


def test_unusable_tools_are_counted_by_reason(release: Release) -> None:
    release.put("dataset/plugin_des.json", {**TOOLS, " ": "Nameless.", "Listed": ["A list."]})
    report = read(release.root).report
    assert report.sections["tools"].dropped == {"empty_name": 1, "wrong_type_of_description": 1}
    assert report.capabilities == len(TOOLS)


# --------------------------------------------------------------------------------------------------------------- fuzz

JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=5,
)
NAMES = st.sampled_from([*TOOLS, "Gone", "souptool", "", "빵", "Now\ud83d"])
TEXTS = st.sampled_from(["A soup?", " A soup? ", "Rain\ud83d?", "", "caf茅", "two\nlines"])
PROMPTS = st.lists(NAMES, max_size=3).map(lambda names: prompt(*names))


def odd_rows(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    """Rows whose keys may be missing or hold anything, and now and then no object at all."""
    usual = st.fixed_dictionaries({}, optional={k: v | JUNK for k, v in fields.items()})
    return st.lists(st.fixed_dictionaries(fields) | usual | JUNK, max_size=4)


GOLD = NAMES | st.lists(NAMES, max_size=3)
FILES = st.fixed_dictionaries(
    {
        SINGLE: st.lists(
            st.tuples(st.sampled_from(["A soup?", " ", "caf茅"]), st.sampled_from(["Now", "Gone"])) | st.just(())
        ),
        MULTI: odd_rows(query=TEXTS, tool=GOLD),
        TASK1: odd_rows(query=TEXTS, label=st.sampled_from(["positive", "negative"]), tool=GOLD),
        SUBTASK3: odd_rows(query=TEXTS, tool=GOLD, action_prompt=PROMPTS),
        SUBTASK4: odd_rows(query=TEXTS, tool=GOLD, action_prompt=PROMPTS),
    }
)  # fmt: skip


@settings(max_examples=100, deadline=None)
@given(tools=st.dictionaries(NAMES, TEXTS | JUNK, max_size=5), files=FILES)
def test_whatever_the_files_hold_every_row_is_accounted_for(tools: dict[str, Any], files: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        release = Release(Path(folder))
        release.put("dataset/plugin_des.json", tools)
        for name, rows in files.items():
            release.put(name, rows)
        records = read(release.root)
    report = records.report
    sections = report.sections
    for section in sections.values():
        assert section.rows_read == section.records + sum(section.dropped.values())
    assert report.rows_read == report.records + sum(report.dropped.values())
    assert sections["tools"].rows_read == len(tools)
    assert sections["single_queries"].rows_read == sum(map(bool, files[SINGLE])), "a line without a cell is no row"
    read_of = {
        MULTI: "multi_queries",
        TASK1: "task1_queries",
        SUBTASK3: "subtask3_queries",
        SUBTASK4: "subtask4_queries",
    }
    assert {name: sections[section].rows_read for name, section in read_of.items()} == {
        name: len(files[name]) for name in read_of
    }
    queries = sum(section.records for name, section in sections.items() if name.endswith("_queries"))
    merged = report.notes["merged_duplicate_text"] + report.notes["merged_duplicate_apart"]
    assert queries == len(records.tasks) + len(records.apart) + merged

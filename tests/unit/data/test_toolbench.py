from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolshift.data.adapters.toolbench import Options, inputs, read
from toolshift.data.errors import AdapterError
from toolshift.data.records import Records

RAIN = "toolbench/af4d7230adda44b4"  # first 16 hex digits of sha256("Will it rain?")


def capability(records: Records, capability_id: str) -> Any:
    return records.library.capabilities[records.library.position[capability_id]]


def endpoint(records: Records, endpoint_id: str) -> Any:
    return next(e for e in records.library.endpoints if e.endpoint_id == endpoint_id)


# ------------------------------------------------------------------------------------------------------ plain reading


def test_tools_apis_and_rows_become_records(release: Any) -> None:
    records = read(release.root)
    assert [c.capability_id for c in records.library.capabilities] == [
        "toolbench/Food/soup_book",
        "toolbench/Weather/sky_view",
    ]
    sky = capability(records, "toolbench/Weather/sky_view")
    assert (sky.name, sky.description, sky.domain, sky.text) == ("Sky View", "Sky.", "Weather", "Sky View: Sky.")
    forecast = endpoint(records, "toolbench/Weather/sky_view/get_forecast")
    assert (forecast.operation, forecast.method, forecast.text) == ("Get Forecast", "GET", "Get Forecast: Coming days.")
    assert [(a.name, a.raw_type, a.type, a.required) for a in forecast.arguments] == [("lat", "NUMBER", "number", True)]
    soup = endpoint(records, "toolbench/Food/soup_book/find_soup")
    assert [(a.name, a.required) for a in soup.arguments] == [("page", False)]
    task = next(t for t in records.tasks if t.text == "Will it rain?")
    assert task.task_id == RAIN
    assert task.domain == "Weather"
    assert task.gold_capability_ids == task.given_candidate_ids == ("toolbench/Weather/sky_view",)
    assert task.gold_endpoint_ids == ("toolbench/Weather/sky_view/get_forecast",)
    assert (task.split, task.source) == ("test_instruction/G1_tool", "toolbench/test_instruction/G1_tool.json#0")
    assert records.report.as_dict()["dropped"] == {}
    assert (records.report.tasks, records.report.capabilities, records.report.gold_pairs) == (2, 2, 2)


def test_packed_files_and_other_folders_are_read(release: Any, make: Any) -> None:
    entry = make.doc("Food", "Soup Book", "Find Soup")
    release.put("instruction/G1_query.json.gz", [make.row("Borscht?", [entry], [["Soup Book", "Find Soup"]])])
    release.put("solvable_queries/test_instruction/G1_tool.json", [])
    release.put("toolenv/tools/Food/fast_food.json.gz", {"tool_name": "Fast Food", "api_list": []})
    release.put("toolenv/tools/Food/notes.txt", b"no tool")
    records = read(release.root)
    assert "toolbench/Food/fast_food" in records.library.position
    assert len(records.library.capabilities) == 3
    borscht = next(t for t in records.tasks if t.text == "Borscht?")
    assert borscht.source == "toolbench/instruction/G1_query.json#0"
    assert borscht.split == "instruction/G1_query"
    names = [path.name for path in inputs(release.root)]
    assert names == [
        "fast_food.json.gz",
        "soup_book.json",
        "sky_view.json",
        "G1_query.json.gz",
        "G1_tool.json",
        "G1_tool.json",
    ]


def test_query_folders_and_the_template_are_options(release: Any, make: Any) -> None:
    entry = make.doc("Food", "Soup Book", "Find Soup")
    release.put("instruction/G1_query.json", [make.row("Borscht?", [entry], [["Soup Book", "Find Soup"]])])
    records = read(release.root, options=Options(queries=("instruction",), template="with_operations"))
    assert [t.text for t in records.tasks] == ["Borscht?"]
    assert capability(records, "toolbench/Weather/sky_view").text == "Sky View: Sky. | operations: Get Forecast"
    with pytest.raises(AdapterError, match="template='x' is unknown"):
        Options(template="x")
    with pytest.raises(AdapterError, match="expected some of instruction"):
        Options(queries=("train",))


# -------------------------------------------------------------------------------------------------------------- names


def test_a_stem_without_the_slash_is_met_by_its_alias(release: Any, make: Any) -> None:
    release.tool("Food", "breadbutter", "Bread/Butter", make.api("Find Bread"))
    entry = make.doc("Food", "Bread/Butter", "Find Bread")
    release.put("test_instruction/G1_category.json", [make.row("Bread?", [entry], [["Bread/Butter", "Find Bread"]])])
    records = read(release.root)
    (bread,) = [t for t in records.tasks if t.text == "Bread?"]
    assert bread.gold_endpoint_ids == ("toolbench/Food/breadbutter/find_bread",)
    assert records.report.notes["tools_matched_by_alias"] == 1
    assert records.report.notes["recreated_tools"] == 0


def test_an_alias_two_tools_claim_is_used_by_neither(release: Any, make: Any) -> None:
    release.tool("Food", "breadbutter", "Bread/Butter", make.api("A"))
    release.tool("Food", "bread_butte_r", "Bread/Butter", make.api("A"))
    entry = make.doc("Food", "Bread/Butter", "A")
    release.put("test_instruction/G1_category.json", [make.row("Bread?", [entry], [["Bread/Butter", "A"]])])
    records = read(release.root)
    assert records.report.notes["contested_aliases"] == 1
    assert capability(records, "toolbench/Food/bread_butter").schema_source == "task"


def test_an_exact_stem_beats_an_alias(release: Any, make: Any) -> None:
    release.tool("Food", "bread_butter", "Bread Butter", make.api("A"))
    release.tool("Food", "breadbutter", "Bread/Butter", make.api("A"))
    entry = make.doc("Food", "Bread/Butter", "A")
    release.put("test_instruction/G1_category.json", [make.row("Bread?", [entry], [["Bread/Butter", "A"]])])
    (bread,) = [t for t in read(release.root).tasks if t.text == "Bread?"]
    assert bread.gold_capability_ids == ("toolbench/Food/bread_butter",)


def test_a_file_named_dot_json_is_a_tool(release: Any, make: Any) -> None:
    release.tool("Food", "", "빵", make.api("Find Bread"))
    entry = make.doc("Food", "빵", "Find Bread")
    release.put("test_instruction/G1_category.json", [make.row("Bread?", [entry], [["빵", "Find Bread"]])])
    records = read(release.root)
    (bread,) = [t for t in records.tasks if t.text == "Bread?"]
    (gold,) = bread.gold_capability_ids
    assert gold.startswith("toolbench/Food/unnamed-")
    assert capability(records, gold).schema_source == "both"
    assert records.report.sections["tool_files"].rows_read == 3


def test_blanks_carets_digits_and_versions(release: Any, make: Any) -> None:
    release.tool("Food", "get_7_soups", " 7 Soups ", make.api(" Rank ^ Rate"))
    docs = [make.doc("Food", "7 Soups", "Rank ^ Rate"), make.doc("Food", "7 Soups_v2", "Rank ^ Rate")]
    gold = [["7 Soups", "Rank ^ Rate"], ["7 Soups_v2", "Rank ^ Rate"]]
    release.put("test_instruction/G1_category.json", [make.row("Soups?", docs, gold)])
    records = read(release.root)
    (task,) = [t for t in records.tasks if t.text == "Soups?"]
    assert task.gold_endpoint_ids == (
        "toolbench/Food/get_7_soups/rank_^_rate",
        "toolbench/Food/get_7_soups_v2/rank_^_rate",
    )
    assert capability(records, "toolbench/Food/get_7_soups").name == "7 Soups"
    assert capability(records, "toolbench/Food/get_7_soups_v2").partial_schema


def test_apis_that_standardise_alike_are_merged_and_counted(release: Any, make: Any) -> None:
    release.tool("Food", "pots", "Pots", make.api("Find Pot", "size"), make.api("find pot ", "size", "colour"))
    records = read(release.root)
    (pot,) = records.library.endpoints_of["toolbench/Food/pots"]
    assert [a.name for a in pot.arguments] == ["size", "colour"]
    assert records.report.notes["merged_duplicate_apis"] == 1
    assert records.report.sections["apis"].records == 4


# -------------------------------------------------------------------------------------------------------- query rows


def test_rows_document_tools_and_apis_that_the_library_lacks(release: Any, make: Any) -> None:
    gone = [make.doc("Food", "Old Oven", "Bake", "heat"), make.doc("Food", "Old Oven", "Grill")]
    later = [make.doc("Food", "Old Oven", "Bake", "heat", "minutes"), make.doc("Food", "Soup Book", "Rate Soup")]
    rows = [make.row("Bake?", gone, [["Old Oven", "Bake"]]), make.row("Rate?", later, [["Soup Book", "Rate Soup"]])]
    release.put("test_instruction/G1_category.json", rows)
    records = read(release.root)
    oven = capability(records, "toolbench/Food/old_oven")
    assert (oven.schema_source, oven.text, oven.domain) == ("task", "Old Oven", "Food")
    bake = endpoint(records, "toolbench/Food/old_oven/bake")
    assert [a.name for a in bake.arguments] == ["heat", "minutes"]
    assert len(records.library.endpoints_of["toolbench/Food/old_oven"]) == 2
    assert capability(records, "toolbench/Food/soup_book").schema_source == "both"
    assert endpoint(records, "toolbench/Food/soup_book/rate_soup").source == "task"
    assert endpoint(records, "toolbench/Food/soup_book/find_soup").source == "both"
    notes = records.report.notes
    assert (notes["recreated_tools"], notes["endpoints_from_task_docs"]) == (1, 3)
    assert notes["arguments_added_by_task_docs"] == 1


def test_equal_texts_merge_with_their_gold_given_and_files(release: Any, make: Any) -> None:
    entry = make.doc("Food", "Soup Book", "Find Soup")
    release.put("instruction/G1_query.json", [make.row("  Will it rain?\n", [entry], [["Soup Book", "Find Soup"]])])
    records = read(release.root)
    assert len(records.tasks) == 2
    (rain,) = [t for t in records.tasks if t.task_id == RAIN]
    assert rain.text == "Will it rain?"
    assert rain.gold_capability_ids == ("toolbench/Food/soup_book", "toolbench/Weather/sky_view")
    assert rain.given_candidate_ids == rain.gold_capability_ids
    assert rain.split == "instruction/G1_query+test_instruction/G1_tool"
    assert rain.source == "toolbench/instruction/G1_query.json#0"
    assert rain.domain == "Food", "one endpoint each: the tie goes to the first name"
    assert records.report.sections["queries"].records == 3
    assert records.report.notes["merged_duplicate_text"] == 1
    assert records.report.notes["merged_text_with_other_gold"] == 1


def test_the_domain_is_the_category_of_most_gold_endpoints(release: Any, make: Any) -> None:
    docs = [
        make.doc("Food", "Soup Book", "Find Soup"),
        make.doc("Weather", "Sky View", "Get Forecast"),
        make.doc("Weather", "Sky View", "Get Wind"),
    ]
    gold = [[d["tool_name"], d["api_name"]] for d in docs]
    release.put("test_instruction/G3_instruction.json", [make.row("Soup or wind?", docs, gold)])
    (task,) = [t for t in read(release.root).tasks if t.text == "Soup or wind?"]
    assert task.domain == "Weather"
    assert len(task.gold_capability_ids) == 2


def test_gold_without_category_takes_the_first_listed_and_is_counted(release: Any, make: Any) -> None:
    docs = [make.doc("Weather", "Twin", "Go"), make.doc("Food", "Twin", "Go"), make.doc("Food", "Twin", "Stop")]
    release.put("test_instruction/G2_category.json", [make.row("Twins?", docs, [["Twin", "Go"], ["Twin", "Stop"]])])
    records = read(release.root)
    (task,) = [t for t in records.tasks if t.text == "Twins?"]
    assert task.gold_endpoint_ids == ("toolbench/Food/twin/stop", "toolbench/Weather/twin/go")
    assert records.report.notes["ambiguous_gold"] == 1


def test_native_names_match_before_standardised_ones(release: Any, make: Any) -> None:
    docs = [make.doc("Weather", "twin", "go"), make.doc("Food", "Twin", "Go")]
    rows = [
        make.row("Native?", docs, [["Twin", "Go"]]),
        make.row("Standard?", docs, [["TWIN", "GO"], ["TWIN", "GO"]]),
    ]
    release.put("test_instruction/G2_category.json", rows)
    records = read(release.root)
    gold = {t.text: t.gold_endpoint_ids for t in records.tasks}
    assert gold["Native?"] == ("toolbench/Food/twin/go",)
    assert gold["Standard?"] == ("toolbench/Weather/twin/go",)
    assert records.report.notes["ambiguous_gold"] == 2
    assert records.report.notes["repeated_gold_pairs"] == 1


# ---------------------------------------------------------------------------------------------------------- bad input


def test_a_missing_root_says_what_belongs_there_and_where_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(AdapterError) as caught:
        read(tmp_path / "nowhere")
    message = str(caught.value)
    assert str(tmp_path / "nowhere" / "toolbench") in message
    assert "OpenBMB/ToolBench" in message
    assert "toolenv/tools/<Category>/<tool>.json" in message
    assert "data.root=FOLDER" in message
    assert "data=sample" in message


def test_a_missing_tool_folder_an_empty_one_and_missing_queries(release: Any) -> None:
    shutil.rmtree(release.root / "toolbench" / "test_instruction")
    with pytest.raises(AdapterError, match=r"no query file .* in any of: .*test_instruction"):
        read(release.root)
    tools = release.root / "toolbench" / "toolenv" / "tools"
    shutil.rmtree(tools)
    with pytest.raises(AdapterError, match="toolenv/tools: no such folder"):
        read(release.root)
    tools.mkdir()
    with pytest.raises(AdapterError, match=r"holds no <Category>/<tool>\.json"):
        read(release.root)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"[]", "not_an_object"),
        (b'{"tool_name": "Cut", "api_', "malformed_json"),
        (b'{"tool_name": "\xe9"}', "not_utf8"),
        (b"", "malformed_json"),
        (b"{}", "missing_tool_name"),
        (b'{"tool_name": "No list"}', "missing_api_list"),
        (b'{"tool_name": "No list", "api_list": {}}', "wrong_type_of_api_list"),
        (b'{"tool_name": " ", "api_list": []}', "empty_tool_name"),
        (b'{"tool_name": 7, "api_list": []}', "wrong_type_of_tool_name"),
    ],
)
def test_an_unusable_tool_file_is_a_counted_drop_or_a_strict_error(release: Any, content: bytes, reason: str) -> None:
    release.put("toolenv/tools/Food/broken.json", content)
    report = read(release.root).report
    assert report.sections["tool_files"].dropped == {reason: 1}
    assert report.dropped == {f"tool_files:{reason}": 1}
    assert (report.sections["tool_files"].rows_read, report.capabilities) == (3, 2)
    with pytest.raises(AdapterError, match=f"toolbench/toolenv/tools/Food/broken.json: {reason.replace('_', ' ')}"):
        read(release.root, strict=True)


def test_a_cut_gz_tool_file_is_a_counted_drop(release: Any) -> None:
    path = release.put("toolenv/tools/Food/broken.json.gz", {"tool_name": "x" * 500, "api_list": []})
    path.write_bytes(path.read_bytes()[:20])
    assert read(release.root).report.dropped == {"tool_files:truncated_gzip": 1}


def test_unusable_apis_and_parameters_are_counted(release: Any, make: Any) -> None:
    odd = make.api("Odd")
    odd["required_parameters"] = [{"name": "a", "type": None}, {"type": "NUMBER"}, "b", {"name": ""}]
    odd["optional_parameters"] = {"name": "c"}
    bare = {"name": "Bare", "description": ["no text"]}
    release.tool("Food", "pots", "Pots", odd, bare, {"description": "nameless"}, None)
    records = read(release.root)
    sections = records.report.sections
    assert sections["apis"].dropped == {"missing_name": 1, "not_an_object": 1}
    assert sections["parameters"].dropped == {
        "empty_name": 1,
        "missing_name": 1,
        "not_an_object": 1,
        "parameters_not_a_list": 1,
    }
    assert [a.name for a in endpoint(records, "toolbench/Food/pots/odd").arguments] == ["a"]
    assert endpoint(records, "toolbench/Food/pots/bare").description == ""


SOUP = {"category_name": "Food", "tool_name": "Soup Book", "api_name": "Find Soup"}
PAIR = ["Soup Book", "Find Soup"]


@pytest.mark.parametrize(
    ("value", "dropped"),
    [
        ("text", {"queries:not_an_object": 1}),
        ({"api_list": [], "relevant APIs": []}, {"queries:missing_query": 1}),
        ({"query": "q", "relevant APIs": []}, {"queries:missing_api_list": 1}),
        ({"query": "q", "api_list": []}, {"queries:missing_relevant_APIs": 1}),
        ({"query": 5, "api_list": [], "relevant APIs": []}, {"queries:wrong_type_of_query": 1}),
        ({"query": "q", "api_list": "x", "relevant APIs": []}, {"queries:wrong_type_of_api_list": 1}),
        ({"query": " \n", "api_list": [SOUP], "relevant APIs": [PAIR]}, {"queries:empty_query": 1}),
        ({"query": "q", "api_list": [SOUP], "relevant APIs": []}, {"queries:no_known_gold": 1}),
        (
            {"query": "q", "api_list": [SOUP], "relevant APIs": [["Soup Book", "Eat"]]},
            {"gold_pairs:unknown_gold_pair": 1, "queries:no_known_gold": 1},
        ),
        (
            {"query": "q", "api_list": [SOUP], "relevant APIs": [PAIR, ["No Such Tool", "Find Soup"]]},
            {"gold_pairs:unknown_gold_pair": 1},
        ),
        (
            {"query": "q", "api_list": [SOUP], "relevant APIs": ["Soup", ["a"], [1, 2], PAIR]},
            {"gold_pairs:malformed_gold_pair": 3},
        ),
        (
            {"query": "q", "api_list": [SOUP, {"tool_name": "x"}, 3], "relevant APIs": [PAIR]},
            {"task_docs:missing_category_name": 1, "task_docs:not_an_object": 1},
        ),
    ],
)
def test_unusable_query_rows_are_counted_by_reason(release: Any, value: Any, dropped: dict[str, int]) -> None:
    release.put("test_instruction/G2_category.json", [value])
    report = read(release.root).report
    assert report.dropped == dropped
    assert report.sections["queries"].rows_read == 3
    with pytest.raises(AdapterError, match=r"toolbench/test_instruction/G2_category\.json#0"):
        read(release.root, strict=True)


@pytest.mark.parametrize("content", [b'[{"query": "cut', b'{"query": "no array"}', b'["\xff"]'])
def test_a_damaged_query_file_is_an_error_in_both_modes(release: Any, content: bytes) -> None:
    path = release.put("test_instruction/G2_category.json", content)
    for strict in (False, True):
        with pytest.raises(AdapterError, match=str(path)):
            read(release.root, strict=strict)


def test_lone_surrogates_do_not_reach_records(release: Any) -> None:
    text = b'[{"query": "rain \\ud83d?", "api_list": [%s], "relevant APIs": [["Soup Book", "Find Soup"]]}]'
    release.put("test_instruction/G2_category.json", text % json.dumps(SOUP).encode())
    assert "rain \ufffd?" in {t.text for t in read(release.root).tasks}


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=5,
)
NAMES = st.sampled_from(["Soup", "soup ", "7 Soups", "Bread/Butter", "빵", "Rank ^", "", "A_v2"])


def odd_object(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Objects whose keys may be missing or hold anything, and now and then no object at all."""
    usual = st.fixed_dictionaries({}, optional={k.replace("__", " "): v | JUNK for k, v in fields.items()})
    whole = st.fixed_dictionaries({k.replace("__", " "): v for k, v in fields.items()})
    return whole | usual | JUNK


PARAMETERS = st.lists(odd_object(name=NAMES, type=NAMES), max_size=2)
APIS = st.lists(odd_object(name=NAMES, description=NAMES, required_parameters=PARAMETERS), max_size=3)
TOOLS = odd_object(tool_name=NAMES, tool_description=NAMES, api_list=APIS)
DOCS = st.lists(
    odd_object(
        category_name=st.sampled_from(["Food", "Arts, Crafts"]),
        tool_name=NAMES,
        api_name=NAMES,
        required_parameters=PARAMETERS,
    ),
    max_size=3,
)
ROWS = st.lists(
    odd_object(query=NAMES, api_list=DOCS, relevant__APIs=st.lists(st.lists(NAMES, min_size=2, max_size=2) | JUNK)),
    max_size=5,
)


@settings(max_examples=150, deadline=None)
@given(tools=st.lists(TOOLS, min_size=1, max_size=4), rows=ROWS, other=ROWS)
def test_whatever_the_files_hold_every_row_is_accounted_for(
    tools: list[Any], rows: list[Any], other: list[Any]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder) / "toolbench"
        (base / "toolenv/tools/Food").mkdir(parents=True)
        (base / "test_instruction").mkdir()
        for number, tool in enumerate(tools):
            (base / f"toolenv/tools/Food/{'soup' if number else ''}{number or ''}.json").write_text(json.dumps(tool))
        (base / "test_instruction/G1_a.json").write_text(json.dumps(rows))
        (base / "test_instruction/G1_b.json").write_text(json.dumps(other))
        records = read(Path(folder))
    report = records.report
    for section in report.sections.values():
        assert section.rows_read == section.records + sum(section.dropped.values())
    assert report.rows_read == report.records + sum(report.dropped.values())
    assert report.sections["queries"].rows_read == len(rows) + len(other)
    assert report.sections["tool_files"].rows_read == len(tools)
    assert report.sections["queries"].records == len(records.tasks) + report.notes["merged_duplicate_text"]
    assert report.gold_pairs == sum(len(t.gold_endpoint_ids) for t in records.tasks)
    assert len(records.library.endpoints) == report.endpoints


def test_records_do_not_depend_on_the_order_of_the_file_system(release: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = read(release.root)
    original = Path.iterdir
    monkeypatch.setattr(Path, "iterdir", lambda self: reversed(list(original(self))))
    assert read(release.root) == expected

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolshift.data.adapters._apibank_text import called_name, documented_classes, literal, turns_of
from toolshift.data.adapters.apibank import Options, inputs, read
from toolshift.data.errors import AdapterError
from toolshift.data.records import Capability, Endpoint, Records, Task
from toolshift.data.rows import BadRow

LEVEL_1 = "test-data/level-1-api.json"
LEVEL_2 = "test-data/level-2-api.json"
LEVEL_3 = "test-data/level-3.json"
TRAIN = "training-data/lv3-api-train.json"
SEARCH_DOC = {"apiCode": "ToolSearcher", "description": "Searches.", "parameters": {"keywords": {"type": "str"}}}
HEAD = ["id", "应用场景", "路径", "类名", "api_info"]


def doc(name: str, *parameters: str, description: str = "", returns: tuple[str, ...] = ()) -> dict[str, Any]:
    return {
        "name": name,
        "description": description or f"Does {name}.",
        "input_parameters": {p: {"type": "str", "description": f"The {p}."} for p in parameters},
        "output_parameters": {r: {"type": "str"} for r in returns},
    }


def step(dialogue: str, gold: str, *docs: Any) -> dict[str, Any]:
    """A row of level 1 or 2."""
    described = "\n".join(json.dumps(d) for d in docs)
    return {
        "file": "x.jsonl",
        "instruction": f"\nGenerate an API request.\nUser: User's utterence\n\nAPI descriptions:\n{described}",
        "input": f"{dialogue}\nGenerate API Request:\n",
        "expected_output": f"API-Request: [{gold}]",
    }


def train(request: str, gold: str, *before: str) -> dict[str, Any]:
    """A row of level 3's training part, with the calls before it."""
    calls = "".join(f"API-Request: {call}\n" for call in before)
    prompt = f"{json.dumps(SEARCH_DOC)}\nUser: {request}\n{calls}Generate API Request: "
    return {"instruction": "Generate.", "input": prompt, "output": f"API-Request: {gold}"}


def plan(request: str, *calls: Any) -> dict[str, Any]:
    """A row of level 3; a string is a call, a documentation one that the search finds."""
    apis = [
        {"api_name": call, "input": {}, "output": "ok"}
        if isinstance(call, str)
        else {"api_name": "ToolSearcher", "output": {"api_name": "ToolSearcher", "output": call, "exception": None}}
        for call in calls
    ]
    return {"requirement": request, "response": "Done.", "apis": apis}


def call(name: str, found: Any = None) -> dict[str, Any]:
    return {"role": "API", "api_name": name, "param_dict": {}, "result": {"api_name": name, "output": found}}


def say(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "text": text}


@dataclass(frozen=True)
class Release:
    """A release below ``root/apibank``; every ``put`` writes one file."""

    root: Path

    def put(self, name: str, content: Any) -> Path:
        """JSON, JSON Lines for .jsonl, or text and bytes as they are; a name that ends in .gz is packed."""
        path = self.root / "apibank" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, str):
            content = content.encode()
        elif name.removesuffix(".gz").endswith(".jsonl") and not isinstance(content, bytes):
            content = "".join(json.dumps(line) + "\n" for line in content).encode()
        elif not isinstance(content, bytes):
            content = json.dumps(content).encode()
        path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
        return path

    def table(self, *rows: tuple[str, str, str], head: list[str] = HEAD) -> Path:
        """Rows of (scenario, class, api_info)."""
        buffer = io.StringIO()
        writer = csv.writer(buffer)
        writer.writerow(head)
        for number, (scenario, name, info) in enumerate(rows, start=1):
            writer.writerow([number, scenario, "apis/x.py", name, info])
        return self.put("data/all_apis.csv", buffer.getvalue())

    def path(self, name: str) -> Path:
        return self.root / "apibank" / name


WATER = "description = \"An old way to water.\"\ninput_parameters = {'plant_id': {'type': 'int'}}"
PRUNE = "description = \"Prunes.\"\ninput_parameters = None\noutput_parameters = {'leaves': {'type': 'list'}}"


@pytest.fixture
def release(tmp_path: Path) -> Release:
    """A table of three classes and one row of each part."""
    r = Release(tmp_path / "root")
    r.table(("健康管理", "Water", WATER), ("财务管理", "Prune", PRUNE), ("花园", "Plant", "."))
    water, prune = doc("Water", "plant", "litres", returns=("status",)), doc("Prune")
    r.put(LEVEL_1, [step("User: My fern is dry.\nAI: How dry?\nUser: Very.", "Water(plant='fern')", water, prune)])
    r.put(LEVEL_2, [step("User: Plant a rose.\nAI: I search.", "ToolSearcher(keywords='plant')", SEARCH_DOC)])
    r.put(LEVEL_3, [plan("Water all, twice.", doc("Water", "plant", "litres"), "Water", "Count", "Water")])
    r.put(TRAIN, [train("Sow seeds.TIME: 2034-01-01 10:00:00", "[Sow(seed=oats)]")])
    return r


def task(records: Records, start: str) -> Task:
    (found,) = [t for t in (*records.tasks, *records.apart) if t.text.startswith(start)]
    return found


def tool(records: Records, local: str) -> tuple[Capability, Endpoint]:
    identity = f"apibank/{local}"
    (endpoint,) = records.library.endpoints_of[identity]
    return records.library.capabilities[records.library.position[identity]], endpoint


def names(records: Records, local: str) -> list[str]:
    return [a.name for a in tool(records, local)[1].arguments]


# ------------------------------------------------------------------------------------------------------ plain reading


def test_a_row_of_level_one_is_the_next_call_of_a_dialogue(release: Release) -> None:
    records = read(release.root, strict=True)
    fern = task(records, "My fern")
    assert fern.text == "My fern is dry.\nHow dry?\nVery."
    assert fern.task_id == f"apibank/{hashlib.sha256(fern.text.encode()).hexdigest()[:16]}"
    assert fern.gold_capability_ids == ("apibank/Water",)
    assert fern.gold_endpoint_ids == ("apibank/Water/call",)
    assert fern.given_candidate_ids == ("apibank/Prune", "apibank/Water")
    assert (fern.domain, fern.ordered, fern.split) == ("Health", False, "level-1")
    assert fern.source == "apibank/test-data/level-1-api.json#0"


def test_prompts_document_a_tool_and_the_table_gives_its_scenario(release: Release) -> None:
    records = read(release.root, strict=True)
    water, endpoint = tool(records, "Water")
    assert (water.domain, water.description, water.schema_source) == ("Health", "Does Water.", "both")
    assert [(a.name, a.raw_type, a.type, a.required) for a in endpoint.arguments] == [
        ("plant", "str", "string", None),
        ("litres", "str", "string", None),
    ]
    assert endpoint.returns == ("status",)
    assert records.report.notes["docs_superseded"] == 2, "the table's parameters of Water, and of Prune"


def test_the_table_documents_what_nothing_else_does(release: Release) -> None:
    release.put(LEVEL_1, [])
    release.put(LEVEL_3, [])
    records = read(release.root, strict=True)
    prune, endpoint = tool(records, "Prune")
    assert (prune.description, prune.domain, prune.schema_source) == ("Prunes.", "Finance", "library")
    assert (endpoint.arguments, endpoint.returns) == ((), ("leaves",))
    assert names(records, "Water") == ["plant_id"]
    plant, _ = tool(records, "Plant")
    assert (plant.text, plant.domain, plant.schema_source) == ("Plant", "花园", "library")
    assert records.report.notes["table_rows_without_documentation"] == 1


def test_level_three_is_ordered_and_without_the_tool_search(release: Release) -> None:
    records = read(release.root, strict=True)
    plan_ = task(records, "Water all")
    assert plan_.ordered
    assert plan_.calls == ("apibank/Water/call", "apibank/Count/call", "apibank/Water/call")
    assert plan_.gold_capability_ids == ("apibank/Count", "apibank/Water")
    assert plan_.given_candidate_ids == ()
    assert plan_.domain == "Health", "Count has no scenario"
    assert not any("ToolSearcher" in c.capability_id for c in records.library.capabilities)
    count, _ = tool(records, "Count")
    assert (count.text, count.domain, count.schema_source) == ("Count", "", "task")
    assert records.report.notes["tools_without_documentation"] == 3, (
        "Count, Sow, and Plant, whose row documents nothing"
    )


def test_a_text_with_the_tool_search_alone_is_kept_apart(release: Release) -> None:
    records = read(release.root, strict=True)
    rose = task(records, "Plant a rose.")
    assert (rose.no_gold, rose.gold_capability_ids, rose.given_candidate_ids) == ("not_annotated", (), ())
    assert rose.task_id.endswith("-not_annotated")
    assert records.report.notes["tasks_with_tool_search_only"] == 1


def test_a_search_unites_with_the_call_that_follows_it(release: Release) -> None:
    found = "API-Request: [ToolSearcher(keywords='plant')]->" + repr(doc("Plant", "seed"))
    both = [
        step("User: Plant a rose.\nAI: I search.", "ToolSearcher(keywords='plant')", SEARCH_DOC),
        step(f"User: Plant a rose.\nAI: I search.\n{found}", "Plant(seed='rose')", SEARCH_DOC),
    ]
    release.put(LEVEL_2, both)
    records = read(release.root, strict=True)
    assert records.apart == ()
    assert task(records, "Plant a rose.").gold_capability_ids == ("apibank/Plant",)
    assert task(records, "Plant a rose.").text == "Plant a rose.\nI search."
    assert names(records, "Plant") == ["seed"]
    assert records.report.notes["merged_duplicate_text"] == 1
    assert records.report.notes["tool_search_calls"] == 2


def test_dialogue_files_hold_the_same_steps(release: Release) -> None:
    lines = [
        say("User", "My fern is dry."),
        say("AI", "How dry?"),
        say("User", "Very."),
        call("Water"),
        say("AI", "Done."),
        say("User", "Prune it."),
        call("ToolSearcher", [doc("Prune", "branch")]),
        call("Prune"),
    ]
    release.put("lv1-lv2-samples/level-1-given-desc/a.jsonl", lines)
    release.put("lv1-lv2-samples/level-2-toolsearcher/b.jsonl", b"")
    release.put("lv1-lv2-samples/level-2-toolsearcher/c.jsonl", [say("User", "Hello.")])
    records = read(release.root, strict=True)
    assert task(records, "My fern is dry.\nHow dry?\nVery.\nDone.\nPrune it.").gold_capability_ids == ("apibank/Prune",)
    fern = next(t for t in records.tasks if t.text == "My fern is dry.\nHow dry?\nVery.")
    assert (fern.split, fern.gold_capability_ids) == ("level-1+dialogues-1", ("apibank/Water",))
    notes = records.report.notes
    assert (notes["empty_dialogues"], notes["dialogues_without_call"]) == (1, 1)
    assert notes["merged_duplicate_text"] == 2
    assert records.report.sections["dialogue_turns"].records == 9


def test_the_assistant_can_be_left_out(release: Release) -> None:
    records = read(release.root, options=Options(utterances="user"), strict=True)
    assert task(records, "My fern").text == "My fern is dry.\nVery."
    with pytest.raises(AdapterError, match="expected all or user"):
        Options(utterances="AI")


def test_training_steps_of_a_request_are_one_task(release: Release) -> None:
    search = f"[ToolSearcher(keywords='sow')]->{doc('Sow', 'seed')!r}"
    stamp = "TIME: 2034-01-01 10:00:00"
    rows = [
        train(f"Sow seeds.{stamp}", "[ToolSearcher(keywords='sow')]"),
        train(f"Sow seeds.{stamp}", "[Sow(seed=oats)]", search),
        train(f"Sow seeds.{stamp}", "[Rake(bed=1)]", search, "[Sow(seed=oats)]->{'ok': 1}"),
        train("Sow seeds.", "Dig(bed='2')"),
        train("Only look.", "[ToolSearcher(keywords='look')]"),
    ]
    release.put(TRAIN, rows)
    records = read(release.root, strict=True)
    sow = task(records, "Sow")
    assert sow.text == "Sow seeds."
    assert sow.calls == ("apibank/Sow/call", "apibank/Rake/call")
    assert sow.gold_capability_ids == ("apibank/Dig", "apibank/Rake", "apibank/Sow")
    assert task(records, "Only look.").no_gold == "not_annotated"
    assert names(records, "Sow") == ["seed"]
    notes = records.report.notes
    assert (notes["requests_with_several_plans"], notes["time_stamps_removed"]) == (1, 3)


def test_one_class_name_with_other_parameters_in_two_levels_is_two_tools(release: Release) -> None:
    release.put(LEVEL_3, [plan("Water all.", doc("Water", "plant"), "Water")])
    records = read(release.root, strict=True)
    assert task(records, "Water all.").gold_capability_ids == ("apibank/Water-lv3",)
    assert names(records, "Water-lv3") == ["plant"]
    assert names(records, "Water") == ["plant", "litres"]
    assert tool(records, "Water-lv3")[0].domain == "Health"
    assert records.report.notes["names_with_two_libraries"] == 1


def test_variants_of_one_name_in_one_level_are_united(release: Release) -> None:
    rows = [
        train("A.", "[Sow(x=1)]", f"[ToolSearcher(keywords='a')]->{doc('Sow', 'seed')!r}"),
        train("B.", "[Sow(x=1)]", f"[ToolSearcher(keywords='b')]->{doc('Sow', 'bed', 'seed')!r}"),
    ]
    release.put(TRAIN, rows)
    records = read(release.root, strict=True)
    assert names(records, "Sow") == ["seed", "bed"]
    assert records.report.notes["names_with_several_signatures"] == 1


# ----------------------------------------------------------------------------------------------------------- checkout

SOURCE = '''
raise SystemExit("this file must never run")
from apis.api import API
class Water(API):
    """Waters."""
    description = "Waters a plant."
    input_parameters = {
        "plant": {"type": "str", "description": "The plant."},
        "litres": {"type": "float", "description": "How much."},
        "can": {"type": "str"},
    }
    output_parameters = {"status": {"type": "str"}}
    def __init__(self, init_database=None): ...
    def call(self, plant: str, litres: float = 1.0) -> dict: ...
class Helper:
    description = "No API: it takes nothing."
class ToolSearcher(API):
    description = "Searches."
    input_parameters = {"keywords": {"type": "str"}}
'''


def test_classes_of_a_checkout_are_parsed_and_come_first(release: Release) -> None:
    release.put("apis/water.py", SOURCE)
    release.put("lv3_apis/count.py", 'class Count:\n    description = "Counts."\n    input_parameters = {"what": {}}\n')
    release.put("apis/notes.txt", "no code")
    records = read(release.root, strict=True)
    water, endpoint = tool(records, "Water")
    assert water.description == "Waters a plant."
    assert [(a.name, a.type, a.required) for a in endpoint.arguments] == [
        ("plant", "string", True),
        ("litres", "number", False),
        ("can", "string", None),
    ]
    assert names(records, "Count") == ["what"]
    assert tool(records, "Count")[0].schema_source == "library"
    sections = records.report.sections
    assert (sections["code_files"].records, sections["code_classes"].records) == (2, 3)
    assert [p.name for p in inputs(release.root)][:3] == ["water.py", "count.py", "all_apis.csv"]


@pytest.mark.parametrize("content", ["class Water(:", b"\xff\xfe", "x = '\0'"])
def test_code_that_cannot_be_parsed_is_counted(release: Release, content: Any) -> None:
    release.put("apis/water.py", content)
    records = read(release.root)
    assert sum(records.report.sections["code_files"].dropped.values()) == 1
    with pytest.raises(AdapterError, match=r"apibank/apis/water\.py"):
        read(release.root, strict=True)


def test_computed_fields_of_a_class_are_empty() -> None:
    (only,) = documented_classes("class A:\n    description = f'{1}'\n    input_parameters = make()\n")
    assert (only.name, only.description, only.parameters) == ("A", "", ())


# --------------------------------------------------------------------------------------------------------------- text


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{'a': [1, 2.5, None, True]}", {"a": [1, 2.5, None, True]}),
        ("{'type': str, 'of': datetime}", {"type": "str", "of": "datetime"}),
        ("{'d': 'The user's name.'}", {"d": "The user's name."}),
        ("{'d': \"The user's name.\", 'e': 'it's'}", {"d": "The user's name.", "e": "it's"}),
        ("['a\\'b']", ["a'b"]),
    ],
)
def test_literals_are_read_and_repaired(text: str, value: Any) -> None:
    assert literal(text) == value


@pytest.mark.parametrize("text", ["", "{'a': 'b...", "f()", "__import__('os').system('x')", "{**a}", "1 +", "\0"])
def test_anything_but_a_literal_is_refused(text: str) -> None:
    with pytest.raises(BadRow, match="malformed_literal"):
        literal(text)


@pytest.mark.parametrize(
    "text", ["API-Request: [Water(a='b')]", "API-Request: Water(a=b c)", "[Water(x='[{'a': 1}]')]->{}", "Water()"]
)
def test_calls_are_named_whatever_their_values(text: str) -> None:
    assert called_name(text) == "Water"


@pytest.mark.parametrize("text", ["", "API-Request: []", "I call Water(a='b')", "[7(a)]"])
def test_a_text_that_calls_nothing_is_refused(text: str) -> None:
    with pytest.raises(BadRow, match="malformed_call"):
        called_name(text)


def test_turns_keep_lines_that_start_none() -> None:
    prompt = '{"doc": 1}\nUser: One\ntwo\nAI:  Yes\nAPI-Request: [A()]->x\ny\nGenerate API Request:\nUser: no'
    assert [(t.speaker, t.text) for t in turns_of(prompt)] == [
        ("User", "One\ntwo"),
        ("AI", " Yes"),
        ("API-Request", "[A()]->x\ny"),
    ]


# ---------------------------------------------------------------------------------------------------- files and options


def test_packed_files_are_read_and_inputs_name_what_is_opened(release: Release) -> None:
    expected = read(release.root)
    path = release.path(LEVEL_3)
    path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()
    assert read(release.root) == expected
    assert [p.relative_to(release.path("")).as_posix() for p in inputs(release.root)] == [
        "data/all_apis.csv",
        LEVEL_1,
        LEVEL_2,
        f"{LEVEL_3}.gz",
        TRAIN,
    ]


def test_parts_and_the_template_are_options(release: Release) -> None:
    records = read(release.root, options=Options(parts=("level-3",), template="with_operations"))
    assert [t.text for t in records.tasks] == ["Water all, twice."]
    assert tool(records, "Count")[0].text == "Count | operations: Count"
    with pytest.raises(AdapterError, match="expected some of level-1"):
        Options(parts=("level-4",))
    with pytest.raises(AdapterError, match="template='x' is unknown"):
        Options(template="x")


def test_absent_parts_are_skipped_and_without_any_it_is_an_error(release: Release) -> None:
    for name in (LEVEL_1, LEVEL_2, TRAIN):
        release.path(name).unlink()
    assert [t.text for t in read(release.root).tasks] == ["Water all, twice."]
    with pytest.raises(AdapterError, match=r"none of test-data/level-1-api\.json is there.*Get API-Bank"):
        read(release.root, options=Options(parts=("level-1",)))


# ---------------------------------------------------------------------------------------------------------- bad input


def test_missing_folders_and_files_say_what_to_fetch(release: Release, tmp_path: Path) -> None:
    with pytest.raises(AdapterError, match=r"apibank: no such folder.*Get API-Bank"):
        read(tmp_path / "nowhere")
    release.path("data/all_apis.csv").unlink()
    with pytest.raises(AdapterError, match=r"all_apis\.csv: no such file"):
        read(release.root)


@pytest.mark.parametrize("name", ["data/all_apis.csv", LEVEL_1, TRAIN])
def test_a_folder_for_a_file_is_an_error(release: Release, name: str) -> None:
    release.path(name).unlink()
    release.path(name).mkdir()
    with pytest.raises(AdapterError, match=f"{name}: is a folder, not a file"):
        read(release.root)


@pytest.mark.parametrize("name", [LEVEL_1, LEVEL_3, TRAIN])
@pytest.mark.parametrize("content", [b"", b'[{"input": "cut', b'{"no": "array"}', b'["\xff"]'])
def test_damaged_rows_files_are_errors(release: Release, name: str, content: bytes) -> None:
    path = release.put(name, content)
    with pytest.raises(AdapterError, match=str(path)):
        read(release.root)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "no column api_info"),
        (b"id,name\n1,2\n", "no column api_info"),
        ("类名,应用场景,api_info\n\ufffd".encode()[:-1], "cannot be read as a UTF-8 table"),
        ("类名,应用场景,api_info\n".encode("gb18030"), "cannot be read as a UTF-8 table"),
    ],
)
def test_another_table_is_an_error(release: Release, content: bytes, problem: str) -> None:
    release.put("data/all_apis.csv", content)
    with pytest.raises(AdapterError, match=problem):
        read(release.root)


def test_table_rows_without_a_class_or_scenario_are_counted(release: Release) -> None:
    release.table(("健康管理", "", ""), ("", "Water", WATER), ("健康管理", "Prune", "x ="))
    report = read(release.root).report
    assert report.dropped == {"table_rows:empty_class": 1, "table_rows:empty_scenario": 1}
    assert report.sections["table_rows"].rows_read == 3


@pytest.mark.parametrize(
    ("name", "row", "dropped"),
    [
        (LEVEL_1, 5, {"rows:not_an_object": 1}),
        (LEVEL_1, {"instruction": "", "input": "User: a"}, {"rows:missing_expected_output": 1}),
        (LEVEL_1, {"instruction": "", "expected_output": "[A()]"}, {"rows:missing_input": 1}),
        (LEVEL_1, {"instruction": 1, "input": "", "expected_output": ""}, {"rows:wrong_type_of_instruction": 1}),
        (LEVEL_2, step("AI: ", "Water()"), {"rows:empty_text": 1}),
        (LEVEL_2, step("User: a", "no call"), {"gold_calls:malformed_call": 1, "rows:malformed_call": 1}),
        (LEVEL_2, step("User: a", "Water()", {"description": "x"}), {"docs:missing_apiCode": 1}),
        (
            LEVEL_2,
            {**step("User: a", "Water()"), "instruction": '{"name": '},
            {"docs:not_an_object": 1},
        ),
        (
            LEVEL_2,
            step("User: a\nAPI-Request: [ToolSearcher(keywords='b')]->{'name': 'c...", "Water()"),
            {"docs:malformed_literal": 1},
        ),
        (LEVEL_3, {"requirement": "a"}, {"rows:missing_apis": 1}),
        (LEVEL_3, plan("a"), {"rows:no_call": 1}),
        (LEVEL_3, plan(" ", "Water"), {"rows:empty_text": 1}),
        (LEVEL_3, {"requirement": "a", "apis": [{"api_name": 3}]}, {"rows:wrong_type_of_api_name": 1}),
        (TRAIN, train("TIME: 2034-01-01", "[Sow()]"), {"rows:empty_text": 1}),
        (TRAIN, train("a", "nothing"), {"gold_calls:malformed_call": 1, "rows:malformed_call": 1}),
    ],
)
def test_unusable_rows_are_counted_by_reason(release: Release, name: str, row: Any, dropped: dict[str, int]) -> None:
    release.put(name, [row])
    report = read(release.root).report
    assert report.dropped == dropped
    assert report.sections["rows"].rows_read == 4
    with pytest.raises(AdapterError, match=f"apibank/{name}#0"):
        read(release.root, strict=True)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"role": "User", "te', "malformed_json"),
        (b'{"role": "\xff"}', "not_utf8"),
        (b"[]", "not_an_object"),
        (b'{"text": "a"}', "missing_role"),
        (b'{"role": "Robot", "text": "a"}', "unknown_role"),
        (b'{"role": "AI"}', "missing_text"),
        (b'{"role": "API", "api_name": ""}', "empty_api_name"),
        (b'{"role": "API", "api_name": "Water"}', "empty_text"),
    ],
)
def test_unusable_turns_are_counted_by_reason(release: Release, line: bytes, reason: str) -> None:
    release.put("lv1-lv2-samples/level-1-given-desc/a.jsonl", line)
    assert read(release.root).report.dropped == {f"dialogue_turns:{reason}": 1}


def test_files_without_any_task_are_an_error(release: Release) -> None:
    for name in (LEVEL_1, LEVEL_2, LEVEL_3, TRAIN):
        release.put(name, [])
    with pytest.raises(AdapterError, match="no task could be read"):
        read(release.root)


# --------------------------------------------------------------------------------------------------------------- fuzz

JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=5,
)
NAMES = st.sampled_from(["Water", "water ", "물", "\ud83d", "", "A(b='c')", "ToolSearcher"])
TEXTS = st.sampled_from(
    [
        "User: a\nAI: b\n",
        "API-Request: [Water(a=b)]",
        "User: a\nAPI-Request: [ToolSearcher(keywords='x')]->{'name': 'Sow', 'input_parameters': {'it's': str}}",
        "User: a TIME: 1\nAPI-Request: [ToolSearcher()]->[1, {'name': 2}]\nGenerate API Request:",
        '{"name": "Water", "input_parameters": {"a": 1, "b": {"type": []}}}\n{"apiCode": "X"}\n{',
        "[ToolSearcher(",
    ]
)


def odd_object(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Objects whose keys may be missing or hold anything, and now and then no object at all."""
    usual = st.fixed_dictionaries({}, optional={k: v | JUNK for k, v in fields.items()})
    return st.fixed_dictionaries(fields) | usual | JUNK


DOCS = odd_object(name=NAMES, description=NAMES, input_parameters=st.dictionaries(NAMES, JUNK, max_size=2))
STEPS = st.lists(odd_object(instruction=TEXTS, input=TEXTS, expected_output=TEXTS), max_size=4)
PLANS = st.lists(
    odd_object(requirement=NAMES, apis=st.lists(odd_object(api_name=NAMES, output=DOCS | st.lists(DOCS)), max_size=3)),
    max_size=3,
)
TRAINING = st.lists(odd_object(input=TEXTS, output=TEXTS), max_size=4)
TURNS = st.lists(
    odd_object(role=st.sampled_from(["User", "AI", "API"]), text=NAMES, api_name=NAMES, result=DOCS), max_size=5
)
INFOS = st.sampled_from(["", ".", "x = y", "description = 1", "input_parameters = {'a': str, None: 2}", "\\"])


@settings(max_examples=60, deadline=None)
@given(steps=STEPS, plans=PLANS, training=TRAINING, turns=TURNS, infos=st.lists(INFOS, max_size=3))
def test_whatever_the_files_hold_every_row_is_accounted_for(
    steps: list[Any], plans: list[Any], training: list[Any], turns: list[Any], infos: list[str]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        release = Release(Path(folder))
        release.table(*(("健康管理", f"Water{i or ''}", info) for i, info in enumerate(infos)))
        release.put(LEVEL_1, [*steps, step("User: a", "Water()")])
        release.put(LEVEL_3, plans)
        release.put(TRAIN, training)
        release.put("lv1-lv2-samples/level-1-given-desc/a.jsonl", turns)
        records = read(release.root)
        assert read(release.root) == records
    report = records.report
    assert report.rows_read == report.records + sum(report.dropped.values())
    assert report.sections["rows"].rows_read == len(steps) + len(plans) + len(training) + 1
    assert report.sections["dialogue_turns"].rows_read == len(turns)
    assert report.sections["table_rows"].rows_read == len(infos)
    assert report.gold_pairs == sum(len(t.gold_endpoint_ids) for t in records.tasks)

from __future__ import annotations

import gzip
import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolshift.data.adapters.apibench import HUBS, Options, inputs, read
from toolshift.data.errors import AdapterError
from toolshift.data.records import Capability, Endpoint, Records, Task

SOUP = "apibench/huggingface/pipeline_soup_model_chef_broth"
RAIN = "apibench/tensorflowhub/hub_load_https_hub_rain_1"
SEE = "apibench/torchhub/torch_hub_load_repo_eyes"
QUESTION = "apibench/46ccbdddd1d027d3"  # first 16 hex digits of sha256("Season my soup.")


def api(call: Any, name: Any, domain: Any = "Food", **more: Any) -> dict[str, Any]:
    """One row of the API documentation."""
    return {"domain": domain, "framework": "Pots", "api_name": name, "api_call": call, **more}


def row(code: Any, data: dict[str, Any], call: Any = None) -> dict[str, Any]:
    """One query row; its gold is the call of ``data``, or another one."""
    call = data["api_call"] if call is None else call
    return {"code": code, "api_call": call, "provider": "Pots", "api_data": {**data, "api_call": call}}


def asks(instruction: str, answer: str = "<<<domain>>>: x") -> str:
    return f"###Instruction: {instruction}\n###Output: {answer}\n"


BROTH = api(
    "pipeline('soup', model='chef/broth')",
    "chef/broth",
    functionality="Season soup",
    description="Knows all soups.",
    api_arguments={"text": "string", "salt": 3, "pot": "The pot to use"},
)
CLOUD = api("hub.load('https://hub/rain/1')", "rain", "Weather", functionality="Forecast", description="Sees clouds.")
EYES = api("torch.hub.load(repo='eyes')", "eyes", "Vision", functionality="Look", description="Sees all.")


@dataclass(frozen=True)
class Release:
    root: Path

    def put(self, relative: str, *rows: Any) -> Path:
        """Write rows as JSON Lines, bytes as a line of their own; .gz packs."""
        lines = [line if isinstance(line, bytes) else json.dumps(line).encode() for line in rows]
        data = b"".join(line + b"\n" for line in lines)
        path = self.root / "apibench" / relative
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(data) if relative.endswith(".gz") else data)
        return path


def fill(release: Release) -> Release:
    release.put("api/huggingface_api.jsonl", BROTH)
    release.put("api/tensorflowhub_api.jsonl", CLOUD)
    release.put("api/torchhub_api.jsonl", EYES)
    release.put("apibench/huggingface_eval.json", row(asks("Season my soup."), BROTH))
    release.put("apibench/tensorflow_eval.json", row(asks("Will it rain?"), CLOUD))
    release.put("apibench/torchhub_eval.json", row(asks("What is this?", "{'domain': 'Vision'}"), EYES))
    return release


@pytest.fixture
def release(tmp_path: Path) -> Release:
    return fill(Release(tmp_path / "root"))


def capability(records: Records, capability_id: str) -> Capability:
    return records.library.capabilities[records.library.position[capability_id]]


def endpoint(records: Records, capability_id: str) -> Endpoint:
    (found,) = records.library.endpoints_of[capability_id]
    return found


def task(records: Records, text: str) -> Task:
    (found,) = [t for t in records.tasks if t.text == text]
    return found


# ------------------------------------------------------------------------------------------------------ plain reading


def test_calls_and_queries_become_records(release: Release) -> None:
    records = read(release.root, strict=True)
    assert [c.capability_id for c in records.library.capabilities] == [SOUP, RAIN, SEE]
    soup = capability(records, SOUP)
    assert (soup.name, soup.domain, soup.text) == ("chef/broth", "Food", "chef/broth: Knows all soups.")
    season = endpoint(records, SOUP)
    assert (season.endpoint_id, season.operation) == (f"{SOUP}/season_soup", "Season soup")
    assert season.text == "Season soup: Knows all soups."
    found = task(records, "Season my soup.")
    assert (found.task_id, found.domain, found.ordered) == (QUESTION, "Food", False)
    assert (found.gold_capability_ids, found.gold_endpoint_ids) == ((SOUP,), (f"{SOUP}/season_soup",))
    assert (found.split, found.source) == ("huggingface_eval", "apibench/apibench/huggingface_eval.json#1")
    assert task(records, "Will it rain?").gold_capability_ids == (RAIN,)
    assert task(records, "What is this?").domain == "Vision"
    assert (records.report.tasks, records.report.gold_pairs, records.report.domains) == (3, 3, 3)
    assert records.report.notes["gold_found_verbatim"] == 3
    assert records.report.dropped == {}


def test_hubs_and_the_template_are_options(release: Release) -> None:
    options = Options(hubs=("torchhub", "huggingface"), template="with_operations")
    records = read(release.root, options=options)
    assert [c.capability_id for c in records.library.capabilities] == [SOUP, SEE]
    assert capability(records, SEE).text == "eyes: Sees all. | operations: Look"
    assert [p.name for p in inputs(release.root, options=options)] == [
        "huggingface_api.jsonl",
        "huggingface_eval.json",
        "torchhub_api.jsonl",
        "torchhub_eval.json",
    ]
    with pytest.raises(AdapterError, match="template='x' is unknown"):
        Options(template="x")
    for hubs in ((), ("tensorflow",)):
        with pytest.raises(AdapterError, match="expected some of huggingface, tensorflowhub, torchhub"):
            Options(hubs=hubs)


def test_packed_files_and_train_files_are_read(release: Release) -> None:
    (release.root / "apibench/apibench/torchhub_eval.json").unlink()
    release.put("apibench/torchhub_train.json.gz", row("{'Instruction': Look!, 'Output': {'domain': ", EYES))
    release.put("apibench/huggingface_train.json", row(asks("Season my soup."), BROTH))
    records = read(release.root, strict=True)
    assert (task(records, "Look!").split, task(records, "Look!").source) == (
        "torchhub_train",
        "apibench/apibench/torchhub_train.json#1",
    )
    assert task(records, "Season my soup.").split == "huggingface_eval+huggingface_train"
    assert records.report.notes["merged_duplicate_text"] == 1
    assert [p.name for p in inputs(release.root)][-1] == "torchhub_train.json.gz"


# ------------------------------------------------------------------------------------------------------ merged records


def test_records_of_one_call_are_one_capability(release: Release) -> None:
    call = CLOUD["api_call"]
    release.put(
        "api/tensorflowhub_api.jsonl",
        api(call, "cloud", "Art", description="Paints."),
        api(call, "model_id", "Weather", functionality="Load", description="First.", api_arguments=["url"]),
        api(call, "rain", "Weather", functionality="Forecast", description="Second.", api_arguments="city, url"),
        api(call, "rain", "Weather", functionality="Predict", description="Third.", api_arguments=["city", "day"]),
    )
    records = read(release.root, strict=True)
    rain = capability(records, RAIN)
    assert (rain.name, rain.domain, rain.description) == ("rain", "Weather", "Second.")
    forecast = endpoint(records, RAIN)
    assert (forecast.operation, forecast.description) == ("Forecast", "Second.")
    assert [a.name for a in forecast.arguments] == ["city", "url", "day"]
    notes = records.report.notes
    assert (notes["calls_with_several_names"], notes["calls_with_several_domains"]) == (1, 1)
    assert notes["arguments_repeated_in_merged_records"] == 2
    assert (notes["distinct_api_calls"], notes["domains_in_api_records"]) == (3, 4)
    assert records.report.sections["api_records"].records == 6
    assert task(records, "Will it rain?").domain == "Weather"


def test_ties_of_names_and_domains_are_alphabetical(release: Release) -> None:
    call = CLOUD["api_call"]
    release.put("api/tensorflowhub_api.jsonl", api(call, "b", "Y"), api(call, "c", "X"), api(call, "a", "X"))
    rain = capability(read(release.root), RAIN)
    assert (rain.domain, rain.name) == ("X", "a")


def test_spellings_of_a_call_are_one_and_like_calls_are_two(release: Release) -> None:
    release.put(
        "api/tensorflowhub_api.jsonl",
        CLOUD,
        api('hub.load("https://hub/rain/1").', "rain", "Weather"),
        api("hub.load('https://hub/snow/a_b')", "ab", "Weather"),
        api("hub.load('https://hub/snow/a/b')", "a/b", "Weather"),
    )
    release.put(
        "apibench/tensorflow_eval.json",
        row(asks("Rain?"), CLOUD, call='hub.load("https://hub/rain/1")'),
        row(asks("Snow?"), api("hub.load('https://hub/snow/a/b')", "?")),
    )
    records = read(release.root, strict=True)
    local = "apibench/tensorflowhub/hub_load_https_hub_snow_a_b"
    slash, underscore = f"{local}-83a53a81", f"{local}-e38ee9a0"  # first 8 hex digits of the calls' sha256
    assert [c.capability_id for c in records.library.capabilities] == [SOUP, RAIN, slash, underscore, SEE]
    assert task(records, "Snow?").gold_capability_ids == (slash,)
    assert task(records, "Rain?").gold_capability_ids == (RAIN,)
    notes = records.report.notes
    assert (notes["merged_call_spellings"], notes["distinct_api_calls"]) == (1, 6)
    assert (notes["gold_found_verbatim"], notes["gold_found_in_another_spelling"]) == (3, 1)


# ---------------------------------------------------------------------------------------------------------------- gold


def test_a_call_that_is_not_documented_is_found_by_its_name(release: Release) -> None:
    release.put("apibench/huggingface_eval.json", row(asks("Soup?"), BROTH, call="pipeline('soup', salt=1)"))
    records = read(release.root, strict=True)
    assert task(records, "Soup?").gold_capability_ids == (SOUP,)
    notes = records.report.notes
    assert (notes["gold_found_by_api_name"], notes["gold_found_verbatim"], notes["ambiguous_gold"]) == (1, 2, 0)


def test_a_name_of_several_calls_is_settled_by_the_other_fields(release: Release) -> None:
    twin = api("soup()", "chef/broth", description="A twin.")
    other = api("a_soup()", "chef/broth", description="Unlike.")
    release.put("api/huggingface_api.jsonl", BROTH, twin, other)
    release.put(
        "apibench/huggingface_eval.json",
        row(asks("The twin?"), twin, call="soup(salt=1)"),
        row(asks("Any?"), api("x", "chef/broth", description="None of them."), call="soup(salt=2)"),
        row(asks("Gone?"), api("x", "no such name"), call="gone()"),
    )
    records = read(release.root)
    assert task(records, "The twin?").gold_capability_ids == ("apibench/huggingface/soup",)
    assert task(records, "Any?").gold_capability_ids == ("apibench/huggingface/a_soup",)
    assert (records.report.notes["gold_found_by_api_name"], records.report.notes["ambiguous_gold"]) == (2, 1)
    assert records.report.dropped == {"queries:unknown_gold_call": 1}


def test_gold_is_looked_for_in_its_own_hub(release: Release) -> None:
    release.put("apibench/torchhub_eval.json", row(asks("Soup?"), BROTH))
    assert read(release.root).report.dropped == {"queries:unknown_gold_call": 1}


def test_equal_texts_are_one_task_in_the_domain_of_most_gold(release: Release) -> None:
    release.put("apibench/huggingface_eval.json", row(asks("Help!"), BROTH), row(asks(" Help! "), BROTH))
    release.put("apibench/torchhub_eval.json", row(asks("Help!"), EYES))
    records = read(release.root, strict=True)
    united = task(records, "Help!")
    assert united.gold_capability_ids == (SOUP, SEE)
    assert (united.domain, united.split) == ("Food", "huggingface_eval+torchhub_eval")
    notes = records.report.notes
    assert (notes["merged_duplicate_text"], notes["merged_text_with_other_gold"]) == (2, 1)


# ------------------------------------------------------------------------------------------------------------ requests


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("###Instruction: Soup?\n###Output: <<<x", "Soup?"),
        ("### Instruction: Soup?\n### Output: <<<x", "Soup?"),
        ("###Instruction: Soup?\n\n###Output:\n<<<x\n###Input: a\n###Output: b", "Soup?"),
        ("###Instruction: Soup?", "Soup?"),
        ("###Instruction: Soup?\n###Input: <noinput>\n###Output: x", "Soup?"),
        ("###Instruction: Soup?\n\n**Input:<noinput>**\n\n###Output: x", "Soup?"),
        ("###Instruction: Which soup?\n###Input: ['hot', 'cold']\n###Output: x", "Which soup?\n['hot', 'cold']"),
        ('###Instruction: "Hot" or "cold"\n###Output: x', '"Hot" or "cold"'),
        ("{'Instruction': It's Soup., 'Output': {'domain': ", "It's Soup."),
        ("{'Instruction': It's Soup. , 'Output':{'domain': ", "It's Soup."),
        ("{'Instruction': \"It's Soup.\", 'Output': {", "It's Soup."),
        ("{'Instruction': 'Soup, please.', 'Output': 'x'}", "Soup, please."),
        ("{'Instruction': Is it Soup?', 'Output': {", "Is it Soup?"),
        ("{'Instruction': Say 'Soup', 'Output': {", "Say 'Soup'"),
        ("{'Instruction': Say it., 'Input': 'Soup, I say.', 'Output': {", "Say it.\nSoup, I say."),
        ("{'Instruction': Say Soup., 'Input': '<noinput>', 'Output': {", "Say Soup."),
    ],
)
def test_the_request_is_found_in_the_code(release: Release, code: str, text: str) -> None:
    release.put("apibench/torchhub_eval.json", row(code, EYES))
    records = read(release.root, strict=True)
    assert [t.text for t in records.tasks if t.gold_capability_ids == (SEE,)] == [text]
    assert records.report.notes["requests_with_input"] == int("\n" in text)


# ----------------------------------------------------------------------------------------------------------- arguments


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, []),
        ("", []),
        ("N/A", []),
        ({}, []),
        (["None", ""], []),
        ("pot", [("pot", "", "unknown", "")]),
        ("pot, start_date", [("pot", "", "unknown", ""), ("start_date", "", "datetime", "")]),
        ("pot: One, of (1, 2)", [("pot", "", "unknown", "One"), ("of (1, 2)", "", "unknown", "")]),
        (["pot=None", "'eyes'"], [("pot", "", "unknown", ""), ("eyes", "", "unknown", "")]),
        ({"pot": "str", "big": True}, [("pot", "str", "string", ""), ("big", "bool", "boolean", "")]),
        ({"n": 0.5, "all": [1]}, [("n", "float", "number", ""), ("all", "list", "list", "")]),
        ({"more": {"name": "x"}}, [("more", "dict", "object", "")]),
        ({"pot": "N/A", "lid": None}, [("pot", "", "unknown", ""), ("lid", "", "unknown", "")]),
        ([{"name": "pot", "type": "str", "description": "Big."}], [("pot", "str", "string", "Big.")]),
        ([{"pot": "Big.", "lid": "bool"}], [("pot", "", "unknown", "Big."), ("lid", "bool", "boolean", "")]),
        ("['pot', 'lid']", [("pot", "", "unknown", ""), ("lid", "", "unknown", "")]),
        ("{'pot': 'a pot'}", [("pot", "", "unknown", "a pot")]),
        ("[pot", [("[pot", "", "unknown", "")]),
    ],
)  # fmt: skip
def test_arguments_of_all_types_are_read(release: Release, value: Any, expected: list[tuple[str, ...]]) -> None:
    release.put("api/torchhub_api.jsonl", {**EYES, "api_arguments": value})
    records = read(release.root, strict=True)
    found = endpoint(records, SEE).arguments
    assert [(a.name, a.raw_type, a.type, a.description) for a in found] == expected
    assert {a.required for a in found} <= {None}
    assert records.report.sections["arguments"].records == 3 + len(expected), "three of the first hub"


def test_arguments_without_a_name_are_counted(release: Release) -> None:
    values = [7, [3, None, "pot"], [{"name": None}, {"": "x"}], "{1: 'x'}"]
    rows = [api(f"torch.hub.load(repo='eyes', n={i})", "x", api_arguments=value) for i, value in enumerate(values)]
    release.put("api/torchhub_api.jsonl", EYES, *rows)
    report = read(release.root).report
    assert report.dropped == {"arguments:no_name": 6}
    with pytest.raises(AdapterError, match=r"apibench/api/torchhub_api\.jsonl#2: no name"):
        read(release.root, strict=True)


def test_placeholders_and_lists_of_words(release: Release) -> None:
    release.put(
        "api/torchhub_api.jsonl", {**EYES, "functionality": ["Look", "See"], "description": "N/A"}, {**EYES, "x": 1}
    )
    release.put("api/huggingface_api.jsonl", {**BROTH, "functionality": None})
    records = read(release.root)
    assert endpoint(records, SEE).operation == "Look, See"
    assert capability(records, SEE).description == "Sees all.", "of the second record"
    assert endpoint(records, SOUP).operation == "chef/broth"


# ---------------------------------------------------------------------------------------------------------- bad input


def test_a_missing_folder_or_file_is_named(release: Release, tmp_path: Path) -> None:
    with pytest.raises(AdapterError, match=r"nowhere/apibench: no such folder(.|\n)*gorilla"):
        read(tmp_path / "nowhere")
    base = release.root / "apibench"
    (base / "apibench/tensorflow_eval.json").unlink()
    with pytest.raises(AdapterError, match=r"no tensorflow_eval\.json or tensorflow_train\.json"):
        read(release.root)
    (base / "api/huggingface_api.jsonl").unlink()
    with pytest.raises(AdapterError, match=r"huggingface_api\.jsonl: no such file(.|\n)*dataset\.options\.hubs"):
        inputs(release.root)
    assert read(release.root, options=Options(hubs=("torchhub",))).report.tasks == 1


@pytest.mark.parametrize(
    "name", ["api/huggingface_api.jsonl", "apibench/torchhub_eval.json", "apibench/torchhub_train.json"]
)
def test_a_folder_in_place_of_a_file_is_an_error(release: Release, name: str) -> None:
    path = release.root / "apibench" / name
    path.unlink(missing_ok=True)
    path.mkdir()
    with pytest.raises(AdapterError, match=f"{path.name}: is a folder, not a file"):
        inputs(release.root)


@pytest.mark.parametrize("name", ["api/huggingface_api.jsonl", "apibench/torchhub_eval.json"])
def test_an_empty_file_and_a_cut_gz_are_errors(release: Release, name: str) -> None:
    path = release.put(name, b" ")
    with pytest.raises(AdapterError, match=f"{path.name}: holds no line"):
        read(release.root)
    path.unlink()
    packed = release.put(f"{name}.gz", *(api(f"f({i * i})", "x") for i in range(99)))
    packed.write_bytes(packed.read_bytes()[:-20])
    with pytest.raises(AdapterError, match=rf"{path.name}\.gz: cannot be read beyond line"):
        read(release.root)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"domain": "cut', "malformed_json"),
        (b'{"domain": "\xe9"}', "not_utf8"),
        ([], "not_an_object"),
        ({}, "missing_api_call"),
        (api(None, "x"), "wrong_type_of_api_call"),
        (api("  ", "x"), "empty_api_call"),
        (api("f()", ["x"]), "wrong_type_of_api_name"),
        (api("f()", "x", ""), "empty_domain"),
    ],
)
def test_unusable_api_records_are_counted_by_reason(release: Release, line: Any, reason: str) -> None:
    release.put("api/torchhub_api.jsonl", EYES, line)
    report = read(release.root).report
    assert report.dropped == {f"api_records:{reason}": 1}
    assert (report.sections["api_records"].rows_read, report.capabilities) == (4, 3)
    with pytest.raises(AdapterError, match=rf"apibench/api/torchhub_api\.jsonl#2: {reason.replace('_', ' ')}"):
        read(release.root, strict=True)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"code": "###Instr', "malformed_json"),
        (b'{"code": "\xff"}', "not_utf8"),
        ("text", "not_an_object"),
        ({"api_call": "f()"}, "missing_code"),
        ({"code": ["x"], "api_call": "f()"}, "wrong_type_of_code"),
        ({"code": "no marker", "api_call": "f()"}, "no_instruction"),
        ({"code": "###Instruction: \n###Output: x", "api_call": "f()"}, "no_instruction"),
        ({"code": asks("A?")}, "missing_api_call"),
        ({"code": asks("A?"), "api_call": 3}, "wrong_type_of_api_call"),
        ({"code": asks("A?"), "api_call": "f()"}, "unknown_gold_call"),
        ({"code": asks("A?"), "api_call": "f()", "api_data": "x"}, "unknown_gold_call"),
        ({"code": asks("A?"), "api_call": "f()", "api_data": {"api_name": ["eyes"]}}, "unknown_gold_call"),
    ],
)
def test_unusable_query_rows_are_counted_by_reason(release: Release, line: Any, reason: str) -> None:
    release.put("apibench/torchhub_eval.json", line, row(asks("What is this?"), EYES))
    report = read(release.root).report
    assert report.dropped == {f"queries:{reason}": 1}
    assert (report.sections["queries"].rows_read, report.tasks) == (4, 3)
    with pytest.raises(AdapterError, match=rf"apibench/apibench/torchhub_eval\.json#1: {reason.replace('_', ' ')}"):
        read(release.root, strict=True)


# --------------------------------------------------------------------------------------------------------------- fuzz

JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=5,
)
CALLS = st.sampled_from(["f('a')", 'f("a").', "f(a)", "f/a", "빵", "", ".", "x\ud83d"])
NAMES = st.sampled_from(["a", "b", "", "N/A", "y\ud83d"])
CODES = st.sampled_from(
    ["###Instruction: A?", asks(" A? "), "{'Instruction': B, 'Output': ", "###Output: x", "C\ud83d"]
)
ARGUMENTS = st.sampled_from(["a, b: c", "['a', 1]", "{'a': {}}", "((", "=", ": x", "{", "N/A"]) | JUNK


def objects(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Objects whose keys may be missing or hold anything, and now and then no object at all."""
    usual = st.fixed_dictionaries({}, optional={k: v | JUNK for k, v in fields.items()})
    return st.fixed_dictionaries(fields) | usual | JUNK


APIS = objects(api_call=CALLS, api_name=NAMES, domain=NAMES, functionality=NAMES, api_arguments=ARGUMENTS)
ROWS = objects(code=CODES, api_call=CALLS, api_data=APIS)
LINES = st.sampled_from([b"{", b"\xff"])


@settings(max_examples=100, deadline=None)
@given(
    apis=st.lists(st.lists(APIS | LINES, min_size=1, max_size=4), min_size=3, max_size=3),
    rows=st.lists(st.lists(ROWS | LINES, min_size=1, max_size=4), min_size=3, max_size=3),
)
def test_whatever_the_files_hold_every_row_is_accounted_for(apis: list[list[Any]], rows: list[list[Any]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        release = Release(Path(folder))
        for hub, records_of, queries in zip(HUBS, apis, rows, strict=True):
            release.put(f"api/{hub}_api.jsonl", *records_of)
            release.put(f"apibench/{hub.replace('flowhub', 'flow')}_eval.json", *queries)
        records = read(Path(folder))
    report = records.report
    for section in report.sections.values():
        assert section.rows_read == section.records + sum(section.dropped.values())
    assert report.rows_read == report.records + sum(report.dropped.values())
    assert report.sections["api_records"].rows_read == sum(map(len, apis))
    assert report.sections["queries"].rows_read == sum(map(len, rows))
    assert report.sections["queries"].records == report.tasks + report.notes["merged_duplicate_text"]
    found = ("gold_found_verbatim", "gold_found_in_another_spelling", "gold_found_by_api_name")
    assert report.sections["queries"].records == sum(report.notes[name] for name in found)
    assert report.notes["distinct_api_calls"] - report.notes["merged_call_spellings"] == report.capabilities
    documented = {c.domain for c in records.library.capabilities}
    assert {t.domain for t in records.tasks} <= documented
    arguments = sum(len(e.arguments) for e in records.library.endpoints)
    repeated = report.notes["arguments_repeated_in_merged_records"]
    assert report.sections["arguments"].records == arguments + repeated

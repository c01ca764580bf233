"""The real API-Bank files, counted three ways: by the adapter, by a second parser here, and by SOURCE.md's table.

The parser below shares no code with the adapter. Numbers it is held against are read from the SOURCE.md beside the
files; none was copied from the adapter's output.
"""

from __future__ import annotations

import csv
import gzip
import json
import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from toolshift.data.adapters import apibank
from toolshift.data.records import Records

pytestmark = pytest.mark.real

SEARCH = "ToolSearcher"
STAMP = re.compile(r"\s*TIME:.*", re.DOTALL)


# ----------------------------------------------------------------------------------------------------- second parser


def load(base: Path, name: str) -> Any:
    path = base / name
    data = path.read_bytes() if path.exists() else gzip.decompress((base / f"{name}.gz").read_bytes())
    return json.loads(data)


def first_call(text: str) -> str:
    """Name in front of the first parenthesis, without brackets and the words before them."""
    return text[: text.index("(")].split(":")[-1].strip(" [")


def squeezed(utterances: list[str]) -> str:
    return "\n".join(" ".join(u.split()) for u in utterances)


def prompt_turns(prompt: str) -> list[tuple[str, str]]:
    """(speaker, words) of a prompt, cut where a line begins with a speaker."""
    body = re.split(r"\nGenerate API Request:", prompt)[0]
    parts = re.split(r"(?m)^(User|AI|API-Request):", body)
    return [(parts[i], parts[i + 1]) for i in range(1, len(parts), 2)]


@dataclass(frozen=True)
class Raw:
    """Everything the tests compare with, as plain Python values of the files."""

    level_1: list[Any]
    level_2: list[Any]
    level_3: list[Any]
    train: list[Any]
    dialogues: dict[str, dict[str, list[Any]]]  # folder -> file -> turns
    table: list[dict[str, str]]

    def steps(self) -> list[tuple[str, str]]:
        """(text, called tool) of the rows of levels 1 and 2."""
        found = []
        for row in [*self.level_1, *self.level_2]:
            words = [text for speaker, text in prompt_turns(row["input"]) if speaker != "API-Request"]
            found.append((squeezed(words), first_call(row["expected_output"])))
        return found

    def dialogue_steps(self) -> list[tuple[str, str]]:
        """The same of the dialogue files."""
        found = []
        for files in self.dialogues.values():
            for turns in files.values():
                spoken: list[str] = []
                for turn in turns:
                    if turn["role"] == "API":
                        found.append((squeezed(spoken), turn["api_name"]))
                    else:
                        spoken.append(turn["text"])
        return found

    def requests(self) -> list[tuple[str, str]]:
        """(request as it stands, called tool) of the training rows."""
        found = []
        for row in self.train:
            (request,) = [text for speaker, text in prompt_turns(row["input"]) if speaker == "User"]
            found.append((request.strip(), first_call(row["output"])))
        return found

    def described(self, row: Any) -> list[str]:
        return re.findall(r'(?m)^\{"name": "(\w+)"', row["instruction"])


def read_raw(base: Path) -> Raw:
    dialogues: dict[str, dict[str, list[Any]]] = {}
    for folder in sorted((base / "lv1-lv2-samples").iterdir()):
        dialogues[folder.name] = {
            path.name: [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line.strip()]
            for path in sorted(folder.iterdir())
        }
    with (base / "data/all_apis.csv").open(encoding="utf-8", newline="") as handle:
        head, *rows = list(csv.reader(handle))
    return Raw(
        level_1=load(base, "test-data/level-1-api.json"),
        level_2=load(base, "test-data/level-2-api.json"),
        level_3=load(base, "test-data/level-3.json"),
        train=load(base, "training-data/lv3-api-train.json"),
        dialogues=dialogues,
        table=[dict(zip(head, row, strict=True)) for row in rows],
    )


# --------------------------------------------------------------------------------------------------------- SOURCE.md


def stated_table(source: str) -> dict[str, tuple[int, str]]:
    """File -> (rows, note) of the table of counts."""
    rows = [[c.strip() for c in line.strip("|").split("|")] for line in source.splitlines() if line.startswith("|")]
    return {
        cells[0]: (int(re.sub(r"\D.*", "", cells[1].replace(",", ""))), cells[2])
        for cells in rows
        if cells[1][:1].isdigit()
    }


def numbers(note: str, pattern: str) -> list[int]:
    match = re.search(pattern, note)
    assert match, f"SOURCE.md no longer says {pattern!r}"
    return [int(group.replace(",", "")) for group in match.groups()]


def histogram(text: str) -> dict[int, int]:
    """'1:8 2:146' -> {1: 8, 2: 146}."""
    return {int(a): int(b) for a, b in (pair.split(":") for pair in text.split())}


# ----------------------------------------------------------------------------------------------------------- fixtures


@pytest.fixture(scope="module")
def base(data_root: Path) -> Path:
    base = data_root / "apibank"
    for needed in ("SOURCE.md", "test-data", "training-data", "lv1-lv2-samples", "data/all_apis.csv"):
        if not (base / needed).exists():
            pytest.skip(f"{base / needed} does not exist: not the release this contract describes")
    if (base / "apis").exists():
        pytest.skip(f"{base / 'apis'} exists: with the API classes of a checkout other documentation wins")
    return base


@pytest.fixture(scope="module")
def source(base: Path) -> str:
    return (base / "SOURCE.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def stated(source: str) -> dict[str, tuple[int, str]]:
    return stated_table(source)


@pytest.fixture(scope="module")
def raw(base: Path) -> Raw:
    return read_raw(base)


@pytest.fixture(scope="module")
def records(base: Path) -> Records:
    return apibank.read(base.parent)


def names_of(records: Records, ids: tuple[str, ...]) -> set[str]:
    position = records.library.position
    return {records.library.capabilities[position[i]].name for i in ids}


# --------------------------------------------------------------------------------------- the parser against SOURCE.md


def test_the_parser_finds_level_one_of_source_md(raw: Raw, stated: dict[str, tuple[int, str]]) -> None:
    rows, note = stated["test-data/level-1-api.json"]
    gold = [first_call(row["expected_output"]) for row in raw.level_1]
    assert len(raw.level_1) == rows
    assert [len(set(gold)), len({row["file"] for row in raw.level_1})] == [
        *numbers(note, r"(\d+) tools"),
        *numbers(note, r"(\d+) dialogues"),
    ]
    per_prompt = re.search(r"\(((?:\d+:\d+ ?)+)\)", note)
    assert per_prompt
    assert Counter(len(raw.described(row)) for row in raw.level_1) == histogram(per_prompt[1])
    assert all(name in raw.described(row) for name, row in zip(gold, raw.level_1, strict=True))


def test_the_parser_finds_level_two_of_source_md(raw: Raw, stated: dict[str, tuple[int, str]]) -> None:
    rows, note = stated["test-data/level-2-api.json"]
    gold = Counter(first_call(row["expected_output"]) for row in raw.level_2)
    assert len(raw.level_2) == rows
    searches = gold.pop(SEARCH)
    assert [searches, gold.total(), len(gold)] == [
        *numbers(note, r"(\d+) gold calls are ToolSearcher"),
        *numbers(note, r"(\d+) others over (\d+) tools"),
    ]


def test_the_parser_finds_level_three_of_source_md(raw: Raw, stated: dict[str, tuple[int, str]]) -> None:
    rows, note = stated["test-data/level-3.json"]
    plans = [tuple(a["api_name"] for a in row["apis"] if a["api_name"] != SEARCH) for row in raw.level_3]
    assert len(plans) == rows
    lengths = Counter(len(plan) for plan in plans)
    assert [lengths[n] for n in (2, 3, 4, 5)] == numbers(
        note, r"2 calls (\d+), 3 calls (\d+), 4 calls (\d+), 5 calls (\d+);"
    )
    distinct = Counter(len(set(plan)) for plan in plans)
    assert [distinct[2], distinct[3]] == numbers(note, r"distinct tools 2: (\d+), 3: (\d+)")
    tools, sequences, repeating = numbers(note, r"(\d+) tools; only (\d+) distinct sequences \((\d+) plans repeat")
    assert len({name for plan in plans for name in plan}) == tools
    assert len(set(plans)) == sequences
    assert sum(len(set(plan)) < len(plan) for plan in plans) == repeating


def test_the_parser_finds_the_training_part_of_source_md(raw: Raw, stated: dict[str, tuple[int, str]]) -> None:
    rows, note = stated["training-data/lv3-api-train.json"]
    requests, tools = numbers(note, r"(\d+) distinct requests, (\d+) tools besides ToolSearcher")
    assert len(raw.train) == rows
    assert len({request for request, _ in raw.requests()}) == requests
    # SOURCE.md counts calls in brackets; one tool is only ever called without.
    bracketed = {first_call(row["output"]) for row in raw.train if row["output"].startswith("API-Request: [")}
    assert len(bracketed - {SEARCH}) == tools
    assert {name for _, name in raw.requests()} > bracketed


@pytest.mark.parametrize("folder", ["level-1-given-desc", "level-2-toolsearcher"])
def test_the_parser_finds_the_dialogues_of_source_md(raw: Raw, stated: dict[str, tuple[int, str]], folder: str) -> None:
    files, note = stated[f"lv1-lv2-samples/{folder}"]
    called = [turn["api_name"] for turns in raw.dialogues[folder].values() for turn in turns if turn["role"] == "API"]
    assert len(raw.dialogues[folder]) == files
    assert len(called) == numbers(note, r"(\d+) calls")[0]
    assert len(set(called)) == numbers(note, r"(\d+) tools")[0]


def test_the_parser_finds_the_scenarios_of_source_md(raw: Raw, stated: dict[str, tuple[int, str]], source: str) -> None:
    assert len(raw.table) == stated["data/all_apis.csv"][0]
    sentence = source[source.index("usable as domain:") :]
    expected = {name: int(count) for name, count in re.findall(r"([\u4e00-\u9fff]+) (\d+)", sentence)}
    assert Counter(row["应用场景"] for row in raw.table) == expected


# --------------------------------------------------------------------------------------- the adapter against the parser


def test_every_row_was_read_and_only_a_cut_documentation_is_dropped(records: Records, raw: Raw) -> None:
    sections = records.report.sections
    rows = [*raw.level_1, *raw.level_2, *raw.level_3, *raw.train]
    turns = [turn for files in raw.dialogues.values() for dialogue in files.values() for turn in dialogue]
    assert sections["rows"].rows_read == sections["rows"].records == len(rows)
    assert sections["dialogue_turns"].rows_read == sections["dialogue_turns"].records == len(turns)
    assert sections["table_rows"].rows_read == sections["table_rows"].records == len(raw.table)
    calls = [*raw.steps(), *raw.dialogue_steps(), *raw.requests()]
    calls += [("", a["api_name"]) for row in raw.level_3 for a in row["apis"]]
    assert sections["gold_calls"].rows_read == len(calls)
    assert records.report.notes["tool_search_calls"] == sum(name == SEARCH for _, name in calls)
    turns_of_prompts = [turn for row in raw.train for turn in prompt_turns(row["input"])]
    answers = {t.strip() for speaker, t in turns_of_prompts if speaker == "API-Request" and f"[{SEARCH}(" in t}
    cut = {answer for answer in answers if answer.count("{") != answer.count("}")}
    assert cut
    assert records.report.dropped == {"docs:malformed_literal": len(cut)}


def test_tasks_are_the_distinct_texts_with_united_gold(records: Records, raw: Raw) -> None:
    expected: dict[str, set[str]] = defaultdict(set)
    for text, name in [*raw.steps(), *raw.dialogue_steps()]:
        expected[text].add(name)
    for row in raw.level_3:
        expected[squeezed([row["requirement"]])].update(a["api_name"] for a in row["apis"])
    for request, name in raw.requests():
        expected[squeezed([STAMP.sub("", request)])].add(name)
    with_tools = {text: names - {SEARCH} for text, names in expected.items() if names != {SEARCH}}
    assert {t.text: names_of(records, t.gold_capability_ids) for t in records.tasks} == with_tools
    assert {t.text for t in records.apart} == set(expected) - set(with_tools)
    assert {t.no_gold for t in records.apart} == {"not_annotated"}


def test_dialogue_files_and_rows_have_the_same_texts(records: Records, raw: Raw) -> None:
    rows, dialogues = ({text for text, _ in steps} for steps in (raw.steps(), raw.dialogue_steps()))
    assert rows == dialogues
    for task in (*records.tasks, *records.apart):
        assert ("level-1" in task.split or "level-2" in task.split) == (task.text in rows)


def test_plans_of_level_three_keep_their_order(records: Records, raw: Raw) -> None:
    expected = {
        squeezed([row["requirement"]]): [a["api_name"] for a in row["apis"] if a["api_name"] != SEARCH]
        for row in reversed(raw.level_3)
    }
    names = {c.capability_id: c.name for c in records.library.capabilities}
    found = {t.text: [names[c.rpartition("/")[0]] for c in t.calls] for t in records.tasks if "level-3" in t.split}
    assert {text: found[text] for text in expected} == expected
    assert all(set(t.calls) <= set(t.gold_endpoint_ids) for t in records.tasks)
    assert all(t.ordered == ("level-3" in t.split) for t in records.tasks)


def test_candidates_are_the_tools_that_level_one_describes(records: Records, raw: Raw) -> None:
    expected: dict[str, set[str]] = defaultdict(set)
    for (text, _), row in zip(raw.steps(), [*raw.level_1, *raw.level_2], strict=True):
        expected[text].update(name for name in raw.described(row) if name != SEARCH)
    for task in records.tasks:
        assert names_of(records, task.given_candidate_ids) == expected.get(task.text, set())


def test_every_tool_of_the_files_is_in_the_library_and_the_search_is_not(records: Records, raw: Raw) -> None:
    known = {c.name for c in records.library.capabilities}
    called = {name for _, name in [*raw.steps(), *raw.requests()]} | {
        a["api_name"] for row in raw.level_3 for a in row["apis"]
    }
    assert called - {SEARCH} <= known
    assert {row["类名"] for row in raw.table} <= known
    assert SEARCH not in known


def test_domains_are_the_scenarios_of_the_table(records: Records, raw: Raw) -> None:
    scenario = {row["类名"]: row["应用场景"] for row in raw.table}
    pairs = {(c.domain, scenario.get(c.name, "")) for c in records.library.capabilities}
    assert len(pairs) == len({d for d, _ in pairs}) == len({s for _, s in pairs}), "one domain per scenario"
    assert {s for _, s in pairs if s} == set(scenario.values())
    assert all(domain == "" for domain, s in pairs if not s)
    by_id = {c.capability_id: c.domain for c in records.library.capabilities}
    for task in records.tasks:
        assert task.domain in {by_id[c] for c in task.gold_capability_ids} or not task.domain


def test_two_tools_of_one_name_have_other_parameters(records: Records, raw: Raw) -> None:
    """Of the names that level 1 and level 3 both document: two tools where the parameters differ, else one."""
    prompts: dict[str, set[str]] = {}
    plans: dict[str, set[str]] = {}
    for row in raw.level_1:
        for line in row["instruction"].split("\n"):
            if line.startswith('{"name"'):
                tool = json.loads(line)
                prompts.setdefault(tool["name"], set()).update(tool["input_parameters"])
    for row in raw.level_3:
        for a in row["apis"]:
            found = a["output"]["output"] if a["api_name"] == SEARCH else []
            for tool in found if isinstance(found, list) else [found]:
                plans.setdefault(tool["name"], set()).update(tool["input_parameters"])
    both = (set(prompts) & set(plans)) - {SEARCH}
    assert both, "the release documents some class in both levels"
    counts = Counter(c.name for c in records.library.capabilities)
    assert {name: counts[name] for name in both} == {n: 1 + (prompts[n] != plans[n]) for n in both}
    arguments = {e.capability_id: {a.name for a in e.arguments} for e in records.library.endpoints}
    for name in both:
        assert arguments[f"apibank/{name}"] == prompts[name]
        assert arguments.get(f"apibank/{name}-lv3", plans[name]) == plans[name]


def test_a_main_branch_with_dialogues_only_has_the_tasks_of_levels_one_and_two(base: Path, records: Records) -> None:
    part = apibank.read(base.parent, options=apibank.Options(parts=("dialogues-1", "dialogues-2")), strict=True)
    whole = {t.task_id: t for t in records.tasks}
    assert {t.task_id for t in part.tasks} == {i for i, t in whole.items() if "dialogues" in t.split}
    assert all(
        names_of(part, t.gold_capability_ids) == names_of(records, whole[t.task_id].gold_capability_ids)
        for t in part.tasks
    )

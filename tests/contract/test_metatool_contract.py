"""The real MetaTool files, counted three ways: by the adapter, by a second parser here, and by SOURCE.md's text.

The parser below shares no code with the adapter. Numbers it is held against are read from the SOURCE.md beside the
files; none was copied from the adapter's output.
"""

from __future__ import annotations

import gzip
import json
import re
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from toolshift.data.adapters import metatool
from toolshift.data.records import Records

pytestmark = pytest.mark.real

Row = dict[str, Any]


# ----------------------------------------------------------------------------------------------------- second parser


def load(base: Path, name: str) -> str:
    """The text of a file below dataset/, packed or not."""
    path = base / "dataset" / name
    packed = path.with_name(path.name + ".gz")
    return (gzip.decompress(packed.read_bytes()) if packed.exists() else path.read_bytes()).decode("utf-8")


@dataclass(frozen=True)
class Raw:
    """Everything the tests compare with, as plain Python values of the files."""

    tools: dict[str, str]
    merged: dict[str, str]
    plugins: list[Row]
    single: list[tuple[str, str]]
    multi: list[Row]
    task1: list[Row]
    subtask3: list[Row]
    subtask4: list[Row]

    def gold(self) -> dict[str, set[str]]:
        """Trimmed text -> names of its gold tools, over all files that name some."""
        rows = [*self.single, *((r["query"], r["tool"]) for r in self.task1 if "tool" in r)]
        rows += [(r["query"], name) for r in (*self.multi, *self.subtask4) for name in r["tool"]]
        united: dict[str, set[str]] = {}
        for query, name in rows:
            united.setdefault(query.strip(), set()).add(name)
        return united


def read_raw(base: Path) -> Raw:
    query, tool, *cells = [cell.replace('""', '"') for cell in csv_cells(load(base, "data/all_clean_data.csv"))]
    assert (query, tool) == ("Query", "Tool")
    return Raw(
        tools=json.loads(load(base, "plugin_des.json")),
        merged=json.loads(load(base, "big_tool_des.json")),
        plugins=json.loads(load(base, "plugin_info.json")),
        single=list(zip(cells[::2], cells[1::2], strict=True)),
        multi=json.loads(load(base, "data/multi_tool_query_golden.json")),
        task1=json.loads(load(base, "tmp_dataset/Task1.json")),
        subtask3=json.loads(load(base, "tmp_dataset/Task2-Subtask3.json")),
        subtask4=json.loads(load(base, "tmp_dataset/Task2-Subtask4.json")),
    )


def csv_cells(text: str) -> list[str]:
    """All cells in order, by one regular expression: a quoted cell or a bare one, up to a comma or a line end."""
    found = re.findall(r'(?:"((?:[^"]|"")*)"|([^",\n]*))(?:,|\n|$)', text.removesuffix("\n"))
    return [quoted or bare for quoted, bare in found][: -1 if found[-1] == ("", "") else None]


def shown(row: Row) -> list[str]:
    """Names of the numbered list in a prompt, line by line."""
    lines = row["action_prompt"].split("Descriptions Start]")[1].split("[List of Tools")[0].splitlines()
    return [line.split("tool name: ")[1].split(", tool description")[0] for line in lines if line[:1].isdigit()]


# --------------------------------------------------------------------------------------------------------- SOURCE.md


def stated(source: str, pattern: str) -> list[int]:
    """The numbers of a sentence of SOURCE.md; white space in the pattern matches line breaks."""
    match = re.search(pattern.replace(" ", r"\s+"), source)
    assert match, f"SOURCE.md no longer says {pattern!r}"
    return [int(group.replace(",", "")) for group in match.groups()]


# ----------------------------------------------------------------------------------------------------------- fixtures


@pytest.fixture(scope="module")
def base(data_root: Path) -> Path:
    base = data_root / "metatool"
    for needed in ("SOURCE.md", "dataset/plugin_des.json", "dataset/plugin_info.json", "dataset/tmp_dataset"):
        if not (base / needed).exists():
            pytest.skip(f"{base / needed} does not exist: not the release this contract describes")
    return base


@pytest.fixture(scope="module")
def source(base: Path) -> str:
    return (base / "SOURCE.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def raw(base: Path) -> Raw:
    return read_raw(base)


@pytest.fixture(scope="module")
def records(base: Path) -> Records:
    return metatool.read(base.parent, strict=True)


@pytest.fixture(scope="module")
def id_of(records: Records) -> Callable[[str], str]:
    """Name of a tool -> its capability id, through the name that the record keeps."""
    ids = {c.name: c.capability_id for c in records.library.capabilities}
    return ids.__getitem__


# --------------------------------------------------------------------------------------- the parser against SOURCE.md


def test_the_parser_finds_the_library_of_source_md(raw: Raw, source: str) -> None:
    tools, merged, single = stated(source, r"(\d+) tools \(.*; (\d+) of them, the .* merged tools .*; (\d+) are single")
    assert (len(raw.tools), len(raw.merged), len(raw.tools.keys() - raw.merged.keys())) == (tools, merged, single)
    assert raw.merged.items() <= raw.tools.items(), "so that nothing is lost by not reading big_tool_des.json"


def test_the_parser_finds_the_single_tool_queries_of_source_md(raw: Raw, source: str) -> None:
    rows, on_merged, on_plugins = stated(
        source, r"([\d,]+) single-tool rows \(1 gold each\): ([\d,]+) on the \d+ merged tools, ([\d,]+) on the"
    )
    assert len(raw.single) == rows
    assert sum(tool in raw.merged for _, tool in raw.single) == on_merged
    assert sum(tool not in raw.merged for _, tool in raw.single) == on_plugins
    counts = Counter(tool for _, tool in raw.single)
    assert counts.keys() == raw.tools.keys()
    fewest, most = stated(source, r"per tool (\d+) \(ProductComparison\) to ([\d,]+) \(FinanceTool\)")
    assert (min(counts.values()), max(counts.values())) == (fewest, most)
    assert (counts["ProductComparison"], counts["FinanceTool"]) == (fewest, most)


def test_the_parser_finds_the_other_queries_of_source_md(raw: Raw, source: str) -> None:
    queries, gold, tools = stated(source, r"(\d+) two-tool queries \((\d) gold each, unordered\) over (\d+) merged")
    assert len(raw.multi) == queries
    assert {len(set(r["tool"])) for r in raw.multi} == {gold}
    assert len({name for r in raw.multi for name in r["tool"]}) == tools
    rows, positive, negative = stated(source, r"Task1: ([\d,]+) \((\d+) positive with `tool`, (\d+) negative")
    assert len(raw.task1) == rows
    assert Counter((r["label"], "tool" in r) for r in raw.task1) == {
        ("positive", True): positive,
        ("negative", False): negative,
    }
    (subtask3,) = stated(source, r"Subtask3: (\d+) \(the named tool is NOT among the ten shown\)")
    assert len(raw.subtask3) == subtask3
    assert not any(r["tool"] in shown(r) for r in raw.subtask3)
    (subtask4,) = stated(source, r"Subtask4: (\d+), ten candidates each, same queries as the golden file")
    assert len(raw.subtask4) == subtask4
    assert {len(shown(r)) for r in (*raw.subtask3, *raw.subtask4)} == {10}
    golden = {r["query"]: sorted(r["tool"]) for r in raw.multi}
    assert {r["query"]: sorted(r["tool"]) for r in raw.subtask4} == golden


def test_the_parser_finds_what_source_md_says_of_the_file_that_is_not_read(raw: Raw, source: str) -> None:
    plugins, repeated, distinct, known, absent = stated(
        source,
        r"`plugin_info.json`: (\d+) plugins \((\d+) repeated names\), (\d+) distinct names, of which (\d+) are in "
        r"`plugin_des.json`; (\d+) tools",
    )
    names = [plugin["name_for_model"] for plugin in raw.plugins]
    assert (len(names), len(names) - len(set(names)), len(set(names))) == (plugins, repeated, distinct)
    assert len(set(names) & raw.tools.keys()) == known
    assert len(raw.tools.keys() - set(names)) == absent


# --------------------------------------------------------------------------------------- the adapter against the parser


def test_every_row_was_read_and_none_dropped(records: Records, raw: Raw) -> None:
    rows = {name: section.rows_read for name, section in records.report.sections.items()}
    assert rows["tools"] == len(raw.tools)
    assert rows["single_queries"] == len(raw.single)
    assert rows["multi_queries"] == len(raw.multi)
    assert rows["task1_queries"] == len(raw.task1)
    assert rows["subtask3_queries"] == len(raw.subtask3)
    assert rows["subtask4_queries"] == len(raw.subtask4)
    assert rows["candidates"] == sum(len(shown(r)) for r in (*raw.subtask3, *raw.subtask4))
    positive = sum("tool" in r for r in raw.task1)
    assert rows["gold_names"] == len(raw.single) + positive + sum(len(r["tool"]) for r in (*raw.multi, *raw.subtask4))
    assert records.report.dropped == {}


def test_the_library_is_the_description_file(records: Records, raw: Raw) -> None:
    assert {c.name: c.description for c in records.library.capabilities} == {
        name: description.strip() for name, description in raw.tools.items()
    }
    assert [e.capability_id for e in records.library.endpoints] == [
        c.capability_id for c in records.library.capabilities
    ]


def test_tasks_are_the_distinct_texts_with_united_gold(records: Records, raw: Raw, id_of: Callable[[str], str]) -> None:
    expected = {text: {id_of(name) for name in names} for text, names in raw.gold().items()}
    assert {t.text: set(t.gold_capability_ids) for t in records.tasks} == expected
    given = {r["query"].strip(): {id_of(name) for name in shown(r)} for r in raw.subtask4}
    assert {t.text: set(t.given_candidate_ids) for t in records.tasks if t.given_candidate_ids} == given
    assert records.report.gold_pairs == sum(map(len, expected.values()))
    rows = len(raw.single) + sum("tool" in r for r in raw.task1) + len(raw.multi) + len(raw.subtask4)
    assert records.report.notes["merged_duplicate_text"] == rows - len(expected)
    assert records.report.notes["tasks_with_several_gold"] == sum(len(gold) > 1 for gold in expected.values())
    assert not any(t.ordered or t.domain for t in records.tasks)


def test_tasks_without_a_tool_are_apart(records: Records, raw: Raw, id_of: Callable[[str], str]) -> None:
    negative = {(r["query"].strip(), "Task1"): set() for r in raw.task1 if "tool" not in r}
    without = {(r["query"].strip(), "Task2-Subtask3"): {id_of(n) for n in shown(r)} for r in raw.subtask3}
    assert {(t.text, t.split): set(t.given_candidate_ids) for t in records.apart} == {**negative, **without}
    assert {t.no_gold for t in records.apart} == {"irrelevance"}
    gold = raw.gold()
    both = sum(text in gold for text, _ in (*negative, *without))
    assert records.report.notes["texts_in_both_tasks_and_apart"] == both


def test_quirks_are_counted(records: Records, raw: Raw) -> None:
    notes = records.report.notes
    assert notes["queries_that_name_their_tool"] == sum(tool.lower() in query.lower() for query, tool in raw.single)
    assert notes["queries_with_newline"] == sum("\n" in query for query, _ in raw.single)
    ideographs = [query for query, _ in raw.single if re.search("[\u3400-\u9fff]", query)]
    beside_latin = [q for q in ideographs if re.search("[a-zA-Z0-9?][\u3400-\u9fff]|[\u3400-\u9fff][a-zA-Z0-9?]", q)]
    assert len(beside_latin) <= notes["queries_with_mojibake"] < len(ideographs), "some are Japanese or Chinese"


def test_a_read_takes_seconds(base: Path) -> None:
    started = time.perf_counter()
    metatool.read(base.parent)
    seconds = time.perf_counter() - started
    print(f"{seconds:.1f} s")
    assert seconds < 15, "1 s on an idle machine; others may be at work beside this test"

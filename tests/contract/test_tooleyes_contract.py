"""The real ToolEyes files, counted three ways: by the adapter, by a second parser here, and by SOURCE.md.

The parser below shares no code with the adapter. Numbers it is held against are read from the SOURCE.md beside the
files; none was copied from the adapter's output.
"""

from __future__ import annotations

import gzip
import json
import re
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from toolshift.data.adapters import tooleyes
from toolshift.data.records import Records
from toolshift.data.store import load_records

pytestmark = pytest.mark.real


# ----------------------------------------------------------------------------------------------------- second parser


@dataclass(frozen=True)
class Raw:
    sets: dict[str, list[Any]]  # "Category/Set" -> all entries of its file
    queries: list[Any]
    processed: dict[str, list[Any]]

    @property
    def tools(self) -> list[tuple[str, Any]]:
        """(set, tool) without the two controls that end every file."""
        return [(place, e) for place, entries in self.sets.items() for e in entries if e["name"] not in CONTROLS]

    def place(self, query: Any) -> str:
        return query["path"].split("Tool_Library/")[1]


CONTROLS = ("ask_to_user", "finish")


def read_raw(base: Path) -> Raw:
    files = sorted(base.glob("Tool_Library/*/*/config_gpt4.json"))
    sets = {f"{path.parts[-3]}/{path.parts[-2]}": json.loads(path.read_text(encoding="utf-8")) for path in files}
    queries = json.loads((base / "Test_Data/scenario_data_raw.json").read_text(encoding="utf-8"))
    packed = sorted(base.glob("Test_Data/*_processed.json.gz"))
    return Raw(sets, queries, {path.name: json.loads(gzip.decompress(path.read_bytes())) for path in packed})


# ----------------------------------------------------------------------------------------------------------- fixtures


@pytest.fixture(scope="module")
def base(data_root: Path) -> Path:
    base = data_root / "tooleyes"
    for needed in ("SOURCE.md", "Tool_Library", "Test_Data/scenario_data_raw.json"):
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
    return tooleyes.read(base.parent, strict=True)


def stated(source: str, pattern: str) -> list[int]:
    """The numbers of a sentence of SOURCE.md; white space in the pattern matches line breaks."""
    match = re.search(pattern.replace(" ", r"\s+"), source)
    assert match, f"SOURCE.md no longer says {pattern!r}"
    return [int(group.replace(",", "")) for group in match.groups()]


# --------------------------------------------------------------------------------------- the parser against SOURCE.md


def test_the_parser_finds_the_tools_of_source_md(raw: Raw, source: str) -> None:
    sets, categories, tools, names, shared, inside, entries = stated(
        source,
        r"(\d+) tool sets in (\d+) categories; (\d+) tools \((\d+) distinct names; (\d+) names occur more than once, "
        r"(\d+) of them inside one file\) plus `ask_to_user` and `finish` in every set \((\d+) entries\)",
    )
    assert (len(raw.sets), len({place.split("/")[0] for place in raw.sets})) == (sets, categories)
    assert (len(raw.tools), sum(len(e) for e in raw.sets.values())) == (tools, entries)
    counts = Counter(tool["name"] for _, tool in raw.tools)
    assert (len(counts), sum(n > 1 for n in counts.values())) == (names, shared)
    assert sum(n > 1 for n in Counter((place, tool["name"]) for place, tool in raw.tools).values()) == inside
    for entries_of_set in raw.sets.values():
        assert [e["name"] for e in entries_of_set if e["name"] in CONTROLS] == list(CONTROLS)


def test_the_parser_finds_the_queries_of_source_md(raw: Raw, source: str) -> None:
    queries, texts, scenarios = stated(source, r"(\d+) queries \((\d+) distinct texts\), (\d+) scenarios")
    assert (len(raw.queries), len({q["query"].strip() for q in raw.queries})) == (queries, texts)
    kinds = Counter(q["scenario"] for q in raw.queries)
    assert len(kinds) == scenarios
    order = ("PL", "TG", "RS", "IR", "FT", "DU", "AM")
    assert [kinds[k] for k in order] == stated(source, ", ".join(rf"{k} (\d+)" for k in order))
    sets_of = {k: len({q["path"] for q in raw.queries if q["scenario"] == k}) for k in order}
    assert list(sets_of.values()) == stated(source, r"scenario -> sets " + ", ".join([r"(\d+)"] * scenarios))
    assert {raw.place(q) for q in raw.queries} <= set(raw.sets)


def test_the_parser_finds_the_largest_categories_of_source_md(raw: Raw, source: str) -> None:
    sizes = Counter(place.split("/")[0] for place, _ in raw.tools).most_common(5)
    pattern = "Largest categories by tools: " + ", ".join(rf"{name} (\d+)" for name, _ in sizes)
    assert [n for _, n in sizes] == stated(source, pattern)


def test_the_processed_files_hold_no_other_queries(raw: Raw) -> None:
    assert raw.processed
    for rows in raw.processed.values():
        assert [row["path"] for row in rows] == [q["path"] for q in raw.queries]
        assert all(q["query"] in row["id"] for row, q in zip(rows, raw.queries, strict=True))


# --------------------------------------------------------------------------------------- the adapter against the parser


def test_every_row_is_accounted_for_also_under_strict(records: Records, raw: Raw) -> None:
    sections = records.report.sections
    assert sections["tool_sets"].records == sections["tool_sets"].rows_read == len(raw.sets)
    assert sections["tools"].rows_read == sum(len(entries) for entries in raw.sets.values())
    assert sections["tools"].records == len(raw.tools)
    assert records.report.dropped == {"tools:control_entry": len(CONTROLS) * len(raw.sets)}
    assert sections["queries"].records == sections["queries"].rows_read == len(raw.queries)
    assert sections["parameters"].records == sum(len(t["parameters"]["properties"]) for _, t in raw.tools)


def test_the_library_is_one_tool_per_name_and_set(records: Records, raw: Raw) -> None:
    by_id: dict[str, list[Any]] = {}
    for place, tool in raw.tools:
        by_id.setdefault(f"tooleyes/{place}/{tool['name'].lower()}", []).append(tool)
    assert [c.capability_id for c in records.library.capabilities] == sorted(by_id)
    assert records.report.notes["merged_same_name_in_set"] == len(raw.tools) - len(by_id)
    unlike = sum(other != group[0] for group in by_id.values() for other in group[1:])
    assert records.report.notes["merged_with_other_documentation"] == unlike
    for endpoint in records.library.endpoints:
        first = by_id[endpoint.capability_id][0]
        assert endpoint.operation == first["name"]
        assert endpoint.description == " ".join(first["description"].split())
        names = list(
            dict.fromkeys(p for tool in by_id[endpoint.capability_id] for p in tool["parameters"]["properties"])
        )
        assert [a.name for a in endpoint.arguments] == names
        needed = set(first["parameters"]["required"])
        assert {a.name for a in endpoint.required_arguments} >= needed


def test_queries_are_apart_with_the_tools_of_their_sets(records: Records, raw: Raw) -> None:
    assert records.tasks == ()
    assert records.report.tasks == records.report.gold_pairs == 0
    assert records.unscorable
    given: dict[str, set[str]] = {}
    for query in raw.queries:
        place = raw.place(query)
        names = {tool["name"] for where, tool in raw.tools if where == place}
        given.setdefault(query["query"].strip(), set()).update(f"tooleyes/{place}/{name.lower()}" for name in names)
    assert {t.text: set(t.given_candidate_ids) for t in records.apart} == given
    assert {t.no_gold for t in records.apart} == {"not_annotated"}
    assert records.report.notes["tasks_apart"] == len(given)
    assert records.report.notes["merged_duplicate_text"] == len(raw.queries) - len(given)
    scenarios = {
        q["query"].strip(): {o["scenario"] for o in raw.queries if o["query"] == q["query"]} for q in raw.queries
    }
    assert {t.text: set(t.split.split("+")) for t in records.apart} == scenarios


def test_loading_is_quick_and_repeatable(base: Path, tmp_path: Path) -> None:
    adapter = "toolshift.data.adapters.tooleyes:read"
    arguments: dict[str, Any] = {"dataset": "tooleyes", "adapter": adapter, "root": base.parent, "cache": tmp_path}
    started = time.perf_counter()
    cold = load_records(**arguments)
    assert time.perf_counter() - started < 30
    warm = load_records(**arguments)
    assert (cold.rebuilt, warm.rebuilt) == (True, False)
    assert warm.records == cold.records

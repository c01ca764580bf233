"""The real ToolBench files, counted three ways: by the adapter, by a second parser here, and by SOURCE.md's table.

The parser below shares no code with the adapter. Numbers it is held against are read from the SOURCE.md beside the
files; none was copied from the adapter's output.
"""

from __future__ import annotations

import gzip
import json
import re
import resource
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from toolshift.data.adapters import toolbench
from toolshift.data.records import Records
from toolshift.data.store import load_records

pytestmark = pytest.mark.real

FOLDERS = ("instruction", "solvable_queries/test_instruction", "test_instruction")


# ----------------------------------------------------------------------------------------------------- second parser


def key_of(name: str) -> str:
    """Standardised name, written anew from the description of upstream's rule."""
    kept = "".join(
        c if c == "^" or c == "_" or "一" <= c <= "龥" or (c.isascii() and c.isalnum()) else "_" for c in name
    )
    parts = [part for part in kept.lower().split("_") if part]
    key = "_".join(parts)
    return "get_" + key if key and key[0] in "0123456789" else key


def load(path: Path) -> Any:
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rb") as handle:
        return json.loads(handle.read())


@dataclass(frozen=True)
class Raw:
    """Everything the tests compare with, as plain Python values of the files."""

    base: Path
    tools: dict[tuple[str, str], Any]  # (category, file stem) -> content
    rows: dict[str, list[Any]]  # "folder/stem" -> rows

    @property
    def query_rows(self) -> list[Any]:
        return [row for name in sorted(self.rows) for row in self.rows[name]]

    def gold(self, row: Any) -> set[tuple[str, str, str]]:
        """Gold of a row as (category, tool key, API key)."""
        categories = {(a["tool_name"], a["api_name"]): a["category_name"] for a in reversed(row["api_list"])}
        return {(categories[tool, api], key_of(tool), key_of(api)) for tool, api in row["relevant APIs"]}

    def tool_keys(self) -> dict[tuple[str, str], str]:
        """(category, standardised tool name) -> file stem; stems themselves come first."""
        keys = {(category, key_of(tool["tool_name"])): stem for (category, stem), tool in self.tools.items()}
        return {**keys, **{(category, stem): stem for category, stem in self.tools if stem}}


def read_raw(base: Path) -> Raw:
    tools = {}
    for folder in sorted((base / "toolenv/tools").iterdir()):
        for path in sorted(folder.iterdir()):
            tools[folder.name, path.name.removesuffix(".json")] = load(path)
    rows = {}
    for name in FOLDERS:
        for path in sorted((base / name).iterdir()):
            rows[f"{name}/{path.name.split('.')[0]}"] = load(path)
    return Raw(base, tools, rows)


# --------------------------------------------------------------------------------------------------------- SOURCE.md


def number(text: str) -> int:
    return int(text.replace(",", ""))


def stated(source: str, pattern: str) -> list[int]:
    """The numbers of a sentence of SOURCE.md; white space in the pattern matches line breaks."""
    match = re.search(pattern.replace(" ", r"\s+"), source)
    assert match, f"SOURCE.md no longer says {pattern!r}"
    return [number(group) for group in match.groups()]


def stated_table(source: str) -> dict[str, list[str]]:
    """First cell -> other cells of the table of counts."""
    rows = [line.strip("|").split("|") for line in source.splitlines() if line.startswith("|")]
    return {cells[0].strip().lstrip("- "): [cell.strip() for cell in cells[1:]] for cells in rows}


def histogram(text: str) -> dict[int, int]:
    """'1:8 2:146' -> {1: 8, 2: 146}."""
    return {int(a): int(b) for a, b in (pair.split(":") for pair in text.split())}


# ----------------------------------------------------------------------------------------------------------- fixtures


@pytest.fixture(scope="module")
def base(data_root: Path) -> Path:
    base = data_root / "toolbench"
    for needed in ("SOURCE.md", "toolenv/tools", *FOLDERS):
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
    return toolbench.read(base.parent, strict=True)


# --------------------------------------------------------------------------------------- the parser against SOURCE.md


def test_the_parser_finds_the_tool_library_of_source_md(raw: Raw, source: str) -> None:
    pattern = (
        r"(\d+) categories, ([\d,]+) tools, ([\d,]+) APIs \(counting \.json; without it ([\d,]+) tools and ([\d,]+) "
        r"APIs, ([\d,]+) of them distinct"
    )
    categories, tools, apis, tools_without, apis_without, distinct = stated(source, pattern)
    assert len({category for category, _ in raw.tools}) == categories
    assert len(raw.tools) == tools
    assert sum(len(tool["api_list"]) for tool in raw.tools.values()) == apis
    named = {place: tool for place, tool in raw.tools.items() if place[1]}
    assert len(named) == tools_without
    assert sum(len(tool["api_list"]) for tool in named.values()) == apis_without
    assert len({(*place, key_of(api["name"])) for place, tool in named.items() for api in tool["api_list"]}) == distinct


@pytest.mark.parametrize(
    ("row_name", "file"),
    [
        *((name, f"test_instruction/{name}") for name in ("G1_instruction", "G1_category", "G1_tool")),
        *((name, f"test_instruction/{name}") for name in ("G2_instruction", "G2_category", "G3_instruction")),
        *((f"instruction/G{i} (derived)", f"instruction/G{i}_query") for i in (1, 2, 3)),
    ],
)
def test_the_parser_finds_each_query_file_of_source_md(raw: Raw, source: str, row_name: str, file: str) -> None:
    queries, pairs, per_query, categories, tools, apis, _ = stated_table(source)[row_name]
    rows = raw.rows[file]
    gold = [raw.gold(row) for row in rows]
    assert len(rows) == number(queries.split()[0])
    listed = [len(row["relevant APIs"]) for row in rows]  # some rows list a pair twice
    assert sum(listed) == number(pairs)
    assert Counter(listed) == histogram(per_query)
    assert len({g[0] for group in gold for g in group}) == number(categories)
    assert len({g[:2] for group in gold for g in group}) == number(tools)
    assert len({g for group in gold for g in group}) == number(apis)


def test_the_parser_finds_the_totals_of_source_md(raw: Raw, source: str) -> None:
    queries, pairs, *_ = stated_table(source)["test_instruction (all six)"]
    test = [row for name, rows in raw.rows.items() if name.startswith("test_instruction/") for row in rows]
    assert len(test) == number(queries)
    assert sum(len(row["relevant APIs"]) for row in test) == number(pairs)
    texts, apis = stated(source, r"over test_instruction and instruction/: ([\d,]+); distinct gold APIs ([\d,]+)\.")
    assert len({row["query"].strip() for row in raw.query_rows}) == texts
    assert len({g for row in raw.query_rows for g in raw.gold(row)}) == apis
    solvable = sum(len(rows) for name, rows in raw.rows.items() if name.startswith("solvable"))
    assert solvable == number(stated_table(source)["solvable_queries (subset of the above, identical records)"][0][:3])


# --------------------------------------------------------------------------------------- the adapter against the parser


def test_every_row_was_read_and_none_dropped(records: Records, raw: Raw) -> None:
    sections = records.report.sections
    assert sections["tool_files"].rows_read == len(raw.tools)
    assert sections["apis"].rows_read == sum(len(tool["api_list"]) for tool in raw.tools.values())
    assert sections["queries"].rows_read == len(raw.query_rows)
    assert sections["gold_pairs"].rows_read == sum(len(row["relevant APIs"]) for row in raw.query_rows)
    assert sections["task_docs"].rows_read == sum(len(row["api_list"]) for row in raw.query_rows)
    assert records.report.dropped == {}
    assert records.report.rows_read == records.report.records


def test_tasks_are_the_distinct_texts_with_united_gold(records: Records, raw: Raw) -> None:
    keys = raw.tool_keys()
    expected: dict[str, set[str]] = {}
    given: dict[str, set[str]] = {}
    for row in raw.query_rows:
        text = row["query"].strip()
        for category, tool, api in raw.gold(row):
            stem = keys.get((category, tool), tool)
            expected.setdefault(text, set()).add(f"toolbench/{category}/{stem}/{api}")
        for a in row["api_list"]:
            stem = keys.get((a["category_name"], key_of(a["tool_name"])), key_of(a["tool_name"]))
            given.setdefault(text, set()).add(f"toolbench/{a['category_name']}/{stem}")
    assert {t.text: set(t.gold_endpoint_ids) for t in records.tasks} == expected
    assert {t.text: set(t.given_candidate_ids) for t in records.tasks} == given
    assert records.report.gold_pairs == sum(len(g) for g in expected.values())
    capability_pairs = {(text, g.rsplit("/", 1)[0]) for text, gold in expected.items() for g in gold}
    assert sum(len(t.gold_capability_ids) for t in records.tasks) == len(capability_pairs)
    assert records.report.notes["merged_duplicate_text"] == len(raw.query_rows) - len(expected)


def test_domains_are_the_categories_of_most_gold_endpoints(records: Records) -> None:
    for task in records.tasks:
        counts = Counter(e.split("/")[1] for e in task.gold_endpoint_ids)
        assert counts[task.domain] == max(counts.values())
        assert not any(n == counts[task.domain] and d < task.domain for d, n in counts.items())


def test_the_library_unites_tool_files_and_row_documentation(records: Records, raw: Raw) -> None:
    keys = raw.tool_keys()
    library = {(category, stem) for category, stem in raw.tools if stem}
    named = set()
    endpoints = {(*place, key_of(api["name"])) for place, t in raw.tools.items() if place[1] for api in t["api_list"]}
    for row in raw.query_rows:
        for a in row["api_list"]:
            tool = key_of(a["tool_name"])
            place = (a["category_name"], keys.get((a["category_name"], tool), tool))
            named.add(place)
            endpoints.add((*place, key_of(a["api_name"])))
    sources = {tuple(c.capability_id.split("/")[1:]): c.schema_source for c in records.library.capabilities}
    nameless = [place for place in sources if place[1].startswith("unnamed-")]
    assert [sources.pop(place) for place in nameless] == ["library"], "the file named .json"
    assert {p for p, s in sources.items() if s == "task"} == named - library
    assert {p for p, s in sources.items() if s == "both"} == named & library
    assert {p for p, s in sources.items() if s == "library"} == library - named
    nameless_apis = len(raw.tools[nameless[0][0], ""]["api_list"])
    assert len(records.library.endpoints) == len(endpoints) + nameless_apis


def test_schemas_come_from_the_files(records: Records, raw: Raw) -> None:
    """Every 97th library endpoint: operation, description, and parameters as its tool file gives them."""
    documented = {
        f"toolbench/{category}/{stem}/{key_of(api['name'])}": api
        for (category, stem), tool in reversed(raw.tools.items())
        for api in reversed(tool["api_list"])
    }
    checked = [e for e in records.library.endpoints if e.source == "library" and e.endpoint_id in documented][::97]
    assert len(checked) > 200
    for endpoint in checked:
        api = documented[endpoint.endpoint_id]
        assert endpoint.operation == " ".join(api["name"].split())
        assert endpoint.description == api["description"].strip() or not api["description"].strip()
        required = {" ".join(p["name"].split()) for p in api["required_parameters"]}
        names = required | {" ".join(p["name"].split()) for p in api["optional_parameters"]}
        assert names <= {a.name for a in endpoint.arguments}
        assert required <= {a.name for a in endpoint.required_arguments}


# -------------------------------------------------------------------------------------------------- cost of a real load


def test_a_cold_read_and_a_warm_load_stay_within_their_budgets(base: Path, tmp_path: Path) -> None:
    adapter = "toolshift.data.adapters.toolbench:read"
    arguments: dict[str, Any] = {"dataset": "toolbench", "adapter": adapter, "root": base.parent, "cache": tmp_path}
    started = time.perf_counter()
    cold = load_records(**arguments)
    cold_seconds = time.perf_counter() - started
    warm = load_records(**arguments)
    assert (cold.rebuilt, warm.rebuilt) == (True, False)
    assert warm.records == cold.records
    unit = 1024 if sys.platform == "linux" else 1
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**30
    print(f"cold {cold_seconds:.1f} s, warm {warm.seconds:.2f} s, peak {peak:.2f} GiB (this process)")
    assert cold_seconds < 25
    assert warm.seconds < 5, "1.5 s on an idle machine; others may be at work beside this test"

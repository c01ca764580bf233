"""The real TRAJECT-Bench files, counted three ways: by the adapter, by a second parser here, and by SOURCE.md.

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

from toolshift.data.adapters import trajectbench
from toolshift.data.records import Records
from toolshift.data.store import load_records

pytestmark = pytest.mark.real


# ----------------------------------------------------------------------------------------------------- second parser


def key_of(name: str) -> str:
    """Standardised name, written anew from the description of the rule."""
    kept = "".join(c if c in "^_" or "一" <= c <= "龥" or (c.isascii() and c.isalnum()) else "_" for c in name)
    key = "_".join(part for part in kept.lower().split("_") if part)
    return "get_" + key if key[0].isdigit() else key


def load(path: Path) -> Any:
    data = path.read_bytes()
    return json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)


@dataclass(frozen=True)
class Raw:
    tools: list[Any]
    rows: dict[tuple[str, str], list[Any]]  # (domain folder, file stem) -> rows

    @property
    def queries(self) -> list[Any]:
        return [row for place in sorted(self.rows) for row in self.rows[place]]

    def place_of(self, call: Any) -> tuple[str, str]:
        """(parent, API) of a call, standardised."""
        full = call["tool name"].strip()
        listed = {tool["tool name"].strip(): tool for tool in self.tools if tool["tool name"].strip() == full}
        if full in listed:
            return key_of(listed[full]["parent tool name"]), key_of(listed[full]["API name"])
        if call["parent tool name"] != "unknown":
            return key_of(call["parent tool name"]), key_of(call["API name"])
        parents = {tool["parent tool name"] for tool in self.tools}
        cuts = [m.start() for m in re.finditer(":", full)]
        cut = max((c for c in cuts if full[:c] in parents), default=min(cuts, default=0))
        return (key_of(full[:cut]), key_of(full[cut + 1 :])) if cut else (key_of(full), key_of(full))


def calls_of(row: Any) -> list[Any]:
    return row["tool list"] if "tool list" in row else row["tool_list"]


def names_of(row: Any) -> list[str]:
    return [call["tool name"] for call in calls_of(row)]


def read_raw(base: Path) -> Raw:
    tools = [t for path in sorted(base.glob("public_data/tools/*_tool.json*")) for t in load(path)]
    rows = {}
    for path in sorted(base.glob("public_data/sequential/*/*.json*")):
        stem = path.name.split(".")[0]
        if stem != "sequence":
            rows[path.parent.name, stem] = load(path)
    return Raw(tools, rows)


# ----------------------------------------------------------------------------------------------------------- fixtures


@pytest.fixture(scope="module")
def base(data_root: Path) -> Path:
    base = data_root / "trajectbench"
    for needed in ("SOURCE.md", "public_data/tools", "public_data/sequential"):
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
    return trajectbench.read(base.parent, strict=True)


@pytest.fixture(scope="module")
def endpoint_of(raw: Raw) -> dict[str, str]:
    """Full name of a called tool -> endpoint id; the best-placed call of a name decides."""
    found: dict[str, str] = {}
    calls = [call for row in raw.queries for call in calls_of(row)]
    for call in sorted(calls, key=lambda c: c["parent tool name"] == "unknown"):
        if call["tool name"] not in found:
            found[call["tool name"]] = "trajectbench/" + "/".join(raw.place_of(call))
    return found


def number(text: str) -> int:
    return int(text.replace(",", ""))


def stated(source: str, pattern: str) -> list[int]:
    """The numbers of a sentence of SOURCE.md; white space in the pattern matches line breaks."""
    match = re.search(pattern.replace(" ", r"\s+"), source)
    assert match, f"SOURCE.md no longer says {pattern!r}"
    return [number(group) for group in match.groups()]


def stated_list(source: str, label: str, item: str) -> dict[str, int]:
    """Label and number pairs of one row of SOURCE.md's table."""
    line = next(line for line in source.splitlines() if line.startswith(f"| {label} |"))
    return {name: number(count) for name, count in re.findall(item, line.split("|")[2])}


# --------------------------------------------------------------------------------------- the parser against SOURCE.md


def test_the_parser_finds_the_queries_of_source_md(raw: Raw, source: str) -> None:
    rows, texts, traj, domains, simple = stated(
        source,
        r"\| ([\d,]+) rows \(([\d,]+) distinct texts\): `traj_query` ([\d,]+) in (\d+) domains, "
        r"`simple_ver` (\d+) more",
    )
    assert (len(raw.queries), len({row["query"].strip() for row in raw.queries})) == (rows, texts)
    by_file = Counter(stem for (_, stem), group in raw.rows.items() for _ in group)
    assert by_file == {"traj_query": traj, "simple_ver": simple}
    assert len({domain for domain, _ in raw.rows}) == domains
    lengths = stated_list(source, "calls per query", r"(\d+): (\d+)")
    assert Counter(str(len(calls_of(row))) for row in raw.queries) == lengths
    assert Counter(row["domain"] for row in raw.queries) == stated_list(source, "domains", r"(\w+) (\d+)")
    assert all(row["domain"] == domain for (domain, _), group in raw.rows.items() for row in group)


def test_the_parser_finds_the_calls_of_source_md(raw: Raw, source: str) -> None:
    total, success, failed, whole = stated(
        source, r"\| ([\d,]+): success ([\d,]+), failed ([\d,]+); ([\d,]+) queries with every call successful"
    )
    calls = [call for row in raw.queries for call in calls_of(row)]
    status = Counter(call["execution_status"] for call in calls)
    assert (len(calls), status["success"], status["failed"]) == (total, success, failed)
    assert sum(all(c["execution_status"] == "success" for c in calls_of(row)) for row in raw.queries) == whole
    assert len({call["tool name"] for call in calls}) == stated(source, r"distinct tools called \| (\d+)")[0]
    assert len({tool["tool name"] for tool in raw.tools}) == stated(source, r"of its (\d+) distinct tools match")[0]


def test_the_list_order_is_the_order_of_the_steps(raw: Raw) -> None:
    for row in raw.queries:
        steps = [call["sequence_step"] for call in calls_of(row)]
        assert [step["step_number"] for step in steps] == list(range(1, len(steps) + 1))
        assert [step["tool_name"] for step in steps] == names_of(row)


# --------------------------------------------------------------------------------------- the adapter against the parser


def test_every_row_was_read_and_none_dropped(records: Records, raw: Raw) -> None:
    sections = records.report.sections
    assert sections["queries"].rows_read == len(raw.queries)
    assert sections["calls"].rows_read == sum(len(calls_of(row)) for row in raw.queries)
    assert sections["tools"].rows_read == len(raw.tools)
    assert records.report.dropped == {}
    failed = sum(call["execution_status"] == "failed" for row in raw.queries for call in calls_of(row))
    assert records.report.notes["failed_calls"] == failed


def test_tasks_are_the_distinct_texts_with_their_ordered_calls(
    records: Records, raw: Raw, endpoint_of: dict[str, str]
) -> None:
    chains: dict[str, list[tuple[str, ...]]] = {}
    for row in raw.queries:
        chain = tuple(endpoint_of[call["tool name"]] for call in calls_of(row))
        chains.setdefault(row["query"].strip(), []).append(chain)
    tasks = {task.text: task for task in records.tasks}
    assert set(tasks) == set(chains)
    for text, group in chains.items():
        task = tasks[text]
        assert set(task.gold_endpoint_ids) == {call for chain in group for call in chain}
        assert task.calls == (group[0] if len(set(group)) == 1 else ())
        assert task.ordered == (len(set(group)) == 1)
    assert records.report.ordered_tasks == sum(len(set(group)) == 1 for group in chains.values())
    assert records.report.notes["merged_duplicate_text"] == len(raw.queries) - len(chains)
    splits = {row["query"].strip(): stem for (_, stem), group in raw.rows.items() for row in group}
    assert Counter(t.split for t in records.tasks) == Counter(splits.values())
    assert Counter(t.domain for t in records.tasks) == Counter(
        {r["query"].strip(): r["domain"] for r in raw.queries}.values()
    )


def test_tools_that_only_calls_name_are_re_created(records: Records, raw: Raw, endpoint_of: dict[str, str]) -> None:
    documented = {f"trajectbench/{key_of(t['parent tool name'])}/{key_of(t['API name'])}" for t in raw.tools}
    called = set(endpoint_of.values())
    sources = {e.endpoint_id: e.source for e in records.library.endpoints}
    assert set(sources) == documented | called
    assert {e for e, s in sources.items() if s == "task"} == called - documented
    parents = {e.rsplit("/", 1)[0] for e in documented}
    only_called = {e.rsplit("/", 1)[0] for e in called - documented} - parents
    assert {c.capability_id for c in records.library.capabilities if c.partial_schema} == only_called
    assert {c.capability_id for c in records.library.capabilities} == parents | only_called
    notes = records.report.notes
    assert (notes["recreated_apis"], notes["recreated_tools"]) == (len(called - documented), len(only_called))
    calls = [endpoint_of[call["tool name"]] for row in raw.queries for call in calls_of(row)]
    assert notes["calls_of_recreated_tools"] == sum(call not in documented for call in calls)


def test_schemas_come_from_the_first_file_that_has_them(records: Records, raw: Raw) -> None:
    rows: dict[str, list[Any]] = {}
    for tool in raw.tools:
        rows.setdefault(f"trajectbench/{key_of(tool['parent tool name'])}/{key_of(tool['API name'])}", []).append(tool)
    assert records.report.notes["merged_tool_rows"] == len(raw.tools) - len(rows)
    for endpoint in records.library.endpoints:
        if endpoint.source == "task":
            assert endpoint.description == ""
            continue
        group = rows[endpoint.endpoint_id]
        assert endpoint.operation == " ".join(group[0]["API name"].split())
        described = [" ".join(t["tool description"].split()) for t in group if t["tool description"].strip()]
        assert endpoint.description == (described[0] if described else "")
        parameters = [p for t in group for p in (*t["required_parameters"], *t["optional_parameters"])]
        assert [a.name for a in endpoint.arguments] == list(
            dict.fromkeys(" ".join(p["name"].split()) for p in parameters)
        )
        needed = {" ".join(p["name"].split()) for p in group[0]["required_parameters"]}
        assert {a.name for a in endpoint.required_arguments} >= needed


def test_loading_is_quick_and_repeatable(base: Path, tmp_path: Path) -> None:
    adapter = "toolshift.data.adapters.trajectbench:read"
    arguments: dict[str, Any] = {"dataset": "trajectbench", "adapter": adapter, "root": base.parent, "cache": tmp_path}
    started = time.perf_counter()
    cold = load_records(**arguments)
    assert time.perf_counter() - started < 30
    warm = load_records(**arguments)
    assert (cold.rebuilt, warm.rebuilt) == (True, False)
    assert warm.records == cold.records

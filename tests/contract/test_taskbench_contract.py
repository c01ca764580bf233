"""The real TaskBench files, counted three ways: by the adapter, by a second parser here, and by SOURCE.md.

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

import networkx as nx
import pytest

from toolshift.data.adapters import taskbench
from toolshift.data.adapters.taskbench import Options
from toolshift.data.records import Records
from toolshift.data.store import load_records

pytestmark = pytest.mark.real

DOMAINS = ("dailylifeapis", "huggingface", "multimedia")
VARIANTS = "schema_variants/task_nodes_lists"
OLDER = "schema_variants/gnn4taskplan_tmdb"


# ----------------------------------------------------------------------------------------------------- second parser


def text_of(path: Path) -> str:
    packed = path.with_name(path.name + ".gz")
    return gzip.decompress(packed.read_bytes()).decode() if packed.exists() else path.read_text(encoding="utf-8")


def lines_of(path: Path) -> list[Any]:
    return [json.loads(line) for line in text_of(path).split("\n") if line.strip()]


def key_of(name: str) -> str:
    """Standardised name, written anew from the description of the rule."""
    kept = "".join(c if c in "^_" or "一" <= c <= "龥" or (c.isascii() and c.isalnum()) else "_" for c in name)
    key = "_".join(part for part in kept.lower().split("_") if part)
    return "get_" + key if key[0].isdigit() else key


@dataclass(frozen=True)
class Row:
    """One row, whatever its schema."""

    raw: dict[str, Any]
    text: str
    names: list[str]
    links: list[tuple[str, str]]

    @property
    def graph(self) -> nx.DiGraph[str]:
        graph: nx.DiGraph[str] = nx.DiGraph()
        graph.add_nodes_from(self.names)
        graph.add_edges_from(self.links)
        return graph

    @property
    def repeats(self) -> bool:
        return len(set(self.names)) < len(self.names)

    def orders(self) -> list[list[str]]:
        """All orders that the links allow; none where they hold a cycle."""
        graph = self.graph
        return list(nx.all_topological_sorts(graph)) if nx.is_directed_acyclic_graph(graph) else []


def parse_row(raw: dict[str, Any]) -> Row:
    def plain(value: Any) -> Any:
        return json.loads(value) if isinstance(value, str) else value

    nodes = plain(raw.get("tool_nodes") or raw.get("task_nodes"))
    links = plain(raw.get("tool_links") or raw.get("task_links"))
    text = raw.get("instruction") or raw["user_request"]
    return Row(raw, text.strip(), [n["task"] for n in nodes], [(edge["source"], edge["target"]) for edge in links])


@dataclass(frozen=True)
class Domain:
    tools: dict[str, Any]
    links: int
    rows: list[Row]
    requests: list[Any]


def read_domain(folder: Path) -> Domain:
    nodes = json.loads(text_of(folder / "tool_desc.json"))["nodes"]
    links = json.loads(text_of(folder / "graph_desc.json"))["links"]
    rows = [parse_row(raw) for raw in lines_of(folder / "data.json")]
    return Domain({n["id"]: n for n in nodes}, len(links), rows, lines_of(folder / "user_requests.json"))


# ----------------------------------------------------------------------------------------------------------- fixtures


@pytest.fixture(scope="module")
def base(data_root: Path) -> Path:
    base = data_root / "taskbench"
    for needed in ("SOURCE.md", OLDER, VARIANTS, *(f"data_{d}" for d in DOMAINS)):
        if not (base / needed).exists():
            pytest.skip(f"{base / needed} does not exist: not the release this contract describes")
    return base


@pytest.fixture(scope="module")
def source(base: Path) -> str:
    return (base / "SOURCE.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def raw(base: Path) -> dict[str, Domain]:
    return {name: read_domain(base / f"data_{name}") for name in DOMAINS}


@pytest.fixture(scope="module")
def records(base: Path) -> Records:
    return taskbench.read(base.parent)


def stated(source: str, pattern: str) -> list[int]:
    """The numbers of a sentence of SOURCE.md; white space in the pattern matches line breaks."""
    match = re.search(pattern.replace(" ", r"\s+"), source)
    assert match, f"SOURCE.md no longer says {pattern!r}"
    return [int(group.replace(",", "")) for group in match.groups()]


def all_rows(raw: dict[str, Domain]) -> list[tuple[str, Domain, Row]]:
    return [(name, domain, row) for name, domain in raw.items() for row in domain.rows]


# --------------------------------------------------------------------------------------- the parser against SOURCE.md


@pytest.mark.parametrize("name", DOMAINS)
def test_the_parser_finds_each_domain_of_source_md(raw: dict[str, Domain], source: str, name: str) -> None:
    tools, links, requests, unique, rows, single, chain, dag = stated(
        source, rf"\| {name} \| (\d+) \| ([\d,]+) \| ([\d,]+) \(([\d,]+)\) \| (\d+): (\d+) / (\d+) / (\d+) \|"
    )
    domain = raw[name]
    assert (len(domain.tools), domain.links) == (tools, links)
    assert (len(domain.requests), len({r["id"] for r in domain.requests})) == (requests, unique)
    assert len(domain.rows) == rows
    kinds = Counter(row.raw["type"] for row in domain.rows)
    assert (kinds["single"], kinds["chain"], kinds["dag"]) == (single, chain, dag)


def test_the_parser_finds_the_quirks_of_source_md(raw: dict[str, Domain], source: str) -> None:
    rows = all_rows(raw)
    total, missing, hugging, media, unlike, against, cycles = stated(
        source,
        r"Measured on the (\d+) rows: (\d+) have a gold tool that is not in `tool_desc\.json` \((\d+) HuggingFace, "
        r"(\d+) multimedia\); (\d+) have `n_tools` != number of gold nodes; (\d+) list `tool_nodes` against the "
        r"direction of a link; (\d+) repeats a tool and so has a cycle",
    )
    assert len(rows) == total
    lacking = [name for name, domain, row in rows if not set(row.names) <= set(domain.tools)]
    assert (len(lacking), lacking.count("huggingface"), lacking.count("multimedia")) == (missing, hugging, media)
    assert sum(row.raw["n_tools"] != len(row.names) for *_, row in rows) == unlike
    reversed_links = [any(row.names.index(a) > row.names.index(b) for a, b in row.links) for *_, row in rows]
    assert sum(reversed_links) == against
    assert sum(row.repeats and not row.orders() for *_, row in rows) == cycles


def test_the_parser_finds_the_older_schema_of_source_md(base: Path, source: str) -> None:
    tools, requests, two, three, one, four = stated(
        source,
        r"Whole: (\d+) tools \(no parameters\), (\d+) requests, all gold tools present, 2 tools (\d+) / 3 tools (\d+) "
        r"/ 1 tool (\d+) / 4 tools (\d+)",
    )
    domain = read_domain(base / OLDER)
    assert (len(domain.tools), len(domain.rows), len(domain.requests)) == (tools, requests, requests)
    sizes = Counter(len(row.names) for row in domain.rows)
    assert (sizes[1], sizes[2], sizes[3], sizes[4]) == (one, two, three, four)


# --------------------------------------------------------------------------------------- the adapter against the parser


def test_every_row_is_accounted_for(records: Records, raw: dict[str, Domain]) -> None:
    sections = records.report.sections
    rows = all_rows(raw)
    assert sections["tools"].rows_read == sections["tools"].records == sum(len(d.tools) for d in raw.values())
    assert sections["requests"].records == sum(len(d.requests) for d in raw.values())
    assert sections["rows"].rows_read == len(rows)
    lost = sum(not set(row.names) & set(domain.tools) for _, domain, row in rows)
    assert sections["rows"].dropped == ({"no_known_gold": lost} if lost else {})
    assert sections["gold_nodes"].rows_read == sum(len(row.names) for *_, row in rows)
    foreign = sum(name not in domain.tools for _, domain, row in rows for name in row.names)
    assert sections["gold_nodes"].dropped == {"not_in_tool_desc": foreign}
    assert sections["links"].records == sum(len(row.links) for *_, row in rows)


def test_notes_count_the_quirks(records: Records, raw: dict[str, Domain]) -> None:
    notes = records.report.notes
    rows = [(domain, row) for _, domain, row in all_rows(raw) if set(row.names) & set(domain.tools)]
    assert notes["n_tools_unlike_nodes"] == sum(row.raw["n_tools"] != len(row.names) for _, row in rows)
    several = [(domain, row) for domain, row in rows if len(row.names) > 1]
    assert notes["incomplete_order"] == sum(not set(row.names) <= set(domain.tools) for domain, row in several)
    whole = [row for domain, row in several if set(row.names) <= set(domain.tools)]
    assert notes["order_from_nodes"] == sum(row.repeats or not row.orders() for row in whole)
    assert notes["partial_order"] == sum(not row.repeats and len(row.orders()) > 1 for row in whole)
    arguments = [node.get("arguments") for _, _, row in all_rows(raw) for node in nodes_of(row)]
    assert notes["arguments_missing"] == arguments.count(None)
    assert notes["arguments_not_a_list"] == sum(isinstance(a, str | int | dict) for a in arguments)
    assert notes["arguments_with_numbers"] == sum(
        isinstance(a, list) and any(isinstance(value, int | float) for value in a) for a in arguments
    )


def nodes_of(row: Row) -> list[Any]:
    value = row.raw.get("tool_nodes") or row.raw.get("task_nodes")
    return json.loads(value) if isinstance(value, str) else value


def test_tasks_hold_the_known_gold_and_its_order(records: Records, raw: dict[str, Domain]) -> None:
    tasks = {task.text: task for task in records.tasks}
    for name, domain, row in all_rows(raw):
        known = [f"taskbench/{name}/{key_of(n)}/{key_of(n)}" for n in row.names if n in domain.tools]
        if not known:
            assert row.text not in tasks
            continue
        task = tasks[row.text]
        assert task.gold_endpoint_ids == tuple(sorted(set(known)))
        assert (task.domain, task.split) == (name, row.raw["type"])
        orders = [row.names] if row.repeats or not row.orders() else row.orders()
        decided = len(orders) == 1 and len(row.names) > 1 and len(known) == len(row.names)
        expected = [f"taskbench/{name}/{key_of(n)}/{key_of(n)}" for n in orders[0]] if decided else []
        assert list(task.calls) == expected
        assert task.ordered == decided


def test_the_library_is_that_of_the_tool_lists(records: Records, raw: dict[str, Domain]) -> None:
    tools = {f"taskbench/{name}/{key_of(t)}": node for name, domain in raw.items() for t, node in domain.tools.items()}
    assert [c.capability_id for c in records.library.capabilities] == sorted(tools)
    for endpoint in records.library.endpoints:
        node = tools[endpoint.capability_id]
        assert endpoint.operation == node["id"]
        assert endpoint.description == " ".join(node["desc"].split())
        assert list(endpoint.returns) == node.get("output-type", [])
        words = [p["type"] for p in node["parameters"]] if "parameters" in node else node["input-type"]
        assert [a.raw_type for a in endpoint.arguments] == words
        assert {a.required for a in endpoint.arguments} <= {None}


def test_an_excerpt_is_never_scorable(records: Records, raw: dict[str, Domain]) -> None:
    short = {name: (len(d.rows), len(d.requests)) for name, d in raw.items() if len(d.rows) < len(d.requests)}
    for name, (rows, requests) in short.items():
        assert f"{name} {rows:,} of {requests:,}" in records.unscorable
    assert bool(short) == ("excerpt" in records.unscorable)


def test_the_list_form_of_the_same_rows_gives_the_same_records(base: Path, records: Records, tmp_path: Path) -> None:
    for name in DOMAINS:
        folder = tmp_path / "taskbench" / f"data_{name}"
        folder.mkdir(parents=True)
        for path in (base / f"data_{name}").iterdir():
            if path.name != "data.json":
                (folder / path.name).symlink_to(path)
        (folder / "data.json").symlink_to(base / VARIANTS / f"data_{name}" / "data.json")
    other = taskbench.read(tmp_path)
    assert other == records


def test_the_older_schema_is_whole_and_scorable(base: Path) -> None:
    found = taskbench.read(base.parent, options=Options(folders=(OLDER,)), strict=True)
    domain = read_domain(base / OLDER)
    assert (found.unscorable, found.report.dropped) == ("", {})
    assert len(found.tasks) == len({row.text for row in domain.rows})
    gold = {row.text: {key_of(name) for name in row.names} for row in domain.rows}
    assert {t.text: {c.split("/")[2] for c in t.gold_capability_ids} for t in found.tasks} == gold
    several = [row for row in domain.rows if len(row.names) > 1]
    assert found.report.ordered_tasks == sum(row.repeats or len(row.orders()) < 2 for row in several)


def test_loading_is_quick_and_repeatable(base: Path, tmp_path: Path) -> None:
    adapter = "toolshift.data.adapters.taskbench:read"
    arguments: dict[str, Any] = {"dataset": "taskbench", "adapter": adapter, "root": base.parent, "cache": tmp_path}
    started = time.perf_counter()
    cold = load_records(**arguments)
    assert time.perf_counter() - started < 30
    warm = load_records(**arguments)
    assert (cold.rebuilt, warm.rebuilt) == (True, False)
    assert warm.records == cold.records

"""The real APIBench files, counted three ways: by the adapter, by a second parser here, and by SOURCE.md's tables.

The parser below shares no code with the adapter. Numbers it is held against are read from the SOURCE.md beside the
files; none was copied from the adapter's output.
"""

from __future__ import annotations

import gzip
import json
import re
import time
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from toolshift.data.adapters import apibench
from toolshift.data.records import Records

pytestmark = pytest.mark.real

Row = dict[str, Any]
HUB_OF = {"huggingface": "huggingface", "tensorflow": "tensorflowhub", "torchhub": "torchhub"}
QUERIES = ("huggingface_eval", "tensorflow_eval", "torchhub_eval", "torchhub_train")


# ----------------------------------------------------------------------------------------------------- second parser


def load(path: Path) -> list[Row]:
    packed = path.with_name(path.name + ".gz")
    data = gzip.decompress(packed.read_bytes()) if packed.exists() else path.read_bytes()
    return [json.loads(line) for line in data.decode("utf-8").split("\n") if line.strip()]


def spelled(call: str) -> str:
    """A call without what does not tell two calls apart."""
    return " ".join(call.split()).replace('"', "'").rstrip(". ")


@dataclass(frozen=True)
class Raw:
    """Everything the tests compare with, as plain Python values of the files."""

    docs: dict[str, list[Row]]  # hub -> API records
    rows: dict[str, list[Row]]  # file -> query rows

    def gold(self, file: str, row: Row) -> tuple[str, str, bool]:
        """(hub, call, whether it is in the documentation word for word) of a query row."""
        docs = self.docs[hub_of(file)]
        if any(doc["api_call"] == row["api_call"] for doc in docs):
            return hub_of(file), spelled(row["api_call"]), True
        rest = {key: value for key, value in row["api_data"].items() if key != "api_call"}
        (call,) = {doc["api_call"] for doc in docs if {**doc, "api_call": None} == {**rest, "api_call": None}}
        return hub_of(file), spelled(call), False

    def calls(self) -> dict[tuple[str, str], list[Row]]:
        """(hub, call) -> the records that document it."""
        groups: dict[tuple[str, str], list[Row]] = defaultdict(list)
        for hub, docs in self.docs.items():
            for doc in docs:
                groups[hub, spelled(doc["api_call"])].append(doc)
        return groups

    def domain(self, call: tuple[str, str]) -> str:
        counts = Counter(doc["domain"] for doc in self.calls()[call])
        return sorted(counts, key=lambda name: (-counts[name], name))[0]


def hub_of(file: str) -> str:
    return HUB_OF[file.split("_")[0]]


def letters(text: str) -> str:
    """Letters and digits only: how texts are compared where quoting and joining are the adapter's business."""
    return "".join(re.findall(r"[^\W_]", text)).lower()


def request(code: str) -> str:
    """Letters of the instruction (and of its input) in a row's ``code``: what stands before the answer, less the
    labels."""
    code = code.replace("**Input:<noinput>**", "").replace("<noinput>", "")
    if code.startswith("{"):
        before = code[: code.index("'Output'")].removeprefix("{'Instruction'").replace(", 'Input':", "", 1)
        return letters(before)
    before = re.split(r"### ?Output", code)[0]
    return letters(re.sub(r"### ?(Instruction|Input):", "", before))


# --------------------------------------------------------------------------------------------------------- SOURCE.md


def stated_table(source: str) -> dict[str, list[int]]:
    """First cell -> the first number of each other cell, over all tables of SOURCE.md."""
    table: dict[str, list[int]] = {}
    for line in source.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and cells[1][:1].isdigit():
            table[cells[0]] = [int(cell.split()[0]) for cell in cells[1:]]
    return table


# ----------------------------------------------------------------------------------------------------------- fixtures


@pytest.fixture(scope="module")
def base(data_root: Path) -> Path:
    base = data_root / "apibench"
    for needed in ("SOURCE.md", "api", "apibench"):
        if not (base / needed).exists():
            pytest.skip(f"{base / needed} does not exist: not the release this contract describes")
    if list((base / "apibench").glob("huggingface_train*")):
        pytest.skip(f"{base} holds more query files than this contract describes")
    return base


@pytest.fixture(scope="module")
def source(base: Path) -> str:
    return (base / "SOURCE.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def raw(base: Path) -> Raw:
    docs = {hub: load(base / f"api/{hub}_api.jsonl") for hub in HUB_OF.values()}
    return Raw(docs, {name: load(base / f"apibench/{name}.json") for name in QUERIES})


@pytest.fixture(scope="module")
def records(base: Path) -> Records:
    return apibench.read(base.parent, strict=True)


# --------------------------------------------------------------------------------------- the parser against SOURCE.md


@pytest.mark.parametrize("hub", HUB_OF.values())
def test_the_parser_finds_the_api_records_of_source_md(raw: Raw, source: str, hub: str) -> None:
    docs = raw.docs[hub]
    distinct = [len({doc[key] for doc in docs}) for key in ("api_call", "api_name", "domain")]
    assert [len(docs), *distinct] == stated_table(source)[f"{hub}_api.jsonl"]


@pytest.mark.parametrize("file", QUERIES)
def test_the_parser_finds_the_queries_of_source_md(raw: Raw, source: str, file: str) -> None:
    rows, docs = raw.rows[file], raw.docs[hub_of(file)]
    whole = sum(row["api_data"] in docs for row in rows)
    assert [len(rows), len({row["api_call"] for row in rows}), whole] == stated_table(source)[file]
    named = {doc["api_name"] for doc in docs}
    by_name = [row for row in rows if row["api_data"] not in docs and row["api_data"]["api_name"] in named]
    assert len(by_name) == len(rows) - whole


def test_the_parser_finds_the_largest_domains_of_source_md(raw: Raw, source: str) -> None:
    counts = Counter(doc["domain"] for doc in raw.docs["tensorflowhub"])
    match = re.search(r"TF Image\s+classification (\d+), Text embedding (\d+), Image\s+feature vector (\d+)", source)
    assert match
    assert [n for _, n in counts.most_common(3)] == [int(group) for group in match.groups()]


# --------------------------------------------------------------------------------------- the adapter against the parser


def test_every_row_was_read_and_none_dropped(records: Records, raw: Raw) -> None:
    sections = records.report.sections
    assert sections["api_records"].rows_read == sum(map(len, raw.docs.values()))
    assert sections["queries"].rows_read == sum(map(len, raw.rows.values()))
    assert records.report.dropped == {}
    assert records.report.rows_read == records.report.records


def test_a_capability_is_a_call_of_a_hub(records: Records, raw: Raw) -> None:
    groups = raw.calls()
    assert len(records.library.capabilities) == len(records.library.endpoints) == len(groups)
    expected = Counter((hub, raw.domain((hub, call))) for hub, call in groups)
    assert Counter((c.capability_id.split("/")[1], c.domain) for c in records.library.capabilities) == expected
    texts = {(c.capability_id.split("/")[1], c.name, c.domain, c.description) for c in records.library.capabilities}
    documented = {
        (hub, doc["api_name"], doc["domain"], doc["description"].strip())
        for hub, docs in raw.docs.items()
        for doc in docs
    }
    assert texts <= documented, "each comes from one record as a whole"
    notes = records.report.notes
    calls = sum(len({doc["api_call"] for doc in docs}) for docs in raw.docs.values())
    assert (notes["distinct_api_calls"], notes["merged_call_spellings"]) == (calls, calls - len(groups))
    assert notes["domains_in_api_records"] == len({doc["domain"] for docs in raw.docs.values() for doc in docs})
    assert notes["calls_with_several_domains"] == sum(len({d["domain"] for d in docs}) > 1 for docs in groups.values())
    assert notes["calls_with_several_names"] == sum(len({d["api_name"] for d in docs}) > 1 for docs in groups.values())


def test_tasks_have_the_gold_of_their_rows(records: Records, raw: Raw) -> None:
    gold = [(file, row, raw.gold(file, row)) for file in QUERIES for row in raw.rows[file]]
    names = {(hub, call): {doc["api_name"] for doc in docs} for (hub, call), docs in raw.calls().items()}
    domains = {call: raw.domain(call) for call in {(hub, call) for _, _, (hub, call, _) in gold}}
    expected = {(file, request(row["code"])): (hub, call) for file, row, (hub, call, _) in gold}
    assert len(expected) == len(gold), "no text occurs twice, so that tasks and rows are as many"
    found = {(t.split, letters(t.text)): t for t in records.tasks}
    assert found.keys() == expected.keys()
    name_of = {c.capability_id: c.name for c in records.library.capabilities}
    for key, (hub, call) in expected.items():
        (capability_id,) = found[key].gold_capability_ids
        assert capability_id.startswith(f"apibench/{hub}/")
        assert name_of[capability_id] in names[hub, call]
        assert letters(call) == letters(capability_id.split("/")[2].rsplit("-", 1)[0])
        assert found[key].domain == domains[hub, call]
    notes = records.report.notes
    assert notes["gold_found_verbatim"] == sum(verbatim for _, _, (_, _, verbatim) in gold)
    assert notes["gold_found_by_api_name"] == sum(not verbatim for _, _, (_, _, verbatim) in gold)
    assert notes["gold_capabilities"] == len({(hub, call) for _, _, (hub, call, _) in gold})
    assert records.report.domains == len(set(domains.values()))


def test_requests_are_free_of_what_wraps_them(records: Records, raw: Raw) -> None:
    markers = ("###", "<<<", "'Output'", "'Input'", "'Instruction'", "<noinput>")
    assert not [t.text for t in records.tasks if any(marker in t.text for marker in markers)]
    with_input = [
        row
        for rows in raw.rows.values()
        for row in rows
        if re.search(r"(### ?Input:|'Input': ')(?!\s*<noinput>)", re.split(r"### ?Output|'Output'", row["code"])[0])
    ]
    assert records.report.notes["requests_with_input"] == len(with_input)


def test_arguments_are_the_keys_of_the_records(records: Records, raw: Raw) -> None:
    """Calls with one record whose arguments are an object or a list of plain words: names in the order of the file."""
    endpoints = {letters(e.capability_id.split("/")[2]): e for e in records.library.endpoints}
    checked = 0
    for (_, call), docs in raw.calls().items():
        given = docs[0]["api_arguments"]
        plain = isinstance(given, dict | list) and all(isinstance(n, str) and n.isidentifier() for n in given)
        if len(docs) == 1 and plain and letters(call) in endpoints and "None" not in given:
            assert [a.name for a in endpoints[letters(call)].arguments] == list(given)
            assert {a.required for a in endpoints[letters(call)].arguments} <= {None}
            checked += 1
    assert checked > 500


def test_a_hub_can_be_read_alone(base: Path, records: Records) -> None:
    alone = apibench.read(base.parent, options=apibench.Options(hubs=("torchhub",)))
    assert {c.capability_id.split("/")[1] for c in alone.library.capabilities} == {"torchhub"}
    assert set(alone.tasks) == {t for t in records.tasks if t.split.startswith("torchhub")}


def test_a_read_takes_seconds(base: Path) -> None:
    started = time.perf_counter()
    apibench.read(base.parent)
    seconds = time.perf_counter() - started
    print(f"{seconds:.1f} s")
    assert seconds < 15, "1.5 s on an idle machine; others may be at work beside this test"

"""The real BFCL files, counted three ways: by the adapter, by a second parser here, and by SOURCE.md's table.

The parser below shares no code with the adapter. Numbers it is held against are read from the SOURCE.md beside the
files; none was copied from the adapter's output.
"""

from __future__ import annotations

import gzip
import json
import re
import time
import zipfile
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from toolshift.data.adapters import bfcl
from toolshift.data.records import Records, Task

pytestmark = pytest.mark.real

APART = ("irrelevance", "live_irrelevance", "live_relevance", "memory", "web_search")
MULTI_TURN = ("multi_turn_base", "multi_turn_long_context", "multi_turn_miss_func", "multi_turn_miss_param")


# ----------------------------------------------------------------------------------------------------- second parser


def lines(path: Path) -> list[Any]:
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return [json.loads(line) for line in data.decode().split("\n") if line.strip()]


@dataclass(frozen=True)
class Raw:
    """Everything the tests compare with, as plain Python values of the files."""

    entries: dict[str, list[Any]]  # category -> rows
    answers: dict[str, Any]  # entry id -> ground truth
    classes: dict[str, list[Any]]  # file stem -> functions

    @property
    def rows(self) -> list[tuple[str, Any]]:
        return [(category, row) for category in sorted(self.entries) for row in self.entries[category]]

    @property
    def functions(self) -> list[Any]:
        """Definitions inside single-turn entries, with repetitions."""
        return [function for _, row in self.rows for function in row.get("function", [])]

    @property
    def documented(self) -> list[Any]:
        return [function for stem in sorted(self.classes) for function in self.classes[stem]]

    def gold_names(self, category: str, row: Any) -> list[str]:
        truth = self.answers[row["id"]]
        if category in MULTI_TURN:
            return [call[: call.index("(")].strip() for turn in truth for call in turn]
        return [name for call in truth for name in call]


def text_of(row: Any) -> str:
    spoken = [m["content"].strip() for turn in row["question"] for m in turn if m["role"] == "user"]
    return "\n".join(words for words in spoken if words)


def key_of(function: Any) -> str:
    return json.dumps(function, sort_keys=True)


def read_raw(base: Path) -> Raw:
    entries, answers, classes = {}, {}, {}
    for path in sorted(base.glob("BFCL_v4_*")):
        category = path.name.removeprefix("BFCL_v4_").split(".")[0]
        if category != "format_sensitivity":
            entries[category] = lines(path)
    for path in sorted((base / "possible_answer").iterdir()):
        for row in lines(path):
            answers[row["id"]] = row["ground_truth"]
    for path in sorted((base / "multi_turn_func_doc").iterdir()):
        classes[path.name.split(".")[0]] = lines(path)
    return Raw(entries, answers, classes)


# --------------------------------------------------------------------------------------------------------- SOURCE.md


def number(text: str) -> int:
    return int(text.replace(",", ""))


def stated(source: str, pattern: str) -> list[int]:
    """The numbers of a sentence of SOURCE.md; white space in the pattern matches line breaks."""
    match = re.search(pattern.replace(" ", r"\s+"), source)
    assert match, f"SOURCE.md no longer says {pattern!r}"
    return [number(group) for group in match.groups()]


def stated_entries(source: str) -> dict[str, int]:
    """Category -> number of entries of the table; a cell may list several categories and their numbers."""
    found: dict[str, int] = {}
    for line in source.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("|") or not re.match(r"[\d,]+", cells[1]):
            continue
        names = [name.strip() for name in cells[0].split(" / ")]
        stem = names[0].rsplit("_", 1)[0]
        if names[0].startswith("multi_turn"):
            stem = "multi_turn"
        counts = [number(count) for count in re.findall(r"[\d,]+", cells[1])]
        for position, name in enumerate(names):
            full = f"{stem}{name}" if name.startswith("_") else name
            found[full] = counts[position] if len(counts) > 1 else counts[0]
    return found


# ----------------------------------------------------------------------------------------------------------- fixtures


@pytest.fixture(scope="module")
def base(data_root: Path) -> Path:
    base = data_root / "bfcl"
    for needed in ("SOURCE.md", "bfcl_eval/data/multi_turn_func_doc", "bfcl_eval/data/possible_answer"):
        if not (base / needed).exists():
            pytest.skip(f"{base / needed} does not exist: not the release this contract describes")
    return base


@pytest.fixture(scope="module")
def source(base: Path) -> str:
    return (base / "SOURCE.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def raw(base: Path) -> Raw:
    return read_raw(base / "bfcl_eval/data")


@pytest.fixture(scope="module")
def records(base: Path) -> Records:
    return bfcl.read(base.parent, strict=True)


def is_apart(category: str) -> bool:
    return category in APART


# --------------------------------------------------------------------------------------- the parser against SOURCE.md


def test_the_parser_finds_the_entries_of_source_md(raw: Raw, source: str) -> None:
    assert {category: len(rows) for category, rows in raw.entries.items()} == stated_entries(source)
    (total,) = stated(source, r"([\d,]+) entries, all ids unique")
    assert len({row["id"] for _, row in raw.rows}) == len(raw.rows) == total


def test_the_parser_finds_the_function_pool_of_source_md(raw: Raw, source: str) -> None:
    names, definitions, several = stated(
        source, r"([\d,]+) function names, ([\d,]+) distinct definitions; ([\d,]+) names have more than one"
    )
    by_name = defaultdict(set)
    for function in raw.functions:
        by_name[function["name"]].add(key_of(function))
    assert len(by_name) == names
    assert len({key for keys in by_name.values() for key in keys}) == definitions
    assert sum(len(keys) > 1 for keys in by_name.values()) == several
    files, functions = stated(source, r"Multi-turn docs: ([\d,]+) files, ([\d,]+) functions")
    assert len(raw.classes) == files
    assert len(raw.documented) == functions


# --------------------------------------------------------------------------------------- the adapter against the parser


def test_every_row_was_read_and_none_dropped(records: Records, raw: Raw) -> None:
    sections = records.report.sections
    ranked = [(category, row) for category, row in raw.rows if not is_apart(category)]
    assert records.report.dropped == {}
    assert records.report.rows_read == records.report.records
    assert sections["entries"].rows_read == len(raw.rows)
    assert sections["answers"].rows_read == len(ranked)
    assert sections["functions"].rows_read == len(raw.functions)
    assert sections["class_functions"].rows_read == len(raw.documented)
    assert sections["gold_calls"].rows_read == sum(len(raw.gold_names(category, row)) for category, row in ranked)


def test_capabilities_are_the_distinct_definitions(records: Records, raw: Raw) -> None:
    distinct = {key_of(function): function["name"] for function in [*raw.functions, *raw.documented]}
    assert len(records.library.capabilities) == len(records.library.endpoints) == len(distinct)
    assert Counter(c.name for c in records.library.capabilities) == Counter(distinct.values())
    assert records.report.notes["function_names"] == len(set(distinct.values()))


def test_domains_are_suites_without_a_shared_definition_and_classes(records: Records, raw: Raw) -> None:
    languages = {"simple_java": "java", "simple_javascript": "javascript"}
    pools: dict[str, set[str]] = defaultdict(set)
    for category, row in raw.rows:
        suite = languages.get(category, "live" if category.startswith("live") else "python")
        pools[suite].update(key_of(function) for function in row.get("function", []))
    assert sum(len(pool) for pool in pools.values()) == len(set().union(*pools.values())), "the suites overlap"
    found = Counter(c.domain for c in records.library.capabilities)
    assert {suite: found.pop(suite) for suite in sorted(pools)} == {s: len(p) for s, p in sorted(pools.items())}
    assert sorted(found.values()) == sorted(len(functions) for functions in raw.classes.values())


def test_tasks_are_the_distinct_texts_with_their_gold_names(records: Records, raw: Raw) -> None:
    expected: dict[str, set[str]] = defaultdict(set)
    ordered: dict[str, list[str]] = {}
    rows = 0
    for category, row in raw.rows:
        if not is_apart(category):
            rows += 1
            expected[text_of(row)].update(raw.gold_names(category, row))
            if category in MULTI_TURN:
                ordered.setdefault(text_of(row), raw.gold_names(category, row))
    names = {c.capability_id: c.name for c in records.library.capabilities}
    assert {t.text: {names[c] for c in t.gold_capability_ids} for t in records.tasks} == expected
    calls = {t.text: [names[c.rpartition("/")[0]] for c in t.calls] for t in records.tasks if t.ordered}
    assert calls == ordered
    assert records.report.notes["merged_duplicate_text"] == rows - len(expected)


def test_gold_definitions_are_those_of_the_entry(records: Records, raw: Raw) -> None:
    """Single-turn gold, as definitions: descriptions tell apart what a name alone does not."""
    expected: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for category, row in raw.rows:
        if not is_apart(category) and category not in MULTI_TURN:
            for function in row["function"]:
                if function["name"] in raw.gold_names(category, row):
                    expected[text_of(row)].add((function["name"], function["description"].strip()))
    known = {c.capability_id: (c.name, c.description) for c in records.library.capabilities}
    found = {t.text: {known[c] for c in t.gold_capability_ids} for t in records.tasks if not t.ordered}
    assert found == expected


def test_candidates_hold_the_gold_and_come_from_the_entry(records: Records, raw: Raw) -> None:
    listed: dict[str, set[str]] = defaultdict(set)
    for category, row in raw.rows:
        if not is_apart(category):
            listed[text_of(row)].update(function["name"] for function in row.get("function", []))
    names = {c.capability_id: c.name for c in records.library.capabilities}
    for task in records.tasks:
        assert set(task.gold_capability_ids) <= set(task.given_candidate_ids)
        if not task.ordered:
            assert {names[c] for c in task.given_candidate_ids} == listed[task.text]


def test_tasks_apart_are_those_without_released_gold(records: Records, raw: Raw) -> None:
    def texts(*categories: str) -> set[str]:
        return {text_of(row) for category in categories for row in raw.entries[category]}

    def found(reason: str) -> set[str]:
        return {task.text for task in records.apart if task.no_gold == reason}

    assert found("irrelevance") == texts("irrelevance", "live_irrelevance")
    assert found("not_annotated") == texts("live_relevance", "memory", "web_search")
    assert all(task.gold_capability_ids == () for task in records.apart)


def test_arguments_are_the_properties_of_the_definitions(records: Records, raw: Raw) -> None:
    """Top-level argument names and which of them are required, over all definitions of each name."""
    expected = Counter(
        (f["name"], tuple(f["parameters"]["properties"]), tuple(sorted(f["parameters"].get("required", []))))
        for f in {key_of(f): f for f in [*raw.functions, *raw.documented]}.values()
    )
    found: Counter[tuple[str, tuple[str, ...], tuple[str, ...]]] = Counter()
    for endpoint in records.library.endpoints:
        top = [a for a in endpoint.arguments if "." not in a.name]
        needed = sorted(a.name for a in top if a.required)
        found[endpoint.operation, tuple(a.name for a in top), tuple(needed)] += 1
    assert found == expected


def test_every_type_word_but_any_has_a_coarse_type(records: Records) -> None:
    words = {a.raw_type for e in records.library.endpoints for a in e.arguments if a.type == "unknown"}
    assert words <= {"any", ""}


# ------------------------------------------------------------------------------------------------- wheel and real cost


def test_a_wheel_of_the_same_files_gives_the_same_records(base: Path, records: Records, tmp_path: Path) -> None:
    (tmp_path / "bfcl").mkdir()
    with zipfile.ZipFile(tmp_path / "bfcl" / "bfcl_eval-0-py3-none-any.whl", "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted((base / "bfcl_eval").rglob("*")):
            if path.is_file():
                archive.write(path, path.relative_to(base).as_posix())
    started = time.perf_counter()
    packed = bfcl.read(tmp_path, strict=True)
    print(f"read from a wheel in {time.perf_counter() - started:.1f} s")
    assert packed == records
    assert time.perf_counter() - started < 30


def test_ids_do_not_depend_on_the_categories_read(base: Path, records: Records) -> None:
    part = bfcl.read(base.parent, options=bfcl.Options(categories=("live_multiple", "multiple")), strict=True)
    assert {t.task_id for t in part.tasks} <= {t.task_id for t in records.tasks}
    whole = {c.capability_id: c for c in records.library.capabilities}
    assert all(whole[c.capability_id] == c for c in part.library.capabilities)


def test_no_task_has_two_rows(records: Records) -> None:
    tasks: list[Task] = [*records.tasks, *records.apart]
    assert len({t.task_id for t in tasks}) == len(tasks)

"""Sources that reuse an adapter's records, and API-Bank's dialogues."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from toolshift.data.errors import AdapterError
from toolshift.data.records import Capability, Endpoint, Library, RecordError, Records, Task
from toolshift.data.rows import report_of
from toolshift.data.tally import Tally
from toolshift.data.trajectories import AUTHORS, PAPER, Rules, Trajectories, read_trajectories, source_names


def library(dataset: str, *names: str) -> Library:
    ids = sorted(f"{dataset}/{name}" for name in names)
    return Library(
        tuple(Capability(capability_id=i, dataset=dataset, name=i, domain=i[-1].upper()) for i in ids),
        tuple(Endpoint(endpoint_id=f"{i}/call", capability_id=i, operation="call") for i in ids),
    )


def task(dataset: str, local: str, calls: str, *, split: str, ordered: bool = True) -> Task:
    ids = tuple(f"{dataset}/{name}/call" for name in calls)
    gold = tuple(sorted(set(ids)))
    return Task(
        task_id=f"{dataset}/{local}",
        dataset=dataset,
        domain="",
        text=local,
        gold_capability_ids=tuple(e.removesuffix("/call") for e in gold),
        gold_endpoint_ids=gold,
        ordered=ordered,
        calls=ids if ordered else (),
        split=split,
    )


def records(dataset: str, *tasks: Task) -> Records:
    tools = library(dataset, *"abcd")
    found = tuple(sorted(tasks, key=lambda t: t.task_id))
    return Records(dataset=dataset, library=tools, tasks=found, report=report_of(Tally(), tools, found))


def calls_of(result: Trajectories) -> list[str]:
    return ["".join(call.split("/")[1] for call in t.calls) for t in result.tasks]


def test_parts_of_apibank_are_kept_apart(tmp_path: Path) -> None:
    given = records(
        "apibank",
        task("apibank", "1", "aabab", split="level-3"),
        task("apibank", "2", "cc", split="level-3+level-3-train"),
        task("apibank", "3", "d", split="level-3-train"),
        task("apibank", "4", "d", split="level-1", ordered=False),
    )

    def read(name: str, rules: Rules) -> Trajectories:
        return read_trajectories(tmp_path, names=[name], rules=rules, records={"apibank": given})

    assert calls_of(read("apibank/level3", PAPER)) == ["ab", "c"]
    authors = read("apibank/level3", AUTHORS)
    assert calls_of(authors) == ["abab", "c"]  # only what repeats the call before it is dropped
    assert authors.report.sections["apibank/level3:calls"].dropped == {"repeated": 2}
    assert calls_of(read("apibank/level3_train", PAPER)) == ["d"]


def test_bfcl_keeps_repeats_in_the_authors_mode(tmp_path: Path) -> None:
    given = records(
        "bfcl",
        task("bfcl", "1", "aab", split="multi_turn_base+multi_turn_miss_func"),
        task("bfcl", "2", "a", split="simple", ordered=False),
        task("bfcl", "3", "a", split="multi_turn_base", ordered=False),
    )
    result = read_trajectories(tmp_path, names=["bfcl/multi_turn"], rules=AUTHORS, records={"bfcl": given})
    assert calls_of(result) == ["aab"]
    section = result.report.sections["bfcl/multi_turn:trajectories"]
    assert (section.rows_read, section.dropped) == (2, {"unordered": 1})


def test_several_datasets_make_one_library(tmp_path: Path) -> None:
    parts = {
        "bfcl": records("bfcl", task("bfcl", "1", "ab", split="multi_turn_base")),
        "trajectbench": records("trajectbench", task("trajectbench", "1", "cd", split="traj_query")),
    }
    names = ["trajectbench/sequential", "bfcl/multi_turn"]
    result = read_trajectories(tmp_path, names=names, records=parts)
    assert result.origin == ("bfcl/multi_turn", "trajectbench/sequential")
    assert len(result.library.endpoints) == 8
    same = read_trajectories(tmp_path, names=names[::-1], records=parts)
    assert (same.tasks, same.report) == (result.tasks, result.report)


def test_records_without_the_part_are_an_error(tmp_path: Path) -> None:
    given = records("bfcl", task("bfcl", "2", "a", split="simple"))
    with pytest.raises(AdapterError, match="hold no such task"):
        read_trajectories(tmp_path, names=["bfcl/multi_turn"], records={"bfcl": given})


def say(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "text": text}


def call(name: str, exception: str | None = None) -> dict[str, Any]:
    return {"role": "API", "api_name": name, "param_dict": {}, "result": {"exception": exception, "output": ""}}


def test_dialogues_keep_the_order_of_their_calls(tmp_path: Path) -> None:
    folder = tmp_path / "apibank" / "lv1-lv2-samples" / "level-1-given-desc"
    folder.mkdir(parents=True)

    def put(name: str, *turns: Any) -> None:
        text = "\n".join(turn if isinstance(turn, str) else json.dumps(turn) for turn in turns)
        (folder / f"{name}.jsonl").write_text(text, encoding="utf-8")

    put(
        "two",
        say("User", "An  alarm, please."),
        call("ToolSearcher"),
        call("b"),
        say("AI", "When?"),
        say("User", "At 7."),
        call("a", "no token"),
        call("a"),
        call("b"),
        call("z"),
    )
    put("silent", call("a"))
    put("none", say("User", "Hello."))
    put("broken", say("User", "Hello."), "{")
    tools = library("apibank", *"ab")

    def read(rules: Rules) -> Trajectories:
        return read_trajectories(tmp_path, names=["apibank/dialogues"], rules=rules, library=tools)

    result = read(PAPER)
    assert calls_of(result) == ["ba"]
    only = result.tasks[0]
    assert (only.task_id, only.text, only.split) == (
        "apibank/dialogues/1/two",
        "An alarm, please.\nAt 7.",
        "dialogues-1",
    )
    assert only.domain == "A"  # two calls of each: the first name
    sections = result.report.sections
    assert sections["apibank/dialogues:trajectories"].dropped == {
        "empty_query": 1,
        "malformed_json": 1,
        "no_call_left": 1,
    }
    assert calls_of(read(AUTHORS)) == ["bab"]
    clean = read(Rules(deduplicate=False, error_free=True))
    assert clean.report.sections["apibank/dialogues:calls"].dropped == {"error": 1, "undocumented_name": 1}


def test_names_of_sources() -> None:
    assert source_names() == (
        "apibank/dialogues",
        "apibank/level3",
        "apibank/level3_train",
        "bfcl/multi_turn",
        "toolbench/answers",
        "toolbench/pass_rate",
        "toolbench/tooleval",
        "toolbench/toolllama",
        "trajectbench/sequential",
    )


def test_trajectories_check_themselves() -> None:
    tools = library("d", *"ab")
    good, late = task("d", "1", "ab", split=""), task("d", "2", "b", split="")
    report = report_of(Tally(), tools, (good,))

    def make(*tasks: Task, origins: int) -> Trajectories:
        return Trajectories(library=tools, tasks=tasks, origin=("d/x",) * origins, report=report)

    assert len(make(good, late, origins=2)) == 2
    with pytest.raises(RecordError, match="2 trajectories and 1 origins"):
        make(good, late, origins=1)
    with pytest.raises(RecordError, match="sorted and unique"):
        make(late, good, origins=2)
    with pytest.raises(RecordError, match="d/c/call is not in the library"):
        make(task("d", "1", "ac", split=""), origins=1)
    with pytest.raises(RecordError, match="no ordered call"):
        make(task("d", "1", "a", split="", ordered=False), origins=1)

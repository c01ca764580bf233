"""Real trajectories, counted by the readers, by a second parser here, and by SOURCE.md's table.

The parser below shares no code with the readers. Numbers it is held against are read from the SOURCE.md beside the
files; none was copied from a reader's output.
"""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from toolshift.data.adapters import apibank, toolbench
from toolshift.data.records import Library
from toolshift.data.trajectories import AUTHORS, PAPER, Rules, Trajectories, read_trajectories

pytestmark = pytest.mark.real

NAMES = ("toolbench/answers", "toolbench/pass_rate", "toolbench/tooleval")
Lengths = Counter[int]


# ----------------------------------------------------------------------------------------------------- second parser


def load(path: Path) -> Any:
    return json.loads(path.read_bytes())


def files(root: Path, pattern: str) -> list[Path]:
    found = sorted((root / "toolbench").glob(pattern))
    assert found, pattern
    return found


def actions(path: Path) -> list[tuple[str, bool]]:
    """(name, whether the agent was given it) of every call but Finish in a won answer file, from its message log where
    the release keeps one: another copy of the path than the readers use."""
    answer = load(path)["answer_generation"]
    given = {f["name"] for f in answer["function"]}
    said = [m["function_call"]["name"] for m in answer["train_messages"][-1] if m.get("function_call")]
    return [(name, name in given) for name in said if name != "Finish"]


def won(path: Path) -> bool:
    return load(path)["win"]


def steps(text: str) -> Iterator[tuple[str, str]]:
    """(name, rest) of the numbered lines of a pass-rate row."""
    for line in text.split("\nStep "):
        body = line.removeprefix("Step ").partition(": ")[2]
        yield body.removeprefix("{'name': ")[1:].split("'", 1)[0], body


def messages(node: Any) -> Iterator[str]:
    while True:
        if node["role"] == "tool":
            yield node["message"]
        if not node["next"]:
            return
        node = node["next"][0]


def table(root: Path, row: str) -> str:
    """The line of SOURCE.md's table of trajectories that begins with a name."""
    text = (root / "toolbench" / "SOURCE.md").read_text(encoding="utf-8")
    return next(line for line in text.partition("\nTrajectories\n")[2].splitlines() if line.startswith(f"| {row}"))


def lengths(text: str) -> Lengths:
    """ "1:4 2:30" as a counter."""
    return Counter({int(k): int(v) for k, v in re.findall(r"(\d+):(\d+)", text)})


def of_tasks(trajectories: Trajectories, origin: str) -> Lengths:
    pairs = zip(trajectories.tasks, trajectories.origin, strict=True)
    return Counter(len(task.calls) for task, name in pairs if name == origin)


# ---------------------------------------------------------------------------------------------------------- fixtures


@pytest.fixture(scope="module")
def real_root(data_root: Path) -> Path:
    if not (data_root / "toolbench" / "answer").is_dir():
        pytest.skip(f"{data_root} holds no toolbench/answer")
    return data_root


@pytest.fixture(scope="module")
def library(real_root: Path) -> Library:
    return toolbench.read(real_root).library


@pytest.fixture(scope="module")
def kept(real_root: Path, library: Library) -> Trajectories:
    return read_trajectories(real_root, names=NAMES, rules=AUTHORS, library=library)


# -------------------------------------------------------------------------------------------------------------- tests


def test_successes_are_those_of_the_table(real_root: Path, kept: Trajectories) -> None:
    sections = kept.report.sections
    for row, name in (
        ("pass_rate_results/", "steptool_dfs"),
        ("tooleval ", "gpt-3.5-turbo_CoT"),
        ("answer/", "answer"),
        ("data_example/answer", "data_example"),
    ):
        line = table(real_root, row)
        total = int(re.findall(r"\| (\d+)[;\s]", line)[0])
        section = sections[f"toolbench/{name}:trajectories"]
        assert section.rows_read == total
        assert section.rows_read == section.records + sum(section.dropped.values())
        if name == "steptool_dfs":
            expected = int(re.findall(r"(\d+) judged Solved", line)[0])
        elif name == "gpt-3.5-turbo_CoT":
            expected = int(re.findall(r"(\d+) end in give_answer", line)[0])
        elif name == "answer":
            expected = sum(won(path) for path in files(real_root, "answer/*/*.json"))
        else:
            expected = int(re.findall(r"(\d+) win", line)[0])
        assert section.records + section.dropped.get("no_call_left", 0) == expected


def test_lengths_of_error_free_solved_runs_are_those_of_the_table(real_root: Path, library: Library) -> None:
    rules = Rules(deduplicate=False, error_free=True)
    found = read_trajectories(real_root, names=["toolbench/pass_rate"], rules=rules, library=library)
    expected = lengths(table(real_root, "pass_rate_results/").split("error-free calls of the")[1])
    # The table counts a name that the agent was not given; the reader drops it, which shortens a trajectory.
    shortened = 0
    for path in files(real_root, "pass_rate_results/*/*.json"):
        for row in load(path).values():
            if sum(v.endswith(".Solved") for v in row["is_solved"].values()) < 2:
                continue
            free = [n for n, body in steps(row["answer_steps"]) if '"error": ""' in body and n != "Finish"]
            shortened += sum(n not in row["tool_names"] for n in free)
    assert expected.total() == of_tasks(found, "toolbench/steptool_dfs").total()
    calls = sum(n * count for n, count in expected.items())
    assert calls - sum(n * count for n, count in of_tasks(found, "toolbench/steptool_dfs").items()) == shortened


def test_answers_hold_the_calls_of_their_message_logs(real_root: Path, kept: Trajectories) -> None:
    pairs = zip(kept.tasks, kept.origin, strict=True)
    calls = {task.source: task.calls for task, origin in pairs if origin == "toolbench/answer"}
    different = 0
    for path in files(real_root, "answer/*/*.json"):
        if not won(path):
            continue
        expected = [name for name, given in actions(path) if given]
        found = calls.pop(path.relative_to(real_root).as_posix())
        different += len(found) != len(expected)
    assert not calls
    assert different == 0


def test_resolved_names_agree_with_their_endpoints(real_root: Path, kept: Trajectories) -> None:
    """Every kept call of ToolEval's chains: tool and API of the endpoint, squeezed to letters and digits, are those of
    the function name."""
    operations = {e.endpoint_id: e.operation for e in kept.library.endpoints}

    def squeezed(text: str) -> str:
        return "".join(c for c in text.lower() if c.isascii() and c.isalnum())

    by_source = {task.source: task for task in kept.tasks}
    checked = 0
    for path in files(real_root, "tooleval/results/*/*/*.json"):
        for key, row in load(path).items():
            task = by_source.get(f"{path.relative_to(real_root).as_posix()}#{key}")
            if task is None:
                continue
            given = {f["name"] for f in row["available_tools"]}
            said = [m.split("'")[3] for m in messages(row["answer"]["answer_details"][0])]
            names = [n for n in said if n in given and n != "Finish"]
            assert len(names) == len(task.calls)
            for name, endpoint in zip(names, task.calls, strict=True):
                tool = endpoint.split("/")[2]
                assert squeezed(name).endswith(squeezed(tool)[-40:])
                api = squeezed(operations[endpoint])[-10:]
                assert api in squeezed(name) or api in squeezed(endpoint)
                checked += 1
    assert checked > 500


def test_level_three_has_the_lengths_of_the_authors_records(real_root: Path) -> None:
    """Search calls left out and consecutive repeats removed, counted from the file."""
    rows = load(real_root / "apibank" / "test-data" / "level-3.json")
    expected: Lengths = Counter()
    for row in rows:
        names = [c["api_name"] for c in row["apis"] if c["api_name"] != "ToolSearcher"]
        expected[sum(i == 0 or n != names[i - 1] for i, n in enumerate(names))] += 1
    found = read_trajectories(
        real_root, names=["apibank/level3"], rules=AUTHORS, records={"apibank": apibank.read(real_root)}
    )
    assert of_tasks(found, "apibank/level3") == expected


def test_dialogues_have_a_trajectory_per_file_with_a_call(real_root: Path) -> None:
    found = read_trajectories(real_root, names=["apibank/dialogues"], rules=PAPER)
    expected = 0
    for path in sorted((real_root / "apibank" / "lv1-lv2-samples").rglob("*.jsonl")):
        turns = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
        asked = any(t["role"] == "User" for t in turns)
        expected += asked and any(t["role"] == "API" and t["api_name"] != "ToolSearcher" for t in turns)
    assert len(found) == expected


def test_multi_turn_calls_are_those_of_the_answer_files(real_root: Path) -> None:
    found = read_trajectories(real_root, names=["bfcl/multi_turn"], rules=AUTHORS)
    checked = 0
    for path in sorted((real_root / "bfcl").rglob("possible_answer/*multi_turn_base*")):
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
        for number, row in enumerate(lines, start=1):
            said = [c for turn in row["ground_truth"] for c in turn]
            names = [ast.unparse(ast.parse(c, mode="eval").body.func).rpartition(".")[2].lower() for c in said]
            task = next((t for t in found.tasks if t.source.endswith(f"multi_turn_base.json#{number}")), None)
            if task is not None:
                assert [call.rpartition("/")[2].lower() for call in task.calls] == names
                checked += 1
    assert checked > 100


def test_trajectbench_keeps_every_ordered_task(real_root: Path) -> None:
    found = read_trajectories(real_root, names=["trajectbench/sequential"], rules=AUTHORS)
    section = found.report.sections["trajectbench/sequential:trajectories"]
    assert section.records == len(found) == section.rows_read - section.dropped.get("unordered", 0)
    assert all(len(task.calls) > 1 for task in found.tasks)

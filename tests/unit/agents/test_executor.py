"""Guards and executors: what is not carried out has a reason."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from toolshift.agents.executor import Cached, Dispatcher, Done, DryRun, Functions, Refusal
from toolshift.agents.outcomes import AgentError
from toolshift.agents.tools import Tool, Toolbox


@pytest.fixture
def tool(toolbox: Toolbox) -> Tool:
    return toolbox.by_name["rope_length"]


def reason(found: Done | Refusal) -> str:
    assert isinstance(found, Refusal)
    return found.reason


def test_guards_stand_before_the_call(tool: Tool) -> None:
    called: list[Any] = []
    executor = Functions({"rope_length": lambda depth: called.append(depth)})
    assert (
        reason(Dispatcher(executor=executor, allow=frozenset({"other"})).dispatch(tool, {"depth": 1})) == "not_allowed"
    )
    refused = Dispatcher(executor=executor, confirm=lambda t, a: (t.name, dict(a)) != ("rope_length", {"depth": 1}))
    assert reason(refused.dispatch(tool, {"depth": 1})) == "not_confirmed"
    assert called == []
    assert refused.dispatch(tool, {"depth": 2}) == Done(result="null")
    assert called == [2]


def test_a_call_without_end_times_out(tool: Tool) -> None:
    end = threading.Event()
    executor = Functions({"rope_length": lambda depth: end.wait(30)})
    assert reason(Dispatcher(executor=executor, timeout_s=0.05).dispatch(tool, {"depth": 1})) == "timeout"
    end.set()


def test_errors_and_missing_functions_are_typed(tool: Tool) -> None:
    assert reason(Dispatcher(executor=Functions({})).dispatch(tool, {"depth": 1})) == "no_function"
    found = Dispatcher(executor=Functions({"rope_length": lambda depth: 1 / depth})).dispatch(tool, {"depth": 0})
    assert found == Refusal(reason="tool_error", detail="ZeroDivisionError: division by zero")


def test_results_are_recorded_once_and_replayed_by_canonical_arguments(tool: Tool, tmp_path: Path) -> None:
    path, called = tmp_path / "results.jsonl", []

    def rope(**arguments: Any) -> Any:
        called.append(arguments)
        return 1 / arguments["depth"]

    live = Cached(path, behind=Functions({"rope_length": rope}))
    for depth in (2, 2, 0):
        Dispatcher(executor=live).dispatch(tool, {"depth": depth, "chain": "é"})
    assert len(called) == 2
    again = Cached(path)
    assert again.execute(tool, {"chain": "é", "depth": 2}) == Done(result="0.5")
    assert reason(again.execute(tool, {"chain": "é", "depth": 0})) == "tool_error"
    assert reason(again.execute(tool, {"depth": 9})) == "not_recorded"
    assert len(path.read_text().splitlines()) == 2


def test_a_dry_run_calls_and_records_nothing(tool: Tool, tmp_path: Path) -> None:
    found = Cached(tmp_path / "r.jsonl", behind=DryRun()).execute(tool, {"depth": 2})
    assert found == Done(result='(dry run) rope_length({"depth":2})', dry=True)
    assert not (tmp_path / "r.jsonl").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[]\n", ":1: expected"),
        ("no json\n", ":1: expected"),
        ('{"tool": "a", "result": 1}\n{"tool": "a", "result": 2}\n', ":2: another result"),
    ],
)
def test_damaged_records_are_named(content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "r.jsonl").write_text(content)
    with pytest.raises(AgentError, match=message):
        Cached(tmp_path / "r.jsonl")
    with pytest.raises(AgentError, match="no recorded results"):
        Cached(tmp_path / "absent.jsonl")

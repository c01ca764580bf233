"""The whole loop against a local OpenAI-compatible server: every intent ends in one typed outcome."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from toolshift.agents.asking import PLANNER, SYNTHESISER, Model
from toolshift.agents.constraint import EndpointWriter
from toolshift.agents.executor import Dispatcher, Executor, Functions
from toolshift.agents.loop import Agent, Episode
from toolshift.agents.outcomes import Abstained, Failed, Invalid, Selected
from toolshift.agents.planning import ModelPlanner, ModelSynthesiser, split
from toolshift.agents.search import FrozenTools, ToolSearch
from toolshift.agents.standins import PlannerStandin, SynthesiserStandin, WriterStandin
from toolshift.agents.tools import Tool, Toolbox
from toolshift.text.hashing import Hashing

TIDE, ROPE = "Find the time of low water at the harbour Kiel", "Compute the length of rope for depth 4"
Reply = tuple[int, str, str]


def script(*, plan: str, arguments: Reply = (200, "{}", "stop")) -> Callable[[dict[str, Any]], Reply]:
    """Answers by what is asked for."""

    def answer(body: dict[str, Any]) -> Reply:
        system = body["messages"][0]["content"]
        if system == PLANNER:
            return 200, plan, "stop"
        return (200, "All done.", "stop") if system == SYNTHESISER else arguments

    return answer


def run(model: Model, search: ToolSearch, executor: Executor, *, min_score: float | None = None) -> Episode:
    agent = Agent(
        planner=ModelPlanner(model),
        search=search,
        writer=EndpointWriter(model=model),
        dispatcher=Dispatcher(executor=executor, timeout_s=5.0),
        synthesiser=ModelSynthesiser(model),
        min_score=min_score,
    )
    return agent.run("low water in Kiel, please")


def low_water(harbour: str, days: int = 1) -> dict[str, Any]:
    return {"harbour": harbour, "low": ["03:10"] * days}


def broken(**_: Any) -> str:
    raise RuntimeError("the gauge is down")


def test_a_call_is_planned_written_carried_out_and_told(server: Any, ask: Any, search: ToolSearch) -> None:
    server.script = script(plan=f"- {TIDE}", arguments=(200, '{"harbour": "Kiel", "days": null}', "stop"))
    episode = run(ask(), search, Functions({"tide_table": low_water}))
    (found,) = episode.outcomes
    assert isinstance(found, Selected)
    assert (found.tool, found.arguments) == ("tide_table", {"harbour": "Kiel"})
    assert json.loads(found.result) == {"harbour": "Kiel", "low": ["03:10"]}
    assert episode.answer == "All done."
    assert (episode.usage.prompt_tokens, episode.usage.completion_tokens) == (21, 9)
    planned, written, told = server.asked
    assert "tide_table" not in json.dumps(planned)  # no tool text before a tool is chosen
    assert written["response_format"]["json_schema"]["strict"] is True
    assert "rope_length" not in json.dumps(written)
    assert "03:10" in told["messages"][1]["content"]


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ((200, "I would rather not", "stop"), "not_json"),
        ((200, '{"harbour": 3}', "stop"), "schema"),
        ((200, '{"harbour": "Ki', "length"), "cut"),
        ((429, "slow down", "stop"), "no_answer"),
        ((400, "no such field", "stop"), "no_answer"),
    ],
)
def test_a_wrong_call_is_invalid_and_never_an_abstention(
    server: Any, ask: Any, search: ToolSearch, reply: Reply, reason: str
) -> None:
    server.script = script(plan=TIDE, arguments=reply)
    episode = run(ask(), search, Functions({"tide_table": low_water}))
    (found,) = episode.outcomes
    assert isinstance(found, Invalid)
    assert (found.reason, found.tool) == (reason, "tide_table")
    assert episode.counts == {"selected": 0, "abstained": 0, "invalid": 1, "error": 0}
    assert episode.answer == "All done."
    if reply[0] == 429:
        assert "rate_limited" in found.detail
        assert len(server.asked) == 4  # plan, two attempts, answer


def test_one_broken_tool_does_not_end_the_others(server: Any, ask: Any, search: ToolSearch) -> None:
    server.script = lambda body: (
        script(plan=f"1. {TIDE}\n2. {ROPE}")(body)
        if body["messages"][0]["content"] in (PLANNER, SYNTHESISER)
        else (200, '{"harbour": "Kiel"}' if "harbour" in json.dumps(body) else '{"depth": 4}', "stop")
    )
    episode = run(ask(), search, Functions({"tide_table": broken, "rope_length": lambda depth: depth * 5}))
    first, second = episode.outcomes
    assert isinstance(first, Failed)
    assert (first.reason, first.detail) == ("tool_error", "RuntimeError: the gauge is down")
    assert isinstance(second, Invalid | Selected)
    assert second.tool == "rope_length"


def test_abstentions_are_decisions(server: Any, ask: Any, search: ToolSearch) -> None:
    server.script = script(plan="none.")
    (found,) = run(ask(), search, Functions({})).outcomes
    assert isinstance(found, Abstained)
    assert found.reason == "nothing_asked"
    server.script = script(plan=TIDE)
    (found,) = run(ask(), search, Functions({}), min_score=0.999).outcomes
    assert isinstance(found, Abstained)
    assert (found.reason, found.nearest) == ("below_threshold", "tide_table")
    (found,) = run(ask(), ToolSearch(FrozenTools(Hashing())), Functions({})).outcomes
    assert isinstance(found, Abstained)
    assert found.reason == "empty_registry"


def test_a_plan_without_answer_is_invalid(server: Any, ask: Any, search: ToolSearch) -> None:
    server.script = lambda _: (500, "out of order", "stop")
    episode = run(ask(), search, Functions({}))
    (found,) = episode.outcomes
    assert isinstance(found, Invalid)
    assert found.reason == "no_answer"
    assert "server_error" in episode.answer_failed
    assert "Not done" in episode.answer


def test_replay_gives_the_same_episode_without_the_server(server: Any, ask: Any, search: ToolSearch) -> None:
    server.script = script(plan=TIDE, arguments=(200, '{"harbour": "Kiel", "days": 2}', "stop"))
    recorded = run(ask("record"), search, Functions({"tide_table": low_water}))
    count = len(server.asked)
    server.script = script(plan="another plan")
    replayed = run(ask("replay"), search, Functions({"tide_table": low_water}))
    assert replayed.outcomes == recorded.outcomes
    assert replayed.answer == recorded.answer
    assert len(server.asked) == count


def test_the_stand_ins_need_no_model(search: ToolSearch) -> None:
    agent = Agent(
        planner=PlannerStandin(),
        search=search,
        writer=WriterStandin(),
        dispatcher=Dispatcher(executor=Functions({"tide_table": low_water, "rope_length": lambda depth: depth * 5})),
        synthesiser=SynthesiserStandin(),
    )
    episode = agent.run(f'Find the time of low water at the harbour "Kiel". {ROPE}.')
    assert [o.kind for o in episode.outcomes] == ["selected", "selected"]
    calls = [(o.tool, dict(o.arguments)) for o in episode.outcomes if isinstance(o, Selected)]
    assert calls == [("tide_table", {"harbour": "Kiel"}), ("rope_length", {"depth": 4})]
    (missing,) = agent.run("compute the length of rope for an anchorage").outcomes
    assert isinstance(missing, Invalid)
    assert missing.reason == "missing_argument"


def test_a_new_tool_is_found_at_once_and_a_removed_one_is_not(search: ToolSearch, toolbox: Toolbox) -> None:
    old = toolbox.by_name["rope_length"]
    new = Tool(name="rope_two", endpoint=old.endpoint, capability=old.capability, schema=old.schema)
    search.add([new])
    assert [hit.tool.name for hit in search.search([ROPE], k=2)[0]] == ["rope_length", "rope_two"]
    search.remove(["rope_length"])
    assert search.search([ROPE], k=1)[0][0].tool.name == "rope_two"
    search.remove(["rope_two", "tide_table", "list_harbours"])
    assert search.search([ROPE], k=1) == [[]]


@pytest.mark.parametrize(
    ("plan", "intents"),
    [("NONE", ()), ("- none.", ()), ("1. a b\n2. c d\n1. a b", ("a b", "c d")), ("none of it, find x", None)],
)
def test_split(plan: str, intents: tuple[str, ...] | None) -> None:
    assert split(plan) == ((plan,) if intents is None else intents)

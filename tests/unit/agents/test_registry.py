"""The registry in the prompt: drawing, asking, counting."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from toolshift.agents.outcomes import AgentError
from toolshift.agents.registry import Chooser, EstimatedTokens, Registries, prompt_cost, read_choice, tool_line
from toolshift.agents.tools import Toolbox
from toolshift.llm.outcomes import Answer

NAMES = [f"tool-{i}" for i in range(300)]


def test_registries_grow_by_adding_and_hold_the_gold_tool_anywhere() -> None:
    found = Registries(NAMES)
    places = []
    for query in (f"q{i}" for i in range(60)):
        small, large = found.rows(query, [7], size=10), found.rows(query, [7], size=50)
        assert set(small) <= set(large)
        assert len(set(large)) == 50
        places.append(int(np.flatnonzero(small == 7)[0]))
    assert set(places) == set(range(10))
    assert 7 not in found.rows("q", [7], size=50, with_gold=False)
    assert len(found.rows("q", [7], size=900)) == 300
    assert len(found.rows("q", [7], size=900, with_gold=False)) == 299
    with pytest.raises(AgentError):
        found.rows("q", [1, 2], size=1)


@pytest.mark.parametrize(
    ("text", "kind", "reason", "tools"),
    [
        ('{"tools": ["a", "b", "a"]}', "selected", "", ("a", "b")),
        ('```json\n{"tools": ["b"]}\n```', "selected", "", ("b",)),
        ('{"tools": ["a", "made up"]}', "selected", "", ("a", "made up")),
        ('{"tools": []}', "abstained", "said_so", ()),
        ('{"tools": ["made up", "a"]}', "invalid", "unknown_tool", ()),
        ('{"tools": "a"}', "invalid", "not_json", ()),
        ("a", "invalid", "not_json", ()),
        ("{", "invalid", "not_json", ()),
    ],
)
def test_choices(text: str, kind: str, reason: str, tools: tuple[str, ...]) -> None:
    found = read_choice(Answer(text=text), known={"a", "b"})
    assert (found.kind, found.reason, found.tools) == (kind, reason, tools)
    assert found.hit(["b"], k=5) == ("b" in tools)
    assert not found.hit(["b"], k=1) or tools[0] == "b"


def test_a_chooser_reads_the_registry_and_is_timed_in_live_mode_alone(server: Any, ask: Any, toolbox: Toolbox) -> None:
    server.script = lambda _: (200, '{"tools": ["tide_table"]}', "stop")
    clock = iter((1.0, 3.5))
    found = Chooser(model=ask("live"), now=lambda: next(clock)).choose("low water", toolbox.tools)
    assert (found.kind, found.tools, found.seconds) == ("selected", ("tide_table",), 2.5)
    assert found.usage.prompt_tokens == 7
    assert all(tool_line(tool) in server.asked[0]["messages"][1]["content"] for tool in toolbox.tools)
    assert Chooser(model=ask("record")).choose("low water", toolbox.tools).seconds is None
    assert Chooser(model=ask()).choose("x", ()).kind == "abstained"
    server.script = lambda _: (200, '{"tools": [', "length")
    cut = Chooser(model=ask()).choose("other", toolbox.tools)
    assert (cut.kind, cut.reason) == ("invalid", "cut")


def test_cost_is_linear_in_context_and_constant_for_ntilc(toolbox: Toolbox) -> None:
    cost = prompt_cost(["abcd"], toolbox.tools, counter=EstimatedTokens())
    lengths = [-(-(len(tool_line(tool)) + 1) // 4) for tool in toolbox.tools]
    assert cost.per_tool == pytest.approx(sum(lengths) / 3)
    assert cost.in_context(100) - cost.in_context(10) == pytest.approx(90 * cost.per_tool)
    assert cost.ntilc == cost.system + cost.instruction + cost.query
    assert not cost.exact
    assert json.loads(tool_line(toolbox.tools[2]))["parameters"]["properties"] == {}
    with pytest.raises(AgentError):
        prompt_cost([], toolbox.tools, counter=EstimatedTokens())

"""The language model as Stage 2 of SkillGraph against the local server, and replayed with the server gone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from toolshift.llm.errors import NotAvailable
from toolshift.models.base import BadParameter
from toolshift.models.generative.asking import TooManyInvalid
from toolshift.models.skillgraph.llm_order import SYSTEM, LlmOrderer, LlmOrders, Shots, ToolTexts
from toolshift.models.skillgraph.retrieval import Sets
from toolshift.models.skillgraph.sequences import sequences_of

TOOLS = ToolTexts(names=("alpha", "beta", "gamma", "delta"), descriptions=("first", "second", "third", "fourth"))
SETS = Sets(
    items=np.array([[1, 0, 2], [3, 1, -1], [2, -1, -1], [0, 3, 1], [-1, -1, -1]]),
    similarity=np.array([[0.5, 0.6, 0.4], [0.9, 0.8, 0], [0.7, 0, 0], [0.9, 0.8, 0.7], [0, 0, 0]]),
)
BY_COSINE = [[0, 1, 2], [3, 1, -1], [2, -1, -1], [0, 3, 1], [-1, -1, -1]]
IDS = ["q0", "q1", "q2", "q3", "q4"]
QUERIES = ["zero", "one", "two", "three", "four"]
SHOTS = Shots(
    ids=("t0", "t1", "t2", "t3"),
    queries=("train zero", "train one", "train two", "train three"),
    sequences=sequences_of([[0, 1], [3, 2, 1], [2, 3], [1, 2, 3]], n_tools=4),
)


def reversed_order(body: dict[str, Any]) -> str:
    """The last tools of a prompt, backwards."""
    last = body["messages"][1]["content"].rsplit("Request:", 1)[1]
    names = [line[2:].split(":")[0] for line in last.split("\n") if line.startswith("- ")]
    return " -> ".join(names[::-1])


def orderer(kit: Any, url: str | None, store: Path, **changed: Any) -> LlmOrderer:
    given = {"base_url": url, "llm": "m/1", "api_key_env": kit.VARIABLE, "mode": "record", "store": str(store)}
    return LlmOrderer(**{**given, "attempts": 1, **changed})


def ordered(row: LlmOrderer, *, shots: Shots | None = None) -> LlmOrders:
    return row.order(SETS, ids=IDS, queries=QUERIES, tools=TOOLS, shots=shots)


def test_the_answer_is_the_order(kit: Any, server: Any, tmp_path: Path) -> None:
    server.script = lambda body: kit.chat(reversed_order(body))
    found = ordered(orderer(kit, server.url, tmp_path))
    # Tools are shown by name: alpha, beta, gamma; beta, delta; alpha, beta, delta.
    assert found.items.tolist() == [[2, 1, 0], [3, 1, -1], [2, -1, -1], [3, 1, 0], [-1, -1, -1]]
    assert found.outcomes == ("answered", "answered", "single", "answered", "single")
    assert found.valid.all()
    assert len(server.asked) == 3
    assert {body["temperature"] for body in server.asked} == {0.0}
    assert {body["messages"][0]["content"] for body in server.asked} == {SYSTEM}
    record = json.loads(json.dumps(found.record))
    assert record["outcomes"] == {"answered": 3, "single": 2}
    assert (record["requests"]["orders"]["n"], record["shots"], record["llm"]) == (3, 0, "m/1")


def test_what_is_no_order_leaves_the_stage_1_order_and_is_counted(kit: Any, server: Any, tmp_path: Path) -> None:
    def reply(body: dict[str, Any]) -> Any:
        user = body["messages"][1]["content"]
        if "zero" in user:
            return kit.chat("alpha -> beta")
        return kit.chat("") if "one" in user else kit.chat("delta -> beta -> epsilon")

    server.script = reply
    found = ordered(orderer(kit, server.url, tmp_path, max_invalid_share=0.5))
    assert found.items.tolist() == BY_COSINE
    assert found.outcomes == ("missing_tool", "empty", "single", "unknown_tool", "single")
    assert found.valid.tolist() == [False, False, True, False, True]
    assert found.record["outcomes"] == {"empty": 1, "missing_tool": 1, "single": 2, "unknown_tool": 1}
    assert found.record["requests"]["orders"]["invalid"] == {"empty": 1}


def test_replay_is_the_same_with_the_server_gone(
    kit: Any, server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.script = lambda body: kit.chat("no" if "three" in body["messages"][1]["content"] else reversed_order(body))
    recorded = ordered(orderer(kit, server.url, tmp_path))
    asked = len(server.asked)
    monkeypatch.delenv(kit.VARIABLE)
    server.script = [kit.refusal(500, "gone")]
    replayed = ordered(orderer(kit, None, tmp_path, mode="replay"))
    assert recorded.outcomes[3] == "no_arrow"
    assert replayed.items.tolist() == recorded.items.tolist()
    assert (replayed.outcomes, replayed.record) == (recorded.outcomes, recorded.record)
    assert len(server.asked) == asked
    with pytest.raises(NotAvailable, match="nothing is recorded"):
        ordered(orderer(kit, None, tmp_path, mode="replay", description_words=1, shots=1), shots=SHOTS)


def test_three_shots_come_from_training_records_of_similar_length(kit: Any, server: Any, tmp_path: Path) -> None:
    server.script = lambda body: kit.chat(reversed_order(body))
    found = ordered(orderer(kit, server.url, tmp_path, shots=3), shots=SHOTS)
    assert found.outcomes.count("answered") == 3
    prompts = {body["messages"][1]["content"].rsplit("Request: ", 1)[1].split("\n")[0]: body for body in server.asked}
    assert sorted(prompts) == ["one", "three", "zero"]
    text = prompts["one"]["messages"][1]["content"]
    assert text.count("Request:") == 4
    # Two tools: both records of two tools are among its three examples, with their own orders.
    assert "Order: alpha -> beta" in text and "Order: gamma -> delta" in text
    assert text.endswith("Request: one\nTools:\n- beta: second\n- delta: fourth\nOrder:")


def test_too_many_requests_without_an_answer_stop_the_row(kit: Any, server: Any, tmp_path: Path) -> None:
    server.script = lambda body: kit.chat("")
    with pytest.raises(TooManyInvalid, match="3 of 3 requests"):
        ordered(orderer(kit, server.url, tmp_path))


def test_bad_arguments_are_named(kit: Any, server: Any, tmp_path: Path) -> None:
    row = orderer(kit, server.url, tmp_path, shots=3)
    with pytest.raises(ValueError, match="needs training records"):
        ordered(row)
    with pytest.raises(ValueError, match="1 ids and 5 queries for 5 sets"):
        row.order(SETS, ids=["x"], queries=QUERIES, tools=TOOLS)
    with pytest.raises(BadParameter, match="must not be negative"):
        orderer(kit, server.url, tmp_path, shots=-1)

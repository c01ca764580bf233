"""Re-Invoke and ToolDreamer against the local server, and replayed with the server gone."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from toolshift.llm.errors import EndpointError, NotAvailable
from toolshift.models.base import BadParameter
from toolshift.models.features import Pairs
from toolshift.models.generative.asking import TooManyInvalid
from toolshift.models.generative.reinvoke import ReInvoke, multi_view, tool_vectors
from toolshift.models.generative.requests import INTENT_READER, QUERY_WRITER, TOOL_DREAMER
from toolshift.models.generative.tooldreamer import ToolDreamer, fused
from toolshift.settings.options import load_model

Answers = Callable[[dict[str, Any]], Any]
ROWS = {"reinvoke": ReInvoke, "tooldreamer": ToolDreamer}
each_row = pytest.mark.parametrize("name", ROWS)


def writer(kit: Any, *, bad: Callable[[str], bool] = lambda user: False) -> Answers:
    """A "language model" that answers in each role with words of what it is asked about; ``bad`` gets no answer."""

    def reply(body: dict[str, Any]) -> Any:
        system, user = (message["content"] for message in body["messages"])
        if bad(user):
            return kit.chat("")
        words = user.split("\n")[1].split()
        if system == QUERY_WRITER:
            return kit.chat("\n".join(f"{i + 1}. {w} {words[0]}" for i, w in enumerate(words[:3])))
        if system == INTENT_READER:
            return kit.chat("\n".join(f"- {w}" for w in words[1:4]))
        assert system == TOOL_DREAMER
        tools = [{"thought": "so", "name": w, "description": f"{w} it"} for w in words[1:3]]
        return kit.chat(f"```json\n{json.dumps(tools)}\n```")

    return reply


def pairs_of(corpus: Any) -> Pairs:
    task, capability = np.divmod(np.arange(corpus.n_tasks * corpus.n_capabilities), corpus.n_capabilities)
    return Pairs(task=task, capability=capability)


def row_of(name: str, kit: Any, url: str | None, store: Path, **changed: Any) -> Any:
    given = {"base_url": url, "llm": "m/1", "api_key_env": kit.VARIABLE, "mode": "record", "store": str(store)}
    return ROWS[name](**{**given, "attempts": 1, "price_prompt": 1.0, "price_completion": 2.0, **changed})


def scored(row: Any, world: Any) -> tuple[Any, Any]:
    """(n, m) scores and the record."""
    nothing: Any = None
    scorer = row.fit(nothing, bank=world.bank(), measure=nothing, seed=0)
    assert scorer.contexts_seen == ()
    scores = scorer.score(pairs_of(world.corpus), bank=world.bank(), seed=0)
    return scores.reshape(world.corpus.n_tasks, -1), json.loads(json.dumps(scorer.record))


def test_reinvoke_ranks_by_what_was_generated(kit: Any, server: Any, tmp_path: Path, fixed_world: Any) -> None:
    server.script = writer(kit)
    found, record = scored(row_of("reinvoke", kit, server.url, tmp_path), fixed_world)
    corpus, bank = fixed_world.corpus, fixed_world.bank()
    words = [text.split() for text in corpus.capability_texts]
    written = tuple(tuple(dict.fromkeys(f"{w} {some[0]}" for w in some[:3])) for some in words)
    intents = {t: tuple(dict.fromkeys(text.split()[1:4])) for t, text in enumerate(corpus.task_texts)}
    tools = tool_vectors(written, bank=bank, words=120)
    expected = multi_view(pairs_of(corpus), intents, bank=bank, tools=tools)
    np.testing.assert_array_equal(found.ravel(), expected)
    tasks, kinds = record["requests"]["tasks"], record["requests"]
    assert kinds["tools"]["n"] == kinds["tools"]["answered"] == len(set(corpus.capability_texts))
    assert (tasks["n"], tasks["invalid"], record["llm"]) == (corpus.n_tasks, {}, "m/1")
    assert tasks["cost"] == pytest.approx(corpus.n_tasks * (10 * 1.0 + 5 * 2.0) / 1e6)
    temperatures = {body["messages"][0]["content"]: body["temperature"] for body in server.asked}
    assert temperatures == {QUERY_WRITER: 0.7, INTENT_READER: 0.0}


def test_tooldreamer_searches_with_what_was_imagined(kit: Any, server: Any, tmp_path: Path, fixed_world: Any) -> None:
    server.script = writer(kit)
    found, record = scored(row_of("tooldreamer", kit, server.url, tmp_path), fixed_world)
    corpus = fixed_world.corpus
    queries = {
        t: tuple(dict.fromkeys(f"{text} so {w} {w} it" for w in text.split()[1:3]))
        for t, text in enumerate(corpus.task_texts)
    }
    both = ("semantic_cosine", "bm25")
    expected = fused(pairs_of(corpus), queries, bank=fixed_world.bank(), over=both, k=60)
    np.testing.assert_array_equal(found.ravel(), expected)
    assert record["requests"]["tasks"]["answered"] == corpus.n_tasks
    fewer, _ = scored(row_of("tooldreamer", kit, server.url, tmp_path, max_tools=1), fixed_world)
    assert (fewer != found).any()


@each_row
def test_replay_is_the_same_with_the_server_gone(
    kit: Any, server: Any, tmp_path: Path, fixed_world: Any, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """An invalid outcome is replayed like an answer, and neither endpoint nor key is needed."""
    server.script = writer(kit, bad=lambda user: "at 13" in user)
    recorded = scored(row_of(name, kit, server.url, tmp_path), fixed_world)
    asked = len(server.asked)
    monkeypatch.delenv(kit.VARIABLE)
    server.script = [kit.refusal(500, "gone")]
    replayed = scored(row_of(name, kit, None, tmp_path, mode="replay"), fixed_world)
    assert replayed[0].tobytes() == recorded[0].tobytes()
    assert replayed[1] == recorded[1]
    assert recorded[1]["requests"]["tasks"]["invalid"] == {"empty": 1}
    assert len(server.asked) == asked


@each_row
def test_a_task_without_an_answer_ties_and_is_counted(
    kit: Any, server: Any, tmp_path: Path, fixed_world: Any, name: str
) -> None:
    server.script = writer(kit, bad=lambda user: "at 13" in user)
    found, record = scored(row_of(name, kit, server.url, tmp_path), fixed_world)
    missing = [i for i, text in enumerate(fixed_world.corpus.task_texts) if "at 13" in text]
    assert np.flatnonzero(np.ptp(found, axis=1) == 0).tolist() == missing
    tasks = record["requests"]["tasks"]
    assert (tasks["n"], tasks["answered"]) == (fixed_world.corpus.n_tasks, fixed_world.corpus.n_tasks - 1)


def test_a_tool_without_queries_is_its_documentation(kit: Any, server: Any, tmp_path: Path, fixed_world: Any) -> None:
    server.script = writer(kit, bad=lambda user: user.startswith("Documentation") and "brand6" in user)
    found, record = scored(row_of("reinvoke", kit, server.url, tmp_path, max_invalid_share=0.2), fixed_world)
    assert record["requests"]["tools"]["invalid"] == {"empty": 4}
    server.script = writer(kit)
    whole, _ = scored(row_of("reinvoke", kit, server.url, tmp_path / "other"), fixed_world)
    assert (found != whole).any()
    assert np.ptp(found, axis=1).min() > 0


@each_row
def test_too_many_without_an_answer_stop_the_row(
    kit: Any, server: Any, tmp_path: Path, fixed_world: Any, name: str
) -> None:
    server.script = [kit.refusal(503, "model is loading")]
    with pytest.raises(TooManyInvalid, match=r"server_error.*model is loading") as caught:
        scored(row_of(name, kit, server.url, tmp_path), fixed_world)
    assert caught.value.user_facing
    allowed, _ = scored(row_of(name, kit, server.url, tmp_path, max_invalid_share=1.0), fixed_world)
    assert not allowed.any()  # ties everywhere: chance, not a hidden other method


@each_row
def test_a_record_of_other_requests_is_none(kit: Any, server: Any, tmp_path: Path, fixed_world: Any, name: str) -> None:
    server.script = writer(kit)
    other = {"reinvoke": "tooldreamer", "tooldreamer": "reinvoke"}[name]
    scored(row_of(other, kit, server.url, tmp_path), fixed_world)
    with pytest.raises(NotAvailable, match="nothing is recorded") as caught:
        scored(row_of(name, kit, None, tmp_path, mode="replay"), fixed_world)
    assert caught.value.not_run


@each_row
def test_what_stops_before_any_work(kit: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(kit.VARIABLE, raising=False)
    with pytest.raises(NotAvailable):  # as shipped, on a machine without a record
        ROWS[name](**load_model(name).params)
    with pytest.raises(NotAvailable):
        row_of(name, kit, None, tmp_path)
    with pytest.raises(BadParameter, match="max_invalid_share"):
        row_of(name, kit, "http://localhost:1/v1", tmp_path, max_invalid_share=2.0)
    pytest.importorskip("openai", reason="the extra `llm` is not installed")
    with pytest.raises(EndpointError, match=kit.VARIABLE):
        row_of(name, kit, "http://localhost:1/v1", tmp_path)

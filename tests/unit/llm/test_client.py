"""The client against a local server: every way to fail, what is retried, what is recorded."""

from __future__ import annotations

import json
import logging
import socket
from pathlib import Path
from typing import Any

import pytest

from toolshift.llm.client import Client, next_room
from toolshift.llm.errors import EndpointError
from toolshift.llm.outcomes import Answer, Invalid, Prices, Tally, Usage
from toolshift.llm.transport import Attempt


def client_for(kit: Any, server: Any, folder: Path, **changed: Any) -> tuple[Client, list[float]]:
    waits: list[float] = []
    return Client(endpoint=kit.endpoint(server.url, folder, **changed), sleep=waits.append), waits


def one(client: Client, request: Any, **more: Any) -> Any:
    (outcome,) = client.complete([request], **more)
    return outcome


def test_an_answer(kit: Any, server: Any, tmp_path: Path) -> None:
    server.script = [kit.chat("fine")]
    client, waits = client_for(kit, server, tmp_path)
    assert one(client, kit.request(seed=7)) == Answer(text="fine", usage=Usage(10, 5), served_by="served")
    assert waits == []
    assert server.keys == [f"Bearer {kit.KEY}"]
    assert server.asked == [
        {
            "model": "m/1",
            "messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hello"}],
            "temperature": 0.0,
            "max_tokens": 64,
            "seed": 7,
        }
    ]


def failures(kit: Any) -> dict[str, tuple[Any, str]]:
    """name -> (reply, reason)."""
    return {
        "429": (kit.refusal(429, "slow down"), "rate_limited"),
        "500": (kit.refusal(500, "oops"), "server_error"),
        "504": (kit.refusal(504, "gateway"), "timeout"),
        "late": (kit.Reply(delay=1.0), "timeout"),
        "garbage": (kit.Reply(body="{not json"), "malformed"),
        "web page": (kit.Reply(body="<html>hello</html>", kind="text/html"), "malformed"),
        "other json": (kit.Reply(body='{"completion": "fine"}'), "malformed"),
        "no choice": (kit.Reply(body='{"choices": [], "model": "m"}'), "malformed"),
        "empty": (kit.chat("  \n"), "empty"),
        "null": (kit.chat(None), "empty"),
        "cut": (kit.chat("half an ans", finish="length"), "cut"),
        "overflow": (kit.refusal(400, "too long", code="context_length_exceeded"), "context_overflow"),
        "vLLM": (kit.refusal(400, "This model's maximum context length is 8 tokens."), "context_overflow"),
        "llama.cpp": (kit.refusal(400, "the request exceeds the available context size"), "context_overflow"),
    }


NAMES = [
    *("429", "500", "504", "late", "garbage", "web page", "other json", "no choice"),
    *("empty", "null", "cut", "overflow", "vLLM", "llama.cpp"),
]


@pytest.mark.parametrize("name", NAMES)
def test_a_failure_is_retried_then_recorded_as_invalid(kit: Any, server: Any, tmp_path: Path, name: str) -> None:
    reply, reason = failures(kit)[name]
    server.script = [reply]
    client, waits = client_for(kit, server, tmp_path, timeout_s=0.2)
    outcome = one(client, kit.request())
    assert isinstance(outcome, Invalid)
    assert outcome.reason == reason
    assert len(server.asked) == 3
    assert len(waits) == 2
    assert client.store.get(kit.request()) == outcome
    assert Tally.of([outcome]).record(Prices())["invalid"] == {reason: 1}


@pytest.mark.parametrize("name", NAMES)
def test_a_failure_that_passes_is_forgotten(kit: Any, server: Any, tmp_path: Path, name: str) -> None:
    reply, _ = failures(kit)[name]
    server.script = [reply, kit.chat("fine")]
    client, _ = client_for(kit, server, tmp_path, timeout_s=0.2)
    outcome = one(client, kit.request())
    assert isinstance(outcome, Answer)
    assert outcome.text == "fine"
    assert len(server.asked) == 2


def test_a_server_that_is_down(kit: Any, server: Any, tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    waits: list[float] = []
    endpoint = kit.endpoint(f"http://127.0.0.1:{port}/v1", tmp_path)
    outcome = one(Client(endpoint=endpoint, sleep=waits.append), kit.request())
    assert isinstance(outcome, Invalid)
    assert outcome.reason == "unreachable"
    assert len(waits) == 2


@pytest.mark.parametrize("status", [401, 403, 404])
def test_what_no_request_survives_stops_at_once(kit: Any, server: Any, tmp_path: Path, status: int) -> None:
    server.script = [kit.refusal(status, f"wrong key {kit.KEY}")]
    client, waits = client_for(kit, server, tmp_path, concurrency=1)
    with pytest.raises(EndpointError, match=f"HTTP {status}") as caught:
        client.complete([kit.request(str(i)) for i in range(20)])
    assert kit.KEY not in str(caught.value)
    assert len(server.asked) == 1
    assert waits == []


def test_a_request_that_alone_is_refused_is_not_repeated(kit: Any, server: Any, tmp_path: Path) -> None:
    server.script = [kit.refusal(422, "content policy")]
    client, _ = client_for(kit, server, tmp_path)
    outcome = one(client, kit.request())
    assert (outcome.reason, len(server.asked)) == ("rejected", 1)
    assert "content policy" in outcome.detail


def test_retry_after_is_honoured(kit: Any, server: Any, tmp_path: Path) -> None:
    slow = kit.refusal(429, "slow down", headers=(("Retry-After", "7"),))
    server.script = [slow, kit.refusal(429, "slow down", headers=(("Retry-After", "tomorrow"),)), kit.chat("fine")]
    client, waits = client_for(kit, server, tmp_path)
    assert isinstance(one(client, kit.request()), Answer)
    assert waits[0] == 7.0
    assert 0.01 <= waits[1] <= 0.02


def test_backoff_doubles_with_jitter_up_to_a_longest_wait(kit: Any, tmp_path: Path) -> None:
    client = Client(endpoint=kit.endpoint(None, tmp_path, first_wait_s=1.0, longest_wait_s=10.0))
    down = Attempt(outcome=Invalid(reason="unreachable"))
    for number, doubled in enumerate([1.0, 2.0, 4.0, 8.0, 10.0, 10.0]):
        waits = [client.wait_s(number, down) for _ in range(200)]
        assert doubled / 2 <= min(waits) < 0.6 * doubled
        assert 0.9 * doubled < max(waits) <= doubled
    assert client.wait_s(0, Attempt(outcome=Invalid(reason="rate_limited"), retry_after_s=1e9)) == 300.0
    assert client.wait_s(5, Attempt(outcome=Invalid(reason="cut"))) == 0.0


def test_a_cut_answer_gets_more_room_and_an_overflow_less(kit: Any, server: Any, tmp_path: Path) -> None:
    server.script = [failures(kit)["cut"][0]] * 2 + [kit.chat("fine", tokens=(10, 7))]
    client, _ = client_for(kit, server, tmp_path)
    outcome = one(client, kit.request())
    assert [body["max_tokens"] for body in server.asked] == [64, 128, 256]
    assert outcome.usage == Usage(30, 17)  # the cut ones are paid for too
    assert client.store.get(kit.request()) == outcome  # under the request as it was first made
    assert next_room(64, Invalid(reason="context_overflow")) == 32
    assert next_room(20, Invalid(reason="context_overflow")) == 16
    assert next_room(64, Invalid(reason="timeout")) == 64


def test_an_answer_of_another_form_is_asked_again(kit: Any, server: Any, tmp_path: Path) -> None:
    server.script = [kit.chat("chatter"), kit.chat("[1]")]
    client, waits = client_for(kit, server, tmp_path)
    assert one(client, kit.request(), accept=lambda text: text.startswith("[")).text == "[1]"
    assert waits == [0.0]
    server.script = [kit.chat("chatter")]
    never = one(client, kit.request("other"), accept=lambda text: text.startswith("["))
    assert (never.reason, never.usage) == ("malformed", Usage(30, 15))


def test_no_more_requests_at_once_than_allowed(kit: Any, server: Any, tmp_path: Path) -> None:
    server.script = lambda body: kit.Reply(body=kit.chat(body["messages"][1]["content"]).body, delay=0.05)
    client, _ = client_for(kit, server, tmp_path, concurrency=3)
    outcomes = client.complete([kit.request(str(i)) for i in range(12)])
    assert [o.text for o in outcomes] == [str(i) for i in range(12)]  # in order, whoever was first
    assert server.most_busy == 3


def test_equal_requests_are_asked_once(kit: Any, server: Any, tmp_path: Path) -> None:
    server.script = [kit.chat("fine")]
    client, _ = client_for(kit, server, tmp_path, mode="live")
    assert len(client.complete([kit.request()] * 3)) == 3
    client.complete([kit.request()])
    assert len(server.asked) == 1
    assert not any(tmp_path.iterdir())  # live records nothing


def test_record_then_replay_with_the_server_gone(kit: Any, server: Any, tmp_path: Path) -> None:
    server.script = lambda body: (
        kit.chat(f"re: {body['messages'][1]['content']}") if body["messages"][1]["content"] != "1" else kit.chat("")
    )
    requests = [kit.request(str(i)) for i in range(4)]
    recorded = client_for(kit, server, tmp_path)[0].complete(requests)
    assert [type(o) for o in recorded] == [Answer, Invalid, Answer, Answer]
    replay = Client(endpoint=kit.endpoint(None, tmp_path, mode="replay", api_key_env=None))
    asked = len(server.asked)
    assert replay.complete([*requests, kit.request("new")]) == [*recorded, Invalid(reason="not_recorded")]
    assert len(server.asked) == asked


def test_recording_again_asks_only_for_what_failed_for_the_moment(kit: Any, server: Any, tmp_path: Path) -> None:
    server.script = lambda body: {
        "busy": kit.refusal(500, "oops"), "cut": failures(kit)["cut"][0], "fine": kit.chat("one")
    }[body["messages"][1]["content"]]  # fmt: skip
    requests = [kit.request(name) for name in ("busy", "cut", "fine")]
    first = client_for(kit, server, tmp_path)[0].complete(requests)
    server.asked.clear()
    server.script = [kit.chat("two")]
    second = client_for(kit, server, tmp_path)[0].complete(requests)
    assert [body["messages"][1]["content"] for body in server.asked] == ["busy"]
    assert second[0].text == "two"  # type: ignore[union-attr]
    assert second[1:] == first[1:]


def test_no_secret_on_disk_or_in_a_log(kit: Any, server: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Servers echo keys in their errors; the openai package logs requests."""
    caplog.set_level(logging.DEBUG)
    server.script = [kit.refusal(500, f"boom for {kit.KEY}"), kit.chat("fine"), kit.refusal(429, f"{kit.KEY} is slow")]
    client, _ = client_for(kit, server, tmp_path, concurrency=1)
    outcomes = client.complete([kit.request("a"), kit.request("b")])
    assert kit.KEY in server.keys[0]
    assert "*** is slow" in outcomes[1].detail  # type: ignore[union-attr]
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) == 3
    assert not any(kit.KEY in path.read_text() for path in files)
    assert caplog.text
    assert kit.KEY not in caplog.text
    assert kit.KEY not in repr(client)
    assert kit.KEY not in json.dumps(str(client.endpoint))


def test_the_log_counts_outcomes(kit: Any, server: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="toolshift")
    server.script = [kit.chat("fine"), kit.chat("")]
    client, _ = client_for(kit, server, tmp_path, concurrency=1)
    client.complete([kit.request("a"), kit.request("b")])
    assert "2 requests, 1 answered, invalid {'empty': 1}, 40 + 20 tokens" in caplog.text


def test_tally_and_cost_by_hand() -> None:
    paid = Usage(1000, 500)
    outcomes = [Answer(text="a", usage=paid), Invalid(reason="cut", usage=paid), Invalid(reason="timeout")]
    tally = Tally.of(outcomes)
    assert tally.invalid_share == pytest.approx(2 / 3)
    assert tally.record(Prices(prompt=2.0, completion=8.0)) == {
        "n": 3,
        "answered": 1,
        "invalid": {"cut": 1, "timeout": 1},
        "prompt_tokens": 2000,
        "completion_tokens": 1000,
        "cost": pytest.approx(0.012),
    }
    assert tally.record(Prices(prompt=2.0))["cost"] is None
    assert Tally.of([]).invalid_share == 0.0

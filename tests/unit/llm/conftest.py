"""A local server that speaks the OpenAI protocol, well or badly as told, and counts what it is asked."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from toolshift.llm.endpoint import Endpoint
from toolshift.llm.request import Request

KEY = "sk-test-0123456789-never-on-disk"
VARIABLE = "TOOLSHIFT_TEST_KEY"


@dataclass(frozen=True)
class Reply:
    """One HTTP reply; ``body`` is sent as it is, after ``delay`` seconds."""

    status: int = 200
    body: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    delay: float = 0.0
    kind: str = "application/json"


def chat(text: Any, *, finish: str = "stop", tokens: tuple[int, int] = (10, 5)) -> Reply:
    """A chat completion."""
    choice = {"index": 0, "finish_reason": finish, "message": {"role": "assistant", "content": text}}
    usage = {"prompt_tokens": tokens[0], "completion_tokens": tokens[1], "total_tokens": sum(tokens)}
    whole = {"id": "x", "object": "chat.completion", "created": 0, "model": "served", "choices": [choice]}
    return Reply(body=json.dumps({**whole, "usage": usage}))


def refusal(status: int, message: str, *, code: str = "", headers: tuple[tuple[str, str], ...] = ()) -> Reply:
    """An error as OpenAI words it."""
    return Reply(status=status, body=json.dumps({"error": {"message": message, "code": code}}), headers=headers)


@dataclass
class Server:
    """``script``: replies in turn, the last one for ever; or a function of the request body."""

    script: Sequence[Reply] | Callable[[dict[str, Any]], Reply] = ()
    asked: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    busy: int = 0
    most_busy: int = 0
    url: str = ""
    lock: Any = field(default_factory=threading.Lock)

    def reply(self, body: dict[str, Any], key: str) -> Reply:
        with self.lock:
            self.asked.append(body)
            self.keys.append(key)
            if callable(self.script):
                return self.script(body)
            return self.script[min(len(self.asked), len(self.script)) - 1]


def _handler(server: Server) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with server.lock:
                server.busy += 1
                server.most_busy = max(server.most_busy, server.busy)
            reply = server.reply(body, self.headers.get("Authorization", ""))
            time.sleep(reply.delay)
            with server.lock:
                server.busy -= 1
            content = reply.body.encode()
            try:
                self.send_response(reply.status)
                for name, value in (("Content-Type", reply.kind), ("Content-Length", str(len(content)))):
                    self.send_header(name, value)
                for name, value in reply.headers:
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content)
            except (BrokenPipeError, ConnectionResetError):
                pass  # the client has given up

        def log_message(self, format: str, *args: object) -> None:
            del format, args

    return Handler


@dataclass(frozen=True)
class Kit:
    """What the tests of the client are made of."""

    Reply = Reply
    chat = staticmethod(chat)
    refusal = staticmethod(refusal)
    KEY = KEY
    VARIABLE = VARIABLE

    @staticmethod
    def request(user: str = "hello", **changed: Any) -> Request:
        settings = {"model": "m/1", "system": "be brief", "temperature": 0.0, "max_tokens": 64, **changed}
        return Request(user=user, **settings)

    @staticmethod
    def endpoint(url: str | None, store: Path, **changed: Any) -> Endpoint:
        settings = {
            "model": "m/1",
            "api_key_env": VARIABLE,
            "mode": "record",
            "timeout_s": 5.0,
            "attempts": 3,
            "first_wait_s": 0.01,
            **changed,
        }
        return Endpoint(base_url=url, store=str(store), **settings)


@pytest.fixture
def kit() -> Kit:
    return Kit()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A running server; the key is in the environment."""
    pytest.importorskip("openai", reason="the extra `llm` is not installed")
    monkeypatch.setenv(VARIABLE, KEY)
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    state = Server()
    http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(state))
    http.daemon_threads = True
    state.url = f"http://127.0.0.1:{http.server_address[1]}/v1"
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield state
    http.shutdown()
    http.server_close()
    thread.join()

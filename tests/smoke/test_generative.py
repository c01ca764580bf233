"""Rows with a language model as whole commands: recorded against a local server, replayed without it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

Call = Callable[..., Any]
KEY = "sk-smoke-0123456789-never-on-disk"


def answer(body: dict[str, Any]) -> str:
    """Words of what is asked about, in the form that is asked for."""
    system, user = (message["content"] for message in body["messages"])
    words = user.split("\n")[1].split()
    if "JSON" in system:
        return json.dumps([{"thought": "so", "name": w, "description": f"{w} it"} for w in words[1:3]])
    return "\n".join(words[:3])


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": answer(body)}}
        content = json.dumps({"id": "x", "object": "chat.completion", "model": "m", "choices": [choice]}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        del format, args


@pytest.fixture
def server() -> Iterator[ThreadingHTTPServer]:
    pytest.importorskip("openai", reason="the extra `llm` is not installed")
    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield http
    http.shutdown()
    http.server_close()


def table(folder: Path) -> dict[str, bytes]:
    return {
        p.name: p.read_bytes() for p in sorted((folder / "tables").iterdir()) if p.suffix in (".csv", ".md", ".tex")
    }


def test_replay_gives_the_same_tables_with_the_server_off(
    call: Call, tools: Any, server: ThreadingHTTPServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = ("reinvoke", "tooldreamer")
    monkeypatch.setenv("SMOKE_KEY", KEY)
    url = f"http://127.0.0.1:{server.server_address[1]}/v1"

    def run(outputs: str, **params: str) -> None:
        given = [f"models.{row}.params.{key}={value}" for row in rows for key, value in params.items()]
        done = call(*tools.small, f"model=[{','.join(rows)}]", f"paths.outputs={outputs}", *given)
        assert done.code == 0, done.err
        assert KEY not in done.out + done.err

    run("recorded", llm="m", base_url=url, mode="record", api_key_env="SMOKE_KEY")
    server.shutdown()
    server.server_close()
    monkeypatch.delenv("SMOKE_KEY")
    run("replayed", llm="m", mode="replay")
    recorded, replayed = table(tmp_path / "recorded"), table(tmp_path / "replayed")
    assert "lodo.csv" in recorded
    assert recorded == replayed
    assert all(row in recorded["lodo.csv"].decode() for row in rows)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not any(KEY.encode() in path.read_bytes() for path in files)
    assert len([path for path in files if "llm" in path.parts]) > 100  # the record itself was searched too

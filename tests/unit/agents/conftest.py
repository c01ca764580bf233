"""Tools, a tiny causal language model without weights from anywhere, and a local OpenAI-compatible server."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from toolshift.agents.asking import Model
from toolshift.agents.search import FrozenTools, ToolSearch
from toolshift.agents.tools import Toolbox, read_tools
from toolshift.llm.client import Client
from toolshift.llm.endpoint import Endpoint
from toolshift.text.hashing import Hashing

DEFINITIONS = [
    {
        "name": "tide_table",
        "description": "Time of low water at a harbour.",
        "parameters": {
            "type": "object",
            "properties": {"harbour": {"type": "string"}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
            "required": ["harbour"],
        },
    },
    {
        "name": "rope_length",
        "description": "Length of rope for an anchorage of some depth.",
        "parameters": {"type": "object", "properties": {"depth": {"type": "number"}}, "required": ["depth"]},
    },
    {"name": "list_harbours", "description": "Names of all known harbours."},
]


@dataclass
class Server:
    """``script``: (status, text, finish_reason) of a request body."""

    script: Callable[[dict[str, Any]], tuple[int, str, str]]
    url: str = ""
    asked: list[dict[str, Any]] = field(default_factory=list)


def _handler(server: Server) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            server.asked.append(body)
            status, text, finish = server.script(body)
            choice = {"index": 0, "finish_reason": finish, "message": {"role": "assistant", "content": text}}
            usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
            whole = {"id": "x", "object": "chat.completion", "model": "m", "choices": [choice], "usage": usage}
            content = json.dumps(whole if status == 200 else {"error": {"message": text}}).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            del format, args

    return Handler


@pytest.fixture
def server() -> Iterator[Server]:
    pytest.importorskip("openai", reason="the extra `llm` is not installed")
    state = Server(script=lambda _: (200, "NONE", "stop"))
    http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(state))
    state.url = f"http://127.0.0.1:{http.server_address[1]}/v1"
    threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    yield state
    http.shutdown()
    http.server_close()


@pytest.fixture
def ask(server: Server, tmp_path: Path) -> Callable[..., Model]:
    """A model behind the server."""

    def make(mode: str = "live", **changed: Any) -> Model:
        settings = {"attempts": 2, "first_wait_s": 0.01, "timeout_s": 5.0, **changed}
        endpoint = Endpoint(
            base_url=server.url, model="m", api_key_env=None, mode=mode, store=str(tmp_path / "llm"), **settings
        )
        return Model(client=Client(endpoint=endpoint), max_tokens=64)

    return make


@pytest.fixture
def toolbox(tmp_path: Path) -> Toolbox:
    path = tmp_path / "tools.json"
    path.write_text(json.dumps([{"type": "function", "function": tool} for tool in DEFINITIONS]))
    return read_tools(path)


@pytest.fixture
def search(toolbox: Toolbox) -> ToolSearch:
    return ToolSearch.of(toolbox, FrozenTools(Hashing()))


@pytest.fixture
def one_thread() -> Iterator[None]:
    """torch on one thread: tiny models are slower on more."""
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def tiny() -> tuple[Any, Any]:
    """A random GPT-2 of one layer over bytes, built from its config, and its tokenizer."""
    pytest.importorskip("outlines", reason="the extra `llm` is not installed")
    pytest.importorskip("llguidance", reason="the extra `llm` is not installed")
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

    pieces = [*sorted(pre_tokenizers.ByteLevel.alphabet()), "<end>"]
    inner = Tokenizer(models.BPE(vocab={piece: i for i, piece in enumerate(pieces)}, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner, eos_token="<end>", pad_token="<end>", bos_token="<end>", padding_side="left"
    )
    end = len(pieces) - 1
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=len(pieces), n_positions=2048, n_embd=8, n_layer=1, n_head=1, bos_token_id=end, eos_token_id=end
    )
    return GPT2LMHeadModel(config).eval(), tokenizer

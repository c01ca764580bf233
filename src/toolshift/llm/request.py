"""One request, and the key under which its outcome is recorded: model, prompt hash, parameters."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from toolshift.runs.files import stable_hash


@dataclass(frozen=True, kw_only=True)
class Request:
    """A chat of one system and one user message. seed: passed to the server, which may ignore it. response_format: the
    field of that name as JSON text; its order counts, since servers write the properties of a schema in theirs."""

    model: str
    system: str
    user: str
    temperature: float
    max_tokens: int
    seed: int | None = None
    response_format: str | None = None

    def __post_init__(self) -> None:
        for name in ("system", "user"):  # halves of surrogate pairs, from broken raw text, fit into no JSON
            object.__setattr__(self, name, _valid_unicode(getattr(self, name)))

    @property
    def messages(self) -> list[dict[str, str]]:
        """The messages as the endpoint takes them."""
        return [{"role": "system", "content": self.system}, {"role": "user", "content": self.user}]

    @property
    def parameters(self) -> Mapping[str, Any]:
        """Everything besides model and prompt that decides the answer."""
        form = {} if self.response_format is None else {"response_format": json.loads(self.response_format)}
        return {"temperature": float(self.temperature), "max_tokens": self.max_tokens, "seed": self.seed, **form}

    @property
    def body(self) -> dict[str, Any]:
        """What is sent."""
        sent = {name: value for name, value in self.parameters.items() if value is not None}
        return {"model": self.model, "messages": self.messages, **sent}

    @cached_property
    def prompt_hash(self) -> str:
        """SHA-256 of the messages, hexadecimal."""
        return stable_hash(self.messages)

    @cached_property
    def key(self) -> str:
        """64 hex digits of (model, prompt hash, parameters); no address, so that a record serves every server."""
        parameters = dict(self.parameters)
        if self.response_format is not None:  # as text, since hashing would sort its keys
            parameters["response_format"] = self.response_format
        return stable_hash({"model": self.model, "prompt": self.prompt_hash, "parameters": parameters})


def _valid_unicode(text: str) -> str:
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")

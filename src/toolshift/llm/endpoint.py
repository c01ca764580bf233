"""Where a language model is asked and how; holds the name of the key's variable, never the key."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, get_args
from urllib.parse import urlsplit

from toolshift.llm.errors import EndpointError, NotAvailable
from toolshift.llm.store import ReplayStore

Mode = Literal["replay", "record", "live"]
MODES: tuple[str, ...] = get_args(Mode)
# Strict on purpose: a key pasted in place of its variable's name must be refused, and never be echoed.
_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """An OpenAI-compatible endpoint (hosted, vLLM, llama.cpp) and the store of its answers.

    mode: ``replay`` reads the store alone; ``record`` reads it and asks for what it lacks; ``live`` asks and stores
    nothing. api_key_env: name of the variable with the key, None for a server without one. concurrency: requests under
    way at once. timeout_s, first_wait_s, longest_wait_s: seconds. attempts: of one request, the first included.
    """

    base_url: str | None
    model: str
    api_key_env: str | None
    mode: str
    store: str
    concurrency: int = 4
    timeout_s: float = 60.0
    attempts: int = 5
    first_wait_s: float = 1.0
    longest_wait_s: float = 60.0

    def check(self, environment: Mapping[str, str] = os.environ) -> None:
        """Refuse what cannot work, before anything is read or asked.

        Raises:
            NotAvailable: if no model, no endpoint, no recorded answer or no client library is there.
            EndpointError: for a bad value or a missing key.
        """
        self._check_values()
        if not self.model:
            raise NotAvailable("no language model is configured: give its name with params.llm=NAME")
        if self.mode == "replay":
            if not ReplayStore(Path(self.store)).has_model(self.model):
                raise NotAvailable(
                    f"nothing is recorded of {self.model} in {self.store}: "
                    "record once with params.mode=record params.base_url=URL, or point params.store at a record"
                )
            return
        if self.base_url is None:
            raise NotAvailable(f"mode={self.mode} needs an endpoint: give params.base_url=URL, or use mode=replay")
        if find_spec("openai") is None:
            raise NotAvailable("the client library is missing: install the extra `llm` (make setup EXTRAS=llm)")
        self.key(environment)

    def key(self, environment: Mapping[str, str] = os.environ) -> str:
        """The key out of the environment; empty for a server without one.

        Raises:
            EndpointError: if the variable is not set.
        """
        if self.api_key_env is None:
            return ""
        value = environment.get(self.api_key_env, "").strip()
        if not value:
            raise EndpointError(
                f"the variable {self.api_key_env} with the key of {self.base_url} is not set: set it, or give "
                "params.api_key_env=null for a server that needs no key"
            )
        return value

    def _check_values(self) -> None:
        if self.mode not in MODES:
            raise EndpointError(f"mode={self.mode!r} is not one of {', '.join(MODES)}")
        if self.api_key_env is not None and not _VARIABLE.fullmatch(self.api_key_env):
            raise EndpointError(
                "api_key_env must be the name of an environment variable (capitals, digits, _), never the key itself"
            )
        for name in ("concurrency", "attempts", "timeout_s"):
            if getattr(self, name) <= 0:
                raise EndpointError(f"{name} must be above 0, got {getattr(self, name)}")
        if self.base_url is not None:
            _check_address(self.base_url)


def _check_address(url: str) -> None:
    """An address is written into configs and logs, so it may hold no credentials; it is not echoed where it may."""
    parts = urlsplit(url)
    if parts.username or parts.password or parts.query or parts.fragment:
        raise EndpointError("base_url holds credentials or a query: leave them out and name the key with api_key_env")
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise EndpointError(f"base_url={url!r}: expected an address such as http://localhost:8000/v1")

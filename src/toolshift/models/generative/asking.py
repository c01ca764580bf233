"""The part of a row that asks a language model: its endpoint as parameters, and what may go wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from toolshift.llm.client import Client, client_of
from toolshift.llm.endpoint import Endpoint
from toolshift.llm.errors import NotAvailable
from toolshift.llm.outcomes import Answer, Outcome, Prices, Tally
from toolshift.llm.request import Request
from toolshift.models.base import BadParameter


class TooManyInvalid(RuntimeError):
    """More requests than allowed ended without an answer; a row made of them would mean nothing."""

    user_facing = True


@dataclass(frozen=True, kw_only=True)
class LlmRow:
    """Parameters that rows with a language model have in common.

    base_url, llm (the model's name), api_key_env, mode, store, concurrency, timeout_s, attempts: see `Endpoint`.
    max_tokens: room for one answer. max_invalid_share: of all requests of a target; more stop the row.
    price_prompt, price_completion: of a million tokens, None where unknown.

    Raises:
        NotAvailable: if the model is neither configured nor recorded.
        EndpointError: if it is, but cannot be used.
    """

    base_url: str | None = None
    llm: str = ""
    api_key_env: str | None = "OPENAI_API_KEY"
    mode: str = "replay"
    store: str = "data/llm"
    concurrency: int = 4
    timeout_s: float = 60.0
    attempts: int = 5
    max_tokens: int = 1024
    max_invalid_share: float = 0.1
    price_prompt: float | None = None
    price_completion: float | None = None
    fit_per_seed: ClassVar[bool] = False
    not_identity: ClassVar[tuple[str, ...]] = (
        "base_url", "api_key_env", "mode", "store", "concurrency", "timeout_s", "attempts", "price_prompt",
        "price_completion",
    )  # fmt: skip
    """Parameters that say how answers are got, not what is asked: no part of a run's identity."""

    def __post_init__(self) -> None:
        if not 0 <= self.max_invalid_share <= 1 or self.max_tokens < 1:
            raise BadParameter(
                f"expected max_invalid_share between 0 and 1 and max_tokens of at least 1, got "
                f"{self.max_invalid_share} and {self.max_tokens}"
            )
        self.client()

    @property
    def prices(self) -> Prices:
        """Prices for the cost in the record."""
        return Prices(prompt=self.price_prompt, completion=self.price_completion)

    def client(self) -> Client:
        """The client, shared by all rows of this process with the same endpoint."""
        return client_of(
            Endpoint(
                base_url=self.base_url,
                model=self.llm,
                api_key_env=self.api_key_env,
                mode=self.mode,
                store=self.store,
                concurrency=self.concurrency,
                timeout_s=self.timeout_s,
                attempts=self.attempts,
            )
        )

    def request(self, system: str, user: str, *, temperature: float) -> Request:
        """A request to the row's model."""
        return Request(
            model=self.llm, system=system, user=user, temperature=temperature, max_tokens=self.max_tokens, seed=None
        )


@dataclass(kw_only=True)
class Asked:
    """What one scorer has asked for: kind of request -> key -> outcome, each distinct request once. The same on replay,
    and for any order of targets."""

    row: LlmRow
    outcomes: dict[str, dict[str, Outcome]] = field(default_factory=dict)

    def ask(self, kind: str, requests: Sequence[Request], *, accept: Callable[[str], bool]) -> list[str | None]:
        """The answers, None where there is none; ``kind`` names them in the record.

        Raises:
            NotAvailable: if nothing of this kind is recorded.
            TooManyInvalid: if too large a share of all requests so far ended without an answer.
        """
        found = self.row.client().complete(requests, accept=accept)
        known = self.outcomes.setdefault(kind, {})
        known.update((request.key, outcome) for request, outcome in zip(requests, found, strict=True))
        self._check(kind, Tally.of(known.values()))
        return [o.text if isinstance(o, Answer) else None for o in found]

    @property
    def record(self) -> Mapping[str, Any]:
        """Model and counts by kind: n, answered, invalid by reason, tokens, cost."""
        tallies = {kind: Tally.of(found.values()) for kind, found in sorted(self.outcomes.items())}
        return {"llm": self.row.llm, "requests": {k: t.record(self.row.prices) for k, t in tallies.items()}}

    def _check(self, kind: str, latest: Tally) -> None:
        if latest.n and latest.invalid == (("not_recorded", latest.n),):
            raise NotAvailable(f"nothing is recorded of {self.row.llm} for these {kind} in {self.row.store}")
        outcomes = [o for found in self.outcomes.values() for o in found.values()]
        whole = Tally.of(outcomes)
        if whole.invalid_share > self.row.max_invalid_share:
            details = {o.detail for o in outcomes if not isinstance(o, Answer)}
            said = next((d for d in sorted(details) if d), "")
            raise TooManyInvalid(
                f"{whole.n - whole.answered} of {whole.n} requests to {self.row.llm} have no answer "
                f"({dict(whole.invalid)}), allowed is a share of {self.row.max_invalid_share:g}; run again, or raise "
                f"params.max_invalid_share" + (f". The server said: {said}" if said else "")
            )

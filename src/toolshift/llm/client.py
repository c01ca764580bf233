"""The client: modes, retries with backoff, a bound on concurrent requests, and one outcome per request."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from toolshift.llm.endpoint import Endpoint
from toolshift.llm.errors import EndpointError
from toolshift.llm.outcomes import Answer, Invalid, Outcome, Tally, Usage
from toolshift.llm.request import Request
from toolshift.llm.store import ReplayStore, is_final
from toolshift.llm.transport import Attempt, Transport, openai_transport

logger = logging.getLogger(__name__)

Accept = Callable[[str], bool]
# A server that names a longer time is not waited for.
_LONGEST_RETRY_AFTER_S = 300.0
_FEWEST_TOKENS = 16


def anything(text: str) -> bool:
    """Accept every answer that is not empty."""
    return bool(text)


@cache
def client_of(endpoint: Endpoint) -> Client:
    """The one client of an endpoint in this process, so that all folds share its answers.

    Raises:
        NotAvailable: if the row cannot run here.
        EndpointError: for a bad value or a missing key.
    """
    endpoint.check()
    return Client(endpoint=endpoint)


@dataclass(kw_only=True)
class Client:
    """Asks an endpoint as its mode says. transport: of single attempts, made at the first one where None."""

    endpoint: Endpoint
    transport: Transport | None = None
    sleep: Callable[[float], None] = time.sleep
    _memo: dict[str, Outcome] = field(default_factory=dict, repr=False)

    @property
    def store(self) -> ReplayStore:
        """The store of the endpoint."""
        return ReplayStore(Path(self.endpoint.store))

    def complete(self, requests: Sequence[Request], *, accept: Accept = anything) -> list[Outcome]:
        """One outcome per request, in order; equal requests are asked once.

        accept: whether a text has the form that was asked for; one without it is ``malformed`` and asked again.

        Raises:
            EndpointError: if the endpoint refuses every request.
            StoreError: if a recorded answer is damaged.
        """
        distinct = {r.key: r for r in requests if r.key not in self._memo}
        if self.endpoint.mode != "live":
            self._memo.update(self._recorded(distinct))
        missing = [r for key, r in distinct.items() if key not in self._memo]
        if self.endpoint.mode == "replay":
            self._memo.update({r.key: Invalid(reason="not_recorded") for r in missing})
        elif missing:
            self._ask_all(missing, accept)
        return [_accepted(self._memo[r.key], accept) for r in requests]

    def _recorded(self, distinct: dict[str, Request]) -> dict[str, Outcome]:
        found = ((key, self.store.get(request)) for key, request in distinct.items())
        replay = self.endpoint.mode == "replay"
        return {key: outcome for key, outcome in found if outcome is not None and (replay or is_final(outcome))}

    def _ask_all(self, requests: Sequence[Request], accept: Accept) -> None:
        started = time.monotonic()
        if self.transport is None:
            self.transport = openai_transport(self.endpoint)
        refused = threading.Event()

        def ask(request: Request) -> Outcome:
            if refused.is_set():  # nothing is sent after a refusal, which an earlier request reports
                raise EndpointError("not sent: the endpoint refuses every request")
            try:
                return self._ask(request, accept)
            except EndpointError:
                refused.set()
                raise

        with ThreadPoolExecutor(max_workers=self.endpoint.concurrency, thread_name_prefix="llm") as pool:
            for request, outcome in zip(requests, pool.map(ask, requests), strict=True):
                self._memo[request.key] = outcome
        tally = Tally.of(self._memo[r.key] for r in requests)
        logger.log(
            logging.WARNING if tally.invalid else logging.INFO,
            "%s: %d requests, %d answered, invalid %s, %d + %d tokens, %.1f s",
            self.endpoint.model, tally.n, tally.answered, dict(tally.invalid) or "none",
            tally.usage.prompt_tokens, tally.usage.completion_tokens, time.monotonic() - started,
        )  # fmt: skip

    def _ask(self, request: Request, accept: Accept) -> Outcome:
        outcome = self._attempts(request, accept)
        return self.store.put(request, outcome) if self.endpoint.mode == "record" else outcome

    def _attempts(self, request: Request, accept: Accept) -> Outcome:
        """Ask until there is an answer, at most ``attempts`` times; the last reason counts."""
        assert self.transport is not None
        paid, room = Usage(), request.max_tokens
        outcome: Outcome = Invalid(reason="unreachable")
        for number in range(self.endpoint.attempts):
            attempt = self.transport(replace(request, max_tokens=room))
            outcome = _accepted(attempt.outcome, accept)
            paid += attempt.outcome.usage
            if isinstance(outcome, Answer) or outcome.reason == "rejected":
                break
            room = next_room(room, outcome)
            if number + 1 < self.endpoint.attempts:
                self.sleep(self.wait_s(number, attempt))
        return replace(outcome, usage=paid)

    def wait_s(self, number: int, attempt: Attempt) -> float:
        """Seconds after attempt ``number`` (from 0): doubling with jitter between half and all of it, and at least
        what the server asks for. Where the answer is at fault and not the server, it is asked again at once."""
        if isinstance(attempt.outcome, Answer) or attempt.outcome.reason in ("cut", "context_overflow"):
            return 0.0
        doubled = min(self.endpoint.first_wait_s * 2.0**number, self.endpoint.longest_wait_s)
        backoff = doubled * random.uniform(0.5, 1.0)
        return max(backoff, min(attempt.retry_after_s or 0.0, _LONGEST_RETRY_AFTER_S))


def next_room(room: int, outcome: Invalid) -> int:
    """Tokens for the next try: twice as many after a cut answer, half after an overflow, which counts them too."""
    if outcome.reason == "cut":
        return 2 * room
    return max(room // 2, _FEWEST_TOKENS) if outcome.reason == "context_overflow" else room


def _accepted(outcome: Outcome, accept: Accept) -> Outcome:
    if isinstance(outcome, Answer) and not accept(outcome.text):
        return Invalid(reason="malformed", detail="the answer has not the form that was asked for", usage=outcome.usage)
    return outcome

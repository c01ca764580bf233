"""What a request ends with: an answer or a named reason why there is none. Never an exception, so that a hole counts.

A caller may not drop an invalid outcome: it stays in the denominator and its reason in the record of the run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, get_args

Reason = Literal[
    "unreachable",
    "server_error",
    "rate_limited",
    "timeout",
    "malformed",
    "empty",
    "context_overflow",
    "cut",
    "rejected",
    "not_recorded",
]
REASONS: tuple[str, ...] = get_args(Reason)
"""``rejected``: the server refuses this one request. ``not_recorded``: replay has no answer to it."""
TRANSIENT = ("unreachable", "server_error", "rate_limited", "timeout")
"""Reasons that lie in the moment and not in the request: recording again asks again."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens that were paid for, over all attempts."""

    prompt_tokens: int = 0
    completion_tokens: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(self.prompt_tokens + other.prompt_tokens, self.completion_tokens + other.completion_tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A whole answer. served_by: the model's name as the server gives it."""

    text: str
    usage: Usage = Usage()
    served_by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Invalid:
    """No usable answer after all attempts. detail: what the server said last, without secrets."""

    reason: Reason
    detail: str = ""
    usage: Usage = Usage()


Outcome = Answer | Invalid


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Price of a million tokens, in any currency; None where it is not known."""

    prompt: float | None = None
    completion: float | None = None

    def cost(self, usage: Usage) -> float | None:
        """Cost of some tokens; None without both prices."""
        if self.prompt is None or self.completion is None:
            return None
        return (usage.prompt_tokens * self.prompt + usage.completion_tokens * self.completion) / 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """Outcomes by kind. n = answered + the sum of ``invalid``."""

    n: int
    answered: int
    invalid: tuple[tuple[str, int], ...]
    usage: Usage

    @staticmethod
    def of(outcomes: Iterable[Outcome]) -> Tally:
        """Count outcomes; reasons sorted by name."""
        found = list(outcomes)
        reasons = Counter(o.reason for o in found if isinstance(o, Invalid))
        return Tally(
            n=len(found),
            answered=len(found) - reasons.total(),
            invalid=tuple(sorted(reasons.items())),
            usage=sum((o.usage for o in found), Usage()),
        )

    @property
    def invalid_share(self) -> float:
        """Share of requests without an answer; 0 where nothing was asked."""
        return (self.n - self.answered) / max(self.n, 1)

    def record(self, prices: Prices) -> dict[str, Any]:
        """Plain content for the selection record of a run."""
        return {
            "n": self.n,
            "answered": self.answered,
            "invalid": dict(self.invalid),
            "prompt_tokens": self.usage.prompt_tokens,
            "completion_tokens": self.usage.completion_tokens,
            "cost": prices.cost(self.usage),
        }

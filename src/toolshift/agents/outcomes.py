"""What becomes of one intent: one of four kinds, never an exception, so that every intent is counted.

selected: a tool was chosen, its call fits the schema and was carried out. abstained: no tool was chosen, on purpose.
invalid: something was written that is no call, or no call of a tool that is there. error: the call is valid and was not
carried out. A wrong call is one of the last three at most, never an abstention: that is a decision, not a failure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

from toolshift.llm.outcomes import Usage

Kind = Literal["selected", "abstained", "invalid", "error"]
KINDS: tuple[str, ...] = get_args(Kind)
NO_TOKENS = Usage()
WhyAbstained = Literal["nothing_asked", "empty_registry", "below_threshold", "said_so"]
"""``nothing_asked``: the plan holds no intent. ``said_so``: the model was asked to choose and named no tool."""
WhyInvalid = Literal["no_answer", "cut", "not_json", "not_an_object", "schema", "unknown_tool", "missing_argument"]
"""``no_answer``: the request to the model failed (detail says how). ``cut``: the limit of tokens ended the text."""
WhyError = Literal["tool_error", "timeout", "not_allowed", "not_confirmed", "not_recorded", "no_function"]


class AgentError(RuntimeError):
    """Tools, results or settings of an agent cannot be used; the message says what to do."""

    user_facing = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Selected:
    """A call that was carried out. score: cosine of intent and tool. result: what the tool returned, as text.
    dry: nothing was really called."""

    kind: ClassVar[Kind] = "selected"
    intent: str
    tool: str
    arguments: Mapping[str, Any]
    result: str
    score: float
    dry: bool = False
    usage: Usage = NO_TOKENS


@dataclass(frozen=True, slots=True, kw_only=True)
class Abstained:
    """No tool. nearest: the best one that was not good enough, with its cosine; empty and 0 without one."""

    kind: ClassVar[Kind] = "abstained"
    intent: str
    reason: WhyAbstained
    nearest: str = ""
    score: float = 0.0
    usage: Usage = NO_TOKENS


@dataclass(frozen=True, slots=True, kw_only=True)
class Invalid:
    """No call. tool: the one that was to be called; empty where it did not come so far. text: what was written."""

    kind: ClassVar[Kind] = "invalid"
    intent: str
    reason: WhyInvalid
    detail: str = ""
    tool: str = ""
    text: str = ""
    usage: Usage = NO_TOKENS


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """A valid call that was not carried out, or broke down on the way."""

    kind: ClassVar[Kind] = "error"
    intent: str
    tool: str
    arguments: Mapping[str, Any]
    reason: WhyError
    detail: str = ""
    score: float = 0.0
    usage: Usage = NO_TOKENS


Outcome = Selected | Abstained | Invalid | Failed


def counts(outcomes: Iterable[Outcome]) -> dict[str, int]:
    """How many of each kind, in the order of ``KINDS``, kinds without any included."""
    found = Counter(outcome.kind for outcome in outcomes)
    return {kind: found[kind] for kind in KINDS}

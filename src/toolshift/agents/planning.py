"""Plan and split (Algorithm 1 lines 2 and 3), and synthesis (line 8), by a language model behind an endpoint."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from toolshift.agents.asking import NO_TOOL, PLANNER, SYNTHESISER, Model, answer_prompt, plan_prompt
from toolshift.agents.outcomes import NO_TOKENS, Invalid, Outcome, Selected
from toolshift.llm.outcomes import Answer, Usage
from toolshift.models.generative.requests import read_lines
from toolshift.models.ntilc.signature import shortened

# Characters of one result that the synthesis reads.
_RESULT = 4_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Intents in the order in which they are done; none where no tool is needed."""

    intents: tuple[str, ...]
    usage: Usage = NO_TOKENS


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """The answer of the loop. failed: why the model gave none; the text then lists the results."""

    text: str
    usage: Usage = NO_TOKENS
    failed: str = ""


class Planner(Protocol):
    """Turns a query into intents."""

    def plan(self, query: str) -> Plan | Invalid:
        """The intents, or why there are none to be read."""
        ...


class Synthesiser(Protocol):
    """Turns results into an answer."""

    def answer(self, query: str, outcomes: Sequence[Outcome]) -> Answered:
        """The answer to a query."""
        ...


def split(plan: str) -> tuple[str, ...]:
    """The intents of a plan block, one a line, each once; none for the word that says so."""
    lines = read_lines(plan)
    return () if [line.strip(" .").upper() for line in lines] == [NO_TOOL] else lines


@dataclass(frozen=True)
class ModelPlanner:
    """The plan block of a language model. most: intents that are followed, against plans without end."""

    model: Model
    most: int = 8

    def plan(self, query: str) -> Plan | Invalid:
        """See `Planner.plan`."""
        found = self.model.ask(PLANNER, plan_prompt(query))
        if not isinstance(found, Answer):
            reason = "cut" if found.reason == "cut" else "no_answer"
            detail = f"plan: {found.reason}: {found.detail}".rstrip(": ")
            return Invalid(intent=query, reason=reason, detail=detail, usage=found.usage)
        return Plan(intents=split(found.text)[: self.most], usage=found.usage)


@dataclass(frozen=True)
class ModelSynthesiser:
    """The answer of a language model, out of the query and the results."""

    model: Model

    def answer(self, query: str, outcomes: Sequence[Outcome]) -> Answered:
        """See `Synthesiser.answer`."""
        results = [(outcome.intent, told(outcome)) for outcome in outcomes]
        found = self.model.ask(SYNTHESISER, answer_prompt(query, results))
        if isinstance(found, Answer):
            return Answered(text=found.text.strip(), usage=found.usage)
        lines = "\n".join(f"{intent}: {result}" for intent, result in results)
        return Answered(text=lines, usage=found.usage, failed=f"{found.reason}: {found.detail}".rstrip(": "))


def told(outcome: Outcome) -> str:
    """An outcome as the synthesis reads it."""
    if isinstance(outcome, Selected):
        return shortened(outcome.result, limit=_RESULT)
    detail = getattr(outcome, "detail", "")
    return f"Not done ({outcome.kind}: {outcome.reason.replace('_', ' ')})" + (f": {detail}" if detail else "")

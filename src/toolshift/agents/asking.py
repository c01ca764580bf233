"""Prompts of the loop in our own words, and requests to a language model with one outcome each."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from toolshift.llm.client import Client
from toolshift.llm.outcomes import Answer
from toolshift.llm.outcomes import Invalid as NoAnswer
from toolshift.llm.request import Request

NO_TOOL = "NONE"
PLANNER = (
    "You prepare a request for tools that you cannot see. Write down the separate things that a tool has to do for it, "
    "in the order in which they can be done, one short imperative sentence per line, each understandable by itself and "
    "with all values of the request that it needs. Write nothing else. A request for one thing gives one line. "
    f"If no tool is needed, write only {NO_TOOL}."
)
WRITER = (
    "You fill in the arguments of one tool. Reply with one JSON object and nothing else: only arguments of the given "
    "schema, with values out of the request. Leave out optional arguments about which the request says nothing."
)
SYNTHESISER = (
    "You answer a request with the results of tools that were called for it. Use the results alone, be brief, and say "
    "plainly which part could not be done and why."
)


@dataclass(frozen=True, kw_only=True)
class Model:
    """A language model behind a client. max_tokens: room for one answer. temperature, seed: of every request."""

    client: Client
    max_tokens: int = 1024
    temperature: float = 0.0
    seed: int | None = None

    @property
    def name(self) -> str:
        """Name of the model at its endpoint."""
        return self.client.endpoint.model

    def ask(self, system: str, user: str, *, response_format: dict[str, Any] | None = None) -> Answer | NoAnswer:
        """One answer, or the reason why there is none."""
        request = Request(
            model=self.name,
            system=system,
            user=user,
            temperature=self.temperature,
            max_tokens=self.max_tokens,
            seed=self.seed,
            response_format=None if response_format is None else json.dumps(response_format),
        )
        (outcome,) = self.client.complete([request])
        return outcome


def plan_prompt(query: str) -> str:
    """The user message for the planner."""
    return f"Request:\n{query}"


def arguments_prompt(query: str, intent: str, *, name: str, description: str, schema: dict[str, Any]) -> str:
    """The user message for the writer: what is asked for, and the one selected tool. No other tool is in it."""
    about = f"{name}: {description}" if description else name
    return f"Request:\n{query}\n\nNow to do:\n{intent}\n\nTool:\n{about}\n\nSchema of its arguments:\n" + json.dumps(
        schema, ensure_ascii=False, separators=(",", ":")
    )


def answer_prompt(query: str, results: list[tuple[str, str]]) -> str:
    """The user message for the synthesis: (what was to be done, what came of it)."""
    parts = [f"{number}. {intent}\n{result}" for number, (intent, result) in enumerate(results, 1)]
    return f"Request:\n{query}\n\nResults:\n" + "\n\n".join(parts)

"""Parts of the loop without a language model. They show that the loop works; they are not the published method, whose
plan, arguments and answer a language model writes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from toolshift.agents.constraint import Written
from toolshift.agents.outcomes import Invalid, Outcome, Selected
from toolshift.agents.planning import Answered, Plan
from toolshift.agents.tools import Tool
from toolshift.models.ntilc.arguments import Schema, canonical, problems
from toolshift.text.requirements import requirements
from toolshift.text.spans import spans

_NUMBER = re.compile(r"(?<![\w.])[+-]?\d+(?:\.\d+)?(?!\w)")
_YES, _NO = frozenset(("yes", "true", "on")), frozenset(("no", "false", "off", "without"))


@dataclass(frozen=True)
class PlannerStandin:
    """The intents are the requirements of the query (`toolshift.text.requirements`)."""

    name: ClassVar[str] = "planner_standin"

    def plan(self, query: str) -> Plan:
        """At most four action clauses."""
        return Plan(intents=requirements(query))


@dataclass(frozen=True)
class WriterStandin:
    """Required arguments take, in their order, the next piece of the intent that fits their schema: quoted texts,
    numbers, names. An argument that nothing fits is missing. Optional ones are left out."""

    name: ClassVar[str] = "writer_standin"

    def write(self, query: str, intent: str, *, tool: Tool) -> Written | Invalid:
        """See `toolshift.agents.constraint.ArgumentWriter.write`."""
        whole = intent.strip(" .?!")
        found_in = [piece for piece in spans(intent) if piece.strip(" .?!") != whole]
        left = list(dict.fromkeys([*(found_in or spans(query)), *_NUMBER.findall(intent)]))
        left.sort(key=lambda piece: not (piece[:1].isupper() or f'"{piece}"' in intent))  # stable: names come first
        arguments: dict[str, Any] = {}
        for name in tool.schema.get("required", ()):
            found = _fitting(left, tool.schema.get("properties", {}).get(name, {}), intent)
            if found is None:
                return Invalid(
                    intent=intent,
                    reason="missing_argument",
                    detail=f"nothing in the request fits {name}",
                    tool=tool.name,
                )
            arguments[name] = found[0]
        wrong = problems(arguments, tool.schema)
        if wrong:
            text = canonical(arguments)
            return Invalid(intent=intent, reason="schema", detail="; ".join(wrong[:3]), tool=tool.name, text=text)
        return Written(arguments=arguments)


def _fitting(left: list[str], schema: Schema, intent: str) -> tuple[Any] | None:
    """The first piece that fits, taken out of those left; one of a closed set by its word in the intent."""
    words = intent.lower()
    for value in [schema["const"]] if "const" in schema else schema.get("enum", ()):
        if "const" in schema or str(value).lower() in words:
            return (value,)
    for i, piece in enumerate(left):
        for value in _readings(piece, schema):
            if not problems(value, schema):
                del left[i]
                return (value,)
    return None


def _readings(piece: str, schema: Schema) -> Iterable[Any]:
    """What a piece of text may stand for: a number first where numbers may stand."""
    kinds = schema.get("type")
    kinds = kinds if isinstance(kinds, list) else [kinds]
    if match := _NUMBER.fullmatch(piece):
        number = float(match.group())
        if "integer" in kinds or "number" in kinds:
            yield int(number) if number.is_integer() else number
    if "boolean" in kinds and piece.lower() in _YES | _NO:
        yield piece.lower() in _YES
    yield piece
    if "array" in kinds:
        yield [piece]


@dataclass(frozen=True)
class SynthesiserStandin:
    """The answer is the list of results."""

    name: ClassVar[str] = "synthesiser_standin"

    def answer(self, query: str, outcomes: Sequence[Outcome]) -> Answered:
        """One line an outcome."""
        del query
        lines = [
            f"{o.intent}: {o.result}" if isinstance(o, Selected) else f"{o.intent}: {o.kind} ({o.reason})"
            for o in outcomes
        ]
        return Answered(text="\n".join(lines))

"""The NTILC tool loop, Algorithm 1 of the paper: every intent of a query ends in one typed outcome."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from toolshift.agents.constraint import ArgumentWriter
from toolshift.agents.executor import Dispatcher, Refusal
from toolshift.agents.outcomes import Abstained, AgentError, Failed, Invalid, Outcome, Selected, counts
from toolshift.agents.planning import Planner, Synthesiser
from toolshift.agents.search import Hit, ToolSearch
from toolshift.llm.outcomes import Usage

STAGES = ("plan", "search", "write", "dispatch", "answer")


@dataclass(frozen=True, kw_only=True)
class Episode:
    """What became of one query. seconds: by stage (``STAGES``), wall clock. usage: tokens of all stages.
    answer_failed: why the synthesis gave no answer; ``answer`` then lists the results."""

    query: str
    outcomes: tuple[Outcome, ...]
    answer: str
    usage: Usage
    seconds: dict[str, float]
    answer_failed: str = ""

    @property
    def counts(self) -> dict[str, int]:
        """Outcomes by kind."""
        return counts(self.outcomes)


@dataclass(frozen=True, kw_only=True)
class Agent:
    """The parts of the loop. min_score: cosine below which no tool is chosen; None to take the nearest always."""

    planner: Planner
    search: ToolSearch
    writer: ArgumentWriter
    dispatcher: Dispatcher
    synthesiser: Synthesiser
    min_score: float | None = None

    def __post_init__(self) -> None:
        if self.min_score is not None and not -1 <= self.min_score <= 1:
            raise AgentError(f"min_score is a cosine, expected a number from -1 to 1, got {self.min_score}")

    def run(self, query: str) -> Episode:
        """Plan, split, encode, search, write, dispatch, answer.

        Raises:
            EndpointError: if the endpoint refuses every request (no such model, no valid key).
        """
        clock = _Clock()
        with clock.of("plan"):
            plan = self.planner.plan(query)
        if isinstance(plan, Invalid):
            outcomes: list[Outcome] = [plan]
        elif not plan.intents:
            outcomes = [Abstained(intent=query, reason="nothing_asked", usage=plan.usage)]
        else:
            with clock.of("search"):
                hits = self.search.search(plan.intents)
            outcomes = [self._one(query, i, found, clock) for i, found in zip(plan.intents, hits, strict=True)]
        with clock.of("answer"):
            answer = self.synthesiser.answer(query, outcomes)
        planned = plan.usage if not isinstance(plan, Invalid) and plan.intents else Usage()
        return Episode(
            query=query,
            outcomes=tuple(outcomes),
            answer=answer.text,
            usage=sum((o.usage for o in outcomes), planned) + answer.usage,
            seconds=clock.seconds,
            answer_failed=answer.failed,
        )

    def _one(self, query: str, intent: str, hits: list[Hit], clock: _Clock) -> Outcome:
        """One intent from its nearest tool to the result of the call."""
        if not hits:
            return Abstained(intent=intent, reason="empty_registry")
        tool, score = hits[0].tool, hits[0].score
        if self.min_score is not None and score < self.min_score:
            return Abstained(intent=intent, reason="below_threshold", nearest=tool.name, score=score)
        with clock.of("write"):
            written = self.writer.write(query, intent, tool=tool)
        if isinstance(written, Invalid):
            return written
        with clock.of("dispatch"):
            found = self.dispatcher.dispatch(tool, written.arguments)
        arguments, usage = written.arguments, written.usage
        if isinstance(found, Refusal):
            return Failed(
                intent=intent, tool=tool.name, arguments=arguments, reason=found.reason, detail=found.detail,
                score=score, usage=usage,
            )  # fmt: skip
        return Selected(
            intent=intent, tool=tool.name, arguments=arguments, result=found.result, score=score, dry=found.dry,
            usage=usage,
        )  # fmt: skip


@dataclass(frozen=True)
class _Clock:
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(STAGES, 0.0))
    now: Callable[[], float] = time.perf_counter

    @contextmanager
    def of(self, stage: str) -> Iterator[None]:
        start = self.now()
        try:
            yield
        finally:
            self.seconds[stage] += self.now() - start

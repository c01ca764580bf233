"""In-context selection: the registry in the prompt, what it costs in tokens and time, and what the model picks.

The baseline that NTILC leaves out of the prompt (paper, section 4.2; spec/ntilc.md section 4). Parts for a study over
registry sizes: `Registries` draws the tools, `Chooser` asks, `PromptCost` counts.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from toolshift.agents.asking import PLANNER, WRITER, Model, plan_prompt
from toolshift.agents.outcomes import NO_TOKENS, AgentError, Kind
from toolshift.agents.tools import Tool
from toolshift.llm.outcomes import Answer, Usage
from toolshift.llm.outcomes import Invalid as NoAnswer
from toolshift.models.ntilc.signature import Rows
from toolshift.runs.seeds import id_hashes, keyed_hash, seed_of

SIZES = (10, 50, 100, 150, 200, 250)
"""Registry sizes of the paper's in-context rows."""
MOST_NAMED = 5
CHOOSER = (
    "You choose a tool for a request. The tools are listed one per line as JSON. Reply with a JSON object and nothing "
    f'else: {{"tools": [names]}} with up to {MOST_NAMED} names of listed tools, the most suitable first. If none of '
    'them can do it, reply {"tools": []}.'
)


class TokenCounter(Protocol):
    """Counts tokens of texts. name: for tables. exact: whether it is the tokenizer of a model, or an estimate."""

    name: str
    exact: bool

    def count(self, texts: Sequence[str]) -> NDArray[np.int64]:
        """(n,) tokens without special ones."""
        ...


@dataclass(frozen=True)
class EstimatedTokens:
    """A quarter of the characters, rounded up. An estimate, and named so."""

    name: str = "characters / 4 (estimate)"
    exact: bool = False

    def count(self, texts: Sequence[str]) -> NDArray[np.int64]:
        """See `TokenCounter.count`."""
        return np.array([math.ceil(len(text) / 4) for text in texts], np.int64)


@dataclass(frozen=True)
class TokenizerTokens:
    """The tokenizer in a model's folder. It is exact for that model alone; the table says which it is."""

    folder: Path
    exact: bool = True

    @property
    def name(self) -> str:
        """Name of the folder."""
        return f"tokenizer of {self.folder.name}"

    def count(self, texts: Sequence[str]) -> NDArray[np.int64]:
        """See `TokenCounter.count`."""
        if not texts:
            return np.zeros(0, np.int64)
        ids = self._tokenizer(list(texts), add_special_tokens=False, truncation=False, verbose=False)["input_ids"]
        return np.array([len(row) for row in ids], np.int64)

    @cached_property
    def _tokenizer(self) -> Any:
        from transformers import AutoTokenizer

        try:
            return AutoTokenizer.from_pretrained(self.folder, local_files_only=True)
        except (OSError, ValueError) as error:
            raise AgentError(f"{self.folder}: no tokenizer of transformers ({error})") from error


# ---------------------------------------------------------------------------------------------------------- registries


@dataclass(frozen=True)
class Registries:
    """Registries of one query: its gold tools and drawn others. Those of a query grow by adding: the tools of size 10
    are among those of size 50. Drawing and order depend on names and seed alone, so that the gold tool has no place of
    its own."""

    names: Sequence[str]
    seed: int = 42

    def rows(self, query: str, gold: Sequence[int], *, size: int, with_gold: bool = True) -> Rows:
        """(size,) distinct tool rows in the order of the prompt; all tools where there are fewer.

        with_gold: false to leave the gold tools out and ask whether the model then abstains.

        Raises:
            AgentError: if the gold tools alone are more than ``size``.
        """
        if size < 1 or len(gold) > size:
            raise AgentError(f"a registry of {size} tools cannot hold the {len(gold)} gold tools of a query")
        own = id_hashes([query])
        draw = keyed_hash(seed_of("registry", self.seed), own, self._hashes)
        draw[list(gold)] = 0 if with_gold else np.iinfo(np.uint64).max
        room = min(size, len(self.names) - (0 if with_gold else len(gold)))
        chosen = np.argsort(draw, kind="stable")[:room]
        place = keyed_hash(seed_of("registry place", self.seed), own, self._hashes[chosen])
        return chosen[np.argsort(place, kind="stable")].astype(np.int64)

    @cached_property
    def _hashes(self) -> NDArray[np.uint64]:
        return id_hashes(self.names)


def tool_line(tool: Tool) -> str:
    """A tool as one line of the registry prompt: name, description and schema."""
    content = {"name": tool.name, "description": tool.description, "parameters": tool.schema}
    return json.dumps(content, ensure_ascii=False, separators=(",", ":"))


def registry_prompt(query: str, tools: Sequence[Tool]) -> str:
    """The user message with the whole registry, or with the k nearest tools, before the request."""
    lines = "\n".join(map(tool_line, tools))
    return f"Tools:\n{lines}\n\nRequest:\n{query}"


# -------------------------------------------------------------------------------------------------------------- asking


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What a model picked. kind: selected, abstained (it named no tool) or invalid. tools: names, best first; a name
    that is not in the registry keeps its rank, and counts as wrong. reason: why it is invalid. seconds: wall clock of
    the request, None where the answer was not waited for (a replay)."""

    kind: Kind
    tools: tuple[str, ...] = ()
    reason: str = ""
    detail: str = ""
    usage: Usage = NO_TOKENS
    seconds: float | None = None

    def hit(self, gold: Sequence[str], *, k: int) -> bool:
        """Whether a gold tool is among the first ``k``. False for an abstention and for an invalid answer."""
        return bool(set(self.tools[:k]) & set(gold))


@dataclass(frozen=True, kw_only=True)
class Chooser:
    """Asks a model to choose out of tools that stand in the prompt."""

    model: Model
    now: Callable[[], float] = time.perf_counter

    def choose(self, query: str, tools: Sequence[Tool]) -> Choice:
        """The choice for one query. An empty registry is an abstention; nobody is asked.

        Time is measured in the mode ``live`` alone. There too, a request that was asked before in this process is
        answered at once: measure different ones.
        """
        if not tools:
            return Choice(kind="abstained", reason="empty_registry")
        start = self.now()
        found = self.model.ask(CHOOSER, registry_prompt(query, tools))
        seconds = self.now() - start if self.model.client.endpoint.mode == "live" else None
        if isinstance(found, NoAnswer):
            reason = "cut" if found.reason == "cut" else "no_answer"
            detail = f"{found.reason}: {found.detail}".rstrip(": ")
            return Choice(kind="invalid", reason=reason, detail=detail, usage=found.usage, seconds=seconds)
        return read_choice(found, known={tool.name for tool in tools}, seconds=seconds)


def read_choice(answer: Answer, *, known: set[str], seconds: float | None = None) -> Choice:
    """The names in an answer. The first one must be a tool of the registry, or the choice is invalid."""
    text = answer.text
    start, end = text.find("{"), text.rfind("}")  # a code fence around the object is common
    try:
        content = json.loads(text[start : end + 1]) if 0 <= start < end else None
    except ValueError:
        content = None
    names = content.get("tools") if isinstance(content, dict) else None

    def invalid(reason: Literal["not_json", "unknown_tool"], detail: str) -> Choice:
        return Choice(kind="invalid", reason=reason, detail=detail, usage=answer.usage, seconds=seconds)

    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        return invalid("not_json", 'expected {"tools": [names]}')
    tools = tuple(dict.fromkeys(name.strip() for name in names))[:MOST_NAMED]
    if not tools:
        return Choice(kind="abstained", reason="said_so", usage=answer.usage, seconds=seconds)
    if tools[0] not in known:
        return invalid("unknown_tool", f"{tools[0][:80]!r} is no tool of the registry")
    return Choice(kind="selected", tools=tools, usage=answer.usage, seconds=seconds)


# ---------------------------------------------------------------------------------------------------------------- cost


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptCost:
    """Tokens of one selection by parts (paper, section 4.2): S system prompt, Q query, N tools of r tokens each on
    average, D instruction of NTILC's dispatcher. All from one `TokenCounter`."""

    system: float
    query: float
    per_tool: float
    instruction: float
    counter: str
    exact: bool

    def in_context(self, n_tools: int) -> float:
        """S + Q + N r: the whole registry, or the k nearest tools, in the prompt."""
        return self.system + self.query + n_tools * self.per_tool

    @property
    def ntilc(self) -> float:
        """S + D + Q, whatever the registry's size [T]."""
        return self.system + self.instruction + self.query

    @property
    def ntilc_with_schema(self) -> float:
        """The same with the schema of the selected tool, which writing the arguments takes: not counted by the
        paper."""
        return self.ntilc + self.per_tool


def prompt_cost(queries: Sequence[str], tools: Sequence[Tool], *, counter: TokenCounter) -> PromptCost:
    """Means over queries and tools.

    S is our prompt for choosing, D the two fixed prompts of the loop, planner and writer.

    Raises:
        AgentError: without queries or tools.
    """
    if not queries or not tools:
        raise AgentError("the cost of a prompt needs at least one query and one tool")
    system, planner, writer = counter.count([CHOOSER, PLANNER, WRITER]).tolist()
    return PromptCost(
        system=system,
        query=float(counter.count([plan_prompt(query) for query in queries]).mean()),
        per_tool=float(counter.count([tool_line(tool) + "\n" for tool in tools]).mean()),
        instruction=planner + writer,
        counter=counter.name,
        exact=counter.exact,
    )

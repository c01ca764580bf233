"""Stage 2 by a language model, 0-shot or with examples (skillgraph.md section 6).

The model sees the query and the names and descriptions of a set and answers ``name -> name -> name``. An answer that is
no order of the set is counted by reason and never repaired: the prediction is then the order that Stage 1 handed over.
The wording is ours, since no prompt was published [R]. Changing a word changes the key of every recorded answer.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from toolshift.llm.outcomes import Answer, Outcome
from toolshift.llm.request import Request
from toolshift.models.base import BadParameter
from toolshift.models.generative.asking import Asked, LlmRow
from toolshift.models.generative.requests import shortened
from toolshift.models.skillgraph.retrieval import Sets
from toolshift.models.skillgraph.sequences import Sequences
from toolshift.runs.seeds import id_hashes, keyed_hash, seed_of

Ints = NDArray[np.int64]
ParseFailure = Literal["no_arrow", "unknown_tool", "repeated_tool", "missing_tool"]
PARSE_FAILURES: tuple[str, ...] = get_args(ParseFailure)
ANSWERED, SINGLE = "answered", "single"
"""Outcomes of a query whose order is the model's, and of a set of at most one tool, which is not asked."""

SYSTEM = (
    "You plan the use of tools. You are given a request and the tools that are used to fulfil it. Put them in the "
    "order in which they have to be called. Use every tool exactly once and no other. Answer with one line and nothing "
    "else: the names of the tools, as given, joined by ->"
)
_ARROWS = re.compile(r"->|\u2192")
_EDGES = " \t\"'`*[]().,;\u201c\u201d"
_NUMBER = re.compile(r"^\(?\d{1,2}[.):]\s+")


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolTexts:
    """Names and descriptions of the n tools of the library, by row."""

    names: tuple[str, ...]
    descriptions: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shots:
    """Training records to draw examples from: ids, query texts and sequences, one per record."""

    ids: Sequence[str]
    queries: Sequence[str]
    sequences: Sequences


@dataclass(frozen=True, slots=True, kw_only=True)
class LlmOrders:
    """Orders of q queries and how each came about."""

    items: Ints
    """(q, k) tool rows, filled with -1."""
    outcomes: tuple[str, ...]
    """(q,) ``answered``, ``single``, or why the order is that of Stage 1: a reason of the client or of the parser."""
    record: Mapping[str, Any]
    """Model, counts of outcomes over queries, and of requests by kind."""

    @property
    def valid(self) -> NDArray[np.bool_]:
        """(q,) the order is not a stand-in."""
        return np.array([o in (ANSWERED, SINGLE) for o in self.outcomes], dtype=bool)


@dataclass(frozen=True, kw_only=True)
class LlmOrderer(LlmRow):
    """A language model as Stage 2; parameters besides those of `LlmRow`:

    shots: examples per prompt. description_words: of each tool. temperature: of the answers. seed: of the examples.

    Raises:
        BadParameter: for a value out of range.
    """

    llm: str = "meta-llama/Llama-3.1-8B-Instruct"
    max_tokens: int = 512
    shots: int = 0
    description_words: int = 40
    temperature: float = 0.0
    seed: int = 42

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.shots < 0 or self.description_words < 0 or self.temperature < 0:
            raise BadParameter(
                f"shots, description_words and temperature must not be negative, got {self.shots}, "
                f"{self.description_words} and {self.temperature}"
            )

    def order(
        self,
        sets: Sets,
        *,
        ids: Sequence[str],
        queries: Sequence[str],
        tools: ToolTexts,
        shots: Shots | None = None,
    ) -> LlmOrders:
        """Order sets; those of `oracle_sets` make an `oracle set` row.

        ids, queries: (q,) of the sets. shots: training records, needed where ``shots`` is above 0.

        Raises:
            ValueError: if numbers differ, or examples are asked for and there are no records to draw them from.
            NotAvailable: if nothing of this is recorded.
            TooManyInvalid: if more requests than allowed have no answer; answers that cannot be read do not count here.
        """
        ranked = sets.by_cosine()
        if not len(ids) == len(queries) == len(ranked.items):
            raise ValueError(f"{len(ids)} ids and {len(queries)} queries for {len(ranked.items)} sets")
        if self.shots and (shots is None or not len(shots.ids)):
            raise ValueError(f"shots={self.shots} needs training records to draw examples from")
        size = ranked.size
        rows = np.flatnonzero(size > 1)
        names = [unique_names(ranked.items[row, : size[row]], tools.names) for row in rows.tolist()]
        chosen = self._examples(size[rows], [ids[row] for row in rows.tolist()], shots)
        requests = []
        for row, own, picked in zip(rows.tolist(), names, chosen, strict=True):
            examples = [example_text(shots, i, tools=tools, words=self.description_words) for i in picked if shots]
            user = prompt(queries[row], ranked.items[row, : size[row]], own, tools, words=self.description_words)
            requests.append(self.request(SYSTEM, "\n\n".join([*examples, user]), temperature=self.temperature))
        return self._read(ranked, rows, names, requests)

    def _examples(self, size: Ints, ids: Sequence[str], shots: Shots | None) -> list[list[int]]:
        if not self.shots or shots is None:
            return [[] for _ in ids]
        return nearest_examples(size, ids=ids, shots=shots, count=self.shots, seed=self.seed)

    def _read(self, ranked: Sets, rows: Ints, names: list[list[str]], requests: list[Request]) -> LlmOrders:
        items, outcomes, asked = ranked.items.copy(), [SINGLE] * len(ranked.items), Asked(row=self)
        texts = asked.ask("orders", requests, accept=bool) if requests else []
        known: Mapping[str, Outcome] = asked.outcomes.get("orders", {})
        for row, own, request, text in zip(rows.tolist(), names, requests, texts, strict=True):
            outcome = known[request.key]
            if text is None:
                outcomes[row] = outcome.reason if not isinstance(outcome, Answer) else ANSWERED
                continue
            found = read_order(text, own)
            if isinstance(found, str):
                outcomes[row] = found
                continue
            outcomes[row] = ANSWERED
            items[row, : len(own)] = ranked.items[row, found]
        counts = dict(sorted(Counter(outcomes).items()))
        record = {**asked.record, "shots": self.shots, "outcomes": counts}
        return LlmOrders(items=items, outcomes=tuple(outcomes), record=record)


def unique_names(items: Ints, names: Sequence[str]) -> list[str]:
    """Names of the tools of a set on one line each; one that came before gets a number, as tools may share it."""
    seen: Counter[str] = Counter()
    out = []
    for item in items.tolist():
        name = " ".join(str(names[int(item)]).split())
        seen[name.casefold()] += 1
        out.append(name if seen[name.casefold()] == 1 else f"{name} ({seen[name.casefold()]})")
    return out


def prompt(query: str, items: Ints, names: Sequence[str], tools: ToolTexts, *, words: int) -> str:
    """Request and tools. Tools are listed by name, so that neither the gold nor the Stage-1 order shows."""
    lines = [
        f"- {names[i]}: {shortened(tools.descriptions[items[i]], words=words)}".rstrip(": ")
        for i in sorted(range(len(names)), key=lambda i: names[i])
    ]
    return "\n".join([f"Request: {' '.join(query.split())}", "Tools:", *lines, "Order:"])


def example_text(shots: Shots, row: int, *, tools: ToolTexts, words: int) -> str:
    """A training record as prompt and answer; a tool that is called again counts at its first call."""
    calls = shots.sequences.of(row)
    items = calls[np.sort(np.unique(calls, return_index=True)[1])]
    names = unique_names(items, tools.names)
    return f"{prompt(shots.queries[row], items, names, tools, words=words)} {' -> '.join(names)}"


def nearest_examples(size: Ints, *, ids: Sequence[str], shots: Shots, count: int, seed: int) -> list[list[int]]:
    """Rows of ``count`` training records per query, whose number of distinct tools (at least two) is nearest to the
    size of its set, equally near ones by the hash of (query, record). A record never is an example for itself.

    Raises:
        ValueError: if a query has fewer records to choose from.
    """
    lengths = shots.sequences.deduplicated().lengths
    hashes, salt = id_hashes(shots.ids), seed_of("skillgraph/shots", seed)
    own = {name: row for row, name in enumerate(shots.ids)}
    out = []
    for wanted, name, mine in zip(size.tolist(), ids, id_hashes(ids), strict=True):
        usable = lengths >= 2
        if name in own:
            usable[own[name]] = False
        rows = np.flatnonzero(usable)
        if len(rows) < count:
            raise ValueError(f"query {name!r}: {count} examples asked for, {len(rows)} training records to choose from")
        drawn = keyed_hash(salt, np.asarray(mine), hashes[rows])
        out.append(rows[np.lexsort((drawn, np.abs(lengths[rows] - wanted)))[:count]].tolist())
    return out


def read_order(text: str, names: Sequence[str]) -> list[int] | ParseFailure:
    """Places in ``names`` in the order of an answer, or why it is no order of them.

    The line with the most arrows is read, the last of several. Case, quotation marks, numbers and a label before a
    colon are ignored; a name that is not exact otherwise is unknown.
    """
    lines = [(len(_ARROWS.findall(line)), number, line) for number, line in enumerate(text.splitlines())]
    arrows, _, line = max(lines, default=(0, 0, ""))
    if not arrows:
        return "no_arrow"
    place = {_plain(name): i for i, name in enumerate(names)}
    found = [_place(part, place) for part in _ARROWS.split(line)]
    if any(i is None for i in found):
        return "unknown_tool"
    order = [i for i in found if i is not None]
    if len(set(order)) < len(order):
        return "repeated_tool"
    return order if len(order) == len(names) else "missing_tool"


def _place(part: str, place: Mapping[str, int]) -> int | None:
    tried = (part, _NUMBER.sub("", part.strip()), part.rpartition(":")[2])
    return next((place[key] for key in map(_plain, tried) if key in place), None)


def _plain(name: str) -> str:
    # Brackets are part of some names ("x (2)"), at the edges of others they are decoration: both sides lose them.
    return " ".join(name.split()).strip(_EDGES).casefold()

"""Rank your own tools: ``toolshift.load``, then ``index``, ``rank``, ``explain``, ``add`` and ``remove``.

>>> import toolshift
>>> ranker = toolshift.load("semantic_cosine", encoder="hashing")
>>> ranker = ranker.index([
...     {"name": "get_weather", "description": "Weather forecast for a city."},
...     {"name": "book_table", "description": "Reserve a table in a restaurant."},
... ])
>>> best = ranker.rank("weather forecast", k=1)[0]
>>> best.name, best.rank
('get_weather', 1)

Only what stands in a score is said about it: scores are no probabilities, and how sure a ranking is shows in the margin
to the next tool. Importing this module is light; encoders and models are loaded by ``load``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolshift.settings.errors import UserError
from toolshift.settings.nearest import suggestion

if TYPE_CHECKING:
    from toolshift.data.records import Library
    from toolshift.experiment.method import Method
    from toolshift.experiment.tool_index import ToolIndex
    from toolshift.experiment.why import Why

    Tools = str | Path | Mapping[str, Any] | Callable[..., Any] | Sequence[Any] | Library

NEAR_TIE = 0.01
"""Two scores that are less apart say that the method does not tell the tools apart."""
LONGEST_QUERY = 100_000
_LISTED = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranked:
    """One tool of an answer. score: of the method, higher is better, no probability. rank: from 1. margin: how much
    higher the score is than that of the next tool; None for the last tool of the index."""

    tool_id: str
    name: str
    score: float
    rank: int
    margin: float | None

    @property
    def is_near_tie(self) -> bool:
        """Whether the next tool is less than ``NEAR_TIE`` away."""
        return self.margin is not None and self.margin < NEAR_TIE


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The best tools for a request, best first. of: tools in the index. notes: what the reader should know of it."""

    query: str
    ranked: tuple[Ranked, ...]
    of: int
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """Why a tool got its score and place. behind: how much lower its score is than that of the first tool."""

    query: str
    method: str
    tool: Ranked
    of: int
    behind: float
    why: Why


@dataclass
class Ranker:
    """A method and, after ``index``, the tools it ranks. Not safe for use by several threads at once."""

    method: Method
    cache: Path
    notes: tuple[str, ...] = ()
    _index: ToolIndex | None = field(default=None, repr=False)

    @property
    def about(self) -> str:
        """What ranks: the method and, of a run, which of its fits was taken and why."""
        return self.method.about

    @property
    def tools(self) -> Library:
        """The tools that are ranked, sorted by id.

        Raises:
            UserError: before ``index``.
        """
        return self._ready.library

    def index(self, tools: Tools, *, strict: bool = False) -> Ranker:
        """Take these tools, in place of any before, and embed them; what was embedded once is read from disk.

        tools: a file or folder, one or several tool definitions or Python functions, or a ``Library``. strict: a part
        of a tool that cannot be used is an error; otherwise it is left out and named in ``notes``.

        Returns:
            The ranker itself.

        Raises:
            AdapterError: if a file cannot be read or there is no tool.
        """
        from toolshift.data.importers.reading import import_tools
        from toolshift.experiment.tool_index import ToolIndex

        found = import_tools(tools, strict=strict)
        self._index = ToolIndex.of(found.library, self.method, cache=self.cache)
        self.notes = found.notes
        return self

    def add(self, tools: Tools, *, strict: bool = False) -> tuple[str, ...]:
        """Add tools; returns their ids. Nothing is added if one of them is there already.

        Raises:
            UserError: before ``index``, or if an id is taken.
            AdapterError: as ``index``.
        """
        from toolshift.data.importers.reading import import_tools

        index = self._ready
        found = import_tools(tools, strict=strict)
        ids = tuple(c.capability_id for c in found.library.capabilities)
        taken = [tool_id for tool_id in ids if tool_id in index.library.position]
        if taken:
            raise UserError(
                f"{_some(taken)}: the index has {'such a tool' if len(taken) == 1 else 'such tools'} already; remove "
                "the old one first, or give the new one another name"
            )
        self._index, self.notes = index.extended(found.library), found.notes
        return ids

    def remove(self, ids: str | Iterable[str]) -> None:
        """Remove tools, by id or name. Nothing is removed if one of them is unknown.

        Raises:
            UserError: before ``index``, or for a tool that is not there.
        """
        index = self._ready
        self._index = index.without([self._id(tool) for tool in ([ids] if isinstance(ids, str) else ids)])

    def rank(self, query: str, k: int = 5) -> tuple[Ranked, ...]:
        """The k best tools for a request, best first; all where there are fewer. Equal scores are ordered by id.

        Raises:
            UserError: before ``index``, without tools, for an empty request, or one of over ``LONGEST_QUERY``
                characters, or k below 1.
        """
        return self.answer(query, k).ranked

    def answer(self, query: str, k: int = 5) -> Answer:
        """``rank``, with what should be known about it: a near tie, a request that is cut, fewer tools than asked for.

        Raises:
            UserError: as ``rank``.
        """
        return next(self.answers([query], k))

    def answers(self, queries: Sequence[str], k: int = 5) -> Iterator[Answer]:
        """An answer per request; equal to those one by one.

        Raises:
            UserError: as ``rank``, before anything is scored.
        """
        index = self._ready
        if not index.library.capabilities:
            raise UserError("the index holds no tools; add some first")
        if isinstance(k, bool) or not isinstance(k, int) or k < 1:
            raise UserError(f"k={k!r}: expected a whole number of at least 1")
        checked = [checked_query(query) for query in queries]
        for query, scores in zip(checked, index.scores(checked), strict=True):
            order = _order(scores, k + 1)
            yield Answer(
                query=query,
                ranked=tuple(self._ranked(scores, order, place) for place in range(min(k, len(order)))),
                of=len(scores),
                notes=tuple(self._notes(query, scores, order, k)),
            )

    def explain(self, query: str, tool: str) -> Explained:
        """Why a tool, by id or name, gets its score for a request: what each part of the method adds.

        Raises:
            UserError: as ``rank``, or for a tool that is not there.
        """
        from toolshift.experiment.why import why

        index, query = self._ready, checked_query(query)
        tool_id = self._id(tool)
        (scores,) = index.scores([query])
        order = _order(scores, len(scores))
        place = order.index(index.library.position[tool_id])
        return Explained(
            query=query,
            method=self.about,
            tool=self._ranked(scores, order, place),
            of=len(order),
            behind=float(scores[order[0]] - scores[order[place]]),
            why=why(index, query, tool_id, score=float(scores[order[place]])),
        )

    @property
    def _ready(self) -> ToolIndex:
        if self._index is None:
            raise UserError("there are no tools yet: call index(tools) first")
        return self._index

    def _ranked(self, scores: Any, order: Sequence[int], place: int) -> Ranked:
        capability = self._ready.library.capabilities[order[place]]
        score = float(scores[order[place]])
        last = place + 1 == len(order)
        return Ranked(
            tool_id=capability.capability_id,
            name=capability.name,
            score=score,
            rank=place + 1,
            margin=None if last else score - float(scores[order[place + 1]]),
        )

    def _notes(self, query: str, scores: Any, order: Sequence[int], k: int) -> Iterator[str]:
        if len(order) > 1:
            margin = float(scores[order[0]] - scores[order[1]])
            if margin < NEAR_TIE:
                names = [self._ready.library.capabilities[i].name for i in order[:2]]
                ahead = f"is only {margin:.4f} ahead of" if margin > 0 else "has the same score as"
                yield f"near tie: {names[0]!r} {ahead} {names[1]!r}"
        if k > len(scores):
            yield f"asked for {k} tools, the index holds {len(scores)}"
        encoder = self.method.encoder
        # A token has a character at least: only a text of so many may be cut.
        if len(query) >= encoder.max_length > 0 and bool(encoder.truncated([query])[0]):
            yield f"the request is long: the encoder reads its first {encoder.max_length} tokens only"

    def _id(self, tool: str) -> str:
        library = self._ready.library
        if tool in library.position:
            return tool
        fitting = [c.capability_id for c in library.capabilities if c.name == tool]
        if len(fitting) != 1:
            if fitting:
                raise UserError(f"{tool}: {len(fitting)} tools have this name: {_some(fitting)}; give the id of one")
            near = suggestion(tool, [c.name for c in library.capabilities])
            raise UserError(f"{tool}: the index has no such tool{near}")
        return fitting[0]


def load(
    run_or_model: str | Path = "semantic_cosine",
    *,
    target: str | None = None,
    seed: int | None = None,
    encoder: str | None = None,
    encoder_path: str | Path | None = None,
    outputs: str | Path = "outputs",
    cache: str | Path = "data",
    data_root: str | Path | None = None,
) -> Ranker:
    """A ranker: the fit of a finished run, or a model that needs no training.

    run_or_model: a run's folder, the beginning of its hash, or a name such as ``semantic_cosine`` or ``bm25``. target,
    seed: which fit of a run; by default the one that learned from most source tasks, and the first seed (``about`` says
    which). encoder: of a model without a run, ``minilm`` by default. encoder_path: folder of its weights. outputs:
    holds ``runs/``. cache: keeps embeddings. data_root: the real data of a run, where its fit reads source records.

    Raises:
        UserError: if there is no such run or model, or its checkpoint cannot be used.
    """
    from toolshift.experiment.method import Places, method_of

    places = Places(
        outputs=Path(outputs),
        cache=Path(cache),
        data_root=None if data_root is None else str(data_root),
        encoder_path=None if encoder_path is None else str(encoder_path),
    )
    method = method_of(str(run_or_model), places=places, encoder=encoder, target=target, seed=seed)
    return Ranker(method=method, cache=Path(cache))


def checked_query(query: object) -> str:
    """The request without blanks around it and without broken halves of characters.

    Raises:
        UserError: if it is no text, empty, or too long.
    """
    from toolshift.data.rows import scrubbed

    if not isinstance(query, str):
        raise UserError(f"query: expected a text, got {type(query).__name__}")
    text = scrubbed(query).strip()
    if not text:
        raise UserError("query: the request is empty; say what the tool should do")
    if len(text) > LONGEST_QUERY:
        raise UserError(f"query: the request has {len(text)} characters, at most {LONGEST_QUERY} are read; shorten it")
    return text


def _order(scores: Any, count: int) -> list[int]:
    """Rows of the best scores, equal ones by id; ``scores`` are by id."""
    import numpy as np

    if count >= len(scores):
        return np.argsort(-scores, kind="stable").tolist()
    least = -np.partition(-scores, count - 1)[count - 1]
    at = np.flatnonzero(scores >= least)
    return at[np.argsort(-scores[at], kind="stable")][:count].tolist()


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(names[:_LISTED]) + more

"""What Stage 1 is asked: options, checked arguments, and the blocks of queries it works on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from toolshift.models.skillgraph.cosines import Cosines
from toolshift.models.skillgraph.graph import TransitionGraph
from toolshift.models.skillgraph.sets import Ints, Sets, Vectors

Mode = Literal["paper", "authors"]
# Cells (pairs of candidates, or expansions of beams) worked on at once.
CELLS = 1 << 21


@dataclass(frozen=True, slots=True, kw_only=True)
class Texts:
    """Words of the q queries and of the n tools (name with spaces, then description), for BM25."""

    queries: Sequence[str]
    tools: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class BeamOptions:
    """Beam search over the graph, values of the authors' code (section 6).

    Raises:
        ValueError: if a size is below 1.
    """

    entries: int = 5
    """Paths to start with, at the tools of the graph with the largest cosine."""
    width: int = 5
    neighbours: int = 30
    """Successors tried per step, by edge weight descending."""
    transition_share: float = 0.4
    cosine_share: float = 0.4
    diversity_share: float = 0.2
    """Times 1 - share of the path in the community of the successor."""

    def __post_init__(self) -> None:
        if min(self.entries, self.width, self.neighbours) < 1:
            raise ValueError(f"entries, width and neighbours must be at least 1, got {self}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrievalOptions:
    """How Stage 1 chooses.

    Raises:
        ValueError: if a value is out of range.
    """

    mode: Mode = "paper"
    """``paper``: K tools for every method, out of the whole library. ``authors``: the planners return ``length`` tools
    whatever K is, and only tools of the graph can be retrieved, except by BM25."""
    length: int | None = None
    """Target length of the planners in ``mode=authors``, see `authors_length`."""
    c: int = 3
    """The pool holds max(K + 2, c K) tools."""
    alpha: float = 0.5
    """Share of the edge weight; the cosine has the rest."""
    gamma: float = 0.1
    """Weight of the position bonus, on top."""
    ends: int = 3
    """Tools per component that are tried as ends of a bridge."""
    beam: BeamOptions = BeamOptions()
    k1: float = 1.5
    b: float = 0.75
    tokens: Literal["words", "whitespace"] = "words"
    """BM25 over the project's words, or over lower-case whitespace tokens as the authors' code. The idf is the same:
    ln(1 + (N - n + 0.5) / (n + 0.5))."""

    def __post_init__(self) -> None:
        if self.mode not in get_args(Mode) or self.tokens not in ("words", "whitespace"):
            raise ValueError(f"mode {self.mode!r}: paper or authors; tokens {self.tokens!r}: words or whitespace")
        if self.c < 1 or not 0 <= self.alpha <= 1 or self.gamma < 0 or self.ends < 1:
            raise ValueError(f"c >= 1, alpha in [0, 1], gamma >= 0 and ends >= 1 expected, got {self}")
        if self.length is not None and self.length < 1:
            raise ValueError(f"length must be at least 1, got {self.length}")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ask:
    """Checked arguments of a call. k: (q,) as asked for. candidates: rows that can be retrieved, None for all. near:
    the nearest of them, where another call has found them already."""

    cosines: Cosines
    graph: TransitionGraph
    k: Ints
    options: RetrievalOptions
    candidates: Ints | None
    texts: Texts | None = None
    communities: Ints | None = None
    near: Sets | None = None

    def nearest(self, width: int) -> Sets:
        """The ``width`` nearest candidates of every query, out of ``near`` where it is wide enough."""
        n = self.graph.n_tools if self.candidates is None else len(self.candidates)
        if self.near is None or self.near.items.shape[1] < min(width, n):
            return self.cosines.nearest(width, rows=self.candidates)
        return Sets(items=self.near.items[:, :width], similarity=self.near.similarity[:, :width])

    @property
    def planned_k(self) -> Ints:
        """(q,) target length of the planners."""
        if self.options.mode == "paper":
            return self.k
        if self.options.length is None:
            raise ValueError("mode=authors needs options.length, the one target length: see authors_length")
        return np.full(len(self.k), self.options.length, dtype=np.int64)


def asked(queries: Vectors, tools: Vectors, *, graph: TransitionGraph, k: ArrayLike, options: RetrievalOptions) -> Ask:
    """Check the arguments of a call of Stage 1.

    Raises:
        ValueError: for shapes that do not fit, or k below 1.
    """
    wanted = np.asarray(k, dtype=np.int64)
    if queries.ndim != 2 or tools.ndim != 2 or queries.shape[1] != tools.shape[1]:
        raise ValueError(f"queries and tools must be (q, d) and (n, d), got {queries.shape} and {tools.shape}")
    if graph.n_tools != len(tools):
        raise ValueError(f"the graph is over {graph.n_tools} tools, the vectors are of {len(tools)}")
    if wanted.shape != (len(queries),) or (wanted < 1).any():
        raise ValueError(f"k must hold one number of at least 1 for each of {len(queries)} queries")
    candidates = np.flatnonzero(graph.nodes) if options.mode == "authors" else None
    return Ask(cosines=Cosines.of(queries, tools), graph=graph, k=wanted, options=options, candidates=candidates)


def blocks(key: Ints, *, cells: Callable[[int], int]) -> Iterator[tuple[int, Ints]]:
    """(key, query rows) of queries with the same key, so many at once as ``cells`` of each allow."""
    for value in np.unique(key).tolist():
        rows = np.flatnonzero(key == value)
        step = max(1, CELLS // max(1, cells(value)))
        for first in range(0, len(rows), step):
            yield value, rows[first : first + step]

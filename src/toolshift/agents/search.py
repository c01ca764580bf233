"""Encode and search (Algorithm 1 lines 4 and 5): the nearest tool of an intent. No tool text enters a prompt."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from toolshift.agents.tools import Tool, Toolbox
from toolshift.models.ntilc.index import Index, make_index
from toolshift.text.encoder import Encoder, Vectors


class ToolEncoder(Protocol):
    """Intents and tool texts as unit vectors of one space; `toolshift.models.ntilc.encoder.NtilcEncoder` is one."""

    def encode_queries(self, texts: Sequence[str]) -> Vectors:
        """(n, d) unit rows of intents."""
        ...

    def encode_tools(self, texts: Sequence[str]) -> Vectors:
        """(n, d) unit rows of tool renderings."""
        ...


@dataclass(frozen=True)
class FrozenTools:
    """A frozen encoder: the same for intents and tools, nothing learned."""

    encoder: Encoder

    def encode_queries(self, texts: Sequence[str]) -> Vectors:
        """See `ToolEncoder.encode_queries`."""
        return self.encoder.encode(texts)

    def encode_tools(self, texts: Sequence[str]) -> Vectors:
        """See `ToolEncoder.encode_tools`."""
        return self.encoder.encode(texts)


@dataclass(frozen=True, slots=True)
class Hit:
    """A tool near an intent, and their cosine."""

    tool: Tool
    score: float


@dataclass
class ToolSearch:
    """Tools in an index (`toolshift.models.ntilc.index`), which may come and go without any training."""

    encoder: ToolEncoder
    backend: str = "exact"
    _index: Index | None = field(default=None, init=False, repr=False)
    _tools: dict[str, Tool] = field(default_factory=dict, init=False, repr=False)

    @staticmethod
    def of(toolbox: Toolbox, encoder: ToolEncoder, *, backend: str = "exact") -> ToolSearch:
        """All tools of a toolbox."""
        search = ToolSearch(encoder, backend)
        search.add(toolbox.tools)
        return search

    def __len__(self) -> int:
        return len(self._tools)

    def add(self, tools: Iterable[Tool]) -> None:
        """Add tools; the next search finds them.

        Raises:
            NtilcError: if a tool of one of the names is there already.
        """
        tools = list(tools)
        if not tools:
            return
        vectors = self.encoder.encode_tools([tool.text for tool in tools])
        if self._index is None:
            self._index = make_index(self.backend, dim=vectors.shape[1])
        self._index.add([tool.name for tool in tools], vectors)
        self._tools |= {tool.name: tool for tool in tools}

    def remove(self, names: Sequence[str]) -> None:
        """Take tools out; the next search does not find them."""
        if self._index is not None and names:
            self._index.remove(names)
            for name in names:
                del self._tools[name]

    def search(self, intents: Sequence[str], *, k: int = 1) -> list[list[Hit]]:
        """The ``k`` nearest tools of every intent, best first; none in an empty index."""
        if self._index is None or not self._tools or not intents:
            return [[] for _ in intents]
        found = self._index.search(self.encoder.encode_queries(intents), k=k)
        rows = zip(found.ids(self._index), found.score.tolist(), strict=True)
        return [[Hit(self._tools[name], score) for name, score in zip(*row, strict=True)] for row in rows]

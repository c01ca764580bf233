"""Ordered calls of many trajectories, packed one after another as integer tool rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import ArrayLike, NDArray

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sequences:
    """n trajectories over a library of ``n_tools`` tools; an empty trajectory is allowed.

    Raises:
        ValueError: if offsets do not cover the items in order, or an item is no row of the library.
    """

    offsets: Ints
    """(n + 1,) trajectory i is ``items[offsets[i]:offsets[i + 1]]``."""
    items: Ints
    """(m,) tool rows in call order."""
    n_tools: int
    """Rows of the library: items are in ``0..n_tools - 1``."""

    def __post_init__(self) -> None:
        offsets, items = self.offsets, self.items
        if offsets.ndim != 1 or not len(offsets) or offsets[0] != 0 or offsets[-1] != len(items):
            raise ValueError(f"offsets must run from 0 to the {len(items)} items, got {offsets[:1]}..{offsets[-1:]}")
        if (np.diff(offsets) < 0).any():
            raise ValueError("offsets must not decrease")
        outside = np.flatnonzero((items < 0) | (items >= self.n_tools))
        if outside.size:
            at = int(outside[0])
            i = int(np.searchsorted(offsets, at, side="right")) - 1
            raise ValueError(
                f"trajectory {i}, call {at - offsets[i] + 1}: tool row {items[at]} is outside the library of "
                f"{self.n_tools} tools; drop or map calls of unknown tools before packing"
            )

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __iter__(self) -> Iterator[Ints]:
        return (self.of(i) for i in range(len(self)))

    @property
    def lengths(self) -> Ints:
        """(n,) calls of each trajectory."""
        return np.diff(self.offsets)

    @property
    def owner(self) -> Ints:
        """(m,) trajectory of each item, ascending."""
        return np.repeat(np.arange(len(self)), self.lengths)

    @property
    def place(self) -> Ints:
        """(m,) zero-based position of each item inside its trajectory."""
        return np.arange(len(self.items)) - np.repeat(self.offsets[:-1], self.lengths)

    def of(self, i: int) -> Ints:
        """Tool rows of trajectory ``i`` in call order."""
        return self.items[self.offsets[i] : self.offsets[i + 1]]

    def take(self, rows: ArrayLike) -> Sequences:
        """The chosen trajectories in the order given (integer rows, repeats allowed, or a (n,) bool mask)."""
        chosen = np.asarray(rows)
        if chosen.dtype == np.bool_:
            if chosen.shape != (len(self),):
                raise ValueError(f"mask must be ({len(self)},), got {chosen.shape}")
            chosen = np.flatnonzero(chosen)
        chosen = chosen.astype(np.int64, copy=False)
        offsets = _offsets(self.lengths[chosen])
        shift = np.repeat(self.offsets[:-1][chosen] - offsets[:-1], np.diff(offsets))
        return Sequences(offsets=offsets, items=self.items[np.arange(offsets[-1]) + shift], n_tools=self.n_tools)

    def deduplicated(self) -> Sequences:
        """The same trajectories with only the first call of each tool kept, order unchanged (paper section 2)."""
        owner = self.owner
        _, first = np.unique(owner * max(1, self.n_tools) + self.items, return_index=True)
        kept = np.sort(first)
        lengths = np.bincount(owner[kept], minlength=len(self))
        return Sequences(offsets=_offsets(lengths), items=self.items[kept], n_tools=self.n_tools)

    def padded(self) -> Ints:
        """(n, longest) tool rows, filled with -1 on the right: the form that measures and orderers take."""
        out = np.full((len(self), int(self.lengths.max(initial=0))), -1, dtype=np.int64)
        out[self.owner, self.place] = self.items
        return out


def sequences_of(calls: Sequence[Sequence[int]], *, n_tools: int) -> Sequences:
    """Pack one sequence of tool rows per trajectory.

    Raises:
        ValueError: if a row is outside ``0..n_tools - 1``; the message names trajectory and call.
    """
    lengths = np.fromiter(map(len, calls), dtype=np.int64, count=len(calls))
    items = np.fromiter(chain.from_iterable(calls), dtype=np.int64, count=int(lengths.sum()))
    return Sequences(offsets=_offsets(lengths), items=items, n_tools=n_tools)


def concatenated(first: Sequences, second: Sequences) -> Sequences:
    """The trajectories of ``first``, then those of ``second``.

    Raises:
        ValueError: if the two are over libraries of different size.
    """
    if first.n_tools != second.n_tools:
        raise ValueError(f"sequences over {first.n_tools} and {second.n_tools} tools cannot be joined")
    offsets = np.concatenate([first.offsets, second.offsets[1:] + first.offsets[-1]])
    return Sequences(offsets=offsets, items=np.concatenate([first.items, second.items]), n_tools=first.n_tools)


def _offsets(lengths: Ints) -> Ints:
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths, dtype=np.int64)])

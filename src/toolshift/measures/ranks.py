"""Where the relevant candidates of each list stand, ties included.

Every measure here depends on a list only through its relevant candidates. For each of them three counts say all:
the rank at which its tie group starts, the size of the group, and the number of relevant candidates in it. Counting
needs no sort, so the order in which candidates are given cannot matter. Under a random order of the tie group,
measures have the closed forms of spec/metrics_and_statistics.md section 1 ("Ties"); under a key order each candidate
is its own group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

# Elements of the largest temporary (1 MB): passes stay in the processor's cache, and memory is bounded.
_BUDGET = 1 << 17


@dataclass(frozen=True, kw_only=True)
class RelevantRanks:
    """One row per relevant candidate (m rows), rows of a list adjacent; n lists, none without a row.

    A row may stand for ``copies`` relevant candidates of the same tie group.
    """

    start: Ints
    """(m,) first rank of the candidate's tie group, from 1."""
    size: Ints
    """(m,) candidates in the group."""
    relevant: Ints
    """(m,) relevant candidates in the group."""
    copies: Ints
    """(m,) relevant candidates that the row stands for."""
    list_of: Ints
    """(m,) list of each row, ascending from 0 to n - 1."""
    first_row: Ints
    """(n,) first row of each list."""
    n_candidates: Ints
    """(n,) list lengths."""
    n_gold: Ints
    """(n,) relevant candidates per list."""

    def total(self, per_row: Floats) -> Floats:
        """Sum over the relevant candidates of each list, (n,)."""
        summed = np.bincount(self.list_of, weights=per_row * self.copies, minlength=len(self.n_gold))
        return summed.astype(np.float64, copy=False)

    @cached_property
    def top(self) -> tuple[Ints, Ints, Ints]:
        """Start, size and relevant candidates of the best tie group of each list, (n,) each."""
        m = len(self.start)
        row = np.minimum.reduceat(self.start * m + np.arange(m), self.first_row) % m
        return self.start[row], self.size[row], self.relevant[row]

    def before(self) -> Ints:
        """Relevant candidates of the own list ranked before the row's group, (m,)."""
        order = np.lexsort((self.start, self.list_of))
        copies = self.copies[order]
        ahead = np.cumsum(copies) - copies
        opens = np.append(True, (np.diff(self.start[order]) != 0) | (np.diff(self.list_of[order]) != 0))
        group_ahead = ahead[opens][np.cumsum(opens) - 1]
        out = np.empty_like(self.start)
        out[order] = group_ahead - ahead[self.first_row][self.list_of[order]]
        return out

    def mean_weight(self, weights: Floats) -> Floats:
        """Expected weight of each row's rank under a random order of its group, (m,).

        ``weights[i]`` belongs to rank ``i + 1``; ranks beyond the array weigh nothing.
        """
        cumulative = np.concatenate([[0.0], np.cumsum(weights)])
        last = len(weights)
        upper = cumulative[np.minimum(self.start + self.size - 1, last)]
        return (upper - cumulative[np.minimum(self.start - 1, last)]) / self.size

    def first_hit(self, gain: Callable[[Ints], Floats], *, cutoff: int | None) -> Floats:
        """Expected ``gain(rank)`` of the first relevant candidate of each list, (n,); 0 beyond the cut-off.

        P(first relevant at place j of its group) = C(g-j, r-1) / C(g, r), j = 1..g-r+1.
        """
        start, size, relevant = self.top
        last = cutoff or int(self.n_candidates.max())
        value = np.where(start <= last, gain(start), 0.0)
        mixed = np.flatnonzero((size > relevant) & (start <= last))
        if mixed.size:
            value[mixed] = _first_hit_of_mixed(
                start[mixed], size[mixed], relevant=relevant[mixed], gain=gain, last=last
            )
        return value


def _first_hit_of_mixed(
    start: Ints, size: Ints, *, relevant: Ints, gain: Callable[[Ints], Floats], last: int
) -> Floats:
    """Expected gain for groups with relevant and other candidates, once for each distinct (start, size, relevant)."""
    base = int(size.max()) + 1
    _, rows, inverse = np.unique((start * base + size) * base + relevant, return_index=True, return_inverse=True)
    # Sorted by width: a chunk is then as wide as its own groups need, not as the longest list needs.
    width = np.minimum(size - relevant + 1, last - start + 1)[rows]
    order = np.argsort(width, kind="stable")
    out = np.empty(len(rows))
    for chunk in _chunks(width[order]):
        chosen = order[chunk]
        out[chosen] = _first_hit_series(
            start[rows[chosen]], size[rows[chosen]], relevant=relevant[rows[chosen]], gain=gain, last=last
        )
    return out[inverse]


def _first_hit_series(start: Ints, size: Ints, *, relevant: Ints, gain: Callable[[Ints], Floats], last: int) -> Floats:
    places = np.arange(int(np.minimum(size - relevant + 1, last - start + 1).max()))
    a, g, r = start[:, None], size[:, None], relevant[:, None]
    left = np.maximum(g - places, 1)
    # Share of orders in which place i holds no relevant candidate, given none before; 0 once others are used up.
    miss = np.maximum(g - r - places, 0) / left
    no_hit_before = np.cumprod(np.concatenate([np.ones((len(start), 1)), miss[:, :-1]], axis=1), axis=1)
    rank = a + places
    return (no_hit_before * (r / left) * np.where(rank <= last, gain(rank), 0.0)).sum(axis=1)


def _chunks(widths: Ints) -> Iterator[slice]:
    """Consecutive slices of rows (widths ascending) whose rows x widest stay within the budget."""
    begin, n = 0, len(widths)
    while begin < n:
        end = min(n, begin + max(1, _BUDGET // int(widths[begin])))
        while end - begin > 1 and (end - begin) * int(widths[end - 1]) > _BUDGET:
            end = begin + max(1, (end - begin) // 2)
        yield slice(begin, end)
        begin = end


def locate(
    scores: Floats, relevant: Bools, *, offsets: Ints, keys: NDArray[np.generic] | None, first_list: int = 0
) -> tuple[RelevantRanks, Bools]:
    """Ranks of all relevant candidates, and for each list whether a tie group mixes relevant and other candidates.

    ``scores`` (N,) are final: equal means tied. ``keys`` (N,) orders tied candidates ascending; without keys ties
    stay groups. No list is empty. ``first_list`` is the number of the first list in messages.

    Raises:
        ValueError: if a list has no relevant candidate, or a relevant candidate shares score and key with another,
            so that only their input order could rank them.
    """
    items = np.flatnonzero(relevant)
    edges = np.searchsorted(items, offsets)
    first_row, n_gold = edges[:-1], np.diff(edges)
    if not n_gold.all():
        i = first_list + int(np.argmin(n_gold))
        raise ValueError(f"list {i} holds no relevant candidate; that is a manifest error, not a zero")
    list_of = np.repeat(np.arange(len(n_gold)), n_gold)
    packed = _Packed(
        scores=scores,
        relevant=relevant,
        offsets=offsets[:-1],
        lengths=np.diff(offsets),
        items=items,
        list_of=list_of,
        first_row=first_row,
        n_gold=n_gold,
        first_list=first_list,
    )
    greater, size = packed.count_above_and_same()
    group = np.flatnonzero(size > 1)
    same_relevant = np.ones_like(size)
    same_relevant[group] = packed.count_same_relevant(group)
    tied = np.zeros(len(n_gold), dtype=bool)
    tied[list_of[size > same_relevant]] = True
    if keys is not None:
        greater[group] += packed.count_earlier(group, keys=keys)
        size, same_relevant = np.ones_like(size), np.ones_like(size)
    ranks = RelevantRanks(
        start=greater + 1,
        size=size,
        relevant=same_relevant,
        copies=np.ones_like(size),
        list_of=list_of,
        first_row=first_row,
        n_candidates=packed.lengths,
        n_gold=n_gold,
    )
    return ranks, tied


@dataclass(frozen=True, slots=True, kw_only=True)
class _Packed:
    """Packed lists and their relevant candidates: ``items`` (m,) positions, ``list_of`` (m,) lists, ascending.

    ``offsets``, ``lengths``, ``first_row`` and ``n_gold`` (n,) belong to lists, ``first_list`` to messages.
    """

    scores: Floats
    relevant: Bools
    offsets: Ints
    lengths: Ints
    items: Ints
    list_of: Ints
    first_row: Ints
    n_gold: Ints
    first_list: int

    def count_above_and_same(self) -> tuple[Ints, Ints]:
        """Candidates of the own list with a higher and with an equal score, (m,) each, itself included."""
        above, same = np.empty(len(self.items), np.int64), np.empty(len(self.items), np.int64)
        # Lists with many relevant candidates first: those with a j-th one are then the leading columns, without a copy.
        by_gold = np.argsort(-self.n_gold, kind="stable")
        for lists in _split_by(self.lengths, by_gold):
            columns = self._columns(self.scores, lists)
            descending = -self.n_gold[lists]
            for j in range(-int(descending[0])):
                k = int(np.searchsorted(descending, -j))
                rows = self.first_row[lists[:k]] + j
                others, own = columns[:, :k], self.scores[self.items[rows]]
                above[rows], same[rows] = _column_sum(others > own), _column_sum(others == own)
        return above, same

    def count_same_relevant(self, chosen: Ints) -> Ints:
        """Relevant candidates with an equal score for the chosen rows, itself included."""
        out = np.empty(len(self.items), np.int64)
        for rows in self._passes(chosen):
            same = self._columns(self.scores, self.list_of[rows]) == self.scores[self.items[rows]]
            out[rows] = _column_sum(same & self._columns(self.relevant, self.list_of[rows]))
        return out[chosen]

    def count_earlier(self, chosen: Ints, *, keys: NDArray[np.generic]) -> Ints:
        """Candidates with an equal score and a smaller key for the chosen rows."""
        out = np.empty(len(self.items), np.int64)
        for rows in self._passes(chosen):
            same = self._columns(self.scores, self.list_of[rows]) == self.scores[self.items[rows]]
            other, own = self._columns(keys, self.list_of[rows]), keys[self.items[rows]]
            out[rows] = _column_sum(same & (other < own))
            self._refuse_shared(rows, _column_sum(same & (other == own)))
        return out[chosen]

    def _columns(self, packed: NDArray[Any], lists: Ints) -> NDArray[Any]:
        """Entries of lists of equal length, (length, b): one column a list, so counting runs along memory."""
        # Windows copy whole lists without an index for each entry.
        windows = sliding_window_view(packed, int(self.lengths[lists[0]]))
        return np.ascontiguousarray(windows[self.offsets[lists]].T)

    def _passes(self, chosen: Ints) -> Iterator[Ints]:
        """Chosen rows (b,) whose lists have the same length; b x length within the budget."""
        length_of = self.lengths[self.list_of]
        for rows in _split_by(length_of, chosen):
            step = max(1, _BUDGET // int(length_of[rows[0]]))
            for begin in range(0, len(rows), step):
                yield rows[begin : begin + step]

    def _refuse_shared(self, rows: Ints, same_key: Ints) -> None:
        shared = np.flatnonzero(same_key > 1)
        if shared.size:
            i = self.first_list + int(self.list_of[rows[shared[0]]])
            raise ValueError(
                f"list {i}: a relevant candidate shares its score and its tie key with another candidate; "
                "tie_keys must be distinct inside a list"
            )


def _split_by(value: Ints, chosen: Ints) -> list[Ints]:
    """``chosen`` split into parts of equal ``value[chosen]``; order kept inside a part; no part is empty."""
    if not chosen.size:
        return []
    of_chosen = value[chosen]
    if (of_chosen == of_chosen[0]).all():
        return [chosen]
    order = np.argsort(of_chosen, kind="stable")
    return np.split(chosen[order], np.flatnonzero(np.diff(of_chosen[order])) + 1)


def _column_sum(flags: Bools) -> Ints:
    narrow = np.uint8 if len(flags) < 256 else np.int32  # as narrow as cannot overflow: much faster
    return np.add.reduce(flags.view(np.uint8), axis=0, dtype=narrow).astype(np.int64)

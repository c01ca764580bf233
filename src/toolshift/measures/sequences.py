"""Measures of a predicted tool sequence against the gold one, batched (skillgraph.md section 4)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Repeats = Literal["last", "first"]

# Elements of the largest temporary.
_BUDGET = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceValues:
    """Values of q queries, (q,) each; C is the set of tools that both sequences hold, L* the gold length."""

    set_precision: Floats
    """|C| / distinct predicted tools; 0 for an empty prediction."""
    set_recall: Floats
    """|C| / distinct gold tools."""
    set_f1: Floats
    ordered_precision: Floats
    """Share of the pairs of C in gold order; 0 if |C| < 2."""
    kendall_tau: Floats
    """(concordant - discordant) / pairs of C; 0 if |C| < 2."""
    transition_accuracy: Floats
    """Share of the L* - 1 gold transitions whose tools are predicted in order within the window; 0 if L* < 2."""
    first_accuracy: Floats
    """1 where the first tools agree."""
    lcs_ratio: Floats
    """Longest common subsequence / L*."""
    n_common: Ints
    """|C|"""
    n_predicted: Ints
    """Distinct predicted tools."""
    n_gold: Ints
    """L*, calls of the gold sequence, repeats included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SetValues:
    """Precision, recall and F1 of the predicted set, (q,) each."""

    precision: Floats
    recall: Floats
    f1: Floats


def sequence_measures(
    predicted: ArrayLike, gold: ArrayLike, *, window: int = 2, repeats: Repeats = "last"
) -> SequenceValues:
    """All measures of q queries.

    Args:
        predicted: (q, k) tool rows, first tool first, filled with -1 on the right; a row may be empty.
        gold: (q, l) likewise, none empty.
        window: greatest distance in the prediction at which a gold transition still counts.
        repeats: which call gives the position of a tool called more than once, in either sequence: ``last`` as in
            the authors' rank map, or ``first``. L* and LCS always count every call.

    Raises:
        ValueError: if shapes disagree, -1 stands before a tool, a gold row is empty or the window is below 1.
    """
    lists = _checked(predicted, gold)
    if window < 1:
        raise ValueError(f"window must be at least 1, got {window}")
    return _joined(lists, lambda block: _values(block, window=window), repeats=repeats)


def set_prf(predicted: ArrayLike, gold: ArrayLike) -> SetValues:
    """Set precision, recall and F1; arguments as `sequence_measures`."""
    found = sequence_measures(predicted, gold)
    return SetValues(precision=found.set_precision, recall=found.set_recall, f1=found.set_f1)


def ordered_precision(predicted: ArrayLike, gold: ArrayLike, *, repeats: Repeats = "last") -> Floats:
    """Ordered precision (q,); arguments as `sequence_measures`."""
    return sequence_measures(predicted, gold, repeats=repeats).ordered_precision


def kendall_tau(predicted: ArrayLike, gold: ArrayLike, *, repeats: Repeats = "last") -> Floats:
    """Kendall's tau over the common tools (q,); arguments as `sequence_measures`."""
    return sequence_measures(predicted, gold, repeats=repeats).kendall_tau


def transition_accuracy(predicted: ArrayLike, gold: ArrayLike, *, window: int = 2, repeats: Repeats = "last") -> Floats:
    """Transition accuracy (q,); arguments as `sequence_measures`."""
    return sequence_measures(predicted, gold, window=window, repeats=repeats).transition_accuracy


def first_accuracy(predicted: ArrayLike, gold: ArrayLike) -> Floats:
    """First-tool accuracy (q,); arguments as `sequence_measures`."""
    return sequence_measures(predicted, gold).first_accuracy


def lcs_ratio(predicted: ArrayLike, gold: ArrayLike) -> Floats:
    """Longest common subsequence over the gold length (q,); arguments as `sequence_measures`."""
    return sequence_measures(predicted, gold).lcs_ratio


@dataclass(frozen=True, slots=True, kw_only=True)
class _Lists:
    predicted: Ints
    gold: Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class _Block:
    """Some queries, with their sequences matched: b queries, k predicted and l gold places."""

    lists: _Lists
    equal: Bools
    """(b, k, l) the same tool."""
    kept_predicted: Bools
    """(b, k) the call that gives a predicted tool its position."""
    kept_gold: Bools
    """(b, l)"""
    found: Bools
    """(b, l) the gold tool is predicted."""
    place: Ints
    """(b, l) its position in the prediction, where found."""


def _checked(predicted: ArrayLike, gold: ArrayLike) -> _Lists:
    lists = _Lists(predicted=np.asarray(predicted, dtype=np.int64), gold=np.asarray(gold, dtype=np.int64))
    if lists.predicted.ndim != 2 or lists.gold.ndim != 2 or len(lists.predicted) != len(lists.gold):
        raise ValueError(
            f"predicted and gold must be (q, k) and (q, l) with the same q, got {lists.predicted.shape} and "
            f"{lists.gold.shape}"
        )
    for name, array in (("predicted", lists.predicted), ("gold", lists.gold)):
        holes = ((array[:, :-1] < 0) & (array[:, 1:] >= 0)).any(axis=1)
        if holes.any():
            raise ValueError(f"query {int(np.argmax(holes))}: {name} has a tool after the filling -1")
    empty = (lists.gold >= 0).sum(axis=1) == 0
    if empty.any():
        raise ValueError(f"query {int(np.argmax(empty))} has no gold tool; that is an error of the data, not a zero")
    return lists


def _joined(lists: _Lists, compute: Callable[[_Block], SequenceValues], *, repeats: Repeats) -> SequenceValues:
    (q, k), l_max = lists.predicted.shape, lists.gold.shape[1]
    step = max(1, _BUDGET // max(1, max(k, l_max) ** 2))
    starts = range(0, q, step) if q else [0]
    blocks = []
    for first in starts:
        part = slice(first, first + step)
        blocks.append(compute(_matched(_Lists(predicted=lists.predicted[part], gold=lists.gold[part]), repeats)))
    return SequenceValues(**{f.name: np.concatenate([getattr(b, f.name) for b in blocks]) for f in fields(blocks[0])})


def _matched(lists: _Lists, repeats: Repeats) -> _Block:
    equal = (lists.predicted[:, :, None] == lists.gold[:, None, :]) & (lists.gold >= 0)[:, None, :]
    kept = _position_calls(lists.predicted, repeats)
    # A last slot that never matches lets argmax run over a prediction without places.
    slots = np.pad(equal & kept[:, :, None], ((0, 0), (0, 1), (0, 0)))
    return _Block(
        lists=lists,
        equal=equal,
        kept_predicted=kept,
        kept_gold=_position_calls(lists.gold, repeats),
        found=np.any(slots, axis=1),
        place=slots.argmax(axis=1),
    )


def _position_calls(rows: Ints, repeats: Repeats) -> Bools:
    """(b, k) True at the last (or first) call of each distinct tool."""
    k = rows.shape[1]
    other = np.triu(np.ones((k, k), dtype=bool), 1)
    other = other if repeats == "last" else other.T
    same = (rows[:, :, None] == rows[:, None, :]) & other
    return (rows >= 0) & ~same.any(axis=2)


def _values(block: _Block, *, window: int) -> SequenceValues:
    common = block.found & block.kept_gold
    n_common = common.sum(axis=1)
    n_predicted, distinct_gold = block.kept_predicted.sum(axis=1), block.kept_gold.sum(axis=1)
    length = (block.lists.gold >= 0).sum(axis=1)
    pairs = n_common * (n_common - 1) // 2
    concordant = _concordant(common, block.place)
    return SequenceValues(
        set_precision=_ratio(n_common, n_predicted),
        set_recall=_ratio(n_common, distinct_gold),
        set_f1=_ratio(2 * n_common, n_predicted + distinct_gold),
        ordered_precision=_ratio(concordant, pairs),
        kendall_tau=_ratio(2 * concordant - pairs, pairs),
        transition_accuracy=_ratio(_transitions(block, window=window), length - 1),
        first_accuracy=_first(block.lists),
        lcs_ratio=_ratio(_lcs(block.equal), length),
        n_common=n_common,
        n_predicted=n_predicted,
        n_gold=length,
    )


def _ratio(above: Ints, below: Ints) -> Floats:
    """Quotient, 0 where the denominator is 0: an empty prediction, fewer than two common tools, one gold call."""
    return np.divide(above, below, out=np.zeros(len(below)), where=below > 0)


def _concordant(common: Bools, place: Ints) -> Ints:
    """Pairs of common tools with the same order in both sequences, (b,)."""
    size = common.shape[1]
    ahead = np.triu(np.ones((size, size), dtype=bool), 1)
    pairs = common[:, :, None] & common[:, None, :] & ahead
    return (pairs & (place[:, :, None] < place[:, None, :])).sum(axis=(1, 2))


def _transitions(block: _Block, *, window: int) -> Ints:
    step = block.place[:, 1:] - block.place[:, :-1]
    return (block.found[:, 1:] & block.found[:, :-1] & (step > 0) & (step <= window)).sum(axis=1)


def _first(lists: _Lists) -> Floats:
    if not lists.predicted.shape[1]:
        return np.zeros(len(lists.gold))
    return (lists.predicted[:, 0] == lists.gold[:, 0]).astype(np.float64)


def _lcs(equal: Bools) -> Ints:
    """Length of the longest common subsequence, (b,): one step of dynamic programming per predicted place."""
    b, k, size = equal.shape
    best = np.zeros((b, size + 1), dtype=np.int64)
    for i in range(k):
        longer = np.maximum(best[:, 1:], best[:, :-1] + equal[:, i])
        best[:, 1:] = np.maximum.accumulate(longer, axis=1)
    return best[:, -1]

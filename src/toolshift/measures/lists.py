"""Measures over many candidate lists at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from toolshift.measures.ranks import Bools, Floats, Ints, RelevantRanks, locate
from toolshift.measures.registry import Measure, parse_measure

Ties = Literal["expected", "keys"]

_GRID = 1e9
# Candidates worked on at once: temporaries stay in the processor's cache, and memory is bounded.
_BLOCK = 1 << 18


@dataclass(frozen=True, slots=True, kw_only=True)
class ListValues:
    """Values of n lists, in the order given."""

    values: Mapping[str, Floats]
    """Measure name as asked for -> (n,) in [0, 1]."""
    tied: Bools
    """(n,) True where a tie group holds relevant and other candidates, so that the tie rule decides the value."""
    n_candidates: Ints
    """(n,) list lengths."""
    n_gold: Ints
    """(n,) relevant candidates in the list."""


def evaluate_lists(
    scores: ArrayLike,
    relevant: ArrayLike,
    *,
    offsets: ArrayLike,
    measures: Sequence[str | Measure],
    ties: Ties = "expected",
    tie_keys: ArrayLike | None = None,
) -> ListValues:
    """Evaluate n candidate lists packed one after another.

    Args:
        scores: (N,) floats, higher is better. Rounded to 1e-9 in float64 before ranking, so that noise of the
            arithmetic neither makes nor hides a tie.
        relevant: (N,) bool.
        offsets: (n + 1,) ints; list i is ``offsets[i]:offsets[i + 1]``.
        measures: names or parsed measures.
        ties: ``expected`` gives the exact expectation under uniform random tie-breaking; ``keys`` sorts tied
            candidates by ``tie_keys`` ascending (a hash, or `trec_keys`).
        tie_keys: (N,) sortable, distinct among the candidates of a list; only with ``ties="keys"``.

    The order of candidates inside a list never matters. Source: spec/metrics_and_statistics.md section 1.

    Raises:
        ValueError: if shapes disagree, a score is not finite, a list is empty or has no relevant candidate (an error
            of the manifest, not a zero), a measure is unknown, or keys are absent, superfluous or shared.
    """
    wanted = {str(m): parse_measure(m) if isinstance(m, str) else m for m in measures}
    score, gold, bounds = _packed(scores, relevant, offsets=offsets)
    keys = _keys(tie_keys, ties=ties, n=len(score))
    blocks = [
        _evaluate_block(score, gold, bounds=bounds[first : last + 1], keys=keys, wanted=wanted, first_list=first)
        for first, last in _blocks(bounds)
    ]
    return _joined(blocks, wanted)


def expected_random(n_candidates: ArrayLike, n_gold: ArrayLike, *, measures: Sequence[str | Measure]) -> ListValues:
    """Exact expectation of a uniformly random ranking: each list is one tie group.

    ``n_candidates`` and ``n_gold`` are (n,) ints with 1 <= n_gold <= n_candidates.

    Raises:
        ValueError: if a count is out of range (the message names the list), or a measure is unknown.
    """
    wanted = {str(m): parse_measure(m) if isinstance(m, str) else m for m in measures}
    length, gold = np.asarray(n_candidates, dtype=np.int64), np.asarray(n_gold, dtype=np.int64)
    if not length.size:
        return _joined([], wanted)
    if length.ndim != 1 or length.shape != gold.shape:
        raise ValueError(f"n_candidates and n_gold must be (n,) of equal length, got {length.shape} and {gold.shape}")
    bad = np.flatnonzero((gold < 1) | (gold > length))
    if bad.size:
        i = int(bad[0])
        raise ValueError(f"list {i}: n_gold must be in 1..n_candidates, got {gold[i]} of {length[i]} candidates")
    ranks = RelevantRanks(
        start=np.ones_like(length),
        size=length,
        relevant=gold,
        copies=gold,
        list_of=np.arange(len(length)),
        first_row=np.arange(len(length)),
        n_candidates=length,
        n_gold=gold,
    )
    return _values(ranks, wanted, tied=gold < length)


def trec_keys(ids: Sequence[str] | NDArray[np.str_]) -> Ints:
    """Tie keys (N,) that rank equal scores as trec_eval does: document id in descending string order."""
    _, position = np.unique(np.asarray(ids, dtype=np.str_), return_inverse=True)
    return -position.astype(np.int64)


def _blocks(bounds: Ints) -> Iterator[tuple[int, int]]:
    """Ranges of lists with at most ``_BLOCK`` candidates together (or one longer list): bounded, cached memory."""
    first, n = 0, len(bounds) - 1
    while first < n:
        last = int(np.searchsorted(bounds, bounds[first] + _BLOCK, side="right")) - 1
        last = max(first + 1, last)
        yield first, last
        first = last


def _evaluate_block(
    score: Floats,
    gold: Bools,
    *,
    bounds: Ints,
    keys: NDArray[np.generic] | None,
    wanted: Mapping[str, Measure],
    first_list: int,
) -> ListValues:
    part = slice(int(bounds[0]), int(bounds[-1]))
    _refuse_non_finite(score[part], offsets=bounds - bounds[0], first_list=first_list)
    ranks, tied = locate(
        _comparable(score[part]),
        gold[part],
        offsets=bounds - bounds[0],
        keys=None if keys is None else keys[part],
        first_list=first_list,
    )
    return _values(ranks, wanted, tied=tied)


def _refuse_non_finite(score: Floats, *, offsets: Ints, first_list: int) -> None:
    if np.isfinite(score.max()) and np.isfinite(score.min()):  # NaN passes through both
        return
    at = int(np.argmin(np.isfinite(score)))
    i = int(np.searchsorted(offsets, at, side="right")) - 1
    raise ValueError(f"list {first_list + i}: score {score[at]} at candidate {at - int(offsets[i])} is not finite")


def _joined(blocks: Sequence[ListValues], wanted: Mapping[str, Measure]) -> ListValues:
    if not blocks:
        none = np.empty(0, dtype=np.int64)
        return ListValues(
            values={name: np.empty(0) for name in wanted}, tied=none.astype(bool), n_candidates=none, n_gold=none
        )
    return ListValues(
        values={name: np.concatenate([b.values[name] for b in blocks]) for name in wanted},
        tied=np.concatenate([b.tied for b in blocks]),
        n_candidates=np.concatenate([b.n_candidates for b in blocks]),
        n_gold=np.concatenate([b.n_gold for b in blocks]),
    )


def _values(ranks: RelevantRanks, wanted: Mapping[str, Measure], *, tied: Bools) -> ListValues:
    values = {name: m.compute(ranks) for name, m in wanted.items()}
    return ListValues(values=values, tied=tied, n_candidates=ranks.n_candidates, n_gold=ranks.n_gold)


def _comparable(scores: Floats) -> Floats:
    """Scores that are equal exactly where the given ones are equal to 1e-9, in units of 1e-9, order kept."""
    # Beyond 2**53 * 1e-9 neighbouring floats are further apart than 1e-9 (and the product could overflow).
    limit = 2.0**53 / _GRID
    if scores.max() < limit and scores.min() > -limit:
        return np.rint(scores * _GRID)
    coarse = np.abs(scores) >= limit
    return np.where(coarse, scores, np.rint(np.where(coarse, 0.0, scores) * _GRID) / _GRID)


def _packed(scores: ArrayLike, relevant: ArrayLike, *, offsets: ArrayLike) -> tuple[Floats, Bools, Ints]:
    score, gold = np.asarray(scores, dtype=np.float64), np.asarray(relevant)
    bounds = np.asarray(offsets, dtype=np.int64)
    if score.ndim != 1 or gold.shape != score.shape:
        raise ValueError(f"scores and relevant must be (N,) of equal length, got {score.shape} and {gold.shape}")
    if gold.dtype != np.bool_:
        raise ValueError(f"relevant must be bool, got {gold.dtype}: graded labels are not supported")
    if bounds.ndim != 1 or len(bounds) < 1 or bounds[0] != 0 or bounds[-1] != len(score):
        raise ValueError(f"offsets must be (n + 1,) from 0 to {len(score)}")
    lengths = np.diff(bounds)
    if (lengths <= 0).any():
        i = int(np.argmax(lengths <= 0))
        raise ValueError(f"list {i} is empty or its offsets decrease; a task without candidates is a manifest error")
    return score, gold, bounds


def _keys(tie_keys: ArrayLike | None, *, ties: Ties, n: int) -> NDArray[np.generic] | None:
    if ties not in ("expected", "keys"):
        raise ValueError(f"ties must be 'expected' or 'keys', got {ties!r}")
    if (tie_keys is not None) != (ties == "keys"):
        raise ValueError("tie_keys must be given with ties='keys', and only then")
    if tie_keys is None:
        return None
    keys = np.asarray(tie_keys)
    if keys.shape != (n,):
        raise ValueError(f"tie_keys must be ({n},), got {keys.shape}")
    # Integer keys compare fast and alike, whatever type the caller's keys have.
    return keys if keys.dtype.kind in "iu" else np.unique(keys, return_inverse=True)[1]

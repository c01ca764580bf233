"""Exact partial injective assignment of requirements to endpoints, batched (tact.md section 3.5).

A partial one-to-one matching of at most 4 requirements to at most 4 endpoints is one of 209 sets of cells. With gains
cut at 0 the best one is a permutation, and the best of 24 permutations is found from six splits of the columns, a few
passes over a whole batch and no solver; pairs with a tie are looked up among all 209. The sums of two cells that the
splits need come from one product with a matrix of zeros and ones, which is exact: all its other terms are 0. The value
is a maximum of finitely many linear functions, hence its gradient with respect to the cells is the optimal matching
itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import combinations, permutations
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch

REQUIREMENTS = 4
ENDPOINTS = 4
CELLS = REQUIREMENTS * ENDPOINTS
# Columns of the first two rows, and of the last two.
_SPLITS = (
    ((0, 1), (2, 3)),
    ((0, 2), (1, 3)),
    ((1, 2), (0, 3)),
    ((0, 3), (1, 2)),
    ((1, 3), (0, 2)),
    ((2, 3), (0, 1)),
)
# Gains and sums of so many pairs, 1.3 MB in single precision, stay in a second-level cache.
_CHUNK_PAIRS = 8_192
# Gains are compared as whole multiples of 2^-19 between -4 and 4: float32 holds every sum of four of them exactly, so
# that neither the winner nor the margin depends on how many pairs are looked at together.
_GRID = 2.0**19
_LEAST = -4.0


@cache
def matchings() -> NDArray[np.bool_]:
    """(209, 16) all partial injective matchings of the 4 x 4 grid as masks of its cells, row by row.

    Ordered by their lists of (requirement, endpoint) pairs, so that the first of several best ones is the
    lexicographically smallest list; the empty matching comes first.
    """
    found = []
    for size in range(min(REQUIREMENTS, ENDPOINTS) + 1):
        for rows in combinations(range(REQUIREMENTS), size):
            for columns in permutations(range(ENDPOINTS), size):
                found.append(tuple(zip(rows, columns, strict=True)))
    masks = np.zeros((len(found), CELLS), bool)
    for mask, cells in zip(masks, sorted(found), strict=True):
        mask[[i * ENDPOINTS + j for i, j in cells]] = True
    masks.setflags(write=False)
    return masks


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """Best matching of every pair of a batch; leading axes as in the gains.

    value: (...,) sum of the matched gains, at least 0, differentiable. margin: (...,) to the second best other
    matching. matched: (...,) number of matched requirements. cells: (..., 16) the matching, not differentiable.
    """

    value: torch.Tensor
    margin: torch.Tensor
    matched: torch.Tensor
    cells: torch.Tensor


def assign(gains: torch.Tensor) -> Assignment:
    """The best partial matching for (..., 16) gains (evidence minus kappa, row by row).

    A cell that does not exist has a gain of minus infinity or any negative number: it is never worth taking, since the
    empty matching is allowed. Equal totals go to the lexicographically smallest list of cells.

    Raises:
        FloatingPointError: if a gain is NaN.
    """
    import torch

    # An absent cell must lose every comparison but not turn sums of others into NaN (0 * -inf).
    bounded = gains.clamp(min=_LEAST)
    with torch.no_grad():
        flat = _on_grid(bounded.detach()).reshape(-1, CELLS)
        parts = [_solved(part) for part in flat.split(_CHUNK_PAIRS)] or [_solved(flat)]
        cells, margin = (torch.cat(found) for found in zip(*parts, strict=True))
        cells, margin = cells.reshape(gains.shape), margin.reshape(gains.shape[:-1])
    return Assignment(value=(bounded * cells).sum(dim=-1), margin=margin, matched=cells.sum(dim=-1), cells=cells)


def best_totals(gains: torch.Tensor) -> torch.Tensor:
    """(...,) the value of `assign` up to rounding, without the matching and its gradient, for a fraction of the time.

    Raises:
        FloatingPointError: if a gain is NaN or infinite (minus infinity is a cell that does not exist).
    """
    import torch

    with torch.no_grad():
        flat = gains.reshape(-1, CELLS)
        found, block = flat.new_empty(len(flat)), min(len(flat), _CHUNK_PAIRS)
        kept, sums = flat.new_empty((block, CELLS)), flat.new_empty((len(_sums_of_two()), block))
        for start in range(0, len(flat), _CHUNK_PAIRS):
            part = flat[start : start + _CHUNK_PAIRS]
            inside = torch.clamp(part, min=0.0, out=kept[: len(part)])
            two = torch.mm(_two_cells(flat.dtype, flat.device), inside.T, out=sums[:, : len(part)])
            _best(two, out=found[start : start + _CHUNK_PAIRS])
        _refuse_nan(found)
        return found.reshape(gains.shape[:-1])


def _refuse_nan(values: torch.Tensor) -> None:
    import torch

    if bool(torch.isnan(values).any()):
        raise FloatingPointError("TACT, stage functional: the evidence of some pair is not a number")


def _on_grid(gains: torch.Tensor) -> torch.Tensor:
    _refuse_nan(gains)
    return gains.clamp(_LEAST, -_LEAST).mul_(_GRID).round_().div_(_GRID)


def _columns(gains: torch.Tensor) -> torch.Tensor:
    """(16, n) cell by cell, so that each step runs over pairs that lie side by side."""
    return gains.T.contiguous()


def _best(two: torch.Tensor, *, out: torch.Tensor) -> torch.Tensor:
    """(n,) largest total of a permutation for the (24, n) sums of `_sums_of_two`, which are overwritten."""
    import torch

    half = len(_SPLITS)
    sides = torch.maximum(two[: 2 * half], two[2 * half :], out=two[: 2 * half])
    totals = torch.add(sides[:half], sides[half:], out=sides[:half])
    best = torch.maximum(totals[:3], totals[3:], out=totals[:3])
    return torch.maximum(torch.maximum(best[0], best[1], out=best[0]), best[2], out=out)


@cache
def _sums_of_two() -> NDArray[np.bool_]:
    """(24, 16) the two cells of every sum: the first two rows on the k-th pair of columns of ``_SPLITS`` and the last
    two rows on the two other columns, straight; then both crossed."""
    masks = []
    for crossed in (False, True):
        for side, row in ((0, 0), (1, 2)):
            for split in _SPLITS:
                left, right = split[side][::-1] if crossed else split[side]
                mask = np.zeros((REQUIREMENTS, ENDPOINTS), bool)
                mask[row, left] = mask[row + 1, right] = True
                masks.append(mask.ravel())
    return np.stack(masks)


@cache
def _two_cells(dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """`_sums_of_two` as a matrix to multiply with."""
    import torch

    return torch.tensor(_sums_of_two(), dtype=dtype, device=device)


def _solved(gains: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(n, 16) matchings and (n,) margins."""
    import torch

    columns = _columns(gains)
    kept = columns.clamp(min=0.0)
    summed = _two_cells(gains.dtype, gains.device)
    first, last, first_crossed, last_crossed = (summed @ kept).split(len(_SPLITS))
    value, split = (torch.maximum(first, first_crossed) + torch.maximum(last, last_crossed)).max(dim=0)
    crossed = [(y > x).gather(0, split.unsqueeze(0))[0] for x, y in ((first, first_crossed), (last, last_crossed))]
    order = split * 4 + crossed[0] * 2 + crossed[1]
    chosen = _permutations(gains.device)[order].T & (columns > 0)
    # Any other matching lacks a chosen cell, or adds one to all of them.
    second = torch.full_like(value, -torch.inf)
    for row in range(REQUIREMENTS):
        mine = slice(row * ENDPOINTS, (row + 1) * ENDPOINTS)
        without = kept.clone()
        without[mine].masked_fill_(chosen[mine], 0.0)
        best = _best(summed @ without, out=torch.empty_like(value))
        second = torch.maximum(second, best.masked_fill_(~chosen[mine].any(dim=0), -torch.inf))
    cells = chosen.T
    grid = cells.reshape(-1, REQUIREMENTS, ENDPOINTS)
    taken = grid.any(dim=2, keepdim=True) | grid.any(dim=1, keepdim=True)
    more = gains.masked_fill(taken.reshape(-1, CELLS), -torch.inf).amax(dim=1)
    margin, cells = value - torch.maximum(second, value + more), cells.to(gains.dtype)
    tied = torch.nonzero(margin == 0).squeeze(1)
    if tied.numel():
        cells[tied], margin[tied] = _enumerated(gains[tied])
    return cells, margin


def _enumerated(gains: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(n, 16) matchings and (n,) margins by looking at all 209; of equal ones the first."""
    import torch

    masks = torch.tensor(matchings(), dtype=gains.dtype, device=gains.device)
    totals = gains @ masks.T
    value, best = totals.max(dim=-1, keepdim=True)  # of equal ones the first, as documented
    second = totals.scatter_(-1, best, -torch.inf).amax(dim=-1, keepdim=True)
    return masks[best.squeeze(-1)], (value - second).squeeze(-1)


@cache
def _permutations(device: torch.device) -> torch.Tensor:
    """(24, 16) masks of the permutations: split, then first rows crossed or not, then last rows."""
    import torch

    masks = torch.zeros(len(_SPLITS) * 4, CELLS, dtype=torch.bool)
    for k, (pair, others) in enumerate(_SPLITS):
        for first in range(2):
            for last in range(2):
                columns = [*(pair[::-1] if first else pair), *(others[::-1] if last else others)]
                for row, column in enumerate(columns):
                    masks[k * 4 + first * 2 + last, row * ENDPOINTS + column] = True
    return masks.to(device)

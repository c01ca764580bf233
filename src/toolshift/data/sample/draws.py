"""Random draws by name: each purpose has its own stream, so adding one shifts nothing else."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import TypeVar

from toolshift.runs.seeds import generator

T = TypeVar("T")
_BLOCK = 48


class Draws:
    """A stream of uniform numbers that belongs to its name alone."""

    __slots__ = ("_next", "_rng")

    def __init__(self, *name: object) -> None:
        self._rng = generator("sample", *name)
        self._next: list[float] = []

    def unit(self) -> float:
        """A number in [0, 1)."""
        if not self._next:
            self._next = self._rng.random(_BLOCK).tolist()
        return self._next.pop()

    def below(self, count: int) -> int:
        """A whole number in 0 ... count - 1."""
        return int(self.unit() * count)

    def chance(self, probability: float) -> bool:
        """True with the given probability."""
        return self.unit() < probability

    def pick(self, items: Sequence[T]) -> T:
        """One item, all equally likely."""
        return items[self.below(len(items))]

    def weighted(self, cumulative: Sequence[float]) -> int:
        """An index, by cumulated weights (``cumulated``)."""
        return min(bisect_right(cumulative, self.unit() * cumulative[-1]), len(cumulative) - 1)

    def shuffled(self, items: Sequence[T]) -> list[T]:
        """The items in random order."""
        result = list(items)
        for i in range(len(result) - 1, 0, -1):
            j = self.below(i + 1)
            result[i], result[j] = result[j], result[i]
        return result


def cumulated(weights: Sequence[float]) -> tuple[float, ...]:
    """Running sums, as ``Draws.weighted`` reads them."""
    return tuple(accumulate(weights))


def zipf(count: int, *, exponent: float) -> tuple[float, ...]:
    """Weights 1 / rank^exponent."""
    return tuple((rank + 1) ** -exponent for rank in range(count))

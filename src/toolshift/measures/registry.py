"""Measures as values: parsed from a string, compared and hashed, printed back to the same string.

A measure is one function of `RelevantRanks` and one registry line (the decorator above it).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from toolshift.measures.ranks import RelevantRanks

Compute = Callable[[RelevantRanks, int | None], NDArray[np.float64]]
Cutoff = Literal["required", "optional", "none"]

_FORM = re.compile(r"(?P<family>[^@]+)(?:@(?P<cutoff>[1-9][0-9]*))?")


@dataclass(frozen=True, slots=True)
class _Family:
    name: str
    cutoff: Cutoff
    compute: Compute


_FAMILIES: dict[str, _Family] = {}
_ALIASES: dict[str, str] = {}


def measure(name: str, *, cutoff: Cutoff, aliases: tuple[str, ...] = ()) -> Callable[[Compute], Compute]:
    """Register a function ``(ranks, k) -> (n_lists,) float64`` under ``name``; ``k`` is None without a cut-off."""

    def register(compute: Compute) -> Compute:
        if name in _FAMILIES:
            raise ValueError(f"measure {name!r} is registered twice")
        _FAMILIES[name] = _Family(name, cutoff, compute)
        _ALIASES.update(dict.fromkeys((name, *aliases), name))
        return compute

    return register


@dataclass(frozen=True, slots=True, order=True)
class Measure:
    """A measure with its cut-off; build it with `parse_measure`. ``str()`` gives the canonical name."""

    family: str
    cutoff: int | None = None

    def __str__(self) -> str:
        return self.family if self.cutoff is None else f"{self.family}@{self.cutoff}"

    def compute(self, ranks: RelevantRanks) -> NDArray[np.float64]:
        """Value of each list, (n_lists,) float64 in [0, 1]."""
        return _FAMILIES[self.family].compute(ranks, self.cutoff)


def parse_measure(name: str) -> Measure:
    """Measure for a name such as ``MRR``, ``NDCG@5``, ``HR@3``, ``R@10``.

    ``RR`` is read as ``MRR`` and ``success@k`` as ``HR@k`` (any hit within rank k, not recall).

    Raises:
        ValueError: if the name is no measure; the message gives the nearest valid form.
    """
    match = _FORM.fullmatch(name)
    family = _FAMILIES.get(_ALIASES.get(match["family"], "")) if match else None
    if match is None or family is None or not _cutoff_fits(family.cutoff, match["cutoff"]):
        raise ValueError(f"unknown measure {name!r}; nearest valid form: {_nearest(name)!r} (known: {known_forms()})")
    return Measure(family.name, int(match["cutoff"]) if match["cutoff"] else None)


def known_forms() -> str:
    """All valid forms, for messages and help: ``HR@k, MAP, MRR, MRR@k, ...``."""
    return ", ".join(sorted(_forms("k")))


def _cutoff_fits(rule: Cutoff, given: str | None) -> bool:
    return rule == "optional" or (given is not None) == (rule == "required")


def _forms(cutoff: str) -> list[str]:
    plain = [f.name for f in _FAMILIES.values() if f.cutoff != "required"]
    cut = [f"{f.name}@{cutoff}" for f in _FAMILIES.values() if f.cutoff != "none"]
    return plain + cut


def _nearest(name: str) -> str:
    digits = re.search(r"[1-9][0-9]*", name)
    cutoff = digits.group() if digits else "5"
    word, at, _ = name.partition("@")
    # Ignoring case lets "ndcg@5" and "Success@0" find their family; the answer is always a canonical form.
    folded = {alias.casefold(): _FAMILIES[target] for alias, target in _ALIASES.items()}
    family = folded.get(word.strip().casefold())
    if family is None:
        return difflib.get_close_matches(name.upper(), sorted(_forms(cutoff)), n=1, cutoff=0.0)[0]
    with_cutoff = family.cutoff == "required" or (family.cutoff == "optional" and at)
    return f"{family.name}@{cutoff}" if with_cutoff else family.name

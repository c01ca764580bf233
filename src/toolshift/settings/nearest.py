"""Suggestions for misspelled names."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import SequenceMatcher

LONGEST_LISTED = 12


def nearest(word: str, valid: Iterable[str]) -> str | None:
    """The valid name most similar to ``word``; ties go to the first in alphabetical order, None if nothing is valid.

    Similarity is the ratio of matching characters, which counts swapped letters as one edit's worth.
    """
    lowered = word.lower()
    scored = [(SequenceMatcher(None, lowered, name.lower()).ratio(), name) for name in sorted(set(valid))]
    return max(scored, key=lambda pair: pair[0])[1] if scored else None


def suggestion(word: str, valid: Iterable[str]) -> str:
    """``; did you mean 'x'? (valid: a, b, x)``, without the list where it is long; empty if nothing is valid."""
    names = sorted(set(valid))
    best = nearest(word, names)
    if best is None:
        return ""
    listed = f" (valid: {', '.join(names)})" if len(names) <= LONGEST_LISTED else ""
    return f"; did you mean {best!r}?{listed}"

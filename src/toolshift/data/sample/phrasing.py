"""Requests taken apart again, for formats that spread them over turns or fields."""

from __future__ import annotations

import re

_SENTENCE_END = re.compile(r"(?<=\.) (?=[A-Z])")


def sentences(text: str) -> list[str]:
    """The sentences of a request; the one at place i asks for step i, those behind the last step for none."""
    return _SENTENCE_END.split(text)

"""The one public text of a capability and of an endpoint. Every method reads these and nothing else.

Nothing is cut here: an encoder that cannot read a long text counts what it truncates.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

NAME_DESCRIPTION = "name_description"
WITH_OPERATIONS = "with_operations"
TEMPLATES = (NAME_DESCRIPTION, WITH_OPERATIONS)

_SEPARATORS = re.compile(r"[_\-/\\.{}<>:?&=|]+")


def clean(text: str) -> str:
    """Return the text with every run of white space as one blank and none at the ends."""
    return " ".join(text.split())


def capability_text(
    name: str, description: str, operations: Sequence[str] = (), *, template: str = NAME_DESCRIPTION
) -> str:
    """Render a capability.

    ``name_description`` gives "name: description", or the bare name where there is no description;
    ``with_operations`` appends " | operations: a; b" in the given order (left out where there are none).

    Raises:
        ValueError: for an unknown template.
    """
    if template not in TEMPLATES:
        raise ValueError(f"unknown capability template {template!r}; expected one of {', '.join(TEMPLATES)}")
    text = _joined(clean(name), clean(description))
    if template == WITH_OPERATIONS and operations:
        text = f"{text} | operations: {'; '.join(operation_words(o) for o in operations)}"
    return text


def endpoint_text(operation: str, description: str) -> str:
    """Render an endpoint: its operation name in words, then its description (tact.md section 3.2)."""
    return _joined(operation_words(operation), clean(description))


def operation_words(operation: str) -> str:
    """Return an operation name with separators as blanks; the name itself where nothing else would be left.

    >>> operation_words("/v4/sports/{sport}/odds")
    'v4 sports sport odds'
    """
    return clean(_SEPARATORS.sub(" ", operation)) or clean(operation)


def _joined(head: str, tail: str) -> str:
    return f"{head}: {tail}" if head and tail else head or tail

"""toolshift: tool selection under distribution shift, reproduced honestly on one data model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolshift.api import Answer, Explained, Ranked, Ranker, load

__version__ = "0.1.0"
__all__ = ("load", "Ranker", "Ranked", "Answer", "Explained")


def __getattr__(name: str) -> Any:
    """The public names of `toolshift.api`, imported when first asked for."""
    if name in __all__:
        from toolshift import api

        return getattr(api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

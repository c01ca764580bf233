"""What a protocol says: which tasks are tested together, what the sources are divided into, who may be a source.

A protocol is a function ``(corpus, **params) -> Partition``. Purge, duplicates and caps are the same for all of them
and are applied to the partition afterwards (``toolshift.protocols.folds.fold_table``).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from toolshift.views.corpus import Rows


class ProtocolError(ValueError):
    """A protocol cannot be applied to these records."""

    user_facing = True


@dataclass(frozen=True, kw_only=True)
class Partition:
    """Targets and contexts of n tasks.

    targets: (g,) names, sorted. target_of: (n,) the target at which a task is tested, -1 for a task that never is.
    contexts: (n,) rows of ``context_names``, -1 for a task without one: what selection holds out inside the sources.
    may_train: (n,) whether a task may be a source at all, wherever it is not tested.
    """

    protocol: str
    targets: tuple[str, ...]
    target_of: Rows
    context_names: tuple[str, ...]
    contexts: Rows
    may_train: NDArray[np.bool_]


def by_context(protocol: str, *, names: tuple[str, ...], contexts: Rows, what: str, dataset: str) -> Partition:
    """Every context with tasks is held out once, and all others are its sources.

    Raises:
        ProtocolError: if fewer than two contexts have tasks.
    """
    present = np.unique(contexts[contexts >= 0])
    if present.size < 2:
        raise ProtocolError(
            f"{protocol} needs at least two {what} with tasks, {dataset} has {present.size}; "
            f"choose another protocol or data with several {what}"
        )
    number = np.full(len(names) + 1, -1, np.int64)
    number[present] = np.arange(present.size)
    return Partition(
        protocol=protocol,
        targets=tuple(names[c] for c in present),
        target_of=number[contexts],
        context_names=names,
        contexts=contexts,
        may_train=np.ones(contexts.size, bool),
    )

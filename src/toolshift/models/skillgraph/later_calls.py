"""The transitions of the authors' API-Bank script: any later call counts, not the next one alone (section 7 [C])."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from toolshift.models.skillgraph.graph import TransitionGraph
from toolshift.models.skillgraph.sequences import Sequences


def later_calls(sequences: Sequences, *, ids: tuple[str, ...] = ()) -> TransitionGraph:
    """tp(a, b) = co(a, b) / occurrences of a, where co counts every b anywhere after a, b not a (section 7 [C]).

    Tools without a call have position 0.5; others their mean i / L.
    """
    n = sequences.n_tools
    counts, position, seen = np.zeros((n, n)), np.zeros(n), np.zeros(n)
    for calls in sequences:
        for place, tool in enumerate(calls.tolist()):
            seen[tool] += 1
            position[tool] += place / len(calls)
            for later in calls[place + 1 :].tolist():
                counts[tool, later] += later != tool
    matrix = sparse.csr_matrix(counts)
    transition = sparse.csr_matrix(np.divide(counts, seen[:, None], out=np.zeros_like(counts), where=seen[:, None] > 0))
    return TransitionGraph(
        counts=matrix,
        transition=transition,
        weight=transition,
        position=np.divide(position, seen, out=np.full(n, 0.5), where=seen > 0),
        nodes=np.ones(n, bool),
        contributors=tuple(sorted(ids)),
    )

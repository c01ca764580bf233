"""Transitions to any later call."""

from __future__ import annotations

import numpy as np

from toolshift.models.skillgraph.later_calls import later_calls
from toolshift.models.skillgraph.sequences import sequences_of


def test_later_calls_by_hand() -> None:
    """0 1 2 and 0 2: after 0 comes 1 once and 2 twice, in two occurrences of 0; a repeat is no transition."""
    graph = later_calls(sequences_of([[0, 1, 2], [0, 2], [3, 3]], n_tools=5))
    np.testing.assert_allclose(graph.transition.toarray()[0], [0, 0.5, 1.0, 0, 0])
    np.testing.assert_allclose(graph.transition.toarray()[1], [0, 0, 1.0, 0, 0])
    assert not graph.transition.toarray()[3].any()
    np.testing.assert_allclose(graph.position, [0, 1 / 3, (2 / 3 + 1 / 2) / 2, 1 / 4, 0.5])

"""Semantic Cosine is the anchor: the dot product of the public texts, nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np

from toolshift.models.frozen.semantic_cosine import SemanticCosine


def test_by_hand(grid: Any, make: Any) -> None:
    bank = make.bank(grid, {"task t0": (1, 0), "task t1": (0, 1), "apple": (0.6, 0.8), "berry": (-1, 0)})
    scores = SemanticCosine().score(make.all_pairs(grid), bank=bank, seed=0).reshape(3, 4)
    np.testing.assert_allclose(scores[:2], [[0.6, -1, 0, 0], [0.8, 0, 0, 0]], atol=1e-6)


def test_it_is_the_dot_product_for_any_seed(fixed_world: Any, make: Any) -> None:
    expected = (fixed_world.task_vectors @ fixed_world.capability_vectors.T).ravel()
    for seed in (0, 1):
        found = SemanticCosine().score(make.all_pairs(fixed_world.corpus), bank=fixed_world.bank(), seed=seed)
        np.testing.assert_allclose(found, expected, atol=1e-6)


def test_nothing_is_fitted(fixed_world: Any, make: Any, worlds: Any) -> None:
    source = make.source(fixed_world, worlds.Rules(), target="D0")
    ranker = SemanticCosine()
    fitted = ranker.fit(source, bank=fixed_world.bank(), measure=lambda *_, **__: 0.0, seed=0)
    assert fitted is ranker
    assert fitted.contexts_seen == ()
    assert fitted.record == {}
    assert "manifests" not in vars(source)  # the source lists were never built

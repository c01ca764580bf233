"""Random: uniform by keyed hash, at its closed-form expectation in every view."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from toolshift.measures import evaluate_lists, expected_random
from toolshift.models.features import Pairs
from toolshift.models.frozen.random import RandomRanker

MEASURES = ("NDCG@5", "MRR", "HR@3")
SEEDS = range(40)


@pytest.mark.parametrize("view", ["natural", "semantic", "context", "mixed"])
def test_random_meets_its_expectation(fixed_world: Any, worlds: Any, view: str) -> None:
    """The mean over lists and seeds lies within three standard errors of the closed form."""
    manifest = fixed_world.manifests(fixed_world.fold(worlds.Rules(length=9, hard=3)))[view]
    pairs = Pairs(task=manifest.task_of, capability=manifest.capability)
    bank, ranker = fixed_world.bank(), RandomRanker()
    drawn = [ranker.score(pairs, bank=bank, seed=seed) for seed in SEEDS]
    n_gold = np.add.reduceat(manifest.positive.astype(int), manifest.offsets[:-1])
    chance = expected_random(manifest.lengths, n_gold, measures=MEASURES)
    for measure in MEASURES:
        values = np.array(
            [
                evaluate_lists(s, manifest.positive, offsets=manifest.offsets, measures=[measure]).values[measure]
                for s in drawn
            ]
        )
        error = values - chance.values[measure]
        assert abs(error.mean()) <= 3 * error.std() / np.sqrt(error.size)
        assert values.std() > 0.1  # and it is random at all


def test_scores_belong_to_pairs_not_to_lists(fixed_world: Any, make: Any) -> None:
    pairs, bank = make.all_pairs(fixed_world.corpus), fixed_world.bank()
    whole = RandomRanker().score(pairs, bank=bank, seed=7)
    order = np.argsort(whole)
    np.testing.assert_array_equal(RandomRanker().score(pairs.take(order), bank=bank, seed=7), whole[order])
    assert ((whole >= 0) & (whole < 1)).all()
    assert np.unique(whole).size == whole.size


def test_seeds_give_unrelated_scores(fixed_world: Any, make: Any) -> None:
    pairs, bank = make.all_pairs(fixed_world.corpus), fixed_world.bank()
    one, other = (RandomRanker().score(pairs, bank=bank, seed=s) for s in (1, 2))
    assert abs(np.corrcoef(one, other)[0, 1]) < 0.1

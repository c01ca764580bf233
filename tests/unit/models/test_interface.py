"""What every row of the table keeps: one score per pair, the same in every list and view."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

from toolshift.models.base import FrozenRanker
from toolshift.models.features import Pairs
from toolshift.models.frozen.bm25 import Bm25Ranker
from toolshift.models.frozen.candidate_only import CandidateOnly
from toolshift.models.frozen.cosine_noise import CosineNoise
from toolshift.models.frozen.endpoint_schema_match import EndpointSchemaMatch
from toolshift.models.frozen.random import RandomRanker
from toolshift.models.frozen.rrf import ReciprocalRankFusion
from toolshift.models.frozen.semantic_cosine import SemanticCosine
from toolshift.selection.value import source_value

RANKERS = {
    "random": RandomRanker(),
    "semantic_cosine": SemanticCosine(),
    "bm25": Bm25Ranker(),
    "rrf": ReciprocalRankFusion(),
    "endpoint_schema_match": EndpointSchemaMatch(),
    "cosine_noise": CosineNoise(scales=(0.1,)),
    "candidate_only": CandidateOnly(),
}


@pytest.mark.parametrize("name", RANKERS)
def test_scores_are_equal_in_every_view_and_order(fixed_world: Any, worlds: Any, make: Any, name: str) -> None:
    rules = worlds.Rules(length=8, hard=4)
    source = make.source(fixed_world, rules, target="D0")
    scorer = RANKERS[name].fit(source, bank=fixed_world.bank(), measure=source_value, seed=1)
    whole = scorer.score(make.all_pairs(fixed_world.corpus), bank=fixed_world.bank(), seed=1)
    table = whole.reshape(fixed_world.corpus.n_tasks, -1)
    assert table.dtype == np.float64
    assert np.isfinite(table).all()
    for view, manifest in fixed_world.manifests(fixed_world.fold(rules)).items():
        pairs = Pairs(task=manifest.task_of, capability=manifest.capability)
        found = scorer.score(pairs, bank=fixed_world.bank(), seed=1)  # a new bank: nothing is remembered
        np.testing.assert_allclose(found, table[pairs.task, pairs.capability], atol=1e-6, err_msg=view)
        backwards = pairs.take(np.arange(len(pairs))[::-1])
        np.testing.assert_allclose(scorer.score(backwards, bank=fixed_world.bank(), seed=1), found[::-1], atol=1e-6)


@pytest.mark.parametrize("name", RANKERS)
def test_no_scorer_is_told_the_view(fixed_world: Any, worlds: Any, make: Any, name: str) -> None:
    source = make.source(fixed_world, worlds.Rules(length=8, hard=4), target="D0")
    scorer = RANKERS[name].fit(source, bank=fixed_world.bank(), measure=source_value, seed=1)
    assert set(inspect.signature(scorer.score).parameters) == {"pairs", "bank", "seed"}
    assert "D0" not in scorer.contexts_seen


def test_a_frozen_row_must_say_how_it_scores(fixed_world: Any, make: Any) -> None:
    with pytest.raises(NotImplementedError):
        FrozenRanker().score(make.all_pairs(fixed_world.corpus), bank=fixed_world.bank(), seed=0)

"""Nothing that a model learns from may depend on a label of the target (validity.md section 4)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from toolshift.experiment.run import source_of_target
from toolshift.experiment.workspace import Workspace
from toolshift.models.frozen.candidate_only import CandidateOnly
from toolshift.models.frozen.cosine_noise import CosineNoise
from toolshift.models.frozen.endpoint_schema_match import EndpointSchemaMatch
from toolshift.models.frozen.random import RandomRanker
from toolshift.models.frozen.rrf import ReciprocalRankFusion
from toolshift.selection.value import source_value

TARGET = "D1"
RANKERS = (CandidateOnly(), CosineNoise(), RandomRanker(), ReciprocalRankFusion(), EndpointSchemaMatch())


def learned(world: Any, source: Any, make: Any) -> Mapping[str, Any]:
    """Everything that training on the sources leaves behind, and the scores of one fixed list of pairs."""
    bank = world.bank()
    fitted = [r.fit(source, bank=bank, measure=source_value, seed=42) for r in RANKERS]
    pairs = make.all_pairs(world.corpus)
    return {
        "manifests": {v: (world.readable(m), dict(m.skipped)) for v, m in source.manifests.items()},
        "records": [dict(f.record) for f in fitted],
        "scores": [f.score(pairs, bank=bank, seed=42).tolist() for f in fitted],
    }


@pytest.mark.parametrize("universe", ["domain", "judged", "library"])
@pytest.mark.parametrize("how", ["permuted", "replaced"])
def test_other_labels_of_the_target_change_nothing(worlds: Any, make: Any, universe: str, how: str) -> None:
    records = worlds.fixed()
    rules = worlds.Rules(universe=universe, length=8, hard=4)
    results, evaluation = [], []
    for some in (records, worlds.relabelled(records, TARGET, how=how)):
        world = worlds.of(some, top=12)
        results.append(learned(world, make.source(world, rules, target=TARGET), make))
        evaluation.append({v: world.readable(m) for v, m in world.manifests(world.fold(rules)).items()})
    assert results[0] == results[1]
    assert all(rows for rows, _ in results[0]["manifests"].values())
    # The same change does reach what labels may reach, or the lines above would see nothing. A permutation inside the
    # target leaves its counts per tool alone, so only other gold reaches the lists of source tasks in the whole data.
    assert evaluation[0]["natural"] != evaluation[1]["natural"]
    sources = [[r for r in rows["context"] if not r[0].startswith("toy/task1")] for rows in evaluation]
    assert (sources[0] != sources[1]) == (how == "replaced")


@pytest.mark.parametrize("universe", ["domain", "judged", "library"])
def test_a_source_manifest_is_that_of_records_without_the_target(worlds: Any, make: Any, universe: str) -> None:
    records = worlds.fixed()
    rules = worlds.Rules(universe=universe, length=8, hard=4)
    world = worlds.of(records, top=12)
    alone = worlds.of(replace(records, tasks=tuple(t for t in records.tasks if t.domain != TARGET)), top=12)
    source = make.source(world, rules, target=TARGET)
    for view, manifest in alone.manifests(alone.fold(rules)).items():
        assert world.readable(source.manifests[view]) == alone.readable(manifest)
        assert source.manifests[view].skipped == manifest.skipped
        assert manifest.tasks.size


def test_lists_are_built_from_the_fold_when_first_asked_for(fixed_world: Any, worlds: Any, make: Any) -> None:
    built = []
    source = make.source(fixed_world, worlds.Rules(), target=TARGET)
    source = replace(source, build=lambda fold: built.append(fold) or {})
    assert not built
    assert source.manifests == source.manifests == {}
    assert built == [source.fold]


@pytest.mark.parametrize("purge", ["none", "gold"])
def test_an_experiment_hands_a_model_the_labels_of_its_train_tasks(
    worlds: Any, settings_of: Any, tmp_path: Path, purge: str
) -> None:
    settings = settings_of("experiment=lodo", f"data.cache={tmp_path}", f"protocol.purge={purge}")
    workspace = Workspace(settings=settings, records=worlds.fixed(), fingerprint="x", encoder=worlds.WordEncoder())
    variant = workspace.variant(settings)
    for target in variant.folds.targets:
        source = source_of_target(target, variant, workspace)
        train = variant.folds.rows(target, role="train")
        outside = np.setdiff1d(np.arange(workspace.corpus.n_tasks), train)
        labels = source.fold.labels
        np.testing.assert_array_equal(labels.rows, train)
        assert labels.gold[outside].nnz == labels.given[outside].nnz == labels.gold_endpoints[outside].nnz == 0
        assert target not in source.contexts
        assert (source.context_of[outside] == -1).all()
        assert set(source.manifests["natural"].tasks) <= set(train)
        if purge == "gold":
            gold = workspace.labels.gold[variant.folds.rows(target, role="test")].indices
            assert not np.isin(labels.gold.indices, gold).any()

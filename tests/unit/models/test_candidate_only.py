"""The control that never reads a task: what it sees, what it learns, what it cannot know."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from toolshift.models.frozen.candidate_only import FEATURES, CandidateOnly, candidate_features
from toolshift.views.corpus import build_corpus


def no_measure(*_: Any, **__: Any) -> float:
    pytest.fail("nothing is selected")


@pytest.fixture
def corpus(worlds: Any) -> Any:
    tools = [
        worlds.Tool(
            "full",
            "A",
            (
                worlds.Api("get rain", ("city", "date"), ("unit",), "about it"),  # 17 letters with the description
                worlds.Api("list"),
            ),
            "twelve chars",
            source="task",
        ),
        worlds.Tool("bare", "A", (), "four"),
        worlds.Tool("lone", "B", (worlds.Api("get", ("unit",)),), "x"),
        worlds.Tool("lost", "", (worlds.Api("get"),), "x"),
    ]
    return build_corpus(worlds.records(tools, [worlds.Ask("t", "A", "x", (("full",),))]))[0]


def test_features_by_hand(corpus: Any) -> None:
    table = dict(zip(corpus.capability_ids, candidate_features(corpus), strict=True))
    log = np.log1p
    # get rain: 2 required (both typed), 1 optional of unknown type, described; list: nothing
    expected = [log(2), log(12), log(len("get rain about it") + 4), 1 / 2, 2 / 2, 1 / 2, 2 / 3, 1 / 2, 1, log(2)]
    np.testing.assert_allclose(table["toy/full"], expected)
    np.testing.assert_allclose(table["toy/bare"], [0, log(4), 0, 0, 0, 0, 0, 0, 0, log(2)])
    np.testing.assert_allclose(table["toy/lone"], [log(1), log(1), log(3), 1, 1, 0, 0, 0, 0, log(1)])
    np.testing.assert_allclose(table["toy/lost"], [log(1), log(1), log(3), 0, 0, 0, 0, 0, 0, log(1)])
    assert candidate_features(corpus).shape == (4, len(FEATURES))


def test_fit_equals_a_plain_logistic_regression(fixed_world: Any, worlds: Any, make: Any) -> None:
    """Weighted distinct rows are a shorter way to write the same likelihood."""
    from sklearn.linear_model import LogisticRegression

    source = make.source(fixed_world, worlds.Rules(length=8, hard=3), target="D1")
    fitted = CandidateOnly(C=0.5).fit(source, bank=fixed_world.bank(), measure=no_measure, seed=0)
    rows = np.concatenate([m.capability for m in source.manifests.values()])
    y = np.concatenate([m.positive for m in source.manifests.values()])
    x = candidate_features(fixed_world.corpus)[rows]
    varies = np.ptp(x, axis=0) > 0
    x = x[:, varies]
    model = LogisticRegression(C=0.5, max_iter=5000, tol=1e-9).fit((x - x.mean(axis=0)) / x.std(axis=0), y)
    found = np.array([fitted.record["coefficients"][name] for name in FEATURES])
    np.testing.assert_allclose(found[varies], model.coef_[0] / x.std(axis=0), rtol=1e-3, atol=1e-4)
    assert np.abs(found).max() > 0.05
    # All domains of this world have seven tools: nothing can be learned from that, not even from rounding noise.
    assert not varies[FEATURES.index("log tools in category")]
    assert not found[~varies].any()
    assert fitted.contexts_seen == ("D0", "D2", "D3")


def test_scores_are_linear_in_the_features(fixed_world: Any, worlds: Any, make: Any) -> None:
    source = make.source(fixed_world, worlds.Rules(length=8, hard=3), target="D1")
    fitted = CandidateOnly().fit(source, bank=fixed_world.bank(), measure=no_measure, seed=0)
    pairs = make.all_pairs(fixed_world.corpus)
    scores = fitted.score(pairs, bank=fixed_world.bank(), seed=0).reshape(40, 28)
    np.testing.assert_array_equal(scores, np.tile(scores[0], (40, 1)))  # the same for every task
    coefficients = np.array(list(fitted.record["coefficients"].values()))
    np.testing.assert_allclose(scores[0], candidate_features(fixed_world.corpus) @ coefficients)


def test_task_texts_change_nothing(fixed_world: Any, worlds: Any, make: Any) -> None:
    source = make.source(fixed_world, worlds.Rules(length=8, hard=3), target="D1")
    silent = replace(fixed_world.corpus, task_texts=("the same text",) * 40, task_domain=np.zeros(40, np.int64))
    mute = replace(fixed_world.bank(), corpus=silent, task_vectors=np.zeros_like(fixed_world.task_vectors))
    results = []
    for bank in (fixed_world.bank(), mute):
        fitted = CandidateOnly().fit(source, bank=bank, measure=no_measure, seed=0)
        scores = fitted.score(make.all_pairs(fixed_world.corpus), bank=bank, seed=0)
        results.append((fitted.record, scores.tolist()))
    assert results[0] == results[1]


def test_it_finds_an_artefact(worlds: Any, make: Any) -> None:
    """Gold tools have many endpoints: the control ranks them first without reading a task."""
    tools = [worlds.Tool(f"t{i}", "A", tuple(worlds.Api(f"get {j}") for j in range(1 + 5 * (i < 3)))) for i in range(9)]
    asks = [worlds.Ask(f"a{i}", "A", "x", ((f"t{i}",),)) for i in range(3)]
    world = worlds.of(worlds.records(tools, asks))
    lists = {i: ((i,), range(3, 9)) for i in range(3)}
    source = make.fixed_source({"v": make.manifest(lists)}, world.corpus)
    fitted = CandidateOnly().fit(source, bank=world.bank(), measure=no_measure, seed=0)
    scores = fitted.score(make.all_pairs(world.corpus), bank=world.bank(), seed=0).reshape(3, 9)
    assert scores[:, :3].min() > scores[:, 3:].max()
    assert fitted.record["coefficients"]["log endpoints"] > 0


def test_sources_without_a_list_are_an_error(grid: Any, make: Any) -> None:
    source = make.fixed_source({"v": make.manifest({})}, grid)
    with pytest.raises(ValueError, match="target T: the sources have no list in any view"):
        CandidateOnly().fit(source, bank=make.bank(grid, {"x": (1, 0)}), measure=no_measure, seed=0)

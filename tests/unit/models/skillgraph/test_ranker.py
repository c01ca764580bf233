"""SkillGraph as a row of the ranking tables: joint use, links from proposed tools, and their share of the score."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import sparse

from toolshift.models.base import BadParameter, Limits, Source
from toolshift.models.features import Pairs
from toolshift.models.skillgraph.ranker import FittedSkillGraph, SkillGraph, joint_use, proposals

ALL = Limits(epochs=1, max_tasks=None)


def test_joint_use_by_hand() -> None:
    """x with y twice and with z once; a tool used alone has no link, and none leads to itself."""
    gold = sparse.csr_matrix(np.array([[1, 1, 0, 0], [1, 1, 1, 0], [0, 0, 0, 1], [0, 0, 0, 0]], bool))
    shares = joint_use(gold).toarray()
    np.testing.assert_allclose(shares[0], [0, 2 / 3, 1 / 3, 0])
    np.testing.assert_allclose(shares[1], [2 / 3, 0, 1 / 3, 0])
    np.testing.assert_allclose(shares[2], [1 / 2, 1 / 2, 0, 0])
    assert not shares[3].any()


@pytest.fixture(scope="module")
def small(worlds: Any) -> Any:
    """Three tools of one domain; x and y are used together by a task of each of two other domains."""
    tools = [worlds.Tool(n, "A", (worlds.Api(f"get {n}"),), f"text of {n}") for n in "xyz"]
    golds = {"a0": ("x", "y"), "b0": ("x", "y"), "b1": ("z",)}
    asks = [
        worlds.Ask(n, {"a": "A", "b": "B"}[n[0]], f"ask {n}", tuple((g,) for g in gold)) for n, gold in golds.items()
    ]
    return worlds.of(worlds.records(tools, asks))


@pytest.fixture
def source(small: Any, make: Any, worlds: Any) -> Source:
    rows = {small.task("b0"): ([small.tool("x"), small.tool("y")], [small.tool("z")])}
    corpus = small.corpus
    return Source(
        target="T",
        fold=small.fold(worlds.Rules()),
        held_out=("T",),
        contexts=("A", "B"),
        context_names=corpus.domains,
        context_of=corpus.task_domain.copy(),
        build=lambda _: {"v": make.manifest(rows)},
    )


def every_pair(small: Any) -> Pairs:
    n, m = small.corpus.n_tasks, small.corpus.n_capabilities
    return Pairs(task=np.repeat(np.arange(n), m), capability=np.tile(np.arange(m), n))


def test_the_link_is_the_best_weighted_step_from_a_proposed_tool(small: Any, source: Source) -> None:
    bank, pairs = small.bank(), every_pair(small)
    (fitted,) = SkillGraph(alpha=0.25, pool=3).epochs(source, bank=bank, seed=0, limits=ALL)
    cosine = bank.cosine(pairs).reshape(-1, 3)
    x, y, z = (small.tool(n) for n in "xyz")
    link = fitted.link(pairs, bank=bank).reshape(-1, 3)  # type: ignore[attr-defined]
    np.testing.assert_allclose(link[:, y], np.maximum(cosine[:, x], 0))  # y always follows x
    np.testing.assert_allclose(link[:, x], np.maximum(cosine[:, y], 0))
    assert not link[:, z].any()
    expected = 0.75 * cosine + 0.25 * link
    np.testing.assert_allclose(fitted.score(pairs, bank=bank, seed=0).reshape(-1, 3), expected)


def test_without_the_graph_it_is_the_cosine(small: Any, source: Source) -> None:
    bank, pairs = small.bank(), every_pair(small)
    (off,) = SkillGraph(alpha=0.0).epochs(source, bank=bank, seed=0, limits=ALL)
    assert np.array_equal(off.score(pairs, bank=bank, seed=0), bank.cosine(pairs))


def test_a_step_known_in_the_other_direction_counts_half(small: Any) -> None:
    bank, pairs = small.bank(), every_pair(small)
    x, y = small.tool("x"), small.tool("y")
    one_way = sparse.csr_matrix(([1.0], ([x], [y])), shape=(3, 3))
    fitted = FittedSkillGraph(alpha=1.0, pool=3, transition=one_way, contexts_seen=())
    link = fitted.score(pairs, bank=bank, seed=0).reshape(-1, 3)
    cosine = np.maximum(bank.cosine(pairs).reshape(-1, 3), 0)
    np.testing.assert_allclose(link[:, y], cosine[:, x])
    np.testing.assert_allclose(link[:, x], 0.5 * cosine[:, y])


def test_a_score_does_not_depend_on_the_other_pairs(small: Any, source: Source) -> None:
    bank, pairs = small.bank(), every_pair(small)
    (fitted,) = SkillGraph().epochs(source, bank=bank, seed=0, limits=ALL)
    whole = fitted.score(pairs, bank=bank, seed=0)
    alone = [fitted.score(pairs.take(slice(i, i + 1)), bank=small.bank(), seed=0)[0] for i in range(len(pairs))]
    assert whole.tolist() == alone


def test_a_pool_stays_in_the_task_own_library_and_may_be_larger(small: Any) -> None:
    found = proposals(small.bank())
    assert found.shape == (small.corpus.n_tasks, 3)
    assert (np.sort(found, axis=1) == [0, 1, 2]).all()


def test_values_out_of_range_are_refused() -> None:
    with pytest.raises(BadParameter, match=r"alpha=1\.5"):
        SkillGraph(alpha=1.5)
    with pytest.raises(BadParameter, match="pool=0"):
        SkillGraph(pool=0)

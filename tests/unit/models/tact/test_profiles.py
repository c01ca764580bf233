"""Source profiles: counts by hand, look-up by id and by similarity, cross-fitting."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from toolshift.models.features import FeatureBank
from toolshift.models.tact.contextual import PairEvidence
from toolshift.models.tact.profiles import (
    LEAST_SIMILARITY,
    Profiles,
    ProfileSettings,
    SourceTasks,
    cross_folds,
    route,
)
from toolshift.views.corpus import Part, build_corpus

SETTINGS = ProfileSettings(count=2, kind="contexts", temperature=0.5, prior=5.0, support=5.0, space="raw", lookup="id")
A, B = 0, 1


def tasks_of(
    golds: list[list[int]], *, context: list[int], rows: list[int] | None = None, width: int = 4
) -> SourceTasks:
    matrix = np.zeros((len(golds), width), bool)
    for row, some in enumerate(golds):
        matrix[row, some] = True
    return SourceTasks(
        rows=np.arange(len(golds)),
        gold=sparse.csr_matrix(matrix),
        context=np.array(context, np.int64),
    )


@pytest.fixture
def bank(worlds: Any, make: Any) -> FeatureBank:
    """t0, t1 on the first axis, t2, t3 on the second. c0 and c1 have cosine .8, c0 and c2 .2, c3 is opposite to c0."""
    tools = [worlds.Tool(f"c{i}", "A", ()) for i in range(4)]
    asks = [worlds.Ask(f"t{i}", "A", f"task {i}", (("c0",),)) for i in range(4)]
    vectors = {"task 0": [1, 0], "task 1": [1, 0], "task 2": [0, 1], "task 3": [0, 1], "c0": [1, 0]}
    vectors |= {"c1": [0.8, 0.6], "c2": [0.2, 0.96**0.5], "c3": [-1, 0]}
    return make.bank(build_corpus(worlds.records(tools, asks))[0], vectors)


HIGH = float(np.exp(2) / (np.exp(2) + 1))
"""Routing to the own prototype: softmax of cosines 1 and 0 at temperature .5."""


@pytest.fixture
def profiles(bank: FeatureBank) -> Profiles:
    """c0: t0, t1 and t2. c1: t3. The two contexts are the two axes."""
    tasks = tasks_of([[0], [0], [0], [1]], context=[A, A, B, B])
    return Profiles.of(tasks, SETTINGS, bank=bank, seed=42)


def test_counts_by_hand(profiles: Profiles) -> None:
    low = 1 - HIGH
    np.testing.assert_allclose(profiles.centroids[:, :2], np.eye(2), atol=1e-6)
    assert profiles.capabilities.tolist() == [0, 1]
    np.testing.assert_allclose(profiles.counts, [[2 * HIGH + low, 2 * low + HIGH], [low, HIGH]], atol=1e-6)
    np.testing.assert_allclose(profiles.base, [0.5, 0.5], atol=1e-6)
    np.testing.assert_allclose(profiles.mean_routing, [0.5, 0.5], atol=1e-6)
    assert profiles.contexts.tolist() == [2, 1]
    assert profiles.n_contexts == 2


def test_look_up_by_id_by_hand(profiles: Profiles, bank: FeatureBank) -> None:
    found = profiles.lookup(np.array([0, 1, 2]), bank=bank)
    np.testing.assert_allclose(found.records, [3, 1, 0], atol=1e-6)
    np.testing.assert_allclose(found.support, [3 / 8, 1 / 6, 0], atol=1e-6)
    np.testing.assert_allclose(found.contexts, [1, 0.5, 0])
    pi = np.array([(1 + HIGH + 2.5) / 8, (2 - HIGH + 2.5) / 8])
    np.testing.assert_allclose(found.log_ratio[0], np.log(pi / 0.5), atol=1e-6)
    pi = np.array([(1 - HIGH + 2.5) / 6, (HIGH + 2.5) / 6])
    np.testing.assert_allclose(found.log_ratio[1], np.log(pi / 0.5), atol=1e-6)
    assert found.log_ratio[2].tolist() == [0, 0]


def test_the_sign_of_the_product(profiles: Profiles, bank: FeatureBank, make: Any) -> None:
    """c0 was used on the first axis: positive for t0, negative for t3; c1 the other way; c2 exactly nothing."""
    evidence = PairEvidence.of(make.all_pairs(bank.corpus), profiles, bank=bank)
    signal = evidence.product.sum(axis=1).reshape(4, 4)
    assert (signal[:2, 0] > 0).all()
    assert (signal[2:, 0] < 0).all()
    assert (signal[:2, 1] < 0).all()
    assert (signal[2:, 1] > 0).all()
    assert (evidence.product.reshape(4, 4, 2)[:, 2:] == 0).all()
    assert evidence.known.reshape(4, 4)[0].tolist() == [True, True, False, False]


def test_the_mean_over_source_tasks_is_zero(fixed_world: Any, stages: Any, shared_source: Any) -> None:
    """For every capability and every weight of the prototypes."""
    fold = stages.fold(shared_source)
    settings = replace(SETTINGS, count=5, kind="kmeans", temperature=0.1)
    profiles = fold.profiles(settings)
    pairs = stages.pairs()
    evidence = PairEvidence.of(pairs.take(np.isin(pairs.task, shared_source.tasks)), profiles, bank=fold.bank)
    by_task = evidence.product.reshape(shared_source.tasks.size, fixed_world.corpus.n_capabilities, -1)
    np.testing.assert_allclose(by_task.mean(axis=0), 0.0, atol=1e-12)
    assert np.abs(by_task).max() > 1e-3


def test_a_capability_used_like_the_average_one_has_no_signal(bank: FeatureBank) -> None:
    profiles = Profiles.of(tasks_of([[0], [0], [0], [0]], context=[A, A, B, B]), SETTINGS, bank=bank, seed=0)
    found = profiles.lookup(np.array([0]), bank=bank)
    np.testing.assert_allclose(found.log_ratio, 0.0, atol=1e-9)
    assert found.support[0] > 0


# ----------------------------------------------------------------------------------------------------------- similarity


def test_look_up_by_similarity_by_hand(profiles: Profiles, bank: FeatureBank) -> None:
    """c2 to c0: .2, to c1: .8 * .2 + .6 * sqrt(.96) = .7479. Weights S exp(cos / .1)."""
    similar = replace(profiles, settings=replace(SETTINGS, lookup="similarity"))
    found = similar.lookup(np.array([2, 3]), bank=bank)
    cosine = np.array([0.2, 0.16 + 0.6 * 0.96**0.5])
    n, support = np.array([3, 1]), np.array([3 / 8, 1 / 6])
    share = support * np.exp(cosine / 0.1)
    share /= share.sum()
    pi = (profiles.counts + 2.5) / (n + 5)[:, None]
    np.testing.assert_allclose(found.records[0], share @ n, rtol=1e-5)
    np.testing.assert_allclose(found.support[0], share @ support * cosine.max(), rtol=1e-5)
    np.testing.assert_allclose(found.contexts[0], share @ [1, 0.5], rtol=1e-5)
    np.testing.assert_allclose(found.log_ratio[0], np.log(share @ pi / 0.5), rtol=1e-4)
    # c3 is most similar to c1, at -.8: below the threshold there is nothing at all.
    assert found.records[1] == found.support[1] == found.contexts[1] == 0
    assert found.log_ratio[1].tolist() == [0, 0]


@pytest.mark.parametrize("above", [True, False])
def test_the_threshold(worlds: Any, make: Any, above: bool) -> None:
    cosine = LEAST_SIMILARITY + (0.01 if above else -0.01)
    tools = [worlds.Tool("c0", "A", ()), worlds.Tool("c1", "A", ())]
    asks = [worlds.Ask("t0", "A", "task 0", (("c0",),))]
    vectors = {"task 0": [1, 0], "c0": [1, 0], "c1": [cosine, (1 - cosine**2) ** 0.5]}
    bank = make.bank(build_corpus(worlds.records(tools, asks))[0], vectors)
    settings = replace(SETTINGS, lookup="similarity")
    profiles = Profiles.of(tasks_of([[0]], context=[A], width=2), settings, bank=bank, seed=0)
    found = profiles.lookup(np.array([1]), bank=bank)
    assert (found.records[0] > 0) == above
    if above:
        assert found.support[0] == pytest.approx(1 / 6 * cosine, rel=1e-5)


def test_each_source_dataset_gives_its_nearest_ones(worlds: Any, make: Any) -> None:
    """Seven capabilities of one dataset, one of another: five and one are taken over."""
    tools = [worlds.Tool(f"c{i}", "A", ()) for i in range(9)]
    asks = [worlds.Ask("t0", "A", "task 0", (("c0",),))]
    angles = {f"c{i}": [np.cos(0.1 * (i + 1)), np.sin(0.1 * (i + 1))] for i in range(8)}
    corpus = build_corpus(worlds.records(tools, asks))[0]
    parts = (
        Part(name="p", tasks=slice(0, 1), capabilities=slice(0, 7)),
        Part(name="q", tasks=slice(1, 1), capabilities=slice(7, 9)),
    )
    corpus = replace(corpus, parts=parts)
    bank = make.bank(corpus, {"task 0": [1, 0], **angles, "c8": [1, 0]})
    settings = replace(SETTINGS, lookup="similarity")
    profiles = Profiles.of(tasks_of([list(range(8))], context=[A], width=9), settings, bank=bank, seed=0)
    # One more record for the sixth (outside the five) and the eighth (the only one of its dataset).
    for changed, matters in ((5, False), (4, True), (7, True)):
        counts = profiles.counts.copy()
        counts[changed] *= 3
        one, other = (p.lookup(np.array([8]), bank=bank) for p in (profiles, replace(profiles, counts=counts)))
        assert (one.records[0] != other.records[0]) == matters


def test_both_takes_the_id_first(profiles: Profiles, bank: FeatureBank) -> None:
    rows = np.array([0, 1, 2, 3])
    by = {
        way: replace(profiles, settings=replace(SETTINGS, lookup=way)).lookup(rows, bank=bank)
        for way in ("id", "similarity", "both")
    }
    for name in ("records", "support", "contexts", "log_ratio"):
        one, similar, both = (getattr(by[way], name) for way in ("id", "similarity", "both"))
        np.testing.assert_array_equal(both[:2], one[:2])
        np.testing.assert_array_equal(both[2:], similar[2:])
        assert (both[2] != one[2]).any()
        assert (similar[0] != one[0]).any()


# ------------------------------------------------------------------------------------------------ nothing, one, thinned


@pytest.mark.parametrize("kind", ["kmeans", "contexts"])
@pytest.mark.parametrize("way", ["id", "similarity", "both"])
def test_without_a_source_task_there_is_no_evidence(bank: FeatureBank, make: Any, kind: Any, way: Any) -> None:
    settings = replace(SETTINGS, kind=kind, lookup=way)
    profiles = Profiles.of(tasks_of([], context=[]), settings, bank=bank, seed=0)
    evidence = PairEvidence.of(make.all_pairs(bank.corpus), profiles, bank=bank)
    assert not evidence.known.any()
    assert evidence.product.shape == (16, 0)
    assert np.isfinite(evidence.confidence).all()


def test_tasks_without_gold_make_prototypes_but_no_evidence(bank: FeatureBank, make: Any) -> None:
    profiles = Profiles.of(tasks_of([[], [], []], context=[A, A, B]), SETTINGS, bank=bank, seed=0)
    assert profiles.base.sum() == pytest.approx(1.0)
    evidence = PairEvidence.of(make.all_pairs(bank.corpus), profiles, bank=bank)
    assert not evidence.known.any()
    assert not evidence.product.any()


def test_a_task_without_a_context_is_counted(bank: FeatureBank) -> None:
    profiles = Profiles.of(tasks_of([[0], [0], [1]], context=[A, -1, -1]), SETTINGS, bank=bank, seed=0)
    assert profiles.n_contexts == 2
    assert profiles.contexts.tolist() == [2, 1]


def test_thinned_to_nothing(profiles: Profiles, bank: FeatureBank, make: Any) -> None:
    nothing = profiles.thinned(np.zeros_like(profiles.counts), np.zeros_like(profiles.contexts))
    for way in ("id", "similarity", "both"):
        some = replace(nothing, settings=replace(SETTINGS, lookup=way))
        evidence = PairEvidence.of(make.all_pairs(bank.corpus), some, bank=bank)
        assert not evidence.known.any()
        assert not evidence.product.any()
    np.testing.assert_array_equal(nothing.base, profiles.base)


def test_the_cap_is_on_prototypes_not_on_records(stages: Any, shared_source: Any) -> None:
    fold = stages.fold(shared_source)
    settings = replace(SETTINGS, kind="kmeans", count=3)
    capped = Profiles.of(fold.records, settings, bank=fold.bank, seed=42, max_tasks=4)
    assert capped.counts.sum() == pytest.approx(fold.records.gold.nnz)
    assert (capped.centroids != fold.profiles(settings).centroids).any()


@given(seed=st.integers(0, 1000), temperature=st.sampled_from([0.05, 0.1, 1.0]))
def test_routing_is_a_distribution_and_of_one_task_alone(seed: int, temperature: float) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((9, 6))
    unit = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    tasks, centroids = unit[:5], unit[5:]
    routing = route(tasks, centroids, temperature=temperature)
    np.testing.assert_allclose(routing.sum(axis=1), 1.0)
    assert (routing.argmax(axis=1) == (tasks @ centroids.T).argmax(axis=1)).all()
    for i in range(5):
        np.testing.assert_array_equal(route(tasks[i : i + 1], centroids, temperature=temperature)[0], routing[i])


# -------------------------------------------------------------------------------------------------------- cross-fitting


def test_whole_contexts_are_dealt_by_the_hash_of_their_names() -> None:
    names = ["a", "b", "c", "d", "e"]
    order = sorted(range(5), key=lambda i: hashlib.sha256(names[i].encode()).hexdigest())
    context = np.array([0, 1, 2, 3, 4, 0, 2])
    folds = cross_folds(context, np.zeros(7, np.uint64), names=names, count=2)
    assert [folds[context == c].tolist()[0] for c in order] == [0, 1, 0, 1, 0]
    assert folds[0] == folds[5]
    assert folds[2] == folds[6]


def test_folds_do_not_depend_on_codes_or_absent_contexts() -> None:
    one = cross_folds(np.array([0, 1, 2]), np.zeros(3, np.uint64), names=["x", "y", "z"], count=3)
    other = cross_folds(np.array([3, 1, 0]), np.zeros(3, np.uint64), names=["z", "y", "gone", "x"], count=3)
    assert one.tolist() == other.tolist()
    assert sorted(one.tolist()) == [0, 1, 2]


def test_a_task_without_a_context_is_dealt_by_its_own_hash() -> None:
    hashes = np.array([4, 5, 6, 7], np.uint64)
    folds = cross_folds(np.array([-1, -1, 0, 1]), hashes, names=["x", "y"], count=2)
    assert folds.tolist()[:2] == [0, 1]
    assert sorted(folds.tolist()[2:]) == [0, 1]


def test_one_context_is_one_fold() -> None:
    assert cross_folds(np.zeros(4, np.int64), np.arange(4, dtype=np.uint64), names=["x"], count=5).tolist() == [0] * 4
    assert cross_folds(np.zeros(0, np.int64), np.zeros(0, np.uint64), names=[], count=5).size == 0


CROSS = replace(SETTINGS, count=3, kind="kmeans", temperature=0.1)


def equal_evidence(one: PairEvidence, other: PairEvidence, at: Any) -> bool:
    names = ("product", "confidence", "known", "support", "nearness")
    return all(np.array_equal(getattr(one, n)[at], getattr(other, n)[at]) for n in names)


@pytest.mark.parametrize("how", ["permuted", "replaced"])
@pytest.mark.parametrize("kind", ["kmeans", "contexts"])
def test_cross_fitted_evidence_of_a_context_knows_none_of_its_records(
    worlds: Any, stages: Any, kind: Any, how: str
) -> None:
    """Other labels in D2: evidence of its own tasks stays to the bit, that of others changes."""
    records = worlds.fixed()
    found, lists = [], None
    for some in (records, worlds.relabelled(records, "D2", how=how)):
        world = worlds.of(some, top=12)
        fold = stages.fold(stages.source(world=world), bank=world.bank())
        lists = lists or fold.lists
        object.__setattr__(fold, "lists", lists)  # the same pairs, whatever lists the labels would make
        found.append(fold.cross_fitted(replace(CROSS, kind=kind), count=5))
    domain = stages.world.corpus.task_domain[lists.pairs.task] if lists else np.zeros(0)
    mine = domain == stages.world.corpus.domains.index("D2")
    assert mine.any()
    assert equal_evidence(found[0], found[1], mine)
    assert not equal_evidence(found[0], found[1], ~mine)


def test_cross_fitted_evidence_is_that_of_profiles_without_the_context(stages: Any, shared_source: Any) -> None:
    """As many folds as contexts: each task is judged by the records of the other two domains."""
    fold = stages.fold(shared_source)
    found = fold.cross_fitted(CROSS, count=3)
    domain = stages.world.corpus.task_domain
    pairs, records = fold.lists.pairs, fold.records
    for number in np.unique(domain[records.rows]):
        at = domain[pairs.task] == number
        alone = Profiles.of(
            records.take(domain[records.rows] != number), CROSS, bank=fold.bank, seed=42, like=fold.profiles(CROSS)
        )
        expected = PairEvidence.of(pairs.take(at), alone, bank=fold.bank)
        assert equal_evidence(
            expected, PairEvidence(**{n: getattr(found, n)[at] for n in PairEvidence.__dataclass_fields__}), slice(None)
        )
    assert found.known.any()


def test_prototypes_are_numbered_like_those_of_all_tasks(stages: Any, shared_source: Any) -> None:
    fold = stages.fold(shared_source)
    whole = fold.profiles(CROSS)
    shuffled = replace(whole, centroids=whole.centroids[[2, 0, 1]])
    again = Profiles.of(fold.records, CROSS, bank=fold.bank, seed=42, like=shuffled)
    np.testing.assert_array_equal(again.centroids, shuffled.centroids)
    np.testing.assert_allclose(again.counts, whole.counts[:, [2, 0, 1]])


def test_a_context_left_out_leaves_its_own_column_empty(stages: Any, shared_source: Any) -> None:
    """With one prototype per context, a column means the same context in every fold, and nothing in the fold that left
    it out."""
    fold = stages.fold(shared_source)
    settings = replace(SETTINGS, kind="contexts")
    evidence, records = fold.cross_fitted(settings, count=3), fold.records
    columns = np.unique(records.context)
    folds = cross_folds(
        records.context, fold.bank.corpus.task_hash[records.rows], names=shared_source.context_names, count=3
    )
    fold_of = dict(zip(records.rows.tolist(), folds.tolist(), strict=True))
    mine = np.array([fold_of[t] for t in fold.lists.pairs.task.tolist()])
    for column, context in enumerate(columns):
        left_out = mine == folds[records.context == context][0]
        assert not evidence.product[left_out, column].any()
        assert evidence.product[~left_out, column].any()


def test_one_source_context_leaves_no_cross_fitted_evidence(stages: Any) -> None:
    source = stages.source().without(("D2", "D3"))
    fold = stages.fold(source)
    found = fold.cross_fitted(CROSS, count=5)
    assert len(fold.lists.pairs)
    assert not found.known.any()
    assert not found.product.any()
    assert np.isfinite(found.confidence).all()

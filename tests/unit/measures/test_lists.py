"""Hand-worked values, brute force over orders, and properties of `evaluate_lists`."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolshift.measures import evaluate_lists, expected_random, parse_measure, trec_keys
from toolshift.measures import lists as lists_module
from toolshift.measures import ranks as ranks_module

ALL = ("MRR", "MRR@2", "NDCG@1", "NDCG@5", "HR@1", "HR@3", "R@2", "R@5", "P@3", "P@5", "MAP")


def one(scores: list[float], relevant: list[bool], measures=ALL, **options) -> dict[str, float]:
    found = evaluate_lists(np.array(scores), np.array(relevant), offsets=[0, len(scores)], measures=measures, **options)
    return {name: float(values[0]) for name, values in found.values.items()}


def ranked(relevant: tuple[bool, ...], measure: str) -> float:
    """Textbook value for a ranking without ties, written independently of the package."""
    parsed = parse_measure(measure)
    n_gold, k = sum(relevant), parsed.cutoff or len(relevant)
    hits = [rank for rank, gold in enumerate(relevant, start=1) if gold]
    inside = [rank for rank in hits if rank <= k]
    match parsed.family:
        case "MRR":
            return 1 / inside[0] if inside else 0.0
        case "HR":
            return float(bool(inside))
        case "R":
            return len(inside) / n_gold
        case "P":
            return len(inside) / k
        case "MAP":
            return sum(i / rank for i, rank in enumerate(hits, start=1)) / n_gold
        case "NDCG":
            ideal = sum(1 / math.log2(rank + 1) for rank in range(1, min(k, n_gold) + 1))
            return sum(1 / math.log2(rank + 1) for rank in inside) / ideal
    raise AssertionError(measure)


# Scores from a small grid, so that ties of all sizes are common; at least one relevant candidate.
small_lists = st.integers(1, 6).flatmap(
    lambda n: st.tuples(
        st.lists(st.integers(0, 2), min_size=n, max_size=n),
        st.lists(st.booleans(), min_size=n, max_size=n).filter(any),
    )
)


def test_hand_worked_without_ties() -> None:
    # Ranking: -, +, -, +  -> RR 1/2; DCG = 1/log2(3) + 1/log2(5); ideal = 1 + 1/log2(3).
    found = one([0.9, 0.8, 0.7, 0.6], [False, True, False, True], ["MRR", "NDCG@5", "HR@1", "HR@3", "R@3", "P@3"])
    assert found["MRR"] == pytest.approx(0.5)
    assert found["NDCG@5"] == pytest.approx((0.6309297535714575 + 0.43067655807339306) / 1.6309297535714575)
    assert (found["HR@1"], found["HR@3"], found["R@3"]) == (0.0, 1.0, 0.5)
    assert found["P@3"] == pytest.approx(1 / 3)


def test_hand_worked_tie() -> None:
    # First place alone (not relevant); ranks 2-4 tied with one relevant: RR = (1/2 + 1/3 + 1/4) / 3.
    found = one([2.0, 1.0, 1.0, 1.0], [False, True, False, False], ["MRR", "HR@2", "HR@3", "NDCG@2"])
    assert found["MRR"] == pytest.approx((1 / 2 + 1 / 3 + 1 / 4) / 3)
    assert found["HR@2"] == pytest.approx(1 / 3)
    assert found["HR@3"] == pytest.approx(2 / 3)
    assert found["NDCG@2"] == pytest.approx(1 / 3 / math.log2(3))


def test_a_constant_scorer_gets_chance_and_never_a_perfect_score() -> None:
    # 20 candidates, positives listed first: a stable sort would give 1.0 everywhere.
    relevant = [True] * 2 + [False] * 18
    found = one([0.5] * 20, relevant, ["MRR", "HR@3", "NDCG@5"])
    chance = expected_random([20], [2], measures=["MRR", "HR@3", "NDCG@5"]).values
    assert found == pytest.approx({name: float(v[0]) for name, v in chance.items()})
    assert found["HR@3"] == pytest.approx(1 - (18 * 17 * 16) / (20 * 19 * 18))
    assert found["MRR"] == pytest.approx(sum((20 - j) / 190 / j for j in range(1, 20)))


@given(small_lists)
def test_expected_equals_the_mean_over_all_orders_of_tied_candidates(case) -> None:
    scores, relevant = case
    orders = [
        tuple(relevant[i] for i in order)
        for order in itertools.permutations(range(len(scores)))
        if all(scores[a] >= scores[b] for a, b in itertools.pairwise(order))
    ]
    for name, value in one(scores, relevant).items():
        assert value == pytest.approx(np.mean([ranked(order, name) for order in orders]), abs=1e-12), name


@given(small_lists)
def test_keys_equal_the_sorted_list(case) -> None:
    scores, relevant = case
    keys = np.arange(len(scores))[::-1].copy()
    order = sorted(range(len(scores)), key=lambda i: (-scores[i], keys[i]))
    found = one(scores, relevant, ties="keys", tie_keys=keys)
    for name, value in found.items():
        assert value == pytest.approx(ranked(tuple(relevant[i] for i in order), name), abs=1e-12), name


@given(small_lists, st.randoms(use_true_random=False), st.sampled_from(["expected", "keys"]))
def test_input_order_never_matters(case, random, ties) -> None:
    scores, relevant = case
    keys = [f"id{i}" for i in range(len(scores))]
    order = list(range(len(scores)))
    random.shuffle(order)
    options = {"ties": ties, "tie_keys": keys} if ties == "keys" else {}
    moved = {"ties": ties, "tie_keys": [keys[i] for i in order]} if ties == "keys" else {}
    assert one(scores, relevant, **options) == pytest.approx(
        one([scores[i] for i in order], [relevant[i] for i in order], **moved), abs=1e-14
    )


@given(st.lists(small_lists, min_size=1, max_size=8))
def test_lists_do_not_influence_each_other(cases) -> None:
    offsets = np.cumsum([0, *(len(s) for s, _ in cases)])
    together = evaluate_lists(
        np.concatenate([s for s, _ in cases]).astype(float),
        np.concatenate([r for _, r in cases]),
        offsets=offsets,
        measures=ALL,
    )
    for i, (scores, relevant) in enumerate(cases):
        assert {name: float(v[i]) for name, v in together.values.items()} == pytest.approx(one(scores, relevant))
        mixed = any(
            scores[a] == scores[b] and relevant[a] != relevant[b]
            for a, b in itertools.combinations(range(len(scores)), 2)
        )
        assert bool(together.tied[i]) is mixed
        assert (together.n_candidates[i], together.n_gold[i]) == (len(scores), sum(relevant))


def test_small_blocks_and_passes_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    lengths = rng.integers(1, 400, size=60)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    scores = rng.integers(0, 40, size=offsets[-1]).astype(float)
    relevant = rng.random(offsets[-1]) < 0.2
    relevant[offsets[:-1]] = True
    keys = rng.permutation(offsets[-1])
    for options in ({}, {"ties": "keys", "tie_keys": keys}):
        whole = evaluate_lists(scores, relevant, offsets=offsets, measures=ALL, **options)
        with monkeypatch.context() as patch:
            patch.setattr(lists_module, "_BLOCK", 50)
            patch.setattr(ranks_module, "_BUDGET", 64)
            pieces = evaluate_lists(scores, relevant, offsets=offsets, measures=ALL, **options)
        for name in ALL:
            np.testing.assert_allclose(pieces.values[name], whole.values[name], atol=1e-12)
        assert (pieces.tied == whole.tied).all()


def test_scores_closer_than_1e_9_are_tied_and_1e_8_are_not() -> None:
    near = one([1.0, 1.0 - 1e-12], [False, True], ["MRR"])
    apart = one([1.0, 1.0 - 1e-8], [False, True], ["MRR"])
    assert near["MRR"] == pytest.approx(0.75)
    assert apart["MRR"] == pytest.approx(0.5)


def test_huge_scores_keep_their_order() -> None:
    assert one([-1e300, -1e301, 0.0], [True, False, False], ["MRR"])["MRR"] == pytest.approx(0.5)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_non_finite_score_names_the_list(bad: float) -> None:
    with pytest.raises(ValueError, match=r"list 1: score .* at candidate 1 is not finite"):
        evaluate_lists([1.0, 0.5, bad], np.array([True, True, False]), offsets=[0, 1, 3], measures=["MRR"])


def test_a_list_without_relevant_candidate_is_an_error_not_a_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lists_module, "_BLOCK", 1)
    with pytest.raises(ValueError, match="list 2 holds no relevant candidate"):
        evaluate_lists([1.0, 2.0, 3.0], np.array([True, True, False]), offsets=[0, 1, 2, 3], measures=["MRR"])


def test_empty_list_bad_offsets_and_types_are_refused() -> None:
    gold = np.array([True, True])
    with pytest.raises(ValueError, match="list 1 is empty"):
        evaluate_lists([1.0, 2.0], gold, offsets=[0, 1, 1, 2], measures=["MRR"])
    with pytest.raises(ValueError, match="from 0 to 2"):
        evaluate_lists([1.0, 2.0], gold, offsets=[0, 1], measures=["MRR"])
    with pytest.raises(ValueError, match="must be bool"):
        evaluate_lists([1.0, 2.0], np.array([1, 0]), offsets=[0, 2], measures=["MRR"])
    with pytest.raises(ValueError, match="equal length"):
        evaluate_lists([1.0, 2.0, 3.0], gold, offsets=[0, 3], measures=["MRR"])


def test_keys_must_be_given_and_distinct() -> None:
    gold = np.array([True, False])
    with pytest.raises(ValueError, match="only then"):
        evaluate_lists([1.0, 1.0], gold, offsets=[0, 2], measures=["MRR"], ties="keys")
    with pytest.raises(ValueError, match="only then"):
        evaluate_lists([1.0, 1.0], gold, offsets=[0, 2], measures=["MRR"], tie_keys=[1, 2])
    with pytest.raises(ValueError, match=r"list 0: .* shares its score and its tie key"):
        evaluate_lists([1.0, 1.0], gold, offsets=[0, 2], measures=["MRR"], ties="keys", tie_keys=[7, 7])
    apart = evaluate_lists([1.0, 2.0], gold, offsets=[0, 2], measures=["MRR"], ties="keys", tie_keys=[7, 7])
    assert apart.values["MRR"][0] == 0.5


def test_values_are_named_as_asked_for() -> None:
    found = evaluate_lists([1.0], np.array([True]), offsets=[0, 1], measures=["RR", parse_measure("success@3")])
    assert list(found.values) == ["RR", "HR@3"]


def test_no_lists_give_no_values() -> None:
    found = evaluate_lists([], np.zeros(0, bool), offsets=[0], measures=["MRR"])
    assert found.values["MRR"].shape == found.tied.shape == found.n_gold.shape == (0,)
    assert expected_random([], [], measures=["MRR"]).values["MRR"].shape == (0,)


@given(st.lists(st.tuples(st.integers(1, 7), st.integers(1, 7)).filter(lambda c: c[1] <= c[0]), min_size=1, max_size=6))
def test_expected_random_equals_a_constant_scorer(counts) -> None:
    n, gold = np.array(counts).T
    offsets = np.concatenate([[0], np.cumsum(n)])
    relevant = np.concatenate([np.arange(a) < b for a, b in counts])
    constant = evaluate_lists(np.zeros(offsets[-1]), relevant, offsets=offsets, measures=ALL)
    closed = expected_random(n, gold, measures=ALL)
    for name in ALL:
        np.testing.assert_allclose(closed.values[name], constant.values[name], atol=1e-12)
    assert (closed.tied == (gold < n)).all()


def test_expected_random_equals_a_simulation() -> None:
    rng = np.random.default_rng(1)
    scores = rng.random((20_000, 20))
    relevant = np.zeros((20_000, 20), bool)
    relevant[:, :3] = True
    drawn = evaluate_lists(scores.ravel(), relevant.ravel(), offsets=np.arange(20_001) * 20, measures=ALL)
    exact = expected_random([20], [3], measures=ALL)
    for name in ALL:
        error = drawn.values[name].std() / math.sqrt(20_000)
        assert abs(drawn.values[name].mean() - exact.values[name][0]) < 4 * error, name


@pytest.mark.parametrize(("n", "gold"), [(3, 0), (3, 4)])
def test_expected_random_refuses_impossible_counts(n: int, gold: int) -> None:
    with pytest.raises(ValueError, match="list 1: n_gold must be in"):
        expected_random([5, n], [1, gold], measures=["MRR"])


def test_one_long_list_among_short_ones() -> None:
    n = 16_000
    scores = np.concatenate([np.zeros(n), [1.0, 0.0]])
    relevant = np.zeros(n + 2, bool)
    relevant[[5, 6, 7, n + 1]] = True
    found = evaluate_lists(scores, relevant, offsets=[0, n, n + 2], measures=["MRR", "HR@3", "R@10"])
    chance = expected_random([n], [3], measures=["MRR", "HR@3", "R@10"])
    for name, values in found.values.items():
        assert values[0] == pytest.approx(chance.values[name][0], rel=1e-9)
    assert found.values["MRR"][1] == 0.5


def test_trec_keys_put_later_strings_first() -> None:
    ids = ["a", "c", "b", "c"]
    keys = trec_keys(ids)
    assert [ids[i] for i in np.argsort(keys, kind="stable")] == ["c", "c", "b", "a"]

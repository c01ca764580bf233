"""Hand-worked values, identities and naive references of the sequence measures."""

from __future__ import annotations

from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kendalltau

from toolshift.measures import sequences as module
from toolshift.measures.sequences import (
    first_accuracy,
    kendall_tau,
    lcs_ratio,
    ordered_precision,
    sequence_measures,
    set_prf,
    transition_accuracy,
)

QUERIES = st.lists(
    st.tuples(st.lists(st.integers(0, 5), max_size=6), st.lists(st.integers(0, 5), min_size=1, max_size=6)),
    min_size=1,
    max_size=6,
)


def padded(rows: list[list[int]]) -> np.ndarray:
    width = max(map(len, rows), default=0)
    return np.array([row + [-1] * (width - len(row)) for row in rows], dtype=np.int64).reshape(len(rows), width)


def naive(predicted: list[int], gold: list[int], *, window: int = 2, repeats: str = "last") -> dict[str, float]:
    """One query, as in the formulas, with dictionaries and loops."""

    def places(row: list[int]) -> dict[int, int]:
        pairs = list(enumerate(row))
        return {tool: i for i, tool in (pairs if repeats == "last" else pairs[::-1])}

    ours, theirs = places(predicted), places(gold)
    common = sorted(set(ours) & set(theirs))
    pairs = list(combinations(common, 2))
    same = sum((ours[a] - ours[b]) * (theirs[a] - theirs[b]) > 0 for a, b in pairs)
    hits = sum(a in ours and b in ours and 0 < ours[b] - ours[a] <= window for a, b in pairwise(gold))
    table = [[0] * (len(gold) + 1) for _ in range(len(predicted) + 1)]
    for i, a in enumerate(predicted):
        for j, b in enumerate(gold):
            table[i + 1][j + 1] = table[i][j] + 1 if a == b else max(table[i][j + 1], table[i + 1][j])
    precision = len(common) / len(ours) if ours else 0.0
    recall = len(common) / len(theirs)
    return {
        "set_precision": precision,
        "set_recall": recall,
        "set_f1": 2 * precision * recall / (precision + recall) if common else 0.0,
        "ordered_precision": same / len(pairs) if pairs else 0.0,
        "kendall_tau": (2 * same - len(pairs)) / len(pairs) if pairs else 0.0,
        "transition_accuracy": hits / (len(gold) - 1) if len(gold) > 1 else 0.0,
        "first_accuracy": float(bool(predicted) and predicted[0] == gold[0]),
        "lcs_ratio": table[-1][-1] / len(gold),
        "n_common": len(common),
        "n_predicted": len(ours),
        "n_gold": len(gold),
    }


@given(QUERIES, st.integers(1, 4), st.sampled_from(["last", "first"]))
def test_every_measure_equals_a_naive_loop(queries, window: int, repeats) -> None:
    found = sequence_measures(
        padded([p for p, _ in queries]), padded([g for _, g in queries]), window=window, repeats=repeats
    )
    for i, (predicted, gold) in enumerate(queries):
        want = naive(predicted, gold, window=window, repeats=repeats)
        assert {name: getattr(found, name)[i] for name in want} == pytest.approx(want)


@given(QUERIES)
def test_tau_is_twice_ordered_precision_less_one(queries) -> None:
    found = sequence_measures(padded([p for p, _ in queries]), padded([g for _, g in queries]))
    several = found.n_common >= 2
    assert found.kendall_tau[several] == pytest.approx(2 * found.ordered_precision[several] - 1)
    assert not found.kendall_tau[~several].any() and not found.ordered_precision[~several].any()
    # Hence on average, zeros included: mean tau = 2 mean OP - P(|C| >= 2).
    assert found.kendall_tau.mean() == pytest.approx(2 * found.ordered_precision.mean() - several.mean())


@given(st.permutations(range(6)), st.permutations(range(6)))
def test_tau_equals_scipy_without_ties(predicted: list[int], gold: list[int]) -> None:
    rank = {tool: i for i, tool in enumerate(predicted)}
    want = kendalltau([rank[tool] for tool in gold], range(6)).statistic
    assert kendall_tau([predicted], [gold]) == pytest.approx([want])


def test_sets_by_hand() -> None:
    # Common 1 and 3 of 4 predicted and 3 gold tools; an empty prediction; a gold tool called twice is one tool.
    found = set_prf([[1, 2, 3, 4], [-1] * 4, [7, -1, -1, -1]], [[3, 1, 9], [1, 2, -1], [7, 7, 8]])
    assert found.precision.tolist() == [0.5, 0.0, 1.0]
    assert found.recall == pytest.approx([2 / 3, 0.0, 0.5])
    assert found.f1 == pytest.approx([4 / 7, 0.0, 2 / 3])


def test_order_by_hand() -> None:
    # Common 1, 2, 3: predicted 3 1 2 against gold 1 2 3 keeps one of three pairs.
    assert ordered_precision([[3, 9, 1, 2]], [[1, 2, 3, 5]]) == pytest.approx([1 / 3])
    assert kendall_tau([[3, 9, 1, 2]], [[1, 2, 3, 5]]) == pytest.approx([-1 / 3])
    # One common tool has no order.
    assert ordered_precision([[1, 8]], [[1, 2]]).tolist() == kendall_tau([[1, 8]], [[1, 2]]).tolist() == [0.0]


def test_transitions_by_hand() -> None:
    # Gold 1>2>3>4. Predicted 1 . 2 3 . . 4: distances 2 (counts), 1 (counts), 3 (too far).
    predicted, gold = [[1, 8, 2, 3, 9, 7, 4]], [[1, 2, 3, 4]]
    assert transition_accuracy(predicted, gold) == pytest.approx([2 / 3])
    assert transition_accuracy(predicted, gold, window=1) == pytest.approx([1 / 3])
    assert transition_accuracy(predicted, gold, window=3).tolist() == [1.0]
    # Backwards never counts; a single gold call has no transition.
    assert transition_accuracy([[2, 1], [1, 2]], [[1, 2], [1, -1]]).tolist() == [0.0, 0.0]


def test_first_and_subsequence_by_hand() -> None:
    predicted, gold = [[1, 2, 3], [2, 1, 3], [-1, -1, -1]], [[1, 3, 2, 4], [1, 3, 2, 4], [1, -1, -1, -1]]
    assert first_accuracy(predicted, gold).tolist() == [1.0, 0.0, 0.0]
    assert lcs_ratio(predicted, gold).tolist() == [0.5, 0.5, 0.0]


def test_a_repeated_gold_tool_has_its_last_or_its_first_position() -> None:
    # Gold 1 2 1: the last 1 follows 2, the first precedes it.
    predicted, gold = [[2, 1]], [[1, 2, 1]]
    assert kendall_tau(predicted, gold).tolist() == [1.0]
    assert kendall_tau(predicted, gold, repeats="first").tolist() == [-1.0]
    # L* keeps both calls: of 1>2 and 2>1 the second is there, and two of three calls are a common subsequence.
    assert transition_accuracy(predicted, gold).tolist() == [0.5]
    assert lcs_ratio(predicted, gold) == pytest.approx([2 / 3])
    assert set_prf(predicted, gold).f1.tolist() == [1.0]


def test_filling_columns_and_block_size_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    predicted, gold = rng.integers(0, 6, (50, 5)), rng.integers(0, 6, (50, 4))
    whole = sequence_measures(predicted, gold)
    monkeypatch.setattr(module, "_BUDGET", 90)
    wide = sequence_measures(
        np.pad(predicted, ((0, 0), (0, 3)), constant_values=-1), np.pad(gold, ((0, 0), (0, 2)), constant_values=-1)
    )
    for name in ("set_f1", "kendall_tau", "transition_accuracy", "lcs_ratio", "n_common", "n_gold"):
        assert getattr(whole, name).tolist() == getattr(wide, name).tolist()


def test_no_query_and_no_place() -> None:
    assert len(sequence_measures(np.zeros((0, 3)), np.zeros((0, 2))).kendall_tau) == 0
    assert sequence_measures(np.zeros((1, 0)), [[1, 2]]).set_f1.tolist() == [0.0]


def test_bad_input_is_named_by_query() -> None:
    with pytest.raises(ValueError, match="query 1 has no gold tool"):
        sequence_measures([[1], [1]], [[1], [-1]])
    with pytest.raises(ValueError, match="query 0: predicted has a tool after the filling"):
        sequence_measures([[-1, 1]], [[1]])
    with pytest.raises(ValueError, match="same q"):
        sequence_measures([[1], [2]], [[1]])
    with pytest.raises(ValueError, match="window must be at least 1"):
        sequence_measures([[1]], [[1]], window=0)

"""Equality with pytrec_eval: always without ties, and with ties under its own tie rule."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolshift.evaluation.bench import bench_measures
from toolshift.measures import evaluate_lists, trec_keys

pytrec_eval = pytest.importorskip("pytrec_eval")

NAMES = {
    "MRR": "recip_rank",
    "NDCG@5": "ndcg_cut_5",
    "HR@3": "success_3",
    "R@5": "recall_5",
    "P@5": "P_5",
    "MAP": "map",
}

runs = st.lists(
    st.integers(1, 25).flatmap(
        lambda n: st.tuples(
            st.permutations(range(n)),
            st.lists(st.integers(0, 3), min_size=n, max_size=n),
            st.lists(st.booleans(), min_size=n, max_size=n).filter(any),
        )
    ),
    min_size=1,
    max_size=5,
)


def pytrec(scores: list[list[float]], relevant: list[list[bool]]) -> dict[str, list[float]]:
    run = {f"q{i}": {f"d{j}": float(s) for j, s in enumerate(row)} for i, row in enumerate(scores)}
    qrel = {f"q{i}": {f"d{j}": int(r) for j, r in enumerate(row)} for i, row in enumerate(relevant)}
    found = pytrec_eval.RelevanceEvaluator(
        qrel, {"recip_rank", "ndcg_cut.5", "success.3", "recall.5", "P.5", "map"}
    ).evaluate(run)
    return {ours: [found[f"q{i}"][theirs] for i in range(len(scores))] for ours, theirs in NAMES.items()}


def ours(scores: list[list[float]], relevant: list[list[bool]], *, trec: bool) -> dict[str, np.ndarray]:
    offsets = np.cumsum([0, *map(len, scores)])
    keys = trec_keys([f"d{j}" for row in scores for j in range(len(row))])
    options = {"ties": "keys", "tie_keys": keys} if trec else {}
    packed = np.concatenate([np.asarray(row, float) for row in scores])
    gold = np.concatenate([np.asarray(row, bool) for row in relevant])
    return dict(evaluate_lists(packed, gold, offsets=offsets, measures=list(NAMES), **options).values)


@given(runs)
def test_equal_without_ties(cases) -> None:
    scores, relevant = [list(s) for s, _, _ in cases], [r for _, _, r in cases]
    found, expected = ours(scores, relevant, trec=False), pytrec(scores, relevant)
    for name in NAMES:
        np.testing.assert_allclose(found[name], expected[name], atol=1e-9, err_msg=name)


@given(runs)
def test_equal_with_ties_under_trecs_rule(cases) -> None:
    scores, relevant = [t for _, t, _ in cases], [r for _, _, r in cases]
    found, expected = ours(scores, relevant, trec=True), pytrec(scores, relevant)
    for name in NAMES:
        np.testing.assert_allclose(found[name], expected[name], atol=1e-9, err_msg=name)


def test_bench_reports_equal_results_and_ratios() -> None:
    found = bench_measures(n_tasks=2_000, length=20)
    assert found["max_difference"] < 1e-9
    assert found["speedup"] == pytest.approx(found["pytrec_s"] / found["ours_s"])
    assert found["speedup_with_dicts"] > found["speedup"] > 1.0

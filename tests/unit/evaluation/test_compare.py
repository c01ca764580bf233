from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from toolshift.evaluation.compare import (
    cluster_ratio,
    cohen_kappa,
    differences,
    holm,
    holm_by_family,
    mcnemar_exact,
    minimum_detectable_effect,
    strongest_other,
    two_sided_p,
)


def test_p_value_hand_worked() -> None:
    # 99 replicates, 3 of them <= 0: p = 2 * 4/100. None: p = 2/100. All zero: cut at 1.
    drawn = np.ones((99, 3))
    drawn[:3, 0] = -1.0
    drawn[:, 2] = 0.0
    found = differences(drawn, estimate=[0.9, 1.0, 0.0])
    np.testing.assert_allclose(found.p_value, [0.08, 0.02, 1.0])
    np.testing.assert_allclose(found.p_not_greater, [3 / 99, 0.0, 1.0])


def test_rounding_noise_counts_as_zero() -> None:
    noise = np.random.default_rng(0).normal(0, 1e-8, size=(999, 1))
    found = differences(noise, estimate=[3e-9])
    assert (found.p_value[0], found.delta[0], found.low[0], found.high[0]) == (1.0, 0.0, 0.0, 0.0)


def test_undefined_replicates_are_left_out() -> None:
    drawn = np.array([[1.0, np.nan], [2.0, np.nan], [np.nan, np.nan]])
    found = differences(drawn, estimate=[1.5, np.nan])
    assert found.p_value[0] == pytest.approx(2 * 1 / 3)
    assert found.standard_error[0] == pytest.approx(math.sqrt(0.5))
    assert np.isnan([found.p_value[1], found.low[1], found.high[1], found.standard_error[1]]).all()


@given(st.integers(0, 200), st.integers(0, 200))
def test_p_value_is_symmetric_and_in_range(below: int, above: int) -> None:
    n = below + above
    forward, backward = two_sided_p(below, above, n=n), two_sided_p(above, below, n=n)
    if n:
        assert forward == backward
        assert 0.0 < forward <= 1.0
    else:
        assert np.isnan(forward)


def test_strongest_other_retakes_the_maximum_in_each_replicate() -> None:
    drawn = np.array([[0.5, 0.4, 0.1], [0.5, 0.1, 0.6]])
    gain, estimate, rival = strongest_other(drawn, estimate=[0.5, 0.35, 0.3], champion=0)
    np.testing.assert_allclose(gain, [0.1, -0.1])
    assert (estimate, rival) == (pytest.approx(0.15), 1)
    with pytest.raises(ValueError, match="at least two rows"):
        strongest_other(drawn[:, :1], estimate=[0.5], champion=0)


def test_holm_hand_worked() -> None:
    # Sorted .01, .02, .04 times 3, 2, 1, made monotone.
    np.testing.assert_allclose(holm([0.02, 0.01, 0.04]), [0.04, 0.03, 0.04])
    np.testing.assert_allclose(holm([0.02, np.nan]), [0.02, np.nan])


def test_holm_families_are_corrected_apart() -> None:
    found = holm_by_family([0.02, 0.02, 0.03], family=["a", "b", "a"])
    np.testing.assert_allclose(found, [0.04, 0.02, 0.04])
    with pytest.raises(ValueError, match="2 families"):
        holm_by_family([0.1], family=["a", "b"])


def test_minimum_detectable_effect_has_the_stated_power() -> None:
    effect = float(minimum_detectable_effect(0.02))
    assert effect == pytest.approx((1.959963985 + 0.841621234) * 0.02)
    assert 1 - stats.norm.cdf(1.959963985 - effect / 0.02) == pytest.approx(0.8)


def test_mcnemar_hand_worked() -> None:
    assert mcnemar_exact(10, 0) == pytest.approx(2 * 2**-10)
    assert mcnemar_exact(0, 0) == 1.0
    assert mcnemar_exact(3, 3) == 1.0
    with pytest.raises(ValueError, match="negative"):
        mcnemar_exact(-1, 2)


@given(st.integers(0, 40), st.integers(0, 40))
def test_mcnemar_equals_the_binomial_test(b: int, c: int) -> None:
    expected = stats.binomtest(min(b, c), b + c, 0.5).pvalue if b + c else 1.0
    assert mcnemar_exact(b, c) == pytest.approx(expected)
    assert mcnemar_exact(b, c) == mcnemar_exact(c, b)


def test_kappa_hand_worked() -> None:
    # 50 items: 20 yes/yes, 15 no/no, 5 yes/no, 10 no/yes -> p_o .7, p_e .5, kappa .4.
    first = ["y"] * 25 + ["n"] * 25
    second = ["y"] * 20 + ["n"] * 5 + ["y"] * 10 + ["n"] * 15
    assert cohen_kappa(first, second) == pytest.approx(0.4)
    assert cohen_kappa(["y", "y"], ["y", "y"]) == 1.0
    with pytest.raises(ValueError, match="equally long"):
        cohen_kappa(["y"], [])


def test_kappa_equals_scikit_learn() -> None:
    from sklearn.metrics import cohen_kappa_score

    rng = np.random.default_rng(0)
    first, second = rng.integers(0, 4, size=(2, 60)).tolist()
    assert cohen_kappa(first, second) == pytest.approx(cohen_kappa_score(first, second))


def published_pairs() -> tuple[np.ndarray, np.ndarray]:
    """333 clusters, 408 pairs, 62 flips: 258 single and 75 double clusters; half of the flipping double ones agree."""
    cluster = np.concatenate([np.arange(258), np.repeat(np.arange(258, 333), 2)])
    flips = np.zeros(408)
    flips[:38] = 1
    flips[258 : 258 + 16] = 1
    flips[258 + 16 : 258 + 32 : 2] = 1
    return flips, cluster


def test_cluster_interval_agrees_with_the_published_one() -> None:
    flips, cluster = published_pairs()
    found = cluster_ratio(flips, np.ones(408), cluster=cluster)
    assert 100 * found.estimate == pytest.approx(15.20, abs=0.005)
    # Published [11.57, 19.09]. The clusters' true sizes are not published, hence the slack.
    assert 100 * found.low == pytest.approx(11.57, abs=0.35)
    assert 100 * found.high == pytest.approx(19.09, abs=0.35)


def test_singleton_clusters_give_about_the_wilson_interval() -> None:
    flips, _ = published_pairs()
    found = cluster_ratio(flips, np.ones(408), cluster=np.arange(408))
    wilson = stats.binomtest(62, 408).proportion_ci(method="wilson")
    assert found.low == pytest.approx(wilson.low, abs=0.006)
    assert found.high == pytest.approx(wilson.high, abs=0.006)


def test_agreeing_clusters_widen_the_interval() -> None:
    flips = np.repeat([1.0, 0.0, 0.0, 0.0] * 10, 5)
    alone = cluster_ratio(flips, np.ones(200), cluster=np.arange(200), replicates=4_000)
    together = cluster_ratio(flips, np.ones(200), cluster=np.repeat(np.arange(40), 5), replicates=4_000)
    assert (together.high - together.low) == pytest.approx(math.sqrt(5) * (alone.high - alone.low), rel=0.1)


@given(st.integers(1, 40), st.sampled_from([0.5, 0.9, 0.95]))
def test_interval_and_error_equal_numpys(n: int, confidence: float) -> None:
    drawn = np.random.default_rng(n).normal(size=(n, 3))
    drawn[: n // 2, 1] = np.nan
    found = differences(drawn, estimate=np.zeros(3), confidence=confidence)
    tail = 50 * (1 - confidence)
    low, high = np.nanpercentile(drawn, [tail, 100 - tail], axis=0)
    np.testing.assert_allclose(found.low, low)
    np.testing.assert_allclose(found.high, high)
    several = (~np.isnan(drawn)).sum(axis=0) > 1
    np.testing.assert_allclose(found.standard_error[several], np.nanstd(drawn[:, several], axis=0, ddof=1))
    assert np.isnan(found.standard_error[~several]).all()

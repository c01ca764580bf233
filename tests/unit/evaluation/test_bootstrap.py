from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from toolshift.evaluation import bootstrap
from toolshift.evaluation.bootstrap import point_estimates, scheme_for, transfer_bootstrap


def test_point_estimates_hand_worked() -> None:
    # Column 0: target 0 has .2, .4 -> .3; target 1 has 1.0 -> macro .65, task mean .5333.
    # Column 1 lacks target 1 and one task of target 0.
    values = [[0.2, 0.5], [0.4, np.nan], [1.0, np.nan]]
    found = point_estimates(values, target=[0, 0, 1], min_tasks=2)
    np.testing.assert_allclose(found.macro, [0.65, 0.5])
    np.testing.assert_allclose(found.task_mean, [1.6 / 3, 0.5])
    np.testing.assert_allclose(found.macro_large, [0.3, np.nan])
    assert found.n_targets.tolist() == [2, 1]
    assert found.n_tasks.tolist() == [3, 1]


def reference(values: np.ndarray, target: np.ndarray, *, replicates: int, seed: int, scheme: str) -> np.ndarray:
    """The definition, one replicate, copy and column at a time, from the same draws."""
    n_targets = target.max() + 1
    rows = [np.flatnonzero(target == g) for g in range(n_targets)]
    copies = bootstrap._draw_targets(n_targets, replicates=replicates, seed=seed, scheme=scheme)
    streams = [bootstrap.generator("bootstrap/tasks", seed, g) for g in range(n_targets)]
    out = np.full((replicates, values.shape[1]), np.nan)
    means: list[list[np.ndarray]] = [[] for _ in range(replicates)]
    for g in range(n_targets):
        counts = bootstrap._resample_counts(len(rows[g]), n_copies=int(copies[:, g].sum()), rng=streams[g])
        drawn = iter(counts.astype(int))
        for b in range(replicates):
            for _ in range(copies[b, g]):
                sample = values[np.repeat(rows[g], next(drawn))]
                with np.errstate(invalid="ignore"):
                    means[b].append(np.nansum(sample, axis=0) / (~np.isnan(sample)).sum(axis=0))
    for b in range(replicates):
        stacked = np.array(means[b])
        for c in range(values.shape[1]):
            column = stacked[:, c][~np.isnan(stacked[:, c])]
            out[b, c] = column.mean() if column.size else np.nan
    return out


@pytest.mark.parametrize("scheme", ["two_level", "within_targets"])
def test_equals_the_definition(scheme, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bootstrap, "_BLOCK", 3)
    rng = np.random.default_rng(0)
    target = np.repeat(np.arange(5), [1, 2, 6, 3, 9])
    values = rng.random((21, 8))
    values[rng.random((21, 8)) < 0.3] = np.nan
    values[:, 1] = values[:, 0]
    values[target == 2, 5] = np.nan
    values[target != 3, 6] = np.nan
    found = transfer_bootstrap(values, target=target, replicates=40, seed=7, scheme=scheme, chunk=40)
    expected = reference(values, target, replicates=40, seed=7, scheme=scheme)
    np.testing.assert_allclose(found.macro, expected, atol=1e-6)
    assert np.isnan(expected[:, 6]).any() == (scheme == "two_level")


@given(st.permutations(range(12)))
def test_columns_share_the_draws_whatever_stands_beside_them(order) -> None:
    rng = np.random.default_rng(5)
    values, target = rng.random((30, 12)), np.repeat(np.arange(6), 5)
    whole = transfer_bootstrap(values, target=target, replicates=30, seed=1)
    moved = transfer_bootstrap(values[:, order], target=target, replicates=30, seed=1)
    np.testing.assert_allclose(moved.macro, whole.macro[:, order], atol=1e-7)


def test_equal_columns_agree_exactly_and_chunks_do_not_matter() -> None:
    rng = np.random.default_rng(2)
    values, target = rng.random((40, 3)), np.repeat(np.arange(10), 4)
    values = values[:, [0, 1, 0, 2]]
    whole = transfer_bootstrap(values, target=target, replicates=50, seed=3)
    assert (whole.macro[:, 0] == whole.macro[:, 2]).all()
    again = transfer_bootstrap(values, target=target, replicates=50, seed=3)
    assert (whole.macro == again.macro).all()
    assert not np.allclose(whole.macro, transfer_bootstrap(values, target=target, replicates=50, seed=4).macro)


def test_within_targets_has_the_stratified_standard_error() -> None:
    rng = np.random.default_rng(8)
    sizes = np.array([12, 30, 60])
    target = np.repeat(np.arange(3), sizes)
    values = rng.random(len(target))
    found = transfer_bootstrap(values[:, None], target=target, replicates=6_000, seed=0, scheme="within_targets")
    variance = sum(values[target == g].var() / n for g, n in enumerate(sizes)) / 9
    assert found.macro.std() == pytest.approx(np.sqrt(variance), rel=0.05)
    assert found.macro.mean() == pytest.approx(float(found.estimate[0]), abs=4 * np.sqrt(variance / 6_000))


def test_two_level_has_the_variance_of_targets_plus_tasks() -> None:
    rng = np.random.default_rng(9)
    means = rng.normal(0.5, 0.1, size=12)
    target = np.repeat(np.arange(12), 25)
    values = means[target] + rng.normal(0, 0.2, size=len(target))
    found = transfer_bootstrap(values[:, None], target=target, replicates=6_000, seed=0)
    cell = np.array([values[target == g].mean() for g in range(12)])
    inside = np.array([values[target == g].var() / 25 for g in range(12)])
    assert found.macro.std() == pytest.approx(np.sqrt((cell.var() + inside.mean()) / 12), rel=0.05)


def test_one_target_equals_scipys_bootstrap() -> None:
    values = np.random.default_rng(11).exponential(size=80)
    ours = transfer_bootstrap(
        values[:, None], target=np.zeros(80, int), replicates=9_000, seed=0, scheme="within_targets"
    )
    theirs = stats.bootstrap((values,), np.mean, n_resamples=9_000, method="percentile", rng=np.random.default_rng(0))
    low, high = np.percentile(ours.macro[:, 0], [2.5, 97.5])
    width = theirs.confidence_interval.high - theirs.confidence_interval.low
    assert low == pytest.approx(theirs.confidence_interval.low, abs=0.05 * width)
    assert high == pytest.approx(theirs.confidence_interval.high, abs=0.05 * width)


def test_interval_covers_about_95_percent() -> None:
    covered = 0
    for world in range(150):
        rng = np.random.default_rng(world)
        target = np.repeat(np.arange(24), 8)
        values = rng.normal(0, 0.1, size=24)[target] + rng.normal(0, 0.2, size=len(target))
        found = transfer_bootstrap(values[:, None], target=target, replicates=300, seed=world)
        low, high = np.percentile(found.macro[:, 0], [2.5, 97.5])
        covered += low <= 0.0 <= high
    # Two-level resampling counts the task noise twice, so it errs on the wide side: at least nominal less 3 SE.
    assert 0.95 - 3 * np.sqrt(0.95 * 0.05 / 150) <= covered / 150 <= 1.0


def test_scheme_needs_ten_targets() -> None:
    assert [scheme_for(n) for n in (1, 9, 10, 48)] == ["within_targets"] * 2 + ["two_level"] * 2


@pytest.mark.parametrize("target", [[0, 2, 2], [1, 1, 2], [0.0, 1.0, 1.0], [0, 1]])
def test_bad_target_codes_are_refused(target) -> None:
    with pytest.raises(ValueError, match="target"):
        transfer_bootstrap(np.ones((3, 1)), target=target, replicates=5, seed=0)


def test_infinite_values_are_refused() -> None:
    with pytest.raises(ValueError, match="finite"):
        transfer_bootstrap([[np.inf]], target=[0], replicates=5, seed=0)

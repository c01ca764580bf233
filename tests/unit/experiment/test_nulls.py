"""Which worlds and seeds are tried, and the counts behind "the null holds"."""

from __future__ import annotations

import pandas as pd
import pytest

from toolshift.experiment.nulls import (
    CONTEXTUAL,
    ENDPOINTS,
    FUNCTIONAL,
    WORLD_SEEDS,
    null_worlds,
    page,
    parts_of,
    summarise_gains,
    worlds,
)
from toolshift.settings.compose import load_settings
from toolshift.settings.errors import UserError
from toolshift.settings.launch import Launch
from toolshift.settings.schema import Settings


def settings(*overrides: str) -> Settings:
    return load_settings("train", ["experiment=null_worlds", *overrides])


def test_twenty_seeds_of_the_null_world_and_the_default() -> None:
    found = [(s.data.sample_seed, s.data.world) for s in worlds(settings())]
    assert WORLD_SEEDS == 20
    assert found == [(seed, world) for seed in range(20) for world in ("default", "no_function_gap")]


def test_a_fixed_key_keeps_its_value() -> None:
    one = settings("data.sample_seed=7")
    assert [(s.data.sample_seed, s.data.world) for s in worlds(one, fixed=["data.sample_seed"])] == [
        (7, "default"),
        (7, "no_function_gap"),
    ]
    assert len(list(worlds(settings("debug=tiny")))) == 4


def gains(world: str, *intervals: tuple[float, float], strengths: str = "{}") -> pd.DataFrame:
    rows = [
        {
            "world": world,
            "purge": "gold",
            "view": "mixed",
            "delta": (a + b) / 2,
            "ci_low": a,
            "ci_high": b,
            "strengths": strengths,
        }
        for a, b in intervals
    ]
    return pd.DataFrame(rows)


@pytest.mark.parametrize(("outside", "holds"), [(2, True), (3, False)])
def test_a_null_holds_with_eighteen_of_twenty(outside: int, holds: bool) -> None:
    frame = gains(ENDPOINTS.nulls[0], *[(-0.1, 0.1)] * (20 - outside), *[(0.01, 0.2)] * outside)
    (row,) = summarise_gains(frame, part=ENDPOINTS).itertuples()
    assert (row.seeds, row.contains_0, row.above, row.below, row.holds) == (20, 20 - outside, outside, 0, holds)


def test_an_interval_that_touches_zero_contains_it() -> None:
    frame = gains(ENDPOINTS.nulls[0], (0.0, 0.1), (-0.1, 0.0), (-0.2, -0.1))
    (row,) = summarise_gains(frame, part=ENDPOINTS).itertuples()
    assert (row.contains_0, row.above, row.below) == (2, 0, 1)
    assert row.mean_delta == pytest.approx((0.05 - 0.05 - 0.15) / 3)


@pytest.mark.parametrize(
    ("strengths", "modal", "holds"),
    [
        ('{"0.0": 3, "0.1": 2}', "0.0", True),
        ('{"0.1": 3, "0.2": 3}', "0.1", False),
        ('{"0.0": 2, "0.2": 4}', "0.2", False),
    ],
)
def test_a_null_needs_strength_zero_where_there_is_one(strengths: str, modal: str, holds: bool) -> None:
    frame = gains("context_is_noise", *[(-0.1, 0.1)] * 20, strengths=strengths)
    (row,) = summarise_gains(frame, part=CONTEXTUAL).itertuples()
    assert (row.modal_strength, row.holds) == (modal, holds)


def test_the_parts_of_tact_have_their_own_worlds() -> None:
    tact = load_settings("train", ["experiment=null_worlds_tact", "debug=tiny"])
    assert parts_of(tact) == (FUNCTIONAL, CONTEXTUAL)
    names = [s.data.world for s in worlds(tact)]
    assert names == 2 * ["default", "no_function_gap", "no_context_gap", "context_is_noise", "popularity_only"]


def test_other_worlds_get_no_verdict() -> None:
    summary = summarise_gains(gains("default", (0.1, 0.2)), part=ENDPOINTS)
    assert summary["holds"].isna().all()
    assert "| default |" in " ".join(page(summary, part=ENDPOINTS).split()).replace("  ", " ")
    assert "NO" not in page(summary, part=ENDPOINTS).split("\n", 3)[3]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("data=real", "data.root=.", "data.world=default"), "null worlds are generated"),
        (("model=bm25",), "blend_without_endpoints and blend"),
    ],
)
def test_what_is_no_null_world_is_refused(change: tuple[str, ...], message: str) -> None:
    request = Launch(settings=settings(*change), overrides=(), overridden_keys=(), command="")
    with pytest.raises(UserError, match=message):
        null_worlds(request)

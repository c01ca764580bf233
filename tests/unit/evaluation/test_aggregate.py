from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from toolshift.evaluation.aggregate import (
    GAIN_COLUMNS,
    TARGET_COLUMNS,
    TIDY_COLUMNS,
    TableSpec,
    analyse,
    gain_over_strongest,
    per_target,
    summarise,
)
from toolshift.evaluation.compare import holm

Build = Callable[..., pd.DataFrame]
SPEC = TableSpec(
    name="lodo", data="sample", measures=("MRR", "NDCG@5"), reference="semantic_cosine", replicates=300, seed=1
)
CONTRACT = [
    "table", "protocol", "universe", "miner", "purge", "slice", "view", "model", "measure", "mean", "std", "task_mean",
    "mean_ge20", "n_seeds", "n_targets", "n_tasks", "paper", "reference", "delta", "ci_low", "ci_high", "p_value",
    "p_adjusted", "data", "note",
]  # fmt: skip


def pick(tidy: pd.DataFrame, **keys: str) -> pd.Series:
    match = np.ones(len(tidy), bool)
    for name, value in keys.items():
        match &= (tidy[name] == value).to_numpy()
    assert match.sum() == 1, keys
    return tidy[match].iloc[0]


def tiny() -> pd.DataFrame:
    """Two targets, hand-worked: a has tasks .2 and .4; b has .8 (reference: all .3); two seeds of `m`."""
    rows = []
    for task, target, first, second in (("d/1", "a", 0.1, 0.3), ("d/2", "a", 0.4, 0.4), ("d/3", "b", 0.7, 0.9)):
        rows += [(task, target, "m", 0, first), (task, target, "m", 1, second), (task, target, "ref", 0, 0.3)]
    frame = pd.DataFrame(rows, columns=["task_id", "target", "model", "seed", "NDCG@5"])
    return frame.assign(
        protocol="lodo", universe="domain", miner="union", purge="none", slice="all", view="natural", scored=True,
        tied=frame["task_id"] == "d/1",
    )  # fmt: skip


def test_hand_worked_averages() -> None:
    spec = replace(SPEC, measures=("NDCG@5",), reference="ref", min_tasks=2)
    row = pick(summarise(tiny(), spec=spec), model="m")
    # Targets .3 and .8; seeds: macro (.25 + .7)/2 = .475 and (.35 + .9)/2 = .625.
    assert row["mean"] == pytest.approx(0.55)
    assert row["task_mean"] == pytest.approx((0.2 + 0.4 + 0.8) / 3)
    assert row["mean_ge20"] == pytest.approx(0.3)
    assert row["std"] == pytest.approx(np.std([0.475, 0.625], ddof=1))
    assert row["delta"] == pytest.approx(0.25)
    assert (row["n_seeds"], row["n_targets"], row["n_tasks"]) == (2, 2, 3)
    assert row["tied_share"] == pytest.approx(1 / 3)
    # The second target has one task, and drawing one out of one says nothing about its spread.
    assert row["note"] == (
        "conditional on these datasets; difference positive in 1 of 2 targets; no interval: a target has a single task"
    )
    assert np.isnan([row["ci_low"], row["ci_high"], row["p_value"], row["mde"]]).all()


def test_columns_and_order_are_the_contract(per_task: Build) -> None:
    tidy = summarise(per_task(), spec=SPEC)
    assert list(tidy.columns) == list(TIDY_COLUMNS)
    assert list(TIDY_COLUMNS[: len(CONTRACT)]) == CONTRACT
    assert tidy["view"].drop_duplicates().tolist() == ["natural", "semantic"]
    assert tidy["measure"].iloc[:2].tolist() == ["MRR", "NDCG@5"]
    assert tidy["paper"].isna().all()


def test_row_order_of_the_input_is_irrelevant(per_task: Build) -> None:
    frame = per_task()
    shuffled = frame.sample(frac=1.0, random_state=3)
    pd.testing.assert_frame_equal(summarise(frame, spec=SPEC), summarise(shuffled, spec=SPEC), check_exact=False)


def test_reference_row_has_no_comparison_and_one_seed_no_deviation(per_task: Build) -> None:
    tidy = summarise(per_task(), spec=SPEC)
    reference = tidy[tidy["model"] == "semantic_cosine"]
    assert reference[["delta", "ci_low", "ci_high", "p_value", "p_adjusted", "mde", "std"]].isna().all(axis=None)
    assert tidy.loc[tidy["model"] == "random", "std"].notna().all()
    assert (tidy["note"] == "").all()


def test_an_identical_model_differs_by_exactly_nothing(per_task: Build) -> None:
    frame = per_task(models={"semantic_cosine": 1})
    twin = frame.assign(model="twin")
    tidy = summarise(pd.concat([frame, twin]), spec=SPEC)
    rows = tidy[tidy["model"] == "twin"]
    assert (rows[["delta", "ci_low", "ci_high", "mde"]] == 0.0).all(axis=None)
    assert (rows[["p_value", "p_adjusted"]] == 1.0).all(axis=None)


def test_a_true_gain_is_found_and_its_sign_is_right(per_task: Build) -> None:
    tidy = summarise(per_task(shift={"bm25": 0.1, "random": -0.1}), spec=SPEC)
    better, worse = (tidy[tidy["model"] == m] for m in ("bm25", "random"))
    assert (better["ci_low"] > 0).all()
    assert (worse["ci_high"] < 0).all()
    assert (better["p_value"] == 2 / 301).all()
    assert ((tidy["ci_low"] <= tidy["delta"]) & (tidy["delta"] <= tidy["ci_high"]) | tidy["delta"].isna()).all()


def test_measures_scale_together_under_the_shared_resample(per_task: Build) -> None:
    # The MRR column is half of NDCG@5, so every statistic is, replicate by replicate.
    tidy = summarise(per_task(), spec=SPEC)
    halves = tidy[tidy["measure"] == "MRR"].reset_index(drop=True)
    whole = tidy[tidy["measure"] == "NDCG@5"].reset_index(drop=True)
    for column in ("delta", "ci_low", "ci_high", "mde"):
        np.testing.assert_allclose(2 * halves[column], whole[column], atol=3e-6)
    np.testing.assert_array_equal(halves["p_value"], whole["p_value"])


def test_holm_family_is_view_by_measure_within_a_model(per_task: Build) -> None:
    tidy = summarise(per_task(slices=("all", "name_free")), spec=SPEC)
    tested = tidy[tidy["delta"].notna()]
    for _, rows in tested.groupby(["slice", "model"]):
        assert len(rows) == 4
        np.testing.assert_allclose(rows["p_adjusted"], holm(rows["p_value"].to_numpy()))
    whole = summarise(per_task(), spec=replace(SPEC, holm_family=("view", "measure", "model")))
    np.testing.assert_allclose(whole["p_adjusted"], holm(whole["p_value"].to_numpy()))


def test_slices_are_rows_of_their_own(per_task: Build) -> None:
    tidy = summarise(per_task(slices=("name_free", "all")), spec=SPEC)
    alone = summarise(per_task(), spec=SPEC)
    assert tidy["slice"].drop_duplicates().tolist() == ["all", "name_free"]
    everything = tidy[tidy["slice"] == "all"].reset_index(drop=True)
    pd.testing.assert_frame_equal(everything, alone, check_exact=False, atol=2e-6)
    assert (tidy.loc[tidy["slice"] == "name_free", "n_tasks"] < alone["n_tasks"].iloc[0]).all()


def test_unscored_rows_are_in_no_number(per_task: Build) -> None:
    frame = per_task()
    extra = frame[frame["target"] == "t03"].assign(target="t99", scored=False)
    extra = extra.assign(task_id="d/99" + extra["task_id"].str[4:], RR=np.nan)
    pd.testing.assert_frame_equal(summarise(pd.concat([frame, extra]), spec=SPEC), summarise(frame, spec=SPEC))


def test_few_targets_keep_them_fixed_and_say_so(per_task: Build) -> None:
    tidy = summarise(per_task(n_targets=9, shift={"bm25": 0.3}), spec=SPEC)
    row = pick(tidy, model="bm25", view="natural", measure="MRR")
    assert row["note"] == "conditional on these datasets; difference positive in 9 of 9 targets"
    wide = summarise(per_task(n_targets=9, shift={"bm25": 0.3}), spec=replace(SPEC, min_targets_two_level=9))
    assert (wide["note"] == "").all()


def test_schemes_are_chosen_per_view(per_task: Build) -> None:
    frame = per_task()
    frame = frame[(frame["view"] == "natural") | frame["target"].isin(["t00", "t01", "t02"])]
    analysis = analyse(frame, spec=SPEC)
    schemes = dict(zip(analysis.cells["view"], analysis.schemes, strict=True))
    assert schemes == {"natural": "two_level", "semantic": "within_targets"}
    tidy = summarise(analysis, spec=SPEC)
    assert (tidy.loc[tidy["view"] == "semantic", "n_targets"] == 3).all()
    assert tidy["ci_low"].notna().sum() == 8


def test_a_missing_target_is_an_error_that_names_it(per_task: Build) -> None:
    frame = per_task()
    lost = (frame["model"] == "bm25") & (frame["target"] == "t04") & (frame["view"] == "natural")
    with pytest.raises(ValueError, match=r"1 holes: bm25 on t04 \(7 tasks; lodo/domain/union/none/all/natural\)"):
        summarise(frame[~lost], spec=SPEC)


def test_a_missing_seed_of_one_task_is_an_error(per_task: Build) -> None:
    frame = per_task()
    lost = (frame["model"] == "random") & (frame["task_id"] == "d/05-00") & (frame["seed"] == 41)
    with pytest.raises(ValueError, match=r"random on t05 \(1 tasks"):
        summarise(frame[~lost], spec=SPEC)


def test_a_model_that_lacks_a_whole_view_is_left_out_there(per_task: Build) -> None:
    frame = per_task()
    frame = frame[~((frame["model"] == "semantic_cosine") & (frame["view"] == "semantic"))]
    tidy = summarise(frame, spec=SPEC)
    rows = tidy[tidy["view"] == "semantic"]
    assert rows["delta"].isna().all()
    assert set(rows["note"]) == {"the reference is not in this view"}


def test_repeated_rows_bad_values_and_unknown_names_are_refused(per_task: Build) -> None:
    frame = per_task()
    with pytest.raises(ValueError, match="appears twice for one seed"):
        summarise(pd.concat([frame, frame.iloc[[5]]]), spec=SPEC)
    with pytest.raises(ValueError, match=r"NDCG@5 of .* is nan"):
        summarise(frame.assign(**{"NDCG@5": np.nan}), spec=SPEC)
    with pytest.raises(ValueError, match="no column for measure 'HR@3'"):
        summarise(frame, spec=replace(SPEC, measures=("HR@3",)))
    with pytest.raises(ValueError, match="reference 'tact' has no row; models: "):
        summarise(frame, spec=replace(SPEC, reference="tact"))
    with pytest.raises(ValueError, match=r"lack the columns \['seed'\]"):
        summarise(frame.drop(columns="seed"), spec=SPEC)
    with pytest.raises(ValueError, match="no scored row"):
        summarise(frame.assign(scored=False), spec=SPEC)


def test_a_task_under_two_targets_is_refused(per_task: Build) -> None:
    frame = per_task()
    other = frame.assign(protocol="cross", target="whole")
    with pytest.raises(ValueError, match="summarise protocols separately"):
        summarise(pd.concat([frame, other]), spec=SPEC)


def test_gain_over_strongest(per_task: Build) -> None:
    frame = per_task(shift={"bm25": 0.1, "random": -0.2})
    chosen = gain_over_strongest(frame, spec=replace(SPEC, champion="bm25"))
    assert list(chosen.columns) == list(GAIN_COLUMNS)
    assert len(chosen) == 4
    assert (chosen["strongest"] == "semantic_cosine").all()
    tidy = summarise(frame, spec=SPEC)
    row = pick(tidy, model="bm25", view="natural", measure="NDCG@5")
    gain = pick(chosen, view="natural", measure="NDCG@5")
    # The second-best is far ahead of the third: the retaken maximum is always the reference.
    assert gain["gain_pp"] == pytest.approx(100 * row["delta"])
    assert gain["ci_low_pp"] == pytest.approx(100 * row["ci_low"], abs=2e-4)
    assert gain["p_value"] == row["p_value"]
    best = gain_over_strongest(frame, spec=SPEC)
    assert (best["champion"] == "bm25").all()
    assert best["note"].str.contains("chosen after the fact").all()
    with pytest.raises(ValueError, match="champion 'tact' has no row"):
        gain_over_strongest(frame, spec=replace(SPEC, champion="tact"))


def test_a_close_rival_widens_the_gain_below(per_task: Build) -> None:
    frame = per_task(models={"semantic_cosine": 1, "bm25": 1, "champion": 1})
    spec = replace(SPEC, champion="champion")
    analysis = analyse(frame, spec=spec)
    gain = gain_over_strongest(analysis, spec=spec)
    assert (gain["gain_pp"] <= 100 * summarise(analysis, spec=spec).query("model == 'champion'")["delta"].to_numpy()
            + 1e-9).all()  # fmt: skip


def test_an_analysis_belongs_to_its_specification(per_task: Build) -> None:
    analysis = analyse(per_task(), spec=SPEC)
    pd.testing.assert_frame_equal(summarise(analysis, spec=SPEC), summarise(per_task(), spec=SPEC))
    with pytest.raises(ValueError, match="another specification"):
        summarise(analysis, spec=replace(SPEC, seed=2))


def test_per_target_differences(per_task: Build) -> None:
    frame = per_task(purges=("none", "gold"))
    found = per_target(frame, spec=SPEC, replicates=200)
    assert list(found.columns) == list(TARGET_COLUMNS)
    assert len(found) == 2 * 2 * 2 * 2 * 12
    small = found["n_tasks"] < 5
    assert found.loc[small, ["ci_low", "ci_high"]].isna().all(axis=None)
    assert found.loc[~small, ["ci_low", "ci_high"]].notna().all(axis=None)
    assert ((found["ci_low"] <= found["delta"]) & (found["delta"] <= found["ci_high"]))[~small].all()
    macro = found.groupby(["purge", "view", "model", "measure"])["delta"].mean()
    tidy = summarise(frame, spec=SPEC).dropna(subset="delta")
    expected = tidy.set_index(["purge", "view", "model", "measure"])["delta"]
    pd.testing.assert_series_equal(macro.sort_index(), expected.sort_index())


@pytest.mark.parametrize("field", [{"data": "toy"}, {"measures": ()}, {"holm_family": ("view", "metric")}])
def test_bad_specifications_are_refused(field) -> None:
    with pytest.raises(ValueError, match="table lodo"):
        replace(SPEC, **field)

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from threadpoolctl import threadpool_limits

from toolshift.evaluation import queries
from toolshift.evaluation.queries import (
    PAIR_COLUMNS,
    STUDY_COLUMNS,
    QuerySpec,
    cluster_bootstrap,
    compare_rows,
    read_per_query,
    read_queries,
    summarise_queries,
    with_pareto,
    write_per_query,
)
from toolshift.runs.seeds import generator

NAN = float("nan")


def spec(**more: object) -> QuerySpec:
    options: dict[str, object] = {
        "name": "study", "data": "sample", "measures": ("F1",), "reference": "base", "replicates": 200, "min_groups": 1,
    }  # fmt: skip
    return QuerySpec(**{**options, **more})  # type: ignore[arg-type]


def rows(model: str, values: list[float], *, seed: int = 0, groups: str | None = None, **more: object) -> pd.DataFrame:
    """One row per query; ``groups`` gives a letter to each."""
    names = [f"q{i}" for i in range(len(values))]
    keys = {"protocol": "split", "view": "K=3", "model": model, "seed": seed, "task_id": names}
    return pd.DataFrame({**keys, "group": list(groups) if groups else names, "F1": values, **more})


def random_study(*, n: int = 40, seeds: int = 2) -> pd.DataFrame:
    rng = np.random.default_rng(5)
    groups = "".join(chr(97 + i // 3) for i in range(n))
    parts = [
        rows(
            model, rng.random(n).tolist(), seed=s, groups=groups, view=view, OP=np.where(rng.random(n) < 0.3, NAN, 0.5)
        )
        for view in ("K=3", "K=5")
        for model in ("base", "learned", "bm25")
        for s in range(seeds)
    ]
    return pd.concat(parts, ignore_index=True)


def only(table: pd.DataFrame, model: str, measure: str = "F1") -> pd.Series:
    found = table.loc[(table["model"] == model) & (table["measure"] == measure), :]
    assert len(found) == 1
    return found.iloc[0]


# --- the bootstrap --------------------------------------------------------------------------------------------------


def test_groups_of_one_are_the_plain_bootstrap() -> None:
    values = np.random.default_rng(1).random((7, 2))
    drawn = cluster_bootstrap(values, group=np.arange(7), replicates=50, seed=3, stream="x")
    at = generator("bootstrap/queries", 3, "x").integers(0, 7, size=(50, 7), dtype=np.int32)
    np.testing.assert_allclose(drawn, values[at].mean(axis=1), rtol=1e-12)


def test_a_drawn_group_brings_all_its_queries() -> None:
    # Groups a (1, 1, 1) and b (0): a replicate draws aa, ab or bb, with means 1, 3/4 and 0.
    drawn = cluster_bootstrap([[1.0], [1.0], [1.0], [0.0]], group=[0, 0, 0, 1], replicates=400, seed=1)
    values, counts = np.unique(drawn, return_counts=True)
    np.testing.assert_allclose(values, [0.0, 0.75, 1.0])
    np.testing.assert_allclose(counts / 400, [0.25, 0.5, 0.25], atol=0.08)


def test_undefined_values_are_in_neither_sum_nor_number() -> None:
    # Column 0 is defined in group a alone: its mean is 0.5 wherever a is drawn, undefined elsewhere.
    table = [[0.5, 1.0], [NAN, 0.0]]
    drawn = cluster_bootstrap(table, group=[0, 1], replicates=300, seed=2)
    without_a = drawn[:, 1] == 0.0
    assert 0 < without_a.sum() < 300
    assert np.isnan(drawn[without_a, 0]).all()
    np.testing.assert_array_equal(drawn[~without_a, 0], 0.5)


@settings(max_examples=30, deadline=None)
@given(
    arrays(np.float64, (9, 3), elements=st.floats(0, 1)), st.lists(st.integers(0, 3), min_size=9, max_size=9), st.data()
)
def test_every_replicate_is_the_mean_of_the_drawn_queries(
    values: np.ndarray, labels: list[int], data: st.DataObject
) -> None:
    _, code = np.unique(labels, return_inverse=True)
    n_groups = int(code.max()) + 1
    drawn = cluster_bootstrap(values, group=code, replicates=5, seed=8)
    at = generator("bootstrap/queries", 8, "").integers(0, n_groups, size=(5, n_groups), dtype=np.int32)
    b = data.draw(st.integers(0, 4))
    expected = np.concatenate([values[code == g] for g in at[b]]).mean(axis=0)
    np.testing.assert_allclose(drawn[b], expected, atol=1e-12)


def test_bits_follow_neither_threads_nor_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(2).random((300, 20))
    code = np.arange(300) // 2
    with threadpool_limits(limits=1):
        first = cluster_bootstrap(values, group=code, replicates=64, seed=1)
    with threadpool_limits(limits=4):
        second = cluster_bootstrap(values, group=code, replicates=64, seed=1)
    assert first.tobytes() == second.tobytes()
    monkeypatch.setattr(queries, "_DRAWS", 150 * 7)
    np.testing.assert_allclose(cluster_bootstrap(values, group=code, replicates=64, seed=1), first, rtol=1e-13)


def test_bad_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match="int codes"):
        cluster_bootstrap([[1.0]], group=["a"], replicates=1, seed=0)
    with pytest.raises(ValueError, match="must not be negative"):
        cluster_bootstrap([[1.0], [1.0]], group=[0, -1], replicates=1, seed=0)


# --- the tidy table -------------------------------------------------------------------------------------------------


def test_means_differences_and_counts_hand_worked() -> None:
    table = pd.concat(
        [
            rows("base", [0.0, 0.5, 1.0, 1.0], groups="aabc"),
            rows("learned", [1.0, 0.5, 0.5, 1.0], seed=0, groups="aabc"),
            rows("learned", [0.5, 0.5, 0.5, NAN], seed=1, groups="aabc"),
        ]
    )
    found = only(summarise_queries(table, spec=spec()), "learned")
    # Seeds first: 0.75, 0.5, 0.5, 1.0 (the undefined seed left out), then queries.
    assert found["mean"] == pytest.approx(0.6875)
    assert found["task_mean"] == found["mean"]
    # Means of the seeds: 0.75 and 0.5.
    assert found["std"] == pytest.approx(0.125 * np.sqrt(2))
    assert found["delta"] == pytest.approx(0.0625)
    assert found[["n_seeds", "n_targets", "n_tasks", "n_groups", "n_paired", "n_undefined"]].tolist() == [
        2,
        1,
        4,
        3,
        4,
        0,
    ]
    assert found[["improved", "degraded", "equal"]].tolist() == [1, 1, 2]
    assert np.isnan(only(summarise_queries(table, spec=spec()), "base")["delta"])


def test_statistics_are_those_of_the_drawn_differences() -> None:
    base, learned = [0.1, 0.4, 0.2, 0.9, 0.3, 0.6], [0.3, 0.2, 0.7, 0.8, 0.4, 0.9]
    table = pd.concat([rows("base", base), rows("learned", learned)])
    found = only(summarise_queries(table, spec=spec(replicates=999)), "learned")
    digest = hashlib.sha256("\x1f".join(f"q{i}" for i in range(6)).encode()).hexdigest()
    at = generator("bootstrap/queries", 20261130, digest).integers(0, 6, size=(999, 6), dtype=np.int32)
    drawn = (np.array(learned) - base)[at].mean(axis=1)
    worse, better = (drawn <= 1e-9).sum(), (drawn >= -1e-9).sum()
    assert found["p_one_sided"] == pytest.approx(worse / 999)
    assert found["p_value"] == pytest.approx(min(1.0, 2 * (1 + min(worse, better)) / 1000))
    np.testing.assert_allclose(found[["ci_low", "ci_high"]].tolist(), np.percentile(drawn, [2.5, 97.5]), atol=1e-8)
    means = np.array(learned)[at].mean(axis=1)
    np.testing.assert_allclose(
        found[["mean_ci_low", "mean_ci_high"]].tolist(), np.percentile(means, [2.5, 97.5]), atol=1e-8
    )


def test_a_difference_is_over_queries_defined_for_both() -> None:
    table = pd.concat([rows("base", [0.2, NAN, 0.4, 0.0]), rows("learned", [0.5, 1.0, NAN, 0.1])])
    found = only(summarise_queries(table, spec=spec()), "learned")
    assert found["mean"] == pytest.approx(1.6 / 3)
    assert found["delta"] == pytest.approx(0.2)  # of q0 and q3, not of the two means
    assert (found["n_tasks"], found["n_undefined"], found["n_paired"]) == (3, 1, 2)
    assert found["note"] == "difference over the 2 queries defined for both"


@settings(max_examples=20, deadline=None)
@given(arrays(np.float64, 8, elements=st.floats(0, 1)), st.floats(-1, 1), st.text("abc", min_size=8, max_size=8))
def test_a_constant_difference_has_an_interval_of_no_width(values: np.ndarray, shift: float, groups: str) -> None:
    table = pd.concat(
        [rows("base", values.tolist(), groups=groups), rows("m", (values + shift).tolist(), groups=groups)]
    )
    found = only(summarise_queries(table, spec=spec(replicates=50)), "m")
    assert found["ci_low"] == pytest.approx(found["ci_high"], abs=1e-8)
    assert found["delta"] == pytest.approx(shift, abs=2e-6)
    if abs(shift) > 1e-5:
        assert found["p_value"] == pytest.approx(2 / 51)
        assert found["p_one_sided"] == (0.0 if shift > 0 else 1.0)


def test_nothing_follows_row_order_or_unrelated_columns() -> None:
    table, options = random_study(), spec(measures=("F1", "OP"))
    whole = summarise_queries(table, spec=options)
    assert tuple(whole.columns) == STUDY_COLUMNS
    shuffled = summarise_queries(table.sample(frac=1, random_state=9), spec=options)
    pd.testing.assert_frame_equal(whole, shuffled)
    without = table.loc[(table["model"] != "bm25") & (table["view"] == "K=3"), :]
    other = pd.concat([without, without.assign(protocol="other", task_id=without["task_id"] + "x")])
    part = summarise_queries(other, spec=spec(holm_family=("view",)))
    kept = [c for c in STUDY_COLUMNS if c != "p_adjusted"]
    chosen = whole.loc[(whole["model"] != "bm25") & (whole["view"] == "K=3") & (whole["measure"] == "F1"), kept]
    found = part.loc[part["protocol"] == "split", kept]
    pd.testing.assert_frame_equal(chosen.reset_index(drop=True), found.reset_index(drop=True))


def test_blocks_of_columns_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    table, options = random_study(), spec(measures=("F1", "OP"))
    whole = summarise_queries(table, spec=options)
    monkeypatch.setattr(queries, "_COLUMNS", 4)
    pd.testing.assert_frame_equal(whole, summarise_queries(table, spec=options))


def test_a_resample_spans_the_split_or_the_view() -> None:
    long = rows("base", [0.1, 0.9, 0.4, 0.6, 0.2, 0.8]).assign(view="all")
    short = long.iloc[:3].assign(view="short")
    table = pd.concat([long, short])
    alone = summarise_queries(short, spec=spec())
    of_view = summarise_queries(table, spec=spec(span="view"))
    of_split = summarise_queries(table, spec=spec())
    ends = ["mean_ci_low", "mean_ci_high"]
    assert of_view.loc[of_view["view"] == "short", ends].to_numpy().tolist() == alone[ends].to_numpy().tolist()
    assert of_split.loc[of_split["view"] == "short", ends].to_numpy().tolist() != alone[ends].to_numpy().tolist()
    assert (
        of_view.loc[of_view["view"] == "all", ends].to_numpy().tolist()
        == of_split.loc[of_split["view"] == "all", ends].to_numpy().tolist()
    )


def test_lower_is_better_turns_the_one_sided_readings_only() -> None:
    table = pd.concat([rows("base", [0.2, 0.4, 0.6, 0.3]), rows("m", [0.1, 0.2, 0.7, 0.3])])
    up = only(summarise_queries(table, spec=spec()), "m")
    down = only(summarise_queries(table, spec=spec(lower_is_better=("F1",))), "m")
    for same in ("mean", "delta", "ci_low", "ci_high", "p_value", "mde", "equal"):
        assert up[same] == down[same], same
    assert (up["improved"], up["degraded"]) == (down["degraded"], down["improved"]) == (1, 2)
    assert up["p_one_sided"] > 0.5 > down["p_one_sided"]


def test_holm_is_over_the_named_keys() -> None:
    table = random_study(seeds=1)
    found = summarise_queries(table, spec=spec(measures=("F1", "OP"), holm_family=("view", "measure", "model")))
    raw = found["p_value"].dropna().sort_values().to_numpy()
    expected = np.minimum(np.maximum.accumulate(raw * np.arange(8, 0, -1)), 1.0)
    np.testing.assert_allclose(np.sort(found["p_adjusted"].dropna().to_numpy()), expected)


def test_few_groups_give_no_interval() -> None:
    table = pd.concat([rows("base", [0.1, 0.2, 0.3, 0.4], groups="aabb"), rows("m", [0.2] * 4, groups="aabb")])
    found = only(summarise_queries(table, spec=spec(min_groups=5)), "m")
    assert found[["ci_low", "p_value", "p_one_sided", "mean_ci_low", "mde"]].isna().all()
    assert found["delta"] == pytest.approx(-0.05)
    assert found["note"] == "no interval: fewer than 5 groups"


def test_a_view_without_the_reference_says_so() -> None:
    table = pd.concat([rows("base", [0.1, 0.2]), rows("m", [0.2, 0.2]), rows("m", [0.3, 0.3]).assign(view="K=9")])
    found = summarise_queries(table, spec=spec())
    last = found.loc[found["view"] == "K=9", :].iloc[0]
    assert (last["note"], last["n_paired"]) == ("the reference is not in this view", 0)
    assert np.isnan(last["delta"])
    assert set(summarise_queries(table, spec=spec(reference=None))["note"]) == {""}


def test_chosen_pairs_agree_with_the_table_and_cross_views() -> None:
    table, options = random_study(), spec(measures=("F1", "OP"))
    read = read_queries(table, spec=options)
    whole = summarise_queries(read, spec=options)
    base, learned, later = (("split", view, m) for view, m in (("K=3", "base"), ("K=3", "learned"), ("K=5", "learned")))
    pairs = compare_rows(read, spec=options, pairs=[(learned, base), (later, learned)])
    assert tuple(pairs.columns) == PAIR_COLUMNS
    ours = whole.loc[(whole["view"] == "K=3") & (whole["model"] == "learned"), :]
    for name in ("delta", "ci_low", "ci_high", "p_value", "p_one_sided", "mde", "n_paired", "improved", "equal"):
        np.testing.assert_allclose(pairs[name].iloc[:2].to_numpy(), ours[name].to_numpy(), atol=1e-9, err_msg=name)
    means = whole.loc[(whole["model"] == "learned") & (whole["measure"] == "F1"), "mean"].tolist()
    assert pairs["delta"].iloc[2] == pytest.approx(means[1] - means[0])
    assert pairs["reference_view"].tolist() == ["K=3"] * 4
    with pytest.raises(ValueError, match="no row nobody in view K=3"):
        compare_rows(read, spec=options, pairs=[(("split", "K=3", "nobody"), base)])
    with pytest.raises(ValueError, match="two protocols"):
        compare_rows(read, spec=options, pairs=[(("other", "K=3", "base"), base)])


def test_pareto_front_hand_worked() -> None:
    # (quality, ms): a and b trade, c is worse than b in both, d ties with b in both.
    table = pd.concat(
        [rows(m, [q], ms=ms) for m, q, ms in (("a", 0.9, 5.0), ("b", 0.8, 2.0), ("c", 0.7, 3.0), ("d", 0.8, 2.0))]
    )
    options = spec(measures=("F1", "ms"), reference=None, lower_is_better=("ms",))
    found = with_pareto(summarise_queries(table, spec=options), first="F1", second="ms", spec=options)
    assert found.groupby("model")["pareto"].all().to_dict() == {"a": True, "b": True, "c": False, "d": True}
    with pytest.raises(ValueError, match="no measure"):
        with_pareto(found, first="F1", second="tokens", spec=options)


# --- reading --------------------------------------------------------------------------------------------------------


def test_long_and_wide_frames_give_the_same_table() -> None:
    wide, options = random_study(), spec(measures=("F1", "OP"))
    keys = ["protocol", "view", "model", "seed", "task_id", "group"]
    long = wide.melt(id_vars=keys, var_name="measure", value_name="value").dropna(subset="value")
    pd.testing.assert_frame_equal(summarise_queries(wide, spec=options), summarise_queries(long, spec=options))


def test_without_groups_every_task_is_one() -> None:
    table = pd.concat([rows("base", [0.1, 0.2, 0.5]), rows("m", [0.2, 0.2, 0.3])])
    pd.testing.assert_frame_equal(
        summarise_queries(table, spec=spec()), summarise_queries(table.drop(columns="group"), spec=spec())
    )


def test_holes_repeats_and_two_groups_are_refused() -> None:
    table = pd.concat([rows("base", [0.1, 0.2, 0.3]), rows("m", [0.2, 0.2, 0.2])], ignore_index=True)
    with pytest.raises(ValueError, match=r"m in view K=3 \(1 queries, first q2\).*NaN, not a missing row"):
        read_queries(table.iloc[:-1], spec=spec())
    with pytest.raises(ValueError, match=r"appears twice: .*task_id=q2"):
        read_queries(pd.concat([table, table.iloc[[-1]]]), spec=spec())
    with pytest.raises(ValueError, match="task q2 stands in the groups q2 and z"):
        read_queries(table.assign(group=[*"xyz", "x", "y", "q2"]), spec=spec())
    with pytest.raises(ValueError, match="F1 of m on q2 is inf"):
        read_queries(table.assign(F1=[0.0] * 5 + [np.inf]), spec=spec())
    with pytest.raises(ValueError, match=r"no column for \['tau'\]"):
        read_queries(table, spec=spec(measures=("F1", "tau")))
    with pytest.raises(ValueError, match=r"lack the columns \['seed'\]"):
        read_queries(table.drop(columns="seed"), spec=spec())
    with pytest.raises(ValueError, match="reference 'lost' has no row"):
        summarise_queries(table, spec=spec(reference="lost"))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"data": "toy"}, "must be 'sample' or 'real'"),
        ({"span": "table"}, "must be 'protocol' or 'view'"),
        ({"measures": ("F1", "F1")}, "each once"),
        ({"holm_family": ("target",)}, "holm_family names"),
        ({"lower_is_better": ("ms",)}, "no measures of the table"),
        ({"replicates": 0}, "replicates >= 1"),
    ],
)
def test_a_wrong_specification_is_refused(wrong: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        spec(**wrong)


def test_a_file_is_the_frame_sorted_and_equal_for_any_row_order(tmp_path: Path) -> None:
    table = random_study().assign(top_tool="x/y")
    first = write_per_query(tmp_path / "a.parquet", table)
    second = write_per_query(tmp_path / "b.parquet", table.sample(frac=1, random_state=4))
    assert first.read_bytes() == second.read_bytes()
    back = read_per_query(first)
    assert back["top_tool"].unique().tolist() == ["x/y"]
    pd.testing.assert_frame_equal(
        summarise_queries(back, spec=spec(measures=("F1", "OP"))),
        summarise_queries(table, spec=spec(measures=("F1", "OP"))),
    )
    with pytest.raises(ValueError, match=r"absent\.parquet: no per-query values"):
        read_per_query(tmp_path / "absent.parquet")

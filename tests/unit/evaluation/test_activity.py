"""How much a row reorders the reference's lists: hand-worked lists, files, and properties."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolshift.evaluation.activity import (
    STAGE_COLUMNS,
    Lists,
    ListsDiffer,
    Published,
    activity,
    changes,
    lists_of,
    rank,
    scored_cells,
    stage_activity,
    stage_changes,
    stage_path,
    write_stage_changes,
)
from toolshift.models.steps import Step

# (view, task, candidates): six, three and two candidates.
LISTS = (("natural", "t1", 6), ("natural", "t2", 3), ("context", "t1", 2))
REFERENCE = (6.0, 5.0, 4.0, 3.0, 2.0, 1.0, 3.0, 2.0, 1.0, 0.5, 0.1)
# t1: fifth and sixth change places. t2: the second and third are tied. context: another scale, the same order.
OTHER = (6.0, 5.0, 4.0, 3.0, 1.0, 2.0, 3.0, 1.0, 1.0, 50.0, 10.0)


def table(scores: tuple[float, ...], *, prefix: str = "c") -> pa.Table:
    rows = [(view, task, f"{prefix}{i}") for view, task, n in LISTS for i in range(n)]
    names = ("view", "task_id", "capability_id")
    columns = {name: pa.array(column, pa.string()) for name, column in zip(names, zip(*rows, strict=True), strict=True)}
    return pa.table({**columns, "score": pa.array(scores, pa.float64())})


def publish(folder: Path, scores: Mapping[str, tuple[float, ...]], *, prefix: str = "c") -> None:
    cells = []
    for target, values in scores.items():
        path = folder / "scores" / target / "seed=42.parquet"
        path.parent.mkdir(parents=True)
        pq.write_table(table(values, prefix=prefix), path)
        cells += [f"{target},natural,True", f"{target},context,{target != 'small'}"]
    (folder / "metrics.csv").write_text("target,view,scored\n" + "\n".join([*cells, cells[0]]) + "\n")


def test_ranks_share_the_mean_of_a_tie_and_start_anew_in_every_list() -> None:
    lists = lists_of(table(OTHER))
    assert lists.view.tolist() == ["natural", "natural", "context"]
    assert lists.lengths.tolist() == [6, 3, 2]
    found = rank(np.array(OTHER), lists)
    assert found.rank.tolist() == [1, 2, 3, 4, 6, 5, 1, 2.5, 2.5, 1, 2]
    assert found.top.tolist() == [True, True, True, True, False, True, *[True] * 5]


def test_differences_below_the_tie_rule_change_nothing() -> None:
    lists = lists_of(table(REFERENCE))
    shaken = np.array(REFERENCE) + np.linspace(0, 4e-10, len(REFERENCE))
    assert rank(shaken, lists).rank.tolist() == rank(np.array(REFERENCE), lists).rank.tolist()


def test_changes_by_hand() -> None:
    lists = lists_of(table(REFERENCE))
    found = changes(lists, rank(np.array(OTHER), lists), rank(np.array(REFERENCE), lists))
    # lists, pairs, 1 + 1 places in t1 and a half twice in t2, four pairs, the top five of t1, the order of both
    assert found["natural"].tolist() == [2, 9, 3.0, 4, 1, 2]
    assert found["context"].tolist() == [1, 2, 0.0, 0, 0, 0]


def test_activity_over_targets_reads_scored_cells_alone(tmp_path: Path) -> None:
    publish(tmp_path / "a", {"big": REFERENCE, "small": REFERENCE})
    publish(tmp_path / "b", {"big": OTHER, "small": REFERENCE})
    reference = Published(folder=tmp_path / "a", model="cosine", seed=42)
    assert scored_cells(reference.folder) == {"big": {"natural", "context"}, "small": {"natural"}}
    frame = activity(reference, [Published(folder=tmp_path / "b", model="other", seed=42)])
    natural, context = frame.to_dict("records")
    assert natural == {
        "model": "other", "view": "natural", "n_targets": 2, "n_lists": 4, "n_pairs": 18,
        "mean_abs_rank_change": pytest.approx(3 / 18), "pairs_changed": pytest.approx(4 / 18),
        "top5_changed": 0.25, "order_changed": 0.5,
    }  # fmt: skip
    assert (context["n_targets"], context["n_lists"], context["order_changed"]) == (1, 1, 0.0)


def test_no_other_row_is_an_empty_frame_with_its_columns(tmp_path: Path) -> None:
    publish(tmp_path, {"big": REFERENCE})
    assert "order_changed" in activity(Published(folder=tmp_path, model="cosine", seed=42), []).columns


def test_runs_with_other_lists_are_refused_by_name(tmp_path: Path) -> None:
    publish(tmp_path / "a", {"big": REFERENCE})
    publish(tmp_path / "b", {"big": REFERENCE}, prefix="d")
    runs = [Published(folder=tmp_path / name, model=name, seed=42) for name in "ab"]
    with pytest.raises(ListsDiffer, match=r"b/scores/big/seed=42\.parquet holds other lists than .*a/scores"):
        activity(runs[0], runs[1:])
    torn = table(REFERENCE).take([0, 6, 1, 2])
    with pytest.raises(ListsDiffer, match="not adjacent"):
        lists_of(torn)


@st.composite
def two_rankings(draw: st.DrawFn) -> tuple[Lists, np.ndarray, np.ndarray]:
    lengths = draw(st.lists(st.integers(1, 9), min_size=1, max_size=5))
    n = sum(lengths)
    scores = st.lists(st.integers(-3, 3), min_size=n, max_size=n)
    keys = draw(st.permutations(range(n)))
    lists = Lists(
        view=np.array(["natural"] * len(lengths), dtype=object),
        list_of=np.repeat(np.arange(len(lengths)), lengths),
        keys=np.array(keys, np.uint64),
    )
    return lists, np.array(draw(scores), float), np.array(draw(scores), float)


@given(two_rankings())
def test_a_changed_top_five_is_a_changed_order_and_nothing_exceeds_its_count(drawn) -> None:
    lists, ours, theirs = drawn
    n_lists, n_pairs, moved, pairs, top, order = changes(lists, rank(ours, lists), rank(theirs, lists))["natural"]
    assert top <= order <= n_lists
    assert pairs <= n_pairs
    assert (moved > 0) == (pairs > 0) == (order > 0)
    mirrored = changes(lists, rank(theirs, lists), rank(ours, lists))["natural"]
    assert mirrored.tolist() == [n_lists, n_pairs, moved, pairs, top, order]


@given(two_rankings())
def test_an_increasing_transform_of_the_scores_is_no_activity(drawn) -> None:
    lists, ours, _ = drawn
    found = changes(lists, rank(ours**3 * 7 + 1, lists), rank(ours, lists))["natural"]
    assert found[2:].tolist() == [0, 0, 0, 0]


@given(two_rankings())
def test_ranks_are_those_of_scipy(drawn) -> None:
    from scipy.stats import rankdata

    lists, ours, _ = drawn
    found = rank(ours, lists)
    for i in range(len(lists.view)):
        mine = lists.list_of == i
        assert found.rank[mine].tolist() == rankdata(-ours[mine]).tolist()
        assert found.top[mine].sum() == min(5, mine.sum())


def step(stage: str, added: tuple[float, ...], *, gate: float = 1.0) -> Step:
    """A stage that added these numbers to make ``OTHER``."""
    value = np.array(added)
    return Step(stage=stage, correction=value / gate, added=value, without=np.array(OTHER) - value)


# Without it the fifth and sixth of t1 are in the reference's order; the pair in context keeps its place.
MOVED = (0.0, 0.0, 0.0, 0.0, -1.0, 1.0, 0.0, 0.0, 0.0, 2.0, 0.0)
NAUGHT = (0.0,) * len(OTHER)


def measured(*steps: Step, at: tuple[int, ...] = tuple(range(len(OTHER)))) -> Mapping[str, object]:
    return stage_changes(table(OTHER), np.array(at), scores=np.array(OTHER), steps=steps)


def test_stage_sums_by_hand() -> None:
    found = measured(step("functional", MOVED, gate=0.5), step("support", NAUGHT))
    assert found == {
        "lists": {"natural": [2, 9], "context": [1, 2]},
        "stages": {
            # |D| 2 + 2, added 1 + 1, two pairs corrected, two with another rank, one top five, one order
            "functional": {"natural": [4.0, 2.0, 2.0, 2.0, 1.0, 1.0], "context": [4.0, 2.0, 1.0, 0.0, 0.0, 0.0]},
            "support": {"natural": [0.0] * 6, "context": [0.0] * 6},
        },
    }


def test_stage_sums_find_a_pair_wherever_it_stands() -> None:
    """Scores and steps are over distinct pairs, in another order than the lists."""
    order = np.arange(len(OTHER))[::-1]
    one = step("contextual", MOVED)
    turned = Step(
        stage="contextual", correction=one.correction[order], added=one.added[order], without=one.without[order]
    )
    found = stage_changes(table(OTHER), order, scores=np.array(OTHER)[order], steps=[turned])
    assert found == measured(one)


def stored(folder: Path) -> Published:
    """The stage is on for one target of two; the small one's context view does not count."""
    publish(folder, {"big": OTHER, "small": OTHER})
    write_stage_changes(folder, measured(step("functional", MOVED, gate=0.5)), target="big", seed=42)
    write_stage_changes(folder, measured(), target="small", seed=42)
    return Published(folder=folder, model="tact", seed=42)


def test_a_stage_that_is_off_for_a_target_changes_nothing_there(tmp_path: Path) -> None:
    frame, missing = stage_activity(stored(tmp_path))
    assert missing == ()
    assert list(frame.columns) == list(STAGE_COLUMNS)
    context, natural = frame.to_dict("records")
    assert natural == {
        "stage": "functional", "view": "natural", "n_targets": 2, "targets_on": 1, "n_lists": 4, "n_pairs": 18,
        "mean_abs_correction": pytest.approx(4 / 18), "mean_abs_added": pytest.approx(2 / 18),
        "pairs_corrected": pytest.approx(2 / 18), "pairs_changed": pytest.approx(2 / 18),
        "top5_changed": 0.25, "order_changed": 0.25,
    }  # fmt: skip
    assert (context["n_targets"], context["n_lists"], context["pairs_corrected"]) == (1, 1, 0.5)


@pytest.mark.parametrize("how", ["away", "torn", "other seed", "other version"])
def test_a_record_that_does_not_read_back_is_named(tmp_path: Path, how: str) -> None:
    run = stored(tmp_path)
    path = stage_path(tmp_path, "small", 42)
    if how == "away":
        path.unlink()
    else:
        text = path.read_text()
        changed = {"torn": text[:-9], "other seed": text.replace("42", "43")}
        path.write_text(changed.get(how, text.replace('"version": 1', '"version": 0')))
    frame, missing = stage_activity(run)
    assert missing == ("small",)
    assert frame.empty

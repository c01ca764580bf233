from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolshift.evaluation.compare import mcnemar_exact
from toolshift.evaluation.mcnemar import DEPENDENT, MCNEMAR_COLUMNS, mcnemar, mcnemar_rows


def frame(outcomes: dict[tuple[str, int], list[float]], *, view: str = "blur") -> pd.DataFrame:
    """``outcomes``: (model, seed) -> one value per query."""
    parts = [
        pd.DataFrame(
            {
                "protocol": "by_query", "view": view, "model": model, "seed": seed,
                "task_id": [f"q{i}" for i in range(len(values))], "group": [f"q{i}" for i in range(len(values))],
                "Top-1": values,
            }
        )
        for (model, seed), values in outcomes.items()
    ]  # fmt: skip
    return pd.concat(parts, ignore_index=True)


def test_hand_worked() -> None:
    # b = 3, c = 0: p = 2 (1/2)^3. The published step of one query in 24: b = 1, c = 0 says nothing.
    found = mcnemar([1, 1, 1, 0, 1, np.nan], [0, 0, 0, 0, 1, 1])
    assert (found.b, found.c, found.n, found.p_value) == (3, 0, 5, 0.25)
    step = mcnemar([1.0] * 18 + [0.0] * 6, [1.0] * 17 + [0.0] * 7)
    assert (step.b, step.c, step.n, step.p_value) == (1, 0, 24, 1.0)


def test_without_a_discordant_or_any_pair_p_is_one() -> None:
    assert mcnemar([1, 0, 1], [1, 0, 1]).p_value == 1.0
    empty = mcnemar([np.nan], [1.0])
    assert (empty.n, empty.p_value) == (0, 1.0)


@given(st.integers(0, 40), st.integers(0, 40))
def test_equals_statsmodels_and_is_symmetric(b: int, c: int) -> None:
    first, second = [1] * b + [0] * c, [0] * b + [1] * c
    forward, backward = mcnemar(first, second), mcnemar(second, first)
    assert (forward.b, forward.c) == (backward.c, backward.b) == (b, c)
    assert forward.p_value == pytest.approx(mcnemar_exact(b, c), abs=1e-12)
    assert forward.p_value == pytest.approx(backward.p_value, abs=1e-12)


def test_what_is_no_outcome_is_refused() -> None:
    with pytest.raises(ValueError, match="test each seed"):
        mcnemar([1.0, 0.5], [1.0, 1.0])
    with pytest.raises(ValueError, match="paired"):
        mcnemar([1.0, 0.0], [1.0])


def test_rows_pair_seeds_and_correct_within_a_family() -> None:
    circle, ntilc = [1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0], [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.0]
    table = frame({("circle", 0): circle, ("ntilc", 0): ntilc, ("ntilc", 1): circle})
    both = pd.concat([table, frame({("circle", 0): circle, ("ntilc", 0): ntilc}, view="all")])
    rows = mcnemar_rows(both.sample(frac=1, random_state=3), measure="Top-1", reference="circle")
    assert tuple(rows.columns) == MCNEMAR_COLUMNS
    assert rows[["view", "seed", "b", "c", "n"]].to_numpy().tolist() == [
        ["all", 0, 5, 1, 7], ["blur", 0, 5, 1, 7], ["blur", 1, 0, 0, 7],
    ]  # fmt: skip
    # min(1, 2 (1 + 6) / 64); seed 0 has a family of two views, seed 1 of one.
    np.testing.assert_allclose(rows["p_value"], [0.21875, 0.21875, 1.0])
    np.testing.assert_allclose(rows["p_adjusted"], [0.4375, 0.4375, 1.0])
    np.testing.assert_allclose(rows["rate"], [6 / 7, 6 / 7, 2 / 7])
    assert set(rows["note"]) == {""}


def test_dependent_queries_are_noted() -> None:
    table = frame({("a", 0): [1.0, 0.0, 1.0], ("b", 0): [1.0, 1.0, 0.0]}).assign(group="one")
    (row,) = mcnemar_rows(table, measure="Top-1", reference="a").to_dict("records")
    assert (row["n_groups"], row["note"]) == (1, DEPENDENT)


def test_holes_and_seeds_without_a_counterpart_are_refused() -> None:
    table = frame({("a", 0): [1.0, 0.0], ("b", 0): [1.0, 1.0]})
    with pytest.raises(ValueError, match="1 queries but 2 of the reference"):
        mcnemar_rows(table.iloc[:-1], measure="Top-1", reference="a")
    seeds = frame({("a", 0): [1.0], ("a", 1): [1.0], ("b", 2): [0.0]})
    with pytest.raises(ValueError, match=r"no such seed, only \[0, 1\]"):
        mcnemar_rows(seeds, measure="Top-1", reference="a")
    with pytest.raises(ValueError, match="reference 'c' has no row"):
        mcnemar_rows(table, measure="Top-1", reference="c")
    with pytest.raises(ValueError, match=r"lack the columns \['Top-5'\]"):
        mcnemar_rows(table, measure="Top-5", reference="a")

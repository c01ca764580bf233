"""What survives of a gain, and how that is written: hand-made gains of two comparisons under three choices."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolshift.reporting.multiverse import (
    Gain,
    as_frame,
    hole,
    survivals,
    to_markdown,
    view_frame,
    with_survival,
    write_multiverse,
)


def gain(choice: str, reference: str, delta: float, *, view: str = "mixed") -> Gain:
    return Gain(
        protocol="p", universe="domain", miner="union", purge="gold", choice=choice, changes="", view=view,
        measure="NDCG@5", model="tact", reference=reference, mean=0.5 + delta, reference_mean=0.5, delta=delta,
        ci_low=delta - 0.01, ci_high=delta + 0.01, n_targets=12, n_tasks=345, data="sample",
    )  # fmt: skip


def table(**deltas: tuple[float, float]) -> list[Gain]:
    """choice -> gains over cosine and over blend."""
    made = [gain(n, r, d) for n, pair in deltas.items() for r, d in zip(("cosine", "blend"), pair, strict=True)]
    return with_survival(made, default="default")


def words(gains: list[Gain]) -> list[tuple[str, str]]:
    return [(g.sign_survives, g.order_survives) for g in gains]


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        ((0.09, 0.01), [("yes", "yes"), ("yes", "yes")]),
        ((0.01, 0.09), [("yes", "no"), ("yes", "no")]),
        ((0.01, -0.09), [("yes", "yes"), ("no", "yes")]),
        ((0.02, 0.02), [("yes", "yes"), ("yes", "yes")]),  # equal gains have not changed places
        ((0.02, 0.0), [("yes", "yes"), ("no", "yes")]),  # a gain that is gone has not kept its sign
        ((0.02, 1e-8), [("yes", "yes"), ("no", "yes")]),  # rounding of the replicates is no gain
    ],
)
def test_sign_and_order_are_held_against_the_default(other: tuple[float, float], expected: list[object]) -> None:
    found = table(default=(0.05, 0.02), other=other)
    assert words(found) == [("", ""), ("", ""), *expected]


def test_a_hole_says_nothing_and_leaves_the_others_their_order() -> None:
    gains = [gain("default", "cosine", 0.05), gain("default", "blend", 0.02)]
    gains += [
        hole(replace(gain("other", "cosine", 0.0), delta=math.nan), command="make it"),
        gain("other", "blend", 0.09),
    ]
    assert words(with_survival(gains, default="default"))[2:] == [("", ""), ("yes", "yes")]
    without = [hole(replace(g, delta=math.nan), command="x") for g in gains[:2]]
    assert words(with_survival([*without, *gains[2:]], default="default")) == [("", "")] * 4


def test_views_do_not_mix() -> None:
    gains = [gain(c, r, d, view=v) for c, r, d, v in (
        ("default", "cosine", 0.05, "mixed"), ("default", "cosine", -0.05, "context"),
        ("other", "cosine", 0.01, "mixed"), ("other", "cosine", 0.01, "context"),
    )]  # fmt: skip
    assert [g.sign_survives for g in with_survival(gains, default="default")] == ["", "", "yes", "no"]


@given(
    st.lists(st.floats(-0.5, 0.5, allow_nan=False), min_size=3, max_size=3),
    st.lists(st.floats(-0.5, 0.5, allow_nan=False), min_size=3, max_size=3),
)
def test_the_order_is_lost_exactly_when_two_gains_have_changed_places(first: list[float], second: list[float]) -> None:
    names = ["a", "b", "c"]
    gains = [
        gain(c, n, round(d, 3)) for c, ds in (("default", first), ("o", second)) for n, d in zip(names, ds, strict=True)
    ]
    found = with_survival(gains, default="default")[3:]
    a, b = ([round(d, 3) for d in ds] for ds in (first, second))
    swapped = any((a[i] - a[j]) * (b[i] - b[j]) < 0 for i in range(3) for j in range(i))
    assert {g.order_survives for g in found} == {"no" if swapped else "yes"}


@pytest.mark.parametrize(
    ("default", "others", "verdict"),
    [
        (0.05, (0.01, 0.09), "gain"),
        (-0.05, (-0.01, -0.09), "loss"),
        (0.0, (0.0, 0.0), "no gain"),
        (0.05, (0.01, -0.09), "changes"),
        (0.05, (0.01, math.nan), "open"),
        (0.05, (-0.01, math.nan), "changes"),
        (math.nan, (0.01, 0.02), "open"),
    ],
)
def test_what_survives_over_all_choices(default: float, others: tuple[float, float], verdict: str) -> None:
    gains = [gain("default", "cosine", default), *(gain(f"c{i}", "cosine", d) for i, d in enumerate(others))]
    (found,) = survivals(with_survival(gains, default="default"), default="default")
    assert found.verdict == verdict
    assert (found.asked, found.there) == (2, sum(not math.isnan(d) for d in others))


def test_lowest_and_highest_count_the_default_too() -> None:
    found = survivals(table(default=(0.05, 0.02), a=(0.03, 0.04), b=(0.04, 0.01)), default="default")
    assert [(s.lowest, s.lowest_choice, s.highest, s.highest_choice) for s in found] == [
        (0.03, "a", 0.05, "default"),
        (0.01, "b", 0.04, "a"),
    ]
    assert [(s.signs, s.orders, s.verdict) for s in found] == [(2, 1, "changes")] * 2


def test_one_line_per_choice_with_gains_in_percentage_points() -> None:
    frame = view_frame(table(default=(0.05, 0.02), other=(0.01, -0.0912)), view="mixed")
    assert frame.to_dict("list") == {
        "choice": ["default", "other"],
        "targets": ["12", "12"],
        "tasks": ["345", "345"],
        "tact - cosine": ["+5.00 [+4.00, +6.00]", "+1.00 [+0.00, +2.00]"],
        "tact - blend": ["+2.00 [+1.00, +3.00]", "-9.12 [-10.12, -8.12]"],
        "sign survives": ["–", "no: blend"],
        "order survives": ["–", "yes"],
    }


def test_a_missing_choice_is_printed_once_with_its_command(tmp_path: Path) -> None:
    made = table(default=(0.05, 0.02), other_one=(0.04, 0.01))
    holes = [hole(replace(g, delta=math.nan), command="python x.py only=[other_one]") for g in made[2:]]
    text = to_markdown([*made[:2], *holes], name="multiverse", default="default", caption="data: sample (synthetic)")
    assert text.count("python x.py only=[other\\_one]") == 1
    assert "- missing other\\_one: no run; python x.py" in text
    assert "| other\\_one | –" in text
    assert "data: sample (synthetic)" in text
    paths = write_multiverse([*made[:2], *holes], name="m", default="default", caption="5 % of a_b", outputs=tmp_path)
    latex = (tmp_path / "tables" / "m.tex").read_text()
    assert "% missing other_one: no run; python x.py" in latex
    assert r"5 \% of a\_b" in latex and latex.count(r"\bottomrule") == 2
    drawn = pd.read_csv(tmp_path / "figures" / "m.csv")
    assert drawn["choice"].tolist() == ["default", "default"]
    assert [path.relative_to(tmp_path).as_posix() for path in paths] == [
        "tables/m.csv", "tables/m.md", "tables/m.tex", "figures/m.pdf", "figures/m.png", "figures/m.csv",
    ]  # fmt: skip


def test_the_csv_holds_every_field_and_equal_gains_give_equal_files(tmp_path: Path) -> None:
    gains = table(default=(0.05, 0.02), other=(0.01, 0.09))
    for folder in ("a", "b"):
        write_multiverse(gains, name="m", default="default", caption="c", outputs=tmp_path / folder)
    files = sorted(p.relative_to(tmp_path / "a") for p in (tmp_path / "a").rglob("*") if p.is_file())
    assert len(files) == 6
    assert all((tmp_path / "a" / f).read_bytes() == (tmp_path / "b" / f).read_bytes() for f in files)
    read = pd.read_csv(tmp_path / "a" / "tables" / "m.csv", keep_default_na=False)
    assert read.columns.tolist() == as_frame(gains).columns.tolist()
    assert read["delta"].tolist() == [0.05, 0.02, 0.01, 0.09]
    assert read["order_survives"].tolist() == ["", "", "no", "no"]


def test_without_any_number_there_is_no_figure_and_without_gains_no_table(tmp_path: Path) -> None:
    holes = [hole(replace(g, delta=math.nan), command="x") for g in table(default=(0.05, 0.02))]
    paths = write_multiverse(holes, name="m", default="default", caption="c", outputs=tmp_path)
    assert [path.suffix for path in paths] == [".csv", ".md", ".tex"]
    assert not (tmp_path / "figures").exists()
    with pytest.raises(ValueError, match="multiverse m: no choice"):
        write_multiverse([], name="m", default="default", caption="c", outputs=tmp_path)

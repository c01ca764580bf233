from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from toolshift.evaluation.aggregate import GAIN_COLUMNS, TIDY_COLUMNS, TableSpec
from toolshift.reporting.latex import escape as latex_escape
from toolshift.reporting.latex import to_latex
from toolshift.reporting.markdown import escape as markdown_escape
from toolshift.reporting.markdown import frame_to_markdown, to_markdown
from toolshift.reporting.tidy import blocks, paper_remark, read_tidy, with_note, with_paper
from toolshift.reporting.writer import write_table

GOLDEN = Path(__file__).resolve().parents[2] / "golden"
NONE = pd.DataFrame(columns=list(GAIN_COLUMNS))


def lines(text: str, start: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith(start)]


def entries(line: str) -> list[str]:
    return [part.strip() for part in line.strip("|").split("|")]


def compare_with_golden(paths: Sequence[Path], prefix: str) -> None:
    """Regenerate with TOOLSHIFT_UPDATE_GOLDEN=1, and read the difference before committing it."""
    for path in paths:
        golden = GOLDEN / f"{prefix}_{path.name}"
        if os.environ.get("TOOLSHIFT_UPDATE_GOLDEN"):
            golden.write_bytes(path.read_bytes())
        assert path.read_bytes() == golden.read_bytes(), f"{path.name} differs from {golden.name}"


def test_golden_files(tidy, gains, paper, spec: TableSpec, tmp_path: Path) -> None:
    """A table of the generated sample: no paper column, and a caption that says why."""
    said = replace(spec, remarks=(paper_remark(paper, data="sample"),))
    paths = write_table(with_paper(tidy, paper), spec=said, folder=tmp_path, gains=gains)
    assert [p.name for p in paths] == ["lodo.csv", "lodo.md", "lodo.tex", "lodo_gain.csv"]
    compare_with_golden(paths, "table")


def test_golden_files_of_real_data(real, paper, spec: TableSpec, tmp_path: Path) -> None:
    """The paper's values beside ours, a row that only the paper has, and both marks behind row names."""
    said = replace(spec, data="real", remarks=(paper_remark(paper, data="real"),))
    marked = with_note(real, np.array(real["model"] == "random"), "not converged (2 of 36 fits)")
    marked = with_note(marked, np.array((real["model"] == "bm25") & (real["view"] == "context")), "inactive")
    compare_with_golden(write_table(with_paper(marked, paper), spec=said, folder=tmp_path), "table_real")


def test_equal_input_gives_equal_bytes(tidy, gains, spec: TableSpec, tmp_path: Path) -> None:
    first = write_table(tidy, spec=spec, folder=tmp_path / "a", gains=gains)
    second = write_table(tidy, spec=spec, folder=tmp_path / "b", gains=gains)
    assert [p.read_bytes() for p in first] == [p.read_bytes() for p in second]
    assert sorted(p.name for p in (tmp_path / "a").iterdir()) == sorted(p.name for p in first)


def test_csv_reads_back_as_written(tidy, spec: TableSpec, tmp_path: Path) -> None:
    path = write_table(tidy, spec=spec, folder=tmp_path)[0]
    back = read_tidy(path)
    pd.testing.assert_frame_equal(back, tidy, check_exact=True, check_dtype=False)
    assert list(back.columns) == list(TIDY_COLUMNS)
    assert set(back["purge"]) == {"none"}


def test_best_is_bold_second_underlined_and_equal_rows_share_a_place(tidy, spec: TableSpec) -> None:
    text = to_markdown(blocks(tidy, gains=NONE), spec=spec)
    cosine, bm25, random = (lines(text, f"| {name}")[0] for name in ("semantic\\_cosine", "bm25", "random"))
    assert entries(cosine)[1:] == ["<u>0.500</u>", "**0.500**", "<u>0.500</u>", "**0.500**"]
    assert entries(bm25)[1:] == ["**0.612**", "**0.500**", "**0.612**", "**0.500**"]
    assert entries(random)[1] == "0.250 ± 0.012"


def test_a_hole_is_printed_as_a_hole_and_named(tidy, spec: TableSpec) -> None:
    drawn = blocks(tidy, gains=NONE)
    text, tex = to_markdown(drawn, spec=spec), to_latex(drawn, spec=spec)
    assert entries(lines(text, "| random")[0])[2] == "–"
    assert "- Hole: random has no run in view context." in text
    assert "Hole: random has no run in view context." in tex
    assert "nan" not in text.lower()
    assert "nan" not in tex.lower()


def test_gain_row_comes_from_the_means_without_gains_and_with_interval_with_them(tidy, gains, spec) -> None:
    plain = lines(to_markdown(blocks(tidy, gains=NONE), spec=spec), "| best row")[0]
    assert entries(plain)[1:] == ["+11.23", "0.00", "+11.23", "0.00"]
    full = lines(to_markdown(blocks(tidy, gains=gains), spec=spec), "| best row")[0]
    assert entries(full)[1] == "+11.23 [-0.50, +20.25]"
    named = to_markdown(blocks(tidy, gains=NONE), spec=replace(spec, champion="random"))
    assert entries(lines(named, "| random - strongest")[0])[1:] == ["-36.23", "–", "-36.23", "–"]


def test_paper_column_stands_beside_ours_only_where_a_value_exists(real, paper, spec: TableSpec) -> None:
    merged = with_paper(real, paper)
    assert merged["paper"].dropna().tolist() == [0.6, 0.7]
    ours = merged.loc[merged["n_tasks"] > 0, :].reset_index(drop=True)
    pd.testing.assert_frame_equal(ours.drop(columns="paper"), real.drop(columns="paper"))
    text = to_markdown(blocks(merged, gains=NONE), spec=replace(spec, data="real"))
    header, other = (entries(line) for line in lines(text, "| model"))
    assert [h for h in header if "paper" in h] == ["context MRR (paper)", "natural NDCG@5 (paper)"]
    assert header.index("natural NDCG@5 (paper)") == header.index("natural NDCG@5") + 1
    assert entries(lines(text, "| bm25")[0])[header.index("natural NDCG@5 (paper)")] == "0.600"
    assert not [h for h in other if "paper" in h], "another slice than the paper's"


def test_a_row_of_the_paper_without_a_run_is_a_hole(real, paper, spec: TableSpec) -> None:
    merged = with_paper(real, paper)
    (hole,) = merged.loc[merged["model"] == "later"].to_dict("records")
    assert (hole["view"], hole["measure"], hole["n_tasks"], hole["note"]) == ("context", "MRR", 0, "no run")
    assert np.isnan([hole[c] for c in ("mean", "std", "delta", "p_value", "tied_share", "mde")]).all()
    drawn = blocks(merged, gains=NONE)
    assert drawn[0].models[-1] == "later"
    assert drawn[0].seeds().keys() == {"semantic_cosine", "bm25", "random"}
    assert drawn[0].size("context") == (12, 345)
    text, tex = to_markdown(drawn, spec=replace(spec, data="real")), to_latex(drawn, spec=replace(spec, data="real"))
    row = entries(lines(text, "| later")[0])
    assert row[1:] == ["–", "–", "0.700", "–", "", "–"]
    assert "- Hole: later has no run.\n" in text
    assert "nan" not in (text + tex).lower()
    # The best other row is looked for among rows that have a number.
    assert entries(lines(text, "| best row")[0])[2] == "0.00"


def test_a_sample_and_another_variant_print_no_paper_value(tidy, real, paper) -> None:
    assert with_paper(tidy, paper) is tidy
    assert with_paper(real.assign(miner="dense"), paper)["paper"].isna().all()
    assert paper_remark(paper, data="sample") == "No paper column: the data is a generated sample."
    assert "Paper Table 1 (given), Paper Table 2 (derived), beside universe domain" in paper_remark(paper, data="real")
    assert paper_remark(replace(paper, values=()), data="real") == ""


def test_marks_behind_row_names_and_what_they_mean(tidy, spec: TableSpec) -> None:
    noted = with_note(tidy, np.array(tidy["model"] == "random"), "not converged (2 of 36 fits)")
    noted = with_note(noted, np.array(tidy["view"] == "context") & np.array(tidy["model"] == "bm25"), "inactive")
    assert set(noted.loc[noted["model"] == "random", "note"]) == {"not converged (2 of 36 fits)"}
    text, tex = to_markdown(blocks(noted, gains=NONE), spec=spec), to_latex(blocks(noted, gains=NONE), spec=spec)
    assert lines(text, "| random † ")
    assert lines(text, "| bm25 ‡ ")
    assert "- † random: not converged (2 of 36 fits)." in text
    assert "- ‡ bm25: inactive in view context (less than 1% of the lists have another order" in text
    assert r"random \dag{} &" in tex
    assert r"\ddag{} bm25: inactive in view context (less than 1\% of" in tex
    assert len(lines(text, "| bm25 ")) == 2  # the other slice has no such note, and no mark
    assert len(lines(text, "| bm25 ‡ ")) == 1


def test_a_note_is_added_after_those_that_are_there() -> None:
    frame = pd.DataFrame({"note": ["", "first", None]})
    assert with_note(frame, np.array([True, True, False]), "second")["note"].tolist() == ["second", "first; second", ""]


def test_captions_state_what_the_numbers_are(tidy, spec: TableSpec) -> None:
    text = to_markdown(blocks(tidy, gains=NONE), spec=spec)
    for words in (
        "Data: sample (synthetic). Protocol: leave\\_one\\_domain\\_out; selection rule: none.",
        "universe domain, miner union; purge none; slice name\\_free",
        "Targets/tasks per view: natural 12/345, context 12/345.",
        "Seeds: 3 for random; 1 for semantic\\_cosine, bm25.",
        "sample standard deviation (ddof 1)",
        "10000 replicates: targets resampled, then tasks inside each",
    ):
        assert words in text
    assert text.count("### Reference test") == 1  # whole lists alone; a slice prints its main table
    few = tidy.loc[tidy["slice"] == "name_free", :].assign(slice="all")
    within = "tasks resampled inside fixed targets (fewer than 10); conditional on these datasets"
    assert within in to_markdown(blocks(few, gains=NONE), spec=spec)
    real = to_markdown(blocks(tidy, gains=NONE), spec=replace(spec, data="real"))
    assert "Data: real." in real
    assert "synthetic" not in real


def test_a_caption_cannot_claim_other_data(tidy, spec: TableSpec, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"'sample'.*would say 'real'"):
        write_table(tidy, spec=replace(spec, data="real"), folder=tmp_path)
    with pytest.raises(ValueError, match="columns missing"):
        write_table(tidy.drop(columns="delta"), spec=spec, folder=tmp_path)
    with pytest.raises(ValueError, match="no rows"):
        write_table(tidy.iloc[:0], spec=spec, folder=tmp_path)


def test_text_is_escaped(tidy, spec: TableSpec) -> None:
    assert latex_escape("a_b & 5% $x$ #1 {y} ~^\\") == (
        r"a\_b \& 5\% \$x\$ \#1 \{y\} \textasciitilde{}\textasciicircum{}\textbackslash{}"
    )
    assert markdown_escape("a|b*_<u>") == r"a\|b\*\_\<u\>"
    odd = tidy.replace({"bm25": "b|m_25%"})
    tex = to_latex(blocks(odd, gains=NONE), spec=spec)
    assert r"b|m\_25\%" in tex
    body = [line for line in tex.splitlines() if "&" in line and not line.startswith("%")]
    assert len({line.count(" & ") for line in body if line.startswith(("b|m", "random", "semantic"))}) <= 2
    assert r"b\|m\_25%" in to_markdown(blocks(odd, gains=NONE), spec=spec)


def test_latex_has_booktabs_rules_and_balanced_environments(tidy, gains, spec: TableSpec) -> None:
    tex = to_latex(blocks(tidy, gains=gains), spec=spec)
    assert tex.count("\\begin{table}") == tex.count("\\end{table}") == 4
    assert tex.count("\\toprule") == tex.count("\\bottomrule") == 4
    assert tex.count("\\midrule") == 4 + 2  # the main table of each block sets its gain row apart
    assert "\\multicolumn{2}{c}{natural}" in tex
    assert "\\hline" not in tex


def test_any_frame_as_markdown() -> None:
    frame = pd.DataFrame({"view": ["a_b"], "share": [0.12345], "n": [3], "gap": [float("nan")]})
    assert entries(frame_to_markdown(frame).splitlines()[-1]) == [r"a\_b", "0.123", "3", "–"]


def test_caption_names_the_views_whose_targets_stayed_fixed(tidy, spec: TableSpec) -> None:
    fixed = tidy["view"] == "context"
    mixed = tidy.assign(note=tidy["note"].where(~fixed, "conditional on these datasets"))
    text = to_markdown(blocks(mixed, gains=NONE), spec=spec)
    assert "targets resampled, then tasks inside each; in view context: tasks resampled inside fixed targets" in text


def test_caption_promises_an_interval_only_where_the_gain_row_has_one(tidy, gains, spec: TableSpec) -> None:
    assert "95% interval" not in to_markdown(blocks(tidy, gains=NONE), spec=spec)
    assert "95% interval" in to_markdown(blocks(tidy, gains=gains), spec=spec)

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from toolshift.evaluation.queries import STUDY_COLUMNS, QuerySpec, read_per_query, summarise_queries, write_per_query
from toolshift.reporting import study
from toolshift.reporting.study import StudyTable, read_study, study_latex, study_markdown, write_lines, write_study
from toolshift.settings.schema import PaperValue

NAN = float("nan")
COUNTS = {"n_seeds": 1, "n_targets": 1, "n_tasks": 24, "n_groups": 24, "n_undefined": 0}
PAPER = (
    PaperValue(view="K=3", model="learned", measure="tau", value=0.0967, source="SkillGraph Table 2", status="given"),
    PaperValue(view="K=3", model="llm", measure="tau", value=-0.0433, source="SkillGraph Table 2", status="given"),
    PaperValue(view="K=3", model="learned", measure="unknown", value=0.5, source="SkillGraph Table 9", status="given"),
)


def spec(**more: object) -> QuerySpec:
    options: dict[str, object] = {
        "name": "skillgraph", "data": "sample", "measures": ("tau", "ms"), "reference": "sem_sort",
        "lower_is_better": ("ms",),
    }  # fmt: skip
    return QuerySpec(**{**options, **more})  # type: ignore[arg-type]


def row(view: str, model: str, measure: str, mean: float, **more: object) -> dict[str, object]:
    tested = model != "sem_sort"
    numbers = {"delta": 0.02, "ci_low": -0.01, "ci_high": 0.05, "p_value": 0.0123, "p_adjusted": 0.0246, "mde": 0.04,
               "p_one_sided": 0.0062}  # fmt: skip
    counts = {"n_paired": 24, "improved": 3, "degraded": 1, "equal": 20}
    return {
        **dict.fromkeys(STUDY_COLUMNS, NAN), "table": "skillgraph", "protocol": "grouped", "universe": "", "miner": "",
        "purge": "", "slice": "all", "view": view, "model": model, "measure": measure, "mean": mean, "task_mean": mean,
        "reference": "sem_sort", "data": "sample", "note": "", "mean_ci_low": mean - 0.1, "mean_ci_high": mean + 0.1,
        **COUNTS, **(numbers if tested else {}), **(counts if tested else dict.fromkeys(counts, 0)), **more,
    }  # fmt: skip


@pytest.fixture
def rows() -> pd.DataFrame:
    """Written by hand, so that its drawings cannot move with any computation."""
    found = [
        row("K=3", "sem_sort", "tau", -0.05),
        row("K=3", "sem_sort", "ms", 2.0),
        row("K=3", "learned", "tau", 0.0912, std=0.0123, n_seeds=3),
        row("K=3", "learned", "ms", 3.5, std=0.25, n_seeds=3),
        row("K=3", "bm25", "tau", 0.0912 + 1e-12, n_tasks=20, n_undefined=4, note="difference over the 20 queries"),
        row("K=3", "bm25", "ms", 1.0),
        row("K=5", "sem_sort", "tau", 0.01),
        row("K=5", "learned", "tau", 0.02, std=0.001, n_seeds=3),
    ]
    counts = dict.fromkeys(
        ("n_seeds", "n_targets", "n_tasks", "n_groups", "n_undefined", "n_paired", "improved", "degraded", "equal"), int
    )
    return pd.DataFrame(found).loc[:, list(STUDY_COLUMNS)].astype(counts)


def table(rows: pd.DataFrame, **more: object) -> StudyTable:
    return StudyTable(**{"spec": spec(), "title": "Tool order", "rows": rows, **more})  # type: ignore[arg-type]


def real(rows: pd.DataFrame, **more: object) -> StudyTable:
    return table(rows.assign(data="real"), spec=spec(data="real"), paper=PAPER, **more)


GOLDEN = """\
# skillgraph: Tool order

## grouped: K=3

| model     | tau                 | ms              |
|:----------|:--------------------|:----------------|
| sem\\_sort | <u>-0.0500</u>      | <u>2.0000</u>   |
| learned   | **0.0912 ± 0.0123** | 3.5000 ± 0.2500 |
| bm25      | **0.0912**          | **1.0000**      |

Data: sample (synthetic). Protocol: grouped; condition: K=3. 24 queries in 24 groups. Undefined for some queries, left \
out of the mean; defined for: tau 20 to 24. Seeds: 3 for learned; 1 for sem\\_sort, bm25. Entries: mean over queries; \
± is the sample standard deviation (ddof 1) of the mean over seeds, absent with one seed. Best bold (lowest for ms), \
second underlined.

### Intervals and tests

"""


def test_the_wide_table_word_by_word(rows: pd.DataFrame) -> None:
    text = study_markdown(table(rows))
    assert text.startswith(GOLDEN)
    assert text.count("## grouped: ") == 2


def test_the_interval_line_of_a_row(rows: pd.DataFrame) -> None:
    lines = [line for line in study_markdown(table(rows)).split("\n") if line.startswith(("| tau ", "| ms "))]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert cells[0] == [
        "tau", "sem\\_sort", "-0.0500", "[-0.1500, 0.0500]", "–", "–", "–", "–", "–", "–", "–", "24", "24", "",
    ]  # fmt: skip
    assert cells[2] == [
        "tau", "bm25", "0.0912", "[-0.0088, 0.1912]", "+0.0200", "[-0.0100, +0.0500]", "0.0123", "0.0246", "0.0062",
        "3/1/20", "0.0400", "20", "24", "difference over the 20 queries",
    ]  # fmt: skip


def test_captions_say_how_the_interval_was_made(rows: pd.DataFrame) -> None:
    text = study_markdown(table(rows, groups="templates", queries="tasks", remarks=("Random rows are shuffles.",)))
    assert "24 tasks in 24 templates" in text
    assert "cluster bootstrap with 10000 replicates: the templates of the split are resampled" in text
    assert "Difference to sem\\_sort over the tasks for which both have a value." in text
    assert "Holm over the family view x measure" in text
    assert text.count("Random rows are shuffles.") == 2
    alone = study_markdown(table(rows, spec=spec(reference=None, span="view")))
    assert "the groups of the condition are resampled" in alone
    assert "Holm over" not in alone


def test_latex_is_the_same_table(rows: pd.DataFrame) -> None:
    text = study_latex(table(rows, missing=("llm, seed 1",)))
    assert "learned & \\textbf{0.0912 $\\pm$ 0.0123} & 3.5000 $\\pm$ 0.2500 \\\\" in text
    assert "sem\\_sort & \\underline{$-$0.0500} & \\underline{2.0000} \\\\" in text
    assert "\\begin{tabular}{lrr}" in text
    assert "% Missing run: llm, seed 1" in text
    assert [text.count(f"\\label{{tab:skillgraph-{label}}}") for label in ("1", "1-test", "2", "2-test", "3")] == [
        1, 1, 1, 1, 0,
    ]  # fmt: skip


def test_paper_values_stand_beside_real_data_alone(rows: pd.DataFrame) -> None:
    generated = study_markdown(table(rows, paper=PAPER))
    assert "(paper)" not in generated
    assert "0.0967" not in generated
    assert generated.count("No paper column: the data is a generated sample.") == 1  # K=5 has no value to print
    text = study_markdown(real(rows, paper_remark="other trajectories"))
    assert "| model     | tau                 | tau (paper)   | ms              |" in text
    assert "| learned   | **0.0912 ± 0.0123** | 0.0967        | 3.5000 ± 0.2500 |" in text
    assert "| llm       | –                   | -0.0433       | –               |" in text
    assert text.count("paper: SkillGraph Table 2 (given); other trajectories.") == 1
    assert "Table 9" not in text


def test_paper_values_of_one_protocol(rows: pd.DataFrame) -> None:
    both = pd.concat([rows, rows.assign(protocol="random")], ignore_index=True)
    text = study_markdown(real(both, paper_protocols=("random",)))
    grouped, random = text.split("## random: K=3")
    assert "0.0967" in random
    assert "0.0967" not in grouped
    assert "paper:" not in grouped
    assert "beside random alone" in random


def test_files_round_trip_and_are_equal_for_equal_rows(rows: pd.DataFrame, tmp_path: Path) -> None:
    made = real(rows)
    first, second = write_study(made, folder=tmp_path / "a"), write_study(made, folder=tmp_path / "b")
    assert [p.name for p in first] == ["skillgraph.csv", "skillgraph.md", "skillgraph.tex"]
    assert [p.read_bytes() for p in first] == [p.read_bytes() for p in second]
    back = read_study(first[0])
    assert len(back) == len(rows) + 1
    llm = back.loc[back["model"] == "llm", :].iloc[0]
    assert (llm["paper"], llm["n_tasks"], llm["note"]) == (-0.0433, 0, "no run")
    assert np.isnan(llm["mean"])
    ours = back.loc[back["model"] != "llm", list(STUDY_COLUMNS)].reset_index(drop=True).drop(columns="paper")
    expected = made.rows.drop(columns="paper").reset_index(drop=True)
    pd.testing.assert_frame_equal(ours, expected, check_dtype=False)
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match="not the table of a study"):
        read_study(tmp_path / "other.csv")


def test_a_pareto_column(rows: pd.DataFrame) -> None:
    flagged = rows.assign(pareto=rows["model"] == "bm25")
    text = study_markdown(table(flagged, pareto=("tau", "ms")))
    assert "| bm25      | **0.0912**          | **1.0000**      | yes      |" in text
    assert "| sem\\_sort | <u>-0.0500</u>      | <u>2.0000</u>   |          |" in text
    assert "Pareto: no other row is at least as good in tau and ms and better in one." in text
    with pytest.raises(ValueError, match=r"columns missing: \['pareto'\]"):
        table(rows, pareto=("tau", "ms"))


def test_rows_of_other_data_or_none_are_refused(rows: pd.DataFrame) -> None:
    with pytest.raises(ValueError, match=r"rows from data \['sample'\], but the caption would say 'real'"):
        table(rows, spec=spec(data="real"))
    with pytest.raises(ValueError, match="no rows"):
        table(rows.iloc[:0])


def test_a_table_follows_from_the_per_query_file_alone(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    frame = pd.concat(
        pd.DataFrame(
            {
                "protocol": "grouped", "view": "K=3", "model": m, "seed": s, "task_id": [f"q{i}" for i in range(20)],
                "group": [f"g{i // 2}" for i in range(20)], "tau": rng.uniform(-1, 1, 20), "ms": rng.uniform(1, 2, 20),
            }
        )
        for m in ("sem_sort", "learned")
        for s in range(2)
    )  # fmt: skip
    options = spec(replicates=100)
    made = write_study(table(summarise_queries(frame, spec=options)), folder=tmp_path / "made")
    file = write_per_query(tmp_path / "per_query.parquet", frame.sample(frac=1, random_state=2))
    again = write_study(table(summarise_queries(read_per_query(file), spec=options)), folder=tmp_path / "again")
    assert [p.read_bytes() for p in made] == [p.read_bytes() for p in again]


# --- figures --------------------------------------------------------------------------------------------------------


def lines(rows: pd.DataFrame, folder: Path, **more: object) -> list[Path]:
    options = {"name": "sweep", "measure": "tau", "x": {"K=3": 3.0, "K=5": 5.0}, "x_label": "K", "folder": folder}
    return write_lines(rows, **{**options, **more})  # type: ignore[arg-type]


def test_a_line_figure_with_its_points(rows: pd.DataFrame, tmp_path: Path) -> None:
    first = lines(rows, tmp_path / "a", models=("learned", "sem_sort"))
    second = lines(rows.sample(frac=1, random_state=1), tmp_path / "b", models=("learned", "sem_sort"))
    assert [p.name for p in first] == ["sweep.pdf", "sweep.png", "sweep.csv"]
    assert [p.read_bytes() for p in first] == [p.read_bytes() for p in second]
    points = pd.read_csv(first[2])
    assert points[["model", "x", "mean"]].to_numpy().tolist() == [
        ["learned", 3.0, 0.0912], ["learned", 5.0, 0.02], ["sem_sort", 3.0, -0.05], ["sem_sort", 5.0, 0.01],
    ]  # fmt: skip


def test_lines_and_bars_are_the_numbers(rows: pd.DataFrame) -> None:
    points = rows.loc[rows["measure"] == "tau", :].assign(x=rows["view"].map({"K=3": 3.0, "K=5": 5.0}))
    axes = study._draw_lines(points, x_label="K", log_x=False).axes[0]
    drawn = {line.get_label(): line.get_xydata().tolist() for line in axes.get_lines()}
    assert drawn["sem_sort"] == [[3.0, -0.05], [5.0, 0.01]]
    np.testing.assert_allclose(axes.collections[0].get_segments()[0], [[3.0, -0.15], [3.0, 0.05]])
    assert "sample (synthetic)" in axes.get_title()
    assert study._draw_lines(points, x_label="K", log_x=True).axes[0].get_xscale() == "log"


def test_a_figure_without_a_point_or_of_two_protocols_is_refused(rows: pd.DataFrame, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no value of tau for \['llm'\]"):
        lines(rows, tmp_path, models=("llm",))
    with pytest.raises(ValueError, match="no value of recall for any row"):
        lines(rows, tmp_path, measure="recall")
    both = pd.concat([rows, rows.assign(protocol="random")])
    with pytest.raises(ValueError, match=r"choose one protocol of \['grouped', 'random'\]"):
        lines(both, tmp_path)
    assert lines(both, tmp_path, protocol="random")[2].is_file()

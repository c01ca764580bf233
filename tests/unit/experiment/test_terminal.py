"""What a person reads: changes, the table, the account of raw rows, figures with verdicts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from toolshift.data.records import Report, Section
from toolshift.experiment.bench import Figure, _table_values, bootstrap_figures, render
from toolshift.experiment.main import changes, for_terminal
from toolshift.experiment.prepare import account
from toolshift.experiment.run import NonFiniteScore, _check_scores
from toolshift.settings.schema import Settings


def test_markdown_loses_its_escapes_and_keeps_its_columns() -> None:
    table = "\n".join(
        [
            r"| model            |   x\_y |",
            r"|:-----------------|-------:|",
            r"| semantic\_cosine | \<1    |",
            r"| a\|b \* c        | \\     |",
        ]
    )
    shown = for_terminal(f"# semantic\\_cosine\n\n{table}\n")
    assert shown.startswith("# semantic_cosine\n")
    lines = shown.split("\n")[2:6]
    assert lines[2].startswith("| semantic_cosine  |")
    assert "<1" in lines[2]
    assert lines[3].startswith("| a|b * c  ")
    assert "\\" in lines[3]
    assert len({len(line) for line in lines}) == 1


def test_changes_name_what_differs_and_spare_the_rest(settings_of: Callable[..., Settings]) -> None:
    assert changes(settings_of()) == []
    shown = changes(settings_of("view.length=10", "encoder=hashing"))
    assert shown == [
        "changed from the defaults:",
        "  encoder.name: minilm -> hashing",
        "  view.length: 20 -> 10",
    ]


def test_the_account_names_every_reason() -> None:
    report = Report(
        sections={
            "queries": Section(rows_read=1_500, records=1_497, dropped={"empty_query": 2, "no_known_gold": 1}),
            "apis": Section(rows_read=10, records=10, dropped={}),
        },
        tasks=1_200, capabilities=7, endpoints=8, gold_pairs=9, domains=3, ordered_tasks=0,
        notes={"merged_duplicate_text": 297},
    )  # fmt: skip
    shown = account(report)
    lines = [line.split() for line in shown.splitlines()]
    assert ["queries", "1,500", "1,497", "3"] in lines
    assert ["all", "1,510", "1,507", "3"] in lines
    assert ["queries:empty_query", "2"] in lines
    assert ["tasks", "1,200"] in lines
    assert ["merged_duplicate_text", "297"] in lines


@pytest.mark.parametrize(
    ("figure", "verdict"),
    [
        (Figure(name="ratio", value=20.0, unit="x", target=20, at_least=True), "pass"),
        (Figure(name="ratio", value=19.9, unit="x", target=20, at_least=True), "FAIL"),
        (Figure(name="time", value=10.0, unit="s", target=10), "pass"),
        (Figure(name="time", value=10.1, unit="s", target=10), "FAIL"),
        (Figure(name="time", value=10.1, unit="s", target=10, judged=False), "not judged (quick)"),
    ],
)
def test_verdicts(figure: Figure, verdict: str) -> None:
    assert figure.verdict == verdict
    assert verdict in render([figure])


def test_the_bench_table_is_skewed_and_has_holes() -> None:
    values, target = _table_values(n_tasks=400, n_targets=10, shape=(2, 1, 2, 3, 1))
    assert values.shape == (400, 12)
    sizes = np.bincount(target)
    assert sizes.size == 10
    assert sizes.max() > 5 * sizes.min()
    missing = np.isnan(values).reshape(400, 2, 2, 3)
    assert not missing[..., 0].any()
    assert 0.4 < missing[..., 2].mean() < 0.6
    assert (missing[:, 0] == missing[:, 1]).all(), "all models lack the same tasks"
    (figure,) = bootstrap_figures(3, judged=False)
    assert figure.value > 0


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        (np.array([1.0, np.nan, np.inf]), "2 of 3 scores are not finite"),
        (np.array([1.0, 2.0]), r"\(2,\) scores for 3 pairs"),
        (np.array([[1.0, 2.0, 3.0]]), r"\(1, 3\) scores for 3 pairs"),
    ],
)
def test_scores_that_are_none_are_refused(scores: np.ndarray, message: str) -> None:
    with pytest.raises(NonFiniteScore, match=f"target T, seed 4: {message}"):
        _check_scores(scores, 3, target="T", seed=4)
    _check_scores(np.zeros(3), 3, target="T", seed=4)

"""The artefact page's statistics on a hand-made world of two domains that share one tool."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from toolshift.evaluation.artefacts import COLUMNS, artefact_rows, source_records
from toolshift.experiment.workspace import Variant, Workspace

Open = Callable[[str], tuple[Workspace, Variant]]


@pytest.fixture
def opened(worlds: Any, settings_of: Any, tmp_path: Path) -> Open:
    """Domains A and B, five tools each; every task of A needs a0 and one of them b0 too, as the task of B does."""

    def open_purged(purge: str) -> tuple[Workspace, Variant]:
        tools = [worlds.Tool(f"{d.lower()}{i}", d, (worlds.Api(f"get {i}"),)) for d in "AB" for i in range(5)]
        given = {d: tuple(f"{d.lower()}{i}" for i in range(5)) for d in "AB"}
        asks = [
            worlds.Ask("t1", "A", "get one", (("a0", "get 0"),), given["A"]),
            worlds.Ask("t2", "A", "get two", (("a0", "get 0"), ("b0", "get 0")), given["A"]),
            worlds.Ask("t3", "B", "get three", (("b0", "get 0"),), given["B"]),
        ]
        settings = settings_of("experiment=lodo", f"data.cache={tmp_path}", "view=[natural]", f"protocol.purge={purge}")
        records = worlds.records(tools, asks)
        workspace = Workspace(settings=settings, records=records, fingerprint="x", encoder=worlds.WordEncoder())
        return workspace, workspace.variant(settings)

    return open_purged


def rows_of(workspace: Workspace, variant: Variant) -> pd.DataFrame:
    return artefact_rows(variant.lists, workspace.corpus, folds=variant.folds, fold=variant.fold, flags=workspace.flags)


def value(rows: pd.DataFrame, section: str, subject: str, statistic: str) -> float:
    found = rows[(rows["section"] == section) & (rows["subject"] == subject) & (rows["statistic"] == statistic)]
    assert len(found) == 1
    return float(found["value"].iloc[0])


def test_records_come_from_the_train_tasks_of_each_target(opened: Open) -> None:
    workspace, variant = opened("none")
    at = {name.rsplit("/", 1)[-1]: i for i, name in enumerate(workspace.corpus.capability_ids)}
    records = source_records(variant.folds, workspace.labels)
    target = {name: i for i, name in enumerate(variant.folds.targets)}
    assert records[target["A"], at["a0"]] == 0
    assert records[target["A"], at["b0"]] == 1
    assert records[target["B"], at["a0"]] == 2
    assert records[target["B"], at["b0"]] == 1


def test_unseen_shares_by_hand(opened: Open) -> None:
    rows = rows_of(*opened("none"))
    assert tuple(rows.columns) == COLUMNS
    # Positives: t1 a0, t2 a0 and b0, t3 b0. Records elsewhere: b0 for t2 (from t3) and b0 for t3 (from t2).
    assert value(rows, "unseen", "positives", "share with source records") == pytest.approx(2 / 4)
    assert value(rows, "unseen", "positives", "macro share with source records") == pytest.approx((1 / 3 + 1) / 2)
    assert value(rows, "unseen", "tasks", "share with gold in several categories") == pytest.approx(1 / 3)
    assert value(rows, "roles", "positive", "any source record") == pytest.approx(2 / 4)
    assert value(rows, "lists", "tasks", "with a list") == 3
    assert value(rows, "lists", "targets", "scored") == 2


def test_a_gold_purge_leaves_no_record_for_a_positive(opened: Open) -> None:
    rows = rows_of(*opened("gold"))
    assert set(rows["purge"]) == {"gold"}
    assert value(rows, "unseen", "positives", "share with source records") == 0
    assert value(rows, "roles", "positive", "any source record") == 0
    assert value(rows, "roles", "positive", "source records") == 0
    # t3 goes when A is held out, t2 when B is.
    assert value(rows, "purge", "train", "mean share of source tasks") == pytest.approx((0 / 1 + 1 / 2) / 2)


def test_shortcuts_never_beat_what_the_lists_allow(opened: Open) -> None:
    rows = rows_of(*opened("none"))
    shortcuts = rows[rows["section"] == "shortcuts"].set_index("subject")["value"]
    assert shortcuts.between(0, 1).all()
    # All tools have one endpoint, so the endpoint count ties every list: exactly chance.
    assert shortcuts["endpoint count"] == pytest.approx(shortcuts["random (expected)"])

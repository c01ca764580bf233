"""The artefact page's statistics on a hand-made world of two domains that share one tool."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from toolshift.data.merge import merged
from toolshift.data.records import Capability, Endpoint, Library, Records, Report, Task
from toolshift.evaluation.artefacts import COLUMNS, artefact_rows, source_records
from toolshift.experiment.workspace import Variant, Workspace
from toolshift.reporting.artefacts import CONTROL_COLUMNS, artefact_page

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


# ------------------------------------------------------------------------------------------------------ target datasets


def dataset(name: str, *, endpoints: int, text: str) -> Records:
    """Five tools; the first one, of so many endpoints and this text, is gold for the only task."""
    ids = [f"{name}/{i}" for i in range(5)]
    tools = [Capability(capability_id=i, dataset=name, name=i, text=text if i == ids[0] else "tool") for i in ids]
    counts = {i: endpoints if i == ids[0] else 1 for i in ids}
    operations = [
        Endpoint(endpoint_id=f"{i}/{n}", capability_id=i, operation=f"get {n}", text=f"get {n}")
        for i in ids
        for n in range(counts[i])
    ]
    task = Task(
        task_id=f"{name}/t", dataset=name, domain="", text=f"get of {name}", gold_capability_ids=(ids[0],),
        gold_endpoint_ids=(f"{ids[0]}/0",), given_candidate_ids=tuple(ids),
    )  # fmt: skip
    report = Report(
        sections={}, tasks=1, capabilities=5, endpoints=len(operations), gold_pairs=1, domains=0, ordered_tasks=0
    )
    return Records(dataset=name, library=Library(tuple(tools), tuple(operations)), tasks=(task,), report=report)


@pytest.fixture
def two_datasets(worlds: Any, settings_of: Any, tmp_path: Path) -> pd.DataFrame:
    settings = settings_of("experiment=cross_dataset", f"data.cache={tmp_path}", "view=[natural]")
    records = merged([dataset("a", endpoints=3, text="four"), dataset("b", endpoints=1, text="a longer text")])
    workspace = Workspace(settings=settings, records=records, fingerprint="x", encoder=worlds.WordEncoder())
    return rows_of(workspace, workspace.variant(settings))


def test_target_datasets_are_described_one_by_one(two_datasets: pd.DataFrame) -> None:
    rows = two_datasets
    for role, name, a, b in (
        ("positive", "share of candidates", 1 / 5, 1 / 5),
        ("positive", "endpoints", 3, 1),
        ("positive", "text length", 4, 13),
        ("positive", "share with a required argument", 0, 0),
        ("positive", "source records", 0, 0),
    ):
        assert value(rows, "roles by target", f"a: {role}", name) == pytest.approx(a)
        assert value(rows, "roles by target", f"b: {role}", name) == pytest.approx(b)
        assert value(rows, "roles", role, name) == pytest.approx((a + b) / 2)  # lists of one length, one each
    negatives = rows[(rows["section"] == "roles by target") & (rows["statistic"] == "endpoints")]
    assert set(negatives.loc[~negatives["subject"].str.endswith("positive"), "value"]) == {1.0}
    page = artefact_page(rows, pd.DataFrame(columns=pd.Index(CONTROL_COLUMNS)), data="sample")
    assert "### Candidates by role, for each target dataset alone (n in brackets), purge none" in page
    assert "a: positive" in page


def test_domains_as_targets_get_shortcuts_only(opened: Open) -> None:
    sections = set(rows_of(*opened("none"))["section"])
    assert "shortcuts by target" in sections
    assert "roles by target" not in sections

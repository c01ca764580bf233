"""The SkillGraph studies: tau by kind of pair, what a fold may learn from, API-Bank's templates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from toolshift.experiment.skillgraph import SkillGraphStudy
from toolshift.experiment.skillgraph_apibank import ApiBankStudy
from toolshift.experiment.skillgraph_rows import Choices, folds_of, main_rows, pair_tau
from toolshift.models.skillgraph.graph import TransitionGraph
from toolshift.settings.errors import UserError


def graph_of(edges: dict[tuple[int, int], float], n: int) -> TransitionGraph:
    rows, columns = zip(*edges, strict=True)
    matrix = sparse.csr_matrix((list(edges.values()), (rows, columns)), shape=(n, n))
    return TransitionGraph(
        counts=matrix,
        transition=matrix,
        weight=matrix,
        position=np.full(n, 0.5),
        nodes=np.ones(n, bool),
        contributors=(),
    )


def test_tau_of_pairs_with_and_without_an_edge() -> None:
    """Gold 0 1 2; the edge 1 -> 0 joins one pair, in whichever direction. Predicted 1 0 2: that pair is reversed, the
    two others stand right. The second query shares one tool: no pair at all."""
    graph = graph_of({(1, 0): 1.0}, n=4)
    predicted = np.array([[1, 0, 2], [0, 3, -1]])
    gold = np.array([[0, 1, 2], [0, 2, -1]])
    seen, unseen = pair_tau(predicted, gold, graph=graph)
    np.testing.assert_array_equal(seen, [-1.0, np.nan])
    np.testing.assert_array_equal(unseen, [1.0, np.nan])


def test_a_repeated_gold_call_counts_once() -> None:
    graph = graph_of({(2, 1): 1.0}, n=3)
    seen, unseen = pair_tau(np.array([[0, 1]]), np.array([[0, 1, 0]]), graph=graph)
    assert np.isnan(seen[0])
    assert unseen[0] == 1.0


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Any:
    from toolshift.data.trajectories import PAPER
    from toolshift.settings.compose import load_settings

    cache = tmp_path_factory.mktemp("cache")
    overrides = ["experiment=skillgraph", "debug=tiny", "data.sample_size=tiny", f"data.cache={cache}"]
    study = SkillGraphStudy(load_settings("train", overrides))
    return study.data.bench("toolbench", rules=PAPER)


CHOICES = Choices(seeds=(42,), tuning=10, shuffles=2)


def test_in_paper_mode_no_test_trajectory_is_learned_from(bench: Any) -> None:
    (fold,) = folds_of(bench, mode="paper", ways=["text"], choices=CHOICES)
    tested = {bench.ids[row] for row in fold.split.test.tolist()}
    assert tested
    assert not tested & set(fold.graph.contributors)
    assert not tested & {bench.ids[row] for row in fold.tuning.tolist()}
    assert set(bench.group[fold.split.test]) & set(bench.group[fold.split.train]) == set()


def test_in_authors_mode_the_graph_holds_the_test_trajectories(bench: Any) -> None:
    (fold,) = folds_of(bench, mode="authors", ways=["id"], choices=CHOICES)
    assert set(fold.graph.contributors) == set(bench.ids)


def test_stage_2_never_changes_the_set_and_every_query_has_every_row(bench: Any) -> None:
    (fold,) = folds_of(bench, mode="paper", ways=["text"], choices=CHOICES)
    frame = main_rows(fold)
    sizes = frame.groupby("model").size()
    assert (sizes == fold.split.test.size).all()
    ordered = frame.loc[frame["model"].str.startswith("gs_")].pivot(index="task_id", columns="model", values="Set-F1")
    assert (ordered.nunique(axis=1) == 1).all()
    both = frame.loc[frame["model"] != "gs_random_order"].dropna(subset=["tau (2+)"])
    np.testing.assert_allclose(both["tau (2+)"], 2 * both["Ord.Prec (2+)"] - 1)


def test_modes_parts_and_data_that_do_not_exist_are_refused(settings_of: Callable[..., Any]) -> None:
    with pytest.raises(UserError, match="papper"):
        SkillGraphStudy(settings_of("experiment=skillgraph", "study.params.modes=[papper]"))
    with pytest.raises(UserError, match="level-3"):
        ApiBankStudy(settings_of("experiment=skillgraph_apibank"))


@pytest.fixture
def apibank(data_root: Any, settings_of: Callable[..., Any], tmp_path: Any) -> Any:
    settings = settings_of(
        "experiment=skillgraph_apibank", "encoder=hashing", "data=real", f"data.root={data_root}",
        f"data.cache={tmp_path}",
    )  # fmt: skip
    return ApiBankStudy(settings)


def test_api_bank_has_ten_templates_of_five_records(apibank: Any) -> None:
    records = apibank.records
    assert np.bincount(records.template).tolist() == [5] * 10
    assert len(records.tools.ids) == 21
    assert len(records.others(0, way="record")) == 49
    assert len(records.others(0, way="template")) == 45
    assert records.template[0] not in records.template[records.others(0, way="template")]

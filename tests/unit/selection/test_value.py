"""The value of a setting: mean over views of macro NDCG@5 over source contexts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from toolshift.models.base import Source
from toolshift.models.features import Pairs
from toolshift.selection.value import MEASURE, source_value
from toolshift.views.corpus import Corpus, build_corpus
from toolshift.views.manifest import Manifest

SECOND = 1 / np.log2(3)  # NDCG of one gold candidate on the second of two places


@dataclass(frozen=True)
class Case:
    """Tasks t0 to t5 and tools a, b; ``contexts`` holds the context row of each task."""

    corpus: Corpus

    def source(self, views: Mapping[str, Sequence[int]], contexts: Sequence[int]) -> Source:
        """Every named task has the list (a gold, b)."""

        def build(_: Any) -> Mapping[str, Manifest]:
            return {view: self.manifest(view, tasks) for view, tasks in views.items()}

        fold: Any = type("NoFold", (), {"corpus": self.corpus})()
        return Source(
            target="T",
            held_out=("T",),
            fold=fold,
            contexts=("A", "B"),
            context_names=("A", "B"),
            context_of=np.array(contexts),
            build=build,
        )

    @staticmethod
    def manifest(view: str, tasks: Sequence[int]) -> Manifest:
        n = len(tasks)
        return Manifest(
            view=view,
            tasks=np.array(tasks, np.int64),
            offsets=np.arange(n + 1) * 2,
            capability=np.tile([0, 1], n),
            role=np.tile(np.array([0, 1], np.int8), n),
            miner=np.zeros(2 * n, np.uint8),
            skipped={},
        )


@pytest.fixture
def case(worlds: Any) -> Case:
    tools = [worlds.Tool(n, "A", ()) for n in "ab"]
    asks = [worlds.Ask(f"t{i}", "A", "x", (("a",),)) for i in range(6)]
    return Case(build_corpus(worlds.records(tools, asks))[0])


def good_for(*tasks: int) -> Any:
    """A scorer that puts the gold first for the given tasks and last for all others."""

    def score(pairs: Pairs) -> Any:
        right = np.isin(pairs.task, tasks)
        return np.where(right == (pairs.capability == 0), 1.0, 0.0)

    return score


def test_the_measure_is_ndcg_at_5() -> None:
    assert MEASURE == "NDCG@5"


def test_contexts_count_alike_however_many_tasks_they_have(case: Case) -> None:
    """Context 0: three tasks right, one wrong. Context 1: one task wrong."""
    source = case.source({"v": [0, 1, 2, 3, 4]}, [0, 0, 0, 0, 1, -1])
    expected = ((3 + SECOND) / 4 + SECOND) / 2
    assert source_value(source, good_for(0, 1, 2)) == pytest.approx(expected)


def test_views_count_alike_however_many_tasks_they_have(case: Case) -> None:
    source = case.source({"large": [0, 1, 2, 3], "small": [4]}, [0] * 6)
    assert source_value(source, good_for(0, 1, 2, 3)) == pytest.approx((1 + SECOND) / 2)


def test_an_empty_view_is_left_out(case: Case) -> None:
    source = case.source({"empty": [], "v": [0]}, [0] * 6)
    assert source_value(source, good_for(0)) == 1.0


def test_no_list_at_all_is_an_error(case: Case) -> None:
    with pytest.raises(ValueError, match="target T: the sources have no list in any view"):
        source_value(case.source({"empty": []}, [0] * 6), good_for())


def test_tasks_without_a_context_are_left_out(case: Case) -> None:
    source = case.source({"v": [0, 1]}, [0, -1, 0, 0, 0, 0])
    assert source_value(source, good_for(0)) == 1.0
    with pytest.raises(ValueError, match="no list in any view"):
        source_value(case.source({"v": [1]}, [0, -1, 0, 0, 0, 0]), good_for())


def test_the_limit_takes_tasks_by_hash_in_every_view(case: Case) -> None:
    first, second, *rest = np.argsort(case.corpus.task_hash)
    source = case.source({"v": range(6), "w": range(6)}, [0] * 6)
    assert source_value(source, good_for(first, second), max_tasks=2) == 1.0
    assert source_value(source, good_for(*rest), max_tasks=2) == pytest.approx(SECOND)
    assert source_value(source, good_for(first, second), max_tasks=6) == pytest.approx((2 + 4 * SECOND) / 6)
    assert source_value(source, good_for(first, second)) == pytest.approx((2 + 4 * SECOND) / 6)


def test_a_scorer_sees_pairs_and_no_label(case: Case) -> None:
    seen: list[Any] = []

    def score(pairs: Pairs) -> Any:
        seen.append(pairs)
        return np.zeros(len(pairs))

    value = source_value(case.source({"v": [0]}, [0] * 6), score)
    assert value == pytest.approx((1 + SECOND) / 2)  # ties by expectation
    assert set(vars(seen[0])) == {"task", "capability"}

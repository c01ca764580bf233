"""Parts of the sources: what is held out is gone, and is valued on the lists that all sources have."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

TARGET = "D1"


@pytest.fixture(params=["domain", "judged", "library"])
def rules(request: Any, worlds: Any) -> Any:
    return worlds.Rules(universe=request.param, length=8, hard=4)


@pytest.mark.parametrize("held_out", [("D2",), ("D0", "D3")])
def test_nothing_of_a_removed_context_is_left(
    fixed_world: Any, make: Any, rules: Any, held_out: tuple[str, ...]
) -> None:
    source = make.source(fixed_world, rules, target=TARGET)
    part = source.without(held_out)
    corpus = fixed_world.corpus
    gone = [corpus.domains.index(name) for name in (*held_out, TARGET)]
    outside = np.flatnonzero(np.isin(corpus.task_domain, gone))
    assert part.target == TARGET
    assert part.contexts == tuple(c for c in source.contexts if c not in held_out)
    assert not np.isin(part.tasks, outside).any()
    assert (part.context_of[outside] == -1).all()
    for labels in (part.fold.labels.gold, part.fold.labels.given, part.fold.labels.gold_endpoints):
        assert labels[outside].nnz == 0
    assert not part.fold.gold_by_domain[gone].any()
    np.testing.assert_array_equal(part.fold.source_records, part.fold.gold_by_domain.sum(axis=0))
    assert part.fold.source_records.sum() < source.fold.source_records.sum()
    assert all(not np.isin(m.tasks, outside).any() for m in part.manifests.values())
    # The sources themselves are as they were.
    assert source.contexts == ("D0", "D2", "D3")
    assert np.isin(corpus.task_domain[source.tasks], [corpus.domains.index(n) for n in held_out]).any()


def test_lists_without_a_context_are_those_of_records_without_it(worlds: Any, make: Any, rules: Any) -> None:
    """Not only its tasks go: its gold makes no contextual negative of another context either."""
    records = worlds.fixed()
    world = worlds.of(records, top=12)
    source = make.source(world, rules, target=TARGET)
    part = source.without(("D2",))
    kept = tuple(t for t in records.tasks if t.domain not in (TARGET, "D2"))
    alone = worlds.of(replace(records, tasks=kept), top=12)
    changed = False
    for view, manifest in alone.manifests(alone.fold(rules)).items():
        assert world.readable(part.manifests[view]) == alone.readable(manifest)
        outer = source.manifests[view]
        changed |= world.readable(outer.restrict(np.isin(outer.tasks, part.tasks))) != alone.readable(manifest)
    assert changed


def test_validation_lists_are_the_outer_lists_of_these_tasks(fixed_world: Any, make: Any, rules: Any) -> None:
    source = make.source(fixed_world, rules, target=TARGET)
    part = source.validation(("D0", "D3"))
    corpus = fixed_world.corpus
    inside = np.isin(corpus.task_domain, [corpus.domains.index(n) for n in ("D0", "D3")])
    assert part.contexts == ("D0", "D3")
    np.testing.assert_array_equal(part.tasks, np.flatnonzero(inside))
    np.testing.assert_array_equal(part.context_of, np.where(inside, corpus.task_domain, -1))
    for view, outer in source.manifests.items():
        expected = [row for row in fixed_world.readable(outer) if row[0].startswith(("toy/task0", "toy/task3"))]
        assert fixed_world.readable(part.manifests[view]) == expected
        assert expected


def test_parts_divide_the_sources(fixed_world: Any, make: Any, rules: Any) -> None:
    source = make.source(fixed_world, rules, target=TARGET)
    train, held_out = source.without(("D2",)), source.validation(("D2",))
    assert set(train.contexts) | set(held_out.contexts) == set(source.contexts)
    np.testing.assert_array_equal(np.union1d(train.tasks, held_out.tasks), source.tasks)
    assert not np.intersect1d(train.tasks, held_out.tasks).size


def test_whether_there_are_lists(grid: Any, make: Any) -> None:
    assert make.fixed_source({"e": make.manifest({}), "v": make.manifest({0: ([0], [1])})}, grid).has_lists
    assert not make.fixed_source({"e": make.manifest({})}, grid).has_lists
    assert not make.fixed_source({}, grid).has_lists

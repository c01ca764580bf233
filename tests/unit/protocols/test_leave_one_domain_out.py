"""Leave-one-domain-out: the roles partition the tasks, and a purge takes exactly what it names."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolshift.protocols.folds import TASK_ROLES, FoldTable, SourceRules, fold_table
from toolshift.protocols.leave_one_domain_out import partition
from toolshift.protocols.partition import ProtocolError
from toolshift.protocols.purge import normalise


def of(world: Any, purge: Any, *, near_cosine: float = 0.95) -> FoldTable:
    return fold_table(
        partition(world.corpus),
        world.corpus,
        world.labels,
        rules=SourceRules(purge=purge, near_cosine=near_cosine),
        task_vectors=world.task_vectors,
        capability_vectors=world.capability_vectors,
    )


def names(world: Any, table: FoldTable, target: str, role: str) -> set[str]:
    return {world.corpus.task_ids[r].removeprefix("toy/") for r in table.rows(target, role=role)}


@pytest.fixture
def world(worlds: Any) -> Any:
    """B shares a tool with A through b0, and words through b1; b2 shares both, c0 nothing; n0 has no domain."""
    tools = [worlds.Tool(n, "X", ()) for n in "pqrs"]
    asks = [
        worlds.Ask("a0", "A", "find the rain", (("p",),)),
        worlds.Ask("b0", "B", "other words", (("p",), ("q",))),
        worlds.Ask("b1", "B", "Find the rain!", (("q",),)),
        worlds.Ask("b2", "B", "find the rain?", (("p",),)),
        worlds.Ask("c0", "C", "elsewhere entirely", (("r",),)),
        worlds.Ask("n0", "", "no domain at all", (("s",),)),
    ]
    return worlds.of(worlds.records(tools, asks))


@pytest.mark.parametrize(
    ("purge", "roles"),
    [
        ("none", {"train": {"b0", "b1", "b2", "c0", "n0"}, "test": {"a0"}, "purged_gold": set(), "purged_near": set()}),
        ("gold", {"train": {"b1", "c0", "n0"}, "test": {"a0"}, "purged_gold": {"b0", "b2"}, "purged_near": set()}),
        ("near", {"train": {"c0", "n0"}, "test": {"a0"}, "purged_gold": {"b0", "b2"}, "purged_near": {"b1"}}),
    ],
)
def test_roles_by_hand(world: Any, purge: str, roles: dict[str, set[str]]) -> None:
    table = of(world, purge)
    nothing: dict[str, set[str]] = {role: set() for role in TASK_ROLES}
    assert {role: names(world, table, "A", role) for role in TASK_ROLES} == nothing | roles


def test_every_domain_with_tasks_is_a_target(world: Any) -> None:
    table = of(world, "none")
    assert table.targets == ("A", "B", "C")  # X has tools only
    assert table.context_names == ("A", "B", "C", "X")
    assert table.protocol == "leave_one_domain_out"


def test_a_target_keeps_the_tasks_that_a_purge_would_take(world: Any) -> None:
    """b0, b1, b2 are near each other; inside the target nothing is purged."""
    assert names(world, of(world, "near"), "B", "test") == {"b0", "b1", "b2"}
    assert names(world, of(world, "near"), "B", "train") == {"c0", "n0"}


@given(data=st.data(), purge=st.sampled_from(["none", "gold", "near"]))
@settings(max_examples=40)
def test_roles_partition_the_tasks(worlds: Any, data: st.DataObject, purge: str) -> None:
    world = worlds.of(data.draw(worlds.drawn()))
    try:
        table = of(world, purge)
    except ProtocolError:
        assert len({t.domain for t in world.records.tasks} - {""}) < 2
        return
    tasks = world.records.tasks
    for target in table.targets:
        rows = [table.rows(target, role=role) for role in TASK_ROLES]
        np.testing.assert_array_equal(np.sort(np.concatenate(rows)), np.arange(len(tasks)))
        test = {t for t, task in enumerate(tasks) if task.domain == target}
        assert set(table.rows(target, role="test").tolist()) == test
        gold = {g for t in test for g in tasks[t].gold_capability_ids}
        words = {normalise(tasks[t].text) for t in test}
        for row in table.rows(target, role="train"):
            assert purge == "none" or not gold & set(tasks[row].gold_capability_ids)
            assert purge != "near" or normalise(tasks[row].text) not in words
        for row in table.rows(target, role="purged_gold"):
            assert purge != "none"
            assert gold & set(tasks[row].gold_capability_ids)


def test_every_task_is_tested_once(fixed_world: Any) -> None:
    table = of(fixed_world, "gold")
    np.testing.assert_array_equal((table.role == TASK_ROLES.index("test")).sum(axis=0), 1)


@pytest.mark.parametrize("domains", [("A", "A"), ("A", ""), ("", "")])
def test_fewer_than_two_domains_is_an_error(worlds: Any, domains: tuple[str, ...]) -> None:
    asks = [worlds.Ask(f"t{i}", d, "x", (("a",),)) for i, d in enumerate(domains)]
    world = worlds.of(worlds.records([worlds.Tool("a", "B", ())], asks))
    with pytest.raises(ProtocolError, match=f"at least two domains with tasks, toy has {len(set(domains) - {''})}"):
        of(world, "none")


def test_near_removes_no_less_than_gold(fixed_world: Any) -> None:
    for near_cosine in (0.99, 0.6):
        gold, near = of(fixed_world, "gold"), of(fixed_world, "near", near_cosine=near_cosine)
        for target in gold.targets:
            assert set(near.rows(target, role="train")) <= set(gold.rows(target, role="train"))
    assert (of(fixed_world, "near", near_cosine=0.6).role == TASK_ROLES.index("purged_near")).any()

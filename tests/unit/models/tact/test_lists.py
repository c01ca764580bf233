"""Training lists with roles: union over views, hardest role, weights, pairs inside a list, epochs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolshift.models.tact.lists import CONTEXTUAL, ORDINARY, POSITIVE, SEMANTIC, RoleBatch, RoleLists
from toolshift.runs.seeds import id_hashes
from toolshift.views.corpus import Corpus
from toolshift.views.manifest import ROLES


def batch(*lists: list[int]) -> RoleBatch:
    """Lists of role codes."""
    role = np.array([r for one in lists for r in one], np.int8)
    offsets = np.concatenate([[0], np.cumsum([len(one) for one in lists])]).astype(np.int64)
    return RoleBatch(index=np.arange(role.size) * 10, offsets=offsets, role=role)


def readable(lists: RoleLists) -> dict[int, dict[int, str]]:
    owner = np.repeat(lists.tasks, np.diff(lists.offsets))
    assert (owner == lists.pairs.task).all()
    found: dict[int, dict[int, str]] = {}
    for task, capability, role in zip(owner.tolist(), lists.pairs.capability.tolist(), lists.role, strict=True):
        found.setdefault(task, {})[capability] = ROLES[role]
    return found


def test_the_codes_are_those_of_the_manifest() -> None:
    assert [ROLES[code] for code in (POSITIVE, ORDINARY, SEMANTIC, CONTEXTUAL)] == [
        "positive",
        "ordinary",
        "semantic",
        "contextual",
    ]


@pytest.fixture
def views(stages: Any) -> Any:
    return {
        "natural": stages.manifest({0: {"positive": [2], "ordinary": [0, 1, 5]}, 3: {"positive": [1, 4]}}),
        "semantic": stages.manifest({0: {"positive": [2], "ordinary": [0], "semantic": [1, 3]}}),
        "context": stages.manifest({0: {"positive": [2], "contextual": [3], "ordinary": [1]}}),
    }


def test_lists_are_united_and_the_hardest_role_stands(views: Any, toy: Corpus) -> None:
    lists = RoleLists.of(views, toy, max_tasks=None)
    assert readable(lists) == {
        0: {0: "ordinary", 1: "semantic", 2: "positive", 3: "contextual", 5: "ordinary"},
        3: {1: "positive", 4: "positive"},
    }
    assert lists.tasks.tolist() == [0, 3]
    np.testing.assert_array_equal(lists.task_hash, toy.task_hash[[0, 3]])


def test_the_order_of_views_does_not_matter(views: Any, toy: Corpus) -> None:
    one = RoleLists.of(views, toy, max_tasks=None)
    other = RoleLists.of(dict(reversed(views.items())), toy, max_tasks=None)
    for name in ("tasks", "offsets", "role"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    np.testing.assert_array_equal(one.pairs.capability, other.pairs.capability)


def test_the_cap_keeps_the_tasks_with_the_smallest_hash(stages: Any, toy: Corpus) -> None:
    views = {"v": stages.manifest({t: {"positive": [0], "ordinary": [1]} for t in range(5)})}
    kept = RoleLists.of(views, toy, max_tasks=2).tasks
    assert kept.tolist() == sorted(np.argsort(id_hashes(toy.task_ids))[:2].tolist())
    assert RoleLists.of(views, toy, max_tasks=9).tasks.size == 5


def test_no_list_in_any_view(stages: Any, toy: Corpus) -> None:
    lists = RoleLists.of({"v": stages.manifest({})}, toy, max_tasks=None)
    assert lists.tasks.size == lists.role.size == len(lists.pairs) == 0
    assert lists.offsets.tolist() == [0]
    assert list(lists.epoch(0, seed=1, batch_tasks=4)) == []


@given(sizes=st.lists(st.integers(1, 5), min_size=1, max_size=12), seed=st.integers(0, 99), cut=st.integers(1, 5))
def test_an_epoch_covers_every_list_once(sizes: list[int], seed: int, cut: int) -> None:
    rng = np.random.default_rng(seed)
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    tasks = np.arange(len(sizes))
    pairs: Any = None
    role = rng.integers(0, 4, offsets[-1]).astype(np.int8)
    lists = RoleLists(
        tasks=tasks, offsets=offsets, pairs=pairs, role=role, task_hash=id_hashes([f"t{i}" for i in tasks])
    )
    batches = list(lists.epoch(0, seed=seed, batch_tasks=cut))
    assert sorted(np.concatenate([b.index for b in batches]).tolist()) == list(range(offsets[-1]))
    assert all(b.offsets.size - 1 <= cut for b in batches)
    starts = [int(b.index[o]) for b in batches for o in b.offsets[:-1]]
    assert sorted(starts) == offsets[:-1].tolist()  # whole lists, each from its own beginning
    for b in batches:
        np.testing.assert_array_equal(b.role, role[b.index])


def test_epochs_differ_and_repeat(stages: Any, shared_source: Any, fixed_world: Any) -> None:
    lists = RoleLists.of(shared_source.manifests, fixed_world.corpus, max_tasks=None)
    order = [np.concatenate([b.index for b in lists.epoch(n, seed=42, batch_tasks=8)]) for n in (0, 1, 0)]
    assert (order[0] == order[2]).all()
    assert (order[0] != order[1]).any()
    other = np.concatenate([b.index for b in lists.epoch(0, seed=43, batch_tasks=8)])
    assert (order[0] != other).any()


def test_without_a_role() -> None:
    some = batch([POSITIVE, CONTEXTUAL, ORDINARY], [CONTEXTUAL], [SEMANTIC, POSITIVE]).without(CONTEXTUAL)
    assert some.index.tolist() == [0, 20, 40, 50]
    assert some.offsets.tolist() == [0, 2, 2, 4]
    assert some.role.tolist() == [POSITIVE, ORDINARY, SEMANTIC, POSITIVE]
    assert some.owner.tolist() == [0, 0, 2, 2]


def test_weights_are_balanced_over_the_roles_that_a_list_has() -> None:
    """First list: 3 ordinary and 1 semantic share 4 evenly: 2/3 each and 2. Second: one role, weight 1."""
    some = batch([POSITIVE, ORDINARY, ORDINARY, ORDINARY, SEMANTIC], [ORDINARY, ORDINARY, POSITIVE], [POSITIVE])
    weights = some.balanced(ORDINARY, SEMANTIC, CONTEXTUAL)
    np.testing.assert_allclose(weights, [0, 2 / 3, 2 / 3, 2 / 3, 2, 1, 1, 0, 0])


@given(roles=st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=9), min_size=1, max_size=6))
def test_balanced_weights_sum_to_the_negatives(roles: list[list[int]]) -> None:
    some = batch(*roles)
    weights = some.balanced(ORDINARY, SEMANTIC, CONTEXTUAL)
    for number, one in enumerate(roles):
        mine = weights[some.owner == number]
        assert mine.sum() == pytest.approx(sum(r != POSITIVE for r in one))
        sums = [mine[np.array(one) == r].sum() for r in sorted({*one} - {POSITIVE})]
        assert np.ptp(sums) == pytest.approx(0.0) if sums else True


@given(roles=st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=7), min_size=1, max_size=6))
def test_positives_meet_the_negatives_of_their_own_list(roles: list[list[int]]) -> None:
    some = batch(*roles)
    for role in (ORDINARY, SEMANTIC, CONTEXTUAL):
        positives, negatives = some.against(role)
        found = list(zip(positives.tolist(), negatives.tolist(), strict=True))
        expected = [
            (p, n)
            for n in range(some.role.size)
            for p in range(some.role.size)
            if some.role[p] == POSITIVE and some.role[n] == role and some.owner[p] == some.owner[n]
        ]
        assert sorted(found) == sorted(expected)

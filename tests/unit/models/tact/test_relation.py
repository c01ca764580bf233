"""Relational refinement: starts at the anchor, is bounded, learns, and never sees a contextual negative."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolshift.models.tact.fold import TactFold
from toolshift.models.tact.lists import CONTEXTUAL
from toolshift.models.tact.path import anchored
from toolshift.models.tact.relation import FittedRelation, RelationSettings, exact_product, fit_relation

SETTINGS = RelationSettings(strength=0.1, penalty=0.01, temperature=0.05, rank=6, space="raw", learning_rate=0.01)


def fitted(fold: TactFold, *settings: RelationSettings, epochs: int = 3) -> list[tuple[FittedRelation, ...]]:
    return list(fit_relation(settings or [SETTINGS], fold, fold.start, epochs=epochs, batch_tasks=8))


def other_contextual(stages: Any, source: Any, world: Any) -> Any:
    """The same lists with other capabilities as contextual negatives, and one task without any."""
    changed = {}
    for view, manifest in source.manifests.items():
        lists: dict[int, dict[str, list[int]]] = {}
        for task, capability, role in zip(manifest.task_of, manifest.capability, manifest.role, strict=True):
            names = ("positive", "ordinary", "semantic", "contextual")
            if role != CONTEXTUAL:
                lists.setdefault(int(task), {}).setdefault(names[role], []).append(int(capability))
        used = {t: {c for v in source.manifests.values() for c in v.capability[v.task_of == t].tolist()} for t in lists}
        for place, (task, roles) in enumerate(sorted(lists.items())):
            free = [c for c in range(world.corpus.n_capabilities) if c not in used[task]]
            if place and view in ("context", "mixed"):
                roles["contextual"] = free[:3]
        changed[view] = stages.manifest(lists, view=view)
    return stages.with_lists(source, changed)


def test_by_hand(stages: Any, shared_bank: Any) -> None:
    """One column each: r = tanh(w x_1 c_2)."""
    dim = shared_bank.task_vectors.shape[1]
    left, right = np.zeros((dim, 1), np.float32), np.zeros((dim, 1), np.float32)
    left[0], right[1] = 1.0, 1.0
    stage = FittedRelation(strength=0.1, space="raw", left=left, right=right, weights=np.array([2.0], np.float32))
    pairs = stages.pairs()
    trace = anchored(pairs, bank=shared_bank, space="raw")
    x = shared_bank.task_vectors[pairs.task, 0] * shared_bank.capability_vectors[pairs.capability, 1]
    found = stage.apply(trace)
    np.testing.assert_allclose(found.relation, 0.1 * np.tanh(2 * x.astype(np.float64)), atol=1e-6)
    np.testing.assert_array_equal(found.anchor, trace.anchor)
    np.testing.assert_array_equal(found.related, trace.anchor + found.relation)


def test_training_begins_at_the_anchor(stages: Any, shared_source: Any) -> None:
    fold = stages.fold(shared_source)
    still = fitted(fold, replace(SETTINGS, learning_rate=0.0))[-1][0]
    assert not still.weights.any()
    np.testing.assert_array_equal(still.apply(fold.start).related, fold.start.anchor)


def test_the_term_is_bounded_and_moves(stages: Any, shared_source: Any) -> None:
    fold = stages.fold(shared_source)
    term = fitted(fold, replace(SETTINGS, learning_rate=0.3), epochs=5)[-1][0].apply(fold.start).relation
    assert np.abs(term).max() <= 0.1
    assert np.abs(term).max() > 0.05


def test_it_ranks_the_source_lists_better(stages: Any, shared_source: Any) -> None:
    fold = stages.fold(shared_source)
    lists = fold.lists.whole
    positives, negatives = (np.concatenate(x) for x in zip(*(lists.against(r) for r in (1, 2)), strict=True))

    def right(values: Any) -> float:
        return float((values[positives] > values[negatives]).mean())

    learned = fitted(fold, replace(SETTINGS, strength=0.4), epochs=15)[-1][0].apply(fold.start)
    assert right(learned.related) > right(fold.start.anchor) + 0.02


def test_side_by_side_is_one_by_one_up_to_rounding(stages: Any, shared_source: Any) -> None:
    fold = stages.fold(shared_source)
    settings = [SETTINGS, replace(SETTINGS, strength=0.05), replace(SETTINGS, strength=0.2, penalty=1.0)]
    together = fitted(fold, *settings)
    for place, setting in enumerate(settings):
        alone = fitted(fold, setting)
        for one, other in zip(alone, together, strict=True):
            assert other[place].strength == setting.strength
            for name, value in one[0].state().items():
                np.testing.assert_allclose(other[place].state()[name], value, atol=2e-4)
    assert (together[-1][0].weights != together[-1][2].weights).any()


def test_later_epochs_leave_earlier_ones_alone(stages: Any, shared_source: Any) -> None:
    fold = stages.fold(shared_source)
    short, long = fitted(fold, epochs=1), fitted(fold, epochs=3)
    assert stages.equal(short[0][0], long[0][0])
    assert not stages.equal(long[0][0], long[1][0])


def test_the_seed_matters_and_repeats(stages: Any, shared_source: Any) -> None:
    one, same, other = (fitted(stages.fold(shared_source, seed=seed))[-1][0] for seed in (1, 1, 2))
    assert stages.equal(one, same)
    assert not stages.equal(one, other)


def test_contextual_negatives_are_not_seen(stages: Any, shared_source: Any, fixed_world: Any) -> None:
    changed = other_contextual(stages, shared_source, fixed_world)
    folds = stages.fold(shared_source), stages.fold(changed)
    assert folds[0].lists.role.tolist() != folds[1].lists.role.tolist()
    assert (folds[0].lists.role == CONTEXTUAL).any()
    assert (folds[1].lists.role == CONTEXTUAL).any()
    one, other = (fitted(fold)[-1][0] for fold in folds)
    assert stages.equal(one, other)


def test_semantic_negatives_are_seen(stages: Any, shared_source: Any) -> None:
    kept = {v: m for v, m in shared_source.manifests.items() if v in ("natural", "context")}
    one, other = (fitted(stages.fold(s))[-1][0] for s in (shared_source, stages.with_lists(shared_source, kept)))
    assert not stages.equal(one, other)


def test_a_loss_that_is_not_finite_names_stage_and_epoch(stages: Any, shared_source: Any) -> None:
    fold = stages.fold(shared_source)
    poisoned = replace(fold.start, anchor=np.where(np.arange(fold.start.anchor.size) == 3, np.nan, fold.start.anchor))
    with pytest.raises(FloatingPointError, match="TACT, stage relation, epoch 1: the loss is not finite"):
        list(fit_relation([SETTINGS], fold, poisoned, epochs=2, batch_tasks=8))


@given(seed=st.integers(0, 1000), start=st.integers(0, 30), size=st.integers(1, 10))
def test_the_product_has_the_same_bits_for_any_part(seed: int, start: int, size: int) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((40, 384)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    matrix = rng.standard_normal((384, 16)).astype(np.float32)
    whole = exact_product(rows, matrix)
    np.testing.assert_array_equal(exact_product(rows[start : start + size], matrix), whole[start : start + size])
    np.testing.assert_allclose(whole, rows.astype(np.float64) @ matrix, atol=5e-5)

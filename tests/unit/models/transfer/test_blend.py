"""The linear blend: its signals, whose popularity counts, and its scores by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from toolshift.models.base import BadParameter, Limits, Source
from toolshift.models.features import Pairs
from toolshift.models.tact.signals import best_requirement_endpoint_cosine, untrained_match
from toolshift.models.transfer import blend
from toolshift.models.transfer.blend import SIGNALS, Blend, FittedBlend, own_records, signals
from toolshift.training.lists import TrainingLists

ALL = Limits(epochs=1, max_tasks=None)


@pytest.fixture(scope="module")
def small(worlds: Any) -> Any:
    """Gold of x: a0, a1, b0 and the task without a domain; gold of y: b1. z is nobody's."""
    tools = [worlds.Tool(n, "A", (worlds.Api(f"get {n}"),), f"text of {n}") for n in "xyz"]
    golds = {"a0": "x", "a1": "x", "b0": "x", "b1": "y", "free": "x"}
    domain = {"a": "A", "b": "B", "f": ""}
    asks = [worlds.Ask(name, domain[name[0]], f"ask {name}", ((gold,),)) for name, gold in golds.items()]
    return worlds.of(worlds.records(tools, asks))


@pytest.fixture
def source(small: Any, make: Any, worlds: Any) -> Source:
    """Every task has one list of x, y and z."""
    rows = {small.task(n): ([small.tool(g)], [small.tool(o) for o in "xyz" if o != g]) for n, g in
            {"a0": "x", "a1": "x", "b0": "x", "b1": "y", "free": "x"}.items()}  # fmt: skip
    corpus = small.corpus
    return Source(
        target="T",
        fold=small.fold(worlds.Rules()),
        held_out=("T",),
        contexts=("A", "B"),
        context_names=corpus.domains,
        context_of=corpus.task_domain.copy(),
        build=lambda _: {"v": make.manifest(rows)},
    )


def test_a_context_does_not_vouch_for_itself(small: Any, source: Source) -> None:
    """x has 4 records: 2 in A, 1 in B, 1 of the task without a context. y has 1, in B."""
    lists = TrainingLists.of(source.manifests, small.corpus, max_tasks=None).everything()
    others = source.fold.source_records[lists.capability] - own_records(source, lists)
    names = [small.corpus.task_ids[t].removeprefix("toy/") for t in lists.tasks]
    by_task = dict(zip(names, others.reshape(-1, 3).tolist(), strict=True))
    assert by_task == {
        "a0": [2, 1, 0],
        "a1": [2, 1, 0],
        "b0": [3, 0, 0],
        "b1": [3, 0, 0],
        "free": [3, 1, 0],  # its own record alone
    }


def test_the_fit_sees_that_popularity(small: Any, source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []

    def spy(features: Any, lists: Any, *, l2: float) -> Any:
        given.append((features, l2))
        return np.zeros(features.shape[1])

    monkeypatch.setattr(blend, "fit_conditional_logit", spy)
    list(Blend(l2=0.3).epochs(source, bank=small.bank(), seed=0, limits=ALL))
    ((features, l2),) = given
    rows = [[2, 1, 0], [2, 1, 0], [3, 0, 0], [3, 0, 0], [3, 1, 0]]
    expected = np.log1p(np.array(rows, float).ravel())
    np.testing.assert_allclose(features[:, -1], (expected - expected.mean()) / expected.std(), atol=1e-6)
    assert l2 == 0.3


def test_scores_by_hand(small: Any) -> None:
    bank = small.bank()
    pairs = Pairs(task=np.array([0, 0, 1]), capability=np.array([0, 2, 1]))
    weights = [2.0, *[0.0] * (len(SIGNALS) - 2), 3.0]
    fitted = FittedBlend(
        signals=SIGNALS,
        space="raw",
        weights=np.array(weights),
        source_records=np.array([4, 1, 0]),
        contexts_seen=("A",),
    )
    expected = 2 * bank.cosine(pairs) + 3 * np.log([5.0, 1.0, 2.0])
    np.testing.assert_allclose(fitted.score(pairs, bank=bank, seed=1), expected)
    assert fitted.record == {"weights": dict(zip(SIGNALS, weights, strict=True))}


def test_signals_are_the_cheap_rows(fixed_world: Any, make: Any) -> None:
    bank, pairs = fixed_world.bank(), make.all_pairs(fixed_world.corpus)
    expected = [
        bank.cosine(pairs),
        bank.bm25(pairs, k1=1.5, b=0.75),
        bank.schema_match(pairs, pool=4, operation=True),
        untrained_match(pairs, bank=bank),
        best_requirement_endpoint_cosine(pairs, bank=bank),
        bank.best_endpoint_cosine(pairs),
        np.log1p(np.arange(len(pairs))),
    ]
    found = signals(pairs, SIGNALS, bank=bank, records=np.arange(len(pairs)))
    np.testing.assert_array_equal(found, np.column_stack(expected))
    some = signals(pairs, ("log_source_records", "cosine"), bank=bank, records=np.arange(len(pairs)))
    np.testing.assert_array_equal(some, found[:, [6, 0]])


@pytest.mark.parametrize("names", [(), ("cosine", "cosine"), ("cosine", "sine")])
def test_signals_that_are_not_there_are_refused(names: tuple[str, ...]) -> None:
    with pytest.raises(BadParameter, match="expected some of cosine, bm25, schema_match"):
        Blend(signals=names)


def test_a_blend_of_one_signal_ranks_as_the_signal(fixed_world: Any, worlds: Any, make: Any) -> None:
    source, bank = make.source(fixed_world, worlds.Rules(length=8, hard=4), target="D1"), fixed_world.bank()
    pairs = make.all_pairs(fixed_world.corpus)
    (fitted,) = Blend(signals=("cosine",)).epochs(source, bank=bank, seed=0, limits=ALL)
    ratio = fitted.score(pairs, bank=bank, seed=0) / bank.cosine(pairs)
    np.testing.assert_allclose(ratio, ratio[0])
    assert not Blend.alike([Blend(), Blend(signals=("cosine",))])


def test_one_fit_on_raw_signals(fixed_world: Any, worlds: Any, make: Any) -> None:
    """Weights are those of standardised signals, put back on the raw ones: lists are ranked alike."""
    source = make.source(fixed_world, worlds.Rules(length=8, hard=4), target="D1")
    bank = fixed_world.bank()
    (fitted,) = Blend(l2=0.01).epochs(source, bank=bank, seed=0, limits=Limits(epochs=9, max_tasks=None))
    assert fitted.contexts_seen == source.contexts
    assert set(fitted.state()) == {"weights", "source_records"}
    np.testing.assert_array_equal(fitted.state()["source_records"], source.fold.source_records)
    (weak,) = Blend(l2=100.0).epochs(source, bank=bank, seed=0, limits=ALL)
    assert np.linalg.norm(weak.state()["weights"]) < np.linalg.norm(fitted.state()["weights"])
    (capped,) = Blend(l2=0.01).epochs(source, bank=bank, seed=0, limits=Limits(epochs=1, max_tasks=5))
    assert not np.array_equal(capped.state()["weights"], fitted.state()["weights"])


def test_fits_together_are_the_fits_alone(fixed_world: Any, worlds: Any, make: Any) -> None:
    source, bank = make.source(fixed_world, worlds.Rules(length=8, hard=4), target="D1"), fixed_world.bank()
    models = [Blend(l2=1.0), Blend(l2=0.001)]
    (together,) = Blend.together(models, source, bank=bank, seed=0, limits=ALL)
    for model, fitted in zip(models, together, strict=True):
        (alone,) = model.epochs(source, bank=bank, seed=0, limits=ALL)
        assert isinstance(fitted, FittedBlend) and isinstance(alone, FittedBlend)
        np.testing.assert_array_equal(fitted.weights, alone.weights)
    assert not np.array_equal(together[0].state()["weights"], together[1].state()["weights"])

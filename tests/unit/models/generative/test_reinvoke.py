"""Re-Invoke's ranking and tool vectors by hand, its stand-in's templates, and what each mechanism does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolshift.data.records import Argument, Endpoint
from toolshift.models.base import BadParameter
from toolshift.models.generative import reinvoke
from toolshift.models.generative.reinvoke import (
    ReInvokeStandin,
    multi_view,
    required,
    template_queries,
    tool_vectors,
)

LONG = 0.91**0.5


@pytest.fixture
def bank(grid: Any, make: Any) -> Any:
    """Intent ``one``: apple 1, berry .9, cedar .5, dates 0. Intent ``two``: dates .3, apple 0, berry, cedar below 0."""
    s = 0.19**0.5
    vectors = {
        "apple": (1, 0, 0),
        "berry": (0.9, s, 0),
        "cedar": (0.5, 0.75**0.5, 0),
        "dates": (0, 0, 1),
        "one": (1, 0, 0),
        "two": (0, -LONG, 0.3),
    }
    return make.bank(grid, vectors)


def test_the_ranking_by_hand(grid: Any, make: Any, bank: Any) -> None:
    """First for some intent comes before second for the best one, whatever the cosine: dates (.3) before berry (.9)."""
    found = multi_view(make.all_pairs(grid), {0: ("one", "two")}, bank=bank, tools=bank.capability_vectors)
    np.testing.assert_allclose(found[:4], [40 + 1.0, 30 + 0.9, 20 + 0.5, 40 + 0.3], atol=2e-6)
    np.testing.assert_array_equal(found[4:], 0.0)  # no intent, no list: all candidates tie


def test_one_intent_is_its_cosine_order(grid: Any, make: Any, bank: Any) -> None:
    pairs = make.all_pairs(grid)
    found = multi_view(pairs, {0: ("one",), 1: ("two",)}, bank=bank, tools=bank.capability_vectors)
    np.testing.assert_allclose(found[:4], [41, 30.9, 20.5, 10], atol=2e-6)
    low = [-LONG * x for x in (0.19**0.5, 0.75**0.5)]
    np.testing.assert_allclose(found[4:8], [30, 20 + low[0], 10 + low[1], 40.3], atol=2e-6)


def test_the_order_of_intents_is_of_no_account(grid: Any, make: Any, bank: Any) -> None:
    pairs, tools = make.all_pairs(grid), bank.capability_vectors
    one, other = (multi_view(pairs, {0: i}, bank=bank, tools=tools) for i in (("one", "two"), ("two", "one")))
    np.testing.assert_array_equal(one, other)


@given(
    rows=st.lists(
        st.lists(st.sampled_from([-1.0, -0.5, 0.0, 0.25, 1.0]), min_size=5, max_size=5), min_size=1, max_size=4
    )
)
def test_the_scalar_keeps_the_order_of_the_tuples(rows: list[list[float]]) -> None:
    """10 rr + cosine against the lexicographic maximum of (rr, cosine), for any cosines."""
    similarity = np.array(rows)
    reversed_rank = 5 - (similarity[:, None, :] > similarity[:, :, None]).sum(axis=2)
    tuples = [max((int(r[c]), float(s[c])) for r, s in zip(reversed_rank, similarity, strict=True)) for c in range(5)]
    scalars = (10.0 * reversed_rank + similarity).max(axis=0)
    for a in range(5):
        for b in range(5):
            assert (tuples[a] > tuples[b]) == (scalars[a] > scalars[b])


def test_a_tool_is_the_mean_of_its_copies(grid: Any, make: Any) -> None:
    vectors = {
        "Documentation: apple Query: q1": (1, 0),
        "Documentation: apple Query: q2": (0, 1),
        "Documentation: berry Query: q1": (0, 1),
        "cedar": (0.6, 0.8),
        "dates": (1, 0),
    }
    bank = make.bank(grid, vectors)
    found = tool_vectors((("q1", "q2"), ("q1",), (), ()), bank=bank, words=10)
    half = 0.5**0.5
    np.testing.assert_allclose(found[:, :2], [[half, half], [0, 1], [0.6, 0.8], [1, 0]], atol=1e-6)


def endpoint(operation: str, description: str = "", required: tuple[str, ...] = ()) -> Endpoint:
    arguments = tuple(Argument(name=name, required=True) for name in required)
    return Endpoint(
        endpoint_id=f"c/{operation}",
        capability_id="c",
        operation=operation,
        description=description,
        arguments=(*arguments, Argument(name="extra", required=False)),
    )


def test_templates_take_turns_over_endpoints() -> None:
    two = [endpoint("getRain", "Tells the  rain.", ("cityName", "date")), endpoint("list_winds")]
    assert template_queries(two, limit=10) == (
        "I want to get rain.",
        "I want to list winds.",
        "Can you help me with this: Tells the rain.",
        "Please get rain for the city name and the date that I give you.",
    )
    assert template_queries(two, limit=3) == template_queries(two, limit=10)[:3]
    assert template_queries([], limit=3) == ()


def test_of_many_endpoints_some_are_taken_evenly() -> None:
    many = [endpoint(f"op{i:02d}") for i in range(21)]
    wanted = tuple(f"I want to {reinvoke._operation(many[i])}." for i in (0, 5, 10, 15, 20))
    assert template_queries(many, limit=5) == wanted


def test_equal_endpoints_give_one_query() -> None:
    assert template_queries([endpoint("a b"), endpoint("a_b")], limit=9) == ("I want to a b.",)


def test_intents_are_requirements_or_the_whole_task(grid: Any, make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "toolshift.text.requirements.requirements", lambda text: ("x", "y", "x") if text == "task t0" else ()
    )
    assert required(make.all_pairs(grid), grid) == {0: ("x", "y"), 1: ("task t1",), 2: ("task t2",)}


@pytest.mark.parametrize("mechanism", ["queries", "intents", "ranks"])
def test_without_a_mechanism_scores_change(
    fixed_world: Any, make: Any, monkeypatch: pytest.MonkeyPatch, mechanism: str
) -> None:
    pairs, row = make.all_pairs(fixed_world.corpus), ReInvokeStandin()
    two = {"please list": ("please", "list")}
    monkeypatch.setattr("toolshift.text.requirements.requirements", lambda text: two.get(text[:11], text.split()[:3]))
    whole = row.score(pairs, bank=fixed_world.bank(), seed=0)
    changes: dict[str, tuple[str, Any]] = {
        "queries": ("template_queries", lambda endpoints, limit: ()),
        "intents": ("required", lambda p, corpus: {int(t): (corpus.task_texts[t],) for t in np.unique(p.task)}),
        "ranks": ("ranked_lists", lambda *a, **k: (_flat(one) for one in _lists(*a, **k))),
    }
    name, changed = changes[mechanism]
    _lists = reinvoke.ranked_lists
    monkeypatch.setattr(reinvoke, name, changed)
    without = row.score(pairs, bank=fixed_world.bank(), seed=0)
    order = [np.argsort(-s.reshape(fixed_world.corpus.n_tasks, -1), axis=1, kind="stable") for s in (whole, without)]
    assert (order[0] != order[1]).any()


def _flat(one: Any) -> Any:
    """The list as if every tool had the same rank: what is left is the largest cosine."""
    from dataclasses import replace

    return replace(one, rank=np.ones_like(one.rank))


def test_fewer_queries_change_scores(fixed_world: Any, make: Any) -> None:
    pairs = make.all_pairs(fixed_world.corpus)
    few, many = (ReInvokeStandin(queries=n).score(pairs, bank=fixed_world.bank(), seed=0) for n in (1, 10))
    assert (few != many).any()


@pytest.mark.parametrize("bad", [{"queries": 0}, {"document_words": 0}])
def test_parameters_out_of_range(bad: dict[str, int]) -> None:
    with pytest.raises(BadParameter, match="reinvoke_standin"):
        ReInvokeStandin(**bad)

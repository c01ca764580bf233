"""Role rules on hand-worked cases: each condition of a rule, taken away alone, flips the outcome."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from toolshift.views.roles import contains, contextual, given, ordinary, packed_rows, positive, semantic

Case = Callable[..., set[str]]


@pytest.fixture(scope="module")
def case(worlds: Any) -> Case:
    """The tools that a rule offers for task ``t`` of domain Home.

    Gold of ``t``: ``home``, which gets rain by city. The candidate ``x`` has the category Away, so only ``mined`` can
    propose it. ``asked_in``: domains of further tasks for which x is gold; ``given_in``: for which x is given.
    """

    def offered(
        rule: Any,
        *,
        operation: str = "convert units",
        required: tuple[str, ...] = ("amount",),
        mined: str | None = "bm25",
        asked_in: tuple[str, ...] = ("Home",),
        given_in: tuple[str, ...] = (),
        gold: bool = False,
        domain: str = "Home",
        rows: tuple[str, ...] | None = None,
        **rules: Any,
    ) -> set[str]:
        tools = [
            worlds.Tool("home", "Home", (worlds.Api("get rain", ("city",)),)),
            worlds.Tool("idle", "Elsewhere", (worlds.Api("get snow", ("city",)),)),
            worlds.Tool("x", "Away", (worlds.Api(operation, required),)),
        ]
        own = (("home", "get rain"), *((("x", operation),) if gold else ()))
        asks = [worlds.Ask("t", domain, "rain", own)]
        asks += [worlds.Ask(f"gold{i}", d, "else", (("x", operation),)) for i, d in enumerate(asked_in)]
        asks += [worlds.Ask(f"given{i}", d, "else", (("home", "get rain"),), ("x",)) for i, d in enumerate(given_in)]
        lists = {name: {"t": ["x"]} if mined == name else {} for name in ("bm25", "dense")}
        world = worlds.of(worlds.records(tools, asks), **lists)
        kept = None if rows is None else [world.task(r) for r in rows]
        offer = rule(world.fold(worlds.Rules(**rules), rows=kept))
        here = offer.task == world.task("t")
        return {world.corpus.capability_ids[c].removeprefix("toy/") for c in offer.capability[here]}

    return offered


# ------------------------------------------------------------------------------------------------------- semantic


@pytest.mark.parametrize("mined", ["bm25", "dense"])
def test_semantic_candidate(case: Case, mined: str) -> None:
    assert case(semantic, mined=mined) == {"x"}


@pytest.mark.parametrize(
    "change",
    [
        {"mined": None},
        {"gold": True},
        {"operation": "fetch units"},  # the verb class of "get"
        {"required": ("city",)},
        {"required": ("city", "a", "b", "c", "d")},  # overlap 1/5: not below .2
        {"required": ("City",)},
        {"asked_in": ("Away",)},  # outside the universe of Home
        {"asked_in": (), "given_in": ("Away",)},
        {"asked_in": (), "universe": "judged"},
        {"miner": "dense"},
        {"miner": "category"},
        {"rows": ("t",)},  # the task that puts x into the universe is not in the fold
    ],
    ids=str,
)
def test_semantic_candidate_no_more(case: Case, change: dict[str, Any]) -> None:
    assert case(semantic, **change) == set()


@pytest.mark.parametrize(
    "change",
    [
        {"operation": "units"},  # no known verb shares nothing
        {"required": ()},  # the gold requires something
        {"required": ("city", "a", "b", "c", "d", "e")},  # overlap 1/6
        {"required": ("city", "a"), "argument_overlap": 0.6},
        {"asked_in": (), "given_in": ("Home",)},  # given makes a tool available, too
        {"asked_in": ("Away",), "universe": "judged"},
        {"asked_in": (), "given_in": ("Away",), "universe": "judged"},
        {"asked_in": (), "universe": "library"},
        {"asked_in": ("Away",), "domain": ""},  # a task without a domain draws from everything judged
        {"miner": "bm25"},
    ],
    ids=str,
)
def test_still_a_semantic_candidate(case: Case, change: dict[str, Any]) -> None:
    assert case(semantic, **change) == {"x"}


# ----------------------------------------------------------------------------------------------------- contextual

FITS = {"operation": "fetch units", "asked_in": ("Away",)}


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"required": ("city",)},  # arguments do not matter
        {"given_in": ("Home",)},  # being offered in the own domain is no record of use
        {"miner": "bm25"},
        {"universe": "judged"},
        {"universe": "library"},
        {"rows": ("t", "gold0")},
    ],
    ids=str,
)
def test_contextual_candidate(case: Case, change: dict[str, Any]) -> None:
    assert case(contextual, **{**FITS, **change}) == {"x"}


@pytest.mark.parametrize(
    "change",
    [
        {"mined": None},
        {"gold": True},
        {"operation": "convert units"},
        {"operation": "units"},
        {"domain": ""},  # no own domain, so no other one (validity.md section 7)
        {"asked_in": ()},  # no source record
        {"asked_in": (), "given_in": ("Away",)},  # given is no source record
        {"asked_in": ("Away", "Home")},  # used in the task's own domain
        {"asked_in": ("Home",)},
        {"miner": "dense"},
        {"rows": ("t",)},  # its record lies outside the fold
    ],
    ids=str,
)
def test_contextual_candidate_no_more(case: Case, change: dict[str, Any]) -> None:
    assert case(contextual, **{**FITS, **change}) == set()


# ------------------------------------------------------------------------------- ordinary, given, positive, universe


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"asked_in": ("Home",)}, {"x"}),
        ({"asked_in": ("Home",), "mined": None}, {"x"}),
        ({"asked_in": (), "given_in": ("Home",)}, {"x"}),
        ({"asked_in": ("Away",)}, set()),
        ({"asked_in": ("Home",), "gold": True}, set()),
        ({"asked_in": ("Away",), "universe": "judged"}, {"x"}),
        ({"asked_in": (), "universe": "judged"}, set()),
        ({"asked_in": (), "universe": "library"}, {"x", "idle"}),
        ({"asked_in": ("Away",), "domain": ""}, {"x"}),
        ({"asked_in": ("Home",), "rows": ("t",)}, set()),
        ({"asked_in": ("Home",), "rows": ("t",), "universe": "library"}, {"x", "idle"}),
    ],
    # A set has another order under another hash seed, and parallel test processes must agree on names.
    ids=lambda value: str(sorted(value)) if isinstance(value, set) else str(value),
)
def test_ordinary_is_the_universe_without_gold(case: Case, change: dict[str, Any], expected: set[str]) -> None:
    assert case(ordinary, **change) == expected


def test_given_and_positive(worlds: Any) -> None:
    tools = [worlds.Tool(n, "A", (worlds.Api("get"),)) for n in "abc"]
    asks = [
        worlds.Ask("t", "A", "x", (("a", "get"), ("b", "get")), ("b", "c")),
        worlds.Ask("u", "A", "x", (("c", "get"),), ("a",)),
    ]
    world = worlds.of(worlds.records(tools, asks))
    fold = world.fold(worlds.Rules(), rows=[world.task("t")])
    assert [(int(t), int(c)) for t, c in zip(given(fold).task, given(fold).capability, strict=True)] == [(0, 2)]
    pairs = zip(positive(fold).task.tolist(), positive(fold).capability.tolist(), strict=True)
    assert list(pairs) == [(0, 0), (0, 1)]


@pytest.mark.parametrize(
    ("universe", "home", "away", "nowhere"),
    [
        ("domain", {"home", "x"}, {"y"}, {"home", "x", "y"}),
        ("judged", {"home", "x", "y"}, {"home", "x", "y"}, {"home", "x", "y"}),
        ("library", {"home", "idle", "x", "y"}, {"home", "idle", "x", "y"}, {"home", "idle", "x", "y"}),
    ],
)
def test_universes(worlds: Any, universe: str, home: set[str], away: set[str], nowhere: set[str]) -> None:
    """Own category of a tool does not matter, only where tasks judge it."""
    tools = [worlds.Tool(n, "Home", (worlds.Api("get"),)) for n in ("home", "idle", "x", "y")]
    asks = [worlds.Ask("t", "Home", "x", (("home",),), ("x",)), worlds.Ask("u", "Away", "x", (("y",),))]
    world = worlds.of(worlds.records(tools, asks))
    available = world.fold(worlds.Rules(universe=universe)).available
    names = [i.removeprefix("toy/") for i in world.corpus.capability_ids]
    rows = {name: {names[c] for c in np.flatnonzero(available[r])} for r, name in enumerate(world.corpus.domains)}
    assert rows == {"Home": home, "Away": away}
    assert {names[c] for c in np.flatnonzero(available[-1])} == nowhere


def test_the_category_miner_proposes_the_category_of_the_gold(worlds: Any) -> None:
    tools = [
        worlds.Tool("home", "Tools", (worlds.Api("get rain", ("city",)),)),
        worlds.Tool("near", "Tools", (worlds.Api("convert rain", ("amount",)),)),
        worlds.Tool("far", "Other", (worlds.Api("convert rain", ("amount",)),)),
    ]
    asks = [worlds.Ask("t", "Home", "x", (("home", "get rain"),), ("near", "far"))]
    world = worlds.of(worlds.records(tools, asks), bm25={}, dense={})
    for miner in ("union", "category"):
        offer = semantic(world.fold(worlds.Rules(miner=miner)))
        assert [world.corpus.capability_ids[c] for c in offer.capability] == ["toy/near"]
    assert semantic(world.fold(worlds.Rules(miner="bm25"))).task.size == 0


def test_packed_rows_by_hand() -> None:
    index, row = packed_rows(np.array([0, 2, 2, 5]), np.array([2, 0, 1, 2]))
    np.testing.assert_array_equal(index, [2, 3, 4, 0, 1, 2, 3, 4])
    np.testing.assert_array_equal(row, [2, 2, 2, 0, 0, 2, 2, 2])


def test_contains() -> None:
    np.testing.assert_array_equal(contains(np.array([1, 4, 9]), np.array([0, 1, 9, 10])), [False, True, True, False])
    np.testing.assert_array_equal(contains(np.zeros(0, np.int64), np.array([0])), [False])

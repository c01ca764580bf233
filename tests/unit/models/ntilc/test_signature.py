"""Renderings, signatures and compatibility of tools, by hand and as properties."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolshift.data.records import Argument, Endpoint, Library
from toolshift.models.base import BadParameter
from toolshift.models.ntilc.signature import (
    TEXT_LIMIT,
    CodeCompat,
    Signatures,
    known_compat,
    render_tool,
    signature,
)


def test_a_tool_is_rendered_with_everything_it_is(build: Any) -> None:
    some = build.library(
        {
            "text": "Weather: rain and wind | operations: op0; other",
            "domain": "Geo",
            "description": "Now.",
            "method": "GET",
            "returns": ("temperature", "wind"),
            "arguments": (build.argument("zip", "number"), Argument(name="day", raw_type="DATE", description="When")),
        }
    )
    assert render_tool(some.endpoints[0], some.capabilities[0]) == (
        "Weather: rain and wind | op0: Now. | arguments: zip (number, required); day (DATE): When"
        " | returns: temperature, wind | method: GET | domain: Geo"
    )


def test_long_descriptions_leave_room_for_the_arguments(build: Any) -> None:
    long = "word " * 1000
    some = build.library({"text": f"t: {long}", "description": long + "x", "arguments": (build.argument("zip"),)})
    text = render_tool(some.endpoints[0], some.capabilities[0])
    assert len(text) < 2 * TEXT_LIMIT + 100
    assert "arguments: zip (string, required)" in text
    assert "  " not in text


def test_the_items_of_a_signature(build: Any) -> None:
    arguments = (
        build.argument("City", "string"),
        build.argument("page", "number", required=False),
        build.argument("day", "unknown", required=None),
    )
    some = build.library({"arguments": arguments, "method": "GET", "returns": ("Temp",), "domain": "Geo"})
    found = signature(some.endpoints[0], some.capabilities[0])
    assert found == {"arg:city", "type:city:string", "arg:day", "ret:temp", "meta:method=get", "meta:domain=geo"}


def test_compat_by_hand(build: Any) -> None:
    """Name and type of city in common, of 2 + 3 items; a wrong type leaves the name in common; two empty ones match."""
    some = build.library(
        {"arguments": (build.argument("city"),)},
        {"arguments": (build.argument("city"), build.argument("x", "unknown"))},
        {"arguments": (build.argument("city", "number"),)},
        {},
        {},
    )
    table = Signatures.of(some)
    every = np.arange(5)
    expected = [
        [1, 2 / 3, 1 / 3, 0, 0],
        [2 / 3, 1, 1 / 4, 0, 0],
        [1 / 3, 1 / 4, 1, 0, 0],
        [0, 0, 0, 1, 1],
        [0, 0, 0, 1, 1],
    ]
    np.testing.assert_allclose(table.compat(every, every), expected, rtol=1e-6)
    assert table.empty_pairs == 1
    assert table.pairs(np.array([0, 1]), np.array([2, 4])).tolist() == pytest.approx([1 / 3, 0])


KINDS = st.sampled_from(["string", "number", "unknown"])
ARGUMENTS = st.lists(
    st.builds(Argument, name=st.sampled_from("abcdA"), type=KINDS, required=st.sampled_from([True, False, None])),
    max_size=5,
).map(tuple)
TOOL = st.fixed_dictionaries(
    {"arguments": ARGUMENTS, "method": st.sampled_from(["", "GET"]), "returns": st.sampled_from([(), ("x",)])}
)


@settings(max_examples=50, deadline=None)
@given(st.lists(TOOL, min_size=1, max_size=8), st.sampled_from([Signatures, CodeCompat]))
def test_compat_is_symmetric_bounded_and_one_on_the_diagonal(build: Any, tools: list[Any], kind: Any) -> None:
    compat = kind.of(build.library(*[dict(t) for t in tools]))
    every = np.arange(len(tools))
    table = compat.compat(every, every)
    np.testing.assert_array_equal(table, table.T)
    assert table.min() >= 0
    assert table.max() <= 1
    np.testing.assert_allclose(np.diag(table), 1.0, atol=1e-6)
    left, right = np.divmod(np.arange(len(tools) ** 2), len(tools))
    np.testing.assert_allclose(compat.pairs(left, right), table.ravel(), atol=1e-6)
    blocks = [block for _, block in compat.compat_blocks(rows_per_block=3)]
    np.testing.assert_allclose(np.concatenate(blocks), table, atol=1e-6)


def test_large_blocks_equal_small_ones() -> None:
    rng = np.random.default_rng(0)
    items = [
        frozenset({"meta:get", *(f"arg:{i}" for i in rng.integers(0, 40 if n % 2 else 4000, 4))}) for n in range(1100)
    ]
    table = Signatures.of_items(items)
    whole = table.compat(np.arange(1100), np.arange(1100))
    some = rng.integers(0, 1100, 50)
    np.testing.assert_allclose(whole[some], table.compat(some, np.arange(1100)), atol=1e-6)
    i, j = 3, 8
    assert whole[i, j] == pytest.approx(len(items[i] & items[j]) / len(items[i] | items[j]))


def test_the_code_form_by_hand(build: Any) -> None:
    """Same interface, other parents; required {a}, {a, b}; names {a, c}, {a, b}; the type of a differs."""
    some = build.library(
        {"method": "GET", "arguments": (build.argument("a"), build.argument("c", required=False))},
        {"method": "get", "arguments": (build.argument("a", "number"), build.argument("b"))},
    )
    found = CodeCompat.of(some).compat(np.array([0]), np.array([1]))[0, 0]
    assert found == pytest.approx(0.30 + 0.20 * 2 / 3 + 0.15 * 0.5 + 0.10 * 0 + 0.05 * 0.5 + 0.05 + 0.05)


def test_no_tools_and_unknown_names() -> None:
    empty = Signatures.of(Library(capabilities=(), endpoints=()))
    assert (empty.n_tools, empty.empty_pairs, list(empty.compat_blocks())) == (0, 0, [])
    assert CodeCompat.of(Library(capabilities=(), endpoints=())).n_tools == 0
    with pytest.raises(BadParameter, match="expected one of signature, code"):
        known_compat("jaccard", model="ntilc")


def test_one_endpoint_rendered_twice_is_one_text() -> None:
    one = Endpoint(endpoint_id="d/a", capability_id="d/a", operation="get_x")
    from toolshift.models.ntilc.signature import render

    assert render(one, capability_text="get x", domain="") == "get x"

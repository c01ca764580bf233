from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolshift.settings.convert import freeze, from_mapping, kind_problem
from toolshift.settings.errors import ConfigError, UserError, exit_code_of, is_user_facing
from toolshift.settings.nearest import nearest, suggestion


@dataclass(frozen=True, kw_only=True)
class Inner:
    depth: int
    rate: float


@dataclass(frozen=True, kw_only=True)
class Outer:
    label: str
    mode: Literal["fast", "slow"]
    limit: int | None
    flag: bool
    sizes: tuple[int, ...]
    inner: Inner
    rows: Mapping[str, Inner]
    params: Mapping[str, Any]


def good() -> dict[str, Any]:
    return {
        "label": "a",
        "mode": "fast",
        "limit": None,
        "flag": True,
        "sizes": [1, 2],
        "inner": {"depth": 3, "rate": 1},
        "rows": {"x": {"depth": 1, "rate": 0.5}},
        "params": {"list": [1, [2]], "none": None},
    }


def test_good_values_become_frozen_settings() -> None:
    outer = from_mapping(Outer, good())
    assert outer.sizes == (1, 2)
    assert outer.inner == Inner(depth=3, rate=1.0)
    assert isinstance(outer.inner.rate, float)
    assert outer.rows == {"x": Inner(depth=1, rate=0.5)}
    assert outer.params == {"list": (1, (2,)), "none": None}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"label": 3}, "label: expected text, got 3"),
        ({"mode": "fsat"}, "mode: 'fsat' is not an option; did you mean 'fast'? (valid: fast, slow)"),
        ({"limit": "x"}, "limit: expected a whole number or null, got 'x'"),
        ({"limit": True}, "limit: expected a whole number or null, got True"),
        ({"flag": 1}, "flag: expected true or false, got 1"),
        ({"flag": None}, "flag: expected true or false, got None"),
        ({"sizes": 3}, "sizes: expected a list, got 3"),
        ({"sizes": [1, "b"]}, "sizes[1]: expected a whole number, got 'b'"),
        ({"inner": 3}, "inner: expected a mapping, got 3"),
        ({"inner": {"depth": 1.5, "rate": 1}}, "inner.depth: expected a whole number, got 1.5"),
        ({"inner": {"depth": 1}}, "inner.rate: this key is missing"),
        (
            {"rows": {"x": {"depht": 1, "rate": 1}}},
            "rows.x.depht: no such key; did you mean 'depth'? (valid: depth, rate)",
        ),
        ({"rows": []}, "rows: expected a mapping, got []"),
        ({"params": [1]}, "params: expected a mapping, got [1]"),
    ],
)
def test_a_bad_value_is_named_with_what_was_expected(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        from_mapping(Outer, good() | change)
    assert message in caught.value.problems


def test_all_problems_are_reported_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        from_mapping(Outer, good() | {"label": 1, "flag": "no", "lable": "a"}, where="conf")
    assert [problem.split(":")[0] for problem in caught.value.problems] == ["conf.lable", "conf.label", "conf.flag"]


scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5)
trees = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner))


@given(st.dictionaries(st.sampled_from([*good(), "other"]), trees))
def test_anything_either_converts_or_is_a_config_error(change: dict[str, Any]) -> None:
    try:
        outer = from_mapping(Outer, good() | change)
    except ConfigError as error:
        assert error.problems
    else:
        assert isinstance(outer.label, str)
        assert type(outer.flag) is bool
        assert all(type(size) is int for size in outer.sizes)


@given(scalars | st.lists(st.integers()) | st.lists(st.text()) | st.dictionaries(st.text(), scalars))
def test_a_value_fits_itself_as_example(value: Any) -> None:
    assert kind_problem(value, value) is None


@pytest.mark.parametrize(
    ("value", "example", "fits"),
    [
        (1, 1.5, True),
        (1.5, 1, False),
        (True, 1, False),
        (True, 1.5, False),
        (1, True, False),
        (None, "a", False),
        ("a", None, True),
        ([1], None, False),
        ([1, 2], [0.5], True),
        (["a"], [0.5], False),
        ((1,), [0], True),
        ([], [0], True),
    ],
)
def test_kinds(value: object, example: object, *, fits: bool) -> None:
    assert (kind_problem(value, example) is None) is fits


@given(trees)
def test_frozen_values_hold_no_list(value: Any) -> None:
    def lists(node: Any) -> bool:
        children = node.values() if isinstance(node, dict) else node if isinstance(node, tuple) else ()
        return isinstance(node, list) or any(map(lists, children))

    assert not lists(freeze(value))


def test_nearest_name() -> None:
    assert nearest("domian", ["domain", "judged", "library"]) == "domain"
    assert nearest("BM25", ["bm25", "rrf"]) == "bm25"
    assert nearest("x", []) is None
    assert suggestion("x", []) == ""
    many = [f"name{i:02d}" for i in range(30)]
    assert suggestion("name7", many) == "; did you mean 'name07'?"


def test_errors_say_how_they_are_shown() -> None:
    class Flagged(ValueError):
        user_facing = True

    assert is_user_facing(UserError("x"))
    assert is_user_facing(Flagged("x"))
    assert not is_user_facing(ValueError("x"))
    assert [exit_code_of(e) for e in (UserError("x"), ConfigError("x"), ValueError("x"))] == [1, 2, 1]
    again = pickle.loads(pickle.dumps(ConfigError(["a", "b"])))
    assert again.problems == ("a", "b")
    assert str(again) == "a\nb"

"""Endpoint Schema Match by hand (baselines.md section 1); loops are in test_features."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from toolshift.models.frozen.endpoint_schema_match import EndpointSchemaMatch
from toolshift.text.spans import detected_types, spans
from toolshift.views.corpus import build_corpus

# Unit vectors in the plane, by their cosine with the task.
ANGLES = {
    "rain": 1.0,  # the task: one span, which is the text itself, and no type
    "first": 0.8,
    "second": 0.6,
    "third": 0.2,
    "against": -0.5,
    "city": 0.5,
    "date": -0.4,
    "unit": 1.0,
    "tool": 0.3,
}
VECTORS = {text: (c, np.sqrt(1 - c * c)) for text, c in ANGLES.items()}


@pytest.fixture
def score(worlds: Any, make: Any) -> Any:
    def scored(*apis: tuple[str, ...], text: str = "rain", **parameters: Any) -> float:
        """apis: (operation, required argument names...)."""
        tool = worlds.Tool("tool", "A", tuple(worlds.Api(o, r) for o, *r in apis), "tool")
        corpus, _ = build_corpus(worlds.records([tool], [worlds.Ask("t", "A", text, (("tool",),))]))
        bank = make.bank(corpus, VECTORS | {text: VECTORS["rain"]})
        (value,) = EndpointSchemaMatch(**parameters).score(make.all_pairs(corpus), bank=bank, seed=0)
        return float(value)

    return scored


def test_the_text_of_the_examples_offers_nothing_but_itself() -> None:
    assert spans("rain") == ("rain",)
    assert not detected_types("rain")


def test_operation_alone_where_nothing_is_required(score: Any) -> None:
    assert score(("first",)) == pytest.approx(0.8)
    assert score(("against",)) == pytest.approx(-0.5)


def test_argument_and_type_evidence(score: Any) -> None:
    # A = .5 (city); string is a type, and the text has none: Y = 0
    assert score(("first", "city")) == pytest.approx((0.8 + 0.5 + 0) / 3)
    # A = (.5 + max(0, -.4)) / 2
    assert score(("first", "city", "date")) == pytest.approx((0.8 + 0.25 + 0) / 3)


def test_an_unknown_type_is_no_evidence_and_no_mismatch(score: Any) -> None:
    assert score(("first", "unit")) == pytest.approx((0.8 + 1.0) / 2)
    # one typed argument of two: Y = 0 of 2, the mask is on
    assert score(("first", "unit", "city")) == pytest.approx((0.8 + 0.75 + 0) / 3)


def test_detected_types_count(score: Any) -> None:
    text = "rain on 2031-05-04"
    assert {"datetime", "string"} <= detected_types(text)
    # date is a datetime: Y = 1. Its own vector has -.4 with the text, the other spans lie on another axis: A = 0
    assert score(("first", "date"), text=text) == pytest.approx((0.8 + 0 + 1) / 3)
    assert score(("first", "date", "unit"), text=text) == pytest.approx((0.8 + 0.5 + 0.5) / 3)


def test_the_best_endpoint_counts(score: Any) -> None:
    assert score(("first", "date"), ("third", "unit")) == pytest.approx(0.6)  # (.2 + 1)/2 beats .8/3
    assert score(("first",), ("third", "unit")) == pytest.approx(0.8)


def test_the_pool_is_chosen_by_operation_before_anything_else(score: Any) -> None:
    apis = ("first", "date"), ("second", "date"), ("third", "unit")
    assert score(*apis, pool=3) == pytest.approx(0.6)
    assert score(*apis, pool=2) == pytest.approx(0.8 / 3)
    assert score(*apis, pool=1) == pytest.approx(0.8 / 3)


def test_without_the_operation_term(score: Any) -> None:
    assert score(("first", "city"), operation=False) == pytest.approx((0.5 + 0) / 2)
    assert score(("first", "unit"), operation=False) == pytest.approx(1.0)
    assert score(("second",), operation=False) == pytest.approx(0.6)  # no schema: the operation cosine


def test_a_tool_without_endpoints_falls_back_to_its_public_text(score: Any) -> None:
    assert score() == pytest.approx(0.3)
    assert score(operation=False) == pytest.approx(0.3)

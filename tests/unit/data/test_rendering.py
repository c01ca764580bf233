from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolshift.data.rendering import capability_text, clean, endpoint_text, operation_words


def test_a_capability_is_name_and_description() -> None:
    assert capability_text("Sky  View", " All\n about skies. ") == "Sky View: All about skies."
    assert capability_text("Sky View", "  ") == "Sky View"


def test_operations_are_appended_on_request() -> None:
    text = capability_text("Sky View", "Skies.", ["get_forecast", "/v1/{day}"], template="with_operations")
    assert text == "Sky View: Skies. | operations: get forecast; v1 day"
    assert capability_text("Sky View", "Skies.", [], template="with_operations") == "Sky View: Skies."


def test_an_unknown_template_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"'names'.*name_description, with_operations"):
        capability_text("a", "b", template="names")


def test_an_endpoint_is_operation_words_and_description() -> None:
    assert endpoint_text("/v4/sports/{sport}/odds", "Odds.") == "v4 sports sport odds: Odds."
    assert endpoint_text("get_all-items", "") == "get all items"
    assert endpoint_text("***", "") == "***"
    assert operation_words("/") == "/"


@given(st.text(), st.text())
def test_rendering_leaves_one_blank_between_words_and_loses_none(name: str, description: str) -> None:
    text = capability_text(name, description)
    assert text == clean(text)
    for word in (*name.split(), *description.split()):
        assert word in text

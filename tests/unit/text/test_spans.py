"""Spans and detected types of request text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolshift.data.records import COARSE_TYPES
from toolshift.text.spans import MAX_SPANS, coarse_type, detected_types, identifier_words, spans


def test_spans_of_one_request_in_order_of_appearance() -> None:
    text = "Please book 2 tickets for the museum in New York"
    assert spans(text) == (text, "book 2 tickets", "2 tickets", "tickets", "museum", "New York", "New")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("translate 'guten Tag' now", "guten Tag"),
        ('search "red shoes"', "red shoes"),
        ("search \u201cblue hat\u201d", "blue hat"),
        ("read `config.yaml`", "config.yaml"),
        ("forecast for 5 days", "5 days"),
        ("the top 40.", "top 40"),
        ("employee ID 715505", "ID 715505"),
        ("Can Los Angeles host it", "Los Angeles"),
        ("YouTube video search", "YouTube"),
        ("send it to the head office", "head office"),
        ("weather forecast for tomorrow", "weather forecast"),
        ("fetch it from https://example.org/a?b=1.", "https://example.org/a?b=1"),
    ],
)
def test_kinds_of_spans(text: str, expected: str) -> None:
    assert expected in spans(text)[1:]


@pytest.mark.parametrize(
    ("text", "absent"),
    [
        ("Translate this text", "Translate"),
        ("I want it", "I"),
        ("it's the dog's bone", "s the dog"),
        ("a list of names, in Paris", "names, in"),
        ("the name of the city", "the city"),
    ],
)
def test_what_is_no_span(text: str, absent: str) -> None:
    assert absent not in spans(text)[1:]


def test_ngrams_stop_at_punctuation_and_function_words() -> None:
    assert spans("weather in Paris, and hotels") == ("weather in Paris, and hotels", "weather", "Paris")


def test_the_empty_text_has_no_spans_and_a_bare_word_only_itself() -> None:
    assert spans("") == spans("  \n") == ()
    assert spans("translate") == ("translate",)


def test_the_cap_drops_prepositional_ngrams_first() -> None:
    text = " ".join(f"alpha{i}x beta for gamma{i}x delta in" for i in range(20)) + " 'a quoted string' and 7 apples"
    assert len(spans(text)) == MAX_SPANS
    assert {"a quoted string", "7 apples"} <= set(spans(text))
    assert spans(text, limit=3) == (text, "a quoted string", "7 apples")
    assert spans(text, limit=0) == ()


@given(st.text(max_size=200))
def test_spans_are_unique_capped_pieces_of_the_text(text: str) -> None:
    found = spans(text)
    whole = " ".join(text.split())
    assert found == spans(text)
    assert len(found) <= MAX_SPANS
    assert len({span.lower() for span in found}) == len(found)
    assert all(span.strip() for span in found)
    assert found[:1] == ((whole,) if whole else ())


@given(st.text(alphabet=st.sampled_from("aB1 '\"\u201c.,[]()@:/-\n"), max_size=120))
def test_detection_never_fails_and_stays_within_the_coarse_types(text: str) -> None:
    assert detected_types(text) <= set(COARSE_TYPES) - {"object", "unknown"}
    assert ("string" in detected_types(text)) == (len(spans(text)) > 1)


@pytest.mark.parametrize(
    ("text", "present", "absent"),
    [
        ("translate", set(), {"string", "number", "datetime", "list", "geo", "url", "email", "boolean"}),
        ("the top 40 songs", {"number", "string"}, {"datetime", "list"}),
        ("three songs", {"number"}, {"datetime"}),
        ("version v2 of it", {"string"}, {"number"}),
        ("on 2024-05-01", {"datetime"}, {"url", "list"}),
        ("at 5 pm tomorrow", {"datetime", "number"}, set()),
        ("in May", {"datetime"}, set()),
        ("you may go", set(), {"datetime"}),
        ("the march of progress", set(), {"datetime"}),
        ("for the next 7 days", {"datetime", "number"}, set()),
        ("see https://example.org/x", {"url"}, {"email"}),
        ("look at example.com", {"url"}, {"email"}),
        ("write to ann.lee@example.com", {"email"}, {"url"}),
        ("near 48.8566, 2.3522", {"geo", "number"}, set()),
        ("give latitude and longitude", {"geo"}, {"number"}),
        ("for Paris, Rome, and Oslo", {"list", "string"}, set()),
        ("ids 3,4,5", {"list"}, set()),
        ("in Paris, France", {"string"}, {"list"}),
        ("check whether it is open", {"boolean"}, {"number"}),
        ("this will enable me", set(), {"boolean"}),
    ],
)
def test_detected_types(text: str, present: set[str], absent: set[str]) -> None:
    found = detected_types(text)
    assert present <= found
    assert not absent & found


def test_names_shared_with_the_data_stage() -> None:
    assert identifier_words("startDate_utc") == "start date utc"
    assert coarse_type("DATE (YYYY-MM-DD)") == "datetime"

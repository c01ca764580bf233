"""How answers are read."""

from __future__ import annotations

import json

import pytest

from toolshift.models.generative.requests import (
    Dream,
    joined,
    query_prompt,
    read_dreams,
    read_lines,
    shortened,
)


def test_lines_lose_bullets_numbers_and_quotes() -> None:
    text = '1. book a flight\n2) "find a hotel"\n\n- (a) map\n• 7 days ahead\n***\n  book  a flight \n3.5 stars only'
    assert read_lines(text) == ("book a flight", "find a hotel", "(a) map", "7 days ahead", "3.5 stars only")
    assert read_lines(" \n--\n") == ()


def test_dreams() -> None:
    tools = [
        {"thought": "first", "name": "get_rain", "description": "Tells the rain."},
        {"name": "send", "description": "Sends."},
    ]
    expected = (
        Dream(thought="first", name="get_rain", description="Tells the rain."),
        Dream(thought="", name="send", description="Sends."),
    )
    assert read_dreams(json.dumps(tools)) == expected
    assert read_dreams(f"Sure:\n```json\n{json.dumps(tools, indent=1)}\n```\nDone") == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no tools",
        "[]",
        "[1, 2]",
        "] [",
        '[{"name": "a"}]',
        '[{"name": " ", "description": "x"}]',
        '[{"name": "a", "description": 3}]',
        '[{"name": "a", "description": "x"}',
        '{"name": "a", "description": "x"}',
        '[{"name": "a", "description": "x"}, "b"]',
    ],
)
def test_what_is_no_list_of_tools(text: str) -> None:
    assert read_dreams(text) == ()


def test_texts() -> None:
    assert shortened("a  b\nc d", words=3) == "a b c"
    assert joined(["a b ", " ", "", "c\nd"]) == "a b c d"
    assert "exactly this" in query_prompt("exactly this", count=7)
    assert "7" in query_prompt("exactly this", count=7)

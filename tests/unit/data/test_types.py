"""Words of identifiers and coarse argument types."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolshift.data.records import COARSE_TYPES
from toolshift.data.types import coarse_type, identifier_words, split_words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", []),
        ("...", []),
        ("Get the weather!", ["get", "the", "weather"]),
        ("get_user_name", ["get", "user", "name"]),
        ("getUserName", ["get", "user", "name"]),
        ("HTTPServerError", ["http", "server", "error"]),
        ("parseJSON", ["parse", "json"]),
        ("covid19Data by-country/v2", ["covid19", "data", "by", "country", "v2"]),
        ("Zürich ΑΘΗΝΑ 東京", ["zürich", "αθηνα", "東京"]),
        ("Zu\u0308rich", ["zürich"]),
        ("ABC", ["abc"]),
    ],
)
def test_split_words(text: str, words: list[str]) -> None:
    assert split_words(text) == words


@given(st.lists(st.from_regex(r"[a-z]{1,6}", fullmatch=True), min_size=1, max_size=6))
def test_the_spelling_of_an_identifier_does_not_matter(words: list[str]) -> None:
    camel = words[0] + "".join(word.capitalize() for word in words[1:])
    single_letters = any(len(word) == 1 for word in words[1:])  # "aBC" reads as an acronym
    assert split_words("_".join(words)) == split_words("-".join(words)) == words
    assert single_letters or split_words(camel) == words


def test_identifier_words() -> None:
    assert identifier_words("getUser_nameByID") == "get user name by id"


@pytest.mark.parametrize(
    ("raw", "coarse"),
    [
        ("STRING", "string"),
        ("string", "string"),
        ("NUMBER", "number"),
        ("BOOLEAN", "boolean"),
        ("ENUM", "string"),
        ("DATE (YYYY-MM-DD)", "datetime"),
        ("TIME (24-hour HH:MM)", "datetime"),
        ("GEOPOINT (latitude, longitude)", "geo"),
        ("ARRAY", "list"),
        ("OBJECT", "object"),
        ("BINARY", "unknown"),
        ("", "unknown"),
        ("int", "number"),
        ("integer", "number"),
        ("float", "number"),
        ("double", "number"),
        ("long", "number"),
        ("bool", "boolean"),
        ("str", "string"),
        ("list(str)", "list"),
        ("List[Dict[str, int]]", "list"),
        ("array of integers", "list"),
        ("ArrayList", "list"),
        ("tuple", "list"),
        ("dict", "object"),
        ("HashMap", "object"),
        ("Map<String, Integer>", "object"),
        ("json", "object"),
        ("any", "unknown"),
        ("null | integer", "number"),
        ("Optional[List[str]]", "list"),
        ("str, None", "string"),
        ("text", "string"),
        ("image", "string"),
        ("url", "url"),
        ("wibble", "unknown"),
    ],
)
def test_raw_type_words(raw: str, coarse: str) -> None:
    assert coarse_type(raw) == coarse


@pytest.mark.parametrize(
    ("raw", "name", "coarse"),
    [
        ("STRING", "start_date", "datetime"),
        ("STRING", "dateFrom", "datetime"),
        ("STRING", "date_format", "string"),
        ("STRING", "timezone", "string"),
        ("STRING", "callbackUrl", "url"),
        ("STRING", "email_address", "email"),
        ("STRING", "ip_address", "string"),
        ("STRING", "lat", "geo"),
        ("STRING", "lat_long", "geo"),
        ("STRING", "how_long", "string"),
        ("", "email", "email"),
        ("NUMBER", "date", "number"),
        ("ENUM", "month", "string"),
        ("BINARY", "upload_date", "unknown"),
        ("STRING", "", "string"),
    ],
)
def test_the_name_refines_only_what_the_release_leaves_open(raw: str, name: str, coarse: str) -> None:
    assert coarse_type(raw, name) == coarse


@given(st.text(max_size=30), st.text(max_size=30))
def test_every_input_has_a_coarse_type(raw: str, name: str) -> None:
    assert coarse_type(raw, name) in COARSE_TYPES


@pytest.mark.real
def test_real_toolbench_types_are_covered(toolbench_tools: Path) -> None:
    """Nearly all raw words of the release map to something; the exceptions are its payload type and nulls."""
    words: Counter[str] = Counter()
    for file in sorted(toolbench_tools.glob("*/*.json"))[::10]:
        for api in json.loads(file.read_text(encoding="utf-8")).get("api_list") or []:
            for parameter in (api.get("required_parameters") or []) + (api.get("optional_parameters") or []):
                words[parameter.get("type") or ""] += 1
    assert sum(words.values()) > 1000
    assert {word for word in words if coarse_type(word) == "unknown"} <= {"", "BINARY"}

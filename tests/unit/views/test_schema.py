"""Operation verbs, required-argument sets, operation words."""

from __future__ import annotations

import numpy as np
import pytest

from toolshift.data.records import Argument, Endpoint
from toolshift.views.schema import NO_VERB, VERB_CLASSES, operation_table, operation_verb


def endpoint(operation: str, *required: str, optional: tuple[str, ...] = (), description: str = "") -> Endpoint:
    arguments = [Argument(name=n, required=n in required) for n in (*required, *optional)]
    return Endpoint(
        endpoint_id=f"toy/a/{operation}",
        capability_id="toy/a",
        operation=operation,
        description=description,
        arguments=tuple(arguments),
    )


@pytest.mark.parametrize(
    ("operation", "description", "verb"),
    [
        ("getUserName", "", "read"),
        ("Currency Convert", "", "convert"),
        ("the very first list", "", None),  # the verb is the fourth word
        ("the very list", "", "list"),
        ("find and delete", "", "search"),  # the first of two
        ("weather", "Returns all alerts", "read"),  # the description speaks in the third person
        ("weather", "Searches alerts", "search"),
        ("delete", "Returns all alerts", "delete"),  # the name comes first
        ("weather", "of the day", None),
        ("news", "", None),  # a plural, not a form of "new"
        ("posts by user", "", None),
        ("latest", "News of the day", None),
        ("", "", None),
    ],
)
def test_verb_class(operation: str, description: str, verb: str | None) -> None:
    assert operation_verb(operation, description) == verb


def test_every_word_has_one_class() -> None:
    words = [w for group in VERB_CLASSES.values() for w in group.split()]
    assert len(words) == len(set(words))


def test_overlap_is_jaccard_of_required_names() -> None:
    table = operation_table(
        [
            endpoint("get a", "city", "date"),
            endpoint("get b", "cityName", optional=("date",)),  # optional ones do not count
            endpoint("get c", "city_name", "unit"),  # the same words as cityName
            endpoint("get d"),
        ]
    )
    a, b, c, d = table.signature
    overlap = table.overlap(np.array([a, b, d]))
    np.testing.assert_allclose(overlap[0, [a, b, c, d]], [1, 0, 0, 0])
    np.testing.assert_allclose(overlap[1, [a, b, c, d]], [0, 1, 1 / 2, 0])
    np.testing.assert_allclose(overlap[2, [a, b, c, d]], [0, 0, 0, 1])  # two empty sets agree


def test_equal_argument_sets_share_a_signature() -> None:
    table = operation_table([endpoint("x", "b", "a"), endpoint("y", "a", "b"), endpoint("z", "a")])
    assert table.signature[0] == table.signature[1] != table.signature[2]
    assert table.signatures.shape == (2, 2)


def test_words_are_unit_tfidf_rows() -> None:
    table = operation_table([endpoint("get rain"), endpoint("get snow"), endpoint("get", description="rain snow")])
    rows = table.words.toarray()
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-6)
    # N = 3; get occurs in 3, rain and snow in 2 documents: idf = ln(1 + N / df)
    get, rain = np.log(2), np.log(2.5)
    expected = np.array([get, rain]) / np.hypot(get, rain)
    np.testing.assert_allclose(rows[0, [table.vocabulary["get"], table.vocabulary["rain"]]], expected, rtol=1e-6)


def test_task_words_ignore_unknown_and_repeated_words() -> None:
    table = operation_table([endpoint("get rain"), endpoint("get snow")])
    rows = table.task_words(["rain RAIN elephant", "elephant", ""]).toarray()
    assert rows[0, table.vocabulary["rain"]] == pytest.approx(1)
    assert not rows[1:].any()


def test_unknown_verbs_are_marked() -> None:
    table = operation_table([endpoint("get rain"), endpoint("rainbow")])
    assert table.verb[0] != NO_VERB
    assert table.verb[1] == NO_VERB


def test_a_library_without_endpoints_is_an_empty_table() -> None:
    table = operation_table([])
    assert table.verb.size == table.signature.size == 0
    assert table.task_words(["rain"]).shape == (1, 0)

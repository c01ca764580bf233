from __future__ import annotations

import pytest

from toolshift.measures import known_forms, parse_measure


@pytest.mark.parametrize("name", ["MRR", "MRR@10", "NDCG@5", "HR@3", "R@5", "P@1", "MAP"])
def test_names_round_trip(name: str) -> None:
    parsed = parse_measure(name)
    assert str(parsed) == name
    assert parse_measure(str(parsed)) == parsed
    assert hash(parse_measure(name)) == hash(parsed)


@pytest.mark.parametrize(
    ("alias", "canonical"), [("RR", "MRR"), ("RR@10", "MRR@10"), ("success@3", "HR@3"), ("AP", "MAP")]
)
def test_aliases_are_the_same_measure(alias: str, canonical: str) -> None:
    assert parse_measure(alias) == parse_measure(canonical)
    assert str(parse_measure(alias)) == canonical


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("NDGC@5", "NDCG@5"),
        ("ndcg@10", "NDCG@10"),
        ("NDCG", "NDCG@5"),
        ("NDCG@0", "NDCG@5"),
        ("NDCG@-3", "NDCG@3"),
        ("NDCG@5.5", "NDCG@5"),
        ("HR", "HR@5"),
        ("MRRR", "MRR"),
        ("MAP@7", "MAP"),
    ],
)
def test_unknown_names_are_refused_with_the_nearest_form(name: str, nearest: str) -> None:
    with pytest.raises(ValueError, match=rf"nearest valid form: '{nearest}'"):
        parse_measure(name)


def test_known_forms_are_valid() -> None:
    for form in known_forms().split(", "):
        assert str(parse_measure(form.replace("@k", "@4"))) == form.replace("@k", "@4")

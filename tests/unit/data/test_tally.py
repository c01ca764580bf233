from __future__ import annotations

import logging

import pytest

from toolshift.data.errors import AdapterError
from toolshift.data.records import Section
from toolshift.data.tally import Tally


def test_rows_are_records_or_dropped_by_reason() -> None:
    tally = Tally()
    tally.open(sections=("empty", "rows"), notes=("merged",))
    tally.keep("rows", 3)
    tally.drop("rows", "late", where="f#1")
    tally.drop("rows", "broken", where="f#2", rows=2)
    assert dict(tally.sections()) == {
        "empty": Section(rows_read=0, records=0),
        "rows": Section(rows_read=6, records=3, dropped={"broken": 2, "late": 1}),
    }
    assert list(tally.sections()["rows"].dropped) == ["broken", "late"]
    assert tally.notes == {"merged": 0}


def test_strict_names_the_place_and_the_way_out() -> None:
    tally = Tally(strict=True)
    tally.keep("rows")
    with pytest.raises(AdapterError, match=r"f\.json#7: empty query \(rows\).*data\.strict=false"):
        tally.drop("rows", "empty_query", where="f.json#7")
    assert AdapterError.user_facing


def test_rows_left_out_by_design_are_reported_and_never_an_error() -> None:
    tally = Tally(strict=True)
    tally.exclude("rows", "control", where="f#1", rows=2)
    assert dict(tally.sections()) == {"rows": Section(rows_read=2, records=0, dropped={"control": 2})}


def test_each_reason_is_logged_once_with_its_first_place(caplog: pytest.LogCaptureFixture) -> None:
    tally = Tally()
    for place in ("f#1", "f#2"):
        tally.drop("rows", "late", where=place)
    with caplog.at_level(logging.WARNING):
        tally.log()
    assert [record.getMessage() for record in caplog.records] == ["rows: dropped 2 rows: late (first: f#1)"]

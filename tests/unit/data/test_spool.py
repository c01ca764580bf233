"""The temporary storage of rows: order, groups, and what happens when there is no room for it."""

from __future__ import annotations

import sqlite3
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolshift.data import spool
from toolshift.data.errors import AdapterError
from toolshift.data.spool import DiskMap, Spool

KEYS = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
VALUES = st.lists(st.one_of(st.text(max_size=5), st.booleans(), st.integers(0, 9)), max_size=3)


@given(rows=st.lists(st.tuples(KEYS, VALUES), max_size=20), batch=st.integers(1, 4))
def test_rows_come_back_by_key_and_within_a_key_in_order(rows: list[tuple[str, Any]], batch: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spool, "_BATCH", batch)
        put = Spool()
        for key, value in rows:
            put.add(key, value)
        expected = [(key, [value for k, value in rows if k == key]) for key in sorted({key for key, _ in rows})]
        assert list(put.groups()) == expected
        put.close()


def test_keys_are_ordered_like_python_strings() -> None:
    # UTF-16 would put the first after the second, a locale the third before "a"; a NUL must not end a key.
    keys = ["\uffee", "\U0001f600", "Z", "a", "a\0b", "a\0", "é"]
    put = Spool()
    for key in keys:
        put.add(key, [])
    assert [key for key, _ in put.groups()] == sorted(keys)


@given(pairs=st.lists(st.tuples(KEYS, st.text(st.characters(exclude_categories=["Cs"]), max_size=3)), max_size=20))
def test_a_disk_map_is_a_dictionary_whose_first_value_stays(pairs: list[tuple[str, str]]) -> None:
    kept, expected = DiskMap(), dict[str, str]()
    for key, value in pairs:
        assert kept.get(key) == expected.get(key)
        assert kept.setdefault(key, value) == expected.setdefault(key, value)
    assert {key: kept.get(key) for key in expected} == expected
    kept.close()


def test_a_full_disk_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        def executemany(self, *_: object) -> None:
            raise sqlite3.OperationalError("database or disk is full")

    put = Spool()
    monkeypatch.setattr(put, "_database", Full())
    put.add("a", [])
    with pytest.raises(AdapterError, match=r"disk is full.*make room in the temporary folder.*TMPDIR"):
        list(put.groups())


def test_a_fault_of_the_reader_is_not_taken_for_one_of_the_storage() -> None:
    put = Spool()
    put.add("a", [])
    with pytest.raises(sqlite3.DataError, match="of the reader"):
        for _ in put.groups():
            raise sqlite3.DataError("of the reader")

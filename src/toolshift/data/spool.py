"""Rows put down in any order and taken up sorted by key: what an adapter knows of its tasks until the last row is read.

A temporary SQLite database does both. It stays in its page cache while it is small, has no name on disk once it is
not (``SQLITE_TMPDIR`` or ``TMPDIR`` say where it lies), and vanishes with the process.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from operator import itemgetter
from typing import Any

from toolshift.data.errors import AdapterError

_CACHE_KIB = 8 << 10
_BATCH = 1024


@contextmanager
def _explained() -> Iterator[None]:
    """Turn a fault of the temporary database into an ``AdapterError`` that says what to do."""
    try:
        yield
    except sqlite3.Error as error:
        raise AdapterError(
            f"temporary storage failed ({error}); make room in the temporary folder, or name another one with TMPDIR"
        ) from error


def _temporary(schema: str) -> sqlite3.Connection:
    """An empty database with the tables of ``schema``; it needs no journal, since nothing outlives a fault."""
    with _explained():
        database = sqlite3.connect("", isolation_level=None)
        database.executescript(
            "PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; PRAGMA temp_store=FILE; "
            f"PRAGMA cache_size=-{_CACHE_KIB}; {schema}; BEGIN"
        )
        return database


class Spool:
    """JSON values under text keys. Memory holds a batch and SQLite's cache, whatever the number of rows."""

    def __init__(self) -> None:
        self._database = _temporary("CREATE TABLE rows (place INTEGER PRIMARY KEY, key TEXT, value TEXT)")
        self._batch: list[tuple[str, str]] = []

    def add(self, key: str, value: Any) -> None:
        """Put down a row. The key is UTF-8 without lone surrogates; lists come back as lists, tuples too.

        Raises:
            AdapterError: if the temporary folder is full or not writable.
        """
        self._batch.append((key, json.dumps(value)))
        if len(self._batch) >= _BATCH:
            self._flush()

    def groups(self) -> Iterator[tuple[str, list[Any]]]:
        """(key, its values in order of addition) by key, in the order of code points.

        Raises:
            AdapterError: if the temporary folder is full or not writable.
        """
        self._flush()
        # SQLite compares UTF-8 bytes, whose order is that of code points, and sorts in bounded memory.
        rows = self._rows("SELECT key, value FROM rows ORDER BY key, place")
        for key, group in groupby(rows, key=itemgetter(0)):
            yield key, [json.loads(value) for _, value in group]

    def close(self) -> None:
        """Free the storage; also done when the object goes."""
        self._database.close()

    def _rows(self, query: str) -> Iterator[tuple[str, str]]:
        with _explained():
            yield from self._database.execute(query)

    def _flush(self) -> None:
        with _explained():
            self._database.executemany("INSERT INTO rows (key, value) VALUES (?, ?)", self._batch)
        self._batch.clear()


class DiskMap:
    """Text to text, without deletion. Memory holds SQLite's cache, whatever the number of keys."""

    def __init__(self) -> None:
        self._database = _temporary("CREATE TABLE pairs (key TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID")

    def get(self, key: str) -> str | None:
        """The value of a key, or None.

        Raises:
            AdapterError: if the temporary folder is full or not writable.
        """
        with _explained():
            found = self._database.execute("SELECT value FROM pairs WHERE key = ?", (key,)).fetchone()
        return found[0] if found else None

    def setdefault(self, key: str, value: str) -> str:
        """The value of a key, which is ``value`` if the key is new.

        Raises:
            AdapterError: if the temporary folder is full or not writable.
        """
        with _explained():
            new = self._database.execute("INSERT OR IGNORE INTO pairs VALUES (?, ?)", (key, value)).rowcount
        return value if new else self.get(key) or ""

    def close(self) -> None:
        """Free the storage; also done when the object goes."""
        self._database.close()

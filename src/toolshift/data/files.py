"""Reading raw files, with ``.gz`` beside any of them, and streaming large JSON arrays."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO, cast

from toolshift.data.errors import AdapterError

_CHUNK = 1 << 20
_MAX_ROW = 64 << 20
_BLANK = " \t\n\r"
_DELIMITER = re.compile(r"[ \t\n\r]*[,\]]")
READ_ERRORS = (ValueError, EOFError, OSError, RecursionError, zlib.error)


def existing(path: Path) -> Path | None:
    """Return ``path``, or ``path`` + ".gz", whichever exists as a file; the plain one wins."""
    if path.is_file():
        return path
    packed = path.with_name(f"{path.name}.gz")
    return packed if packed.is_file() else None


def plain_name(name: str) -> str:
    """Return a file name without a trailing ``.gz``."""
    return name.removesuffix(".gz")


def open_text(path: Path) -> TextIO:
    """Open ``path``, or ``path`` + ".gz" where only that exists, as UTF-8 text (a byte-order mark is skipped).

    Raises:
        AdapterError: if neither exists.
    """
    found = existing(path)
    if found is None:
        raise AdapterError(f"{path}: no such file (nor {path.name}.gz beside it)")
    if found.suffix == ".gz":
        return cast(TextIO, gzip.open(found, "rt", encoding="utf-8-sig"))
    return found.open(encoding="utf-8-sig")


def read_json(path: Path) -> Any:
    """Parse one JSON file.

    Raises:
        READ_ERRORS: as the parser meets them; callers turn them into a counted drop or an ``AdapterError``, with
            ``describe_failure`` for the reason.
    """
    with open_text(path) as handle:
        return json.load(handle)


def describe_failure(error: Exception) -> str:
    """Return the drop reason of an unreadable JSON file."""
    if isinstance(error, UnicodeDecodeError):
        return "not_utf8"
    if isinstance(error, json.JSONDecodeError | RecursionError):
        return "malformed_json"
    if isinstance(error, EOFError | gzip.BadGzipFile | zlib.error):
        return "truncated_gzip"
    return "unreadable"


def stream_array(path: Path) -> Iterator[Any]:
    """Yield the elements of a JSON file whose top level is an array, one at a time.

    Memory holds one buffer of about one row, not the file: upstream's G1_query.json is over 1 GB. The standard
    library's C scanner does the parsing, so values equal those of ``json.load``.

    Raises:
        AdapterError: if the file is missing, not UTF-8, not an array, malformed or truncated; the message gives the
            number of complete rows before the fault and the character position. A cut query file is always an error:
            how many rows it lost cannot be counted.
    """
    reader = _ArrayReader(path)
    try:
        with open_text(path) as handle:
            yield from reader.rows(handle)
    except UnicodeDecodeError as error:
        raise reader.error(f"not UTF-8: {error.reason}") from error
    except (EOFError, zlib.error, OSError) as error:
        raise reader.error(f"cannot be read to its end ({error})") from error


class _ArrayReader:
    """State of one pass over a top-level JSON array: the buffer and how much of the file lies before it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.done = 0
        self.offset = 0
        self.buffer = ""
        self.at = 0
        self.decoder = json.JSONDecoder()

    def error(self, problem: str) -> AdapterError:
        return AdapterError(
            f"{self.path}: {problem}, after {self.done} complete rows, near character {self.offset + self.at}. "
            "Expected one JSON array of objects in UTF-8; fetch the file again and compare its size with the source."
        )

    def rows(self, handle: TextIO) -> Iterator[Any]:
        if self._next_symbol(handle) != "[":
            raise self.error("the top level is not a JSON array")
        self.at += 1
        symbol = self._next_symbol(handle)
        if symbol == "]":
            self.at += 1
            self._assert_end(handle)
            return
        while True:
            value = self._value(handle)
            symbol = self._next_symbol(handle)
            if symbol not in (",", "]"):
                raise self.error("truncated" if not symbol else "malformed JSON: expected a comma between two rows")
            self.done += 1
            yield value
            self.at += 1
            if symbol == "]":
                self._assert_end(handle)
                return
            self._next_symbol(handle)

    def _value(self, handle: TextIO) -> Any:
        """Decode the value at ``at``, reading on until it is complete; doubling keeps the cost of retries linear."""
        size = _CHUNK
        while True:
            value, end, problem = self._decoded()
            # Only a delimiter proves that a value is complete: "0." decodes as 0 before the next chunk brings "5".
            if not problem and _DELIMITER.match(self.buffer, end):
                break
            if len(self.buffer) - self.at > _MAX_ROW:
                raise self.error(f"malformed JSON or a row of over {_MAX_ROW >> 20} Mi characters")
            if self._fill(handle, size):
                size *= 2
            elif problem:
                raise self.error(f"truncated or malformed JSON: {problem}")
            else:
                break
        self.at = end
        return value

    def _decoded(self) -> tuple[Any, int, str]:
        try:
            return *self.decoder.raw_decode(self.buffer, self.at), ""
        except json.JSONDecodeError as failure:
            return None, self.at, failure.msg
        except RecursionError:
            raise self.error("malformed JSON: nested too deeply") from None

    def _next_symbol(self, handle: TextIO) -> str:
        while True:
            while self.at < len(self.buffer) and self.buffer[self.at] in _BLANK:
                self.at += 1
            if self.at < len(self.buffer):
                return self.buffer[self.at]
            if not self._fill(handle, _CHUNK):
                return ""

    def _fill(self, handle: TextIO, size: int) -> bool:
        chunk = handle.read(size)
        if chunk:
            self.offset += self.at
            self.buffer = self.buffer[self.at :] + chunk
            self.at = 0
        return bool(chunk)

    def _assert_end(self, handle: TextIO) -> None:
        if self._next_symbol(handle):
            raise self.error("malformed JSON: text after the closing bracket")

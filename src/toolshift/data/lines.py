"""Reading JSON Lines: one value a line, each with its number, so that a fault can be named or counted by line."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

from toolshift.data.errors import AdapterError
from toolshift.data.files import describe_failure, existing

_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line: its 1-based number and its value, or in ``fault`` the reason why it has none."""

    number: int
    value: Any = None
    fault: str = ""


def read_lines(path: Path) -> Iterator[Line]:
    """Yield the lines of a JSON Lines file (or of its ``.gz``); blank lines are skipped, a byte-order mark too.

    A line that is not UTF-8 or not JSON comes as a ``fault`` (``not_utf8``, ``malformed_json``): it costs only itself.

    Raises:
        AdapterError: if the file is missing or cannot be read to its end.
    """
    for number, data in numbered_lines(path):
        try:
            yield Line(number=number, value=json.loads(data.decode("utf-8")))
        except (ValueError, RecursionError) as error:
            fault = describe_failure(error)
            yield Line(number=number, fault="malformed_json" if fault == "unreadable" else fault)


def numbered_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield (1-based number, bytes without line end) of every line that is not blank.

    Raises:
        AdapterError: if the file is missing or cannot be read to its end.
    """
    found = existing(path)
    if found is None:
        what = "is a folder, not a file" if path.is_dir() else f"no such file (nor {path.name}.gz beside it)"
        raise AdapterError(f"{path}: {what}")
    number = 0
    try:
        with _open(found) as handle:
            for number, data in enumerate(handle, start=1):
                line = (data.removeprefix(_MARK) if number == 1 else data).rstrip(b"\r\n")
                if line.strip():
                    yield number, line
    except (EOFError, OSError, zlib.error) as error:
        raise AdapterError(
            f"{found}: cannot be read beyond line {number} ({error}); compare its size with the source"
        ) from error


def _open(path: Path) -> IO[bytes]:
    return cast("IO[bytes]", gzip.open(path, "rb")) if path.suffix == ".gz" else path.open("rb")

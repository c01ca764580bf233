"""The files of a BFCL release: a folder in the layout of the package, or the wheel itself, read alike.

Everything is JSON Lines in spite of ``.json``. The leaderboard's data lie in ``bfcl_eval/data/``, with the answers of
``BFCL_v4_<category>.json`` in ``possible_answer/`` under the same name and one file of functions per class in
``multi_turn_func_doc/``.
"""

from __future__ import annotations

import gzip
import json
import re
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, cast

from toolshift.data.errors import AdapterError
from toolshift.data.files import describe_failure, plain_name
from toolshift.data.lines import Line
from toolshift.data.rows import dataset_folder
from toolshift.data.sources import source_of

DATASET = "bfcl"
ANSWERS = "possible_answer"
CLASS_DOCS = "multi_turn_func_doc"
_PACKAGE = "bfcl_eval/data"
_CATEGORY = re.compile(r"BFCL_(v\d+)_(\w+)\.json")
_LISTS_OF_IDS = frozenset({"format_sensitivity"})
_MARK = b"\xef\xbb\xbf"
_READ_ERRORS = (EOFError, OSError, zlib.error, zipfile.BadZipFile)

Place = Path | zipfile.Path


@dataclass(frozen=True)
class Release:
    """The data folder of a release, wherever it lies. ``wheel`` is the file it lies in, or None for a folder."""

    base: Place
    wheel: Path | None = None

    @cached_property
    def categories(self) -> dict[str, str]:
        """Category -> plain file name, sorted by category; files that only list ids are left out.

        Raises:
            AdapterError: if there is none, or two versions of the leaderboard lie in one folder.
        """
        matches = [match for name in _names(self.base) if (match := _CATEGORY.fullmatch(name))]
        versions = sorted({match[1] for match in matches})
        if not versions:
            raise AdapterError(f"{self.base}: holds no BFCL_v4_<category>.json file. {source_of(DATASET).hint()}")
        if len(versions) > 1:
            raise AdapterError(
                f"{self.base}: files of {', '.join(versions)} lie side by side; their entries overlap, so keep one."
            )
        return {match[2]: match[0] for match in sorted(matches, key=lambda m: m[2]) if match[2] not in _LISTS_OF_IDS}

    @cached_property
    def class_files(self) -> tuple[str, ...]:
        """Stems of the function documentations, sorted; empty where their folder is missing."""
        names = _names(self.base / CLASS_DOCS)
        return tuple(name.removesuffix(".json") for name in names if name.endswith(".json"))

    def entries(self, category: str) -> Iterator[Line]:
        """The lines of one category."""
        return _lines(self.base, self.categories[category])

    def answers(self, category: str) -> Iterator[Line]:
        """The lines of its answers.

        Raises:
            AdapterError: if the release has no answers for it.
        """
        return _lines(self.base / ANSWERS, self.categories[category])

    def functions(self, stem: str) -> Iterator[Line]:
        """The lines of one file of ``class_files``."""
        return _lines(self.base / CLASS_DOCS, f"{stem}.json")

    def paths(self, categories: tuple[str, ...], *, answered: frozenset[str]) -> list[Path]:
        """The files on disk that hold these categories, the answers of ``answered`` and all class documentations."""
        if self.wheel is not None:
            return [self.wheel]
        found = [_existing(self.base, self.categories[c]) for c in categories]
        found += [_existing(self.base / ANSWERS, self.categories[c]) for c in categories if c in answered]
        found += [_existing(self.base / CLASS_DOCS, f"{stem}.json") for stem in self.class_files]
        return [path for path in found if isinstance(path, Path)]


def find_release(root: Path) -> Release:
    """``<root>/bfcl/bfcl_eval/data``, else the one wheel in ``<root>/bfcl``; ``root`` may be the wheel itself.

    Raises:
        AdapterError: if there is neither, more than one wheel, or a wheel that cannot be opened.
    """
    if root.suffix == ".whl" and root.is_file():
        return _wheel(root)
    base = dataset_folder(root, DATASET)
    if (base / _PACKAGE).is_dir():
        return Release(base / _PACKAGE)
    wheels = sorted(path for path in base.glob("*.whl") if path.is_file())
    if len(wheels) == 1:
        return _wheel(wheels[0])
    what = f"holds {len(wheels)} wheels; keep one" if wheels else f"holds neither {_PACKAGE}/ nor a wheel (*.whl)"
    raise AdapterError(f"{base}: {what}. {source_of(DATASET).hint()}")


def _wheel(path: Path) -> Release:
    try:
        base = zipfile.Path(path, f"{_PACKAGE}/")
        if base.exists():
            return Release(base, wheel=path)
    except (*_READ_ERRORS, ValueError) as error:
        raise AdapterError(f"{path}: not a readable wheel ({error}). {source_of(DATASET).hint()}") from error
    raise AdapterError(f"{path}: a wheel without {_PACKAGE}/. {source_of(DATASET).hint()}")


def _names(folder: Place) -> list[str]:
    if not folder.is_dir():
        return []
    for entry in folder.iterdir():
        if entry.is_dir() and plain_name(entry.name).endswith(".json"):
            raise AdapterError(f"{entry}: is a folder, not a file")
    return sorted({plain_name(entry.name) for entry in folder.iterdir() if entry.is_file()})


def _existing(folder: Place, name: str) -> Place | None:
    for candidate in (folder / name, folder / f"{name}.gz"):
        if candidate.is_file():
            return candidate
    return None


def _lines(folder: Place, name: str) -> Iterator[Line]:
    """The lines of a file or of its ``.gz``, as ``toolshift.data.lines`` gives them, also out of a wheel."""
    found = _existing(folder, name)
    if found is None:
        raise AdapterError(f"{folder / name}: no such file (nor {name}.gz beside it). {source_of(DATASET).hint()}")
    number = lines = 0
    try:
        with _open(found) as handle:
            for number, data in enumerate(handle, start=1):
                line = data.removeprefix(_MARK) if number == 1 else data
                if line.strip():
                    lines += 1
                    yield _parsed(number, line)
    except _READ_ERRORS as error:
        raise AdapterError(
            f"{found}: cannot be read beyond line {number} ({error}); compare its size with the source"
        ) from error
    if not lines:
        raise AdapterError(f"{found}: is empty; expected one JSON object a line. {source_of(DATASET).hint()}")


def _parsed(number: int, data: bytes) -> Line:
    try:
        return Line(number=number, value=json.loads(data.decode("utf-8")))
    except (ValueError, RecursionError) as error:
        fault = describe_failure(error)
        return Line(number=number, fault="malformed_json" if fault == "unreadable" else fault)


def _open(place: Place) -> IO[bytes]:
    handle = cast("IO[bytes]", place.open("rb"))
    return cast("IO[bytes]", gzip.GzipFile(fileobj=handle)) if place.name.endswith(".gz") else handle

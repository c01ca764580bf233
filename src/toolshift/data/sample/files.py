"""Files of a sample: hashed while they are written, streamed where they are long, and put in place by one rename."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from toolshift.runs.files import sha256_file

MANIFEST = "SAMPLE.json"


class HashedFolder:
    """Writes files below a folder and knows their SHA-256; ``close`` ends the streams that are still open."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.hashes: dict[str, str] = {}
        self._streams: dict[str, _Stream] = {}

    def write(self, path: str, content: object) -> None:
        """Write one JSON file."""
        self.write_text(path, json.dumps(content, ensure_ascii=False, indent=1) + "\n")

    def write_text(self, path: str, text: str) -> None:
        """Write one file as it is, in UTF-8."""
        self.write_bytes(path, text.encode())

    def write_bytes(self, path: str, data: bytes) -> None:
        """Write one file as it is."""
        self._target(path).write_bytes(data)
        self.hashes[path] = hashlib.sha256(data).hexdigest()

    def append(self, path: str, element: object) -> None:
        """Add an element to a file that is one JSON array."""
        self._stream(path, start="[\n", between=",\n", end="\n]\n").append(json.dumps(element, ensure_ascii=False))

    def append_line(self, path: str, element: object) -> None:
        """Add a line to a JSON Lines file."""
        self.append_text(path, json.dumps(element, ensure_ascii=False) + "\n")

    def append_text(self, path: str, text: str) -> None:
        """Add text as it is, in UTF-8."""
        self._stream(path, start="", between="", end="").append(text)

    def count(self, path: str) -> int:
        """Elements, lines or texts appended to a file so far."""
        return self._streams[path].count if path in self._streams else 0

    def close(self) -> None:
        """Finish all streams. Call it also after an error: it closes the files."""
        for path, stream in self._streams.items():
            self.hashes[path] = stream.close()
        self._streams.clear()

    def _stream(self, path: str, *, start: str, between: str, end: str) -> _Stream:
        if path not in self._streams:
            self._streams[path] = _Stream(self._target(path), start=start, between=between, end=end)
        return self._streams[path]

    def _target(self, path: str) -> Path:
        target = self.folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        return target


class _Stream:
    """A text file that is written element by element; memory holds one element."""

    def __init__(self, path: Path, *, start: str, between: str, end: str) -> None:
        self.count = 0
        self._start, self._between, self._end = start, between, end
        self._hash = hashlib.sha256()
        self._file: IO[bytes] = path.open("wb")

    def append(self, element: str) -> None:
        self._write(self._between if self.count else self._start)
        self._write(element)
        self.count += 1

    def close(self) -> str:
        try:
            self._write(self._end)
        finally:
            self._file.close()
        return self._hash.hexdigest()

    def _write(self, text: str) -> None:
        data = text.encode()
        self._hash.update(data)
        self._file.write(data)


@contextmanager
def replaced_folder(target: Path) -> Iterator[Path]:
    """A new folder beside ``target`` that takes its place when the block ends without an error.

    If two processes do so at once, the one that comes last finds the place taken and leaves the other's folder there;
    whoever wants to know looks into its manifest.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}."))
    try:
        new = temporary / "new"
        new.mkdir()
        yield new
        if target.exists():
            target.replace(temporary / "old")
        try:
            new.replace(target)
        except OSError:
            if not target.exists():
                raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def manifest_if_intact(target: Path, made_by: Mapping[str, object]) -> Mapping[str, object] | None:
    """The manifest of a sample on disk, if it was made by the same code and arguments and no file of it changed."""
    try:
        manifest = json.loads((target / MANIFEST).read_text(encoding="utf-8"))
        if any(manifest[key] != value for key, value in made_by.items()):
            return None
        if any(sha256_file(target / path) != digest for path, digest in manifest["files"].items()):
            return None
        return {**manifest, "sha256": str(manifest["sha256"]), "world_hash": str(manifest["world_hash"])}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None

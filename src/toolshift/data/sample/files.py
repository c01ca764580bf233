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
    """Writes files below a folder and knows their SHA-256; ``close`` ends the arrays that are still open."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.hashes: dict[str, str] = {}
        self._arrays: dict[str, _ArrayFile] = {}

    def write(self, path: str, content: object) -> None:
        """Write one JSON file."""
        data = (json.dumps(content, ensure_ascii=False, indent=1) + "\n").encode()
        target = self._target(path)
        target.write_bytes(data)
        self.hashes[path] = hashlib.sha256(data).hexdigest()

    def append(self, path: str, element: object) -> None:
        """Add an element to a file that is one JSON array."""
        if path not in self._arrays:
            self._arrays[path] = _ArrayFile(self._target(path))
        self._arrays[path].append(element)

    def count(self, path: str) -> int:
        """Elements appended to a file so far."""
        return self._arrays[path].count if path in self._arrays else 0

    def close(self) -> None:
        """Finish all arrays. Call it also after an error: it closes the files."""
        for path, array in self._arrays.items():
            self.hashes[path] = array.close()
        self._arrays.clear()

    def _target(self, path: str) -> Path:
        target = self.folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        return target


class _ArrayFile:
    """A JSON array that is written element by element; memory holds one element."""

    def __init__(self, path: Path) -> None:
        self.count = 0
        self._hash = hashlib.sha256()
        self._stream: IO[bytes] = path.open("wb")

    def append(self, element: object) -> None:
        self._write(",\n" if self.count else "[\n")
        self._write(json.dumps(element, ensure_ascii=False))
        self.count += 1

    def close(self) -> str:
        try:
            self._write("\n]\n")
        finally:
            self._stream.close()
        return self._hash.hexdigest()

    def _write(self, text: str) -> None:
        data = text.encode()
        self._hash.update(data)
        self._stream.write(data)


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

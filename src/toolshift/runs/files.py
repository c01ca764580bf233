"""Files that are whole or absent: every write goes to a temporary name beside the target and is renamed."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """A temporary path in the same folder that replaces ``path`` when the block ends without an error."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> Path:
    """Write UTF-8 text with Unix line ends, atomically."""
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")
    return path


def write_json(path: Path, content: object) -> Path:
    """Write sorted, indented JSON, atomically."""
    return write_text(path, json.dumps(content, indent=2, sort_keys=True, ensure_ascii=False) + "\n")


def read_json(path: Path) -> Any:
    """Read JSON.

    Raises:
        ValueError: if the file is not valid JSON; the message names the file.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not valid JSON ({error}); delete it and run the same command again") from error


def write_array(path: Path, array: NDArray[Any]) -> Path:
    """Write a ``.npy`` file, atomically; read it back with ``numpy.load(..., mmap_mode='r')``."""

    def save(stream: IO[bytes]) -> None:
        np.save(stream, array, allow_pickle=False)

    return write_binary(path, save)


def write_binary(path: Path, save: Callable[[IO[bytes]], None]) -> Path:
    """Let ``save`` fill a binary stream that becomes ``path`` when it succeeds."""
    with atomic_path(path) as temporary, temporary.open("wb") as stream:
        save(stream)
        stream.flush()
        os.fsync(stream.fileno())
    return path


def folder_name(name: str) -> str:
    """A name as one folder: path separators, control characters and ``%`` are percent-encoded, and so is a leading dot.

    >>> folder_name("Image/Video"), folder_name("Video_Images"), folder_name(".")
    ('Image%2FVideo', 'Video_Images', '%2E')
    """
    encoded = re.sub(r'[%/\\:*?"<>|\x00-\x1f]', lambda found: f"%{ord(found[0]):02X}", name)
    return f"%2E{encoded[1:]}" if encoded.startswith(".") else encoded


def sha256_file(path: Path) -> str:
    """SHA-256 of a file's bytes, hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def stable_hash(content: object) -> str:
    """SHA-256 over the canonical JSON of plain content (keys sorted, no white space)."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()

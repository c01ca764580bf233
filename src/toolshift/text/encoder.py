"""The encoder contract, and the fingerprint that decides whether two runs may share embeddings."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from toolshift.runs.files import sha256_file, stable_hash

Vectors = NDArray[np.float32]

# Files of a model folder that decide its output. Other exports of the same weights are never loaded.
_MODEL_SUFFIXES = frozenset({".safetensors", ".bin", ".json", ".txt", ".model", ".jinja"})
_OTHER_EXPORTS = frozenset({"onnx", "openvino"})
_UNUSED_FILES = frozenset({"data_config.json", "train_script.txt", "README.txt", "LICENSE.txt", "requirements.txt"})


class EncoderError(RuntimeError):
    """An encoder cannot be built or gave something unusable; the message says what to do."""

    user_facing = True


@runtime_checkable
class Encoder(Protocol):
    """Text to unit vectors. Frozen: nothing about it is ever fitted.

    ``encode`` must be a function of the text alone: neighbours in the same call change no vector by more than 1e-6
    (the backends here: by no bit, on one machine). An empty text has a defined unit vector like any other; callers
    to whom absence matters mask it themselves.
    """

    @property
    def name(self) -> str:
        """Short name for tables and logs; says nothing about paths."""
        ...

    @property
    def dim(self) -> int:
        """Length of a vector."""
        ...

    @property
    def max_length(self) -> int:
        """Tokens, special ones included, after which a text is cut; 0 = never."""
        ...

    @property
    def batch_size(self) -> int:
        """Largest number of texts in one forward pass."""
        ...

    @property
    def fingerprint(self) -> str:
        """64 hex digits over everything that may change a vector; the same wherever the weights lie."""
        ...

    def encode(self, texts: Sequence[str]) -> Vectors:
        """(n, dim) float32, rows of length one, in the order of ``texts``."""
        ...

    def truncated(self, texts: Sequence[str]) -> NDArray[np.bool_]:
        """(n,) whether each text is longer than ``max_length`` and loses its end."""
        ...


def fingerprint(**parts: object) -> str:
    """Hash of named, plain parts (strings, numbers, lists, dicts of them); the order of names does not matter."""
    return stable_hash(parts)


def versions(*packages: str) -> dict[str, str]:
    """Installed versions without importing the packages; local suffixes ("+cpu") are dropped.

    The suffix names the build, which the device kind in the fingerprint already tells.
    """
    return {package: metadata.version(package).split("+")[0] for package in packages}


def model_digests(folder: Path) -> dict[str, str]:
    """Relative name -> sha256 of every file of a model folder that decides its output, sorted by name.

    Raises:
        EncoderError: if the folder holds no weights.
    """
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if _decides_output(path, folder)}
    names = sorted(files)
    safe_folders = {files[name].parent for name in names if name.endswith(".safetensors")}
    # Where both exist, safetensors are what gets loaded.
    names = [name for name in names if not (name.endswith(".bin") and files[name].parent in safe_folders)]
    if not any(name.endswith((".safetensors", ".bin")) for name in names):
        raise EncoderError(
            f"{folder} holds no weights: expected model.safetensors beside config.json and the tokenizer"
        )
    return {name: sha256_file(files[name]) for name in names}


def valid_unicode(text: str) -> str:
    """The text with halves of surrogate pairs, which broken JSON escapes leave behind, joined or replaced.

    Tokenizers refuse such text; one broken tool description must not end a run.
    """
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def unit_rows(vectors: NDArray[np.floating]) -> Vectors:
    """Rows scaled to length one in float64, returned as float32; a zero row becomes the constant unit row.

    The constant row 1/sqrt(d) has no preferred coordinate, so it resembles no real text more than another.

    Raises:
        EncoderError: if a row is not finite.
    """
    rows = np.asarray(vectors, dtype=np.float64)
    norms = np.sqrt(np.square(rows).sum(axis=1, keepdims=True))
    if not np.isfinite(norms).all():
        raise EncoderError(f"{int((~np.isfinite(norms)).sum())} of {len(rows)} encoded rows are not finite")
    constant = 1.0 / np.sqrt(max(rows.shape[1], 1))
    return np.where(norms > 0, rows / np.where(norms > 0, norms, 1.0), constant).astype(np.float32)


def _decides_output(path: Path, folder: Path) -> bool:
    parts = path.relative_to(folder).parts
    return (
        path.is_file()
        and path.suffix in _MODEL_SUFFIXES
        and path.name not in _UNUSED_FILES
        and not any(part.startswith(".") for part in parts)
        and not _OTHER_EXPORTS.intersection(parts)
    )

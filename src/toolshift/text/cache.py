"""Embeddings on disk: content-addressed, memory-mapped, resumable, safe for several writers.

``<root>/<first 16 digits of the encoder's fingerprint>/`` holds

- ``meta.json``: whose vectors these are, and counts;
- ``shard-<hash>.npy``: float32 (n, dim), unit rows;
- ``shard-<hash>.keys.npy``: one record per row, the SHA-256 of the text and whether the text was cut.

A shard is named by the hash of its keys, written to a temporary name and renamed, vectors before keys: a shard
exists when both files do. So a killed run loses at most one chunk, and two processes that encode the same texts
write the same name. Nothing is ever changed in place; a damaged shard is deleted by hand and encoded again.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from toolshift.runs.files import read_json, write_array, write_json
from toolshift.text.encoder import Encoder, Vectors

logger = logging.getLogger(__name__)

# "S32" sorts and compares bytewise; numpy pads with zero bytes, which is harmless because all keys have 32 bytes.
_KEY = np.dtype("S32")
_RECORD = np.dtype([("key", _KEY), ("truncated", np.bool_)])
_FORMAT = 1
_UNIT_TOLERANCE = 1e-3


class CacheError(RuntimeError):
    """A cache folder is unusable; the message names the file and says what to do."""

    user_facing = True


class TruncationError(ValueError):
    """More texts are cut by the encoder than the configuration allows."""

    user_facing = True


@dataclass(frozen=True, slots=True)
class EnsureStats:
    """What one ``ensure`` did, in distinct texts: newly encoded, found, cut (of both), and its seconds."""

    new: int
    reused: int
    truncated: int
    seconds: float

    @property
    def truncated_share(self) -> float:
        """Share of the distinct texts that lose their end."""
        return self.truncated / max(self.new + self.reused, 1)


@dataclass(frozen=True, slots=True)
class _Shard:
    vectors: Path
    rows: int
    start: int  # first row in the numbering over all shards


@dataclass(frozen=True, slots=True)
class _Index:
    """All keys of a folder, sorted, with the row each one has in the numbering over all shards."""

    shards: tuple[_Shard, ...]
    keys: NDArray[np.bytes_]
    rows: NDArray[np.int64]
    truncated: NDArray[np.bool_]

    def find(self, keys: NDArray[np.bytes_]) -> NDArray[np.int64]:
        """Place of each key in ``self.keys``, (n,); -1 where it is absent."""
        if not len(self.keys):
            return np.full(len(keys), -1, dtype=np.int64)
        place = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return np.where(self.keys[place] == keys, place, -1)


class TextVectors:
    """Vectors of a list of texts, read from disk only where they are asked for.

    ``vectors[positions]`` gives (len(positions), dim) float32 for positions in that list (int array, slice or mask).
    """

    def __init__(self, gather: Callable[[NDArray[np.int64]], Vectors], *, rows: NDArray[np.int64], dim: int) -> None:
        self._gather, self._rows, self.dim = gather, rows, dim

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def shape(self) -> tuple[int, int]:
        """(texts, dim)."""
        return len(self._rows), self.dim

    def __getitem__(self, positions: Any) -> Vectors:
        """Rows at ``positions``; a single integer gives (1, dim)."""
        return self._gather(np.atleast_1d(self._rows[positions]))


class EmbeddingCache:
    """The vectors of one encoder under ``root``; texts are encoded once, ever.

    Args:
        root: folder shared by all encoders.
        encoder: its fingerprint picks the sub-folder.
        chunk: distinct texts per shard, which is what a killed run may lose.
        max_truncated_share: ``ensure`` raises when more of its distinct texts are cut; 1 = never.

    Raises:
        CacheError: if the folder belongs to another model or a file in it is damaged.
    """

    def __init__(self, root: Path, encoder: Encoder, *, chunk: int = 2048, max_truncated_share: float = 1.0) -> None:
        if chunk < 1:
            raise ValueError(f"chunk must be at least 1, got {chunk}")
        self.encoder, self.chunk, self.max_truncated_share = encoder, chunk, max_truncated_share
        self.folder = Path(root) / encoder.fingerprint[:16]
        self._check_owner()
        self._index = self._scan()

    def ensure(self, texts: Sequence[str]) -> EnsureStats:
        """Encode whatever is missing; afterwards ``rows`` needs no model.

        Missing texts are taken longest first (then by text) in chunks: batches stay even, running out of memory
        shows at once, and the order does not depend on how the caller came by the texts.

        Raises:
            TruncationError: before anything is encoded, if too many texts are too long.
            CacheError: if the encoder returns something that must not be stored.
        """
        started = time.perf_counter()
        distinct = sorted(set(texts), key=lambda text: (-len(text), text))
        keys = _keys(distinct)
        place = self._index.find(keys)
        if (place < 0).any():  # another process may have written it since
            self._index = self._scan()
            place = self._index.find(keys)
        missing = np.flatnonzero(place < 0)
        new_flags = self.encoder.truncated([distinct[i] for i in missing])
        truncated = int(new_flags.sum()) + int(self._index.truncated[place[place >= 0]].sum())
        self._check_truncation(truncated, total=len(distinct))
        if len(missing):
            self._encode([distinct[i] for i in missing], keys[missing], new_flags)
            self._index = self._scan()
            self._write_meta()
        seconds = time.perf_counter() - started
        stats = EnsureStats(len(missing), len(distinct) - len(missing), truncated, seconds)
        logger.log(
            logging.INFO if len(missing) else logging.DEBUG,
            "%s: %d texts encoded, %d reused, %d cut (%.1f %%), %.1f s",
            self.encoder.name, stats.new, stats.reused, truncated, 100 * stats.truncated_share, seconds,
        )  # fmt: skip
        return stats

    def rows(self, texts: Sequence[str]) -> Vectors:
        """(n, dim) float32, one unit row per text in the order given, repeats included; encodes what is missing."""
        self.ensure(texts)
        return self._gather(self._index, _rows_of(self._index, texts))

    def index(self, texts: Sequence[str]) -> TextVectors:
        """The same rows without reading them yet: for arrays that should not be in memory as a whole."""
        self.ensure(texts)
        # Later shards renumber the rows, so the list keeps the index it was numbered by.
        gather = partial(self._gather, self._index)
        return TextVectors(gather, rows=_rows_of(self._index, texts), dim=self.encoder.dim)

    def _encode(self, texts: list[str], keys: NDArray[np.bytes_], flags: NDArray[np.bool_]) -> None:
        if not self._meta_path.is_file():
            self._write_meta()  # before any shard: a folder of shards always says whose they are
        with _progress(texts, name=self.encoder.name) as advance:
            for start in range(0, len(texts), self.chunk):
                part = slice(start, start + self.chunk)
                self._write_shard(self._checked(self.encoder.encode(texts[part])), keys[part], flags[part])
                advance(len(texts[part]), sum(map(len, texts[part])))

    def _checked(self, vectors: Vectors) -> Vectors:
        if vectors.ndim != 2 or vectors.shape[1] != self.encoder.dim:
            raise CacheError(
                f"encoder {self.encoder.name} gave shape {vectors.shape}, expected (n, {self.encoder.dim})"
            )
        if not _are_unit_rows(vectors):
            raise CacheError(f"encoder {self.encoder.name} gave rows that are not finite and of length one")
        return np.ascontiguousarray(vectors, dtype=np.float32)

    def _write_shard(self, vectors: Vectors, keys: NDArray[np.bytes_], flags: NDArray[np.bool_]) -> None:
        records = np.empty(len(keys), dtype=_RECORD)
        records["key"], records["truncated"] = keys, flags
        name = f"shard-{hashlib.sha256(keys.tobytes()).hexdigest()[:16]}"
        write_array(self.folder / f"{name}.npy", vectors)
        write_array(self.folder / f"{name}.keys.npy", records)

    def _scan(self) -> _Index:
        """Read the keys of all complete shards, in the order of their names; of a repeated key the first row counts."""
        shards: list[_Shard] = []
        records: list[NDArray[Any]] = []
        start = 0
        for path in sorted(self.folder.glob("shard-*.keys.npy")):
            vectors = path.with_name(path.name.replace(".keys.npy", ".npy"))
            if not vectors.is_file():  # deleted by hand after an error, or by a full disk: encode again
                continue
            part = _load(path, mmap=False)
            if part.dtype != _RECORD or part.ndim != 1:
                raise _damaged(path, f"it holds {part.dtype} {part.shape} instead of keys")
            shards.append(_Shard(vectors, rows=len(part), start=start))
            records.append(part)
            start += len(part)
        table = np.concatenate(records) if records else np.empty(0, dtype=_RECORD)
        keys, first = np.unique(table["key"], return_index=True)
        return _Index(tuple(shards), keys, first.astype(np.int64), table["truncated"][first])

    def _gather(self, index: _Index, rows: NDArray[np.int64]) -> Vectors:
        out = np.empty((len(rows), self.encoder.dim), dtype=np.float32)
        shards = index.shards
        owner = np.searchsorted([shard.start for shard in shards], rows, side="right") - 1
        for i in np.unique(owner):
            here = np.flatnonzero(owner == i)
            # Opened anew each time: a kept map holds a file handle, and there may be more shards than handles.
            vectors = self._open(shards[i])[rows[here] - shards[i].start]
            if not _are_unit_rows(vectors):
                raise _damaged(shards[i].vectors, "it holds NaN or rows that are not of length one")
            out[here] = vectors
        return out

    def _open(self, shard: _Shard) -> Vectors:
        vectors = _load(shard.vectors, mmap=True)
        expected = (shard.rows, self.encoder.dim)
        if vectors.shape != expected or vectors.dtype != np.float32:
            raise _damaged(shard.vectors, f"it is {vectors.dtype} {vectors.shape}, expected float32 {expected}")
        return vectors

    @property
    def _meta_path(self) -> Path:
        return self.folder / "meta.json"

    def _check_owner(self) -> None:
        """Refuse a folder of another model.

        Raises:
            CacheError: if meta.json is missing beside shards, unreadable, or names another fingerprint or format.
        """
        if not self._meta_path.is_file():
            if any(self.folder.glob("shard-*")):
                raise CacheError(f"{self.folder} has shards but no meta.json; delete this folder and rerun")
            return
        try:
            meta = read_json(self._meta_path)
            owner, version = str(meta["fingerprint"]), meta["format"]
        except (ValueError, KeyError, TypeError) as error:
            raise _damaged(self._meta_path, f"it cannot be read ({error})", remedy="folder") from error
        if (owner, version) != (self.encoder.fingerprint, _FORMAT):
            raise CacheError(
                f"{self._meta_path} belongs to another model: {meta.get('name')!r}, fingerprint {owner[:16]}..., "
                f"format {version}; expected {self.encoder.name!r}, {self.encoder.fingerprint[:16]}..., "
                f"format {_FORMAT}. Point the cache at another folder, or delete this one and rerun"
            )

    def _write_meta(self) -> None:
        texts, truncated = len(self._index.keys), int(self._index.truncated.sum())
        content = {
            "format": _FORMAT,
            "fingerprint": self.encoder.fingerprint,
            "name": self.encoder.name,
            "dim": self.encoder.dim,
            "max_length": self.encoder.max_length,
            "texts": texts,
            "truncated": truncated,
            "truncated_share": truncated / max(texts, 1),
        }
        write_json(self._meta_path, content)

    def _check_truncation(self, truncated: int, *, total: int) -> None:
        if truncated > self.max_truncated_share * total:
            raise TruncationError(
                f"encoder {self.encoder.name} cuts {truncated} of {total} texts ({truncated / total:.1%}) at "
                f"{self.encoder.max_length} tokens, allowed is {self.max_truncated_share:.1%}; "
                "raise max_truncated_share or max_length, or shorten the texts"
            )


def _keys(texts: Sequence[str]) -> NDArray[np.bytes_]:
    """SHA-256 of each text, (n,) of 32 bytes. Lone surrogates, which broken JSON can carry, are hashed as they are."""
    digests = b"".join(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest() for text in texts)
    return np.frombuffer(digests, dtype=_KEY)


def _rows_of(index: _Index, texts: Sequence[str]) -> NDArray[np.int64]:
    return index.rows[index.find(_keys(texts))]


def _are_unit_rows(vectors: Vectors) -> bool:
    """False for NaN, infinities, and the zero rows that a hole in a file leaves behind."""
    lengths = np.einsum("ij,ij->i", vectors, vectors)
    return bool(np.all(np.abs(lengths - 1.0) < _UNIT_TOLERANCE))


def _load(path: Path, *, mmap: bool) -> NDArray[Any]:
    try:
        return np.load(path, mmap_mode="r" if mmap else None, allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise _damaged(path, f"it cannot be read ({error})") from error


def _damaged(path: Path, why: str, *, remedy: str = "file") -> CacheError:
    return CacheError(f"embedding cache {path} is damaged: {why}; delete this {remedy} and rerun")


@contextmanager
def _progress(texts: Sequence[str], *, name: str) -> Iterator[Callable[[int, int], None]]:
    """Yield ``advance(rows, characters)``. A bar on a terminal, otherwise a log line per chunk with rows/s and ETA.

    The time left follows the characters, not the rows: with the longest texts first, rows would overstate it.
    """
    total, characters = len(texts), max(sum(map(len, texts)), 1)
    started = time.perf_counter()
    done = [0, 0]
    # disable=None: tqdm itself stays silent where standard error is not a terminal
    with tqdm(total=characters, desc=f"encode {name}", unit="char", unit_scale=True, disable=None) as bar:

        def advance(rows: int, chars: int) -> None:
            done[0] += rows
            done[1] += chars
            spent = max(time.perf_counter() - started, 1e-9)
            left = spent * (characters - done[1]) / max(done[1], 1)
            bar.update(chars)
            bar.set_postfix_str(f"{done[0]}/{total} rows, {done[0] / spent:.0f} rows/s")
            if bar.disable:
                logger.info("encode %s: %d/%d, %.0f rows/s, %.0f s left", name, done[0], total, done[0] / spent, left)

        yield advance

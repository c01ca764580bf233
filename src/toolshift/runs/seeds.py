"""Seeds by name and keyed hashes: every random choice follows from ids and names, never from an order.

A keyed hash ``keyed_hash(salt, a, b)`` gives each (task, candidate) pair its own 64-bit number. Drawing by the
smallest hash is sampling without replacement that does not depend on list order, process count or hash seed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

U64 = NDArray[np.uint64]
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_M1 = np.uint64(0xBF58476D1CE4E5B9)
_M2 = np.uint64(0x94D049BB133111EB)


def seed_of(name: str, *parts: object) -> int:
    """A 63-bit seed from a name and any further parts; equal on every machine and process."""
    text = "\x1f".join((name, *map(str, parts)))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def generator(name: str, *parts: object) -> np.random.Generator:
    """A numpy generator that belongs to ``name`` alone; adding another one shifts nothing."""
    return np.random.Generator(np.random.Philox(seed_of(name, *parts)))


def id_hashes(ids: Iterable[str]) -> U64:
    """First 8 bytes of the SHA-256 of each id, as (n,) uint64."""
    digests = b"".join(hashlib.sha256(i.encode()).digest()[:8] for i in ids)
    return np.frombuffer(digests, dtype=">u8").astype(np.uint64)


def keyed_hash(salt: int, a: U64, b: U64) -> U64:
    """splitmix64 over salt, ``a`` and ``b`` (broadcast together): one 64-bit number per pair."""
    with np.errstate(over="ignore"):
        mixed = _splitmix(np.asarray(a, np.uint64) + np.uint64(salt))
        return _splitmix(mixed ^ (np.asarray(b, np.uint64) + _GOLDEN))


def uniform(hashes: U64) -> NDArray[np.float64]:
    """Hashes as uniform numbers in [0, 1) with 53 bits."""
    return (hashes >> np.uint64(11)).astype(np.float64) * 2.0**-53


def normal(hashes: U64) -> NDArray[np.float64]:
    """Hashes as standard normal numbers: the inverse distribution function at the middle of one of 2^52 equal cells,
    so that every hash gives a finite number."""
    from scipy.special import ndtri

    return ndtri(((hashes >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52)


def _splitmix(x: U64) -> U64:
    x = x + _GOLDEN
    x = (x ^ (x >> np.uint64(30))) * _M1
    x = (x ^ (x >> np.uint64(27))) * _M2
    return x ^ (x >> np.uint64(31))

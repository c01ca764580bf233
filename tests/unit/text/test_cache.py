"""The embedding cache: what it reuses, what it refuses, and what a killed run leaves."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from toolshift.text.cache import CacheError, EmbeddingCache, TruncationError
from toolshift.text.hashing import Hashing


class Counting(Hashing):
    """Hashing that notes what it encodes, cuts texts after ``max_length`` characters, and can be made to die."""

    def __init__(self, *, dim: int = 8, max_length: int = 40, die_after: int | None = None) -> None:
        super().__init__(dim=dim)
        self.max_length = max_length
        self.calls: list[list[str]] = []
        self.die_after = die_after

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        if self.die_after is not None and len(self.calls) >= self.die_after:
            raise KeyboardInterrupt
        self.calls.append(list(texts))
        return super().encode(texts)

    def truncated(self, texts: Sequence[str]) -> NDArray[np.bool_]:
        return np.array([len(text) > self.max_length for text in texts], dtype=bool)


TEXTS = ["rain in Oslo", "", "sun", "rain in Oslo", "a wind from the north", "sun"]


def _shards(root: Path) -> list[Path]:
    return sorted(path for path in root.glob("*/shard-*.npy") if not path.name.endswith(".keys.npy"))


def test_rows_come_in_the_given_order_with_repeats(tmp_path: Path) -> None:
    encoder = Counting()
    rows = EmbeddingCache(tmp_path, encoder, chunk=2).rows(TEXTS)
    np.testing.assert_array_equal(rows, Hashing(dim=8).encode(TEXTS))
    assert rows.dtype == np.float32


def test_each_distinct_text_is_encoded_once_longest_first(tmp_path: Path) -> None:
    encoder = Counting()
    cache = EmbeddingCache(tmp_path, encoder, chunk=3)
    stats = cache.ensure(TEXTS)
    assert encoder.calls == [["a wind from the north", "rain in Oslo", "sun"], [""]]
    assert (stats.new, stats.reused, stats.truncated) == (4, 0, 0)
    again = cache.ensure([*TEXTS, "new"])
    assert (again.new, again.reused) == (1, 4)
    assert encoder.calls[2:] == [["new"]]


def test_another_process_reads_what_is_there(tmp_path: Path) -> None:
    EmbeddingCache(tmp_path, Counting()).ensure(TEXTS)
    late = Counting()
    early = EmbeddingCache(tmp_path / "x", late)  # opened before anything is there
    EmbeddingCache(tmp_path / "x", Counting()).ensure(TEXTS)
    assert early.ensure(TEXTS).new == 0
    np.testing.assert_array_equal(EmbeddingCache(tmp_path, late).rows(TEXTS), Hashing(dim=8).encode(TEXTS))
    assert late.calls == []


def test_the_same_texts_give_the_same_files(tmp_path: Path) -> None:
    for root, texts in (("a", TEXTS), ("b", TEXTS[::-1])):
        EmbeddingCache(tmp_path / root, Counting(), chunk=2).ensure(texts)
    left, right = ({p.name: p.read_bytes() for p in (tmp_path / root).rglob("*.*")} for root in "ab")
    assert len(left) == 5 and left == right


def test_a_killed_run_keeps_its_chunks(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        EmbeddingCache(tmp_path, Counting(die_after=1), chunk=2).ensure(TEXTS)
    encoder = Counting()
    stats = EmbeddingCache(tmp_path, encoder, chunk=2).ensure(TEXTS)
    assert (stats.new, stats.reused) == (2, 2)
    assert encoder.calls == [["sun", ""]]
    assert not list(tmp_path.rglob("*.tmp"))


def test_vectors_without_keys_are_ignored(tmp_path: Path) -> None:
    """A run killed between the two files of a shard."""
    EmbeddingCache(tmp_path, Counting()).ensure(TEXTS)
    next(tmp_path.rglob("*.keys.npy")).unlink()
    assert EmbeddingCache(tmp_path, Counting()).ensure(TEXTS).new == 4


def test_two_writers_of_overlapping_texts(tmp_path: Path) -> None:
    one, two = (EmbeddingCache(tmp_path, Counting()) for _ in range(2))
    two._scan = one._scan
    one.ensure(["sun", "rain"])
    two._index = EmbeddingCache(tmp_path / "none", Counting())._index
    two._encode(["sun", "wind"], *_keys_and_flags(["sun", "wind"]))
    rows = EmbeddingCache(tmp_path, Counting(die_after=0)).rows(["rain", "sun", "wind"])
    np.testing.assert_array_equal(rows, Hashing(dim=8).encode(["rain", "sun", "wind"]))


def _keys_and_flags(texts: list[str]) -> tuple[NDArray[np.bytes_], NDArray[np.bool_]]:
    from toolshift.text.cache import _keys

    return _keys(texts), np.zeros(len(texts), dtype=bool)


def test_meta_tells_whose_vectors_these_are(tmp_path: Path) -> None:
    encoder = Counting(max_length=12)
    EmbeddingCache(tmp_path, encoder).ensure(TEXTS)
    folder = tmp_path / encoder.fingerprint[:16]
    meta = json.loads((folder / "meta.json").read_text())
    assert meta == {
        "format": 1,
        "fingerprint": encoder.fingerprint,
        "name": "hashing",
        "dim": 8,
        "max_length": 12,
        "texts": 4,
        "truncated": 1,
        "truncated_share": 0.25,
    }


def test_encoders_do_not_share_folders(tmp_path: Path) -> None:
    EmbeddingCache(tmp_path, Counting(dim=8)).ensure(TEXTS)
    assert EmbeddingCache(tmp_path, Counting(dim=4)).ensure(TEXTS).new == 4
    assert EmbeddingCache(tmp_path, Counting(dim=4)).rows(["sun"]).shape == (1, 4)


def test_keys_that_end_in_zero_bytes_are_found(tmp_path: Path) -> None:
    """numpy strips trailing zero bytes of such strings when it shows them; look-ups must not care."""
    texts = [f"text {i}" for i in range(2000)]
    cache = EmbeddingCache(tmp_path, Counting())
    cache.ensure(texts)
    assert any(len(bytes(key)) < 32 for key in cache._index.keys)  # the case does occur
    np.testing.assert_array_equal(cache.rows(texts), Hashing(dim=8).encode(texts))
    assert cache.ensure(texts).new == 0


def test_lone_surrogates_do_not_break_the_cache(tmp_path: Path) -> None:
    cache = EmbeddingCache(tmp_path, Hashing(dim=8))
    half, pair, emoji = cache.rows(["rain \ud83d", "rain \ud83d\ude00", "rain \U0001f600"])
    np.testing.assert_array_equal(pair, emoji)
    assert not np.array_equal(half, emoji)


def test_lazy_vectors_stay_right_when_the_cache_grows(tmp_path: Path) -> None:
    cache = EmbeddingCache(tmp_path, Counting(), chunk=1)
    vectors = cache.index(TEXTS)
    expected = Hashing(dim=8).encode(TEXTS)
    cache.ensure([f"later {i}" for i in range(20)])
    assert len(vectors) == 6 and vectors.shape == (6, 8)
    np.testing.assert_array_equal(vectors[np.array([4, 0, 4])], expected[[4, 0, 4]])
    np.testing.assert_array_equal(vectors[1:3], expected[1:3])
    np.testing.assert_array_equal(vectors[2], expected[2:3])
    np.testing.assert_array_equal(vectors[np.array(TEXTS) == "sun"], expected[[2, 5]])


def test_no_texts(tmp_path: Path) -> None:
    cache = EmbeddingCache(tmp_path, Counting())
    assert cache.rows([]).shape == (0, 8)
    stats = cache.ensure([])
    assert (stats.new, stats.reused, stats.truncated_share) == (0, 0, 0)
    assert not cache.folder.exists()


def test_truncation_is_counted_also_for_cached_texts_and_can_be_an_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    texts = ["x" * 50, "y" * 60, "short", "sun"]
    with caplog.at_level(logging.INFO):
        assert EmbeddingCache(tmp_path, Counting()).ensure(texts).truncated == 2
    assert "2 cut (50.0 %)" in caplog.text
    assert "rows/s" in caplog.text
    assert EmbeddingCache(tmp_path, Counting()).ensure(texts).truncated_share == 0.5
    with pytest.raises(TruncationError, match=r"cuts 2 of 4 texts \(50.0%\) at 40 tokens, allowed is 10.0%"):
        EmbeddingCache(tmp_path, Counting(), max_truncated_share=0.1).ensure(texts)
    encoder = Counting()
    with pytest.raises(TruncationError):
        EmbeddingCache(tmp_path / "new", encoder, max_truncated_share=0.1).ensure(texts)
    assert encoder.calls == []


def test_a_cache_of_another_model_is_refused(tmp_path: Path) -> None:
    encoder = Counting()
    EmbeddingCache(tmp_path, encoder).ensure(TEXTS)
    meta = tmp_path / encoder.fingerprint[:16] / "meta.json"
    content = json.loads(meta.read_text())
    meta.write_text(json.dumps(content | {"fingerprint": encoder.fingerprint[:16] + "0" * 48, "name": "other"}))
    with pytest.raises(CacheError, match=r"meta\.json belongs to another model: 'other'"):
        EmbeddingCache(tmp_path, encoder)
    for broken in ("{", "[]", "{}"):
        meta.write_text(broken)
        with pytest.raises(CacheError, match=r"meta\.json is damaged.*delete this folder"):
            EmbeddingCache(tmp_path, encoder)
    meta.unlink()
    with pytest.raises(CacheError, match=r"no meta\.json; delete this folder and rerun"):
        EmbeddingCache(tmp_path, encoder)


def _spoil_nan(path: Path) -> None:
    rows = np.load(path)
    rows[0, 0] = np.nan
    np.save(path, rows)


def _spoil_hole(path: Path) -> None:
    rows = np.load(path)
    rows[-1] = 0
    np.save(path, rows)


def _spoil_shape(path: Path) -> None:
    np.save(path, np.load(path)[:, :3])


def _spoil_dtype(path: Path) -> None:
    np.save(path, np.load(path).astype(np.float64))


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def _empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("spoil", [_spoil_nan, _spoil_hole, _spoil_shape, _spoil_dtype, _cut, _empty])
def test_a_damaged_shard_is_named_and_deleting_it_heals(tmp_path: Path, spoil: Callable[[Path], None]) -> None:
    EmbeddingCache(tmp_path, Counting()).ensure(TEXTS)
    (shard,) = _shards(tmp_path)
    spoil(shard)
    with pytest.raises(CacheError, match=rf"{shard.name} is damaged: .*; delete this file and rerun"):
        EmbeddingCache(tmp_path, Counting()).rows(TEXTS)
    shard.unlink()
    np.testing.assert_array_equal(EmbeddingCache(tmp_path, Counting()).rows(TEXTS), Hashing(dim=8).encode(TEXTS))


@pytest.mark.parametrize("spoil", [_cut, _empty, lambda path: np.save(path, np.zeros(3))])
def test_damaged_keys_are_named_and_deleting_them_heals(tmp_path: Path, spoil: Callable[[Path], None]) -> None:
    EmbeddingCache(tmp_path, Counting()).ensure(TEXTS)
    keys = next(tmp_path.rglob("*.keys.npy"))
    spoil(keys)
    with pytest.raises(CacheError, match=rf"{keys.name} is damaged"):
        EmbeddingCache(tmp_path, Counting())
    keys.unlink()
    assert EmbeddingCache(tmp_path, Counting()).ensure(TEXTS).new == 4


@pytest.mark.parametrize("bad", [np.full((4, 8), np.nan), np.ones((4, 8)), np.ones((4, 7)) / 7**0.5])
def test_an_encoder_that_misbehaves_stores_nothing(tmp_path: Path, bad: NDArray[np.float64]) -> None:
    encoder = Counting()
    encoder.encode = lambda texts: bad.astype(np.float32)
    with pytest.raises(CacheError, match="encoder hashing gave"):
        EmbeddingCache(tmp_path, encoder).ensure(TEXTS)
    assert _shards(tmp_path) == []


def test_bad_chunk(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="chunk"):
        EmbeddingCache(tmp_path, Counting(), chunk=0)

"""Seeds by name and keyed hashes: known values, uniform, independent of every order."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolshift.runs.seeds import generator, id_hashes, keyed_hash, normal, seed_of, uniform

IDS = [f"toy/id{i}" for i in range(400)]


def test_seeds_are_the_first_bits_of_sha256() -> None:
    digest = hashlib.sha256(b"draw\x1fordinary\x1f7").digest()
    assert seed_of("draw", "ordinary", 7) == int.from_bytes(digest[:8], "big") >> 1
    assert 0 <= seed_of("draw") < 2**63


def test_parts_of_a_seed_do_not_run_together() -> None:
    assert len({seed_of("a", "b", "c"), seed_of("a", "bc"), seed_of("ab", "c"), seed_of("abc")}) == 4


def test_generators_belong_to_their_name() -> None:
    first = generator("one", 3).random(5)
    generator("two", 3).random(100)
    np.testing.assert_array_equal(generator("one", 3).random(5), first)
    assert not np.array_equal(generator("one", 4).random(5), first)
    assert not np.array_equal(generator("two", 3).random(5), first)


def test_id_hashes() -> None:
    expected = [int.from_bytes(hashlib.sha256(i.encode()).digest()[:8], "big") for i in ("a", "b/c", "\u00e9")]
    assert id_hashes(["a", "b/c", "\u00e9"]).tolist() == expected
    assert id_hashes(iter([])).shape == (0,)


def splitmix64(x: int) -> int:
    """Steele, Lea, Flood 2014, in plain integers."""
    mask = 2**64 - 1
    x = (x + 0x9E3779B97F4A7C15) & mask
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & mask
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & mask
    return x ^ (x >> 31)


def test_splitmix64_of_the_literature() -> None:
    """The first outputs of the reference implementation for seed 0; the tests below rely on it."""
    assert splitmix64(0) == 0xE220A8397B1DCDAF
    assert splitmix64(0x9E3779B97F4A7C15) == 0x6E789E6AA1B965F4


U64 = st.integers(0, 2**64 - 1)


@given(salt=st.integers(0, 2**63 - 1), a=U64, b=U64)
def test_keyed_hash_is_splitmix_over_salt_and_both_keys(salt: int, a: int, b: int) -> None:
    mask = 2**64 - 1
    expected = splitmix64(splitmix64((a + salt) & mask) ^ ((b + 0x9E3779B97F4A7C15) & mask))
    found = keyed_hash(salt, np.array([a], np.uint64), np.array([b], np.uint64))
    assert found.dtype == np.uint64
    assert int(found[0]) == expected


def test_keyed_hash_is_elementwise() -> None:
    a, b = id_hashes(IDS), id_hashes(reversed(IDS))
    whole = keyed_hash(5, a, b)
    order = np.random.default_rng(0).permutation(len(IDS))
    np.testing.assert_array_equal(keyed_hash(5, a[order], b[order]), whole[order])
    table = keyed_hash(5, a[:, None], b[None, :])
    assert table.shape == (400, 400)
    np.testing.assert_array_equal(np.diagonal(table), whole)
    assert np.unique(table).size == table.size


def test_salt_and_both_keys_count() -> None:
    a, b = id_hashes(IDS), id_hashes(reversed(IDS))
    for other in (keyed_hash(6, a, b), keyed_hash(5, b, a), keyed_hash(5, a, np.roll(b, 1))):
        assert (keyed_hash(5, a, b) != other).all()


@pytest.mark.parametrize("salt", [0, 1, seed_of("x")])
def test_uniform_numbers_are_uniform_along_both_keys(salt: int) -> None:
    table = uniform(keyed_hash(salt, id_hashes(IDS)[:, None], id_hashes(IDS)[None, :]))
    assert table.min() >= 0
    assert table.max() < 1
    n = table.size
    bins, _ = np.histogram(table, bins=64, range=(0, 1))
    chi2 = ((bins - n / 64) ** 2 / (n / 64)).sum()
    assert abs(chi2 - 63) < 4 * np.sqrt(2 * 63)
    spread = 4 * np.sqrt(1 / 12 / len(IDS))
    assert np.abs(table.mean(axis=0) - 0.5).max() < spread + 0.01
    assert np.abs(table.mean(axis=1) - 0.5).max() < spread + 0.01
    assert abs(np.corrcoef(table[:, :-1].ravel(), table[:, 1:].ravel())[0, 1]) < 0.01


def test_uniform_and_normal_at_the_ends() -> None:
    ends = np.array([0, 2**63, 2**64 - 1], np.uint64)
    np.testing.assert_array_equal(uniform(ends), [0, 0.5, 1 - 2**-53])
    low, middle, high = normal(ends)
    assert np.isfinite([low, high]).all()
    assert low == pytest.approx(-high)
    assert high > 8
    assert abs(middle) < 1e-15


def test_normal_numbers_are_normal() -> None:
    z = normal(keyed_hash(1, id_hashes(IDS)[:, None], id_hashes(IDS)[None, :])).ravel()
    n = z.size
    assert abs(z.mean()) < 4 / np.sqrt(n)
    assert abs(z.var() - 1) < 4 * np.sqrt(2 / n)
    assert np.mean(np.abs(z) < 1.959964) == pytest.approx(0.95, abs=4 * np.sqrt(0.05 * 0.95 / n))


def test_smallest_hashes_sample_without_preference() -> None:
    """Each of 20 candidates is among the five smallest in a quarter of 2,000 draws."""
    tasks = id_hashes(f"t{i}" for i in range(2000))
    hashes = keyed_hash(seed_of("draw"), tasks[:, None], id_hashes(IDS[:20])[None, :])
    chosen = np.argsort(hashes, axis=1)[:, :5]
    share = np.bincount(chosen.ravel(), minlength=20) / 2000
    assert np.abs(share - 0.25).max() < 4 * np.sqrt(0.25 * 0.75 / 2000)

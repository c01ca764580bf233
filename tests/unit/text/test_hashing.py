"""The encoder without weights, and what every encoder promises."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolshift.text.encoder import Encoder, EncoderError, fingerprint, unit_rows
from toolshift.text.hashing import Hashing


def test_it_is_an_encoder() -> None:
    assert isinstance(Hashing(), Encoder)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.text(max_size=40), max_size=6))
def test_rows_are_unit_vectors_that_do_not_depend_on_their_neighbours(texts: list[str]) -> None:
    encoder = Hashing(dim=64, batch_size=2)
    rows = encoder.encode(texts)
    assert rows.shape == (len(texts), 64) and rows.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-5)
    for text, row in zip(texts, rows, strict=True):
        np.testing.assert_array_equal(encoder.encode([text])[0], row)


def test_the_empty_text_is_the_constant_row() -> None:
    np.testing.assert_allclose(Hashing(dim=16).encode([""]), 0.25)


def test_shared_words_and_shared_spelling_are_near() -> None:
    a, reordered, variant, other = Hashing().encode(
        ["weather forecast", "forecast of the weather", "weathers forecasting", "bank transfer"]
    )
    assert a @ reordered > a @ other + 0.3
    assert a @ variant > a @ other + 0.3


def test_words_of_identifiers_are_seen() -> None:
    camel, plain, other = Hashing().encode(["getWeatherForecast", "get weather forecast", "get bank transfer"])
    assert camel @ plain > camel @ other


def test_nothing_is_truncated() -> None:
    assert Hashing().truncated(["a" * 10_000, ""]).tolist() == [False, False]


def test_the_fingerprint_follows_the_dimension_and_is_stable() -> None:
    assert Hashing().fingerprint == Hashing(batch_size=7).fingerprint != Hashing(dim=128).fingerprint
    assert len(Hashing().fingerprint) == 64


@pytest.mark.parametrize("bad", [{"dim": 1}, {"batch_size": 0}])
def test_bad_parameters(bad: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="dim >= 2"):
        Hashing(**bad)


def test_unit_rows() -> None:
    np.testing.assert_allclose(unit_rows(np.array([[3.0, 4.0], [0.0, 0.0]])), [[0.6, 0.8], [0.5**0.5, 0.5**0.5]])
    with pytest.raises(EncoderError, match="1 of 2 encoded rows"):
        unit_rows(np.array([[1.0, np.nan], [1.0, 0.0]]))


def test_fingerprint_ignores_the_order_of_parts_but_no_value() -> None:
    assert fingerprint(a=1, b="x") == fingerprint(b="x", a=1) != fingerprint(a=2, b="x")


def test_importing_the_text_stage_imports_no_heavy_package() -> None:
    code = (
        "import sys; import toolshift.text.minilm, toolshift.text.hashing, toolshift.text.cache,"
        "toolshift.text.lexical, toolshift.text.spans;"
        "print([m for m in ('torch', 'sentence_transformers', 'transformers', 'sklearn', 'scipy', 'bm25s')"
        " if m in sys.modules])"
    )
    environment = {"PYTHONPATH": ":".join(p for p in sys.path if p)}
    result = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"

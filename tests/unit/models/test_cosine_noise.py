"""The placebo: keyed noise on the cosine, its scale chosen on the sources."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from toolshift.models.frozen.cosine_noise import CosineNoise, FittedNoise, noisy_cosine
from toolshift.selection.value import source_value
from toolshift.views.corpus import build_corpus

SCALES = (0.0, 0.05, 0.1, 0.2)


@pytest.fixture
def sources(worlds: Any, make: Any) -> Any:
    """(bank, source) of 60 tasks with one gold and six other tools; ``gold`` and ``other`` are cosines with any
    task."""

    def built(gold: float, other: float) -> Any:
        tools = [worlds.Tool(n, "A", ()) for n in ("gold", *(f"other{i}" for i in range(6)))]
        asks = [worlds.Ask(f"a{i:02d}", "A", "task", (("gold",),)) for i in range(60)]
        corpus, _ = build_corpus(worlds.records(tools, asks))
        directions = {"task": 1.0, "gold": gold, **{f"other{i}": other for i in range(6)}}
        bank = make.bank(corpus, {t: (c, np.sqrt(1 - c * c)) for t, c in directions.items()})
        manifest = make.manifest({i: ((0,), range(1, 7)) for i in range(60)})
        return bank, make.fixed_source({"v": manifest}, corpus)

    return built


def test_where_noise_hurts_there_is_none(sources: Any, make: Any) -> None:
    bank, source = sources(gold=0.5, other=0.35)
    fitted = CosineNoise().fit(source, bank=bank, measure=source_value, seed=0)
    values = fitted.record["source_value"]
    assert fitted.record["scale"] == 0.0
    assert list(values) == ["0.0", "0.05", "0.1", "0.2"]
    assert values["0.0"] == 1.0
    assert values["0.2"] < values["0.1"] < values["0.05"] <= 1.0
    pairs = make.all_pairs(bank.corpus)
    np.testing.assert_array_equal(fitted.score(pairs, bank=bank, seed=5), bank.cosine(pairs))


def test_where_the_anchor_is_misled_noise_helps(sources: Any) -> None:
    """Negatives mined by cosine: the more noise, the better (validity.md section 2)."""
    bank, source = sources(gold=0.35, other=0.5)
    fitted = CosineNoise().fit(source, bank=bank, measure=source_value, seed=0)
    assert fitted.record["scale"] == 0.2


@pytest.mark.parametrize(
    ("values", "choice"),
    [
        ({0.0: 0.5, 0.05: 0.5, 0.1: 0.5, 0.2: 0.5}, 0.0),
        ({0.0: 0.4, 0.05: 0.5, 0.1: 0.3, 0.2: 0.5}, 0.05),
        ({0.0: 0.5, 0.05: 0.5 + 1e-14, 0.1: 0.3, 0.2: 0.1}, 0.0),  # rounding is no gain
        ({0.0: 0.1, 0.05: 0.2, 0.1: 0.4, 0.2: 0.3}, 0.1),
    ],
)
def test_the_best_value_ties_to_the_smaller_scale(sources: Any, values: dict[float, float], choice: float) -> None:
    bank, source = sources(gold=0.5, other=0.35)
    given = iter(values[scale] for scale in SCALES)
    limits = []

    def measure(_: Any, score: Any, *, max_tasks: int | None = None) -> float:
        limits.append(max_tasks)
        return next(given)

    ranker = CosineNoise(scales=tuple(reversed(SCALES)), max_source_tasks=17)
    fitted = ranker.fit(source, bank=bank, measure=measure, seed=0)
    assert fitted.record["scale"] == choice
    assert limits == [17] * 4
    assert fitted.contexts_seen == source.contexts


def test_noise_is_standard_normal_and_keyed_by_pair_and_seed(fixed_world: Any, make: Any) -> None:
    pairs, bank = make.all_pairs(fixed_world.corpus), fixed_world.bank()
    cosine = bank.cosine(pairs)
    noise = (noisy_cosine(pairs, bank=bank, scale=0.1, seed=3) - cosine) / 0.1
    n = noise.size
    assert abs(noise.mean()) < 3 / np.sqrt(n)
    assert abs(noise.var() - 1) < 3 * np.sqrt(2 / n)
    order = np.random.default_rng(0).permutation(n)[:50]
    again = (noisy_cosine(pairs.take(order), bank=bank, scale=0.1, seed=3) - cosine[order]) / 0.1
    np.testing.assert_allclose(again, noise[order], atol=1e-9)
    other = (noisy_cosine(pairs, bank=bank, scale=0.1, seed=4) - cosine) / 0.1
    assert abs(np.corrcoef(noise, other)[0, 1]) < 0.1


def test_the_scale_multiplies_the_same_noise(fixed_world: Any, make: Any) -> None:
    pairs, bank = make.all_pairs(fixed_world.corpus), fixed_world.bank()
    cosine = bank.cosine(pairs)
    small, large = (
        FittedNoise(scale=s, values={}, contexts_seen=()).score(pairs, bank=bank, seed=1) for s in (0.05, 0.2)
    )
    np.testing.assert_allclose((large - cosine), 4 * (small - cosine), atol=1e-12)

"""The skip term, the listwise loss and the label-free alignment of the signature."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from toolshift.models.base import BadParameter
from toolshift.models.features import Pairs
from toolshift.models.transfer.multipool import MultiPool, part_sample, rescaling
from toolshift.training.lists import TrainingLists
from toolshift.views.corpus import Part

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("one_thread")


def small(**parameters: Any) -> MultiPool:
    return MultiPool(**{"hidden": (16, 8), "batch_tasks": 16, "learning_rate": 0.01, **parameters})


def split(world: Any, training: Any, worlds: Any, make: Any) -> Any:
    """The last domain of the world as a dataset of its own, which is held out."""
    first = Part(name="one", tasks=slice(0, 30), capabilities=slice(0, 21))
    second = Part(name="two", tasks=slice(30, 40), capabilities=slice(21, 28))
    bank = replace(world.bank(), corpus=replace(world.corpus, parts=(first, second)))
    source = make.source(world, worlds.Rules(length=8, hard=4), target="D3")
    assert source.tasks.max() < 30
    return replace(training, source=source, bank=bank)


@pytest.fixture(scope="module")
def two_datasets(training: Any, fixed_world: Any, worlds: Any, make: Any) -> Any:
    return split(fixed_world, training, worlds, make)


def test_training_starts_at_the_cosine(training: Any) -> None:
    fitted = training.last(small(learning_rate=0.0), epochs=1)
    np.testing.assert_allclose(training.scores(fitted), training.bank.cosine(training.pairs), atol=1e-6)


def test_the_loss_is_listwise_on_scores_over_the_temperature(training: Any) -> None:
    fitted = training.last(small(learning_rate=0.0, dropout=0.0, batch_tasks=99, temperature=0.2), epochs=1)
    lists = TrainingLists.of(training.source.manifests, training.bank.corpus, max_tasks=None)
    (batch,) = lists.epoch(0, seed=42, batch_tasks=99)
    scores = training.bank.cosine(Pairs(task=batch.tasks[batch.owner], capability=batch.capability)) / 0.2
    costs = []
    for i in range(batch.tasks.size):
        at = slice(batch.offsets[i], batch.offsets[i + 1])
        good = batch.positive[at]
        costs.append(np.log1p(np.exp(scores[at][~good]).sum() / np.exp(scores[at][good])).mean())
    assert fitted.record["training_loss"] == pytest.approx(np.mean(costs), rel=1e-5)


def test_rescaling_by_hand() -> None:
    """Target mean 2, deviation 4 to source mean 1, deviation 2: the target's x = 6 lies one deviation up, as 3 does."""
    source, target = np.array([[1.0], [2.0]]), np.array([[2.0], [4.0]])
    ratio, shift = rescaling(source, target)
    np.testing.assert_allclose(6 * ratio + shift, 3.0, rtol=1e-5)


def test_a_silent_unit_is_not_blown_up() -> None:
    ratio, _ = rescaling(np.array([[0.0, 1.0], [3.0, 0.0]]), np.array([[0.0, 0.0], [0.0, 3.0]]))
    np.testing.assert_allclose(ratio, [4.0, 0.25])


def test_alignment_is_for_datasets_without_source_tasks(two_datasets: Any) -> None:
    scores = {a: two_datasets.scores(two_datasets.last(small(alignment=a))) for a in ("none", "signature")}
    other = two_datasets.pairs.task >= 30
    np.testing.assert_array_equal(scores["none"][~other], scores["signature"][~other])
    assert not np.allclose(scores["none"][other], scores["signature"][other], atol=1e-3)


def test_alignment_inside_one_dataset_does_nothing(training: Any) -> None:
    found = [training.scores(training.last(small(alignment=a))) for a in ("none", "signature")]
    np.testing.assert_array_equal(*found)


def test_an_aligned_signature_has_the_sources_mean_and_deviation(two_datasets: Any) -> None:
    fitted = two_datasets.last(small())
    corpus = two_datasets.bank.corpus
    sample = part_sample(corpus, np.arange(30, 40), corpus.parts[1])
    mean, deviation = fitted.statistics(sample, bank=two_datasets.bank)
    ratio, shift = rescaling(fitted.signature, np.stack([mean, deviation]))
    bounded = (ratio > 0.26) & (ratio < 3.9)
    assert bounded.any()
    np.testing.assert_allclose((mean * ratio + shift)[bounded], fitted.signature[0][bounded], atol=1e-4)
    np.testing.assert_allclose((deviation * ratio)[bounded], fitted.signature[1][bounded], atol=1e-4)


def test_an_aligned_score_does_not_depend_on_the_other_pairs(two_datasets: Any) -> None:
    fitted = two_datasets.last(small())
    last = two_datasets.pairs.take(slice(len(two_datasets.pairs) - 1, None))
    np.testing.assert_allclose(
        two_datasets.scores(fitted, last), two_datasets.scores(fitted)[-1:], rtol=1e-5, atol=1e-6
    )


def test_the_sample_is_of_the_part_and_of_the_ids_alone(two_datasets: Any) -> None:
    corpus = two_datasets.bank.corpus
    part = corpus.parts[1]
    sample = part_sample(corpus, np.arange(30, 40), part, count=25)
    assert 15 <= len(sample) <= 25
    assert set(sample.task) == set(range(30, 40))
    assert sample.capability.min() >= 21 and sample.capability.max() < 28
    keys = sample.task * corpus.n_capabilities + sample.capability
    assert (np.diff(keys) > 0).all()
    again = part_sample(corpus, np.arange(30, 40)[::-1].copy(), part, count=25)
    np.testing.assert_array_equal(again.task, sample.task)
    np.testing.assert_array_equal(again.capability, sample.capability)


def test_alignment_reads_no_label_of_the_target(training: Any, two_datasets: Any, worlds: Any, make: Any) -> None:
    other = worlds.of(worlds.relabelled(worlds.fixed(), "D3", how="replaced"), top=12)
    fits = [(data, data.last(small())) for data in (two_datasets, split(other, training, worlds, make))]
    np.testing.assert_array_equal(*(data.scores(fitted) for data, fitted in fits))


def test_what_the_record_and_the_checkpoint_say_of_the_alignment(training: Any, two_datasets: Any) -> None:
    across, inside = two_datasets.last(small()), training.last(small())
    assert (across.record["alignment"], across.record["source_datasets"]) == ("signature", ["one"])
    assert across.state()["signature"].shape == (2, 8)
    assert inside.record["alignment"] == "none"
    assert "signature" not in inside.state()


def test_an_unknown_alignment_is_refused() -> None:
    with pytest.raises(BadParameter, match="multipool: alignment='coral'; expected one of none, signature"):
        small(alignment="coral")

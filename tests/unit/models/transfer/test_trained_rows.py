"""What every gradient-trained transfer row must do: learn, repeat, stay pointwise, obey its limits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from toolshift.models.features import Pairs, UnknownSpace
from toolshift.models.transfer.aread import AreadAdapted
from toolshift.models.transfer.multipool import MultiPool
from toolshift.models.transfer.unisrec import UniSRec
from toolshift.models.transfer.zesrec import ZesRec

pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("one_thread")


def multipool(**parameters: Any) -> MultiPool:
    return MultiPool(**{"hidden": (16, 8), "batch_tasks": 16, "learning_rate": 0.01, **parameters})


def zesrec(**parameters: Any) -> ZesRec:
    return ZesRec(**{"widths": (16, 8), "batch_tasks": 16, **parameters})


def unisrec(**parameters: Any) -> UniSRec:
    return UniSRec(**{"experts": 3, "width": 8, "batch_tasks": 16, **parameters})


def aread(**parameters: Any) -> AreadAdapted:
    sizes = {"hidden": (16, 8), "experts": 3, "expert_width": 4, "context_width": 5, "mask_after": 1}
    return AreadAdapted(**{**sizes, "batch_tasks": 16, "learning_rate": 0.01, **parameters})


Build = Callable[..., Any]
ROWS: Mapping[str, tuple[Build, Sequence[Mapping[str, float]]]] = {
    "multipool": (multipool, [{"weight_decay": 9.0}, {"weight_decay": 2.0}, {"weight_decay": 0.0}]),
    "zesrec": (zesrec, [{"lambda_v": 99.0}, {"lambda_v": 1.0}, {"lambda_v": 0.0}]),
    "unisrec": (unisrec, [{"retained": 0.25}, {"retained": 0.5}, {"retained": 1.0}]),
    "aread_adapted": (aread, [{"beta": 0.0}, {"beta": 0.5}, {"beta": 1.0}]),
}
OTHER: Mapping[str, Sequence[Mapping[str, Any]]] = {
    "multipool": [{"dropout": 0.5}, {"temperature": 1.0}, {"hidden": (16, 9)}],
    "zesrec": [{"temperature": 0.5}, {"residual": False}, {"widths": (16, 9)}],
    "unisrec": [
        {"dropout": 0.5},
        {"temperature": 0.2},
        {"augment": False},
        {"augment_weight": 1.0},
        {"word_dropout": 0.6},
        {"same_item": "zero_logit"},
        {"whitening": False},
        {"gate": False},
        {"experts": 2},
    ],
    "aread_adapted": [
        {"dropout": 0.5},
        {"weight_decay": 2.0},
        {"temperature": 1.0},
        {"routing_temperature": 1.0},
        {"context_share": 0.1},
        {"experts": 2},
    ],
}
each_row = pytest.mark.parametrize("name", sorted(ROWS))
LARGE = {
    "multipool": lambda: MultiPool(weight_decay=0.0, dropout=0.0, learning_rate=3e-3, batch_tasks=64),
    "zesrec": lambda: ZesRec(lambda_v=0.01, learning_rate=3e-3, batch_tasks=64),
    "unisrec": lambda: UniSRec(dropout=0.0, learning_rate=3e-3, batch_tasks=16),
    "aread_adapted": lambda: AreadAdapted(weight_decay=0.0, dropout=0.0, learning_rate=3e-3, batch_tasks=64),
}


@each_row
def test_two_hundred_tasks_can_be_memorised(two_hundred: Any, name: str) -> None:
    fitted = two_hundred.last(LARGE[name](), epochs=60)
    assert min(two_hundred.ndcg(fitted).values()) > 0.95, two_hundred.ndcg(fitted)


@each_row
def test_equal_seeds_give_equal_bytes_and_others_do_not(training: Any, name: str) -> None:
    build, _ = ROWS[name]
    one, again, other = (training.last(build(), seed=s) for s in (42, 42, 43))
    assert training.digest(one) == training.digest(again) != training.digest(other)
    np.testing.assert_array_equal(training.scores(one), training.scores(again))


@each_row
def test_several_threads_give_equal_bytes(training: Any, name: str) -> None:
    import torch

    torch.set_num_threads(2)
    build, _ = ROWS[name]
    assert len({training.digest(training.last(build(), epochs=1)) for _ in range(3)}) == 1


@each_row
def test_settings_fitted_together_are_those_fitted_alone(training: Any, name: str) -> None:
    from toolshift.models.base import Limits

    build, settings = ROWS[name]
    models = [build(**s) for s in settings]
    assert type(models[0]).alike(models)
    limits = Limits(epochs=3, max_tasks=None)
    *_, together = type(models[0]).together(models, training.source, bank=training.bank, seed=42, limits=limits)
    every = []
    for model, fitted in zip(models, together, strict=True):
        alone = training.last(model, epochs=3)
        assert fitted.record["training_loss"] == pytest.approx(alone.record["training_loss"], rel=1e-4)
        np.testing.assert_allclose(training.scores(fitted), training.scores(alone), rtol=1e-3, atol=1e-4)
        every.append(training.scores(fitted))
    assert not np.allclose(every[0], every[1], atol=1e-5)
    assert not np.allclose(every[1], every[2], atol=1e-5)


@each_row
def test_later_epochs_leave_a_scorer_alone_and_fewer_are_the_first_of_more(training: Any, name: str) -> None:
    from toolshift.models.base import Limits

    build, _ = ROWS[name]
    limits = Limits(epochs=3, max_tasks=None)
    fits = build().epochs(training.source, bank=training.bank, seed=42, limits=limits)
    first = next(fits)
    before = training.digest(first)
    second, third = fits
    assert training.digest(first) == before
    assert len({before, training.digest(second), training.digest(third)}) == 3
    assert training.digest(training.last(build(), epochs=2)) == training.digest(second)
    assert first.contexts_seen == training.source.contexts == ("D0", "D2", "D3")


@pytest.mark.parametrize(("name", "change"), [(n, c) for n in sorted(OTHER) for c in OTHER[n]])
def test_every_parameter_reaches_the_fit(training: Any, name: str, change: Mapping[str, Any]) -> None:
    build, _ = ROWS[name]
    usual, other = training.last(build()), training.last(build(**change))
    assert not np.allclose(training.scores(usual), training.scores(other), rtol=1e-4, atol=1e-6)
    assert not type(build()).alike([build(), build(**change)])


@each_row
def test_a_score_depends_on_its_pair_alone(training: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fitted = training.last(ROWS[name][0]())
    whole = training.scores(fitted)
    part = training.pairs.take(np.arange(3, len(training.pairs), 7))
    np.testing.assert_allclose(training.scores(fitted, part), whole[3::7], rtol=1e-4, atol=1e-5)
    monkeypatch.setattr("toolshift.models.transfer._training.CHUNK_PAIRS", 13)
    np.testing.assert_allclose(training.scores(fitted), whole, rtol=1e-4, atol=1e-5)


@each_row
def test_limits_reach_the_fit(training: Any, name: str) -> None:
    build, _ = ROWS[name]
    usual = training.digest(training.last(build()))
    assert training.digest(training.last(build(), max_tasks=5)) != usual
    assert training.digest(training.last(build(), batch_tasks=4)) == training.digest(
        training.last(build(batch_tasks=4))
    )
    assert training.digest(training.last(build(), batch_tasks=99)) == usual


@each_row
def test_coordinates_reach_the_fit_and_unknown_ones_are_refused(training: Any, name: str) -> None:
    build, _ = ROWS[name]
    aligned = training.scores(training.last(build(space="aligned")))
    assert not np.allclose(aligned, training.scores(training.last(build())), atol=1e-3)
    with pytest.raises(UnknownSpace, match=f"{name}: space='centred'"):
        build(space="centred")


@each_row
def test_the_checkpoint_is_of_finite_arrays(training: Any, name: str) -> None:
    fitted = training.last(ROWS[name][0]())
    state = fitted.state()
    assert all(isinstance(value, np.ndarray) and np.isfinite(value).all() for value in state.values())
    assert np.isfinite(fitted.record["training_loss"])


@each_row
def test_a_loss_that_is_not_finite_is_an_error(training: Any, name: str) -> None:
    with pytest.raises(FloatingPointError, match=r"epoch \d: the loss is not finite; lower the learning rate"):
        training.last(ROWS[name][0](learning_rate=1e30), epochs=3)


@each_row
def test_training_lowers_the_loss(training: Any, name: str) -> None:
    build, _ = ROWS[name]
    losses = [training.last(build(**({} if name == "zesrec" else {"dropout": 0.0})), epochs=e) for e in (1, 12)]
    assert losses[1].record["training_loss"] < 0.95 * losses[0].record["training_loss"]


@each_row
def test_a_source_without_any_context_can_be_learned_from(training: Any, name: str) -> None:
    from dataclasses import replace

    from toolshift.models.base import Limits

    bare = replace(training.source, context_of=np.full_like(training.source.context_of, -1), contexts=())
    model, limits = ROWS[name][0](), Limits(epochs=2, max_tasks=None)
    *_, fitted = model.epochs(bare, bank=training.bank, seed=42, limits=limits)
    assert np.isfinite(training.scores(fitted)).all()
    one = Pairs(task=training.pairs.task[:1], capability=training.pairs.capability[:1])
    assert training.scores(fitted, one).shape == (1,)

"""A path that was stored and restored is the path that was fitted: the same scores to the last bit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from toolshift.models.tact.tact import Tact
from toolshift.selection.records import read_checkpoint, write_checkpoint

ALL = {"proposal": "blend", "beta_support": 0.2}
CASES: dict[str, dict[str, Any]] = {
    "all stages": ALL,
    "paper": {},
    "rarity, wide list of arguments": {"requirement_weights": "rarity", "empty_arguments": "satisfied"},
    "cross endpoint": {"composition": "cross_endpoint", "denominator": "requirements", "reference": "constant"},
    "no relation": {"beta_relation": 0.0},
    "no functional": {"beta_functional": 0.0},
    "no contextual": {"beta_contextual": 0.0, "beta_support": -0.1},
    "ungated": {"gates": "none"},
    "scalar gates": {"gates": "scalar"},
    "presence": {"context_signal": "presence", "beta_contextual": -0.2},
    "popularity": {"context_signal": "popularity", "gates": "none"},
    "similar profiles": {"lookup": "similarity", "space": "aligned", **ALL},
    "both look-ups": {"lookup": "both", "prototype_kind": "contexts"},
    "anchor": {"beta_relation": 0.0, "beta_functional": 0.0, "beta_contextual": 0.0},
}


def stored(path: Any, folder: Path) -> Any:
    """(arrays, header) after a round trip through the file."""
    file = write_checkpoint(folder / "seed=42.safetensors", path, target="D1", seed=42)
    header, arrays = read_checkpoint(file)
    return arrays, header


@pytest.mark.parametrize("case", CASES)
def test_a_restored_path_scores_the_same_bits(
    case: str, stages: Any, shared_source: Any, shared_bank: Any, tmp_path: Path
) -> None:
    model = stages.model(**CASES[case])
    fitted = stages.fit(model, shared_source, bank=shared_bank)
    arrays, header = stored(fitted, tmp_path)
    again = model.restored(arrays, contexts_seen=header["contexts_seen"])
    assert [s.name for s in again.stages] == [s.name for s in fitted.stages]
    assert [s.name for s in again.stages] == [name for name in Tact.stages if name in {s.name for s in fitted.stages}]
    assert again.contexts_seen == fitted.contexts_seen
    assert again.record == fitted.record
    assert stages.equal(again, fitted)
    pairs, bank = stages.pairs(), stages.world.bank()
    np.testing.assert_array_equal(
        again.score(pairs, bank=bank, seed=42), fitted.score(pairs, bank=shared_bank, seed=42)
    )


def test_every_stage_is_in_the_path_with_all_on(stages: Any, shared_source: Any, shared_bank: Any) -> None:
    fitted = stages.fit(stages.model(**ALL), shared_source, bank=shared_bank)
    assert [s.name for s in fitted.stages] == list(Tact.stages)


def test_dtypes_survive_the_file(whole: Any, tmp_path: Path) -> None:
    arrays, _ = stored(whole, tmp_path)
    state = whole.state()
    assert arrays.keys() == state.keys()
    for name, value in state.items():
        assert (arrays[name].dtype, arrays[name].shape) == (value.dtype, value.shape), name


def test_support_keeps_the_profiles_it_was_fitted_with(
    stages: Any, shared_source: Any, shared_bank: Any, tmp_path: Path
) -> None:
    """Stages are fitted with their own part of a grid: what another stage chose later says nothing about support."""
    model = stages.model(beta_support=0.3, beta_contextual=0.0, support=5.0)
    fitted = stages.fit(model, shared_source, bank=shared_bank)
    arrays, _ = stored(fitted, tmp_path)
    other = replace(model, support=1.0, lookup="similarity", routing_temperature=0.2)
    pairs = stages.pairs()
    again = other.restored(arrays, contexts_seen=fitted.contexts_seen)
    np.testing.assert_array_equal(
        again.score(pairs, bank=shared_bank, seed=42), fitted.score(pairs, bank=shared_bank, seed=42)
    )


def test_a_stage_that_the_settings_switch_off_is_refused(whole: Any) -> None:
    with pytest.raises(ValueError, match="'relation' that its selection record switches off"):
        Tact(beta_relation=0.0).restored(whole.state(), contexts_seen=())


def test_a_stage_nobody_knows_is_refused(whole: Any) -> None:
    with pytest.raises(ValueError, match="stage 'later'"):
        Tact().restored({**whole.state(), "later.weights": np.ones(1)}, contexts_seen=())


def test_a_checkpoint_of_an_older_version_is_refused(whole: Any) -> None:
    arrays = {name: value for name, value in whole.state().items() if name != "contextual.n_contexts"}
    with pytest.raises(ValueError, match=r"stage contextual.*'n_contexts'; another version"):
        Tact().restored(arrays, contexts_seen=())

"""Tracking, runtime and launchers in the settings: valid presets, refused contradictions, no part of an identity."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from toolshift.settings.errors import ConfigError
from toolshift.settings.schema import Settings

Load = Callable[..., Settings]


def test_nothing_is_tracked_by_default_and_wandb_is_offline(settings_of: Load) -> None:
    assert settings_of().tracking.name == "none"
    tracking = settings_of("experiment=lodo", "tracking=wandb", "tracking.tags=[a,b]").tracking
    assert (tracking.name, tracking.mode, tracking.group, tracking.tags) == ("wandb", "offline", "lodo", ("a", "b"))


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["tracking.mode=online"], "did you mean tracking=wandb tracking.mode=online?"),
        (["tracking=wandb", "tracking.mode=onlin"], "did you mean 'online'?"),
        (["tracking=wandb", "tracking.project=''"], "tracking.project: must not be empty"),
        (["tracking=wandb", "tracking.tags=[a,a]"], "tracking.tags: a value appears twice"),
        (["tracking=wandbb"], "did you mean 'wandb'?"),
        (["hydr=1"], "no such key or group"),
    ],
)
def test_refusals(overrides: list[str], message: str, settings_of: Load) -> None:
    with pytest.raises(ConfigError) as refused:
        settings_of(*overrides)
    assert message in str(refused.value)


@pytest.mark.parametrize(("runtime", "device"), [("cpu", "cpu"), ("gpu", "cuda"), ("ddp", "cuda")])
def test_runtime_presets_reach_the_encoder(runtime: str, device: str, settings_of: Load) -> None:
    settings = settings_of(f"runtime={runtime}")
    assert settings.runtime.device == settings.encoder.params["device"] == device


def test_how_a_run_is_computed_and_tracked_is_not_what_it_is(settings_of: Load) -> None:
    from toolshift.experiment.plan import run_identity

    identities = []
    for more in ((), ("tracking=wandb", "tracking.project=p", "tracking.tags=[t]"), ("runtime=gpu",), ("runtime=ddp",)):
        settings = settings_of("experiment=lodo", *more)
        identities.append(run_identity(settings, settings.models["bm25"], fingerprints={}))
    assert all(identity == identities[0] for identity in identities)

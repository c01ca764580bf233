"""Fixtures and settings shared by all tests."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import hypothesis
import pytest

from toolshift.settings.schema import Settings

ROOT = Path(__file__).resolve().parents[1]

# No deadline: the first example of a test may import a numerical package. Derandomised: a failure on one machine is
# a failure on every machine.
hypothesis.settings.register_profile("toolshift", deadline=None, derandomize=True, max_examples=60, print_blob=True)
hypothesis.settings.load_profile("toolshift")


@pytest.fixture(scope="session")
def data_root() -> Path:
    """The folder of the real data sets; the test is skipped where there is none."""
    value = os.environ.get("TOOLSHIFT_DATA", "")
    if not value:
        pytest.skip("TOOLSHIFT_DATA is not set: it names the folder that holds <dataset>/ in the upstream layout")
    root = Path(value)
    if not root.is_dir():
        pytest.skip(f"TOOLSHIFT_DATA={value} is no folder")
    return root


@pytest.fixture
def settings_of() -> Callable[..., Settings]:
    """``settings_of("experiment=lodo", "debug=tiny")``: compose, convert and check ``conf/train.yaml``."""
    from toolshift.settings.compose import load_settings

    return lambda *overrides: load_settings("train", overrides)

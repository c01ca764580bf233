from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolshift.data.names import local_name, standardize, standardize_category, without_version


@pytest.mark.parametrize(
    ("native", "key"),
    [
        ("Sky View", "sky_view"),
        ("  Sky   View ", "sky_view"),
        ("Sky/View-2", "sky_view_2"),
        ("7 Seas", "get_7_seas"),
        ("__x__y__", "x_y"),
        ("Rank ^ Rate", "rank_^_rate"),
        ("天气 API", "天气_api"),
        ("조용한", ""),
        ("_v2", "v2"),
    ],
)
def test_standardize_follows_upstream(native: str, key: str) -> None:
    assert standardize(native) == key


def test_categories_keep_their_case_and_lose_separators() -> None:
    assert standardize_category("eCommerce") == "eCommerce"
    assert (
        standardize_category("Artificial Intelligence/Machine Learning") == "Artificial_Intelligence_Machine_Learning"
    )
    assert standardize_category("Health, Fitness") == "Health_Fitness"


def test_a_name_without_usable_characters_gets_a_stable_key() -> None:
    # sha256 of the four UTF-8 bytes of U+1F44B starts with 1d0452e3.
    assert local_name("\N{WAVING HAND SIGN}") == "unnamed-1d0452e3"
    assert local_name("\N{WAVING HAND SIGN}") != local_name("\N{WAVING HAND SIGN} ")
    assert local_name("Sky View") == "sky_view"


def test_only_a_trailing_version_is_removed() -> None:
    assert without_version("Netlist_v12") == "Netlist"
    assert without_version("v2_Netlist") == "v2_Netlist"
    assert without_version("Netlist v2") == "Netlist v2"


@given(st.text())
def test_keys_are_idempotent_and_hold_only_safe_characters(name: str) -> None:
    key = standardize(name)
    assert standardize(key) == key
    assert re.fullmatch("[a-z0-9_^\u4e00-\u9fa5]*", key)
    assert not key[:1].isdigit()
    assert "/" not in local_name(name)
    assert local_name(name)

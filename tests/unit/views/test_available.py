"""A target with fewer than five available capabilities has lists, but its cell is not scored (validity.md 1)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from toolshift.experiment.workspace import EmptyExperiment, Variant, Workspace

Open = Callable[..., Variant]


@pytest.fixture
def open_variant(worlds: Any, settings_of: Any, tmp_path: Path) -> Open:
    """A variant over domains ``Few`` and ``Many``; ``Few`` judges four tools, and a fifth one if asked to."""

    def opened(*overrides: str, fifth: str = "", idle: int = 1) -> Variant:
        few = [worlds.Tool(f"few{i}", "Few", (worlds.Api(f"get {i}"),)) for i in range(4 + idle)]
        many = [worlds.Tool(f"many{i}", "Many", (worlds.Api(f"get {i}"),)) for i in range(6)]
        given = tuple(f"few{i}" for i in range(1, 4)) + ((fifth,) if fifth else ())
        asks = [
            worlds.Ask("f0", "Few", "get 0", (("few0", "get 0"),), given),
            worlds.Ask("m0", "Many", "get 0", (("many0", "get 0"),), tuple(f"many{i}" for i in range(6))),
        ]
        settings = settings_of("experiment=lodo", f"data.cache={tmp_path}", "view=[natural]", *overrides)
        records = worlds.records([*few, *many], asks)
        workspace = Workspace(settings=settings, records=records, fingerprint="x", encoder=worlds.WordEncoder())
        return workspace.variant(settings)

    return opened


def scored(variant: Variant) -> dict[str, bool]:
    (lists,) = [one for one in variant.lists if one.manifest.view == "natural"]
    return {lists.targets[t]: bool(s) for t, s in zip(lists.target, lists.scored, strict=True)}


def test_four_available_are_too_few(open_variant: Open) -> None:
    assert scored(open_variant()) == {"Few": False, "Many": True}


def test_five_available_are_enough(open_variant: Open) -> None:
    assert scored(open_variant(fifth="few4")) == {"Few": True, "Many": True}


def test_a_tool_of_another_category_counts_where_a_task_judges_it(open_variant: Open) -> None:
    assert scored(open_variant(fifth="many1")) == {"Few": True, "Many": True}


def test_the_rule_is_a_setting(open_variant: Open) -> None:
    assert scored(open_variant("view.min_available=4")) == {"Few": True, "Many": True}
    assert scored(open_variant("view.min_available=7")) == {"Few": False, "Many": False}


@pytest.mark.parametrize("universe", ["judged", "library"])
def test_the_rule_counts_the_domain_in_every_universe(open_variant: Open, universe: str) -> None:
    assert scored(open_variant(f"view.universe={universe}")) == {"Few": False, "Many": True}


def test_lists_hold_what_is_available(open_variant: Open) -> None:
    (lists,) = open_variant().lists
    np.testing.assert_array_equal(lists.manifest.lengths, [4, 6])


def test_nothing_to_score_is_an_error(worlds: Any, settings_of: Any, tmp_path: Path) -> None:
    tools = [worlds.Tool(n, "A", (worlds.Api("get"),)) for n in "ab"]
    asks = [worlds.Ask("t", "A", "x", (("a", "get"),)), worlds.Ask("u", "B", "x", (("b", "get"),))]
    settings = settings_of("experiment=lodo", f"data.cache={tmp_path}", "view=[natural]")
    records = worlds.records(tools, asks)
    workspace = Workspace(settings=settings, records=records, fingerprint="x", encoder=worlds.WordEncoder())
    with pytest.raises(EmptyExperiment, match="no_negative"):
        workspace.variant(settings)


def test_at_most_so_many_targets(open_variant: Open) -> None:
    """The largest ones, ties by name; the lists of other domains stay in the manifests and out of the scores."""
    variant = open_variant("debug.max_targets=1")
    assert variant.folds.targets == ("Few",)
    assert scored(variant) == {"Few": False}
    assert variant.manifests["natural"].tasks.size == 2

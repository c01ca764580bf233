"""Natural view: the release's own candidates, then a uniform draw from the universe (tact.md section 7 [G, R])."""

from __future__ import annotations

from toolshift.views.manifest import Draw, Recipe
from toolshift.views.roles import Rules, given, ordinary


def recipe(rules: Rules, *, given_first: bool = True) -> Recipe:
    """Given non-gold candidates first (unless ``given_first`` is off), filled up with ordinary ones."""
    fill = Draw(role="ordinary", rule=ordinary, quota=None)
    return Recipe(draws=(Draw(role="ordinary", rule=given, quota=None), fill) if given_first else (fill,))

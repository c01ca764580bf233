"""Semantic view: related candidates whose schema conflicts with the gold, filled up with ordinary ones."""

from __future__ import annotations

from toolshift.views.manifest import Draw, Recipe
from toolshift.views.roles import Rules, ordinary, semantic


def recipe(rules: Rules) -> Recipe:
    """At least one and at most ``rules.hard`` semantic negatives, then ordinary ones (tact.md section 7 [R])."""
    return Recipe(
        draws=(
            Draw(role="semantic", rule=semantic, quota=rules.hard, required=True),
            Draw(role="ordinary", rule=ordinary, quota=None),
        )
    )

"""Context view: plausible candidates whose support comes from other contexts only, filled up with ordinary ones."""

from __future__ import annotations

from toolshift.views.manifest import Draw, Recipe
from toolshift.views.roles import Rules, contextual, ordinary


def recipe(rules: Rules) -> Recipe:
    """At least one and at most ``rules.hard`` contextual negatives, then ordinary ones (tact.md section 7 [R])."""
    return Recipe(
        draws=(
            Draw(role="contextual", rule=contextual, quota=rules.hard, required=True),
            Draw(role="ordinary", rule=ordinary, quota=None),
        )
    )

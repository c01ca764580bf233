"""Mixed view: semantic and contextual negatives side by side, filled up with ordinary ones."""

from __future__ import annotations

from toolshift.views.manifest import Draw, Recipe
from toolshift.views.roles import Rules, contextual, ordinary, semantic


def recipe(rules: Rules) -> Recipe:
    """Both hard roles, each at least once and at most half of ``rules.hard`` (tact.md section 7 [R])."""
    half = max(rules.hard // 2, 1)
    return Recipe(
        draws=(
            Draw(role="semantic", rule=semantic, quota=half, required=True),
            Draw(role="contextual", rule=contextual, quota=half, required=True),
            Draw(role="ordinary", rule=ordinary, quota=None),
        )
    )

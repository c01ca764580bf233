"""The four recipes: which roles, how many, which are required."""

from __future__ import annotations

from typing import Any

import pytest

from toolshift.views import context, mixed, natural, semantic
from toolshift.views import roles as rules_of
from toolshift.views.manifest import Draw


@pytest.fixture
def rules(worlds: Any) -> Any:
    return worlds.Rules(hard=7)


def test_natural_takes_given_candidates_first(rules: Any) -> None:
    assert natural.recipe(rules).draws == (
        Draw(role="ordinary", rule=rules_of.given, quota=None),
        Draw(role="ordinary", rule=rules_of.ordinary, quota=None),
    )
    assert natural.recipe(rules, given_first=False).draws == natural.recipe(rules).draws[1:]


@pytest.mark.parametrize(
    ("module", "rule", "role"),
    [(semantic, rules_of.semantic, "semantic"), (context, rules_of.contextual, "contextual")],
)
def test_one_hard_role_up_to_the_quota(module: Any, rule: Any, role: str, rules: Any) -> None:
    assert module.recipe(rules).draws == (
        Draw(role=role, rule=rule, quota=7, required=True),
        Draw(role="ordinary", rule=rules_of.ordinary, quota=None),
    )


@pytest.mark.parametrize(("hard", "half"), [(10, 5), (7, 3), (1, 1)])
def test_mixed_takes_both_hard_roles_by_halves(worlds: Any, hard: int, half: int) -> None:
    draws = mixed.recipe(worlds.Rules(hard=hard)).draws
    assert [(d.role, d.quota, d.required) for d in draws] == [
        ("semantic", half, True),
        ("contextual", half, True),
        ("ordinary", None, False),
    ]

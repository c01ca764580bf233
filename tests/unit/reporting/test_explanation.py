"""An explanation as text and JSON: columns, stars, masks, and what is said where there is nothing."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from toolshift.evaluation.explanation import (
    AppliedCorrection,
    Candidate,
    Channels,
    ExplainedPair,
    Explanation,
    FunctionalPart,
    ListPlace,
    MatchedCell,
    PooledEndpoint,
    Requirement,
    Scores,
    Term,
)
from toolshift.reporting.explanation import WIDTH, to_json, to_text

LONG = "a very long name of something that goes on and on " * 6
SCORES = Scores(
    anchor=0.5, anchor_terms=(), relation_strength=0.1, relation=0.02, s1=0.52, s2=0.53, s3=0.53, score=0.53
)
ENDPOINTS = (
    PooledEndpoint(
        endpoint_id="d/c/get", operation="get", required=(("day", "datetime"),), has_argument=True, has_type=True
    ),
    PooledEndpoint(endpoint_id="d/c/list", operation="list", required=(), has_argument=False, has_type=False),
)
FUNCTIONAL = FunctionalPart(
    strength=0.2,
    composition="same_endpoint",
    kappa=0.3,
    argument_weight=0.5,
    type_weight=0.25,
    evidence=((0.61, 0.2),),
    matching=(MatchedCell(requirement=0, endpoint=0, evidence=0.61, gain=0.31),),
    match=0.31,
    reference=0.2,
    intercept=0.1,
    slope=0.2,
    scale=0.1,
    reliability=0.5,
    reliability_terms=(Term(name="constant", value=1.0, weight=0.0),),
    correction=AppliedCorrection(bounded=0.02, gate=0.5, gate_terms=(), added=0.01),
)
PAIR = ExplainedPair(
    capability=0,
    endpoints=ENDPOINTS,
    channels=Channels(operation=((0.7, 0.2),), argument=((0.4, 0.0),), type=((1.0, 0.0),)),
    scores=SCORES,
    functional=FUNCTIONAL,
    contextual=None,
    support=None,
)
CANDIDATE = Candidate(
    capability_id="d/c",
    name="Calendar",
    domain="",
    text=LONG,
    is_gold=True,
    gold_endpoints=("d/c/get",),
    lists=(ListPlace(view="natural", rank=2, of=20, tied=1, role="positive"),),
    published=0.53,
    pair=PAIR,
)
FOUND = Explanation(
    run="abc",
    experiment="lodo",
    model="tact",
    target="T",
    seed=42,
    choice={"beta_functional": 0.2},
    stages=("relation", "functional"),
    task_id="d/t",
    task_domain="T",
    task_text=LONG,
    gold=("d/c",),
    requirements=(Requirement(text=LONG, weight=1.0, types=(), spans=("x",) * 20),),
    views=("natural", "semantic"),
    named=True,
    candidates=(CANDIDATE,),
)


def lines(found: Explanation) -> list[str]:
    return to_text(found).splitlines()


def test_no_line_is_wider_than_a_hundred_columns() -> None:
    views = tuple(f"view{i}" for i in range(4))
    places = tuple(ListPlace(view=view, rank=500, of=500, tied=0, role="ordinary") for view in views)
    wide = replace(FOUND, views=views, candidates=(replace(CANDIDATE, name=LONG, lists=places),))
    for found in (FOUND, wide):
        assert max(map(len, lines(found))) <= WIDTH


def test_the_matrix_shows_masks_and_the_matching() -> None:
    (operation,) = [line for line in lines(FOUND) if line.startswith("    r1") and "0.70" in line]
    assert operation.split() == ["r1", "0.70", "0.20", "r1", "0.40", "--"]
    (composed,) = [line for line in lines(FOUND) if "*0.61" in line]
    assert composed.split() == ["r1", "1.00", "--", "r1", "*0.61", "0.20"]


def test_one_candidate_in_full() -> None:
    text = to_text(FOUND)
    for part in (
        "* Calendar                  0.500 +0.020 +0.010      -      -  0.530    2/20       -",
        "list natural: rank 2 of 20, 1 with the same score; there as positive",
        "published 0.530000, recomputed 0.530000: the same",
        "e1 get [gold]; requires day (datetime)",
        "e2 list; requires nothing",
        "matching z* over kappa 0.3: r1-e1 0.610 (gain +0.310)",
        "gate 0.5000 (corrections are not gated)",
        "contextual validation: off",
        "and 8 more",
    ):
        assert part in text, part


def test_the_overview_alone_where_no_candidate_was_named() -> None:
    text = to_text(replace(FOUND, named=False))
    assert "scores" not in text
    assert text.endswith("One of them in full: capability=ID (or a part of its name); all of them: format=json.")


def test_a_pair_without_endpoints_lists_or_functional_stage() -> None:
    pair = replace(PAIR, endpoints=(), channels=Channels(operation=((),), argument=((),), type=((),)), functional=None)
    text = to_text(replace(FOUND, candidates=(replace(CANDIDATE, pair=pair, lists=(), published=None),)))
    assert "endpoints: none, so no functional evidence" in text
    assert "functional validation: off" in text
    assert "in no list of the task" in text


@pytest.mark.parametrize(("published", "agrees"), [(0.53, True), (0.530009, True), (0.53002, False), (None, True)])
def test_a_score_that_is_not_the_published_one_is_named(published: float | None, agrees: bool) -> None:
    found = replace(FOUND, candidates=(replace(CANDIDATE, published=published),))
    (plain,) = json.loads(to_json(found))["candidates"]
    assert plain["agrees"] is agrees
    assert ("ANOTHER ONE" in to_text(found)) is not agrees


def test_json_has_every_field_in_a_fixed_order() -> None:
    content = json.loads(to_json(FOUND))
    assert list(content) == sorted(content)
    assert content["choice"] == {"beta_functional": 0.2}
    pair = content["candidates"][0]["pair"]
    assert pair["functional"]["matching"] == [{"endpoint": 0, "evidence": 0.61, "gain": 0.31, "requirement": 0}]
    assert pair["contextual"] is None
    assert pair["channels"]["argument"] == [[0.4, 0.0]]

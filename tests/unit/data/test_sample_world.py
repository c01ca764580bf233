"""The world of the sample: what its design promises, for several seeds and for every null world."""

from __future__ import annotations

from collections import Counter
from itertools import combinations, product

import pytest
from scipy.stats import binomtest

from toolshift.data.sample import WORLDS, SampleTask, Spec, World, build_world, draw_tasks
from toolshift.data.sample.draws import Draws, cumulated, zipf
from toolshift.data.sample.language import (
    AXES,
    CAMPS,
    CONDITIONS,
    DOMAINS,
    FUNCTIONS,
    KINDS,
    NAME_MENTIONS,
    TINY_DOMAIN,
    VALUES,
)
from toolshift.data.sample.tasks import Requirement
from toolshift.data.sample.world import WorldName, domain_names
from toolshift.text.spans import identifier_words
from toolshift.views.schema import operation_verb

SEEDS = (0, 1, 2)


@pytest.fixture(scope="module")
def drawn() -> dict[tuple[str, int], tuple[World, list[SampleTask]]]:
    """(world, seed) -> a small world and its tasks."""
    keys = [(name, 0) for name in WORLDS] + [("default", seed) for seed in SEEDS[1:]]
    worlds = {(name, seed): build_world(Spec(world=name, size="small", seed=seed, tasks=60)) for name, seed in keys}
    return {key: (world, list(draw_tasks(world))) for key, world in worlds.items()}


Drawn = dict[tuple[str, int], tuple[World, list[SampleTask]]]


# -------------------------------------------------------------------------------------------------------- the language


def test_every_function_has_a_verb_class_and_arguments_of_its_own() -> None:
    classes = {f: {operation_verb(f"{verb} tide tables") for verb in spec.verbs} for f, spec in FUNCTIONS.items()}
    assert all(len(found) == 1 and None not in found for found in classes.values()), classes
    assert len({next(iter(found)) for found in classes.values()}) == len(FUNCTIONS)
    for a, b in combinations(FUNCTIONS, 2):
        names = [{n for kind in FUNCTIONS[f].required for n in KINDS[kind].names} for f in (a, b)]
        assert not names[0] & names[1], (a, b)


def test_documentation_and_requests_use_words_of_their_own() -> None:
    verbs = {verb.lower() for spec in FUNCTIONS.values() for verb in spec.verbs}
    asks = {word.lower() for spec in FUNCTIONS.values() for ask in spec.asks for word in ask.split()}
    assert not verbs & asks
    nouns = [noun for pairs in DOMAINS.values() for pair in pairs for noun in pair]
    assert len(nouns) == len(set(nouns))


def test_the_camps_divide_every_axis() -> None:
    assert {axis: sorted(v for camp in CAMPS[axis] for v in camp) for axis in AXES} == {
        axis: sorted(CONDITIONS[axis]) for axis in AXES
    }
    phrases = [p for axis in AXES for said in CONDITIONS[axis].values() for p in said]
    assert len(phrases) == len(set(phrases)) == 4 * 4 * 3


def test_every_slot_can_be_filled() -> None:
    slots = {*VALUES, "number", "small", "code", "day"}
    for kind in KINDS.values():
        kind.mention.format(**dict.fromkeys(slots, "x"))
        assert bool(kind.takes) == bool(kind.refer)


# --------------------------------------------------------------------------------------------------------- the library


@pytest.mark.parametrize("seed", SEEDS)
def test_rivals_have_the_same_function_under_complementary_conditions(drawn: Drawn, seed: int) -> None:
    world, _ = drawn["default", seed]
    groups = [group for domain in world.domains for group in domain.groups]
    for group in groups:
        a, b = (world.endpoints[row] for row in group.rivals)
        assert (a.concept, a.function) == (b.concept, b.function) == (group.concept, group.function)
        one, other = (world.capabilities[e.capability] for e in (a, b))
        axis = world.concepts[group.concept].axis
        assert one.axis == other.axis == axis
        assert sorted((*one.admits, *other.admits)) == sorted(CONDITIONS[axis])
        assert len(one.admits) == 2
    assert len({(g.concept, g.function) for g in groups}) == len(groups)


@pytest.mark.parametrize("seed", SEEDS)
def test_false_friends_speak_of_the_concept_and_lack_the_function(drawn: Drawn, seed: int) -> None:
    world, _ = drawn["default", seed]
    for domain in world.domains:
        for group in domain.groups:
            friends = world.false_friends(group)
            assert len(friends) == 2
            for row in friends:
                capability = world.capabilities[row]
                functions = {
                    world.endpoints[e].function
                    for e in capability.endpoints
                    if world.endpoints[e].concept == group.concept
                }
                assert functions
                assert group.function not in functions
                assert world.concepts[group.concept].noun in capability.description.lower()


@pytest.mark.parametrize("seed", SEEDS)
def test_public_text_names_neither_functions_nor_conditions(drawn: Drawn, seed: int) -> None:
    world, _ = drawn["default", seed]
    nouns = {word for concept in world.concepts for word in concept.noun.split()}
    verbs = {verb.lower() for spec in FUNCTIONS.values() for verb in spec.verbs} - nouns
    phrases = [p.lower() for said in CONDITIONS.values() for ps in said.values() for p in ps]
    for capability in world.capabilities:
        text = f"{capability.name} {capability.description}".lower()
        assert not verbs & set(identifier_words(text).split()), text
        assert not any(phrase in text for phrase in phrases), text


@pytest.mark.parametrize("seed", SEEDS)
def test_a_provider_has_the_same_conditions_in_every_domain(drawn: Drawn, seed: int) -> None:
    world, _ = drawn["default", seed]
    terms: dict[str, set[tuple[str, tuple[str, ...]]]] = {}
    domains: dict[str, set[str]] = {}
    for c in world.capabilities:
        terms.setdefault(c.provider, set()).add((c.axis, c.admits))
        domains.setdefault(c.provider, set()).add(c.domain)
    assert all(len(found) == 1 for found in terms.values())
    assert sum(len(found) > 1 for found in domains.values()) > len(domains) / 2


def test_sizes_of_the_library(drawn: Drawn) -> None:
    world, _ = drawn["default", 0]
    assert len(world.domains) == 14
    assert 280 <= len(world.capabilities) <= 320
    assert 950 <= len(world.endpoints) <= 1_050
    assert {c.name for c in world.capabilities if c.domain == TINY_DOMAIN}
    assert len({(c.domain, c.name) for c in world.capabilities}) == len(world.capabilities)


def test_large_worlds_have_further_domains() -> None:
    names = domain_names(49)
    assert len(set(names)) == 49
    assert list(names) == sorted(names)
    assert {"Cooking", "Cooking_Trade", "Cooking_Research", TINY_DOMAIN} <= set(names)


# ----------------------------------------------------------------------------------------------------------- the tasks


@pytest.mark.parametrize("seed", SEEDS)
def test_in_the_default_world_one_capability_is_valid_per_step(drawn: Drawn, seed: int) -> None:
    world, tasks = drawn["default", seed]
    for task in tasks:
        for requirement in task.requirements:
            (gold,) = requirement.gold
            endpoint = world.endpoints[gold]
            assert (endpoint.concept, endpoint.function) == (requirement.group.concept, requirement.group.function)
            for judged in requirement.judged:
                capability = world.capabilities[judged.capability]
                functional = any(
                    (world.endpoints[e].concept, world.endpoints[e].function)
                    == (requirement.group.concept, requirement.group.function)
                    for e in capability.endpoints
                )
                contextual = (capability.axis, _value(task, capability.axis)) in _admitted(capability)
                assert (judged.functional, judged.contextual) == (functional, contextual)
                assert judged.gold == (functional and contextual) == (judged.capability == endpoint.capability)
                expected = "ok" if judged.gold else "context_unmet" if functional else "functional_conflict"
                assert judged.reason == expected


def _value(task: SampleTask, axis: str) -> str:
    return dict(task.conditions)[axis]


def _admitted(capability: object) -> set[tuple[str, str]]:
    return {(capability.axis, value) for value in capability.admits}  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", WORLDS)
def test_the_domain_of_a_task_is_that_of_most_of_its_gold(drawn: Drawn, name: WorldName) -> None:
    world, tasks = drawn[name, 0]
    for task in tasks:
        counts = Counter(world.capabilities[world.endpoints[row].capability].domain for row in task.gold)
        most = max(counts.values())
        assert [d for d, n in counts.items() if n == most] == [task.domain]


def test_conditions_are_said_in_the_text(drawn: Drawn) -> None:
    for _, tasks in drawn.values():
        for task in tasks:
            for axis, value in task.conditions:
                said = [phrase for phrase in CONDITIONS[axis][value] if phrase.lower() in task.text.lower()]
                assert said, task.text


@pytest.mark.parametrize("seed", SEEDS)
def test_chains_take_results_of_earlier_steps(drawn: Drawn, seed: int) -> None:
    _, tasks = drawn["default", seed]
    chained = 0
    for task in tasks:
        for step, requirement in enumerate(task.requirements):
            for mention in requirement.mentions:
                assert mention.value in task.text
                if mention.source is not None:
                    chained += 1
                    assert mention.source < step
                    earlier = task.requirements[mention.source].group
                    assert earlier.concept == requirement.group.concept
                    assert FUNCTIONS[earlier.function].gives == KINDS[mention.kind].takes != ""
        assert len({r.group for r in task.requirements}) == len(task.requirements) <= 4
    assert chained > len(tasks) / 20


@pytest.mark.parametrize("seed", SEEDS)
def test_conditions_are_shared_over_domains_and_capabilities_used_in_several(drawn: Drawn, seed: int) -> None:
    world, tasks = drawn["default", seed]
    for condition in ((axis, value) for axis in AXES for value in CONDITIONS[axis]):
        assert len({task.domain for task in tasks if condition in task.conditions}) >= 2
    uses: dict[int, set[str]] = {}
    for task in tasks:
        for row in task.gold:
            uses.setdefault(world.endpoints[row].capability, set()).add(task.domain)
    assert sum(len(domains) > 1 for domains in uses.values()) > 0.5 * len(uses)


def test_texts_are_unique(drawn: Drawn) -> None:
    for _, tasks in drawn.values():
        assert len({task.text for task in tasks}) == len(tasks)


# ------------------------------------------------------------------------------------------------------ the null worlds


@pytest.mark.parametrize("name", WORLDS[1:])
def test_worlds_ask_for_the_same_things_in_the_same_words(drawn: Drawn, name: WorldName) -> None:
    (world, tasks), (base, base_tasks) = drawn[name, 0], drawn["default", 0]
    assert [(c.name, c.description, c.endpoints) for c in world.capabilities] == [
        (c.name, c.description, c.endpoints) for c in base.capabilities
    ]
    same_gold_first = name in ("no_function_gap", "no_context_gap")
    for task, other in zip(tasks, base_tasks, strict=True):
        assert (task.domain, task.conditions) == (other.domain, other.conditions)
        assert [r.group for r in task.requirements] == [r.group for r in other.requirements]
        assert [r.mentions for r in task.requirements] == [r.mentions for r in other.requirements]
        assert _without_name(task) == _without_name(other)
        if same_gold_first:
            assert task.text == other.text
            assert task.calls == other.calls
            assert set(task.gold) >= set(other.gold)
        else:
            assert len(task.gold) == len(other.gold)


def _without_name(task: SampleTask) -> str:
    """The text up to a mention of a tool's name, which is the last sentence."""
    places = [task.text.find(f" {mention.split('{')[0]}") for mention in NAME_MENTIONS]
    found = [place for place in places if place >= 0]
    return task.text[: min(found)] if found else task.text


def test_without_a_function_gap_documentation_is_dealt_out_at_random(drawn: Drawn) -> None:
    (world, tasks), (base, _) = drawn["no_function_gap", 0], drawn["default", 0]
    dealt, original = ([repr(e.document) for e in w.endpoints] for w in (world, base))
    assert sorted(dealt) == sorted(original)
    fits = [_verb(e.document.operation, e.document.description) == _verb_of(e.function) for e in world.endpoints]
    share = sum(n * n for n in Counter(e.function for e in base.endpoints).values()) / len(base.endpoints) ** 2
    assert binomtest(sum(fits), len(fits), share).pvalue > 0.001
    assert all(_verb(e.document.operation, e.document.description) == _verb_of(e.function) for e in base.endpoints)
    assert not any(world.false_friends(group) for domain in world.domains for group in domain.groups)
    for requirement in _requirements(tasks):
        assert {j.reason for j in requirement.judged} <= {"ok", "context_unmet"}
        assert {j.capability for j in requirement.judged if j.gold} == {
            world.endpoints[row].capability for row in requirement.gold
        }


def _verb(operation: str, description: str) -> str | None:
    return operation_verb(operation, description)


def _verb_of(function: str) -> str | None:
    return operation_verb(f"{FUNCTIONS[function].verbs[0]} x")


def test_without_a_context_gap_both_rivals_are_gold(drawn: Drawn) -> None:
    _, tasks = drawn["no_context_gap", 0]
    for requirement in _requirements(tasks):
        assert sorted(requirement.gold) == sorted(requirement.group.rivals)
        assert {j.reason for j in requirement.judged} <= {"ok", "functional_conflict"}


def test_where_context_is_noise_conditions_say_nothing_about_the_gold(drawn: Drawn) -> None:
    world, tasks = drawn["context_is_noise", 0]
    admitted: list[bool] = []
    for task in tasks:
        first: dict[str, bool] = {}
        for requirement in task.requirements:
            capability = world.capabilities[world.endpoints[requirement.gold[0]].capability]
            follows = _value(task, capability.axis) in capability.admits
            assert first.setdefault(capability.axis, follows) == follows  # one deal per task and axis
        admitted += first.values()
    assert binomtest(sum(admitted), len(admitted), 0.5).pvalue > 0.001


def test_popularity_alone_decides_in_its_world(drawn: Drawn) -> None:
    world, tasks = drawn["popularity_only", 0]
    functions = {name: index for index, name in enumerate(FUNCTIONS)}
    asked, got, ranks = [], [], Counter[int]()
    for requirement in _requirements(tasks):
        endpoint = world.endpoints[requirement.gold[0]]
        asked.append(functions[requirement.group.function])
        got.append(functions[endpoint.function])
        steps = world.popularity[endpoint.concept]
        weights = [b - a for a, b in zip((0.0, *steps), steps, strict=False)]
        order = sorted(range(len(weights)), key=lambda i: -weights[i])
        ranks[order.index(world.speakers[endpoint.concept].index(endpoint.capability))] += 1
    assert ranks[0] > ranks[1] > ranks[2]
    assert ranks[0] > 0.5 * sum(ranks.values())
    assert sum(a == b for a, b in zip(asked, got, strict=True)) < 0.3 * len(asked)


def _requirements(tasks: list[SampleTask]) -> list[Requirement]:
    return [requirement for task in tasks for requirement in task.requirements]


# ------------------------------------------------------------------------------------------------------------ the draws


def test_draws_belong_to_their_name() -> None:
    a, b, other = Draws("x", 1), Draws("x", 1), Draws("x", 2)
    first = [a.unit() for _ in range(100)]
    assert first == [b.unit() for _ in range(100)]
    assert first != [other.unit() for _ in range(100)]
    assert all(0 <= u < 1 for u in first)


def test_weighted_draws_follow_their_weights() -> None:
    draws = Draws("weights")
    counts = Counter(draws.weighted(cumulated((1.0, 0.0, 3.0))) for _ in range(4000))
    assert counts[1] == 0
    assert binomtest(counts[2], 4000, 0.75).pvalue > 0.001
    assert zipf(3, exponent=1.0) == (1.0, 0.5, 1 / 3)


def test_shuffles_are_permutations_and_reach_every_order() -> None:
    draws = Draws("shuffle")
    orders = Counter(tuple(draws.shuffled("abc")) for _ in range(600))
    assert len(orders) == 6
    assert min(orders.values()) > 60
    assert {tuple(sorted(order)) for order in orders} == {("a", "b", "c")}
    assert {draws.pick("ab") for _ in product(range(50))} == {"a", "b"}

"""Requests of the sample: what is asked for, how it is said, what answers it, and why.

``draw_tasks`` yields one task after another and keeps nothing but a fixed-size filter of the texts seen, so memory does
not grow with the number of tasks. Requests, values and conditions are drawn from streams that do not know the world;
only the answer is looked up in it. Gold are the valid capabilities: those that have the function and admit the
conditions (every world but ``popularity_only``, which draws one).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Literal

from toolshift.data.sample.draws import Draws
from toolshift.data.sample.language import (
    AXES,
    CLOSINGS,
    CONDITIONS,
    FUNCTIONS,
    JOINERS,
    KINDS,
    NAME_MENTIONS,
    VALUES,
)
from toolshift.data.sample.world import Domain, Group, World

Reason = Literal["ok", "functional_conflict", "context_unmet", "less_popular"]

_STEPS = (0.32, 0.24, 0.40, 0.04)  # of 1, 2, 3, 4 requirements
_P_AWAY = 0.9  # that a task of three or more requirements has one in another domain
_P_FOLLOW_UP = 0.8  # that a step takes the last one's result, where a function for that exists
_P_SAME_CONCEPT = 0.3
_P_REFER = 0.9
_P_REQUEST_NOUN = 0.7
_P_CONDITIONS_FIRST = 0.5
_P_NAMED = 0.1
_FILTER_BITS = 1 << 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Mention:
    """A required argument of a step: its kind, and the value given or the earlier step whose result it takes."""

    kind: str
    value: str
    source: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """One capability that speaks of a requirement's concept: has it the function, do its conditions admit the task?"""

    capability: int
    functional: bool
    contextual: bool
    gold: bool
    reason: Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """One step: the group asked for, its arguments, the endpoints that answer it (the called one first), and why."""

    group: Group
    mentions: tuple[Mention, ...]
    gold: tuple[int, ...]
    judged: tuple[Judgement, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleTask:
    """A request. ``conditions`` are the (axis, value) pairs its text states; steps are in order of execution."""

    row: int
    domain: str
    text: str
    conditions: tuple[tuple[str, str], ...]
    requirements: tuple[Requirement, ...]

    @property
    def gold(self) -> tuple[int, ...]:
        """Endpoint rows that answer some step, each once, in order of the steps."""
        return tuple(dict.fromkeys(row for requirement in self.requirements for row in requirement.gold))

    @property
    def calls(self) -> tuple[int, ...]:
        """The endpoint called in each step."""
        return tuple(requirement.gold[0] for requirement in self.requirements)


def draw_tasks(world: World) -> Iterator[SampleTask]:
    """All tasks of a world, domains taking turns; no two have the same text."""
    seen = _Seen()
    for row, (domain, place) in enumerate(_turns(world.domains)):
        drawn = (_draw(world, domain, row=row, key=(domain.name, place, attempt)) for attempt in count())
        yield next(task for task in drawn if seen.add(task.text))


def _turns(domains: Sequence[Domain]) -> Iterator[tuple[Domain, int]]:
    for place in range(max(domain.tasks for domain in domains)):
        yield from ((domain, place) for domain in domains if place < domain.tasks)


class _Seen:
    """A one-hash Bloom filter: never lets a text pass twice; a false alarm costs one more draw."""

    def __init__(self) -> None:
        self._bits = bytearray(_FILTER_BITS // 8)

    def add(self, text: str) -> bool:
        """Whether the text is new for certain; it is known from now on."""
        place = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") % _FILTER_BITS
        byte, bit = place >> 3, 1 << (place & 7)
        new = not self._bits[byte] & bit
        self._bits[byte] |= bit
        return new


def _draw(world: World, domain: Domain, *, row: int, key: tuple[object, ...]) -> SampleTask:
    spec = world.spec
    draws = Draws("task", spec.size, spec.seed, *key)
    groups = _plan(world, domain, draws)
    setting = {axis: values[draws.weighted(weights)] for axis, (values, weights) in domain.climate.items()}
    mentions = _mentions(groups, draws)
    answers = _answers(world, groups, setting, Draws("answer", spec.world, spec.size, spec.seed, *key))
    needed = {world.concepts[group.concept].axis for group in groups}
    conditions = tuple((axis, setting[axis]) for axis in AXES if axis in needed)
    clauses = [_clause(world, group, given, draws) for group, given in zip(groups, mentions, strict=True)]
    first = world.endpoints[answers[0].gold[0]].capability
    text = _sentences(clauses, conditions, name=world.capabilities[first].name, draws=draws)
    requirements = tuple(
        Requirement(group=group, mentions=given, gold=answer.gold, judged=answer.judged)
        for group, given, answer in zip(groups, mentions, answers, strict=True)
    )
    return SampleTask(row=row, domain=domain.name, text=text, conditions=conditions, requirements=requirements)


# ------------------------------------------------------------------------------------------------- what is asked for


def _plan(world: World, domain: Domain, draws: Draws) -> list[Group]:
    """One to four different groups; at most one of another domain, and only beside two of this one or more, so that
    the majority rule gives the task its domain."""
    steps = 1 + draws.weighted(_CUMULATED_STEPS)
    away = steps >= 3 and not (domain.tiny or domain.closed) and draws.chance(_P_AWAY)
    chosen = [domain.groups[draws.weighted(domain.use)]]
    while len(chosen) < min(steps - away, len(domain.groups)):
        chosen.append(_next_group(domain, chosen, draws))
    if away:
        other = draws.pick([other for other in world.away if other.name != domain.name])
        chosen.append(other.groups[draws.weighted(other.use)])
    return chosen


def _next_group(domain: Domain, chosen: Sequence[Group], draws: Draws) -> Group:
    last = chosen[-1]
    gives = FUNCTIONS[last.function].gives
    same = [group for group in domain.groups if group.concept == last.concept and group not in chosen]
    takers = [group for group in same if gives and any(KINDS[k].takes == gives for k in _required(group))]
    if takers and draws.chance(_P_FOLLOW_UP):
        return draws.pick(takers)
    if same and draws.chance(_P_SAME_CONCEPT):
        return draws.pick(same)
    drawn = (domain.groups[draws.weighted(domain.use)] for _ in count())
    return next(group for group in drawn if group not in chosen)


def _required(group: Group) -> tuple[str, ...]:
    return FUNCTIONS[group.function].required


def _mentions(groups: Sequence[Group], draws: Draws) -> list[tuple[Mention, ...]]:
    """Arguments of every step: a result of the last earlier step on the same concept that gives one, or a value."""
    found: list[tuple[Mention, ...]] = []
    for step, group in enumerate(groups):
        given: list[Mention] = []
        for kind in _required(group):
            sources = [
                earlier
                for earlier, other in enumerate(groups[:step])
                if other.concept == group.concept
                and KINDS[kind].takes
                and FUNCTIONS[other.function].gives == KINDS[kind].takes
            ]
            source = sources[-1] if sources and draws.chance(_P_REFER) else None
            value = _value(KINDS[kind].mention, draws) if source is None else KINDS[kind].refer
            given.append(Mention(kind=kind, value=value, source=source))
        found.append(tuple(given))
    return found


def _value(mention: str, draws: Draws) -> str:
    """A mention with its slots filled."""
    return mention.format(
        **{slot: draws.pick(values) for slot, values in VALUES.items() if f"{{{slot}}}" in mention},
        number=draws.below(900) + 12,
        small=draws.below(58) + 2,
        code=f"{draws.pick('ABCDEFGH')}{draws.below(900) + 100}",
        day=draws.below(28) + 1,
    )


# ---------------------------------------------------------------------------------------------------- what answers it


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    gold: tuple[int, ...]
    judged: tuple[Judgement, ...]


def _answers(world: World, groups: Sequence[Group], setting: Mapping[str, str], draws: Draws) -> list[_Answer]:
    if world.spec.world == "popularity_only":
        return _popular(world, groups, draws)
    # In context_is_noise every axis deals its conditions out anew for this task: kept as they are, or swapped.
    noise = world.spec.world == "context_is_noise"
    swapped = {axis: noise and draws.chance(0.5) for axis in AXES}

    def admits(capability: int) -> bool:
        row = world.capabilities[capability]
        return (setting[row.axis] in row.admits) != swapped[row.axis]

    called = [next(row for row in g.rivals if admits(world.endpoints[row].capability)) for g in groups]
    used = set(called)
    answers: list[_Answer] = []
    for group, endpoint in zip(groups, called, strict=True):
        answers.append(_valid(world, group, called=endpoint, admits=admits, used=used))
        used.update(answers[-1].gold)
    return answers


def _valid(world: World, group: Group, *, called: int, admits: Callable[[int], bool], used: Collection[int]) -> _Answer:
    """The rival whose conditions admit the task, then whatever else is valid under the rules of the world."""
    owners = {world.endpoints[row].capability: row for row in group.rivals}
    gold, judged = [called], []
    for capability in world.speakers[group.concept]:
        functional = capability in owners or world.spec.world == "no_function_gap"
        contextual = admits(capability) or world.spec.world == "no_context_gap"
        valid = functional and contextual
        reason: Reason = "ok" if valid else "context_unmet" if functional else "functional_conflict"
        judged.append(
            Judgement(capability=capability, functional=functional, contextual=contextual, gold=valid, reason=reason)
        )
        if valid and capability != world.endpoints[called].capability:
            gold.append(owners[capability] if capability in owners else _unused(world, group, capability, used))
    return _Answer(gold=tuple(gold), judged=tuple(judged))


def _popular(world: World, groups: Sequence[Group], draws: Draws) -> list[_Answer]:
    """One capability per step, drawn by popularity among those that speak of the concept; what is asked for does not
    count."""
    answers: list[_Answer] = []
    used: set[int] = set()
    for group in groups:
        speakers = world.speakers[group.concept]
        free = [row for c in speakers for row in world.offers[c, group.concept] if row not in used]
        drawn = (speakers[draws.weighted(world.popularity[group.concept])] for _ in count())
        chosen = next(c for c in drawn if any(row in free for row in world.offers[c, group.concept]))
        gold = draws.pick([row for row in world.offers[chosen, group.concept] if row in free])
        used.add(gold)
        judged = tuple(
            Judgement(
                capability=c,
                functional=True,
                contextual=True,
                gold=c == chosen,
                reason="ok" if c == chosen else "less_popular",
            )
            for c in speakers
        )
        answers.append(_Answer(gold=(gold,), judged=judged))
    return answers


def _unused(world: World, group: Group, capability: int, used: Collection[int]) -> int:
    """An endpoint of the capability on the group's concept, if possible none that another step has."""
    rows = world.offers[capability, group.concept]
    return next((row for row in rows if row not in used), rows[0])


# ------------------------------------------------------------------------------------------------------ how it is said


def _clause(world: World, group: Group, mentions: Sequence[Mention], draws: Draws) -> str:
    concept = world.concepts[group.concept]
    noun = concept.asked_as if draws.chance(_P_REQUEST_NOUN) else concept.noun
    return draws.pick(FUNCTIONS[group.function].asks).format(noun=noun, args=" ".join(m.value for m in mentions))


def _sentences(clauses: Sequence[str], conditions: Sequence[tuple[str, str]], *, name: str, draws: Draws) -> str:
    said = ", ".join(draws.pick(CONDITIONS[axis][value]) for axis, value in conditions)
    first = draws.chance(_P_CONDITIONS_FIRST)
    sentences = [f"{said}, {clauses[0]}." if first else f"{clauses[0]}."]
    sentences += [f"{draws.pick(JOINERS)} {clause}." for clause in clauses[1:]]
    if not first:
        sentences.append(draws.pick(CLOSINGS).format(conditions=said))
    # Drawn whether it is used or not, and last: a name that differs between worlds must not shift a draw.
    mention, named = draws.pick(NAME_MENTIONS), draws.chance(_P_NAMED)
    if named:
        sentences.append(mention.format(name=name))
    return " ".join(f"{sentence[0].upper()}{sentence[1:]}" for sentence in sentences)


_CUMULATED_STEPS = tuple(sum(_STEPS[: i + 1]) for i in range(len(_STEPS)))

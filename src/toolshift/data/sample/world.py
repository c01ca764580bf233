"""The world of the sample: what there is to select from, and under which conditions each thing applies.

A *concept* (tide tables) belongs to a domain. A *function* (search, send, ...) is a class of action with required
arguments. A *group* is one function of one concept; two *rivals* in the world offer it, one for each half of the values
of the concept's condition axis. A *capability* is the product of a provider: some functions of one or two concepts,
under the provider's conditions. Its public text names the concepts and the provider, never the functions and never the
conditions. So a capability that speaks of the right concept may lack the function (a false friend) or apply under other
conditions (``docs/sample.md`` gives the whole design).

Worlds differ in as little as their name says; library, requests and conditions come from streams that do not know it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count
from typing import Literal, get_args

from toolshift.data.names import local_name
from toolshift.data.sample.draws import Draws, cumulated, zipf
from toolshift.data.sample.language import (
    AUDIENCES,
    AXES,
    CAMPS,
    CONDITIONS,
    DESCRIPTIONS,
    DOMAINS,
    ENDINGS,
    FACETS,
    FUNCTIONS,
    KINDS,
    OPTIONAL_KINDS,
    SECTORS,
    SUFFIXES,
    SYLLABLES,
    TINY_DOMAIN,
)

WorldName = Literal["default", "no_function_gap", "no_context_gap", "context_is_noise", "popularity_only"]
SizeName = Literal["tiny", "small", "large"]
WORLDS: tuple[WorldName, ...] = get_args(WorldName)


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much there is. One domain is tiny whatever the size.

    ``pairs`` of concepts share a market; tasks of each domain ask for these and never for one further concept.
    ``functions`` per concept, ``brands`` (providers) per set of conditions, ``tasks`` per domain. ``facets`` multiply
    the nouns of the word lists.
    """

    domains: int
    pairs: int
    functions: int
    brands: int
    facets: int
    tasks: int


SIZES: Mapping[SizeName, Size] = {
    "tiny": Size(domains=12, pairs=2, functions=4, brands=1, facets=1, tasks=40),
    "small": Size(domains=14, pairs=3, functions=6, brands=2, facets=1, tasks=138),
    "large": Size(domains=49, pairs=13, functions=6, brands=8, facets=4, tasks=4166),
}
TINY_TASKS = 8
_TINY_FUNCTIONS = 3
_IDLE_FUNCTIONS = 3
_CLIMATE = (0.6, 0.4)
_P_ALONG_CAMPS = 2 / 3
_USE_SKEW = 0.5
_POPULARITY_SKEW = 1.5
_P_BUNDLE = 0.5
_P_DESCRIBED = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """Which world: everything in it follows from these. ``tasks`` overrides the tasks per domain of the size.

    Raises:
        ValueError: for an unknown world or size, a negative seed, or fewer than one task per domain.
    """

    world: WorldName = "default"
    size: SizeName = "small"
    seed: int = 0
    tasks: int | None = None

    def __post_init__(self) -> None:
        if self.world not in WORLDS:
            raise ValueError(f"world {self.world!r}: expected one of {', '.join(WORLDS)}")
        if self.size not in SIZES:
            raise ValueError(f"size {self.size!r}: expected one of {', '.join(SIZES)}")
        if self.seed < 0 or (self.tasks is not None and self.tasks < 1):
            raise ValueError(f"expected a seed of at least 0 and at least 1 task per domain, got {self}")

    @property
    def name(self) -> str:
        """Folder name: world, size, seed, and the number of tasks where it is not the size's own."""
        own = f"{self.world}-{self.size}-{self.seed}"
        return own if self.tasks is None else f"{own}-{self.tasks}"

    @property
    def tasks_per_domain(self) -> int:
        """Tasks of every domain but the tiny one."""
        return SIZES[self.size].tasks if self.tasks is None else self.tasks


@dataclass(frozen=True, slots=True, kw_only=True)
class Concept:
    """A thing of a domain: its noun in documentation and in requests, and the axis that divides its market."""

    row: int
    domain: str
    noun: str
    asked_as: str
    axis: str
    idle: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One documented argument; ``kind`` is a key of ``language.KINDS``."""

    kind: str
    name: str
    raw_type: str
    description: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """What is written about an endpoint."""

    operation: str
    description: str
    method: str
    required: tuple[Parameter, ...]
    optional: tuple[Parameter, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleEndpoint:
    """A function of a concept that a capability has; ``document`` says so except in ``no_function_gap``."""

    row: int
    capability: int
    concept: int
    function: str
    document: Document


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleCapability:
    """A product: public name and description, and the hidden condition values of ``axis`` it ``admits``."""

    row: int
    domain: str
    name: str
    description: str
    provider: str
    axis: str
    admits: tuple[str, ...]
    endpoints: tuple[int, ...]
    idle: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A function of a concept and the two endpoints that offer it, under complementary conditions."""

    concept: int
    function: str
    rivals: tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Domain:
    """``groups`` may be asked for, drawn by ``use``; ``climate``: axis -> (values, cumulated weights) of its tasks.

    Tasks of a ``closed`` domain need no other domain's tools (``shape.within_domains``).
    """

    name: str
    groups: tuple[Group, ...]
    use: tuple[float, ...]
    climate: Mapping[str, tuple[tuple[str, ...], tuple[float, ...]]]
    tasks: int
    tiny: bool
    closed: bool = False


@dataclass(frozen=True, kw_only=True)
class World:
    """The library with its hidden structure. Rows index ``concepts``, ``capabilities`` and ``endpoints``."""

    spec: Spec
    domains: tuple[Domain, ...]
    concepts: tuple[Concept, ...]
    capabilities: tuple[SampleCapability, ...]
    endpoints: tuple[SampleEndpoint, ...]

    @cached_property
    def speakers(self) -> tuple[tuple[int, ...], ...]:
        """Capabilities that speak of each concept, by concept row."""
        found: list[dict[int, None]] = [{} for _ in self.concepts]
        for endpoint in self.endpoints:
            found[endpoint.concept].setdefault(endpoint.capability)
        return tuple(tuple(rows) for rows in found)

    @cached_property
    def offers(self) -> Mapping[tuple[int, int], tuple[int, ...]]:
        """(capability, concept) -> its endpoints on that concept."""
        found: dict[tuple[int, int], tuple[int, ...]] = {}
        for endpoint in self.endpoints:
            key = (endpoint.capability, endpoint.concept)
            found[key] = (*found.get(key, ()), endpoint.row)
        return found

    @cached_property
    def popularity(self) -> tuple[tuple[float, ...], ...]:
        """Cumulated popularity of ``speakers``, by concept row; decides in the world ``popularity_only``."""
        spec = self.spec
        return tuple(
            cumulated(
                Draws("popularity", spec.size, spec.seed, row).shuffled(zipf(len(rows), exponent=_POPULARITY_SKEW))
            )
            for row, rows in enumerate(self.speakers)
        )

    @cached_property
    def away(self) -> tuple[Domain, ...]:
        """Domains whose groups tasks of other domains may need as well."""
        return tuple(domain for domain in self.domains if not domain.tiny)

    def false_friends(self, group: Group) -> tuple[int, ...]:
        """Capabilities that speak of the group's concept and lack its function (none where no function counts)."""
        if self.spec.world == "no_function_gap":
            return ()
        owners = {self.endpoints[row].capability for row in group.rivals}
        return tuple(row for row in self.speakers[group.concept] if row not in owners)


def build_world(spec: Spec) -> World:
    """The library of a world."""
    builder = _Builder(spec)
    for name in domain_names(SIZES[spec.size].domains):
        builder.add_domain(name)
    world = World(
        spec=spec,
        domains=tuple(builder.domains),
        concepts=tuple(builder.concepts),
        capabilities=tuple(builder.capabilities),
        endpoints=tuple(builder.endpoints),
    )
    return _documented_at_random(world) if spec.world == "no_function_gap" else world


def domain_names(size: int) -> tuple[str, ...]:
    """The first ``size`` domains over all sectors, sorted; the tiny one is always among them."""
    full = [f"{base}{suffix}" for suffix, _ in SECTORS for base in DOMAINS if base != TINY_DOMAIN]
    return tuple(sorted([*full[: size - 1], TINY_DOMAIN]))


# ------------------------------------------------------------------------------------------------------ the library


@dataclass(frozen=True, slots=True, kw_only=True)
class _Half:
    """One side of a concept's market: the axis and the values that its products admit."""

    axis: str
    admits: tuple[str, ...]


class _Builder:
    """Collects concepts, capabilities, endpoints and domains; rows count up in the order of addition."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.size = SIZES[spec.size]
        self.concepts: list[Concept] = []
        self.capabilities: list[SampleCapability] = []
        self.endpoints: list[SampleEndpoint] = []
        self.domains: list[Domain] = []
        self._functions: dict[int, tuple[str, ...]] = {}
        self._brands = _brands(self._draws("brands"), per_half=self.size.brands)

    def _draws(self, *name: object) -> Draws:
        return Draws("library", self.spec.size, self.spec.seed, *name)

    def add_domain(self, name: str) -> None:
        """Add a domain with its concepts and products."""
        draws = self._draws(name)
        tiny = name == TINY_DOMAIN
        nouns = _nouns(name, facets=self.size.facets)
        pairs = 1 if tiny else self.size.pairs
        # The words stay with the documentation; which of them form a pair, and which one nobody asks for, is drawn.
        asked = nouns if tiny else draws.shuffled(nouns[: 2 * pairs])
        axes = [axis for _ in range(pairs) for axis in draws.shuffled(AXES)][:pairs]
        first = len(self.concepts)
        for pair, axis in enumerate(axes):
            members = [self._concept(name, noun, axis=axis, draws=draws) for noun in asked[2 * pair : 2 * pair + 2]]
            self._market(members, draws)
        groups = tuple(self._groups(first))
        if not tiny:
            self._market([self._concept(name, nouns[2 * pairs], axis=axes[0], draws=draws, idle=True)], draws)
        use = cumulated(draws.shuffled(zipf(len(groups), exponent=_USE_SKEW)))
        climate = {axis: (tuple(draws.shuffled(draws.pick(CAMPS[axis]))), cumulated(_CLIMATE)) for axis in AXES}
        tasks = min(TINY_TASKS, self.spec.tasks_per_domain) if tiny else self.spec.tasks_per_domain
        self.domains.append(Domain(name=name, groups=groups, use=use, climate=climate, tasks=tasks, tiny=tiny))

    def _concept(self, domain: str, noun: tuple[str, str], *, axis: str, draws: Draws, idle: bool = False) -> Concept:
        row = len(self.concepts)
        tiny = domain == TINY_DOMAIN
        size = _TINY_FUNCTIONS if tiny else _IDLE_FUNCTIONS if idle else self.size.functions
        self._functions[row] = _functions(size, draws)
        self.concepts.append(Concept(row=row, domain=domain, noun=noun[0], asked_as=noun[1], axis=axis, idle=idle))
        return self.concepts[-1]

    def _market(self, concepts: Sequence[Concept], draws: Draws) -> None:
        """Both halves of a market: the same functions, cut into products in different ways."""
        axis = concepts[0].axis
        for half in _halves(axis, draws):
            parts = self._products(concepts, draws)
            start = draws.below(self.size.brands)
            for place, part in enumerate(parts):
                brands = self._brands[_Half(axis=axis, admits=half)]
                self._capability(
                    part, half=half, provider=brands[(start + place) % len(brands)], suffix=SUFFIXES[place], draws=draws
                )

    def _products(self, concepts: Sequence[Concept], draws: Draws) -> list[list[tuple[Concept, str]]]:
        """Every concept in two products (the idle and the tiny ones in one or two); some products have two concepts."""
        cuts: list[list[list[tuple[Concept, str]]]] = []
        for concept in concepts:
            functions = draws.shuffled(self._functions[concept.row])
            cut = len(functions) if concept.idle else 1 + draws.below(len(functions) - 1)
            cuts.append([[(concept, f) for f in part] for part in (functions[:cut], functions[cut:]) if part])
        if len(cuts) == 2 and draws.chance(_P_BUNDLE):
            (a, rest_of_a), (b, rest_of_b) = cuts
            return [a, b, [*rest_of_a, *rest_of_b]]
        return [part for parts in cuts for part in parts]

    def _capability(
        self, part: Sequence[tuple[Concept, str]], *, half: tuple[str, ...], provider: str, suffix: str, draws: Draws
    ) -> None:
        concept = part[0][0]
        row, first = len(self.capabilities), len(self.endpoints)
        style = draws.below(5)
        for of, function in part:
            document = _document(function, of.noun, style=style, draws=draws)
            self.endpoints.append(
                SampleEndpoint(
                    row=len(self.endpoints), capability=row, concept=of.row, function=function, document=document
                )
            )
        nouns = " and ".join(dict.fromkeys(of.noun for of, _ in part))
        text = draws.pick(DESCRIPTIONS).format(brand=provider, nouns=nouns, audience=draws.pick(AUDIENCES))
        self.capabilities.append(
            SampleCapability(
                row=row,
                domain=concept.domain,
                name=f"{provider} {concept.noun.title()} {suffix}".strip(),
                description=f"{text[0].upper()}{text[1:]}",
                provider=provider,
                axis=concept.axis,
                admits=half,
                endpoints=tuple(range(first, len(self.endpoints))),
                idle=concept.idle,
            )
        )

    def _groups(self, first_concept: int) -> Iterator[Group]:
        """The groups of the concepts added since ``first_concept``; a rival of each half."""
        offers: dict[tuple[int, str], list[int]] = {}
        for endpoint in self.endpoints:
            if endpoint.concept >= first_concept:
                offers.setdefault((endpoint.concept, endpoint.function), []).append(endpoint.row)
        for (concept, function), rivals in sorted(offers.items()):
            a, b = rivals
            yield Group(concept=concept, function=function, rivals=(a, b))


def _halves(axis: str, draws: Draws) -> list[tuple[str, ...]]:
    """Division of an axis: between its camps, or across them, so that either half has a value of both."""
    (a, b), (c, d) = CAMPS[axis]
    along = draws.chance(_P_ALONG_CAMPS)
    across = draws.pick((((a, c), (b, d)), ((a, d), (b, c))))
    halves = ((a, b), (c, d)) if along else across
    return [tuple(sorted(half)) for half in draws.shuffled(halves)]


def _functions(size: int, draws: Draws) -> tuple[str, ...]:
    """Functions of a concept, one that gives a record and one that takes a record among them."""
    order = draws.shuffled(list(FUNCTIONS))
    giver = next(name for name in order if FUNCTIONS[name].gives == "record")
    taker = next(name for name in order if any(KINDS[kind].takes == "record" for kind in FUNCTIONS[name].required))
    return (giver, taker, *[name for name in order if name not in (giver, taker)][: size - 2])


def _nouns(domain: str, *, facets: int) -> list[tuple[str, str]]:
    """(documentation noun, request noun) of a domain, facet by facet."""
    suffix, sector = next((s, w) for s, w in reversed(SECTORS) if domain.endswith(s))
    base = DOMAINS[domain.removesuffix(suffix)]
    words = [" ".join(word for word in (sector, facet) if word) for facet in FACETS[:facets]]
    return [(f"{word} {doc}".strip(), f"{word} {asked}".strip()) for word in words for doc, asked in base]


def _brands(draws: Draws, *, per_half: int) -> Mapping[_Half, tuple[str, ...]]:
    """Providers by the conditions they work under, the same ones in all domains."""
    names = draws.shuffled([f"{a}{b}".capitalize() for a in SYLLABLES for b in ENDINGS])
    halves = [
        _Half(axis=axis, admits=tuple(sorted((x, y))))
        for axis in AXES
        for place, x in enumerate(CONDITIONS[axis])
        for y in list(CONDITIONS[axis])[place + 1 :]
    ]
    return {half: tuple(names[i * per_half : (i + 1) * per_half]) for i, half in enumerate(halves)}


def _document(function: str, noun: str, *, style: int, draws: Draws) -> Document:
    """Documentation of a function on a concept; ``style`` 0 to 2 is title case, 3 snake case, 4 camel case."""
    spec = FUNCTIONS[function]
    words = f"{draws.pick(spec.verbs)} {noun.title()}"
    camel = words.replace(" ", "")
    operation = {3: words.lower().replace(" ", "_"), 4: f"{camel[0].lower()}{camel[1:]}"}.get(style, words)
    described = draws.chance(_P_DESCRIBED)
    text = draws.pick(spec.says).format(noun=noun)
    return Document(
        operation=operation,
        description=text if described else "",
        method="POST" if function in ("create", "send", "update", "delete", "book") else "GET",
        required=tuple(_parameter(kind, draws) for kind in spec.required),
        optional=tuple(_parameter(kind, draws) for kind in draws.shuffled(OPTIONAL_KINDS)[: draws.below(3)]),
    )


def _parameter(kind: str, draws: Draws) -> Parameter:
    known = KINDS[kind]
    return Parameter(kind=kind, name=draws.pick(known.names), raw_type=known.raw_type, description=known.description)


def _documented_at_random(world: World) -> World:
    """Deal all documents out anew: what is written about an endpoint is independent of what it does."""
    spec = world.spec
    documents = [endpoint.document for endpoint in world.endpoints]
    owners = [endpoint.capability for endpoint in world.endpoints]
    deals = (
        _deal(Draws("deal", spec.size, spec.seed, attempt).shuffled(documents), owners=owners) for attempt in count()
    )
    dealt = next(deal for deal in deals if deal is not None)
    return replace(world, endpoints=tuple(replace(e, document=d) for e, d in zip(world.endpoints, dealt, strict=True)))


def _deal(documents: Sequence[Document], *, owners: Sequence[int]) -> list[Document] | None:
    """Documents in the order of ``owners``, none of which gets two of one name; None if the last ones do not fit."""
    rest = [(local_name(document.operation), document) for document in documents]
    taken: set[tuple[int, str]] = set()
    dealt: list[Document] = []
    for owner in owners:
        place = next((i for i in range(len(rest) - 1, -1, -1) if (owner, rest[i][0]) not in taken), None)
        if place is None:
            return None
        key, document = rest.pop(place)
        taken.add((owner, key))
        dealt.append(document)
    return dealt

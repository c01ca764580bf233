"""A tiny generated sample in ToolBench's upstream layout: it exercises the plumbing and proves nothing about a method.

All names, descriptions and requests are invented here from word lists; every table made from it is labelled
``sample (synthetic)``. It carries the quirks that the adapter must survive on the real release: names that need
standardisation, a stem without the name's slash, a file named ``.json``, the same tool name in two categories, tools
and APIs that only query rows document, an API listed twice, missing descriptions, texts that occur in several files,
a query id used twice, requests over several domains, and one domain with fewer than five available tools.
"""

from __future__ import annotations

import hashlib
import json
import random
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from toolshift.data.names import standardize
from toolshift.runs.files import sha256_file, stable_hash, write_json

LABEL = "sample (synthetic)"
MANIFEST = "SAMPLE.json"
_FOLDER = "toolbench"
_TINY_TOOLS = 3
_TINY_TASKS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleInfo:
    """A sample on disk: ``root`` is the adapter's root, ``generated`` whether this call wrote it."""

    root: Path
    sha256: str
    files: int
    generated: bool


# ------------------------------------------------------------------------------------------------------- word lists

# category -> (noun as the documentation says it, as a request says it)
_DOMAINS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "Astronomy": (
        ("star charts", "maps of the night sky"),
        ("eclipses", "the moments when the moon hides the sun"),
        ("satellite passes", "when a satellite flies over"),
        ("meteor showers", "nights with many shooting stars"),
    ),
    "Bicycles": (
        ("bike routes", "a nice way to ride"),
        ("repair shops", "someone who fixes a flat tyre"),
        ("frame sizes", "how large a bike must be for me"),
        ("rental stations", "where to borrow a bike"),
    ),
    "Cooking": (
        ("recipes", "something to cook"),
        ("ingredient substitutes", "what I can use in place of an ingredient"),
        ("menu plans", "meals for the whole week"),
        ("kitchen timers", "how long a dish has to stay on the stove"),
    ),
    "Gardening": (
        ("seed catalogues", "which seeds I can order"),
        ("frost dates", "when the last cold night is over"),
        ("plant diseases", "why the leaves of my tomatoes turn brown"),
        ("watering schedules", "how often the beds need water"),
    ),
    "Home_and_Energy": (
        ("electricity tariffs", "what a kilowatt hour costs"),
        ("solar yields", "how much power my roof could make"),
        ("heating systems", "ways to keep the house warm"),
        ("smart meters", "what my flat has used this month"),
    ),
    "Languages": (
        ("dictionary entries", "what a word means"),
        ("verb tables", "all forms of a verb"),
        ("pronunciations", "how a word sounds"),
        ("idioms", "sayings that natives use"),
    ),
    "Libraries": (
        ("book holdings", "whether a novel is on the shelf"),
        ("reading lists", "books worth reading"),
        ("due dates", "when I must bring books back"),
        ("author pages", "who wrote a story"),
    ),
    "Music_Practice": (
        ("sheet music", "the notes of a piece"),
        ("chord charts", "how to grip the strings for a song"),
        ("metronome settings", "how fast a piece is played"),
        ("choir rehearsals", "when singers meet"),
    ),
    "Public_Transit": (
        ("departures", "when the next tram leaves"),
        ("fares", "what a ticket costs"),
        ("line disruptions", "whether trains are late"),
        ("station layouts", "where the lift in a station is"),
    ),
    "Sea_and_Coast": (
        ("tide tables", "when the water is low"),
        ("harbour berths", "a place to moor a boat"),
        ("wave reports", "how rough the sea is"),
        ("lighthouses", "beacons along the shore"),
    ),
    "Small_Business": (
        ("invoices", "bills I have sent"),
        ("tax deadlines", "when the tax office wants papers"),
        ("supplier records", "who sells me material"),
        ("shift plans", "who works on which day"),
    ),
    "Wildlife": (
        ("bird sightings", "which birds were seen"),
        ("animal tracks", "who left these prints in the snow"),
        ("protected areas", "places where nature is left alone"),
        ("migration routes", "where flocks fly in autumn"),
    ),
}
_TINY_DOMAIN = "Wildlife"

# fmt: off
_BRANDS = (
    "Arbo", "Belun", "Cavio", "Dorim", "Elvani", "Fendo", "Galip", "Hestra", "Ivono", "Jundo",
    "Kelpa", "Lumero", "Mirav", "Nostil", "Ombra", "Pervo", "Quilon", "Rastu", "Sorvel", "Tambi",
)
# fmt: on

# (as the documentation says it, as a request says it)
_SPECIALITIES = (
    ("mountain regions", "up in the mountains"),
    ("school classes", "for a group of pupils"),
    ("island communities", "on the islands"),
    ("night workers", "for people who work at night"),
    ("wheelchair users", "for someone in a wheelchair"),
    ("historic records", "as it was a century ago"),
    ("beginners", "for a person who has just started"),
    ("professionals", "for an expert team"),
    ("families", "with two small children"),
    ("rainy days", "when it pours"),
    ("border towns", "close to the frontier"),
    ("large events", "for a crowd of thousands"),
    ("low budgets", "without spending much"),
    ("senior citizens", "for my grandparents"),
)

_Parameter = tuple[str, str, str]  # name, raw type, description

# action -> (required, optional, how a request asks for it)
_ACTIONS: Mapping[str, tuple[tuple[_Parameter, ...], tuple[_Parameter, ...], tuple[str, ...]]] = {
    "Search": (
        (("query", "STRING", "words to look for"),),
        (("limit", "NUMBER", "most results"),),
        ('look up {noun} with the words "{word}"', 'please find {noun}, the keyword is "{word}"'),
    ),
    "List": (
        (),
        (("page", "NUMBER", ""), ("sort", "ENUM", "order of the rows")),
        ("show me everything there is about {noun}", "I need an overview of {noun}"),
    ),
    "By Date": (
        (("date", "DATE (YYYY-MM-DD)", "day of interest"),),
        (("detailed", "BOOLEAN", ""),),
        ("tell me {noun} on {date}", "I would like to know {noun} for {date}"),
    ),
    "Nearby": (
        (("position", "GEOPOINT (latitude, longitude)", "centre"), ("radius", "NUMBER", "kilometres")),
        (),
        (
            "find out {noun} within {number} kilometres of {place}",
            "check {noun} not more than {number} km from {place}",
        ),
    ),
    "Details": (
        (("id", "STRING", "identifier"),),
        (("fields", "ARRAY", "columns wanted"),),
        ("give me the particulars of {noun}, number {number}", "open entry {number} and explain {noun}"),
    ),
    "Notify": (
        (("email", "STRING", "address that gets the message"), ("callback_url", "STRING", "")),
        (("active", "BOOLEAN", "switch"),),
        ("send {noun} to {email}", "mail {noun} to {email} every week"),
    ),
}

_OPENINGS = (
    "I am planning a weekend in {place}.",
    "My neighbour asked me for help.",
    "We are preparing a small exhibition.",
    "I have a free afternoon in {place}.",
    "Our club meets soon.",
    "I promised my sister an answer.",
    "There is a project I work on.",
    "A friend of mine visits {place}.",
)
_PLACES = ["Ostermoor", "Kalvik", "Brenau", "Lindholm", "Sarvena", "Tolmin", "Weyra", "Juras"]
_WORDS = ["amber", "harvest", "lantern", "meadow", "copper", "willow", "harbour", "thistle", "velvet", "ember"]
_JOINERS = ("Also, ", "After that, ", "Besides, ", "And ")


# -------------------------------------------------------------------------------------------------------- the world


@dataclass(frozen=True, slots=True, kw_only=True)
class _Api:
    name: str
    description: str
    required: tuple[_Parameter, ...]
    optional: tuple[_Parameter, ...]
    requests: tuple[str, ...]
    noun: str
    listed: bool = True  # False: only query rows document it


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tool:
    category: str
    name: str
    description: str | None
    speciality: str
    apis: tuple[_Api, ...]
    stem: str
    listed: bool = True  # False: only query rows document it
    asked: bool = True  # False: no request needs it and no row lists it


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    kind: str  # G1: one tool; G2: two tools of a domain; G3: two domains
    text: str
    gold: tuple[tuple[_Tool, _Api], ...]
    given: tuple[tuple[_Tool, _Api], ...]


def _rng(seed: int, *parts: object) -> random.Random:
    """A generator of its own for each purpose: adding one shifts nothing else."""
    return random.Random("/".join(map(str, ("tiny-toolbench", seed, *parts))))


def _api(action: str, noun: tuple[str, str]) -> _Api:
    required, optional, requests = _ACTIONS[action]
    return _Api(
        name=f"{action} {noun[0].title()}" if action in ("Search", "List") else f"{noun[0].capitalize()} {action}",
        description="" if action == "List" else f"{action} access to {noun[0]}.",
        required=required,
        optional=optional,
        requests=requests,
        noun=noun[1],
    )


def _tool(seed: int, category: str, index: int) -> _Tool:
    rng = _rng(seed, "tool", category, index)
    nouns = rng.sample(_DOMAINS[category], 2)
    speciality = _SPECIALITIES[index % len(_SPECIALITIES)]
    pairs = rng.sample([(action, noun) for noun in nouns for action in _ACTIONS], rng.randint(1, 6))
    brand = _BRANDS[(index + 7 * sorted(_DOMAINS).index(category)) % len(_BRANDS)]
    name = f"{brand} {nouns[0][0].title()}"
    topics = sorted({noun[0] for _, noun in pairs})
    return _Tool(
        category=category,
        name=name,
        description=f"{brand} offers {' and '.join(topics)}, made for {speciality[0]}.",
        speciality=speciality[1],
        apis=tuple(_api(action, noun) for action, noun in pairs),
        stem=standardize(name),
    )


def _tools(seed: int, categories: Sequence[str], *, per_domain: int) -> dict[str, list[_Tool]]:
    world = {
        category: [
            _tool(seed, category, index) for index in range(_TINY_TOOLS if category == _TINY_DOMAIN else per_domain)
        ]
        for category in categories
    }
    full = [category for category in categories if category != _TINY_DOMAIN]
    for category in full:
        world[category] = _with_quirks(world[category])
    # One name in two categories, and the tool that only query rows know in its second version.
    for category in full[:2]:
        world[category][0] = replace(world[category][0], name="Quick Lookup", stem="quick_lookup")
    second = replace(world[full[0]][-1], name="Quick Lookup_v2", stem="")
    world[full[0]][-1] = second
    nameless = world[full[-1]][0]
    world[full[-1]][0] = replace(nameless, name="별빛 안내", stem="")
    return world


def _with_quirks(tools: list[_Tool]) -> list[_Tool]:
    """Bend fixed positions of a domain's tools; the last one is known from rows only, the two before it are idle."""
    bent = list(tools)
    bent[1] = replace(bent[1], name=f"  {bent[1].name} ")
    bent[2] = replace(bent[2], name=f"7{bent[2].name}", stem=standardize(f"7{bent[2].name}"))
    slashed = bent[3].name.replace(" ", "/", 1)
    bent[3] = replace(bent[3], name=slashed, stem=standardize(slashed.replace("/", "")))
    bent[4] = replace(bent[4], description=None)
    first, *others = bent[5].apis
    bent[5] = replace(bent[5], apis=(replace(first, name=f"/v1/{first.name} ^ rank"), *others))
    bent[6] = replace(bent[6], apis=(*bent[6].apis[:-1], replace(bent[6].apis[-1], listed=len(bent[6].apis) == 1)))
    bent[-1] = replace(bent[-1], listed=False)
    bent[-3:-1] = (replace(tool, asked=False) for tool in bent[-3:-1])
    return bent


# ------------------------------------------------------------------------------------------------------- the requests


def _clause(rng: random.Random, tool: _Tool, api: _Api) -> str:
    text = rng.choice(api.requests).format(
        noun=api.noun,
        word=rng.choice(_WORDS),
        place=rng.choice(_PLACES),
        date=f"2031-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}",
        number=rng.randint(2, 90),
        email=f"{rng.choice(_WORDS)}@{rng.choice(_PLACES).lower()}.example",
    )
    return f"{text}, {tool.speciality}"


def _compose(rng: random.Random, gold: Sequence[tuple[_Tool, _Api]]) -> str:
    clauses = [_clause(rng, tool, api) for tool, api in gold]
    sentences = [rng.choice(_OPENINGS).format(place=rng.choice(_PLACES)), f"{clauses[0][0].upper()}{clauses[0][1:]}."]
    sentences += [f"{rng.choice(_JOINERS)}{clause}." for clause in clauses[1:]]
    if rng.random() < 0.25:
        sentences.append(f"I have heard of {gold[0][0].name.strip()}.")
    return " ".join(sentences)


def _picked(rng: random.Random, tool: _Tool, count: int) -> list[tuple[_Tool, _Api]]:
    return [(tool, api) for api in rng.sample(tool.apis, min(count, len(tool.apis)))]


def _row(rng: random.Random, world: Mapping[str, list[_Tool]], category: str) -> _Row:
    tools = [tool for tool in world[category] if tool.asked]
    others = [c for c in world if c not in (category, _TINY_DOMAIN)]
    kind = rng.choices(("G1", "G2", "G3"), (55, 25, 20))[0]
    if kind == "G3" and category != _TINY_DOMAIN and others:
        away = rng.choice([tool for tool in world[rng.choice(others)] if tool.asked])
        # Two endpoints at home against one away keep the request in its own domain.
        gold = [pair for tool in rng.sample(tools, 2) for pair in _picked(rng, tool, 1)] + _picked(rng, away, 1)
    elif kind == "G1":
        gold = _picked(rng, rng.choice(tools), rng.randint(1, 3))
    else:
        kind = "G2"
        gold = [pair for tool in rng.sample(tools, 2) for pair in _picked(rng, tool, rng.randint(1, 2))]
    extra = [pair for tool in rng.sample(tools, min(3, len(tools))) for pair in _picked(rng, tool, 2)]
    given = gold + [pair for pair in extra if pair not in gold]
    rng.shuffle(given)
    return _Row(kind=kind, text=_compose(rng, gold), gold=tuple(gold), given=tuple(given))


def _rows(seed: int, world: Mapping[str, list[_Tool]], *, per_domain: int) -> list[_Row]:
    rows: list[_Row] = []
    texts: set[str] = set()
    for category in world:
        for index in range(_TINY_TASKS if category == _TINY_DOMAIN else per_domain):
            drawn = (_row(_rng(seed, "task", category, index, attempt), world, category) for attempt in range(100))
            row = next(row for row in drawn if row.text not in texts)
            texts.add(row.text)
            rows.append(row)
    return rows


# -------------------------------------------------------------------------------------------------------- the files


def _split_rows(seed: int, rows: Sequence[_Row]) -> dict[str, list[_Row]]:
    """File -> its rows: a fifth are test queries, some of which are repeated in the training and solvable files."""
    files: dict[str, list[_Row]] = {}
    for index, row in enumerate(rows):
        rng = _rng(seed, "file", index)
        kinds = {"G1": ("instruction", "category", "tool"), "G2": ("instruction", "category"), "G3": ("instruction",)}
        if rng.random() < 0.8:
            files.setdefault(f"instruction/{row.kind}_query.json", []).append(row)
            continue
        name = f"{row.kind}_{rng.choice(kinds[row.kind])}.json"
        files.setdefault(f"test_instruction/{name}", []).append(row)
        if rng.random() < 0.7:
            files.setdefault(f"solvable_queries/test_instruction/{name}", []).append(row)
        if rng.random() < 0.15:
            known = replace(row, gold=row.gold[:1], given=row.gold[:1])
            files.setdefault(f"instruction/{row.kind}_query.json", []).append(known)
    return files


def _parameters(parameters: Sequence[_Parameter]) -> list[dict[str, str]]:
    return [{"name": name, "type": kind, "description": text, "default": ""} for name, kind, text in parameters]


def _tool_json(tool: _Tool) -> dict[str, object]:
    def entry(api: _Api, name: str) -> dict[str, object]:
        return {
            "name": name,
            "url": f"https://{standardize(tool.name) or 'unnamed'}.example/{standardize(name)}",
            "description": api.description,
            "method": "GET",
            "required_parameters": _parameters(api.required),
            "optional_parameters": _parameters(api.optional),
        }

    listed = [api for api in tool.apis if api.listed]
    twice = [entry(listed[0], f"{listed[0].name.lower()} ")] if len(listed) == len(_ACTIONS) else []
    return {
        "tool_name": tool.name,
        "name": tool.name,
        "title": tool.name,
        "tool_description": tool.description,
        "pricing": "FREE",
        "score": None,
        "home_url": "",
        "host": "",
        "api_list": [*(entry(api, api.name) for api in listed), *twice],
    }


def _row_json(row: _Row, query_id: int) -> dict[str, object]:
    return {
        "api_list": [
            {
                "category_name": tool.category,
                "tool_name": tool.name,
                "api_name": api.name,
                "api_description": api.description,
                "required_parameters": _parameters(api.required),
                "optional_parameters": _parameters(api.optional),
                "method": "GET",
                "template_response": {"result": "str"},
            }
            for tool, api in row.given
        ],
        "query": row.text,
        "relevant APIs": [[tool.name, api.name] for tool, api in row.gold],
        "query_id": query_id,
    }


def _contents(seed: int, *, n_domains: int, tools_per_domain: int, tasks_per_domain: int) -> dict[str, bytes]:
    """Relative path -> bytes of every file of the sample."""
    full = [category for category in _DOMAINS if category != _TINY_DOMAIN]
    categories = sorted([*full[: n_domains - 1], _TINY_DOMAIN])
    world = _tools(seed, categories, per_domain=tools_per_domain)
    files: dict[str, object] = {
        f"toolenv/tools/{category}/{tool.stem}.json": _tool_json(tool)
        for category, tools in world.items()
        for tool in tools
        if tool.listed
    }
    for path, rows in _split_rows(seed, _rows(seed, world, per_domain=tasks_per_domain)).items():
        # Ids count from 0 in every file, so they repeat between files, as some do upstream.
        files[path] = [_row_json(row, query_id) for query_id, row in enumerate(rows)]
    return {
        path: (json.dumps(content, ensure_ascii=False, indent=1) + "\n").encode() for path, content in files.items()
    }


def write_tiny_toolbench(
    folder: Path, *, seed: int = 0, n_domains: int = 12, tools_per_domain: int = 12, tasks_per_domain: int = 40
) -> SampleInfo:
    """Write the sample to ``<folder>/toolbench`` unless it is there already, made by this code with these arguments.

    ``tools_per_domain`` includes one tool that only query rows document and two that no request needs; one of the
    domains is tiny (3 tools, 8 tasks) whatever the sizes. Files appear together by one rename; ``SAMPLE.json`` beside
    them records seed, sizes, the hash of this code and of every file, all of which are checked before files are reused.

    Raises:
        ValueError: for sizes outside 3..12 domains, 10..14 tools or fewer than 1 task per domain.
    """
    if not 3 <= n_domains <= len(_DOMAINS) or not 10 <= tools_per_domain <= len(_SPECIALITIES) or tasks_per_domain < 1:
        raise ValueError(
            f"sample size {n_domains} domains x {tools_per_domain} tools x {tasks_per_domain} tasks: expected "
            f"3 to {len(_DOMAINS)} domains, 10 to {len(_SPECIALITIES)} tools and at least 1 task"
        )
    sizes = {"n_domains": n_domains, "tools_per_domain": tools_per_domain, "tasks_per_domain": tasks_per_domain}
    code = [sha256_file(Path(__file__)), sha256_file(Path(__file__).with_name("names.py"))]
    made_by = {"label": LABEL, "seed": seed, "code": stable_hash(code), **sizes}
    target = folder / _FOLDER
    found = _reusable(target, made_by)
    if found is not None:
        return found
    contents = _contents(seed, **sizes)
    hashes = {path: hashlib.sha256(content).hexdigest() for path, content in contents.items()}
    _replace_folder(target, contents, manifest={**made_by, "files": hashes, "sha256": stable_hash(hashes)})
    return SampleInfo(root=folder, sha256=stable_hash(hashes), files=len(hashes), generated=True)


def _reusable(target: Path, made_by: Mapping[str, object]) -> SampleInfo | None:
    """The sample on disk if it was made by the same code and arguments and none of its files changed."""
    try:
        manifest = json.loads((target / MANIFEST).read_text(encoding="utf-8"))
        if any(manifest[key] != value for key, value in made_by.items()):
            return None
        files: dict[str, str] = manifest["files"]
        if any(sha256_file(target / path) != digest for path, digest in files.items()):
            return None
        return SampleInfo(root=target.parent, sha256=str(manifest["sha256"]), files=len(files), generated=False)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _replace_folder(target: Path, contents: Mapping[str, bytes], *, manifest: Mapping[str, object]) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}."))
    try:
        for path, content in contents.items():
            (temporary / "new" / path).parent.mkdir(parents=True, exist_ok=True)
            (temporary / "new" / path).write_bytes(content)
        write_json(temporary / "new" / MANIFEST, manifest)
        if target.exists():
            target.replace(temporary / "old")
        (temporary / "new").replace(target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)

"""The sample in ToolBench's upstream layout, with the quirks that an adapter must survive on the real release.

Names that need standardisation (outer blanks, a leading digit, a slash that the file's stem drops, a caret, a name
without a letter that standardises, hence a file named ``.json``), one tool name in two categories, a ``_v2`` name,
tools and APIs that only query rows document, an API listed twice, a missing description, category names with blanks,
distractors among the given APIs, query ids that start anew in every file, and rows that occur in several files, some
with part of their gold.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from toolshift.data.names import local_name, standardize
from toolshift.data.sample.draws import Draws
from toolshift.data.sample.files import HashedFolder
from toolshift.data.sample.formats.base import text_id
from toolshift.data.sample.tasks import SampleTask
from toolshift.data.sample.truth import Ids
from toolshift.data.sample.world import Parameter, SampleCapability, SampleEndpoint, World

DATASET = "toolbench"
_TWIN_NAME = "Quick Lookup"
_NAMELESS = "별빛 안내"
_TWICE_FROM = 4  # tools of so many listed APIs list the first one twice
_SETTINGS = {"G1": ("instruction", "category", "tool"), "G2": ("instruction", "category"), "G3": ("instruction",)}
_P_TRAINING_FILE = 0.8
_P_SOLVABLE = 0.7
_P_KNOWN_TEST = 0.15
_P_NEAR = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFace:
    """How a capability appears: native name, stem of its file (empty: ``.json``), whether it has a file at all, and
    whether the file says what the tool is for."""

    name: str
    stem: str
    listed: bool = True
    described: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiFace:
    """How an endpoint appears: native name, and whether the tool's file has it."""

    name: str
    listed: bool = True


class Rendering:
    """Native names of a world and the record ids that follow from them."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.tools = [_plain(capability) for capability in world.capabilities]
        self.apis = [ApiFace(name=endpoint.document.operation) for endpoint in world.endpoints]
        full = [domain.name for domain in world.domains if not domain.tiny]
        for name in full:
            self._bend(self._asked(name))
        for name in full[:2]:
            self.tools[self._asked(name)[0].row] = ToolFace(name=_TWIN_NAME, stem=standardize(_TWIN_NAME))
        self.tools[self._asked(full[0])[-1].row] = ToolFace(name=f"{_TWIN_NAME}_v2", stem="", listed=False)
        self.tools[self._asked(full[-1])[0].row] = ToolFace(name=_NAMELESS, stem="")

    def _asked(self, domain: str) -> list[SampleCapability]:
        return [row for row in self.world.capabilities if row.domain == domain and not row.idle]

    def _bend(self, tools: Sequence[SampleCapability]) -> None:
        """Bend the tools at fixed places of a domain; the last one is known from query rows only."""
        for place, capability in enumerate(tools[:5]):
            self.tools[capability.row] = _bent(self.tools[capability.row], place)
        first, last = tools[5].endpoints[0], tools[6].endpoints[-1]
        self.apis[first] = ApiFace(name=f"/v1/{self.apis[first].name} ^ rank")
        if len(tools[6].endpoints) > 1:
            self.apis[last] = replace(self.apis[last], listed=False)
        self.tools[tools[-1].row] = replace(self.tools[tools[-1].row], stem="", listed=False)

    @cached_property
    def ids(self) -> Ids:
        """Ids as the adapter makes them from the native names."""
        capability = tuple(
            f"{DATASET}/{row.domain}/{face.stem or local_name(face.name)}"
            for row, face in zip(self.world.capabilities, self.tools, strict=True)
        )
        endpoint = tuple(
            f"{capability[row.capability]}/{local_name(face.name)}"
            for row, face in zip(self.world.endpoints, self.apis, strict=True)
        )
        return Ids(capability=capability, endpoint=endpoint)

    @cached_property
    def unlisted(self) -> dict[str, list[int]]:
        """Endpoints by domain that some query row must document, because no tool file does."""
        found: dict[str, list[int]] = {}
        for endpoint, api in zip(self.world.endpoints, self.apis, strict=True):
            if not (api.listed and self.tools[endpoint.capability].listed):
                found.setdefault(self.world.capabilities[endpoint.capability].domain, []).append(endpoint.row)
        return found


def shaped(world: World) -> World:
    """The world as it is: ToolBench's tools have several APIs."""
    return world


def open_writer(files: HashedFolder, world: World) -> ToolBenchWriter:
    """A writer of ToolBench's layout."""
    return ToolBenchWriter(files, Rendering(world))


class ToolBenchWriter:
    """Writes tool files at once and query rows as tasks come."""

    def __init__(self, files: HashedFolder, rendering: Rendering) -> None:
        self.files, self.rendering = files, rendering
        world = rendering.world
        self._undocumented = {domain: list(rows) for domain, rows in rendering.unlisted.items()}
        self._askable = {
            domain.name: [c for c in world.capabilities if c.domain == domain.name and not c.idle]
            for domain in world.domains
        }

    @property
    def ids(self) -> Ids:
        """Record ids by row of the world."""
        return self.rendering.ids

    def task_id(self, task: SampleTask) -> str:
        """The id of the record that a task's text becomes."""
        return text_id(DATASET, task)

    def write_tools(self) -> None:
        """Write one file per tool that has one."""
        for capability, face in zip(self.rendering.world.capabilities, self.rendering.tools, strict=True):
            if face.listed:
                path = f"{DATASET}/toolenv/tools/{capability.domain}/{face.stem}.json"
                self.files.write(path, self._tool(capability, face))

    def add(self, task: SampleTask) -> None:
        """Write the rows of a task: one at least, up to three."""
        spec = self.rendering.world.spec
        draws = Draws("row", spec.size, spec.seed, task.row)
        gold = list(task.gold)
        given = draws.shuffled(list(dict.fromkeys([*gold, *self._distractors(task, draws)])))
        for path, part in _files(task, self._kind(task), draws):
            kept = (gold, given) if part == "whole" else (gold[:1], gold[:1])
            self.files.append(path, self._row(task, *kept, query_id=self.files.count(path)))

    def close(self) -> None:
        """Check that every endpoint is documented somewhere.

        Raises:
            ValueError: if a domain has too few tasks to document what no tool file has.
        """
        left = {domain: len(rows) for domain, rows in self._undocumented.items() if rows}
        if left:
            raise ValueError(f"endpoints that no file documents: {left}; the sample needs more tasks per domain")

    def _distractors(self, task: SampleTask, draws: Draws) -> Iterator[int]:
        """Endpoints given beside the gold: one to three, each of a tool that speaks of a concept asked for or of any
        tool of the domain, and one that still needs a row."""
        world = self.rendering.world
        for _ in range(1 + draws.below(3)):
            near = draws.pick(world.speakers[draws.pick(task.requirements).group.concept])
            any_tool = draws.pick(self._askable[task.domain])
            tool = world.capabilities[near] if draws.chance(_P_NEAR) else any_tool
            yield draws.pick(tool.endpoints)
        waiting = self._undocumented.get(task.domain)
        if waiting:
            yield waiting.pop()

    def _kind(self, task: SampleTask) -> str:
        """G1: one tool; G2: several of a category; G3: several categories. By the calls, which all worlds share."""
        world = self.rendering.world
        tools = {world.endpoints[row].capability for row in task.calls}
        categories = {world.capabilities[row].domain for row in tools}
        return "G3" if len(categories) > 1 else "G2" if len(tools) > 1 else "G1"

    def _tool(self, capability: SampleCapability, face: ToolFace) -> dict[str, object]:
        rows = [row for row in capability.endpoints if self.rendering.apis[row].listed]
        apis = [self._api(row, self.rendering.apis[row].name, face) for row in rows]
        if len(rows) >= _TWICE_FROM:
            apis.append(self._api(rows[0], f"{self.rendering.apis[rows[0]].name.lower()} ", face))
        return {
            "tool_name": face.name,
            "name": face.name,
            "title": face.name,
            "tool_description": capability.description if face.described else None,
            "pricing": "FREE",
            "score": None,
            "home_url": "",
            "host": "",
            "api_list": apis,
        }

    def _api(self, row: int, name: str, tool: ToolFace) -> dict[str, object]:
        document = self.rendering.world.endpoints[row].document
        return {
            "name": name,
            "url": f"https://{standardize(tool.name) or 'unnamed'}.example/{standardize(name)}",
            "description": document.description,
            "method": document.method,
            "required_parameters": _parameters(document.required),
            "optional_parameters": _parameters(document.optional),
        }

    def _row(self, task: SampleTask, gold: Sequence[int], given: Sequence[int], *, query_id: int) -> dict[str, object]:
        endpoints, tools, apis = self.rendering.world.endpoints, self.rendering.tools, self.rendering.apis
        return {
            "api_list": [self._listed(endpoints[row]) for row in given],
            "query": task.text,
            "relevant APIs": [[tools[endpoints[row].capability].name, apis[row].name] for row in gold],
            "query_id": query_id,
        }

    def _listed(self, endpoint: SampleEndpoint) -> dict[str, object]:
        rendering, document = self.rendering, endpoint.document
        return {
            "category_name": rendering.world.capabilities[endpoint.capability].domain.replace("_", " "),
            "tool_name": rendering.tools[endpoint.capability].name,
            "api_name": rendering.apis[endpoint.row].name,
            "api_description": document.description,
            "required_parameters": _parameters(document.required),
            "optional_parameters": _parameters(document.optional),
            "method": document.method,
            "template_response": {"result": "str"},
        }


def _plain(capability: SampleCapability) -> ToolFace:
    return ToolFace(name=capability.name, stem=standardize(capability.name))


def _bent(face: ToolFace, place: int) -> ToolFace:
    if place == 1:
        return replace(face, name=f"  {face.name} ")
    if place == 2:
        return replace(face, name=f"7{face.name}", stem=standardize(f"7{face.name}"))
    if place == 3:
        # The stem drops the slash, the standardised name has an underscore in its place.
        name = face.name.replace(" ", "/", 1)
        return replace(face, name=name, stem=standardize(name.replace("/", "")))
    return replace(face, described=False) if place == 4 else face


def _files(task: SampleTask, kind: str, draws: Draws) -> Iterator[tuple[str, str]]:
    """(file, whole or part) of a task: a fifth are test queries, some of which other files repeat."""
    if draws.chance(_P_TRAINING_FILE):
        yield f"{DATASET}/instruction/{kind}_query.json", "whole"
        return
    name = f"{kind}_{draws.pick(_SETTINGS[kind])}.json"
    yield f"{DATASET}/test_instruction/{name}", "whole"
    if draws.chance(_P_SOLVABLE):
        yield f"{DATASET}/solvable_queries/test_instruction/{name}", "whole"
    if draws.chance(_P_KNOWN_TEST):
        yield f"{DATASET}/instruction/{kind}_query.json", "part"


def _parameters(parameters: Sequence[Parameter]) -> list[dict[str, str]]:
    return [{"name": p.name, "type": p.raw_type, "description": p.description, "default": ""} for p in parameters]

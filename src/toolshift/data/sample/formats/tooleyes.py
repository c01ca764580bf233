"""The sample in ToolEyes' upstream layout, with the quirks that an adapter must survive on the real release.

A tool set is what speaks of one concept; its tools are one function each. Queries name the set of what is asked for
first and no gold, so the records cannot be scored; the truth beside them knows what answers a query. Every set lists
the two controls of the agent loop as if they were tools; one set lists a tool twice; a tool name occurs in the sets of
two categories; folder names hold blanks; schemas lack ``required`` or give a list of types; a query occurs twice, in
two scenarios; paths end in a slash. Files that the adapter does not read (prompts, ``tool.py``) are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from toolshift.data.names import local_name
from toolshift.data.sample.draws import Draws
from toolshift.data.sample.files import HashedFolder
from toolshift.data.sample.formats.base import refuse_equal_ids, text_id
from toolshift.data.sample.shape import one_function_each
from toolshift.data.sample.tasks import SampleTask
from toolshift.data.sample.truth import Ids
from toolshift.data.sample.world import Concept, Document, Parameter, World

DATASET = "tooleyes"
_TWIN = "quick_lookup"
_SCENARIOS = ("S1", "S2", "S3", "S4", "S5")
_TYPES = {"NUMBER": "number", "BOOLEAN": "boolean", "ARRAY": "array"}
_P_TWICE = 0.03
_P_SLASH = 0.1


def shaped(world: World) -> World:
    """One function a tool."""
    return one_function_each(world)


def open_writer(files: HashedFolder, world: World) -> ToolEyesWriter:
    """A writer of ToolEyes' layout.

    Raises:
        ValueError: if two tools would have one id.
    """
    writer = ToolEyesWriter(files, world)
    refuse_equal_ids(writer.ids)
    return writer


class ToolEyesWriter:
    """Writes the tool sets at once and queries as tasks come."""

    def __init__(self, files: HashedFolder, world: World) -> None:
        self.files, self.world = files, world
        self._names = [row.name for row in world.capabilities]
        concepts = {domain.name: domain.groups[0].concept for domain in world.domains[:2]}
        for concept in concepts.values():
            self._names[world.speakers[concept][0]] = _TWIN

    @cached_property
    def ids(self) -> Ids:
        """Record ids: the tool's key below category and set, and the same key again for its only endpoint."""
        keys = [local_name(name) for name in self._names]
        places = [self._set_of(self.world.concepts[row.concept]).replace(" ", "_") for row in self.world.endpoints]
        tools = tuple(f"{DATASET}/{place}/{key}" for place, key in zip(places, keys, strict=True))
        return Ids(capability=tools, endpoint=tuple(f"{tool}/{key}" for tool, key in zip(tools, keys, strict=True)))

    def task_id(self, task: SampleTask) -> str:
        """The id of the record that a query's text becomes."""
        return text_id(DATASET, task)

    def write_tools(self) -> None:
        """Write one file per tool set."""
        for concept in self.world.concepts:
            tools = [self._tool(row) for row in self.world.speakers[concept.row]]
            if concept.row == 0:
                tools.append(tools[-1])
            self.files.write(f"{DATASET}/Tool_Library/{self._set_of(concept)}/config_gpt4.json", [*tools, *_controls()])

    def add(self, task: SampleTask) -> None:
        """Write a query, a few of them twice."""
        spec = self.world.spec
        draws = Draws("tooleyes row", spec.size, spec.seed, task.row)
        place = self._set_of(self.world.concepts[task.requirements[0].group.concept])
        path = f"ToolEyes/Tool_Library/{place}{'/' if draws.chance(_P_SLASH) else ''}"
        first = draws.below(len(_SCENARIOS))
        for step in range(2 if draws.chance(_P_TWICE) else 1):
            row = {"query": task.text, "path": path, "scenario": _SCENARIOS[(first + step) % len(_SCENARIOS)]}
            self.files.append(f"{DATASET}/Test_Data/scenario_data_raw.json", row)

    def close(self) -> None:
        """Nothing is left to write."""

    def _set_of(self, concept: Concept) -> str:
        """``<Category>/<Set>``; the name of every fifth set keeps its blanks."""
        name = concept.noun.title()
        return f"{concept.domain}/{name if concept.row % 5 == 0 else name.replace(' ', '_')}"

    def _tool(self, row: int) -> dict[str, object]:
        document = self.world.endpoints[row].document
        return {
            "name": self._names[row],
            "description": self.world.capabilities[row].description,
            "parameters": _schema(document, required=row % 7 != 0),
        }


def _schema(document: Document, *, required: bool) -> dict[str, object]:
    parameters = (*document.required, *document.optional)
    schema: dict[str, object] = {"type": "object", "properties": {p.name: _property(p) for p in parameters}}
    return schema | {"required": [p.name for p in document.required]} if required else schema


def _property(parameter: Parameter) -> dict[str, object]:
    word = _TYPES.get(parameter.raw_type, "string")
    # A value that may be left empty, as two words.
    return {"type": [word, "null"] if word == "number" else word, "description": parameter.description}


def _controls() -> Iterator[dict[str, object]]:
    """What every set lists beside its tools."""
    for name, argument in (("ask_to_user", "question"), ("finish", "answer")):
        yield {
            "name": name,
            "description": "Part of the agent loop.",
            "parameters": {"type": "object", "properties": {argument: {"type": "string"}}, "required": [argument]},
        }

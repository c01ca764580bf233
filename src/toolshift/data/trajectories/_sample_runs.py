"""What an agent of the sample does with a request: the calls that answer it, and the ways in which it strays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from toolshift.data.names import standardize
from toolshift.data.sample.draws import Draws
from toolshift.data.sample.formats.base import distractors, given_arguments
from toolshift.data.sample.formats.toolbench import Rendering
from toolshift.data.sample.tasks import SampleTask
from toolshift.data.trajectories._toolbench import GAVE_ANSWER, GAVE_UP, INVENTED
from toolshift.data.trajectories.functions import cut, function_name

P_SUCCESS = 0.85
_P_RETRY = 0.15  # that a call fails first and is made again
_P_INVENTED = 0.1  # that a name is made up
_P_STRAY = 0.1  # that a given function is called that the request does not need
_P_HELP = 0.03  # that a function is called which only the agent's list documents
_P_SPACED = 0.2  # that the query is written with other blanks
_ERROR = '{"error": "Rate limit reached...", "response": ""}'
_NONE = '{"error": "No such function name", "response": ""}'


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One call: its function name as the agent was given it, arguments, response and upstream's observation code."""

    name: str
    arguments: Mapping[str, str]
    response: str
    code: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleRun:
    """One agent's way through a request. functions: OpenAI's shape, the final one left out."""

    key: int
    text: str
    steps: Sequence[Step]
    functions: Sequence[Mapping[str, Any]]
    success: bool

    @property
    def final(self) -> Mapping[str, str]:
        """Arguments of the closing call."""
        if self.success:
            return {"return_type": GAVE_ANSWER, "final_answer": "Here is what you asked for."}
        return {"return_type": GAVE_UP}


class Agents:
    """Draws runs over the tools of a rendering."""

    def __init__(self, rendering: Rendering) -> None:
        self.rendering = rendering

    def run(self, task: SampleTask, draws: Draws) -> SampleRun:
        """The run of one agent: every draw comes from its own stream."""
        steps = self._answer(task, draws)
        success = draws.chance(P_SUCCESS)
        if not success:
            steps = steps[: 1 + draws.below(len(steps))]
        given = self._given(task, draws)
        functions = [self._function(row) for row in given]
        others = [row for row in given if row not in task.calls]
        if draws.chance(_P_STRAY) and others:
            stray = Step(name=self._name(draws.pick(others)), arguments={}, response=_response(draws))
            steps.insert(draws.below(len(steps) + 1), stray)
        if draws.chance(_P_INVENTED):
            made_up = Step(name=INVENTED, arguments={}, response=_NONE, code=1)
            steps.insert(draws.below(len(steps) + 1), made_up)
        if draws.chance(_P_HELP):
            functions.append(self._help(task))
            steps.insert(0, Step(name=functions[-1]["name"], arguments={}, response=_response(draws)))
        text = task.text.replace(". ", ".  ") if draws.chance(_P_SPACED) else task.text
        return SampleRun(key=task.row, text=text, steps=steps, functions=functions, success=success)

    def _answer(self, task: SampleTask, draws: Draws) -> list[Step]:
        steps: list[Step] = []
        for row, requirement in zip(task.calls, task.requirements, strict=True):
            document = self.rendering.world.endpoints[row].document
            arguments = {given.name: given.value for given in given_arguments(document, requirement)}
            if draws.chance(_P_RETRY):
                steps.append(Step(name=self._name(row), arguments={}, response=_ERROR, code=11))
            steps.append(Step(name=self._name(row), arguments=arguments, response=_response(draws)))
        return steps

    def _given(self, task: SampleTask, draws: Draws) -> list[int]:
        world = self.rendering.world
        others = [
            draws.pick(world.capabilities[capability].endpoints)
            for capability in distractors(world, task, draws, count=2)
        ]
        return draws.shuffled(list(dict.fromkeys([*task.calls, *others])))

    def _names(self, row: int) -> tuple[str, str]:
        tool = self.rendering.tools[self.rendering.world.endpoints[row].capability].name
        return self.rendering.apis[row].name, tool

    def _name(self, row: int) -> str:
        return cut(function_name(*self._names(row)))

    def _function(self, row: int) -> dict[str, Any]:
        document = self.rendering.world.endpoints[row].document
        tool = standardize(self._names(row)[1])
        return {
            "name": self._name(row),
            "description": _told(tool, document.description),
            "parameters": {
                "type": "object",
                "properties": {
                    p.name: {"type": "string", "description": p.description}
                    for p in (*document.required, *document.optional)
                },
                "required": [p.name for p in document.required],
                "optional": [p.name for p in document.optional],
            },
        }

    def _help(self, task: SampleTask) -> dict[str, Any]:
        tool = self._names(task.calls[0])[1]
        return {
            "name": cut(function_name("Show Help Page", tool)),
            "description": _told(standardize(tool), "Explains the other functions."),
            "parameters": {"type": "object", "properties": {}, "required": [], "optional": []},
        }


def _told(tool: str, description: str) -> str:
    return (
        f'This is the subfunction for tool "{tool}", you can use this tool.'
        f'The description of this function is: "{description}"'
    )


def _response(draws: Draws) -> str:
    return f'{{"error": "", "response": "{{\'result\': {draws.below(1000)}}}"}}'

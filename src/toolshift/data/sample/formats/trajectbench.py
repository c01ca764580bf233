"""The sample in the layout of TRAJECT-Bench's sequential part, with the quirks that an adapter must survive.

Rows hold their calls in order, under ``tool list`` or ``tool_list``, with arguments and what came of them (some calls
failed). Tool files repeat tools of other domains and list one with another spelling; they lack APIs and whole tools
that rows call, some of these calls with an unknown parent tool. A request occurs in two files; where several
capabilities are valid, a request occurs with each sequence, so that it has no order. ``sequence.json`` holds a chain
without a request and is not to be read. Tool files are written last, for only then it is known which tools rows call.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from toolshift.data.names import local_name
from toolshift.data.sample.draws import Draws
from toolshift.data.sample.files import HashedFolder
from toolshift.data.sample.formats.base import Given, alternatives, given_arguments, refuse_equal_ids, text_id
from toolshift.data.sample.tasks import Requirement, SampleTask
from toolshift.data.sample.truth import Ids
from toolshift.data.sample.world import Parameter, World

DATASET = "trajectbench"
_PUBLIC = f"{DATASET}/public_data"
_UNKNOWN = "unknown"
_UNLISTED_TOOL = 9  # every so manieth tool is in no file, if rows call all of its APIs
_UNLISTED_API = 7
_REPEATED = 5
_P_FAILED = 0.1
_P_SECOND_FILE = 0.15


def shaped(world: World) -> World:
    """The world as it is: a parent tool has several APIs."""
    return world


def open_writer(files: HashedFolder, world: World) -> TrajectBenchWriter:
    """A writer of TRAJECT-Bench's layout.

    Raises:
        ValueError: if two tools would have one id.
    """
    writer = TrajectBenchWriter(files, world)
    refuse_equal_ids(writer.ids)
    return writer


class TrajectBenchWriter:
    """Writes queries as tasks come, and the tool files at the end; memory holds which endpoints were called."""

    def __init__(self, files: HashedFolder, world: World) -> None:
        self.files, self.world = files, world
        self._called = bytearray(len(world.endpoints))

    @cached_property
    def ids(self) -> Ids:
        """Record ids from the names of parent tool and API; the release has no domain in them."""
        world = self.world
        tools = tuple(f"{DATASET}/{local_name(row.name)}" for row in world.capabilities)
        return Ids(
            capability=tools,
            endpoint=tuple(f"{tools[e.capability]}/{local_name(e.document.operation)}" for e in world.endpoints),
        )

    def task_id(self, task: SampleTask) -> str:
        """The id of the record that a query's text becomes."""
        return text_id(DATASET, task)

    def write_tools(self) -> None:
        """Only the chain without a request: tool files follow in ``close``."""
        chain = {"tools": [self._names(0)["tool name"]], "domain": self.world.domains[0].name}
        self.files.write(f"{_PUBLIC}/sequential/{self.world.domains[0].name}/sequence.json", [chain])

    def add(self, task: SampleTask) -> None:
        """Write one row for each way to answer a request, and some rows again in the second file."""
        spec = self.world.spec
        draws = Draws("trajectbench row", spec.size, spec.seed, task.row)
        for chain in alternatives(task):
            self._append(task, chain, key="tool list", file="traj_query", draws=draws)
        if draws.chance(_P_SECOND_FILE):
            self._append(task, task.calls, key="tool_list", file="simple_ver", draws=draws)

    def close(self) -> None:
        """Write the tool files, without some of the tools that rows call."""
        names = [domain.name for domain in self.world.domains]
        for endpoint in self.world.endpoints:
            if not self._listed(endpoint.row):
                continue
            domain = self.world.capabilities[endpoint.capability].domain
            rows = [(domain, self._tool(endpoint.row))]
            if endpoint.row % _REPEATED == 0:
                rows.append((names[(names.index(domain) + 1) % len(names)], self._tool(endpoint.row)))
            if endpoint.row == 0:
                rows.append((domain, self._respelt(endpoint.row)))
            for place, row in rows:
                self.files.append(f"{_PUBLIC}/tools/{place}_tool.json", row)

    # -- tools

    def _listed(self, row: int) -> bool:
        """Whether a tool file has an endpoint: all that no row calls, and most of the others."""
        if row == 0 or not self._called[row]:
            return True
        tool = self.world.capabilities[self.world.endpoints[row].capability]
        whole = tool.row % _UNLISTED_TOOL == 1 and all(self._called[other] for other in tool.endpoints)
        return not (whole or row % _UNLISTED_API == 3)

    def _names(self, row: int) -> dict[str, str]:
        endpoint = self.world.endpoints[row]
        parent, api = self.world.capabilities[endpoint.capability].name, endpoint.document.operation
        return {"parent tool name": parent, "API name": api, "tool name": f"{parent}: {api}"}

    def _tool(self, row: int) -> dict[str, object]:
        endpoint = self.world.endpoints[row]
        capability, document = self.world.capabilities[endpoint.capability], endpoint.document
        return {
            **self._names(row),
            "domain name": capability.domain,
            "parent tool description": capability.description,
            "tool description": document.description,
            "required_parameters": _parameters(document.required),
            "optional_parameters": _parameters(document.optional),
            "code": "",
            "output_info": {},
        }

    def _respelt(self, row: int) -> dict[str, object]:
        """The same tool under names that differ in case only: its key is the same, its full name is not."""
        return self._tool(row) | {key: f" {name.upper()}" for key, name in self._names(row).items()}

    # -- queries

    def _append(self, task: SampleTask, chain: Sequence[int], *, key: str, file: str, draws: Draws) -> None:
        calls = [self._call(row, task.requirements[step], step=step, draws=draws) for step, row in enumerate(chain)]
        done = sum(call["execution_status"] == "success" for call in calls)
        row = {
            "query": task.text,
            "final_answer": {"answer": "", "reason": ""},
            key: calls,
            "num_tools_used": len(calls),
            "num_successful_tools": done,
            "executable": done == len(calls),
        }
        if file == "simple_ver":
            row["domain"] = task.domain
        self.files.append(f"{_PUBLIC}/sequential/{task.domain}/{file}.json", row)
        for called in chain:
            self._called[called] = 1

    def _call(self, row: int, requirement: Requirement, *, step: int, draws: Draws) -> dict[str, object]:
        endpoint = self.world.endpoints[row]
        names = self._names(row)
        if row % 2:
            names |= {"parent tool name": _UNKNOWN, "API name": _UNKNOWN}
        given = given_arguments(endpoint.document, requirement)
        failed = draws.chance(_P_FAILED)
        return {
            **names,
            "tool description": f"Step {step + 1} of the plan.",
            "domain name": self.world.capabilities[endpoint.capability].domain,
            "required parameters": [{"name": g.name, "value": _value(g)} for g in given],
            "optional parameters": [],
            "execution_status": "failed" if failed else "success",
            "executed_output": "" if failed else '{"result": "ok"}',
            "sequence_step": {"step_number": step + 1},
        }


def _parameters(parameters: Sequence[Parameter]) -> list[dict[str, str]]:
    return [{"name": p.name, "type": p.raw_type, "description": p.description, "default": ""} for p in parameters]


def _value(given: Given) -> str:
    return given.value if given.source is None else f"result of step {given.source + 1}"

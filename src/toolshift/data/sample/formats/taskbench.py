"""The sample in TaskBench's upstream layout, with the quirks that an adapter must survive on the real release.

A folder per domain, whose tools are one function each and whose requests need no other domain's tools. Tools have named
parameters in most domains and media (``input-type``) without names in the others. Rows come in all three schemas: JSON
inside strings, lists, and the older one that says ``user_request``. Nodes that stand against the direction of a link,
links that leave several orders, a gold tool that the tool list lacks, ``n_tools`` that is not the number of nodes,
arguments that are missing, numbers, or an object instead of a list, an id that two requests share, and a request list
named ``.jsonl``. The list of requests is complete, so the records can be scored. Files that the adapter does not read
(``graph_desc.json``, ``alignment_ids.json``) are left out.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise

from toolshift.data.names import local_name
from toolshift.data.sample.draws import Draws
from toolshift.data.sample.files import HashedFolder
from toolshift.data.sample.formats.base import alternatives, given_arguments, refuse_equal_ids, text_id
from toolshift.data.sample.shape import one_function_each, with_domain_names, within_domains
from toolshift.data.sample.tasks import SampleTask
from toolshift.data.sample.truth import Ids
from toolshift.data.sample.world import SampleCapability, World
from toolshift.runs.seeds import seed_of

DATASET = "taskbench"
_MEDIA = {"NUMBER": "number", "BOOLEAN": "label", "ARRAY": "table"}
_SCHEMAS = ("strings", "lists", "strings", "older")
_P_BRANCHES = 0.2
_P_NODES_IN_ANY_ORDER = 0.2
_P_UNLISTED = 0.02
_P_WRONG_COUNT = 0.03
_P_ODD_ARGUMENTS = 0.1

Node = dict[str, object]


def shaped(world: World) -> World:
    """One function a tool, no task across domains, and domains named in lower case as the folders are."""
    return with_domain_names(within_domains(one_function_each(world)), local_name)


def open_writer(files: HashedFolder, world: World) -> TaskBenchWriter:
    """A writer of TaskBench's layout.

    Raises:
        ValueError: if two tools would have one id.
    """
    writer = TaskBenchWriter(files, world)
    refuse_equal_ids(writer.ids)
    return writer


class TaskBenchWriter:
    """Writes the tool lists at once, rows and requests as tasks come."""

    def __init__(self, files: HashedFolder, world: World) -> None:
        self.files, self.world = files, world
        self._place = {domain.name: place for place, domain in enumerate(world.domains)}

    @cached_property
    def ids(self) -> Ids:
        """Record ids: the tool's key below its domain, and the same key again for its only endpoint."""
        tools = tuple(f"{DATASET}/{row.domain}/{local_name(row.name)}" for row in self.world.capabilities)
        keys = (local_name(row.name) for row in self.world.capabilities)
        return Ids(capability=tools, endpoint=tuple(f"{tool}/{key}" for tool, key in zip(tools, keys, strict=True)))

    def task_id(self, task: SampleTask) -> str:
        """The id of the record that a task's text becomes."""
        return text_id(DATASET, task)

    def write_tools(self) -> None:
        """Write the tool list of every domain."""
        for domain in self.world.domains:
            rows = [row for row in self.world.capabilities if row.domain == domain.name]
            self.files.write(f"{_folder(domain.name)}/tool_desc.json", {"nodes": [self._tool(row) for row in rows]})

    def add(self, task: SampleTask) -> None:
        """Write a request and its row; a row for each way to answer it where there are several."""
        folder = _folder(task.domain)
        place = self.files.count(f"{folder}/data.json")
        for number, chain in enumerate(alternatives(task)):
            key = _row_id(task.domain, place + number)
            self.files.append_line(f"{folder}/data.json", self._row(task, chain, key=key, number=number))
            self.files.append_line(self._requests(folder, task.domain), {"id": key, "user_request": task.text})

    def close(self) -> None:
        """Nothing is left to write."""

    # -- tools

    def _has_media(self, domain: str) -> bool:
        return self._place[domain] % 4 == 3

    def _requests(self, folder: str, domain: str) -> str:
        last = self._place[domain] == len(self._place) - 1
        return f"{folder}/user_requests.json{'l' if last else ''}"

    def _tool(self, tool: SampleCapability) -> dict[str, object]:
        return {"id": tool.name, "desc": tool.description, **self._signature(tool.row)}

    def _signature(self, row: int) -> dict[str, object]:
        document = self.world.endpoints[row].document
        parameters = (*document.required, *document.optional)
        if self._has_media(self.world.capabilities[row].domain):
            words = [_MEDIA.get(p.raw_type, "text") for p in document.required]
            return {"input-type": words, "output-type": ["text"]}
        return {"parameters": [{"name": p.name, "type": p.raw_type.lower(), "desc": p.description} for p in parameters]}

    # -- rows

    def _row(self, task: SampleTask, chain: Sequence[int], *, key: str, number: int) -> dict[str, object]:
        spec = self.world.spec
        draws = Draws("taskbench row", spec.size, spec.seed, task.row, number)
        links, kind = _links([self.world.capabilities[row].name for row in chain], draws)
        nodes = [self._node(task, step, row, draws) for step, row in enumerate(chain)]
        if draws.chance(_P_UNLISTED):
            nodes.append({"task": "Ask A Neighbour", "arguments": []})
        if draws.chance(_P_NODES_IN_ANY_ORDER) and links:
            nodes.reverse()
        steps = [f"Step {step + 1}: Call {node['task']}" for step, node in enumerate(nodes)]
        sampled = [{"task": self.world.capabilities[row].name, **self._signature(row)} for row in chain]
        head: dict[str, object] = {"id": key, "seed": seed_of("taskbench", key) % 1_000_000}
        head |= {"n_tools": len(nodes) + int(draws.chance(_P_WRONG_COUNT)), "type": kind}
        schema = _SCHEMAS[self._place[task.domain] % len(_SCHEMAS)]
        if schema == "older":
            own = {"task_steps": steps, "task_nodes": nodes, "task_links": links}
            return {"id": key, "user_request": task.text, **own}
        body = {"steps": steps, "nodes": nodes, "links": links}
        head |= {"sampled_nodes": json.dumps(sampled), "sampled_links": json.dumps(links), "instruction": task.text}
        if schema == "lists":
            return head | {f"task_{what}": value for what, value in body.items()}
        return head | {f"tool_{what}": json.dumps(value, ensure_ascii=False) for what, value in body.items()}

    def _node(self, task: SampleTask, step: int, row: int, draws: Draws) -> Node:
        given = given_arguments(self.world.endpoints[row].document, task.requirements[step])
        values = [(g.name, g.value if g.source is None else f"<node-{g.source}>") for g in given]
        name = self.world.capabilities[row].name
        if draws.chance(_P_ODD_ARGUMENTS):
            odd: Sequence[Node] = ({}, {"arguments": [12]}, {"arguments": dict(values)})
            return {"task": name, **draws.pick(odd)}
        if self._has_media(task.domain):
            return {"task": name, "arguments": [value for _, value in values]}
        return {"task": name, "arguments": [{"name": key, "value": value} for key, value in values]}


def _folder(domain: str) -> str:
    return f"{DATASET}/data_{domain}"


def _row_id(domain: str, place: int) -> str:
    """Eight digits; the second request of a domain has the id of the first."""
    return f"{seed_of('taskbench id', domain, 0 if place == 1 else place) % 90_000_000 + 10_000_000}"


def _links(names: Sequence[str], draws: Draws) -> tuple[list[dict[str, str]], str]:
    """Links in the order of the calls, or in a branched graph from all others to the last; and the kind of graph."""
    if len(names) < 2:
        return [], "single"
    if len(names) > 2 and draws.chance(_P_BRANCHES):
        return [{"source": name, "target": names[-1]} for name in names[:-1]], "dag"
    return [{"source": a, "target": b} for a, b in pairwise(names)], "chain"

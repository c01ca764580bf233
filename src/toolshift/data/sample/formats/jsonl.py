"""The sample as your own data (docs/own_data.md), with all that the three files may hold.

A byte-order mark and blank lines, numbers as ids, ``title`` and ``text`` instead of ``name`` and ``description``,
arguments as a list and as a JSON Schema, an operation listed twice in two spellings, unknown keys, tasks with and
without domain, calls of a tool whose only operation is not named, candidates, splits, judgements that a tool is not
relevant, a judgement twice, scores other than 1. Where several capabilities are valid, the request occurs under several
ids with the calls of each way to answer it, so that it has no order.
"""

from __future__ import annotations

from functools import cached_property

from toolshift.data.names import local_name
from toolshift.data.sample.draws import Draws
from toolshift.data.sample.files import HashedFolder
from toolshift.data.sample.formats.base import alternatives, distractors
from toolshift.data.sample.tasks import SampleTask
from toolshift.data.sample.truth import Ids
from toolshift.data.sample.world import Document, Parameter, SampleCapability, World

DATASET = "jsonl"
CORPUS, TASKS, QRELS = (f"{DATASET}/{name}" for name in ("corpus.jsonl", "tasks.jsonl", "qrels.tsv"))
_P_CANDIDATES = 0.3
_P_JUDGED = 0.3
_P_TWICE = 0.05
_P_DOMAIN = 0.5
_P_TEST = 0.2


def shaped(world: World) -> World:
    """The world as it is: a tool may have several operations."""
    return world


def open_writer(files: HashedFolder, world: World) -> JsonlWriter:
    """A writer of the three files."""
    return JsonlWriter(files, world)


class JsonlWriter:
    """Writes the corpus at once, tasks and judgements as tasks come."""

    def __init__(self, files: HashedFolder, world: World) -> None:
        self.files, self.world = files, world

    @cached_property
    def ids(self) -> Ids:
        """Record ids from the ids of the files and the names of operations."""
        tools = tuple(f"{DATASET}/{_key(row.row)}" for row in self.world.capabilities)
        return Ids(
            capability=tools,
            endpoint=tuple(f"{tools[e.capability]}/{local_name(e.document.operation)}" for e in self.world.endpoints),
        )

    def task_id(self, task: SampleTask) -> str:
        """The id of the first line with the task's text."""
        return f"{DATASET}/t{task.row}"

    def write_tools(self) -> None:
        """Write the corpus and the header of the judgements."""
        self.files.append_text(CORPUS, "\ufeff")
        for row in self.world.capabilities:
            self.files.append_line(CORPUS, self._tool(row))
        self.files.append_text(CORPUS, "\n")
        self.files.append_text(QRELS, "query-id\tcorpus-id\tscore\n")

    def add(self, task: SampleTask) -> None:
        """Write a task, under further ids where there are several ways to answer it, and its judgements."""
        spec = self.world.spec
        draws = Draws("jsonl row", spec.size, spec.seed, task.row)
        others = list(distractors(self.world, task, draws, count=3))
        head: dict[str, object] = {"split": "test" if draws.chance(_P_TEST) else "train"}
        if draws.chance(_P_DOMAIN) or not self._at_home(task):
            head["domain"] = task.domain
        if draws.chance(_P_CANDIDATES):
            gold = [self.world.endpoints[row].capability for row in task.gold]
            head["candidates"] = [_key(row) for row in draws.shuffled([*dict.fromkeys(gold), *others])]
        for number, chain in enumerate(alternatives(task)):
            key = f"t{task.row}{f'-{number}' if number else ''}"
            calls = [self._call(row) for row in chain]
            self.files.append_line(TASKS, {"_id": key, "text": task.text, **head, "calls": calls})
            for step, row in enumerate(chain):
                self._judge(key, self.world.endpoints[row].capability, score=1 + step, draws=draws)
        if draws.chance(_P_JUDGED):
            for row in others:
                self._judge(f"t{task.row}", row, score=0, draws=draws)

    def close(self) -> None:
        """Nothing is left to write."""

    def _at_home(self, task: SampleTask) -> bool:
        """Whether most of the relevant tools are of the task's domain, so that it need not be said."""
        tools = dict.fromkeys(self.world.endpoints[row].capability for row in task.gold)
        inside = sum(self.world.capabilities[row].domain == task.domain for row in tools)
        return 2 * inside > len(tools)

    def _judge(self, task: str, capability: int, *, score: int, draws: Draws) -> None:
        for _ in range(2 if draws.chance(_P_TWICE) else 1):
            self.files.append_text(QRELS, f"{task}\t{_key(capability)}\t{score}\n")

    def _call(self, row: int) -> object:
        endpoint = self.world.endpoints[row]
        key = _key(endpoint.capability)
        if len(self.world.capabilities[endpoint.capability].endpoints) == 1:
            return key
        return {"tool": key, "endpoint": endpoint.document.operation}

    def _tool(self, tool: SampleCapability) -> dict[str, object]:
        name, text = ("title", "text") if tool.row % 3 == 1 else ("name", "description")
        endpoints = [_operation(self.world.endpoints[row].document, schema=tool.row % 2 == 1) for row in tool.endpoints]
        if tool.row == 0:
            endpoints.append({**endpoints[0], "name": local_name(str(endpoints[0]["name"])).upper()})
        own = {"_id": _key(tool.row), name: tool.name, text: tool.description, "domain": tool.domain}
        return {**own, "vendor": tool.provider, "endpoints": endpoints}


def _key(row: int) -> str | int:
    """The ``_id`` of a tool: a word, or a number."""
    return row if row % 4 == 2 else f"tool-{row}"


def _operation(document: Document, *, schema: bool) -> dict[str, object]:
    own: dict[str, object] = {"name": document.operation, "description": document.description}
    own["method"] = document.method
    parameters = (*document.required, *document.optional)
    if schema:
        properties = {p.name: {"type": p.raw_type, "description": p.description} for p in parameters}
        required = [p.name for p in document.required]
        return own | {"parameters": {"type": "object", "properties": properties, "required": required}}
    return own | {"arguments": [_argument(p, required=p in document.required) for p in parameters]}


def _argument(parameter: Parameter, *, required: bool) -> dict[str, object]:
    return {
        "name": parameter.name,
        "type": parameter.raw_type,
        "required": required,
        "description": parameter.description,
    }

"""The sample in API-Bank's upstream layout, levels 1 to 3, with the quirks that an adapter must survive on real files.

- The table of the classes has Chinese column names and a scenario per class, some in Chinese, and documents classes in
  Python. Of every second domain the classes lie beside it as code, and the table shows an earlier design with other
  parameters, or nothing. The last full domain is a library of level 3 that the table does not know: only code documents
  it, its tools and tasks have no scenario, and one of its classes has the name of a class of the other library.
- Level 1: a row asks for the next call of a dialogue, beside one to four documentations in its prompt. Some dialogues
  have a line of the assistant; in some, nobody speaks between two calls, so that both rows are one text. Level 2 shows
  only the tool search: a row for the search, then one for the call, with the search's answer (one documentation or a
  list, with an apostrophe that breaks its quotes) in the prompt; some texts have a search and no call.
- Level 3: plans with ordered calls, some behind a search; the training part has a row per step, documents in another
  vocabulary and may stamp the time behind the request.
- Dialogue files (a fixed number) say steps of levels 1 and 2 once more; one is empty, one has no call.

Requests of one step are in levels 1 and 2, others in level 3 or, without an order, in level 1; requests stay within
their domain. Where several calls are valid, the rows are written once per sequence of valid calls.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import Literal

from toolshift.data.names import local_name
from toolshift.data.sample.draws import Draws
from toolshift.data.sample.files import HashedFolder
from toolshift.data.sample.formats.base import alternatives, distractors, given_arguments, refuse_equal_ids
from toolshift.data.sample.shape import one_function_each, with_domain_names, within_domains
from toolshift.data.sample.tasks import SampleTask
from toolshift.data.sample.truth import Ids
from toolshift.data.sample.world import Parameter, SampleCapability, World

DATASET = "apibank"
_LEVEL1 = f"{DATASET}/test-data/level-1-api.json"
_LEVEL2 = f"{DATASET}/test-data/level-2-api.json"
_LEVEL3 = f"{DATASET}/test-data/level-3.json"
_TRAIN = f"{DATASET}/training-data/lv3-api-train.json"
_TABLE = f"{DATASET}/data/all_apis.csv"
_DIALOGUES1 = f"{DATASET}/lv1-lv2-samples/level-1-given-desc"
_DIALOGUES2 = f"{DATASET}/lv1-lv2-samples/level-2-toolsearcher"
_COLUMNS = (
    "id",
    "类型",
    "应用场景",
    "API名称",
    "参数",
    "路径",
    "类名",
    "input_parameters",
    "expressions",
    "api_info",
)
_SCENARIOS = {
    "Home_and_Energy": ("智能家居控制", "SmartHome"),
    "Libraries": ("学习科研相关", "Study"),
    "Museums": ("娱乐消遣", "Entertainment"),
    "Public_Transit": ("旅游出行", "Travel"),
    "Small_Business": ("财务管理", "Finance"),
    "Sports_Clubs": ("健康管理", "Health"),
}
"""Domain -> its scenario in the table, and the records' name of it; other scenarios are the domain's own words."""

_SEARCH = {
    "name": "ToolSearcher",
    "description": "Searches for relevant tools in library based on the keywords.",
    "input_parameters": {"keywords": {"type": "str", "description": "The keyword to search for."}},
    "output_parameters": {"best_matchs": {"type": "Union[List[dict], dict]", "description": "The best match tool(s)."}},
}
_ANSWER = "The answer of the tool."
_HEAD = "\nGenerate an API request in the format of [ApiName(key1='value1', ...)].\n\nAPI descriptions:\n"
_REPLIES = ("Of course, one moment.", "Sure, let me see.", "Gladly.")
_STAMP = "TIME: 2034-04-15 10:00:00"
_DIALOGUES_PER_LEVEL = 25
_P_REPLY = 0.25
_P_LEVEL2 = 0.3
_P_UNORDERED = 0.15
_P_TRAIN = 0.6
_P_STAMP = 0.7
_P_SEARCHED = 0.6
_P_SEARCH_ONLY = 0.03
_NO_TABLE_EVERY = 5

Part = Literal["level-1", "level-2", "level-3", "level-3-train"]


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a request stands, and what the assistant says behind it (empty: nothing)."""

    part: Part
    reply: str = ""

    @property
    def ordered(self) -> bool:
        """Whether the part says in which order calls go."""
        return self.part in ("level-3", "level-3-train")


def shaped(world: World) -> World:
    """Every endpoint is a class; domains are named as the records name scenarios."""
    names = {d.name: _SCENARIOS[d.name][1] if d.name in _SCENARIOS else local_name(d.name) for d in world.domains}
    return with_domain_names(within_domains(one_function_each(world)), names.__getitem__)


def open_writer(files: HashedFolder, world: World) -> ApiBankWriter:
    """A writer for a shaped world."""
    writer = ApiBankWriter(files, world)
    refuse_equal_ids(writer.ids)
    return writer


class ApiBankWriter:
    """Writes table and code at once, rows and dialogues as tasks come."""

    def __init__(self, files: HashedFolder, world: World) -> None:
        self.files, self.world = files, world
        full = [domain.name for domain in world.domains if not domain.tiny]
        self.level3 = full[-1]
        """The domain that the table does not know."""
        self.coded = frozenset((*full[::2], self.level3))
        self.names = _class_names(world.capabilities)
        self._dialogues = {_DIALOGUES1: 0, _DIALOGUES2: 0}
        self.twins = self._twins(full[0])
        if self.twins:
            self.names[self.twins[1]] = self.names[self.twins[0]]

    @cached_property
    def ids(self) -> Ids:
        """Ids as the adapter makes them from class names; the second class of a name belongs to level 3."""
        second = self.twins[1] if self.twins else None
        capability = [f"{DATASET}/{name}{'-lv3' if row == second else ''}" for row, name in enumerate(self.names)]
        return Ids(capability=tuple(capability), endpoint=tuple(f"{owner}/call" for owner in capability))

    def placement(self, task: SampleTask) -> Placement:
        """Where a task is written; it follows from the task alone."""
        draws = self._draws("placement", task)
        train: Part = "level-3-train" if draws.chance(_P_TRAIN) else "level-3"
        unordered = draws.chance(_P_UNORDERED) or len(task.requirements) == 1
        if task.domain == self.level3 or not unordered:
            return Placement(train)
        if len(task.requirements) > 1:
            return Placement("level-1")
        reply = draws.pick(_REPLIES) if draws.chance(_P_REPLY) else ""
        return Placement("level-2" if draws.chance(_P_LEVEL2) else "level-1", reply)

    def text(self, task: SampleTask) -> str:
        """What user and assistant say before the call, a line each."""
        reply = self.placement(task).reply
        return f"{task.text}\n{reply}" if reply else task.text

    def task_id(self, task: SampleTask) -> str:
        """The id of the record that a row becomes."""
        return f"{DATASET}/{sha256(self.text(task).encode()).hexdigest()[:16]}"

    # -- library

    def write_tools(self) -> None:
        """Write the table, the code, and two dialogues without a call."""
        self.files.append_text(_TABLE, _csv_row(_COLUMNS))
        for row in self.world.capabilities:
            if row.domain != self.level3:
                self.files.append_text(_TABLE, _csv_row(self._table_row(row)))
            if row.domain in self.coded:
                folder = "lv3_apis" if row.domain == self.level3 else "apis"
                self.files.write_text(f"{DATASET}/{folder}/{local_name(row.name)}.py", self._code(row))
        base = "class API:\n    pass\n"
        for folder in ("apis", "lv3_apis"):
            self.files.write_text(f"{DATASET}/{folder}/api.py", base)
        self.files.write_text(f"{_DIALOGUES1}/Empty-level-1-1.jsonl", "")
        self.files.append_line(f"{_DIALOGUES1}/Nothing-level-1-1.jsonl", {"role": "User", "text": "Never mind."})

    def _twins(self, first: str) -> tuple[int, int] | None:
        """An idle class of the first domain, and one of level 3's that gets its name and has other parameters."""
        idle = [row for row in self.world.capabilities if row.idle]
        ones = [row.row for row in idle if row.domain == first]
        others = [row.row for row in idle if row.domain == self.level3]
        pairs = ((one, other) for one in ones for other in others if self._inputs(one) != self._inputs(other))
        return next(pairs, None)

    def _inputs(self, row: int) -> frozenset[str]:
        return frozenset(parameter.name for parameter in self._parameters(row))

    def _parameters(self, row: int) -> tuple[Parameter, ...]:
        document = self.world.endpoints[row].document
        return (*document.required, *document.optional)

    def _doc(self, row: int) -> dict[str, object]:
        """The documentation of a class in the first vocabulary."""
        given = {p.name: {"type": _word(p), "description": _said(p)} for p in self._parameters(row)}
        return {
            "name": self.names[row],
            "description": self.world.capabilities[row].description,
            "input_parameters": given,
            "output_parameters": {"status": {"type": "str", "description": _ANSWER}},
        }

    def _table_row(self, row: SampleCapability) -> Sequence[str]:
        name, coded = self.names[row.row], row.domain in self.coded
        doc = self._doc(row.row)
        if coded:  # an earlier design, that the code supersedes
            doc["input_parameters"] = {f"old_{p.name}": {"type": _word(p)} for p in self._parameters(row.row)}
        info = "" if coded and row.row % _NO_TABLE_EVERY == 0 else _assignments(doc)
        signature = ", ".join(f"{p.name}: {_word(p)}" for p in self._parameters(row.row))
        scenario = next((s for s, english in _SCENARIOS.values() if english == row.domain), row.domain)
        module = f"apis/{local_name(row.name)}.py"
        kind = "查询"
        cells = (kind, scenario.replace("_", " "), row.name, signature, module, name, f"({signature})")
        return (str(row.row + 1), *cells, f"{name}({signature})", info)

    def _code(self, row: SampleCapability) -> str:
        document = self.world.endpoints[row.row].document
        required = [f"{p.name}: {_word(p)}" for p in document.required]
        optional = [f"{p.name}: {_word(p)} = None" for p in document.optional]
        fields = _assignments(self._doc(row.row)).replace("\n", "\n    ")
        return (
            "from apis.api import API\n\n\n"
            f"class {self.names[row.row]}(API):\n    {fields}\n\n"
            f"    def call({', '.join(['self', *required, *optional])}) -> dict:\n        return {{'status': 'done'}}\n"
        )

    # -- tasks

    def add(self, task: SampleTask) -> None:
        """Write the rows of a task, once per sequence of valid calls, and now and then a search that finds nothing."""
        draws = self._draws("row", task)
        placement = self.placement(task)
        writers = {
            "level-1": self._write_level1,
            "level-2": self._write_level2,
            "level-3": self._write_plan,
            "level-3-train": self._write_steps,
        }
        for chain in alternatives(task):
            writers[placement.part](task, chain, placement, draws)
        if placement.part == "level-2" and draws.chance(_P_SEARCH_ONLY):
            self._write_search_only(task)

    def close(self) -> None:
        """Check that tasks of every level are there.

        Raises:
            ValueError: if a level has none.
        """
        silent = [path for path in (_LEVEL1, _LEVEL2, _LEVEL3, _TRAIN) if not self.files.count(path)]
        if silent:
            raise ValueError(f"no row of {', '.join(silent)}; the sample needs more tasks per domain")

    def _draws(self, purpose: str, task: SampleTask) -> Draws:
        spec = self.world.spec
        return Draws(f"{DATASET} {purpose}", spec.size, spec.seed, task.row)

    def _write_level1(self, task: SampleTask, chain: Sequence[int], placement: Placement, draws: Draws) -> None:
        """A row per call; the calls before it stand in its dialogue with their results."""
        spoken = [f"User: {task.text}", *([f"AI: {placement.reply}"] if placement.reply else [])]
        others = [
            row
            for row in distractors(self.world, task, draws, count=draws.below(4))
            if self.world.capabilities[row].domain != self.level3
        ]
        docs = [self._doc(row) for row in draws.shuffled([*chain, *others])]
        for step, row in enumerate(chain):
            call = f"API-Request: [{self._call(task, step, row)}]"
            head = _HEAD + "\n".join(json.dumps(doc, ensure_ascii=False) for doc in docs)
            self._write_row(_LEVEL1, head, spoken, call)
            spoken.append(f"{call}->success")
        if len(chain) == 1:
            self._write_dialogue(_DIALOGUES1, task, chain, placement)

    def _write_level2(self, task: SampleTask, chain: Sequence[int], placement: Placement, draws: Draws) -> None:
        """A row for the search, and one for the call with what the search found."""
        spoken = [f"User: {task.text}", *([f"AI: {placement.reply}"] if placement.reply else [])]
        search = f"API-Request: [ToolSearcher(keywords='{self._keywords(task)}')]"
        head = _HEAD + json.dumps(_SEARCH)
        self._write_row(_LEVEL2, head, spoken, search)
        docs = [self._doc(row) for row in chain]
        found = repr(docs if draws.chance(_P_SEARCHED) else docs[0]).replace(_ANSWER, "The tool's answer.")
        call = f"API-Request: [{self._call(task, 0, chain[0])}]"
        self._write_row(_LEVEL2, head, [*spoken, f"{search}->{found}"], call)
        self._write_dialogue(_DIALOGUES2, task, chain, placement)

    def _write_search_only(self, task: SampleTask) -> None:
        spoken = f"User: Is there anything on {self._keywords(task)}?"
        search = f"API-Request: [ToolSearcher(keywords='{self._keywords(task)}')]"
        self._write_row(_LEVEL2, _HEAD + json.dumps(_SEARCH), [spoken], search)

    def _write_row(self, path: str, instruction: str, spoken: Sequence[str], call: str) -> None:
        row = {
            "file": f"Sample-{self.files.count(path)}.jsonl",
            "id": len(spoken),
            "instruction": instruction,
            "input": "\n".join((*spoken, "Generate API Request:\n")),
            "expected_output": call,
        }
        self.files.append(path, row)

    def _write_plan(self, task: SampleTask, chain: Sequence[int], placement: Placement, draws: Draws) -> None:
        """A plan of level 3: all calls of a request, each in an envelope with its result."""
        calls: list[dict[str, object]] = []
        for step, row in enumerate(chain):
            if draws.chance(_P_SEARCHED):
                keywords = {"keywords": self._keywords(task)}
                calls.append(_answered("ToolSearcher", keywords, self._doc(row)))
            calls.append(_answered(self.names[row], self._given(task, step, row), "success"))
        plan = {"requirement": f" {task.text}", "response": "It is done.", "apis": calls}
        self.files.append(_LEVEL3, plan)

    def _write_steps(self, task: SampleTask, chain: Sequence[int], placement: Placement, draws: Draws) -> None:
        """A row per step of the training part, the first of which may be a search."""
        stamp = _STAMP if self._draws("stamp", task).chance(_P_STAMP) else ""
        search = {
            "apiCode": _SEARCH["name"],
            "description": _SEARCH["description"],
            "parameters": _SEARCH["input_parameters"],
            "response": _SEARCH["output_parameters"],
        }
        lines = [json.dumps(search), f"User: {task.text}{stamp}"]
        steps = [(self._call(task, step, row), "success") for step, row in enumerate(chain)]
        if draws.chance(_P_SEARCHED):
            found = repr(self._doc(chain[0]))
            steps.insert(0, (f"ToolSearcher(keywords='{self._keywords(task)}')", found))
        for call, result in steps:
            row = {
                "instruction": _HEAD,
                "input": "\n".join((*lines, "Generate API Request: ")),
                "output": f"API-Request: [{call}]",
            }
            self.files.append(_TRAIN, row)
            lines.append(f"API-Request: [{call}]->{result}")

    def _write_dialogue(self, folder: str, task: SampleTask, chain: Sequence[int], placement: Placement) -> None:
        """The same step as a dialogue file, for a fixed number of tasks."""
        name = f"{folder}/{self.names[chain[0]]}-{task.row}.jsonl"
        if self._dialogues[folder] >= _DIALOGUES_PER_LEVEL or self.files.count(name):
            return
        self._dialogues[folder] += 1
        turns: list[dict[str, object]] = [{"role": "User", "text": task.text}]
        if placement.reply:
            turns.append({"role": "AI", "text": placement.reply})
        if folder == _DIALOGUES2:
            keywords = {"keywords": self._keywords(task)}
            result = _answered("ToolSearcher", keywords, [self._doc(chain[0])])
            turns.append({"role": "API", "api_name": "ToolSearcher", "param_dict": keywords, "result": result})
        given = self._given(task, 0, chain[0])
        call = {"api_name": self.names[chain[0]], "param_dict": given}
        turns.append({"role": "API", **call, "result": _answered(self.names[chain[0]], given, "success")})
        turns.append({"role": "AI", "text": "It is done."})
        for turn in turns:
            self.files.append_line(name, turn)

    def _keywords(self, task: SampleTask) -> str:
        return self.world.concepts[task.requirements[0].group.concept].noun

    def _given(self, task: SampleTask, step: int, row: int) -> dict[str, str]:
        given = given_arguments(self.world.endpoints[row].document, task.requirements[step])
        return {argument.name: argument.value for argument in given}

    def _call(self, task: SampleTask, step: int, row: int) -> str:
        given = ", ".join(f"{name}='{value}'" for name, value in self._given(task, step, row).items())
        return f"{self.names[row]}({given})"


def _class_names(capabilities: Sequence[SampleCapability]) -> list[str]:
    """Class names in camel case, each once; a number tells apart what would differ in separators alone."""
    seen: Counter[str] = Counter()
    names: list[str] = []
    for row in capabilities:
        name = "".join(word[:1].upper() + word[1:] for word in re.split(r"\W|_", row.name))
        seen[name.lower()] += 1
        names.append(name if seen[name.lower()] == 1 else f"{name}V{seen[name.lower()]}")
    return names


def _word(parameter: Parameter) -> str:
    return {"NUMBER": "int", "BOOLEAN": "bool", "ARRAY": "list"}.get(parameter.raw_type, "str")


def _said(parameter: Parameter) -> str:
    dated = parameter.raw_type.startswith("DATE")
    return f"{parameter.description}. Format: %Y-%m-%d" if dated else parameter.description


def _assignments(doc: dict[str, object]) -> str:
    """A documentation as assignments in Python."""
    return "\n".join(f"{key} = {value!r}" for key, value in doc.items() if key != "name")


def _answered(name: str, given: dict[str, str], output: object) -> dict[str, object]:
    """A call with its result, in the envelope that holds the call once more."""
    envelope = {"api_name": name, "input": given, "output": output, "exception": None}
    return {"api_name": name, "input": given, "output": envelope}


def _csv_row(cells: Sequence[str]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerow(cells)
    return out.getvalue()

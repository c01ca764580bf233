"""The sample in the layout of the leaderboard's package, with the quirks that an adapter must survive on the real one.

JSON Lines in spite of ``.json``; answers in a folder of their own, joined by id. Two domains and the tiny one are
single-turn suites (python, live, java), whose functions only entries define; the others are classes, with a file of
functions each, one of them under a name that has nothing to do with its class. A function is its name and its
definition: two functions of the python suite share a name. Types are words of the suite's language; some arguments are
objects with properties. Entries list distractors, ``parallel`` ones call one function twice, ``multiple`` ones ask
again what ``simple_python`` asks, live ones open with a system message.

- Requests for classes are multi-turn: one sentence a turn, answers as call strings a turn, so that their calls have an
  order; some come again with a long context, some have excluded functions, an empty turn or a class they do not need.
- Requests for suites are single-turn entries, without an order. Suites share no function with anything else; that is
  why requests stay within their domain.
- Without gold: irrelevance entries, which define what no other entry does, some with no function at all; relevance,
  memory (of a class that nothing documents) and web search entries. A file of ids, a folder of unused entries and a
  README belong to no category.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from hashlib import sha256

from toolshift.data.adapters.bfcl import CLASS_FILES, definition_hash
from toolshift.data.names import local_name
from toolshift.data.sample.draws import Draws
from toolshift.data.sample.files import HashedFolder
from toolshift.data.sample.formats.base import alternatives, distractors, given_arguments, refuse_equal_ids
from toolshift.data.sample.phrasing import sentences
from toolshift.data.sample.shape import one_function_each, with_domain_names, within_domains
from toolshift.data.sample.tasks import SampleTask
from toolshift.data.sample.truth import Ids
from toolshift.data.sample.world import Parameter, SampleCapability, World

DATASET = "bfcl"
_BASE = f"{DATASET}/bfcl_eval/data"
_UPSTREAM_CLASSES = {"Public_Transit": "TravelAPI"}
_SUITES = ("python", "live", "java")
_SHARED_NAME = "lookup_entries"
_MULTI_TURN = ("multi_turn_base", "multi_turn_base", "multi_turn_miss_func", "multi_turn_miss_param")
_SINGLE: Mapping[str, tuple[str, ...]] = {
    "python": ("simple_python", "simple_python", "multiple", "parallel"),
    "live": ("live_simple", "live_multiple", "live_multiple", "live_parallel"),
    "java": ("simple_java",),
}
_SEVERAL = {"python": "parallel_multiple", "live": "live_parallel_multiple", "java": "simple_java"}
_WORDS: Mapping[str, Mapping[str, str]] = {
    "java": {"NUMBER": "Integer", "BOOLEAN": "Boolean", "ARRAY": "ArrayList", "GEOPOINT": "HashMap", "": "String"},
    "live": {"NUMBER": "integer", "BOOLEAN": "boolean", "ARRAY": "array", "GEOPOINT": "tuple", "": "string"},
    "": {"NUMBER": "float", "BOOLEAN": "boolean", "ARRAY": "array", "GEOPOINT": "dict", "": "string"},
}
_RESPONSE = {"type": "dict", "properties": {"status": {"type": "string", "description": "Whether it worked."}}}
_SYSTEM = {"role": "system", "content": "You call functions. Ask if a value is missing."}
_FEWEST = 4  # functions that an irrelevance entry defines for the first time
_JAVA_MORE = 2
_P_AGAIN = 0.25
_P_EXCLUDED = 0.2
_P_MORE_CLASSES = 0.3
_P_SYSTEM = 0.1
_P_NO_GOLD = 0.06
_P_NO_FUNCTION = 0.2
_IDS_LISTED = 5


def shaped(world: World) -> World:
    """Every endpoint is a function; domains are suites and classes, named as the records name them."""
    full = [domain.name for domain in world.domains if not domain.tiny]
    names = {domain.name: _class_domain(domain.name) for domain in world.domains}
    names |= dict(zip(full, _SUITES[:2], strict=False))
    names |= {domain.name: _SUITES[2] for domain in world.domains if domain.tiny}
    return with_domain_names(within_domains(one_function_each(world)), names.__getitem__)


def open_writer(files: HashedFolder, world: World) -> BfclWriter:
    """A writer for a shaped world."""
    writer = BfclWriter(files, world)
    refuse_equal_ids(writer.ids)
    return writer


class BfclWriter:
    """Writes class documentations at once, entries and answers as tasks come."""

    def __init__(self, files: HashedFolder, world: World) -> None:
        self.files, self.world = files, world
        self.names = [_native(row) for row in world.capabilities]
        idle = [row.row for row in world.capabilities if row.idle and row.domain == "python"]
        for row in (idle[0], idle[-1]):
            self.names[row] = _SHARED_NAME
        self.definitions = [self._definition(row) for row in world.capabilities]
        self._rows = {
            domain.name: [row.row for row in world.capabilities if row.domain == domain.name]
            for domain in world.domains
        }
        self._undefined = {suite: self._rows[suite][::-1] for suite in _SUITES}
        self._classes = [domain.name for domain in world.domains if domain.name not in _SUITES]
        self._listed_ids: dict[str, list[str]] = {}

    @cached_property
    def ids(self) -> Ids:
        """Ids as the adapter makes them from names and definitions."""
        keys = [local_name(name) for name in self.names]
        capability = [
            f"{DATASET}/{key}-{definition_hash(definition)}"
            for key, definition in zip(keys, self.definitions, strict=True)
        ]
        endpoint = [f"{capability_id}/{key}" for capability_id, key in zip(capability, keys, strict=True)]
        return Ids(capability=tuple(capability), endpoint=tuple(endpoint))

    def text(self, task: SampleTask) -> str:
        """What the user says, a turn a line."""
        return "\n".join(sentences(task.text)) if self.is_multi_turn(task) else task.text

    def task_id(self, task: SampleTask) -> str:
        """The id of the record that an entry becomes."""
        return f"{DATASET}/{sha256(self.text(task).encode()).hexdigest()[:16]}"

    def is_multi_turn(self, task: SampleTask) -> bool:
        """Whether the task is one for a class, so that its calls have an order."""
        return task.domain not in _SUITES

    def write_tools(self) -> None:
        """Write the functions of the classes, and what belongs to no category."""
        for row, definition in zip(self.world.capabilities, self.definitions, strict=True):
            if row.domain not in _SUITES:
                stem = CLASS_FILES.get(row.domain, row.domain)
                self.files.append_line(f"{_BASE}/multi_turn_func_doc/{stem}.json", definition)
        self.files.write_text(f"{_BASE}/README.md", "Questions of the leaderboard, one JSON object a line.\n")
        chat = {"id": "chatable_0", "question": [[{"role": "user", "content": "How are you?"}]], "function": []}
        self.files.append_line(f"{_BASE}/unused_datasets/question/BFCL_v4_chatable.json", chat)

    def add(self, task: SampleTask) -> None:
        """Write the entries of a task, once per sequence of valid functions, and now and then one without gold."""
        draws = self._draws("row", task)
        write = self._write_multi_turn if self.is_multi_turn(task) else self._write_single_turn
        write(task, draws)
        for suite in _SUITES[:2]:
            self._write_irrelevant(task, suite, draws)
        if draws.chance(_P_NO_GOLD):
            self._write_unannotated(task, draws)

    def close(self) -> None:
        """Write the file of ids, and check that every function of a suite is defined somewhere.

        Raises:
            ValueError: if there are too few tasks to do so.
        """
        self.files.write(f"{_BASE}/BFCL_v4_format_sensitivity.json", self._listed_ids)
        left = {suite: len(rows) for suite, rows in self._undefined.items() if rows}
        if left:
            raise ValueError(f"functions that no entry defines: {left}; the sample needs more tasks per domain")

    def _draws(self, purpose: str, task: SampleTask) -> Draws:
        spec = self.world.spec
        return Draws(f"{DATASET} {purpose}", spec.size, spec.seed, task.row)

    def _domain(self, row: int) -> str:
        return self.world.capabilities[row].domain

    # -- functions

    def _definition(self, row: SampleCapability) -> dict[str, object]:
        document = self.world.endpoints[row.row].document
        given = [(p.name, _property(p, row.domain)) for p in (*document.required, *document.optional)]
        definition: dict[str, object] = {
            "name": self.names[row.row],
            "description": row.description,
            "parameters": {
                "type": "dict",
                "properties": dict(given),
                "required": [p.name for p in document.required],
            },
        }
        return definition if row.domain in _SUITES else {**definition, "response": _RESPONSE}

    # -- entries with gold

    def _write_multi_turn(self, task: SampleTask, draws: Draws) -> None:
        categories = [draws.pick(_MULTI_TURN)]
        if categories == ["multi_turn_base"] and draws.chance(_P_AGAIN):
            categories.append("multi_turn_long_context")
        turns = sentences(task.text)
        for chain in alternatives(task):
            answers = [[call] for call in self._call_strings(task, chain)]
            for category in categories:
                entry: dict[str, object] = {
                    "question": [[_user(turn)] for turn in turns],
                    "initial_config": {},
                    "path": [self.names[row] for row in chain],
                    **self._offered(task, draws),
                }
                truth = [*answers, *([] for _ in turns[len(answers) :])]
                if category == "multi_turn_miss_func":
                    entry["question"] = [[_user(turns[0])], [], *([_user(turn)] for turn in turns[1:])]
                    entry["missed_function"] = {"1": [self.names[chain[0]]]}
                    truth.insert(1, [])
                self._write(category, entry, truth)

    def _offered(self, task: SampleTask, draws: Draws) -> dict[str, object]:
        """The classes of an entry, and functions of them that are not on offer."""
        domains = [task.domain]
        if draws.chance(_P_MORE_CLASSES):
            domains = list(dict.fromkeys([*domains, draws.pick(self._classes)]))
        offered: dict[str, object] = {"involved_classes": [_class_name(domain) for domain in domains]}
        others = [row for row in self._rows[task.domain] if row not in task.gold]
        if draws.chance(_P_EXCLUDED):
            offered["excluded_function"] = [self.names[draws.pick(others)]]
        return offered

    def _call_strings(self, task: SampleTask, chain: Sequence[int]) -> list[str]:
        return [
            f"{self.names[row]}({', '.join(f'{name}={value!r}' for name, value in self._arguments(task, step, row))})"
            for step, row in enumerate(chain)
        ]

    def _arguments(self, task: SampleTask, step: int, row: int) -> list[tuple[str, str]]:
        given = given_arguments(self.world.endpoints[row].document, task.requirements[step])
        return [(argument.name, argument.value) for argument in given]

    def _write_single_turn(self, task: SampleTask, draws: Draws) -> None:
        suite = task.domain
        category = _SEVERAL[suite] if len(task.requirements) > 1 else draws.pick(_SINGLE[suite])
        also = category == "simple_python" and draws.chance(_P_AGAIN)
        for chain in alternatives(task):
            for name in (category, "multiple") if also else (category,):
                self._write_call_entry(task, chain, name, draws)

    def _write_call_entry(self, task: SampleTask, chain: Sequence[int], category: str, draws: Draws) -> None:
        suite = task.domain
        functions = list(chain)
        if category.endswith("multiple"):
            taken = {self.names[row] for row in chain}
            others = distractors(self.world, task, draws, count=1 + draws.below(3))
            functions += [r for r in others if self._domain(r) == suite and self.names[r] not in taken]
        if suite == "java":
            waiting = self._undefined[suite]
            functions += [waiting.pop() for _ in range(min(_JAVA_MORE, len(waiting)))]
            self._undefined[suite] = [row for row in waiting if row not in functions]
        calls = [
            {self.names[row]: {name: [value] for name, value in self._arguments(task, step, row)}}
            for step, row in enumerate(chain)
        ]
        twice = category in ("parallel", "live_parallel")
        opening = [_SYSTEM] if suite == "live" and draws.chance(_P_SYSTEM) else []
        entry = {
            "question": [[*opening, _user(task.text)]],
            "function": [self.definitions[row] for row in draws.shuffled(list(dict.fromkeys(functions)))],
        }
        self._write(category, entry, calls * 2 if twice else calls)

    def _write(self, category: str, entry: Mapping[str, object], truth: object) -> None:
        """Write an entry with its answer, or with None as ``truth`` only the entry."""
        name = f"BFCL_v4_{category}.json"
        count = self.files.count(f"{_BASE}/{name}")
        identity = f"{category}_{count}-{count}-0" if category.startswith("live_") else f"{category}_{count}"
        self.files.append_line(f"{_BASE}/{name}", {"id": identity, **entry})
        if truth is not None:
            self.files.append_line(f"{_BASE}/possible_answer/{name}", {"id": identity, "ground_truth": truth})
        if count < _IDS_LISTED and truth is not None:
            self._listed_ids.setdefault(category, []).append(identity)

    # -- entries without gold

    def _write_irrelevant(self, task: SampleTask, suite: str, draws: Draws) -> None:
        """The task's text with functions of a suite that it does not need."""
        category = "irrelevance" if suite == "python" else "live_irrelevance"
        drawn, no_function = draws.chance(_P_NO_GOLD), draws.chance(_P_NO_FUNCTION)
        waiting = self._undefined[suite]
        if task.domain == suite or not (drawn or waiting):
            return
        functions = [waiting.pop() for _ in range(min(_FEWEST, len(waiting)))]
        if not functions and not (no_function and suite == "live"):
            functions = [draws.pick(self._rows[suite])]
        entry = {
            "question": [[_user(task.text)]],
            "function": [self.definitions[row] for row in functions],
        }
        self._write(category, entry, None)

    def _write_unannotated(self, task: SampleTask, draws: Draws) -> None:
        noun = self.world.concepts[task.requirements[0].group.concept].asked_as
        relevance = {
            "question": [[_user(f"Which {noun} would you take?")]],
            "function": [self.definitions[draws.pick(self._rows["live"])]],
        }
        memory = {
            "question": [[_user(f"What did I tell you about {noun}?")]],
            "involved_classes": ["MemoryAPI"],
            "scenario": "customer",
        }
        search = {
            "question": [[_user(f"Which town is best known for {noun}?")]],
            "involved_classes": ["WebSearchAPI"],
        }
        self._write("live_relevance", relevance, None)
        self._write("memory", memory, ["That they matter."])
        self._write("web_search", search, ["Ostermoor"])


def _class_domain(name: str) -> str:
    """The records' domain of a class: its name where upstream has it, else the stem of its file."""
    return _UPSTREAM_CLASSES.get(name) or name.lower()


def _class_name(domain: str) -> str:
    return domain if domain in CLASS_FILES else "".join(word.capitalize() for word in domain.split("_"))


def _native(row: SampleCapability) -> str:
    """The function's name in the manner of its suite: dotted, in the case of its words, or in snake case."""
    snake = local_name(row.name)
    if row.domain == "python":
        return snake.replace("_", ".", 1)
    words = re.sub(r"\W+", "_", row.name)
    return {"live": words, "java": words.replace("_", ".", 1)}.get(row.domain, snake)


def _user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def _property(parameter: Parameter, suite: str) -> dict[str, object]:
    """The schema of an argument in the words of its suite."""
    kind = parameter.raw_type.partition(" ")[0]
    words = _WORDS.get(suite, _WORDS[""])
    schema: dict[str, object] = {"type": words.get(kind, words[""]), "description": parameter.description}
    if kind == "DATE":
        schema["description"] = f"{parameter.description}, as YYYY-MM-DD"
    if schema["type"] == "array":
        schema["items"] = {"type": "string"}
    if schema["type"] == "dict":
        parts = {name: {"type": "float", "description": f"{name} in degrees"} for name in ("latitude", "longitude")}
        schema |= {"properties": parts, "required": list(parts)}
    if parameter.kind == "status":
        schema["enum"] = ["open", "closed", "paused", "done"]
    return schema

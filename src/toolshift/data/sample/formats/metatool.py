"""The sample in MetaTool's upstream ``dataset/`` folder, with the quirks that an adapter must survive on the real one.

Tools have a name, one sentence and nothing else; some have no sentence. There are no domains and no order. Native names
join their words with an underscore, a blank, an ampersand or a hyphen. One-step requests stand in a CSV with one tool a
row (several rows where several tools are valid), some of them also or only as positive rows of ``Task1.json``; some
hold mojibake, some have swallowed a second query with its line break. Requests with more steps are rows of the file of
several tools, two or more, and once more rows of subtask 4 with the tools its prompt shows. Negative rows of ``Task1``
need no tool; subtask 3 repeats requests with ten tools of which none applies and names the one it left out. Prompts
spell descriptions as Python lists. Files that no record comes from lie beside: the plugins before they were merged
(with a name twice), the merged tools, scenarios.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from functools import cached_property
from hashlib import sha256

from toolshift.data.names import local_name
from toolshift.data.sample.draws import Draws
from toolshift.data.sample.files import HashedFolder
from toolshift.data.sample.formats.base import alternatives, distractors, refuse_equal_ids
from toolshift.data.sample.shape import one_function_each
from toolshift.data.sample.tasks import SampleTask
from toolshift.data.sample.truth import Ids
from toolshift.data.sample.world import World

DATASET = "metatool"
_BASE = f"{DATASET}/dataset"
_SINGLE = f"{_BASE}/data/all_clean_data.csv"
_MULTI = f"{_BASE}/data/multi_tool_query_golden.json"
_TASK1 = f"{_BASE}/tmp_dataset/Task1.json"
_SUBTASK3 = f"{_BASE}/tmp_dataset/Task2-Subtask3.json"
_SUBTASK4 = f"{_BASE}/tmp_dataset/Task2-Subtask4.json"
_JOINTS = ("_", " ", "&", "-")
_UNDESCRIBED_EVERY = 45
_MERGED_EVERY = 4
_SHOWN = 10
_SWALLOWED = "And what else is there?"
_MOJIBAKE = "It鈥檚 urgent."  # UTF-8 of a curly apostrophe, read as GBK: the letter behind it is lost
_P_SWALLOWED = 0.02
_P_MOJIBAKE = 0.03
_P_TASK1_TOO = 0.15
_P_TASK1_ONLY = 0.05
_P_NO_TOOL = 0.1
_P_LEFT_OUT = 0.2
_TALK = (
    "Write a short poem about {noun}.",
    "Why do people care for {noun}?",
    "Which film is best known for {noun}?",
    "How would you explain {noun} to a child?",
)


def shaped(world: World) -> World:
    """Every endpoint is a tool."""
    return one_function_each(world)


def open_writer(files: HashedFolder, world: World) -> MetaToolWriter:
    """A writer for a shaped world."""
    writer = MetaToolWriter(files, world)
    refuse_equal_ids(writer.ids)
    return writer


class MetaToolWriter:
    """Writes the library at once and the query files as tasks come."""

    def __init__(self, files: HashedFolder, world: World) -> None:
        self.files, self.world = files, world
        self.names = [row.name.replace(" ", _JOINTS[row.row % len(_JOINTS)]) for row in world.capabilities]
        self.descriptions = [
            "" if row.row % _UNDESCRIBED_EVERY == _UNDESCRIBED_EVERY - 1 else row.description
            for row in world.capabilities
        ]

    @cached_property
    def ids(self) -> Ids:
        """Ids as the adapter makes them from the native names; a tool and its endpoint share a name."""
        keys = [local_name(name) for name in self.names]
        return Ids(
            capability=tuple(f"{DATASET}/{key}" for key in keys),
            endpoint=tuple(f"{DATASET}/{key}/{key}" for key in keys),
        )

    def text(self, task: SampleTask) -> str:
        """The query as it is written."""
        fate = self._draws("text", task).unit()
        if len(task.requirements) > 1 or fate >= _P_SWALLOWED + _P_MOJIBAKE:
            return task.text
        return f"{task.text}\n{_SWALLOWED}" if fate < _P_SWALLOWED else f"{task.text} {_MOJIBAKE}"

    def task_id(self, task: SampleTask) -> str:
        """The id of the record that a query becomes."""
        return f"{DATASET}/{sha256(self.text(task).encode()).hexdigest()[:16]}"

    def write_tools(self) -> None:
        """Write the library, the head of the CSV and the files that no record comes from."""
        described = dict(zip(self.names, self.descriptions, strict=True))
        merged = list(described)[::_MERGED_EVERY]
        plugins = [
            {"name_for_model": name, "name_for_human": name, "description_for_human": text}
            for name, text in described.items()
            if name not in merged
        ]
        self.files.write(f"{_BASE}/plugin_des.json", described)
        self.files.write(f"{_BASE}/big_tool_des.json", {name: described[name] for name in merged})
        self.files.write(f"{_BASE}/plugin_info.json", [*plugins, plugins[0]])
        self.files.write(f"{_BASE}/scenario/Students.json", {"Tools": self.names[1:11], "ref": []})
        self.files.append_text(_SINGLE, "Query,Tool\n")

    def add(self, task: SampleTask) -> None:
        """Write the rows of a task: one per valid tool, or per sequence of valid tools."""
        draws = self._draws("row", task)
        noun = self.world.concepts[task.requirements[0].group.concept].asked_as
        if len(task.requirements) > 1:
            self._write_several(task, draws)
        else:
            self._write_single(task, draws)
        if draws.chance(_P_NO_TOOL):
            query = draws.pick(_TALK).format(noun=noun)
            self.files.append(_TASK1, {"thought_prompt": _thought(query), "label": "negative", "query": query})

    def close(self) -> None:
        """Check that the files an adapter needs are there.

        Raises:
            ValueError: if no task has one step, or none has several.
        """
        if self.files.count(_SINGLE) < 2 or not self.files.count(_MULTI):
            raise ValueError("no query of one tool, or none of several; the sample needs more tasks per domain")

    def _draws(self, purpose: str, task: SampleTask) -> Draws:
        spec = self.world.spec
        return Draws(f"{DATASET} {purpose}", spec.size, spec.seed, task.row)

    def _write_single(self, task: SampleTask, draws: Draws) -> None:
        text = self.text(task)
        in_task1, elsewhere = draws.chance(_P_TASK1_TOO), not draws.chance(_P_TASK1_ONLY)
        for row in task.gold:
            name = self.names[row]
            if elsewhere:
                self.files.append_text(_SINGLE, _csv_row(text, name))
            if in_task1 or not elsewhere:
                positive = {"thought_prompt": _thought(text), "label": "positive", "tool": name, "query": text}
                self.files.append(_TASK1, positive)
        if draws.chance(_P_LEFT_OUT):
            shown = list(distractors(self.world, task, draws, count=_SHOWN))
            self.files.append(
                _SUBTASK3,
                {
                    **self._prompts(text, shown),
                    "tool": self.names[task.gold[0]],
                    "query": text,
                    "index": self.files.count(_SUBTASK3),
                },
            )

    def _write_several(self, task: SampleTask, draws: Draws) -> None:
        for chain in alternatives(task):
            row = {"query": task.text, "tool": [self.names[i] for i in chain]}
            self.files.append(_MULTI, row)
            others = distractors(self.world, task, draws, count=_SHOWN - len(chain))
            shown = draws.shuffled([*chain, *others])
            self.files.append(_SUBTASK4, {**self._prompts(task.text, shown), **row})

    def _prompts(self, query: str, shown: Sequence[int]) -> dict[str, str]:
        listed = "\n".join(
            f"{place}. tool name: {self.names[row]}, tool description: {self._in_prompt(row)}"
            for place, row in enumerate(shown, start=1)
        )
        action = (
            "Choose the tools that fit this query, or answer None.\n"
            f"[User's Query Start]\n{query}\n[User's Query End].\n"
            f"[List of Tools with Names and Descriptions Start]\n{listed}\n\n"
            "[List of Tools with Names and Descriptions End]"
        )
        return {"action_prompt": action, "thought_prompt": _thought(query)}

    def _in_prompt(self, row: int) -> str:
        """The description as a prompt spells it: a list, but for merged tools."""
        text = self.descriptions[row]
        return text if row % _MERGED_EVERY == 0 else repr([text])


def _thought(query: str) -> str:
    return f"Does this query need a tool? Answer yes or no.\n[User Query Begins]\n{query}\n[User Query Ends]"


def _csv_row(*cells: str) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerow(cells)
    return out.getvalue()

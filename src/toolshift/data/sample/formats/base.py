"""What a format of the sample is: a module that shapes a world, names its records, and writes its files.

A module ``toolshift.data.sample.formats.<dataset>`` has

- ``shaped(world)``: the world as the format can show it. Formats whose tools have several operations return it
  unchanged; those whose tool is one function return ``toolshift.data.sample.shape.one_function_each(world)``;
- ``open_writer(files, world)``: a ``FormatWriter`` for the shaped world.

Adding a module is all that a further format needs. Modules know how their adapter makes ids from native names and
compute ``ids`` themselves; that records and truth meet is what their tests check.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from importlib import import_module
from importlib.util import find_spec
from itertools import zip_longest
from typing import Protocol, cast

from toolshift.data.sample.draws import Draws
from toolshift.data.sample.files import HashedFolder
from toolshift.data.sample.tasks import Requirement, SampleTask
from toolshift.data.sample.truth import Ids
from toolshift.data.sample.world import Document, World

_P_NEAR = 0.5


class FormatWriter(Protocol):
    """Writes one world in one upstream format, below the folder ``<dataset>`` of its ``HashedFolder``.

    Called in this order: ``write_tools`` once, ``add`` once per task as the tasks are drawn, ``close`` once. Memory
    must not grow with the tasks. The files are closed by the caller.
    """

    @property
    def ids(self) -> Ids:
        """Record ids of the adapter, by row of the world's capabilities and endpoints."""
        ...

    def task_id(self, task: SampleTask) -> str:
        """Id of the record that the task becomes."""
        ...

    def write_tools(self) -> None:
        """Write the tool library."""
        ...

    def add(self, task: SampleTask) -> None:
        """Write the rows of one task."""
        ...

    def close(self) -> None:
        """Write what needs all tasks to be known, and check that the files show the whole world.

        Raises:
            ValueError: if they do not, because there are too few tasks.
        """
        ...


class Format(Protocol):
    """A module of this package."""

    def shaped(self, world: World) -> World:
        """The world as the format can show it; it is what tasks are drawn from and what the truth tells."""
        ...

    def open_writer(self, files: HashedFolder, world: World) -> FormatWriter:
        """A writer for a shaped world."""
        ...


def format_of(dataset: str) -> Format:
    """The format of a dataset.

    Raises:
        ValueError: if there is none of that name.
    """
    package = __name__.rpartition(".")[0]
    name = f"{package}.{dataset}"
    if not dataset.isidentifier() or dataset == "base" or find_spec(name) is None:
        raise ValueError(
            f"dataset {dataset!r}: the sample has no such format; expected the name of a module in {package}"
        )
    return cast(Format, import_module(name))


def text_id(dataset: str, task: SampleTask) -> str:
    """The id of adapters that name a task by its text."""
    return f"{dataset}/{sha256(task.text.encode()).hexdigest()[:16]}"


def alternatives(task: SampleTask) -> list[tuple[int, ...]]:
    """Sequences of endpoint rows, one per step, that answer the task and together hold its gold; the calls come first.

    Worlds in which several capabilities are valid have several. A format that says one sequence per row repeats the row
    with each: adapters unite equal texts and drop an order that is not the only one.
    """
    columns = [requirement.gold for requirement in task.requirements]
    chains = [
        tuple(row if row is not None else column[0] for row, column in zip(rows, columns, strict=True))
        for rows in zip_longest(*columns)
    ]
    return list(dict.fromkeys(chains))


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """The argument of a call: its documented name, and the value said, or the earlier step whose result it takes."""

    name: str
    value: str
    source: int | None


def given_arguments(document: Document, requirement: Requirement) -> list[Given]:
    """What a step gives to an endpoint: a value for every required argument that the request mentions.

    Where the documentation is not that of the function asked for (``no_function_gap``, ``popularity_only``), the
    request may mention nothing of the kind; such an argument is left out.
    """
    mentions = {mention.kind: mention for mention in requirement.mentions}
    return [
        Given(name=p.name, value=mentions[p.kind].value, source=mentions[p.kind].source)
        for p in document.required
        if p.kind in mentions
    ]


def distractors(world: World, task: SampleTask, draws: Draws, *, count: int) -> Iterator[int]:
    """Rows of up to ``count`` capabilities that do not answer the task: half of them speak of what it asks for, the
    others are any tools that are asked for. Fewer where the draws repeat."""
    gold = {world.endpoints[row].capability for row in task.gold}
    seen: set[int] = set()
    for _ in range(2 * count):
        concept = draws.pick(task.requirements).group.concept
        near = draws.pick(world.speakers[concept])
        anywhere = draws.below(len(world.capabilities))
        row = near if draws.chance(_P_NEAR) else anywhere
        if row not in gold and row not in seen and len(seen) < count:
            seen.add(row)
            yield row


def refuse_equal_ids(ids: Ids) -> None:
    """Check that no two capabilities or endpoints would become one record.

    Raises:
        ValueError: naming the first id that occurs twice.
    """
    for rows in (ids.capability, ids.endpoint):
        if len(set(rows)) < len(rows):
            raise ValueError(f"id {sorted(rows, key=rows.count)[-1]!r} would belong to two records of the sample")

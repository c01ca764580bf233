"""What adapters read out of raw rows: required and optional fields, and the report of what became of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from toolshift.data.errors import AdapterError
from toolshift.data.records import Argument, Library, Report, Task
from toolshift.data.rendering import clean
from toolshift.data.sources import source_of
from toolshift.data.tally import Tally
from toolshift.data.types import coarse_type


class BadRow(Exception):
    """A row cannot be used; the argument is the drop reason."""


def scrubbed(text: str) -> str:
    """Replace lone surrogates, which JSON escapes allow and UTF-8 does not, by U+FFFD."""
    return text if text.isascii() else text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def text_of(value: object) -> str:
    """An optional text field: blanks trimmed; null, lists and objects read as empty, numbers as their digits."""
    if isinstance(value, str):
        return scrubbed(value).strip()
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else ""


def required(row: Mapping[str, Any], key: str, kind: type | tuple[type, ...]) -> Any:
    """The value of a key that must be there and of a type.

    Raises:
        BadRow: ``missing_<key>`` or ``wrong_type_of_<key>``.
    """
    name = key.replace(" ", "_")
    if key not in row:
        raise BadRow(f"missing_{name}")
    if not isinstance(row[key], kind):
        raise BadRow(f"wrong_type_of_{name}")
    return row[key]


def required_name(row: Mapping[str, Any], key: str) -> str:
    """A native name with its outer blanks, from which keys are made.

    Raises:
        BadRow: as ``required``, and ``empty_<key>``.
    """
    name = scrubbed(required(row, key, str))
    if not name.strip():
        raise BadRow(f"empty_{key}")
    return name


def as_object(value: object) -> Mapping[str, Any]:
    """A JSON object.

    Raises:
        BadRow: ``not_an_object``.
    """
    if not isinstance(value, dict):
        raise BadRow("not_an_object")
    return value


def named_arguments(
    values: object, tally: Tally, *, required: bool | None, where: str, description: str = "description"
) -> Iterator[Argument]:
    """Arguments of a list of ``{"name": ..., "type": ...}``; each is kept or dropped in the section ``parameters``.

    required: what the release says of all of them, None where it says nothing. description: key of their text.
    """
    if values is None:
        return
    if not isinstance(values, list):
        tally.drop("parameters", "parameters_not_a_list", where=where)
        return
    for value in values:
        try:
            parameter = as_object(value)
            name = clean(required_name(parameter, "name"))
        except BadRow as reason:
            tally.drop("parameters", str(reason), where=where)
            continue
        tally.keep("parameters")
        raw_type = text_of(parameter.get("type"))
        yield Argument(
            name=name,
            raw_type=raw_type,
            type=coarse_type(raw_type, name),
            required=required,
            description=text_of(parameter.get(description)),
        )


def dataset_folder(root: Path, dataset: str) -> Path:
    """``<root>/<dataset>``.

    Raises:
        AdapterError: if it is no folder; the message says where the release is.
    """
    base = root / dataset
    if not base.is_dir():
        what = "is a file, not a folder" if base.exists() else "no such folder"
        raise AdapterError(f"{base}: {what}. {source_of(dataset).hint()}")
    return base


def report_of(tally: Tally, library: Library, tasks: Sequence[Task], *, apart: Sequence[Task] = ()) -> Report:
    """Totals of what an adapter yields, in one pass over its tasks, and its row accounts; tasks kept apart are counted
    in a note."""
    if apart:
        tally.note("tasks_apart", len(apart))
    gold_pairs = ordered = 0
    domains: set[str] = set()
    for task in tasks:
        gold_pairs += len(task.gold_endpoint_ids)
        ordered += task.ordered
        domains.add(task.domain)
    return Report(
        sections=tally.sections(),
        tasks=len(tasks),
        capabilities=len(library.capabilities),
        endpoints=len(library.endpoints),
        gold_pairs=gold_pairs,
        domains=len(domains - {""}),
        ordered_tasks=ordered,
        notes=dict(sorted(tally.notes.items())),
    )

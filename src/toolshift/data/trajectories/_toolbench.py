"""What the four sources of ToolBench share: files, success markers, function lists and error flags."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from toolshift.data.adapters.toolbench import DATASET
from toolshift.data.errors import AdapterError
from toolshift.data.files import READ_ERRORS, describe_failure, plain_name, read_json
from toolshift.data.rows import BadRow, as_object, dataset_folder, required
from toolshift.data.sources import source_of
from toolshift.data.trajectories.base import Call
from toolshift.data.trajectories.collecting import Collector

GAVE_ANSWER = "give_answer"
GAVE_UP = "give_up_and_restart"
INVENTED = "invalid_hallucination_function_name"
"""What upstream writes in place of a function name that the agent made up."""
_STATED_ERROR = re.compile(r'"error": ?"((?:[^"\\]|\\.)*)"')


def json_files(root: Path, pattern: str) -> list[Path]:
    """Logical (``.gz``-free) files of a pattern below ``<root>/toolbench``, sorted.

    Raises:
        AdapterError: if there is none.
    """
    base = dataset_folder(root, DATASET)
    found = {
        path.with_name(plain_name(path.name))
        for suffix in ("", ".gz")
        for path in base.glob(f"{pattern}{suffix}")
        if path.is_file()
    }
    if not found:
        raise AdapterError(f"{base}: no file {pattern} (nor .gz). {source_of(DATASET).hint()}")
    return sorted(found)


def relative(path: Path, root: Path) -> str:
    """``toolbench/...`` of a file below the root."""
    return path.relative_to(root).as_posix()


def loaded(path: Path, *, origin: str, where: str, into: Collector) -> Mapping[str, Any] | None:
    """The object in a file, or None after the file was counted as one trajectory that cannot be read."""
    try:
        return as_object(read_json(path))
    except BadRow as reason:
        into.drop(origin, str(reason), where=where)
    except READ_ERRORS as error:
        into.drop(origin, describe_failure(error), where=where)
    return None


def rows_of(path: Path, *, origin: str, where: str, into: Collector) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """(key, row) of a file that is an object of rows by query id, in the order of their ids."""
    for key, value in sorted((loaded(path, origin=origin, where=where, into=into) or {}).items()):
        try:
            yield key, as_object(value)
        except BadRow as reason:
            into.drop(origin, str(reason), where=f"{where}#{key}")


def answered(text: str) -> bool:
    """Whether a final call gives an answer and does not give up (marker of the authors' extractor)."""
    return GAVE_ANSWER in text and GAVE_UP not in text


def failed(response: object) -> bool | None:
    """Whether a response reports an error: its key ``error``, or in a cut response what can be seen of it; None where
    nothing can be seen."""
    if isinstance(response, Mapping):
        return bool(response.get("error"))
    if not isinstance(response, str):
        return None
    try:
        value = json.loads(response)
    except (ValueError, RecursionError):
        stated = _STATED_ERROR.search(response)
        return bool(stated[1]) if stated else None
    return bool(value.get("error")) if isinstance(value, dict) else None


def functions(values: object) -> tuple[Sequence[str], Mapping[str, Mapping[str, Any]]]:
    """Names and documentations of a function list in OpenAI's shape; entries of another shape are passed over."""
    if not isinstance(values, list):
        return (), {}
    found = {v["name"]: v for v in values if isinstance(v, dict) and isinstance(v.get("name"), str)}
    return tuple(found), found


def documents_of(calls: Iterable[Call], found: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Mapping[str, Any]]:
    """The documentations of the functions that are called."""
    wanted = {name for call in calls for name in (call.name, call.name[-64:])}
    return {name: found[name] for name in found if name in wanted}


def text_field(row: Mapping[str, Any], key: str) -> str:
    """A required text field.

    Raises:
        BadRow: if it is missing or no text.
    """
    return required(row, key, str)

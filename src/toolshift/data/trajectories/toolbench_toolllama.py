"""The training conversations of ToolLLaMA: ``toolllama_G123_dfs_{train,eval}.json``, in the data folder or below it.

A file is one array of ``{"id": "Step N: <query>", "conversations": [{"from", "value"}]}`` and is read row by row: the
training part has about 187,000 of them. Each is the history of a step, so most lack a final answer and are dropped as
not successful. Rules of the authors' extractor: the last assistant turn that has a marker decides on success, every
``Action:`` of an assistant turn is a call (spec skillgraph.md section 1). A function turn holds the response.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from toolshift.data.errors import AdapterError
from toolshift.data.files import stream_array
from toolshift.data.records import Records
from toolshift.data.rows import BadRow, as_object, required
from toolshift.data.trajectories import _toolbench as shared
from toolshift.data.trajectories.base import Call, Run
from toolshift.data.trajectories.collecting import Collector, query_of

DATASET = "toolbench"
_FILES = ("toolllama_G123_dfs_eval.json", "toolllama_G123_dfs_train.json")
_ACTION = re.compile(r"^Action: *(\S.*?) *$", re.MULTILINE)
_NAMES = re.compile(r"""\{['"]name['"]: ['"]([^'"]+)['"], ['"]description['"]""")
_LIST = "following APIs:"


def collect(root: Path, *, into: Collector, records: Records | None) -> None:
    """Read every conversation; see ``Source``."""
    files: list[Path] = []
    for name in _FILES:
        try:
            files += shared.json_files(root, f"**/{name}")
        except AdapterError:
            continue
    if not files:
        raise AdapterError(f"{root / DATASET}: no {' or '.join(_FILES)} here or below it, packed or not")
    for path in files:
        stem = path.name.removesuffix(".json")
        where, origin = shared.relative(path, root), f"{DATASET}/{stem.replace('_G123_dfs', '')}"
        into.open(origin)
        for number, value in enumerate(stream_array(path)):
            place = f"{where}#{number}"
            try:
                into.add(_run(as_object(value), f"{origin}/{number:06d}", into=into, origin=origin, where=place))
            except BadRow as reason:
                into.drop(origin, str(reason), where=place)


def _run(row: Mapping[str, Any], task_id: str, *, into: Collector, origin: str, where: str) -> Run:
    query = query_of(shared.text_field(row, "id"))
    turns = [(_said(turn, "from"), _said(turn, "value")) for turn in required(row, "conversations", list)]
    marked = succeeded([text for speaker, text in turns if speaker == "assistant"])
    calls = tuple(_calls(turns))
    system = next((text for speaker, text in turns if speaker == "system"), "")
    # Most rows are dropped and most names known: the list, a Python literal, is parsed for what is left.
    needed = (marked or not into.rules.successful) and into.needs_documents(call.name for call in calls)
    return Run(
        origin=origin,
        task_id=task_id,
        text=query,
        calls=calls,
        marked=marked,
        split=where.rpartition("/")[2].partition(".")[0],
        source=where,
        listed=tuple(dict.fromkeys(_NAMES.findall(system))),
        documented=shared.documents_of(calls, _documents(system)) if needed else {},
    )


def _said(turn: object, key: str) -> str:
    return shared.text_field(as_object(turn), key)


def succeeded(said: Sequence[str]) -> bool:
    """Whether the last assistant turn with a marker gives an answer."""
    final = next((text for text in reversed(said) if shared.GAVE_ANSWER in text or shared.GAVE_UP in text), "")
    return shared.answered(final)


def _calls(turns: Sequence[tuple[str, str]]) -> Iterator[Call]:
    for place, (speaker, text) in enumerate(turns):
        if speaker != "assistant":
            continue
        actions = _ACTION.findall(text)
        follows = turns[place + 1] if place + 1 < len(turns) else ("", "")
        for number, name in enumerate(actions, start=1):
            # One turn with several actions has one response, which is that of the last.
            answered = number == len(actions) and follows[0] == "function"
            yield Call(
                name=name,
                error=shared.failed(follows[1]) if answered else None,
                hallucinated=name == shared.INVENTED,
            )


def _documents(system: str) -> Mapping[str, Mapping[str, Any]]:
    """The function list of a system prompt; none where it cannot be parsed."""
    _, found, tail = system.partition(_LIST)
    try:
        return shared.functions(ast.literal_eval(tail.strip()))[1] if found else {}
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return {}

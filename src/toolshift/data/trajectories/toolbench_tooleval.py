"""Converted answers of ToolEval: ``tooleval/results/<set>/<method>/*.json``, a chain or tree of messages per query.

Messages are cut after 100 characters in the releases at hand, which leaves the name of a call and seldom its error:
where it cannot be seen, the error flag is None.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from toolshift.data.records import Records
from toolshift.data.rows import BadRow, as_object, required
from toolshift.data.trajectories import _toolbench as shared
from toolshift.data.trajectories.base import Call, Run
from toolshift.data.trajectories.collecting import Collector, query_of

DATASET = "toolbench"
_NAME = re.compile(r"""\{'name': (?P<quote>['"])(?P<name>.*?)(?P=quote)""", re.DOTALL)
_RESPONSE = re.compile(r"""'response': ['"]?""")


def collect(root: Path, *, into: Collector, records: Records | None) -> None:
    """Read every result file; see ``Source``."""
    for path in shared.json_files(root, "tooleval/results/*/*/*.json"):
        where = shared.relative(path, root)
        origin = f"{DATASET}/{path.parent.name}"
        into.open(origin)
        for key, row in shared.rows_of(path, origin=origin, where=where, into=into):
            try:
                into.add(_run(row, key, origin=origin, where=where))
            except (BadRow, RecursionError) as reason:
                problem = str(reason) if isinstance(reason, BadRow) else "nested_too_deeply"
                into.drop(origin, problem, where=f"{where}#{key}")


def _run(row: Mapping[str, Any], key: str, *, origin: str, where: str) -> Run:
    answer = required(row, "answer", dict)
    listed, documented = shared.functions(row.get("available_tools"))
    calls = tuple(_calls(last_path(required(answer, "answer_details", list))))
    split = where.rpartition("/")[2].removesuffix(".json")
    return Run(
        origin=origin,
        task_id=f"{origin}/{where.split('/')[-3]}/{split}/{key}",
        text=query_of(shared.text_field(row, "query")),
        calls=calls,
        marked=shared.answered(required(answer, "final_answer", str)),
        split=split,
        source=f"{where}#{key}",
        listed=listed,
        documented=shared.documents_of(calls, documented),
    )


def last_path(nodes: Sequence[Any]) -> list[Mapping[str, Any]]:
    """The messages on the way to the last leaf: with one successor each, all of them."""
    path: list[Mapping[str, Any]] = []
    while nodes:
        node = as_object(nodes[-1])
        path.append(node)
        following = node.get("next")
        nodes = following if isinstance(following, list) else ()
    return path


def _calls(path: Sequence[Mapping[str, Any]]) -> Iterator[Call]:
    for node in path:
        if node.get("role") == "tool":
            yield call_of(node.get("message"))


def call_of(message: object) -> Call:
    """The call that a message, an object or the beginning of its Python text, tells of.

    Raises:
        BadRow: ``call_without_name``.
    """
    if isinstance(message, dict) and isinstance(message.get("name"), str):
        name, error = message["name"], shared.failed(message.get("response"))
    else:
        match = _NAME.match(message) if isinstance(message, str) else None
        if match is None or not isinstance(message, str):
            raise BadRow("call_without_name")
        name, error = match["name"], _seen_error(message)
    return Call(name=name.strip(), error=error, hallucinated=name == shared.INVENTED)


def _seen_error(message: str) -> bool | None:
    """The error in what is left of a response. A cut text of an error shows that there is one."""
    start = _RESPONSE.search(message)
    if start is None:
        return None
    seen = message[start.end() :]
    match = re.match(r'\{"error": "(.?)', seen)
    if match is None or not match[1]:
        return shared.failed(seen)
    return match[1] != '"'

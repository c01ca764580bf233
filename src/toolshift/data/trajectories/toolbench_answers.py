"""ToolBench's answer files: search trees (DFS) and chains (CoT) of one agent, one file per query.

Read are ``answer/*/*.json`` and ``data_example/answer/*/*.json``. The trajectory of a won file is the path that ends in
its answer (``compare_candidates``); of a lost one, kept only by option, the last path that was tried. The observation
code is upstream's ``process_system`` status: 0 a response, 1 no function of that name, 3 an answer, 4 given up, all
others errors; the response may report an error of its own under code 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from toolshift.data.errors import AdapterError
from toolshift.data.records import Records
from toolshift.data.rows import BadRow, as_object, required
from toolshift.data.trajectories import _toolbench as shared
from toolshift.data.trajectories.base import Call, Run
from toolshift.data.trajectories.collecting import Collector, query_of

DATASET = "toolbench"
_PATTERNS: Mapping[str, str] = {
    "answer/*/*.json": "toolbench/answer",
    "data_example/answer/*/*.json": "toolbench/data_example",
}
_NO_FUNCTION = 1
_NO_ERROR = (0, 3, 4)

Node = Mapping[str, Any]


def collect(root: Path, *, into: Collector, records: Records | None) -> None:
    """Read every answer file; see ``Source``."""
    files: list[tuple[str, Path]] = []
    missing: list[AdapterError] = []
    for pattern, origin in _PATTERNS.items():
        try:
            files += [(origin, path) for path in shared.json_files(root, pattern)]
        except AdapterError as error:
            missing.append(error)
    if not files:
        raise missing[0]
    for origin, path in files:
        into.open(origin)
        where = shared.relative(path, root)
        content = shared.loaded(path, origin=origin, where=where, into=into)
        if content is None:
            continue
        try:
            into.add(_run(content, origin=origin, where=where))
        except (BadRow, RecursionError) as reason:
            into.drop(origin, str(reason) if isinstance(reason, BadRow) else "nested_too_deeply", where=where)


def _run(content: Mapping[str, Any], *, origin: str, where: str) -> Run:
    answer = as_object(required(content, "answer_generation", dict))
    final = answer.get("final_answer")
    listed, documented = shared.functions(answer.get("function"))
    calls = tuple(_calls(_path(content)))
    stem = where.removesuffix(".json")
    folder = stem.split("/")[-2]
    return Run(
        origin=origin,
        task_id=f"{origin}/{folder}/{stem.rpartition('/')[2]}",
        text=query_of(shared.text_field(answer, "query")),
        calls=calls,
        marked=content.get("win") is True and isinstance(final, str) and shared.answered(final),
        split=folder,
        source=where,
        listed=listed,
        documented=shared.documents_of(calls, documented),
    )


def _path(content: Mapping[str, Any]) -> Sequence[Node]:
    """The nodes from the first call to the answer, or to the end of what was tried last."""
    for candidate in content.get("compare_candidates") or ():
        if isinstance(candidate, list):
            return candidate
    tries = content.get("trys")
    if isinstance(tries, list) and tries:
        return required(as_object(tries[-1]), "chain", list)
    tree = required(as_object(required(content, "tree", dict)), "tree", dict)
    path: list[Node] = []
    node: Node | None = tree
    while node is not None:
        path.append(node)
        children = node.get("children")
        node = as_object(children[-1]) if isinstance(children, list) and children else None
    return path


def _calls(path: Sequence[Node]) -> Iterator[Call]:
    """Every action with the observation of the input that follows it."""
    name: str | None = None
    for node in path:
        kind, text = as_object(node).get("node_type"), node.get("description")
        if kind == "Action":
            if name is not None:
                yield Call(name=name)
            name = text.strip() if isinstance(text, str) else ""
        elif kind == "Action Input" and name is not None:
            code = node.get("observation_code")
            reported = shared.failed(node.get("observation"))
            known = isinstance(code, int)
            yield Call(
                name=name,
                error=(code not in _NO_ERROR or bool(reported)) if known else reported,
                hallucinated=code == _NO_FUNCTION or name == shared.INVENTED,
            )
            name = None
    if name is not None:
        yield Call(name=name)

"""API-Bank levels 1 and 2: one trajectory per dialogue file, its calls in the order of the dialogue.

The adapter makes one task per call, so the order is read from the files. The text is all that the user says, one
utterance a line: a plan for the dialogue has to know all of it, as in BFCL's multi-turn rows. A call that the release
shows with an exception counts as an error.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from toolshift.data.adapters.apibank import DATASET, DIALOGUES, SEARCH
from toolshift.data.errors import AdapterError
from toolshift.data.files import plain_name
from toolshift.data.lines import read_lines
from toolshift.data.names import local_name
from toolshift.data.records import Records, Task
from toolshift.data.rendering import clean
from toolshift.data.rows import BadRow, as_object, dataset_folder, required, required_name, scrubbed
from toolshift.data.sources import source_of
from toolshift.data.trajectories.collecting import Collector

_ORIGIN = "apibank/dialogues"


def collect(root: Path, *, into: Collector, records: Records | None) -> None:
    """Read every dialogue; see ``Source``."""
    base = dataset_folder(root, DATASET)
    files = [(part, path) for part, folder in DIALOGUES.items() for path in _files(base / folder)]
    if not files:
        raise AdapterError(f"{base}: no dialogue in {', '.join(DIALOGUES.values())}. {source_of(DATASET).hint()}")
    into.open(_ORIGIN)
    domains = {c.capability_id: c.domain for c in into.base.capabilities}
    known = {e.endpoint_id for e in into.base.endpoints}
    for part, path in files:
        where = path.relative_to(root).as_posix()
        try:
            said, names = _read(path)
        except BadRow as reason:
            into.drop(_ORIGIN, str(reason), where=where)
            continue
        calls = tuple(_resolved(names, known, into=into, where=where))
        if not said:
            into.tally.exclude(f"{_ORIGIN}:trajectories", "empty_query", where=where)
        elif not calls:
            into.tally.exclude(f"{_ORIGIN}:trajectories", "no_call_left", where=where)
        else:
            task = _task(said, calls, part=part, source=where, domains=domains)
            into.add_task(task, origin=_ORIGIN, collapse=True)


def _files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    names = {plain_name(p.name) for p in folder.iterdir() if p.is_file()}
    return [folder / name for name in sorted(names) if name.endswith(".jsonl")]


def _read(path: Path) -> tuple[str, list[tuple[str, bool]]]:
    """What the user says, and (name, whether it failed) of every call but the search for tools.

    Raises:
        BadRow: at the first turn that cannot be read: without it the order is not known.
    """
    said: list[str] = []
    calls: list[tuple[str, bool]] = []
    for line in read_lines(path):
        if line.fault:
            raise BadRow(line.fault)
        turn = as_object(line.value)
        role = required(turn, "role", str)
        if role == "User":
            said.append(clean(scrubbed(required(turn, "text", str))))
        elif role == "API":
            name = required_name(turn, "api_name").strip()
            calls += [] if name == SEARCH else [(name, _failed(turn))]
    return "\n".join(text for text in said if text), calls


def _failed(turn: Mapping[str, Any]) -> bool:
    result = turn.get("result")
    return isinstance(result, dict) and bool(result.get("exception"))


def _resolved(names: list[tuple[str, bool]], known: set[str], *, into: Collector, where: str) -> Iterator[str]:
    """Endpoint ids of the calls; of a name with two libraries, that of levels 1 and 2, which has no suffix."""
    section = f"{_ORIGIN}:calls"
    for name, failed in names:
        found = next((e for e in (f"{DATASET}/{n}/call" for n in (name, local_name(name))) if e in known), None)
        if found is None:
            into.tally.exclude(section, "undocumented_name", where=f"{where} {name!r}")
        elif failed and into.rules.error_free:
            into.tally.exclude(section, "error", where=where)
        else:
            yield found


def _task(said: str, calls: tuple[str, ...], *, part: str, source: str, domains: Mapping[str, str]) -> Task:
    gold = tuple(sorted(set(calls)))
    tools = tuple(endpoint.rpartition("/")[0] for endpoint in gold)
    met = [domains[endpoint.rpartition("/")[0]] for endpoint in calls]
    named = sorted({domain for domain in met if domain}, key=lambda domain: (-met.count(domain), domain))
    stem = source.rpartition("/")[2].removesuffix(".jsonl")
    return Task(
        task_id=f"{DATASET}/dialogues/{part.removeprefix('dialogues-')}/{stem}",
        dataset=DATASET,
        domain=named[0] if named else "",
        text=said,
        gold_capability_ids=tools,
        gold_endpoint_ids=gold,
        ordered=True,
        calls=calls,
        split=part,
        source=source,
    )

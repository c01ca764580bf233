"""The entry behind ``scripts/rank.py``: somebody's own tools ranked for one request or many.

It has a config of its own (``conf/rank.yaml``). Answers go to standard output, everything else to standard error.
"""

from __future__ import annotations

import json
import sys
import textwrap
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from omegaconf import OmegaConf

from toolshift.settings.convert import from_mapping
from toolshift.settings.errors import ConfigError, UserError
from toolshift.settings.single import command, overridden

if TYPE_CHECKING:
    from toolshift.api import Answer, Explained, Ranker

# Taken as they stand: requests, names and paths hold any character, and a hash may look like a number.
WORDS = ("encoder.path", "out", "queries", "query", "run", "target", "tool", "tools")
KEYS = (
    *WORDS, "data.cache", "data.root", "encoder.name", "explain", "format", "paths.outputs", "seed", "strict", "top",
)  # fmt: skip
WIDTH = 100
_NAME = 40
_TEXT = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class DataPlace:
    """``root``: real data of a run. ``cache`` holds embeddings."""

    root: str | None
    cache: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderChoice:
    """``name`` of a model without a run. ``path``: folder of the weights."""

    name: str | None
    path: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputPlace:
    """``outputs``: the folder that holds ``runs/``."""

    outputs: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSettings:
    """``conf/rank.yaml``."""

    tools: str
    query: str | None
    queries: str | None
    out: str | None
    run: str
    target: str | None
    seed: int | None
    top: int
    explain: bool
    tool: str | None
    strict: bool
    format: Literal["text", "json"]
    data: DataPlace
    encoder: EncoderChoice
    paths: OutputPlace


def main(arguments: Sequence[str]) -> int:
    """Check the command line, then print the ranking. Returns the exit status: 2 for a refused command."""
    return command("rank", arguments, lambda: rank(load(arguments)), printable=printable)


def load(arguments: Sequence[str], *, folder: Path | None = None) -> RankSettings:
    """``conf/rank.yaml`` with overrides.

    Raises:
        ConfigError: one line per problem, with the nearest valid key.
    """
    config = overridden("rank", arguments, keys=KEYS, words=WORDS, required=("tools",), folder=folder)
    settings = from_mapping(RankSettings, cast("Any", OmegaConf.to_container(config, resolve=True)))
    _check(settings)
    return settings


def _check(settings: RankSettings) -> None:
    problems: list[str] = []
    if (settings.query is None) == (settings.queries is None):
        problems.append('query, queries: give one of them, query="..." or queries=FILE.jsonl')
    if settings.top < 1:
        problems.append(f"top={settings.top}: expected at least 1")
    if settings.out is not None and settings.queries is None:
        problems.append("out: goes with queries; the answer to query is printed")
    if settings.queries is not None and (settings.explain or settings.tool is not None):
        problems.append("explain, tool: go with query, one request at a time")
    if settings.tool is not None and not settings.explain:
        problems.append("tool: names the tool that explain=true takes apart; add explain=true")
    if problems:
        raise ConfigError(problems)


def rank(settings: RankSettings) -> int:
    """Rank, and print or write the answers."""
    from toolshift.api import checked_query
    from toolshift.api import load as load_ranker

    requests = _requests(Path(settings.queries)) if settings.queries is not None else []
    if settings.query is not None:
        checked_query(settings.query)  # before anything is loaded
    ranker = load_ranker(
        settings.run,
        target=settings.target,
        seed=settings.seed,
        encoder=settings.encoder.name,
        encoder_path=settings.encoder.path,
        outputs=settings.paths.outputs,
        cache=settings.data.cache,
        data_root=settings.data.root,
    ).index(settings.tools, strict=settings.strict)
    for note in ranker.notes:
        print(f"note: {printable(note)}", file=sys.stderr)
    if settings.query is None:
        _write(settings, _answered(ranker, requests, settings))
        return 0
    answer = ranker.answer(settings.query, settings.top)
    why = ranker.explain(settings.query, settings.tool or answer.ranked[0].tool_id) if settings.explain else None
    if settings.format == "json":
        print(json.dumps(as_json(answer, ranker, why=why), indent=2, ensure_ascii=False, allow_nan=False))
    else:
        print("\n".join(as_text(answer, ranker, why=why)))
    return 0


def _requests(path: Path) -> list[tuple[Any, str]]:
    """(id, request) of every line; a line without an id has its number.

    Raises:
        UserError: for a line that is no request, before anything is loaded.
    """
    from toolshift.api import checked_query
    from toolshift.data.lines import read_lines

    found: list[tuple[Any, str]] = []
    for line in read_lines(path):
        value, where = line.value, f"{path}:{line.number}"
        if line.fault:
            raise UserError(f"{where}: {line.fault.replace('_', ' ')}; expected a JSON object or a JSON text per line")
        text = value.get("query", value.get("text")) if isinstance(value, Mapping) else value
        if not isinstance(text, str):
            raise UserError(f'{where}: no request; expected {{"query": "...", "id": ...}} or a JSON text')
        try:
            query = checked_query(text)
        except UserError as error:
            raise UserError(f"{where}: {error}") from None
        name = value.get("id", value.get("_id")) if isinstance(value, Mapping) else None
        found.append((line.number if name is None else name, query))
    if not found:
        raise UserError(f"{path}: no requests in it")
    return found


def _answered(ranker: Ranker, requests: Sequence[tuple[Any, str]], settings: RankSettings) -> Iterator[str]:
    answers = ranker.answers([query for _, query in requests], settings.top)
    for (name, _), answer in zip(requests, answers, strict=True):
        yield json.dumps({"id": name, **as_json(answer, ranker)}, ensure_ascii=False, allow_nan=False)


def _write(settings: RankSettings, lines: Iterator[str]) -> None:
    if settings.out is None:
        for line in lines:
            print(line)
        return
    from toolshift.runs.files import write_text

    content = [f"{line}\n" for line in lines]
    write_text(Path(settings.out), "".join(content))
    print(f"wrote {len(content)} answers to {settings.out}", file=sys.stderr)


def as_json(answer: Answer, ranker: Ranker, *, why: Explained | None = None) -> dict[str, Any]:
    """Plain values in a fixed order; scores with six decimals."""
    content: dict[str, Any] = {
        "query": answer.query,
        "method": ranker.about,
        "tools": answer.of,
        "ranked": [
            {
                "rank": one.rank,
                "tool_id": one.tool_id,
                "name": one.name,
                "score": round(one.score, 6),
                "margin": None if one.margin is None else round(one.margin, 6),
                "near_tie": one.is_near_tie,
            }
            for one in answer.ranked
        ],
        "notes": list(answer.notes),
    }
    if why is not None:
        from toolshift.experiment.why import as_plain

        tool = {"rank": why.tool.rank, "tool_id": why.tool.tool_id, "name": why.tool.name, "behind": why.behind}
        content["explained"] = {**tool, **as_plain(why.why)}
    return content


def as_text(answer: Answer, ranker: Ranker, *, why: Explained | None = None) -> Iterator[str]:
    """The ranking as a table, then what should be known of it, then the explanation."""
    yield from _wrapped(f"{ranker.about}; {answer.of} tools")
    yield from _wrapped(f"request: {_short(answer.query)}")
    yield f"{'':>4}{'tool':<{_NAME + 2}}{'score':>9}{'margin':>9}"
    for one in answer.ranked:
        margin = "-" if one.margin is None else f"{one.margin:.4f}"
        tie = "  near tie" if one.is_near_tie else ""
        yield f"{one.rank:>3} {_cell(one.tool_id)}  {one.score:9.4f}{margin:>9}{tie}"
    for note in answer.notes:
        yield from _wrapped(f"note: {note}")
    if why is not None:
        yield ""
        yield from _why(why, ranker)


def _why(found: Explained, ranker: Ranker) -> Iterator[str]:
    tool, why = found.tool, found.why
    behind = "" if tool.rank == 1 else f", {found.behind:.4f} behind the first"
    yield from _wrapped(f"why {tool.tool_id}: rank {tool.rank} of {found.of}{behind}")
    library = ranker.tools
    text = library.capabilities[library.position[tool.tool_id]].text
    yield from _wrapped(f"text: {_short(text)}", indent=2)
    for part in why.parts:
        yield from _wrapped(f"{part.added + 0.0:+8.4f}  {part.name}: {part.how}", indent=2)
    yield f"  {why.score + 0.0:+8.4f}  score"
    for number, text in enumerate(why.requirements, start=1):
        yield from _wrapped(f"requirement {number}: {_short(text)}", indent=2)
    for one in why.operations:
        what = "cosine" if one.evidence is None else f"evidence {one.evidence:.3f}, cosine"
        beside = f" for {_short(one.request)!r}" if why.requirements else ""
        yield from _wrapped(f"operation {one.operation}{beside}: {what} {one.cosine:.3f}", indent=2)
    if why.requirements and not why.operations:
        yield "  no requirement is matched by an operation"
    yield from _wrapped(f"words in common: {', '.join(why.shared_words) or 'none'}", indent=2)


def printable(text: str) -> str:
    """The text without anything that could steer a terminal."""
    return "".join(c if c == "\n" or unicodedata.category(c) not in ("Cc", "Cf") else " " for c in text)


def _short(text: str) -> str:
    return textwrap.shorten(printable(text), _TEXT, placeholder=" ...")


def _cell(text: str) -> str:
    """The text in a column of ``_NAME`` places."""
    shown = printable(text)
    width, kept = 0, ""
    for character in shown:
        places = 2 if unicodedata.east_asian_width(character) in "WF" else 1
        if width + places > _NAME - 1:
            return kept + "…" + " " * (_NAME - 1 - width)
        width, kept = width + places, kept + character
    return kept + " " * (_NAME - width)


def _wrapped(text: str, *, indent: int = 0) -> list[str]:
    left = " " * indent
    return textwrap.wrap(printable(text), WIDTH, initial_indent=left, subsequent_indent=left + "  ") or [left]

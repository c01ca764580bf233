"""What API-Bank writes as text: prompts with dialogues and calls, documentation in two vocabularies, Python literals.

Nothing is evaluated: values are read by ``ast.literal_eval``, classes of a checkout by ``ast`` alone.
"""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from toolshift.data.rendering import clean
from toolshift.data.rows import BadRow, required_name, scrubbed, text_of

Speaker = Literal["User", "AI", "API-Request"]

_TURN = re.compile(r"(User|AI|API-Request): ?")
_END = re.compile(r"Generate (?:API Request|AI Response):")
_CALL = re.compile(r"(?:API-Request:)?\s*\[?\s*([^\W\d]\w*)\s*\(", re.ASCII)
_ANSWERED = re.compile(r"\)\]?\s*->")
_CLOSES = re.compile(r"\s*(?:[,:}\])]|$)")
_PARSE_ERRORS = (SyntaxError, ValueError, TypeError, RecursionError, MemoryError)


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn of a dialogue: an utterance, or a call with its result ("[Name(key='value')]->result")."""

    speaker: Speaker
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolDoc:
    """One documentation of one tool. ``parameters``: (name, type word, description); ``None`` where not given.

    ``optional`` and ``needed`` name parameters with and without a default in the signature; both are empty where only
    a prompt or the table documents the tool.
    """

    name: str
    description: str = ""
    parameters: tuple[tuple[str, str, str], ...] | None = None
    returns: tuple[str, ...] = ()
    needed: frozenset[str] = frozenset()
    optional: frozenset[str] = frozenset()


# ----------------------------------------------------------------------------------------------------------- prompts


def turns_of(prompt: str) -> list[Turn]:
    """The turns of a prompt; a line that starts no turn continues the one before it; the closing order is left out."""
    turns: list[Turn] = []
    for line in prompt.split("\n"):
        start = _TURN.match(line)
        if start:
            turns.append(Turn(_speaker(start[1]), line[start.end() :]))
        elif _END.match(line):
            break
        elif turns:
            turns[-1] = Turn(turns[-1].speaker, f"{turns[-1].text}\n{line}")
    return turns


def _speaker(word: str) -> Speaker:
    return "User" if word == "User" else "AI" if word == "AI" else "API-Request"


def described_in(prompt: str) -> Iterator[object]:
    """JSON objects of a prompt that stand on a line of their own, in front of the dialogue; None for a broken one."""
    for line in prompt.split("\n"):
        if line.startswith("{"):
            try:
                yield json.loads(line)
            except (ValueError, RecursionError):
                yield None


def called_name(text: str) -> str:
    """The tool that "API-Request: [Name(key='value')]" calls, brackets or not.

    Only the name is read: hundreds of rows quote their values in a way that no parser reads.

    Raises:
        BadRow: ``malformed_call``.
    """
    match = _CALL.match(text)
    if match is None:
        raise BadRow("malformed_call")
    return match[1]


def result_of(call: str) -> str:
    """What stands behind the arrow of an answered call; empty where there is no arrow."""
    arrow = _ANSWERED.search(call)
    return call[arrow.end() :].strip() if arrow else ""


def found_tools(result: object) -> Iterator[object]:
    """The documentations in a result of the tool search: one or a list, bare or in an envelope with the call."""
    if isinstance(result, dict) and "api_name" in result and "output" in result:
        yield from found_tools(result["output"])
    elif isinstance(result, list):
        for item in result:
            yield from found_tools(item)
    elif isinstance(result, dict):
        yield result


# ---------------------------------------------------------------------------------------------------------- literals


class _NamesAsWords(ast.NodeTransformer):
    """``{'type': str}`` means the word."""

    def visit_Name(self, node: ast.Name) -> ast.Constant:
        return ast.copy_location(ast.Constant(node.id), node)


def literal(text: str) -> Any:
    """A Python literal; bare names are their own word, and apostrophes inside single quotes are repaired.

    Raises:
        BadRow: ``malformed_literal``.

    >>> literal("{'description': 'The user's name.', 'type': str}")
    {'description': "The user's name.", 'type': 'str'}
    """
    for attempt in (text, _requoted(text)):
        try:
            return literal_of(_parsed(attempt.strip(), mode="eval").body)
        except (BadRow, *_PARSE_ERRORS):
            continue
    raise BadRow("malformed_literal")


def literal_of(node: ast.AST) -> Any:
    """The value of a literal expression of a syntax tree.

    Raises:
        BadRow: ``malformed_literal``.
    """
    try:
        return ast.literal_eval(_NamesAsWords().visit(node))
    except _PARSE_ERRORS:
        raise BadRow("malformed_literal") from None


def _requoted(text: str) -> str:
    """The text with a backslash before each quote that does not close its string: nothing that may follow follows."""
    parts: list[str] = []
    quote = ""
    for position, symbol in enumerate(text):
        if symbol in "'\"" and not quote:
            quote = symbol
        elif quote and symbol == quote and text[position - 1] != "\\":
            if _CLOSES.match(text, position + 1):
                quote = ""
            else:
                parts.append("\\")
        parts.append(symbol)
    return "".join(parts)


def _parsed(source: str, *, mode: Literal["eval", "exec"]) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an invalid escape such as "\d" in a file we only read
        return ast.parse(source, mode=mode)


# ---------------------------------------------------------------------------------------------------- documentations


def tool_doc(value: Mapping[str, Any]) -> ToolDoc:
    """A documentation in either vocabulary: ``name`` and ``input_parameters``, or ``apiCode`` and ``parameters``.

    Raises:
        BadRow: if it has no name.
    """
    named = "name" if "name" in value else "apiCode"
    inputs = value.get("input_parameters", value.get("parameters"))
    outputs = value.get("output_parameters", value.get("response"))
    return ToolDoc(
        name=required_name(value, named).strip(),
        description=text_of(value.get("description")),
        parameters=_parameters(inputs),
        returns=tuple(name for name, _, _ in _parameters(outputs) or ()),
    )


def _parameters(values: object) -> tuple[tuple[str, str, str], ...] | None:
    """Parameters of a mapping from names; a null name is the release's way to say that there is none."""
    if not isinstance(values, dict):
        return None
    named: dict[str, tuple[str, str, str]] = {}
    for key, value in values.items():
        name = clean(scrubbed(key)) if isinstance(key, str) else ""
        fields = value if isinstance(value, dict) else {}
        if name:
            named.setdefault(name, (name, text_of(fields.get("type")), text_of(fields.get("description"))))
    return tuple(named.values())


def assigned(source: str) -> dict[str, Any]:
    """Literal assignments of a piece of Python, as the table's ``api_info`` holds them.

    Raises:
        BadRow: ``malformed_python``.
    """
    try:
        return dict(_assignments(_parsed(source, mode="exec").body))
    except _PARSE_ERRORS:
        raise BadRow("malformed_python") from None


def documented_classes(source: str) -> Iterator[ToolDoc]:
    """Documentations of the API classes in a Python file: classes with a description and input parameters.

    Raises:
        BadRow: ``malformed_python``.
    """
    try:
        tree = _parsed(source, mode="exec")
    except _PARSE_ERRORS:
        raise BadRow("malformed_python") from None
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            fields = dict(_assignments(node.body))
            if "description" in fields and "input_parameters" in fields:
                needed, optional = _signature(node)
                doc = tool_doc({**fields, "name": node.name})
                yield ToolDoc(
                    name=doc.name,
                    description=doc.description,
                    parameters=doc.parameters or (),
                    returns=doc.returns,
                    needed=needed,
                    optional=optional,
                )


def _assignments(body: list[ast.stmt]) -> Iterator[tuple[str, Any]]:
    for statement in body:
        targets = statement.targets if isinstance(statement, ast.Assign) else ()
        for target in targets:
            if isinstance(target, ast.Name) and isinstance(statement, ast.Assign):
                try:
                    yield target.id, literal_of(statement.value)
                except BadRow:
                    yield target.id, None


def _signature(node: ast.ClassDef) -> tuple[frozenset[str], frozenset[str]]:
    """Parameters of ``call`` without and with a default; both empty where the class has no such method."""
    for method in node.body:
        if isinstance(method, ast.FunctionDef) and method.name == "call":
            positional = [a.arg for a in (*method.args.posonlyargs, *method.args.args)]
            first_default = len(positional) - len(method.args.defaults)
            keyword = zip(method.args.kwonlyargs, method.args.kw_defaults, strict=True)
            named = [(name, i >= first_default) for i, name in enumerate(positional)]
            named += [(a.arg, default is not None) for a, default in keyword]
            needed = {name for name, has_default in named if not has_default and name != "self"}
            return frozenset(needed), frozenset(name for name, has_default in named if has_default)
    return frozenset(), frozenset()

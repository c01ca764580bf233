"""What Re-Invoke and ToolDreamer ask a language model, and how its answers are read.

The roles are those of the papers; the wording is ours, since no author code was published [R]. Changing a word changes
the key of every recorded answer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

_BULLET = re.compile(r"^\s*(?:[-*\u2022]|\(?\d{1,3}[.):])\s+")
_QUOTES = "\"'`\u201c\u201d"

QUERY_WRITER = (
    "You write search requests. You are given the documentation of one tool. Think of people who need it without "
    "knowing that it exists, and write what they would ask an assistant for. Be concrete, make up values, and do not "
    "mention the tool by name. Write one request per line and nothing else."
)
INTENT_READER = (
    "You read a request to an assistant and list the separate things that have to be done for it, in the order in "
    "which they are asked for. Write one short imperative sentence per line, each understandable by itself, and "
    "nothing else. A request for a single thing gives a single line."
)
TOOL_DREAMER = (
    "You plan with tools that you have not seen. For the question of a user, imagine the tools that would be needed to "
    'answer it. Reply with a JSON array and nothing else; each element is an object with the keys "thought" (why '
    'this step is needed), "name" (a short snake_case name) and "description" (what the tool does, in one or two '
    "sentences)."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dream:
    """A hypothetical tool of ToolDreamer."""

    thought: str
    name: str
    description: str


def query_prompt(documentation: str, *, count: int) -> str:
    """The user message for the query writer."""
    return f"Documentation of the tool:\n{documentation}\n\nWrite {count} different requests."


def intent_prompt(task: str) -> str:
    """The user message for the intent reader."""
    return f"Request:\n{task}"


def dream_prompt(task: str) -> str:
    """The user message for the tool dreamer."""
    return f"Question:\n{task}"


def read_lines(text: str) -> tuple[str, ...]:
    """The distinct lines of an answer without bullets, numbers and quotation marks, in order."""
    lines = (" ".join(_BULLET.sub("", line).split()).strip(_QUOTES) for line in text.splitlines())
    return tuple(dict.fromkeys(line for line in lines if any(map(str.isalnum, line))))


def read_dreams(text: str) -> tuple[Dream, ...]:
    """The hypothetical tools of an answer; empty if it holds no JSON array of objects with name and description.

    Text around the array (a code fence, a sentence) is ignored; a thought may be missing.
    """
    start, end = text.find("["), text.rfind("]")
    try:
        found = json.loads(text[start : end + 1]) if 0 <= start < end else []
    except ValueError:
        return ()
    if not isinstance(found, list) or not all(map(_is_dream, found)):
        return ()
    return tuple(
        Dream(thought=str(item.get("thought") or ""), name=item["name"], description=item["description"])
        for item in found
    )


def _is_dream(item: object) -> bool:
    if not isinstance(item, dict):
        return False
    return all(isinstance(item.get(key), str) and item[key].strip() for key in ("name", "description"))


def shortened(text: str, *, words: int) -> str:
    """The first ``words`` words. A frozen encoder cuts long texts at their end, where the query of a copy stands."""
    return " ".join(text.split()[:words])


def joined(parts: Sequence[str]) -> str:
    """Parts that say something, as sentences of one text."""
    return " ".join(" ".join(part.split()) for part in parts if part.strip())

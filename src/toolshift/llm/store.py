"""Recorded outcomes, one JSON file each: ``<root>/<model>/<2 digits>/<key>.json``.

The name is the hash of (model, prompt hash, parameters), so a file never means two things and folders of two machines
can be laid over each other. A file is whole or absent, and writers on one file system take turns.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from toolshift.llm.errors import StoreError
from toolshift.llm.outcomes import REASONS, TRANSIENT, Answer, Invalid, Outcome, Usage
from toolshift.llm.request import Request
from toolshift.runs.files import folder_name, read_json, write_json
from toolshift.runs.locks import exclusive

_FORMAT = 1


@dataclass(frozen=True, slots=True)
class ReplayStore:
    """Outcomes below ``root``, which is made when the first one is written."""

    root: Path

    def path(self, request: Request) -> Path:
        """Where the outcome of a request lies or would lie."""
        return self.root / folder_name(request.model) / request.key[:2] / f"{request.key}.json"

    def has_model(self, model: str) -> bool:
        """Whether anything is recorded of a model."""
        return next((self.root / folder_name(model)).glob("??/*.json"), None) is not None

    def get(self, request: Request) -> Outcome | None:
        """The recorded outcome, or None.

        Raises:
            StoreError: if the file is damaged or answers another request.
        """
        path = self.path(request)
        if not path.is_file():
            return None
        try:
            content = read_json(path)
            if (content["format"], content["key"]) != (_FORMAT, request.key):
                raise ValueError(f"it holds key {str(content['key'])[:16]}, format {content['format']}")
            return _outcome(content["outcome"])
        except (ValueError, KeyError, TypeError) as error:
            raise StoreError(f"recorded answer {path} is damaged ({error}); delete this file and run again") from error

    def put(self, request: Request, outcome: Outcome) -> Outcome:
        """Record an outcome and return what now stands there: the first final outcome wins, so that writers agree."""
        path = self.path(request)
        with exclusive(self.root / ".lock"):
            before = self.get(request)
            if before is not None and is_final(before):
                return before
            content = {
                "format": _FORMAT,
                "key": request.key,
                "model": request.model,
                "prompt_sha256": request.prompt_hash,
                "parameters": dict(request.parameters),
                "messages": request.messages,
                "outcome": _plain(outcome),
                "recorded": datetime.now(UTC).isoformat(timespec="seconds"),
            }
            write_json(path, content)
        return outcome


def is_final(outcome: Outcome) -> bool:
    """Whether asking again is pointless: an answer, or a reason that lies in the request."""
    return isinstance(outcome, Answer) or outcome.reason not in TRANSIENT


def _plain(outcome: Outcome) -> dict[str, Any]:
    kind = "answer" if isinstance(outcome, Answer) else "invalid"
    return {"kind": kind, **asdict(outcome)}


def _outcome(content: dict[str, Any]) -> Outcome:
    usage = Usage(**content["usage"])
    if content["kind"] == "answer":
        return Answer(text=str(content["text"]), usage=usage, served_by=str(content["served_by"]))
    if content["kind"] != "invalid" or content["reason"] not in REASONS:
        raise ValueError(f"kind {content['kind']!r}, reason {content.get('reason')!r}")
    return Invalid(reason=content["reason"], detail=str(content["detail"]), usage=usage)

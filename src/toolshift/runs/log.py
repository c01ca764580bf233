"""The log of a command as JSON lines, beside the plain lines on the terminal.

Each process writes ``outputs/logs/<start>_<script>_<process>.jsonl``: one object a line with ``time``, ``level``,
``logger``, ``message``, and where known ``run``, ``model``, ``target``, ``seed`` (`about`), ``rank``, ``job`` and
``exception``. A line is handed to the system when it is written, so it outlives a process that is killed afterwards.
Logs are no results: nothing reads them, and a log that cannot be written fails nothing.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from pathlib import Path
from typing import IO

FOLDER = "logs"
# Lines that were already shown to the person as they are; the log keeps a copy.
CONSOLE = "toolshift.console"

_ABOUT: ContextVar[Mapping[str, object]] = ContextVar("toolshift_log_about")


@contextmanager
def about(**known: object) -> Iterator[None]:
    """Add fields, for example ``run``, ``target``, ``seed``, to every line that is logged inside the block."""
    token = _ABOUT.set({**_ABOUT.get({}), **known})
    try:
        yield
    finally:
        _ABOUT.reset(token)


class JsonLine(logging.Formatter):
    """One JSON object per record; ``always``: fields of every line."""

    def __init__(self, always: Mapping[str, object]) -> None:
        super().__init__()
        self.always = dict(always)

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line without a line end."""
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created).astimezone().isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **self.always,
            **_ABOUT.get({}),
        }
        if record.exc_info and record.exc_info[1] is not None:
            line["exception"] = "".join(traceback.format_exception(record.exc_info[1]))
        return json.dumps(line, ensure_ascii=False, default=str)


class JsonLog(logging.StreamHandler[IO[str]]):
    """Appends JSON lines to a file. A line that cannot be written ends the log with one warning, not the command."""

    def __init__(self, path: Path, *, always: Mapping[str, object]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Half a surrogate pair from a broken raw text must not cost a line.
        super().__init__(path.open("a", encoding="utf-8", errors="backslashreplace", newline="\n"))
        self.path = path
        self.setFormatter(JsonLine(always))

    def handleError(self, record: logging.LogRecord) -> None:
        """Called by ``emit`` inside its ``except``."""
        _warn(self.path, sys.exception())
        logging.getLogger("toolshift").removeHandler(self)

    def close(self) -> None:
        """Close the file; a full disk may refuse even that."""
        try:
            self.stream.close()
        except OSError as error:
            _warn(self.path, error)
        super().close()


@contextmanager
def command_log(outputs: Path, *, command: str, job: int | None = None) -> Iterator[None]:
    """Write what the package logs inside the block, and how the block ended, to a file below ``outputs/logs``."""
    logger = logging.getLogger("toolshift")
    logger.setLevel(logging.INFO)
    rank = os.environ.get("RANK", "")
    always = {**({"rank": int(rank)} if rank.isdecimal() else {}), **({} if job is None else {"job": job})}
    path = outputs / FOLDER / _file_name(command, always)
    try:
        handler = JsonLog(path, always=always)
    except OSError as error:
        _warn(path, error)
        yield
        return
    logger.addHandler(handler)
    console, start = logging.getLogger(CONSOLE), time.monotonic()
    try:
        console.info("started: %s", command)
        yield
        console.info("ended after %.1f s", time.monotonic() - start)
    except BaseException as error:
        console.error("ended after %.1f s by %s", time.monotonic() - start, type(error).__name__, exc_info=error)
        raise
    finally:
        logger.removeHandler(handler)
        handler.close()


def _file_name(command: str, always: Mapping[str, object]) -> str:
    scripts = re.findall(r"(\w+)\.py\b", command)
    parts = [time.strftime("%Y-%m-%d_%H-%M-%S"), scripts[0] if scripts else "command", str(os.getpid())]
    return "_".join([*parts, *(f"{key}{value}" for key, value in always.items())]) + ".jsonl"


def _warn(path: Path, error: BaseException | None) -> None:
    print(f"warning: no log in {path} ({error}); results are not affected", file=sys.stderr, flush=True)

"""Progress: a live bar on a terminal, plain lines in a log."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterable, Iterator, Sized
from typing import TypeVar

T = TypeVar("T")
log = logging.getLogger("toolshift")


def track(items: Iterable[T], *, what: str, every_s: float = 20.0) -> Iterator[T]:
    """Yield ``items`` and say how far it is: tqdm on a terminal, otherwise a log line every ``every_s`` seconds."""
    total = len(items) if isinstance(items, Sized) else None
    if sys.stderr.isatty():
        from tqdm import tqdm

        yield from tqdm(items, desc=what, total=total, leave=False)
        return
    start = last = time.monotonic()
    for done, item in enumerate(items):
        now = time.monotonic()
        if done and now - last >= every_s:
            rate = done / (now - start)
            eta = f", {(total - done) / rate:.0f} s left" if total else ""
            log.info("%s: %d%s done, %.1f/s%s", what, done, f" of {total}" if total else "", rate, eta)
            last = now
        yield item

"""Locks that end with the process that holds them (flock), so that a killed process never blocks another one."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def exclusive(path: Path, *, wait: bool = True, writable: bool = True) -> Iterator[None]:
    """Hold the lock file ``path``, which is created where it is missing and stays there.

    wait: until another process gives it up; otherwise only try. writable: whether the folder must be; otherwise the
    block runs without the lock where it cannot be made, since nobody can write there.

    Raises:
        BlockingIOError: if another process holds it and ``wait`` is false.
        OSError: if the lock file cannot be made.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        stream = path.open("a+")
    except OSError:
        if writable:
            raise
        yield
        return
    with stream:
        fcntl.flock(stream, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield

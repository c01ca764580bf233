"""The processes of one launch: who they are, and how they share work through files.

``torchrun --nproc_per_node=N`` starts N processes that differ in ``RANK`` alone. Rank 0 is the writer. It opens a
folder below ``outputs/.ranks`` that belongs to this launch; in it

- a *note*, ``<name>.json``, says something once: that a variant is ready, how a unit of work ended, that all is over;
- a *claim*, ``<name>.claim``, is held by an advisory lock (flock) of the process that works on it.

The kernel drops a lock with the process that held it, so a claim can never outlive its owner: a unit whose process was
killed is simply free again, for another process of this launch or for the next one. No collective operation takes part,
hence nothing waits for a process that is gone. Processes of several machines are refused: a lock ends at its machine.
"""

from __future__ import annotations

import fcntl
import itertools
import logging
import os
import shutil
import time
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Literal

from toolshift.runs.files import read_json, stable_hash, write_json

log = logging.getLogger("toolshift")

Claim = Literal["mine", "busy", "settled"]
FOLDER = ".ranks"
POLL_S = 0.05
# How long the writer waits for the others to leave before it leaves their folder to the next launch.
LEAVE_S = 60.0
_END, _WRITER = "end", "writer.claim"
_JOBS = itertools.count()  # jobs of a sweep follow one another in every process alike


class RankError(RuntimeError):
    """The processes of a launch cannot work together."""

    user_facing = True


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Which of how many processes this one is. local_rank: its number on its machine, which picks its device."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0

    @staticmethod
    def of(environment: Mapping[str, str]) -> World:
        """Read what torchrun sets; one process where nothing is set.

        Raises:
            RankError: if the variables contradict each other or name more than one machine.
        """
        names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
        given = {name: environment[name] for name in names if environment.get(name)}
        if not {"RANK", "WORLD_SIZE"} & set(given):
            return World()
        try:
            rank, size = int(given["RANK"]), int(given["WORLD_SIZE"])
            local, here = int(given.get("LOCAL_RANK", rank)), int(given.get("LOCAL_WORLD_SIZE", size))
        except (KeyError, ValueError) as error:
            raise RankError(f"expected RANK and WORLD_SIZE as whole numbers, both or neither, got {given}") from error
        if not 0 <= rank < size or local < 0:
            raise RankError(f"expected 0 <= RANK < WORLD_SIZE, got {given}")
        if here != size:
            raise RankError(
                f"{size} processes, {here} of them on this machine: use torchrun on one machine (--nnodes=1)"
            )
        return World(rank=rank, size=size, local_rank=local)


@dataclass(frozen=True, kw_only=True)
class Crew:
    """The processes of one launch as one of them sees it. A process alone keeps its notes in memory."""

    world: World = field(default_factory=World)
    folder: Path | None = None
    _notes: MutableMapping[str, Mapping[str, Any]] = field(default_factory=dict, repr=False)

    @property
    def is_writer(self) -> bool:
        """Whether this process writes everything that is not a unit's own file."""
        return self.world.rank == 0

    @property
    def is_over(self) -> bool:
        """Whether the writer has ended the launch."""
        return self.read(_END) is not None

    def post(self, name: str, content: Mapping[str, Any]) -> None:
        """Leave a note. A unit of work is settled by a note of its name."""
        if self.folder is None:
            self._notes[name] = content
        else:
            write_json(self.folder / f"{name}.json", content)

    def read(self, name: str) -> Mapping[str, Any] | None:
        """A note, or None where it was not left yet."""
        if self.folder is None:
            return self._notes.get(name)
        try:
            return read_json(self.folder / f"{name}.json")
        except FileNotFoundError:
            return None

    def wait(self, name: str) -> Mapping[str, Any] | None:
        """Wait for a note; None if the launch ended without it.

        Raises:
            RankError: if the writer is gone and has not ended the launch.
        """
        while (found := self.read(name)) is None:
            gone = self._writer_is_gone()  # before the look at the end: it may end and go in between
            if self.is_over:
                return None
            if gone:
                raise RankError(f"rank {self.world.rank}: rank 0 is gone; the same command continues where it stopped")
            time.sleep(POLL_S)
        return found

    @contextmanager
    def claim(self, name: str) -> Iterator[Claim]:
        """Take a unit of work: ``mine`` for as long as the block lasts, ``busy`` in another process, or ``settled``.

        A block that ends without posting the unit's note gives the unit back.
        """
        if self.read(name) is not None:
            yield "settled"
            return
        if self.folder is None:
            yield "mine"
            return
        path = self.folder / f"{name}.claim"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a+") as stream:
            if not _locked(stream):
                yield "busy"
            else:  # its former owner may have settled it before the lock came free
                yield "mine" if self.read(name) is None else "settled"

    def pause(self) -> None:
        """Wait a moment for what other processes hold."""
        time.sleep(POLL_S)

    def _writer_is_gone(self) -> bool:
        if self.folder is None:
            return False
        try:
            with (self.folder / _WRITER).open("a+" if self.is_writer else "r") as stream:
                return _locked(stream, shared=True)
        except FileNotFoundError:
            return False  # it has not come yet


@contextmanager
def join(outputs: Path, *, environment: Mapping[str, str] | None = None) -> Iterator[Crew]:
    """Take part in the launch that this process belongs to; ``outputs``: folder that all its processes share.

    Raises:
        RankError: see `World.of`.
    """
    environment = os.environ if environment is None else environment
    world = World.of(environment)
    if world.size == 1:
        yield Crew(world=world)
        return
    folder = outputs / FOLDER / _launch_id(environment)
    crew = Crew(world=world, folder=folder)
    if crew.is_writer:
        with _opened(folder):
            yield from _lead(crew)
    else:
        yield crew
        crew.post(f"left-{world.rank}", {})


def _lead(crew: Crew) -> Iterator[Crew]:
    try:
        yield crew
    finally:
        crew.post(_END, {})
    # Only after a launch that went well: otherwise some may never come, and the next launch clears the folder.
    _await_leaving(crew)


def _await_leaving(crew: Crew) -> None:
    """Remove the folder once nobody needs it any more; a process may still be starting up."""
    deadline = time.monotonic() + LEAVE_S
    waiting = list(range(1, crew.world.size))
    while waiting and time.monotonic() < deadline:
        waiting = [rank for rank in waiting if crew.read(f"left-{rank}") is None]
        time.sleep(POLL_S if waiting else 0)
    if not waiting and crew.folder is not None:
        _remove(crew.folder)


@contextmanager
def _opened(folder: Path) -> Iterator[None]:
    """Make the folder of a launch and hold it; folders whose writer is gone are cleared away first."""
    for old in sorted(folder.parent.glob(f"*/{_WRITER}")):
        with old.open("a+") as stream:
            if _locked(stream):
                shutil.rmtree(old.parent, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    hidden = folder / f".{_WRITER}.tmp"
    with hidden.open("a+") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        hidden.replace(folder / _WRITER)  # locked before it can be seen: who finds it free knows that its owner is gone
        yield


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    try:
        folder.parent.rmdir()
    except OSError:
        log.debug("%s is in use by another launch", folder.parent)


def _locked(stream: IO[str], *, shared: bool = False) -> bool:
    try:
        fcntl.flock(stream, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _launch_id(environment: Mapping[str, str]) -> str:
    """Equal in all processes of a launch and in no other: their parent, its start, the restart, the job of a sweep."""
    parent = os.getppid()
    named = ("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "MASTER_PORT")
    return stable_hash([parent, _started(parent), *(environment.get(n, "") for n in named), next(_JOBS)])[:16]


def _started(pid: int) -> str:
    """When a process started, in clock ticks since boot; empty where the system does not tell."""
    try:
        # Fields after the name, which is in parentheses and may hold anything; the start is field 22 of the line.
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def adapt(world: World, *, device: str, environment: MutableMapping[str, str] | None = None) -> None:
    """Give this process its share of the machine, before a numerical library starts: a device, and threads.

    With ``cuda``, process i sees the i-th visible device alone, so that "cuda" means its own one. Threads are capped at
    cores / processes where ``OMP_NUM_THREADS`` does not say otherwise (torchrun sets it to 1).

    Raises:
        RankError: if fewer devices are visible than there are processes.
    """
    environment = os.environ if environment is None else environment
    if world.size == 1:
        return
    if device == "cuda":
        environment["CUDA_VISIBLE_DEVICES"] = _device_of(world, environment.get("CUDA_VISIBLE_DEVICES", ""))
    threads = environment.setdefault("OMP_NUM_THREADS", str(max((os.cpu_count() or 1) // world.size, 1)))
    if threads.isdecimal() and int(threads) > 0:
        from threadpoolctl import threadpool_limits

        threadpool_limits(int(threads))  # libraries that were loaded before the variable was set


def _device_of(world: World, visible: str) -> str:
    devices = [name.strip() for name in visible.split(",") if name.strip()]
    if devices and world.local_rank >= len(devices):
        raise RankError(
            f"{world.size} processes but CUDA_VISIBLE_DEVICES={visible}: start as many as there are devices"
        )
    return devices[world.local_rank] if devices else str(world.local_rank)

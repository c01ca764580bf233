"""Units of work, one run on one target with all its seeds, shared out among the processes of a launch.

Every process goes over all units and takes those that nobody has; which one computes a unit shows in no result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass

from toolshift.runs.progress import track
from toolshift.runs.ranks import Crew


class UnitFailed(RuntimeError):
    """A unit failed in another process; the message is the exception there."""

    user_facing = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """run: name of the run's folder. target: row of the target in the fold table."""

    run: str
    target: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a unit ended. rank: the process that had it. reused: whether scores were read back. error: empty if none."""

    rank: int
    reused: bool = False
    error: str = ""
    trace: str = ""


@dataclass(frozen=True, kw_only=True)
class Units:
    """The units of one variant.

    name: of the variant within its launch. targets: rows, in order. stop: whether one failure ends all runs, not only
    its own.
    """

    crew: Crew
    name: str
    runs: Sequence[str]
    targets: Sequence[int]
    stop: bool = False

    def __iter__(self) -> Iterator[Unit]:
        """Targets slowest, so that what the runs of a target share is made once."""
        return (Unit(run=run, target=target) for target in self.targets for run in self.runs)

    def work(self, attempt: Callable[[Unit], Outcome], *, what: str) -> None:
        """Attempt what nobody has until every unit is settled.

        A unit whose process is killed comes free and is taken by whoever is still there. Units of a run that has failed
        are left alone. Each process starts at a target of its own and meets the others' units when its share is done.
        """
        ordered, world = list(self), self.crew.world
        start = len(self.targets) * world.rank // world.size * len(self.runs)
        waiting = ordered[start:] + ordered[:start]
        while waiting and not self.crew.is_over:
            shown = track(waiting, what=what) if self.crew.is_writer and len(waiting) == len(ordered) else waiting
            waiting = [unit for unit in shown if not self._visit(unit, attempt)]
            if waiting:
                self.crew.pause()

    def outcome(self, unit: Unit) -> Outcome | None:
        """How a unit ended; None for units that were left alone after a failure."""
        note = self.crew.read(self._note(unit))
        return None if note is None else Outcome(**note)

    def shares(self) -> list[int]:
        """Settled units per process."""
        count = Counter(found.rank for unit in self if (found := self.outcome(unit)) is not None)
        return [count[rank] for rank in range(self.crew.world.size)]

    def _visit(self, unit: Unit, attempt: Callable[[Unit], Outcome]) -> bool:
        """Whether this process need not look at the unit again."""
        if self.crew.read(self._alarm(unit)) is not None:
            return True
        with self.crew.claim(self._note(unit)) as claim:
            if claim == "mine":
                outcome = attempt(unit)
                if outcome.error:
                    self.crew.post(self._alarm(unit), {})
                self.crew.post(self._note(unit), asdict(outcome))
            return claim != "busy"

    def _note(self, unit: Unit) -> str:
        return f"{self.name}/{unit.run}-{unit.target}"

    def _alarm(self, unit: Unit) -> str:
        return f"{self.name}/failed" if self.stop else f"{self.name}/failed-{unit.run}"

"""Units shared out among processes: each is done once, in any order, and a failure stops its run alone."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

from toolshift.experiment.run import ActiveRun, _collect
from toolshift.experiment.units import Outcome, Unit, UnitFailed, Units
from toolshift.runs.ranks import Crew, World

RUNS, TARGETS = ("a", "b"), (0, 3, 4, 7)


def units(crew: Crew, *, stop: bool = False) -> Units:
    return Units(crew=crew, name="variant-0", runs=RUNS, targets=TARGETS, stop=stop)


def test_one_process_goes_target_by_target() -> None:
    mine, done = units(Crew()), list[tuple[int, str]]()

    def attempt(unit: Unit) -> Outcome:
        done.append((unit.target, unit.run))
        return Outcome(rank=0, reused=unit.target == 3)

    mine.work(attempt, what="x")
    assert done == [(t, r) for t in TARGETS for r in RUNS]
    assert mine.shares() == [8]
    assert [mine.outcome(u) == Outcome(rank=0, reused=u.target == 3) for u in mine] == [True] * 8
    mine.work(lambda _: pytest.fail("a settled unit was attempted"), what="x")


@pytest.mark.parametrize("size", [2, 3])
def test_every_unit_is_done_once_by_somebody(tmp_path: Path, size: int) -> None:
    done: dict[Unit, list[int]] = {}
    first: dict[int, Unit] = {}
    meet = threading.Barrier(size)

    def process(rank: int) -> None:
        def attempt(unit: Unit) -> Outcome:
            if rank not in first:
                first[rank] = unit
                meet.wait(timeout=20)
            done.setdefault(unit, []).append(rank)
            return Outcome(rank=rank)

        units(Crew(world=World(rank=rank, size=size), folder=tmp_path)).work(attempt, what="x")

    threads = [threading.Thread(target=process, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    every = units(Crew(world=World(size=size), folder=tmp_path))
    assert {unit: [r] for unit in every for r in done[unit]} == done
    assert set(done) == set(every)
    assert [first[r].target for r in range(size)] == [TARGETS[len(TARGETS) * r // size] for r in range(size)]
    assert sum(every.shares()) == 8
    assert min(every.shares()) > 0


@pytest.mark.parametrize(("stop", "expected"), [(False, "ababbb"), (True, "aba")])
def test_a_failure_leaves_the_other_units_of_its_run_alone(stop: bool, expected: str) -> None:
    mine, done = units(Crew(), stop=stop), []

    def attempt(unit: Unit) -> Outcome:
        done.append(unit.run)
        failing = unit == Unit(run="a", target=3)
        return Outcome(rank=0, error="ValueError: no" if failing else "", trace="...")

    mine.work(attempt, what="x")
    assert "".join(done) == expected
    failed = mine.outcome(Unit(run="a", target=3))
    assert failed is not None
    assert failed.error == "ValueError: no"
    assert mine.outcome(Unit(run="a", target=4)) is None


def test_a_unit_that_raises_is_given_back() -> None:
    mine = units(Crew())

    def attempt(unit: Unit) -> Outcome:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        mine.work(attempt, what="x")
    mine.work(lambda _: Outcome(rank=0), what="x")
    assert mine.shares() == [8]


def test_nothing_is_started_after_the_launch_has_ended(tmp_path: Path) -> None:
    crew = Crew(world=World(rank=1, size=2), folder=tmp_path)
    crew.post("end", {})
    units(crew).work(lambda _: pytest.fail("attempted"), what="x")


@pytest.mark.parametrize("on_error", ["continue", "stop"])
def test_the_writer_records_what_failed_elsewhere(on_error: str) -> None:
    failures: list[tuple[str, str]] = []
    folder = SimpleNamespace(path=Path("run"), fail=lambda error, *, trace: failures.append((str(error), trace)))
    settings = SimpleNamespace(runtime=SimpleNamespace(on_error=on_error))
    plan = SimpleNamespace(folder=folder, model=SimpleNamespace(name="m"), settings=settings)
    run = ActiveRun(plan=plan, scores={})  # type: ignore[arg-type]
    place = SimpleNamespace(source=SimpleNamespace(target="T"))

    def collect(outcome: Outcome | None) -> None:
        _collect(run, outcome, place, board=None, workspace=None)  # type: ignore[arg-type]

    for nothing in (None, Outcome(rank=0), Outcome(rank=0, error="recorded when it happened")):
        collect(nothing)
    assert not failures
    with pytest.raises(UnitFailed) if on_error == "stop" else nullcontext():
        collect(Outcome(rank=1, error="ValueError: no", trace="where"))
    assert failures == [("ValueError: no", "where")]
    assert isinstance(run.error, UnitFailed)
    collect(Outcome(rank=1, error="ValueError: another", trace=""))
    assert len(failures) == 1

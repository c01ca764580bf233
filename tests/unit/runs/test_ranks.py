"""Who a process is, and how processes claim work: claims die with their owner, notes say something once."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from toolshift.runs import ranks
from toolshift.runs.ranks import Crew, RankError, World, adapt, join

TWO = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "MASTER_PORT": "29500"}
# Another process: takes a claim (or opens a launch) and keeps it until its input ends.
HOLDER = """
import sys
from pathlib import Path
from toolshift.runs import ranks
folder = Path(sys.argv[2])
block = ranks._opened(folder) if sys.argv[1] == "writer" else ranks.Crew(folder=folder).claim(sys.argv[1])
with block as state:
    print(state, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder() -> Iterator[object]:
    started: list[subprocess.Popen[str]] = []

    def start(what: str, folder: Path) -> tuple[subprocess.Popen[str], str]:
        src = Path(ranks.__file__).parents[2]
        process = subprocess.Popen(
            [sys.executable, "-c", HOLDER, what, str(folder)],
            env={"PYTHONPATH": str(src)}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        started.append(process)
        assert process.stdout is not None
        return process, process.stdout.readline().strip()

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_a_process_without_the_variables_is_alone() -> None:
    assert World.of({}) == World(rank=0, size=1, local_rank=0)
    assert World.of({"LOCAL_RANK": "3", "RANK": "", "WORLD_SIZE": ""}) == World()
    assert World.of(TWO) == World(rank=1, size=2, local_rank=1)
    assert World.of({"RANK": "1", "WORLD_SIZE": "4"}) == World(rank=1, size=4, local_rank=1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"WORLD_SIZE": ""}, "both or neither"),
        ({"RANK": "one"}, "whole numbers"),
        ({"RANK": "2"}, "0 <= RANK < WORLD_SIZE"),
        ({"RANK": "-1"}, "0 <= RANK < WORLD_SIZE"),
        ({"LOCAL_WORLD_SIZE": "1"}, "2 processes, 1 of them on this machine"),
    ],
)
def test_contradictions_are_refused(change: dict[str, str], message: str) -> None:
    with pytest.raises(RankError, match=message):
        World.of({**TWO, **change})


@pytest.mark.parametrize("shared", [False, True])
def test_a_unit_is_settled_by_its_note_and_given_back_without(tmp_path: Path, shared: bool) -> None:
    crew = Crew(folder=tmp_path if shared else None)
    with crew.claim("v/a") as state:
        assert state == "mine"
    with pytest.raises(ZeroDivisionError), crew.claim("v/a"):
        raise ZeroDivisionError
    with crew.claim("v/a") as state:
        assert state == "mine"
        crew.post("v/a", {"rank": 0})
    with crew.claim("v/a") as state:
        assert state == "settled"
    assert crew.read("v/a") == {"rank": 0}
    assert crew.read("v/b") is None


def test_a_claim_is_busy_while_its_owner_lives_and_free_when_it_is_killed(tmp_path: Path, holder: object) -> None:
    process, state = holder("v/a", tmp_path)  # type: ignore[operator]
    assert state == "mine"
    crew = Crew(folder=tmp_path)
    with crew.claim("v/a") as mine, crew.claim("v/b") as other:
        assert (mine, other) == ("busy", "mine")
    process.kill()
    process.wait()
    with crew.claim("v/a") as state:
        assert state == "mine"


def test_waiting_ends_with_the_note_or_with_the_launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    crew = Crew(world=World(rank=1, size=2), folder=tmp_path)
    thread = threading.Timer(0.2, lambda: crew.post("ready", {"x": 1}))
    thread.start()
    assert crew.wait("ready") == {"x": 1}
    thread.join()
    assert not crew.is_over
    crew.post("end", {})
    assert crew.is_over
    assert crew.wait("never") is None
    assert crew.wait("ready") == {"x": 1}


def test_waiting_for_a_writer_that_was_killed_is_an_error(tmp_path: Path, holder: object) -> None:
    folder = tmp_path / "launch"
    process, _ = holder("writer", folder)  # type: ignore[operator]
    crew = Crew(world=World(rank=1, size=2), folder=folder)
    assert not crew._writer_is_gone()
    process.kill()
    process.wait()
    with pytest.raises(RankError, match="rank 0 is gone"):
        crew.wait("ready")


def test_a_launch_clears_away_what_dead_ones_left_and_nothing_else(tmp_path: Path, holder: object) -> None:
    dead, alive, mine = (tmp_path / name for name in ("dead", "alive", "mine"))
    process, _ = holder("writer", dead)  # type: ignore[operator]
    process.kill()
    process.wait()
    holder("writer", alive)  # type: ignore[operator]
    with ranks._opened(mine):
        assert sorted(p.name for p in tmp_path.iterdir()) == ["alive", "mine"]


def test_joining_alone_touches_no_file(tmp_path: Path) -> None:
    with join(tmp_path, environment={}) as crew:
        assert crew.is_writer
        crew.post("a", {})
        assert crew.read("a") == {}
    assert not list(tmp_path.iterdir())


def test_the_writer_leaves_when_the_others_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks, "_launch_id", lambda _: "launch")
    seen: list[object] = []

    def second() -> None:
        with join(tmp_path, environment=TWO) as crew:
            seen.append(crew.wait("ready"))
            seen.append(crew.wait("more"))

    thread = threading.Thread(target=second)
    with join(tmp_path, environment={**TWO, "RANK": "0", "LOCAL_RANK": "0"}) as crew:
        thread.start()
        crew.post("ready", {"x": 1})
        while not seen:
            crew.pause()
    thread.join()
    assert seen == [{"x": 1}, None]
    assert not list(tmp_path.iterdir())


def test_a_writer_that_fails_ends_the_launch_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks, "_launch_id", lambda _: "launch")
    with pytest.raises(ZeroDivisionError), join(tmp_path, environment={**TWO, "RANK": "0", "LOCAL_RANK": "0"}):
        raise ZeroDivisionError
    assert json.loads((tmp_path / ".ranks/launch/end.json").read_text()) == {}


def test_every_job_of_a_sweep_is_a_launch_of_its_own() -> None:
    assert len({ranks._launch_id(TWO) for _ in range(5)}) == 5


@pytest.mark.parametrize(("visible", "expected"), [("", "1"), ("5,7", "7"), (" GPU-a , GPU-b ,GPU-c", "GPU-b")])
def test_a_process_sees_its_own_device_alone(visible: str, expected: str) -> None:
    environment = {"CUDA_VISIBLE_DEVICES": visible, "OMP_NUM_THREADS": "1"}
    adapt(World.of(TWO), device="cuda", environment=environment)
    assert environment["CUDA_VISIBLE_DEVICES"] == expected


def test_more_processes_than_devices_are_refused() -> None:
    with pytest.raises(RankError, match="start as many as there are devices"):
        adapt(World.of(TWO), device="cuda", environment={"CUDA_VISIBLE_DEVICES": "0"})


def test_threads_are_shared_out_unless_said_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[int] = []
    monkeypatch.setattr("threadpoolctl.threadpool_limits", limits.append)
    monkeypatch.setattr(ranks.os, "cpu_count", lambda: 9)
    environment: dict[str, str] = {}
    adapt(World.of(TWO), device="cpu", environment=environment)
    assert environment == {"OMP_NUM_THREADS": "4"}
    adapt(World.of(TWO), device="cpu", environment={"OMP_NUM_THREADS": "3"})
    assert limits == [4, 3]
    alone: dict[str, str] = {}
    adapt(World(), device="cuda", environment=alone)
    assert alone == {}

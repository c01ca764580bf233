"""Launches that want the same runs at the same time: one computes them, the others do what is free, then wait."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from toolshift.experiment import run as runs
from toolshift.runs.ledger import RunBusy, RunFolder


class Plan:
    """A planned run; variants are told apart by their first letter."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.settings = name, SimpleNamespace(name=name[0])
        self.folder, self.is_done = RunFolder(folder / name), False


@pytest.fixture
def executed(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The names of the runs of each call that executes some."""
    calls: list[list[str]] = []

    def execute_variant(plans: list[Plan], *_: Any, **__: Any) -> list[Plan]:
        calls.append([plan.name for plan in plans])
        for plan in plans:
            plan.is_done = True
        return []

    monkeypatch.setattr(runs, "_execute_variant", execute_variant)
    monkeypatch.setattr(runs, "_variant_key", lambda plan: plan.settings.name)
    return calls


@pytest.fixture
def beside(executed: list[list[str]]) -> Callable[..., None]:
    """``beside(plans, held, meanwhile)``: execute while the run ``held`` is held by somebody else, who calls
    ``meanwhile`` once the free runs are done, and leaves."""

    def run(plans: list[Plan], held: Plan, meanwhile: Callable[[], None]) -> None:
        worker = threading.Thread(target=lambda: runs.execute(plans, None, command="", wait=True))  # type: ignore[arg-type]
        with held.folder.lock():
            worker.start()
            worker.join(timeout=1)
            assert worker.is_alive(), "did not wait"
            meanwhile()
        worker.join(timeout=30)
        assert not worker.is_alive()

    return run


def test_what_is_free_is_done_first_and_what_the_other_did_is_not_repeated(
    tmp_path: Path, executed: list[list[str]], beside: Callable[..., None]
) -> None:
    plans = [Plan(name, tmp_path) for name in ("a-2", "a-1", "b-1")]

    def meanwhile() -> None:
        assert executed == [["a-1"], ["b-1"]]
        plans[0].is_done = True

    beside(plans, plans[0], meanwhile)
    assert executed == [["a-1"], ["b-1"]]


def test_what_the_other_left_undone_is_done(
    tmp_path: Path, executed: list[list[str]], beside: Callable[..., None]
) -> None:
    plans = [Plan(name, tmp_path) for name in ("a-2", "a-1", "a-3")]
    beside(plans, plans[1], lambda: None)
    assert executed == [["a-2", "a-3"], ["a-1"]]


def test_a_single_command_does_not_wait(tmp_path: Path, executed: list[list[str]]) -> None:
    plans = [Plan(name, tmp_path) for name in ("a-1", "a-2")]
    with plans[1].folder.lock(), pytest.raises(RunBusy, match="another process is working in"):
        runs.execute(plans, None, command="")  # type: ignore[arg-type, list-item]
    assert executed == []
    with plans[0].folder.lock():
        pass  # nothing is still held


def test_two_launches_in_opposite_order_end(tmp_path: Path, executed: list[list[str]]) -> None:
    names = [f"a-{i}" for i in range(6)]
    workers = []
    for order in (names, names[::-1]):
        plans = [Plan(name, tmp_path) for name in order]
        workers.append(threading.Thread(target=runs.execute, args=(plans, None), kwargs={"command": "", "wait": True}))
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(timeout=30)
    assert not any(worker.is_alive() for worker in workers)
    assert sorted({name for names_ in executed for name in names_}) == names

"""Progress: every item once, log lines at intervals, no bar outside a terminal."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator

import pytest

from toolshift.runs import progress
from toolshift.runs.progress import track


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """The project's logger does not propagate once a command has set it up."""
    logger = logging.getLogger("toolshift")
    before = logger.propagate
    logger.propagate = True
    with caplog.at_level(logging.INFO, "toolshift"):
        yield caplog
    logger.propagate = before


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every look at the clock takes a second."""
    ticks = iter(range(10_000))
    monkeypatch.setattr(progress.time, "monotonic", lambda: float(next(ticks)))


def test_items_pass_through_and_quick_loops_are_silent(log: pytest.LogCaptureFixture) -> None:
    assert list(track(range(5), what="x")) == [0, 1, 2, 3, 4]
    assert list(track(iter("ab"), what="x")) == ["a", "b"]
    assert list(track([], what="x")) == []
    assert log.messages == []


@pytest.mark.usefixtures("clock")
def test_lines_at_intervals(log: pytest.LogCaptureFixture) -> None:
    assert list(track(range(8), what="targets", every_s=3)) == list(range(8))
    # item i is reached at second i + 1
    assert log.messages == [
        "targets: 2 of 8 done, 0.7/s, 9 s left",
        "targets: 5 of 8 done, 0.8/s, 4 s left",
    ]


@pytest.mark.usefixtures("clock")
def test_no_time_left_without_a_length(log: pytest.LogCaptureFixture) -> None:
    list(track(iter(range(4)), what="rows", every_s=2))
    assert log.messages == ["rows: 1 done, 0.5/s", "rows: 3 done, 0.8/s"]


def test_a_terminal_gets_a_bar(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], log: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert list(track(range(3), what="targets", every_s=0)) == [0, 1, 2]
    assert "targets" in capsys.readouterr().err
    assert log.messages == []

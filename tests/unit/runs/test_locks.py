"""One holder at a time; a holder that is killed holds nothing."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from toolshift.runs import locks
from toolshift.runs.locks import exclusive

HOLDER = """
import sys
from pathlib import Path
from toolshift.runs.locks import exclusive
with exclusive(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path: Path) -> subprocess.Popen[str]:
    """Another process that holds ``tmp_path/x.lock`` until its input ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path / "x.lock")],
        env={"PYTHONPATH": str(Path(locks.__file__).parents[2])},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_a_held_lock_is_refused_or_waited_for(holder: subprocess.Popen[str], tmp_path: Path) -> None:
    with pytest.raises(BlockingIOError), exclusive(tmp_path / "x.lock", wait=False):
        pass
    order: list[str] = []

    def wait() -> None:
        with exclusive(tmp_path / "x.lock"):
            order.append("waiter")

    waiter = threading.Thread(target=wait)
    waiter.start()
    waiter.join(timeout=0.3)
    assert waiter.is_alive(), "did not wait"
    order.append("holder ends")
    holder.communicate("")
    waiter.join(timeout=30)
    assert order == ["holder ends", "waiter"]


def test_a_killed_holder_holds_nothing(holder: subprocess.Popen[str], tmp_path: Path) -> None:
    holder.kill()
    holder.communicate()
    with exclusive(tmp_path / "x.lock", wait=False):
        pass


def test_it_is_free_after_an_error_in_the_block(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), exclusive(tmp_path / "new" / "x.lock"):
        _ = 1 / 0
    with exclusive(tmp_path / "new" / "x.lock", wait=False):
        pass


def test_where_no_lock_file_can_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ran = False
    with pytest.raises(OSError), exclusive(tmp_path / "file" / "x.lock"):
        pass
    with exclusive(tmp_path / "file" / "x.lock", writable=False):
        ran = True
    assert ran

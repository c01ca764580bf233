"""Scripts with a config file of their own: what is refused and how a command ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from toolshift.settings.errors import ConfigError, UserError
from toolshift.settings.launch import INTERRUPTED
from toolshift.settings.single import command, overridden


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "toy.yaml").write_text("query: ???\ntop: 5\nplace: {out: null}\n")
    return tmp_path


KEYS = ("query", "top", "place.out")


def test_values_and_words(folder: Path) -> None:
    found = overridden("toy", ["top=7", "query=a, ${b} [c"], keys=KEYS, words=("query",), folder=folder)
    assert found.top == 7
    assert found.query == "a, ${b} [c"  # no list, no interpolation
    assert overridden("toy", ["query=null"], keys=KEYS, words=("query",), folder=folder).query is None


def test_every_problem_is_told_with_the_nearest_key(folder: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        overridden("toy", ["topp=7", "+top=1", "place=x"], keys=KEYS, refused={"place": "not here"}, folder=folder)
    first, second, third = refused.value.problems
    assert "did you mean 'top'" in first
    assert second == "+top=1: expected key=value"
    assert third == "place=x: not here"


def test_a_missing_value_is_told_where_nothing_else_is_wrong(folder: Path) -> None:
    with pytest.raises(ConfigError, match="query: a value must be given"):
        overridden("toy", [], keys=KEYS, required=("query",), folder=folder)


def test_how_a_command_ends(capsys: pytest.CaptureFixture[str]) -> None:
    def refused() -> int:
        raise ConfigError(["top: too large"])

    def stopped() -> int:
        raise KeyboardInterrupt

    def failed() -> int:
        raise UserError("no such file")

    def broken() -> int:
        raise ZeroDivisionError

    assert command("rank", [], lambda: 0) == 0
    assert command("rank", [], refused) == 2
    assert command("rank", [], stopped, interrupted="stopped here") == INTERRUPTED
    assert command("rank", [], failed, printable=str.upper) != 0
    errors = capsys.readouterr().err
    assert "configuration refused:\n  top: too large" in errors
    assert "stopped here" in errors
    assert "error: NO SUCH FILE" in errors
    with pytest.raises(ZeroDivisionError):
        command("rank", [], broken)
    assert command("rank", ["--help"], broken) == 0
    assert "tools:" in capsys.readouterr().out

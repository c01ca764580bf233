"""The command behind scripts/download_data.py: what it refuses, what it prints, and its exit status."""

from __future__ import annotations

import functools
import hashlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

from toolshift.data import sources as sources_module
from toolshift.data import transfer
from toolshift.data.sources import ExpectedFile, RemoteFile, Source
from toolshift.experiment import download as command
from toolshift.settings.errors import ConfigError

ROOT = Path(__file__).resolve().parents[3]
CLOSED = "http://127.0.0.1:1/"


def group(way: str, at: str, *files: RemoteFile, pattern: str = "*") -> ExpectedFile:
    return ExpectedFile(pattern=pattern, holds="rows", required=True, way=way, at=at, files=files)  # type: ignore[arg-type]


def toy(name: str, *groups: ExpectedFile) -> Source:
    return Source(
        dataset=name, title=name.title(), place="a place", revision="r1", licence="MIT", files=groups, steps=("do it",)
    )


@pytest.fixture
def releases(monkeypatch: pytest.MonkeyPatch) -> dict[str, Source]:
    """Two releases: files at a closed port, one of them with known hash and size; and one for a person."""
    known = RemoteFile(path="a.json", bytes=2_500_000, sha256=hashlib.sha256(b"a").hexdigest())
    web = toy("web", group("web", CLOSED, known, RemoteFile(path="b.json", bytes=None, sha256=None)))
    hand = toy("hand", group("hand", "a drive", pattern="tools/*.json"))
    made = {"hand": hand, "web": web}
    monkeypatch.setattr(sources_module, "sources", lambda: made)
    monkeypatch.setattr(command, "sources", lambda: made)
    monkeypatch.setattr(transfer, "Fetcher", functools.partial(transfer.Fetcher, attempts=1))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    return made


@pytest.mark.parametrize(
    ("overrides", "messages"),
    [
        (["dataset=bfcll"], ["did you mean 'bfcl'"]),
        (["datset=bfcl"], ["datset: no such key", "'dataset'"]),
        (["dataset=bfcl", "dryrun=true"], ["did you mean 'dry_run'"]),
        (["dataset=bfcl", "root=x", "data.rot=y"], ["root: no such key", "data.rot: no such key", "'data.root'"]),
        (["dataset=bfcl", "data=real"], ["data=real: files are always real ones here", "data.root=PATH"]),
        (["dataset=bfcl", "dry_run=maybe"], ["dry_run: expected true or false"]),
        (["dataset=bfcl", "data.root=3"], ["data.root: expected text"]),
        (["dataset=bfcl", "+data.root=x"], ["expected key=value"]),
        (["dataset=bfcl,all"], ["expected key=value"]),
        (["~dataset"], ["expected key=value"]),
        (["bfcl"], ["is not an override"]),
        (["dataset=[bfcl]"], ["dataset: expected text"]),
        ([], ["dataset: a value must be given", "bfcl"]),
    ],
)
def test_a_wrong_command_is_refused_with_the_nearest_name(overrides: list[str], messages: list[str]) -> None:
    with pytest.raises(ConfigError) as refused:
        command.load(overrides)
    for message in messages:
        assert message in str(refused.value)


def test_the_root_has_the_usual_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TOOLSHIFT_DATA", raising=False)
    assert command.load(["dataset=bfcl"]).data.root == "data/raw"
    monkeypatch.setenv("TOOLSHIFT_DATA", "/some/where")
    assert command.load(["dataset=bfcl"]).data.root == "/some/where"
    assert command.load(["dataset=all", "data.root='a b'", "dry_run=true"]).data.root == "a b"


def test_all_names_every_source_in_order() -> None:
    names = [source.dataset for source in command.load(["dataset=all"]).sources]
    assert names == sorted(sources_module.sources())
    assert [source.dataset for source in command.load(["dataset=bfcl"]).sources] == ["bfcl"]


def test_a_dry_run_says_what_and_writes_nothing(
    releases: dict[str, Source], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "root"
    assert command.main(["dataset=all", "dry_run=true", f"data.root={root}"]) == 0
    out = capsys.readouterr().out
    for part in ("a place", "r1", "MIT", str(root / "web"), "by hand", "a drive", "1. do it"):
        assert part in out
    assert "to fetch: 2 files, 2.5 MB and 1 of unknown size; nothing was written" in out
    assert list(tmp_path.iterdir()) == []


def test_failures_and_hand_work_are_listed_and_the_status_is_1(
    releases: dict[str, Source], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "web").mkdir()
    (tmp_path / "web" / "b.json").write_text("mine")
    assert command.main(["dataset=all", f"data.root={tmp_path}"]) == 1
    out = capsys.readouterr().out
    rows = {line.split()[0]: line.split()[1:] for line in out.splitlines() if re.match(r"(web|hand) +\d", line)}
    assert rows == {"hand": ["1", "0", "0", "0", "1"], "web": ["2", "0", "1", "1", "0"]}
    assert f"by hand: get {CLOSED}a.json, put it at {tmp_path / 'web' / 'a.json'}" in out
    assert f"get tools/*.json from a drive; expected as {tmp_path}/hand/tools/*.json" in out
    assert "not verified (no hash is recorded)" in out
    assert (tmp_path / "web" / "b.json").read_text() == "mine"


def test_many_files_that_failed_alike_share_an_entry(
    releases: dict[str, Source], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [RemoteFile(path=f"many/{i}.json", bytes=1, sha256=None) for i in range(9)]
    releases["web"] = toy("web", group("web", CLOSED, *files, pattern="many/*.json"))
    assert command.main(["dataset=web", f"data.root={tmp_path}"]) == 1
    out = capsys.readouterr().out
    # Two are tried, then the host is given up.
    assert f"get {CLOSED}many/0.json" in out
    assert f"get {CLOSED}many/1.json" in out
    assert "7 files many/*.json: not tried" in out
    assert f"the first of them: get {CLOSED}many/2.json, put it at {tmp_path / 'web' / 'many' / '2.json'}" in out
    assert "many/3.json" not in out


def test_hand_work_alone_is_no_failure(
    releases: dict[str, Source], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(["dataset=hand", f"data.root={tmp_path}"]) == 0
    assert "hand: by hand" in capsys.readouterr().out


def test_the_script_refuses_and_helps() -> None:
    def script(*arguments: str) -> subprocess.CompletedProcess[str]:
        call = [sys.executable, str(ROOT / "scripts" / "download_data.py"), *arguments]
        return subprocess.run(call, capture_output=True, text=True, check=False)

    refused = script("dataset=bfcl", "data.rooot=x")
    assert refused.returncode == 2
    assert refused.stderr.splitlines()[0] == "configuration refused:"
    assert "did you mean 'data.root'" in refused.stderr
    helped = script("--help")
    assert (helped.returncode, helped.stderr) == (0, "")
    assert "dry_run" in helped.stdout

"""Downloads from a server of our own, which cuts, refuses and lies on demand; and wheels made here."""

from __future__ import annotations

import gzip
import hashlib
import shutil
import threading
import zipfile
from collections import namedtuple
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from toolshift.data.download import Outcome, by_hand, download, survey
from toolshift.data.sources import ExpectedFile, RemoteFile, Source
from toolshift.data.transfer import DownloadError, Fetcher

ROWS = bytes(range(256)) * 40


@dataclass
class Fault:
    """One answer that is not the plain one. cut: bytes of the body sent before the connection ends."""

    status: int = 200
    cut: int | None = None
    retry_after: str = ""


@dataclass
class Site:
    """What the server holds and how it behaves; ``asked`` records (path, Range, If-Range) of every request."""

    files: dict[str, bytes] = field(default_factory=dict)
    faults: dict[str, list[Fault]] = field(default_factory=dict)
    ranges: bool = True
    kind: str = "text/plain"
    etag: Callable[[bytes], str] = lambda body: f'"{hashlib.sha256(body).hexdigest()[:8]}"'
    asked: list[tuple[str, str, str]] = field(default_factory=list)
    url: str = ""


class Handler(BaseHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        site = cast(Any, self.server).site
        asked, condition = self.headers.get("Range", ""), self.headers.get("If-Range", "")
        site.asked.append((self.path, asked, condition))
        queue = site.faults.get(self.path, [])
        fault = queue.pop(0) if queue else Fault()
        body = site.files.get(self.path)
        if fault.status != 200 or body is None:
            self.send_response(fault.status if fault.status != 200 else 404)
            if fault.retry_after:
                self.send_header("Retry-After", fault.retry_after)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self._send(body, site=site, asked=asked, condition=condition, cut=fault.cut)

    def _send(self, body: bytes, *, site: Site, asked: str, condition: str, cut: int | None) -> None:
        tag = site.etag(body)
        begin = int(asked.removeprefix("bytes=").removesuffix("-")) if asked and site.ranges else 0
        if condition and condition != tag:
            begin = 0
        if begin >= len(body) > 0:
            self.send_response(416)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_response(206 if begin else 200)
        self.send_header("Content-Type", site.kind)
        if begin:
            self.send_header("Content-Range", f"bytes {begin}-{len(body) - 1}/{len(body)}")
        if tag:
            self.send_header("ETag", tag)
        self.send_header("Content-Length", str(len(body) - begin))
        self.end_headers()
        self.wfile.write(body[begin:] if cut is None else body[begin : begin + cut])
        if cut is not None:
            self.close_connection = True


@pytest.fixture(scope="module")
def server() -> Iterator[ThreadingHTTPServer]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def site_of(server: ThreadingHTTPServer) -> Site:
    site = Site(url=f"http://127.0.0.1:{server.server_address[1]}/")
    cast(Any, server).site = site
    return site


@pytest.fixture
def site(server: ThreadingHTTPServer, monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    return site_of(server)


@pytest.fixture
def waits() -> list[float]:
    return []


@pytest.fixture
def fetcher(waits: list[float]) -> Fetcher:
    return Fetcher(attempts=3, sleep=waits.append)


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def source(at: str, files: Sequence[RemoteFile], *, way: str = "web", pattern: str = "*") -> Source:
    group = ExpectedFile(pattern=pattern, holds="rows", required=True, way=cast(Any, way), at=at, files=tuple(files))
    return Source(dataset="toy", title="Toy", place="here", revision="r1", licence="MIT", files=(group,), steps=("do",))


def remote(path: str, content: bytes | None) -> RemoteFile:
    known = content is not None
    return RemoteFile(path=path, bytes=len(content) if known else None, sha256=sha256(content) if known else None)


def results(outcomes: Sequence[Outcome]) -> dict[str, str]:
    return {o.item.file.path if o.item.file else o.item.group.pattern: o.result for o in outcomes}


def names(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


# One file


def test_a_file_is_fetched_whole_and_nothing_else_is_left(site: Site, fetcher: Fetcher, tmp_path: Path) -> None:
    site.files["/a%20b.json"] = ROWS
    digest = fetcher.fetch(site.url + "a%20b.json", tmp_path / "deep" / "a b.json", sha256=sha256(ROWS))
    assert digest == sha256(ROWS)
    assert (tmp_path / "deep" / "a b.json").read_bytes() == ROWS
    assert names(tmp_path) == ["deep/a b.json"]


def test_an_empty_file_is_a_file(site: Site, fetcher: Fetcher, tmp_path: Path) -> None:
    site.files["/empty"] = b""
    assert fetcher.fetch(site.url + "empty", tmp_path / "empty") == sha256(b"")
    assert (tmp_path / "empty").read_bytes() == b""


def test_a_cut_transfer_continues_where_it_ended(
    site: Site, fetcher: Fetcher, waits: list[float], tmp_path: Path
) -> None:
    site.files["/f"] = ROWS
    site.faults["/f"] = [Fault(cut=1000)]
    assert fetcher.fetch(site.url + "f", tmp_path / "f") == sha256(ROWS)
    tag = site.etag(ROWS)
    assert site.asked == [("/f", "", ""), ("/f", "bytes=1000-", tag)]
    assert waits == [1.0]
    assert names(tmp_path) == ["f"]


def test_a_later_command_continues(site: Site, tmp_path: Path) -> None:
    site.files["/f"] = ROWS
    site.faults["/f"] = [Fault(cut=1000)]
    with pytest.raises(DownloadError, match="1,000 bytes are kept"):
        Fetcher(attempts=1).fetch(site.url + "f", tmp_path / "f")
    assert not (tmp_path / "f").exists()
    Fetcher(attempts=1).fetch(site.url + "f", tmp_path / "f")
    assert (tmp_path / "f").read_bytes() == ROWS
    assert site.asked[1][1] == "bytes=1000-"


def test_two_states_of_a_file_are_never_joined(site: Site, tmp_path: Path) -> None:
    site.files["/f"] = ROWS
    site.faults["/f"] = [Fault(cut=1000)]
    with pytest.raises(DownloadError):
        Fetcher(attempts=1).fetch(site.url + "f", tmp_path / "f")
    site.files["/f"] = new = ROWS[::-1]
    assert Fetcher(attempts=1).fetch(site.url + "f", tmp_path / "f") == sha256(new)
    assert (tmp_path / "f").read_bytes() == new


@pytest.mark.parametrize("tag", ["", 'W/"weak"'])
def test_without_a_usable_tag_and_hash_the_transfer_starts_over(site: Site, tmp_path: Path, tag: str) -> None:
    site.etag = lambda body: tag
    site.files["/f"] = ROWS
    site.faults["/f"] = [Fault(cut=1000)]
    Fetcher(attempts=2, sleep=lambda s: None).fetch(site.url + "f", tmp_path / "f")
    assert [asked for _, asked, _ in site.asked] == ["", ""]
    assert (tmp_path / "f").read_bytes() == ROWS


def test_a_hash_makes_a_tagless_part_usable(site: Site, tmp_path: Path) -> None:
    site.etag = lambda body: ""
    site.files["/f"] = ROWS
    site.faults["/f"] = [Fault(cut=1000)]
    Fetcher(attempts=2, sleep=lambda s: None).fetch(site.url + "f", tmp_path / "f", sha256=sha256(ROWS))
    assert [asked for _, asked, _ in site.asked] == ["", "bytes=1000-"]
    assert (tmp_path / "f").read_bytes() == ROWS


def test_a_server_without_ranges_starts_over(site: Site, fetcher: Fetcher, tmp_path: Path) -> None:
    site.ranges = False
    site.files["/f"] = ROWS
    site.faults["/f"] = [Fault(cut=1000), Fault(cut=500)]
    assert fetcher.fetch(site.url + "f", tmp_path / "f", sha256=sha256(ROWS)) == sha256(ROWS)
    assert (tmp_path / "f").read_bytes() == ROWS


def test_a_foreign_part_is_found_by_the_hash_and_fetched_anew(site: Site, fetcher: Fetcher, tmp_path: Path) -> None:
    site.files["/f"] = ROWS
    (tmp_path / "f.part").write_bytes(b"something else")
    fetcher.fetch(site.url + "f", tmp_path / "f", sha256=sha256(ROWS))
    assert (tmp_path / "f").read_bytes() == ROWS
    assert [asked for _, asked, _ in site.asked] == ["bytes=14-", ""]


def test_a_part_longer_than_the_file_is_dropped(site: Site, fetcher: Fetcher, tmp_path: Path) -> None:
    site.files["/f"] = b"short"
    (tmp_path / "f.part").write_bytes(b"much longer than that")
    fetcher.fetch(site.url + "f", tmp_path / "f", sha256=sha256(b"short"))
    assert (tmp_path / "f").read_bytes() == b"short"


def test_a_whole_part_needs_no_request(site: Site, fetcher: Fetcher, tmp_path: Path) -> None:
    (tmp_path / "f.part").write_bytes(ROWS)
    fetcher.fetch(site.url + "f", tmp_path / "f", sha256=sha256(ROWS))
    assert names(tmp_path) == ["f"]
    assert site.asked == []


def test_wrong_content_is_deleted_and_said(site: Site, fetcher: Fetcher, tmp_path: Path) -> None:
    site.files["/f"] = ROWS
    (tmp_path / "f").write_bytes(b"old")
    with pytest.raises(DownloadError, match=f"wrong content, deleted.*{sha256(ROWS)}.*recorded is {sha256(b'x')}"):
        fetcher.fetch(site.url + "f", tmp_path / "f", sha256=sha256(b"x"))
    assert names(tmp_path) == ["f"]
    assert (tmp_path / "f").read_bytes() == b"old"
    assert len(site.asked) == 1


@pytest.mark.parametrize("status", [500, 503, 429])
def test_a_fault_of_the_server_is_tried_again(
    site: Site, fetcher: Fetcher, waits: list[float], tmp_path: Path, status: int
) -> None:
    site.files["/f"] = ROWS
    site.faults["/f"] = [Fault(status=status), Fault(status=status, retry_after="7")]
    fetcher.fetch(site.url + "f", tmp_path / "f")
    assert waits == [1.0, 7.0]
    assert (tmp_path / "f").read_bytes() == ROWS


@pytest.mark.parametrize("status", [404, 403, 410])
def test_a_refusal_is_not_tried_again(
    site: Site, fetcher: Fetcher, waits: list[float], tmp_path: Path, status: int
) -> None:
    site.faults["/f"] = [Fault(status=status)]
    with pytest.raises(DownloadError, match=f"HTTP {status}"):
        fetcher.fetch(site.url + "f", tmp_path / "f")
    assert (len(site.asked), waits, names(tmp_path)) == (1, [], [])


def test_a_host_that_stays_down_is_given_up(site: Site, waits: list[float], tmp_path: Path) -> None:
    fetcher = Fetcher(attempts=3, sleep=waits.append)
    site.faults["/f"] = [Fault(status=500) for _ in range(99)]
    for _ in range(2):
        with pytest.raises(DownloadError, match=r"HTTP 500.*3 attempts"):
            fetcher.fetch(site.url + "f", tmp_path / "f")
    with pytest.raises(DownloadError, match=r"not tried: 127\.0\.0\.1.*2 files before"):
        fetcher.fetch(site.url + "f", tmp_path / "f")
    assert len(site.asked) == 6
    assert waits == [1.0, 2.0] * 2


def test_one_success_clears_a_host(site: Site, tmp_path: Path) -> None:
    fetcher = Fetcher(attempts=1)
    site.files["/f"] = ROWS
    for _ in range(3):
        site.faults["/f"] = [Fault(status=500)]
        with pytest.raises(DownloadError, match="HTTP 500"):
            fetcher.fetch(site.url + "f", tmp_path / "f")
        fetcher.fetch(site.url + "f", tmp_path / "f")


def test_no_server_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with pytest.raises(DownloadError, match=r"127\.0\.0\.1:1: .*refused"):
        Fetcher(attempts=1).fetch("http://127.0.0.1:1/f", tmp_path / "f")


def test_a_login_page_is_not_a_file(site: Site, fetcher: Fetcher, tmp_path: Path) -> None:
    site.files["/f.json"], site.kind = b"<html>please log in</html>", "text/html; charset=utf-8"
    with pytest.raises(DownloadError, match="a web page, not the file"):
        fetcher.fetch(site.url + "f.json", tmp_path / "f.json")
    assert names(tmp_path) == []


def test_an_address_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match="InvalidSchema"):
        Fetcher(attempts=1).fetch("file:///etc/hostname", tmp_path / "f")


def test_a_folder_in_the_way_is_said(site: Site, fetcher: Fetcher, tmp_path: Path) -> None:
    site.files["/f"] = ROWS
    (tmp_path / "f" / "inner").mkdir(parents=True)
    with pytest.raises(DownloadError, match="cannot write"):
        fetcher.fetch(site.url + "f", tmp_path / "f")


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    body=st.binary(max_size=400),
    cuts=st.lists(st.integers(0, 300), max_size=4),
    ranges=st.booleans(),
    tag=st.sampled_from(['"strong"', 'W/"weak"', ""]),
    known=st.booleans(),
)
def test_any_sequence_of_cuts_gives_the_file(
    server: ThreadingHTTPServer, tmp_path: Path, body: bytes, cuts: list[int], ranges: bool, tag: str, known: bool
) -> None:
    site = site_of(server)
    site.files["/f"], site.ranges, site.etag = body, ranges, lambda _: tag
    site.faults["/f"] = [Fault(cut=cut) for cut in cuts]
    target = tmp_path / "f"
    Fetcher(attempts=6, sleep=lambda s: None).fetch(site.url + "f", target, sha256=sha256(body) if known else None)
    assert target.read_bytes() == body
    assert names(tmp_path) == ["f"]


# A dataset


def test_what_is_right_is_skipped_and_the_rest_fetched(site: Site, fetcher: Fetcher, tmp_path: Path) -> None:
    folder = tmp_path / "toy"
    folder.mkdir()
    contents = {name: name.encode() * 9 for name in ("plain", "packed", "wrong", "absent")}
    site.files |= {f"/{name}": body for name, body in contents.items()} | {"/unknown": b"u", "/kept": b"new"}
    (folder / "plain").write_bytes(contents["plain"])
    (folder / "packed.gz").write_bytes(gzip.compress(contents["packed"]))
    (folder / "wrong").write_bytes(b"an older state")
    (folder / "kept").write_bytes(b"mine")
    files = [remote(name, body) for name, body in contents.items()] + [remote("unknown", None), remote("kept", None)]
    outcomes = download(source(site.url, files), tmp_path, fetcher=fetcher)
    assert results(outcomes) == {
        "plain": "there",
        "packed": "there",
        "wrong": "fetched",
        "absent": "fetched",
        "unknown": "fetched",
        "kept": "there",
    }
    assert sorted(path for path, _, _ in site.asked) == ["/absent", "/unknown", "/wrong"]
    assert (folder / "wrong").read_bytes() == contents["wrong"]
    assert (folder / "kept").read_bytes() == b"mine"
    assert [o.sha256 for o in outcomes if o.sha256] == [sha256(b"u")]
    again = download(source(site.url, files), tmp_path, fetcher=fetcher)
    assert set(results(again).values()) == {"there"}
    assert len(site.asked) == 3


def test_a_failure_goes_on_with_the_next_file(site: Site, fetcher: Fetcher, tmp_path: Path) -> None:
    site.files |= {"/a": b"a", "/c": b"c"}
    files = [remote(name, name.encode()) for name in "abc"]
    outcomes = download(source(site.url, files), tmp_path, fetcher=fetcher)
    assert results(outcomes) == {"a": "fetched", "b": "failed", "c": "fetched"}
    (failed,) = [o for o in outcomes if o.result == "failed"]
    assert failed.detail == "HTTP 404 Not Found"
    assert by_hand(failed.item) == f"get {site.url}b, put it at {tmp_path / 'toy' / 'b'}"


def test_a_broken_gz_is_fetched_again(site: Site, fetcher: Fetcher, tmp_path: Path) -> None:
    folder = tmp_path / "toy"
    folder.mkdir()
    (folder / "a.gz").write_bytes(gzip.compress(ROWS)[:-20])
    site.files["/a"] = ROWS
    files = [remote("a", ROWS)]
    assert survey(source(site.url, files), tmp_path)[0].state == "differs"
    assert results(download(source(site.url, files), tmp_path, fetcher=fetcher)) == {"a": "fetched"}
    assert survey(source(site.url, files), tmp_path)[0].state == "verified"


def test_without_room_nothing_is_fetched(
    site: Site, fetcher: Fetcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(1, 1, 64 << 20))
    site.files["/a"] = b"a"
    (outcome,) = download(source(site.url, [remote("a", b"a")]), tmp_path, fetcher=fetcher)
    assert outcome.result == "failed"
    assert "MiB are free" in outcome.detail
    assert (site.asked, names(tmp_path)) == ([], [])


def test_what_only_a_person_can_fetch(fetcher: Fetcher, tmp_path: Path) -> None:
    hand = source("a drive", [], way="hand", pattern="tools/<Kind>/*.json")
    (outcome,) = download(hand, tmp_path, fetcher=fetcher)
    assert outcome.result == "by hand"
    assert (
        by_hand(outcome.item) == f"get tools/<Kind>/*.json from a drive; expected as {tmp_path}/toy/tools/<Kind>/*.json"
    )
    assert names(tmp_path) == []
    (tmp_path / "toy" / "tools" / "x").mkdir(parents=True)
    (tmp_path / "toy" / "tools" / "x" / "y.json").touch()
    assert [o.result for o in download(hand, tmp_path, fetcher=fetcher)] == ["there"]


# A package

MEMBERS = {"pack/data/a.json": b"[1]", "pack/data/b.json": b"[2]"}


def make_wheel(folder: Path, members: dict[str, bytes]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "toy_pack-1.0-py3-none-any.whl"
    info = {
        "toy_pack-1.0.dist-info/METADATA": b"Metadata-Version: 2.1\nName: toy-pack\nVersion: 1.0\n",
        "toy_pack-1.0.dist-info/WHEEL": b"Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "toy_pack-1.0.dist-info/RECORD": b"",
    }
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in (members | info).items():
            archive.writestr(name, content)
    return path


def package(at: str = "toy-pack==1.0") -> Source:
    return source(at, [remote(name, body) for name, body in MEMBERS.items()], way="package")


def test_a_wheel_laid_there_by_hand_is_unpacked(fetcher: Fetcher, tmp_path: Path) -> None:
    evil = {"../outside": b"x", "/absolute": b"x", "pack/data/more.json": b"x"}
    wheel = make_wheel(tmp_path / "toy", MEMBERS | evil)
    assert set(results(download(package(), tmp_path, fetcher=fetcher)).values()) == {"fetched"}
    assert names(tmp_path) == ["toy/pack/data/a.json", "toy/pack/data/b.json", f"toy/{wheel.name}"]
    assert (tmp_path / "toy/pack/data/b.json").read_bytes() == b"[2]"
    assert set(results(download(package(), tmp_path, fetcher=fetcher)).values()) == {"there"}


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"[3]", "wrong content: sha256"), (b"[3]" * 10**6, "more than the recorded 3 bytes"), (None, "not in the")],
)
def test_a_member_that_is_not_the_recorded_one(
    fetcher: Fetcher, tmp_path: Path, content: bytes | None, message: str
) -> None:
    members = dict(MEMBERS)
    del members["pack/data/b.json"]
    make_wheel(tmp_path / "toy", members | ({} if content is None else {"pack/data/b.json": content}))
    outcomes = download(package(), tmp_path, fetcher=fetcher)
    assert results(outcomes) == {"pack/data/a.json": "fetched", "pack/data/b.json": "failed"}
    assert message in outcomes[1].detail
    assert not (tmp_path / "toy/pack/data/b.json").exists()


def test_a_truncated_wheel_fails_for_all_its_members(fetcher: Fetcher, tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path / "toy", MEMBERS)
    wheel.write_bytes(wheel.read_bytes()[:200])
    outcomes = download(package(), tmp_path, fetcher=fetcher)
    assert set(results(outcomes).values()) == {"failed"}
    assert "toy-pack==1.0" in by_hand(outcomes[0].item)


@pytest.fixture
def offline_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, value in {"PIP_CONFIG_FILE": "/dev/null", "PIP_NO_INDEX": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    return make_wheel(tmp_path / "index", MEMBERS)


def test_pip_fetches_the_wheel(fetcher: Fetcher, tmp_path: Path, offline_index: Path) -> None:
    at = f"toy-pack==1.0 --hash=sha256:{sha256(offline_index.read_bytes())}"
    outcomes = download(package(at), tmp_path / "root", fetcher=fetcher)
    assert set(results(outcomes).values()) == {"fetched"}, outcomes[0].detail
    assert names(tmp_path / "root") == ["toy/pack/data/a.json", "toy/pack/data/b.json"]


def test_pip_refuses_another_wheel(fetcher: Fetcher, tmp_path: Path, offline_index: Path) -> None:
    outcomes = download(package(f"toy-pack==1.0 --hash=sha256:{'0' * 64}"), tmp_path / "root", fetcher=fetcher)
    assert set(results(outcomes).values()) == {"failed"}
    assert "HASH" in outcomes[0].detail.upper()
    assert names(tmp_path / "root") == []


def test_outcomes_cover_every_item_once(site: Site, fetcher: Fetcher, tmp_path: Path) -> None:
    site.files["/a"] = b"a"
    mixed = source(site.url, [remote("a", b"a"), remote("b", b"b")])
    hand = source("a drive", [], way="hand", pattern="tools/*").files
    wheel = package().files
    mixed = replace(mixed, files=mixed.files + hand + wheel)
    make_wheel(tmp_path / "toy", MEMBERS)
    outcomes = download(mixed, tmp_path, fetcher=fetcher)
    assert sorted(results(outcomes)) == ["a", "b", *sorted(MEMBERS), "tools/*"]
    assert len(outcomes) == len(survey(mixed, tmp_path))

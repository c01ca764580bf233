"""One address to one file: resumed where it was cut, checked, and renamed into place only when it is whole.

What has arrived lies in ``<file>.part``; ``<file>.part.tag`` holds the server's name for that state of the file (its
ETag or modification date), so that a resumed transfer never joins two states.
"""

from __future__ import annotations

import logging
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    import requests

log = logging.getLogger("toolshift")

CHUNK = 1 << 20
# Answers that another attempt may change.
TRANSIENT = (408, 425, 429, 500, 502, 503, 504)
TIMEOUT_S = (10.0, 60.0)
LONGEST_WAIT_S = 60.0
LINE_EVERY_S = 20.0
# Files in a row that a host failed after all attempts, before the rest of its files are not tried any more.
GIVE_UP_AFTER = 2
# Left free on the disk beside what is fetched.
SPARE_BYTES = 64 << 20


class DownloadError(Exception):
    """A file could not be had; the message says why. Meant for the person at the keyboard."""

    user_facing = True


class _Transient(Exception):
    """A failure that another attempt may mend, inside this module only."""

    def __init__(self, problem: str, *, wait_s: float = 0.0) -> None:
        super().__init__(problem)
        self.wait_s = wait_s


@dataclass(slots=True, kw_only=True)
class Fetcher:
    """Fetches files one after another over kept connections.

    ``attempts`` per file; before the n-th repetition it waits ``pause_s`` times 2**(n-1), or what the server asks for,
    at most ``LONGEST_WAIT_S``. Proxies and certificates come from the usual environment variables.
    """

    attempts: int = 5
    pause_s: float = 1.0
    sleep: Callable[[float], None] = time.sleep
    _session: requests.Session | None = field(default=None, init=False, repr=False)
    _failures: dict[str, int] = field(default_factory=dict, init=False, repr=False)

    def fetch(self, url: str, target: Path, *, sha256: str | None = None) -> str:
        """Fetch ``url`` into ``target`` and return the SHA-256 of what was written.

        Raises:
            DownloadError: no answer, a refusal, no room, or content whose hash is not ``sha256`` (which is deleted).
                ``target`` is untouched then, and a transfer that was cut can be resumed.
        """
        host = urlsplit(url).netloc
        if self._failures.get(host, 0) >= GIVE_UP_AFTER:
            raise DownloadError(f"not tried: {host} failed for the {GIVE_UP_AFTER} files before")
        part = _Part(target)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            digest = self._attempts(url, part, sha256=sha256)
            part.path.replace(target)
        except OSError as error:
            raise DownloadError(f"cannot write {target}: {error}") from error
        finally:
            part.forget_if_absent()
        self._failures[host] = 0
        return digest

    def _attempts(self, url: str, part: _Part, *, sha256: str | None) -> str:
        if sha256 is not None and part.size and part.digest() == sha256:
            return sha256  # whole, but the process ended before the renaming
        last = _Transient("no attempt was allowed")
        for attempt in range(self.attempts):
            if attempt:
                self.sleep(min(max(self.pause_s * 2 ** (attempt - 1), last.wait_s), LONGEST_WAIT_S))
            try:
                resumed = self._receive(url, part, any_state=sha256 is not None)
                return _checked(part, sha256, resumed=resumed)
            except _Transient as problem:
                last = problem
                log.info("%s: %s (attempt %d of %d)", url, problem, attempt + 1, self.attempts)
        host = urlsplit(url).netloc
        self._failures[host] = self._failures.get(host, 0) + 1
        kept = f"; {part.size:,} bytes are kept, and the same command continues" if part.size else ""
        raise DownloadError(f"{last} ({self.attempts} attempts{kept})")

    def _receive(self, url: str, part: _Part, *, any_state: bool) -> bool:
        """Receive what is missing; True if it was added to a part from before."""
        import requests
        import urllib3

        self._session = self._session or requests.Session()
        headers = part.range_headers(any_state=any_state)
        try:
            with self._session.get(url, headers=headers, stream=True, timeout=TIMEOUT_S) as response:
                _assert_usable(response, part)
                resumed = response.status_code == requests.codes.partial_content
                assert_room(part.target.parent, _length(response))
                if not resumed:
                    part.start(_validator(response.headers))
                _append(part.path, _shown(_pieces(response), label=part.target.name, total=_length(response)))
        except (requests.ConnectionError, requests.Timeout, urllib3.exceptions.HTTPError) as error:
            raise _Transient(f"{urlsplit(url).netloc}: {_reason(error)}") from error
        except requests.RequestException as error:
            raise DownloadError(f"{type(error).__name__}: {error}") from error
        return resumed


@dataclass(frozen=True, slots=True)
class _Part:
    """The unfinished file beside ``target``, and its tag."""

    target: Path

    @property
    def path(self) -> Path:
        return self.target.with_name(f"{self.target.name}.part")

    @property
    def tag(self) -> Path:
        return self.target.with_name(f"{self.target.name}.part.tag")

    @property
    def size(self) -> int:
        return self.path.stat().st_size if self.path.exists() else 0

    def digest(self) -> str:
        from toolshift.runs.files import sha256_file

        return sha256_file(self.path)

    def range_headers(self, *, any_state: bool) -> dict[str, str]:
        """Ask for the rest if it can be joined safely: the server compares the tag, or a hash is checked later.

        ``identity``: ranges and hashes are of the file, not of a compressed form of it.
        """
        headers = {"Accept-Encoding": "identity"}
        tag = self.tag.read_text(encoding="utf-8") if self.tag.exists() else ""
        if self.size and (tag or any_state):
            headers["Range"] = f"bytes={self.size}-"
            if tag:
                headers["If-Range"] = tag
        return headers

    def start(self, validator: str) -> None:
        """Begin anew: no content of another state is left when the tag is written."""
        self.drop()
        if validator:
            self.tag.write_text(validator, encoding="utf-8")

    def drop(self) -> None:
        self.path.unlink(missing_ok=True)
        self.tag.unlink(missing_ok=True)

    def forget_if_absent(self) -> None:
        if not self.path.exists():
            self.tag.unlink(missing_ok=True)


def _pieces(response: requests.Response) -> Iterator[bytes]:
    """The body as it arrives. ``iter_content`` would wait for whole chunks, and lose a begun one at a cut."""
    while piece := response.raw.read1(CHUNK, decode_content=True):
        yield piece


def _shown(pieces: Iterator[bytes], *, label: str, total: int) -> Iterator[bytes]:
    """Pass ``pieces`` on and say how far it is: a bar on a terminal, otherwise a line now and then.

    Files of less than a MiB are not worth a bar; whoever fetches many of them counts them.
    """
    if total < CHUNK:
        yield from pieces
    elif sys.stderr.isatty():
        from tqdm import tqdm

        with tqdm(desc=label, total=total, unit="B", unit_scale=True, leave=False) as bar:
            for piece in pieces:
                bar.update(len(piece))
                yield piece
    else:
        done, last = 0, time.monotonic()
        for piece in pieces:
            done += len(piece)
            if time.monotonic() - last >= LINE_EVERY_S:
                last = time.monotonic()
                log.info("%s: %.1f of %.1f MB", label, done / 1e6, total / 1e6)
            yield piece


def assert_room(folder: Path, needed: int) -> None:
    """Refuse to start what cannot fit.

    Raises:
        DownloadError: if the disk of ``folder`` (or of its nearest existing parent) has less than ``needed`` bytes.
    """
    existing = next(p for p in (folder, *folder.absolute().parents) if p.exists())
    free = shutil.disk_usage(existing).free
    if needed + SPARE_BYTES > free:
        raise DownloadError(
            f"{folder}: {free / 2**20:,.0f} MiB are free and {(needed + SPARE_BYTES) / 2**20:,.0f} MiB are needed; "
            "make room or choose another data.root"
        )


def _append(path: Path, pieces: Iterator[bytes]) -> None:
    with path.open("ab") as stream:
        for piece in pieces:
            stream.write(piece)


def _assert_usable(response: requests.Response, part: _Part) -> None:
    """Accept 200 and a 206 that continues where the part ends.

    Raises:
        _Transient: a server's fault, or a range it cannot serve (the part is dropped first).
        DownloadError: any other status, or a web page in place of a file.
    """
    status = response.status_code
    page = response.headers.get("Content-Type", "").startswith("text/html") and part.target.suffix != ".html"
    if page and status in (200, 206):
        raise DownloadError("the answer is a web page, not the file; is a login or a proxy in between?")
    if status == 206 and _first_byte(response.headers) == part.size:
        return
    if status in (206, 416):
        part.drop()
        raise _Transient("the server could not continue where the transfer was cut; starting over")
    if status in TRANSIENT:
        raise _Transient(f"HTTP {status} {response.reason}", wait_s=_retry_after(response.headers))
    if status != 200:
        raise DownloadError(f"HTTP {status} {response.reason}")


def _checked(part: _Part, sha256: str | None, *, resumed: bool) -> str:
    digest = part.digest()
    if sha256 is None or digest == sha256:
        return digest
    size = part.size
    part.drop()
    if resumed:
        raise _Transient("the joined file has another hash than recorded; starting over")
    raise DownloadError(f"wrong content, deleted: {size:,} bytes with sha256 {digest}, recorded is {sha256}")


def _validator(headers: Mapping[str, str]) -> str:
    """A strong ETag, else the modification date, else nothing: only these may stand in If-Range (RFC 9110, 13.1.5)."""
    if headers.get("Content-Encoding", "identity") != "identity":
        return ""
    etag = headers.get("ETag", "")
    return etag if etag and not etag.startswith("W/") else headers.get("Last-Modified", "")


def _first_byte(headers: Mapping[str, str]) -> int | None:
    """Where a 206 begins: 7 of ``bytes 7-20/21``."""
    first = headers.get("Content-Range", "").removeprefix("bytes ").partition("-")[0]
    return int(first) if first.isdecimal() else None


def _length(response: requests.Response) -> int:
    text = response.headers.get("Content-Length", "")
    return int(text) if text.isdecimal() else 0


def _retry_after(headers: Mapping[str, str]) -> float:
    text = headers.get("Retry-After", "")
    return float(text) if text.isdecimal() else 0.0


def _reason(error: Exception) -> str:
    """The innermost cause, which is the one a person can act on."""
    inner: BaseException = error
    while inner.__cause__ or inner.__context__:
        inner = inner.__cause__ or inner.__context__ or inner
    return f"{type(inner).__name__}: {inner}"

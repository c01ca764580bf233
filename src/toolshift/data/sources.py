"""Where each dataset's full release lives, under which licence, and which files an adapter reads.

The facts stand in ``sources.yaml`` beside this module. Adapters read local files only and quote a source when one is
missing; ``toolshift.data.download`` is the only reader that uses the network.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, cast
from urllib.parse import quote

from toolshift.settings.convert import from_mapping
from toolshift.settings.errors import ConfigError

SOURCES_FILE = Path(__file__).with_name("sources.yaml")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_PLACEHOLDER = re.compile(r"<[^<>/]+>")


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteFile:
    """One file of a release. ``path`` is relative to ``<data.root>/<dataset>/``; ``bytes`` and ``sha256`` are those of
    the plain file, None where they are not known."""

    path: str
    bytes: int | None
    sha256: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedFile:
    """Files of the upstream layout that are read together, as a pattern relative to ``<data.root>/<dataset>/``.

    The pattern is a glob in which ``<name>`` may stand for ``*``, to say what varies.
    ``way`` says how they are had: ``web`` (one address each, ``at`` is its beginning), ``package`` (``at`` is the pip
    requirement with its hash, ``files`` are members of that wheel) or ``hand`` (``at`` is a place for people, ``files``
    is empty).
    """

    pattern: str
    holds: str
    required: bool
    way: Literal["web", "package", "hand"]
    at: str
    files: tuple[RemoteFile, ...]

    @property
    def glob(self) -> str:
        """The pattern with ``*`` for every ``<name>``."""
        return _PLACEHOLDER.sub("*", self.pattern)

    def url(self, file: RemoteFile) -> str:
        """The address of one file of a ``web`` group."""
        return self.at + quote(file.path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One public release. ``revision`` is a commit, tag or file id: the state these notes were written from."""

    dataset: str
    title: str
    place: str
    revision: str
    licence: str
    files: tuple[ExpectedFile, ...]
    steps: tuple[str, ...]

    @property
    def is_recorded(self) -> bool:
        """False for a dataset that ``sources.yaml`` does not describe, for example a user's own."""
        return bool(self.files)

    def hint(self) -> str:
        """The text an ``AdapterError`` ends with: where the release is and how to lay it out."""
        steps = self.numbered_steps()
        if not self.is_recorded:
            return f"No public release is recorded for {self.dataset}:\n{steps}"
        needed = "\n".join(
            f"  <data.root>/{self.dataset}/{f.pattern}  ({f.holds}{'' if f.required else '; optional'})"
            for f in self.files
        )
        return (
            f"Get {self.title} from {self.place} ({self.revision}; {self.licence}):\n{steps}\nExpected files:\n{needed}"
        )

    def numbered_steps(self) -> str:
        """One indented line a step."""
        return "\n".join(f"  {number}. {step}" for number, step in enumerate(self.steps, start=1))


def source_of(dataset: str) -> Source:
    """Return the source of a dataset; for one without an entry a general one that says where its files belong."""
    return sources().get(dataset) or _unrecorded(dataset)


@cache
def sources() -> Mapping[str, Source]:
    """Every recorded source by dataset name, sorted.

    Raises:
        ConfigError: if ``sources.yaml`` has unknown, missing or ill-typed keys, or a path that leaves its folder.
    """
    return load_sources(SOURCES_FILE)


def load_sources(path: Path) -> Mapping[str, Source]:
    """Read and check a file in the form of ``sources.yaml``.

    Raises:
        ConfigError: as ``sources``; one line per problem.
    """
    import yaml

    body = cast("dict[str, Any]", yaml.load(path.read_text(encoding="utf-8"), Loader=_loader()))
    read = {name: from_mapping(Source, {**body[name], "dataset": name}, where=name) for name in sorted(body)}
    problems = [f"{path.name}: {problem}" for source in read.values() for problem in _problems(source)]
    if problems:
        raise ConfigError(problems)
    return MappingProxyType(read)


def _loader() -> type[Any]:
    """libyaml's parser where it is built in: some ten times faster, same result."""
    import yaml

    return getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def _problems(source: Source) -> Iterator[str]:
    seen: set[str] = set()
    for group in source.files:
        if bool(group.files) == (group.way == "hand"):
            yield f"{source.dataset}/{group.pattern}: files are listed if and only if they can be fetched"
        for file in group.files:
            where = f"{source.dataset}/{file.path}"
            if not _is_inside(file.path):
                yield f"{where}: a path must stay inside the dataset's folder"
            if not fnmatchcase(file.path, group.glob):
                yield f"{where}: does not match its pattern {group.pattern}"
            if file.sha256 is not None and not _SHA256.fullmatch(file.sha256):
                yield f"{where}: sha256 must be 64 lower-case hexadecimal digits"
            if file.path in seen:
                yield f"{where}: listed twice"
            seen.add(file.path)


def _is_inside(path: str) -> bool:
    """False for absolute, parent and Windows paths, so that a list of files cannot write anywhere else."""
    parts = path.split("/")
    return not ({"", ".", ".."} & set(parts) or "\\" in path or ":" in path)


def _unrecorded(dataset: str) -> Source:
    return Source(
        dataset=dataset,
        title=dataset,
        place="your own copy",
        revision="none recorded",
        licence="not recorded",
        files=(),
        steps=(
            f"lay the files below <data.root>/{dataset}/ as its adapter expects "
            f"(conf/dataset/{dataset}.yaml names the adapter)",
            "run with data=real data.root=FOLDER, where FOLDER holds that folder (or set TOOLSHIFT_DATA=FOLDER)",
        ),
    )

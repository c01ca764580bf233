"""Where each dataset's full release lives, under which licence, and which files an adapter reads.

Nothing here is downloaded by the adapters: they read local files only and quote this page when one is missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedFile:
    """One file or pattern of the upstream layout, relative to ``<data.root>/<dataset>/``."""

    pattern: str
    holds: str
    required: bool


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

    def hint(self) -> str:
        """The text an ``AdapterError`` ends with: where the release is and how to lay it out."""
        steps = "\n".join(f"  {number}. {step}" for number, step in enumerate(self.steps, start=1))
        needed = "\n".join(
            f"  <data.root>/{self.dataset}/{f.pattern}  ({f.holds}{'' if f.required else '; optional'})"
            for f in self.files
        )
        return (
            f"Get {self.title} from {self.place} ({self.revision}; {self.licence}):\n{steps}\nExpected files:\n{needed}"
        )


_TOOLBENCH = Source(
    dataset="toolbench",
    title="ToolBench",
    place="OpenBMB/ToolBench on GitHub (its README links data.zip)",
    revision="repository commit d56fdd89, data.zip of Google Drive file id 1XFjDxVZdUY7TXYF2yvzx3pJlS2fy78jk",
    licence="Apache-2.0",
    files=(
        ExpectedFile(
            pattern="toolenv/tools/<Category>/<tool>.json", holds="one file per tool with its api_list", required=True
        ),
        ExpectedFile(
            pattern="test_instruction/G{1,2,3}_*.json[.gz]",
            holds="test queries; this or instruction/ is needed",
            required=False,
        ),
        ExpectedFile(
            pattern="instruction/G{1,2,3}_query.json[.gz]",
            holds="training queries; this or test_instruction/ is needed",
            required=False,
        ),
        ExpectedFile(
            pattern="solvable_queries/test_instruction/*.json[.gz]",
            holds="StableToolBench's solvable subset",
            required=False,
        ),
    ),
    steps=(
        "download data.zip and unpack it; rename its data/ folder to toolbench/",
        "run with data=real data.root=FOLDER, where FOLDER holds toolbench/ (or set TOOLSHIFT_DATA=FOLDER)",
        "without the release: data=sample runs on a generated sample in the same layout",
    ),
)

SOURCES: Mapping[str, Source] = MappingProxyType({"toolbench": _TOOLBENCH})


def source_of(dataset: str) -> Source:
    """Return the source of a dataset.

    Raises:
        KeyError: for a dataset without an entry; the message lists the known ones.
    """
    if dataset not in SOURCES:
        raise KeyError(f"no source is recorded for {dataset!r}; known: {', '.join(sorted(SOURCES))}")
    return SOURCES[dataset]

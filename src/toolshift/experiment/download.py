"""The entry behind ``scripts/download_data.py``: fetch public releases and say what is left to do by hand.

It has a config of its own (``conf/download.yaml``), read without Hydra's composition: there ``dataset`` would be the
group of adapters, which has no option ``all`` and none for a release without an adapter.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from omegaconf import OmegaConf

from toolshift.data.sources import ExpectedFile, Source, source_of, sources
from toolshift.settings.convert import from_mapping
from toolshift.settings.errors import ConfigError
from toolshift.settings.nearest import suggestion
from toolshift.settings.single import command, overridden

if TYPE_CHECKING:
    from toolshift.data.download import Item, Outcome

KEYS = ("data.root", "dataset", "dry_run")
ALL = "all"
# Files of one pattern with one reason of failure are listed singly up to this many.
LISTED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class RootSettings:
    """``root`` is the folder that holds ``<dataset>/``."""

    root: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DownloadSettings:
    """``conf/download.yaml``: a recorded dataset or ``all``, and whether to look only."""

    dataset: str
    dry_run: bool
    data: RootSettings

    @property
    def sources(self) -> tuple[Source, ...]:
        """The sources asked for, sorted by name."""
        return tuple(sources().values()) if self.dataset == ALL else (source_of(self.dataset),)


def main(arguments: Sequence[str]) -> int:
    """Check the command line, then fetch. Returns the exit status: 1 if a file failed, 2 for a refused command."""
    interrupted = "interrupted; the same command continues where it stopped"
    return command("download", arguments, lambda: download_data(load(arguments)), interrupted=interrupted)


def load(overrides: Sequence[str], *, folder: Path | None = None) -> DownloadSettings:
    """``conf/download.yaml`` with overrides.

    Raises:
        ConfigError: one line per problem, with the nearest valid key or dataset.
    """
    refused = {"data": "files are always real ones here; give data.root=PATH alone"}
    config = overridden("download", overrides, keys=KEYS, refused=refused, folder=folder)
    if OmegaConf.is_missing(config, "dataset"):
        raise ConfigError(f"dataset: a value must be given, for example dataset=bfcl (valid: {', '.join(_names())})")
    settings = from_mapping(DownloadSettings, cast("Any", OmegaConf.to_container(config, resolve=True)))
    if settings.dataset not in _names():
        raise ConfigError(f"dataset={settings.dataset}: no source is recorded{suggestion(settings.dataset, _names())}")
    return settings


def download_data(settings: DownloadSettings) -> int:
    """Fetch, or with ``dry_run`` only say what would be fetched. Returns 1 if a file failed."""
    from toolshift.data.download import download, survey
    from toolshift.data.transfer import Fetcher

    logging.basicConfig(format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    logging.getLogger("toolshift").setLevel(logging.INFO)
    root = Path(settings.data.root)
    if settings.dry_run:
        surveys = [(source, survey(source, root)) for source in settings.sources]
        print("\n\n".join(preview(source, items, root=root) for source, items in surveys))
        print(f"\nto fetch: {_amount([item for _, items in surveys for item in items])}; nothing was written (dry_run)")
        return 0
    fetcher = Fetcher()
    outcomes = {source: download(source, root, fetcher=fetcher) for source in settings.sources}
    print(report(outcomes))
    return int(any(outcome.result == "failed" for found in outcomes.values() for outcome in found))


def preview(source: Source, items: Sequence[Item], *, root: Path) -> str:
    """Place, state and licence of a source, and per pattern what is there and what would be fetched."""
    facts = {
        "from": source.place,
        "state": source.revision,
        "licence": source.licence,
        "into": str(root / source.dataset),
        "to fetch": _amount(items),
    }
    rows = [_preview_row(group, [item for item in items if item.group == group]) for group in source.files]
    lines = [f"{source.dataset}: {source.title}", *(f"  {name:9}{fact}" for name, fact in facts.items())]
    table = _table(rows, headers=("files", "number", "there", "to fetch", "hold"))
    return "\n".join([*lines, *(f"  {line}" for line in table.splitlines()), *_hand_lines(source, items)])


def _preview_row(group: ExpectedFile, items: Sequence[Item]) -> list[object]:
    there = sum(item.is_there for item in items)
    holds = group.holds + ("" if group.required else " (optional)")
    if group.way == "hand":
        return [group.pattern, "any", "yes" if there else "no", "nothing" if there else "by hand", holds]
    return [group.pattern, len(items), there, _amount(items), holds]


def report(outcomes: Mapping[Source, Sequence[Outcome]]) -> str:
    """A row per dataset with files = fetched + already there + failed + by hand, and what is left to do."""
    rows = [[source.dataset, len(found), *_counts(found)] for source, found in outcomes.items()]
    sections = [_table(rows, headers=("dataset", "files", "fetched", "already there", "failed", "by hand"))]
    for source, found in outcomes.items():
        sections += _failures(source, found) + _unverified(source, found)
        left = "\n".join(_hand_lines(source, [o.item for o in found if o.result == "by hand"])).strip("\n")
        sections += [f"{source.dataset}: by hand\n{left}"] if left else []
    return "\n\n".join(sections)


def _counts(outcomes: Sequence[Outcome]) -> list[int]:
    counted = Counter(outcome.result for outcome in outcomes)
    return [counted[result] for result in ("fetched", "there", "failed", "by hand")]


def _failures(source: Source, outcomes: Sequence[Outcome]) -> list[str]:
    """Every failed file with reason and address; many files of one pattern that failed alike share one entry."""
    alike: dict[tuple[str, str], list[Outcome]] = {}
    for outcome in outcomes:
        if outcome.result == "failed":
            alike.setdefault((outcome.item.group.pattern, outcome.detail), []).append(outcome)
    lines = [line for found in alike.values() for line in _failure_lines(found)]
    head = f"{source.dataset}: failed; run the same command again, or fetch by hand"
    return ["\n".join([head, *lines])] if lines else []


def _failure_lines(outcomes: Sequence[Outcome]) -> list[str]:
    from toolshift.data.download import by_hand

    if len(outcomes) <= LISTED:
        return [f"  {o.item.target}: {o.detail}\n    by hand: {by_hand(o.item)}" for o in outcomes]
    first = outcomes[0].item
    return [
        f"  {len(outcomes)} files {first.group.pattern}: {outcomes[0].detail}",
        f"    by hand: each likewise, the first of them: {by_hand(first)}",
    ]


def _unverified(source: Source, outcomes: Sequence[Outcome]) -> list[str]:
    """Files whose hash is not recorded: of those fetched now, the hash that was found."""
    lines = [f"  sha256 {o.sha256}  {o.item.target}" for o in outcomes if o.sha256]
    before = sum(o.result == "there" and o.item.state == "unverified" for o in outcomes)
    lines += [f"  and {before} that were there already"] if before else []
    return ["\n".join([f"{source.dataset}: not verified (no hash is recorded)", *lines])] if lines else []


def _hand_lines(source: Source, items: Sequence[Item]) -> list[str]:
    from toolshift.data.download import by_hand

    left = [item for item in items if item.group.way == "hand" and not item.is_there]
    lines = [f"  {by_hand(item)}{'' if item.group.required else ' (optional)'}" for item in left]
    return [*lines, source.numbered_steps()] if left else []


def _amount(items: Sequence[Item]) -> str:
    """``3 files, 1.2 MB and 1 of unknown size``; patterns for a person are not counted."""
    wanted = [item for item in items if not item.is_there and item.group.way != "hand"]
    if not wanted:
        return "nothing"
    unknown = sum(item.size == 0 and item.file is not None and item.file.bytes is None for item in wanted)
    known = f"{sum(item.size for item in wanted) / 1e6:,.1f} MB"
    size = f"{known} and {unknown} of unknown size" if 0 < unknown < len(wanted) else known
    return f"{len(wanted)} files, {'of unknown size' if unknown == len(wanted) else size}"


def _table(rows: Sequence[Sequence[object]], *, headers: Sequence[str]) -> str:
    from tabulate import tabulate

    return tabulate(rows, headers=headers, tablefmt="simple", intfmt=",")


def _names() -> tuple[str, ...]:
    return (*sources(), ALL)

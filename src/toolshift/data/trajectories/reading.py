"""Reading the trajectories of several sources, each in a module of this package."""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

from toolshift.data.errors import AdapterError
from toolshift.data.records import Library, Records
from toolshift.data.tally import Tally
from toolshift.data.trajectories.base import PAPER, Rules, Trajectories
from toolshift.data.trajectories.collecting import Collector, united

_PACKAGE = __name__.rpartition(".")[0]


class Source(Protocol):
    """A module of this package whose name is that of its source, with an underscore for the slash.

    ``DATASET`` is the dataset in whose library its calls are looked up. A module without it is no source.
    """

    DATASET: str

    def collect(self, root: Path, *, into: Collector, records: Records | None) -> None:
        """Hand every trajectory below ``<root>/<DATASET>`` to the collector, or count why it is none.

        records: those of the dataset's adapter. None where the caller gave only a library.

        Raises:
            AdapterError: if no file of the source is there.
        """
        ...


def source_names() -> tuple[str, ...]:
    """Names of all sources, sorted."""
    found = []
    for module in pkgutil.iter_modules([str(Path(__file__).parent)]):
        if module.name.startswith("_"):  # what several sources share
            continue
        dataset = getattr(import_module(f"{_PACKAGE}.{module.name}"), "DATASET", None)
        if dataset is not None:
            found.append(f"{dataset}/{module.name.removeprefix(f'{dataset}_')}")
    return tuple(sorted(found))


def read_trajectories(
    root: Path,
    *,
    names: Sequence[str],
    rules: Rules = PAPER,
    library: Library | None = None,
    records: Mapping[str, Records] | None = None,
    strict: bool = False,
) -> Trajectories:
    """Read the trajectories of some sources, in an order that does not depend on that of ``names``.

    library: where calls are looked up; it may hold several datasets. records: records of adapters by dataset, to be
    used instead of reading their files again. What neither gives is read by the dataset's adapter below ``root``.
    strict: the first row that cannot be read is an error; trajectories and calls that the rules leave out never are.

    Raises:
        AdapterError: if a name is no source or given twice, files of a source are missing, or no trajectory is left.
    """
    sources = [(name, _source(name)) for name in sorted(names)]
    if not sources or len({name for name, _ in sources}) < len(sources):
        raise AdapterError(f"names={list(names)!r}: expected one source or more, each once, of {_listing()}")
    tally = Tally(strict=strict)
    parts = []
    for dataset in sorted({source.DATASET for _, source in sources}):
        own = (records or {}).get(dataset)
        part = _part(library, dataset) if library is not None else None
        if own is None and part is None:
            own = import_module(f"toolshift.data.adapters.{dataset}").read(root, strict=strict)
        if part is None:
            assert own is not None
            part = own.library
        into = Collector(dataset, part, rules=rules, tally=tally)
        for _, source in sources:
            if dataset == source.DATASET:
                source.collect(root, into=into, records=own)
        tasks = into.tasks()
        parts.append((into.library(), tasks))
    tally.log()
    result = united(parts, tally)
    if not result.tasks:
        raise AdapterError(f"no trajectory of {', '.join(sorted(names))} is left: {result.report.dropped}")
    return result


def _source(name: str) -> Source:
    if name not in source_names():
        raise AdapterError(f"trajectories: {name!r} is no source; expected one of {_listing()}")
    return cast(Source, import_module(f"{_PACKAGE}.{name.replace('/', '_')}"))


def _listing() -> str:
    return ", ".join(source_names())


def _part(library: Library, dataset: str) -> Library | None:
    """The part of a library that belongs to a dataset; None where it holds nothing of it."""
    capabilities = tuple(c for c in library.capabilities if c.dataset == dataset)
    owners = {c.capability_id for c in capabilities}
    endpoints = tuple(e for e in library.endpoints if e.capability_id in owners)
    return Library(capabilities, endpoints) if capabilities else None

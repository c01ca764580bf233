"""Records of the configured dataset, or of all datasets of a protocol: real files, or the generated sample."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from toolshift.data.merge import merged
from toolshift.data.sample import Spec, write_sample
from toolshift.data.store import LoadedRecords, load_records
from toolshift.runs.files import stable_hash
from toolshift.runs.locks import exclusive
from toolshift.settings.errors import UserError
from toolshift.settings.options import load_dataset
from toolshift.settings.schema import DatasetSettings, Settings


def open_records(settings: Settings) -> LoadedRecords:
    """Read (or rebuild) the record store of what the protocol ranks; on a bare machine the sample is generated first.

    The dataset of the group ``dataset`` keeps the options of the command line among several.

    Raises:
        UserError: if one of several datasets may not be scored.
    """
    names = settings.protocol.dataset_names
    if not names:
        return open_dataset(settings, settings.dataset)
    own, parts = settings.dataset, list[LoadedRecords]()
    for name in names:
        parts.append(open_dataset(settings, own if own.name == name else load_dataset(name)))
        refuse_unscorable(parts[-1])  # before the next one is read
    return _together(parts)


def open_dataset(settings: Settings, dataset: DatasetSettings) -> LoadedRecords:
    """Read (or rebuild) the record store of one dataset."""
    data, cache = settings.data, Path(settings.data.cache)
    if data.source == "sample":
        cache = cache / "sample"
        spec = Spec(world=data.world, size=data.sample_size, seed=data.sample_seed)
        with exclusive(cache / f".{spec.name}.lock", writable=False):  # one job of a sweep makes it, the others find it
            root = write_sample(cache, spec, dataset=dataset.name).root
    else:
        assert data.root is not None  # the settings refuse real data without a root
        root = Path(data.root)
    return load_records(
        dataset=dataset.name,
        adapter=dataset.target,
        options=dict(dataset.options),
        root=root,
        cache=cache,
        strict=data.strict,
    )


def refuse_unscorable(loaded: LoadedRecords) -> None:
    """No experiment runs on records that no score may be reported on, or that hold no task with gold.

    Raises:
        UserError: with the reason that the adapter gives.
    """
    records = loaded.records
    if records.unscorable:
        raise UserError(f"{records.dataset}: {records.unscorable}")
    if not records.tasks:
        raise UserError(f"{records.dataset}: no task has a gold tool, so there is nothing to rank; see {loaded.folder}")


def _together(parts: Sequence[LoadedRecords]) -> LoadedRecords:
    started = time.perf_counter()
    if len(parts) == 1:
        return parts[0]
    return LoadedRecords(
        records=merged([part.records for part in parts]),
        fingerprint=stable_hash([part.fingerprint for part in parts]),
        folder=parts[0].folder.parents[1],
        seconds=sum(part.seconds for part in parts) + time.perf_counter() - started,
        rebuilt=any(part.rebuilt for part in parts),
    )

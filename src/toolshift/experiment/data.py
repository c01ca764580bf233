"""Records of the configured dataset: real files, or the generated sample."""

from __future__ import annotations

from pathlib import Path

from toolshift.data.sample import Spec, write_sample
from toolshift.data.store import LoadedRecords, load_records
from toolshift.settings.schema import Settings


def open_records(settings: Settings) -> LoadedRecords:
    """Read (or rebuild) the record store; on a bare machine the sample is generated first."""
    data, dataset = settings.data, settings.dataset
    cache = Path(data.cache)
    if data.source == "sample":
        cache = cache / "sample"
        root = write_sample(cache, Spec(world=data.world, size=data.sample_size, seed=data.sample_seed)).root
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

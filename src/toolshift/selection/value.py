"""The value of a setting: mean over views of the macro NDCG@5 over source contexts (tact.md section 5)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from toolshift.measures import evaluate_lists
from toolshift.models.base import Scores, Source
from toolshift.models.features import Pairs
from toolshift.views.manifest import Manifest

MEASURE = "NDCG@5"


def source_value(source: Source, score: Callable[[Pairs], Scores], *, max_tasks: int | None = None) -> float:
    """Value of one scorer on the source lists; tasks without a context belong to no macro mean and are left out.

    max_tasks: at most so many tasks per view, those with the smallest id hash; None for all of them.

    Raises:
        ValueError: if no view has a list, so that nothing can be valued.
    """
    lists = [m for m in _lists(source, max_tasks=max_tasks) if m.tasks.size]
    if not lists:
        raise ValueError(f"target {source.target}: the sources have no list in any view, so nothing can be selected")
    size = source.fold.corpus.n_capabilities
    keys = [source.fold.corpus.pair_key(m.task_of, m.capability) for m in lists]
    distinct = np.unique(np.concatenate(keys))  # a pair that several views share is scored once
    scores = score(Pairs(task=distinct // size, capability=distinct % size))
    values = [_macro(m, scores[np.searchsorted(distinct, k)], source) for m, k in zip(lists, keys, strict=True)]
    return float(np.mean(values))


def _lists(source: Source, *, max_tasks: int | None) -> Iterator[Manifest]:
    for view in sorted(source.manifests):
        manifest = source.manifests[view]
        placed = manifest.restrict(source.context_of[manifest.tasks] >= 0)
        yield _capped(placed, source, max_tasks=max_tasks)


def _macro(manifest: Manifest, scores: Scores, source: Source) -> float:
    lists = evaluate_lists(scores, manifest.positive, offsets=manifest.offsets, measures=[MEASURE])
    context = source.context_of[manifest.tasks]
    count = np.bincount(context)
    total = np.bincount(context, weights=lists.values[MEASURE])
    return float(np.mean(total[count > 0] / count[count > 0]))


def _capped(manifest: Manifest, source: Source, *, max_tasks: int | None) -> Manifest:
    if max_tasks is None or manifest.tasks.size <= max_tasks:
        return manifest
    return manifest.restrict(_smallest(source.fold.corpus.task_hash[manifest.tasks], max_tasks))


def _smallest(hashes: NDArray[np.uint64], count: int) -> NDArray[np.bool_]:
    keep = np.zeros(hashes.size, bool)
    keep[np.argsort(hashes, kind="stable")[:count]] = True
    return keep

"""Per-task values of one model on one target: the only place where target labels meet scores."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from toolshift.measures import evaluate_lists, trec_keys
from toolshift.models.features import Pairs
from toolshift.runs.seeds import keyed_hash, seed_of
from toolshift.views.corpus import Corpus
from toolshift.views.manifest import Manifest, Suspects
from toolshift.views.pool import MINER_BITS
from toolshift.views.roles import contains

Ties = Literal["expected", "hashed", "trec"]
Keep = Callable[[Manifest, Suspects], NDArray[np.bool_]]

LIST_SLICES: Mapping[str, Keep] = {
    "no_duplicates": lambda manifest, suspects: ~suspects.any,
    "miner=bm25": lambda manifest, suspects: _mined_by(manifest, "bm25"),
    "miner=dense": lambda manifest, suspects: _mined_by(manifest, "dense"),
    "miner=category": lambda manifest, suspects: _mined_by(manifest, "category"),
}
HARD_ROLES = (2, 3)


@dataclass(frozen=True, kw_only=True)
class ViewLists:
    """The frozen lists of one view over all targets, n lists.

    targets: names. target: (n,) position in ``targets``. scored: (n,) False where the cell has too few capabilities.
    """

    manifest: Manifest
    suspects: Suspects
    targets: tuple[str, ...]
    target: NDArray[np.int64]
    scored: NDArray[np.bool_]

    def keep(self, candidates: NDArray[np.bool_]) -> ViewLists:
        """Drop single candidates, mask (N,); lists without a positive or a negative left go too."""
        manifest = self.manifest.filter(candidates)
        alive = np.isin(self.manifest.tasks, manifest.tasks)
        inside = candidates & np.repeat(alive, self.manifest.lengths)
        return ViewLists(
            manifest=manifest,
            suspects=self.suspects.take(inside),
            targets=self.targets,
            target=self.target[alive],
            scored=self.scored[alive],
        )


@dataclass(frozen=True, kw_only=True)
class TaskFlags:
    """(n,) task-level slices: no gold name in the text; no gold tool that was re-created from task rows."""

    name_free: NDArray[np.bool_]
    no_partial_schema: NDArray[np.bool_]


def distinct_pairs(lists: Sequence[ViewLists], corpus: Corpus) -> Pairs:
    """The distinct pairs over all views, so that a shared pair is scored once."""
    keys = [corpus.pair_key(one.manifest.task_of, one.manifest.capability) for one in lists]
    distinct = np.unique(np.concatenate(keys))
    return Pairs(task=distinct // corpus.n_capabilities, capability=distinct % corpus.n_capabilities)


def positions(manifest: Manifest, pairs: Pairs, corpus: Corpus) -> NDArray[np.int64]:
    """(N,) where each candidate of a manifest stands among the distinct pairs.

    Raises:
        ValueError: if a candidate is not among them.
    """
    keys = corpus.pair_key(pairs.task, pairs.capability)
    wanted = corpus.pair_key(manifest.task_of, manifest.capability)
    if not contains(keys, wanted).all():
        raise ValueError(f"{manifest.view}: some candidates of the manifest are not among the scored pairs")
    return np.searchsorted(keys, wanted)


def per_task_values(
    lists: ViewLists, scores: NDArray[np.float64], *, corpus: Corpus, measures: Sequence[str], ties: Ties
) -> pd.DataFrame:
    """One row per list: target, view, task_row, task_id, n_candidates, n_gold, tied, scored and every measure.

    scores: (N,) aligned with the manifest's candidates.
    """
    manifest = lists.manifest
    values = evaluate_lists(
        scores,
        manifest.positive,
        offsets=manifest.offsets,
        measures=measures,
        ties="expected" if ties == "expected" else "keys",
        tie_keys=None if ties == "expected" else tie_keys(manifest, corpus, ties=ties),
    )
    return pd.DataFrame(
        {
            "target": np.array(lists.targets, dtype=object)[lists.target],
            "view": manifest.view,
            "task_row": manifest.tasks,
            "task_id": [corpus.task_ids[t] for t in manifest.tasks],
            "n_candidates": values.n_candidates,
            "n_gold": values.n_gold,
            "tied": values.tied,
            "scored": lists.scored,
            **{name: values.values[name] for name in measures},
        }
    )


def tie_keys(manifest: Manifest, corpus: Corpus, *, ties: Ties) -> NDArray[np.generic]:
    """(N,) keys that order equal scores: a hash of (task, capability), or trec_eval's descending ids."""
    if ties == "trec":
        return trec_keys([corpus.capability_ids[c] for c in manifest.capability])
    task, capability = corpus.task_hash[manifest.task_of], corpus.capability_hash[manifest.capability]
    return keyed_hash(seed_of("ties"), task, capability)


def in_slice(lists: ViewLists, name: str) -> NDArray[np.bool_]:
    """(N,) candidates that a list-level slice keeps; `ViewLists.keep` then drops lists that are no lists any more."""
    return LIST_SLICES[name](lists.manifest, lists.suspects)


def _mined_by(manifest: Manifest, miner: str) -> NDArray[np.bool_]:
    """Everything but the hard negatives that another miner alone proposed; lists without a hard one left go."""
    hard = np.isin(manifest.role, HARD_ROLES)
    kept_hard = hard & ((manifest.miner & MINER_BITS[miner]) > 0)
    index = np.repeat(np.arange(manifest.tasks.size), manifest.lengths)
    has_hard = np.bincount(index[kept_hard], minlength=manifest.tasks.size) > 0
    return (~hard | kept_hard) & has_hard[index]

"""What all runs of one experiment share: records as arrays, embeddings, features, and the views of each variant."""

from __future__ import annotations

import importlib
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np

from toolshift.data.checks import name_free_flags
from toolshift.data.records import Records
from toolshift.evaluation.per_task import TaskFlags, ViewLists
from toolshift.experiment.data import open_records
from toolshift.models.features import FeatureBank
from toolshift.protocols.folds import TASK_ROLES, FoldTable, SourceRules, fold_table
from toolshift.runs.seeds import id_hashes
from toolshift.settings.schema import Settings
from toolshift.text.cache import EmbeddingCache
from toolshift.text.encoder import Encoder
from toolshift.text.lexical import Bm25
from toolshift.views.corpus import Corpus, Labels, Part, build_corpus
from toolshift.views.manifest import Manifest, Suspects, build_manifest, suspected_duplicates
from toolshift.views.pool import LibraryWidth, Pool, build_pool
from toolshift.views.retrieval import Retrieval, joined, retrieve
from toolshift.views.roles import Fold, Rules

log = logging.getLogger("toolshift")


class EmptyExperiment(ValueError):
    """Nothing is left to score."""

    user_facing = True


def resolve(target: str) -> Any:
    """The object behind ``module:name``."""
    module, _, name = target.partition(":")
    return getattr(importlib.import_module(module), name)


def build_encoder(settings: Settings) -> Encoder:
    """The configured encoder; no weights are read before it is used."""
    return cast("Encoder", resolve(settings.encoder.target)(**settings.encoder.params))


@dataclass(frozen=True, kw_only=True)
class Variant:
    """The lists of one (universe, miner, purge): fold table, evaluation fold, frozen manifests, suspects."""

    settings: Settings
    folds: FoldTable
    fold: Fold
    manifests: Mapping[str, Manifest]
    suspects: Mapping[str, Suspects]

    @cached_property
    def lists(self) -> tuple[ViewLists, ...]:
        """The lists of every view that some target is tested on, in view order."""
        test = self.folds.role == TASK_ROLES.index("test")
        held_out, target = test.any(axis=0), test.argmax(axis=0)
        count = [self.fold.judged_count(self.folds.rows(name, role="test")) for name in self.folds.targets]
        enough = np.array(count) >= self.fold.rules.min_available
        found = []
        for view, manifest in self.manifests.items():
            keep = held_out[manifest.tasks]
            kept = manifest.restrict(keep)
            of = target[kept.tasks]
            suspects = self.suspects[view].take(np.repeat(keep, manifest.lengths))
            found.append(
                ViewLists(manifest=kept, suspects=suspects, targets=self.folds.targets, target=of, scored=enough[of])
            )
        return tuple(one for one in found if one.manifest.tasks.size)


@dataclass(kw_only=True)
class Workspace:
    """Opened data of one experiment; the heavy parts are made when first asked for."""

    settings: Settings
    records: Records
    fingerprint: str
    encoder: Encoder
    _pools: dict[bool, Pool] = field(default_factory=dict, repr=False)
    _bm25: dict[tuple[float, float, str], Bm25] = field(default_factory=dict, repr=False)

    @cached_property
    def _arrays(self) -> tuple[Corpus, Labels]:
        return build_corpus(self.records)

    @property
    def corpus(self) -> Corpus:
        """Label-free arrays."""
        return self._arrays[0]

    @property
    def labels(self) -> Labels:
        """Labels of all tasks; cut down to a fold before anything is fitted."""
        return self._arrays[1]

    @cached_property
    def cache(self) -> EmbeddingCache:
        """Vectors of texts under the configured encoder."""
        root = Path(self.settings.data.cache) / "embeddings"
        return EmbeddingCache(root, self.encoder, max_truncated_share=self.settings.encoder.max_truncated_share)

    @cached_property
    def bank(self) -> FeatureBank:
        """Label-free pair features."""
        corpus = self.corpus
        self.cache.ensure([*corpus.task_texts, *corpus.capability_texts])
        return FeatureBank(
            corpus=corpus,
            cache=self.cache,
            task_vectors=self.cache.rows(corpus.task_texts),
            capability_vectors=self.cache.rows(corpus.capability_texts),
            bm25_index=self.bm25,
            max_pairs=self.settings.runtime.max_pairs_in_memory,
            store=Path(self.settings.data.cache),
        )

    @cached_property
    def flags(self) -> TaskFlags:
        """Task-level slices."""
        partial = np.asarray(self.labels.gold.astype(np.int32) @ self.corpus.partial_schema.astype(np.int32)) > 0
        return TaskFlags(name_free=name_free_flags(self.records), no_partial_schema=~partial)

    @cached_property
    def retrieval(self) -> Retrieval:
        """Label-free neighbourhoods over the library of each dataset."""
        parts = self.corpus.parts
        return joined([self._retrieval_of(part) for part in parts], parts)

    def _retrieval_of(self, part: Part) -> Retrieval:
        view = self.settings.view
        name = f"/{part.name}" if len(self.corpus.parts) > 1 else ""
        return retrieve(
            self.corpus.task_texts[part.tasks],
            self.bm25(1.5, 0.75, part),
            task_vectors=self.bank.task_vectors[part.tasks],
            capability_vectors=self.bank.capability_vectors[part.capabilities],
            top=view.top,
            duplicate_cosine=view.duplicate_cosine,
            cache=Path(self.settings.data.cache) / "retrieval",
            key=f"{self.fingerprint}/{self.encoder.fingerprint}/{self.corpus.n_tasks}{name}",
        )

    def bm25(self, k1: float, b: float, part: Part) -> Bm25:
        """BM25 over the capability texts of one dataset's whole library."""
        key = (k1, b, part.name)
        if key not in self._bm25:
            self._bm25[key] = Bm25(self.corpus.capability_texts[part.capabilities], k1=k1, b=b)
        return self._bm25[key]

    def pool(self, settings: Settings) -> Pool:
        """The hard pool; one for the library universe, one for the judged capabilities."""
        library = settings.view.universe == "library"
        if library not in self._pools:
            view = settings.view
            width = LibraryWidth(width=4 * view.length, seed=view.seed, overlap_below=view.argument_overlap)
            self._pools[library] = build_pool(
                self.corpus, self.labels, retrieval=self.retrieval, library=width if library else None
            )
        return self._pools[library]

    def fold(self, settings: Settings, labels: Labels) -> Fold:
        """What lists may be built from when only ``labels`` are known."""
        return Fold(corpus=self.corpus, labels=labels, pool=self.pool(settings), rules=rules_of(settings))

    def manifests(self, settings: Settings, fold: Fold) -> Mapping[str, Manifest]:
        """The lists of every configured view for the tasks of a fold."""
        return {
            name: build_manifest(name, resolve(recipe.target)(fold.rules, **recipe.params), fold=fold)
            for name, recipe in settings.view.views.items()
        }

    def variant(self, settings: Settings) -> Variant:
        """Fold table and frozen evaluation manifests of one variant.

        Raises:
            EmptyExperiment: if no task is eligible in any view.
        """
        start = time.monotonic()
        protocol = settings.protocol
        folds = fold_table(
            resolve(protocol.target)(self.corpus, **protocol.params),
            self.corpus,
            self.labels,
            rules=SourceRules(
                purge=protocol.purge,
                near_cosine=protocol.near_cosine,
                dedup=protocol.dedup,
                max_tasks=protocol.max_source_tasks,
            ),
            task_vectors=self.bank.task_vectors,
            capability_vectors=self.bank.capability_vectors,
        )
        limit = settings.debug.max_targets
        if limit is not None and limit < len(folds.targets):
            folds = _first_targets(folds, limit)
        fold = self.fold(settings, self.labels)
        manifests = self.manifests(settings, fold)
        if not any(m.tasks.size for m in manifests.values()):
            skipped = {view: dict(m.skipped) for view, m in manifests.items()}
            raise EmptyExperiment(f"no task is eligible in any view: {skipped}; see view.* and the data report")
        suspects = {
            name: suspected_duplicates(m, self.corpus, labels=self.labels, near_text=self.retrieval.near_text)
            for name, m in manifests.items()
        }
        log.info(
            "views universe=%s miner=%s purge=%s in %.1f s",
            settings.view.universe,
            settings.view.miner,
            protocol.cut,
            time.monotonic() - start,
        )
        return Variant(settings=settings, folds=folds, fold=fold, manifests=manifests, suspects=suspects)


def open_workspace(settings: Settings) -> Workspace:
    """Read (or build) the records of the configured dataset."""
    loaded = open_records(settings)
    records = limit_tasks(loaded.records, settings.debug.max_tasks)
    return Workspace(
        settings=settings, records=records, fingerprint=loaded.fingerprint, encoder=build_encoder(settings)
    )


def rules_of(settings: Settings) -> Rules:
    """The scalar view settings as the view stage takes them."""
    view = settings.view
    return Rules(
        universe=view.universe,
        miner=view.miner,
        length=view.length,
        hard=view.hard,
        top=view.top,
        seed=view.seed,
        min_available=view.min_available,
        argument_overlap=view.argument_overlap,
        duplicate_cosine=view.duplicate_cosine,
    )


def limit_tasks(records: Records, count: int | None) -> Records:
    """At most ``count`` tasks, those with the smallest id hash; the library stays whole."""
    if count is None or len(records.tasks) <= count:
        return records
    keep = np.sort(np.argsort(id_hashes(t.task_id for t in records.tasks), kind="stable")[:count])
    return replace(records, tasks=tuple(records.tasks[i] for i in keep))


def _first_targets(folds: FoldTable, limit: int) -> FoldTable:
    """The ``limit`` targets with most tasks (ties by name), in name order."""
    sizes = [(-(folds.rows(t, role="test").size), t) for t in folds.targets]
    keep = sorted(t for _, t in sorted(sizes)[:limit])
    index = [folds.targets.index(t) for t in keep]
    return replace(folds, targets=tuple(keep), role=folds.role[index])

"""Everything TACT's stages read of one set of sources: lists with roles, the anchor, profiles, cross-fitted evidence.

Built from the sources at hand and nothing else, so that a fold without some contexts has nothing of them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from toolshift.models.base import Limits, Source
from toolshift.models.features import FeatureBank
from toolshift.models.tact.contextual import FittedContextual, PairEvidence
from toolshift.models.tact.lists import RoleLists
from toolshift.models.tact.path import FittedStage, Path, Trace, anchored
from toolshift.models.tact.profiles import Profiles, ProfileSettings, SourceTasks, cross_folds

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class TactFold:
    """The sources of one fit."""

    source: Source
    bank: FeatureBank
    seed: int
    limits: Limits
    anchor_space: str
    _memo: dict[Hashable, Any] = field(default_factory=dict, init=False, repr=False)

    @property
    def device(self) -> str:
        """Where tensors live."""
        return self.limits.device

    @cached_property
    def lists(self) -> RoleLists:
        """Training lists over all views."""
        return RoleLists.of(self.source.manifests, self.bank.corpus, max_tasks=self.limits.max_tasks)

    @cached_property
    def start(self) -> Trace:
        """The anchor of all training pairs."""
        return anchored(self.lists.pairs, bank=self.bank, space=self.anchor_space)

    @cached_property
    def records(self) -> SourceTasks:
        """Positive records of all source tasks, those without a list included."""
        rows = self.source.tasks
        gold = sparse.csr_matrix(self.source.fold.labels.gold[rows])
        return SourceTasks(rows=rows, gold=gold, context=self.source.context_of[rows])

    @cached_property
    def anchored(self) -> Path:
        """The path of the anchor alone."""
        return Path(space=self.anchor_space, contexts_seen=self.source.contexts)

    def remember(self, key: Hashable, make: Callable[[], T]) -> T:
        """What ``make`` derives from this fold, made once."""
        if key not in self._memo:
            self._memo[key] = make()
        return self._memo[key]

    def trace(self, path: Path) -> Trace:
        """The training pairs after the stages of a path; contextual evidence is cross-fitted."""
        before, stage = path.parent, path.stage
        if before is None or stage is None:
            return self.start
        return self.remember(("trace", path), lambda: self._advance(self.trace(before), stage))

    def profiles(self, settings: ProfileSettings) -> Profiles:
        """Profiles over all source tasks."""
        return self.remember(settings, lambda: self._made(self.records, settings))

    def cross_fitted(self, settings: ProfileSettings, *, count: int) -> PairEvidence:
        """Evidence of the training pairs, each from profiles without the context of its task: ``count`` sets of
        profiles, each without one fold of whole contexts [G: cross-fitted; R: folds]."""
        whole, records, corpus = self.profiles(settings), self.records, self.bank.corpus
        folds = cross_folds(
            records.context, corpus.task_hash[records.rows], names=self.source.context_names, count=count
        )
        pairs = self.lists.pairs
        fold_of = np.full(corpus.n_tasks, -1)
        fold_of[records.rows] = folds
        mine = fold_of[pairs.task]
        parts, places = [], []
        for number in np.unique(mine):
            profiles = self._made(records.take(folds != number), settings, like=whole)
            at = np.flatnonzero(mine == number)
            found = PairEvidence.of(pairs.take(at), profiles, bank=self.bank)
            parts.append(found.numbered(profiles.numbers, count=len(whole.centroids)))
            places.append(at)
        return _joined(parts, places, prototypes=len(whole.centroids), size=len(pairs))

    def _advance(self, trace: Trace, stage: FittedStage) -> Trace:
        if not isinstance(stage, FittedContextual):
            return stage.apply(trace)
        settings = stage.settings
        evidence = trace.remember(
            ("cross-fitted", settings.profiles, settings.cross_fit),
            lambda: self.cross_fitted(settings.profiles, count=settings.cross_fit),
        )
        return replace(trace, contextual=stage.correction(evidence))

    def _made(self, tasks: SourceTasks, settings: ProfileSettings, *, like: Profiles | None = None) -> Profiles:
        return Profiles.of(tasks, settings, bank=self.bank, seed=self.seed, max_tasks=self.limits.max_tasks, like=like)


def _joined(parts: list[PairEvidence], places: list[NDArray[np.int64]], *, prototypes: int, size: int) -> PairEvidence:
    """Evidence of all pairs from its parts at their places."""

    def scattered(values: list[NDArray[Any]], shape: tuple[int, ...], kind: type) -> NDArray[Any]:
        result = np.zeros(shape, kind)
        for rows, part in zip(places, values, strict=True):
            result[rows] = part
        return result

    width = parts[0].confidence.shape[1] if parts else 6
    return PairEvidence(
        product=scattered([p.product for p in parts], (size, prototypes), float),
        confidence=scattered([p.confidence for p in parts], (size, width), float),
        known=scattered([p.known for p in parts], (size,), bool),
        support=scattered([p.support for p in parts], (size,), float),
        nearness=scattered([p.nearness for p in parts], (size,), float),
    )

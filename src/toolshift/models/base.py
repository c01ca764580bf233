"""The one ranking interface. A scorer sees pairs of rows and label-free features, never a view, a role or a label."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from toolshift.models.features import FeatureBank, Pairs
from toolshift.views.corpus import Rows
from toolshift.views.manifest import Manifest
from toolshift.views.roles import Fold

Scores = NDArray[np.float64]
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Source:
    """Everything a model may learn from for one target: the fold of its source tasks and the lists built from it.

    held_out: names of the contexts that no fit may see. contexts: names of the source contexts. context_names: names
    of all contexts of the protocol. context_of: (n,) row of ``context_names`` of every task of the corpus, -1 outside.
    """

    target: str
    fold: Fold
    held_out: tuple[str, ...]
    contexts: tuple[str, ...]
    context_names: tuple[str, ...]
    context_of: NDArray[np.int64]
    build: Callable[[Fold], Mapping[str, Manifest]]
    _memo: dict[Hashable, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def remember(self, key: Hashable, make: Callable[[], T]) -> T:
        """What ``make`` derives from these sources, made once: several rows of a table ask for the same. It must not
        depend on who asks first."""
        if key not in self._memo:
            self._memo[key] = make()
        return self._memo[key]

    def forget(self) -> None:
        """Let go of what was remembered. Fits refer to their sources and these to the fits, so that nothing would be
        freed before the garbage collector comes by, which large arrays do not hurry."""
        for value in self._memo.values():
            if isinstance(value, Source):
                value.forget()
        self._memo.clear()

    @cached_property
    def manifests(self) -> Mapping[str, Manifest]:
        """Training lists of every view, built from this fold's own records when first asked for."""
        return self.build(self.fold)

    @property
    def tasks(self) -> Rows:
        """Task rows of the sources."""
        return self.fold.labels.rows

    @cached_property
    def gold_by_context(self) -> NDArray[np.int64]:
        """(g, m) source tasks per context for which a capability is gold."""
        rows = self.tasks[self.context_of[self.tasks] >= 0]
        shape = (len(self.context_names), self.fold.corpus.n_tasks)
        member = sparse.csr_matrix((np.ones(rows.size, np.int64), (self.context_of[rows], rows)), shape=shape)
        return sparse.csr_matrix(member @ self.fold.labels.gold.astype(np.int64)).toarray()

    def without(self, contexts: Sequence[str]) -> Source:
        """The sources without some contexts: their records are gone from everything that is built or counted."""
        return self.remember(("without", *contexts), lambda: self._without(contexts))

    def _without(self, contexts: Sequence[str]) -> Source:
        kept = tuple(c for c in self.contexts if c not in set(contexts))
        codes = [i for i, name in enumerate(self.context_names) if name in set(contexts)]
        rows = self.tasks[~np.isin(self.context_of[self.tasks], codes)]
        context_of = np.full_like(self.context_of, -1)
        context_of[rows] = self.context_of[rows]
        fold = self.fold.narrowed(self.fold.labels.only(rows))
        return replace(self, fold=fold, contexts=kept, context_of=context_of)

    def validation(self, contexts: Sequence[str]) -> Source:
        """The lists of some contexts, taken from the lists of all sources: what a fit without them is valued on."""
        return self.remember(("validation", *contexts), lambda: self._validation(contexts))

    def _validation(self, contexts: Sequence[str]) -> Source:
        codes = [i for i, name in enumerate(self.context_names) if name in set(contexts)]
        inside = np.isin(self.context_of, codes)
        rows = self.tasks[inside[self.tasks]]
        context_of = np.where(inside, self.context_of, -1)
        return replace(
            self,
            fold=self.fold.narrowed(self.fold.labels.only(rows)),
            contexts=tuple(c for c in self.contexts if c in set(contexts)),
            context_of=context_of,
            build=lambda _: {view: m.restrict(inside[m.tasks]) for view, m in self.manifests.items()},
        )

    @property
    def has_lists(self) -> bool:
        """Whether any view has a list for some task."""
        return any(m.tasks.size for m in self.manifests.values())


class SourceMeasure(Protocol):
    """Values a scorer on the source lists the way selection does."""

    def __call__(self, source: Source, score: Callable[[Pairs], Scores], *, max_tasks: int | None = None) -> float:
        """Higher is better; at most ``max_tasks`` source tasks per view are looked at."""
        ...


class BadParameter(ValueError):
    """A model was configured with a value it cannot use."""

    user_facing = True


class Scorer(Protocol):
    """A fitted model."""

    @property
    def contexts_seen(self) -> tuple[str, ...]:
        """Names of all contexts whose labels any fitted part has seen."""
        ...

    @property
    def record(self) -> Mapping[str, Any]:
        """What was chosen on the sources, for the selection record."""
        ...

    def score(self, pairs: Pairs, *, bank: FeatureBank, seed: int) -> Scores:
        """(p,) one real score per pair, higher is better; pointwise, so equal in every view."""
        ...


class Ranker(Protocol):
    """A model as configured.

    fit_per_seed: whether the fit itself depends on the seed; if not, one fit serves all seeds.
    """

    fit_per_seed: ClassVar[bool]

    def fit(self, source: Source, *, bank: FeatureBank, measure: SourceMeasure, seed: int) -> Scorer:
        """Fit on the sources; ``measure`` values scores of the source lists the way selection does."""
        ...


Setting = Mapping[str, Any]


class Trainable(Protocol):
    """A model that selection fits on parts of the sources, one object per setting of its grid, and then refits on all
    of them. A setting gives one value to every parameter named in the grid."""

    def epochs(self, source: Source, *, bank: FeatureBank, seed: int, limits: Limits) -> Iterator[Scorer]:
        """Fit on the sources and yield the scorer after every epoch, at most ``limits.epochs`` times; a closed-form
        fit yields once. A yielded scorer is not changed by later epochs."""
        ...


class StagedFit(Protocol):
    """The fit of a staged model on one set of sources, as far as it has come."""

    @property
    def scorer(self) -> Scorer:
        """What the stages so far make."""
        ...

    def epochs(self, stage: str, settings: Sequence[Setting], *, epochs: int) -> Iterator[tuple[Scorer, ...]]:
        """Fit one more stage under every setting and yield the scorers after each epoch, at most ``epochs`` times. The
        same object again means that nothing changed; where a setting switches the stage off, that is ``scorer``.
        Scorers are compared and hashed by identity."""
        ...

    def extended(self, scorer: Any) -> StagedFit:
        """The fit with the stage of one of the yielded scorers fixed."""
        ...


@runtime_checkable
class Staged(Protocol):
    """A model that is fitted and selected stage by stage, each stage with the preceding path fixed.

    stages: name -> parameters that are chosen with the stage, in the order of fitting.
    """

    stages: ClassVar[Mapping[str, Sequence[str]]]

    def begin(self, source: Source, *, bank: FeatureBank, seed: int, limits: Limits) -> StagedFit:
        """Before the first stage."""
        ...

    def is_trained(self, stage: str, setting: Setting) -> bool:
        """Whether the stage has to be trained under a setting. Those that are off, or have nothing to learn, cost
        nothing and together count as one setting of a budget."""
        ...


@runtime_checkable
class Stackable(Protocol):
    """A `Trainable` whose settings can be fitted together, for less than one by one."""

    @staticmethod
    def alike(models: Sequence[Any]) -> bool:
        """Whether these models can be fitted together."""
        ...

    @staticmethod
    def together(
        models: Sequence[Any], source: Source, *, bank: FeatureBank, seed: int, limits: Limits
    ) -> Iterator[tuple[Scorer, ...]]:
        """What ``epochs`` of each model yields, up to rounding."""
        ...


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Caps on one fit, and where it runs.

    epochs: at most. max_tasks: source tasks by smallest id hash (None for all). batch_tasks: at most so many tasks in a
    gradient step (None: what the model says). device: of torch models.
    """

    epochs: int
    max_tasks: int | None
    batch_tasks: int | None = None
    device: str = "cpu"


@dataclass(frozen=True, kw_only=True)
class FrozenRanker:
    """Base of rows without any fitted part: ``fit`` returns the row itself and nothing was seen."""

    fit_per_seed: ClassVar[bool] = False

    def fit(self, source: Source, *, bank: FeatureBank, measure: SourceMeasure, seed: int) -> Scorer:
        """Nothing to fit."""
        del source, bank, measure, seed
        return self

    @property
    def contexts_seen(self) -> tuple[str, ...]:
        """No label was read."""
        return ()

    @property
    def record(self) -> Mapping[str, Any]:
        """Nothing was chosen."""
        return {}

    def score(self, pairs: Pairs, *, bank: FeatureBank, seed: int) -> Scores:
        """(p,) scores; every frozen row defines its own."""
        raise NotImplementedError


class SideBySide:
    """Base of `Stackable` models: a model alone is a stack of one."""

    def epochs(self, source: Source, *, bank: FeatureBank, seed: int, limits: Limits) -> Iterator[Scorer]:
        """Fit on the sources and yield the scorer after every epoch.

        Raises:
            FloatingPointError: if a loss is not finite.
        """
        kind: Any = type(self)
        for (fitted,) in kind.together([self], source, bank=bank, seed=seed, limits=limits):
            yield fitted

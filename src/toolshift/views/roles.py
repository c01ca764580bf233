"""Role rules: which capabilities may stand in a list as semantic, contextual or ordinary negatives.

A rule offers packed (task, capability) pairs for all tasks of a fold; the manifest draws from the offer by keyed hash.
Rules read the labels of the fold at hand and of nothing else (validity.md section 4).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from toolshift.runs.seeds import keyed_hash
from toolshift.views.corpus import Corpus, Labels, Rows, stored_entries
from toolshift.views.pool import MINER_BITS, Pool, draw_salt

Mask = NDArray[np.bool_]
Universe = Literal["domain", "judged", "library"]
Miner = Literal["union", "dense", "bm25", "category"]


@dataclass(frozen=True, kw_only=True)
class Rules:
    """The scalars of the ``view`` configuration group."""

    universe: Universe = "domain"
    miner: Miner = "union"
    length: int = 20
    hard: int = 10
    top: int = 50
    seed: int = 0
    min_available: int = 5
    argument_overlap: float = 0.2
    duplicate_cosine: float = 0.95


@dataclass(frozen=True, kw_only=True)
class Offer:
    """Pairs a rule allows, packed: task (p,) rows, capability (p,) rows, miner (p,) bits."""

    task: Rows
    capability: Rows
    miner: NDArray[np.uint8]

    def where(self, keep: Mask | Rows) -> Offer:
        """The marked pairs, or the pairs at the given positions."""
        return Offer(task=self.task[keep], capability=self.capability[keep], miner=self.miner[keep])


RoleRule = Callable[["Fold"], Offer]


@dataclass(frozen=True, kw_only=True)
class Fold:
    """What a manifest may be built from: the label-free corpus, the labels of the fold's own tasks, and the pool."""

    corpus: Corpus
    labels: Labels
    pool: Pool
    rules: Rules
    _ranked: dict[tuple[str, RoleRule], Offer] = field(default_factory=dict, repr=False)

    def narrowed(self, labels: Labels) -> Fold:
        """The same corpus, pool and rules for fewer labels."""
        return Fold(corpus=self.corpus, labels=labels, pool=self.pool, rules=self.rules)

    @cached_property
    def gold_by_domain(self) -> NDArray[np.int64]:
        """(d, m) tasks per domain for which a capability is gold."""
        return self.labels.domain_counts(self.corpus)

    @cached_property
    def source_records(self) -> NDArray[np.int64]:
        """(m,) gold records of a capability over all tasks of the fold."""
        return np.asarray(self.labels.gold.astype(np.int64).sum(axis=0)).ravel()

    @cached_property
    def available(self) -> Mask:
        """(d+1, m) universe of every domain (validity.md section 1); the last row serves tasks without a domain,
        which have no domain universe and get the judged one."""
        corpus, rules = self.corpus, self.rules
        member = np.zeros((len(corpus.domains) + 1, corpus.n_capabilities), bool)
        if rules.universe == "library":
            member[:] = True
            return member
        member[:, self.labels.gold.indices] = True
        member[:, self.labels.given.indices] = True
        if len(corpus.parts) > 1:  # every task of several datasets has a domain, if only its dataset (`merged`)
            own = np.full(len(corpus.domains), -1, np.int64)
            own[corpus.task_domain[corpus.task_domain >= 0]] = corpus.task_part[corpus.task_domain >= 0]
            member[:-1] &= own[:, None] == corpus.capability_part[None, :]
        if rules.universe == "domain":
            member[:-1] = self.labels.judged_by_domain(corpus)
        return member

    @cached_property
    def _judged(self) -> Mask:
        """(d+1, m) capabilities that are gold or given for some task of a domain; the last row: for any task."""
        judged = np.zeros((1, self.corpus.n_capabilities), bool)
        judged[0, self.labels.gold.indices] = True
        judged[0, self.labels.given.indices] = True
        return np.concatenate([self.labels.judged_by_domain(self.corpus), judged])

    def judged_count(self, rows: Rows) -> int:
        """Capabilities judged in the domains of the tasks: what the rule on scored cells counts, in every universe. A
        task without a domain counts all that are judged."""
        return int(self._judged[np.unique(self.corpus.task_domain[rows])].any(axis=0).sum())

    @cached_property
    def _gold_keys(self) -> Rows:
        return np.sort(self.corpus.pair_key(*stored_entries(self.labels.gold)))

    def is_gold(self, task: Rows, capability: Rows) -> Mask:
        """(p,) whether a pair is annotated in this fold."""
        return contains(self._gold_keys, self.corpus.pair_key(task, capability))

    def ranked(self, role: str, rule: RoleRule) -> Offer:
        """The offer of a rule in drawing order: by task, then by the keyed hash of the role. Made once per fold."""
        if (role, rule) not in self._ranked:
            offer, corpus = rule(self), self.corpus
            salt = draw_salt(role, self.rules.seed)
            priority = keyed_hash(salt, corpus.task_hash[offer.task], corpus.capability_hash[offer.capability])
            self._ranked[role, rule] = offer.where(np.lexsort((priority, offer.task)))
        return self._ranked[role, rule]

    @cached_property
    def pooled(self) -> tuple[Offer, Mask, NDArray[np.float32]]:
        """The pool rows of the fold's tasks that the configured miner proposes and that are not gold:
        (offer, shares_verb (p,), overlap (p,))."""
        pool, rows = self.pool, self.labels.rows
        index, task = packed_rows(pool.offsets, rows)
        miner = pool.miner[index]
        mined = miner > 0 if self.rules.miner == "union" else (miner & MINER_BITS[self.rules.miner]) > 0
        capability = pool.capability[index].astype(np.int64)
        keep = mined & ~self.is_gold(task, capability)
        offer = Offer(task=task, capability=capability, miner=miner).where(keep)
        return offer, pool.shares_verb[index][keep], pool.overlap[index][keep]


def positive(fold: Fold) -> Offer:
    """The annotated gold of the fold's tasks."""
    task, capability = stored_entries(fold.labels.gold)
    return Offer(task=task, capability=capability, miner=np.zeros(task.size, np.uint8))


def given(fold: Fold) -> Offer:
    """Original candidates of the release that are not gold."""
    task, capability = stored_entries(fold.labels.given)
    offer = Offer(task=task, capability=capability, miner=np.full(task.size, MINER_BITS["given"], np.uint8))
    return offer.where(~fold.is_gold(task, capability))


def ordinary(fold: Fold) -> Offer:
    """Any capability of the universe that is not gold."""
    corpus, rows = fold.corpus, fold.labels.rows
    if fold.rules.universe == "library":
        task = np.repeat(rows, fold.pool.uniform.shape[1])
        capability = fold.pool.uniform[rows].ravel().astype(np.int64)
        task, capability = task[capability >= 0], capability[capability >= 0]
    else:
        code = np.where(corpus.task_domain[rows] < 0, len(corpus.domains), corpus.task_domain[rows])
        offsets = np.concatenate([[0], np.cumsum(fold.available.sum(axis=1))])
        _, columns = np.nonzero(fold.available)
        index, _ = packed_rows(offsets, code)
        task, capability = np.repeat(rows, np.diff(offsets)[code]), columns[index]
    offer = Offer(task=task, capability=capability, miner=np.full(task.size, MINER_BITS["uniform"], np.uint8))
    return offer.where(~fold.is_gold(task, capability))


def semantic(fold: Fold) -> Offer:
    """Related but lexically incompatible: mined, in the universe, not gold; its representative endpoint shares no
    operation verb with the gold and overlaps its required arguments below the threshold (tact.md section 7 [R],
    completed by validity.md section 2)."""
    offer, shares_verb, overlap = fold.pooled
    inside = fold.available[fold.corpus.task_domain[offer.task], offer.capability]
    return offer.where(inside & ~shares_verb & (overlap < fold.rules.argument_overlap))


def contextual(fold: Fold) -> Offer:
    """Functionally plausible, used elsewhere only: mined, gold for some task of another domain and for none of the
    task's own, with a gold verb (tact.md section 7 [R]; validity.md section 1 allows other domains)."""
    offer, shares_verb, _ = fold.pooled
    domain = fold.corpus.task_domain[offer.task]
    counts = np.vstack([fold.gold_by_domain, np.zeros((1, fold.corpus.n_capabilities), np.int64)])
    own, elsewhere = counts[domain, offer.capability], counts.sum(axis=0)[offer.capability]
    return offer.where(shares_verb & (domain >= 0) & (own == 0) & (elsewhere > 0))


def packed_rows(offsets: Rows, rows: Rows) -> tuple[Rows, Rows]:
    """Positions of the packed segments of ``rows`` one after another, and the row of each position."""
    counts = np.diff(offsets)[rows]
    local = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.repeat(offsets[rows], counts) + local, np.repeat(rows, counts)


def contains(sorted_keys: Rows, keys: Rows) -> Mask:
    """(p,) membership of ``keys`` in an ascending array."""
    if not sorted_keys.size:
        return np.zeros(keys.size, bool)
    place = np.minimum(np.searchsorted(sorted_keys, keys), sorted_keys.size - 1)
    return sorted_keys[place] == keys

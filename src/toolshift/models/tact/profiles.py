"""Source profiles: under which conditions a capability was used (tact.md sections 4.1 and 4.2 [R]).

All of it is counted from positive source records; ``of`` sees the tasks it is given and nothing else, so that leaving a
context out is leaving its tasks out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from toolshift.models.features import FeatureBank, exact_cosines
from toolshift.models.tact.kmeans import spherical_kmeans
from toolshift.views.corpus import Rows

Floats = NDArray[np.float64]
Lookup = Literal["id", "similarity", "both"]
Prototypes = Literal["kmeans", "contexts"]
LEAST_SIMILARITY = 0.25
"""No profile is taken over from capabilities that are less similar [G]."""
NEIGHBOURS = 5
SIMILARITY_TEMPERATURE = 0.1
_LOG_FLOOR = 1e-9


@dataclass(frozen=True, kw_only=True)
class ProfileSettings:
    """count: prototypes P; kind: clusters of source tasks, or one centroid per source context. temperature: tau_r of
    routing. prior: alpha. support: kappa_S. space: coordinates of routing, prototypes and similarity. lookup: of a
    capability's profile, by its id, by similar capabilities, or by id first."""

    count: int
    kind: Prototypes
    temperature: float
    prior: float
    support: float
    space: str
    lookup: Lookup


@dataclass(frozen=True, kw_only=True)
class SourceTasks:
    """Positive Natural-view records of t source tasks. rows: (t,). gold: (t, m). context: (t,) code, -1 for none."""

    rows: Rows
    gold: sparse.csr_matrix
    context: Rows

    def take(self, keep: NDArray[np.bool_]) -> SourceTasks:
        """Some of the tasks."""
        gold = sparse.csr_matrix(self.gold[np.flatnonzero(keep)])
        return SourceTasks(rows=self.rows[keep], gold=gold, context=self.context[keep])


@dataclass(frozen=True, kw_only=True)
class ProfileEvidence:
    """What the profiles say of p capabilities. records: (p,) n_c. support: (p,) S_c in [0, 1). contexts: (p,) share of
    the source contexts. log_ratio: (p, P) ln(pi_cp / b_p), exactly 0 where there is no evidence."""

    records: Floats
    support: Floats
    contexts: Floats
    log_ratio: Floats


@dataclass(frozen=True, kw_only=True, eq=False)
class Profiles:
    """Prototypes and profiles of one set of source tasks. P prototypes, g capabilities with records.

    centroids: (P, d). base: (P,) b. mean_routing: (P,). capabilities: (g,) rows, ascending. counts: (g, P) n_cp.
    contexts: (g,) distinct contexts with a record. n_contexts: in all. numbers: (P,) the prototypes' numbers in the
    profiles that these were made ``like``.
    """

    settings: ProfileSettings
    centroids: NDArray[np.float32]
    base: Floats
    mean_routing: Floats
    capabilities: Rows
    counts: Floats
    contexts: Floats
    n_contexts: int
    numbers: Rows

    @staticmethod
    def of(
        tasks: SourceTasks,
        settings: ProfileSettings,
        *,
        bank: FeatureBank,
        seed: int,
        max_tasks: int | None = None,
        like: Profiles | None = None,
    ) -> Profiles:
        """Count the records of the tasks. Without a task there is no prototype and no evidence.

        max_tasks: prototypes are clusters of at most so many tasks, by id hash; records are counted over all. like:
        number the prototypes as those of these profiles that they are closest to, so that one weight per prototype
        means the same in both.
        """
        vectors = np.asarray(bank.vectors(settings.space)[0][tasks.rows])
        looked_at = _smallest(bank.corpus.task_hash[tasks.rows], max_tasks)
        centroids = _centroids(vectors[looked_at], tasks.context[looked_at], settings, seed=seed)
        numbers = np.arange(len(centroids)) if like is None else _numbered_like(centroids, like.centroids)
        order = np.argsort(numbers, kind="stable")
        centroids, numbers = centroids[order], numbers[order]
        routing = route(vectors, centroids, temperature=settings.temperature)
        capabilities = np.unique(tasks.gold.indices).astype(np.int64)
        gold = sparse.csr_matrix(tasks.gold.astype(np.float64))[:, capabilities]
        counts = np.asarray(gold.T @ routing).reshape(capabilities.size, len(centroids))
        # A task without a context is a context of its own, as everywhere; one such context stands for all of them.
        names, context = np.unique(tasks.context, return_inverse=True)
        member = sparse.csr_matrix(
            (np.ones(context.size), (context.ravel(), np.arange(context.size))), shape=(names.size, context.size)
        )
        touched = np.asarray(((member @ gold) > 0).sum(axis=0)).ravel()
        total = counts.sum()
        return Profiles(
            settings=settings,
            centroids=centroids,
            base=counts.sum(axis=0) / total if total > 0 else np.full(len(centroids), 1.0 / max(len(centroids), 1)),
            mean_routing=routing.mean(axis=0) if len(routing) else np.zeros(len(centroids)),
            capabilities=capabilities,
            counts=counts,
            contexts=touched.astype(np.float64),
            n_contexts=max(names.size, 1),
            numbers=numbers,
        )

    def state(self) -> Mapping[str, NDArray[Any]]:
        """All that routing and look-up read. ``reading``: temperature, prior, support, position of the look-up among
        its choices; of a stage without a grid of its own these need not be those of the whole model."""
        how = self.settings
        reading = [how.temperature, how.prior, how.support, get_args(Lookup).index(how.lookup)]
        return {
            "centroids": self.centroids,
            "base": self.base,
            "mean_routing": self.mean_routing,
            "capabilities": self.capabilities,
            "counts": self.counts,
            "contexts": self.contexts,
            "n_contexts": np.array([self.n_contexts]),
            "reading": np.array(reading, np.float64),
        }

    @staticmethod
    def restored(settings: ProfileSettings, arrays: Mapping[str, NDArray[Any]]) -> Profiles:
        """What `state` stored.

        Raises:
            KeyError: if an array is missing.
        """
        temperature, prior, support, lookup = arrays["reading"].tolist()
        how: Any = {"lookup": get_args(Lookup)[int(lookup)]}
        return Profiles(
            settings=replace(settings, temperature=temperature, prior=prior, support=support, **how),
            centroids=arrays["centroids"],
            base=arrays["base"],
            mean_routing=arrays["mean_routing"],
            capabilities=arrays["capabilities"],
            counts=arrays["counts"],
            contexts=arrays["contexts"],
            n_contexts=int(arrays["n_contexts"][0]),
            numbers=np.arange(len(arrays["centroids"])),
        )

    def thinned(self, counts: Floats, contexts: Floats) -> Profiles:
        """The same prototypes, base and mean routing with other association records (tact.md section 8)."""
        return replace(self, counts=counts, contexts=contexts)

    def routing(self, rows: Rows, *, bank: FeatureBank) -> tuple[Floats, Floats]:
        """(t, P) routing R of tasks, and (t,) their largest cosine to a prototype."""
        vectors = np.asarray(bank.vectors(self.settings.space)[0][rows])
        cosine = exact_cosines(vectors, self.centroids).astype(np.float64)
        nearest = cosine.max(axis=1) if cosine.shape[1] else np.zeros(len(rows))
        return route(vectors, self.centroids, temperature=self.settings.temperature), nearest

    def lookup(self, rows: Rows, *, bank: FeatureBank) -> ProfileEvidence:
        """Evidence of capabilities (rows, distinct) in the configured way."""
        own = self._by_id(rows)
        if self.settings.lookup == "id":
            return own
        similar = self._by_similarity(rows, bank=bank)
        if self.settings.lookup == "similarity":
            return similar
        known = own.records > 0
        return ProfileEvidence(
            records=np.where(known, own.records, similar.records),
            support=np.where(known, own.support, similar.support),
            contexts=np.where(known, own.contexts, similar.contexts),
            log_ratio=np.where(known[:, None], own.log_ratio, similar.log_ratio),
        )

    def _profiles(self) -> tuple[Floats, Floats, Floats]:
        """(g, P) pi, (g,) n, (g,) S of the capabilities with records."""
        n = self.counts.sum(axis=1)
        alpha = self.settings.prior
        pi = (self.counts + alpha * self.base) / (n + alpha)[:, None]
        return pi, n, n / (n + self.settings.support)

    def _log_ratio(self, pi: Floats, known: NDArray[np.bool_]) -> Floats:
        ratio = np.log((pi + _LOG_FLOOR) / (self.base + _LOG_FLOOR))
        return np.where(known[:, None], ratio, 0.0)

    def _by_id(self, rows: Rows) -> ProfileEvidence:
        pi, n, support = self._profiles()
        place = np.searchsorted(self.capabilities, rows)
        place = np.minimum(place, max(self.capabilities.size - 1, 0))
        if not self.capabilities.size:
            return self._nothing(rows.size)
        known = (self.capabilities[place] == rows) & (n[place] > 0)
        return ProfileEvidence(
            records=np.where(known, n[place], 0.0),
            support=np.where(known, support[place], 0.0),
            contexts=np.where(known, self.contexts[place] / self.n_contexts, 0.0),
            log_ratio=self._log_ratio(pi[place], known),
        )

    def _nothing(self, size: int) -> ProfileEvidence:
        zero = np.zeros(size)
        return ProfileEvidence(
            records=zero, support=zero, contexts=zero, log_ratio=np.zeros((size, len(self.centroids)))
        )

    def _by_similarity(self, rows: Rows, *, bank: FeatureBank) -> ProfileEvidence:
        """The most similar source capabilities of each source dataset, weighted by similarity and support [G, R]."""
        pi, n, support = self._profiles()
        with_records = np.flatnonzero(n > 0)
        if not with_records.size:
            return self._nothing(rows.size)
        vectors = bank.vectors(self.settings.space)[1]
        found = self.capabilities[with_records]
        cosine = exact_cosines(np.asarray(vectors[rows]), np.asarray(vectors[found])).astype(np.float64)
        weight = np.zeros_like(cosine)
        part = bank.corpus.capability_part[found]
        for number in np.unique(part):
            columns = np.flatnonzero(part == number)
            order = np.argsort(-cosine[:, columns], axis=1, kind="stable")[:, :NEIGHBOURS]
            chosen = columns[order]
            near = np.take_along_axis(cosine, chosen, axis=1)
            value = support[with_records][chosen] * np.exp((near - 1.0) / SIMILARITY_TEMPERATURE)
            np.put_along_axis(weight, chosen, value, axis=1)
        largest = cosine.max(axis=1)
        known = (largest >= LEAST_SIMILARITY) & (weight.sum(axis=1) > 0)
        # Sparse, so that a row adds up its few neighbours in one order, alone or among others.
        share = sparse.csr_matrix(weight / np.maximum(weight.sum(axis=1, keepdims=True), 1e-300))
        return ProfileEvidence(
            records=np.where(known, share @ n[with_records], 0.0),
            support=np.where(known, (share @ support[with_records]) * np.minimum(largest, 1.0), 0.0),
            contexts=np.where(known, share @ (self.contexts[with_records] / self.n_contexts), 0.0),
            log_ratio=self._log_ratio(share @ pi[with_records], known),
        )


def route(vectors: NDArray[np.float32], centroids: NDArray[np.float32], *, temperature: float) -> Floats:
    """(t, P) softmax over prototypes of cosine / temperature."""
    cosine = exact_cosines(vectors, centroids).astype(np.float64) / temperature
    if not cosine.shape[1]:
        return cosine
    weight = np.exp(cosine - cosine.max(axis=1, keepdims=True))
    return weight / weight.sum(axis=1, keepdims=True)


def _centroids(
    vectors: NDArray[np.float32], context: Rows, settings: ProfileSettings, *, seed: int
) -> NDArray[np.float32]:
    if settings.kind == "kmeans":
        return spherical_kmeans(vectors, settings.count, seed=seed)
    names, of = np.unique(context, return_inverse=True)
    member = sparse.csr_matrix((np.ones(of.size), (of.ravel(), np.arange(of.size))), shape=(names.size, of.size))
    mean = np.asarray(member @ vectors.astype(np.float64))
    return (mean / np.maximum(np.linalg.norm(mean, axis=1, keepdims=True), 1e-9)).astype(np.float32)


def _smallest(hashes: NDArray[np.uint64], count: int | None) -> Rows:
    if count is None or hashes.size <= count:
        return np.arange(hashes.size)
    return np.sort(np.argsort(hashes, kind="stable")[:count])


def _numbered_like(centroids: NDArray[np.float32], others: NDArray[np.float32]) -> Rows:
    """(P,) which of ``others`` each row stands for: the best one-to-one match. Rows beyond them, which only a fold with
    more clusters than the whole could have, are numbered after them."""
    from scipy.optimize import linear_sum_assignment

    rows, columns = linear_sum_assignment(-exact_cosines(centroids, others))
    numbers = np.full(len(centroids), -1, np.int64)
    numbers[rows] = columns
    left = numbers < 0
    numbers[left] = len(others) + np.arange(int(left.sum()))
    return numbers


def cross_folds(context: Rows, hashes: Sequence[int] | NDArray[np.uint64], *, names: Sequence[str], count: int) -> Rows:
    """(t,) fold of each source task for cross-fitting: whole contexts, dealt by the hash of their names; a task without
    a context is dealt by its own hash. ``names`` gives the name of a context code."""
    import hashlib

    present = sorted({int(c) for c in context if c >= 0}, key=lambda c: hashlib.sha256(names[c].encode()).hexdigest())
    count = max(min(count, len(present)), 1)
    fold_of = np.zeros(len(names), np.int64)
    fold_of[present] = np.arange(len(present)) % count
    own = (np.asarray(hashes, np.uint64) % np.uint64(count)).astype(np.int64)
    return np.where(context >= 0, fold_of[np.maximum(context, 0)], own)

"""Frozen candidate manifests: draw every list by keyed hash, keep role and miner, count what is not eligible."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from scipy import sparse

from toolshift.runs.files import write_binary
from toolshift.text.spans import identifier_words
from toolshift.views.corpus import Corpus, Labels, Rows
from toolshift.views.pool import MINER_BITS, place_in_group
from toolshift.views.roles import Fold, Offer, RoleRule, contains, positive

ROLES = ("positive", "ordinary", "semantic", "contextual")


@dataclass(frozen=True, kw_only=True)
class Draw:
    """One drawing step of a recipe: at most ``quota`` candidates of ``role`` per list (None fills the list)."""

    role: str
    rule: RoleRule
    quota: int | None
    required: bool = False


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How the lists of a view are filled: its draws in order; a task without a ``required`` draw is not eligible."""

    draws: tuple[Draw, ...]


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """Candidate lists of one view, packed. n lists, N candidates in all; lists by task row, candidates by row.

    tasks: (n,) task rows. offsets: (n+1,). capability: (N,) capability rows. role: (N,) codes of ``ROLES``.
    miner: (N,) bits of ``MINER_BITS``, 0 for positives. skipped: reason -> tasks that got no list.
    """

    view: str
    tasks: Rows
    offsets: Rows
    capability: Rows
    role: NDArray[np.int8]
    miner: NDArray[np.uint8]
    skipped: Mapping[str, int]

    @property
    def positive(self) -> NDArray[np.bool_]:
        """(N,) whether a candidate is gold for its task."""
        return self.role == 0

    @property
    def lengths(self) -> Rows:
        """(n,) candidates per list."""
        return np.diff(self.offsets)

    @property
    def task_of(self) -> Rows:
        """(N,) task row of every candidate."""
        return np.repeat(self.tasks, self.lengths)

    def restrict(self, keep_lists: NDArray[np.bool_]) -> Manifest:
        """The lists marked in ``keep_lists`` (n,), whole."""
        return self.filter(np.repeat(keep_lists, self.lengths))

    def filter(self, keep: NDArray[np.bool_]) -> Manifest:
        """Drop single candidates, ``keep`` (N,); lists that end up without a positive or a negative go too."""
        index = np.repeat(np.arange(self.tasks.size), self.lengths)
        count = np.bincount(index[keep], minlength=self.tasks.size)
        gold = np.bincount(index[keep & self.positive], minlength=self.tasks.size)
        alive = (gold > 0) & (count > gold)
        keep = keep & alive[index]
        lengths = np.bincount(index[keep], minlength=self.tasks.size)[alive]
        return Manifest(
            view=self.view,
            tasks=self.tasks[alive],
            offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
            capability=self.capability[keep],
            role=self.role[keep],
            miner=self.miner[keep],
            skipped=self.skipped,
        )


def build_manifest(view: str, recipe: Recipe, *, fold: Fold) -> Manifest:
    """Draw the lists of every task of the fold.

    The draw of a role is keyed by (role, seed, task, capability) and not by the view, so a candidate drawn for one
    view is drawn for the others that use the role.
    """
    corpus = fold.corpus
    gold = positive(fold)
    n_gold = np.bincount(gold.task, minlength=corpus.n_tasks)
    room = np.maximum(fold.rules.length - n_gold, 1)
    held = np.zeros(corpus.n_tasks, bool)
    held[fold.labels.rows] = True
    drawn, eligible, skipped = [(gold, 0)], held.copy(), {}
    for draw in recipe.draws:
        offer = _draw(draw, fold=fold, room=room, taken=[o for o, _ in drawn])
        count = np.bincount(offer.task, minlength=corpus.n_tasks)
        room = room - count
        if draw.required:
            _skip(skipped, f"no_{draw.role}_candidate", eligible & (count == 0))
            eligible &= count > 0
        drawn.append((offer, ROLES.index(draw.role)))
    total = sum(np.bincount(o.task, minlength=corpus.n_tasks) for o, _ in drawn)
    _skip(skipped, "no_negative", eligible & (total == n_gold))
    eligible &= total > n_gold
    return _packed(view, drawn, eligible=eligible, skipped=skipped)


def _draw(draw: Draw, *, fold: Fold, room: Rows, taken: list[Offer]) -> Offer:
    """Smallest keyed hashes first, without replacement, at most quota and room per task."""
    corpus, offer = fold.corpus, fold.ranked(draw.role, draw.rule)
    keys = np.sort(np.concatenate([corpus.pair_key(o.task, o.capability) for o in taken]))
    offer = offer.where(~contains(keys, corpus.pair_key(offer.task, offer.capability)))
    quota = room if draw.quota is None else np.minimum(room, draw.quota)
    return offer.where(place_in_group(offer.task) < quota[offer.task])


def _packed(
    view: str, drawn: list[tuple[Offer, int]], *, eligible: NDArray[np.bool_], skipped: dict[str, int]
) -> Manifest:
    task = np.concatenate([o.task for o, _ in drawn])
    capability = np.concatenate([o.capability for o, _ in drawn])
    role = np.concatenate([np.full(o.task.size, code, np.int8) for o, code in drawn])
    miner = np.concatenate([o.miner for o, _ in drawn])
    order = np.lexsort((capability, task))
    order = order[eligible[task[order]]]
    tasks, lengths = np.unique(task[order], return_counts=True)
    return Manifest(
        view=view,
        tasks=tasks,
        offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        capability=capability[order],
        role=role[order],
        miner=miner[order],
        skipped=dict(sorted(skipped.items())),
    )


def _skip(skipped: dict[str, int], reason: str, tasks: NDArray[np.bool_]) -> None:
    if tasks.any():
        skipped[reason] = skipped.get(reason, 0) + int(tasks.sum())


def suspected_duplicates(
    manifest: Manifest, corpus: Corpus, *, labels: Labels, near_text: sparse.csr_matrix
) -> Suspects:
    """Flag negatives that look like valid substitutes of a gold capability (validity.md section 5).

    same_operation: an endpoint has the operation words and all argument names of a gold endpoint. near_text: the
    public texts have a cosine of at least the threshold behind ``near_text``.
    """
    task, capability = manifest.task_of, manifest.capability
    key = _operation_keys(corpus)
    wanted = sparse.csr_matrix(labels.gold_endpoints.astype(np.int32) @ key)
    offered = sparse.csr_matrix(_capability_endpoints(corpus) @ key)
    operation = _pair_products(wanted, offered, task, capability) > 0
    alike = sparse.csr_matrix(labels.gold.astype(np.int32) @ near_text.astype(np.int32))
    text = _pair_products(alike, _identity(corpus.n_capabilities), task, capability) > 0
    return Suspects(same_operation=operation & ~manifest.positive, near_text=text & ~manifest.positive)


@dataclass(frozen=True, kw_only=True)
class Suspects:
    """(N,) flags of suspected false negatives, by the rule that found them."""

    same_operation: NDArray[np.bool_]
    near_text: NDArray[np.bool_]

    def take(self, candidates: NDArray[np.bool_]) -> Suspects:
        """The flags of the marked candidates."""
        return Suspects(same_operation=self.same_operation[candidates], near_text=self.near_text[candidates])

    @property
    def any(self) -> NDArray[np.bool_]:
        """(N,) found by either rule."""
        return self.same_operation | self.near_text


def _operation_keys(corpus: Corpus) -> sparse.csr_matrix:
    keys = [(identifier_words(e.operation), tuple(sorted(a.name for a in e.arguments))) for e in corpus.endpoints]
    code = {k: i for i, k in enumerate(sorted(set(keys)))}
    columns = np.array([code[k] for k in keys], np.int64)
    shape = (len(keys), len(code))
    return sparse.csr_matrix((np.ones(len(keys), np.int32), (np.arange(len(keys)), columns)), shape=shape)


def _capability_endpoints(corpus: Corpus) -> sparse.csr_matrix:
    size = len(corpus.endpoints)
    ones = np.ones(size, np.int32)
    return sparse.csr_matrix((ones, np.arange(size), corpus.endpoint_offsets), shape=(corpus.n_capabilities, size))


def _identity(size: int) -> sparse.csr_matrix:
    return sparse.csr_matrix((np.ones(size, np.int32), np.arange(size), np.arange(size + 1)), shape=(size, size))


def _pair_products(
    left: sparse.csr_matrix, right: sparse.csr_matrix, i: Rows, j: Rows, *, chunk: int = 100_000
) -> NDArray[np.int64]:
    parts = [
        np.asarray(left[i[s : s + chunk]].multiply(right[j[s : s + chunk]]).sum(axis=1)).ravel()
        for s in range(0, i.size, chunk)
    ]
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)


def miner_name(bits: int) -> str:
    """Readable miner bits: ``bm25+dense``; empty for positives."""
    return "+".join(name for name, bit in MINER_BITS.items() if bits & bit)


def manifest_table(manifest: Manifest, corpus: Corpus, *, suspects: Suspects) -> pa.Table:
    """The published form of a manifest: task_id, capability_id, role, miner, suspected_duplicate."""
    names = pa.array([miner_name(b) for b in range(32)])
    table = pair_columns(corpus, task=manifest.task_of, capability=manifest.capability)
    role = pa.DictionaryArray.from_arrays(pa.array(manifest.role), pa.array(ROLES))
    miner = pa.DictionaryArray.from_arrays(pa.array(manifest.miner.astype(np.int8)), names)
    table = table.append_column("role", role).append_column("miner", miner)
    return table.append_column("suspected_duplicate", pa.array(suspects.any))


def pair_columns(corpus: Corpus, *, task: Rows, capability: Rows) -> pa.Table:
    """Row pairs as the columns task_id and capability_id."""
    return pa.table(
        {"task_id": _taken(corpus.task_ids, task), "capability_id": _taken(corpus.capability_ids, capability)}
    )


def write_table(path: Path, table: pa.Table) -> Path:
    """Write an Arrow table as parquet, atomically and without any time stamp."""
    return write_binary(path, lambda stream: pq.write_table(table, stream, compression="zstd"))


def _taken(ids: tuple[str, ...], rows: Rows) -> pa.DictionaryArray:
    used, code = np.unique(rows, return_inverse=True)
    names = pa.array([ids[r] for r in used], pa.string())
    return pa.DictionaryArray.from_arrays(pa.array(code.astype(np.int32)), names)

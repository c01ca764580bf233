"""The artefact page: what gives positives away before any method is run (validity.md sections 1, 3 and 5)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from toolshift.evaluation.per_task import TaskFlags, ViewLists
from toolshift.measures import evaluate_lists, expected_random
from toolshift.protocols.folds import TASK_ROLES, FoldTable
from toolshift.protocols.leakage import Leakage
from toolshift.runs.seeds import keyed_hash, seed_of, uniform
from toolshift.views.corpus import Corpus, Labels
from toolshift.views.manifest import ROLES, Manifest
from toolshift.views.pool import MINER_BITS
from toolshift.views.roles import Fold

MEASURE = "NDCG@5"
COLUMNS = ("universe", "miner", "purge", "view", "section", "subject", "statistic", "value", "n")
Row = tuple[str, str, str, float, int]


FEW_TARGETS = 10
"""With so many targets at most, shortcuts are also given target by target, and roles where targets are datasets."""


def artefact_rows(
    lists: Sequence[ViewLists],
    corpus: Corpus,
    *,
    folds: FoldTable,
    fold: Fold,
    flags: TaskFlags,
    leakage: Leakage | None = None,
) -> pd.DataFrame:
    """Tidy rows (``COLUMNS``) of one variant. ``n`` is what a value was averaged over.

    fold: what the evaluation lists were built from, all labels included. leakage: what several datasets share; rows of
    it appear where there are several.
    """
    rules, labels = fold.rules, fold.labels
    records = source_records(folds, labels)
    rows: list[tuple[object, ...]] = []
    for one in lists:
        for row in _view_rows(one, corpus, held=labels.rows.size, records=records, flags=flags):
            rows.append((rules.universe, rules.miner, folds.rules.cut, one.manifest.view, *row))
        if len(folds.targets) <= FEW_TARGETS:
            for row in _target_rows(one, corpus, records=records):
                rows.append((rules.universe, rules.miner, folds.rules.cut, one.manifest.view, *row))
    leaks = _leakage_rows(folds, leakage) if leakage is not None and len(corpus.parts) > 1 else ()
    for row in (*_purge_rows(folds), *_unseen_rows(folds, corpus, labels=labels), *leaks):
        rows.append((rules.universe, rules.miner, folds.rules.cut, "", *row))
    return pd.DataFrame(rows, columns=list(COLUMNS))


def source_records(folds: FoldTable, labels: Labels) -> NDArray[np.int64]:
    """(g, m) gold records of a capability in the train tasks of each target: n_c after the purge."""
    train = folds.role == TASK_ROLES.index("train")
    width, owner = labels.given.get_shape()[1], np.repeat(np.arange(train.shape[1]), np.diff(labels.gold.indptr))
    return np.stack([np.bincount(labels.gold.indices[row[owner]], minlength=width) for row in train])


def _view_rows(
    lists: ViewLists, corpus: Corpus, *, held: int, records: NDArray[np.int64], flags: TaskFlags
) -> Iterator[Row]:
    manifest = lists.manifest
    n_source = records[np.repeat(lists.target, manifest.lengths), manifest.capability]
    yield from _list_rows(lists, held=held, flags=flags)
    yield from _role_rows(manifest, corpus, n_source=n_source)
    yield from _miner_rows(manifest)
    suspects, negatives = lists.suspects, ~manifest.positive
    for name, flag in (("same operation and arguments", suspects.same_operation), ("near text", suspects.near_text)):
        yield "duplicates", name, "negatives flagged", float(flag.sum()), int(negatives.sum())
        yield "duplicates", name, "share of negatives", _mean(flag[negatives]), int(negatives.sum())
    yield from _shortcut_rows(lists, corpus, n_source=n_source)


def _target_rows(lists: ViewLists, corpus: Corpus, *, records: NDArray[np.int64]) -> Iterator[Row]:
    """Every target alone: the shortcuts, and where the targets are datasets the candidates by role."""
    datasets = len(corpus.parts) > 1 and {part.name for part in corpus.parts}.issuperset(lists.targets)
    for number in np.unique(lists.target):
        inside = np.repeat(lists.target == number, lists.manifest.lengths)
        one = lists.keep(inside)
        n_source = records[number, one.manifest.capability]
        roles = _role_rows(one.manifest, corpus, n_source=n_source) if datasets else ()
        for section, subject, statistic, value, n in (*roles, *_shortcut_rows(one, corpus, n_source=n_source)):
            yield f"{section} by target", f"{lists.targets[number]}: {subject}", statistic, value, n


def _leakage_rows(folds: FoldTable, leakage: Leakage) -> Iterator[Row]:
    """How much of each target, and of the other datasets, is repeated on the other side."""
    for target in folds.targets:
        for what, level, side, repeated, of in leakage.rows(folds.rows(target, role="test")):
            value = repeated / of if of else float("nan")
            yield "leakage", f"{target}: {what} of the {side}", f"share repeated ({level})", value, of


def _list_rows(lists: ViewLists, *, held: int, flags: TaskFlags) -> Iterator[Row]:
    manifest, n = lists.manifest, lists.manifest.tasks.size
    yield "lists", "tasks", "with a list", float(n), held
    for reason, count in manifest.skipped.items():
        yield "lists", "tasks", f"skipped: {reason}", float(count), held
    targets = len(lists.targets)
    yield "lists", "tasks", "scored", float(lists.scored.sum()), n
    yield "lists", "targets", "with a list", float(np.unique(lists.target).size), targets
    yield "lists", "targets", "scored", float(np.unique(lists.target[lists.scored]).size), targets
    for name, statistic in (("mean", np.mean), ("min", np.min), ("max", np.max)):
        yield "lists", "length", name, float(statistic(manifest.lengths)) if n else float("nan"), n
    given = (manifest.miner & MINER_BITS["given"]) > 0
    index = np.repeat(np.arange(n), manifest.lengths)
    with_given = np.bincount(index[given], minlength=n) > 0
    yield "lists", "given candidates", "share of lists with any", _mean(with_given), n
    yield "lists", "name-free", "share of tasks", _mean(flags.name_free[manifest.tasks]), n
    yield "lists", "no partial schema", "share of tasks", _mean(flags.no_partial_schema[manifest.tasks]), n


def _role_rows(manifest: Manifest, corpus: Corpus, *, n_source: NDArray[np.int64]) -> Iterator[Row]:
    documented = np.bincount(
        corpus.endpoint_capability,
        weights=np.array([bool(e.required_arguments) for e in corpus.endpoints], np.float64),
        minlength=corpus.n_capabilities,
    )
    length = np.array([len(t) for t in corpus.capability_texts], np.float64)
    features: Mapping[str, NDArray[np.float64]] = {
        "endpoints": corpus.endpoint_count.astype(np.float64)[manifest.capability],
        "share with a required argument": (documented > 0).astype(np.float64)[manifest.capability],
        "text length": length[manifest.capability],
        "partial schema": corpus.partial_schema.astype(np.float64)[manifest.capability],
        "source records": n_source.astype(np.float64),
        "any source record": (n_source > 0).astype(np.float64),
    }
    for code, role in enumerate(ROLES):
        mask = manifest.role == code
        yield "roles", role, "share of candidates", _mean(mask), int(mask.size)
        if mask.any():
            for name, values in features.items():
                yield "roles", role, name, float(values[mask].mean()), int(mask.sum())


def _miner_rows(manifest: Manifest) -> Iterator[Row]:
    for code, role in enumerate(ROLES[2:], start=2):
        mask = manifest.role == code
        for miner in ("bm25", "dense", "category"):
            share = (manifest.miner[mask] & MINER_BITS[miner]) > 0
            if share.size:
                yield "miners", role, f"proposed by {miner}", _mean(share), int(share.size)


def _shortcut_rows(lists: ViewLists, corpus: Corpus, *, n_source: NDArray[np.int64]) -> Iterator[Row]:
    """Macro NDCG@5 over scored targets of rankings that never read the task."""
    manifest, n = lists.manifest, int(lists.scored.sum())
    if not n:
        return
    task, capability = manifest.task_of, manifest.capability
    noise = keyed_hash(seed_of("artefacts"), corpus.task_hash[task], corpus.capability_hash[capability])
    rankings: Mapping[str, Callable[[], NDArray[np.float64]]] = {
        "popularity": lambda: np.log1p(n_source),
        "evidence presence": lambda: (n_source > 0).astype(np.float64),
        "evidence absence": lambda: (n_source == 0).astype(np.float64),
        "endpoint count": lambda: corpus.endpoint_count[capability].astype(np.float64),
        "keyed hash": lambda: uniform(noise),
    }
    for name, scores in rankings.items():
        values = evaluate_lists(scores(), manifest.positive, offsets=manifest.offsets, measures=[MEASURE])
        yield "shortcuts", name, MEASURE, _macro(values.values[MEASURE], lists), n
    n_gold = np.add.reduceat(manifest.positive.astype(np.int64), manifest.offsets[:-1])
    chance = expected_random(manifest.lengths, n_gold, measures=[MEASURE]).values[MEASURE]
    yield "shortcuts", "random (expected)", MEASURE, _macro(chance, lists), n


def _purge_rows(folds: FoldTable) -> Iterator[Row]:
    """Which share of the source tasks every purge leaves or takes away, over targets."""
    sources = (folds.role != TASK_ROLES.index("test")).sum(axis=1)
    for code, role in enumerate(TASK_ROLES):
        if role == "test":
            continue
        share = (folds.role == code).sum(axis=1) / np.maximum(sources, 1)
        yield "purge", role, "mean share of source tasks", float(share.mean()), len(folds.targets)
        yield "purge", role, "smallest share of source tasks", float(share.min()), len(folds.targets)
        yield "purge", role, "largest share of source tasks", float(share.max()), len(folds.targets)


def _unseen_rows(folds: FoldTable, corpus: Corpus, *, labels: Labels) -> Iterator[Row]:
    """How unseen the targets are: positives with source records, and gold sets that a source task repeats."""
    test = folds.role == TASK_ROLES.index("test")
    train = folds.role == TASK_ROLES.index("train")
    gold, identity = labels.gold, _gold_set_identity(labels)
    seen, repeated, positives, tasks = (np.zeros(len(folds.targets)) for _ in range(4))
    for i in range(len(folds.targets)):
        held_out = np.flatnonzero(test[i])
        records = np.asarray(gold[np.flatnonzero(train[i])].astype(np.int64).sum(axis=0)).ravel()
        columns = gold[held_out].indices
        seen[i], positives[i] = (records[columns] > 0).sum(), columns.size
        repeated[i] = np.isin(identity[held_out], identity[train[i]]).sum()
        tasks[i] = held_out.size
    several = _touches_several_domains(corpus, labels)[test.any(axis=0)]
    n = int(tasks.sum())
    yield "unseen", "positives", "share with source records", float(seen.sum() / positives.sum()), int(positives.sum())
    yield "unseen", "positives", "macro share with source records", float((seen / positives).mean()), tasks.size
    yield "unseen", "tasks", "share whose gold set a source task repeats", float(repeated.sum() / n), n
    yield (
        "unseen",
        "tasks",
        "macro share whose gold set a source task repeats",
        float((repeated / tasks).mean()),
        tasks.size,
    )
    yield "unseen", "tasks", "share with gold in several categories", _mean(several), several.size


def _gold_set_identity(labels: Labels) -> NDArray[np.int64]:
    """(n,) equal numbers for tasks with the same gold capabilities."""
    gold = labels.gold
    sets = [gold.indices[a:b].tobytes() for a, b in zip(gold.indptr[:-1], gold.indptr[1:], strict=True)]
    code = {s: i for i, s in enumerate(sorted(set(sets)))}
    return np.array([code[s] for s in sets], np.int64)


def _touches_several_domains(corpus: Corpus, labels: Labels) -> NDArray[np.bool_]:
    domain = corpus.capability_domain[labels.gold.indices]
    task = np.repeat(np.arange(corpus.n_tasks), np.diff(labels.gold.indptr))
    distinct = np.unique(np.stack([task, domain]), axis=1)
    return np.bincount(distinct[0], minlength=corpus.n_tasks) > 1


def _macro(values: NDArray[np.float64], lists: ViewLists) -> float:
    count = np.bincount(lists.target[lists.scored])
    total = np.bincount(lists.target[lists.scored], weights=values[lists.scored])
    return float(np.mean(total[count > 0] / count[count > 0]))


def _mean(values: NDArray[np.bool_]) -> float:
    return float(values.mean()) if values.size else float("nan")

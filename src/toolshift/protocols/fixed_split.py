"""Fixed split: the release's own test tasks are the one target, its training tasks the sources."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from toolshift.protocols.partition import Partition, ProtocolError
from toolshift.runs.seeds import keyed_hash, seed_of
from toolshift.views.corpus import Corpus

NAME = "fixed_split"
TARGET = "test"


def partition(corpus: Corpus, *, train: Sequence[str], test: Sequence[str], contexts: int) -> Partition:
    """One target, ``test``. train, test: names of splits as the adapter gives them (``Task.split``).

    Contexts are the domains; where the records have fewer than two, tasks are dealt into ``contexts`` groups by hash.

    Raises:
        ProtocolError: if a named split does not exist, is named on both sides, or a side is empty.
    """
    known = Counter(corpus.task_splits)
    both = sorted(set(train) & set(test))
    unknown = sorted({*train, *test} - set(known))
    if both or unknown or not train or not test:
        problem = (
            f"{both[0]!r} is on both sides" if both else f"no split {unknown[0]!r}" if unknown else "a side is empty"
        )
        listed = ", ".join(f"{name or '(none)'} {count}" for name, count in sorted(known.items()))
        raise ProtocolError(
            f"{NAME}: {problem}; protocol.params.train={list(train)}, test={list(test)}; "
            f"splits of {corpus.dataset} (tasks): {listed}"
        )
    split = np.array(corpus.task_splits, dtype=object)
    held_out, learned = np.isin(split, list(test)), np.isin(split, list(train))
    if len(corpus.domains) >= 2:
        names, context = corpus.domains, corpus.task_domain
    else:
        names = tuple(f"group {i}" for i in range(contexts))
        context = (keyed_hash(seed_of(NAME), corpus.task_hash, corpus.task_hash) % np.uint64(contexts)).astype(np.int64)
    return Partition(
        protocol=NAME,
        targets=(TARGET,),
        target_of=np.where(held_out, 0, -1),
        context_names=names,
        contexts=context,
        may_train=learned,
    )

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

    Contexts of the training tasks are their domains; where they have fewer than two, they are dealt into ``contexts``
    groups by hash. All test tasks are one context of their own: no fit may have seen it.

    Raises:
        ProtocolError: if a named split does not exist, is named on both sides, or a side is empty; for fewer than two
            groups.
    """
    if contexts < 2:
        raise ProtocolError(f"{NAME}: protocol.params.contexts must be at least 2, got {contexts}")
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
    if np.unique(corpus.task_domain[learned & (corpus.task_domain >= 0)]).size >= 2:
        names, context = corpus.domains, corpus.task_domain
    else:
        names = tuple(f"group {i}" for i in range(contexts))
        context = (keyed_hash(seed_of(NAME), corpus.task_hash, corpus.task_hash) % np.uint64(contexts)).astype(np.int64)
    own = f"{TARGET} split"  # a name that no domain has
    context = np.where(held_out, len(names), context)
    return Partition(
        protocol=NAME,
        targets=(TARGET,),
        target_of=np.where(held_out, 0, -1),
        context_names=(*names, own),
        contexts=context,
        may_train=learned,
    )

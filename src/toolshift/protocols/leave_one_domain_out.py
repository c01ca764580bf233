"""Leave-one-domain-out: every domain with tasks is the target once, all other domains are its sources."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from toolshift.protocols.folds import TASK_ROLES, FoldTable, Purge
from toolshift.protocols.purge import near_query, shares_gold
from toolshift.views.corpus import Corpus, Labels

NAME = "leave_one_domain_out"


class ProtocolError(ValueError):
    """A protocol cannot be applied to these records."""

    user_facing = True


def folds(
    corpus: Corpus, labels: Labels, *, purge: Purge, task_vectors: NDArray[np.float32], near_cosine: float = 0.95
) -> FoldTable:
    """The fold table. task_vectors: (n, d) unit rows, read by ``purge='near'`` only.

    purge: ``none``; under ``gold`` no source task needs a capability that a target task needs; ``near`` also drops
    source tasks that ask nearly what a target task asks.

    Raises:
        ProtocolError: if fewer than two domains have tasks.
    """
    present = np.unique(corpus.task_domain[corpus.task_domain >= 0])
    if present.size < 2:
        raise ProtocolError(
            f"{NAME} needs at least two domains with tasks, {corpus.dataset} has {present.size}; "
            "choose another protocol or a dataset with domains"
        )
    role = np.zeros((present.size, corpus.n_tasks), np.int8)
    for i, domain in enumerate(present):
        held_out = corpus.task_domain == domain
        target = np.flatnonzero(held_out)
        if purge == "near":
            near = near_query(corpus.task_texts, task_vectors, target=target, at_least=near_cosine)
            role[i, near] = TASK_ROLES.index("purged_near")
        if purge != "none":
            role[i, shares_gold(labels, target=target)] = TASK_ROLES.index("purged_gold")
        role[i, held_out] = TASK_ROLES.index("test")
    return FoldTable(
        protocol=NAME,
        purge=purge,
        targets=tuple(corpus.domains[d] for d in present),
        context_names=corpus.domains,
        contexts=corpus.task_domain,
        role=role,
    )

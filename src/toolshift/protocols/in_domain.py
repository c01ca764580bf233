"""In-domain: a share of the tasks, drawn by hash, is the one target, all others are its sources.

No shift: every domain, and nearly every tool, of the target was seen. What a trained row gains over the cosine here
says whether it learns at all; a row that fails here says nothing where the domain is new.
"""

from __future__ import annotations

import numpy as np

from toolshift.protocols.partition import Partition, ProtocolError
from toolshift.runs.seeds import keyed_hash, seed_of, uniform
from toolshift.views.corpus import Corpus

NAME = "in_domain"
TARGET = "test"


def partition(corpus: Corpus, *, share: float, contexts: int) -> Partition:
    """One target, ``test``: about ``share`` of the tasks. Contexts of the others are their domains; where they have
    fewer than two, they are dealt into ``contexts`` groups by hash.

    Raises:
        ProtocolError: for a share outside 0 to 1 or fewer than two groups, or if a side is empty.
    """
    if not 0 < share < 1 or contexts < 2:
        raise ProtocolError(
            f"{NAME}: protocol.params.share must lie between 0 and 1, contexts be at least 2; got {share}, {contexts}"
        )
    hashes = keyed_hash(seed_of(NAME), corpus.task_hash, corpus.task_hash)
    held_out = uniform(hashes) < share
    if held_out.all() or not held_out.any():
        raise ProtocolError(f"{NAME}: share {share} of {corpus.n_tasks} tasks leaves a side empty")
    if np.unique(corpus.task_domain[~held_out & (corpus.task_domain >= 0)]).size >= 2:
        names, context = corpus.domains, corpus.task_domain
    else:
        names = tuple(f"group {i}" for i in range(contexts))
        dealt = keyed_hash(seed_of(NAME, "contexts"), corpus.task_hash, corpus.task_hash)
        context = (dealt % np.uint64(contexts)).astype(np.int64)
    own = f"{TARGET} split"  # a name that no domain has
    return Partition(
        protocol=NAME,
        targets=(TARGET,),
        target_of=np.where(held_out, 0, -1),
        context_names=(*names, own),
        contexts=np.where(held_out, len(names), context),
        may_train=~held_out,
    )

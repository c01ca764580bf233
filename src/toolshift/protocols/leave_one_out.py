"""Leave-one-out: every task is a target of its own, for small sets of tasks."""

from __future__ import annotations

import numpy as np

from toolshift.protocols.partition import Partition, ProtocolError
from toolshift.views.corpus import Corpus

NAME = "leave_one_out"


def partition(corpus: Corpus, *, max_tasks: int) -> Partition:
    """Tasks as targets, named by the local part of their ids, and as contexts.

    Raises:
        ProtocolError: if there are fewer than two tasks, or more than ``max_tasks`` (each is a fit of its own).
    """
    n = corpus.n_tasks
    if not 2 <= n <= max_tasks:
        raise ProtocolError(
            f"{NAME} fits once per task: it needs 2 to protocol.params.max_tasks={max_tasks} tasks, "
            f"{corpus.dataset} has {n}; raise the limit or choose another protocol"
        )
    names = tuple(task_id.replace("/", "~") for task_id in corpus.task_ids)
    order = np.argsort(np.array(names))
    place = np.empty(n, np.int64)
    place[order] = np.arange(n)
    return Partition(
        protocol=NAME,
        targets=tuple(names[i] for i in order),
        target_of=place,
        context_names=tuple(names[i] for i in order),
        contexts=place,
        may_train=np.ones(n, bool),
    )

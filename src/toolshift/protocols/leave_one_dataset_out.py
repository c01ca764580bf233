"""Leave-one-dataset-out: every dataset is the target once, all others are its sources (tact.md section 5)."""

from __future__ import annotations

from toolshift.protocols.partition import Partition, by_context
from toolshift.views.corpus import Corpus

NAME = "leave_one_dataset_out"


def partition(corpus: Corpus) -> Partition:
    """Datasets as targets and contexts.

    Raises:
        ProtocolError: if there are fewer than two datasets with tasks.
    """
    names = tuple(part.name for part in corpus.parts)
    return by_context(NAME, names=names, contexts=corpus.task_part, what="datasets", dataset=corpus.dataset)

"""Leave-one-domain-out: every domain with tasks is the target once, all other domains are its sources."""

from __future__ import annotations

from toolshift.protocols.partition import Partition, by_context
from toolshift.views.corpus import Corpus

NAME = "leave_one_domain_out"


def partition(corpus: Corpus) -> Partition:
    """Domains as targets and contexts; a task without a domain is a source of all targets and never tested.

    Raises:
        ProtocolError: if fewer than two domains have tasks.
    """
    return by_context(NAME, names=corpus.domains, contexts=corpus.task_domain, what="domains", dataset=corpus.dataset)

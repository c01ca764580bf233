"""Leave-one-group-out: groups of domains are held out whole; inside the sources single domains are the contexts."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

import numpy as np

from toolshift.protocols.partition import Partition, ProtocolError
from toolshift.runs.seeds import seed_of
from toolshift.settings.nearest import suggestion
from toolshift.views.corpus import Corpus

log = logging.getLogger("toolshift")

NAME = "leave_one_group_out"
OTHERS = ("refuse", "by_hash")


def partition(corpus: Corpus, *, groups: Mapping[str, Sequence[str]], others: str) -> Partition:
    """``groups`` as targets, domains as contexts.

    groups: name -> domains; domains that have no task are allowed. others: what happens to a domain with tasks that is
    in no group, ``refuse`` or ``by_hash`` (dealt into the groups by a hash of its name).

    Raises:
        ProtocolError: if a domain is in two groups, or in none under ``refuse``; for another value of ``others``; if
            fewer than two groups have tasks.
    """
    if others not in OTHERS:
        raise ProtocolError(f"{NAME}: protocol.params.others={others!r}; expected one of {', '.join(OTHERS)}")
    group_of = _group_of(groups)
    present = [corpus.domains[d] for d in np.unique(corpus.task_domain[corpus.task_domain >= 0])]
    missing = [name for name in present if name not in group_of]
    if missing and others == "refuse":
        near = suggestion(missing[0], sorted(group_of))
        raise ProtocolError(f"{NAME}: domain {missing[0]!r} is in no group of protocol.params.groups{near}")
    if missing:
        log.warning("%s: %d of %d domains are in no group and dealt by hash", NAME, len(missing), len(present))
    ordered = sorted(groups)
    group_of |= {name: ordered[seed_of(NAME, name) % len(ordered)] for name in missing}
    names = sorted({group_of[name] for name in present})
    if len(names) < 2:
        raise ProtocolError(f"{NAME} needs at least two groups with tasks, {corpus.dataset} has {len(names)}")
    number = {name: i for i, name in enumerate(names)}
    target = np.array([number.get(group_of.get(name, ""), -1) for name in corpus.domains] + [-1], np.int64)
    return Partition(
        protocol=NAME,
        targets=tuple(names),
        target_of=target[corpus.task_domain],
        context_names=corpus.domains,
        contexts=corpus.task_domain,
        may_train=np.ones(corpus.n_tasks, bool),
    )


def _group_of(groups: Mapping[str, Sequence[str]]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, domains in groups.items():
        for domain in domains:
            if domain in found:
                raise ProtocolError(f"{NAME}: domain {domain!r} is in the groups {found[domain]!r} and {name!r}")
            found[domain] = name
    return found

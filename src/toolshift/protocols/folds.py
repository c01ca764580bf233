"""Fold tables: the role of every task for every held-out target, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from toolshift.views.corpus import Corpus, Rows

Purge = Literal["none", "gold", "near"]
TASK_ROLES = ("train", "test", "purged_gold", "purged_near")


class UndeclaredRole(ValueError):
    """A loader was asked for a role that the fold table does not have."""

    user_facing = True


@dataclass(frozen=True, kw_only=True)
class FoldTable:
    """Roles of n tasks for g targets.

    targets: (g,) names, sorted. contexts: (n,) rows of ``context_names``. role: (g, n) codes of ``TASK_ROLES``.
    """

    protocol: str
    purge: Purge
    targets: tuple[str, ...]
    context_names: tuple[str, ...]
    contexts: Rows
    role: NDArray[np.int8]

    def rows(self, target: str, *, role: str) -> Rows:
        """Task rows that have ``role`` for ``target``.

        Raises:
            UndeclaredRole: if the role is not one of ``TASK_ROLES`` or the target is not held out here.
        """
        if role not in TASK_ROLES:
            raise UndeclaredRole(f"role {role!r} is not declared; the fold table has {', '.join(TASK_ROLES)}")
        if target not in self.targets:
            raise UndeclaredRole(f"{target!r} is not a target of {self.protocol}; targets: {', '.join(self.targets)}")
        return np.flatnonzero(self.role[self.targets.index(target)] == TASK_ROLES.index(role))

    def counts(self) -> Mapping[str, Mapping[str, int]]:
        """target -> role -> number of tasks."""
        return {
            target: {name: int((self.role[i] == code).sum()) for code, name in enumerate(TASK_ROLES)}
            for i, target in enumerate(self.targets)
        }

    def table(self, corpus: Corpus) -> pa.Table:
        """Long form: target, task_id, context (null for a task without one), role."""
        g, n = self.role.shape
        context = np.tile(self.contexts, g).astype(np.int32)
        return pa.table(
            {
                "target": pa.DictionaryArray.from_arrays(
                    pa.array(np.repeat(np.arange(g), n).astype(np.int32)), pa.array(list(self.targets), pa.string())
                ),
                "task_id": pa.DictionaryArray.from_arrays(
                    pa.array(np.tile(np.arange(n), g).astype(np.int32)), pa.array(list(corpus.task_ids), pa.string())
                ),
                "context": pa.DictionaryArray.from_arrays(
                    pa.array(context, mask=context < 0), pa.array(list(self.context_names), pa.string())
                ),
                "role": pa.DictionaryArray.from_arrays(pa.array(self.role.ravel()), pa.array(list(TASK_ROLES))),
            }
        )

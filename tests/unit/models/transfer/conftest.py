"""What the tests of the gradient-trained rows share."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from toolshift.measures import evaluate_lists
from toolshift.models.base import Limits, Source
from toolshift.models.features import Pairs


@pytest.fixture
def one_thread() -> Iterator[None]:
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@dataclass(frozen=True)
class Training:
    """A fold of a world, its bank and all pairs of tasks and tools."""

    source: Source
    bank: Any
    pairs: Pairs

    def last(self, model: Any, *, seed: int = 42, epochs: int = 2, **limits: Any) -> Any:
        """The scorer after the last epoch."""
        caps = Limits(**{"epochs": epochs, "max_tasks": None, **limits})
        *_, fitted = model.epochs(self.source, bank=self.bank, seed=seed, limits=caps)
        return fitted

    def scores(self, fitted: Any, pairs: Pairs | None = None) -> Any:
        return fitted.score(self.pairs if pairs is None else pairs, bank=self.bank, seed=0)

    def ndcg(self, fitted: Any) -> dict[str, float]:
        """Mean NDCG@5 on the training lists, by view."""
        found = {}
        for view, manifest in self.source.manifests.items():
            scores = self.scores(fitted, Pairs(task=manifest.task_of, capability=manifest.capability))
            lists = evaluate_lists(scores, manifest.positive, offsets=manifest.offsets, measures=["NDCG@5"])
            found[view] = float(lists.values["NDCG@5"].mean())
        return found

    @staticmethod
    def digest(fitted: Any) -> str:
        state = sorted(fitted.state().items())
        return hashlib.sha256(b"".join(name.encode() + value.tobytes() for name, value in state)).hexdigest()


@pytest.fixture(scope="module")
def training(fixed_world: Any, worlds: Any, make: Any) -> Training:
    """40 tasks of four domains, one of which is held out."""
    source = make.source(fixed_world, worlds.Rules(length=8, hard=4), target="D1")
    return Training(source=source, bank=fixed_world.bank(), pairs=make.all_pairs(fixed_world.corpus))


@pytest.fixture(scope="session")
def two_hundred(worlds: Any, make: Any) -> Training:
    """200 source tasks of four domains, for the check that a row can memorise."""
    world = worlds.of(worlds.fixed(domains=5, tools=10, tasks=50), top=12)
    source = make.source(world, worlds.Rules(length=12, hard=6), target="D4")
    assert source.tasks.size == 200
    return Training(source=source, bank=world.bank(), pairs=make.all_pairs(world.corpus))

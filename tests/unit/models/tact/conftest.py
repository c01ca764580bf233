"""What the tests of TACT's stages share: folds of the fixed world, fits stage by stage, lists and evidence by hand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from toolshift.models.base import Limits, Source
from toolshift.models.features import FeatureBank, Pairs
from toolshift.models.tact.evidence import ROW
from toolshift.models.tact.fold import TactFold
from toolshift.models.tact.path import Path
from toolshift.models.tact.tact import Tact, TactFit
from toolshift.views.corpus import Corpus
from toolshift.views.manifest import ROLES, Manifest


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@dataclass(frozen=True, repr=False)
class Stages:
    """Builders, handed to tests as one fixture."""

    world: Any
    worlds: Any
    make: Any

    def source(self, *, target: str = "D1", world: Any = None) -> Source:
        """All domains but the target's, with lists of eight."""
        return self.make.source(world or self.world, self.worlds.Rules(length=8, hard=4), target=target)

    def fold(self, source: Source | None = None, *, bank: FeatureBank | None = None, seed: int = 42) -> TactFold:
        limits = Limits(epochs=2, max_tasks=None)
        source, bank = source or self.source(), bank or self.world.bank()
        return TactFold(source=source, bank=bank, seed=seed, limits=limits, anchor_space="raw")

    @staticmethod
    def model(**parameters: Any) -> Tact:
        """Few and quick steps that still move every parameter."""
        quick = {"batch_tasks": 8, "learning_rate": 0.01, "scalar_learning_rate": 0.05, "prototypes": 4}
        return Tact(**{**quick, "relation_rank": 6, **parameters})

    def fit(
        self,
        model: Tact,
        source: Source | None = None,
        *,
        bank: FeatureBank | None = None,
        epochs: int = 2,
        seed: int = 42,
        stages: Sequence[str] = tuple(Tact.stages),
    ) -> Path:
        """The path after the named stages under the model's own parameters."""
        source, bank = source or self.source(), bank or self.world.bank()
        limits = Limits(epochs=epochs, max_tasks=None)
        fit: Any = model.begin(source, bank=bank, seed=seed, limits=limits)
        assert isinstance(fit, TactFit)
        for stage in stages:
            *_, last = fit.epochs(stage, [{}], epochs=epochs)
            fit = fit.extended(last[0])
        return fit.scorer

    def pairs(self, world: Any = None) -> Pairs:
        """Every task with every tool."""
        return self.make.all_pairs((world or self.world).corpus)

    @staticmethod
    def manifest(lists: Mapping[int, Mapping[str, Sequence[int]]], *, view: str = "v") -> Manifest:
        """task row -> role -> capability rows."""
        rows = [(t, c, ROLES.index(r)) for t, roles in lists.items() for r, some in roles.items() for c in some]
        task, capability, role = np.array(sorted(rows), np.int64).reshape(-1, 3).T
        tasks, lengths = np.unique(task, return_counts=True)
        return Manifest(
            view=view,
            tasks=tasks,
            offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
            capability=capability,
            role=role.astype(np.int8),
            miner=np.zeros(task.size, np.uint8),
            skipped={},
        )

    @staticmethod
    def with_lists(source: Source, manifests: Mapping[str, Manifest]) -> Source:
        """The same sources with other lists."""
        return replace(source, build=lambda _: manifests)

    @staticmethod
    def evidence(rng: Any, size: int, *, requirements: int | None = None, endpoints: int | None = None) -> Any:
        """(size,) random rows as a store holds them: nothing outside the M x K corner, nothing where a mask is 0."""
        rows = np.zeros(size, ROW)
        count = {"requirements": requirements, "endpoints": endpoints}
        for name, fixed in count.items():
            rows[name] = rng.integers(0, 5, size) if fixed is None else fixed
        inside = (np.arange(4)[None, :, None] < rows["requirements"][:, None, None]) & (
            np.arange(4)[None, None, :] < rows["endpoints"][:, None, None]
        )
        exists = np.arange(4)[None, :] < rows["endpoints"][:, None]
        rows["has_argument"] = exists & (rng.random((size, 4)) < 0.7)
        rows["has_type"] = rows["has_argument"] & (rng.random((size, 4)) < 0.7)
        masks = {"operation": exists, "argument": rows["has_argument"], "type": rows["has_type"]}
        for name, mask in masks.items():
            rows[name] = np.where(inside & mask[:, None, :], rng.random((size, 4, 4)), 0.0)
        return rows

    @staticmethod
    def equal(one: Any, other: Any) -> bool:
        """The same bits in every fitted array."""
        states = one.state(), other.state()
        return states[0].keys() == states[1].keys() and all(
            np.array_equal(states[0][k], states[1][k]) for k in states[0]
        )


@pytest.fixture(scope="session")
def stages(fixed_world: Any, worlds: Any, make: Any) -> Stages:
    return Stages(fixed_world, worlds, make)


@pytest.fixture(scope="session")
def shared_source(stages: Stages) -> Source:
    """One object for the whole session: what is derived from it is derived once."""
    return stages.source()


@pytest.fixture(scope="session")
def shared_bank(stages: Stages) -> FeatureBank:
    return stages.world.bank()


@pytest.fixture(scope="session")
def whole(stages: Stages, shared_source: Source, shared_bank: FeatureBank) -> Path:
    """All four stages, three epochs each."""
    return stages.fit(stages.model(), shared_source, bank=shared_bank, epochs=3)


@pytest.fixture
def toy(worlds: Any) -> Corpus:
    """Five tasks of two domains and six tools without endpoints."""
    from toolshift.views.corpus import build_corpus

    tools = [worlds.Tool(f"c{i}", "A", ()) for i in range(6)]
    asks = [worlds.Ask(f"t{i}", "AB"[i % 2], f"task {i}", (("c0",),)) for i in range(5)]
    return build_corpus(worlds.records(tools, asks))[0]

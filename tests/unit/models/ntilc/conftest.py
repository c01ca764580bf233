"""What the tests of NTILC share: small libraries and inputs with vectors that are easy to learn."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from toolshift.data.records import Argument, Capability, Endpoint, Library
from toolshift.models.ntilc.encoder import FrozenInputs, network
from toolshift.models.ntilc.signature import Signatures
from toolshift.models.ntilc.training import Examples
from toolshift.runs.seeds import generator, id_hashes
from toolshift.text.encoder import unit_rows


@pytest.fixture
def one_thread() -> Iterator[None]:
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def argument(name: str, kind: str = "string", *, required: bool | None = True) -> Argument:
    return Argument(name=name, type=kind, required=required)


def library(*tools: dict[str, Any]) -> Library:
    """One capability with one endpoint per dict of fields; names are t0, t1, ..."""
    capabilities, endpoints = [], []
    for i, tool in enumerate(tools):
        domain, owner = tool.pop("domain", ""), f"d/t{i}"
        text = tool.pop("text", f"t{i}")
        capabilities.append(Capability(capability_id=owner, dataset="d", name=f"t{i}", domain=domain, text=text))
        endpoints.append(
            Endpoint(**{"endpoint_id": f"{owner}/x", "capability_id": owner, "operation": f"op{i}", **tool})
        )
    return Library(capabilities=tuple(capabilities), endpoints=tuple(endpoints))


@dataclass(frozen=True)
class Toy:
    """``tools`` tools in pairs that read almost alike and share no signature item; two queries and more for each."""

    inputs: FrozenInputs
    examples: Examples
    compat: Signatures

    def net(self, *, seed: int = 1, dropout: float = 0.1, prototypes: int = 0) -> Any:
        dim = self.inputs.tool_vectors.shape[1]
        return network(dim=dim, seed=seed, hidden=32, width=16, dropout=dropout, prototypes=prototypes)


def toy(*, tools: int = 12, queries: int = 48, dim: int = 24, near: float = 0.25) -> Toy:
    rng = generator("ntilc toy")
    centre = np.repeat(rng.standard_normal((tools // 2, dim)), 2, axis=0)
    tool_vectors = unit_rows(centre + near * rng.standard_normal((tools, dim)))
    gold = np.arange(queries) % tools
    query_vectors = unit_rows(tool_vectors[gold] + 0.05 * rng.standard_normal((queries, dim)))
    gold_lists = [[g, (g + 4) % tools] if i % 8 == 0 else [g] for i, g in enumerate(gold.tolist())]
    return Toy(
        inputs=FrozenInputs(query_vectors=query_vectors, tool_vectors=tool_vectors, code=np.arange(tools)),
        examples=Examples.of(gold_lists, hashes=id_hashes(f"q{i}" for i in range(queries))),
        compat=Signatures.of_items([frozenset({f"arg:{i}"}) for i in range(tools)]),
    )


@dataclass(frozen=True)
class Builders:
    argument = staticmethod(argument)
    library = staticmethod(library)
    toy = staticmethod(toy)


@pytest.fixture(scope="session")
def build() -> Builders:
    return Builders()

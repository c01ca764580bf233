"""Indexes of tools: nearest by cosine, exact or approximate; tools come and go without any training.

[T] every tool is encoded once from its schema; [C] a tool's vector is the mean of its training queries. Both, and the
mean of the two (``both``), are offered; only ``schema`` admits a tool that no query was ever seen for. Equal scores
rank by place in the index, which is the order in which tools were added.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from toolshift.models.base import BadParameter
from toolshift.models.ntilc.encoder import NtilcError
from toolshift.models.ntilc.signature import Rows
from toolshift.runs.files import read_json, write_array, write_json
from toolshift.text.encoder import unit_rows

Vectors = NDArray[np.float32]
Kind = Literal["schema", "centroid", "both"]
KINDS: tuple[str, ...] = get_args(Kind)
FAISS_KINDS = ("flat", "ivf", "hnsw")
BACKENDS = ("exact", *FAISS_KINDS)
_META, _VECTORS = "index.json", "vectors.npy"
_LISTS_SEARCHED, _NEIGHBOURS, _EF_SEARCH = 16, 32, 128
# faiss asks for so many training rows per cell.
_ROWS_PER_CELL = 39


@dataclass(frozen=True, kw_only=True)
class Found:
    """Results of q queries: place (q, k) rows of the index, score (q, k) cosines, best first; k is at most the number
    of tools, 0 for an empty index."""

    place: Rows
    score: Vectors

    def ids(self, index: Index) -> list[list[str]]:
        """Tool ids of every query."""
        return [[str(index.ids[i]) for i in row] for row in self.place.tolist()]


class Index(Protocol):
    """Tools by id with unit vectors."""

    @property
    def ids(self) -> Sequence[str]:
        """Tool ids by place."""
        ...

    @property
    def vectors(self) -> Vectors:
        """(n, d) unit rows by place."""
        ...

    def search(self, queries: Vectors, *, k: int) -> Found:
        """The ``k`` nearest tools of every (q, d) query."""
        ...

    def add(self, ids: Sequence[str], vectors: Vectors) -> None:
        """Append tools; the next search finds them.

        Raises:
            NtilcError: if an id is there already or repeats, or a vector has another length.
        """
        ...

    def update(self, ids: Sequence[str], vectors: Vectors) -> None:
        """Replace the vectors of tools; their places stay."""
        ...

    def remove(self, ids: Sequence[str]) -> None:
        """Take tools out; those behind move up."""
        ...


class _Registry:
    """Ids and vectors with room to grow: adding one tool does not copy all others."""

    def __init__(self, dim: int) -> None:
        if dim < 1:
            raise BadParameter(f"index: dim={dim}; expected at least 1")
        self.dim = dim
        self.ids: list[str] = []
        self._place: dict[str, int] = {}
        self._room: Vectors = np.zeros((0, dim), np.float32)

    @property
    def vectors(self) -> Vectors:
        """(n, d) unit rows by place."""
        return self._room[: len(self.ids)]

    def __len__(self) -> int:
        """Number of tools."""
        return len(self.ids)

    def add(self, ids: Sequence[str], vectors: Vectors) -> None:
        """See `Index.add`."""
        vectors = self._checked(ids, vectors)
        known = sorted(set(ids) & set(self._place))
        if known:
            raise NtilcError(f"tool {known[0]!r} is in the index already ({len(known)} such): use update")
        start, end = len(self.ids), len(self.ids) + len(ids)
        if end > len(self._room):
            room = np.zeros((max(end, start + start // 2), self.dim), np.float32)
            room[:start] = self.vectors
            self._room = room
        self._room[start:end] = vectors
        self.ids.extend(ids)
        self._place.update(zip(ids, range(start, end), strict=True))
        self._changed(first=start)

    def update(self, ids: Sequence[str], vectors: Vectors) -> None:
        """See `Index.update`."""
        vectors = self._checked(ids, vectors)
        places = self._places(ids)
        self._own()[places] = vectors
        self._changed(first=0)

    def remove(self, ids: Sequence[str]) -> None:
        """See `Index.remove`."""
        keep = np.ones(len(self.ids), bool)
        keep[self._places(ids)] = False
        self._room = self.vectors[keep]
        self.ids = [name for name, kept in zip(self.ids, keep, strict=True) if kept]
        self._place = {name: i for i, name in enumerate(self.ids)}
        self._changed(first=0)

    def save(self, folder: Path) -> Path:
        """Write ids and vectors; `load_index` maps the vectors into memory."""
        write_array(folder / _VECTORS, np.ascontiguousarray(self.vectors))
        return write_json(folder / _META, {"ids": self.ids, "dim": self.dim, "backend": self.backend})

    @property
    def backend(self) -> str:
        """Name in ``BACKENDS``."""
        raise NotImplementedError

    def mapped(self, ids: list[str], vectors: Vectors) -> None:
        """Take over vectors from a file as they are; they are copied when something is added."""
        self.ids, self._room = ids, vectors
        self._place = {name: i for i, name in enumerate(ids)}
        self._changed(first=0)

    def _changed(self, *, first: int) -> None:
        """Tools from place ``first`` on are new or different."""

    def _own(self) -> Vectors:
        if not self._room.flags.writeable:
            self._room = np.array(self._room)
        return self._room

    def _places(self, ids: Sequence[str]) -> Rows:
        unknown = sorted(set(ids) - set(self._place))
        if unknown:
            raise NtilcError(f"tool {unknown[0]!r} is not in the index ({len(unknown)} such): use add")
        return np.array([self._place[name] for name in ids], np.int64)

    def _checked(self, ids: Sequence[str], vectors: Vectors) -> Vectors:
        repeated = len(ids) - len(set(ids))
        if repeated:
            name = next(name for i, name in enumerate(ids) if name in ids[:i])
            raise NtilcError(f"{repeated} of {len(ids)} tool ids repeat, the first is {name!r}: give every tool one id")
        if vectors.shape != (len(ids), self.dim):
            raise NtilcError(f"vectors of {len(ids)} tools: expected shape {(len(ids), self.dim)}, got {vectors.shape}")
        return unit_rows(vectors)


class ExactIndex(_Registry):
    """Exact search by one matrix product in torch."""

    def __init__(self, dim: int, *, device: str = "cpu") -> None:
        super().__init__(dim)
        self.device = device
        self._tensor: Any = None

    @property
    def backend(self) -> str:
        """Name in ``BACKENDS``."""
        return "exact"

    def _changed(self, *, first: int) -> None:
        self._tensor = None

    def search(self, queries: Vectors, *, k: int) -> Found:
        """See `Index.search`; equal scores in the order of places, exactly."""
        import torch

        k = min(_checked_k(k), len(self))
        queries = _checked_queries(queries, self.dim)
        if not k or not len(queries):
            return _nothing(len(queries), k)
        with torch.inference_mode():
            scores = torch.from_numpy(queries).to(self.device) @ self._matrix().T
            score, place = torch.topk(scores, min(k + 1, len(self)), dim=1)
            score, place = score.cpu().numpy(), place.cpu().numpy()
            # topk leaves open which of several equal scores it takes: where the last one has an equal, look again.
            open_rows = np.flatnonzero(score[:, k - 1] == score[:, k]) if score.shape[1] > k else np.zeros(0, np.int64)
            score, place = score[:, :k].copy(), place[:, :k].copy()
            for row in open_rows:
                every = scores[row].cpu().numpy()
                at_least = np.flatnonzero(every >= score[row, -1])
                place[row] = at_least[np.argsort(-every[at_least], kind="stable")[:k]]
                score[row] = every[place[row]]
        order = np.lexsort((place, -score), axis=1)
        return Found(place=np.take_along_axis(place, order, axis=1), score=np.take_along_axis(score, order, axis=1))

    def _matrix(self) -> Any:
        import torch

        if self._tensor is None:
            self._tensor = torch.from_numpy(np.ascontiguousarray(self._own()[: len(self)])).to(self.device)
        return self._tensor


class FaissIndex(_Registry):
    """``flat`` (exact), ``ivf`` (about sqrt(n) cells, 16 of them searched) or ``hnsw`` (32 links), by inner product.

    Added tools go into the index as it is; after an update or a removal it is built anew at the next search. A GPU is
    used where faiss was built for one and sees it.

    Raises:
        BadParameter: for another kind.
        NtilcError: if faiss is not installed.
    """

    def __init__(self, dim: int, *, kind: str = "flat", seed: int = 0) -> None:
        super().__init__(dim)
        if kind not in FAISS_KINDS:
            raise BadParameter(f"index: kind={kind!r}; expected one of {', '.join(FAISS_KINDS)}")
        self.kind, self.seed = kind, seed
        self._faiss = faiss_module()
        self._built: Any = None
        self._built_rows = 0

    @property
    def backend(self) -> str:
        """Name in ``BACKENDS``."""
        return self.kind

    def _changed(self, *, first: int) -> None:
        if self._built is None or first < self._built_rows:
            self._built, self._built_rows = None, 0
        else:
            self._built.add(np.ascontiguousarray(self.vectors[first:]))
            self._built_rows = len(self)

    def search(self, queries: Vectors, *, k: int) -> Found:
        """See `Index.search`; an approximate search that finds fewer fills up with place -1 and score -1."""
        k = min(_checked_k(k), len(self))
        queries = _checked_queries(queries, self.dim)
        if not k or not len(queries):
            return _nothing(len(queries), k)
        if self._built is None:
            self._built, self._built_rows = self._build(), len(self)
        score, place = self._built.search(queries, k)
        score = np.where(place < 0, np.float32(-1.0), score)
        order = np.lexsort((place, -score), axis=1)
        return Found(place=np.take_along_axis(place, order, axis=1), score=np.take_along_axis(score, order, axis=1))

    def _build(self) -> Any:
        faiss, vectors = self._faiss, np.ascontiguousarray(self.vectors)
        inner = faiss.METRIC_INNER_PRODUCT
        if self.kind == "hnsw":
            index = faiss.IndexHNSWFlat(self.dim, _NEIGHBOURS, inner)
            index.hnsw.efSearch = _EF_SEARCH
        elif self.kind == "ivf":
            cells = max(min(int(len(self) ** 0.5), len(self) // _ROWS_PER_CELL), 1)
            index = faiss.IndexIVFFlat(faiss.IndexFlatIP(self.dim), self.dim, cells, inner)
            index.nprobe, index.cp.seed = _LISTS_SEARCHED, self.seed
            index.train(vectors)
        else:
            index = faiss.IndexFlatIP(self.dim)
        if self.kind != "hnsw" and hasattr(faiss, "StandardGpuResources") and faiss.get_num_gpus():
            index = faiss.index_cpu_to_all_gpus(index)
        index.add(vectors)
        return index


def faiss_module() -> Any:
    """faiss, which only the approximate indexes need.

    Raises:
        NtilcError: if it is not installed.
    """
    try:
        return import_module("faiss")
    except ImportError as error:
        raise NtilcError(
            "this index needs faiss, which is not installed: pip install faiss-cpu, or use the index `exact`"
        ) from error


def make_index(backend: str, *, dim: int, device: str = "cpu") -> ExactIndex | FaissIndex:
    """An empty index of a backend in ``BACKENDS``.

    Raises:
        BadParameter: for another backend.
    """
    if backend not in BACKENDS:
        raise BadParameter(f"index: backend={backend!r}; expected one of {', '.join(BACKENDS)}")
    return ExactIndex(dim, device=device) if backend == "exact" else FaissIndex(dim, kind=backend)


def load_index(folder: Path, *, backend: str | None = None, device: str = "cpu") -> ExactIndex | FaissIndex:
    """What ``save`` wrote, vectors memory-mapped, under the same or another backend.

    Raises:
        NtilcError: if a file is missing or the two do not belong together.
    """
    for name in (_META, _VECTORS):
        if not (folder / name).is_file():
            raise NtilcError(f"{folder} has no {name}: expected a folder that an index was saved to")
    meta = read_json(folder / _META)
    vectors = np.load(folder / _VECTORS, mmap_mode="r", allow_pickle=False)
    if vectors.shape != (len(meta["ids"]), meta["dim"]) or vectors.dtype != np.float32:
        raise NtilcError(
            f"{folder / _VECTORS} holds {vectors.dtype} {vectors.shape}, {_META} tells otherwise: save again"
        )
    index = make_index(backend or meta["backend"], dim=meta["dim"], device=device)
    index.mapped(list(meta["ids"]), vectors)
    return index


def index_vectors(
    kind: str, schema: Vectors, *, queries: Vectors | None = None, owner: Rows | None = None, tool: Rows | None = None
) -> tuple[Vectors, NDArray[np.bool_]]:
    """((n, d) unit index vectors, (n,) whether a tool has training queries) of n tools.

    schema: (n, d) encoded tools. queries: (q, d) encoded training queries; owner, tool: (g,) positions of queries and
    of their gold tools. ``centroid``: mean of a tool's queries; ``both``: mean of centroid and schema. A tool without
    queries keeps its schema vector, or it could never be found: count the second result.

    Raises:
        BadParameter: for another kind, or without queries where they are needed.
    """
    if kind not in KINDS:
        raise BadParameter(f"index: kind={kind!r}; expected one of {', '.join(KINDS)}")
    seen = np.zeros(len(schema), bool)
    if kind == "schema":
        return unit_rows(schema), seen
    if queries is None or owner is None or tool is None:
        raise BadParameter(f"index: kind={kind!r} needs training queries with their gold tools; use schema")
    total = np.zeros(schema.shape, np.float64)
    np.add.at(total, tool, queries[owner])
    seen[tool] = True
    centroid = unit_rows(np.where(seen[:, None], total, schema))
    return (centroid if kind == "centroid" else unit_rows(centroid.astype(np.float64) + unit_rows(schema))), seen


def recall(index: Index, exact: Index, queries: Vectors, *, k: int) -> float:
    """Mean share of the ``k`` nearest tools that an index finds; 1 for an empty one."""
    found, wanted = index.search(queries, k=k).place, exact.search(queries, k=k).place
    if not wanted.size:
        return 1.0
    return float(np.mean([np.isin(w, f).mean() for f, w in zip(found, wanted, strict=True)]))


@dataclass(frozen=True, kw_only=True)
class IndexBench:
    """Milliseconds of one search, best of several, per backend and batch size; all measured in turn in one run."""

    tools: int
    dim: int
    k: int
    milliseconds: Mapping[tuple[str, int], float]

    def ratio(self, batch: int) -> float:
        """Time of the exact index over that of faiss flat."""
        return self.milliseconds["exact", batch] / self.milliseconds["flat", batch]


def bench_index(
    *,
    tools: int = 100_000,
    dim: int = 128,
    k: int = 5,
    batches: Sequence[int] = (1, 32),
    repeats: int = 20,
    seed: int = 0,
) -> IndexBench:
    """Latency of the exact index and of faiss flat on random unit vectors, in alternation, so that whatever else the
    machine does meets both.

    Raises:
        NtilcError: if faiss is not installed.
    """
    random = np.random.default_rng(seed)
    vectors = unit_rows(random.standard_normal((tools, dim)))
    queries = unit_rows(random.standard_normal((max(batches), dim)))
    searches: dict[str, Callable[[Vectors], Found]] = {}
    for backend in ("exact", "flat"):
        index = make_index(backend, dim=dim)
        index.mapped([str(i) for i in range(tools)], vectors)
        searches[backend] = lambda q, index=index: index.search(q, k=k)
    best = {(name, size): np.inf for name in searches for size in batches}
    for _ in range(repeats + 1):  # the first round builds the indexes
        for (name, size), fastest in best.items():
            start = time.perf_counter()
            searches[name](queries[:size])
            best[name, size] = min(fastest, 1000 * (time.perf_counter() - start))
    return IndexBench(tools=tools, dim=dim, k=k, milliseconds=best)


def _checked_k(k: int) -> int:
    if k < 1:
        raise BadParameter(f"index: k={k}; expected at least 1")
    return k


def _checked_queries(queries: Vectors, dim: int) -> Vectors:
    if queries.ndim != 2 or queries.shape[1] != dim:
        raise NtilcError(f"queries: expected shape (q, {dim}), got {queries.shape}")
    return np.ascontiguousarray(queries, np.float32)


def _nothing(queries: int, k: int) -> Found:
    return Found(place=np.zeros((queries, k), np.int64), score=np.zeros((queries, k), np.float32))

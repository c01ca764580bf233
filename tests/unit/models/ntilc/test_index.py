"""Search, tools that come and go, ties, files, approximate indexes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from toolshift.models.base import BadParameter
from toolshift.models.ntilc import index as module
from toolshift.models.ntilc.encoder import NtilcError
from toolshift.models.ntilc.index import ExactIndex, bench_index, index_vectors, load_index, make_index, recall
from toolshift.text.encoder import unit_rows

pytest.importorskip("torch")


def has_faiss() -> bool:
    try:
        import faiss  # noqa: F401
    except ImportError:
        return False
    return True


BACKENDS = [
    b if b == "exact" else pytest.param(b, marks=pytest.mark.skipif(not has_faiss(), reason="no faiss"))
    for b in module.BACKENDS
]
every_backend = pytest.mark.parametrize("backend", BACKENDS)


def unit(*rows: tuple[float, ...]) -> Any:
    return unit_rows(np.array(rows, np.float64))


@every_backend
def test_tools_come_and_go(backend: str) -> None:
    index = make_index(backend, dim=2)
    index.add(["a", "b"], unit((1, 0), (0, 1)))
    query = unit((1, 1.2))
    assert index.search(query, k=5).ids(index) == [["b", "a"]]
    index.add(["new"], query)  # found at once
    assert index.search(query, k=1).ids(index) == [["new"]]
    assert index.search(query, k=1).score[0, 0] == pytest.approx(1.0)
    index.update(["new"], unit((-1, 0)))
    assert index.search(query, k=3).ids(index) == [["b", "a", "new"]]
    index.remove(["b"])
    assert index.search(query, k=3).ids(index) == [["a", "new"]]
    assert index.ids == ["a", "new"]
    index.add(["b"], query)
    assert index.search(query, k=1).ids(index) == [["b"]]


@every_backend
def test_an_empty_registry_finds_nothing(backend: str) -> None:
    index = make_index(backend, dim=2)
    found = index.search(unit((1, 0)), k=3)
    assert found.place.shape == found.score.shape == (1, 0)
    index.add(["a"], unit((1, 0)))
    index.remove(["a"])
    assert index.search(unit((1, 0)), k=3).ids(index) == [[]]
    assert index.search(np.zeros((0, 2), np.float32), k=1).place.shape[0] == 0
    assert recall(index, index, unit((1, 0)), k=2) == 1.0


def test_bad_input_names_the_tool() -> None:
    index = ExactIndex(2)
    with pytest.raises(NtilcError, match="repeat, the first is 'a'"):
        index.add(["a", "b", "a"], unit((1, 0), (0, 1), (1, 0)))
    index.add(["a"], unit((1, 0)))
    for call, message in (
        (lambda: index.add(["a"], unit((1, 0))), "'a' is in the index already"),
        (lambda: index.update(["z"], unit((1, 0))), "'z' is not in the index"),
        (lambda: index.remove(["z"]), "'z' is not in the index"),
        (lambda: index.add(["c"], unit((1, 0, 0))), r"expected shape \(1, 2\)"),
        (lambda: index.search(unit((1, 0, 0)), k=1), r"expected shape \(q, 2\)"),
    ):
        with pytest.raises(NtilcError, match=message):
            call()
    assert index.ids == ["a"]
    with pytest.raises(BadParameter, match="k=0"):
        index.search(unit((1, 0)), k=0)
    with pytest.raises(BadParameter, match="backend='annoy'"):
        make_index("annoy", dim=2)


@pytest.mark.parametrize("k", [1, 2, 3, 7, 30])
def test_equal_scores_rank_by_place(k: int) -> None:
    """20 tools with three distinct vectors; duplicates of the best one are at 1, 4, 7, ..."""
    index = ExactIndex(2)
    vectors = unit(*[((0, 1), (1, 0), (1, 1))[i % 3] for i in range(20)])
    index.add([str(i) for i in range(20)], vectors)
    query = unit((1, 0.1))
    scores = query @ vectors.T
    expected = sorted(range(20), key=lambda i: (-scores[0, i], i))[:k]
    assert index.search(query, k=k).place[0].tolist() == expected


@pytest.mark.parametrize("backend", BACKENDS[1:])
def test_recall_against_exact_search(backend: str) -> None:
    rng = np.random.default_rng(0)
    vectors, queries = unit_rows(rng.standard_normal((2000, 16))), unit_rows(rng.standard_normal((50, 16)))
    exact, other = make_index("exact", dim=16), make_index(backend, dim=16)
    for index in (exact, other):
        index.add([str(i) for i in range(2000)], vectors)
    found = recall(other, exact, queries, k=10)
    assert found == 1.0 if backend == "flat" else found > 0.7
    assert other.search(vectors[:5], k=1).place[:, 0].tolist() == list(range(5))


@every_backend
def test_an_index_is_saved_and_mapped(backend: str, tmp_path: Path) -> None:
    index = make_index(backend, dim=3)
    vectors = unit_rows(np.random.default_rng(1).standard_normal((40, 3)))
    index.add([f"t{i}" for i in range(40)], vectors)
    index.save(tmp_path)
    loaded = load_index(tmp_path)
    assert (type(loaded), loaded.backend) == (type(index), backend)
    assert isinstance(loaded.vectors.base, np.memmap) or isinstance(loaded.vectors, np.memmap)
    for one in (index, loaded):
        assert one.search(vectors, k=3).place[:, 0].tolist() == list(range(40))
    loaded.add(["new"], unit((1, 2, 3)))
    loaded.update(["t0"], unit((3, 2, 1)))
    assert loaded.search(unit((1, 2, 3)), k=1).ids(loaded) == [["new"]]
    np.testing.assert_array_equal(np.load(tmp_path / "vectors.npy"), index.vectors)  # the file is as it was
    (tmp_path / "vectors.npy").unlink()
    with pytest.raises(NtilcError, match=r"has no vectors\.npy"):
        load_index(tmp_path)


def test_schema_centroid_and_both_by_hand() -> None:
    schema, queries = unit((1, 0), (0, 1)), unit((0, 1), (0, 1), (1, 0))
    owner, tool = np.array([0, 1, 2]), np.array([0, 0, 0])
    make = lambda kind: index_vectors(kind, schema, queries=queries, owner=owner, tool=tool)  # noqa: E731
    assert make("schema")[0].tolist() == schema.tolist()
    centroid, seen = make("centroid")
    assert centroid[0] == pytest.approx(np.array([1, 2]) / np.sqrt(5))
    assert centroid[1].tolist() == [0, 1]  # a tool that no query was seen for keeps its schema
    assert seen.tolist() == [True, False]
    both = np.array([1 / np.sqrt(5) + 1, 2 / np.sqrt(5)])
    assert make("both")[0][0] == pytest.approx(both / np.linalg.norm(both))
    with pytest.raises(BadParameter, match="kind='mean'"):
        index_vectors("mean", schema)
    with pytest.raises(BadParameter, match="use schema"):
        index_vectors("centroid", schema)


def test_faiss_is_optional(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(module, "import_module", missing)
    with pytest.raises(NtilcError, match=r"pip install faiss-cpu, or use the index `exact`"):
        make_index("hnsw", dim=2)
    make_index("exact", dim=2).add(["a"], unit((1, 0)))


@pytest.mark.skipif(not has_faiss(), reason="no faiss")
def test_the_bench_measures_both_in_one_run() -> None:
    found = bench_index(tools=500, dim=8, repeats=2)
    assert set(found.milliseconds) == {(b, n) for b in ("exact", "flat") for n in (1, 32)}
    assert all(np.isfinite(v) and v > 0 for v in found.milliseconds.values())
    assert found.ratio(32) == found.milliseconds["exact", 32] / found.milliseconds["flat", 32]

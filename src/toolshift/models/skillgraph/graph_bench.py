"""Speed of our graph beside the loop over trajectories of the published recipe, on the same trajectories."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from toolshift.models.skillgraph.graph import (
    Form,
    GraphOptions,
    TransitionGraph,
    build_graph,
    options_of,
)
from toolshift.models.skillgraph.sequences import Ints, Sequences

Pair = tuple[int, int]
Vectors = NDArray[np.float32]

# Rows whose similarities the loop works on at once.
_LOOP_ROWS = 512


def bench_graph(
    n_trajectories: int = 50_000, *, n_tools: int = 16_000, dim: int = 384, form: Form = "authors", seed: int = 0
) -> dict[str, float]:
    """Time a graph from random trajectories of 1 to 7 calls of skewed popularity against `looped_edges`.

    Returns seconds (``ours_s``, the best of two; ``loop_s``), ``speedup``, sizes (``n_edges``, ``n_nodes``), whether
    both have the same edges (``equal_edges``, 1 or 0) and the largest absolute difference of an edge weight
    (``max_difference``, infinite where edges differ).
    """
    calls, vectors = _random_input(n_trajectories, n_tools=n_tools, dim=dim, seed=seed)
    ids, options = [f"t{i}" for i in range(n_trajectories)], options_of(form)
    start = time.perf_counter()
    build_graph(calls, ids=ids, form=form, vectors=vectors)
    first_s = time.perf_counter() - start
    start = time.perf_counter()
    graph = build_graph(calls, ids=ids, form=form, vectors=vectors)
    ours_s = min(first_s, time.perf_counter() - start)
    start = time.perf_counter()
    looped = looped_edges([row.tolist() for row in calls], vectors=vectors, options=options)
    loop_s = time.perf_counter() - start
    return {
        "n_trajectories": float(n_trajectories),
        "n_tools": float(n_tools),
        "n_nodes": float(graph.nodes.sum()),
        "n_edges": float(graph.n_edges),
        "ours_s": ours_s,
        "loop_s": loop_s,
        "speedup": loop_s / ours_s,
        **_comparison(graph, looped),
    }


def _random_input(n: int, *, n_tools: int, dim: int, seed: int) -> tuple[Sequences, Vectors]:
    """Trajectories that stay inside a group of 12 tools, and unit vectors that are alike inside a group."""
    rng = np.random.Generator(np.random.Philox(seed))
    lengths = rng.integers(1, 8, size=n)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    group_of = np.arange(n_tools) // 12
    popular = np.minimum(rng.pareto(1.2, size=n) * 0.02, 0.999)
    base = (popular * max(1, n_tools // 12)).astype(np.int64)
    items = np.repeat(base, lengths) * 12 + rng.integers(0, 12, size=int(offsets[-1]))
    centres = rng.standard_normal((int(group_of[-1]) + 1, dim), dtype=np.float32)
    vectors = centres[group_of] + rng.standard_normal((n_tools, dim), dtype=np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return Sequences(offsets=offsets, items=np.minimum(items, n_tools - 1), n_tools=n_tools), vectors


def looped_edges(
    calls: Sequence[Sequence[int]], *, vectors: Vectors | None, options: GraphOptions
) -> dict[Pair, float]:
    """Edge weights by a plain loop over trajectories and pairs, written apart from `build_graph` as its reference."""
    counts = _looped_counts(calls, options=options)
    out: dict[int, float] = {}
    into: dict[int, float] = {}
    for (a, b), value in counts.items():
        out[a] = out.get(a, 0.0) + value
        into[b] = into.get(b, 0.0) + value
    if options.form == "paper":
        return {(a, b): value / out[a] for (a, b), value in counts.items()}
    if vectors is None:
        raise ValueError("the authors' form needs the vectors of the tools")
    total = sum(counts.values())
    kept: dict[Pair, float] = {}
    for (a, b), value in counts.items():
        pmi = math.log(value / total / (out[a] / total * (into[b] / total)))
        weight = value / out[a] * max(0.0, pmi)
        if value >= options.min_count and weight >= options.min_weight:
            kept[a, b] = weight
    return _looped_fusion(kept, vectors=vectors, options=options)


def _looped_counts(calls: Sequence[Sequence[int]], *, options: GraphOptions) -> dict[Pair, float]:
    counts: dict[Pair, float] = {}
    for sequence in calls:
        tools = list(dict.fromkeys(sequence)) if options.deduplicate else list(sequence)
        for i, a in enumerate(tools):
            for distance, step in ((1, 1.0), (2, options.skip_weight)):
                if step and i + distance < len(tools) and tools[i + distance] != a:
                    pair = (a, tools[i + distance])
                    counts[pair] = counts.get(pair, 0.0) + step
    return counts


def _looped_fusion(kept: dict[Pair, float], *, vectors: Vectors, options: GraphOptions) -> dict[Pair, float]:
    active = np.array(sorted({tool for pair in kept for tool in pair}), dtype=np.int64)
    near = _looped_neighbours(active, vectors=vectors, k=options.neighbours)
    low, high = min(kept.values(), default=0.0), max(kept.values(), default=0.0)
    span = high - low if high > low else 1.0
    share = options.statistical_share
    edges = {pair: share * ((weight - low) / span) + (1 - share) * near.get(pair, 0.0) for pair, weight in kept.items()}
    for pair, cosine in near.items():
        if cosine >= options.min_cosine and pair not in kept:
            edges[pair] = (1 - share) * cosine
    return edges


def _looped_neighbours(active: Ints, *, vectors: Vectors, k: int) -> dict[Pair, float]:
    among, found = vectors[active], {}
    for first in range(0, len(active), _LOOP_ROWS):
        similarity = among[first : first + _LOOP_ROWS] @ among.T
        for row in range(len(similarity)):
            similarity[row, first + row] = -1.0
            for column in np.argsort(-similarity[row], kind="stable")[: min(k, len(active) - 1)]:
                if similarity[row, column] > 0:
                    found[int(active[first + row]), int(active[column])] = float(similarity[row, column])
    return found


def _comparison(graph: TransitionGraph, looped: dict[Pair, float]) -> dict[str, float]:
    edges = graph.edges()
    ours = dict(zip(zip(edges.source.tolist(), edges.target.tolist(), strict=True), edges.weight.tolist(), strict=True))
    if ours.keys() != looped.keys():
        return {"equal_edges": 0.0, "max_difference": math.inf}
    return {"equal_edges": 1.0, "max_difference": max((abs(ours[p] - looped[p]) for p in ours), default=0.0)}

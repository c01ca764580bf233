"""Speed of both stages beside the per-query networkx loop of the published recipe, on the same queries."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise, permutations, product
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from toolshift.models.skillgraph.graph import TransitionGraph, build_graph, to_networkx
from toolshift.models.skillgraph.ordering import OrderOptions, on_sum_grid, order
from toolshift.models.skillgraph.reranker import FEATURES, LearnedReranker, RerankerOptions
from toolshift.models.skillgraph.retrieval import Cosines, RetrievalOptions, oracle_k, retrieve
from toolshift.models.skillgraph.sequences import Ints, Sequences

if TYPE_CHECKING:
    import networkx as nx

Vectors = NDArray[np.float32]
_ORDERERS = ("sem_sort", "hybrid_rerank", "opt_perm", "learned")


def bench_stages(
    n_queries: int = 10_000, *, n_tools: int = 16_000, n_loop: int = 100, dim: int = 384, seed: int = 0
) -> dict[str, float]:
    """Time GS-Hybrid and all four orderers of Stage 2 over random queries in mode=paper.

    The loop runs on the first ``n_loop`` queries and orders them by Hybrid-Rerank. Returns seconds (``stage_1_s``,
    ``stage_2_s`` for all orderers together, the Learned Reranker with weights that were drawn and not trained;
    ``loop_s`` and ``ours_on_loop_s`` for the same queries by both), ``cpu_s`` of both stages over all threads,
    ``speedup`` on those, sizes, and the share of them with equal sets and orders (``equal_sets``, ``equal_orders``).
    """
    queries, tools, graph, k = _random_input(n_queries, n_tools=n_tools, dim=dim, seed=seed)
    start, cpu = time.perf_counter(), time.process_time()
    sets = retrieve("gs_hybrid", queries=queries, tools=tools, graph=graph, k=k)
    stage_1_s = time.perf_counter() - start
    start = time.perf_counter()
    learned = _untrained(seed)
    found = {m: order(m, sets, graph=graph, learned=learned) for m in _ORDERERS}
    stage_2_s, cpu_s = time.perf_counter() - start, time.process_time() - cpu
    some = slice(0, min(n_loop, n_queries))
    start = time.perf_counter()
    part = retrieve("gs_hybrid", queries=queries[some], tools=tools, graph=graph, k=k[some])
    order("hybrid_rerank", part, graph=graph)
    ours_s = time.perf_counter() - start
    network = to_networkx(graph)
    start = time.perf_counter()
    asked = zip(queries[some], k[some].tolist(), strict=True)
    looped = [_looped(network, query, tools, graph=graph, k=n) for query, n in asked]
    loop_s = time.perf_counter() - start
    ours = [(_row(a), _row(b)) for a, b in zip(sets.items[some], found["hybrid_rerank"][some], strict=True)]
    pairs = list(zip(ours, looped, strict=True))
    return {
        "n_queries": float(n_queries),
        "n_tools": float(n_tools),
        "n_edges": float(graph.n_edges),
        "n_loop": float(len(pairs)),
        "stage_1_s": stage_1_s,
        "stage_2_s": stage_2_s,
        "cpu_s": cpu_s,
        "ours_on_loop_s": ours_s,
        "loop_s": loop_s,
        "speedup": loop_s / ours_s,
        "equal_sets": float(np.mean([mine[0] == other[0] for mine, other in pairs])),
        "equal_orders": float(np.mean([mine[1] == other[1] for mine, other in pairs])),
    }


def _row(items: Ints) -> list[int]:
    return [item for item in items.tolist() if item >= 0]


def _untrained(seed: int) -> LearnedReranker:
    rng = np.random.Generator(np.random.Philox(seed))
    sizes = (len(FEATURES), *RerankerOptions().hidden, 1)
    weights: dict[str, NDArray[np.float32]] = {}
    for number, shape in enumerate(pairwise(sizes), start=1):
        weights[f"layer_{number}"] = rng.standard_normal(shape, dtype=np.float32)
        weights[f"bias_{number}"] = rng.standard_normal(shape[1], dtype=np.float32)
    return LearnedReranker(weights=weights, antisymmetric=True)


def _random_input(n: int, *, n_tools: int, dim: int, seed: int) -> tuple[Vectors, Vectors, TransitionGraph, Ints]:
    """Queries near the mean of the tools of a trajectory, a graph of 40,000 other ones, and oracle K of skewed lengths.

    Trajectories stay inside a group of 12 tools and leave it now and then, so that pools fall into components and
    bridges exist.
    """
    rng = np.random.Generator(np.random.Philox(seed))
    centres = rng.standard_normal((-(-n_tools // 12), dim))
    tools = _units(centres[np.arange(n_tools) // 12] + rng.standard_normal((n_tools, dim)))
    lengths = np.minimum(rng.geometric(0.36, size=n + 40_000), 12)
    items = [rng.integers(0, 12, size=length) for length in lengths.tolist()]
    groups = rng.integers(0, len(centres), size=len(items))
    calls = [np.minimum(g * 12 + row, n_tools - 1) for g, row in zip(groups.tolist(), items, strict=True)]
    for row in calls[::5]:
        row[-1] = rng.integers(0, n_tools)
    queries = _units(np.stack([tools[row].mean(axis=0) for row in calls[:n]]) + 0.05 * rng.standard_normal((n, dim)))
    train = calls[n:]
    offsets = np.concatenate([[0], np.cumsum([len(row) for row in train])]).astype(np.int64)
    sequences = Sequences(offsets=offsets, items=np.concatenate(train).astype(np.int64), n_tools=n_tools)
    graph = build_graph(sequences, ids=[f"t{i}" for i in range(len(train))])
    return queries, tools, graph, oracle_k([len(set(row.tolist())) for row in calls[:n]])


def _units(rows: NDArray[np.float64]) -> Vectors:
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def _looped(
    network: nx.DiGraph, query: Vectors, tools: Vectors, *, graph: TransitionGraph, k: int
) -> tuple[list[int], list[int]]:
    """Set by cosine and Hybrid-Rerank order of one query."""
    table = Cosines.of(query[None], tools).table(slice(0, 1))[0].astype(np.float64)
    cosine = dict(enumerate(table.tolist()))
    chosen = looped_set(network, cosine, position=graph.position, k=k)
    by_cosine = sorted(chosen, key=lambda t: (-cosine[t], t))
    return by_cosine, looped_order(network, by_cosine, cosine, alpha=OrderOptions().alpha)


def looped_set(
    network: nx.DiGraph,
    cosine: Mapping[int, float],
    *,
    position: NDArray[np.float64],
    k: int,
    options: RetrievalOptions | None = None,
) -> list[int]:
    """GS-Hybrid for one query, step by step over networkx, in the planner's order: the reference of `retrieve`.

    cosine: of every tool that can be retrieved, and of those that bridges may add.
    """
    options = options or RetrievalOptions()
    ranked = sorted(cosine, key=lambda t: (-cosine[t], t))
    pool = ranked[: max(k + 2, options.c * k)]
    pool = pool + looped_bridges(network, pool, ends=options.ends)
    pool.sort(key=lambda t: (-cosine[t], t))
    sequence = pool[:1]
    for step in range(1, min(k, len(pool))):
        here, p = sequence[-1], step / max(1, k - 1)

        def score(t: int, here: int = here, p: float = p) -> float:
            if network.has_edge(here, t):
                local = network[here][t]["weight"]
            else:
                local = 0.5 * network[t][here]["weight"] if network.has_edge(t, here) else 0.0
            bonus = max(0.0, 1.0 - abs(float(position[t]) - p))
            return options.alpha * local + (1.0 - options.alpha) * cosine[t] + options.gamma * bonus

        sequence.append(max((t for t in pool if t not in sequence), key=score))
    return sequence


def looped_bridges(network: nx.DiGraph, pool: Sequence[int], *, ends: int) -> list[int]:
    """Tools between the components of a pool that is given by cosine, not in it."""
    import networkx as nx

    inside = network.subgraph(t for t in pool if t in network)
    components = sorted(nx.weakly_connected_components(inside), key=min)
    added: list[int] = []
    for left, right in pairwise([t for t in pool if t in part][:ends] for part in components):
        for source, target in product(left, right):
            if nx.has_path(network, source, target):
                path = min(nx.all_shortest_paths(network, source, target))
                added += [t for t in path[1:-1] if t not in pool and t not in added]
                break
    return added


def looped_order(network: nx.DiGraph, tools: Sequence[int], cosine: Mapping[int, float], *, alpha: float) -> list[int]:
    """Hybrid-Rerank by trying all permutations of tools that are given by cosine, the first of equal ones."""
    link = _grid(lambda a, b: alpha * _transition(network, a, b))
    return list(max(permutations(tools), key=lambda pi: _value(pi, link, cosine, alpha=alpha)))


def _value(pi: Sequence[int], link: Callable[[int, int], float], cosine: Mapping[int, float], *, alpha: float) -> float:
    own = [float(on_sum_grid(np.array((1.0 - alpha) * cosine[t] / i))) for i, t in enumerate(pi, start=1)]
    return sum(own) + sum(link(a, b) for a, b in pairwise(pi))


def _grid(value: Callable[[int, int], float]) -> Callable[[int, int], float]:
    known: dict[tuple[int, int], float] = {}

    def found(a: int, b: int) -> float:
        if (a, b) not in known:
            known[a, b] = float(on_sum_grid(np.array(value(a, b))))
        return known[a, b]

    return found


def _transition(network: nx.DiGraph, a: int, b: int) -> float:
    return network[a][b]["transition"] if network.has_edge(a, b) else 0.0

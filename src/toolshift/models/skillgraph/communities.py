"""Communities of a transition graph, how far they follow given labels, and single cases (skillgraph.md 2.3).

Louvain depends on the order in which nodes and edges are inserted, even with a seed: here it is always sorted. It still
depends on the seed, so everything is stated over several, with the agreement between them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse

from toolshift.models.skillgraph.graph import Edges, TransitionGraph
from toolshift.models.skillgraph.sequences import Ints

if TYPE_CHECKING:
    import networkx as nx

Floats = NDArray[np.float64]
Algorithm = Literal["python-louvain", "networkx"]
Projection = Literal["average", "one_direction"]

SEEDS = tuple(range(10))
_EDGE_BLOCK = 1 << 14


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Partition:
    """Communities of one run."""

    community: Ints
    """(n,) community of each tool row, -1 outside the graph; numbered by size descending, then by first row."""
    modularity: float
    """Q on the projection that was partitioned; 0 without any weight."""

    @property
    def sizes(self) -> Ints:
        """(c,) tools of each community, descending."""
        return np.bincount(self.community[self.community >= 0]).astype(np.int64)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Agreement:
    """Communities against one set of labels; tools without a label are left out everywhere."""

    purity: Floats
    """(c,) share of the commonest label of each community, NaN without a labelled tool."""
    purity_mean: float
    """Unweighted mean over communities, the paper's figure (a community of one tool has purity 1)."""
    purity_weighted: float
    """Mean weighted by the labelled tools of a community."""
    nmi: float
    """2 I(U; V) / (H(U) + H(V))."""
    n: int
    """Labelled tools."""


def projected(graph: TransitionGraph, *, how: Projection = "average") -> sparse.csr_matrix:
    """Undirected weights (n, n), symmetric, of the edges of a graph.

    ``average``: (w(a, b) + w(b, a)) / 2, an absent direction counting 0 (paper). ``one_direction``: of two directions
    the one that starts at the later tool stands, which is what networkx's plain conversion does (authors' code).
    """
    edges = graph.edges()
    low, high = np.minimum(edges.source, edges.target), np.maximum(edges.source, edges.target)
    n = graph.n_tools
    keys, at = np.unique(low * n + high, return_inverse=True)
    if how == "average":
        value = np.bincount(at, weights=edges.weight, minlength=len(keys)) / 2
    else:
        value = np.zeros(len(keys))
        later = edges.source > edges.target
        value[at[~later]] = edges.weight[~later]
        value[at[later]] = edges.weight[later]
    a, b = np.divmod(keys, max(1, n))
    both = (np.concatenate([value, value]), (np.concatenate([a, b]), np.concatenate([b, a])))
    return sparse.csr_matrix(both, shape=(n, n))


def modularity(weights: sparse.csr_matrix, community: Ints) -> float:
    """Newman's Q of labels (n,) on symmetric weights (n, n) without a diagonal; rows with -1 must have no weight."""
    total = float(weights.sum())
    if total == 0:
        return 0.0
    entries = weights.tocoo()
    inside = float(entries.data[community[entries.row] == community[entries.col]].sum())
    degree = np.asarray(weights.sum(axis=1)).ravel()
    member = community >= 0
    strength = np.bincount(community[member], weights=degree[member])
    return inside / total - float(((strength / total) ** 2).sum())


def louvain(
    graph: TransitionGraph,
    *,
    seed: int = 42,
    algorithm: Algorithm = "python-louvain",
    projection: Projection = "average",
    weights: sparse.csr_matrix | None = None,
) -> Partition:
    """Communities of the tools of a graph.

    ``weights`` is the projection, where it is at hand already. Nodes without an edge are communities of their own.

    Raises:
        ValueError: if the algorithm or the projection is unknown.
    """
    if algorithm not in get_args(Algorithm) or projection not in get_args(Projection):
        raise ValueError(f"unknown algorithm {algorithm!r} or projection {projection!r}")
    weights = projected(graph, how=projection) if weights is None else weights
    rows = np.flatnonzero(graph.nodes)
    raw = np.full(graph.n_tools, -1, dtype=np.int64)
    if weights.sum() > 0:
        run = _python_louvain if algorithm == "python-louvain" else _networkx_louvain
        raw[rows] = run(_undirected(weights, rows), rows, seed=seed)
    else:
        raw[rows] = np.arange(len(rows))
    community = _numbered(raw)
    return Partition(community=community, modularity=modularity(weights, community))


def _undirected(weights: sparse.csr_matrix, rows: Ints) -> nx.Graph:
    import networkx as nx

    upper = sparse.triu(weights, k=1).tocsr()
    upper.sort_indices()
    entries = upper.tocoo()
    out = nx.Graph()
    out.add_nodes_from(rows.tolist())
    out.add_weighted_edges_from(zip(entries.row.tolist(), entries.col.tolist(), entries.data.tolist(), strict=True))
    return out


def _python_louvain(graph: nx.Graph, rows: Ints, *, seed: int) -> Ints:
    # `import community` finds another package of that name where one is installed.
    from community import community_louvain

    found = community_louvain.best_partition(graph, weight="weight", random_state=seed)
    return np.array([found[row] for row in rows.tolist()], dtype=np.int64)


def _networkx_louvain(graph: nx.Graph, rows: Ints, *, seed: int) -> Ints:
    from networkx.algorithms.community import louvain_communities

    found: dict[int, int] = {}
    for label, members in enumerate(louvain_communities(graph, weight="weight", seed=seed)):
        found.update(dict.fromkeys(members, label))
    return np.array([found[row] for row in rows.tolist()], dtype=np.int64)


def _numbered(raw: Ints) -> Ints:
    """Labels renumbered by size descending, then by first row, so that equal partitions are equal arrays."""
    member = raw >= 0
    _, first, at, size = np.unique(raw[member], return_index=True, return_inverse=True, return_counts=True)
    rank = np.empty(len(first), dtype=np.int64)
    rank[np.lexsort((first, -size))] = np.arange(len(first))
    out = np.full_like(raw, -1)
    out[member] = rank[at]
    return out


def agreement(community: Ints, labels: Sequence[str | None]) -> Agreement:
    """Purity and NMI of communities (n,), -1 outside, against n labels; None or "" means that a tool has none.

    Raises:
        ValueError: if the numbers of tools differ.
    """
    from sklearn.metrics import normalized_mutual_info_score

    if len(labels) != len(community):
        raise ValueError(f"{len(labels)} labels for {len(community)} tools")
    used = (community >= 0) & np.array([bool(label) for label in labels], dtype=bool)
    names = np.array([label or "" for label in labels], dtype=np.str_)[used]
    _, code = np.unique(names, return_inverse=True)
    group, n_groups = community[used], int(community.max(initial=-1)) + 1
    table = np.zeros((n_groups, int(code.max(initial=-1)) + 1), dtype=np.int64)
    np.add.at(table, (group, code), 1)
    size, top = table.sum(axis=1), table.max(axis=1, initial=0)
    purity = np.divide(top, size, out=np.full(n_groups, np.nan), where=size > 0)
    n = int(used.sum())
    return Agreement(
        purity=purity,
        purity_mean=float(np.nanmean(purity)) if n else float("nan"),
        purity_weighted=float(top.sum() / n) if n else float("nan"),
        nmi=float(normalized_mutual_info_score(code, group)) if n else float("nan"),
        n=n,
    )


def community_table(
    graph: TransitionGraph,
    *,
    labels: Mapping[str, Sequence[str | None]],
    seeds: Sequence[int] = SEEDS,
    algorithms: Sequence[Algorithm] = get_args(Algorithm),
    projections: Sequence[Projection] = get_args(Projection),
) -> pd.DataFrame:
    """One row per algorithm, projection, seed and label set (for example domain category, parent tool).

    Columns: algorithm, projection, seed, labels, n_communities, n_tools, largest, modularity, purity, purity_weighted,
    nmi, n_labelled. `summary_of` gives means and ranges over seeds, `stability` the agreement between them.
    """
    rows = []
    for projection in projections:
        weights = projected(graph, how=projection)
        for algorithm in algorithms:
            for seed in seeds:
                found = louvain(graph, seed=seed, algorithm=algorithm, projection=projection, weights=weights)
                key = (algorithm, projection, seed)
                rows += [(*key, name, *_figures(found, of)) for name, of in labels.items()]
    return pd.DataFrame(rows, columns=pd.Index(_TABLE))


_BLOCK = ("algorithm", "projection")
_FIGURES = ("n_communities", "modularity", "purity", "purity_weighted", "nmi")
_TABLE = (*_BLOCK, "seed", "labels", "n_communities", "n_tools", "largest", *_FIGURES[1:], "n_labelled")


def _figures(found: Partition, labels: Sequence[str | None]) -> tuple[float, ...]:
    sizes, against = found.sizes, agreement(found.community, labels)
    return (
        len(sizes),
        int(sizes.sum()),
        int(sizes.max(initial=0)),
        found.modularity,
        against.purity_mean,
        against.purity_weighted,
        against.nmi,
        against.n,
    )


def summary_of(table: pd.DataFrame) -> pd.DataFrame:
    """Mean, least and greatest value over seeds of each figure of `community_table`, one row per block and figure."""
    long = table.melt(id_vars=[*_BLOCK, "labels", "seed"], value_vars=list(_FIGURES), var_name="figure")
    grouped = long.groupby([*_BLOCK, "labels", "figure"], sort=True)["value"]
    return grouped.agg(mean="mean", low="min", high="max", n_seeds="count").reset_index()


def stability(
    graph: TransitionGraph,
    *,
    seeds: Sequence[int] = SEEDS,
    algorithms: Sequence[Algorithm] = get_args(Algorithm),
    projections: Sequence[Projection] = get_args(Projection),
) -> pd.DataFrame:
    """Mean and least agreement of the partitions of all pairs of seeds: NMI and adjusted Rand index, 1 if equal.

    Columns: algorithm, projection, n_seeds, n_partitions (distinct ones), nmi_mean, nmi_low, ari_mean, ari_low.

    Raises:
        ValueError: with fewer than two seeds.
    """
    if len(set(seeds)) < 2:
        raise ValueError(f"stability compares partitions of at least two seeds, got {list(seeds)}")
    rows = []
    for projection in projections:
        weights = projected(graph, how=projection)
        for algorithm in algorithms:
            options = {"algorithm": algorithm, "projection": projection, "weights": weights}
            found = [louvain(graph, seed=s, **options).community[graph.nodes] for s in seeds]
            rows.append((algorithm, projection, len(found), len({f.tobytes() for f in found}), *_pairwise(found)))
    columns = (*_BLOCK, "n_seeds", "n_partitions", "nmi_mean", "nmi_low", "ari_mean", "ari_low")
    return pd.DataFrame(rows, columns=pd.Index(columns))


def _pairwise(partitions: Sequence[Ints]) -> tuple[float, float, float, float]:
    from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

    pairs = list(combinations(partitions, 2))
    nmi = np.array([normalized_mutual_info_score(a, b) for a, b in pairs])
    ari = np.array([adjusted_rand_score(a, b) for a, b in pairs])
    return float(nmi.mean()), float(nmi.min()), float(ari.mean()), float(ari.min())


def edge_cosines(edges: Edges, vectors: NDArray[np.float32]) -> Floats:
    """Cosine (e,) of the ends of each edge; ``vectors`` (n, d) are unit rows in library order."""
    out = np.empty(len(edges))
    for first in range(0, len(edges), _EDGE_BLOCK):
        part = slice(first, first + _EDGE_BLOCK)
        a, b = vectors[edges.source[part]], vectors[edges.target[part]]
        out[part] = np.einsum("ed,ed->e", a, b, dtype=np.float64)
    return out


def cosine_correlations(graph: TransitionGraph, vectors: NDArray[np.float32]) -> pd.DataFrame:
    """Spearman correlation of edge weight and of transition probability with the cosine of the two tools.

    Over all edges and over statistical and semantic edges apart: semantic edges have tp = 0 and a high cosine by
    construction, which alone makes a negative correlation over all. Columns: value (weight, transition), edges (all,
    statistical, semantic), rho, p (two-sided), n; rho and p are NaN where an input is constant or n < 3.
    """
    edges = graph.edges()
    cosine = edge_cosines(edges, vectors)
    kinds = {"all": np.ones(len(edges), dtype=bool), "statistical": ~edges.semantic, "semantic": edges.semantic}
    rows = [
        (value, kind, *_spearman(column[chosen], cosine[chosen]), int(chosen.sum()))
        for value, column in (("weight", edges.weight), ("transition", edges.transition))
        for kind, chosen in kinds.items()
    ]
    return pd.DataFrame(rows, columns=pd.Index(("value", "edges", "rho", "p", "n")))


def _spearman(a: Floats, b: Floats) -> tuple[float, float]:
    from scipy.stats import spearmanr

    if len(a) < 3 or np.ptp(a) == 0 or np.ptp(b) == 0:
        return float("nan"), float("nan")
    found: Any = spearmanr(a, b)
    return float(found.statistic), float(found.pvalue)


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeCase:
    """One edge, or a pair that was counted and pruned."""

    source: int
    target: int
    count: float
    """n(a, b)"""
    transition: float
    """tp; 0 without a statistical edge."""
    weight: float
    """Weight in Stage 1; 0 without an edge."""
    kind: Literal["statistical", "semantic", "pruned"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCase:
    """What the graph knows of one tool."""

    tool: int
    in_graph: bool
    calls: int
    position: float
    community: int
    """-1 outside the graph."""
    community_size: int
    outgoing: tuple[EdgeCase, ...]
    """By weight descending, then count descending, then row."""
    incoming: tuple[EdgeCase, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PairCase:
    """What the graph knows of two tools: ``edges`` holds the directions that were counted or are edges."""

    first: ToolCase
    second: ToolCase
    edges: tuple[EdgeCase, ...]
    same_community: bool


def tool_case(graph: TransitionGraph, partition: Partition, tool: int) -> ToolCase:
    """Edges, counts and community of a tool row.

    Raises:
        ValueError: if the row is outside the library.
    """
    if not 0 <= tool < graph.n_tools:
        raise ValueError(f"tool row {tool} is outside the library of {graph.n_tools} tools")
    community = int(partition.community[tool])
    both = (graph.counts, graph.weight)
    ahead = np.union1d(*(m.indices[m.indptr[tool] : m.indptr[tool + 1]] for m in both))
    behind = np.union1d(*(_stored_in_column(m, tool) for m in both))
    return ToolCase(
        tool=tool,
        in_graph=bool(graph.nodes[tool]),
        calls=int(graph.calls[tool]),
        position=float(graph.position[tool]),
        community=community,
        community_size=int((partition.community == community).sum()) if community >= 0 else 0,
        outgoing=_ordered([_edge(graph, tool, b) for b in ahead.tolist()]),
        incoming=_ordered([_edge(graph, a, tool) for a in behind.tolist()]),
    )


def pair_case(graph: TransitionGraph, partition: Partition, first: int, second: int) -> PairCase:
    """Both directions between two tool rows, and what `tool_case` says of each.

    Raises:
        ValueError: if a row is outside the library or the two are the same.
    """
    if first == second:
        raise ValueError(f"a pair needs two tools, got row {first} twice")
    a, b = tool_case(graph, partition, first), tool_case(graph, partition, second)
    edges = tuple(e for e in (*a.outgoing, *a.incoming) if second in (e.source, e.target))
    return PairCase(first=a, second=b, edges=edges, same_community=a.community == b.community >= 0)


def _edge(graph: TransitionGraph, a: int, b: int) -> EdgeCase:
    count, transition, weight = (_entry(m, a, b) for m in (graph.counts, graph.transition, graph.weight))
    kind = "statistical" if transition is not None else "pruned" if weight is None else "semantic"
    return EdgeCase(
        source=a, target=b, count=count or 0.0, transition=transition or 0.0, weight=weight or 0.0, kind=kind
    )


def _entry(matrix: sparse.csr_matrix, row: int, column: int) -> float | None:
    part = slice(matrix.indptr[row], matrix.indptr[row + 1])
    at = np.flatnonzero(matrix.indices[part] == column)
    return float(matrix.data[part][at[0]]) if at.size else None


def _stored_in_column(matrix: sparse.csr_matrix, column: int) -> Ints:
    """Rows with an entry in the column, zeros included."""
    return np.searchsorted(matrix.indptr, np.flatnonzero(matrix.indices == column), side="right") - 1


def _ordered(edges: Sequence[EdgeCase]) -> tuple[EdgeCase, ...]:
    return tuple(sorted(edges, key=lambda e: (-e.weight, -e.count, e.source, e.target)))

"""Transition graph of tools, in the form of the paper's text and in the form of the authors' code (skillgraph.md 2).

What is counted is kept exactly (soft counts in steps of 1/1024, places of calls as integers), and everything else is
derived from it in a fixed order. So trajectories may come in any order and in any number of parts: a graph that was
extended equals one built at once, bit for bit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from scipy import sparse

from toolshift.models.skillgraph.sequences import Ints, Sequences
from toolshift.runs.files import read_json, write_json
from toolshift.views.manifest import write_table

if TYPE_CHECKING:
    import networkx as nx

Form = Literal["paper", "authors"]
PositionScale = Literal["closed", "open"]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Vectors = NDArray[np.float32]

# Similarities worked on at once (32 MB in float32).
_BLOCK = 1 << 23
_GRID = 1024
_HEAD = "graph.json"
_FORMAT = 1


class LeakedTrajectory(ValueError):
    """A trajectory of the test part was counted in a graph."""

    user_facing = True


class BadGraphFile(ValueError):
    """A stored graph cannot be used."""

    user_facing = True


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphOptions:
    """How counts become edges; `options_of` gives the values of each form.

    Raises:
        ValueError: if a value is out of range.
    """

    form: Form
    """``paper``: every transition is an edge and its probability the weight. ``authors``: pruning, PMI and fusion."""
    deduplicate: bool
    """Keep only the first call of each tool of a trajectory."""
    skip_weight: float
    """Count of a pair at distance 2, a multiple of 1/1024 so that sums are exact; 0 counts distance 1 only."""
    position: PositionScale
    """Place i of L calls as i / (L - 1), 0 first and 1 last, a lone call 0 (``closed``), or as i / L (``open``)."""
    min_count: float = 3.0
    """Authors' form only, like all that follows: least soft count of an edge."""
    min_weight: float = 0.01
    """Least tp * max(0, PMI) of an edge."""
    neighbours: int = 20
    """Cosine neighbours a tool keeps."""
    min_cosine: float = 0.6
    """Least cosine of an edge without a transition."""
    statistical_share: float = 0.7
    """Weight of the scaled statistical part; the cosine has the rest."""

    def __post_init__(self) -> None:
        if self.form not in ("paper", "authors") or self.position not in ("closed", "open"):
            raise ValueError(f"form {self.form!r} and position {self.position!r}: one of paper, authors; closed, open")
        if self.skip_weight < 0 or not float(self.skip_weight * _GRID).is_integer():
            raise ValueError(f"skip_weight must be a multiple of 1/{_GRID} and not negative, got {self.skip_weight}")
        if not 0 <= self.statistical_share <= 1 or self.neighbours < 0:
            raise ValueError(f"statistical_share {self.statistical_share} in [0, 1], neighbours {self.neighbours} >= 0")


def options_of(form: Form) -> GraphOptions:
    """Options of a form: the text counts distance 1 without repeats, the code counts distance 2 by half (section 2)."""
    if form == "paper":
        return GraphOptions(form="paper", deduplicate=True, skip_weight=0.0, position="closed")
    return GraphOptions(form="authors", deduplicate=False, skip_weight=0.5, position="open")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CallPlaces:
    """How often a tool was called at a place of trajectories of a length: p rows, sorted by tool, length, place."""

    tool: Ints
    place: Ints
    """(p,) zero-based."""
    length: Ints
    count: Ints


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Edges:
    """The e edges of a graph, sorted by source, then target."""

    source: Ints
    target: Ints
    count: Floats
    """(e,) n(a, b); 0 without a counted transition."""
    transition: Floats
    """(e,) tp; 0 on semantic edges."""
    weight: Floats
    semantic: Bools
    """(e,) True where only the cosine made the edge."""

    def __len__(self) -> int:
        return len(self.source)


def _none() -> Ints:
    return np.zeros(0, dtype=np.int64)


_PAPER = options_of("paper")
_NO_PLACES = CallPlaces(tool=_none(), place=_none(), length=_none(), count=_none())


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TransitionGraph:
    """Directed graph over the n tools of a library, by tool row. No edge leads from a tool to itself."""

    counts: sparse.csr_matrix
    """(n, n) float64, n(a, b) of every pair counted, before pruning; soft counts where pairs at distance 2 count."""
    transition: sparse.csr_matrix
    """(n, n) float64, n(a, b) / sum over b' of n(a, b'), for the statistical edges. The sum is taken before pruning."""
    weight: sparse.csr_matrix
    """(n, n) float64, weight in Stage 1 for all edges; an entry that is stored is an edge, even where it is 0."""
    position: Floats
    """(n,) mean place of the calls of a tool, 0.5 if it was never called."""
    nodes: Bools
    """(n,) the tool belongs to the graph: called (paper), or end of a statistical edge (authors)."""
    contributors: tuple[str, ...]
    """Ids of the trajectories counted, sorted."""
    options: GraphOptions = _PAPER
    places: CallPlaces = _NO_PLACES

    @property
    def n_tools(self) -> int:
        """Tools of the library, in the graph or not."""
        return len(self.nodes)

    @property
    def n_edges(self) -> int:
        """Edges of both kinds."""
        return int(self.weight.nnz)

    @property
    def calls(self) -> Ints:
        """(n,) calls of each tool in the trajectories counted."""
        return _totals(self.places.tool, self.places.count, n=self.n_tools).astype(np.int64)

    def edges(self) -> Edges:
        """All edges with their attributes."""
        matrix = self.weight.tocoo()
        source, target = matrix.row.astype(np.int64), matrix.col.astype(np.int64)
        keys = source * self.n_tools + target
        transition, statistical = _looked_up(self.transition, keys)
        count, _ = _looked_up(self.counts, keys)
        return Edges(
            source=source,
            target=target,
            count=count,
            transition=transition,
            weight=np.asarray(matrix.data, dtype=np.float64),
            semantic=~statistical,
        )

    def assert_disjoint(self, test_ids: Collection[str]) -> None:
        """Check that no test trajectory was counted (skillgraph.md section 10).

        Raises:
            LeakedTrajectory: if one was; the message names the first few.
        """
        shared = sorted(set(test_ids) & set(self.contributors))
        if shared:
            raise LeakedTrajectory(
                f"{len(shared)} test trajectories were counted in the graph: {', '.join(shared[:3])}; build it from "
                "the training part of the split only"
            )


def build_graph(
    sequences: Sequences,
    *,
    ids: Sequence[str],
    form: Form = "paper",
    vectors: Vectors | None = None,
    options: GraphOptions | None = None,
) -> TransitionGraph:
    """Count trajectories and derive the graph.

    Args:
        sequences: n trajectories as tool rows.
        ids: their n ids, distinct.
        form: of the paper's text (2.1) or of the authors' code (2.2).
        vectors: (n_tools, d) unit rows in library order; needed by the authors' form only.
        options: other values than those of the form.

    Trajectories of one call (or of repeats of one tool) contribute calls and places, no edge; cycles need no care. No
    trajectory at all gives a graph without nodes.

    Raises:
        ValueError: if ids repeat or their number differs, options are of another form, or vectors are absent, of
            another shape or not finite.
    """
    options = options_of(form) if options is None else options
    if options.form != form:
        raise ValueError(f"options are of the form {options.form!r}, asked for {form!r}")
    contributors = _distinct(ids, n=len(sequences))
    counted = sequences.deduplicated() if options.deduplicate else sequences
    return _derived(
        _pair_counts(counted, skip_weight=options.skip_weight),
        _places(counted),
        contributors=contributors,
        options=options,
        vectors=vectors,
    )


def extended(
    graph: TransitionGraph, sequences: Sequences, *, ids: Sequence[str], vectors: Vectors | None = None
) -> TransitionGraph:
    """The graph with more trajectories counted, bit-equal to one built from all of them; arguments as `build_graph`.

    Raises:
        ValueError: as `build_graph`; also if the library differs in size, a trajectory was counted before, or the
            graph lacks the places of its calls.
    """
    if sequences.n_tools != graph.n_tools:
        raise ValueError(f"the graph is over {graph.n_tools} tools, the new trajectories over {sequences.n_tools}")
    if graph.counts.nnz and not graph.places.count.size:
        raise ValueError("this graph was put together without the places of its calls; build it with build_graph")
    added = _distinct(ids, n=len(sequences))
    contributors = _distinct([*graph.contributors, *added], n=len(graph.contributors) + len(added))
    counted = sequences.deduplicated() if graph.options.deduplicate else sequences
    counts = _pair_counts(counted, skip_weight=graph.options.skip_weight)
    return _derived(
        _canonical(graph.counts + counts),
        _merged(graph.places, _places(counted)),
        contributors=contributors,
        options=graph.options,
        vectors=vectors,
    )


def identical(first: TransitionGraph, second: TransitionGraph) -> bool:
    """Whether two graphs agree in every bit, stored zeros included."""
    matrices = [(getattr(g, m) for m in ("counts", "transition", "weight")) for g in (first, second)]
    arrays = [
        [*(a for m in parts for a in (m.indptr, m.indices, m.data)), g.position, g.nodes, *_columns(g.places)]
        for g, parts in zip((first, second), matrices, strict=True)
    ]
    same = all(np.array_equal(a, b) for a, b in zip(*arrays, strict=True))
    return same and first.contributors == second.contributors and first.options == second.options


def to_networkx(graph: TransitionGraph, *, tool_ids: Sequence[str] | None = None) -> nx.DiGraph:
    """The graph for analysis: nodes and edges inserted in sorted order, named by row or by id.

    Nodes carry ``position`` and ``calls``; edges ``weight``, ``transition``, ``count`` and ``semantic``.
    """
    import networkx as nx

    names = range(graph.n_tools) if tool_ids is None else tool_ids
    out = nx.DiGraph()
    calls = graph.calls
    for row in np.flatnonzero(graph.nodes).tolist():
        out.add_node(names[row], position=float(graph.position[row]), calls=int(calls[row]))
    edges = graph.edges()
    values = (edges.source, edges.target, edges.weight, edges.transition, edges.count, edges.semantic)
    for a, b, weight, transition, count, semantic in zip(*(v.tolist() for v in values), strict=True):
        out.add_edge(names[a], names[b], weight=weight, transition=transition, count=count, semantic=semantic)
    return out


def to_parquet(graph: TransitionGraph, folder: Path, *, tool_ids: Sequence[str]) -> list[Path]:
    """Write a graph: nodes, edges (pairs counted and pruned included), places, contributors, and a head with its form.

    ``tool_ids`` (n,) name the rows, for readers of the files and so that no other library is put under the graph.
    Each file is whole or absent, and the head comes last, so that a folder with a head is complete. Equal graphs give
    equal bytes. Returns the paths written.

    Raises:
        ValueError: if the number of ids is not that of the tools.
    """
    if len(tool_ids) != graph.n_tools:
        raise ValueError(f"{len(tool_ids)} tool ids for a graph over {graph.n_tools} tools")
    (folder / _HEAD).unlink(missing_ok=True)
    tables = _tables(graph, tool_ids)
    written = [write_table(folder / f"{name}.parquet", table) for name, table in tables.items()]
    rows = {name: table.num_rows for name, table in tables.items()}
    head = {"format": _FORMAT, "options": asdict(graph.options), "rows": rows}
    return [*written, write_json(folder / _HEAD, head)]


def from_parquet(folder: Path, *, tool_ids: Sequence[str] | None = None) -> TransitionGraph:
    """Read what `to_parquet` wrote, bit for bit; with ``tool_ids``, check that the library is the same.

    Raises:
        BadGraphFile: if a file is missing or has another number of rows than the head says, the format is another
            one, or the tools are not ``tool_ids`` in their order.
    """
    path = folder / _HEAD
    if not path.exists():
        raise BadGraphFile(f"{path} is missing, so the graph was not written to its end; build it again")
    head = read_json(path)
    if head.get("format") != _FORMAT:
        raise BadGraphFile(
            f"{path}: format {head.get('format')!r}, this version reads {_FORMAT}; build the graph again"
        )
    nodes, edges, places, ids = (
        _read(folder, name, head["rows"]) for name in ("nodes", "edges", "places", "contributors")
    )
    names = nodes["tool_id"].to_pylist()
    if tool_ids is not None and names != list(tool_ids):
        raise BadGraphFile(f"{folder}: the graph is over {len(names)} other tools or another order; build it again")
    columns = {name: edges[name].to_numpy() for name in edges.column_names if not name.endswith("_id")}
    keys, n = columns["source"].astype(np.int64) * len(names) + columns["target"], len(names)
    kept = {"counts": columns["count"] > 0, "transition": columns["kind"] == "statistical"}
    kept["weight"] = columns["kind"] != "pruned"
    stored = {"counts": "count", "transition": "transition", "weight": "weight"}
    matrices = {m: _from_keys(keys[kept[m]], columns[c][kept[m]], n=n) for m, c in stored.items()}
    return TransitionGraph(
        **matrices,
        position=nodes["position"].to_numpy(),
        nodes=nodes["node"].to_numpy(),
        contributors=tuple(ids["trajectory_id"].to_pylist()),
        options=GraphOptions(**head["options"]),
        places=CallPlaces(**{name: places[name].to_numpy() for name in ("tool", "place", "length", "count")}),
    )


def _tables(graph: TransitionGraph, tool_ids: Sequence[str]) -> dict[str, pa.Table]:
    n, places = graph.n_tools, graph.places
    every = np.union1d(_keys(graph.counts), _keys(graph.weight))
    count, _ = _looked_up(graph.counts, every)
    transition, statistical = _looked_up(graph.transition, every)
    weight, edge = _looked_up(graph.weight, every)
    source, target = np.divmod(every, max(1, n))
    names = pa.array(tool_ids, pa.string())
    kind = np.where(statistical, "statistical", np.where(edge, "semantic", "pruned"))
    return {
        "nodes": pa.table({"tool_id": names, "node": graph.nodes, "position": graph.position, "calls": graph.calls}),
        "edges": pa.table(
            {
                "source": source,
                "target": target,
                "source_id": names.take(pa.array(source)),
                "target_id": names.take(pa.array(target)),
                "kind": pa.array(kind.tolist(), pa.string()),
                "count": count,
                "transition": transition,
                "weight": weight,
            }
        ),
        "places": pa.table(dict(zip(("tool", "place", "length", "count"), _columns(places), strict=True))),
        "contributors": pa.table({"trajectory_id": pa.array(graph.contributors, pa.string())}),
    }


def _read(folder: Path, name: str, rows: dict[str, Any]) -> pa.Table:
    path = folder / f"{name}.parquet"
    if not path.exists():
        raise BadGraphFile(f"{path} is missing; build the graph again")
    table = pq.read_table(path)
    if table.num_rows != rows[name]:
        raise BadGraphFile(f"{path} has {table.num_rows} rows, {_HEAD} says {rows[name]}; build the graph again")
    return table


def _distinct(ids: Sequence[str], *, n: int) -> tuple[str, ...]:
    if len(ids) != n:
        raise ValueError(f"{len(ids)} ids for {n} trajectories")
    if len(set(ids)) != n:
        repeated = sorted(name for name, times in Counter(ids).items() if times > 1)
        raise ValueError(f"trajectory {repeated[0]!r} would be counted more than once; ids must be distinct")
    return tuple(sorted(ids))


def _pair_counts(sequences: Sequences, *, skip_weight: float) -> sparse.csr_matrix:
    """(n, n) counts of pairs at distance 1, and of those at distance 2 by ``skip_weight``; a tool never with itself."""
    owner, items, n = sequences.owner, sequences.items, sequences.n_tools
    total = sparse.csr_matrix((n, n), dtype=np.float64)
    for distance, weight in ((1, 1.0), (2, skip_weight)):
        if weight == 0:
            continue
        a, b = items[:-distance], items[distance:]
        kept = (owner[:-distance] == owner[distance:]) & (a != b)
        pairs = (np.full(int(kept.sum()), weight), (a[kept], b[kept]))
        total = total + sparse.csr_matrix(pairs, shape=(n, n))
    return _canonical(total)


def _canonical(matrix: sparse.csr_matrix) -> sparse.csr_matrix:
    """Sorted, without repeated entries, and with indices of one type, so that equal matrices are equal arrays."""
    out = sparse.csr_matrix(matrix)
    out.sum_duplicates()
    out.indices, out.indptr = out.indices.astype(np.int32), out.indptr.astype(np.int32)
    return out


def _places(sequences: Sequences) -> CallPlaces:
    rows = np.stack([sequences.items, np.repeat(sequences.lengths, sequences.lengths), sequences.place])
    return _tabled(rows, np.ones(len(sequences.items), dtype=np.int64))


def _merged(first: CallPlaces, second: CallPlaces) -> CallPlaces:
    rows = np.concatenate([[p.tool, p.length, p.place] for p in (first, second)], axis=1)
    return _tabled(rows, np.concatenate([first.count, second.count]))


def _tabled(rows: Ints, counts: Ints) -> CallPlaces:
    """Rows (3, m) of tool, length, place, made distinct and sorted, with the sum of their counts (m,)."""
    order = np.lexsort(rows[::-1])
    rows, counts = rows[:, order], counts[order]
    first = np.ones(rows.shape[1], dtype=bool)
    first[1:] = (np.diff(rows, axis=1) != 0).any(axis=0)
    starts = np.flatnonzero(first)
    summed = np.add.reduceat(counts, starts) if starts.size else counts
    tool, length, place = rows[:, starts]
    return CallPlaces(tool=tool, place=place, length=length, count=summed)


def _columns(places: CallPlaces) -> tuple[Ints, Ints, Ints, Ints]:
    return places.tool, places.place, places.length, places.count


def _positions(places: CallPlaces, *, scale: PositionScale, n: int) -> Floats:
    last = np.maximum(places.length - 1, 1) if scale == "closed" else places.length
    calls = _totals(places.tool, places.count, n=n)
    # Rows are sorted, so the order of this sum is fixed.
    summed = _totals(places.tool, places.count * (places.place / last), n=n)
    return np.divide(summed, calls, out=np.full(n, 0.5), where=calls > 0)


def _totals(rows: Ints, values: NDArray[np.generic], *, n: int) -> Floats:
    return np.bincount(rows, weights=values, minlength=n).astype(np.float64, copy=False)


def _derived(
    counts: sparse.csr_matrix,
    places: CallPlaces,
    *,
    contributors: tuple[str, ...],
    options: GraphOptions,
    vectors: Vectors | None,
) -> TransitionGraph:
    n = len(counts.indptr) - 1
    probability = _row_normalised(counts)
    if options.form == "paper":
        transition = weight = probability
        nodes = _totals(places.tool, places.count, n=n) > 0
    else:
        vectors = _checked(vectors, n=n)
        statistical = _statistical_weights(counts, probability, options=options)
        transition = _like(statistical, _looked_up(probability, _keys(statistical))[0])
        nodes = np.zeros(n, dtype=bool)
        nodes[statistical.indices] = True
        nodes |= np.diff(statistical.indptr) > 0
        weight = _fused(statistical, np.flatnonzero(nodes), vectors=vectors, options=options)
    return TransitionGraph(
        counts=counts,
        transition=transition,
        weight=weight,
        position=_positions(places, scale=options.position, n=n),
        nodes=nodes,
        contributors=contributors,
        options=options,
        places=places,
    )


def _checked(vectors: Vectors | None, *, n: int) -> Vectors:
    if vectors is None:
        raise ValueError("the authors' form fuses transitions with cosines: give the vectors of the tools")
    if vectors.ndim != 2 or len(vectors) != n:
        raise ValueError(f"vectors must be ({n}, d), one row per tool, got {vectors.shape}")
    if not np.isfinite(vectors).all():
        raise ValueError(f"the vector of tool row {int(np.argmin(np.isfinite(vectors).all(axis=1)))} is not finite")
    return np.ascontiguousarray(vectors, dtype=np.float32)


def _row_normalised(counts: sparse.csr_matrix) -> sparse.csr_matrix:
    totals = _row_sums(counts)
    return _like(counts, counts.data / np.repeat(totals, np.diff(counts.indptr)))


def _row_sums(counts: sparse.csr_matrix) -> Floats:
    return np.asarray(counts.sum(axis=1)).ravel()


def _statistical_weights(
    counts: sparse.csr_matrix, probability: sparse.csr_matrix, *, options: GraphOptions
) -> sparse.csr_matrix:
    """tp * max(0, PMI) of the pairs that survive pruning (section 2.2, phase 1)."""
    n = len(counts.indptr) - 1
    total = counts.data.sum()
    source = np.repeat(np.arange(n), np.diff(counts.indptr))
    p_source = _row_sums(counts)[source] / total
    p_target = np.asarray(counts.sum(axis=0)).ravel()[counts.indices] / total
    pmi = np.log(counts.data / total / (p_source * p_target))
    weight = probability.data * np.maximum(0.0, pmi)
    kept = (counts.data >= options.min_count) & (weight >= options.min_weight)
    return _from_keys(_keys(counts)[kept], weight[kept], n=n)


def _fused(
    statistical: sparse.csr_matrix, active: Ints, *, vectors: Vectors, options: GraphOptions
) -> sparse.csr_matrix:
    """Scaled statistical part and cosine, and edges of a high cosine alone (section 2.2, phase 2).

    Neighbours are looked for among the tools that survive pruning.
    """
    n = len(statistical.indptr) - 1
    near, cosine = _neighbour_keys(vectors, active, k=options.neighbours)
    scaled, keys = _min_max(np.asarray(statistical.data, dtype=np.float64)), _keys(statistical)
    weight = options.statistical_share * scaled
    if near.size:
        at = np.minimum(np.searchsorted(near, keys), near.size - 1)
        weight += (1 - options.statistical_share) * np.where(near[at] == keys, cosine[at], 0.0)
    alone = (cosine >= options.min_cosine) & ~np.isin(near, keys)
    every = np.concatenate([keys, near[alone]])
    values = np.concatenate([weight, (1 - options.statistical_share) * cosine[alone]])
    order = np.argsort(every, kind="stable")
    return _from_keys(every[order], values[order], n=n)


def _min_max(values: Floats) -> Floats:
    """Values scaled to [0, 1]; all 0 where they are equal, as in the authors' code."""
    if not values.size:
        return values
    low, high = values.min(), values.max()
    return (values - low) / (high - low if high > low else 1.0)


def _neighbour_keys(vectors: Vectors, active: Ints, *, k: int) -> tuple[Ints, Floats]:
    """Pairs (tool, one of its k nearest other tools) with a positive cosine, as sorted keys (m,), and cosines (m,)."""
    n, among = len(vectors), np.ascontiguousarray(vectors[active])
    k = min(k, len(active) - 1)
    keys, cosines = [np.zeros(0, dtype=np.int64)], [np.zeros(0)]
    for first, last in _row_blocks(len(active) if k > 0 else 0):
        similarity = among[first:last] @ among.T
        similarity[np.arange(last - first), np.arange(first, last)] = -np.inf
        columns = nearest_columns(similarity, k=k)
        value = np.take_along_axis(similarity, columns, axis=1)
        row, place = np.nonzero(value > 0)
        keys.append(active[first + row] * n + active[columns[row, place]])
        cosines.append(value[row, place].astype(np.float64))
    return np.concatenate(keys), np.concatenate(cosines)


def _row_blocks(n: int) -> Iterator[tuple[int, int]]:
    step = max(1, _BLOCK // max(1, n))
    return ((first, min(first + step, n)) for first in range(0, n, step))


def nearest_columns(similarity: NDArray[np.floating], *, k: int) -> Ints:
    """Columns (b, k) of the k largest entries of each row (b, n), ascending; of equal entries the first columns win."""
    b, n = similarity.shape
    k = min(k, n)
    if k == 0:
        return np.zeros((b, 0), dtype=np.int64)
    # Over a flat view: several times faster than nonzero over two axes.
    row, column = np.divmod(np.flatnonzero(similarity >= _lower_bound(similarity, k=k)[:, None]), n)
    best = np.lexsort((column, -similarity[row, column], row))
    start = np.searchsorted(row, np.arange(b))
    chosen = column[best[start[:, None] + np.arange(k)]]
    return np.sort(chosen, axis=1)


def _lower_bound(similarity: NDArray[np.floating], *, k: int) -> NDArray[np.floating]:
    """A value (b,) that at least k entries of each row reach, and not many more: the k-th largest maximum of groups.

    Partitioning the few maxima is far cheaper than partitioning the rows.
    """
    b, n = similarity.shape
    width = max(1, n // (8 * k))
    groups = n // width
    maxima = similarity[:, : groups * width].reshape(b, width, groups).max(axis=1)
    return np.partition(maxima, groups - k, axis=1)[:, groups - k]


def _keys(matrix: sparse.csr_matrix) -> Ints:
    """Key ``row * n + column`` of each stored entry, ascending."""
    n = len(matrix.indptr) - 1
    return np.repeat(np.arange(n), np.diff(matrix.indptr)) * n + matrix.indices


def _from_keys(keys: Ints, values: Floats, *, n: int) -> sparse.csr_matrix:
    """Matrix with exactly these entries, zeros included: adding sparse matrices would drop them."""
    indptr = np.searchsorted(keys, np.arange(n + 1) * n).astype(np.int32)
    return sparse.csr_matrix((values, (keys % max(1, n)).astype(np.int32), indptr), shape=(n, n))


def _like(matrix: sparse.csr_matrix, values: Floats) -> sparse.csr_matrix:
    return sparse.csr_matrix((values, matrix.indices, matrix.indptr), shape=matrix.shape)


def _looked_up(matrix: sparse.csr_matrix, keys: Ints) -> tuple[Floats, Bools]:
    """Entries (m,) at the keys, 0 where none is stored, and whether one is."""
    stored = _keys(matrix)
    if not stored.size:
        return np.zeros(len(keys)), np.zeros(len(keys), dtype=bool)
    at = np.minimum(np.searchsorted(stored, keys), stored.size - 1)
    found = stored[at] == keys
    return np.where(found, matrix.data[at], 0.0), found

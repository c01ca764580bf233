"""Figures of a transition graph: degrees, edge weights, and size and purity of its communities."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from toolshift.models.skillgraph.communities import Agreement, Partition
from toolshift.models.skillgraph.graph import TransitionGraph
from toolshift.reporting.forest import save_figure
from toolshift.reporting.tidy import to_csv
from toolshift.runs.files import write_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_BINS = 40
_COLOURS = ("tab:blue", "tab:orange", "tab:green", "tab:red")
_MARKERS = "osD^"


def write_graph_figures(graph: TransitionGraph, *, name: str, folder: Path) -> list[Path]:
    """Draw ``<name>_degrees`` and ``<name>_weights``, each as PDF, PNG and the CSV of what is drawn.

    Degrees count edges of nodes of the graph; weights are shown for statistical and semantic edges apart. Equal
    graphs give equal bytes.

    Raises:
        ValueError: if the graph has no edge.
    """
    if not graph.n_edges:
        raise ValueError(f"figures {name}: the graph has no edge")
    degrees, weights = degree_table(graph), weight_table(graph)
    paths = _saved(_draw_degrees(degrees), degrees, stem=folder / f"{name}_degrees")
    return paths + _saved(_draw_weights(weights), weights, stem=folder / f"{name}_weights")


def write_community_figure(
    partition: Partition, agreements: Mapping[str, Agreement], *, name: str, folder: Path
) -> list[Path]:
    """Draw ``<name>_communities``: sizes by rank, and purity against size for each label set; PDF, PNG and CSV.

    Raises:
        ValueError: if there is no community, or an agreement is of another partition.
    """
    table = size_purity_table(partition, agreements)
    if table.empty:
        raise ValueError(f"figure {name}: there is no community")
    return _saved(_draw_communities(table, list(agreements)), table, stem=folder / f"{name}_communities")


def degree_table(graph: TransitionGraph) -> pd.DataFrame:
    """Nodes of each degree; columns direction (out, in), degree, nodes."""
    edges = graph.edges()
    rows = []
    for direction, ends in (("out", edges.source), ("in", edges.target)):
        degree = np.bincount(ends, minlength=graph.n_tools)[graph.nodes]
        values, times = np.unique(degree, return_counts=True)
        rows += [(direction, int(v), int(t)) for v, t in zip(values, times, strict=True)]
    return pd.DataFrame(rows, columns=pd.Index(("direction", "degree", "nodes")))


def weight_table(graph: TransitionGraph) -> pd.DataFrame:
    """Histogram over [0, 1] (or to the greatest weight); columns kind (statistical, semantic), low, high, edges."""
    edges = graph.edges()
    bounds = np.linspace(0.0, max(1.0, float(edges.weight.max(initial=0.0))), _BINS + 1)
    rows = []
    for kind, chosen in (("statistical", ~edges.semantic), ("semantic", edges.semantic)):
        if chosen.any():
            times, _ = np.histogram(edges.weight[chosen], bins=bounds)
            rows += [
                (kind, *row) for row in zip(bounds[:-1].tolist(), bounds[1:].tolist(), times.tolist(), strict=True)
            ]
    return pd.DataFrame(rows, columns=pd.Index(("kind", "low", "high", "edges")))


def size_purity_table(partition: Partition, agreements: Mapping[str, Agreement]) -> pd.DataFrame:
    """One row per community: its number, size, and its purity under each label set (``purity_<labels>``)."""
    sizes = partition.sizes
    for labels, found in agreements.items():
        if len(found.purity) != len(sizes):
            raise ValueError(f"agreement with {labels} has {len(found.purity)} communities, the partition {len(sizes)}")
    purity = {f"purity_{labels}": found.purity for labels, found in agreements.items()}
    return pd.DataFrame({"community": np.arange(len(sizes)), "size": sizes, **purity})


def _draw_degrees(table: pd.DataFrame) -> Figure:
    figure, (left, right) = _panels(2)
    for axes, direction, colour in ((left, "out", _COLOURS[0]), (right, "in", _COLOURS[1])):
        rows = table[(table["direction"] == direction) & (table["degree"] > 0)]
        axes.scatter(rows["degree"], rows["nodes"], s=14, color=colour, alpha=0.8)
        axes.set_xscale("log")
        axes.set_yscale("log")
        none = int(table.loc[(table["direction"] == direction) & (table["degree"] == 0), "nodes"].sum())
        _label(axes, x=f"{direction}-degree ({none} nodes have none)", y="nodes")
    return figure


def _draw_weights(table: pd.DataFrame) -> Figure:
    figure, (axes,) = _panels(1)
    for colour, (kind, rows) in zip(_COLOURS, table.groupby("kind", sort=False), strict=False):
        bounds: NDArray[Any] = np.append(rows["low"].to_numpy(), rows["high"].to_numpy()[-1])
        axes.stairs(rows["edges"].to_numpy(), bounds, color=colour, fill=True, alpha=0.6, label=_legend(kind, rows))
    axes.set_yscale("log")
    axes.legend(fontsize=8, frameon=False)
    _label(axes, x="edge weight", y="edges")
    return figure


def _legend(kind: object, rows: pd.DataFrame) -> str:
    return f"{kind} (n = {rows['edges'].to_numpy().sum()})"


def _draw_communities(table: pd.DataFrame, labels: Sequence[str]) -> Figure:
    figure, (left, right) = _panels(2)
    left.plot(np.arange(1, len(table) + 1), table["size"], color="black", linewidth=1.2)
    left.set_yscale("log")
    _label(left, x=f"community by size (n = {len(table)})", y="tools")
    for i, name in enumerate(labels):
        colour, marker = _COLOURS[i % len(_COLOURS)], _MARKERS[i % len(_MARKERS)]
        values = table[f"purity_{name}"]
        right.scatter(table["size"], values, s=14, alpha=0.6, label=_literal(name), color=colour, marker=marker)
    right.set_xscale("log")
    right.set_ylim(0.0, 1.05)
    if labels:
        right.legend(fontsize=8, frameon=False)
    _label(right, x="tools of the community", y="purity")
    return figure


def _panels(n: int) -> tuple[Figure, list[Axes]]:
    # The object interface needs no backend choice and leaves no state behind.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3.2 * n + 0.4, 2.8), layout="constrained")
    return figure, [figure.add_subplot(1, n, i + 1) for i in range(n)]


def _label(axes: Axes, *, x: str, y: str) -> None:
    axes.set_xlabel(x, fontsize=9)
    axes.set_ylabel(y, fontsize=9)
    axes.tick_params(labelsize=8)


def _literal(text: str) -> str:
    return text.replace("$", r"\$")


def _saved(figure: Figure, table: pd.DataFrame, *, stem: Path) -> list[Path]:
    return [*save_figure(figure, stem), write_text(stem.with_name(f"{stem.name}.csv"), to_csv(table))]

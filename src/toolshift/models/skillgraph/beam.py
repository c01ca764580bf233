"""Beam search over the graph, after the authors' code (skillgraph.md section 6)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from toolshift.models.skillgraph.asking import CELLS, Ask, BeamOptions, blocks
from toolshift.models.skillgraph.edges import EdgeTable
from toolshift.models.skillgraph.graph import TransitionGraph
from toolshift.models.skillgraph.sets import Floats, Ints, Sets, filled

# Cells that a query counts for at least, as its cosines have a column per tool: 512 queries at once.
_LEAST = CELLS // 512


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Steps:
    """The steps a beam may take: successors (n, w) of each tool, filled with -1, their transition, and communities."""

    successors: Ints
    transition: Floats
    communities: Ints
    options: BeamOptions


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Beams:
    """Paths of b queries, best first: items (b, w, l) filled with -1; total (b, w) of step scores; steps (b, w) taken;
    -1 in the first item where there is no path."""

    items: Ints
    total: Floats
    steps: Ints

    @property
    def mean(self) -> Floats:
        """(b, w) mean step score, -inf for a path that took none (ranked last) and for no path."""
        return np.where(self.steps > 0, self.total / np.maximum(self.steps, 1), -np.inf)


def beam_search(ask: Ask) -> Sets:
    """Beam search; a path that cannot go on stays in the competition, nothing is filled up.

    [C] gives entries, width, neighbours and score. [R]: entries are tools of the graph in both modes, where alone a
    path can go on; the entry is no step; the first ``neighbours`` successors are taken before those of the path are
    left out.
    """
    if ask.communities is None or ask.communities.shape != ask.graph.nodes.shape:
        raise ValueError("beam_search needs the community of every tool, (n,) with -1 for none")
    k, beam = ask.planned_k, ask.options.beam
    nodes = np.flatnonzero(ask.graph.nodes)
    items = np.full((len(k), int(k.max(initial=0))), -1, dtype=np.int64)
    if not nodes.size:
        return Sets(items=items[:, :0], similarity=np.zeros((len(k), 0)))
    steps = _steps(ask.graph, ask.communities, options=beam)
    entries = ask.cosines.nearest(beam.entries, rows=nodes).items
    for length, rows in blocks(k, cells=lambda _: max(_LEAST, beam.width * beam.neighbours)):
        table = ask.cosines.table(rows).astype(np.float64)
        beams = _Beams(
            items=entries[rows][:, :, None], total=np.zeros(entries[rows].shape), steps=np.zeros_like(entries[rows])
        )
        for _ in range(1, length):
            beams = _advanced(beams, table, steps=steps)
        items[rows, : beams.items.shape[2]] = beams.items[:, 0]
    query, place = np.nonzero(items >= 0)
    similarity = np.zeros(items.shape)
    similarity[query, place] = ask.cosines.pairs(query, items[query, place])
    return filled(items, similarity, kept=items >= 0)


def _steps(graph: TransitionGraph, communities: Ints, *, options: BeamOptions) -> _Steps:
    edges = EdgeTable.of(graph.weight)
    source, target = np.divmod(edges.keys, max(1, edges.n))
    order = np.lexsort((target, -edges.values, source))
    source, target = source[order], target[order]
    count = np.bincount(source, minlength=edges.n)
    rank = np.arange(len(source)) - np.repeat(np.cumsum(count) - count, count)
    kept = rank < options.neighbours
    successors = np.full((edges.n, int(min(options.neighbours, count.max(initial=0)))), -1, dtype=np.int64)
    successors[source[kept], rank[kept]] = target[kept]
    origin = np.broadcast_to(np.arange(edges.n, dtype=np.int64)[:, None], successors.shape)
    transition, _ = EdgeTable.of(graph.transition).lookup(origin, successors)
    return _Steps(successors=successors, transition=transition, communities=communities, options=options)


def _advanced(beams: _Beams, table: Floats, *, steps: _Steps) -> _Beams:
    """One step of every path: the best ``width`` of all expansions and of the paths that cannot go on."""
    b, w, length = beams.items.shape
    # A path that stopped earlier ends in filling, which has no successor.
    last = beams.items[:, :, -1]
    onward = np.where(last[:, :, None] >= 0, steps.successors[last], -1)
    possible = (onward >= 0) & ~(onward[:, :, :, None] == beams.items[:, :, None, :]).any(axis=3)
    community = np.where(beams.items >= 0, steps.communities[beams.items], -1)
    own = np.where(onward >= 0, steps.communities[onward], -1)
    same = ((own[:, :, :, None] == community[:, :, None, :]) & (own >= 0)[:, :, :, None]).sum(axis=3)
    options = steps.options
    score = (
        options.transition_share * steps.transition[last]
        + options.cosine_share * table[np.arange(b)[:, None, None], onward]
        + options.diversity_share * (1.0 - same / length)
    )
    total = np.concatenate([(beams.total[:, :, None] + score).reshape(b, -1), beams.total], axis=1)
    taken = np.concatenate([np.repeat(beams.steps + 1, onward.shape[2], axis=1), beams.steps], axis=1)
    stuck = (beams.items[:, :, 0] >= 0) & ~possible.any(axis=2)
    valid = np.concatenate([possible.reshape(b, -1), stuck], axis=1)
    mean = _Beams(items=beams.items, total=total, steps=taken).mean
    # Two keys: what is no path at all comes after a path that took no step.
    order = np.lexsort((np.broadcast_to(np.arange(total.shape[1]), total.shape), -mean, ~valid))[:, : options.width]
    parent = np.concatenate([np.repeat(np.arange(w), onward.shape[2]), np.arange(w)])[order]
    added = np.concatenate([onward.reshape(b, -1), np.full((b, w), -1)], axis=1)
    items = np.concatenate(
        [
            np.take_along_axis(beams.items, parent[:, :, None], axis=1),
            np.take_along_axis(added, order, axis=1)[..., None],
        ],
        axis=2,
    )
    kept = np.take_along_axis(valid, order, axis=1)
    return _Beams(
        items=np.where(kept[:, :, None], items, -1),
        total=np.where(kept, np.take_along_axis(total, order, axis=1), 0.0),
        steps=np.where(kept, np.take_along_axis(taken, order, axis=1), 0),
    )

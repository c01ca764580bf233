"""Activity: how much a row reorders the lists of the reference row (spec/validity.md section 6).

A method that leaves the reference's order alone cannot support its own mechanism, whatever its mean says. Lists are
compared by rank, since the scores of two rows share no scale: within a list every candidate has a rank, tied candidates
(equal to 1e-9) the mean of their ranks. The top five are taken after a keyed hash has ordered the tied, so that they
are one set, and the same set wherever all ranks are the same.

Read are the published scores, target by target; memory is bounded by one target's lists.

The activity of a method's stages is measured where the scores are made, since no file holds the score without a stage:
a run leaves the sums of every target and seed in ``stages/<target>/seed=<s>.json``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from toolshift.models.steps import Step
from toolshift.runs.files import folder_name, read_json, write_json
from toolshift.runs.seeds import id_hashes, keyed_hash, seed_of

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

INACTIVE_BELOW = 0.01
"""A row that changes the order of a smaller share of the lists is ``inactive``, which is no support."""
TOP = 5
MEASURED = ("mean_abs_rank_change", "pairs_changed", "top5_changed", "order_changed")
STAGES = ("relation", "functional", "contextual", "support")
"""Stages that add to a score, in the order of fitting."""
STAGE_FOLDER = "stages"
STAGE_MEASURED = ("mean_abs_correction", "mean_abs_added", "pairs_corrected", *MEASURED[1:])
STAGE_COLUMNS = ("stage", "view", "n_targets", "targets_on", "n_lists", "n_pairs", *STAGE_MEASURED)
# Of the files of a run: sums of another meaning get another number, and older ones are not read.
_VERSION = 1
# A smaller term changes no comparison of the measures.
_NOTHING = 0.5e-9
_COUNTED = ("n_targets", "n_lists", "n_pairs")
# Scores equal to 1e-9 are tied, as in toolshift.measures.
_GRID = 1e9
# Ranks are multiples of 1/2.
_SAME_RANK = 0.25


class ListsDiffer(ValueError):
    """The score files of two runs do not hold the same lists."""

    user_facing = True


@dataclass(frozen=True, kw_only=True)
class Published:
    """A finished run as activity reads it: its folder, its row name, and the seed whose scores are compared."""

    folder: Path
    model: str
    seed: int

    def scores(self, target: str) -> Path:
        """The score file of a target."""
        return self.folder / "scores" / folder_name(target) / f"seed={self.seed}.parquet"


@dataclass(frozen=True, kw_only=True)
class Lists:
    """The candidate lists of one target over all views.

    Attributes:
        view: (n_lists,) name of each list's view.
        list_of: (N,) list of each candidate, ascending from 0.
        keys: (N,) hash that orders tied candidates.
    """

    view: NDArray[np.object_]
    list_of: Ints
    keys: NDArray[np.uint64]

    @property
    def lengths(self) -> Ints:
        """(n_lists,) candidates of each list."""
        return np.bincount(self.list_of, minlength=len(self.view)).astype(np.int64, copy=False)


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """Candidates of lists ranked by one row. rank: (N,) from 1, tied ones share their mean. top: (N,) in the top 5."""

    rank: Floats
    top: NDArray[np.bool_]


def activity(reference: Published, others: Sequence[Published]) -> pd.DataFrame:
    """How the first seed of each row reorders the reference's lists, one row per model and view.

    Columns: model, view, n_targets, n_lists, n_pairs and ``MEASURED``: the mean over pairs of the absolute difference
    of ranks (places), and the shares (0 to 1) of pairs with another rank, of lists with another top five, and of lists
    with another order. Only cells that count (metrics.csv, ``scored``) are read; every list counts once.

    Raises:
        ListsDiffer: if a run holds other lists than the reference.
    """
    cells = scored_cells(reference.folder)
    sums: dict[tuple[str, str], Floats] = {}
    for target in sorted(cells):
        for model, view, found in _of_target(target, cells[target], reference, others):
            # Integers and halves of integers: sums are exact, so that no order of targets can reach a file.
            sums[model, view] = sums.get((model, view), 0) + np.append(1, found)
    rows = [
        {
            "model": model,
            "view": view,
            "n_targets": int(targets),
            "n_lists": int(lists),
            "n_pairs": int(pairs),
            "mean_abs_rank_change": round(moved / pairs, 12),
            "pairs_changed": round(changed / pairs, 12),
            "top5_changed": round(top / lists, 12),
            "order_changed": round(order / lists, 12),
        }
        for (model, view), (targets, lists, pairs, moved, changed, top, order) in sums.items()
    ]
    return pd.DataFrame(rows, columns=["model", "view", *_COUNTED, *MEASURED])


def scored_cells(run: Path) -> dict[str, set[str]]:
    """Target -> views of a run that count."""
    metrics = pd.read_csv(run / "metrics.csv", usecols=["target", "view", "scored"], keep_default_na=False)
    found: dict[str, set[str]] = {}
    for target, view, scored in metrics.drop_duplicates().itertuples(index=False, name=None):
        if str(scored) == "True":
            found.setdefault(str(target), set()).add(str(view))
    return found


def changes(lists: Lists, ours: Ranking, theirs: Ranking) -> dict[str, Floats]:
    """What differs between two rankings of the same lists: per view the sums (6,) of lists, pairs, absolute rank
    differences, pairs with another rank, lists with another top five, lists with another order."""
    moved = np.abs(ours.rank - theirs.rank)

    def per_list(per_pair: NDArray[Any]) -> Floats:
        summed = np.bincount(lists.list_of, weights=per_pair, minlength=len(lists.view))
        return summed.astype(np.float64, copy=False)

    other = per_list(moved > _SAME_RANK)
    columns = (
        np.ones(len(lists.view)),
        lists.lengths,
        per_list(moved),
        other,
        per_list(ours.top != theirs.top) > 0,
        other > 0,
    )
    table = np.column_stack([np.asarray(column, np.float64) for column in columns])
    return {view: table[lists.view == view].sum(axis=0) for view in dict.fromkeys(lists.view.tolist())}


def stage_changes(rows: pa.Table, at: Ints, *, scores: Floats, steps: Sequence[Step]) -> Mapping[str, Any]:
    """How much each stage changes the lists of one target against the score without it, as sums per view.

    rows: (view, task_id, capability_id) of the N candidates. at: (N,) position of each among the p pairs of scores and
    steps. Gives ``lists``: view -> [lists, pairs], and ``stages``: stage -> view -> sums [|D|, |added|, pairs with
    another score, pairs with another rank, lists with another top five, lists with another order].
    """
    lists = lists_of(rows)
    whole, stages = rank(scores[at], lists), {}
    counts = {view: [int(n) for n in sums[:2]] for view, sums in changes(lists, whole, whole).items()}
    view_of = lists.view[lists.list_of]
    for step in steps:
        moved = changes(lists, rank(step.without[at], lists), whole)
        added = np.abs(step.added[at])
        sized = np.column_stack([np.abs(step.correction[at]), added, added > _NOTHING])
        stages[step.stage] = {
            view: [*sized[view_of == view].sum(axis=0).tolist(), *sums[3:].tolist()] for view, sums in moved.items()
        }
    return {"lists": counts, "stages": stages}


def stage_path(run: Path, target: str, seed: int) -> Path:
    """``stages/<target>/seed=<s>.json``."""
    return run / STAGE_FOLDER / folder_name(target) / f"seed={seed}.json"


def write_stage_changes(run: Path, found: Mapping[str, Any], *, target: str, seed: int) -> Path:
    """Store what `stage_changes` gave."""
    return write_json(stage_path(run, target, seed), {"version": _VERSION, "target": target, "seed": seed, **found})


def stage_activity(run: Published, *, offered: Sequence[str] = ()) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """Activity of the stages of one row over its scored cells (``STAGE_COLUMNS``), and the targets without a record.

    A target for which a stage was switched off counts with its lists unchanged; ``targets_on`` are the others. A stage
    that is on for no target has a row only if it is among ``offered``. The frame is empty where a record is missing: a
    part would be no mean over the row's lists.
    """
    records, missing = {}, []
    cells = scored_cells(run.folder)
    for target in sorted(cells):
        records[target] = _stage_record(stage_path(run.folder, target, run.seed), target, run.seed)
        if records[target] is None:
            missing.append(target)
    rows = [] if missing else list(_stage_rows(records, cells, offered=offered))
    return pd.DataFrame(rows, columns=list(STAGE_COLUMNS)), tuple(missing)


def _stage_rows(
    records: Mapping[str, Any], cells: Mapping[str, set[str]], *, offered: Sequence[str]
) -> Iterator[tuple[Any, ...]]:
    shown = {stage for record in records.values() for stage in record["stages"]} | set(offered)
    for stage in [stage for stage in STAGES if stage in shown]:
        for view in sorted({view for views in cells.values() for view in views}):
            counts, sums, on, targets = np.zeros(2), np.zeros(6), 0, 0
            for target, record in records.items():
                if view in cells[target]:
                    targets += 1
                    counts += record["lists"][view]
                    on += stage in record["stages"]
                    sums += record["stages"].get(stage, {}).get(view, 0.0)
            lists, pairs = counts
            shares = sums / [pairs, pairs, pairs, pairs, lists, lists]
            yield (stage, view, targets, on, int(lists), int(pairs), *(round(share, 12) for share in shares))


def _stage_record(path: Path, target: str, seed: int) -> Any:
    """A stored record; None where there is none that could be read."""
    try:
        record = read_json(path)
        wanted = (record["version"], record["target"], record["seed"])
        return record if wanted == (_VERSION, target, seed) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def rank(scores: Floats, lists: Lists) -> Ranking:
    """Rank the candidates (N,) of every list by descending score."""
    key = -np.rint(scores * _GRID)
    order = np.lexsort((lists.keys, key, lists.list_of))
    lengths = lists.lengths
    first = (np.cumsum(lengths) - lengths)[lists.list_of]
    place = np.arange(len(order)) - first + 1
    opens = np.append(True, (np.diff(key[order]) != 0) | (np.diff(lists.list_of[order]) != 0))
    group = np.cumsum(opens) - 1
    mean = np.bincount(group, weights=place) / np.bincount(group)
    out, top = np.empty(len(order)), np.empty(len(order), bool)
    out[order], top[order] = mean[group], place <= TOP
    return Ranking(rank=out, top=top)


def lists_of(table: pa.Table) -> Lists:
    """Lists of the (view, task_id, capability_id) rows of a target; rows of a list are adjacent.

    Raises:
        ListsDiffer: if a list is torn apart.
    """
    views, view = _coded(table["view"])
    tasks, task = _coded(table["task_id"])
    capabilities, capability = _coded(table["capability_id"])
    which = view * len(tasks) + task
    opens = np.flatnonzero(np.append(True, np.diff(which) != 0)) if len(which) else np.zeros(0, np.int64)
    if len(np.unique(which)) != len(opens):
        raise ListsDiffer("the rows of a list are not adjacent; delete the run folder and run the same command again")
    lengths = np.diff(np.append(opens, len(which)))
    keys = keyed_hash(seed_of("ties"), id_hashes(tasks)[task], id_hashes(capabilities)[capability])
    names = np.array(views, dtype=object)[view[opens]]
    return Lists(view=names, list_of=np.repeat(np.arange(len(opens)), lengths), keys=keys)


def _of_target(
    target: str, views: set[str], reference: Published, others: Sequence[Published]
) -> Iterator[tuple[str, str, Floats]]:
    """(model, view, sums) of every other row, see `changes`."""
    base = _read(reference.scores(target), views)
    lists = lists_of(base)
    theirs = rank(base["score"].to_numpy(), lists)
    for run in others:
        table = _read(run.scores(target), views)
        if not all(_strings(table[c]).equals(_strings(base[c])) for c in ("view", "task_id", "capability_id")):
            raise ListsDiffer(
                f"{run.scores(target)} holds other lists than {reference.scores(target)}; delete the run folder that "
                "is older and run the same command again"
            )
        found = changes(lists, rank(table["score"].to_numpy(), lists), theirs)
        yield from ((run.model, view, sums) for view, sums in found.items())


def _read(path: Path, views: set[str]) -> pa.Table:
    table = pq.read_table(path)
    return table.filter(pa.array(_strings(table["view"]).to_pandas().isin(sorted(views)).to_numpy()))


def _coded(column: pa.ChunkedArray) -> tuple[list[str], Ints]:
    """Distinct values, and the code (N,) of each row."""
    encoded = _strings(column).combine_chunks().dictionary_encode()
    return encoded.dictionary.to_pylist(), encoded.indices.to_numpy().astype(np.int64)


def _strings(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(pa.string())

"""The content of a printed table, once, for every output format: headers, entries, captions, notes.

A format supplies a `Style` (how to write bold, underline, a plus-minus sign, a hole); the rest is shared, so that the
Markdown and the LaTeX file cannot disagree.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from toolshift.evaluation.activity import INACTIVE_BELOW
from toolshift.evaluation.aggregate import CONDITIONAL, TableSpec
from toolshift.reporting.tidy import Block, Cell, Column

_UNFINISHED, _INACTIVE = "†", "‡"
WHOLE = "all"
"""The slice of whole lists; other slices print their main table alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """How one format writes the pieces of an entry; ``escape`` makes any text safe in it."""

    escape: Callable[[str], str]
    bold: Callable[[str], str]
    underline: Callable[[str], str]
    plus_minus: str
    hole: str
    minus: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """A table of strings: ``headers`` are (group, name) pairs, the first one names the rows."""

    headers: tuple[tuple[str, str], ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str


def title(block: Block) -> str:
    """Name of a block: protocol and how its lists were made."""
    key = block.key
    return f"{key.protocol}: universe {key.universe}, miner {key.miner}, purge {key.purge}, slice {key.slice}"


def main_grid(block: Block, *, spec: TableSpec, style: Style) -> Grid:
    """Models x (view, measure) with the papers' values beside ours; the last row is the gain."""
    cells, papers = block.cells(), block.papers()
    headers = [("", "model")]
    for view, measure in block.columns:
        headers.append((view, measure))
        if (view, measure) in papers:
            headers.append((view, f"{measure} (paper)"))
    rows = [_model_row(model, block, cells=cells, papers=papers, style=style) for model in block.models]
    rows.append(_gain_row(block, spec=spec, cells=cells, papers=papers, style=style))
    return Grid(
        headers=tuple((style.escape(a), style.escape(b)) for a, b in headers),
        rows=tuple(rows),
        caption=style.escape(_main_caption(block, spec)),
    )


def test_grid(block: Block, *, spec: TableSpec, style: Style) -> Grid:
    """One line per comparison with the reference: difference, interval, p, Holm p, detectable effect; pp."""
    headers = ("view", "measure", "model", "difference (pp)", "95% CI (pp)", "p", "Holm p", "MDE (pp)", "note")
    headers = tuple(h.replace("95%", f"{100 * spec.confidence:g}%") for h in headers)
    compared = [row for row in block.rows if not math.isnan(row.delta)]
    rows = tuple(
        (
            *(style.escape(x) for x in (row.view, row.measure, row.model)),
            _signed(100 * row.delta, style),
            _interval(100 * row.ci_low, 100 * row.ci_high, style),
            _p_value(row.p_value, style),
            _p_value(row.p_adjusted, style),
            _number(100 * row.mde, style, digits=2),
            style.escape(row.note),
        )
        for row in compared
    )
    return Grid(
        headers=tuple(("", style.escape(h)) for h in headers),
        rows=rows,
        caption=style.escape(_test_caption(block, spec)),
    )


def averages_grid(block: Block, *, spec: TableSpec, style: Style) -> Grid:
    """Other averages of the same entries: over tasks, and over targets with enough tasks."""
    headers = ("view", "measure", "model", "macro", "over tasks", f"macro, targets >= {spec.min_tasks} tasks")
    headers = (*headers, "targets", "tasks", "tied lists")
    rows = tuple(
        (
            *(style.escape(x) for x in (row.view, row.measure, row.model)),
            *(_number(x, style) for x in (row.mean, row.task_mean, row.mean_ge20)),
            str(row.n_targets),
            str(row.n_tasks),
            style.escape(f"{100 * row.tied_share:.1f}%"),
        )
        for row in block.run
    )
    caption = (
        "The same entries averaged otherwise. macro: equal mean over targets; over tasks: every task counts once. "
        "tied lists: share of lists in which a tie holds relevant and other candidates."
    )
    return Grid(headers=tuple(("", style.escape(h)) for h in headers), rows=rows, caption=style.escape(caption))


def missing_notes(spec: TableSpec) -> list[str]:
    """One note per run that was asked for and is not there."""
    return [f"Missing run: {run}" for run in spec.missing]


def hole_notes(block: Block) -> list[str]:
    """A sentence for each (model, view) of the table without a run, or one for a model without any."""
    holes, n_views = block.holes(), len(block.views)
    count = Counter(model for model, _ in holes)
    notes = (
        f"Hole: {model} has no run." if count[model] == n_views else f"Hole: {model} has no run in view {view}."
        for model, view in holes
    )
    return list(dict.fromkeys(notes))


def mark_notes(block: Block) -> list[str]:
    """What the marks behind row names mean, a sentence for each marked row."""
    unfinished = [f"{_UNFINISHED} {model}: {note}." for model, note in block.not_converged.items()]
    below = f"{100 * INACTIVE_BELOW:g}%"
    return unfinished + [
        f"{_INACTIVE} {model}: inactive in view {', '.join(views)} (less than {below} of the lists have another order "
        "than the reference gives them)."
        for model, views in block.inactive.items()
    ]


def gain_notes(block: Block) -> list[str]:
    """A sentence for each entry of the gain row: who is compared with whom."""
    return [
        f"Gain, {row.view} {row.measure}: {row.champion} over {row.strongest}, p = {row.p_value:.4f}"
        + (f" ({row.note})." if row.note else ".")
        for row in block.gains
    ]


def _model_row(
    model: str, block: Block, *, cells: dict[tuple[str, Column], Cell], papers: set[Column], style: Style
) -> tuple[str, ...]:
    marks = _UNFINISHED * (model in block.not_converged) + _INACTIVE * (model in block.inactive)
    row = [style.escape(f"{model} {marks}".rstrip())]
    for column in block.columns:
        cell = cells.get((model, column))
        row.append(style.hole if cell is None else _entry(cell, style))
        if column in papers:
            row.append("" if cell is None or math.isnan(cell.paper) else f"{cell.paper:.3f}")
    return tuple(row)


def _entry(cell: Cell, style: Style) -> str:
    if math.isnan(cell.mean):
        return style.hole
    text = f"{cell.mean:.3f}"
    if not math.isnan(cell.std):
        text += f" {style.plus_minus} {cell.std:.3f}"
    marks = {"best": style.bold, "second": style.underline}
    return marks[cell.place](text) if cell.place else text


def _gain_row(
    block: Block, *, spec: TableSpec, cells: dict[tuple[str, Column], Cell], papers: set[Column], style: Style
) -> tuple[str, ...]:
    champion = spec.champion or "best row"
    row = [style.escape(f"{champion} - strongest other (pp)")]
    for column in block.columns:
        row.append(_gain_entry(block, column, spec=spec, cells=cells, style=style))
        if column in papers:
            row.append("")
    return tuple(row)


def _gain_entry(
    block: Block, column: Column, *, spec: TableSpec, cells: dict[tuple[str, Column], Cell], style: Style
) -> str:
    """The gain with its interval where the bootstrap gave one; else the plain difference of the means shown."""
    found = block.gain(column)
    if found is not None:
        return f"{_signed(found.gain_pp, style)} {_interval(found.ci_low_pp, found.ci_high_pp, style)}"
    scores = {model: cell.mean for (model, at), cell in cells.items() if at == column and not math.isnan(cell.mean)}
    champion = spec.champion or max(scores, key=lambda model: scores[model])
    others = [score for model, score in scores.items() if model != champion]
    if champion not in scores or not others:
        return style.hole
    return _signed(100 * (scores[champion] - max(others)), style)


def _main_caption(block: Block, spec: TableSpec) -> str:
    data = "sample (synthetic)" if spec.data == "sample" else "real"
    sizes = ", ".join("{} {}/{}".format(view, *block.size(view)) for view in block.views)
    counts = sorted(set(block.seeds().values()))
    seeds = "; ".join(
        f"{n} for {', '.join(model for model, k in block.seeds().items() if k == n)}" for n in reversed(counts)
    )
    interval = (
        f", {100 * spec.confidence:g}% interval, the maximum over other rows retaken in each replicate"
        if block.gains
        else ""
    )
    texts = f" {spec.texts}." if spec.texts else ""
    views = ", ".join(block.artefact_views)
    artefact = f" Marked artefact (the candidate alone gives positives away; no verdict): {views}." if views else ""
    remarks = "".join(f" {remark}" for remark in spec.remarks)
    return (
        f"Data: {data}.{texts} Protocol: {block.key.protocol}; selection rule: {spec.selection}. Candidate lists: "
        f"universe {block.key.universe}, miner {block.key.miner}; purge {block.key.purge}; slice {block.key.slice}. "
        f"Targets/tasks per view: {sizes}. Seeds: {seeds}. Ties: {spec.ties}. Entries: equal mean over targets of the "
        "task mean; ± is the sample standard deviation (ddof 1) of the macro score over seeds, absent with one seed. "
        f"Best bold, second underlined. Last row: gain over the strongest other row in percentage points{interval}."
        f"{artefact}{remarks}"
    )


def _test_caption(block: Block, spec: TableSpec) -> str:
    fixed = f"tasks resampled inside fixed targets (fewer than {spec.min_targets_two_level}); {CONDITIONAL}"
    scheme = "targets resampled, then tasks inside each"
    held = block.conditional_views
    if held == block.views:
        scheme = fixed
    elif held:
        scheme += f"; in view {', '.join(held)}: {fixed}"
    return (
        f"Difference to {spec.reference}. Paired bootstrap, {spec.replicates} replicates: {scheme}. Percentile "
        f"interval, two-sided p; Holm over the family {' x '.join(spec.holm_family)}, the other keys fixed. MDE: "
        f"smallest true difference found with power {spec.power:g} at level 0.05."
    )


def _number(value: float, style: Style, *, digits: int = 3) -> str:
    return style.hole if math.isnan(value) else f"{value:.{digits}f}"


def _signed(value: float, style: Style) -> str:
    if math.isnan(value):
        return style.hole
    text = f"{abs(value):.2f}"
    sign = "" if float(text) == 0.0 else "+" if value > 0 else style.minus
    return f"{sign}{text}"


def _interval(low: float, high: float, style: Style) -> str:
    if math.isnan(low) or math.isnan(high):
        return style.hole
    return f"[{_signed(low, style)}, {_signed(high, style)}]"


def _p_value(value: float, style: Style) -> str:
    return style.hole if math.isnan(value) else f"{value:.4f}"

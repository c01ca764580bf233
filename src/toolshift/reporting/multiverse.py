"""Multiverse: the gains of one row under each open choice, as a table and as one figure (validity.md section 8)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from toolshift.evaluation.compare import ZERO
from toolshift.reporting import latex
from toolshift.reporting.forest import save_figure
from toolshift.reporting.markdown import escape, frame_to_markdown
from toolshift.reporting.tidy import NO_RUN, to_csv
from toolshift.runs.files import write_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

YES, NO = "yes", "no"
_MARKERS = "osD^vPX*"
_ROW_HEIGHT_IN = 0.32
_PANEL_WIDTH_IN = 2.5
_HOLE = "–"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """One comparison under one choice; fields are the columns of ``outputs/tables/multiverse.csv``, in order.

    ``delta`` is ``mean`` - ``reference_mean`` with its interval; all are NaN in a hole, whose ``note`` says why and
    whose ``command`` makes the missing runs. ``sign_survives``: whether the gain has the sign that it has by default;
    ``order_survives``: whether no two gains of the view have changed places. Both are empty by default and in a hole.
    """

    protocol: str
    universe: str
    miner: str
    purge: str
    choice: str
    changes: str
    view: str
    measure: str
    model: str
    reference: str
    mean: float = math.nan
    reference_mean: float = math.nan
    delta: float = math.nan
    ci_low: float = math.nan
    ci_high: float = math.nan
    n_targets: int = 0
    n_tasks: int = 0
    sign_survives: str = ""
    order_survives: str = ""
    data: str
    note: str = ""
    command: str = ""

    @property
    def is_hole(self) -> bool:
        """Whether there is no number."""
        return math.isnan(self.delta)


@dataclass(frozen=True, slots=True, kw_only=True)
class Survival:
    """One comparison in one view over all choices; gains in score units.

    ``there`` of ``asked`` choices have a number, in ``signs`` of which the sign survives, in ``orders`` the order.
    """

    view: str
    reference: str
    default: float
    lowest: float
    lowest_choice: str
    highest: float
    highest_choice: str
    asked: int
    there: int
    signs: int
    orders: int

    @property
    def verdict(self) -> str:
        """``changes`` where a sign or the order changes, ``open`` where a choice is missing; otherwise what survives: a
        ``gain``, a ``loss``, or ``no gain``."""
        if math.isnan(self.default):
            return "open"
        if min(self.signs, self.orders) < self.there:
            return "changes"
        if self.there < self.asked:
            return "open"
        return {1: "gain", 0: "no gain", -1: "loss"}[_sign(self.default)]


def with_survival(gains: Sequence[Gain], *, default: str) -> list[Gain]:
    """The gains with both ``survives`` fields filled in, against those of the choice ``default``."""
    usual = {(g.view, g.reference): g.delta for g in gains if g.choice == default}
    found: dict[tuple[str, str], dict[str, float]] = {}
    for gain in gains:
        if not gain.is_hole:
            found.setdefault((gain.choice, gain.view), {})[gain.reference] = gain.delta
    return [
        gain
        if gain.choice == default or gain.is_hole or math.isnan(usual.get((gain.view, gain.reference), math.nan))
        else replace(
            gain,
            sign_survives=_word(_sign(gain.delta) == _sign(usual[gain.view, gain.reference])),
            order_survives=_word(_same_order(found[gain.choice, gain.view], usual, view=gain.view)),
        )
        for gain in gains
    ]


def _same_order(deltas: dict[str, float], usual: dict[tuple[str, str], float], *, view: str) -> bool:
    """Whether no two gains have changed places; equal ones have no order to lose."""
    for a, b in combinations(sorted(deltas), 2):
        before = _sign(usual.get((view, a), math.nan) - usual.get((view, b), math.nan))
        if before * _sign(deltas[a] - deltas[b]) < 0:
            return False
    return True


def _sign(value: float) -> int:
    """-1, 0 or 1; differences that are rounding, and missing ones, count as 0."""
    return 0 if math.isnan(value) or abs(value) < ZERO else int(math.copysign(1, value))


def _word(flag: bool) -> str:
    return YES if flag else NO


def survivals(gains: Sequence[Gain], *, default: str) -> list[Survival]:
    """One row per view and comparison, in the order of the gains."""
    groups: dict[tuple[str, str], list[Gain]] = {}
    for gain in gains:
        groups.setdefault((gain.view, gain.reference), []).append(gain)
    return [_survival(group, default=default) for group in groups.values()]


def _survival(group: Sequence[Gain], *, default: str) -> Survival:
    others = [gain for gain in group if gain.choice != default]
    there = [gain for gain in others if not gain.is_hole]
    known = [gain for gain in group if not gain.is_hole]
    low = min(known, key=lambda gain: gain.delta, default=None)
    high = max(known, key=lambda gain: gain.delta, default=None)
    return Survival(
        view=group[0].view,
        reference=group[0].reference,
        default=next((gain.delta for gain in group if gain.choice == default), math.nan),
        lowest=low.delta if low else math.nan,
        lowest_choice=low.choice if low else "",
        highest=high.delta if high else math.nan,
        highest_choice=high.choice if high else "",
        asked=len(others),
        there=len(there),
        signs=sum(gain.sign_survives == YES for gain in there),
        orders=sum(gain.order_survives == YES for gain in there),
    )


def as_frame(gains: Sequence[Gain]) -> pd.DataFrame:
    """The gains as a table with the columns of `Gain`."""
    return pd.DataFrame([asdict(gain) for gain in gains], columns=[field.name for field in fields(Gain)])


def write_multiverse(gains: Sequence[Gain], *, name: str, default: str, caption: str, outputs: Path) -> list[Path]:
    """Write ``tables/<name>.{csv,md,tex}`` and ``figures/<name>.{pdf,png,csv}`` below ``outputs``.

    Args:
        gains: in table order, with their ``survives`` fields (`with_survival`).
        name: first part of the file names.
        default: the choice that all others are held against.
        caption: what the numbers are: rows, measure, intervals, data, texts.
        outputs: folder of tables and figures; created if absent.

    Returns the paths written. Equal input gives equal bytes.

    Raises:
        ValueError: if there are no gains.
    """
    if not gains:
        raise ValueError(f"multiverse {name}: no choice to write")
    tables, figures = outputs / "tables", outputs / "figures"
    paths = [
        write_text(tables / f"{name}.csv", to_csv(as_frame(gains))),
        write_text(tables / f"{name}.md", to_markdown(gains, name=name, default=default, caption=caption)),
        write_text(tables / f"{name}.tex", to_latex(gains, name=name, default=default, caption=caption)),
    ]
    drawn = [gain for gain in gains if not gain.is_hole]
    if drawn:
        paths += save_figure(_draw(gains, default=default), figures / name)
        paths.append(write_text(figures / f"{name}.csv", to_csv(as_frame(drawn).drop(columns=["note", "command"]))))
    return paths


# --- tables ---------------------------------------------------------------------------------------------------------


def to_markdown(gains: Sequence[Gain], *, name: str, default: str, caption: str) -> str:
    """Missing choices with their commands, the survival of every gain, and one table of gains per view."""
    parts = [f"# {escape(name)}", escape(caption)]
    if notes := list(_holes(gains)):
        parts.append("\n".join(f"- {escape(note)}" for note in notes))
    parts += ["## What survives", frame_to_markdown(survival_frame(gains, default=default))]
    for view in dict.fromkeys(gain.view for gain in gains):
        parts += [f"## View {escape(view)}", frame_to_markdown(view_frame(gains, view=view))]
    return "\n\n".join(parts) + "\n"


def to_latex(gains: Sequence[Gain], *, name: str, default: str, caption: str) -> str:
    """As `to_markdown`, every table with a caption of its own (booktabs)."""
    parts = ["% Packages: booktabs.\n", *(f"% {note}" for note in _holes(gains))]
    parts.append(_latex_table(survival_frame(gains, default=default), caption=caption, label=f"tab:{name}"))
    for view in dict.fromkeys(gain.view for gain in gains):
        text = f"View {view}. {caption}"
        parts.append(_latex_table(view_frame(gains, view=view), caption=text, label=f"tab:{name}-{view}"))
    return "\n".join(parts)


def _latex_table(frame: pd.DataFrame, *, caption: str, label: str) -> str:
    shown = frame.map(lambda value: latex.escape(str(value)))
    shown.columns = [latex.escape(str(column)) for column in frame.columns]
    return shown.style.hide(axis="index").to_latex(
        hrules=True,
        column_format="l" + "r" * (frame.shape[1] - 1),
        caption=latex.escape(caption),
        label=label,
        position="t",
        position_float="centering",
    )


def _holes(gains: Sequence[Gain]) -> Iterator[str]:
    """One line per choice that lacks a run, with the command that makes it; one per view without scored cells."""
    missing: dict[tuple[str, str], None] = {}
    for gain in gains:
        if gain.is_hole:
            missing[
                f"{gain.choice}: {gain.note}" + (f", view {gain.view}" if not gain.command else ""), gain.command
            ] = None
    yield from (f"missing {what}" + (f"; {command}" if command else "") for what, command in missing)


def view_frame(gains: Sequence[Gain], *, view: str) -> pd.DataFrame:
    """Texts of one view: choices x comparisons in percentage points, with sizes and what survives."""
    rows: dict[str, dict[str, str]] = {}
    for gain in (gain for gain in gains if gain.view == view):
        row = rows.setdefault(gain.choice, {"choice": gain.choice, "targets": _HOLE, "tasks": _HOLE})
        row[f"{gain.model} - {gain.reference}"] = _points(gain)
        if not gain.is_hole:
            row |= {"targets": str(gain.n_targets), "tasks": str(gain.n_tasks)}
    for name, row in rows.items():
        here = [gain for gain in gains if (gain.view, gain.choice) == (view, name) and gain.sign_survives]
        row["sign survives"] = _lost([g.reference for g in here if g.sign_survives == NO]) if here else _HOLE
        row["order survives"] = here[0].order_survives if here else _HOLE
    return pd.DataFrame(list(rows.values()))


def _lost(names: Sequence[str]) -> str:
    return f"{NO}: {', '.join(names)}" if names else YES


def _points(gain: Gain) -> str:
    if gain.is_hole:
        return _HOLE
    interval = "" if math.isnan(gain.ci_low) else f" [{100 * gain.ci_low:+.2f}, {100 * gain.ci_high:+.2f}]"
    return f"{100 * gain.delta:+.2f}{interval}"


def survival_frame(gains: Sequence[Gain], *, default: str) -> pd.DataFrame:
    """Texts of `survivals`, gains in percentage points."""
    model = gains[0].model
    rows = [
        {
            "view": s.view,
            "gain": f"{model} - {s.reference}",
            "default (pp)": _signed(s.default),
            "lowest (pp)": f"{_signed(s.lowest)} {s.lowest_choice}".strip(),
            "highest (pp)": f"{_signed(s.highest)} {s.highest_choice}".strip(),
            "choices": f"{s.there} of {s.asked}",
            "sign survives": str(s.signs),
            "order survives": str(s.orders),
            "survives": s.verdict,
        }
        for s in survivals(gains, default=default)
    ]
    return pd.DataFrame(rows)


def _signed(delta: float) -> str:
    return _HOLE if math.isnan(delta) else f"{100 * delta:+.2f}"


# --- figure ---------------------------------------------------------------------------------------------------------


def _draw(gains: Sequence[Gain], *, default: str) -> Figure:
    """One panel per view: choices from the top, one marker per comparison, the default's gains as dotted lines."""
    from matplotlib.figure import Figure

    views, choices, references = (list(dict.fromkeys(getattr(g, f) for g in gains)) for f in _AXES)
    size = (2.2 + _PANEL_WIDTH_IN * len(views), 1.6 + _ROW_HEIGHT_IN * len(choices))
    figure = Figure(figsize=size, layout="constrained")
    panels = figure.subplots(1, len(views), sharey=True, squeeze=False)[0]
    for axes, view in zip(panels, views, strict=True):
        for number, reference in enumerate(references):
            shown = [g for g in gains if (g.view, g.reference) == (view, reference) and not g.is_hole]
            _mark(axes, shown, choices=choices, number=number, of=len(references), default=default)
        axes.axvline(0.0, color="0.3", linewidth=0.8, linestyle="--", zorder=0)
        axes.set_title(f"view {view}", fontsize=9)
        axes.tick_params(labelsize=7)
    panels[0].set_yticks(np.arange(len(choices)), choices, fontsize=7)
    panels[0].set_ylim(len(choices) - 0.5, -0.5)
    first = gains[0]
    figure.supxlabel(f"gain of {first.model} in {first.measure}, percentage points ({first.data} data)", fontsize=9)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=min(len(labels), 4), fontsize=8, frameon=False)
    return figure


_AXES = ("view", "choice", "reference")


def _mark(axes: Axes, shown: Sequence[Gain], *, choices: Sequence[str], number: int, of: int, default: str) -> None:
    color, offset = f"C{number}", 0.7 * ((number + 0.5) / of - 0.5)
    place = [choices.index(gain.choice) + offset for gain in shown]
    delta, low, high = (np.array([100 * getattr(g, f) for g in shown]) for f in ("delta", "ci_low", "ci_high"))
    label = f"over {shown[0].reference}" if shown else None
    axes.hlines(place, low, high, color=color, linewidth=1.0, alpha=0.7, zorder=1)
    axes.scatter(delta, place, marker=_MARKERS[number % len(_MARKERS)], s=16, color=color, label=label, zorder=2)
    for gain in shown:
        if gain.choice == default:
            axes.axvline(100 * gain.delta, color=color, linewidth=0.8, linestyle=":", alpha=0.6, zorder=0)


def hole(gain: Gain, *, command: str) -> Gain:
    """The comparison without numbers, because a run is missing."""
    return replace(gain, note=NO_RUN, command=command)

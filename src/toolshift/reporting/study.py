"""Tables and figures of a study: one wide table per split and condition, its intervals below, lines for a sweep.

Everything is drawn from the tidy rows of `evaluation.queries.summarise_queries`, so that a study's tables follow from
its per-query values alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from toolshift.evaluation.queries import STUDY_COLUMNS, QuerySpec
from toolshift.reporting import latex, markdown
from toolshift.reporting.forest import save_figure
from toolshift.reporting.grid import Grid, Style
from toolshift.reporting.tidy import NO_RUN, Place, to_csv
from toolshift.runs.files import write_text
from toolshift.settings.schema import PaperValue

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_TEXT = (
    "table", "protocol", "universe", "miner", "purge", "slice", "view", "model", "measure", "reference", "data", "note",
)  # fmt: skip
_COUNTS = (
    "n_seeds", "n_targets", "n_tasks", "n_groups", "n_undefined", "n_paired", "improved", "degraded", "equal",
)  # fmt: skip
_POINT = (
    "protocol", "view", "x", "model", "measure", "mean", "std", "mean_ci_low", "mean_ci_high", "n_tasks", "n_groups",
    "data",
)  # fmt: skip
_DATA = {"sample": "sample (synthetic)", "real": "real"}
_LINES = ("-", "--", ":", "-.")
_MAX_TICKS = 12


@dataclass(frozen=True, kw_only=True)
class StudyTable:
    """What a study's table prints.

    ``rows``: as `evaluation.queries.summarise_queries` (and `with_pareto`) gives them, made by ``spec``. ``paper``:
    values that a paper prints, put beside ours on real data only; beside the rows of ``paper_protocols`` alone
    where they are given; ``paper_remark`` says in what they differ from ours ("other trajectories"). ``pareto``: the
    two measures of the column ``pareto``, if the rows have one. ``queries``, ``groups``: what the caption calls them.
    ``missing`` lists runs that were asked for and are not there; ``remarks`` are sentences that end a caption.

    Raises:
        ValueError: if ``rows`` are empty, lack a column or are of other data than the specification says.
    """

    spec: QuerySpec
    title: str
    rows: pd.DataFrame
    paper: tuple[PaperValue, ...] = ()
    paper_protocols: tuple[str, ...] = ()
    paper_remark: str = ""
    pareto: tuple[str, str] | None = None
    queries: str = "queries"
    groups: str = "groups"
    missing: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    digits: int = 4

    def __post_init__(self) -> None:
        name = self.spec.name
        wanted = (*STUDY_COLUMNS, *(("pareto",) if self.pareto else ()))
        missing = [c for c in wanted if c not in self.rows.columns]
        if missing or self.rows.empty:
            raise ValueError(f"table {name}: no rows, or columns missing: {missing}")
        other = sorted(set(self.rows["data"]) - {self.spec.data})
        if other:
            raise ValueError(f"table {name}: rows from data {other}, but the caption would say {self.spec.data!r}")


def write_study(table: StudyTable, *, folder: Path) -> list[Path]:
    """Write ``<name>.csv`` (tidy, full precision), ``.md`` and ``.tex``; each is replaced as a whole.

    Returns the paths written. Equal input gives equal bytes.
    """
    name = table.spec.name
    return [
        write_text(folder / f"{name}.csv", to_csv(_printed(table))),
        write_text(folder / f"{name}.md", study_markdown(table)),
        write_text(folder / f"{name}.tex", study_latex(table)),
    ]


def read_study(path: Path) -> pd.DataFrame:
    """Read back the CSV that `write_study` wrote.

    Raises:
        ValueError: if the file lacks a column of the contract.
    """
    numbers: dict[Any, list[str]] = {c: [""] for c in STUDY_COLUMNS if c not in _TEXT}
    text: dict[Any, Any] = dict.fromkeys(_TEXT, str)
    tidy = pd.read_csv(path, dtype=text, keep_default_na=False, na_values=numbers)
    missing = [c for c in STUDY_COLUMNS if c not in tidy.columns]
    if missing:
        raise ValueError(f"{path}: not the table of a study, columns missing: {missing}")
    return tidy


def study_markdown(table: StudyTable) -> str:
    """For each protocol and view the wide table, then the intervals and tests."""
    name, style = table.spec.name, markdown.STYLE
    parts = [f"# {style.escape(f'{name}: {table.title}' if table.title else name)}"]
    if table.missing:
        parts.append("\n".join(f"- {style.escape(note)}" for note in _missing(table)))
    for block in _blocks(table):
        parts += [f"## {style.escape(_heading(block))}", markdown.draw(_main_grid(block, table, style))]
        parts += ["### Intervals and tests", markdown.draw(_test_grid(block, table, style))]
    return "\n\n".join(parts) + "\n"


def study_latex(table: StudyTable) -> str:
    """As `study_markdown`, booktabs tables labelled ``tab:<name>-<number>`` and ``...-test``."""
    parts = [latex.HEAD, *(f"% {note}" for note in _missing(table))]
    for number, block in enumerate(_blocks(table), start=1):
        label = f"tab:{table.spec.name}-{number}"
        main, tests = (grid(block, table, latex.STYLE) for grid in (_main_grid, _test_grid))
        parts.append(f"% {_heading(block)}\n{latex.draw(main, label=label, text_columns=1)}")
        parts.append(latex.draw(tests, label=f"{label}-test", text_columns=2))
    return "\n".join(parts)


def write_lines(
    rows: pd.DataFrame,
    *,
    name: str,
    measure: str,
    x: Mapping[str, float],
    x_label: str,
    folder: Path,
    protocol: str | None = None,
    models: Sequence[str] = (),
    log_x: bool = False,
) -> list[Path]:
    """Draw a sweep: ``measure`` over x, one line per row, bars for the interval of the mean.

    Args:
        rows: tidy rows of a study.
        name: of the files ``<name>.{pdf,png,csv}``; the CSV holds the points drawn.
        measure: measure drawn.
        x: view -> place on the x axis; other views are left out.
        x_label: words below the axis.
        folder: created if absent.
        protocol: split drawn; needed where the rows have several.
        models: rows drawn, in this order; all where it is empty.
        log_x: whether the x axis is logarithmic.

    Returns the paths written. Equal input gives equal bytes.

    Raises:
        ValueError: if no point is left, a model has no point, or the rows are of several protocols.
    """
    chosen = rows.loc[(rows["measure"] == measure) & rows["view"].isin(list(x)) & rows["mean"].notna(), :]
    chosen = chosen if protocol is None else chosen.loc[chosen["protocol"] == protocol, :]
    drawn = list(models) or list(dict.fromkeys(chosen["model"]))
    absent = [model for model in drawn if model not in set(chosen["model"])]
    if chosen.empty or absent:
        raise ValueError(f"figure {name}: no value of {measure} for {absent or 'any row'} in the views {sorted(x)}")
    if len(set(chosen["protocol"])) > 1:
        raise ValueError(f"figure {name}: choose one protocol of {sorted(set(chosen['protocol']))}")
    points = _points(chosen, models=drawn, x=x)
    paths = save_figure(_draw_lines(points, x_label=x_label, log_x=log_x), folder / name)
    return [*paths, write_text(folder / f"{name}.csv", to_csv(points.loc[:, list(_POINT)]))]


def _points(chosen: pd.DataFrame, *, models: Sequence[str], x: Mapping[str, float]) -> pd.DataFrame:
    """The rows with their place ``x``, line by line in the order of ``models``, from left to right."""
    points = chosen.loc[chosen["model"].isin(models), :]
    order = [models.index(str(model)) for model in points["model"]]
    points = points.assign(x=[float(x[str(view)]) for view in points["view"]], order=order)
    return points.sort_values(["order", "x"], kind="stable").reset_index(drop=True)


def _draw_lines(points: pd.DataFrame, *, x_label: str, log_x: bool) -> Figure:
    # The object interface needs no backend choice and leaves no state behind.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.0, 3.8), layout="constrained")
    axes = figure.add_subplot()
    for i, (model, line) in enumerate(points.groupby("model", sort=False)):
        place, mean, low, high = (line[c].to_numpy(float) for c in ("x", "mean", "mean_ci_low", "mean_ci_high"))
        style, colour = _LINES[i // 10 % len(_LINES)], f"C{i % 10}"
        axes.plot(place, mean, marker="o", markersize=3.5, linestyle=style, color=colour, label=_literal(str(model)))
        axes.vlines(place, low, high, color=colour, alpha=0.5, linewidth=1.0)
    first = points.iloc[0]
    if log_x:
        axes.set_xscale("log")
    places = sorted(set(points["x"]))
    if len(places) <= _MAX_TICKS:
        axes.set_xticks(places, [f"{place:g}" for place in places])
        axes.minorticks_off()
    axes.set_xlabel(_literal(x_label), fontsize=9)
    axes.set_ylabel(_literal(f"{first['measure']}, bars: interval of the mean"), fontsize=9)
    axes.set_title(_literal(f"{first['protocol']}; data: {_DATA[str(first['data'])]}"), fontsize=9)
    axes.legend(fontsize=7)
    return figure


def _literal(text: str) -> str:
    return text.replace("$", r"\$")


# --- the papers' values ---------------------------------------------------------------------------------------------


def _printed(table: StudyTable) -> pd.DataFrame:
    """The rows with the papers' values; a value whose row has no run becomes a row without numbers (note ``no run``).

    Rows of the generated sample are returned as they are.
    """
    if table.spec.data != "real" or not table.paper:
        return table.rows
    values = {(v.view, v.model, v.measure): v.value for v in table.paper}
    parts: list[pd.DataFrame] = []
    for _, block in table.rows.groupby(["protocol", "view"], sort=False):
        protocol, view = str(block["protocol"].iloc[0]), str(block["view"].iloc[0])
        parts.append(block)
        if table.paper_protocols and protocol not in table.paper_protocols:
            continue
        cells = zip(block["model"], block["measure"], strict=True)
        parts[-1] = block.assign(paper=[values.get((view, *cell), float("nan")) for cell in cells])
        holes = _paper_holes(block, {key[1:]: value for key, value in values.items() if key[0] == view})
        if len(holes):
            parts.append(holes)
    return pd.concat(parts, ignore_index=True)


def _paper_holes(block: pd.DataFrame, values: Mapping[tuple[str, str], float]) -> pd.DataFrame:
    """A row for each (model, measure) value whose measure the block has and whose model it lacks."""
    measures, present = list(dict.fromkeys(block["measure"])), set(block["model"])
    wanted = [key for key in values if key[1] in measures and key[0] not in present]
    order = list(dict.fromkeys(model for model, _ in wanted))
    wanted.sort(key=lambda key: (order.index(key[0]), measures.index(key[1])))
    first = block.drop_duplicates("measure").set_index("measure", drop=False)
    holes = first.loc[[measure for _, measure in wanted]].reset_index(drop=True)
    empty = [c for c in STUDY_COLUMNS if c not in (*_TEXT, *_COUNTS)]
    numbers = {**dict.fromkeys(empty, float("nan")), **dict.fromkeys(_COUNTS, 0)}
    named = holes.assign(**numbers, model=[model for model, _ in wanted], note=NO_RUN)
    named = named.assign(paper=[values[key] for key in wanted], **({"pareto": False} if "pareto" in block else {}))
    return named.astype(block.dtypes.to_dict())


def _paper_words(block: pd.DataFrame, table: StudyTable) -> str:
    """What a caption says about the papers' values of its block; empty where no paper has one."""
    view, measures = block["view"].iloc[0], set(block["measure"])
    of_view = [value for value in table.paper if value.view == view and value.measure in measures]
    if not of_view:
        return ""
    if table.spec.data != "real":
        return " No paper column: the data is a generated sample."
    if not np.any(block["paper"].notna()):
        return ""
    sources = ", ".join(dict.fromkeys(f"{value.source} ({value.status})" for value in of_view))
    beside = f", beside {' and '.join(table.paper_protocols)} alone" if table.paper_protocols else ""
    remark = f"; {table.paper_remark}" if table.paper_remark else ""
    return f" paper: {sources}{beside}{remark}."


# --- grids ----------------------------------------------------------------------------------------------------------


def _blocks(table: StudyTable) -> list[pd.DataFrame]:
    """The rows of each (protocol, view), in table order."""
    return [block for _, block in _printed(table).groupby(["protocol", "view"], sort=False)]


def _heading(block: pd.DataFrame) -> str:
    return f"{block['protocol'].iloc[0]}: {block['view'].iloc[0]}"


def _missing(table: StudyTable) -> list[str]:
    return [f"Missing run: {run}" for run in table.missing]


def _main_grid(block: pd.DataFrame, table: StudyTable, style: Style) -> Grid:
    """Models x measures, the papers' values beside ours."""
    measures = list(dict.fromkeys(block["measure"]))
    columns = {name: block.loc[block["measure"] == name, :].set_index("model", drop=False) for name in measures}
    headers = ["model"]
    entries: list[dict[str, str]] = []
    for name, column in columns.items():
        headers.append(name)
        entries.append(_entries(column, lower=name in table.spec.lower_is_better, digits=table.digits, style=style))
        if column["paper"].notna().any():
            headers.append(f"{name} (paper)")
            printed = column["paper"].items()
            entries.append({str(m): "" if math.isnan(v) else _number(v, table.digits, style) for m, v in printed})
    if table.pareto:
        headers.append("Pareto")
        entries.append({str(m): "yes" if hit else "" for m, hit in zip(block["model"], block["pareto"], strict=True)})
    rows = tuple(
        (style.escape(str(model)), *(column.get(str(model), style.hole) for column in entries))
        for model in dict.fromkeys(block["model"])
    )
    headings = tuple(("", style.escape(header)) for header in headers)
    return Grid(headers=headings, rows=rows, caption=style.escape(_main_caption(block, table)))


def _entries(column: pd.DataFrame, *, lower: bool, digits: int, style: Style) -> dict[str, str]:
    """model -> mean ± std, best bold and second underlined."""
    marks = {"best": style.bold, "second": style.underline}
    means = [float(mean) for mean in column["mean"]]
    out: dict[str, str] = {}
    for model, mean, std, place in zip(column.index, means, column["std"], _places(means, lower=lower), strict=True):
        text = _number(mean, digits, style)
        text += "" if math.isnan(std) else f" {style.plus_minus} {_plain(std, digits)}"
        out[str(model)] = marks[place](text) if place else text
    return out


def _places(means: Sequence[float], *, lower: bool) -> list[Place]:
    """Best and second of a column; equal values (to 1e-9) share a place, missing ones have none."""
    values = [round(mean, 9) for mean in means]
    ranked = sorted({v for v in values if not math.isnan(v)}, reverse=not lower)
    names: dict[float, Place] = dict(zip(ranked, ("best", "second"), strict=False))
    return [names.get(v, "") for v in values]


def _test_grid(block: pd.DataFrame, table: StudyTable, style: Style) -> Grid:
    """One line per entry: the mean and its interval; the difference to the reference, its interval and tests."""
    interval = f"{100 * table.spec.confidence:g}% CI"
    headers = (
        "measure", "model", "mean", interval, "difference", f"{interval} of difference", "p", "Holm p", "p one-sided",
        "better/worse/equal", "MDE", table.queries, table.groups, "note",
    )  # fmt: skip
    run = block.loc[block["n_tasks"] + block["n_undefined"] > 0, :]
    measures = list(dict.fromkeys(run["measure"]))
    ordered = pd.concat([run.loc[run["measure"] == name, :] for name in measures])
    return Grid(
        headers=tuple(("", style.escape(header)) for header in headers),
        rows=tuple(_test_row(row, digits=table.digits, style=style) for row in ordered.to_dict("records")),
        caption=style.escape(_test_caption(block, table)),
    )


def _test_row(row: Mapping[Any, Any], *, digits: int, style: Style) -> tuple[str, ...]:
    compared = not math.isnan(row["delta"])
    counts = f"{row['improved']}/{row['degraded']}/{row['equal']}" if compared else style.hole
    return (
        style.escape(str(row["measure"])),
        style.escape(str(row["model"])),
        _number(row["mean"], digits, style),
        _interval(row["mean_ci_low"], row["mean_ci_high"], digits=digits, style=style, signed=False),
        _signed(row["delta"], digits, style),
        _interval(row["ci_low"], row["ci_high"], digits=digits, style=style, signed=True),
        *(style.hole if math.isnan(row[c]) else f"{row[c]:.4f}" for c in ("p_value", "p_adjusted", "p_one_sided")),
        counts,
        style.hole if math.isnan(row["mde"]) else _plain(row["mde"], digits),
        str(row["n_tasks"]),
        str(row["n_groups"]),
        style.escape(str(row["note"])),
    )


def _main_caption(block: pd.DataFrame, table: StudyTable) -> str:
    spec, run = table.spec, block.loc[block["n_tasks"] + block["n_undefined"] > 0, :]
    key = run.iloc[0]
    lower = [name for name in spec.lower_is_better if name in set(block["measure"])]
    reverse = f" (lowest for {', '.join(lower)})" if lower else ""
    pareto = (
        f" Pareto: no other row is at least as good in {table.pareto[0]} and {table.pareto[1]} and better in one."
        if table.pareto
        else ""
    )
    remarks = "".join(f" {remark}" for remark in table.remarks)
    return (
        f"Data: {_DATA[spec.data]}. Protocol: {key['protocol']}; condition: {key['view']}. "
        f"{int(np.max(run['n_tasks'] + run['n_undefined']))} {table.queries} in {int(np.max(run['n_groups']))} "
        f"{table.groups}.{_undefined_words(run, table)} {_seed_words(run)} Entries: mean over {table.queries}; ± is "
        "the sample standard deviation (ddof 1) of the mean over seeds, absent with one seed. "
        f"Best bold{reverse}, second underlined.{pareto}{_paper_words(block, table)}{remarks}"
    )


def _undefined_words(run: pd.DataFrame, table: StudyTable) -> str:
    """Which measures have no value for some query, and for how many they have one."""
    found: list[str] = []
    for name, column in run.groupby("measure", sort=False):
        low, high = int(np.min(column["n_tasks"])), int(np.max(column["n_tasks"]))
        if np.any(column["n_undefined"] > 0):
            found.append(f"{name} {low}" if low == high else f"{name} {low} to {high}")
    return (
        f" Undefined for some {table.queries}, left out of the mean; defined for: {', '.join(found)}." if found else ""
    )


def _seed_words(run: pd.DataFrame) -> str:
    seeds = {str(model): int(np.max(part["n_seeds"])) for model, part in run.groupby("model", sort=False)}
    counts = sorted(set(seeds.values()), reverse=True)
    words = "; ".join(f"{n} for {', '.join(model for model, k in seeds.items() if k == n)}" for n in counts)
    return f"Seeds: {words}."


def _test_caption(block: pd.DataFrame, table: StudyTable) -> str:
    spec = table.spec
    pool = "split" if spec.span == "protocol" else "condition"
    drawn = (
        f"Percentile intervals, cluster bootstrap with {spec.replicates} replicates: the {table.groups} of the {pool} "
        f"are resampled, the mean is the sum over drawn {table.queries} by their number, one resample for all entries."
    )
    if spec.reference is None:
        return drawn
    absent = spec.reference not in set(block["model"])
    where = f"; {spec.reference} is not in this condition" if absent else ""
    return (
        f"{drawn} Difference to {spec.reference} over the {table.queries} for which both have a value{where}. p: "
        f"two-sided, (1 + count) / (replicates + 1); Holm over the family {' x '.join(spec.holm_family)}, the other "
        "keys fixed. p one-sided: share of replicates in which the row is no better, as the SkillGraph code has it. "
        f"better/worse/equal: {table.queries}, values averaged over seeds. MDE: smallest true difference found with "
        f"power {spec.power:g} at level 0.05."
    )


def _plain(value: float, digits: int) -> str:
    return f"{value:.{digits}f}"


def _signed(value: float, digits: int, style: Style) -> str:
    if math.isnan(value):
        return style.hole
    text = _plain(abs(value), digits)
    sign = "" if float(text) == 0.0 else "+" if value > 0 else style.minus
    return f"{sign}{text}"


def _interval(low: float, high: float, *, digits: int, style: Style, signed: bool) -> str:
    if math.isnan(low) or math.isnan(high):
        return style.hole
    ends = (_signed(end, digits, style) if signed else _number(end, digits, style) for end in (low, high))
    return f"[{', '.join(ends)}]"


def _number(value: float, digits: int, style: Style) -> str:
    """A number whose sign matters only when it is negative."""
    text = _signed(value, digits, style)
    return text.removeprefix("+")

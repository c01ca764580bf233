"""LaTeX drawing of the results table (booktabs)."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from toolshift.evaluation.aggregate import TableSpec
from toolshift.reporting import grid
from toolshift.reporting.grid import WHOLE, Grid, Style
from toolshift.reporting.tidy import Block

_SPECIAL = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "±": r"$\pm$",
    "–": "--",
    "†": r"\dag{}",
    "‡": r"\ddag{}",
}
HEAD = "% Packages: booktabs, multirow.\n"


def escape(text: str) -> str:
    """Text that LaTeX prints as it is."""
    return "".join(_SPECIAL.get(character, character) for character in text)


STYLE = Style(
    escape=escape,
    bold=lambda text: rf"\textbf{{{text}}}",
    underline=lambda text: rf"\underline{{{text}}}",
    plus_minus=r"$\pm$",
    hole="--",
    minus="$-$",
)


def to_latex(blocks: Sequence[Block], *, spec: TableSpec) -> str:
    """For each block the main table; for whole lists (slice ``all``) the reference test and the other averages too."""
    parts = [HEAD, *(f"% {note}" for note in grid.missing_notes(spec))]
    for number, block in enumerate(blocks, start=1):
        label = f"tab:{spec.name}-{number}"
        holes, marks = grid.hole_notes(block), grid.mark_notes(block)
        notes = "".join(f"% {note}\n" for note in (grid.title(block), *holes, *grid.gain_notes(block)))
        main = grid.main_grid(block, spec=spec, style=STYLE)
        parts.append(notes + draw(main, label=label, notes=[*holes, *marks], last_row_apart=True))
        if block.key.slice != WHOLE:
            continue
        tests = grid.test_grid(block, spec=spec, style=STYLE)
        if tests.rows:
            parts.append(draw(tests, label=f"{label}-test"))
        parts.append(draw(grid.averages_grid(block, spec=spec, style=STYLE), label=f"{label}-averages"))
    return "\n".join(parts)


def draw(
    table: Grid,
    *,
    label: str,
    notes: Sequence[str] = (),
    last_row_apart: bool = False,
    text_columns: int | None = None,
) -> str:
    """One grid as a booktabs table; ``notes`` end its caption, ``last_row_apart`` rules off the last line.

    text_columns: how many columns on the left hold words; None: one below a header of two lines, else three.
    """
    words = _text_columns(table) if text_columns is None else text_columns
    frame = pd.DataFrame(list(table.rows), columns=_header(table))
    text = frame.style.hide(axis="index").to_latex(
        hrules=True,
        multicol_align="c",
        column_format="l" * words + "r" * (len(table.headers) - words),
        caption=" ".join([table.caption, *map(escape, notes)]),
        label=label,
        position="t",
        position_float="centering",
    )
    return _rule_before_last(text) if last_row_apart else text


def _header(table: Grid) -> pd.Index | pd.MultiIndex:
    if any(group for group, _ in table.headers):
        return pd.MultiIndex.from_tuples(table.headers)
    return pd.Index([name for _, name in table.headers])


def _text_columns(table: Grid) -> int:
    return 1 if any(group for group, _ in table.headers) else 3


def _rule_before_last(text: str) -> str:
    """A midrule above the last line of the body."""
    lines = text.split("\n")
    lines.insert(lines.index("\\bottomrule") - 1, "\\midrule")
    return "\n".join(lines)

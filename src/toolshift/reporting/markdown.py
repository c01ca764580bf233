"""Markdown drawing of the results table."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from tabulate import tabulate

from toolshift.evaluation.aggregate import TableSpec
from toolshift.reporting import grid
from toolshift.reporting.grid import WHOLE, Grid, Style
from toolshift.reporting.tidy import Block


def escape(text: str) -> str:
    """Text that Markdown shows as it is, also inside a table cell."""
    for character in "\\`*_|<>":
        text = text.replace(character, f"\\{character}")
    return text


STYLE = Style(
    escape=escape,
    bold=lambda text: f"**{text}**",
    underline=lambda text: f"<u>{text}</u>",
    plus_minus="±",
    hole="–",
    minus="-",
)


def to_markdown(blocks: Sequence[Block], *, spec: TableSpec) -> str:
    """For each block the main table; for whole lists (slice ``all``) the reference test and the other averages too."""
    parts = [f"# {escape(f'{spec.name}: {spec.title}' if spec.title else spec.name)}"]
    if spec.missing:
        parts.append("\n".join(f"- {escape(note)}" for note in grid.missing_notes(spec)))
    for block in blocks:
        parts += [f"## {escape(grid.title(block))}", draw(grid.main_grid(block, spec=spec, style=STYLE))]
        found = [*grid.mark_notes(block), *grid.hole_notes(block), *grid.gain_notes(block)]
        if found:
            parts.append("\n".join(f"- {escape(note)}" for note in found))
        if block.key.slice != WHOLE:
            continue
        tests = grid.test_grid(block, spec=spec, style=STYLE)
        if tests.rows:
            parts += ["### Reference test", draw(tests)]
        parts += ["### Other averages", draw(grid.averages_grid(block, spec=spec, style=STYLE))]
    return "\n\n".join(parts) + "\n"


def frame_to_markdown(frame: pd.DataFrame, *, digits: int = 3) -> str:
    """Any frame as a plain Markdown table; missing values as a dash."""
    rows = [[_plain(value, digits) for value in row] for row in frame.itertuples(index=False)]
    return tabulate(rows, headers=[escape(str(c)) for c in frame.columns], tablefmt="pipe", disable_numparse=True)


def _plain(value: object, digits: int) -> str:
    if pd.isna(value):  # type: ignore[arg-type]
        return STYLE.hole
    return f"{value:.{digits}f}" if isinstance(value, float) else escape(str(value))


def draw(table: Grid) -> str:
    """One grid as a Markdown table with its caption below."""
    headers = [" ".join(part for part in header if part) for header in table.headers]
    body = tabulate(table.rows, headers=headers, tablefmt="pipe", disable_numparse=True)
    return f"{body}\n\n{table.caption}"

"""The artefact page: which views give their positives away, before any trained model is reported."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from toolshift.reporting.markdown import frame_to_markdown
from toolshift.reporting.tidy import ARTEFACT, to_csv, with_note
from toolshift.runs.files import write_text
from toolshift.settings.schema import TableSettings

VARIANT = ["universe", "miner", "purge"]
CHANCE = "random_expected"
MEASURE = "NDCG@5"
CONTROL_COLUMNS = [
    *VARIANT, "view", "chance", "candidate_only", "excess_pp", "cosine", "cosine_noise", "placebo_gain_pp",
    "random", "random_z", "verdict",
]  # fmt: skip


def control_rows(tidy: pd.DataFrame, *, table: TableSettings, chance: pd.DataFrame | None = None) -> pd.DataFrame:
    """One row per variant and view: chance, candidate_only and its excess, cosine and its placebo, random and its
    distance from the closed form in standard errors (``CONTROL_COLUMNS``).

    ``verdict`` is ``artefact`` where the control exceeds chance by more than ``artefact_margin_pp`` on NDCG@5.
    chance: rows of `evaluation.chance.chance_distance`; without them ``random_z`` is empty.
    """
    whole = _where(tidy, slice="all", measure=MEASURE)
    wide = whole.pivot_table(index=[*VARIANT, "view"], columns="model", values="mean", sort=False).reset_index()
    for name in (CHANCE, table.artefact_control, table.placebo, "semantic_cosine", "random"):
        if name not in wide.columns:
            wide[name] = np.nan
    excess = 100 * (wide[table.artefact_control] - wide[CHANCE])
    controls = pd.DataFrame(
        {
            **{key: wide[key] for key in (*VARIANT, "view")},
            "chance": wide[CHANCE],
            "candidate_only": wide[table.artefact_control],
            "excess_pp": excess,
            "cosine": wide["semantic_cosine"],
            "cosine_noise": wide[table.placebo],
            "placebo_gain_pp": 100 * (wide[table.placebo] - wide["semantic_cosine"]),
            "random": wide["random"],
            "verdict": np.where(excess > table.artefact_margin_pp, ARTEFACT, ""),
        }
    )
    keys = [*VARIANT, "view"]
    if chance is None or chance.empty:
        return controls.assign(random_z=np.nan).loc[:, CONTROL_COLUMNS]
    z = _where(chance, slice="all", measure=MEASURE).loc[:, [*keys, "z"]].rename(columns={"z": "random_z"})
    return controls.merge(z, on=keys, how="left").loc[:, CONTROL_COLUMNS]


def _where(frame: pd.DataFrame, **wanted: str) -> pd.DataFrame:
    keep = np.ones(len(frame), bool)
    for column, value in wanted.items():
        keep &= (frame[column] == value).to_numpy()
    return frame.loc[keep, :]


def mark_artefacts(tidy: pd.DataFrame, *, table: TableSettings) -> pd.DataFrame:
    """The table with ``artefact`` in the note of every row of a marked (variant, view): it gives no verdict."""
    marked = control_rows(tidy, table=table)
    keys = set(marked.loc[marked["verdict"] == ARTEFACT, [*VARIANT, "view"]].itertuples(index=False, name=None))
    hit = [row in keys for row in tidy[[*VARIANT, "view"]].itertuples(index=False, name=None)]
    return with_note(tidy, np.array(hit, bool), ARTEFACT)


def write_artefacts(
    statistics: pd.DataFrame, controls: pd.DataFrame, *, data: str, name: str, folder: Path
) -> list[Path]:
    """Write ``<name>_artefacts.csv`` (tidy statistics, controls included) and ``<name>_artefacts.md``.

    statistics: rows of `evaluation.artefacts.artefact_rows` of every variant. controls: `control_rows`.
    """
    tidy = pd.concat([statistics, _controls_as_statistics(controls)], ignore_index=True)
    return [
        write_text(folder / f"{name}_artefacts.csv", to_csv(tidy)),
        write_text(folder / f"{name}_artefacts.md", artefact_page(statistics, controls, data=data)),
    ]


def artefact_page(statistics: pd.DataFrame, controls: pd.DataFrame, *, data: str) -> str:
    """The page as Markdown."""
    return "\n\n".join(_page(statistics, controls, data=data)) + "\n"


def _controls_as_statistics(controls: pd.DataFrame) -> pd.DataFrame:
    names = [c for c in CONTROL_COLUMNS if c not in (*VARIANT, "view", "verdict")]
    long = controls.melt(id_vars=[*VARIANT, "view"], value_vars=names, var_name="subject", value_name="value")
    return long.assign(section="controls", statistic=MEASURE, n=np.nan)


def _page(statistics: pd.DataFrame, controls: pd.DataFrame, *, data: str) -> Iterator[str]:
    kind = "real" if data == "real" else "sample (synthetic)"
    yield f"# Artefact page (data: {kind})"
    yield (
        "What gives positives away without reading the task. `excess_pp` is candidate_only above the closed-form "
        "chance, `placebo_gain_pp` is cosine_noise above cosine, `random_z` is the random row's distance from chance "
        f"in standard errors; all on macro {MEASURE} over scored targets, slice `all`. A view marked "
        "`artefact` gives no verdict."
    )
    yield "## Controls"
    yield frame_to_markdown(controls)
    for universe, miner in _distinct(statistics, ["universe", "miner"]):
        yield f"## Universe {universe}, miner {miner}"
        part = _where(statistics, universe=universe, miner=miner)
        purges = list(dict.fromkeys(part["purge"]))
        for section, title in _SECTIONS.items():
            for purge in purges if section in _PURGED else purges[:1]:
                rows = _where(part.loc[part["view"] != "", :], section=section, purge=purge)
                if len(rows):
                    yield f"### {title}, purge {purge}" if section in _PURGED else f"### {title}"
                    yield frame_to_markdown(_wide(rows))
    yield "## Sources left by each purge, how unseen the targets are, and what datasets share"
    folds = _where(statistics, view="")
    columns = ["purge", "section", "subject", "statistic"]
    repeated = folds.duplicated(columns).to_numpy()
    yield frame_to_markdown(folds.loc[~repeated, [*columns, "value", "n"]])


def _distinct(frame: pd.DataFrame, columns: list[str]) -> list[tuple[str, ...]]:
    rows = (tuple(str(v) for v in row) for row in frame.loc[:, columns].itertuples(index=False, name=None))
    return list(dict.fromkeys(rows))


_SECTIONS = {
    "lists": "Lists: tasks, targets, length, slices (n in brackets)",
    "roles": "Candidates by role (n in brackets)",
    "roles by target": "Candidates by role, for each target dataset alone (n in brackets)",
    "miners": "Who proposed the hard negatives",
    "duplicates": "Suspected false negatives",
    "shortcuts": f"Macro {MEASURE} of rankings that never read the task (n tasks in brackets)",
    "shortcuts by target": f"The same for each target alone: {MEASURE} (n tasks in brackets)",
}


# Sections that read source records, which a purge takes away; the others are the same under every purge.
_PURGED = ("roles", "roles by target", "shortcuts", "shortcuts by target")


def _wide(rows: pd.DataFrame) -> pd.DataFrame:
    text = [f"{value:.3f} ({n})" for value, n in zip(rows["value"], rows["n"], strict=True)]
    views = list(dict.fromkeys(rows["view"]))
    table = rows.assign(text=text).pivot_table(
        index=["subject", "statistic"], columns="view", values="text", aggfunc="first", sort=False
    )
    return table.reindex(columns=views).reset_index()

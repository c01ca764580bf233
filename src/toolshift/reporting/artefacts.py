"""The artefact page: which views give their positives away, before any trained model is reported."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from toolshift.reporting.markdown import frame_to_markdown
from toolshift.reporting.tidy import to_csv
from toolshift.runs.files import write_text
from toolshift.settings.schema import TableSettings

VARIANT = ["universe", "miner", "purge"]
CHANCE = "random_expected"
ARTEFACT = "artefact"
MEASURE = "NDCG@5"
CONTROL_COLUMNS = [
    *VARIANT, "view", "chance", "candidate_only", "excess_pp", "cosine", "cosine_noise", "placebo_gain_pp",
    "random", "random_z", "verdict",
]  # fmt: skip


def control_rows(tidy: pd.DataFrame, *, table: TableSettings) -> pd.DataFrame:
    """One row per variant and view: chance, candidate_only and its excess, cosine and its placebo, random and its
    distance from the closed form in standard errors over seeds (``CONTROL_COLUMNS``).

    ``verdict`` is ``artefact`` where the control exceeds chance by more than ``artefact_margin_pp`` on NDCG@5.
    """
    rows = tidy[(tidy["slice"] == "all") & (tidy["measure"] == MEASURE)]
    found = []
    for key, group in rows.groupby([*VARIANT, "view"], sort=False):
        mean = group.set_index("model")["mean"]
        if CHANCE not in mean.index:
            continue
        get = lambda name, mean=mean: float(mean.get(name, np.nan))  # noqa: E731
        excess = 100 * (get(table.artefact_control) - get(CHANCE))
        found.append(
            (
                *key,
                get(CHANCE),
                get(table.artefact_control),
                excess,
                get("semantic_cosine"),
                get(table.placebo),
                100 * (get(table.placebo) - get("semantic_cosine")),
                get("random"),
                _z_of_random(group.set_index("model")),
                ARTEFACT if excess > table.artefact_margin_pp else "",
            )
        )
    return pd.DataFrame(found, columns=CONTROL_COLUMNS)


def _z_of_random(models: pd.DataFrame) -> float:
    """Distance of the random row from its closed form, in standard errors of the paired bootstrap difference."""
    if "random" not in models.index or CHANCE not in models.index:
        return float("nan")
    gap = models.loc["random", "mean"] - models.loc[CHANCE, "mean"]
    spread = models.loc["random", "std"] / np.sqrt(models.loc["random", "n_seeds"])
    return float(gap / spread) if spread > 0 else float("nan")


def mark_artefacts(tidy: pd.DataFrame, *, table: TableSettings) -> pd.DataFrame:
    """The table with ``artefact`` in the note of every row of a marked (variant, view): it gives no verdict."""
    marked = control_rows(tidy, table=table)
    keys = set(marked.loc[marked["verdict"] == ARTEFACT, [*VARIANT, "view"]].itertuples(index=False, name=None))
    hit = [row in keys for row in tidy[[*VARIANT, "view"]].itertuples(index=False, name=None)]
    note = tidy["note"].fillna("").astype(str)
    joined = note.where(~np.array(hit), (note + "; " + ARTEFACT).str.removeprefix("; "))
    return tidy.assign(note=joined)


def write_artefacts(statistics: pd.DataFrame, controls: pd.DataFrame, *, data: str, folder: Path) -> list[Path]:
    """Write ``artefacts.csv`` (tidy statistics, controls included) and ``artefacts.md``.

    statistics: rows of `evaluation.artefacts.artefact_rows` of every variant. controls: `control_rows`.
    """
    tidy = pd.concat([statistics, _controls_as_statistics(controls)], ignore_index=True)
    return [
        write_text(folder / "artefacts.csv", to_csv(tidy)),
        write_text(folder / "artefacts.md", "\n\n".join(_page(statistics, controls, data=data)) + "\n"),
    ]


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
        f"in standard errors over seeds; all on macro {MEASURE} over scored targets, slice `all`. A view marked "
        "`artefact` gives no verdict."
    )
    yield "## Controls"
    yield frame_to_markdown(controls)
    for (universe, miner), part in statistics.groupby(["universe", "miner"], sort=False):
        yield f"## Universe {universe}, miner {miner}"
        views = part[(part["view"] != "") & (part["purge"] == part["purge"].iloc[0])]
        for section, title in _SECTIONS.items():
            rows = views[views["section"] == section]
            if not rows.empty:
                yield f"### {title}"
                yield frame_to_markdown(_wide(rows))
    yield "## Sources left by each purge, and how unseen the targets are"
    folds = statistics[statistics["view"] == ""]
    yield frame_to_markdown(
        folds.drop_duplicates(["purge", "section", "subject", "statistic"])[
            ["purge", "section", "subject", "statistic", "value", "n"]
        ]
    )


_SECTIONS = {
    "lists": "Lists: tasks, targets, length, slices (n in brackets)",
    "roles": "Candidates by role (n in brackets)",
    "miners": "Who proposed the hard negatives",
    "duplicates": "Suspected false negatives",
    "shortcuts": f"Macro {MEASURE} of rankings that never read the task (n tasks in brackets)",
}


def _wide(rows: pd.DataFrame) -> pd.DataFrame:
    text = [f"{value:.3f} ({n})" for value, n in zip(rows["value"], rows["n"], strict=True)]
    views = list(dict.fromkeys(rows["view"]))
    table = rows.assign(text=text).pivot_table(
        index=["subject", "statistic"], columns="view", values="text", aggfunc="first", sort=False
    )
    return table.reindex(columns=views).reset_index()

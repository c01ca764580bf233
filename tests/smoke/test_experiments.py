"""Every experiment, tiny, from an empty folder: the files that the architecture promises, and the same again."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

CONF = Path(__file__).resolve().parents[2] / "conf" / "experiment"
# Its tables are of another kind; see the last test. So are those of studies: test_studies.py.
MULTIVERSE = "multiverse"
STUDIES = {p.stem for p in CONF.glob("*.yaml") if "override /study" in p.read_text()}
EXPERIMENTS = sorted({p.stem for p in CONF.glob("*.yaml")} - {MULTIVERSE} - STUDIES)

# The presets of these hold more rows and datasets than a look at the whole pipeline needs.
FEWER = {"cross_dataset": ("model=[semantic_cosine_aligned,blend,tact]", "protocol.datasets=apibank+bfcl+toolbench")}

# architecture.md section 4, word for word.
PER_TASK = "protocol, target, view, task_id, model, seed, n_candidates, n_gold, tied, RR, NDCG@5, HR@3"
METRICS = "protocol, target, view, model, seed, measure, value, n_tasks, scored"
TABLE = (
    "table, protocol, universe, miner, purge, slice, view, model, measure, mean, std, task_mean, mean_ge20, n_seeds, "
    "n_targets, n_tasks, paper, reference, delta, ci_low, ci_high, p_value, p_adjusted, data, note"
)
RECORD = {"packages", "git", "command", "seeds", "fingerprints", "wall_s", "peak_rss_mb", "device", "world_size"}


@pytest.fixture(scope="module", params=EXPERIMENTS)
def finished(request: pytest.FixtureRequest, tools: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """One experiment from an empty folder, as a process of its own: (name, overrides, outcome)."""
    name = request.param
    fewer = ("debug.max_targets=2", *FEWER.get(name, ()))
    overrides = (f"experiment={name}", *tools.tiny[1:], "protocol.purge=gold", *fewer)
    outcome = tools.once(tmp_path_factory, name, lambda folder: tools.wait(tools.start(folder, *overrides), folder))
    assert outcome.code == 0, outcome.err
    return name, overrides, outcome


def test_a_run_leaves_behind_what_the_architecture_says(finished: Any) -> None:
    _, _, outcome = finished
    assert outcome.runs
    for run in outcome.runs:
        assert json.loads((run / "status.json").read_text())["state"] == "done"
        record = json.loads((run / "run.json").read_text())
        assert set(record) >= RECORD
        views = sorted(p.stem for p in (run / "manifests").glob("*.parquet"))
        assert views == ["context", "mixed", "natural", "semantic"] == sorted(record["manifests"])
        manifest = pq.read_table(run / "manifests" / "mixed.parquet")
        assert manifest.column_names[:4] == ["task_id", "capability_id", "role", "miner"]
        assert set(manifest["role"].to_pylist()) == {"positive", "ordinary", "semantic", "contextual"}
        assert set(PER_TASK.split(", ")) <= set(pq.read_schema(run / "per_task.parquet").names)
        with (run / "metrics.csv").open() as stream:
            assert next(csv.reader(stream)) == METRICS.split(", ")
        assert "\nmodel:\n" in (run / "config.yaml").read_text()


def test_every_scored_pair_is_published_and_equal_in_all_views(finished: Any) -> None:
    _, _, outcome = finished
    for run in outcome.runs:
        record = json.loads((run / "run.json").read_text())
        targets = sorted(p.name for p in (run / "scores").iterdir())
        assert targets == sorted(p.name for p in (run / "selection").iterdir())
        tasks = set()
        for target in targets:
            for seed in record["seeds"]:
                selection = json.loads((run / "selection" / target / f"seed={seed}.json").read_text())
                assert target not in selection["contexts_seen"]
                scores = pq.read_table(run / "scores" / target / f"seed={seed}.parquet").to_pandas()
                assert list(scores.columns) == ["view", "task_id", "capability_id", "score"]
                assert scores["score"].notna().all()
                assert (scores.groupby(["task_id", "capability_id"], observed=True)["score"].nunique() == 1).all()
                tasks |= set(zip(scores["view"], scores["task_id"].astype(str), strict=True))
        per_task = pq.read_table(run / "per_task.parquet").to_pandas()
        assert set(zip(per_task["view"], per_task["task_id"], strict=True)) == tasks


def test_the_table_is_tidy_and_says_what_it_is_made_from(finished: Any) -> None:
    name, _, outcome = finished
    tables = outcome.folder / "outputs" / "tables"
    with (tables / f"{name}.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert set(TABLE.split(", ")) <= set(rows[0])
    models = {_model(run) for run in outcome.runs}
    assert {row["model"] for row in rows} == {*models, "random_expected"}
    assert {row["data"] for row in rows} == {"sample"}
    assert {row["measure"] for row in rows} == {"MRR", "NDCG@5", "HR@3"}
    assert all(0 <= float(row["mean"]) <= 1 for row in rows if row["mean"])
    assert "sample (synthetic)" in (tables / f"{name}.md").read_text()
    assert "sample (synthetic)" in (tables / f"{name}.tex").read_text()
    assert (tables / f"{name}_artefacts.csv").is_file()
    assert (tables / f"{name}_artefacts.md").is_file()


def test_the_purge_leaves_no_positive_a_source_record(finished: Any) -> None:
    """So that, looked up by id, the contextual branch has no evidence for any of them (validity.md section 5)."""
    name, _, outcome = finished
    with (outcome.folder / "outputs" / "tables" / f"{name}_artefacts.csv").open() as stream:
        rows = [row for row in csv.DictReader(stream) if (row["subject"], row["section"]) == ("positive", "roles")]
    share = [float(row["value"]) for row in rows if row["statistic"] == "any source record" and row["value"]]
    assert share
    assert not any(share)


def test_the_terminal_shows_changes_and_a_readable_table(finished: Any) -> None:
    _, _, outcome = finished
    assert "  debug.name: none -> tiny" in outcome.err
    assert "semantic_cosine" in outcome.out
    assert "\\_" not in outcome.out
    widths = {len(line) for line in outcome.out.split("\n\n")[2].splitlines()}
    assert len(widths) == 1, "the columns of the first table are not aligned"


def test_the_same_command_again_does_nothing(
    finished: Any, tools: Any, call: Callable[..., Any], tmp_path: Path
) -> None:
    _, overrides, outcome = finished
    shutil.copytree(outcome.folder / "outputs", tmp_path / "outputs")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "outputs/runs").rglob("*")}
    again = call(*overrides)
    assert again.code == 0, again.err
    assert f"{len(outcome.runs)} already done, 0 to do" in again.err
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "outputs/runs").rglob("*")} == before
    assert tools.results(tmp_path) == tools.results(outcome.folder)
    assert again.out == outcome.out


def test_tables_are_rebuilt_from_the_runs_alone(
    finished: Any, tools: Any, call: Callable[..., Any], tmp_path: Path
) -> None:
    name, overrides, outcome = finished
    shutil.copytree(outcome.folder / "outputs" / "runs", tmp_path / "outputs" / "runs")
    rebuilt = call(*overrides, script="make_tables", cache=tmp_path / "no data here")
    assert rebuilt.code == 0, rebuilt.err
    assert not (tmp_path / "no data here").exists()
    made, first = tmp_path / "outputs" / "tables", outcome.folder / "outputs" / "tables"
    assert tools.digests(made) == tools.digests(first)
    # Without the runs of one model its row is a hole with the command that fills it; without the reference, no table.
    with (first / f"{name}.csv").open() as stream:
        reference = next(csv.DictReader(stream))["reference"]
    shutil.rmtree(next(r for r in rebuilt.runs if _model(r) != reference))
    holed = call(*overrides, script="make_tables")
    assert holed.code == 0
    assert "missing (universe=domain miner=union purge=" in holed.err
    assert f"python scripts/train.py experiment={name}" in holed.err
    for run in holed.runs:
        if _model(run) == reference:
            shutil.rmtree(run)
    assert call(*overrides, script="make_tables").code == 1


def test_the_multiverse(tools: Any, call: Callable[..., Any], tmp_path: Path) -> None:
    """Two choices beside the default; again; from the runs alone; and with a run taken away."""
    tiny = ("debug=tiny", "data.sample_size=tiny", "seeds=[42]", "view=natural", "evaluation.slices=[all]")
    overrides = (
        f"experiment={MULTIVERSE}", *tiny, "debug.max_targets=2", "model=[semantic_cosine,blend,tact]",
        "multiverse.only=[gates_none,length_10]",
    )  # fmt: skip
    first = call(*overrides)
    assert first.code == 0, first.err
    with (tmp_path / "outputs/tables/multiverse.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert [(row["choice"], row["reference"]) for row in rows] == [
        (choice, reference)
        for choice in ("default", "length_10", "gates_none")
        for reference in ("semantic_cosine", "blend")
    ]
    assert all(row["delta"] and row["ci_low"] for row in rows)
    assert {row["sign_survives"] for row in rows[2:]} <= {"yes", "no"}
    # gates_none has the cosine and the blend of the default.
    assert sorted(map(_model, first.runs)) == ["blend"] * 2 + ["semantic_cosine"] * 2 + ["tact"] * 3
    assert "sample (synthetic)" in (tmp_path / "outputs/tables/multiverse.md").read_text()
    made = {name: (tmp_path / "outputs").glob(f"{name}/multiverse.*") for name in ("tables", "figures")}
    assert {name: sorted(p.suffix for p in paths) for name, paths in made.items()} == {
        "tables": [".csv", ".md", ".tex"],
        "figures": [".csv", ".pdf", ".png"],
    }
    before = tools.digests(tmp_path / "outputs")
    rebuilt = call(*overrides, script="make_tables", cache=tmp_path / "no data here")
    assert rebuilt.code == 0, rebuilt.err
    assert tools.digests(tmp_path / "outputs") == before
    assert rebuilt.out == first.out
    (gone,) = (run for run in first.runs if '"gates": "none"' in (run / "identity.json").read_text())
    shutil.rmtree(gone)
    holed = call(*overrides, script="make_tables")
    assert holed.code == 0
    assert "missing gates_none: no run; python scripts/train.py experiment=multiverse" in holed.out
    assert call(*overrides).code == 0
    assert tools.results(tmp_path)["tables/multiverse.csv"] == before["tables/multiverse.csv"]


def _model(run: Path) -> str:
    return json.loads((run / "run.json").read_text())["model"]

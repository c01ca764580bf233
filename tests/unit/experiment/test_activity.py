"""What the table stage makes of selection and scores of finished runs."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from toolshift.evaluation.activity import write_stage_changes
from toolshift.evaluation.aggregate import TableSpec
from toolshift.experiment.activity import activity_frame, stage_frame
from toolshift.experiment.finished import DoneRun, not_converged_text, settings_text
from toolshift.experiment.tables import mark_not_converged, selection_text
from toolshift.runs.files import write_json
from toolshift.runs.ledger import RunFolder
from toolshift.settings.compose import load_settings
from toolshift.settings.tree import as_mapping

SPEC = TableSpec(
    name="lodo", data="sample", measures=("MRR",), reference="semantic_cosine", view_order=("natural", "context"),
    model_order=("random_expected", "semantic_cosine", "blend", "bm25"),
)  # fmt: skip


def done(folder: Path, model: str, scores: tuple[float, ...] = (), *, purge: str = "none", **more: object) -> DoneRun:
    """A run of two targets whose lists of each view hold three candidates."""
    folder.mkdir(parents=True)
    cells = [f"{t},{v},{n},True" for t, n in (("a", 1), ("b", 1), ("empty", 0)) for v in ("natural", "context")]
    (folder / "metrics.csv").write_text(
        "target,view,n_tasks,scored\n" + "\n".join(cells[:4]) + "\nempty,context,0,False\n"
    )
    for target in ("a", "b") if scores else ():
        path = folder / "scores" / target / "seed=7.parquet"
        path.parent.mkdir(parents=True)
        columns = {
            "view": ["natural"] * 3 + ["context"] * 3,
            "task_id": [f"t{target}"] * 6,
            "capability_id": list("xyzxyz"),
        }
        pq.write_table(pa.table({**columns, "score": pa.array(scores * 2)}), path)
    return DoneRun(
        folder=RunFolder(folder), model=model, family="f", universe="domain", miner="union", purge=purge, data="sample",
        seeds=(7, 8), **more,
    )  # fmt: skip


def test_every_row_but_the_reference_is_compared_within_its_variant(tmp_path: Path) -> None:
    runs = [
        done(tmp_path / "1", "bm25", (1.0, 2.0, 3.0)),
        done(tmp_path / "2", "semantic_cosine", (3.0, 2.0, 1.0)),
        done(tmp_path / "3", "blend", (0.3, 0.2, 0.1), selected={'{"l2": 0.01}': 2}, not_converged=1),
        done(tmp_path / "4", "bm25", (3.0, 2.0, 1.0), purge="gold"),
    ]
    frame = activity_frame(runs, spec=SPEC, protocol="leave_one_domain_out")
    assert frame[["model", "view"]].values.tolist() == [
        ["blend", "natural"], ["blend", "context"], ["bm25", "natural"], ["bm25", "context"],
    ]  # fmt: skip
    assert set(frame["purge"]) == {"none"}, "the other variant has no reference"
    blend, bm25 = frame.iloc[0], frame.iloc[2]
    assert (blend["order_changed"], blend["note"]) == (0.0, "not converged (1 of 4 fits); inactive")
    assert (blend["settings"], blend["seed"], blend["n_lists"]) == ("l2=0.01: 2", 7, 2)
    assert (bm25["order_changed"], bm25["mean_abs_rank_change"], bm25["note"]) == (1.0, pytest.approx(4 / 3), "")


def test_a_run_whose_scores_were_taken_away_is_left_out_and_named(tmp_path: Path, caplog) -> None:
    runs = [done(tmp_path / "1", "bm25"), done(tmp_path / "2", "semantic_cosine", (3.0, 2.0, 1.0))]
    with caplog.at_level("WARNING", logger="toolshift"):
        assert activity_frame(runs, spec=SPEC, protocol="p").empty
    assert "no activity of bm25 (universe domain, miner union, purge none)" in caplog.text


def test_words_for_settings_and_unfinished_fits(tmp_path: Path) -> None:
    chosen = {json.dumps({"C": 1.0}): 3, json.dumps({"C": 0.01, "k": 2}): 40, json.dumps({"C": 9.0}): 3}
    assert settings_text(chosen) == "C=0.01, k=2: 40; C=1.0: 3; C=9.0: 3"
    assert settings_text({}) == ""
    assert not_converged_text(done(tmp_path / "1", "blend")) == ""
    run = done(tmp_path / "2", "blend", not_converged=3)
    assert not_converged_text(run) == "not converged (3 of 4 fits)"  # 2 targets with tasks x 2 seeds
    keys = {"universe": "domain", "miner": "union", "purge": ["none", "gold"], "model": "blend", "note": ["x", ""]}
    assert mark_not_converged(pd.DataFrame(keys), [run])["note"].tolist() == ["x; not converged (3 of 4 fits)", ""]


def test_the_caption_states_every_cap_of_the_budget(tmp_path: Path) -> None:
    settings = load_settings("train", ["experiment=lodo"])
    frozen, blend, mlp = (done(tmp_path / name, name) for name in ("bm25", "blend", "pointwise_mlp"))
    blend, mlp = (dataclasses.replace(run, selected={"{}": 1}) for run in (blend, mlp))
    selection = as_mapping(settings)["selection"]
    write_json(blend.folder.path / "identity.json", {"selection": selection})
    full = {**selection["budgets"]["full"]}
    del full["batch_tasks"]  # as an older run left it
    other = {**selection, "budget": "full", "budgets": {"full": full}}
    write_json(mlp.folder.path / "identity.json", {"selection": other})
    assert selection_text(settings, [frozen]) == "nested"
    fast = (
        "nested; trained rows (blend): budget fast (at most: inner folds 3, settings of the grid 3, source tasks per "
        "fit 2000, validation tasks per view and inner fold 500, epochs 5, tasks per gradient step 32; chosen once per "
        "target, with the first seed)"
    )
    assert selection_text(settings, [frozen, blend]) == fast
    assert selection_text(settings, [blend, mlp]) == (
        fast + "; trained rows (pointwise_mlp): budget full (at most: inner folds 5, settings of the grid no cap, "
        "source tasks per fit no cap, validation tasks per view and inner fold no cap, epochs 30, tasks per gradient "
        "step not recorded; chosen by every seed)"
    )


def record(run: DoneRun, target: str, *, order: float) -> None:
    """One list of three candidates per view, of which ``order`` lists have another order without the stage."""
    moved = [0.3, 0.15, 2.0, 2.0, 0.0, order]
    found = {
        "lists": {"natural": [1, 3], "context": [1, 3]},
        "stages": {
            "contextual": {"natural": [0.0] * 6, "context": moved},
            "relation": {"natural": moved, "context": moved},
        },
    }
    write_stage_changes(run.folder.path, found, target=target, seed=run.seeds[0])


def test_stages_of_every_row_that_has_some(tmp_path: Path) -> None:
    whole, cosine = done(tmp_path / "1", "tact"), done(tmp_path / "2", "semantic_cosine")
    for target in ("a", "b"):
        record(whole, target, order=float(target == "a"))
    spec = dataclasses.replace(SPEC, model_order=("random_expected", "semantic_cosine", "tact"))
    frame = stage_frame([cosine, whole], spec=spec, protocol="leave_one_domain_out")
    assert frame[["model", "stage", "view"]].values.tolist() == [
        ["tact", stage, view] for stage in ("relation", "contextual") for view in ("natural", "context")
    ]
    assert frame["n_lists"].tolist() == [2, 2, 2, 2]
    assert frame["order_changed"].tolist() == [0.5, 0.5, 0.0, 0.5]
    assert frame["mean_abs_correction"].tolist() == [pytest.approx(0.1), pytest.approx(0.1), 0.0, pytest.approx(0.1)]
    assert frame["note"].tolist() == ["", "", "inactive", ""]
    assert set(frame["purge"]) == {"none"}
    assert set(frame["seed"]) == {7}


def test_a_stage_that_selection_switched_off_everywhere_is_shown(tmp_path: Path) -> None:
    run = done(tmp_path / "1", "tact", selected={json.dumps({"beta_relation": 0.1, "beta_functional": 0.0}): 2})
    for target in ("a", "b"):
        record(run, target, order=1.0)
    spec = dataclasses.replace(SPEC, model_order=("random_expected", "tact"))
    frame = stage_frame([run], spec=spec, protocol="p")
    off = frame[frame["stage"] == "functional"]
    assert list(dict.fromkeys(frame["stage"])) == ["relation", "functional", "contextual"]
    assert off["targets_on"].tolist() == [0, 0]
    assert off["order_changed"].tolist() == [0.0, 0.0]
    assert off["note"].tolist() == ["inactive", "inactive"]


def test_an_older_run_of_a_row_with_stages_is_a_hole(tmp_path: Path, caplog) -> None:
    older, frozen = done(tmp_path / "1", "tact"), done(tmp_path / "2", "bm25")
    write_json(older.folder.path / "selection" / "a" / "seed=7.json", {"fitted": {"relation": {"strength": 0.1}}})
    write_json(frozen.folder.path / "selection" / "a" / "seed=7.json", {"fitted": {}})
    with caplog.at_level("WARNING", logger="toolshift"):
        frame = stage_frame([older, frozen], spec=SPEC, protocol="p")
    assert frame["model"].tolist() == ["tact"]
    assert frame["n_lists"].isna().all()
    assert frame["note"].tolist() == ["no record of the stages for 2 of 2 targets (older or incomplete run folder)"]
    assert "no activity of the stages of tact" in caplog.text
    assert stage_frame([frozen], spec=SPEC, protocol="p").empty

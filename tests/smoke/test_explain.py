"""scripts/explain.py on a run of TACT over the tiny sample: one pair in text and JSON, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pyarrow.parquet as pq

Call = Callable[..., Any]
# Every stage is on, whatever the sources say of it.
ON = ("beta_relation=[0.05]", "beta_functional=[0.1]", "beta_contextual=[0.2]")
QUICK = ("debug.max_targets=1", "seeds=[42]", "selection.budgets.fast.epochs=1")


def test_one_pair_of_a_run_in_text_and_json(call: Call, tools: Any) -> None:
    trained = call(*tools.small, "model=tact", *QUICK, *(f"models.tact.grid.{g}" for g in ON))
    assert trained.code == 0, trained.err
    run = trained.run_of("tact")
    (scores,) = run.glob("scores/*/seed=42.parquet")
    rows = pq.read_table(scores).to_pandas()
    task, capability = str(rows["task_id"].iloc[0]), str(rows["capability_id"].iloc[0])
    published = float(rows["score"].iloc[0])

    whole = call(f"run={run.name[:6]}", f"task={task}", script="explain")
    assert (whole.code, whole.err) == (0, "")
    listed = rows[rows["task_id"] == task]
    assert whole.out.count(f"/{len(listed)}\n") == len(listed)

    text = call(f"run={run}", f"task={task.rpartition('/')[2]}", f"capability={capability}", script="explain")
    assert (text.code, text.err) == (0, "")
    for part in ("requirements (", "evidence (", "matching z*", "rho_F", "source evidence by id", "rho_C", "gate"):
        assert part in text.out, part
    assert f"published {published:.6f}, recomputed {published:.6f}: the same" in text.out
    assert max(map(len, text.out.splitlines())) <= 100

    shown = call(f"run={run}", f"task={task}", f"capability={capability}", "format=json", script="explain")
    content = json.loads(shown.out)
    (candidate,) = content["candidates"]
    assert candidate["capability_id"] == capability
    assert candidate["agrees"] is True
    assert abs(candidate["pair"]["scores"]["score"] - published) < 1e-9
    assert content["stages"] == ["relation", "functional", "contextual", "fusion"]

    _refusals(call, trained, task=task)


def _refusals(call: Call, trained: Any, *, task: str) -> None:
    def error(*arguments: str) -> str:
        outcome = call(*arguments, script="explain")
        assert (outcome.code, outcome.out) == (1, "")
        (line,) = outcome.err.splitlines()
        return line

    run, other = trained.run_of("tact"), trained.run_of("semantic_cosine")
    nearest = task[:-1] + ("0" if task[-1] != "0" else "1")
    assert f"did you mean '{task}'" in error(f"run={run}", f"task={nearest}")
    assert "run=zzzz: there is none below outputs/runs; did you mean" in error("run=zzzz", f"task={task}")
    assert "is of the model semantic_cosine; explain.py takes apart TACT" in error(f"run={other}", f"task={task}")
    assert "there is none in the lists of" in error(f"run={run}", f"task={task}", "capability=no such tool at all")
    assert "fit among the tested tasks" in error(f"run={run}", "task=toolbench/")
    assert "seed=43: the run has the seeds 42" in error(f"run={run}", f"task={task}", "seed=43")
    checkpoint = next(run.glob("checkpoints/*/seed=42.safetensors"))
    checkpoint.write_bytes(checkpoint.read_bytes() + b" ")
    assert "is not the checkpoint that was selected" in error(f"run={run}", f"task={task}")

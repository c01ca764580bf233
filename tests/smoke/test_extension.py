"""What it costs to add a model and a view: one module and one YAML each, in a copy of the project; no other edit."""

from __future__ import annotations

import csv
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

MODEL = '''
"""Shorter texts first."""
from dataclasses import dataclass
import numpy as np
from toolshift.models.base import FrozenRanker

@dataclass(frozen=True, kw_only=True)
class Shortest(FrozenRanker):
    """Score: minus the length of the capability text, times a factor."""
    factor: float

    def score(self, pairs, *, bank, seed):
        """(p,) scores."""
        length = np.array([len(text) for text in bank.corpus.capability_texts], np.float64)
        return -self.factor * length[pairs.capability]
'''
MODEL_YAML = """# @package models.shortest
name: shortest
target: toolshift.models.frozen.shortest:Shortest
stochastic: false
params:
  factor: 1.0
grid: {}
"""
VIEW = '''
"""A plain draw of a few candidates."""
from toolshift.views.manifest import Draw, Recipe
from toolshift.views.roles import ordinary

def recipe(rules, *, quota):
    """At most ``quota`` ordinary candidates."""
    return Recipe(draws=(Draw(role="ordinary", rule=ordinary, quota=quota),))
'''
VIEW_YAML = """# @package view.views.few
target: toolshift.views.few:recipe
params:
  quota: 3
"""


def test_a_model_and_a_view_need_one_module_and_one_file_each(tools: Any, tmp_path: Path) -> None:
    project = tmp_path / "project"
    for name in ("src", "conf", "scripts"):
        shutil.copytree(tools.root / name, project / name, ignore=shutil.ignore_patterns("__pycache__"))
    (project / "src/toolshift/models/frozen/shortest.py").write_text(MODEL)
    (project / "conf/model/shortest.yaml").write_text(MODEL_YAML)
    (project / "src/toolshift/views/few.py").write_text(VIEW)
    (project / "conf/view/few.yaml").write_text(VIEW_YAML)

    chosen = ("model=shortest", "view=[natural,few]", "view.views.few.params.quota=4", "protocol.purge=none")
    overrides = [*tools.tiny, *chosen]
    done = subprocess.run(
        [sys.executable, "scripts/train.py", *overrides],
        cwd=project,
        env={**os.environ, "PYTHONPATH": str(project / "src"), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    with (project / "outputs/tables/lodo.csv").open() as stream:
        rows = [row for row in csv.DictReader(stream) if row["slice"] == "all"]
    assert {(row["model"], row["view"]) for row in rows} == {
        (model, view) for model in ("shortest", "semantic_cosine", "random_expected") for view in ("natural", "few")
    }
    manifest = next((project / "outputs/runs/lodo").glob("*/manifests/few.parquet"))
    lists = pq.read_table(manifest).to_pandas()
    assert lists[lists["role"] != "positive"].groupby("task_id", observed=True).size().max() == 4

"""What it costs to add a model, a view or a dataset: one module and one YAML each, in a copy of the project; no other
edit."""

from __future__ import annotations

import csv
import json
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


ADAPTER = '''
"""Toy release: one JSON line per tool, one per request."""
import json
from dataclasses import dataclass
from toolshift.data.catalog import Catalog, EndpointDoc
from toolshift.data.records import Records, Task
from toolshift.data.rows import dataset_folder, report_of
from toolshift.data.tally import Tally

@dataclass(frozen=True, kw_only=True)
class Options:
    """The capability rendering."""
    template: str = "with_operations"

def read(root, *, options=None, strict=False):
    """Records of <root>/toyset."""
    base = dataset_folder(root, "toyset")
    tally = Tally(strict=strict)
    catalog = Catalog("toyset", template=(options or Options()).template)
    for line in (base / "tools.jsonl").read_text().splitlines():
        tool = json.loads(line)
        tally.keep("tools")
        key = f"toyset/{tool['name']}"
        catalog.add_capability(key, name=tool["name"], description=tool["does"], domain=tool["area"], origin="library")
        catalog.add_endpoint(f"{key}/call", key, doc=EndpointDoc(operation=tool["name"]), origin="library")
    tasks = []
    for line in (base / "requests.jsonl").read_text().splitlines():
        row = json.loads(line)
        tally.keep("requests")
        gold = f"toyset/{row['tool']}"
        tasks.append(Task(task_id=f"toyset/{row['id']}", dataset="toyset", domain=row["area"], text=row["text"],
                          gold_capability_ids=(gold,), gold_endpoint_ids=(f"{gold}/call",)))
    library = catalog.library()
    tasks = tuple(sorted(tasks, key=lambda task: task.task_id))
    return Records(dataset="toyset", library=library, tasks=tasks, report=report_of(tally, library, tasks))
'''
ADAPTER_YAML = """name: toyset
target: toolshift.data.adapters.toyset:read
unit: capability
options:
  template: with_operations
"""


def toy_release(root: Path) -> None:
    """Three areas of six tools, four requests for each."""
    folder = root / "toyset"
    folder.mkdir(parents=True)
    tools, requests = [], []
    for area in ("garden", "kitchen", "workshop"):
        for number in range(6):
            name = f"{area}{number}"
            tools.append({"name": name, "does": f"handles item {number} of the {area}", "area": area})
            for turn in range(4):
                text = f"please take care of item {number} in my {area}, turn {turn}"
                requests.append({"id": f"{name}-{turn}", "text": text, "tool": name, "area": area})
    (folder / "tools.jsonl").write_text("\n".join(map(json.dumps, tools)))
    (folder / "requests.jsonl").write_text("\n".join(map(json.dumps, requests)))


def test_a_dataset_needs_one_adapter_and_one_file(tools: Any, tmp_path: Path) -> None:
    project = tmp_path / "project"
    for name in ("src", "conf", "scripts"):
        shutil.copytree(tools.root / name, project / name, ignore=shutil.ignore_patterns("__pycache__"))
    (project / "src/toolshift/data/adapters/toyset.py").write_text(ADAPTER)
    (project / "conf/dataset/toyset.yaml").write_text(ADAPTER_YAML)
    toy_release(tmp_path / "raw")
    asked = ("dataset=toyset", "data=real", f"data.root={tmp_path / 'raw'}", f"data.cache={tmp_path / 'cache'}")
    environment = {**os.environ, "PYTHONPATH": str(project / "src"), "OMP_NUM_THREADS": "1"}

    def run(*command: str) -> str:
        done = subprocess.run(
            [sys.executable, *command, *asked],
            cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=240,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    prepared = run(str(project / "scripts/prepare.py"))
    assert "toyset (real)" in prepared and "no row was dropped" in prepared
    table = run(
        str(project / "scripts/train.py"), "experiment=lodo", "debug=tiny", "model=[bm25,random]",
        "view=natural", "view.universe=domain", "view.miner=union", "protocol.purge=none", "evaluation.slices=[all]",
    )  # fmt: skip
    assert "bm25" in table and "random" in table

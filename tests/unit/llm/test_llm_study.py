"""The language-model rows of experiment=skillgraph: asked once, replayed without a server, missing without either."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from toolshift.experiment.skillgraph import SkillGraphStudy
from toolshift.experiment.study import StudyRun
from toolshift.settings.compose import load_settings


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def computed(folder: Path, cache: Path, *params: str) -> tuple[SkillGraphStudy, StudyRun]:
    overrides = [
        "experiment=skillgraph", "debug=tiny", "data.sample_size=tiny", "seeds=[42]", f"data.cache={cache}",
        f"paths.outputs={folder / 'outputs'}", "study.params.parts=[llm]", "study.params.modes=[paper]",
        "study.params.paper_splits=[text]", "study.params.tuning_queries=0", "study.params.llm_queries=8",
        *(f"study.params.{param}" for param in params),
    ]  # fmt: skip
    study = SkillGraphStudy(load_settings("train", overrides))
    run = StudyRun(settings=study.settings, path=folder, inputs={})
    study.compute(run)
    return study, run


def first_tools(body: dict[str, Any]) -> str:
    last = body["messages"][1]["content"].rsplit("Request:", 1)[1]
    return " -> ".join(line[2:].split(":")[0] for line in last.split("\n") if line.startswith("- "))


def test_asked_then_replayed(kit: Any, server: Any, tmp_path: Path, cache: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "x")
    server.script = lambda body: kit.chat(first_tools(body))
    store = f"llm_store={tmp_path / 'store'}"
    study, run = computed(tmp_path / "a", cache, f"llm_base_url={server.url}", "llm_mode=record", store)
    asked = len(server.asked)
    assert asked
    frame = run.read("llm/toolbench, mode=paper, split=text")
    assert set(frame["model"]) >= {"gs_sem_sort", "gs_lr", "gs_llm_0shot", "oracle_set_llm_3shot"}
    assert (frame.groupby("model").size() == 8).all()
    oracle = frame.loc[frame["model"] == "oracle_set_llm_3shot", "Set-F1"]
    assert (oracle == 1.0).all()
    _, again = computed(tmp_path / "b", cache, "llm_mode=replay", store)
    assert len(server.asked) == asked
    name = "llm/toolbench, mode=paper, split=text"
    pd.testing.assert_frame_equal(again.read(name), frame)
    written = study.report(run)
    names = {path.name for path in written.paths}
    assert {"skillgraph_llm.csv", "skillgraph_llm_outcomes.csv"} <= names
    assert "answered" in next(p for p in written.paths if p.name == "skillgraph_llm_outcomes.csv").read_text()
    assert json.dumps(sorted(names))


def test_without_a_model_the_rows_are_missing(tmp_path: Path, cache: Path) -> None:
    study, run = computed(tmp_path, cache, f"llm_store={tmp_path / 'none'}")
    assert not any(name.startswith("llm/") for name in run.parts())
    assert "no language model" in study._missing(run)[0]

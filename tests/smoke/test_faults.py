"""Bad input: one clear line, the right exit status, no traceback; or a drop that is counted and loses nothing else."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

Call = Callable[..., Any]
QUERIES = "toolbench/instruction/G1_query.json"
REAL = ("experiment=lodo", "debug=tiny", "data=real")


@pytest.fixture(scope="module")
def sample_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The generated sample, which is read like any release."""
    from toolshift.experiment.data import open_records
    from toolshift.settings.compose import load_settings

    folder = tmp_path_factory.mktemp("sample")
    open_records(load_settings("train", ["data.sample_size=tiny", f"data.cache={folder}"]))
    (tools_folder,) = folder.rglob("toolbench/toolenv")
    return tools_folder.parents[1]


@pytest.fixture
def root(sample_root: Path, tmp_path: Path) -> Path:
    """A release to be damaged."""
    return Path(shutil.copytree(sample_root, tmp_path / "release"))


def rows_of(root: Path) -> list[Any]:
    return json.loads((root / QUERIES).read_text())


def put_rows(root: Path, rows: list[Any]) -> None:
    (root / QUERIES).write_text(json.dumps(rows))


def first_tool(root: Path) -> Path:
    return min((root / "toolbench/toolenv/tools").glob("*/*.json"))


def without_root(root: Path) -> str:
    shutil.rmtree(root)
    return f"{root}/toolbench: no such folder"


def without_toolenv(root: Path) -> str:
    shutil.rmtree(root / "toolbench/toolenv")
    return "toolenv/tools: no such folder, so there is no tool library"


def without_queries(root: Path) -> str:
    for name in ("instruction", "test_instruction", "solvable_queries"):
        shutil.rmtree(root / "toolbench" / name)
    return "no query file"


def truncated(root: Path) -> str:
    text = (root / QUERIES).read_bytes()
    (root / QUERIES).write_bytes(text[: len(text) // 2])
    return QUERIES


def not_utf8(root: Path) -> str:
    text = (root / QUERIES).read_bytes()
    (root / QUERIES).write_bytes(text.replace(b'"query": "', b'"query": "\xff\xfe', 1))
    return QUERIES


@pytest.mark.parametrize("damage", [without_root, without_toolenv, without_queries, truncated, not_utf8])
@pytest.mark.parametrize("script", ["train", "prepare"])
def test_an_unusable_release_is_one_clear_line(
    damage: Callable[[Path], str], script: str, root: Path, tmp_path: Path, call: Call
) -> None:
    expected = damage(root)
    outcome = call(*REAL, f"data.root={root}", script=script, cache=tmp_path)
    assert outcome.code == 1, outcome.out
    errors = [line for line in outcome.err.splitlines() if line.startswith("error:")]
    assert len(errors) == 1
    assert expected in errors[0]
    outcome.refuse_traceback()
    assert not outcome.runs


def list_for_a_tool(root: Path) -> str:
    first_tool(root).write_text(json.dumps([1, 2]))
    return "tool_files:not_an_object"


def tool_cut_short(root: Path) -> str:
    path = first_tool(root)
    path.write_bytes(path.read_bytes()[:40])
    return "tool_files:"


def tool_not_utf8(root: Path) -> str:
    path = first_tool(root)
    path.write_bytes(b"\xff\xfe" + path.read_bytes())
    return "tool_files:"


def unknown_tool(root: Path) -> str:
    rows = rows_of(root)
    rows[0]["relevant APIs"].append(["No Such Tool", "No Such API"])
    put_rows(root, rows)
    return "gold_pairs:unknown_gold_pair"


def empty_query(root: Path) -> str:
    rows = rows_of(root)
    rows[0]["query"] = "  "
    put_rows(root, rows)
    return "queries:empty_query"


@pytest.mark.parametrize("damage", [list_for_a_tool, tool_cut_short, tool_not_utf8, unknown_tool, empty_query])
def test_a_bad_row_is_counted_and_nothing_else_is_lost(
    damage: Callable[[Path], str], root: Path, tmp_path: Path, call: Call
) -> None:
    reason = damage(root)
    outcome = call(*REAL, f"data.root={root}", script="prepare", cache=tmp_path)
    assert outcome.code == 0, outcome.err
    report = json.loads((tmp_path / "records/toolbench/report.json").read_text())
    (dropped,) = [name for name in report["dropped"] if name.startswith(reason)]
    assert report["dropped"][dropped] == 1
    assert report["rows_read"] == report["records"] + sum(report["dropped"].values())
    assert dropped in outcome.out
    strict = call(*REAL, f"data.root={root}", "data.strict=true", script="prepare", cache=tmp_path)
    assert strict.code == 1
    assert "error:" in strict.err
    strict.refuse_traceback()


def test_no_eligible_task(call: Call, tools: Any) -> None:
    outcome = call(*tools.tiny, "protocol.purge=none", "view=semantic", "view.hard=0")
    assert outcome.code == 1
    assert "error: no task is eligible in any view" in outcome.err
    outcome.refuse_traceback()


def test_one_domain_cannot_be_left_out(root: Path, tmp_path: Path, call: Call) -> None:
    tools_folder = root / "toolbench/toolenv/tools"
    keep = min(p.name for p in tools_folder.iterdir())
    rows = [row for row in rows_of(root) if all(api["category_name"] == keep for api in row["api_list"])]
    for name in ("instruction", "test_instruction", "solvable_queries"):
        shutil.rmtree(root / "toolbench" / name)
    (root / QUERIES).parent.mkdir()
    assert rows, "the sample has no query of one domain alone"
    put_rows(root, rows)
    outcome = call(*REAL, f"data.root={root}", cache=tmp_path)
    assert outcome.code == 1
    assert "needs at least two domains with tasks" in outcome.err
    outcome.refuse_traceback()


@pytest.fixture
def own_cache(call: Call, tools: Any, tmp_path: Path) -> Path:
    """The cache of one finished command."""
    assert call(*tools.small, "model=random", cache=tmp_path / "own").code == 0
    (found,) = (tmp_path / "own" / "embeddings").iterdir()
    return found


def test_nan_in_the_embedding_cache(own_cache: Path, call: Call, tools: Any) -> None:
    shard = max((p for p in own_cache.glob("shard-*.npy") if ".keys" not in p.name), key=lambda p: p.stat().st_size)
    vectors = np.load(shard)
    vectors[0, 0] = np.nan
    np.save(shard, vectors)
    outcome = call(*tools.small, "model=bm25", cache=own_cache.parents[1])
    assert outcome.code == 1
    assert f"{shard.name} is damaged: it holds NaN" in outcome.err
    assert "delete this file and rerun" in outcome.err
    outcome.refuse_traceback()
    shard.unlink()
    assert call(*tools.small, "model=bm25", cache=own_cache.parents[1]).code == 0


def test_a_cache_of_another_model(own_cache: Path, call: Call, tools: Any) -> None:
    meta = json.loads((own_cache / "meta.json").read_text())
    (own_cache / "meta.json").write_text(json.dumps({**meta, "fingerprint": "0" * 64, "name": "other"}))
    outcome = call(*tools.small, "model=bm25", cache=own_cache.parents[1])
    assert outcome.code == 1
    assert "belongs to another model: 'other'" in outcome.err
    outcome.refuse_traceback()


def test_an_experiment_without_a_table_is_refused_before_it_runs(call: Call, tools: Any) -> None:
    outcome = call(*tools.small[1:])
    assert outcome.code == 2
    assert "no table 'train' in conf/tables; did you mean" in outcome.err
    assert not outcome.runs


def test_a_dataset_without_gold_is_not_ranked(call: Call, tools: Any) -> None:
    outcome = call("experiment=lodo", "debug=tiny", "data.sample_size=tiny", "dataset=tooleyes")
    assert outcome.code == 1
    assert "error: tooleyes: " in outcome.err
    outcome.refuse_traceback()
    assert not outcome.runs


@pytest.mark.real
def test_an_excerpt_is_not_reported_on(call: Call, tools: Any, tmp_path: Path, data_root: Path) -> None:
    """The preset of the paper needs TaskBench, of which only an excerpt is there."""
    asked = ("data=real", f"data.root={data_root}")
    alone = call("experiment=lodo", "dataset=taskbench", "debug=tiny", *asked, cache=tmp_path)
    together = call("experiment=cross_dataset", "protocol.datasets=paper", "debug=tiny", *asked, cache=tmp_path)
    for outcome in (alone, together):
        assert outcome.code == 1
        assert "error: taskbench: " in outcome.err
        outcome.refuse_traceback()
    assert not together.runs


def test_a_misspelt_preset_names_the_nearest_one(call: Call, tools: Any) -> None:
    outcome = call("experiment=cross_dataset", "protocol.datasets=locl")
    assert outcome.code == 2
    assert "protocol.datasets: no dataset or preset 'locl'; did you mean" in outcome.err
    assert call("experiment=cross_dataset", "protocol.datasets=toolbench+bfc").code == 2

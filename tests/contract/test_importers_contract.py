"""Importers on released documents, read where they lie: function docs of BFCL, tool files of ToolBench."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from toolshift.api import Ranker
from toolshift.data.importers.reading import import_tools, visible
from toolshift.experiment.method import Method
from toolshift.models.frozen.semantic_cosine import SemanticCosine
from toolshift.text.hashing import Hashing

pytestmark = pytest.mark.real
FEW = 3


def present(folder: Path) -> Path:
    if not folder.is_dir():
        pytest.skip(f"{folder} is not there")
    return folder


def test_every_function_document_of_bfcl_is_a_tool(data_root: Path) -> None:
    folder = present(data_root / "bfcl" / "bfcl_eval" / "data" / "multi_turn_func_doc")
    rows = [json.loads(line) for path in sorted(folder.glob("*.json")) for line in path.open() if line.strip()]
    found = import_tools(folder, strict=True)
    distinct = {json.dumps([row["name"], row["description"], row["parameters"]], sort_keys=True) for row in rows}
    assert found.dialects == {"openai": len(rows)}
    assert len(found.library.capabilities) == len(distinct)
    names = {row["name"] for row in rows}
    assert {c.name for c in found.library.capabilities} == names

    documented = {name: [r for r in rows if r["name"] == name] for name in names}
    for capability in found.library.capabilities:
        (endpoint,) = found.library.endpoints_of[capability.capability_id]
        read = [(a.name, a.required) for a in endpoint.arguments]
        assert read in [
            [(key, key in row["parameters"].get("required", ())) for key in row["parameters"]["properties"]]
            for row in documented[capability.name]
        ]


def test_tool_files_of_toolbench_are_tools_with_their_operations(data_root: Path) -> None:
    folder = present(data_root / "toolbench" / "toolenv" / "tools")
    categories = sorted(path for path in folder.iterdir() if path.is_dir())[:FEW]
    for category in categories:
        files = sorted(category.glob("*.json"))
        found = import_tools(category)
        assert sum(found.dialects.values()) + sum("cannot be read" in note for note in found.notes) <= len(files)
        assert set(found.dialects) == {"toolbench"}
        assert len(found.library.capabilities) > 0.9 * len(files)
        raw = json.loads(files[0].read_text())
        capability = next(c for c in found.library.capabilities if c.name == visible(raw["tool_name"]))
        operations = {e.operation for e in found.library.endpoints_of[capability.capability_id]}
        assert capability.domain == category.name
        assert operations <= {visible(api["name"]) for api in raw["api_list"]}
    whole = import_tools([str(category) for category in categories])
    assert whole.dialects["toolbench"] >= len(whole.library.capabilities) > 0


def test_a_tool_is_found_by_its_own_words(data_root: Path, tmp_path: Path) -> None:
    folder = present(data_root / "bfcl" / "bfcl_eval" / "data" / "multi_turn_func_doc")
    method = Method(
        name="semantic_cosine",
        scorer=SemanticCosine(),
        encoder=Hashing(batch_size=1),
        max_truncated_share=1.0,
        about="",
    )
    ranker = Ranker(method=method, cache=tmp_path).index(folder)
    for capability in ranker.tools.capabilities[:20]:
        best = ranker.rank(capability.text, k=1)[0]
        assert best.score == pytest.approx(1.0, abs=1e-5)
        assert best.name == capability.name

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from toolshift.data.download import survey
from toolshift.data.sources import RemoteFile, load_sources, source_of, sources
from toolshift.settings.errors import ConfigError

DATASETS = ("apibank", "apibench", "bfcl", "metatool", "taskbench", "toolbench", "tooleyes", "trajectbench")
HASH = "0" * 64


def test_all_public_datasets_are_recorded() -> None:
    assert tuple(sources()) == DATASETS


@pytest.mark.parametrize("dataset", DATASETS)
def test_a_source_says_where_which_state_which_licence_and_which_files(dataset: str) -> None:
    source = source_of(dataset)
    assert source.dataset == dataset
    hint = source.hint()
    for part in (source.place, source.revision, source.licence, *source.steps, *(f.pattern for f in source.files)):
        assert part
        assert part in hint
    assert any(f.required for f in source.files)
    assert f"<data.root>/{dataset}/" in hint


@pytest.mark.parametrize("dataset", DATASETS)
def test_an_address_names_one_fixed_state_that_the_source_states(dataset: str) -> None:
    source = source_of(dataset)
    for group in source.files:
        if group.way == "web":
            repository = re.fullmatch(
                r"https://raw\.githubusercontent\.com/[^/]+/[^/]+/([0-9a-f]{7,40})/(\S+/)?", group.at
            )
            assert repository, group.at
            # StableToolBench is not the place of ToolBench, so its commit stands in the address alone.
            assert repository[1] in source.revision or dataset == "toolbench"
        if group.way == "package":
            assert re.fullmatch(r"bfcl-eval==2026\.3\.23 --hash=sha256:[0-9a-f]{64}", group.at)


def test_an_address_is_quoted() -> None:
    group = source_of("metatool").files[0]
    file = RemoteFile(path="dataset/scenario/a & b.json", bytes=None, sha256=None)
    assert group.url(file) == f"{group.at}dataset/scenario/a%20%26%20b.json"


def test_a_dataset_of_ones_own_has_a_general_hint() -> None:
    source = source_of("my_tools")
    assert not source.is_recorded
    assert "No public release is recorded for my_tools" in source.hint()
    assert "<data.root>/my_tools/" in source.hint()
    assert "conf/dataset/my_tools.yaml" in source.hint()


def body(**changes: Any) -> dict[str, Any]:
    group = {
        "pattern": "a/*.json",
        "holds": "rows",
        "required": True,
        "way": "web",
        "at": "https://example.org/",
        "files": [{"path": "a/b.json", "bytes": 1, "sha256": HASH}],
    }
    source = {"title": "T", "place": "P", "revision": "R", "licence": "L", "steps": ["do"], "files": [group | changes]}
    return {"toy": source}


@pytest.fixture
def write(tmp_path: Path) -> Callable[[Any], Path]:
    def write(content: Any) -> Path:
        path = tmp_path / "sources.yaml"
        path.write_text(yaml.safe_dump(content), encoding="utf-8")
        return path

    return write


def test_a_file_of_sources_is_read(write: Callable[[Any], Path]) -> None:
    (source,) = load_sources(write(body())).values()
    assert source.files[0].files[0].sha256 == HASH
    assert source.files[0].url(source.files[0].files[0]) == "https://example.org/a/b.json"


def test_a_placeholder_stands_for_any_name(write: Callable[[Any], Path]) -> None:
    (source,) = load_sources(write(body(pattern="<Kind>/<tool>.json"))).values()
    assert source.files[0].glob == "*/*.json"
    assert "<data.root>/toy/<Kind>/<tool>.json" in source.hint()


def one(path: str, *, sha256: str | None = None) -> list[dict[str, Any]]:
    return [{"path": path, "bytes": None, "sha256": sha256}]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pattern": "*", "files": one("../b.json")}, "must stay inside"),
        ({"pattern": "*", "files": one("/etc/b.json")}, "must stay inside"),
        ({"pattern": "*", "files": one("a//b.json")}, "must stay inside"),
        ({"pattern": "*", "files": one("a\\b.json")}, "must stay inside"),
        ({"pattern": "*", "files": one("c:b.json")}, "must stay inside"),
        ({"files": one("b.json")}, "does not match its pattern"),
        ({"pattern": "<Kind>/*.csv"}, "does not match its pattern"),
        ({"files": one("a/b.json", sha256="abc")}, "sha256 must be"),
        ({"files": one("a/b.json") * 2}, "listed twice"),
        ({"files": []}, "if and only if"),
        ({"way": "hand"}, "if and only if"),
        ({"way": "ftp"}, "is not an option"),
        ({"requierd": True}, "did you mean 'required'"),
    ],
)
def test_a_wrong_file_of_sources_is_refused(
    write: Callable[[Any], Path], changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        load_sources(write(body(**changes)))


@pytest.mark.real
def test_recorded_hashes_are_those_of_real_files() -> None:
    root = os.environ.get("TOOLSHIFT_DATA")
    if not root:
        pytest.skip("TOOLSHIFT_DATA is not set; it must name the folder that holds the datasets")
    present = [name for name in DATASETS if (Path(root) / name).is_dir()]
    found = [item for name in present for item in survey(source_of(name), Path(root))]
    assert [str(item.target) for item in found if item.state == "differs"] == []
    assert any(item.state == "verified" for item in found)

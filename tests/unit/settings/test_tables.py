"""Rows and papers' numbers in ``conf/tables``: strict, like every other setting."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from toolshift.settings.errors import ConfigError
from toolshift.settings.options import conf_folder, load_table_spec, table_names


@pytest.fixture
def load(tmp_path: Path) -> Callable[[str, str], object]:
    """The table ``lodo`` with one word of its file replaced."""

    def load(old: str, new: str) -> object:
        folder = tmp_path / "conf"
        shutil.copytree(conf_folder(), folder, dirs_exist_ok=True)
        file = folder / "tables" / "lodo.yaml"
        text = file.read_text()
        assert old in text
        file.write_text(text.replace(old, new, 1))
        return load_table_spec("lodo", folder=folder)

    return load


def test_a_papers_number_keeps_its_place_source_and_status() -> None:
    paper = load_table_spec("lodo").paper
    found = {(v.view, v.model): v for v in paper.values}
    assert found["context", "tact"].value == 0.624
    assert {v.measure for v in paper.values} == {"NDCG@5"}
    assert {(v.source, v.status) for v in paper.values} == {("TACT Table 1", "given")}
    assert (paper.universe, paper.miner, paper.purge, paper.slice) == ("library", "dense", "none", "all")
    assert "lodo" in table_names()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("  miner: dense", "  minor: dense", r"paper\.minor: no such key; did you mean 'miner'"),
        (
            ", status: given",
            ", status: gven",
            r"paper\.values\[0\]\.status: 'gven' is not an option; did you mean 'given'",
        ),
        ("source: TACT", "sauce: TACT", r"values\[0\]\.sauce: no such key; did you mean 'source'"),
        ("value: 0.873", "value: high", r"values\[0\]\.value: expected a number, got 'high'"),
        ("view: natural", "view: natual", r"values\[0\]\.view: no view 'natual'; did you mean 'natural'"),
        ("measure: NDCG@5", "measure: NCDG@5", r"values\[0\]\.measure: 'NCDG@5' is no measure; did you mean 'NDCG@5'"),
        ("model: tooldreamer", "model: tact", r"values\[1\]: tact has another value for natural NDCG@5 already"),
        ("rows: all", "rows: al", r"rows: no conf/model/al\.yaml; did you mean 'all'"),
    ],
)
def test_a_typo_fails_with_the_nearest_name(load, old: str, new: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load(old, new)

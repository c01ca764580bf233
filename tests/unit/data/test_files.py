from __future__ import annotations

import gzip
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolshift.data import files
from toolshift.data.errors import AdapterError
from toolshift.data.files import existing, open_text, read_json, stream_array

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


def write(folder: Path, data: bytes | str, name: str = "rows.json") -> Path:
    path = folder / name
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


@settings(max_examples=150, deadline=None)
@given(rows=st.lists(JSON, max_size=6), indent=st.sampled_from([None, 1]), chunk=st.integers(1, 40))
def test_streaming_equals_json_load_for_any_chunk_size(rows: list[Any], indent: int | None, chunk: int) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "_CHUNK", chunk)
        assert list(stream_array(write(Path(folder), json.dumps(rows, indent=indent)))) == rows


@settings(max_examples=100, deadline=None)
@given(rows=st.lists(JSON, min_size=1, max_size=5), data=st.data())
def test_a_cut_array_yields_complete_rows_and_then_one_error(rows: list[Any], data: st.DataObject) -> None:
    whole = json.dumps(rows)
    cut = data.draw(st.integers(0, len(whole) - 1))
    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder), whole[:cut])
        with pytest.raises(AdapterError, match="complete rows, near character"):
            list(stream_array(path))
        seen = rows_before_the_error(path)
        assert seen == rows[: len(seen)]


def rows_before_the_error(path: Path) -> list[Any]:
    seen: list[Any] = []
    with pytest.raises(AdapterError) as caught:
        seen.extend(stream_array(path))
    assert f"after {len(seen)} complete rows" in str(caught.value)
    return seen


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ('{"a": 1}', "the top level is not a JSON array"),
        ("", "the top level is not a JSON array"),
        ("[1, 2", "truncated, after 1 complete rows, near character 5"),
        ("[1 2]", "expected a comma between two rows, after 0 complete rows"),
        ("[1, nope]", "malformed JSON: Expecting value, after 1 complete rows, near character 4"),
        ("[1] tail", "text after the closing bracket"),
        ("[" + "[" * 200_000, "nested too deeply"),
        (b'["\xff"]', "not UTF-8"),
    ],
)
def test_each_fault_has_one_clear_error(tmp_path: Path, content: bytes | str, problem: str) -> None:
    path = write(tmp_path, content)
    with pytest.raises(AdapterError) as caught:
        list(stream_array(path))
    assert problem in str(caught.value)
    assert str(path) in str(caught.value)
    assert "fetch the file again" in str(caught.value)


def test_an_endless_row_stops_before_memory_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_CHUNK", 64)
    monkeypatch.setattr(files, "_MAX_ROW", 1_000)
    path = write(tmp_path, '[1, {"query": "' + "x" * 100_000)
    with pytest.raises(AdapterError, match="a row of over"):
        list(stream_array(path))


def test_gz_is_read_where_only_gz_exists_and_the_plain_file_wins(tmp_path: Path) -> None:
    packed = tmp_path / "a.json.gz"
    packed.write_bytes(gzip.compress(b"[1]"))
    assert existing(tmp_path / "a.json") == packed
    assert read_json(tmp_path / "a.json") == [1]
    write(tmp_path, "[2]", "a.json")
    assert list(stream_array(tmp_path / "a.json")) == [2]
    assert existing(tmp_path / "b.json") is None
    with pytest.raises(AdapterError, match=r"no such file \(nor b\.json\.gz"):
        open_text(tmp_path / "b.json")


@pytest.mark.parametrize("keep", [0.5, 0.98])
def test_a_cut_gz_is_an_error(tmp_path: Path, keep: float) -> None:
    data = gzip.compress(json.dumps(list(range(5_000))).encode())
    path = write(tmp_path, data[: int(len(data) * keep)], "rows.json.gz")
    with pytest.raises(AdapterError, match="cannot be read to its end"):
        list(stream_array(path))


def test_a_byte_order_mark_is_skipped(tmp_path: Path) -> None:
    assert list(stream_array(write(tmp_path, b"\xef\xbb\xbf[1]"))) == [1]

"""Files are whole or absent."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import IO

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolshift.runs.files import (
    atomic_path,
    read_json,
    sha256_file,
    stable_hash,
    write_array,
    write_binary,
    write_json,
    write_text,
)


class Interrupted(BaseException):
    """Like KeyboardInterrupt: no ordinary exception."""


@pytest.mark.parametrize("error", [ValueError, Interrupted])
def test_an_error_leaves_the_old_file_and_nothing_else(tmp_path: Path, error: type[BaseException]) -> None:
    path = write_text(tmp_path / "a.txt", "old")

    def save(stream: IO[bytes]) -> None:
        stream.write(b"half of the new")
        raise error

    with pytest.raises(error):
        write_binary(path, save)
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]


def test_an_error_leaves_no_file_where_there_was_none(tmp_path: Path) -> None:
    with pytest.raises(TypeError):
        write_json(tmp_path / "a.json", object())
    assert list(tmp_path.iterdir()) == []


def test_the_target_changes_at_the_end_only(tmp_path: Path) -> None:
    path = write_text(tmp_path / "deep" / "er" / "a.txt", "old")
    with atomic_path(path) as temporary:
        temporary.write_text("new")
        assert temporary.parent == path.parent  # a rename over file systems would not be atomic
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert not temporary.exists()


def test_a_reader_keeps_the_file_it_opened(tmp_path: Path) -> None:
    path = write_text(tmp_path / "a.txt", "old")
    with path.open() as reader:
        write_text(path, "new")
        assert reader.read() == "old"


def test_text_is_utf8_with_unix_line_ends(tmp_path: Path) -> None:
    assert write_text(tmp_path / "a", "\u00e4\n\u2260").read_bytes() == "\u00e4\n\u2260".encode()


def test_json_is_sorted_and_comes_back(tmp_path: Path) -> None:
    content = {"b": [1, None, "\u00e9"], "a": {"y": 1.5, "x": True}}
    path = write_json(tmp_path / "a.json", content)
    assert read_json(path) == content
    text = path.read_text(encoding="utf-8")
    assert text == write_json(tmp_path / "b.json", {"a": {"x": True, "y": 1.5}, "b": [1, None, "\u00e9"]}).read_text(
        encoding="utf-8"
    )
    assert text.endswith("}\n")
    assert "\u00e9" in text


@pytest.mark.parametrize("content", [b"", b"{", b'{"a": \xff}'])
def test_broken_json_names_the_file_and_what_to_do(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "broken.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"broken\.json is not valid JSON .*delete it and run the same command again"):
        read_json(path)


def test_arrays_come_back_mapped(tmp_path: Path) -> None:
    array = np.arange(12, dtype=np.int32).reshape(3, 4)
    found = np.load(write_array(tmp_path / "a.npy", array), mmap_mode="r")
    np.testing.assert_array_equal(found, array)
    assert found.dtype == np.int32


def test_objects_are_not_pickled(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="allow_pickle"):
        write_array(tmp_path / "a.npy", np.array([{}], object))
    assert list(tmp_path.iterdir()) == []


def test_sha256(tmp_path: Path) -> None:
    path = write_text(tmp_path / "a", "abc")
    assert sha256_file(path) == hashlib.sha256(b"abc").hexdigest()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(content=st.dictionaries(st.text(), JSON, max_size=4))
def test_the_stable_hash_ignores_key_order_and_survives_json(content: dict[str, object]) -> None:
    assert stable_hash(dict(reversed(content.items()))) == stable_hash(content)
    assert stable_hash(json.loads(json.dumps(content))) == stable_hash(content)


def test_the_stable_hash_tells_contents_apart() -> None:
    contents: list[object] = [{}, [], "", None, 0, False, {"a": 1}, {"a": "1"}, {"a": [1]}, [1, 2], [2, 1], ["1,2"]]
    assert len({stable_hash(c) for c in contents}) == len(contents)
    assert stable_hash((1, 2)) == stable_hash([1, 2])
    assert stable_hash({"a": 1}) == hashlib.sha256(b'{"a":1}').hexdigest()

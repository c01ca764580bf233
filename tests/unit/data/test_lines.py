from __future__ import annotations

import gzip
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolshift.data.errors import AdapterError
from toolshift.data.lines import Line, numbered_lines, read_lines

VALUES = st.none() | st.integers() | st.text() | st.lists(st.text(max_size=3), max_size=3)


@given(values=st.lists(VALUES, max_size=6), packed=st.booleans(), end=st.sampled_from(["\n", "\r\n", "\n\n \n"]))
def test_lines_are_what_was_written_with_their_numbers(values: list[Any], packed: bool, end: str) -> None:
    data = "".join(json.dumps(value, ensure_ascii=False) + end for value in values).encode("utf-8", "surrogatepass")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.jsonl"
        path.with_name("rows.jsonl.gz" if packed else "rows.jsonl").write_bytes(gzip.compress(data) if packed else data)
        lines = list(read_lines(path))
    assert [line.value for line in lines] == values
    step = end.count("\n")
    assert [line.number for line in lines] == [1 + step * n for n in range(len(values))]


def test_a_faulty_line_costs_only_itself(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'\xef\xbb\xbf1\n{"cut\n"\xff"\n' + b"[" * 100_000 + b"\n" + b"9" * 5000 + b"\n2")
    assert list(read_lines(path)) == [
        Line(number=1, value=1),
        Line(number=2, fault="malformed_json"),
        Line(number=3, fault="not_utf8"),
        Line(number=4, fault="malformed_json"),
        Line(number=5, fault="malformed_json"),
        Line(number=6, value=2),
    ]


def test_files_that_are_missing_folders_or_cut_are_errors(tmp_path: Path) -> None:
    with pytest.raises(AdapterError, match=r"rows\.jsonl: no such file \(nor rows\.jsonl\.gz beside it\)"):
        list(numbered_lines(tmp_path / "rows.jsonl"))
    (tmp_path / "rows.jsonl").mkdir()
    with pytest.raises(AdapterError, match="is a folder, not a file"):
        list(numbered_lines(tmp_path / "rows.jsonl"))
    packed = gzip.compress(b"".join(b"%d\n" % (n * 7919) for n in range(20_000)))
    (tmp_path / "cut.jsonl.gz").write_bytes(packed[: len(packed) // 2])
    with pytest.raises(AdapterError, match=r"cut\.jsonl\.gz: cannot be read beyond line [1-9]\d*"):
        list(numbered_lines(tmp_path / "cut.jsonl"))
    (tmp_path / "no.jsonl.gz").write_bytes(b"not packed")
    with pytest.raises(AdapterError, match=r"no\.jsonl\.gz: cannot be read beyond line 0"):
        list(numbered_lines(tmp_path / "no.jsonl"))

"""Tools out of files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from toolshift.agents.outcomes import AgentError
from toolshift.agents.tools import read_tools

ROPE = {"name": "rope", "parameters": {"properties": {"depth": {"type": "number"}}, "required": ["depth"]}}


def test_lines_of_a_corpus_with_operations(tmp_path: Path) -> None:
    path = tmp_path / "corpus.jsonl"
    low = {"name": "Next low", "arguments": [{"name": "harbour", "type": "string", "required": True}, {"name": "day"}]}
    path.write_text(json.dumps({"_id": "t", "name": "Tides", "endpoints": [low, {"name": "all"}]}) + "\n")
    first, second = read_tools(path).tools
    assert (first.name, second.name) == ("t.next_low", "t.all")
    assert first.schema["required"] == ["harbour"]
    assert first.schema["properties"]["day"] == {}
    assert "harbour (string, required)" in first.text


def test_openai_lists_in_all_wrappings_and_duplicates_word_for_word(tmp_path: Path) -> None:
    path = tmp_path / "tools.json"
    path.write_text(json.dumps({"tools": [ROPE, {"type": "function", "function": ROPE}]}))
    found = read_tools(path)
    assert [tool.name for tool in found.tools] == ["rope"]
    assert found.merged == 1


def test_an_empty_registry_is_a_registry(tmp_path: Path) -> None:
    (tmp_path / "tools.json").write_text("[]")
    assert read_tools(tmp_path / "tools.json").tools == ()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.json", json.dumps([ROPE, {**ROPE, "description": "other"}]), "two different tools are called 'rope'"),
        ("a.json", "{", "a.json: "),
        ("a.json", '{"x": 1}', "expected a list"),
        ("a.json", '[{"description": "x"}]', "tool 1: the tool has no name"),
        ("a.json", '[{"name": "x", "parameters": {"type": "string"}}]', "tool 1: parameters"),
        ("a.jsonl", '{"name": "x"}\nno json\n', "a.jsonl:2: malformed json"),
        ("a.jsonl", '{"name": "x", "arguments": [1]}\n', "a.jsonl:1: arguments"),
        ("a.jsonl", '{"name": "x", "endpoints": [{}]}\n', "a.jsonl:1: an operation"),
    ],
)
def test_what_cannot_be_used_is_named_with_its_place(name: str, content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(AgentError, match=message):
        read_tools(tmp_path / name)

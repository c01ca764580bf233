"""``scripts/agent.py`` as a user calls it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

TOOLS = [
    {"name": "rope_length", "description": "Length of rope for an anchorage of some depth.", "parameters": {
        "type": "object", "properties": {"depth": {"type": "number"}}, "required": ["depth"]}},
    {"name": "list_harbours", "description": "Names of all known harbours."},
]  # fmt: skip
QUERY = "query=Compute the length of rope for an anchorage of depth 4, and list the names of all harbours."


def run(tools: Any, folder: Path, *arguments: str) -> Any:
    (folder / "tools.json").write_text(json.dumps(TOOLS))
    return tools.wait(tools.start(folder, "tools=tools.json", *arguments, script="agent"), folder)


def test_functions_are_called_and_their_results_recorded_and_replayed(tools: Any, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def rope_length(depth):\n    return depth * 5\n")
    given = ("executor=functions", "functions=mine.py", "results=results.jsonl", "format=json")
    done = run(tools, tmp_path, QUERY, *given)
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert [(o["kind"], o["tool"], o.get("result"), o.get("reason")) for o in found["outcomes"]] == [
        ("selected", "rope_length", "20", None),
        ("error", "list_harbours", None, "no_function"),
    ]
    replay = run(
        tools, tmp_path, QUERY, "executor=cached", "results=results.jsonl", "format=json", "allow=[rope_length]"
    )
    assert replay.code == 0, replay.err
    again = json.loads(replay.out)["outcomes"]
    assert again[0] == found["outcomes"][0]
    assert again[1]["reason"] == "not_allowed"


def test_bad_commands_are_refused_without_a_traceback(tools: Any, tmp_path: Path) -> None:
    for arguments, code, message in (
        (("qery=x",), 2, "did you mean 'query'"),
        ((QUERY, "executor=functions"), 2, "belong together"),
        ((QUERY, "tools=absent.json"), 1, "absent.json: no such file"),
        ((QUERY, "allow=[rope]"), 1, "did you mean 'rope_length'"),
        ((QUERY, "llm.model=nobody"), 1, "nothing is recorded of nobody"),
    ):
        done = run(tools, tmp_path, *arguments)
        done.refuse_traceback()
        assert (done.code, message in done.err) == (code, True), done.err

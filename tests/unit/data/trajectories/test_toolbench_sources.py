"""ToolBench's four shapes, each written by hand here, over the miniature library of the data tests."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import pytest

from toolshift.data.errors import AdapterError
from toolshift.data.records import Section, Task
from toolshift.data.trajectories import AUTHORS, PAPER, Rules, Trajectories, read_trajectories

FORECAST, SOUP = "get_forecast_for_sky_view", "find_soup_for_soup_book"
FORECAST_ID, SOUP_ID = "toolbench/Weather/sky_view/get_forecast", "toolbench/Food/soup_book/find_soup"
ANSWER = '{"return_type": "give_answer", "final_answer": "Done."}'
GIVE_UP = '{"return_type": "give_up_and_restart"}'
FINE, FAULT = '{"error": "", "response": "ok"}', '{"error": "Timeout", "response": ""}'

Step = tuple[str, str, int]  # name, response, observation code


class Release(Protocol):
    root: Path

    def put(self, relative: str, content: Any) -> Path: ...


def listing(*names: str) -> list[dict[str, Any]]:
    return [function(name, name.rpartition("_for_")[2]) for name in names]


def function(name: str, tool: str, description: str = "") -> dict[str, Any]:
    text = f'This is the subfunction for tool "{tool}", you can use this tool.'
    text += f'The description of this function is: "{description}"' if description else ""
    schema = {"type": "object", "properties": {"day": {"type": "string", "description": "Which."}}, "required": ["day"]}
    return {"name": name, "description": text, "parameters": schema}


def nodes(steps: Sequence[Step]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for name, response, code in steps:
        found.append({"node_type": "Thought", "description": "Hm."})
        found.append({"node_type": "Action", "description": name})
        given = {"node_type": "Action Input", "description": "{}", "observation": response, "observation_code": code}
        found.append(given)
    return found


def nested(path: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {**path[0], "children": [nested(path[1:])] if len(path) > 1 else []}


def answer(steps: Sequence[Step], functions: list[Any], *, win: bool = True, query: str = "Will it rain?") -> Any:
    """A tree whose first branch led nowhere."""
    path = nodes([*steps, ("Finish", "{}", 3 if win else 4)])
    dead = nested(nodes([("dead_end_for_sky_view", FINE, 0)]))
    root = {"node_type": "Action Input", "description": "", "children": [dead, nested(path)]}
    generation = {"query": query, "function": functions, "final_answer": ANSWER if win else GIVE_UP}
    return {
        "win": win,
        "compare_candidates": [path] if win else [],
        "tree": {"tree": root},
        "answer_generation": generation,
    }


def read(release: Release, *names: str, rules: Rules = PAPER) -> Trajectories:
    return read_trajectories(release.root, names=[f"toolbench/{name}" for name in names], rules=rules)


def only(trajectories: Trajectories) -> Task:
    assert len(trajectories) == 1
    return trajectories.tasks[0]


# ------------------------------------------------------------------------------------------------------------ answers


def test_a_won_tree_gives_the_path_to_its_answer(release: Release) -> None:
    steps = [(FORECAST, FAULT, 12), (FORECAST, FINE, 0), (SOUP, FINE, 0)]
    release.put("answer/m_G1/7_DFS_woFilter_w2.json", answer(steps, listing(FORECAST, SOUP, "Finish")))
    result = read(release, "answers", rules=AUTHORS)
    task = only(result)
    assert task.calls == (FORECAST_ID, FORECAST_ID, SOUP_ID)
    assert task.task_id == "toolbench/answer/m_G1/7_DFS_woFilter_w2"
    assert (task.text, task.ordered, task.domain) == ("Will it rain?", True, "Food")
    assert task.gold_endpoint_ids == (SOUP_ID, FORECAST_ID)
    assert result.origin == ("toolbench/answer",)
    assert result.report.sections["toolbench/answer:calls"] == Section(rows_read=4, records=3, dropped={"finish": 1})
    assert only(read(release, "answers", rules=PAPER)).calls == (FORECAST_ID, SOUP_ID)


def test_errors_are_dropped_on_demand(release: Release) -> None:
    steps = [(FORECAST, FINE, 0), (SOUP, FAULT, 0), (SOUP, '{"error": "", "respo', 11), (SOUP, "cut", 0)]
    release.put("answer/m/1.json", answer(steps, listing(FORECAST, SOUP)))
    result = read(release, "answers", rules=Rules(deduplicate=False, error_free=True))
    # The last one is kept: code 0 and no error to be seen.
    assert only(result).calls == (FORECAST_ID, SOUP_ID)
    assert result.report.sections["toolbench/answer:calls"].dropped == {"error": 2, "finish": 1}


def test_invented_names_are_dropped(release: Release) -> None:
    steps = [("no_such_for_sky_view", FAULT, 1), (SOUP, FINE, 0), (FORECAST, FINE, 0)]
    release.put("answer/m/1.json", answer(steps, listing(FORECAST)))  # the soup is known but was not given
    result = read(release, "answers")
    assert only(result).calls == (FORECAST_ID,)
    assert result.report.sections["toolbench/answer:calls"].dropped == {"finish": 1, "hallucinated_name": 2}


def test_lost_runs_are_counted_and_kept_on_demand(release: Release) -> None:
    release.put("answer/m/1.json", answer([(FORECAST, FINE, 0)], listing(FORECAST), win=False))
    release.put("answer/m/2.json", answer([(SOUP, FINE, 0)], listing(SOUP)))
    result = read(release, "answers")
    assert result.report.sections["toolbench/answer:trajectories"] == Section(
        rows_read=2, records=1, dropped={"not_successful": 1}
    )
    both = read(release, "answers", rules=Rules(successful=False))
    assert [task.calls for task in both.tasks] == [(FORECAST_ID,), (SOUP_ID,)]  # of a lost tree, the last path


def test_a_chain_of_tries_is_read_too(release: Release) -> None:
    content = answer([(SOUP, FINE, 0)], listing(SOUP), win=False)
    del content["tree"]
    content["trys"] = [{"chain": nodes([(FORECAST, FINE, 0)])}, {"chain": nodes([(SOUP, FINE, 0)])}]
    release.put("data_example/answer/G1_answer/3_CoT@1.json.gz", content)
    result = read(release, "answers", rules=Rules(successful=False))
    assert only(result).calls == (SOUP_ID,)
    assert result.origin == ("toolbench/data_example",)


def test_a_function_that_only_the_list_documents_becomes_an_endpoint(release: Release) -> None:
    new, lost = "rain_radar_for_sky_view", "fly_for_moon_ship"
    functions = [
        function(new, "sky_view", "Shows rain."),
        function(lost, "moon_ship"),
        *listing(FORECAST),
    ]
    release.put("answer/m/1.json", answer([(new, FINE, 0), (lost, FINE, 0)], functions))
    result = read(release, "answers")
    assert only(result).calls == ("toolbench/Weather/sky_view/rain_radar", "toolbench/unlisted/moon_ship/fly")
    assert only(result).domain == "Weather"
    ends = {e.endpoint_id: e for e in result.library.endpoints}
    radar = ends["toolbench/Weather/sky_view/rain_radar"]
    assert (radar.source, radar.description, radar.text) == ("task", "Shows rain.", "rain radar: Shows rain.")
    assert [(a.name, a.required) for a in radar.arguments] == [("day", True)]
    tools = {c.capability_id: c for c in result.library.capabilities}
    assert tools["toolbench/Weather/sky_view"].schema_source == "both"
    assert (tools["toolbench/unlisted/moon_ship"].schema_source, tools["toolbench/unlisted/moon_ship"].domain) == (
        "task",
        "",
    )


def test_bad_files_are_counted(release: Release) -> None:
    release.put("answer/m/1.json", answer([(FORECAST, FINE, 0)], listing(FORECAST)))
    release.put("answer/m/2.json", b"{")
    release.put("answer/m/3.json", b"[]")
    release.put("answer/m/4.json", {"win": True})
    release.put("answer/m/5.json", answer([(FORECAST, FINE, 0)], listing(FORECAST), query="  "))
    release.put("answer/m/6.json", answer([], listing(FORECAST)))
    section = read(release, "answers").report.sections["toolbench/answer:trajectories"]
    assert section == Section(
        rows_read=6,
        records=1,
        dropped={
            "empty_query": 1,
            "malformed_json": 1,
            "missing_answer_generation": 1,
            "no_call_left": 1,
            "not_an_object": 1,
        },
    )


# ----------------------------------------------------------------------------------------------- tooleval and pass rate


def message(name: str, response: str) -> str:
    return repr({"name": name, "arguments": "{}", "response": response})


def chain(*messages: str) -> list[Any]:
    below: list[Any] = []
    for role, text in reversed([("system", ""), ("user", "q"), *(("tool", m) for m in messages)]):
        below = [{"role": role, "message": text, "next": below}]
    return below


def test_tooleval_messages_are_cut_and_still_read(release: Release) -> None:
    long = message(FORECAST, "x" * 200)[:100]
    details = chain(long, message(SOUP, FAULT)[:100], message("Finish", ANSWER)[:100])
    row = {
        "query": "Step 3: Will it rain?",
        "available_tools": listing(FORECAST, SOUP),
        "answer": {"final_answer": ANSWER, "answer_details": details},
    }
    lost = {**row, "answer": {"final_answer": GIVE_UP, "answer_details": details}}
    release.put("tooleval/results/set/me_CoT/G1.json", {"12": row, "13": lost, "14": []})
    result = read(release, "tooleval", rules=Rules(deduplicate=False, error_free=True))
    assert only(result).calls == (FORECAST_ID,)
    assert (only(result).task_id, only(result).text) == ("toolbench/me_CoT/set/G1/12", "Will it rain?")
    assert result.report.notes["calls_of_unknown_error"] == 1
    assert result.report.sections["toolbench/me_CoT:trajectories"].dropped == {"not_an_object": 1, "not_successful": 1}
    assert result.report.sections["toolbench/me_CoT:calls"].dropped == {"error": 1, "finish": 1}


def test_pass_rate_needs_a_majority_and_reads_numbered_steps(release: Release) -> None:
    # The second step holds a line that looks like a step but has the wrong number.
    steps = [message(SOUP, FINE), message(FORECAST, FINE) + "\nStep 7: {'name': 'no_step', 'response': ''}"]
    steps.append(message("invalid_hallucination_function_name", FAULT))
    steps.append(message("Finish", ANSWER))
    text = "\n".join(f"Step {i}: {step}" for i, step in enumerate(steps, start=1))
    names = [FORECAST, SOUP, "Finish", "ghost_for_nobody"]

    def row(*votes: str) -> dict[str, Any]:
        solved = {str(i): f"AnswerStatus.{vote}" for i, vote in enumerate(votes)}
        return {"query": "q", "tool_names": names, "answer_steps": text, "is_solved": solved}

    rows = {"1": row("Solved", "Unsure", "Solved"), "2": row("Solved", "Unsolved", "Unsure"), "3": row()}
    release.put("pass_rate_results/me_dfs/G1.json", rows)
    result = read(release, "pass_rate")
    assert only(result).calls == (SOUP_ID, FORECAST_ID)
    assert result.report.sections["toolbench/me_dfs:trajectories"].dropped == {"not_successful": 2}
    assert result.report.sections["toolbench/me_dfs:calls"].dropped == {"finish": 1, "hallucinated_name": 1}


def test_a_listed_name_is_dropped_unless_another_source_documents_it(release: Release) -> None:
    ghost = "fly_for_moon_ship"
    text = "\n".join(f"Step {i}: {message(name, FINE)}" for i, name in enumerate([ghost, SOUP], start=1))
    row = {"query": "q", "tool_names": [ghost, SOUP], "answer_steps": text, "is_solved": {"0": "AnswerStatus.Solved"}}
    release.put("pass_rate_results/me_dfs/G1.json", {"1": row})
    result = read(release, "pass_rate")
    assert only(result).calls == (SOUP_ID,)
    assert result.report.sections["toolbench/me_dfs:calls"].dropped == {"undocumented_name": 1}

    details = chain(message(ghost, FINE)[:100])
    answer = {"final_answer": ANSWER, "answer_details": details}
    documented = {"query": "q", "available_tools": listing(ghost), "answer": answer}
    release.put("tooleval/results/set/me_CoT/G1.json", {"1": documented})
    for names in (("pass_rate", "tooleval"), ("tooleval", "pass_rate")):
        both = read(release, *names)
        assert [task.calls for task in both.tasks] == [
            ("toolbench/unlisted/moon_ship/fly",),
            ("toolbench/unlisted/moon_ship/fly", SOUP_ID),
        ]


# ---------------------------------------------------------------------------------------------------------- toolllama


def conversation(*turns: tuple[str, str], functions: Sequence[Any] = (), step: int = 1) -> dict[str, Any]:
    system = f"You can use tools. Specifically, you have access to the following APIs: {list(functions)!r}"
    said = [("system", system), ("user", "\nWill it rain?\nBegin!\n"), *turns]
    return {
        "id": f"Step {step}: Will it rain?",
        "conversations": [{"from": speaker, "value": value} for speaker, value in said],
    }


def act(name: str, arguments: str = "{}") -> tuple[str, str]:
    return "assistant", f"\nThought: Action: none\nAction: {name}\nAction Input: {arguments}"


def test_toolllama_rows_are_streamed_and_only_finished_ones_kept(release: Release) -> None:
    functions = listing(FORECAST, SOUP)
    history = [act(FORECAST), ("function", FINE), act(SOUP), ("function", FAULT), act(SOUP), ("function", FINE)]
    rows = [
        conversation(*history[:2], functions=functions),
        conversation(*history, act("Finish", ANSWER), functions=functions, step=4),
        conversation(*history, act("Finish", GIVE_UP), functions=functions, step=4),
        # Given up once, then answered: the last marker decides.
        conversation(act("Finish", GIVE_UP), ("function", ""), act(SOUP), act("Finish", ANSWER), functions=functions),
        {"id": "Step 1: x"},
    ]
    release.put("toolllama_G123_dfs_train.json.gz", rows)
    result = read(release, "toolllama", rules=AUTHORS)
    assert [task.calls for task in result.tasks] == [(FORECAST_ID, SOUP_ID, SOUP_ID), (SOUP_ID,)]
    assert [task.task_id for task in result.tasks] == [
        "toolbench/toolllama_train/000001",
        "toolbench/toolllama_train/000003",
    ]
    assert {task.text for task in result.tasks} == {"Will it rain?"}
    assert result.report.sections["toolbench/toolllama_train:trajectories"] == Section(
        rows_read=5, records=2, dropped={"missing_conversations": 1, "not_successful": 2}
    )
    clean = read(release, "toolllama", rules=Rules(deduplicate=False, error_free=True))
    assert clean.tasks[0].calls == (FORECAST_ID, SOUP_ID)


def test_toolllama_documents_come_from_the_prompt(release: Release) -> None:
    new = "rain_radar_for_sky_view"
    functions = [function(new, "sky_view", "It's for rain.")]
    row = conversation(act(new), ("function", FINE), act("made_up_for_me"), act("Finish", ANSWER), functions=functions)
    release.put("data/toolllama_G123_dfs_eval.json", [row])
    result = read(release, "toolllama")
    assert only(result).calls == ("toolbench/Weather/sky_view/rain_radar",)
    assert result.origin == ("toolbench/toolllama_eval",)
    dropped = result.report.sections["toolbench/toolllama_eval:calls"].dropped
    assert dropped == {"finish": 1, "hallucinated_name": 1}
    found = next(e for e in result.library.endpoints if e.operation == "rain_radar")
    assert found.description == "It's for rain."


def test_a_cut_toolllama_file_is_an_error(release: Release) -> None:
    path = release.put("toolllama_G123_dfs_train.json", [conversation(act("Finish", ANSWER))] * 3)
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(AdapterError, match="after 2 complete rows"):
        read(release, "toolllama")


# ---------------------------------------------------------------------------------------------------------- the entry


def test_missing_files_and_wrong_names_are_named(release: Release) -> None:
    for name in ("answers", "pass_rate", "tooleval", "toolllama"):
        with pytest.raises(AdapterError, match="no "):
            read(release, name)
    with pytest.raises(AdapterError, match="toolbench/pass_rate"):
        read(release, "stories")
    with pytest.raises(AdapterError, match="each once"):
        read(release, "answers", "answers")
    with pytest.raises(AdapterError, match="each once"):
        read(release)


def test_nothing_left_is_an_error_that_says_why(release: Release) -> None:
    release.put("answer/m/1.json", answer([(FORECAST, FINE, 0)], listing(FORECAST), win=False))
    with pytest.raises(AdapterError, match="not_successful"):
        read(release, "answers")


def test_gz_reads_like_plain(release: Release) -> None:
    content = answer([(FORECAST, FINE, 0)], listing(FORECAST))
    path = release.put("answer/m/1.json", content)
    plain = read(release, "answers").tasks
    path.unlink()
    path.with_name("1.json.gz").write_bytes(gzip.compress(json.dumps(content).encode()))
    assert read(release, "answers").tasks == plain

"""Trajectories of the sample, in the four shapes in which ToolBench's are released, for the library of its records.

They are files of their own, beside the sample, whose hash they do not touch: ``<folder>/trajectories-<spec.name>/
toolbench/...``. Requests, tools and chains of calls are those of the world (``docs/sample.md``): what one step takes
from an earlier one's result is why the order of two calls is no accident. Agents answer one request up to four times,
give up, fail and try again, invent names, call what was not asked for, and now and then a function that only their own
list documents.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from toolshift.data.sample.draws import Draws
from toolshift.data.sample.files import MANIFEST, HashedFolder, manifest_if_intact, replaced_folder
from toolshift.data.sample.formats.toolbench import Rendering
from toolshift.data.sample.tasks import SampleTask, draw_tasks
from toolshift.data.sample.world import SizeName, Spec, World, build_world
from toolshift.data.trajectories._sample_runs import Agents, SampleRun, Step
from toolshift.runs.files import sha256_file, stable_hash, write_json

NAMES = ("toolbench/answers", "toolbench/pass_rate", "toolbench/tooleval", "toolbench/toolllama")
"""The sources that read what is written here."""
SUCCESSFUL: Mapping[SizeName, int] = {"tiny": 100, "small": 600, "large": 50_000}
"""Trajectories with a success marker; those of the last request may bring up to three more."""
_PER_TASK = 1.1
"""Of these per request, somewhat fewer than are drawn on average, so that the requests suffice."""
_DATASET = "toolbench"
_SHAPES = ("toolllama", "tooleval", "pass_rate", "answers")
_P_FIRST = (0.5, 0.2, 0.15, 0.15)  # of the shape in which a request comes first
_P_AGAIN = 0.25  # of each other shape
_MAX_TREES = 200  # one file each
_P_SHORT = 0.5  # that a request of one step is asked at all
_P_HISTORY = 0.3  # that a conversation is also there as it was before its last step
_CUT = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class TrajectorySample:
    """Trajectories on disk: ``root`` for ``read_trajectories``, how many have a success marker, whether this call wrote
    them."""

    root: Path
    successful: int
    generated: bool


def write_sample_trajectories(folder: Path, spec: Spec) -> TrajectorySample:
    """Write the trajectories of a sample, unless they are there already, made by this code with these arguments.

    Raises:
        OSError: if the disk is full or the folder not writable; nothing half-written is left.
    """
    target = folder / f"trajectories-{spec.name}"
    made_by = {"code": _code_hash(), **asdict(spec)}
    found = manifest_if_intact(target, made_by)
    if found is not None:
        return TrajectorySample(root=target, successful=int(str(found["successful"])), generated=False)
    with replaced_folder(target) as new:
        files = HashedFolder(new)
        with ExitStack() as stack:
            stack.callback(files.close)
            successful = _write(files, spec)
        hashes = dict(sorted(files.hashes.items()))
        manifest = {**made_by, "successful": successful, "files": hashes}
        write_json(new / MANIFEST, {**manifest, "sha256": stable_hash(hashes), "world_hash": ""})
    return TrajectorySample(root=target, successful=successful, generated=True)


def _write(files: HashedFolder, spec: Spec) -> int:
    world = build_world(spec)
    agents, writer, successful = Agents(Rendering(world)), _Writer(files), 0
    asked = _asked(world)
    for task in draw_tasks(world):
        draws = Draws("trajectories", spec.size, spec.seed, task.row)
        if task.domain not in asked or (len(task.calls) < 2 and not draws.chance(_P_SHORT)):
            continue
        for shape in _shapes(draws, trees=writer.trees):
            own = Draws("trajectory", spec.world, spec.size, spec.seed, task.row, shape)
            run = agents.run(task, own)
            successful += run.success
            writer.add(shape, run, task, own)
        if successful >= SUCCESSFUL[spec.size]:
            break
    writer.close()
    return successful


def _asked(world: World) -> frozenset[str]:
    """Domains of the requests: as few as give enough, since in requests from everywhere hardly a pair of calls would
    occur twice. The library stays whole."""
    full = [domain.name for domain in world.domains if not domain.tiny]
    needed = math.ceil(SUCCESSFUL[world.spec.size] / (_PER_TASK * world.spec.tasks_per_domain))
    return frozenset(full[:needed])


def _shapes(draws: Draws, *, trees: int) -> Iterator[str]:
    first = _SHAPES[draws.weighted([sum(_P_FIRST[: i + 1]) for i in range(len(_SHAPES))])]
    for shape in _SHAPES:
        chosen = draws.chance(_P_AGAIN) or shape == first
        if chosen:
            yield "toolllama" if shape == "answers" and trees >= _MAX_TREES and first == shape else shape


class _Writer:
    """Writes runs; memory holds the rows of the two shapes whose files are one object."""

    def __init__(self, files: HashedFolder) -> None:
        self.files = files
        self.trees = 0
        self._objects: dict[str, dict[str, Any]] = {}

    def add(self, shape: str, run: SampleRun, task: SampleTask, draws: Draws) -> None:
        kind = f"G{min(len(task.calls), 3)}_instruction"
        if shape == "toolllama":
            self._conversation(run, draws)
        elif shape == "answers":
            if self.trees < _MAX_TREES:
                self._answer(run, kind, chain=draws.chance(0.5))
        else:
            path, row = _tooleval(run, kind) if shape == "tooleval" else _pass_rate(run, kind, draws)
            self._objects.setdefault(path, {})[str(run.key)] = row

    def close(self) -> None:
        for path, rows in self._objects.items():
            self.files.write(path, rows)

    def _conversation(self, run: SampleRun, draws: Draws) -> None:
        path = f"{_DATASET}/toolllama_G123_dfs_{'eval' if run.key % 40 == 0 else 'train'}.json"
        turns = list(_turns(run))
        if draws.chance(_P_HISTORY):
            self.files.append(path, _row(run, turns[:-1], step=len(run.steps)))
        self.files.append(path, _row(run, turns, step=len(run.steps) + 1))

    def _answer(self, run: SampleRun, kind: str, *, chain: bool) -> None:
        self.trees += 1
        name = f"{run.key}_{'CoT@1' if chain else 'DFS_woFilter_w2'}.json"
        self.files.write(f"{_DATASET}/answer/toolllama2_{kind}/{name}", _answer(run, chain=chain))


# ---------------------------------------------------------------------------------------------------------- the shapes


def _row(run: SampleRun, turns: Sequence[Mapping[str, str]], *, step: int) -> dict[str, object]:
    return {"id": f"Step {step}: {run.text}", "conversations": list(turns)}


def _turns(run: SampleRun) -> Iterator[dict[str, str]]:
    """A conversation: prompt, request, and a turn of each side per call."""
    yield {"from": "system", "value": f"Use functions. You can use the following APIs: {list(run.functions)!r}"}
    yield {"from": "user", "value": f"\n{run.text}\nBegin!\n"}
    for step in run.steps:
        yield {"from": "assistant", "value": _said(step.name, step.arguments)}
        yield {"from": "function", "value": step.response}
    yield {"from": "assistant", "value": _said("Finish", run.final)}


def _said(name: str, arguments: Mapping[str, str]) -> str:
    return f"\nThought: \nAction: {name}\nAction Input: {json.dumps(arguments, ensure_ascii=False, indent=1)}"


def _answer(run: SampleRun, *, chain: bool) -> dict[str, object]:
    """An answer file: one try as a chain, or a tree whose first branch was given up."""
    path = [node for step in run.steps for node in _nodes(step.name, step.arguments, step.response, step.code)]
    path += _nodes("Finish", run.final, "{}", 3 if run.success else 4)
    dead_end = _nodes(run.steps[0].name, {}, '{"error": "Unknown", "response": ""}', 12)
    content: dict[str, object] = {
        "win": run.success,
        "compare_candidates": [path] if run.success else [],
        "answer_generation": {
            "valid_data": run.success,
            "final_answer": json.dumps(run.final),
            "function": [*run.functions, {"name": "Finish", "description": "Call it at the end.", "parameters": {}}],
            "query": run.text,
        },
    }
    if chain:
        return {**content, "trys": [{"chain": path}]}
    root = {"node_type": "Action Input", "description": "", "children": [_nested(dead_end), _nested(path)]}
    return {**content, "tree": {"tree": root}}


def _nodes(name: str, arguments: Mapping[str, str], response: str, code: int) -> list[dict[str, object]]:
    return [
        {"node_type": "Action", "description": name},
        {
            "node_type": "Action Input",
            "description": json.dumps(arguments, ensure_ascii=False),
            "observation": response,
            "observation_code": code,
        },
    ]


def _nested(path: Sequence[Mapping[str, object]]) -> dict[str, object]:
    below = [_nested(path[1:])] if len(path) > 1 else []
    return {**path[0], "children": below}


def _tooleval(run: SampleRun, kind: str) -> tuple[str, dict[str, object]]:
    """A chain of messages, each cut as released; the chain of a lost run may end without a final call."""
    messages = [("tool", _printed(step)) for step in run.steps]
    messages.append(("tool", _printed(Step(name="Finish", arguments=run.final, response=""))))
    below: list[dict[str, object]] = []
    for role, message in reversed([("system", ""), ("user", run.text), *messages]):
        below = [{"role": role, "message": message[:_CUT], "next": below}]
    answer = {
        "method": "sample_CoT",
        "total_steps": len(messages),
        "final_answer": json.dumps(run.final),
        "answer_details": below,
    }
    path = f"{_DATASET}/tooleval/results/default_evalset/sample_CoT/{kind}.json"
    return path, {"query": run.text, "available_tools": list(run.functions), "answer": answer}


def _pass_rate(run: SampleRun, kind: str, draws: Draws) -> tuple[str, dict[str, object]]:
    """Numbered steps as text, names of the functions, and three judgements, one of which may err."""
    steps = [*run.steps, Step(name="Finish", arguments=run.final, response="")]
    verdicts = ["AnswerStatus.Solved" if run.success else "AnswerStatus.Unsolved"] * 3
    if draws.chance(0.3):
        verdicts[draws.below(3)] = "AnswerStatus.Unsure"
    row = {
        "query": run.text,
        "tool_names": [*(function["name"] for function in run.functions), "Finish"],
        "answer_steps": "\n".join(f"Step {number}: {_printed(step)}" for number, step in enumerate(steps, start=1)),
        "final_step": f"Final step: {_printed(steps[-1])}",
        "is_solved": {str(judge): verdict for judge, verdict in enumerate(verdicts)},
        "length": len(steps),
    }
    return f"{_DATASET}/pass_rate_results/sample_dfs/{kind}.json", row


def _printed(step: Step) -> str:
    return repr({"name": step.name, "arguments": json.dumps(step.arguments), "response": step.response})


def _code_hash() -> str:
    """The hash of the code that the files follow from."""
    here = Path(__file__).parent
    sample = here.parent / "sample"
    own = [here / "_sample_runs.py", here / "_toolbench.py", here / "functions.py", Path(__file__)]
    world = [path for path in sorted(sample.glob("*.py")) if path.name != "frozen.py"]
    formats = [sample / "formats" / name for name in ("base.py", "toolbench.py")]
    others = [here.parent / "names.py", here.parents[1] / "runs" / "seeds.py"]
    return stable_hash([sha256_file(path) for path in (*own, *world, *formats, *others)])

"""The sample in APIBench's upstream layout, with the quirks that an adapter must survive on the real release.

JSON Lines in spite of ``.json``; three hubs, each with the API records of its domains and query files for training and
evaluation (the files of TensorFlow Hub have two prefixes). A capability is a line of code that loads it: some records
say a call again in other words and another spelling. Arguments are an object, a list of names or of objects, a text, a
Python literal or a placeholder, and hardly ever say what is required; names of Torch Hub belong to several calls.

A query row has one call: requests with several steps, or with several valid calls, are several rows of one text. The
call may be spelled differently from the record's, or be wrapped in an assignment that no record has, so that only name
and fields find it. The request stands inside ``code``: marked, with or without an input or a marker for none, or, in
the training file of Torch Hub, as a Python literal whose texts are unquoted. Requests stay within their domain.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from hashlib import sha256

from toolshift.data.names import local_name
from toolshift.data.sample.draws import Draws
from toolshift.data.sample.files import HashedFolder
from toolshift.data.sample.formats.base import refuse_equal_ids
from toolshift.data.sample.phrasing import sentences
from toolshift.data.sample.shape import one_function_each, with_domain_names, within_domains
from toolshift.data.sample.tasks import SampleTask
from toolshift.data.sample.truth import Ids
from toolshift.data.sample.world import Parameter, SampleCapability, World

DATASET = "apibench"
_HUBS = ("huggingface", "tensorflowhub", "torchhub")
_PREFIX = {"tensorflowhub": "tensorflow"}
_FRAMEWORKS = {
    "huggingface": "Hugging Face Transformers",
    "tensorflowhub": "TensorFlow Hub",
    "torchhub": "PyTorch",
}
_REWORDED_EVERY = 4
_SHAPES = 6
_P_EVAL = 0.3
_P_INPUT = 0.2
_P_NO_INPUT = 0.1
_P_OTHER_SPELLING = 0.05
_P_WRAPPED = 0.1


def shaped(world: World) -> World:
    """Every endpoint is a call; domains have blanks in their names."""
    return with_domain_names(within_domains(one_function_each(world)), lambda name: name.replace("_", " "))


def open_writer(files: HashedFolder, world: World) -> ApiBenchWriter:
    """A writer for a shaped world."""
    writer = ApiBenchWriter(files, world)
    refuse_equal_ids(writer.ids)
    return writer


class ApiBenchWriter:
    """Writes the API records at once and query rows as tasks come."""

    def __init__(self, files: HashedFolder, world: World) -> None:
        self.files, self.world = files, world
        self.hubs = {domain.name: _HUBS[place % len(_HUBS)] for place, domain in enumerate(world.domains)}
        self.calls = [_call(row, self.hubs[row.domain]) for row in world.capabilities]

    @cached_property
    def ids(self) -> Ids:
        """Ids as the adapter makes them from hub, call and functionality."""
        rows = list(zip(self.world.capabilities, self.calls, strict=True))
        capability = [f"{DATASET}/{self.hubs[row.domain]}/{local_name(call)}" for row, call in rows]
        operations = [local_name(endpoint.document.operation) for endpoint in self.world.endpoints]
        endpoint = [f"{owner}/{name}" for owner, name in zip(capability, operations, strict=True)]
        return Ids(capability=tuple(capability), endpoint=tuple(endpoint))

    def text(self, task: SampleTask) -> str:
        """The request: an instruction, in some rows with an input on a line of its own."""
        instruction, material = self._parts(task)
        return f"{instruction}\n{material}" if material else instruction

    def task_id(self, task: SampleTask) -> str:
        """The id of the record that a request becomes."""
        return f"{DATASET}/{sha256(self.text(task).encode()).hexdigest()[:16]}"

    def write_tools(self) -> None:
        """Write the API records of every hub, some of them twice."""
        for row in self.world.capabilities:
            path = f"{DATASET}/api/{self.hubs[row.domain]}_api.jsonl"
            record = self._record(row)
            self.files.append_line(path, record)
            if row.row % _REWORDED_EVERY == 0:
                call = f"{self.calls[row.row]}.".replace("'", '"')
                reworded = {"description": f"Serves {row.domain.lower()}.", "api_arguments": "N/A"}
                self.files.append_line(path, {**record, "api_call": call, **reworded})

    def add(self, task: SampleTask) -> None:
        """Write a row for every valid call of a task."""
        draws = self._draws("row", task)
        hub = self.hubs[task.domain]
        split = "eval" if draws.chance(_P_EVAL) else "train"
        path = f"{DATASET}/apibench/{_PREFIX.get(hub, hub)}_{split}.json"
        for row in task.gold:
            call = self._written_call(row, draws)
            self.files.append_line(
                path,
                {
                    "code": self._code(task, call, draws, literal=(hub, split) == ("torchhub", "train")),
                    "api_call": call,
                    "provider": _FRAMEWORKS[hub],
                    "api_data": {**self._record(self.world.capabilities[row]), "api_call": call},
                },
            )

    def close(self) -> None:
        """Check that every hub has queries.

        Raises:
            ValueError: if one has none, because it has no domain.
        """
        silent = sorted(set(_HUBS) - set(self.hubs.values()))
        if silent:
            raise ValueError(f"no domain for {', '.join(silent)}; the sample needs at least {len(_HUBS)} domains")

    def _draws(self, purpose: str, task: SampleTask) -> Draws:
        spec = self.world.spec
        return Draws(f"{DATASET} {purpose}", spec.size, spec.seed, task.row)

    # -- API records

    def _record(self, row: SampleCapability) -> dict[str, object]:
        document = self.world.endpoints[row.row].document
        hub, call = self.hubs[row.domain], self.calls[row.row]
        return {
            "domain": row.domain,
            "framework": _FRAMEWORKS[hub],
            "functionality": document.operation,
            "api_name": self._name(row),
            "api_call": call,
            "api_arguments": _api_arguments((*document.required, *document.optional), row.row % _SHAPES),
            "python_environment_requirements": [] if hub == "huggingface" else "pip install models",
            "example_code": [f"model = {call}"] if hub == "torchhub" else f"model = {call}",
            "performance": {"dataset": "N/A", "accuracy": "N/A"},
            "description": row.description,
        }

    def _name(self, row: SampleCapability) -> str:
        if self.hubs[row.domain] == "torchhub":
            concept = self.world.concepts[self.world.endpoints[row.row].concept]
            return concept.noun
        return "/".join(_words(row)) if self.hubs[row.domain] == "huggingface" else local_name(row.name)

    # -- query rows

    def _parts(self, task: SampleTask) -> tuple[str, str]:
        first, *rest = sentences(task.text)
        if rest and self._draws("input", task).chance(_P_INPUT):
            return first, " ".join(rest)
        return task.text, ""

    def _written_call(self, row: int, draws: Draws) -> str:
        call = self.calls[row]
        drawn = draws.unit()
        if drawn < _P_WRAPPED:
            return f"model = {call}"
        return call.replace("'", '"') if drawn < _P_WRAPPED + _P_OTHER_SPELLING else call

    def _code(self, task: SampleTask, call: str, draws: Draws, *, literal: bool) -> str:
        instruction, material = self._parts(task)
        unneeded = draws.chance(_P_NO_INPUT) and not material
        if literal:
            given = f", 'Input': {material}" if material else ", 'Input': <noinput>" if unneeded else ""
            answer = {"domain": task.domain, "api_call": call, "api_provider": "PyTorch", "code": f"model = {call}"}
            return f"{{'Instruction': {instruction}{given}, 'Output': {answer!r}}}"
        marked = f"{instruction} **Input:<noinput>**" if unneeded else instruction
        given = f"\n###Input: {material}" if material else ""
        answer = f"<<<domain>>>: {task.domain}\n<<<api_call>>>: {call}\n<<<code>>>: model = {call}"
        return f"###Instruction: {marked}{given}\n###Output: {answer}\n"


def _words(row: SampleCapability) -> tuple[str, str]:
    """Provider and name of a model, as a hub spells them."""
    provider, _, rest = local_name(row.name).partition("_")
    return provider, rest.replace("_", "-")


def _call(row: SampleCapability, hub: str) -> str:
    provider, name = _words(row)
    if hub == "huggingface":
        return f"AutoModel.from_pretrained('{provider}/{name}')"
    if hub == "tensorflowhub":
        return f"hub.load('https://hub.example/{provider}/{name}/1')"
    return f"torch.hub.load(repo_or_dir='{provider}/models', model='{name}', pretrained=True)"


def _api_arguments(parameters: Sequence[Parameter], shape: int) -> object:
    """Arguments in one of the shapes that records have."""
    names = [parameter.name for parameter in parameters]
    described: Mapping[str, object] = {p.name: p.description or _word(p) for p in parameters}
    objects = [{"name": p.name, "type": _word(p), "description": p.description} for p in parameters]
    shapes: Sequence[object] = (
        described,
        names,
        ", ".join(f"{p.name}: {p.description}" if p.description else p.name for p in parameters),
        objects,
        repr(names),
        {p.name: _word(p) for p in parameters},
    )
    return shapes[shape]


def _word(parameter: Parameter) -> str:
    words = {"NUMBER": "int", "BOOLEAN": "bool", "ARRAY": "list"}
    return words.get(parameter.raw_type, "str")

"""Every upstream format of the sample, read back by its adapter and held against the truth."""

from __future__ import annotations

import gc
import os
import pkgutil
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from itertools import islice
from pathlib import Path

import pytest

from toolshift.data import sample
from toolshift.data.records import Records, Task
from toolshift.data.sample import (
    MANIFEST,
    WORLDS,
    SampleInfo,
    SampleTask,
    Spec,
    Truth,
    World,
    WorldName,
    build_world,
    draw_tasks,
    formats,
    read_truth,
    world_of,
    write_sample,
)
from toolshift.data.sample.draws import Draws
from toolshift.data.sample.files import HashedFolder
from toolshift.data.sample.formats.base import alternatives, distractors, format_of, given_arguments
from toolshift.data.sample.frozen import FORMAT_WORLD_HASH
from toolshift.data.sample.shape import one_function_each, within_domains
from toolshift.experiment.data import open_records
from toolshift.runs.files import read_json, sha256_file
from toolshift.settings.compose import load_settings


@dataclass(frozen=True)
class Form:
    """What a format tells: how many of the twelve domains, gold, the order of calls (``always``: also where several
    sequences are right), whether it holds tasks of its own making, which are kept apart, whether it adds words to some
    requests, and how many tools it puts into another domain."""

    domains: int = 12
    gold: bool = True
    ordered: bool = True
    always: bool = False
    further: bool = False
    adds_words: bool = False
    strays: int = 0
    dropped: frozenset[str] = frozenset()


FORMATS = {
    "apibank": Form(domains=11, always=True, further=True, adds_words=True, strays=1),
    "apibench": Form(ordered=False),
    "bfcl": Form(always=True, further=True),
    "jsonl": Form(),
    "metatool": Form(domains=0, ordered=False, further=True, adds_words=True),
    "taskbench": Form(dropped=frozenset({"not_in_tool_desc"})),
    "toolbench": Form(ordered=False),
    "tooleyes": Form(gold=False, ordered=False, dropped=frozenset({"control_entry"})),
    "trajectbench": Form(),
}
SEVERAL: tuple[WorldName, ...] = ("no_function_gap", "no_context_gap")  # several capabilities are valid per step


@dataclass(frozen=True)
class Opened:
    info: SampleInfo
    world: World
    drawn: tuple[SampleTask, ...]
    records: Records
    truth: Truth

    @cached_property
    def tasks(self) -> dict[str, Task]:
        """Records of the world's tasks."""
        known = set(self.truth.tasks["task_id"].to_pylist())
        every = (*self.records.tasks, *self.records.apart)
        return {task.task_id: task for task in every if task.task_id in known}


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, WorldName], Opened]:
    """The tiny sample of a world in a dataset's format; written and read once per module."""
    folder = tmp_path_factory.mktemp("formats")
    kept: dict[tuple[str, WorldName], Opened] = {}

    def open_one(dataset: str, name: WorldName) -> Opened:
        if (dataset, name) not in kept:
            spec = Spec(world=name, size="tiny", tasks=None if name == "default" else 20)
            info = write_sample(folder, spec, dataset=dataset)
            world = format_of(dataset).shaped(build_world(world_of(spec, dataset=dataset)))
            kept[dataset, name] = Opened(
                info=info,
                world=world,
                drawn=tuple(draw_tasks(world)),
                records=import_module(f"toolshift.data.adapters.{dataset}").read(info.root),
                truth=read_truth(info.root, dataset=dataset),
            )
        return kept[dataset, name]

    return open_one


Open = Callable[[str, WorldName], Opened]
everywhere = pytest.mark.parametrize("name", WORLDS)
each = pytest.mark.parametrize("dataset", sorted(FORMATS))


def test_every_format_is_tested() -> None:
    names = {module.name for module in pkgutil.iter_modules(formats.__path__)}
    assert {name for name in names if hasattr(import_module(f"{formats.__name__}.{name}"), "open_writer")} == set(
        FORMATS
    )


# ---------------------------------------------------------------------------------------- records, world and truth meet


@each
@everywhere
def test_requests_are_those_of_the_world(opened: Open, dataset: str, name: WorldName) -> None:
    it = opened(dataset, name)
    form, told = FORMATS[dataset], it.truth.tasks.to_pylist()
    assert len(it.drawn) == len(told) == len(it.tasks)
    more = 0
    for task, row in zip(it.drawn, told, strict=True):
        text = _words(it.tasks[row["task_id"]].text)
        more += text != task.text
        assert text.startswith(task.text)
        assert [step["function"] for step in row["requirements"]] == [r.group.function for r in task.requirements]
    assert more <= 0.2 * len(told) if form.adds_words else more == 0
    further = len(it.records.tasks) + len(it.records.apart) - len(it.drawn)
    # The other worlds are opened with half the tasks, of which a format may make nothing of its own.
    assert (further > 0 or name != "default") if form.further else further == 0
    assert len(it.records.tasks) == (len(it.drawn) if form.gold else 0)


def _words(text: str) -> str:
    """A request on one line."""
    return " ".join(text.split())


@each
@everywhere
def test_the_library_is_that_of_the_truth(opened: Open, dataset: str, name: WorldName) -> None:
    it = opened(dataset, name)
    library = it.records.library
    assert [c.capability_id for c in library.capabilities] == sorted(it.truth.capabilities["capability_id"].to_pylist())
    assert [e.endpoint_id for e in library.endpoints] == sorted(it.truth.endpoints["endpoint_id"].to_pylist())
    assert len(library.capabilities) == len(it.world.capabilities)
    assert len(library.endpoints) == len(it.world.endpoints)
    owner = {row["endpoint_id"]: row["capability_id"] for row in it.truth.endpoints.to_pylist()}
    assert {e.endpoint_id: e.capability_id for e in library.endpoints} == owner


@each
@everywhere
def test_gold_is_what_the_truth_calls_valid(opened: Open, dataset: str, name: WorldName) -> None:
    it = opened(dataset, name)
    if not FORMATS[dataset].gold:
        assert it.records.tasks == ()
        assert it.records.unscorable
        assert {task.no_gold for task in it.records.apart} == {"not_annotated"}
        return
    assert not it.records.unscorable
    valid: dict[str, set[str]] = {}
    for row in it.truth.judgements.to_pylist():
        if row["valid"]:
            valid.setdefault(row["task_id"], set()).add(row["capability_id"])
    assert {t.task_id: set(t.gold_capability_ids) for t in it.records.tasks} == valid
    answers = {
        task["task_id"]: {e for step in task["requirements"] for e in step["gold_endpoint_ids"]}
        for task in it.truth.tasks.to_pylist()
    }
    assert {t.task_id: set(t.gold_endpoint_ids) for t in it.records.tasks} == answers
    assert (max(_width(task) for task in it.drawn) > 1) == (name in SEVERAL)


def _width(task: SampleTask) -> int:
    return max(len(step.gold) for step in task.requirements)


@each
@everywhere
def test_order_is_that_of_the_calls(opened: Open, dataset: str, name: WorldName) -> None:
    it = opened(dataset, name)
    calls = {row["task_id"]: row["calls"] for row in it.truth.tasks.to_pylist()}
    ordered = [task for task in it.records.tasks if task.ordered]
    for task in ordered:
        assert list(task.calls) == calls[task.task_id]
    form = FORMATS[dataset]
    if not form.ordered or (name in SEVERAL and not form.always):
        # Where several capabilities are valid there are several sequences, so none is the order.
        assert ordered == []
    else:
        assert len(ordered) > sum(len(chain) > 1 for chain in calls.values()) / 2


@each
@everywhere
def test_domains_are_those_of_the_world(opened: Open, dataset: str, name: WorldName) -> None:
    it = opened(dataset, name)
    told = {task.domain for task in it.tasks.values()} - {""}
    assert len(told) == FORMATS[dataset].domains
    domain = {row["task_id"]: row["domain"] for row in it.truth.tasks.to_pylist()}
    place = {row["capability_id"]: row["domain"] for row in it.truth.capabilities.to_pylist()}
    for task_id, task in it.tasks.items():
        assert task.domain == (domain[task_id] if domain[task_id] in told else "")
    expected = {key: where if where in told else "" for key, where in place.items()}
    strays = [c for c in it.records.library.capabilities if c.domain != expected[c.capability_id]]
    assert len(strays) == FORMATS[dataset].strays


@each
def test_no_row_of_it_is_lost_but_by_design(opened: Open, dataset: str) -> None:
    report = opened(dataset, "default").records.report
    assert {reason for rows in report.sections.values() for reason in rows.dropped} == FORMATS[dataset].dropped


# ----------------------------------------------------------------------------------------------------- worlds and bytes


def test_datasets_show_different_worlds(opened: Open) -> None:
    texts = {dataset: {task.text for task in opened(dataset, "default").drawn} for dataset in FORMATS}
    hashes = {opened(dataset, "default").info.world_hash for dataset in FORMATS}
    assert len(hashes) == len(FORMATS)
    for dataset, own in texts.items():
        for other in FORMATS:
            if other != dataset:
                assert len(own & texts[other]) < 0.01 * len(own)


def test_seeds_follow_from_dataset_and_seed() -> None:
    spec = Spec(size="tiny", seed=3)
    assert world_of(spec, dataset="toolbench") == spec
    seeds = {world_of(Spec(seed=seed), dataset=name).seed for name in ("jsonl", "taskbench") for seed in (0, 1)}
    assert len(seeds) == 4
    other = world_of(spec, dataset="jsonl")
    assert (other.world, other.size, other.tasks) == (spec.world, spec.size, spec.tasks)


@each
def test_the_world_of_a_format_is_the_frozen_one(opened: Open, dataset: str) -> None:
    """A failure here voids every result made on this dataset's sample so far (docs/sample.md)."""
    assert opened(dataset, "default").info.world_hash == FORMAT_WORLD_HASH[dataset]


def test_the_same_seed_gives_the_same_bytes_in_any_process(tmp_path: Path) -> None:
    spec = Spec(size="tiny", seed=5, tasks=20)
    program = (
        "import sys; from pathlib import Path; from toolshift.data.sample import Spec, write_sample as w\n"
        "for dataset in sys.argv[2:]:\n"
        "    print(w(Path(sys.argv[1]), Spec(size='tiny', seed=5, tasks=20), dataset=dataset).sha256)"
    )
    here = [write_sample(tmp_path / "here", spec, dataset=dataset).sha256 for dataset in FORMATS]
    environment = {**os.environ, "PYTHONHASHSEED": "7", "PYTHONPATH": str(Path(sample.__file__).parents[3])}
    command = [sys.executable, "-c", program, str(tmp_path / "there"), *FORMATS]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    assert done.stdout.split() == here
    assert len(set(here)) == len(FORMATS)


@pytest.mark.parametrize("dataset", sorted(set(FORMATS) - {"toolbench"}))
def test_it_is_written_once_and_repaired(tmp_path: Path, dataset: str) -> None:
    spec = Spec(size="tiny", tasks=20)
    first = write_sample(tmp_path, spec, dataset=dataset)
    assert first.root == tmp_path / f"{dataset}-default-tiny-0-20"
    assert sorted(p.name for p in first.root.iterdir()) == sorted([MANIFEST, dataset, "truth"])
    assert not write_sample(tmp_path, spec, dataset=dataset).generated
    manifest = read_json(first.root / MANIFEST)
    assert (manifest["dataset"], manifest["seed"], manifest["world_seed"]) == (
        dataset,
        0,
        world_of(spec, dataset=dataset).seed,
    )
    next(path for path in sorted((first.root / dataset).rglob("*.json*")) if path.is_file()).write_text("[]")
    again = write_sample(tmp_path, spec, dataset=dataset)
    assert (again.generated, again.sha256, again.files) == (True, first.sha256, first.files)


def test_an_unknown_format_is_refused(tmp_path: Path) -> None:
    for dataset in ("no_such_dataset", "base", "../toolbench"):
        with pytest.raises(ValueError, match="has no such format"):
            write_sample(tmp_path, Spec(size="tiny"), dataset=dataset)
    assert list(tmp_path.iterdir()) == []


@each
def test_memory_does_not_grow_with_the_tasks(tmp_path: Path, dataset: str) -> None:
    form = format_of(dataset)
    world = form.shaped(build_world(Spec(size="small")))
    files = HashedFolder(tmp_path)
    writer = form.open_writer(files, world)
    writer.write_tools()
    drawn = draw_tasks(world)
    for task in islice(drawn, 300):
        writer.add(task)
    tracemalloc.start()
    try:
        for task in islice(drawn, 100):
            writer.add(task)
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        added = sum(1 for task in islice(drawn, 600) if writer.add(task) is None)
        gc.collect()
        after = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
        files.close()
    assert added == 600
    # Some hundred bytes a task would be over 60 kB; what is left is the buffer of a file that was opened since.
    assert after - before < 60_000


@each
def test_data_sample_reads_the_sample_of_the_dataset(tmp_path: Path, dataset: str) -> None:
    overrides = [f"dataset={dataset}", "data.sample_size=tiny", f"data.cache={tmp_path}"]
    loaded = open_records(load_settings("train", overrides))
    records = loaded.records
    assert records.dataset == dataset
    found = len(records.tasks) + len(records.apart)
    assert found > 448 if FORMATS[dataset].further else found == 448
    roots = [path.name for path in (tmp_path / "sample").iterdir() if (path / MANIFEST).is_file()]
    assert roots == ["default-tiny-0" if dataset == "toolbench" else f"{dataset}-default-tiny-0"]


# --------------------------------------------------------------------------------------------------- shapes and helpers


@everywhere
def test_one_function_each(name: WorldName) -> None:
    world = build_world(Spec(world=name, size="tiny"))
    shaped = one_function_each(world)
    assert len(shaped.capabilities) == len(shaped.endpoints) == len(world.endpoints)
    assert len({row.name for row in shaped.capabilities}) == len(shaped.capabilities)
    for place, (capability, endpoint) in enumerate(zip(shaped.capabilities, shaped.endpoints, strict=True)):
        product = world.capabilities[world.endpoints[place].capability]
        assert capability.row == endpoint.row == endpoint.capability == place
        assert capability.endpoints == (place,)
        assert (capability.axis, capability.admits, capability.domain) == (
            product.axis,
            product.admits,
            product.domain,
        )
        assert capability.description == f"{endpoint.document.description} {product.description}".strip()
        assert endpoint.document == world.endpoints[place].document
    for group in shaped.domains[0].groups:
        # All that speaks of the concept and is no rival has another function.
        others = [shaped.endpoints[row] for row in shaped.speakers[group.concept] if row not in group.rivals]
        assert all(endpoint.function != group.function for endpoint in others)
        assert set(shaped.false_friends(group)) == (set() if name == "no_function_gap" else {e.row for e in others})


def test_one_function_each_keeps_the_requests() -> None:
    world = build_world(Spec(size="tiny"))
    plain, shaped = list(draw_tasks(world)), list(draw_tasks(one_function_each(world)))
    assert [task.calls for task in plain] == [task.calls for task in shaped]
    assert [task.conditions for task in plain] == [task.conditions for task in shaped]


def test_within_domains() -> None:
    world = build_world(Spec(size="tiny"))
    assert any(_away(world, task) for task in draw_tasks(world))
    assert not any(_away(world, task) for task in draw_tasks(within_domains(world)))


def _away(world: World, task: SampleTask) -> bool:
    return {world.concepts[r.group.concept].domain for r in task.requirements} != {task.domain}


@everywhere
def test_alternatives_are_sequences_that_hold_the_gold(name: WorldName) -> None:
    world = build_world(Spec(world=name, size="tiny"))
    for task in islice(draw_tasks(world), 60):
        chains = alternatives(task)
        assert chains[0] == task.calls
        assert {row for chain in chains for row in chain} == set(task.gold)
        for chain in chains:
            assert all(row in step.gold for row, step in zip(chain, task.requirements, strict=True))
        assert len(chains) == len(set(chains))
        assert (len(chains) > 1) == (_width(task) > 1)


def test_distractors_do_not_answer() -> None:
    world = build_world(Spec(size="tiny"))
    near = 0
    for task in islice(draw_tasks(world), 60):
        rows = list(distractors(world, task, Draws("test", task.row), count=4))
        assert len(rows) == len(set(rows)) <= 4
        assert not set(rows) & {world.endpoints[row].capability for row in task.gold}
        spoken = {row for r in task.requirements for row in world.speakers[r.group.concept]}
        near += len(spoken & set(rows))
    assert near > 60


def test_arguments_are_those_the_request_mentions() -> None:
    world = build_world(Spec(size="tiny"))
    sources = 0
    for task in islice(draw_tasks(world), 100):
        for row, step in zip(task.calls, task.requirements, strict=True):
            given = given_arguments(world.endpoints[row].document, step)
            assert [g.name for g in given] == [p.name for p in world.endpoints[row].document.required]
            assert all(g.value in task.text for g in given)
            sources += sum(g.source is not None for g in given)
    assert sources > 0


def test_dealt_documents_leave_out_what_is_not_mentioned() -> None:
    world = build_world(Spec(world="no_function_gap", size="tiny"))
    left_out = 0
    for task in islice(draw_tasks(world), 100):
        for row, step in zip(task.calls, task.requirements, strict=True):
            document = world.endpoints[row].document
            given = given_arguments(document, step)
            kinds = {mention.kind for mention in step.mentions}
            assert [g.name for g in given] == [p.name for p in document.required if p.kind in kinds]
            left_out += len(document.required) - len(given)
    assert left_out > 0


# ------------------------------------------------------------------------------------------------------------- files


def test_files_are_hashed_as_they_are_written(tmp_path: Path) -> None:
    files = HashedFolder(tmp_path)
    files.write("a/one.json", {"k": "ü"})
    files.write_text("b.csv", "x,y\n")
    files.append("c.json", 1)
    files.append("c.json", {"z": 2})
    files.append_line("d.jsonl", {"z": "ß"})
    files.append_line("d.jsonl", [])
    files.append_text("e.tsv", "p\tq\n")
    assert (files.count("c.json"), files.count("d.jsonl"), files.count("none")) == (2, 2, 0)
    files.close()
    assert (tmp_path / "c.json").read_text() == '[\n1,\n{"z": 2}\n]\n'
    assert (tmp_path / "d.jsonl").read_text() == '{"z": "ß"}\n[]\n'
    assert (tmp_path / "e.tsv").read_text() == "p\tq\n"
    assert (tmp_path / "b.csv").read_text() == "x,y\n"
    assert files.hashes == {path: sha256_file(tmp_path / path) for path in files.hashes}
    assert sorted(files.hashes) == ["a/one.json", "b.csv", "c.json", "d.jsonl", "e.tsv"]

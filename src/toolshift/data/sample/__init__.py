"""The sample benchmark: a generated world with its truth, written in upstream formats and read by the same adapters.

It proves that the software works and nothing about a paper; every table made from it is labelled ``sample
(synthetic)``. ``docs/sample.md`` describes the world, the null worlds and what freezes them.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from toolshift.data.sample.files import MANIFEST, HashedFolder, manifest_if_intact, replaced_folder
from toolshift.data.sample.formats.base import format_of
from toolshift.data.sample.frozen import TOOLBENCH_HASH, WORLD_HASH
from toolshift.data.sample.tasks import SampleTask, draw_tasks
from toolshift.data.sample.truth import FOLDER, Truth, TruthWriter, WorldHash, read_truth
from toolshift.data.sample.world import SIZES, WORLDS, SizeName, Spec, World, WorldName, build_world
from toolshift.runs.files import sha256_file, stable_hash, write_json
from toolshift.runs.seeds import seed_of

__all__ = [
    "LABEL",
    "MANIFEST",
    "SIZES",
    "TOOLBENCH_HASH",
    "WORLDS",
    "WORLD_HASH",
    "SampleInfo",
    "SampleTask",
    "SizeName",
    "Spec",
    "Truth",
    "World",
    "WorldName",
    "build_world",
    "draw_tasks",
    "read_truth",
    "world_hash",
    "world_of",
    "write_sample",
]

LABEL = "sample (synthetic)"
_LOG = logging.getLogger(__name__)
_FIRST = "toolbench"


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleInfo:
    """A sample on disk: ``root`` is the adapter's root, ``sha256`` of its upstream files, ``world_hash`` of the world
    they show, ``generated`` whether this call wrote it."""

    root: Path
    sha256: str
    world_hash: str
    files: int
    generated: bool


def write_sample(folder: Path, spec: Spec, *, dataset: str = _FIRST) -> SampleInfo:
    """Write a sample in the upstream format of a dataset, unless it is there already, made by this code with these
    arguments.

    It goes to ``<folder>/<spec.name>``, that of any other dataset than ToolBench to ``<folder>/<dataset>-<spec.name>``.
    Below it lie ``<dataset>/`` in the upstream layout, ``truth/<dataset>/`` (``read_truth``) and ``SAMPLE.json``, which
    records label, arguments, code and content hashes. Everything appears by one rename. A folder whose files changed is
    written again; a world that is not the frozen one is logged as a warning. Which world it is, ``world_of`` says.

    Raises:
        ValueError: if the sample has no such format, or if there are too few tasks per domain to show all that the
            format must show.
        OSError: if the disk is full or the folder not writable; nothing half-written is left.
    """
    form = format_of(dataset)
    target = folder / (spec.name if dataset == _FIRST else f"{dataset}-{spec.name}")
    made_by = {"label": LABEL, "code": _code_hash(dataset), "dataset": dataset, **asdict(spec)}
    found = manifest_if_intact(target, made_by)
    if found is not None:
        return _info(target, found, generated=False)
    world = form.shaped(build_world(world_of(spec, dataset=dataset)))
    with replaced_folder(target) as new:
        manifest = {**made_by, "world_seed": world.spec.seed, **_write(new, world, dataset=dataset)}
        write_json(new / MANIFEST, manifest)
    if dataset == _FIRST:
        _compare_with_frozen(spec, manifest)
    return _info(target, manifest, generated=True)


def world_of(spec: Spec, *, dataset: str) -> Spec:
    """The world that a dataset's sample shows: for ToolBench that of ``spec``; for any other dataset one whose seed
    follows from dataset and seed by name, so that no two datasets show the same tools and requests. The word lists are
    the same, so names of domains and things recur."""
    return spec if dataset == _FIRST else replace(spec, seed=seed_of("sample format", dataset, spec.seed))


def world_hash(spec: Spec) -> str:
    """The hash of a world and its tasks, nothing written."""
    world = build_world(spec)
    hashed = WorldHash(world)
    for task in draw_tasks(world):
        hashed.add(task)
    return hashed.hexdigest()


def _write(folder: Path, world: World, *, dataset: str) -> dict[str, object]:
    """Fill a new folder in one pass over the tasks; returns what the manifest says about the content."""
    hashed = WorldHash(world)
    truth_folder = folder / FOLDER / dataset
    files = HashedFolder(folder)
    with ExitStack() as stack:
        stack.callback(files.close)
        writer = format_of(dataset).open_writer(files, world)
        truth = TruthWriter(truth_folder, world, ids=writer.ids)
        stack.callback(truth.close)
        writer.write_tools()
        truth.write_library()
        for task in draw_tasks(world):
            hashed.add(task)
            writer.add(task)
            truth.add(task, task_id=writer.task_id(task))
        writer.close()
    upstream = dict(sorted(files.hashes.items()))
    beside = {f"{FOLDER}/{dataset}/{path.name}": sha256_file(path) for path in sorted(truth_folder.iterdir())}
    return {"sha256": stable_hash(upstream), "world_hash": hashed.hexdigest(), "files": {**upstream, **beside}}


def _info(target: Path, manifest: Mapping[str, object], *, generated: bool) -> SampleInfo:
    names = manifest["files"]
    assert isinstance(names, Mapping)
    return SampleInfo(
        root=target,
        sha256=str(manifest["sha256"]),
        world_hash=str(manifest["world_hash"]),
        files=len(names),
        generated=generated,
    )


def _code_hash(dataset: str) -> str:
    """The hash of the code that a sample follows from: this package but the frozen hashes, the format, and the adapter,
    whose ids the truth is written in."""
    here = Path(__file__).parent
    common = sorted(path for path in here.glob("*.py") if path.name != "frozen.py")
    own = [here / "formats" / "base.py", *sorted((here / "formats").glob(f"{dataset}*.py"))]
    adapter = sorted((here.parent / "adapters").glob(f"*{dataset}*.py"))
    others = [here.parent / "names.py", here.parents[1] / "runs" / "seeds.py"]
    return stable_hash([sha256_file(path) for path in (*common, *own, *adapter, *others)])


def _compare_with_frozen(spec: Spec, manifest: Mapping[str, object]) -> None:
    key = (spec.world, spec.size)
    if spec.seed or spec.tasks is not None or key not in WORLD_HASH:
        return
    for frozen, name in ((WORLD_HASH, "world_hash"), (TOOLBENCH_HASH, "sha256")):
        if frozen[key] != manifest[name]:
            _LOG.warning(
                "the %s sample %s is not the frozen one (%s %s, expected %s): results on it cannot be compared with "
                "earlier ones; see docs/sample.md",
                spec.size,
                spec.world,
                name,
                manifest[name],
                frozen[key],
            )

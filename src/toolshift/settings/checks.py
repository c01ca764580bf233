"""Checks that need more than one type: ranges, contradictions between keys, names that must exist elsewhere."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from toolshift.settings.axes import NOT_AN_AXIS, expand_axes, with_value
from toolshift.settings.convert import kind_problem
from toolshift.settings.errors import ConfigError
from toolshift.settings.nearest import nearest, suggestion
from toolshift.settings.options import groups, model_names, option_body
from toolshift.settings.schema import ModelSettings, Settings

Problems = Iterator[str]

MEASURE = re.compile(r"(MRR|RR)|(MRR|NDCG|HR|R|P)@([1-9][0-9]*)")
# What the columns of a table tell apart.
COMPARED = ("view.universe", "view.miner", "protocol.purge", "protocol.dedup")
_MEASURE_NAMES = ("MRR", "RR", "NDCG", "HR", "R", "P")
_TARGET = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")


def problems(settings: Settings, *, folder: Path) -> list[str]:
    """Everything wrong with ``settings``, in a fixed order; empty if it can run.

    Args:
        settings: converted settings, types already right.
        folder: ``conf/``, whose option files are the schema of the open mappings.
    """
    found = [problem for check in _CHECKS for problem in check(settings)]
    found += _datasets(settings, folder)
    found += _option_problems(settings, folder)
    return found or _axes(settings, folder)


def _top(settings: Settings) -> Problems:
    yield from _distinct("seeds", settings.seeds)
    if any(seed < 0 for seed in settings.seeds):
        yield f"seeds: must not be negative, got {list(settings.seeds)}"
    if not re.fullmatch(r"[A-Za-z0-9_-]+", settings.name):
        yield f"name: {settings.name!r} names a folder; use letters, digits, _ and - only"


def _data(settings: Settings) -> Problems:
    data = settings.data
    if data.source == "real" and not data.root:
        yield (
            f"data.root: data=real needs the folder that holds {settings.dataset.name}/; "
            "give data.root=PATH or set the variable TOOLSHIFT_DATA"
        )
    if data.source == "sample" and data.root is not None:
        yield f"data.root: the generated sample reads no folder; did you mean data=real data.root={data.root}?"
    if data.source == "real" and data.world != "default":
        yield f"data.world: only the generated sample has worlds; did you mean data=sample data.world={data.world}?"
    yield from _at_least("data.sample_seed", data.sample_seed, 0)


def _dataset(settings: Settings) -> Problems:
    if settings.dataset.unit == "endpoint":
        yield "dataset.unit: ranking endpoints is not there yet; use dataset.unit=capability"


def _encoder(settings: Settings) -> Problems:
    yield from _between("encoder.max_truncated_share", settings.encoder.max_truncated_share, low=0, high=1)


def _view(settings: Settings) -> Problems:
    view = settings.view
    if view.length < 2:
        yield f"view.length: a list needs at least 2 candidates, got {view.length}"
    elif not 0 <= view.hard < view.length:
        yield f"view.hard: must be at least 0 and below view.length={view.length}, got {view.hard}"
    yield from _at_least("view.top", view.top, 1)
    yield from _at_least("view.seed", view.seed, 0)
    yield from _at_least("view.min_available", view.min_available, 2)
    yield from _between("view.duplicate_cosine", view.duplicate_cosine, low=0, high=1)
    yield from _between("view.argument_overlap", view.argument_overlap, low=0, high=1)
    if not view.views:
        yield "view.views: at least one view is needed, for example view=natural"


def _selection(settings: Settings) -> Problems:
    selection = settings.selection
    if selection.budget not in selection.budgets:
        yield f"selection.budget: {selection.budget!r} is not a budget{suggestion(selection.budget, selection.budgets)}"
    for name, budget in selection.budgets.items():
        where = f"selection.budgets.{name}"
        yield from _at_least(f"{where}.folds", budget.folds, 2)
        yield from _at_least(f"{where}.epochs", budget.epochs, 1)
        for key in ("settings", "max_tasks", "validation_tasks", "batch_tasks"):
            value = getattr(budget, key)
            if value is not None:
                yield from _at_least(f"{where}.{key}", value, 1)


def _protocol(settings: Settings) -> Problems:
    protocol = settings.protocol
    yield from _between("protocol.near_cosine", protocol.near_cosine, low=0, high=1)
    if protocol.max_source_tasks is not None:
        yield from _at_least("protocol.max_source_tasks", protocol.max_source_tasks, 1)


def _datasets(settings: Settings, folder: Path) -> Problems:
    """Names behind protocol.datasets, and the preset itself."""
    protocol, known = settings.protocol, groups(folder)["dataset"]
    for name in protocol.dataset_names:
        if name not in known:
            options = sorted({*protocol.presets, *known})
            yield f"protocol.datasets: no dataset or preset {name!r}{suggestion(name, options)}"


def _study(settings: Settings) -> Problems:
    study = settings.study
    if (study.name == "none") != (study.target is None):
        yield "study.target: every study but none names its class, and none has no class"


def _models(settings: Settings) -> Problems:
    for name, model in settings.models.items():
        if model.name != name:
            yield f"models.{name}.name: must be {name!r}, got {model.name!r}"
        yield from _grid(model)


def _grid(model: ModelSettings) -> Problems:
    for key, values in model.grid.items():
        where = f"models.{model.name}.grid.{key}"
        if key not in model.params:
            yield f"{where}: {model.name} has no such parameter{suggestion(key, model.params)}"
            continue
        yield from _distinct(where, values)
        wrong = (kind_problem(value, model.params[key]) for value in values)
        yield from (f"{where}: {problem}" for problem in wrong if problem)


def _targets(settings: Settings) -> Problems:
    named = {
        "dataset.target": settings.dataset.target,
        "encoder.target": settings.encoder.target,
        "protocol.target": settings.protocol.target,
        **({"study.target": settings.study.target} if settings.study.target else {}),
        **{f"view.views.{name}.target": recipe.target for name, recipe in settings.view.views.items()},
        **{f"models.{name}.target": model.target for name, model in settings.models.items()},
    }
    for key, target in named.items():
        if not _TARGET.fullmatch(target):
            yield f"{key}: expected package.module:name, got {target!r}"


def _evaluation(settings: Settings) -> Problems:
    evaluation = settings.evaluation
    yield from _distinct("evaluation.measures", evaluation.measures)
    yield from (measure_problem(name) for name in evaluation.measures if not MEASURE.fullmatch(name))
    yield from _distinct("evaluation.slices", evaluation.slices)
    yield from _at_least("evaluation.replicates", evaluation.replicates, 1)
    yield from _at_least("evaluation.min_tasks", evaluation.min_tasks, 1)
    yield from _at_least("evaluation.seed", evaluation.seed, 0)
    if not 0 < evaluation.confidence < 1:
        yield f"evaluation.confidence: must lie between 0 and 1, got {evaluation.confidence}"


def measure_problem(name: str) -> str:
    """What is wrong with a measure's name, with the nearest valid one."""
    word, _, cutoff = name.partition("@")
    base = word if word in _MEASURE_NAMES else nearest(word, _MEASURE_NAMES) or "MRR"
    depth = cutoff if re.fullmatch("[1-9][0-9]*", cutoff) else "5"
    best = base if base == "RR" or (base == "MRR" and not cutoff) else f"{base}@{depth}"
    return f"evaluation.measures: {name!r} is no measure; did you mean {best!r}? (MRR, or MRR, NDCG, HR, R, P with @k)"


def _runtime(settings: Settings) -> Problems:
    yield from _at_least("runtime.max_pairs_in_memory", settings.runtime.max_pairs_in_memory, 1)
    for key in ("max_tasks", "max_targets", "replicates"):
        limit = getattr(settings.debug, key)
        if limit is not None:
            yield from _at_least(f"debug.{key}", limit, 1)


def _tracking(settings: Settings) -> Problems:
    tracking = settings.tracking
    if tracking.name == "none" and tracking.mode == "online":
        yield "tracking.mode: there is no tracker to be online; did you mean tracking=wandb tracking.mode=online?"
    if not tracking.project:
        yield "tracking.project: must not be empty"
    yield from _distinct("tracking.tags", tracking.tags) if tracking.tags else ()


def _axes(settings: Settings, folder: Path) -> list[str]:
    """Each value of an axis must be a valid setting by itself, and each combination a valid experiment."""
    found = [problem for key, values in settings.compare.items() for problem in _axis(settings, key, values)]
    if settings.compare and not found:
        variants = expand_axes(settings)
        found = [f"compare: {problem}" for variant in variants for problem in problems(variant, folder=folder)]
    if not found:
        found = [
            f"compare.{key}: a table has no column for it; use a sweep (-m), or compare {', '.join(COMPARED)}"
            for key in settings.compare
            if key not in COMPARED
        ]
    return list(dict.fromkeys(found))


def _axis(settings: Settings, key: str, values: Sequence[object]) -> Problems:
    if key.split(".")[0] in NOT_AN_AXIS:
        yield f"compare.{key}: this key names a run or does not change its result; it cannot be compared"
        return
    yield from _distinct(f"compare.{key}", values)
    for value in values:
        try:
            with_value(settings, key, value)
        except ConfigError as error:
            yield from (f"compare: {problem}" for problem in error.problems)


def _option_problems(settings: Settings, folder: Path) -> list[str]:
    """Open mappings against the files that define their keys and types."""
    known = model_names(folder)
    found: list[str] = []
    for group, name, key, given in _open_mappings(settings):
        body = option_body(folder, group, name)
        if body is None:
            # A row that an experiment defines in place has no file; its class checks its parameters when built.
            found += [f"{group}.name: there is no conf/{group}/{name}.yaml"] if group != "model" else []
            continue
        schema: object = body.get("options" if group == "dataset" else "params")
        found += _against(given, cast("Mapping[str, Any]", schema or {}), where=key)
    for model in settings.models.values():
        over = model.params.get("over", ())
        unknown = [name for name in cast("Sequence[str]", over) if name not in known and name not in settings.models]
        found += [f"models.{model.name}.params.over: no model {n!r}{suggestion(n, known)}" for n in unknown]
    return found


def _open_mappings(settings: Settings) -> Iterator[tuple[str, str, str, Mapping[str, Any]]]:
    yield "dataset", settings.dataset.name, "dataset.options", settings.dataset.options
    yield "encoder", settings.encoder.name, "encoder.params", settings.encoder.params
    yield "study", settings.study.name, "study.params", settings.study.params
    for name, recipe in settings.view.views.items():
        yield "view", name, f"view.views.{name}.params", recipe.params
    for name, model in settings.models.items():
        yield "model", name, f"models.{name}.params", model.params


def _against(given: Mapping[str, Any], schema: Mapping[str, Any], *, where: str) -> Iterator[str]:
    for key in sorted({*given, *schema}):
        if key not in schema:
            yield f"{where}.{key}: no such parameter{suggestion(key, schema)}"
        elif key not in given:
            yield f"{where}.{key}: this parameter is missing"
        elif schema[key] != "???":
            problem = kind_problem(given[key], schema[key])
            if problem:
                yield f"{where}.{key}: {problem}"


def _distinct(where: str, values: Sequence[object]) -> Problems:
    if not values:
        yield f"{where}: the list is empty"
    elif len(set(map(repr, values))) < len(values):
        yield f"{where}: a value appears twice in {list(values)}"


def _at_least(where: str, value: int, low: int) -> Problems:
    if value < low:
        yield f"{where}: must be at least {low}, got {value}"


def _between(where: str, value: float, *, low: float, high: float) -> Problems:
    if not low <= value <= high:
        yield f"{where}: must lie between {low} and {high}, got {value}"


_CHECKS: tuple[Callable[[Settings], Problems], ...] = (
    _top,
    _data,
    _dataset,
    _encoder,
    _view,
    _protocol,
    _selection,
    _study,
    _models,
    _targets,
    _evaluation,
    _runtime,
    _tracking,
)

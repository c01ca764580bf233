"""The entry behind ``scripts/bench.py``: speed and memory figures of this machine, each beside its target."""

from __future__ import annotations

import dataclasses
import resource
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from toolshift.evaluation.bench import bench_measures
from toolshift.evaluation.bootstrap import transfer_bootstrap
from toolshift.experiment.main import log_to_stderr, say
from toolshift.experiment.run import source_of_target
from toolshift.experiment.tables import done_runs
from toolshift.experiment.workspace import Workspace, open_workspace
from toolshift.models.base import Limits
from toolshift.models.tact.assignment import CELLS, assign, best_totals
from toolshift.models.transfer.pointwise_mlp import PointwiseMlp
from toolshift.runs.environment import environment
from toolshift.runs.files import read_json, write_json
from toolshift.selection.nested import grid_settings
from toolshift.settings.axes import expand_axes, with_value
from toolshift.settings.compose import load_settings
from toolshift.settings.errors import UserError
from toolshift.settings.launch import Launch
from toolshift.settings.options import load_model

MEASURES_RATIO = 20.0
BOOTSTRAP_S = 10.0
VIEWS_S = 60.0
PEAK_RSS_MB = 4096.0
AGAIN_S = 15.0
STACKED_RATIO = 1.0
ASSIGNMENT_RATIO = 200.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One measured figure. at_least: the target is a lower bound, otherwise an upper one. judged: at full size."""

    name: str
    value: float
    unit: str
    target: float
    at_least: bool = False
    judged: bool = True
    detail: str = ""

    @property
    def passes(self) -> bool:
        """Whether the target is met."""
        return self.value >= self.target if self.at_least else self.value <= self.target

    @property
    def verdict(self) -> str:
        """``pass``, ``FAIL``, or that the figure was not taken at full size."""
        if not self.judged:
            return "not judged (quick)"
        return "pass" if self.passes else "FAIL"


def bench(launch: Launch) -> int:
    """Measure, print and write ``outputs/bench/bench.json``. Returns 1 if a target is missed.

    ``debug=tiny`` is the quick form: small sizes, no verdicts on the first two figures. The experiment of the command
    (default: lodo) is run first where it is not finished yet.
    """
    log_to_stderr()
    launch = _with_experiment(launch)
    quick = launch.settings.debug.name != "none"
    parts: list[Callable[[], list[Figure]]] = [
        lambda: measures_figures(2_000 if quick else 100_000, judged=not quick),
        lambda: bootstrap_figures(200 if quick else 10_000, judged=not quick),
        lambda: assignment_figures(20_000 if quick else 200_000, judged=not quick),
        lambda: views_figures(launch),
        lambda: stacked_figures(launch, epochs=1 if quick else 3, judged=not quick),
        lambda: experiment_figures(launch),
    ]
    figures = [figure for part in parts for figure in part()]
    content = {
        "environment": environment(command=launch.command),
        "data": launch.settings.data.source,
        "quick": quick,
        "figures": [{**asdict(figure), "verdict": figure.verdict} for figure in figures],
    }
    path = write_json(Path(launch.settings.paths.outputs) / "bench" / "bench.json", content)
    print(render(figures))
    say(f"wrote {path}")
    return 1 if any(figure.verdict == "FAIL" for figure in figures) else 0


def render(figures: Sequence[Figure]) -> str:
    """Table: figure, measured, target, verdict."""
    from tabulate import tabulate

    rows = [
        [f.name, f"{f.value:,.1f} {f.unit}", f"{'>=' if f.at_least else '<='} {f.target:,.0f}", f.verdict, f.detail]
        for f in figures
    ]
    return tabulate(rows, headers=("figure", "measured", "target", "verdict", "detail"), disable_numparse=True)


def measures_figures(n_tasks: int, *, judged: bool) -> list[Figure]:
    """Our measures beside pytrec_eval on the same lists of 20; no figure where pytrec_eval is not installed."""
    try:
        found = bench_measures(n_tasks, 20)
    except ModuleNotFoundError:
        say("measures: not compared, pytrec_eval is not installed (extra dev)")
        return []
    name = f"measures over {n_tasks:,} x 20, times faster than pytrec_eval"
    seconds = f"{found['ours_s']:.3f} s against {found['pytrec_s']:.3f} s"
    detail = f"{seconds}, results differ by at most {found['max_difference']:.0e}"
    return [
        Figure(
            name=name,
            value=found["speedup"],
            unit="x",
            target=MEASURES_RATIO,
            at_least=True,
            judged=judged,
            detail=detail,
        )
    ]


def bootstrap_figures(replicates: int, *, judged: bool) -> list[Figure]:
    """Bootstrap of a table like the real one: 6,487 tasks in 48 targets of very different size; 8 models, 3 measures,
    4 views, 6 slices and 2 variants, views and slices without some tasks."""
    values, target = _table_values(n_tasks=6_487, n_targets=48, shape=(8, 3, 4, 6, 2))
    start = time.perf_counter()
    transfer_bootstrap(values, target=target, replicates=replicates, seed=0)
    seconds = time.perf_counter() - start
    name = f"bootstrap of a table, {replicates:,} replicates x {values.shape[1]:,} columns"
    detail = f"{values.shape[0]:,} tasks, {target.max() + 1} targets"
    return [Figure(name=name, value=seconds, unit="s", target=BOOTSTRAP_S, judged=judged, detail=detail)]


def assignment_figures(n_pairs: int, *, judged: bool) -> list[Figure]:
    """TACT's exact matching of 4 requirements to 4 endpoints beside a loop over scipy's solver with a null option."""
    import torch
    from scipy.optimize import linear_sum_assignment

    gains = np.random.Generator(np.random.Philox(0)).normal(0.0, 0.3, (n_pairs, CELLS)).astype(np.float32)
    looped, tensor = gains[: max(n_pairs // 20, 1)].reshape(-1, 4, 4), torch.from_numpy(gains)

    def solved(matrix: np.ndarray) -> float:
        """One pair; an unmatched requirement gains nothing, and neither does one on a cell without gain."""
        kept = np.maximum(matrix, 0.0)
        return float(kept[linear_sum_assignment(kept, maximize=True)].sum())

    values, value_s = _timed(lambda: best_totals(tensor).numpy())
    _, matching_s = _timed(lambda: assign(tensor))
    theirs, loop_s = _timed(lambda: [solved(matrix) for matrix in looped])
    rate, other = n_pairs / value_s, len(looped) / loop_s
    difference = float(np.abs(values[: len(looped)] - np.array(theirs)).max())
    return [
        Figure(
            name=f"assignment values of {n_pairs:,} pairs, times faster than a scipy loop",
            value=rate / other,
            unit="x",
            target=ASSIGNMENT_RATIO,
            at_least=True,
            judged=judged,
            detail=(
                f"{rate:,.0f} against {other:,.0f} pairs/s ({n_pairs / matching_s:,.0f} with matching and margin), "
                f"values differ by at most {difference:.0e}"
            ),
        )
    ]


def _timed(make: Callable[[], Any]) -> tuple[Any, float]:
    """What ``make`` gives, and the seconds of its second call."""
    make()
    start = time.perf_counter()
    return make(), time.perf_counter() - start


def _table_values(
    *, n_tasks: int, n_targets: int, shape: tuple[int, int, int, int, int]
) -> tuple[np.ndarray, np.ndarray]:
    """Values (n_tasks, columns) with NaN for tasks that a (view, slice) lacks, and target codes (n_tasks,)."""
    rng = np.random.Generator(np.random.Philox(0))
    weight = 1.0 / np.arange(1, n_targets + 1)
    target = np.concatenate([np.arange(n_targets), rng.choice(n_targets, n_tasks - n_targets, p=weight / weight.sum())])
    values = rng.random((n_tasks, *shape), dtype=np.float32)
    absent = rng.random((n_tasks, shape[2], shape[3])) < np.linspace(0.0, 0.5, shape[3])
    values[np.broadcast_to(absent[:, None, None, :, :, None], values.shape)] = np.nan
    return values.reshape(n_tasks, -1), np.sort(target)


def views_figures(launch: Launch) -> list[Figure]:
    """The four views of each variant's universe from cached embeddings, mining included."""
    workspace = open_workspace(launch.settings)
    start = time.perf_counter()
    workspace.cache.ensure([*workspace.corpus.task_texts, *workspace.corpus.capability_texts])
    say(f"embeddings ready after {time.perf_counter() - start:.1f} s (not part of the figures)")
    universes = list(dict.fromkeys(v.view.universe for v in expand_axes(launch.settings, launch.overridden_keys)))
    return [_views_figure(launch, universe, workspace=workspace) for universe in universes]


def _views_figure(launch: Launch, universe: str, *, workspace: Workspace) -> Figure:
    with tempfile.TemporaryDirectory() as folder:
        # Mined neighbourhoods are cached beside the embeddings; an empty folder makes them part of the figure.
        settings = with_value(launch.settings, "data.cache", folder)
        settings = with_value(settings, "view.universe", universe)
        fresh = dataclasses.replace(workspace, settings=settings, _pools={}, _bm25={})
        fresh.cache = workspace.cache
        start = time.perf_counter()
        variant = fresh.variant(settings)
        seconds = time.perf_counter() - start
    sizes = ", ".join(f"{name} {m.tasks.size}" for name, m in variant.manifests.items())
    return Figure(
        name=f"{len(variant.manifests)} views from cached embeddings, universe {universe}",
        value=seconds,
        unit="s",
        target=VIEWS_S,
        detail=f"lists: {sizes}",
    )


def stacked_figures(launch: Launch, *, epochs: int, judged: bool) -> list[Figure]:
    """The settings of pointwise_mlp fitted side by side against one by one, on the sources of the first target."""
    workspace, model = open_workspace(launch.settings), load_model("pointwise_mlp")
    variant = workspace.variant(launch.settings)
    source = source_of_target(variant.folds.targets[0], variant, workspace)
    budget = launch.settings.selection.budgets["fast"]
    limits = Limits(epochs=epochs, max_tasks=budget.max_tasks, batch_tasks=budget.batch_tasks)
    models = [PointwiseMlp(**{**model.params, **setting}) for setting in grid_settings(model.grid)]
    bank = workspace.bank

    def timed(fit: Callable[[], Iterator[object]]) -> float:
        start = time.perf_counter()
        deque(fit(), maxlen=0)
        return time.perf_counter() - start

    timed(lambda: models[0].epochs(source, bank=bank, seed=0, limits=Limits(epochs=1, max_tasks=8)))  # imports, lists
    alone = sum(timed(lambda m=m: m.epochs(source, bank=bank, seed=0, limits=limits)) for m in models)
    together = timed(lambda: PointwiseMlp.together(models, source, bank=bank, seed=0, limits=limits))
    return [
        Figure(
            name=f"{len(models)} settings of pointwise_mlp side by side, times faster than one by one",
            value=alone / together,
            unit="x",
            target=STACKED_RATIO,
            at_least=True,
            judged=judged,
            detail=f"{together:.1f} s against {alone:.1f} s, {epochs} epochs of at most {budget.max_tasks} tasks",
        )
    ]


def experiment_figures(launch: Launch) -> list[Figure]:
    """Peak memory of the experiment's runs, and the time of the same command once all is done."""
    command = [sys.executable, str(Path(sys.argv[0]).with_name("train.py")), *launch.overrides]
    _train(command)
    start = time.perf_counter()
    _train(command)
    seconds = time.perf_counter() - start
    runs = done_runs(Path(launch.settings.paths.outputs), launch.settings.name)
    source = launch.settings.data.source
    peak = max(read_json(run.folder.path / "run.json")["peak_rss_mb"] for run in runs if run.data == source)
    again = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    return [
        Figure(
            name=f"peak memory of the {source} run", value=max(peak, again), unit="MiB", target=PEAK_RSS_MB,
            detail=f"largest of {len(runs)} runs and of the tables",
        ),
        Figure(name="a finished experiment again", value=seconds, unit="s", target=AGAIN_S, detail="with its tables"),
    ]  # fmt: skip


def _train(command: Sequence[str]) -> None:
    done = subprocess.run(command, check=False, stdout=subprocess.DEVNULL)
    if done.returncode:
        raise UserError(f"scripts/train.py ended with status {done.returncode}; its message stands above")


def _with_experiment(launch: Launch) -> Launch:
    """The same command with ``experiment=lodo`` where it names none."""
    if "experiment" in launch.overridden_keys:
        return launch
    overrides = ("experiment=lodo", *launch.overrides)
    return dataclasses.replace(
        launch,
        settings=load_settings("train", overrides),
        overrides=overrides,
        overridden_keys=("experiment", *launch.overridden_keys),
    )

"""The settings of a run: one frozen dataclass per config group. Field names are the keys of the YAML files.

Every key must be present in the composed config: defaults live in ``conf/`` alone, so that a run's ``config.yaml``
shows each value. Only the mappings named ``params``, ``grid`` and ``options`` are open; their keys are those of the
option's own YAML file (``toolshift.settings.options``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Universe = Literal["domain", "judged", "library"]
Miner = Literal["union", "dense", "bm25", "category"]
Purge = Literal["none", "gold", "near"]
Dedup = Literal["none", "exact", "near"]
Slice = Literal["all", "name_free", "no_partial_schema", "no_duplicates", "miner"]
SampleSize = Literal["tiny", "small", "large"]
SampleWorld = Literal["default", "no_function_gap", "no_context_gap", "context_is_noise", "popularity_only"]
Params = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSettings:
    """Where records come from. ``root`` is the folder that holds ``<dataset>/`` in the upstream layout.

    ``world``, ``sample_size`` and ``sample_seed`` say which sample is generated (docs/sample.md); real data ignores the
    last two.
    """

    source: Literal["sample", "real"]
    root: str | None
    strict: bool
    cache: str
    world: SampleWorld
    sample_size: SampleSize
    sample_seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetSettings:
    """One dataset: its adapter (``module:function``), which unit is ranked, and the adapter's options."""

    name: str
    target: str
    unit: Literal["capability", "endpoint"]
    options: Params


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderSettings:
    """A text encoder. More truncated texts than ``max_truncated_share`` (0 to 1) stop the run."""

    name: str
    target: str
    params: Params
    max_truncated_share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewRecipe:
    """How the lists of one view are composed: the recipe (``module:function``) and its parameters."""

    target: str
    params: Params


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewSettings:
    """Candidate lists (spec/validity.md, sections 1, 2 and 5).

    ``length`` is the target length of a list, ``hard`` the most candidates of one hard role in it, ``top`` how deep
    each miner looks, ``min_available`` the least number of available capabilities of a scored cell.
    """

    universe: Universe
    miner: Miner
    length: int
    hard: int
    top: int
    seed: int
    min_available: int
    duplicate_cosine: float
    argument_overlap: float
    views: Mapping[str, ViewRecipe]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtocolSettings:
    """Which tasks are train, select or test, and what is taken away from the sources.

    ``purge`` removes source tasks too close to the target, ``dedup`` those that repeat it in another dataset,
    ``max_source_tasks`` what exceeds a cap per source context. ``datasets`` names a preset or joins names with ``+``;
    empty for the one dataset of the group ``dataset``. ``params`` are the protocol's own.
    """

    name: str
    target: str
    purge: Purge
    near_cosine: float
    dedup: Dedup
    max_source_tasks: int | None
    datasets: str
    presets: Mapping[str, tuple[str, ...]]
    params: Params

    @property
    def dataset_names(self) -> tuple[str, ...]:
        """The datasets of the protocol, sorted; empty where it takes the one of the group ``dataset``."""
        named = self.presets.get(self.datasets) or tuple(self.datasets.split("+"))
        return tuple(sorted({name for name in named if name}))

    @property
    def cut(self) -> str:
        """What was taken away from the sources, as tables name it: the purge, and ``+dedup=...`` where it is used."""
        return self.purge if self.dedup == "none" else f"{self.purge}+dedup={self.dedup}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSettings:
    """One table row: the class (``module:Class``), its parameters, and the values selection may choose from.

    ``stochastic`` models run once per seed, the others once.
    """

    name: str
    target: str
    params: Params
    grid: Mapping[str, tuple[Any, ...]]
    stochastic: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetSettings:
    """How much work nested selection may do; None is no cap.

    ``folds`` inner folds of whole source contexts, ``settings`` of the grid, ``max_tasks`` source tasks per fit and
    ``validation_tasks`` per view and inner fold (both by id hash), ``epochs`` and ``batch_tasks`` (tasks in a gradient
    step) at most, and whether every seed selects anew or the first one selects for all.
    """

    folds: int
    settings: int | None
    max_tasks: int | None
    validation_tasks: int | None
    epochs: int
    batch_tasks: int | None
    every_seed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectionSettings:
    """The rule that chooses the setting of a model with a grid, on source data alone (spec/tact.md section 5)."""

    name: Literal["nested"]
    budget: str
    budgets: Mapping[str, BudgetSettings]


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationSettings:
    """Measures and statistics (spec/metrics_and_statistics.md, spec/validity.md section 8)."""

    measures: tuple[str, ...]
    ties: Literal["expected", "hashed", "trec"]
    replicates: int
    confidence: float
    seed: int
    min_tasks: int
    slices: tuple[Slice, ...]
    export_trec: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeSettings:
    """How, not what, is computed: never part of a run's hash."""

    device: Literal["cpu", "cuda"]
    max_pairs_in_memory: int
    on_error: Literal["continue", "stop"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackingSettings:
    """An experiment tracker beside the run folder; the tables never read from it, a failure of it fails nothing."""

    name: Literal["none", "wandb"]
    mode: Literal["offline", "online"]
    project: str
    entity: str | None
    group: str | None
    tags: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DebugSettings:
    """Limits for a quick run; None is no limit.

    ``replicates`` reaches the run only through ``evaluation.replicates``, which ``debug=tiny`` sets to it.
    """

    name: str
    max_tasks: int | None
    max_targets: int | None
    replicates: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PathSettings:
    """Where results go, relative to the working directory; never part of a run's hash."""

    outputs: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MultiverseSettings:
    """Open choices, changed one at a time (spec/validity.md section 8); without any, an experiment is one table.

    ``row`` is compared with every other row. ``choices``: name -> overrides as on a command line, where ``*`` in the
    name of a model stands for any text. ``protocols``: choice -> the protocols that have it; a choice that is not named
    there belongs to all. ``only``: the choices to make, beside the default; all where it is empty.
    """

    row: str | None
    choices: Mapping[str, tuple[str, ...]]
    protocols: Mapping[str, tuple[str, ...]]
    only: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperValue:
    """A number that a paper prints for one row and column. ``derived``: computed from others that it prints."""

    view: str
    model: str
    measure: str
    value: float
    source: str
    status: Literal["given", "derived"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StudySettings:
    """An experiment that is no table of rankers on candidate lists: the class (``module:Class``) that makes it, and its
    parameters. ``none`` for all others.

    ``reference`` is the row that paired tests compare with. ``paper``: numbers printed beside real data, never part of
    what is computed.
    """

    name: str
    target: str | None
    title: str
    reference: str | None
    params: Params
    paper: tuple[PaperValue, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """One experiment, fully resolved and checked.

    ``compare`` maps a dotted key to the values that are computed and printed side by side (``expand_axes``).
    ``models`` holds every requested row and always the ``reference``, in the order of the config.
    """

    name: str
    seeds: tuple[int, ...]
    reference: str
    compare: Mapping[str, tuple[Any, ...]]
    multiverse: MultiverseSettings
    study: StudySettings
    data: DataSettings
    dataset: DatasetSettings
    encoder: EncoderSettings
    view: ViewSettings
    protocol: ProtocolSettings
    models: Mapping[str, ModelSettings]
    selection: SelectionSettings
    evaluation: EvaluationSettings
    runtime: RuntimeSettings
    tracking: TrackingSettings
    debug: DebugSettings
    paths: PathSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperSettings:
    """The papers' numbers for a table, and the one part of it they are printed beside: the closest settings of ours."""

    universe: Universe
    miner: Miner
    purge: Purge
    slice: Slice
    values: tuple[PaperValue, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSettings:
    """What a table tests and when it may speak of a result; committed before the first real run (validity.md 8).

    ``minimal_effect_pp`` and ``artefact_margin_pp`` are percentage points. Fewer targets than ``min_targets`` or
    less ``power`` than asked give the verdict ``inconclusive``. ``rows`` is the option of the group model whose rows
    the whole table has; null: those that the experiment asks for.
    """

    name: str
    title: str
    rows: str | None
    holm_family: tuple[str, ...]
    alpha: float
    power: float
    minimal_effect_pp: float
    min_targets: int
    verdict_universe: Universe
    verdict_purge: Purge
    verdict_slice: Slice
    placebo: str
    artefact_control: str
    artefact_margin_pp: float
    paper: PaperSettings

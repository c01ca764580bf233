"""What ranks somebody's own tools: a finished run's checkpoint, or a row that needs no training.

A run has one fit per target and seed. Unless told which, the fit that learned from most source tasks is taken: it is
the one that has seen most of the world.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from toolshift.data.records import Capability
from toolshift.experiment.explain import DataPlace, EncoderPlace, ExplainSettings, FinishedRun, OutputPlace
from toolshift.experiment.workspace import Workspace, build_encoder, resolve
from toolshift.models.base import FrozenRanker, Scorer
from toolshift.models.features import Values
from toolshift.models.tact.path import Path as TactPath
from toolshift.models.tact.profiles import Profiles
from toolshift.settings.compose import load_settings
from toolshift.settings.errors import UserError
from toolshift.settings.nearest import suggestion
from toolshift.settings.options import conf_folder, groups, load_model, model_names
from toolshift.settings.schema import Settings
from toolshift.text.encoder import Encoder

if TYPE_CHECKING:
    from toolshift.views.corpus import Corpus


@dataclass(frozen=True, kw_only=True)
class Places:
    """Where things lie. outputs: holds ``runs/``. cache: records and embeddings. data_root: of real data.
    encoder_path: folder of the encoder's weights."""

    outputs: Path = Path("outputs")
    cache: Path = Path("data")
    data_root: str | None = None
    encoder_path: str | None = None


@dataclass(frozen=True, kw_only=True)
class Sources:
    """What a fit reads of the data it was made from.

    capabilities: of the run's library, by row. mean, std: (d,) of the run's task vectors, None where the fit works in
    raw coordinates: they stand in for those of a dataset of requests, which a single request does not have.
    """

    capabilities: tuple[Capability, ...]
    mean: Values | None
    std: Values | None


@dataclass(frozen=True, kw_only=True)
class Method:
    """A fitted scorer with its encoder. about: one line on what it is and which fit was taken. sources: None where
    nothing of the run's data is read."""

    name: str
    scorer: Scorer
    encoder: Encoder
    max_truncated_share: float
    about: str
    seed: int = 0
    sources: Sources | None = None

    @property
    def path(self) -> TactPath | None:
        """The stages of TACT; None for another method."""
        return self.scorer if isinstance(self.scorer, TactPath) else None


def method_of(
    run_or_model: str, *, places: Places, encoder: str | None = None, target: str | None = None, seed: int | None = None
) -> Method:
    """A row without training by its name, or the fit of a finished run by its folder or the beginning of its hash.

    Raises:
        UserError: if there is neither, or the model of the run cannot be restored.
        SealedTarget: if a checkpoint is not the one that was selected.
    """
    if not run_or_model.strip():
        raise UserError("run: a run's hash or folder, or the name of a model such as semantic_cosine")
    if run_or_model in model_names(conf_folder()):
        if target is not None or seed is not None:
            raise UserError(f"{run_or_model} is a model, not a run: it has no target and no seed to choose")
        return _of_model(run_or_model, places=places, encoder=encoder or "minilm")
    if encoder is not None:
        raise UserError("encoder: a run brings its own; only a model that is given by its name takes another one")
    try:
        run = FinishedRun.find(run_or_model, outputs=places.outputs, any_model=True)
    except UserError as error:
        known = _untrained()
        raise UserError(f"{error}. Models without a run: {', '.join(known)}{suggestion(run_or_model, known)}") from None
    return _of_run(run, places=places, target=target, seed=seed)


def in_singles(settings: Settings) -> Encoder:
    """The configured encoder with batches of one text. An encoder fills its batches up to a fixed shape, which a single
    request or a single new tool would pay for; vectors differ by about 1e-7, so they have a cache of their own."""
    params = settings.encoder.params
    single = {**params, "batch_size": 1} if "batch_size" in params else dict(params)
    return build_encoder(replace(settings, encoder=replace(settings.encoder, params=single)))


def _untrained() -> list[str]:
    names = model_names(conf_folder())
    return [name for name in names if _is_frozen(resolve(load_model(name).target))]


def _is_frozen(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, FrozenRanker)


def _of_model(name: str, *, places: Places, encoder: str) -> Method:
    known = groups(conf_folder())["encoder"]
    if encoder not in known:
        raise UserError(f"encoder={encoder}: there is no conf/encoder/{encoder}.yaml{suggestion(encoder, known)}")
    model = load_model(name)
    kind = resolve(model.target)
    if not _is_frozen(kind):
        raise UserError(
            f"{name} learns, so it needs a finished run: python scripts/train.py experiment=lodo model={name}, then "
            f"its hash (make status). Without a run: {', '.join(_untrained())}"
        )
    path = [f"encoder.params.path={places.encoder_path}"] if places.encoder_path else []
    settings = load_settings("train", [f"encoder={encoder}", *path])
    return Method(
        name=name,
        scorer=kind(**model.params),
        encoder=in_singles(settings),
        max_truncated_share=settings.encoder.max_truncated_share,
        about=f"{name} with the encoder {encoder}; nothing was trained",
    )


def _of_run(run: FinishedRun, *, places: Places, target: str | None, seed: int | None) -> Method:
    model = run.identity["model"]
    kind = resolve(model["target"])
    frozen = _is_frozen(kind)
    if not frozen and not hasattr(kind, "restored"):
        raise UserError(
            f"run {run.folder.name} is of the model {model['name']}, whose checkpoints cannot be restored for new tools"
        )
    given = _given(run, places)
    settings = run.settings(given)
    if build_encoder(settings).fingerprint != run.identity["fingerprints"]["encoder"]:
        raise UserError(
            f"the encoder is not the one that run {run.folder.name} was made with (other weights or library versions); "
            "run it again"
        )
    seed = run.seed(seed)
    about = f"run {run.folder.name} ({run.identity['name']}, {model['name']})"
    chosen, why = _target(run, target)
    scorer: Any = None
    if frozen:
        scorer, about = kind(**model["params"]), f"{about}; nothing was trained"
    else:
        run.open(chosen, seed=seed)
        scorer, _ = run.restored(chosen, seed=seed)
        about = f"{about}; fit with {chosen} held out ({why}), seed {seed}"
    return Method(
        name=model["name"],
        scorer=scorer,
        encoder=in_singles(settings),
        max_truncated_share=settings.encoder.max_truncated_share,
        about=about,
        seed=seed,
        sources=_sources(scorer, run, given, real=settings.data.source == "real", root=places.data_root),
    )


def _given(run: FinishedRun, places: Places) -> ExplainSettings:
    return ExplainSettings(
        run=run.folder.name,
        task="",
        capability=None,
        seed=None,
        format="text",
        # A fit that reads nothing of the data needs no folder of it; one that does is refused later without.
        data=DataPlace(root=places.data_root or ".", cache=str(places.cache)),
        encoder=EncoderPlace(path=places.encoder_path),
        paths=OutputPlace(outputs=str(places.outputs)),
    )


def _target(run: FinishedRun, asked: str | None) -> tuple[str, str]:
    """(target, why it): the one asked for, or the one whose fit had most source tasks, the first by name of several."""
    roles = run.roles
    trained = roles.loc[roles["role"] == "train", "target"].value_counts().to_dict()
    sizes = {str(name): int(trained.get(name, 0)) for name in sorted(set(roles["target"]))}
    if asked is None:
        best = max(sorted(sizes), key=lambda name: sizes[name])
        return best, f"of {len(sizes)} targets the one whose fit had most source tasks, {sizes[best]}"
    if asked not in sizes:
        raise UserError(f"target={asked}: the run has no such target{suggestion(asked, sizes)}")
    return asked, f"as asked for; {sizes[asked]} source tasks"


def _sources(
    scorer: object, run: FinishedRun, given: ExplainSettings, *, real: bool, root: str | None
) -> Sources | None:
    path = scorer if isinstance(scorer, TactPath) else None
    if path is None or not (profiles_of(path) or is_aligned(path)):
        return None
    if real and root is None:
        raise UserError(
            f"the fit of run {run.folder.name} reads source records of its capabilities: data_root (data.root=PATH), "
            "the folder of the real data that it was trained on"
        )
    workspace: Workspace = run.workspace(given)
    mean = std = None
    if is_aligned(path):
        vectors = np.asarray(workspace.bank.task_vectors, np.float64)
        mean, std = vectors.mean(axis=0), vectors.std(axis=0)
    return Sources(capabilities=workspace.records.library.capabilities, mean=mean, std=std)


def profiles_of(path: TactPath) -> tuple[Profiles, ...]:
    """The source profiles that the stages of a path read."""
    found = [getattr(stage, "profiles", None) for stage in path.stages]
    return tuple(profiles for profiles in found if profiles is not None)


def is_aligned(path: TactPath) -> bool:
    """Whether some stage works in coordinates that are standardised per dataset."""
    spaces = [path.space, *(getattr(stage, "space", "raw") for stage in path.stages)]
    return "aligned" in (*spaces, *(profiles.settings.space for profiles in profiles_of(path)))


def moved(path: TactPath, row_of: Mapping[int, int]) -> TactPath:
    """The same fit over another library. row_of: capability row of the run -> row there; the records of capabilities
    that are not there are left out, and a capability without a record stays one without evidence."""
    found = TactPath(space=path.space, contexts_seen=path.contexts_seen)
    memo: dict[int, Profiles] = {}
    for stage in path.stages:
        changed: Any = stage
        profiles = getattr(stage, "profiles", None)
        if profiles is not None:
            changed = replace(cast("Any", stage), profiles=memo.setdefault(id(profiles), _moved(profiles, row_of)))
        found = found.then(changed)
    return found


def _moved(profiles: Profiles, row_of: Mapping[int, int]) -> Profiles:
    kept = [i for i, row in enumerate(profiles.capabilities.tolist()) if row in row_of]
    rows = np.array([row_of[int(profiles.capabilities[i])] for i in kept], np.int64)
    order = np.array(kept, np.int64)[np.argsort(rows)]
    return replace(
        profiles, capabilities=np.sort(rows), counts=profiles.counts[order], contexts=profiles.contexts[order]
    )


def source_rows(path: TactPath) -> Sequence[int]:
    """Rows of the run's capabilities that a look-up by similarity compares tools with; none for a look-up by id."""
    found: set[int] = set()
    for profiles in profiles_of(path):
        if profiles.settings.lookup != "id":
            found |= set(profiles.capabilities.tolist())
    return sorted(found)


def aligned_vectors(
    tasks: NDArray[np.float32], capabilities: NDArray[np.float32], *, sources: Sources, corpus: Corpus
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Coordinates of tact.md section 6: capabilities by the statistics of their own library, requests by those of the
    run's tasks."""
    from toolshift.models.features import aligned

    assert sources.mean is not None and sources.std is not None
    x = (np.asarray(tasks, np.float64) - sources.mean) / (sources.std + 1e-6)
    rows = (x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)).astype(np.float32)
    return rows, aligned(capabilities, [part.capabilities for part in corpus.parts])

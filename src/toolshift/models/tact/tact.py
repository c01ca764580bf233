"""TACT as configured, and its fit stage by stage (tact.md sections 1 and 5).

Order [G]: relation, then endpoint-set parameters, then contextual parameters, then the gates, each with the preceding
path fixed. A stage of strength 0 is not there: the path is then exactly the preceding one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from numpy.typing import NDArray

from toolshift.models.base import BadParameter, Limits, Setting, Source, StagedFit
from toolshift.models.features import FeatureBank, known_space
from toolshift.models.tact.contextual import ContextualSettings, FittedContextual, fit_contextual
from toolshift.models.tact.fold import TactFold
from toolshift.models.tact.functional import FittedFunctional, Form, FunctionalSettings, fit_functional
from toolshift.models.tact.fusion import FittedFusion, FusionSettings, fit_fusion
from toolshift.models.tact.path import FittedStage, Path
from toolshift.models.tact.profiles import ProfileSettings
from toolshift.models.tact.proposal import FittedProposal, ProposalSettings, fit_proposal
from toolshift.models.tact.relation import FittedRelation, RelationSettings, fit_relation
from toolshift.models.tact.support import FittedSupport, SupportSettings, fit_support

_CHOICES: Mapping[str, tuple[str, ...]] = {
    "composition": ("same_endpoint", "cross_endpoint"),
    "denominator": ("smaller", "requirements"),
    "empty_arguments": ("no_evidence", "satisfied"),
    "reference": ("line", "constant"),
    "requirement_weights": ("uniform", "rarity"),
    "proposal": ("cosine", "blend"),
    "prototype_kind": ("kmeans", "contexts"),
    "lookup": ("id", "similarity", "both"),
    "context_signal": ("profiles", "presence", "popularity"),
    "gates": ("function", "scalar", "none"),
    "support_signal": ("popularity", "presence"),
}


@dataclass(frozen=True, kw_only=True)
class Tact:
    """Parameters by stage; see the stage modules. anchor_space: coordinates of the anchor, which is Semantic Cosine in
    ``raw`` ones. space: of everything else, ``aligned`` across datasets (tact.md section 6).

    Raises:
        BadParameter: for a value that is none of a parameter's choices, or out of range.
    """

    anchor_space: str = "raw"
    space: str = "raw"
    temperature: float = 0.05
    learning_rate: float = 0.001
    scalar_learning_rate: float = 0.02
    batch_tasks: int = 256
    max_epochs: int = 30
    proposal: str = "cosine"
    proposal_l2: float = 0.0001
    beta_relation: float = 0.1
    relation_rank: int = 64
    relation_penalty: float = 0.01
    beta_functional: float = 0.2
    kappa: float = 0.3
    set_weight: float = 0.5
    composition: str = "same_endpoint"
    denominator: str = "smaller"
    empty_arguments: str = "no_evidence"
    reference: str = "line"
    requirement_weights: str = "uniform"
    beta_contextual: float = 0.2
    support_signal: str = "popularity"
    beta_support: float = 0.0
    context_signal: str = "profiles"
    neutral_weight: float = 1.0
    prototypes: int = 16
    prototype_kind: str = "kmeans"
    routing_temperature: float = 0.1
    prior: float = 5.0
    support: float = 5.0
    least_support: float = 0.0
    least_nearness: float = 0.0
    lookup: str = "id"
    cross_fit: int = 5
    gates: str = "function"

    stages: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "proposal": ("proposal", "proposal_l2"),
        "relation": ("beta_relation", "relation_penalty", "relation_rank"),
        "functional": (
            "beta_functional", "kappa", "set_weight", "composition", "denominator", "empty_arguments", "reference",
            "requirement_weights",
        ),
        "contextual": (
            "beta_contextual", "context_signal", "neutral_weight", "prototypes", "prototype_kind",
            "routing_temperature", "prior", "support", "least_support", "least_nearness", "lookup", "cross_fit",
        ),
        "fusion": ("gates",),
        "support": ("support_signal", "beta_support"),
    }  # fmt: skip
    """Stage -> the parameters that are chosen when it is fitted."""

    def __post_init__(self) -> None:
        for name in ("anchor_space", "space"):
            known_space(getattr(self, name), model=f"tact ({name})")
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                raise BadParameter(f"tact: {name}={getattr(self, name)!r}; expected one of {', '.join(choices)}")
        if min(self.temperature, self.routing_temperature) <= 0 or self.prototypes < 1 or self.relation_rank < 1:
            raise BadParameter("tact: temperatures, prototypes and relation_rank must be positive")
        if min(self.batch_tasks, self.max_epochs, self.cross_fit) < 1:
            raise BadParameter("tact: batch_tasks, max_epochs and cross_fit must be at least 1")
        if min(self.prior, self.support, self.relation_penalty, self.set_weight, self.neutral_weight) < 0:
            raise BadParameter("tact: prior, support and the weights of penalties and objectives must be at least 0")
        if self.beta_relation < 0 or self.beta_functional < 0:
            raise BadParameter("tact: beta_relation and beta_functional must be at least 0")
        if self.beta_contextual < 0 and self.context_signal == "profiles":
            raise BadParameter("tact: beta_contextual must be at least 0; only a control may be negative")

    def with_setting(self, setting: Setting) -> Tact:
        """The same model with some parameters set."""
        return replace(self, **setting)

    def begin(self, source: Source, *, bank: FeatureBank, seed: int, limits: Limits) -> StagedFit:
        """The path before the first stage: the anchor. Rows that differ in later stages share the fits of the earlier
        ones."""
        fold = source.remember(
            ("tact", id(bank), seed, limits, self.anchor_space),  # the fold keeps its bank, so the number stays its own
            lambda: TactFold(source=source, bank=bank, seed=seed, limits=limits, anchor_space=self.anchor_space),
        )
        return TactFit(model=self, fold=fold, path=fold.anchored)

    def restored(self, arrays: Mapping[str, NDArray[Any]], *, contexts_seen: Sequence[str]) -> Path:
        """The path whose ``state`` the arrays are; this model has the settings that were chosen for it.

        Raises:
            ValueError: if the arrays are not those of such a path.
        """
        path = Path(space=self.anchor_space, contexts_seen=tuple(contexts_seen))
        by_stage: dict[str, dict[str, NDArray[Any]]] = {}
        for key, values in sorted(arrays.items()):
            stage, _, name = key.partition(".")
            by_stage.setdefault(stage, {})[name] = values
        for stage in [*self.stages, *(name for name in by_stage if name not in self.stages)]:
            if stage not in by_stage:
                continue
            if stage not in RESTORED or not self.has_stage(stage):
                raise ValueError(f"TACT: the checkpoint has a stage {stage!r} that its selection record switches off")
            settings = getattr(self, f"{stage}_settings")()
            try:
                path = path.then(RESTORED[stage](settings, by_stage[stage]))
            except KeyError as error:
                raise ValueError(
                    f"TACT, stage {stage}: the checkpoint has no {error}; another version made it"
                ) from error
        return path

    def is_trained(self, stage: str, setting: Setting) -> bool:
        """False where the strength is 0, and for controls."""
        model = self.with_setting(setting)
        idle = stage == "support" or (stage == "contextual" and model.context_signal != "profiles")
        return model.has_stage(stage) and not idle

    def has_stage(self, stage: str) -> bool:
        """Whether a stage is switched on; fusion also needs something to gate."""
        return {
            "proposal": self.proposal != "cosine",
            "relation": self.beta_relation != 0,
            "functional": self.beta_functional != 0,
            "contextual": self.beta_contextual != 0,
            "fusion": self.gates != "none",
            "support": self.beta_support != 0,
        }[stage]

    def proposal_settings(self) -> ProposalSettings:
        """Parameters of the proposal that is not the plain cosine."""
        return ProposalSettings(temperature=self.temperature, l2=self.proposal_l2, space=self.anchor_space)

    def relation_settings(self) -> RelationSettings:
        """Parameters of the first stage."""
        return RelationSettings(
            strength=self.beta_relation,
            penalty=self.relation_penalty,
            temperature=self.temperature,
            rank=self.relation_rank,
            space=self.space,
            learning_rate=self.learning_rate,
        )

    def functional_settings(self) -> FunctionalSettings:
        """Parameters of the second stage."""
        names = ("composition", "denominator", "empty_arguments", "reference", "requirement_weights")
        form: Any = {name: getattr(self, name) for name in names}
        return FunctionalSettings(
            strength=self.beta_functional,
            kappa=self.kappa,
            set_weight=self.set_weight,
            temperature=self.temperature,
            learning_rate=self.scalar_learning_rate,
            form=Form(**form),
        )

    def contextual_settings(self) -> ContextualSettings:
        """Parameters of the third stage."""
        signal: Any = self.context_signal
        return ContextualSettings(
            strength=self.beta_contextual,
            neutral=self.neutral_weight,
            least_support=self.least_support,
            least_nearness=self.least_nearness,
            signal=signal,
            learning_rate=self.scalar_learning_rate,
            cross_fit=self.cross_fit,
            profiles=self.profile_settings(),
        )

    def profile_settings(self) -> ProfileSettings:
        """Parameters of the source profiles."""
        kinds: Any = {"kind": self.prototype_kind, "lookup": self.lookup}
        return ProfileSettings(
            count=self.prototypes,
            temperature=self.routing_temperature,
            prior=self.prior,
            support=self.support,
            space=self.space,
            **kinds,
        )

    def support_settings(self) -> SupportSettings:
        """Parameters of the term of source support."""
        signal: Any = self.support_signal
        return SupportSettings(strength=self.beta_support, signal=signal, profiles=self.profile_settings())

    def fusion_settings(self) -> FusionSettings:
        """Parameters of the last stage."""
        gates: Any = self.gates
        return FusionSettings(gates=gates, temperature=self.temperature, learning_rate=self.scalar_learning_rate)


@dataclass(frozen=True, kw_only=True)
class TactFit:
    """The fit of one fold so far: its path."""

    model: Tact
    fold: TactFold
    path: Path

    @property
    def scorer(self) -> Path:
        """What has been fitted."""
        return self.path

    def extended(self, scorer: Any) -> TactFit:
        """The fit with the stage that a scorer of `epochs` has on top."""
        return replace(self, path=scorer)

    def epochs(self, stage: str, settings: Sequence[Setting], *, epochs: int) -> Iterator[tuple[Path, ...]]:
        """Per epoch the path with the stage under every setting; the path itself where the stage is off."""
        models = [self.model.with_setting(setting) for setting in settings]
        paths: list[Path] = [self.path] * len(models)
        running = [(places, iter(fits)) for places, fits in self._fits(stage, models, epochs=epochs)]
        for number in range(epochs):
            moved = number == 0
            for places, fits in running:
                fitted = next(fits, None)
                for place, path in zip(places, fitted or (), strict=False):
                    paths[place] = path
                moved = moved or fitted is not None
            if not moved:
                return
            yield tuple(paths)

    def _fits(
        self, stage: str, models: Sequence[Tact], *, epochs: int
    ) -> Iterator[tuple[list[int], Sequence[tuple[Path, ...]]]]:
        """(places, paths per epoch) of the models for which the stage is on, those side by side that share enough."""
        groups: dict[Any, list[int]] = {}
        for place, model in enumerate(models):
            if self._is_on(stage, model):
                groups.setdefault(_shared(stage, model), []).append(place)
        for places in groups.values():
            yield places, self._fit(stage, [models[i] for i in places], epochs=epochs)

    def _fit(self, stage: str, models: Sequence[Tact], *, epochs: int) -> Sequence[tuple[Path, ...]]:
        """All epochs of a stage, made once per path and settings."""
        first, cap = models[0], self.fold.limits.batch_tasks
        how = {"epochs": min(epochs, first.max_epochs), "batch_tasks": min(first.batch_tasks, cap or first.batch_tasks)}
        settings = tuple(getattr(model, f"{stage}_settings")() for model in models)
        return self.fold.remember(
            ("fit", self.path, settings, tuple(how.values())),
            lambda: [
                tuple(self.path.then(stage) for stage in fitted)
                for fitted in FITS[stage](settings, self.fold, self.fold.trace(self.path), **how)
            ],
        )

    def _is_on(self, stage: str, model: Tact) -> bool:
        if not self.fold.lists.tasks.size:
            return False
        if stage == "fusion" and not {one.name for one in self.path.stages} & {"functional", "contextual"}:
            return False
        return model.has_stage(stage)


FITS: Mapping[str, Callable[..., Iterator[tuple[FittedStage, ...]]]] = {
    "proposal": fit_proposal,
    "relation": fit_relation,
    "functional": fit_functional,
    "contextual": fit_contextual,
    "fusion": fit_fusion,
    "support": fit_support,
}


RESTORED: Mapping[str, Callable[[Any, Mapping[str, NDArray[Any]]], FittedStage]] = {
    "proposal": FittedProposal.restored,
    "relation": FittedRelation.restored,
    "functional": FittedFunctional.restored,
    "contextual": FittedContextual.restored,
    "fusion": FittedFusion.restored,
    "support": FittedSupport.restored,
}


def _shared(stage: str, model: Tact) -> Any:
    """What models must have in common to be fitted side by side: all but the scalars that a fit takes per network."""
    settings = getattr(model, f"{stage}_settings")()
    return replace(settings, **dict.fromkeys(settings.side_by_side, 0.0))

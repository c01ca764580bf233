"""Source support beside the validated score: s4 = s3 + beta * S_c, or s3 + beta * 1[n_c > 0], beta signed.

As a control (validity.md section 6) in place of the contextual stage, and as an option of ours beside it: the paper
keeps popularity out of the contextual correction on purpose; where a capability's mere use in the sources tells
something about the target, this stage says so openly. Nothing is trained.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from toolshift.models.tact.contextual import control_signal, looked_up
from toolshift.models.tact.path import Trace
from toolshift.models.tact.profiles import Profiles, ProfileSettings

if TYPE_CHECKING:
    from toolshift.models.tact.fold import TactFold

SupportSignal = Literal["popularity", "presence"]


@dataclass(frozen=True, kw_only=True)
class SupportSettings:
    """strength: beta. signal: ``popularity`` is S_c, ``presence`` the mere existence of a record."""

    strength: float
    signal: SupportSignal
    profiles: ProfileSettings

    side_by_side: ClassVar[tuple[str, ...]] = ("strength",)
    """Scalars in which settings may differ and still be fitted together."""


@dataclass(frozen=True, kw_only=True)
class FittedSupport:
    """The support of every capability, in the profiles."""

    strength: float
    signal: SupportSignal
    profiles: Profiles
    name: str = "support"

    @property
    def record(self) -> Mapping[str, Any]:
        """Strength."""
        return {"strength": self.strength, "signal": self.signal}

    def state(self) -> Mapping[str, NDArray[Any]]:
        """Strength and profiles."""
        return {"strength": np.array([self.strength]), **self.profiles.state()}

    @staticmethod
    def restored(settings: SupportSettings, arrays: Mapping[str, NDArray[Any]]) -> FittedSupport:
        """What `state` stored.

        Raises:
            KeyError: if an array is missing.
        """
        profiles = Profiles.restored(settings.profiles, arrays)
        return FittedSupport(strength=float(arrays["strength"][0]), signal=settings.signal, profiles=profiles)

    def apply(self, trace: Trace) -> Trace:
        """s4."""
        return replace(trace, support=self.strength * control_signal(looked_up(trace, self.profiles), self.signal))


def fit_support(
    settings: Sequence[SupportSettings], fold: TactFold, before: Trace, *, epochs: int, batch_tasks: int
) -> Iterator[tuple[FittedSupport, ...]]:
    """One pass: there is nothing to learn but the counts."""
    del before, epochs, batch_tasks
    profiles = fold.profiles(settings[0].profiles)
    yield tuple(
        FittedSupport(strength=setting.strength, signal=setting.signal, profiles=profiles) for setting in settings
    )

"""Hydra's launchers: which process the jobs of a sweep run in, and what is refused before the first one starts."""

from __future__ import annotations

import importlib.util
import shutil
import warnings
from collections.abc import Mapping, Sequence

from hydra.core.override_parser.types import Override

GROUP = "hydra/launcher"
BASIC = "basic"
# Launcher -> the package that brings it; all of them come with the extra `launchers`.
PACKAGES: Mapping[str, str] = {
    "joblib": "hydra_plugins.hydra_joblib_launcher",
    "submitit_local": "hydra_plugins.hydra_submitit_launcher",
    "submitit_slurm": "hydra_plugins.hydra_submitit_launcher",
}

# conf/hydra/launcher gives the plugins' launchers our defaults; that Hydra checks these files against the plugins' own
# is welcome, and not worth four warnings. At import, because processes of jobs import this before Hydra composes there.
warnings.filterwarnings("ignore", message=r"\s*'hydra/launcher/\w+' is validated against ConfigStore schema")


def launcher_problems(
    overrides: Sequence[Override], *, multirun: bool, environment: Mapping[str, str] | None = None
) -> list[str]:
    """What is wrong with the launcher that a command line chooses; empty where nothing is.

    environment: variables of this process, which say whether torchrun started it.
    """
    chosen = [override for override in overrides if override.key_or_group == GROUP]
    if any(override.is_sweep_override() for override in chosen):
        return [f"{GROUP}: one launcher starts all jobs of a sweep; give one value, not several"]
    names = [str(override.value()) for override in chosen if not override.is_delete()]
    name = names[-1] if names else BASIC
    if name == BASIC:
        return []
    if not multirun:
        return [f"{GROUP}={name}: a launcher starts the jobs of a sweep; add -m"]
    if not _is_installed(PACKAGES.get(name, "")):
        return [f"{GROUP}={name}: not installed; add the extra `launchers`: pip install -e '.[launchers]'"]
    if name == "submitit_slurm" and shutil.which("srun") is None:
        return [f"{GROUP}={name}: there is no srun on this machine; start it on a node of the cluster"]
    if (environment or {}).get("WORLD_SIZE", "1") not in ("", "1"):
        return [f"{GROUP}={name}: torchrun starts processes too; use one of them (README, Several processes)"]
    return []


def _is_installed(package: str) -> bool:
    """Whether a package can be found, without importing it; a launcher of another plugin ("") is Hydra's to find."""
    try:
        return not package or importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:  # not even hydra_plugins
        return False

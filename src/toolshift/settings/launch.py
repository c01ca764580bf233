"""The one way a script starts: check the whole command line first, then hand resolved settings to its stage.

Hydra composes and sweeps; this module decides what is refused and how that looks. A refused command ends with exit
status 2 and one message, before a numerical package is imported and before the first job of a sweep starts.
"""

from __future__ import annotations

import os
import shlex
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import hydra
from hydra._internal.utils import get_args_parser
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from toolshift.settings.compose import HYDRA_VERSION_BASE, load_settings, parse_overrides, sweep_jobs, to_settings
from toolshift.settings.errors import ConfigError, UserError, exit_code_of, is_user_facing
from toolshift.settings.options import conf_folder
from toolshift.settings.schema import Settings

# Exit status of a process ended by Ctrl-C, as shells report it.
INTERRUPTED = 130


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """What a script's entry gets: settings, the job's overrides, the dotted keys they set, a command to repeat it."""

    settings: Settings
    overrides: tuple[str, ...]
    overridden_keys: tuple[str, ...]
    command: str


Entry = Callable[[Launch], int]


class JobFailed(Exception):
    """A job of a sweep failed and has said why; tells Hydra's launcher, and carries the exit status."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def launch(entry: Entry, *, config: str) -> NoReturn:
    """Check the command line, run ``entry`` once per job, and exit.

    Args:
        entry: a module-level function; called with a resolved ``Launch``, returns an exit status.
        config: name of the primary config, the file ``conf/<config>.yaml``.

    Exit status: 0 if every job returned 0, 2 for a refused configuration, otherwise 1 or what the entry returned.
    Hydra's own flags (``--help``, ``--cfg job``, ``-m``) work as usual.
    """
    args = get_args_parser().parse_args()
    config = args.config_name or config
    try:
        folder = conf_folder()
        if not (args.help or args.hydra_help or args.shell_completion):
            _preflight(config, args.overrides, multirun=args.multirun, folder=folder)
    except UserError as error:
        _report(error)
        sys.exit(exit_code_of(error))
    sys.exit(_run(_Job(entry), config=config, folder=folder))


def overridden_keys(overrides: Sequence[str]) -> tuple[str, ...]:
    """Dotted keys, and groups, that a command line sets; sorted."""
    return tuple(sorted({override.key_or_group for override in parse_overrides(overrides)}))


def _preflight(config: str, overrides: Sequence[str], *, multirun: bool, folder: Path) -> None:
    for job in sweep_jobs(overrides, folder=folder) if multirun else [overrides]:
        settings = load_settings(config, job, folder=folder)
        _refuse_double_axis(settings, overridden_keys(job))


def _refuse_double_axis(settings: Settings, keys: Sequence[str]) -> None:
    """An axis written on the command line and fixed on the same line: which one is meant cannot be known."""
    if not any(key.split(".")[0] == "compare" for key in keys):
        return
    both = sorted(set(settings.compare) & set(keys))
    if both:
        raise ConfigError(
            [f"{key}: is both fixed and in compare on this command line; give one of them" for key in both]
        )


@dataclass
class _Job:
    """The task function of Hydra. In a single run the exit status is kept; in a sweep a failure is raised."""

    entry: Entry
    code: int = 0
    stopped: bool = False

    def __call__(self, cfg: DictConfig) -> None:
        context = HydraConfig.get()
        if self.stopped:
            print(f"skipped after a failure (runtime.on_error=stop): {shlex.join(_overrides())}", file=sys.stderr)
            return
        self.code = self._attempt(cfg)
        if self.code and context.mode == RunMode.MULTIRUN:
            self.stopped = cfg.runtime.on_error == "stop"
            raise JobFailed(self.code)

    def _attempt(self, cfg: DictConfig) -> int:
        try:
            return self.entry(_launch_of(cfg))
        except Exception as error:
            _report(error)
            return exit_code_of(error)


def _launch_of(cfg: DictConfig) -> Launch:
    overrides = _overrides()
    settings = to_settings(cfg)
    keys = overridden_keys(overrides)
    command = shlex.join(["python", _relative(sys.argv[0]), *overrides])
    return Launch(settings=settings, overrides=overrides, overridden_keys=keys, command=command)


def _overrides() -> tuple[str, ...]:
    return tuple(str(override) for override in HydraConfig.get().overrides.task)


def _relative(path: str) -> str:
    """Scripts are named as seen from the working directory, so that a record holds no machine's paths."""
    relative = os.path.relpath(path)
    return Path(path).name if relative.startswith("..") else relative


def _run(job: _Job, *, config: str, folder: Path) -> int:
    # Otherwise Hydra swallows the exception of a failed job and prints a shortened traceback of its own.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    start = hydra.main(version_base=HYDRA_VERSION_BASE, config_path=str(folder), config_name=config)(job)
    try:
        start()
    except JobFailed as failed:
        return failed.code
    except KeyboardInterrupt:
        print("interrupted; the same command continues where it stopped", file=sys.stderr)
        return INTERRUPTED
    except Exception as error:
        _report(error)
        return exit_code_of(error)
    return job.code


def _report(error: Exception) -> None:
    """A message for an error the user can mend, the full traceback for any other."""
    sys.stdout.flush()
    if isinstance(error, ConfigError):
        print("configuration refused:", *(f"  {problem}" for problem in error.problems), sep="\n", file=sys.stderr)
    elif is_user_facing(error):
        print(f"error: {error}", file=sys.stderr)
    else:
        traceback.print_exception(error, file=sys.stderr)

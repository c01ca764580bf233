"""The one way a script starts: check the whole command line first, then hand resolved settings to its stage.

Hydra composes and sweeps; this module decides what is refused and how that looks. A refused command ends with exit
status 2 and one message, before a numerical package is imported and before the first job of a sweep starts.
"""

from __future__ import annotations

import os
import shlex
import sys
import traceback
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

import hydra
from hydra._internal.utils import get_args_parser
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from toolshift.runs.log import command_log
from toolshift.settings.compose import HYDRA_VERSION_BASE, load_settings, parse_overrides, sweep_jobs, to_settings
from toolshift.settings.errors import ConfigError, UserError, exit_code_of, is_user_facing
from toolshift.settings.launchers import launcher_problems
from toolshift.settings.options import conf_folder
from toolshift.settings.schema import Settings

# Exit status of a process ended by Ctrl-C, as shells report it.
INTERRUPTED = 130
# What joblib and submitit raise for a job whose process is gone.
LOST_WORKER = ("TerminatedWorkerError", "BrokenProcessPool", "UncompletedJobError", "FailedJobError")


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """What a script's entry gets: settings, the job's overrides, the dotted keys they set, a command to repeat it.

    job: number of the job in a sweep, from 0, or None for a single command. Other jobs may run at the same time.
    """

    settings: Settings
    overrides: tuple[str, ...]
    overridden_keys: tuple[str, ...]
    command: str
    job: int | None = None


Entry = Callable[[Launch], int]


class JobFailed(Exception):
    """A job of a sweep failed and has said why; tells Hydra's launcher, and carries the exit status and the job."""

    def __init__(self, code: int, job: str) -> None:
        super().__init__(code, job)
        self.code, self.job = code, job


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
            if not args.cfg:
                _refuse_launcher(args.overrides, multirun=args.multirun)
    except UserError as error:
        _report(error)
        sys.exit(exit_code_of(error))
    sys.exit(_run(_Job(entry, script=_relative(sys.argv[0])), config=config, folder=folder))


def overridden_keys(overrides: Sequence[str]) -> tuple[str, ...]:
    """Dotted keys, and groups, that a command line sets; sorted."""
    return tuple(sorted({override.key_or_group for override in parse_overrides(overrides)}))


def _preflight(config: str, overrides: Sequence[str], *, multirun: bool, folder: Path) -> None:
    for job in sweep_jobs(overrides, folder=folder) if multirun else [overrides]:
        settings = load_settings(config, job, folder=folder)
        _refuse_double_axis(settings, overridden_keys(job))


def _refuse_launcher(overrides: Sequence[str], *, multirun: bool) -> None:
    found = launcher_problems(parse_overrides(overrides), multirun=multirun, environment=os.environ)
    if found:
        raise ConfigError(found)


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
    """The task function of Hydra. In a single run the exit status is kept; in a sweep a failure is raised.

    Launchers copy it to the processes of their jobs: what jobs tell each other goes through the sweep's folder.
    """

    entry: Entry
    script: str
    code: int = 0
    sweep: str = field(default_factory=lambda: uuid.uuid4().hex[:12])

    def __call__(self, cfg: DictConfig) -> None:
        context = HydraConfig.get()
        if context.mode != RunMode.MULTIRUN:
            self.code = self._attempt(cfg, job=None)
            return
        stopped = Path(context.sweep.dir) / f".stopped-{self.sweep}"
        job = shlex.join(_overrides())
        if stopped.exists():
            print(f"skipped after a failure (runtime.on_error=stop): {job}", file=sys.stderr)
            return
        code = self._attempt(cfg, job=int(context.job.num))
        if code:
            if cfg.runtime.on_error == "stop":
                stopped.touch()
            raise JobFailed(code, job)

    def _attempt(self, cfg: DictConfig, *, job: int | None) -> int:
        try:
            launch = _launch_of(cfg, script=self.script, job=job)
            with command_log(Path(launch.settings.paths.outputs), command=launch.command, job=job):
                return self.entry(launch)
        except Exception as error:
            _report(error)
            return exit_code_of(error)


def _launch_of(cfg: DictConfig, *, script: str, job: int | None) -> Launch:
    overrides = _overrides()
    settings = to_settings(cfg)
    keys = overridden_keys(overrides)
    command = shlex.join(["python", script, *overrides])
    return Launch(settings=settings, overrides=overrides, overridden_keys=keys, command=command, job=job)


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
        print(f"failed with exit status {failed.code}: {failed.job}", file=sys.stderr)
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
    elif type(error).__name__ in LOST_WORKER:
        reason = str(error).strip().splitlines() or [type(error).__name__]
        print(f"error: the process of a job ended without an answer (killed, out of memory, out of time): {reason[0]}\n"
              "the same command continues where it stopped", file=sys.stderr)  # fmt: skip
    else:
        traceback.print_exception(error, file=sys.stderr)

"""Studies: experiments that are no table of rankers on candidate lists (sequences, dispatch, latency ...).

A study is a class named by ``conf/study/<name>.yaml``. It reads its inputs, writes what it measures below its run
folder in parts that a rerun finds again, and draws its tables from that folder alone.
"""

from __future__ import annotations

import importlib
import logging
import os
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from toolshift.experiment.plan import NOT_IDENTITY_OF_ENCODER
from toolshift.experiment.resume import code_fingerprint
from toolshift.experiment.tables import Written
from toolshift.runs.environment import environment, peak_rss_mb
from toolshift.runs.files import read_json, write_json, write_text
from toolshift.runs.ledger import RunFolder, ledger
from toolshift.runs.locks import exclusive
from toolshift.settings.errors import UserError
from toolshift.settings.launch import Launch
from toolshift.settings.schema import Settings
from toolshift.settings.tree import as_mapping
from toolshift.views.manifest import write_table

log = logging.getLogger("toolshift")

CODE_FILE = ".code"
PARTS = "parts"
# What a study may depend on besides its own parameters; other keys of a command line would change nothing.
READ = ("study", "data", "dataset", "encoder", "seeds", "debug")
ALLOWED = (*READ, "name", "experiment", "evaluation", "runtime", "tracking", "paths", "hydra")


@dataclass(frozen=True, kw_only=True)
class StudyRun:
    """Where a study works. path: its run folder. inputs: fingerprints of what it read."""

    settings: Settings
    path: Path
    inputs: Mapping[str, str]

    def part(self, name: str, make: Callable[[], pd.DataFrame]) -> pd.DataFrame:
        """The frame that ``make`` gives, computed once per run folder: a rerun reads ``parts/<name>.parquet``."""
        file = self.path / PARTS / f"{name}.parquet"
        if not file.is_file():
            started = time.monotonic()
            write_table(file, pa.Table.from_pandas(make(), preserve_index=False))
            log.info("%s: %s in %.1f s", self.settings.name, name, time.monotonic() - started)
        return self.read(name)

    def read(self, name: str) -> pd.DataFrame:
        """A part that was computed.

        Raises:
            UserError: if it is not there.
        """
        file = self.path / PARTS / f"{name}.parquet"
        if not file.is_file():
            raise UserError(f"{self.path}: no part {name}; run the experiment again, it does what is missing")
        return pq.read_table(file).to_pandas()

    def parts(self) -> list[str]:
        """Names of the parts that are there, sorted."""
        root = self.path / PARTS
        return sorted(file.relative_to(root).with_suffix("").as_posix() for file in root.rglob("*.parquet"))


class Study(Protocol):
    """What the class of a study offers; it is built from the settings alone and reads nothing then."""

    def __init__(self, settings: Settings) -> None: ...

    def inputs(self) -> Mapping[str, str]:
        """Read the data; name -> fingerprint of everything that the results follow from.

        Raises:
            UserError: if data are missing or cannot be used.
        """
        ...

    def compute(self, run: StudyRun) -> None:
        """Make every part that is missing."""
        ...

    def report(self, run: StudyRun) -> Written:
        """Write tables and figures below ``paths.outputs``, from the parts alone."""
        ...


def build_study(settings: Settings) -> Study:
    """The study of an experiment.

    Raises:
        UserError: if the module or the class is not there.
    """
    module, _, name = str(settings.study.target).partition(":")
    try:
        return cast("Study", getattr(importlib.import_module(module), name)(settings))
    except (ImportError, AttributeError) as error:
        raise UserError(f"study.target: {settings.study.target} cannot be loaded: {error}") from error


def study_identity(settings: Settings, *, inputs: Mapping[str, str]) -> dict[str, Any]:
    """What names the run folder of a study: its parameters, data and encoder, without places."""
    plain = as_mapping(settings)
    config: dict[str, Any] = {key: plain[key] for key in READ}
    config["study"] = {key: plain["study"][key] for key in ("name", "target", "params")}
    config["data"] = {key: value for key, value in plain["data"].items() if key not in ("root", "cache")}
    config["encoder"]["params"] = {
        key: value for key, value in plain["encoder"]["params"].items() if key not in NOT_IDENTITY_OF_ENCODER
    }
    return {**config, "fingerprints": dict(sorted(inputs.items()))}


def run_study(launch: Launch) -> int:
    """Do what is missing of a study, then write its tables. Returns the exit status.

    Under torchrun rank 0 does all of it.

    Raises:
        UserError: for a key that no study reads, or what the study itself refuses.
    """
    from toolshift.experiment.main import changes, for_terminal, log_to_stderr, say
    from toolshift.runs.ranks import World

    start, settings = time.monotonic(), launch.settings
    _refuse(launch.overridden_keys, settings)
    log_to_stderr()
    if World.of(os.environ).rank:
        return 0
    for line in changes(settings):
        say(line)
    study = build_study(settings)
    inputs = study.inputs()
    identity = study_identity(settings, inputs=inputs)
    folder = RunFolder.of(Path(settings.paths.outputs), settings.name, identity)
    run = StudyRun(settings=settings, path=folder.path, inputs=inputs)
    with folder.lock():
        _fill(study, run, folder, identity=identity, launch=launch)
    with exclusive(Path(settings.paths.outputs) / "tables" / ".lock"):
        written = study.report(run)
    print(for_terminal(written.markdown))
    say("wrote " + ", ".join(str(path) for path in written.paths))
    say(f"run in {folder.path}")
    say(f"{time.monotonic() - start:.1f} s, peak memory {peak_rss_mb():.0f} MiB")
    return 0


def _refuse(keys: Sequence[str], settings: Settings) -> None:
    useless = sorted({key for key in keys if key.split(".")[0] not in ALLOWED})
    if useless:
        raise UserError(
            f"experiment={settings.name} does not read {', '.join(useless)}; its own parameters are study.params.KEY"
        )


def _fill(study: Study, run: StudyRun, folder: RunFolder, *, identity: Mapping[str, Any], launch: Launch) -> None:
    """Compute what is missing, and keep the exception of a study that fails."""
    from omegaconf import OmegaConf

    code = code_fingerprint(str(run.settings.study.target))
    same = _by_this_code(run.path, code)
    if folder.state == "done" and same:
        return
    if not same:
        for file in (run.path / PARTS).rglob("*.parquet"):
            file.unlink()
        write_text(run.path / CODE_FILE, code)
    started = time.monotonic()
    folder.begin(identity=identity, config_yaml=OmegaConf.to_yaml(OmegaConf.create(dict(identity))))
    try:
        study.compute(run)
        write_json(run.path / "run.json", _record(run, command=launch.command, started=started))
    except BaseException as error:
        with suppress(OSError):
            folder.fail(error, trace=traceback.format_exc())
        raise
    folder.finish()


def _by_this_code(path: Path, code: str) -> bool:
    note = path / CODE_FILE
    return note.is_file() and note.read_text(encoding="utf-8", errors="replace") == code


def _record(run: StudyRun, *, command: str, started: float) -> Mapping[str, Any]:
    return {
        **environment(command=command),
        "study": run.settings.study.name,
        "data": run.settings.data.source,
        "seeds": list(run.settings.seeds),
        "fingerprints": dict(sorted(run.inputs.items())),
        "parts": run.parts(),
        "device": run.settings.runtime.device,
        "world_size": 1,
        "wall_s": round(time.monotonic() - started, 3),
        "peak_rss_mb": peak_rss_mb(),
    }


def rebuild_study(composed: Settings, launch: Launch) -> Written | None:
    """Tables of the newest finished run of a study that agrees with the command line, real data before the sample;
    None, and a word to the user, where there is none."""
    from toolshift.experiment.main import for_terminal, say
    from toolshift.experiment.rebuild import command_of

    run = newest(composed, keys=launch.overridden_keys)
    if run is None:
        say(f"{composed.name}: no finished run that agrees with this command; make one:")
        say(f"  {command_of(launch, composed.name, {})}")
        return None
    with exclusive(Path(composed.paths.outputs) / "tables" / ".lock"):
        written = build_study(run.settings).report(run)
    print(for_terminal(written.markdown))
    say("wrote " + ", ".join(str(path) for path in written.paths))
    return written


def newest(composed: Settings, *, keys: Sequence[str]) -> StudyRun | None:
    """The newest finished run that has the values of ``composed`` at ``keys``; without them, real data first."""
    outputs = Path(composed.paths.outputs)
    found = [f for name, f, state in ledger(outputs) if name == composed.name and state == "done"]
    fitting = [run for run in (_as_made(composed, folder) for folder in found) if _agrees(run, composed, keys)]

    def rank(run: StudyRun) -> tuple[bool, bool, float]:
        settings = run.settings
        finished = (run.path / "status.json").stat().st_mtime
        return settings.data.source == "real", settings.debug.name == "none", finished

    return max(fitting, key=rank, default=None)


def _as_made(composed: Settings, folder: RunFolder) -> StudyRun:
    """A finished run with the settings it was made with, places and what only tables read as composed.

    Raises:
        UserError: if it was made by a version with other settings.
    """
    from toolshift.settings.convert import from_mapping
    from toolshift.settings.errors import ConfigError

    identity, plain = read_json(folder.path / "identity.json"), as_mapping(composed)
    for key in READ:
        made = identity[key]
        plain[key] = {**plain[key], **made} if isinstance(made, Mapping) else made
    if plain["debug"]["replicates"] is not None:  # no part of what a run computes, but of what debug=tiny asks for
        plain["evaluation"]["replicates"] = plain["debug"]["replicates"]
    for name in NOT_IDENTITY_OF_ENCODER:
        if name in as_mapping(composed)["encoder"]["params"]:
            plain["encoder"]["params"].setdefault(name, as_mapping(composed)["encoder"]["params"][name])
    try:
        settings = from_mapping(Settings, plain)
    except ConfigError as error:
        raise UserError(f"{folder.path} was made by another version ({error}); run it again") from error
    return StudyRun(settings=settings, path=folder.path, inputs=identity["fingerprints"])


def _agrees(run: StudyRun, composed: Settings, keys: Sequence[str]) -> bool:
    made, wanted = as_mapping(run.settings), as_mapping(composed)
    compared = (key for key in keys if key.split(".")[0] in READ and key not in ("data.root", "data.cache"))
    return all(_value(made, key) == _value(wanted, key) for key in compared)


def _value(content: Any, key: str) -> Any:
    for name in key.split("."):
        content = content.get(name) if isinstance(content, Mapping) else None
    return content

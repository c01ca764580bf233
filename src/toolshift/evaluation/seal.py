"""The seal on targets: no value is computed for a target before its selection record exists and fits its checkpoint."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from toolshift.runs.files import read_json, sha256_file
from toolshift.selection.records import checkpoint_path, record_path


class SealedTarget(ValueError):
    """A target may not be opened."""

    user_facing = True


def open_target(run: Path, target: str, *, seed: int, data: str, held_out: Collection[str]) -> None:
    """Check that a target may be evaluated.

    data: fingerprint that the fit must have been made from. held_out: contexts that it must not have seen.

    Raises:
        SealedTarget: if the record is missing, belongs to another target, seed or data, names a held-out
            context among those seen, or does not match the checkpoint on disk.
    """
    path, where = record_path(run, target, seed), f"target {target}, seed {seed}"
    if not path.exists():
        raise SealedTarget(f"{where}: {path} is missing, so nothing was selected for it; run the command again")
    record = read_json(path)
    if (record.get("target"), record.get("seed")) != (target, seed):
        raise SealedTarget(f"{where}: {path} was written for {record.get('target')}, seed {record.get('seed')}")
    if record.get("data") != data:
        raise SealedTarget(f"{where}: {path} was selected on other lists or texts; delete the run folder and run again")
    if set(held_out) & set(record.get("contexts_seen", ())):
        raise SealedTarget(f"{where}: the fit has seen its own target")
    _match_checkpoint(checkpoint_path(run, target, seed), record.get("checkpoint_sha256"), where=where)


def _match_checkpoint(path: Path, expected: str | None, *, where: str) -> None:
    if expected is None and not path.exists():
        return
    if expected is None or not path.exists():
        raise SealedTarget(f"{where}: {path} and the selection record disagree on whether a checkpoint exists")
    if sha256_file(path) != expected:
        raise SealedTarget(f"{where}: {path} is not the checkpoint that was selected; delete both and run again")

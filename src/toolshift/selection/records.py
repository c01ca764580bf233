"""Selection records and checkpoints: what was fitted for a target, on which contexts, and how it was chosen.

The record names the hash of its checkpoint; evaluation opens a target only where both exist and agree
(``toolshift.evaluation.seal``).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from toolshift.models.base import Scorer
from toolshift.runs.files import folder_name, read_json, sha256_file, write_binary, write_json

# One key, since the order of several is not fixed in the file and equal content must give equal bytes.
_META = "toolshift"


@runtime_checkable
class Stateful(Protocol):
    """A scorer whose fitted state can be stored and restored."""

    def state(self) -> Mapping[str, NDArray[Any]]:
        """Arrays that, with the contexts seen, are all there is to know about the fit."""
        ...


def record_path(run: Path, target: str, seed: int) -> Path:
    """``selection/<target>/seed=<s>.json``."""
    return run / "selection" / folder_name(target) / f"seed={seed}.json"


def checkpoint_path(run: Path, target: str, seed: int) -> Path:
    """``checkpoints/<target>/seed=<s>.safetensors``."""
    return run / "checkpoints" / folder_name(target) / f"seed={seed}.safetensors"


def write_selection(run: Path, scorer: Scorer, *, target: str, seed: int, choice: Mapping[str, Any], data: str) -> Path:
    """Store the checkpoint (where there is fitted state), then the record that names its hash.

    choice: grid, inner folds, values and choice of the selection; empty where nothing was chosen. data: fingerprint
    of what the fit was made from (records, encoder, manifests).
    """
    checkpoint = None
    if isinstance(scorer, Stateful):
        path = checkpoint_path(run, target, seed)
        write_checkpoint(path, scorer, target=target, seed=seed)
        checkpoint = sha256_file(path)
    content = {
        "target": target,
        "seed": seed,
        "contexts_seen": list(scorer.contexts_seen),
        "checkpoint_sha256": checkpoint,
        "data": data,
        "fitted": dict(scorer.record),
        "selection": dict(choice),
    }
    return write_json(record_path(run, target, seed), content)


def write_checkpoint(path: Path, scorer: Scorer, *, target: str, seed: int) -> Path:
    """Fitted arrays as safetensors; the class, target, seed and every context seen in its header."""
    from safetensors.numpy import save

    assert isinstance(scorer, Stateful)
    kind = type(scorer)
    meta = {
        "class": f"{kind.__module__}:{kind.__qualname__}",
        "target": target,
        "seed": seed,
        "contexts_seen": list(scorer.contexts_seen),
    }
    arrays = {name: np.ascontiguousarray(value) for name, value in sorted(scorer.state().items())}
    content = save(arrays, metadata={_META: json.dumps(meta, sort_keys=True)})

    def fill(stream: IO[bytes]) -> None:
        stream.write(content)

    return write_binary(path, fill)


def read_checkpoint(path: Path) -> tuple[Mapping[str, Any], Mapping[str, NDArray[Any]]]:
    """(header, arrays) of a checkpoint.

    Raises:
        ValueError: if the file is not a checkpoint of this package.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(path), framework="numpy") as stream:
            meta = json.loads((stream.metadata() or {})[_META])
            return meta, {name: stream.get_tensor(name) for name in sorted(stream.keys())}
    except (SafetensorError, KeyError, OSError, json.JSONDecodeError) as error:
        raise ValueError(f"{path} is not a whole checkpoint ({error}); delete it and run the command again") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectionSummary:
    """What the records of a run say together.

    not_converged: (target, seed) records that call themselves not converged. selected: canonical JSON of a setting ->
    targets for which some seed chose it; empty for a row without a grid.
    """

    not_converged: int
    selected: Mapping[str, int]


def summarise_selection(run: Path, *, targets: Sequence[str], seeds: Sequence[int]) -> SelectionSummary:
    """Count over the records of the named targets and seeds; others that lie in the folder are not read."""
    not_converged, selected = 0, Counter[str]()
    for target in targets:
        chosen: set[str] = set()
        for seed in seeds:
            selection = read_json(record_path(run, target, seed))["selection"]
            not_converged += selection.get("converged") is False
            if "choice" in selection:
                chosen.add(json.dumps(selection["choice"], sort_keys=True))
        selected.update(sorted(chosen))
    return SelectionSummary(not_converged=not_converged, selected=dict(sorted(selected.items())))

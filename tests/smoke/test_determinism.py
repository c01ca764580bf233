"""The same numbers whatever the hash seed, and a sweep that runs each of its jobs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any


def test_hash_seeds_change_no_byte(tools: Any, tmp_path: Path) -> None:
    """From an empty folder each: sample, records, embeddings, manifests, scores, tables and figures."""
    shown = ("protocol.purge=gold", "view=[natural,mixed]", "evaluation.slices=[all,miner]")
    chosen = (*tools.tiny, "model=[random,candidate_only]", *shown)
    folders = [tmp_path / seed for seed in ("0", "1")]
    started = [tools.start(folder, *chosen, PYTHONHASHSEED=folder.name) for folder in folders]
    first, second = (tools.wait(process, folder) for process, folder in zip(started, folders, strict=True))
    assert first.code == second.code == 0, first.err + second.err
    ours, theirs = made(tools, first.folder), made(tools, second.folder)
    assert any("manifests/" in name for name in ours)
    assert ours == theirs


def made(tools: Any, folder: Path) -> dict[str, str]:
    """Digests of all files but the notes on the modification times of raw files."""
    return {name: digest for name, digest in tools.digests(folder).items() if "/records/toolbench/raw/" not in name}


def test_a_sweep_over_two_miners(call: Callable[..., Any], tools: Any) -> None:
    outcome = call(
        "-m", *tools.tiny[:-1], "view.miner=dense,bm25", "protocol.purge=none", "view=semantic",
        "model=bm25", "evaluation.slices=[all]",
    )  # fmt: skip
    assert outcome.code == 0, outcome.err
    cells = {
        (record["model"], record["variant"]["miner"])
        for record in (json.loads((run / "run.json").read_text()) for run in outcome.runs)
    }
    assert cells == {(m, miner) for m in ("bm25", "semantic_cosine") for miner in ("dense", "bm25")}
    assert len(outcome.runs) == 4
    table = (outcome.folder / "outputs/tables/lodo.csv").read_text()
    assert ",dense," in table
    assert ",bm25," in table

"""A small per-task frame with a known structure."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest


def build(
    *,
    n_targets: int = 12,
    views: tuple[str, ...] = ("semantic", "natural"),
    slices: tuple[str, ...] = ("all",),
    models: dict[str, int] | None = None,
    shift: dict[str, float] | None = None,
    purges: tuple[str, ...] = ("none",),
) -> pd.DataFrame:
    """``models``: seeds per model; ``shift``: what a model adds to a task's common value."""
    models = models or {"semantic_cosine": 1, "bm25": 1, "random": 3}
    rng = np.random.default_rng(0)
    rows = []
    for view in views:
        for g in range(n_targets):
            for t in range(3 + g):
                common = rng.uniform(0.3, 0.7)
                noise = {m: rng.normal(0, 0.05, size=n) for m, n in models.items()}
                for part in slices:
                    if part != "all" and t % 2:
                        continue
                    for purge in purges:
                        for model, seeds in models.items():
                            for s in range(seeds):
                                value = common + noise[model][s] + (shift or {}).get(model, 0.0)
                                rows.append(
                                    (purge, part, f"t{g:02d}", view, f"d/{g:02d}-{t:02d}", model, 40 + s, value)
                                )
    frame = pd.DataFrame(rows, columns=["purge", "slice", "target", "view", "task_id", "model", "seed", "NDCG@5"])
    return frame.assign(
        protocol="lodo", universe="domain", miner="union", tied=False, scored=True, n_candidates=20, n_gold=2,
        RR=frame["NDCG@5"] * 0.5,
    )  # fmt: skip


@pytest.fixture
def per_task() -> Callable[..., pd.DataFrame]:
    return build

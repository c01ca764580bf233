"""Speed of our measures beside pytrec_eval on the same lists."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from toolshift.measures import evaluate_lists

MEASURES = ("MRR", "NDCG@5", "HR@3")
T = TypeVar("T")
_PYTREC_NAMES = ("recip_rank", "ndcg_cut_5", "success_3")


def bench_measures(n_tasks: int = 100_000, length: int = 20, seed: int = 0) -> dict[str, float]:
    """Time MRR, NDCG@5 and HR@3 over ``n_tasks`` lists with 1 to 3 relevant candidates; the best of a few repeats.

    Returns seconds (``ours_s``; ``pytrec_s`` for its evaluator and evaluation; ``pytrec_dicts_s`` for building the
    dictionaries that it takes from the same arrays), the ratios ``speedup`` (without the dictionaries) and
    ``speedup_with_dicts``, and the largest absolute difference between the two results (``max_difference``; scores
    are distinct, so the tie rule plays no part).

    Raises:
        ModuleNotFoundError: without pytrec_eval (extra ``dev``).
    """
    scores, relevant = _random_lists(n_tasks, length=length, seed=seed)
    offsets = np.arange(n_tasks + 1, dtype=np.int64) * length

    ours, ours_s = _best_of(
        lambda: evaluate_lists(scores.ravel(), relevant.ravel(), offsets=offsets, measures=MEASURES), repeats=5
    )
    run, qrel, dicts_s = _pytrec_dicts(scores, relevant)
    theirs, pytrec_s = _pytrec(run, qrel)
    stacked = np.stack([ours.values[m] for m in MEASURES], axis=1)
    return {
        "n_tasks": float(n_tasks),
        "length": float(length),
        "ours_s": ours_s,
        "pytrec_s": pytrec_s,
        "pytrec_dicts_s": dicts_s,
        "speedup": pytrec_s / ours_s,
        "speedup_with_dicts": (pytrec_s + dicts_s) / ours_s,
        "max_difference": float(np.abs(stacked - theirs).max()),
    }


def _best_of(call: Callable[[], T], *, repeats: int) -> tuple[T, float]:
    """Result and shortest wall time: the minimum is the figure that other work on the machine disturbs least."""
    seconds = []
    result: T | None = None
    for _ in range(repeats):
        start = time.perf_counter()
        result = call()
        seconds.append(time.perf_counter() - start)
    return cast(T, result), min(seconds)


def _random_lists(n_tasks: int, *, length: int, seed: int) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Scores (n, length), all distinct inside a list, and relevance with 1..3 positives a list."""
    rng = np.random.Generator(np.random.Philox(seed))
    order = rng.permuted(np.broadcast_to(np.arange(length), (n_tasks, length)), axis=1)
    n_gold = rng.integers(1, min(3, length) + 1, size=n_tasks)
    relevant = rng.permuted(np.arange(length) < n_gold[:, None], axis=1)
    return order / length, relevant


def _pytrec_dicts(
    scores: NDArray[np.float64], relevant: NDArray[np.bool_]
) -> tuple[dict[str, dict[str, float]], dict[str, dict[str, int]], float]:
    start = time.perf_counter()
    names = [f"d{i}" for i in range(scores.shape[1])]
    run = {f"q{i}": dict(zip(names, row, strict=True)) for i, row in enumerate(scores.tolist())}
    labels: Sequence[list[int]] = relevant.astype(int).tolist()
    qrel = {f"q{i}": dict(zip(names, row, strict=True)) for i, row in enumerate(labels)}
    return run, qrel, time.perf_counter() - start


def _pytrec(run: Any, qrel: Any) -> tuple[NDArray[np.float64], float]:
    import pytrec_eval

    wanted = {"recip_rank", "ndcg_cut.5", "success.3"}
    # Reading the labels is part of the work: ours reads them too.
    result, seconds = _best_of(lambda: pytrec_eval.RelevanceEvaluator(qrel, wanted).evaluate(run), repeats=3)
    return np.array([[result[query][name] for name in _PYTREC_NAMES] for query in run]), seconds

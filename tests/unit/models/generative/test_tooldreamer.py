"""ToolDreamer's queries and the fusion of its lists, by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from toolshift.models.base import BadParameter
from toolshift.models.generative import tooldreamer
from toolshift.models.generative.requests import Dream
from toolshift.models.generative.tooldreamer import ToolDreamerStandin, fused, qtnd, standin_text

VECTORS = {"apple": (1, 0), "berry": (0.8, 0.6), "cedar": (0.6, 0.8), "dates": (0, 1), "dates apple": (1, 0.1)}


def test_reciprocal_ranks_over_several_lists(grid: Any, make: Any) -> None:
    """Dense ``dates apple``: a b c d; dense ``cedar``: c b d a. BM25 ``dates apple``: a and d share 1; ``cedar``: c."""
    bank = make.bank(grid, VECTORS)
    both = ("semantic_cosine", "bm25")
    found = fused(make.all_pairs(grid), {0: ("dates apple", "cedar")}, bank=bank, over=both, k=60)
    expected = [
        1 / 61 + 1 / 64 + 1 / 61,
        1 / 62 + 1 / 62,
        1 / 63 + 1 / 61 + 1 / 61,
        1 / 64 + 1 / 63 + 1 / 61,
    ]
    np.testing.assert_allclose(found[:4], expected, rtol=1e-12)
    np.testing.assert_array_equal(found[4:], 0.0)


def test_k_and_lists_are_parameters(grid: Any, make: Any) -> None:
    bank = make.bank(grid, VECTORS)
    lexical = fused(make.all_pairs(grid), {0: ("dates apple", "cedar")}, bank=bank, over=("bm25",), k=0)
    np.testing.assert_allclose(lexical[:4], [1, 0, 1, 1])
    dense = fused(make.all_pairs(grid), {0: ("cedar",)}, bank=bank, over=("semantic_cosine",), k=1)
    np.testing.assert_allclose(dense[:4], [1 / 5, 1 / 3, 1 / 2, 1 / 4])


def test_texts_of_queries() -> None:
    dream = Dream(thought="rain matters", name="get_rain", description="Tells the rain.")
    assert qtnd("umbrella?", dream) == "umbrella? rain matters get_rain Tells the rain."
    assert qtnd("umbrella?", Dream(thought="", name="n", description="d")) == "umbrella? n d"
    assert standin_text("rain and wind", "find rain") == "rain and wind find rain Tool that can find rain"


@pytest.mark.parametrize("mechanism", ["requirements", "tool text", "bm25", "dense"])
def test_without_a_mechanism_scores_change(
    fixed_world: Any, make: Any, monkeypatch: pytest.MonkeyPatch, mechanism: str
) -> None:
    pairs = make.all_pairs(fixed_world.corpus)
    monkeypatch.setattr("toolshift.text.requirements.requirements", lambda text: tuple(text.split()[1:3]))
    whole = ToolDreamerStandin().score(pairs, bank=fixed_world.bank(), seed=0)
    row = ToolDreamerStandin()
    if mechanism == "requirements":
        monkeypatch.setattr(
            tooldreamer, "required", lambda p, corpus: {int(t): (corpus.task_texts[t],) for t in np.unique(p.task)}
        )
    elif mechanism == "tool text":
        monkeypatch.setattr(tooldreamer, "standin_text", lambda task, need: need)
    else:
        row = ToolDreamerStandin(over=("semantic_cosine",) if mechanism == "bm25" else ("bm25",))
    without = row.score(pairs, bank=fixed_world.bank(), seed=0)
    order = [np.argsort(-s.reshape(fixed_world.corpus.n_tasks, -1), axis=1, kind="stable") for s in (whole, without)]
    assert (order[0] != order[1]).any()


@pytest.mark.parametrize("bad", [{"k": -1.0}, {"over": ()}, {"over": ("cosine",)}, {"over": ("bm25", "bm25")}])
def test_parameters_out_of_range(bad: dict[str, Any]) -> None:
    with pytest.raises(BadParameter, match="tooldreamer_standin"):
        ToolDreamerStandin(**bad)

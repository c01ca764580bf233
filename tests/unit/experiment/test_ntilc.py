"""The NTILC studies: splits, values per query by hand, missing runs, pooling, times and tokens."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolshift.data.records import Capability, Endpoint, Library, Task
from toolshift.experiment.ntilc import NtilcStudy
from toolshift.experiment.ntilc_data import (
    Registry,
    blur_frame,
    blur_of,
    limited,
    published_theta,
    registry_facts,
    split_of,
    split_queries,
    split_tools,
)
from toolshift.experiment.ntilc_registry import PHASES, Prompts, RegistryStudy, Stopwatch, grown, latency
from toolshift.experiment.ntilc_rows import BlurQueries, Dense, Recipe, incompatibility, values
from toolshift.experiment.study import StudyRun
from toolshift.models.ntilc.blur import BlurPairs
from toolshift.models.ntilc.encoder import NtilcEncoder, network, text_codes
from toolshift.models.ntilc.signature import Signatures
from toolshift.runs.seeds import generator
from toolshift.settings.errors import UserError
from toolshift.text.encoder import unit_rows
from toolshift.text.hashing import Hashing

ITEMS = [{"arg:a", "ret:x"}, {"arg:a", "ret:y"}, {"arg:b", "ret:x"}, {"arg:a", "ret:x"}]
"""w: 2/3 between tools 0 and 1, 0 and 2; 1 between 1 and 2; 0 between 0 and 3."""


def registry_of(gold: Sequence[Sequence[int]], *, texts: Sequence[str] | None = None, n: int = 4) -> Registry:
    """A registry of ``n`` tools; vectors are drawn, each query has those gold tools."""
    random = generator("test registry", n, len(gold))
    words = list(texts) if texts is not None else [f"request {i}" for i in range(len(gold))]
    capabilities = tuple(Capability(capability_id=f"d/{i:02d}", dataset="d", name=f"t{i}") for i in range(n))
    endpoints = tuple(
        Endpoint(endpoint_id=f"{c.capability_id}/run", capability_id=c.capability_id, operation="run")
        for c in capabilities
    )
    tasks = tuple(
        Task(
            task_id=f"d/task{i:03d}",
            dataset="d",
            domain="",
            text=words[i],
            gold_capability_ids=tuple(f"d/{tool:02d}" for tool in some),
            gold_endpoint_ids=tuple(f"d/{tool:02d}/run" for tool in some),
        )
        for i, some in enumerate(gold)
    )
    from toolshift.protocols.purge import normalise
    from toolshift.protocols.trajectory_split import components

    renderings = tuple(f"tool {i}" for i in range(n))
    return Registry(
        name="d",
        library=Library(capabilities, endpoints),
        tasks=tasks,
        texts=renderings,
        code=text_codes(renderings),
        tool_vectors=unit_rows(random.standard_normal((n, 8))),
        query_vectors=unit_rows(random.standard_normal((len(gold), 8))),
        offsets=np.concatenate([[0], np.cumsum([len(some) for some in gold])]).astype(np.int64),
        gold=np.array([tool for some in gold for tool in some], np.int64),
        group=components([[normalise(word)] for word in words]),
        compat=Signatures.of_items(frozenset(ITEMS[i % 4]) for i in range(n)),
        read=len(gold),
        without_gold=0,
    )


def pairs_of(pairs: Sequence[tuple[int, int]], *, n: int = 4, bits: Sequence[int] | None = None) -> BlurPairs:
    left, right = (np.array(side, np.int64) for side in zip(*pairs, strict=True))
    ones = np.ones(len(pairs), np.float32)
    kinds = np.array(bits if bits is not None else [1] * len(pairs), np.uint8)
    return BlurPairs(left=left, right=right, cosine=ones, lexical=ones, w=ones, slice=kinds, n_tools=n)


class Scripted:
    """Scores by hand, (queries, tools)."""

    def __init__(self, scores: Sequence[Sequence[float]]) -> None:
        self.scores = np.array(scores)

    def top(self, rows: Any, *, k: int) -> Any:
        return np.argsort(-self.scores[rows], axis=1, kind="stable")[:, :k]

    def pairs(self, rows: Any, tools: Any) -> Any:
        return self.scores[rows, tools]


# --- values per query -------------------------------------------------------------------------------------------------


def test_values_by_hand() -> None:
    """Pairs 0-1 and 0-2. Query 0 (gold 0) is right and above partner 1, but equal to 2, which is not above. Query 1
    (gold 1) takes tool 2: w(2, 1) = 1. Query 2 (gold 3) takes tool 0, whose signature is the same: no functional error,
    and no blur query."""
    registry = registry_of([[0], [1], [3]])
    scores = [[0.9, 0.1, 0.9, 0.0], [0.5, 0.6, 0.8, 0.1], [0.9, 0.2, 0.1, 0.3]]
    rows = np.arange(3)
    triples = BlurQueries.of(registry, rows, pairs_of([(0, 1), (0, 2)]))
    found, top = values(registry, rows, Scripted(scores), triples=triples)
    assert top[:, 0].tolist() == [0, 2, 0]
    np.testing.assert_array_equal(found["Top-1"], [1, 0, 0])
    np.testing.assert_array_equal(found["Top-5"], [1, 1, 1])
    np.testing.assert_array_equal(found["Blur-Acc"], [1, 0, np.nan])
    np.testing.assert_array_equal(found["Blur-Pair"], [0.5, 1, np.nan])
    for name in ("FE(0)", "FE(0.3)", "FE(0.5)"):
        np.testing.assert_array_equal(found[name], [0, 1, 0])


def test_a_partner_that_is_gold_too_is_no_partner() -> None:
    registry = registry_of([[0, 1], [0, 2]])
    triples = BlurQueries.of(registry, np.arange(2), pairs_of([(0, 1)]))
    assert triples.inside.tolist() == [False, True]
    assert (triples.query.tolist(), triples.gold.tolist(), triples.partner.tolist()) == ([1], [0], [1])


def test_incompatibility_is_that_with_the_nearest_gold_tool() -> None:
    """w(3, 1) = 2/3 and w(3, 0) = 0."""
    registry = registry_of([[0, 1], [1]])
    np.testing.assert_allclose(incompatibility(registry, np.arange(2), np.array([3, 3])), [0, 2 / 3], rtol=1e-6)


def test_values_follow_the_order_of_the_rows() -> None:
    registry = registry_of([[0], [1], [2]])
    ranking = Dense(registry.query_vectors, registry.tool_vectors)
    blur = pairs_of([(0, 1), (1, 2)])
    forward, back = np.arange(3), np.array([2, 1, 0])
    first = values(registry, forward, ranking, triples=BlurQueries.of(registry, forward, blur))[0]
    second = values(registry, back, ranking, triples=BlurQueries.of(registry, back, blur))[0]
    for name in first:
        np.testing.assert_array_equal(first[name], second[name][::-1])


# --- splits -----------------------------------------------------------------------------------------------------------

golds = st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=3, unique=True).map(sorted), min_size=10, max_size=40)


@given(gold=golds, copies=st.integers(0, 5))
def test_query_split_keeps_texts_together_and_takes_its_share(gold: list[list[int]], copies: int) -> None:
    texts = [f"request {i}" for i in range(len(gold))]
    texts[:copies] = ["Request 0!"] * copies
    registry = registry_of(gold, texts=texts, n=10)
    split = split_queries(registry, share=0.2, seed=1)
    assert sorted([*split.train.tolist(), *split.test.tolist()]) == list(range(len(gold)))
    assert not set(registry.group[split.train]) & set(registry.group[split.test])
    assert np.unique(registry.group[split.test]).size == int(0.2 * np.unique(registry.group).size + 1e-9)


@given(gold=golds)
def test_tool_split_trains_on_no_held_out_tool(gold: list[list[int]]) -> None:
    texts = [f"request {i // 2}" for i in range(len(gold))]
    registry = registry_of(gold, texts=texts, n=10)
    split = split_tools(registry, share=0.3, seed=1)
    held = split.held_out
    assert held.sum() == round(0.3 * np.unique(registry.gold).size)
    assert not held[registry.gold_of(split.train)[0]].any()
    tested = [i for i, some in enumerate(gold) if held[some].any()]
    assert split.test.tolist() == tested
    assert split.novel.tolist() == [bool(held[gold[i]].all()) for i in tested]
    assert not set(registry.group[split.train]) & set(registry.group[split.test])
    assert split.train.size + split.test.size + split.dropped == len(gold)


def test_strata_give_their_share() -> None:
    """40 queries of one tool and 10 of another: 8 and 2 are tested."""
    registry = registry_of([[0]] * 40 + [[1]] * 10)
    split = split_queries(registry, share=0.2, seed=7)
    assert np.bincount(registry.gold[split.test]).tolist() == [8, 2]


def test_a_side_without_queries_is_refused() -> None:
    with pytest.raises(UserError, match="max_queries"):
        split_of(registry_of([[0], [1]]), "query", share=0.2, seed=1)
    with pytest.raises(UserError, match="query, tool"):
        split_of(registry_of([[0], [1]]), "domain", share=0.2, seed=1)


def test_the_cap_keeps_order_and_does_not_depend_on_it() -> None:
    tasks = registry_of([[0]] * 9).tasks
    kept = limited(tasks, 4)
    assert [t for t in tasks if t in kept] == kept
    assert set(limited(tasks[::-1], 4)) == set(kept)
    assert limited(tasks, None) == list(tasks)


# --- blur pairs and coverage ------------------------------------------------------------------------------------------


def test_published_theta_finds_exactly_the_published_count() -> None:
    registry = registry_of([[0]], n=30)
    blur = blur_of(blur_frame(registry, theta_s=0.75, theta_w=0.5, lexical=1.0), n_tools=30)
    theta = published_theta(registry, blur, count=25, theta_w=0.5)
    w = 1 - registry.compat.compat(np.arange(30), np.arange(30))
    cosine = registry.tool_vectors @ registry.tool_vectors.T
    assert np.triu((w >= 0.5) & (cosine >= theta - 1e-6), 1).sum() == 25


def test_empty_signatures_are_counted() -> None:
    registry = replace(registry_of([[0]]), compat=Signatures.of_items([frozenset()] * 3 + [frozenset({"arg:a"})]))
    frame = registry_facts(registry, pairs_of([(0, 3)]), published=None, theta_w=0.5)
    facts = dict(zip(frame["fact"], frame["value"], strict=True))
    assert facts["empty signatures"] == 3
    assert facts["tool pairs with two empty signatures"] == 3


# --- the study --------------------------------------------------------------------------------------------------------


def test_a_recipe_knows_its_keys() -> None:
    recipe = Recipe.of("row", {"loss": "prototype", "lambda2": 0.0, "epochs": 3}, mode="frozen")
    assert recipe.by_prototype
    assert (recipe.schedule.epochs, recipe.schedule.validation, recipe.schedule.patience) == (3, 0.0, None)
    with pytest.raises(UserError, match="lamda2"):
        Recipe.of("row", {"lamda2": 0.0}, mode="frozen")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[NtilcStudy, StudyRun]:
    """A small study in which MetaTool, whose signatures say nothing in the sample, cannot have the FM step."""
    from toolshift.settings.compose import load_settings

    root = tmp_path_factory.mktemp("ntilc")
    overrides = [
        "experiment=ntilc", "debug=tiny", "data.sample_size=tiny", "seeds=[42]", f"data.cache={root / 'cache'}",
        f"paths.outputs={root / 'outputs'}", "study.params.sample_datasets=[bfcl,metatool,toolbench]",
        "study.params.max_queries=60", "study.params.rows=[minilm_frozen,prototype_ce,ntilc_circle,ntilc]",
        "study.params.epochs=1",
    ]  # fmt: skip
    study = NtilcStudy(load_settings("train", overrides))
    run = StudyRun(settings=study.settings, path=root / "run", inputs=study.inputs())
    study.compute(run)
    return study, run


def test_a_training_without_active_pairs_is_a_missing_run(finished: tuple[NtilcStudy, StudyRun]) -> None:
    study, run = finished
    lost = run.read("rows/metatool, split=query/ntilc-42")
    assert lost["missing"].str.contains("active share 0").all()
    study.report(run)
    text = (Path(study.settings.paths.outputs) / "tables" / "ntilc.md").read_text()
    assert "Missing run: metatool, split=query: ntilc, seed 42: active share 0" in text
    assert "without metatool" in text


def test_the_pool_has_the_step_and_the_same_queries_in_every_row(finished: tuple[NtilcStudy, StudyRun]) -> None:
    study, run = finished
    frame, _ = study._values(run)
    pooled = frame.loc[(frame["view"] == "pooled") & (frame["split"] == "query")]
    assert set(pooled["model"]) == {"minilm_frozen", "prototype_ce", "ntilc_circle", "ntilc"}
    queries = pooled.groupby("model")["task_id"].apply(frozenset)
    assert queries.nunique() == 1
    assert {task.partition("/")[0] for task in queries["ntilc"]} == {"bfcl", "toolbench"}


def test_prototypes_have_no_row_on_held_out_tools(finished: tuple[NtilcStudy, StudyRun]) -> None:
    _, run = finished
    models = {name.rpartition("/")[2] for name in run.parts() if name.startswith("rows/bfcl, split=tool/")}
    assert models == {"minilm_frozen-0", "ntilc_circle-42", "ntilc-42"}


def test_a_stopped_study_does_only_what_is_missing(
    finished: tuple[NtilcStudy, StudyRun], monkeypatch: pytest.MonkeyPatch
) -> None:
    study, run = finished
    again = NtilcStudy(study.settings)
    monkeypatch.setattr(again.data, "registry", lambda name: pytest.fail(f"{name} was read again"))
    again.compute(run)
    monkeypatch.undo()
    part = run.path / "parts" / "rows" / "bfcl, split=query" / "ntilc-42.parquet"
    before = part.read_bytes()
    part.unlink()
    again.compute(run)
    assert part.read_bytes() == before


def test_cases_are_misses_to_a_blur_partner(finished: tuple[NtilcStudy, StudyRun]) -> None:
    study, run = finished
    frame, _ = study._values(run)
    cases = study._cases(frame)
    assert len(cases)
    for row in cases.to_dict("records"):
        assert row["predicted"] not in row["gold"].split()


def test_what_does_not_exist_is_refused(settings_of: Callable[..., Any]) -> None:
    with pytest.raises(UserError, match="ntlc"):
        NtilcStudy(settings_of("experiment=ntilc", "study.params.rows=[ntlc]"))
    with pytest.raises(UserError, match="pooled='all'"):
        NtilcStudy(settings_of("experiment=ntilc", "study.params.pooled=all"))
    with pytest.raises(UserError, match="encoder_mode='thawed'"):
        NtilcStudy(settings_of("experiment=ntilc", "study.params.encoder_mode=thawed"))
    with pytest.raises(UserError, match="annoy"):
        RegistryStudy(settings_of("experiment=ntilc_registry", "study.params.backends=[annoy]"))


# --- cost by registry size --------------------------------------------------------------------------------------------


def test_a_registry_grows_by_noisy_copies() -> None:
    vectors = unit_rows(generator("test grown").standard_normal((5, 16)))
    np.testing.assert_array_equal(grown(vectors, 3), unit_rows(vectors[:3]))
    many = grown(vectors, 12)
    np.testing.assert_allclose(np.linalg.norm(many, axis=1), 1, rtol=1e-5)
    assert len(np.unique(many, axis=0)) == 12
    assert ((many @ vectors.T).argmax(axis=1) == np.arange(12) % 5).all()


def test_stopwatch_measures_every_phase_and_an_added_tool_is_found() -> None:
    """The clock moves one second at each look, so that every measurement is one second."""
    ticks = itertools.count()
    base = Hashing(dim=32)
    encoder = NtilcEncoder(net=network(dim=32, seed=0, width=8).eval(), base=base)
    tools = unit_rows(generator("test tools").standard_normal((20, 8)))
    watch = Stopwatch(
        encoder=encoder, tools=tools, texts=["a", "b", "c"], backends=["exact"], batches=[1, 4], repeats=3,
        now=lambda: float(next(ticks)),
    )  # fmt: skip
    frame = watch.frame()
    assert set(frame["ms"]) == {1000.0}
    assert frame.groupby("phase").size().to_dict() == {PHASES[0]: 6, PHASES[1]: 6, PHASES[2]: 1}


def test_latency_is_median_and_quartiles() -> None:
    times = pd.DataFrame(
        {"tools": 5, "backend": "exact", "batch": 1, "phase": "search", "ms": [1.0, 2.0, 3.0, 4.0, 50.0]}
    )
    (row,) = latency(times).to_dict("records")
    assert (row["q1_ms"], row["median_ms"], row["q3_ms"], row["repeats"]) == (2.0, 3.0, 4.0, 5)


class Letters:
    """One token per letter."""

    name, exact = "letters", True

    def count(self, texts: Sequence[str]) -> Any:
        return np.array([len(text) for text in texts], np.int64)


def test_tokens_of_the_prompt() -> None:
    registry = registry_of([[0], [1, 2]], n=10)
    prompts = Prompts(registry=registry, rows=np.arange(2), counter=Letters(), seed=1)
    frame = prompts.tokens(size=6, shortlist=2).set_index(["task_id", "model"])
    (line,) = prompts._lines(np.array([0])).tolist()
    for task in registry.ids:
        tokens = frame.loc[task, "registry tokens"]
        assert tokens.to_dict() == {
            "in_context": 6 * line,
            "nearest_2": 2 * line,
            "ntilc": 0,
            "ntilc_with_schema": line,
        }
        total = frame.loc[task, "prompt tokens"]
        assert total["ntilc_with_schema"] - total["ntilc"] == line
        assert total["in_context"] - total["nearest_2"] == 4 * line
    assert set(prompts.gold(1)) <= set(prompts.drawn(1, size=6).tolist())

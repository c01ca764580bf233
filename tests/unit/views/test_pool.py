"""The hard pool: miners, representative endpoints, schema signals; and that no cut of it changes a list."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolshift.data.records import Endpoint
from toolshift.runs.seeds import keyed_hash
from toolshift.text.lexical import tokens
from toolshift.text.spans import identifier_words
from toolshift.views import pool as pool_module
from toolshift.views.pool import MINER_BITS, Pool, draw_salt, place_in_group, uniform_candidates
from toolshift.views.schema import operation_verb

Signals = tuple[int, bool, float]


def table(world: Any, pool: Pool) -> dict[tuple[int, int], Signals]:
    task = np.repeat(np.arange(pool.offsets.size - 1), np.diff(pool.offsets))
    rows = zip(task, pool.capability, pool.miner, pool.shares_verb, pool.overlap, strict=True)
    return {(int(t), int(c)): (int(m), bool(v), round(float(o), 5)) for t, c, m, v, o in rows}


# ------------------------------------------------------------------------------------------------------ by hand


def one_task(worlds: Any, *candidate: Any, text: str = "rain in the city", gold: Any = None) -> Any:
    """A task with a gold tool that gets rain by city, and a candidate that BM25 proposes."""
    gold = gold or worlds.Api("get rain", ("city",))
    tools = [worlds.Tool("gold", "A", (gold,)), worlds.Tool("other", "B", candidate)]
    asks = [
        worlds.Ask("t", "A", text, (("gold", gold.operation),)),
        worlds.Ask("u", "B", "something", (("other",),)),
    ]
    return worlds.of(worlds.records(tools, asks), bm25={"t": ["other"]}, dense={})


def signals(world: Any, task: str = "t", tool: str = "other") -> Signals | None:
    return table(world, world.pool()).get((world.task(task), world.tool(tool)))


@pytest.mark.parametrize(
    ("operation", "required", "expected"),
    [
        ("get snow", ("city",), (1, True, 1.0)),
        ("list snow", ("city", "date"), (1, False, 0.5)),
        ("convert", (), (1, False, 0.0)),
        ("rainbow", ("City",), (1, False, 1.0)),  # no verb shares nothing; names compare as words
    ],
)
def test_signals_of_a_single_endpoint(
    worlds: Any, operation: str, required: tuple[str, ...], expected: Signals
) -> None:
    assert signals(one_task(worlds, worlds.Api(operation, required))) == expected


def test_two_endpoints_without_required_arguments_agree(worlds: Any) -> None:
    world = one_task(worlds, worlds.Api("delete snow"), gold=worlds.Api("get rain"))
    assert signals(world) == (1, False, 1.0)


def test_two_unknown_verbs_share_nothing(worlds: Any) -> None:
    world = one_task(worlds, worlds.Api("rainbow two"), gold=worlds.Api("rainbow one"))
    assert signals(world) == (1, False, 1.0)


def test_the_endpoint_nearest_to_the_task_represents_its_tool(worlds: Any) -> None:
    apis = (worlds.Api("delete snow", ("id",)), worlds.Api("get rain today", ("city",)))
    assert signals(one_task(worlds, *apis, text="rain today")) == (1, True, 1.0)
    assert signals(one_task(worlds, *apis, text="snow is gone")) == (1, False, 0.0)


def test_the_first_endpoint_by_id_represents_where_words_do_not_decide(worlds: Any) -> None:
    apis = (worlds.Api("get snow", ("city",)), worlds.Api("delete snow", ("id",)))
    assert signals(one_task(worlds, *apis, text="nothing in common")) == (1, False, 0.0)  # "delete" < "get"


def test_the_best_gold_endpoint_counts(worlds: Any) -> None:
    tools = [
        worlds.Tool("gold", "A", (worlds.Api("get rain", ("city",)), worlds.Api("convert", ("unit",)))),
        worlds.Tool("other", "B", (worlds.Api("convert unit", ("unit", "amount")),)),
    ]
    asks = [
        worlds.Ask("t", "A", "rain", (("gold", "get rain", "convert"),)),
        worlds.Ask("v", "A", "rain", (("gold", "get rain"),)),
        worlds.Ask("u", "B", "x", (("other",),)),
    ]
    world = worlds.of(worlds.records(tools, asks), bm25={"t": ["other"], "v": ["other"]}, dense={})
    assert signals(world) == (1, True, 0.5)
    assert signals(world, task="v") == (1, False, 0.0)  # an endpoint of the gold tool that is not gold itself


def test_a_task_without_gold_endpoints_has_no_signal(worlds: Any) -> None:
    tools = [worlds.Tool("gold", "A", ()), worlds.Tool("other", "B", (worlds.Api("get snow"),))]
    asks = [worlds.Ask("t", "A", "x", (("gold",),)), worlds.Ask("u", "B", "x", (("other",),))]
    assert signals(worlds.of(worlds.records(tools, asks), bm25={"t": ["other"]}, dense={})) == (1, False, 0.0)


def test_a_tool_without_endpoints_is_no_hard_candidate(worlds: Any) -> None:
    assert signals(one_task(worlds)) is None


def test_a_library_without_endpoints_has_an_empty_pool(worlds: Any) -> None:
    tools = [worlds.Tool("a", "A", ()), worlds.Tool("b", "A", ())]
    world = worlds.of(worlds.records(tools, [worlds.Ask("t", "A", "a", (("a",),))]))
    assert world.pool().capability.size == 0


def test_miner_bits_add_up(worlds: Any) -> None:
    api = (worlds.Api("get rain"),)
    tools = [worlds.Tool(n, d, api) for n, d in [("gold", "A"), ("a", "B"), ("b", "B"), ("c", "A"), ("d", "B")]]
    asks = [worlds.Ask("t", "Elsewhere", "x", (("gold",),)), worlds.Ask("u", "B", "x", tuple((n,) for n in "abcd"))]
    world = worlds.of(worlds.records(tools, asks), bm25={"t": ["a", "c"]}, dense={"t": ["a", "b"]})
    found = {world.corpus.capability_ids[c]: s[0] for (t, c), s in table(world, world.pool()).items() if t == 0}
    # The category is that of the gold tools, not the domain of the task; d is proposed by nobody.
    assert found == {"toy/a": 1 + 2, "toy/b": 2, "toy/c": 1 + 4, "toy/gold": 4}


def test_tools_without_a_category_do_not_share_one(worlds: Any) -> None:
    tools = [worlds.Tool(n, "", (worlds.Api("get"),)) for n in ("gold", "other")]
    asks = [worlds.Ask("t", "A", "x", (("gold",),), ("other",))]
    assert signals(worlds.of(worlds.records(tools, asks), bm25={}, dense={})) is None


def test_the_end_of_a_short_list_is_no_candidate(worlds: Any) -> None:
    """-1 in a top list must not reach the last tool of the library."""
    tools = [worlds.Tool(n, n, (worlds.Api("get"),)) for n in ("a", "b", "z")]
    asks = [
        worlds.Ask("t", "a", "x", (("a",),)),
        worlds.Ask("u", "b", "x", (("b",), ("z",))),
    ]
    world = worlds.of(worlds.records(tools, asks), bm25={"t": ["b"], "u": ["a", "b", "z"]}, dense={})
    assert signals(world, tool="b") is not None
    assert signals(world, tool="z") is None


# --------------------------------------------------------------------------------------------- against plain loops


def reference_miners(world: Any, task: int) -> dict[int, int]:
    records, retrieval = world.records, world.retrieval
    gold = records.tasks[task].gold_capability_ids
    categories = {c.domain for c in records.library.capabilities if c.capability_id in gold} - {""}
    bits: Counter[int] = Counter()
    for position, capability in enumerate(records.library.capabilities):
        bits[position] += MINER_BITS["bm25"] * (position in retrieval.bm25_top[task])
        bits[position] += MINER_BITS["dense"] * (position in retrieval.dense_top[task])
        bits[position] += MINER_BITS["category"] * (capability.domain in categories)
    return {c: b for c, b in bits.items() if b}


class Words:
    """TF-IDF cosines of endpoints and texts, one at a time, in float64."""

    def __init__(self, endpoints: tuple[Endpoint, ...]) -> None:
        sets = [self.words(e) for e in endpoints]
        self.frequency = Counter(w for s in sets for w in s)
        self.size = len(endpoints)

    @staticmethod
    def words(endpoint: Endpoint) -> set[str]:
        return set(tokens(f"{identifier_words(endpoint.operation)} {endpoint.description}"))

    def weight(self, words: set[str]) -> float:
        return sum(np.log1p(self.size / self.frequency[w]) ** 2 for w in words if w in self.frequency)

    def cosine(self, text: str, endpoint: Endpoint) -> float:
        asked, offered = set(tokens(text)), self.words(endpoint)
        product = np.sqrt(self.weight(asked) * self.weight(offered))
        return self.weight(asked & offered) / product if product else 0.0


def required(endpoint: Endpoint) -> set[str]:
    return {identifier_words(a.name) for a in endpoint.required_arguments}


def jaccard(a: set[str], b: set[str]) -> float:
    return len(a & b) / len(a | b) if a | b else 1.0


def reference_signals(world: Any, task: int, capability: int, words: Words) -> set[tuple[bool, float]]:
    """What may be said of a pair: more than one answer only where endpoints are equally near but for rounding."""
    record, library = world.records.tasks[task], world.records.library
    gold = [e for e in library.endpoints if e.endpoint_id in record.gold_endpoint_ids]
    verbs = {operation_verb(e.operation, e.description) for e in gold} - {None}
    mine = library.endpoints_of[library.capabilities[capability].capability_id]
    nearness = [words.cosine(record.text, e) for e in mine]
    answers = set()
    for endpoint, near in zip(mine, nearness, strict=True):
        if near >= max(nearness) - 2e-6:
            overlap = max((jaccard(required(endpoint), required(g)) for g in gold), default=0.0)
            answers.add((operation_verb(endpoint.operation, endpoint.description) in verbs, round(overlap, 5)))
    return answers


@given(data=st.data(), library=st.booleans())
@settings(max_examples=40)
def test_pool_against_loops(worlds: Any, data: st.DataObject, library: bool) -> None:
    world = worlds.of(data.draw(worlds.drawn()))
    found = table(world, world.whole_pool(worlds.Rules()) if library else world.pool())
    words, tasks, tools = Words(world.corpus.endpoints), world.records.tasks, world.records.library.capabilities
    judged = {i for t in tasks for i in (*t.gold_capability_ids, *t.given_candidate_ids)}
    mined = {(t, c): bits for t in range(len(tasks)) for c, bits in reference_miners(world, t).items()}
    assert found.keys() <= mined.keys()
    for (task, capability), bits in mined.items():
        if not world.corpus.endpoint_count[capability]:
            assert (task, capability) not in found
            continue
        answers = reference_signals(world, task, capability, words)
        if (task, capability) in found:
            assert found[task, capability][0] == bits
            assert found[task, capability][1:] in answers
            assert library or tools[capability].capability_id in judged
        elif tools[capability].capability_id in judged:
            pytest.fail("a judged capability is missing")
        else:  # in a library only conflicts are of use among capabilities that no task judges
            assert not library or any(verb or overlap >= 0.2 for verb, overlap in answers)


@given(data=st.data(), block=st.integers(1, 4))
@settings(max_examples=15)
def test_the_pool_does_not_depend_on_how_tasks_are_grouped(worlds: Any, data: st.DataObject, block: int) -> None:
    world = worlds.of(data.draw(worlds.drawn()))
    whole = world.pool()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pool_module, "_BLOCK_TASKS", block)
        assert table(world, world.pool()) == table(world, whole)


def test_a_row_depends_on_the_labels_of_its_own_task_alone(worlds: Any) -> None:
    records = worlds.fixed()
    one = worlds.of(records, top=12)
    other = worlds.of(worlds.relabelled(records, "D1", how="permuted"), top=12)
    mine, theirs = (table(w, w.pool()) for w in (one, other))
    own = [t for t, r in enumerate(records.tasks) if r.domain != "D1"]
    assert {p: s for p, s in mine.items() if p[0] in own} == {p: s for p, s in theirs.items() if p[0] in own}
    assert mine != theirs


# ----------------------------------------------------------------------------------------------------------- cuts


@given(
    data=st.data(),
    universe=st.sampled_from(["domain", "judged", "library"]),
    miner=st.sampled_from(["union", "dense", "bm25", "category"]),
)
@settings(max_examples=40)
def test_cuts_of_the_pool_never_change_a_list(worlds: Any, data: st.DataObject, universe: str, miner: str) -> None:
    world = worlds.of(data.draw(worlds.drawn()))
    rules = worlds.Rules(universe=universe, miner=miner, length=4, hard=2, seed=data.draw(st.integers(0, 3)))
    cut, whole = world.fold(rules), world.fold(rules, pool=world.whole_pool(rules))
    for view, manifest in world.manifests(cut).items():
        expected = world.manifests(whole)[view]
        assert world.readable(manifest) == world.readable(expected)
        assert manifest.skipped == expected.skipped


def test_the_library_cut_does_cut_and_changes_no_list(worlds: Any) -> None:
    """With more tools than the width keeps, or the property above would prove nothing about it."""
    tools = [
        worlds.Tool(f"tool{i:03d}", f"D{i % 2}", (worlds.Api(("convert", "get")[i % 3 == 0], (f"a{i}",)),))
        for i in range(90)
    ]
    asks = [
        worlds.Ask(f"t{i}", f"D{i % 2}", "x", ((f"tool{i:03d}", ("convert", "get")[i % 3 == 0]),)) for i in range(8)
    ]
    world = worlds.of(worlds.records(tools, asks), top=70)
    rules = worlds.Rules(universe="library", length=5, hard=3)
    cut, whole = world.fold(rules), world.fold(rules, pool=world.whole_pool(rules))
    assert cut.pool.capability.size < whole.pool.capability.size
    assert cut.pool.uniform.shape[1] == 20
    for view, manifest in world.manifests(cut).items():
        assert world.readable(manifest) == world.readable(world.manifests(whole)[view])
        assert manifest.tasks.size


def test_uniform_candidates_are_the_smallest_hashes(fixed_world: Any) -> None:
    corpus = fixed_world.corpus
    found = uniform_candidates(corpus, seed=3, width=5)
    salt = draw_salt("ordinary", 3)
    hashes = keyed_hash(salt, corpus.task_hash[:, None], corpus.capability_hash[None, :])
    np.testing.assert_array_equal(np.sort(found, axis=1), np.sort(np.argsort(hashes, axis=1)[:, :5], axis=1))
    assert (found != uniform_candidates(corpus, seed=4, width=5)).any()


def test_uniform_candidates_of_a_small_library_are_all_of_it(fixed_world: Any) -> None:
    found = uniform_candidates(fixed_world.corpus, seed=0, width=10_000)
    np.testing.assert_array_equal(np.sort(found, axis=1), np.tile(np.arange(28), (40, 1)))


def test_every_role_and_seed_has_its_own_draw() -> None:
    assert len({draw_salt(role, seed) for role in ("ordinary", "semantic", "contextual") for seed in range(3)}) == 9


def test_place_in_group() -> None:
    np.testing.assert_array_equal(place_in_group(np.array([0, 0, 3, 7, 7, 7])), [0, 1, 0, 0, 1, 2])
    assert place_in_group(np.zeros(0, np.int64)).size == 0

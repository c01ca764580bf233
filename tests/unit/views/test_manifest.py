"""Manifests against a slow reference, and what a reader of a list may rely on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolshift.runs.files import sha256_file
from toolshift.runs.seeds import id_hashes, keyed_hash
from toolshift.views.manifest import (
    ROLES,
    Draw,
    Manifest,
    Recipe,
    Suspects,
    build_manifest,
    manifest_table,
    miner_name,
    suspected_duplicates,
    write_table,
)
from toolshift.views.pool import MINER_BITS, draw_salt
from toolshift.views.roles import ordinary

UNIVERSES = st.sampled_from(["domain", "judged", "library"])
MINERS = st.sampled_from(["union", "dense", "bm25", "category"])
Row = tuple[str, str, str, int]


@st.composite
def cases(draw: st.DrawFn, worlds: Any) -> Any:
    """(world, fold) with any universe, miner and seed."""
    world = worlds.of(draw(worlds.drawn()))
    hard = draw(st.integers(1, 4))
    rules = worlds.Rules(
        universe=draw(UNIVERSES),
        miner=draw(MINERS),
        length=draw(st.integers(hard + 1, 7)),
        hard=hard,
        seed=draw(st.integers(0, 5)),
    )
    rows = draw(st.lists(st.sampled_from(range(world.corpus.n_tasks)), min_size=1, unique=True))
    return world, world.fold(rules, rows=rows)


class Reference:
    """The rules of validity.md sections 1, 2 and 4, one task at a time, over ids and sets; signals from the pool."""

    def __init__(self, world: Any, fold: Any) -> None:
        self.world, self.rules = world, fold.rules
        self.library = [c.capability_id for c in world.records.library.capabilities]
        self.tasks = [world.records.tasks[r] for r in fold.labels.rows]
        self.signals: dict[tuple[str, str], tuple[int, bool, float]] = {}
        pool = world.whole_pool(fold.rules)
        for row, task in enumerate(world.records.tasks):
            for i in range(pool.offsets[row], pool.offsets[row + 1]):
                key = task.task_id, self.library[pool.capability[i]]
                self.signals[key] = int(pool.miner[i]), bool(pool.shares_verb[i]), float(pool.overlap[i])

    def universe(self, task: Any) -> set[str]:
        if self.rules.universe == "library":
            return set(self.library)
        asked = [t for t in self.tasks if self.rules.universe == "judged" or not task.domain or t.domain == task.domain]
        return {i for t in asked for i in (*t.gold_capability_ids, *t.given_candidate_ids)}

    def mined(self, task: Any) -> dict[str, tuple[int, bool, float]]:
        wanted = 7 if self.rules.miner == "union" else MINER_BITS[self.rules.miner]
        mine = {c: s for (t, c), s in self.signals.items() if t == task.task_id}
        return {c: s for c, s in mine.items() if s[0] & wanted and c not in task.gold_capability_ids}

    def semantic(self, task: Any) -> dict[str, int]:
        inside = self.universe(task)
        mined = self.mined(task).items()
        return {c: bits for c, (bits, verb, overlap) in mined if c in inside and not verb and overlap < 0.2}

    def contextual(self, task: Any) -> dict[str, int]:
        users = {c: {t.domain for t in self.tasks if t.domain and c in t.gold_capability_ids} for c in self.library}
        mined = self.mined(task).items()
        return {
            c: bits for c, (bits, verb, _) in mined if task.domain and verb and users[c] and task.domain not in users[c]
        }

    def ordinary(self, task: Any) -> dict[str, int]:
        return dict.fromkeys(self.universe(task) - set(task.gold_capability_ids), MINER_BITS["uniform"])

    def given(self, task: Any) -> dict[str, int]:
        left = set(task.given_candidate_ids) - set(task.gold_capability_ids)
        return dict.fromkeys(left, MINER_BITS["given"])

    def rows(self, view: str) -> tuple[list[Row], Counter[str]]:
        half = max(self.rules.hard // 2, 1)
        steps = {
            "natural": [("ordinary", self.given, None), ("ordinary", self.ordinary, None)],
            "semantic": [("semantic", self.semantic, self.rules.hard), ("ordinary", self.ordinary, None)],
            "context": [("contextual", self.contextual, self.rules.hard), ("ordinary", self.ordinary, None)],
            "mixed": [
                ("semantic", self.semantic, half),
                ("contextual", self.contextual, half),
                ("ordinary", self.ordinary, None),
            ],
        }[view]
        rows: list[Row] = []
        skipped: Counter[str] = Counter()
        for task in self.tasks:
            drawn, reason = self._list(task, steps)
            if reason:
                skipped[reason] += 1
            else:
                rows += drawn
        return sorted(rows), skipped

    def _list(self, task: Any, steps: Any) -> tuple[list[Row], str]:
        taken = [(c, "positive", 0) for c in task.gold_capability_ids]
        room = max(self.rules.length - len(taken), 1)
        for role, rule, quota in steps:
            offer = {c: bits for c, bits in rule(task).items() if c not in {c for c, *_ in taken}}
            salt = draw_salt(role, self.rules.seed)
            order = sorted(offer, key=lambda c: int(keyed_hash(salt, id_hashes([task.task_id]), id_hashes([c]))[0]))
            chosen = order[: room if quota is None else min(room, quota)]
            if quota is not None and not chosen:
                return [], f"no_{role}_candidate"
            taken += [(c, role, offer[c]) for c in chosen]
            room -= len(chosen)
        if len(taken) == len(task.gold_capability_ids):
            return [], "no_negative"
        return [(task.task_id, *entry) for entry in taken], ""


@given(data=st.data())
def test_manifests_against_the_reference(worlds: Any, data: st.DataObject) -> None:
    world, fold = data.draw(cases(worlds))
    reference = Reference(world, fold)
    for view, manifest in world.manifests(fold).items():
        rows, skipped = reference.rows(view)
        assert world.readable(manifest) == rows
        assert manifest.skipped == skipped


@given(data=st.data())
@settings(max_examples=30)
def test_shape_of_lists(worlds: Any, data: st.DataObject) -> None:
    """Positives kept, roles disjoint, min(length, available) candidates, quotas held, skipped tasks counted."""
    world, fold = data.draw(cases(worlds))
    rules, gold = fold.rules, world.labels.gold.toarray()
    for view, manifest in world.manifests(fold).items():
        assert manifest.tasks.size + sum(manifest.skipped.values()) == fold.labels.rows.size
        for i, task in enumerate(manifest.tasks):
            part = slice(manifest.offsets[i], manifest.offsets[i + 1])
            candidates, roles = manifest.capability[part], manifest.role[part]
            assert (np.diff(candidates) > 0).all()  # sorted, none twice: so no candidate has two roles
            np.testing.assert_array_equal(candidates[roles == 0], np.flatnonzero(gold[task]))
            n_gold = int(gold[task].sum())
            available = int(fold.available[fold.corpus.task_domain[task]].sum())
            hard = int((roles > 1).sum())
            assert candidates.size <= max(rules.length, n_gold + 1)
            if view in ("natural", "semantic"):
                assert candidates.size == min(max(rules.length, n_gold + 1), available)
            assert hard <= max(rules.hard, 2)
            assert (hard > 0) == (view != "natural")


@given(data=st.data())
@settings(max_examples=30)
def test_mixed_shares_its_draws_with_the_other_views(worlds: Any, data: st.DataObject) -> None:
    world, fold = data.draw(cases(worlds))
    found = {view: set(world.readable(m)) for view, m in world.manifests(fold).items()}
    for role, view in (("semantic", "semantic"), ("contextual", "context")):
        assert {row for row in found["mixed"] if row[2] == role} <= found[view]


@given(data=st.data())
@settings(max_examples=20)
def test_ordinary_candidates_are_shared_as_far_as_there_is_room(worlds: Any, data: st.DataObject) -> None:
    """A longer list keeps what a shorter one drew: draws are a prefix of one order per role."""
    world, fold = data.draw(cases(worlds))
    longer = world.fold(replace(fold.rules, length=fold.rules.length + 2), rows=fold.labels.rows)
    plain = Recipe(draws=(Draw(role="ordinary", rule=ordinary, quota=None),))
    short, long = (set(world.readable(build_manifest("v", plain, fold=f))) for f in (fold, longer))
    assert short <= long


def test_a_view_does_not_depend_on_the_other_views(fixed_world: Any, worlds: Any) -> None:
    rules = worlds.Rules(length=8, hard=4)
    together = fixed_world.manifests(fixed_world.fold(rules))
    for view in reversed(worlds.views):
        alone = build_manifest("renamed", worlds.recipe(view, rules), fold=fixed_world.fold(rules))
        assert fixed_world.readable(alone) == fixed_world.readable(together[view])


def test_another_seed_draws_other_lists(fixed_world: Any, worlds: Any) -> None:
    one, other = (fixed_world.manifests(fixed_world.fold(worlds.Rules(length=6, hard=2, seed=s))) for s in (0, 1))
    for view in worlds.views:
        assert fixed_world.readable(one[view]) != fixed_world.readable(other[view])


def test_lists_do_not_depend_on_which_other_tasks_exist(worlds: Any) -> None:
    """Library draws of a task read no other task: without every second task its lists are the same."""
    records = worlds.fixed()
    fewer = replace(records, tasks=records.tasks[::2])
    rules = worlds.Rules(universe="library", length=8, hard=4)
    lists = []
    for some in (records, fewer):
        world = worlds.of(some, top=12)
        found = world.manifests(world.fold(rules))
        kept = {t.task_id for t in fewer.tasks}
        lists.append({v: [r for r in world.readable(found[v]) if r[0] in kept] for v in ("natural", "semantic")})
    assert lists[0] == lists[1]
    assert all(lists[0].values())


def test_more_gold_than_places_keeps_all_gold_and_one_negative(worlds: Any) -> None:
    tools = [worlds.Tool(f"t{i}", "A", (worlds.Api("get"),)) for i in range(9)]
    asks = [
        worlds.Ask("many", "A", "x", tuple((f"t{i}",) for i in range(6))),
        worlds.Ask("rest", "A", "x", tuple((f"t{i}",) for i in range(6, 9))),
    ]
    world = worlds.of(worlds.records(tools, asks))
    manifest = world.manifests(world.fold(worlds.Rules(length=4, hard=1)))["natural"]
    np.testing.assert_array_equal(manifest.lengths, [7, 4])
    np.testing.assert_array_equal(np.add.reduceat(manifest.positive.astype(int), manifest.offsets[:-1]), [6, 3])


def test_a_task_whose_universe_is_its_gold_is_counted(worlds: Any) -> None:
    tools = [worlds.Tool(n, "A", (worlds.Api("get"),)) for n in "ab"]
    asks = [worlds.Ask("t", "A", "x", (("a",), ("b",))), worlds.Ask("u", "A", "x", (("a",),))]
    world = worlds.of(worlds.records(tools, asks))
    manifest = world.manifests(world.fold(worlds.Rules()))["natural"]
    assert manifest.skipped == {"no_negative": 1}
    np.testing.assert_array_equal(manifest.tasks, [world.task("u")])


# ---------------------------------------------------------------------------------------------- restrict and filter


@pytest.fixture
def three_lists() -> Manifest:
    """Tasks 2, 5, 9 with 3, 2, 2 candidates."""
    return Manifest(
        view="v",
        tasks=np.array([2, 5, 9]),
        offsets=np.array([0, 3, 5, 7]),
        capability=np.array([0, 1, 2, 0, 3, 1, 4]),
        role=np.array([0, 1, 2, 1, 0, 0, 3], np.int8),
        miner=np.array([0, 16, 1, 16, 0, 0, 2], np.uint8),
        skipped={"why": 1},
    )


def test_properties_of_a_manifest(three_lists: Manifest) -> None:
    np.testing.assert_array_equal(three_lists.lengths, [3, 2, 2])
    np.testing.assert_array_equal(three_lists.task_of, [2, 2, 2, 5, 5, 9, 9])
    np.testing.assert_array_equal(three_lists.positive, [1, 0, 0, 0, 1, 1, 0])


def test_filter_drops_lists_that_are_no_lists_any_more(three_lists: Manifest) -> None:
    kept = three_lists.filter(np.array([1, 0, 1, 1, 0, 1, 0], bool))  # the second loses its gold, the third the rest
    np.testing.assert_array_equal(kept.tasks, [2])
    np.testing.assert_array_equal(kept.offsets, [0, 2])
    np.testing.assert_array_equal(kept.capability, [0, 2])
    np.testing.assert_array_equal(kept.role, [0, 2])
    np.testing.assert_array_equal(kept.miner, [0, 1])
    assert kept.skipped == {"why": 1}


def test_restrict_keeps_whole_lists(three_lists: Manifest) -> None:
    kept = three_lists.restrict(np.array([False, True, True]))
    np.testing.assert_array_equal(kept.tasks, [5, 9])
    np.testing.assert_array_equal(kept.capability, [0, 3, 1, 4])
    assert three_lists.restrict(np.zeros(3, bool)).tasks.size == 0
    assert three_lists.restrict(np.zeros(3, bool)).filter(np.zeros(0, bool)).lengths.size == 0


# ------------------------------------------------------------------------------------------- suspected duplicates


@pytest.fixture
def twins(worlds: Any) -> Any:
    """Gold ``gold`` (Get Rain: city, optional unit) and one list over five more tools."""
    apis = {
        "gold": worlds.Api("Get Rain", ("city",), ("unit",)),
        "twin": worlds.Api("getRain", ("unit",), ("city",)),  # same words, same arguments
        "less": worlds.Api("Get Rain", ("city",)),  # an argument is missing
        "name": worlds.Api("Get Snow", ("city",), ("unit",)),  # another operation
        "text": worlds.Api("Get Hail"),  # the public text is the gold tool's
        "side": worlds.Api("Side Job", ("x",)),  # the operation of a gold tool that the task does not need
    }
    texts = {"gold": "all about rain", "text": "All about rain!"}
    tools = [worlds.Tool(n, "A", (api,), texts.get(n, f"{n} of its own")) for n, api in apis.items()]
    tools[0] = replace(tools[0], apis=(apis["gold"], apis["side"]))
    asks = [worlds.Ask("t", "A", "rain", (("gold", "Get Rain"),), tuple(apis))]
    return worlds.of(worlds.records(tools, asks))


def flagged(world: Any, suspects: Suspects, manifest: Manifest, rule: str) -> set[str]:
    flags = getattr(suspects, rule)
    return {world.corpus.capability_ids[c].removeprefix("toy/") for c in manifest.capability[flags]}


def test_both_rules_for_suspected_duplicates(twins: Any, worlds: Any) -> None:
    manifest = twins.manifests(twins.fold(worlds.Rules()))["natural"]
    assert manifest.capability.size == 6
    found = suspected_duplicates(manifest, twins.corpus, labels=twins.labels, near_text=twins.retrieval.near_text)
    assert flagged(twins, found, manifest, "same_operation") == {"twin"}
    assert flagged(twins, found, manifest, "near_text") == {"text"}
    assert flagged(twins, found, manifest, "any") == {"twin", "text"}
    assert not found.take(manifest.positive).any.any()
    np.testing.assert_array_equal(found.take(found.near_text).near_text, [True])


def test_an_empty_view_has_no_suspects(twins: Any, worlds: Any) -> None:
    manifest = twins.manifests(twins.fold(worlds.Rules()))["context"]
    assert manifest.tasks.size == 0
    found = suspected_duplicates(manifest, twins.corpus, labels=twins.labels, near_text=twins.retrieval.near_text)
    assert found.any.size == 0


@given(data=st.data())
@settings(max_examples=20)
def test_suspects_against_loops(worlds: Any, data: st.DataObject) -> None:
    world, fold = data.draw(cases(worlds))
    library, tasks = world.records.library, {t.task_id: t for t in world.records.tasks}

    def keys(endpoint: Any) -> tuple[str, tuple[str, ...]]:
        return endpoint.operation, tuple(sorted(a.name for a in endpoint.arguments))

    manifest = world.manifests(fold)["natural"]
    found = suspected_duplicates(manifest, world.corpus, labels=world.labels, near_text=world.retrieval.near_text)
    cosine = world.capability_vectors @ world.capability_vectors.T
    for i, (task_id, capability_id, role, _) in enumerate(world.readable(manifest)):
        wanted = {keys(e) for e in library.endpoints if e.endpoint_id in tasks[task_id].gold_endpoint_ids}
        same = any(keys(e) in wanted for e in library.endpoints_of[capability_id])
        assert found.same_operation[i] == (same and role != "positive")
        gold = [library.position[g] for g in tasks[task_id].gold_capability_ids]
        near = any(cosine[g, library.position[capability_id]] >= 0.95 for g in gold)
        assert found.near_text[i] == (near and role != "positive")


# --------------------------------------------------------------------------------------------------- published form


def test_the_published_table(fixed_world: Any, worlds: Any, tmp_path: Path) -> None:
    manifest = fixed_world.manifests(fixed_world.fold(worlds.Rules(length=8, hard=4)))["mixed"]
    near = fixed_world.retrieval.near_text
    suspects = suspected_duplicates(manifest, fixed_world.corpus, labels=fixed_world.labels, near_text=near)
    path = write_table(tmp_path / "m.parquet", manifest_table(manifest, fixed_world.corpus, suspects=suspects))
    frame = pq.read_table(path).to_pandas()
    assert list(frame.columns) == ["task_id", "capability_id", "role", "miner", "suspected_duplicate"]
    expected = [(t, c, r, miner_name(m)) for t, c, r, m in fixed_world.readable(manifest)]
    assert list(frame[["task_id", "capability_id", "role", "miner"]].itertuples(index=False, name=None)) == expected
    np.testing.assert_array_equal(frame["suspected_duplicate"], suspects.any)
    assert set(frame["role"]) == set(ROLES)


def test_miner_names() -> None:
    assert [miner_name(b) for b in (0, 1, 2, 3, 7, 8, 16)] == [
        "", "bm25", "dense", "bm25+dense", "bm25+dense+category", "given", "uniform",
    ]  # fmt: skip


def test_the_same_table_gives_the_same_bytes(fixed_world: Any, worlds: Any, tmp_path: Path) -> None:
    digests = []
    for name in ("a", "b"):
        manifest = fixed_world.manifests(fixed_world.fold(worlds.Rules()))["natural"]
        none = np.zeros(manifest.capability.size, bool)
        table = manifest_table(manifest, fixed_world.corpus, suspects=Suspects(same_operation=none, near_text=none))
        digests.append(sha256_file(write_table(tmp_path / name, table)))
    assert digests[0] == digests[1]


# ----------------------------------------------------------------------------------------- sample, and hash seeds

SAMPLE_SCRIPT = """
import json, sys
from pathlib import Path
import numpy as np
from toolshift.data.sample import Spec, write_sample
from toolshift.data.store import load_records
from toolshift.runs.files import sha256_file
from toolshift.runs.seeds import generator
from toolshift.text.encoder import unit_rows
from toolshift.text.lexical import Bm25
from toolshift.views import context, mixed, natural, semantic
from toolshift.views.corpus import build_corpus
from toolshift.views.manifest import build_manifest, manifest_table, suspected_duplicates, write_table
from toolshift.views.pool import LibraryWidth, build_pool
from toolshift.views.retrieval import retrieve
from toolshift.views.roles import Fold, Rules

folder = Path(sys.argv[1])
root = write_sample(folder, Spec(size="tiny")).root
adapter = "toolshift.data.adapters.toolbench:read"
records = load_records(dataset="toolbench", adapter=adapter, root=root, cache=folder).records
corpus, labels = build_corpus(records)
sizes = corpus.n_tasks, corpus.n_capabilities
vectors = [unit_rows(generator("v", size).standard_normal((size, 8))) for size in sizes]
retrieval = retrieve(
    corpus.task_texts, Bm25(corpus.capability_texts), task_vectors=vectors[0], capability_vectors=vectors[1],
    top=10, duplicate_cosine=0.9, cache=folder, key="k",
)
result = {}
for universe in ("domain", "library"):
    rules = Rules(universe=universe)
    width = LibraryWidth(width=80, seed=0, overlap_below=0.2)
    pool = build_pool(corpus, labels, retrieval=retrieval, library=width if universe == "library" else None)
    fold = Fold(corpus=corpus, labels=labels, pool=pool, rules=rules)
    for view in (natural, semantic, context, mixed):
        manifest = build_manifest(view.__name__, view.recipe(rules), fold=fold)
        suspects = suspected_duplicates(manifest, corpus, labels=labels, near_text=retrieval.near_text)
        path = folder / f"{universe}-{view.__name__}.parquet"
        write_table(path, manifest_table(manifest, corpus, suspects=suspects))
        result[path.stem] = [sha256_file(path), int(manifest.tasks.size), int(manifest.lengths.max())]
print(json.dumps(result))
"""


def sample_manifests(folder: Path, hash_seed: str) -> dict[str, list[Any]]:
    env = {**os.environ, "PYTHONHASHSEED": hash_seed, "OMP_NUM_THREADS": "1"}
    env["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
    command = [sys.executable, "-c", SAMPLE_SCRIPT, str(folder)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_manifest_bytes_do_not_depend_on_the_hash_seed(tmp_path: Path) -> None:
    zero, one = (sample_manifests(tmp_path / seed, seed) for seed in ("0", "1"))
    assert zero == one
    assert len(zero) == 8
    assert all(tasks > 10 and longest == 20 for name, (_, tasks, longest) in zero.items() if "library" in name)
    assert len({digest for digest, *_ in zero.values()}) == 8
